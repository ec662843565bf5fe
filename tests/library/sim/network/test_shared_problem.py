"""The problem of shared kernels: what varies and what does not, in either precision, and rows of it."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.network.layers import read_layers
from implicit_models.sim.network.shared_problem import shared_problem, solve_shared
from implicit_models.sim.problem import Cardinality, Tolerance
from reproduction.ch3_resnet20_cifar.kernel_rows import restricted


@pytest.fixture(scope="module")
def layers():
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 2, 1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 2),
    )
    return read_layers(network.eval(), (1, 8, 8))


def states(n=40):
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def problem_of(layers, x, z=None, **options):
    z = x[:, :2, ::2, ::2] - x[:, 1:, ::2, ::2] if z is None else z
    return shared_problem(layers, 1, layers.blocks[1].sources, {0: x}, z, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_constant_where_it_is_read_gets_no_weight(layers, dtype):
    """Channel 1 varies at the pixels that the stride skips alone: its column is the rounding of two equal terms."""
    x = states()
    z = x[:, :2, ::2, ::2].clone()
    x[:, 1, ::2, ::2] = 0.0
    problem = problem_of(layers, x.to(dtype), z.to(dtype))
    assert problem.G[1, 1] == 0 and problem.G[0, 0] == pytest.approx(problem.count)
    found = solve_shared(problem, [Cardinality(1.0)], ridge=0.0, tolerance=Tolerance(1e-9, 1e-9), cap=None)
    assert 1 not in found.column[0] and set(found.column[0]) == {0, 2}


def test_rarely_active_columns_are_left_out_where_it_is_asked_for(layers):
    x = states()
    x[:, 1] = 0.0
    x[3, 1, 2, 2] = 5.0  # one pixel of one sample
    assert np.diag(problem_of(layers, x).G)[1] > 0
    rare = problem_of(layers, x, min_active=3.0)
    assert np.diag(rare.G)[1] == 0 and not rare.C[:, 1].any() and (np.diag(rare.G)[[0, 2]] > 0).all()


def test_a_target_of_small_variation_is_one_in_double_precision(layers):
    x = states()
    z = 1e3 + 1e-6 * x[:, :2, ::2, ::2]
    assert (problem_of(layers, x, z).zz > 0).all()
    assert not problem_of(layers, x.float(), z.float()).zz.any()


def test_the_first_samples_count_and_batches_do_not(layers, monkeypatch):
    x = states()
    z = x[:25, :2, ::2, ::2]
    first, whole = problem_of(layers, x[:25], z), problem_of(layers, x, z)
    monkeypatch.setattr("implicit_models.sim.network.shared_problem.BATCH_VALUES", 300)  # three samples
    batched = problem_of(layers, x, z, min_active=3.0)
    for other in (whole, batched):
        np.testing.assert_allclose(other.G, first.G, rtol=1e-12, atol=1e-12 * first.count)
        np.testing.assert_allclose(other.C, first.C, rtol=1e-12, atol=1e-12 * first.count)


def test_least_squares_on_columns_that_depend_on_each_other(layers):
    x = states()
    x[:, 2] = x[:, 0]
    problem = problem_of(layers, x, x[:, :2, ::2, ::2].clone())
    A = restricted(problem, np.ones(problem.C.shape, bool), ridge=0.0)
    np.testing.assert_allclose(A, [[1, 0, 0], [0, 1, 0]], atol=1e-9)
