"""Perspective penalty against its definition, rows against the conic program, and the two identities that explain the
papers' figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.problem import Perspective
from implicit_models.sim.solvers import fista
from implicit_models.sim.solvers import perspective as module
from implicit_models.sim.solvers.conic import conic_perspective, conic_row
from implicit_models.sim.solvers.duality_gap import perspective_gap
from implicit_models.sim.solvers.fista import fista_rows, prox_in_ball
from implicit_models.sim.solvers.perspective import solve_perspective_rows
from implicit_models.sim.solvers.perspective_homotopy import follow
from implicit_models.sim.solvers.rows import solve_rows

WEIGHTS = [(0.5, 0.05), (0.05, 0.2), (2.0, 0.01), (1.0, 1.0)]


def problem(m=40, d=25, seed=0, rows=3):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(m, d)) * rng.uniform(0.3, 2, d)
    return M, M @ (rng.normal(size=(d, rows)) * (rng.random((d, rows)) < 0.4)) + 0.5 * rng.normal(size=(m, rows))


def normal(M, Z):
    return M.T @ M, Z.T @ M, (Z**2).sum(0)


def value(M, z, a, **weights):
    return 0.5 * np.sum((M @ a - z) ** 2) + Perspective(**weights).value(a)


# -- the penalty


@pytest.mark.parametrize("alpha, eta", WEIGHTS)
def test_penalty_is_the_relaxed_cost(alpha, eta):
    t = np.linspace(1e-4, 1, 20_001)
    for x in (0.01, 0.1, 0.4, 1.0, 3.0):
        assert Perspective(alpha, eta).penalty(x) == pytest.approx((alpha * x * x / t + eta * t).min(), rel=1e-6)
    assert Perspective(alpha, eta).penalty(0.0) == 0


@pytest.mark.parametrize("alpha, eta", WEIGHTS)
def test_prox_and_conjugate_by_brute_force(alpha, eta):
    grid = np.linspace(-8, 8, 400_001)
    f = Perspective(alpha, eta)
    phi = f.penalty(grid)
    for v in (-3.1, -0.2, 0.0, 0.6, 1.7, 4.0):
        for step in (0.1, 1.5):
            best = grid[np.argmin(0.5 * (grid - v) ** 2 + step * phi)]
            assert f.prox(v, step) == pytest.approx(best, abs=1e-4)
        y = 3 * alpha * v  # the supremum is at y / (2 alpha), inside the grid
        assert f.conjugate(y) == pytest.approx((y * grid - phi).max(), abs=1e-4)


def test_prox_in_ball_by_conic_program():
    import cvxpy as cp

    rng = np.random.default_rng(1)
    v, alpha, eta, step, kappa = rng.normal(size=8) * 2, 0.4, 0.1, 0.7, 0.9
    ball = np.arange(8) < 5
    x, s, t = cp.Variable(8), cp.Variable(8), cp.Variable(8)
    cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(x - v) + step * (alpha * cp.sum(s) + eta * cp.sum(t))),
        [cp.SOC(s + t, cp.vstack([2 * x, s - t]), axis=0), t <= 1, cp.norm1(x[:5]) <= kappa],
    ).solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    out = np.empty(8)
    mu = prox_in_ball(v, step, alpha, np.sqrt(eta / alpha), kappa, ball, out)
    np.testing.assert_allclose(out, x.value, atol=1e-5)
    assert mu > 0 and np.abs(out[:5]).sum() == pytest.approx(kappa)


# -- rows


@pytest.mark.parametrize("alpha, eta", WEIGHTS)
@pytest.mark.parametrize("kappa, part", [(0.3, False), (3.0, False), (0.3, True), (3.0, True), (np.inf, True)])
def test_rows_of_the_conic_program(alpha, eta, kappa, part):
    M, Z = problem()
    ball = np.arange(25) < 10 if part else None
    rows = solve_perspective_rows(
        *normal(M, Z), alpha=alpha, eta=eta, kappa=kappa, ball_mask=ball, rtol=1e-10, atol=1e-13
    )
    assert (rows.status == "optimal").all()
    for i in range(3):
        a, best, _ = conic_perspective(M, Z[:, i], alpha=alpha, eta=eta, kappa=kappa, ball_mask=ball)
        assert value(M, Z[:, i], rows.A[i], alpha=alpha, eta=eta) == pytest.approx(best, rel=1e-7)
        np.testing.assert_allclose(rows.A[i], a, atol=2e-4)
        assert np.abs(rows.A[i][ball if part else slice(None)]).sum() <= kappa * (1 + 1e-12)


def test_some_coefficients_lie_beyond_the_knee():
    """Otherwise the tests above would test the l1 norm alone."""
    M, Z = problem()
    G, C, zz = normal(M, Z)
    knee = np.sqrt(0.05 / 0.5)
    A = solve_perspective_rows(G, C, zz, alpha=0.5, eta=0.05, kappa=3.0, ball_mask=np.arange(25) < 10).A
    l1 = solve_rows(G, C, zz, kappa=3.0, ball_mask=np.arange(25) < 10, beta=2 * np.sqrt(0.5 * 0.05)).A
    assert (np.abs(A) > 1.01 * knee).sum() > 3 and ((np.abs(A) > 0) & (np.abs(A) < 0.99 * knee)).sum() > 3
    assert np.abs(A - l1).max() > 1e-3


def test_no_ball():
    M, Z = problem()
    rows = solve_perspective_rows(
        *normal(M, Z), alpha=0.5, eta=0.05, kappa=0.1, ball_mask=np.zeros(25, bool), rtol=1e-10
    )
    for i in range(3):
        _, best, _ = conic_perspective(M, Z[:, i], alpha=0.5, eta=0.05, kappa=np.inf)
        assert value(M, Z[:, i], rows.A[i], alpha=0.5, eta=0.05) == pytest.approx(best, rel=1e-8)
    assert not rows.multiplier.any()


@pytest.mark.parametrize("kappa, part", [(0.5, False), (0.3, True)])
def test_from_a_cold_start(kappa, part):
    """The active set alone, without the l1 rows before it."""
    M, Z = problem(seed=4)
    G, C, _ = normal(M, Z)
    ball = np.arange(25) < 10 if part else np.ones(25, bool)
    alpha, knee = 0.5, 0.1
    for i in range(3):
        a = np.zeros(25)
        mu, _, reached = follow(G, C[i], alpha, knee, kappa, ball, a, 0.0, 5000)
        _, best, _ = conic_perspective(M, Z[:, i], alpha=alpha, eta=alpha * knee**2, kappa=kappa, ball_mask=ball)
        assert reached and mu > 0
        assert value(M, Z[:, i], a, alpha=alpha, eta=alpha * knee**2) == pytest.approx(best, rel=1e-8)


# -- the papers' formulas


@pytest.mark.parametrize("kappa", [0.3, 0.99])
def test_inside_a_small_ball_it_is_the_l1_norm(kappa):
    """eta = alpha, as (4) prints it: the knee is 1."""
    M, Z = problem()
    G, C, zz = normal(M, Z)
    rows = solve_perspective_rows(G, C, zz, alpha=0.4, eta=0.4, kappa=kappa)
    l1 = solve_rows(G, C, zz, kappa=kappa, beta=0.8)
    assert np.array_equal(rows.A, l1.A)
    a, best, _ = conic_perspective(M, Z[:, 0], alpha=0.4, eta=0.4, kappa=kappa)
    a_l1, best_l1 = conic_row(M, Z[:, 0], kappa=kappa, beta=0.8)
    assert best == pytest.approx(best_l1, rel=1e-8)
    np.testing.assert_allclose(a, a_l1, atol=1e-4)


@pytest.mark.parametrize("part", [False, True])
def test_as_printed_it_is_ridge(part):
    """(5) and (10) put no cost on t: t = 1 is optimal, no coefficient is zero."""
    M, Z = problem()
    ball = np.arange(25) < 10 if part else None
    a, best, t = conic_perspective(M, Z[:, 0], alpha=0.4, eta=0.0, kappa=2.0, ball_mask=ball)
    a_ridge, best_ridge = conic_row(M, Z[:, 0], kappa=2.0, ridge=0.8, ball_mask=ball)
    assert best == pytest.approx(best_ridge, rel=1e-8)
    rows = solve_perspective_rows(*normal(M, Z[:, :1]), alpha=0.4, eta=0.0, kappa=2.0, ball_mask=ball)
    assert value(M, Z[:, 0], rows.A[0], alpha=0.4, eta=0.0) == pytest.approx(best, rel=1e-6)
    loose = solve_perspective_rows(*normal(M, Z[:, :1]), alpha=0.4, eta=0.0, kappa=1e3)
    assert (loose.A != 0).all()


# -- certificates


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(2, 25),
    d=st.integers(1, 30),
    alpha=st.sampled_from([0.01, 0.5, 3.0]),
    knee=st.sampled_from([0.03, 0.3, 1.0]),
    kappa=st.sampled_from([0.05, 0.5, 3.0]),
    share=st.floats(0, 1),
    spoil=st.sampled_from(["none", "duplicate", "zero", "equal", "tiny"]),
)
def test_certificate(seed, m, d, alpha, knee, kappa, share, spoil):
    M, Z = problem(m, d, seed)
    if spoil == "duplicate":
        M[:, -1] = M[:, 0]
    elif spoil == "zero":
        M[:, 0] = 0
    elif spoil == "equal":
        M = M + 5 * M[:, :1]
    elif spoil == "tiny":
        M[:, 0] *= 1e-6
    G, C, zz = normal(M, Z)
    ball = np.arange(d) < round(share * d)
    weights = {"alpha": alpha, "eta": alpha * knee**2}
    rows = solve_perspective_rows(G, C, zz, kappa=kappa, ball_mask=ball, **weights)
    gap, objective = perspective_gap(G, C, zz, rows.A, Perspective(**weights), kappa=kappa, ball_mask=ball)
    assert np.isin(rows.status, ["optimal", "fista"]).all()
    assert (np.abs(gap - rows.gap) <= 1e-12 * zz).all()
    assert ((gap <= 1e-6 * objective) | (gap <= 0.5e-9 * zz)).all()
    assert (np.abs(rows.A[:, ball]).sum(1) <= kappa * (1 + 1e-12)).all()
    for i in range(3):
        assert value(M, Z[:, i], rows.A[i], **weights) == pytest.approx(objective[i], rel=1e-9, abs=1e-11 * zz[i])
    # a feasible point is never below the certified bound
    rng = np.random.default_rng(seed)
    other = rows.A + 0.01 * rng.normal(size=rows.A.shape)
    norm = np.abs(other[:, ball]).sum(1)
    other[:, ball] *= np.where(norm > kappa, kappa / np.maximum(norm, 1e-300), 1.0)[:, None]
    for i in range(3):
        assert value(M, Z[:, i], other[i], **weights) >= objective[i] - gap[i] - 1e-11 * zz[i]


def test_gap_of_a_poor_point_bounds_its_distance():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    weights = {"alpha": 0.5, "eta": 0.05}
    ball = np.arange(25) < 10
    best = np.array([conic_perspective(M, z, kappa=0.5, ball_mask=ball, **weights)[1] for z in Z.T])
    for A in (np.zeros_like(C), 0.02 * np.ones_like(C)):
        gap, objective = perspective_gap(G, C, zz, A, Perspective(**weights), kappa=0.5, ball_mask=ball)
        assert (objective - best <= gap * (1 + 1e-9)).all() and (objective - best > 1e-3 * gap).all()


def test_fallback_is_visible(monkeypatch):
    """Without the active set FISTA does the work, and says so."""
    monkeypatch.setattr(module, "ROUNDS", 0)
    M, Z = problem()
    weights = {"alpha": 0.5, "eta": 0.05}
    rows = solve_perspective_rows(*normal(M, Z), kappa=3.0, rtol=1e-8, **weights)
    assert (rows.status == "fista").all() and (rows.n_steps >= 2000).all()
    for i in range(3):
        assert value(M, Z[:, i], rows.A[i], **weights) == pytest.approx(
            conic_perspective(M, Z[:, i], kappa=3.0, **weights)[1], rel=1e-7
        )
    monkeypatch.setattr(fista, "BATCH", 1)
    monkeypatch.setattr(fista, "BATCHES", 1)
    rows = solve_perspective_rows(*normal(M, Z), kappa=3.0, rtol=1e-8, **weights)
    assert (rows.status == "inaccurate").all() and (rows.gap > 0).all()


def test_fista_rows_stay_in_the_ball():
    M, Z = problem()
    G, C, _ = normal(M, Z)
    A, mu = np.zeros_like(C), np.zeros(3)
    fista_rows(G, C, 0.5, 0.3, np.full(3, 0.4), np.ones(25, bool), 1.02 * np.linalg.eigvalsh(G)[-1], A, mu, 5)
    assert (np.abs(A).sum(1) <= 0.4 + 1e-12).all() and A.any()


# -- hard cases


def test_zero_target_zero_ball_and_nan():
    M, Z = problem()
    weights = {"alpha": 0.5, "eta": 0.05}
    G, C, zz = normal(M, Z)
    clean = solve_perspective_rows(G, C, zz, kappa=2.0, **weights)
    C[1], zz[2], C[2] = np.nan, 0.0, 0.0
    rows = solve_perspective_rows(G, C, zz, kappa=2.0, **weights)
    assert rows.status.tolist() == ["optimal", "not_finite", "optimal"]
    assert np.array_equal(rows.A[0], clean.A[0]) and np.isnan(rows.A[1]).all() and not rows.A[2].any()
    ball = np.arange(25) < 10
    G, C, zz = normal(M, Z)
    rows = solve_perspective_rows(G, C, zz, kappa=0.0, ball_mask=ball, **weights)
    _, best, _ = conic_perspective(M[:, 10:], Z[:, 0], kappa=np.inf, **weights)
    assert not rows.A[:, :10].any() and value(M, Z[:, 0], rows.A[0], **weights) == pytest.approx(best, rel=1e-6)


def test_kappa_per_row_and_float32():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    rows = solve_perspective_rows(G, C, zz, alpha=0.5, eta=0.05, kappa=np.array([0.1, 1.0, 2.0]))
    for i, kappa in enumerate((0.1, 1.0, 2.0)):
        alone = solve_perspective_rows(G, C[i : i + 1], zz[i : i + 1], alpha=0.5, eta=0.05, kappa=kappa)
        assert np.array_equal(rows.A[i], alone.A[0])
    single = solve_perspective_rows(
        G.astype(np.float32), C.astype(np.float32), zz.astype(np.float32), alpha=0.5, eta=0.05, kappa=1.0
    )
    assert single.A.dtype == np.float64 and (single.status == "optimal").all()


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"alpha": 0.0}, "alpha must be positive, got 0"),
        ({"alpha": np.nan}, "alpha must be"),
        ({"eta": -1.0}, "eta must not be negative, got -1"),
        ({"kappa": -1.0}, "kappa"),
    ],
)
def test_bad_input(bad, message):
    with pytest.raises(ValueError, match=message):
        solve_perspective_rows(*normal(*problem()), **({"alpha": 0.5, "eta": 0.05, "kappa": 1.0} | bad))
    if "kappa" not in bad:
        with pytest.raises(ValueError, match=message):
            Perspective(**({"alpha": 0.5, "eta": 0.05} | bad))
    with pytest.raises(ValueError, match="step must be"):
        Perspective(1.0, 1.0).prox(1.0, 0.0)
