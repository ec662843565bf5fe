"""The sensitivity matrix of a residual network against columns and matrices, and facts of its maps on rows that are
known."""

import numpy as np
import pytest
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from reproduction.ch4_resnet20_cifar import sensitivity as study
from reproduction.models.resnet20 import ResNet20
from reproduction.resnet20 import network as networks


@pytest.fixture(scope="module")
def network():
    """Random weights and statistics on images of 8 x 8, so that no normalisation is trivial."""
    net = ResNet20()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in (*net.named_parameters(), *net.named_buffers()):
            if t.is_floating_point() and name not in ("mean", "deviation"):
                t.copy_(0.3 * torch.randn(t.shape, generator=generator))
                if name.endswith("running_var"):
                    t.abs_().add_(0.5)
    return networks.flat(net, (3, 8, 8))


def test_rows_are_the_columns_of_the_absolute_network(network):
    S = study.matrix_of(network, 192)
    assert S.shape == (10, 192) and study.column_error(network, S, 20, 0) < 1e-12
    assert study.column_error(network, S * (1 + 1e-3), 20, 0) == pytest.approx(1e-3, rel=0.01)


def test_the_absolute_network_bounds_and_is_linear(network):
    """Brute force: no pair of images moves the outputs by more than S allows."""
    S = study.matrix_of(network, 192)
    rng = np.random.default_rng(1)
    u = rng.random((40, 192))
    v = u + 10.0 ** rng.uniform(-6, 0, (40, 1)) * rng.standard_normal((40, 192))
    exact = network.double()
    with torch.no_grad():
        moved = (exact(torch.from_numpy(u)) - exact(torch.from_numpy(v))).abs().numpy()
    network.float()
    assert np.all(moved <= np.abs(u - v) @ S.T * (1 + 1e-9)) and moved.max() > 0
    absolute = study.absolute_network(network)
    d, e = torch.from_numpy(np.abs(u[:2])), torch.from_numpy(np.abs(v[:2]))
    with torch.no_grad():
        assert torch.allclose(absolute(d + 2 * e), absolute(d) + 2 * absolute(e), rtol=1e-10)


def test_the_exact_model_gives_the_same_matrix(network):
    found = study.exact_model_error(network, 4)
    assert found["states"] == 188_416 / 64 and found["steps"] == 20 and found["error"] < 1e-12


def test_cost_sees_what_a_call_holds():
    found = study.cost_of(lambda: np.ones(10_000_000), repeats=2)
    assert found["cpu_seconds"] >= 0 and (np.isnan(found["memory_mb"]) or 75 < found["memory_mb"] < 200)


def test_distance_to_the_centre():
    d = study.distance_to_centre((3, 4, 4)).reshape(3, 4, 4)
    assert (
        np.array_equal(d[0], d[2])
        and d[0, 0, 0] == pytest.approx(np.hypot(1.5, 1.5)) == d[0, 3, 3]
        and d[0, 1, 2] == pytest.approx(np.hypot(0.5, 0.5))
    )


def test_gradient_maps_of_a_linear_network():
    linear = nn.Linear(12, 3)
    y = np.array([0, 2, 2, 0])
    images = Dataset(
        np.zeros((1, 12)),
        np.zeros(1),
        {0: (np.random.default_rng(0).random((4, 12)).astype(np.float32), y)},
        {"classes": "abc"},
    )
    found = study.gradient_maps(linear, images, 5)
    weights = linear.weight.detach().abs().double().numpy()
    assert np.allclose(found[[0, 2]], weights[[0, 2]]) and np.isnan(found[1]).all()


def test_facts_of_rows_that_show_their_classes_and_of_rows_that_are_one_map():
    rng = np.random.default_rng(0)
    means = rng.random((4, 48))
    u = np.repeat(means, 5, axis=0) + 1e-3 * rng.standard_normal((20, 48))
    images = Dataset(u, np.repeat(np.arange(4), 5), {}, {"classes": "abcd", "image_shape": (3, 4, 4)})
    weights = means / means.sum(axis=1, keepdims=True)
    own = study.map_facts(1e6 * weights, {"other": weights[::-1]}, images, means)
    assert (
        own["remainder_own_is_best"] == 1
        and own["remainder_own"] > 0.9 > own["remainder_other"]
        and own["first_remainder_own"] > 0.9
    )
    assert (
        own["rows_least"] < 0.5
        and own["common"] < 0.9
        and own["first_with_other"] == pytest.approx(np.corrcoef(means[0], means[3])[0, 1])
    )
    centre = -study.distance_to_centre((3, 4, 4)) + 10
    one = study.map_facts(
        np.outer([1.0, 5.0, 2.0, 3.0], centre) * (1 + 1e-6 * rng.standard_normal((4, 48))), {}, images, means
    )
    assert (
        one["rows_least"] > 0.999999
        and one["common"] > 0.999999
        and one["centre"] > 0.9
        and abs(one["remainder_own"]) < 0.4
    )
