"""Intervals and radii without the matrices, against the library's on the exact model, samples, and closed forms."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.bound_methods import bounds
from reproduction.ch4_resnet20_cifar import bounds as certificates
from reproduction.models.resnet20 import ResNet20
from reproduction.resnet20 import network as networks


@pytest.fixture(scope="module")
def network():
    """Weights so small that boxes stay of the size of the states, on images of 4 x 4."""
    net, generator = ResNet20(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.copy_(
                    torch.randn(module.weight.shape, generator=generator) * 0.2 / module.weight[0].numel() ** 0.5
                )
            elif isinstance(module, nn.BatchNorm2d):
                module.bias.copy_(0.3 * torch.randn(module.bias.shape, generator=generator))
                module.running_mean.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.bias.shape, generator=generator))
    return networks.flat(net, (3, 4, 4))


@pytest.fixture(scope="module")
def samples(network):
    u = np.random.default_rng(0).random((5, 48))
    return u, networks.classes_of(network, u)


def test_margins_are_those_of_the_exact_model(network, samples):
    u, y = samples
    model = from_network(network[1].double(), (3, 4, 4), dtype=torch.float64)
    network[1].float()
    spec = np.zeros((5, 9, 10))
    for i in range(5):
        spec[i, np.arange(9), np.delete(np.arange(10), y[i])] = -1
        spec[i, :, y[i]] = 1
    for eps in (0.0, 0.01, 0.2):
        wanted = bounds(model, u, eps, method="interval", spec=spec)
        found, width = certificates.interval_margins(network, u, y, eps)
        assert np.all(wanted.status == "certified")
        assert np.allclose(found, wanted.lb.min(axis=1), atol=1e-5) and np.all(
            found >= wanted.lb.min(axis=1)
        )  # which rounds outwards
        assert np.allclose(width, ((wanted.xh - wanted.xl) / 2).max(axis=1), atol=1e-5)


def test_samples_lie_inside(network, samples):
    u, y = samples
    rng, eps = np.random.default_rng(1), 0.05
    lower, _ = certificates.interval_margins(network, u, y, eps)
    exact = network.double()
    with torch.no_grad():
        for _ in range(50):
            f = exact(torch.from_numpy(u + eps * rng.choice([-1.0, 1.0], u.shape))).numpy()
            margin = f[np.arange(5), y] - np.where(np.eye(10)[y] == 1, -np.inf, f).max(axis=1)
            assert np.all(margin >= lower)
    network.float()


def test_radius_is_found_by_halving_and_zero_where_nothing_holds():
    true = np.array([3e-7, 2e-3, 1e-30])
    found = certificates.certified_radius(lambda eps: eps <= true, 3, 40)
    assert np.allclose(found[:2], true[:2], rtol=1e-6) and np.all(found[:2] <= true[:2]) and found[2] == 0


def test_radius_by_intervals_is_the_last_that_certifies(network, samples):
    found = certificates.interval_radius(network, *samples, 30)
    assert np.all(found > 0)
    assert np.all(certificates.interval_margins(network, *samples, found)[0] > 0) and np.all(
        certificates.interval_margins(network, *samples, found * 1.01)[0] <= 0
    )


def test_radius_by_the_matrix_of_a_linear_network():
    linear = networks.flat(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2))
    W, b = (t.detach().double().numpy() for t in (linear[1][1].weight, linear[1][1].bias))
    u = np.random.default_rng(0).random((6, 4))
    f = u @ W.T + b
    y = f.argmax(axis=1)
    y[0] = 1 - y[0]
    found = certificates.sensitivity_radius(linear, u, y, np.abs(W))
    wanted = np.abs(f[:, 0] - f[:, 1]) / np.abs(W).sum()
    assert found[0] == 0 and np.allclose(found[1:], wanted[1:], rtol=1e-6)
