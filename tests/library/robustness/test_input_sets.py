"""Sets of inputs: their ends, their support, and what is refused."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.input_sets import uncertainty
from implicit_models.robustness.problem import from_matrices


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([None, 0, 1, 2, 3]))
def test_support_is_the_largest_value_over_the_corners(seed, card):
    rng = np.random.default_rng(seed)
    sets = uncertainty(rng.normal(size=(4, 3)), sigma=rng.uniform(0, 1, (4, 3)), card=card)
    V = rng.normal(size=(2, 3))
    for i in range(4):
        corners = [
            np.array(s) * sets.radius[i]
            for s in itertools.product((-1, 0, 1), repeat=3)
            if card is None or np.count_nonzero(s) <= card
        ]
        np.testing.assert_allclose(sets.support(V)[i], [max(v @ c for c in corners) for v in V], atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_a_clipped_box_ends_exactly_at_the_range(seed):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.normal(size=2))
    U = rng.uniform(low, high, (50, 3))
    sets = uncertainty(U, eps=0.3, clip=(low, high))
    assert sets.lower.min() >= low and sets.upper.max() <= high
    np.testing.assert_array_equal(sets.lower, np.maximum(U - 0.3, low))
    np.testing.assert_array_equal(sets.take([3, 1]).upper, sets.upper[[3, 1]])
    assert (
        sets.contains(sets.lower).all()
        and sets.contains(sets.upper).all()
        and not sets.contains(sets.upper + 1e-9).any()
    )
    assert (sets.centre - sets.radius <= sets.lower + 1e-15).all() and (
        sets.centre + sets.radius >= sets.upper - 1e-15
    ).all()


@pytest.mark.parametrize("card", [None, 1])
def test_what_lies_in_a_set_is_not_decided_by_the_rest_of_the_batch(card):
    sets = uncertainty(np.array([[1.0, 0.0], [1e12, 0.0]]), sigma=np.array([0.5, 0.0]), card=card)
    assert sets.contains(sets.lower).all() and sets.contains(sets.upper).all()
    assert sets.contains(sets.upper + [[4e-16, 0], [1e-4, 0]]).all()
    assert sets.contains(sets.upper + [1e-5, 0]).tolist() == [False, True]
    assert sets.contains(sets.centre + [0, 1e-5]).tolist() == [False, True]


def test_a_radius_may_carry_a_gradient():
    U, sigma = np.zeros((2, 3)), torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(
        uncertainty(torch.from_numpy(U).requires_grad_(), sigma=sigma).radius, np.full(3, 0.5)
    )


@pytest.mark.parametrize("method", ["box", "interval", "dual"])
def test_radii_of_every_sample_give_the_same_bits_in_any_batch(method):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 6))
    model = from_matrices(
        0.7 * A / np.abs(A).sum(1, keepdims=True),
        rng.normal(size=(6, 9)),
        rng.normal(size=(3, 6)),
        rng.normal(size=(3, 9)),
    )
    U, sigma = rng.normal(size=(40, 9)), rng.uniform(0, 0.1, (40, 9))
    whole = bounds(model, U, sigma=sigma, method=method)
    for i in (0, 7, 39):
        one = bounds(model, U[i : i + 1], sigma=sigma[i : i + 1], method=method)
        np.testing.assert_array_equal(one.lb[0], whole.lb[i])
        np.testing.assert_array_equal(one.ub[0], whole.ub[i])


def test_what_is_no_set_is_refused():
    U = np.zeros((2, 3))
    for kind in (U + 1j, torch.zeros(2, 3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="real numbers"):
            uncertainty(kind, eps=0.1)
    with pytest.raises(TypeError, match="sigma must be real numbers"):
        uncertainty(U, sigma=torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"got -0.1 at index \(1, 2\)"):
        uncertainty(U, sigma=np.array([[0, 0, 0], [0, 0, -0.1]]))
    with pytest.raises(ValueError, match=r"sample 0 is outside the clip range \(1, 2\): U\[0, 0\] = 0"):
        uncertainty(U, eps=0.1, clip=(1, 2))
    with pytest.raises(ValueError, match="card must be an int between 0 and p = 3, got 4"):
        uncertainty(U, eps=0.1, card=4)
