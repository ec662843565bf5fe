"""Compiled sparse networks: the network's own outputs, whatever it is made of."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from implicit_models.sim.pruning.skipping import CompiledNetwork, compiled
from implicit_models.sim.pruning.sparse_convolution import LANES, convolve_lines, kernel_rows


class Mixed(nn.Module):
    """Strided, dilated, 1 x 1, depthwise and unpadded convolutions, two of which meet in a sum; a padded shortcut, a
    value that is read twice, pooling, and maps that do not keep zeros."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.a, self.b = nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.Conv2d(6, 8, 1, stride=2)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.deep, self.bare = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 12, (2, 1))
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.a(x) + self.b(x))
        x = torch.sigmoid(self.wide(x)) + x
        x = self.deep(x) - F.leaky_relu(x, 0.1)
        y = F.relu(self.bare(x))
        y = y + F.pad(x[:, :, 1:], (0, 0, 0, 0, 2, 2))
        return self.head(F.max_pool2d(y, 2).mean((2, 3)))


def sparse(network, share=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.weight *= torch.rand(module.weight.shape, generator=generator) < share
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-1, 1), module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 2), module.bias.uniform_(-1, 1)
    return network.eval()


@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (1, 3)])
@pytest.mark.parametrize(("add", "relu"), [(False, False), (True, True)])
def test_lines_are_torchs_convolution(stride, add, relu):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((LANES, 3, 7, 5)).astype(np.float32)
    weight = rng.standard_normal((4, 3, 3, 2)) * (rng.random((4, 3, 3, 2)) < 0.4)
    weight[2] = 0.0
    bias, m, padding = rng.standard_normal(4), 2, (1, 2)
    to = lambda a: torch.from_numpy(np.asarray(a, np.float32))
    wanted = F.conv2d(to(x), to(weight), to(bias), stride, padding).numpy()
    _, r, h, w = wanted.shape
    other = rng.standard_normal(wanted.shape).astype(np.float32)
    wanted = wanted + other if add else wanted
    wanted = np.maximum(wanted, 0) if relu else wanted
    inside = np.pad(x, ((0, 0), (0, 0), (m, m), (m, m))).transpose(1, 2, 3, 0)
    added = np.pad(other, ((0, 0), (0, 0), (m, m), (m, m))).transpose(1, 2, 3, 0).reshape(r, h + 2 * m, -1)
    out = np.zeros((r, h + 2 * m, (w + 2 * m) * LANES), np.float32)
    rows = kernel_rows(weight, bias, (7, 5), m, stride=stride, padding=padding)
    flat = np.ascontiguousarray(inside).reshape(-1)
    convolve_lines(flat, rows, add, np.ascontiguousarray(added), relu, out, (h, w), m)
    found = out.reshape(r, h + 2 * m, w + 2 * m, LANES)
    assert np.allclose(found[:, m:-m, m:-m].transpose(3, 0, 1, 2), wanted, atol=1e-5)
    found[:, m:-m, m:-m] = 0
    assert not found.any()  # margins stay zero
    with pytest.raises(ValueError, match="larger than the margin of 1"):
        kernel_rows(weight, bias, (7, 5), 1, padding=(2, 0))


def test_a_compiled_network_computes_what_the_network_does():
    network = sparse(Mixed())
    model = compiled(network, (3, 13, 9))
    assert "6 convolutions" not in repr(model) and "5 convolutions" in repr(model)
    for n in (1, 16, 37):
        u = torch.randn(n, 3, 13, 9, generator=torch.Generator().manual_seed(n))
        with torch.no_grad():
            wanted = network(u)
        for _ in range(2):  # values of an earlier call leave no trace
            assert torch.allclose(model(u), wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
    assert model(torch.zeros(0, 3, 13, 9)).shape == (0, 4)


def test_it_holds_the_weights_as_they_were_and_leaves_the_network_alone():
    network = sparse(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)))
    u = torch.randn(5, 2, 5, 5)
    with torch.no_grad():
        before = network(u)
        model = compiled(network, (2, 5, 5))
        network[0].weight.zero_()
        assert torch.allclose(model(u), before, atol=1e-5)


def test_bad_input_is_refused():
    network = sparse(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()))
    model = compiled(network, (2, 5, 5))
    with pytest.raises(ValueError, match=r"samples must be \(N, 2, 5, 5\) of float32, got \(4, 2, 5, 6\)"):
        model(torch.zeros(4, 2, 5, 6))
    with pytest.raises(ValueError, match="float64"):
        model(torch.zeros(4, 2, 5, 5).double())
    with pytest.raises(ValueError, match="of float32, the network is of torch.float64"):
        CompiledNetwork(network.double(), (2, 5, 5))
