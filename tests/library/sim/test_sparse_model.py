"""Sparse models as torch modules: copies, precision, saving, the head."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.layerwise import sparsify
from implicit_models.sim.problem import Cardinality
from implicit_models.sim.sparse_model import ridge_head
from reproduction.models.resnet20 import Block


class Residual(nn.Module):
    """A small residual network on 2 x 8 x 8 images, with a constant of its own in the forward."""

    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.linear = (
            nn.Conv2d(2, 3, 3, padding=1),
            nn.Sequential(Block(3, 3, 1), Block(3, 5, 2)),
            nn.Linear(5, 4),
        )
        self.register_buffer("mean", torch.full((2, 1, 1), 0.1))

    def forward(self, x):
        return self.linear(self.blocks(torch.relu(self.first(x - self.mean))).mean((2, 3)))


def images(n=60, seed=5):
    return torch.randn(n, 2, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def network():
    network, generator = Residual().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in (*network.named_parameters(), *network.named_buffers()):
            if t.is_floating_point() and name != "mean":
                t.normal_(generator=generator).mul_(0.5)
                if name.endswith("running_var"):
                    t.abs_().add_(0.3)
    return network


@pytest.fixture(params=[True, False], ids=["head", "own"])
def model(network, request):
    return sparsify(network, images(), Cardinality(0.3), head=request.param)


@torch.no_grad()
def test_a_copy_is_a_model_of_its_own(model):
    u = images(9, 1)
    before = model(u)
    for twin in (copy.deepcopy(model), copy.deepcopy(nn.Sequential(model))[0], copy.deepcopy(copy.deepcopy(model))):
        assert torch.equal(twin(u), before) and not twin.training
        assert twin.layers.traced is twin.network and twin.network is not model.network
        twin.b1.add_(1.0)
        twin.A2.values().mul_(2.0)
        twin.network.get_parameter("first.weight").zero_()
        assert not torch.equal(twin(u), before)
    assert torch.equal(model(u), before)


def test_parameters_are_copied_as_such(model):
    model.b1, model.A1 = nn.Parameter(model.b1), nn.Parameter(model.A1)
    twin, u = copy.deepcopy(model), images(5, 1)
    assert {name for name, t in twin.named_parameters() if t.requires_grad} == {"b1", "A1"} and twin.A1 is not model.A1
    assert torch.equal(twin(u), model(u))
    twin(u).sum().backward()
    assert twin.b1.grad is not None and model.b1.grad is None


@torch.no_grad()
def test_precision_is_the_model_s_own(model):
    u = images(9, 1)
    before = model(u)
    double = copy.deepcopy(model).double()
    assert double.dtype == torch.float64 and model.dtype == torch.float32 and double.report is not None
    assert double(u.double()).dtype == torch.float64 and double.A1.dtype == torch.float64
    torch.testing.assert_close(double(u.double()).float(), before, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="inputs are torch.float32, the network is torch.float64"):
        double(u)
    single = double.float()
    assert single.dtype == torch.float32 and torch.equal(single(u), before)
    with pytest.raises(TypeError, match="inputs are torch.float64, the network is torch.float32"):
        single(u.double())


@torch.no_grad()
def test_saved_models_and_copies_are_loaded(model):
    u = images(9, 1)
    for each in (model, copy.deepcopy(model).double()):
        file = io.BytesIO()
        torch.save(each, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        assert again.dtype == each.dtype and torch.equal(again(u.to(each.dtype)), each(u.to(each.dtype)))
        assert torch.equal(copy.deepcopy(again)(u.to(each.dtype)), each(u.to(each.dtype)))


def test_head_is_ridge_regression():
    generator = torch.Generator().manual_seed(0)
    X, Y = torch.randn(50, 4, generator=generator) + 3.0, torch.randn(50, 2, generator=generator)
    X[:, 2] = 7.0
    W, b = ridge_head(X, Y, ridge=0.1)
    x, y = X.double().numpy(), Y.double().numpy()
    x, y = x - x.mean(0), y - y.mean(0)
    live = [0, 1, 3]
    expected = np.linalg.lstsq(
        np.vstack([x[:, live], np.diag(np.sqrt(0.1 * (x[:, live] ** 2).sum(0)))]),
        np.vstack([y, np.zeros((3, 2))]),
        rcond=None,
    )[0]
    np.testing.assert_allclose(W[:, live], expected.T, atol=1e-9)
    assert not W[:, 2].any()
    np.testing.assert_allclose(b, Y.double().numpy().mean(0) - W @ X.double().numpy().mean(0))
