"""Iteration counts of a scalar model, whose Picard iterates are known."""

import numpy as np
import pytest
import torch

from implicit_models.layers import ImplicitModel
from reproduction.depth import picard_iterations


@pytest.fixture
def halving():
    """x = relu(x/2 + u): from 0 the k-th iterate is 2u (1 - 2^-k), its residual u 2^-k."""
    one = torch.ones(1, 1)
    return ImplicitModel.from_matrices(one / 2, one, one, None)


@pytest.mark.parametrize("u", [1.0, 10.0, 1e3, 1e5])
def test_absolute_tolerance_costs_the_logarithm_of_the_input(halving, u):
    tol = 1e-6
    expected = np.ceil(np.log2(u / tol))
    counted = picard_iterations(halving, np.array([[u]]), tol=tol)[0]
    assert abs(counted - expected) <= 5  # the residual is looked at every few steps


def test_relative_tolerance_costs_the_same_everywhere(halving):
    counts = picard_iterations(halving, np.array([[1.0], [1e3], [1e6]]), tol=1e-6, tol_mode="relative")
    assert len(set(counts.tolist())) == 1
