"""Worst-case losses against the corners of the box."""

import itertools

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from implicit_models.robustness import worst_case_loss


def over_corners(y0, sigma, y, loss):
    """Both losses are convex, so that a corner attains the largest value."""
    out = []
    for row, radius, target in zip(y0, sigma, y, strict=True):
        corners = row + radius * np.array(list(itertools.product([-1.0, 1.0], repeat=row.size)))
        value = ((corners - target) ** 2).sum(1) if loss == "squared" else logsumexp(corners, axis=1) - corners @ target
        out.append(value.max())
    return np.array(out)


def sample(seed, q, N=6):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(0, 3, (N, q)), rng.uniform(0, 2, (N, q)) * (rng.random((N, q)) < 0.8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_one_hot_cross_entropy_is_exact(seed, q):
    rng, y0, sigma = sample(seed, q)
    y = rng.integers(0, q, len(y0))
    exact = worst_case_loss(y0, sigma, y)
    np.testing.assert_allclose(exact, over_corners(y0, sigma, np.eye(q)[y], "cross_entropy"), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(worst_case_loss(y0, sigma, np.eye(q)[y]), exact, rtol=1e-14, atol=1e-14)
    k = y[:, None]
    lowered = y0 + sigma
    np.put_along_axis(lowered, k, np.take_along_axis(y0 - sigma, k, 1), 1)
    formula = logsumexp(lowered, axis=1) - np.take_along_axis(y0 - sigma, k, 1)[:, 0]
    np.testing.assert_allclose(exact, formula, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(0.05, 5))
def test_soft_target_cross_entropy_is_exact(seed, q, concentration):
    rng, y0, sigma = sample(seed, q)
    y = rng.dirichlet(np.full(q, concentration), len(y0))
    np.testing.assert_allclose(
        worst_case_loss(y0, sigma, y), over_corners(y0, sigma, y, "cross_entropy"), rtol=1e-11, atol=1e-11
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_squared_loss_is_exact(seed, q):
    rng, y0, sigma = sample(seed, q)
    y = rng.normal(0, 3, y0.shape)
    np.testing.assert_allclose(
        worst_case_loss(y0, sigma, y, "squared"), over_corners(y0, sigma, y, "squared"), rtol=1e-12
    )
    np.testing.assert_allclose(worst_case_loss(y0, 0 * sigma, y, "squared"), ((y0 - y) ** 2).sum(1), rtol=1e-12)


def accurate_loss(row, k):
    """Cross-entropy in forty digits."""
    with mpmath.workdps(40):
        return float(mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(float(v))) for v in row)) - mpmath.mpf(float(row[k])))


def test_small_losses_keep_their_digits():
    """LSE(y) and y_k agree in all digits but the last few: their difference must not be taken of the rounded values."""
    y0, y = np.array([[9.0, 0.1], [30.0, -3.0], [40.0, 0.0], [-3.0, 5.0]]), np.array([0, 0, 0, 1])
    expected = [accurate_loss(row, k) for row, k in zip(y0, y, strict=True)]
    assert 0 < min(expected) < 1e-17
    np.testing.assert_allclose(worst_case_loss(y0, np.zeros(2), y), expected, rtol=1e-14)
    np.testing.assert_allclose(worst_case_loss(y0, np.zeros(2), y, bound="box"), expected, rtol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_chain_of_bounds(seed, q):
    """L <= exact <= box <= norm <= L + 2 max sigma, the last with sigma = rho ||c_i||_1."""
    rng = np.random.default_rng(seed)
    C, rho = rng.normal(size=(q, 5)), rng.uniform(0, 2)
    y0, y = rng.normal(0, 3, (4, q)), rng.integers(0, q, 4)
    sigma = rho * np.abs(C).sum(1)
    nominal = worst_case_loss(y0, np.zeros(q), y)
    np.testing.assert_allclose(nominal, [accurate_loss(row, k) for row, k in zip(y0, y, strict=True)], rtol=1e-12)
    exact, box, norm = (worst_case_loss(y0, sigma, y, bound=b) for b in ("exact", "box", "norm"))
    top = nominal + 2 * rho * np.abs(C).sum(1).max()
    slack = 1e-10
    assert (
        (nominal <= exact + slack).all()
        and (exact <= box + slack).all()
        and (box <= norm + slack).all()
        and (norm <= top + slack).all()
    )
    np.testing.assert_allclose(box, logsumexp(y0 + sigma, axis=1) - y0[range(4), y] + sigma[y], rtol=1e-12)


def test_one_class_has_no_loss():
    np.testing.assert_allclose(worst_case_loss(np.array([[3.0]]), np.array([[2.0]]), [0]), [0.0], atol=1e-15)


def test_torch_input_and_a_sample_that_is_not_finite():
    y0 = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [0.5, 0.1]])
    found = worst_case_loss(y0, torch.tensor([0.125, 0.25]), torch.tensor([0, 1, 0]))
    assert np.isnan(found[1]) and found.dtype == np.float64
    np.testing.assert_array_equal(found[[0, 2]], worst_case_loss(y0[[0, 2]], np.array([0.125, 0.25]), [0, 0]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("bound", ["exact", "box", "norm"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_samples_that_are_not_finite_are_nan_and_leave_the_others(loss, bound, value):
    y0, sigma = np.random.default_rng(0).normal(size=(4, 3)), np.full((4, 3), 0.2)
    y = np.eye(3)[[0, 1, 2, 0]]
    clean = worst_case_loss(y0, sigma, y, loss, bound)
    y0[1, 2], sigma[2, 0] = value, abs(value)
    found = worst_case_loss(y0, sigma, y, loss, bound)
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, False])
    np.testing.assert_array_equal(found[[0, 3]], clean[[0, 3]])
    if loss == "squared":
        y[3, 0] = value
        assert np.isnan(worst_case_loss(y0, sigma, y, loss, bound)[3])


def test_many_undecided_outputs_are_refused_not_approximated():
    q = 20
    with pytest.raises(ValueError, match="20 outputs"):
        worst_case_loss(np.zeros((1, q)), np.ones(q), np.full((1, q), 1 / q))
    assert np.isfinite(worst_case_loss(np.zeros((1, q)), np.ones(q), np.full((1, q), 1 / q), bound="box")).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 3)), -np.ones(3), [0, 1]), "negative"),
        ((np.zeros((2, 3)), np.ones(2), [0, 1]), "sigma_y must have shape"),
        ((np.zeros(3), np.ones(3), [0]), "y0 must have shape"),
        ((np.zeros((2, 3)), np.ones(3), [0, 3]), "sample 1 has class 3"),
        ((np.zeros((2, 3)), np.ones(3), [[0.5, 0.5, 0.5], [1, 0, 0]]), "sample 0 is not a distribution"),
        ((np.zeros((2, 3)), np.ones(3), [0, 1], "hinge"), "hinge"),
        ((np.zeros((2, 3)), np.ones(3), [0, 1], "squared"), "squared loss must have shape"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        worst_case_loss(*arguments)
