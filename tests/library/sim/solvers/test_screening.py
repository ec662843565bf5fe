"""Certified zeros against conic solutions of high accuracy: none may be wrong, on any row."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.solvers.conic import conic_row, elimination_dual
from implicit_models.sim.solvers.rows import solve_rows
from implicit_models.sim.solvers.screening import screen


def problem(m=30, d=20, rows=4, seed=0, spoil="none"):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(m, d)) * rng.uniform(0.3, 2, d)
    if spoil == "duplicate":
        M[:, -1] = M[:, 0]
    elif spoil == "zero":
        M[:, 0] = 0
    elif spoil == "correlated":
        M = M + 5 * rng.normal(size=(m, 1))
    elif spoil == "deficient":
        M = M[:, : d // 2] @ rng.normal(size=(d // 2, d))
    few = min(d, 5)
    return M, M[:, :few] @ rng.normal(size=(few, rows)) + 0.3 * rng.normal(size=(m, rows))


def normal(M, Z):
    return M.T @ M, Z.T @ M, (Z**2).sum(0)


# -- no false zero


@pytest.mark.parametrize("spoil", ["none", "duplicate", "zero", "correlated", "deficient"])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("m", [30, 12])
def test_certified_zeros_are_zeros_of_the_conic_solution(spoil, ridge, m):
    M, Z = problem(m, spoil=spoil, seed=m)
    found = screen(*normal(M, Z), kappa=1.0, ridge=ridge)
    zeros = 0
    for i in range(4):
        a, value = conic_row(M, Z[:, i], kappa=1.0, ridge=ridge)
        assert np.abs(a[found.certified[i]]).max(initial=0) < 1e-6
        zeros += found.certified[i].sum()
        # removing them leaves the optimum
        _, left = conic_row(M[:, ~found.certified[i]], Z[:, i], kappa=1.0, ridge=ridge)
        assert left == pytest.approx(value, rel=1e-7)
    assert zeros > 20 and (found.status == "certified").all()


@pytest.mark.parametrize("spoil", ["none", "duplicate", "correlated"])
def test_nearly_every_zero_is_certified(spoil):
    """Tied columns (a duplicate of an active one) have |r_j| = delta and cannot be."""
    M, Z = problem(spoil=spoil, rows=20)
    G, C, zz = normal(M, Z)
    found = screen(G, C, zz, kappa=1.0)
    zero = solve_rows(G, C, zz, kappa=1.0, rtol=1e-13, atol=1e-15).A == 0
    assert not (found.certified & ~zero).any()
    tied = found.correlation > found.delta[:, None] * (1 - 1e-9)
    assert found.certified[zero & ~tied].all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(2, 25),
    d=st.integers(2, 30),
    kappa=st.sampled_from([0.05, 0.5, 2.0]),
    ridge=st.sampled_from([0.0, 0.4]),
    share=st.sampled_from([0.3, 1.0]),
    spoil=st.sampled_from(["none", "duplicate", "zero", "correlated", "deficient"]),
    blur=st.sampled_from([0.0, 1e-6, 1e-2, 0.5]),
)
def test_safe_at_any_feasible_point(seed, m, d, kappa, ridge, share, spoil, blur):
    M, Z = problem(m, d, 3, seed, spoil)
    G, C, zz = normal(M, Z)
    ball = np.arange(d) < max(1, round(share * d))
    best = solve_rows(G, C, zz, kappa=kappa, ridge=ridge, ball_mask=ball, rtol=1e-12, atol=1e-14)
    A = best.A + blur * kappa * np.random.default_rng(seed).normal(size=best.A.shape) / d
    A[:, ball] *= np.minimum(1, kappa / np.maximum(np.abs(A[:, ball]).sum(1), 1e-300))[:, None]
    found = screen(G, C, zz, kappa=kappa, ridge=ridge, ball_mask=ball, A=A)
    assert not found.certified[:, ~ball].any()
    contribution = np.abs(best.A) * np.sqrt(np.diag(G))
    assert (contribution[found.certified] <= 1e-5 * np.sqrt(zz.max())).all()
    if best.multiplier.max() == 0:
        assert not found.certified.any()


def test_a_worse_point_certifies_less():
    M, Z = problem(rows=10)
    G, C, zz = normal(M, Z)
    A = solve_rows(G, C, zz, kappa=1.0, rtol=1e-13, atol=1e-15).A
    counts = []
    for shrink in (1.0, 1 - 1e-4, 1 - 1e-2, 0.5):
        found = screen(G, C, zz, kappa=1.0, A=shrink * A)
        counts.append(found.certified.sum())
        np.testing.assert_allclose(found.radius, np.sqrt(2 * found.gap))
    assert counts[0] >= counts[1] > counts[2] > counts[3]


def test_bounds_hold_at_the_optimum():
    M, Z = problem(rows=10)
    G, C, zz = normal(M, Z)
    best = screen(G, C, zz, kappa=1.0)
    rough = screen(G, C, zz, kappa=1.0, A=0.9 * best.A)
    assert (rough.delta_lower <= best.delta + 1e-9).all()
    length = np.sqrt(np.diag(G))
    assert (np.abs(rough.correlation - best.correlation) <= rough.radius[:, None] * length * (1 + 1e-9)).all()
    # gap against the distance to the optimum
    value = lambda A: 0.5 * (zz - 2 * (C * A).sum(1) + ((A @ G) * A).sum(1))
    assert (rough.gap >= value(rough.A) - value(best.A)).all()


# -- the published rule


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_conic_dual_has_the_primal_value(ridge):
    M, Z = problem()
    G, C, zz = normal(M, Z)
    found = screen(G, C, zz, kappa=1.0, ridge=ridge)
    for i in range(4):
        dual = elimination_dual(M, Z[:, i], kappa=1.0, ridge=ridge)
        _, value = conic_row(M, Z[:, i], kappa=1.0, ridge=ridge)
        assert dual.value == pytest.approx(value, rel=1e-6)
        assert dual.delta == pytest.approx(found.delta[i], rel=1e-5)
        # both multipliers positive is |r_j| < delta
        np.testing.assert_allclose(
            np.minimum(dual.mu_1, dual.mu_2), (found.delta[i] - found.correlation[i]) / 2, atol=1e-4 * found.delta[i]
        )


def test_thresholded_multipliers_are_not_safe():
    """The rule as published removes active columns for one threshold and keeps inactive ones for another."""
    M, Z = problem(rows=10)
    found = screen(*normal(M, Z), kappa=1.0)
    wrong = missed = 0
    for i in range(10):
        dual = elimination_dual(M, Z[:, i], kappa=1.0)
        active = np.abs(found.A[i]) > 1e-6
        wrong += (dual.eliminated(0.0) & active).sum()
        missed += (~dual.eliminated(0.3) & found.certified[i]).sum()
    assert wrong > 0 and missed > 0
    assert not (found.certified & (np.abs(found.A) > 1e-6)).any()


# -- edges


def test_slack_ball_certifies_nothing():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    kappa = 1.5 * np.abs(np.linalg.lstsq(M, Z, rcond=None)[0]).sum(0).max()
    found = screen(G, C, zz, kappa=kappa)
    assert (found.status == "slack").all() and not found.certified.any() and not found.delta_lower.any()
    assert (found.scores == 1).all()
    mixed = screen(G, C, zz, kappa=np.array([1.0, kappa, 1.0, 1.0]))
    assert mixed.status.tolist() == ["certified", "slack", "certified", "certified"]
    assert not mixed.removable.any()


def test_zero_target_and_nan():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    clean = screen(G, C, zz, kappa=1.0)
    C[0], zz[0] = 0.0, 0.0
    C[1, 3] = np.nan
    found = screen(G, C, zz, kappa=1.0)
    assert found.status.tolist() == ["slack", "not_finite", "certified", "certified"]
    assert not found.certified[:2].any() and np.isnan(found.A[1]).all()
    assert np.array_equal(found.certified[2:], clean.certified[2:])


def test_scores():
    M, Z = problem(rows=3)
    found = screen(*normal(M, Z), kappa=1.0)
    assert (found.scores[(found.A != 0).any(0)] > 1 - 1e-6).all() and found.scores.max() <= 1
    assert (found.scores[found.removable] < 1).all()
    ball = np.arange(20) < 15
    part = screen(*normal(M, Z), kappa=0.5, ball_mask=ball)
    assert np.isinf(part.scores[15:]).all() and np.isfinite(part.scores[:15]).all()
    for i in range(3):
        a, _ = conic_row(M, Z[:, i], kappa=0.5, ball_mask=ball)
        assert np.abs(a[part.certified[i]]).max(initial=0) < 1e-6
        np.testing.assert_allclose(part.A[i], a, atol=1e-4)
    assert part.certified.sum() > 5


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"kappa": 0.0}, "kappa must be positive"),
        ({"kappa": np.inf}, "kappa must be positive and finite"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"ball_mask": np.zeros(20, bool)}, "holds no coordinate"),
        ({"ball_mask": np.ones(3, bool)}, "20 booleans; got shape"),
        ({"A": np.zeros((2, 20))}, r"A must have shape \(4, 20\), got \(2, 20\)"),
        ({"A": np.full((4, 20), 1.0)}, "row 0 of A has l1 norm 20"),
    ],
)
def test_bad_input(bad, message):
    M, Z = problem()
    with pytest.raises(ValueError, match=message):
        screen(*normal(M, Z), **({"kappa": 1.0} | bad))


def test_shapes_are_named():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    with pytest.raises(ValueError, match=r"\(20, 20\), \(4, 19\), \(4,\)"):
        screen(G, C[:, :19], zz, kappa=1.0)


# -- columns outside the ball


@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("power", [-8, -6, 3, 6, 7])
def test_units_of_free_columns_do_not_make_a_false_zero(power, ridge):
    """Against the conic solution in the free column's own units (exact there: the ridge is scaled along)."""
    rng = np.random.default_rng([abs(power), 7])
    ball, zeros = np.arange(9) < 6, 0
    for kappa in (0.1, 0.4, 0.8) * 2:
        N = rng.normal(size=(25, 9))
        z = 0.5 * N[:, 0] - 0.3 * N[:, 2] + N[:, 8] + 0.5 * N[:, 6] + 0.2 * rng.normal(size=25)
        units = np.where(np.arange(9) == 6, 10.0**power, 1.0)
        weights = 1.0 / units if power > 0 or not ridge else np.ones(9)
        M = N * units if power > 0 or not ridge else N
        found = screen(*normal(M, z[:, None]), kappa=kappa, ridge=ridge, ball_mask=ball)
        a = cp.Variable(9)
        value = 0.5 * cp.sum_squares(N @ a - z) + 0.5 * ridge * cp.sum_squares(cp.multiply(weights, a))
        problem = cp.Problem(
            cp.Minimize(value if ridge else 0.5 * cp.sum_squares(N @ a - z)), [cp.norm1(a[:6]) <= kappa]
        )
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        assert np.abs(a.value[found.certified[0]]).max(initial=0) < 1e-5
        assert np.abs(found.A[0] / weights - a.value).max() < 1e-4
        zeros += found.certified.sum()
    assert zeros > 6


@pytest.mark.parametrize("eps", [1e-8, 1e-7, 1e-6, 1e-5, 1e-4])
def test_nearly_dependent_free_columns_do_not_make_a_false_zero(eps):
    """Against the problem projected by QR, from the samples."""
    rng = np.random.default_rng(8)
    ball, zeros = np.arange(8) < 5, 0
    for s in range(30):
        M, Z = rng.normal(size=(40, 8)), 10 * rng.normal(size=(40, 2))
        M[:, 7] = M[:, 6] + eps * rng.normal(size=40)
        M[:, 5:] *= 10.0 ** rng.uniform(-3, 3, 3)
        kappa = (0.4, 1.5)[s % 2]
        Q = np.linalg.qr(M[:, 5:] / np.linalg.norm(M[:, 5:], axis=0))[0]
        left, target = (X - Q @ (Q.T @ X) for X in (M[:, :5], Z))
        exact = solve_rows(*normal(left, target), kappa=kappa, rtol=1e-12, atol=1e-14).A
        found = screen(*normal(M, Z), kappa=kappa, ball_mask=ball)
        assert np.abs(exact[found.certified[:, :5]]).max(initial=0) < 1e-6
        zeros += found.certified.sum()
    assert zeros > 100 or eps < 5e-6
