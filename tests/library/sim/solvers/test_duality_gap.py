"""When a gap certifies a row, and gaps of one problem by several formulas."""

from types import SimpleNamespace

import numpy as np
import pytest

from implicit_models.sim.problem import Perspective, Tolerance
from implicit_models.sim.solvers.duality_gap import (
    duality_gap,
    gap_from_correlations,
    gap_from_residual,
    gap_with_rounding,
    is_certified,
    perspective_gap,
)
from implicit_models.sim.solvers.gram import gram
from implicit_models.sim.solvers.rows import solve_rows


def test_what_certifies():
    gap = np.array([1e-7, 2e-6, 1e-9, 0.6e-9, np.nan, np.inf, 1e-7, -1e-18])
    value = np.array([1.0, 1.0, 1e-9, 0.0, 1.0, 1.0, np.nan, 0.0])
    zz = np.array([1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    found = is_certified(gap, value, zz, Tolerance(1e-6, 1e-9))
    assert found.tolist() == [True, False, True, False, False, False, False, True]
    assert is_certified(0.4e-9, 0.0, 1.0, Tolerance(0.0, 1e-9)) and not is_certified(
        0.6e-9, 0.0, 1.0, Tolerance(0.0, 1e-9)
    )
    assert not is_certified(np.inf, np.inf, 1.0, Tolerance()) and not is_certified(-np.inf, 1.0, 1.0, Tolerance())


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"A": np.zeros((3, 12))}, ValueError, r"A must be \(r, d\), as C; got A \(3, 12\) and C \(4, 12\)"),
        ({"A": np.zeros(12)}, ValueError, r"A must be a matrix; got shape \(12,\)"),
        ({"A": [["1"] * 12] * 4}, TypeError, "A must hold real numbers"),
        ({"zz": np.ones(3)}, ValueError, r"got \(12, 12\), \(4, 12\), \(3,\)"),
        ({"zz": ["1"] * 4}, TypeError, "zz must hold real numbers"),
        ({"G": np.eye(11)}, ValueError, r"got \(11, 11\), \(4, 12\), \(4,\)"),
        ({"C": "1"}, TypeError, "C must hold real numbers"),
        ({"kappa": True}, TypeError, "kappa must be a number or one a row; got True"),
        ({"kappa": "1"}, TypeError, "kappa must be a number or one a row; got '1'"),
        ({"beta": [False] * 4}, TypeError, "beta must be a number or one a row"),
        ({"ridge": True}, TypeError, "ridge must be a number; got True"),
    ],
)
def test_a_candidate_is_checked_as_a_problem_is(problem, change, error, words):
    M, Z, A, _ = problem
    arguments = dict(zip("G C zz".split(), gram(M, Z), strict=True)) | {"A": A, "kappa": 1.0, **change}
    with pytest.raises(error, match=words):
        duality_gap(**arguments)
    if "A" not in change:
        with pytest.raises(error, match=words):
            solve_rows(**{name: value for name, value in arguments.items() if name != "A"})


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    M, Z = rng.normal(size=(30, 12)), rng.normal(size=(30, 4))
    A = solve_rows(*gram(M, Z), kappa=0.4).A + 0.01 * rng.normal(size=(4, 12))
    return M, Z, A, np.abs(A).sum(1) + 0.1


def seen(M, Z, A):
    """What a comparison with all columns gives."""
    rho = Z.T - A @ M.T
    r = rho @ M
    return SimpleNamespace(
        lead=np.abs(r).max(1), inner=(A * r).sum(1), against=(Z.T * rho).sum(1), square=(rho**2).sum(1)
    )


def test_formulas_of_the_ball_agree(problem):
    M, Z, A, kappa = problem
    G, C, zz = gram(M, Z)
    gap, value = duality_gap(G, C, zz, A, kappa=kappa)
    np.testing.assert_allclose(value, 0.5 * ((Z.T - A @ M.T) ** 2).sum(1), rtol=1e-12)
    other = gap_from_correlations(np.abs(A).sum(1), seen(M, Z, A), kappa=kappa)
    r = C - A @ G
    for i in range(4):
        one = gap_from_residual(C[i], zz[i], A[i], r[i], kappa[i])
        assert one == pytest.approx((gap[i], value[i]), rel=1e-9)
    np.testing.assert_allclose(other, (gap, value), rtol=1e-9)
    rounded = gap_with_rounding(A, r, np.full_like(r, 1e-9), kappa, 1e-16)
    assert (rounded >= gap).all() and (rounded <= gap + 1e-7).all()


def test_formulas_of_the_penalty_agree(problem):
    M, Z, A, _ = problem
    G, C, zz = gram(M, Z)
    gap, value = duality_gap(G, C, zz, A, kappa=np.inf, beta=0.3)
    np.testing.assert_allclose(
        gap_from_correlations(np.abs(A).sum(1), seen(M, Z, A), beta=0.3), (gap, value), rtol=1e-9
    )


def test_below_a_far_knee_the_perspective_is_the_l1_norm(problem):
    """Its own dual value is at least that of the residual scaled: the gap is no larger."""
    M, Z, A, kappa = problem
    G, C, zz = gram(M, Z)
    far = Perspective(0.3 / 2e3, 0.3e3 / 2)  # of weight .3 up to 1000
    gap, value = duality_gap(G, C, zz, A, kappa=kappa, beta=0.3)
    mine, same = perspective_gap(G, C, zz, A, far, kappa=kappa)
    np.testing.assert_allclose(same, value, rtol=1e-9)
    optimum = [solve_rows(G, C[[i]], zz[[i]], kappa=kappa[i], beta=0.3, rtol=1e-12).A for i in range(4)]
    best = [duality_gap(G, C[[i]], zz[[i]], a, kappa=kappa[i], beta=0.3)[1][0] for i, a in enumerate(optimum)]
    for each in (gap, mine):
        assert (each >= value - best - 1e-9).all()
