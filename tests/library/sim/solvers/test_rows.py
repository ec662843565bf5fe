"""Row solver: against a conic solver, closed forms and the hard cases; every certificate recomputed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.solvers.duality_gap import duality_gap
from implicit_models.sim.solvers.gram import gram
from implicit_models.sim.solvers.rows import Rows, path_rows, solve_rows


def conic(M, z, kappa, ball, beta, ridge):
    """Optimal value and solution by Clarabel."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy (extra: sim) is the reference")
    a = cp.Variable(M.shape[1])
    value = 0.5 * cp.sum_squares(M @ a - z) + beta * cp.norm1(a) + 0.5 * ridge * cp.sum_squares(a)
    bound = [cp.norm1(a[np.flatnonzero(ball)]) <= kappa] if ball.any() and np.isfinite(kappa) else []
    problem = cp.Problem(cp.Minimize(value), bound)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value, a.value


def check(M, Z, rows: Rows, *, kappa, ball=None, beta=0.0, ridge=0.0, rtol=1e-6, atol=1e-9):
    """Objective, norm and gap from the samples themselves."""
    ball = np.ones(M.shape[1], bool) if ball is None else ball
    G, C, zz = gram(M, Z)
    gap, _ = duality_gap(G, C, zz, rows.A, kappa=kappa, ball_mask=ball, beta=beta, ridge=ridge)
    values = 0.5 * ((Z - M @ rows.A.T) ** 2).sum(0) + beta * np.abs(rows.A).sum(1) + 0.5 * ridge * (rows.A**2).sum(1)
    assert (np.abs(rows.A[:, ball]).sum(1) <= kappa * (1 + 1e-9)).all()
    assert ((gap <= rtol * values) | (gap <= atol * 0.5 * zz)).all(), gap
    np.testing.assert_allclose(rows.gap, gap, atol=1e-9 * (1 + zz.max()))
    return values


CASES = [
    (m, d, kappa, part, beta, ridge)
    for m, d in ((30, 12), (10, 25))
    for kappa in (0.0, 0.2, 1.5, np.inf)
    for part in ("all", "some", "none")
    for beta, ridge in ((0.0, 0.0), (0.4, 0.0), (0.1, 0.7), (0.0, 0.5))
]


@pytest.mark.parametrize(("m", "d", "kappa", "part", "beta", "ridge"), CASES)
def test_agrees_with_a_conic_solver(m, d, kappa, part, beta, ridge):
    rng = np.random.default_rng([m, d, int(10 * min(kappa, 9)), len(part)])
    M, Z = rng.normal(size=(m, d)), rng.normal(size=(m, 2))
    ball = {"all": np.ones(d, bool), "some": np.arange(d) % 3 > 0, "none": np.zeros(d, bool)}[part]
    rows = solve_rows(*gram(M, Z), kappa=kappa, ball_mask=ball, beta=beta, ridge=ridge)
    assert (rows.status == "optimal").all()
    values = check(M, Z, rows, kappa=kappa, ball=ball, beta=beta, ridge=ridge)
    for i in range(2):
        best, _ = conic(M, Z[:, i], kappa, ball, beta, ridge)
        assert values[i] == pytest.approx(best, rel=1e-6, abs=1e-7)


def test_orthonormal_columns_in_closed_form():
    """G = I: the lasso is soft-thresholding, the ball's solution the projection on it."""
    rng = np.random.default_rng(0)
    M = np.linalg.qr(rng.normal(size=(40, 7)))[0]
    z = rng.normal(size=(40, 1))
    c = M.T @ z[:, 0]
    soft = solve_rows(*gram(M, z), kappa=np.inf, beta=0.3)
    np.testing.assert_allclose(soft.A[0], np.sign(c) * np.maximum(np.abs(c) - 0.3, 0), atol=1e-12)
    ball = solve_rows(*gram(M, z), kappa=0.8)
    theta = ball.multiplier[0]
    np.testing.assert_allclose(ball.A[0], np.sign(c) * np.maximum(np.abs(c) - theta, 0), atol=1e-12)
    assert np.abs(ball.A[0]).sum() == pytest.approx(0.8, abs=1e-12)


def test_matches_lars_at_every_knot():
    """scikit-learn's own path (another implementation of the same homotopy) at its breakpoints."""
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is the reference")
    rng = np.random.default_rng(3)
    M = rng.normal(size=(25, 40)) @ np.diag(rng.uniform(0.2, 3, 40))
    z = rng.normal(size=25)
    alphas, _, coefficients = linear.lars_path(M, z, method="lasso")
    for alpha, a in list(zip(alphas, coefficients.T, strict=True))[1:-1]:
        rows = solve_rows(*gram(M, z[:, None]), kappa=np.abs(a).sum())
        np.testing.assert_allclose(rows.A[0], a, atol=1e-8)
        assert rows.multiplier[0] == pytest.approx(alpha * 25, rel=1e-6)  # its alpha is per sample


def test_long_steps_and_events_agree():
    """A dense regime, where long steps do the work, against the path event by event."""
    from implicit_models.sim.solvers import rows as module

    rng = np.random.default_rng(5)
    low = rng.normal(size=(200, 30)) @ rng.normal(size=(30, 260))
    M = low + 0.3 * rng.normal(size=low.shape)
    Z = M @ rng.normal(size=(260, 3)) / 16 + 0.1 * rng.normal(size=(200, 3))
    ball = np.arange(260) < 60
    data = gram(M, Z)
    for arguments in ({"kappa": 9.0}, {"kappa": 0.9, "ball_mask": ball, "beta": 0.05}):
        fast = solve_rows(*data, **arguments, rtol=1e-12, atol=1e-13)
        assert fast.support.max() > 100  # beyond FEW
        original, module.FEW = module.FEW, 10_000
        try:
            slow = solve_rows(*data, **arguments, rtol=1e-12, atol=1e-13)
        finally:
            module.FEW = original
        np.testing.assert_allclose(fast.A, slow.A, atol=1e-8)
        np.testing.assert_allclose(fast.multiplier, slow.multiplier, rtol=1e-6)
        assert set(fast.status) | set(slow.status) == {"optimal"}
        assert fast.n_steps.sum() < slow.n_steps.sum()


def test_sweep_equals_single_radii():
    rng = np.random.default_rng(8)
    M, Z = rng.normal(size=(60, 90)), rng.normal(size=(60, 4))
    data, kappas = gram(M, Z), [2.0, 0.05, 0.7, 0.0, 1e3, np.inf]
    for beta, ball in ((0.0, None), (0.3, np.arange(90) < 40)):
        path = path_rows(*data, kappas=kappas, beta=beta, ball_mask=ball, rtol=1e-10, atol=1e-12)
        assert path.kappas.tolist() == sorted(kappas)
        for kappa in kappas:
            alone = solve_rows(*data, kappa=kappa, beta=beta, ball_mask=ball, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(path.at(kappa).A, alone.A, atol=2e-6)
            assert (path.at(kappa).status == "optimal").all()
    with pytest.raises(KeyError, match="0.25"):
        path.at(0.25)
    with pytest.raises(ValueError, match="distinct"):
        path_rows(*data, kappas=[0.1, 0.1])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 15),
    st.floats(0, 3),
    st.one_of(st.just(0.0), st.floats(1e-4, 1)),
    st.booleans(),
)
def test_any_small_problem_is_certified(seed, m, d, kappa, beta, rounded):
    """Ties and dependence included: integer data has many."""
    rng = np.random.default_rng(seed)
    M, Z = rng.normal(size=(m, d)), rng.normal(size=(m, 2))
    if rounded:
        M, Z = np.round(M), np.round(Z)
    ball = rng.random(d) < 0.6
    rows = solve_rows(*gram(M, Z), kappa=kappa, ball_mask=ball, beta=beta)
    assert set(rows.status) <= {"optimal", "fista"}
    check(M, Z, rows, kappa=kappa, ball=ball, beta=beta)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-6, 6))
def test_scaling_the_target_scales_the_solution(seed, power):
    rng = np.random.default_rng(seed)
    M, Z, scale = rng.normal(size=(12, 9)), rng.normal(size=(12, 1)), 10.0**power
    one = solve_rows(*gram(M, Z), kappa=1.0, beta=0.0)
    other = solve_rows(*gram(M, scale * Z), kappa=scale, beta=0.0)
    np.testing.assert_allclose(other.A, scale * one.A, atol=1e-6 * scale)


def data(seed=0, m=20, d=8, r=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, d)), rng.normal(size=(m, r))


def test_zero_target():
    M, Z = data()
    Z[:, 1] = 0.0
    for ball in (None, np.arange(8) < 4):
        rows = solve_rows(*gram(M, Z), kappa=0.5, beta=0.1, ball_mask=ball)
        assert (rows.A[1] == 0).all() and rows.gap[1] == 0 and rows.multiplier[1] == 0 and rows.status[1] == "optimal"


def test_ball_that_holds_the_least_squares_solution():
    M, Z = data()
    exact = np.linalg.lstsq(M, Z, rcond=None)[0].T
    rows = solve_rows(*gram(M, Z), kappa=np.abs(exact).sum(1) + 0.1, rtol=1e-10)
    np.testing.assert_allclose(rows.A, exact, atol=1e-6)
    assert (rows.multiplier < 1e-6).all()


def test_tiny_ball():
    M, Z = data()
    rows = solve_rows(*gram(M, Z), kappa=1e-9, rtol=1e-12, atol=1e-15)
    assert (rows.support == 1).all() and (rows.status == "optimal").all()
    np.testing.assert_allclose(np.abs(rows.A).sum(1), 1e-9, rtol=1e-12)
    assert (np.abs(rows.A).argmax(1) == np.abs(M.T @ Z).argmax(0)).all()


def test_zero_and_duplicate_columns():
    M, Z = data(d=10)
    M[:, 3] = 0.0
    M[:, 7] = M[:, 2]
    M[:, 8] = -M[:, 4]
    for beta, ball in ((0.0, None), (0.2, None), (0.2, np.arange(10) < 5)):
        rows = solve_rows(*gram(M, Z), kappa=0.9, beta=beta, ball_mask=ball)
        assert (rows.A[:, 3] == 0).all() and (rows.status == "optimal").all()
        check(M, Z, rows, kappa=0.9, beta=beta, ball=ball)


def test_equicorrelated_columns():
    rng = np.random.default_rng(2)
    common = rng.normal(size=(50, 1))
    M = 0.95 * common + 0.05 * rng.normal(size=(50, 30))
    Z = M @ rng.normal(size=(30, 3))
    rows = solve_rows(*gram(M, Z), kappa=1.0)
    assert (rows.status == "optimal").all()
    check(M, Z, rows, kappa=1.0)


def test_exactly_tied_columns():
    """G = (1 - t) I + t 11' with equal correlations: all columns join at once and share the norm."""
    d = 12
    G, C, zz = 0.5 * np.eye(d) + 0.5, np.ones((1, d)), np.array([4.0])
    rows = solve_rows(G, C, zz, kappa=0.6)
    assert rows.A[0].sum() == pytest.approx(0.6, abs=1e-12)
    (f,), (best,) = (duality_gap(G, C, zz, A, kappa=0.6)[1] for A in (rows.A, np.full((1, d), 0.6 / d)))
    # On the simplex of radius 0.6 the best point is the uniform one.
    assert f == pytest.approx(best, rel=1e-6)


def test_rank_deficient_and_wide():
    rng = np.random.default_rng(4)
    M = rng.normal(size=(15, 5)) @ rng.normal(size=(5, 40))
    Z = rng.normal(size=(15, 3))
    for beta in (0.0, 0.5):
        for ball in (None, np.arange(40) < 10):
            rows = solve_rows(*gram(M, Z), kappa=0.4, beta=beta, ball_mask=ball)
            check(M, Z, rows, kappa=0.4, beta=beta, ball=ball)
            assert set(rows.status) <= {"optimal", "fista"}


def test_one_row_one_column():
    M, Z = np.array([[2.0]]), np.array([[3.0]])
    rows = solve_rows(*gram(M, Z), kappa=1.0)
    assert rows.A.tolist() == [[1.0]] and rows.multiplier[0] == pytest.approx(2 * (3 - 2))
    assert len(rows) == 1


def test_no_rows():
    rows = solve_rows(np.eye(3), np.zeros((0, 3)), np.zeros(0), kappa=1.0)
    assert len(rows) == 0 and rows.A.shape == (0, 3)


def test_nan_in_one_row_leaves_the_others_bit_identical():
    M, Z = data(r=4)
    clean = solve_rows(*gram(M, Z), kappa=0.5)
    Z[3, 2] = np.nan
    rows = solve_rows(*gram(M, Z), kappa=0.5)
    assert rows.status.tolist() == ["optimal", "optimal", "not_finite", "optimal"]
    assert np.isnan(rows.A[2]).all() and np.isnan(rows.gap[2])
    keep = [0, 1, 3]
    assert (rows.A[keep] == clean.A[keep]).all()
    part = solve_rows(*gram(M, Z), kappa=0.5, beta=0.0, ball_mask=np.arange(8) < 4)
    assert part.status[2] == "not_finite" and (part.status[keep] == "optimal").all()


def test_float32_and_torch_input():
    torch = pytest.importorskip("torch")
    M, Z = data()
    M, Z = M.astype(np.float32), Z.astype(np.float32)
    rows = solve_rows(*gram(M, Z), kappa=0.5)
    same = solve_rows(*gram(torch.tensor(M), torch.tensor(Z)), kappa=0.5)
    assert rows.A.dtype == np.float64 and (rows.A == same.A).all()
    check(M.astype(float), Z.astype(float), rows, kappa=0.5)


def test_penalty_above_the_end_of_the_path():
    M, Z = data()
    rows = solve_rows(*gram(M, Z), kappa=0.5, beta=np.abs(M.T @ Z).max() * 1.001)
    assert (rows.A == 0).all() and (rows.gap == 0).all() and (rows.n_steps == 0).all()


def test_each_row_its_own_kappa_and_beta():
    M, Z = data()
    kappa, beta = np.array([0.1, 0.5, 2.0]), np.array([0.0, 0.3, 1.0])
    for ball in (None, np.arange(8) < 3):
        together = solve_rows(*gram(M, Z), kappa=kappa, beta=beta, ball_mask=ball)
        for i in range(3):
            alone = solve_rows(*gram(M, Z[:, i : i + 1]), kappa=kappa[i], beta=beta[i], ball_mask=ball)
            np.testing.assert_allclose(together.A[i], alone.A[0], atol=1e-12)


def test_a_factor_that_must_grow():
    """More active columns than the 256 that a factor first holds."""
    rng = np.random.default_rng(6)
    M, Z = rng.normal(size=(700, 400)), rng.normal(size=(700, 1))
    rows = solve_rows(*gram(M, Z), kappa=np.inf, beta=1e-3)
    assert rows.support[0] > 256 and rows.status[0] == "optimal"
    check(M, Z, rows, kappa=np.inf, beta=1e-3)


@pytest.mark.parametrize("part", [False, True])
def test_rows_that_the_path_leaves_are_followed_again(monkeypatch, part):
    """Dependent columns can stop exchanges however short the step: the parametric active set then solves the row."""
    from implicit_models.sim.solvers import rows as module

    rng = np.random.default_rng(8)
    M = np.maximum(rng.normal(size=(40, 50)), 0)
    M[:, 10:14], M[:, 20] = M[:, 4:8], M[:, 0] + M[:, 1]
    Z = M @ rng.normal(size=(50, 3)) * 0.2 + 0.1 * rng.normal(size=(40, 3))
    arguments = {
        "kappa": 0.6,
        "beta": 0.02,
        "ball_mask": np.arange(50) < 15 if part else None,
        "rtol": 1e-10,
        "atol": 1e-12,
    }
    expected = solve_rows(*gram(M, Z), **arguments)

    def gives_up(problem, *settings):
        found = settings[-1]
        found.A[:], found.gap[:], found.value[:], found.reason[:] = 0, np.inf, 1, 3
        return len(problem.C)

    monkeypatch.setattr(module, "solve_chunk", gives_up)
    monkeypatch.setattr(module, "fista", lambda *a, **k: pytest.fail("no row should reach the iteration"))
    rows = solve_rows(*gram(M, Z), **arguments)
    assert list(rows.status) == ["optimal"] * 3
    np.testing.assert_allclose(rows.multiplier, expected.multiplier, rtol=1e-6)
    np.testing.assert_allclose(Z.T - rows.A @ M.T, Z.T - expected.A @ M.T, atol=1e-7)


@pytest.mark.parametrize(("beta", "ridge", "part"), [(0.0, 0.0, False), (0.3, 0.0, True), (0.2, 0.7, False)])
def test_fallback_is_visible_and_certified(monkeypatch, beta, ridge, part):
    from implicit_models.sim.solvers import rows as module

    M, Z = data()
    arguments = {"beta": beta, "ridge": ridge, "ball_mask": np.arange(M.shape[1]) < 5 if part else None}
    exact = solve_rows(*gram(M, Z), kappa=0.5, **arguments)

    def broken(problem, *settings):
        settings[-1].gap[:] = np.inf  # A stays 0
        return len(problem.C)

    monkeypatch.setattr(module, "solve_chunk", broken)
    monkeypatch.setattr(module, "_followed", lambda *given, **more: np.zeros(len(given[3]), bool))  # nor does this one
    rows = solve_rows(*gram(M, Z), kappa=0.5, **arguments)
    assert (rows.status == "fista").all()
    check(M, Z, rows, kappa=0.5, beta=beta, ridge=ridge, ball=arguments["ball_mask"])
    np.testing.assert_allclose(rows.A, exact.A, atol=1e-3)
    np.testing.assert_allclose(rows.multiplier, exact.multiplier, rtol=1e-2, atol=1e-6)


def test_a_fallback_that_is_cut_short_keeps_the_better_point(monkeypatch):
    from implicit_models.sim.solvers import fista
    from implicit_models.sim.solvers import rows as module

    M, Z = data()
    near = solve_rows(*gram(M, Z), kappa=0.5).A * (1 - 1e-3)

    def almost(problem, *settings):
        found = settings[-1]
        found.A[:, 0], found.gap[:], found.value[:] = near, 1e-3, 1.0
        return len(problem.C)

    monkeypatch.setattr(module, "solve_chunk", almost)
    for name in ("BATCH", "BATCHES"):
        monkeypatch.setattr(fista, name, 1)
    rows = solve_rows(*gram(M, Z), kappa=0.5, rtol=1e-12, atol=1e-15)
    assert (rows.status == "inaccurate").all()
    before, _ = duality_gap(*gram(M, Z), near, kappa=0.5)
    assert (rows.gap <= before).all() and (np.abs(rows.A).sum(1) <= 0.5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kappa": -1.0}, "kappa must be at least 0; got -1.0 for row 0"),
        ({"kappa": np.array([1.0, np.nan, 1.0])}, "got nan for row 1"),
        ({"kappa": np.ones(2)}, r"shape \(3,\); got shape \(2,\)"),
        ({"beta": -0.5}, "beta"),
        ({"ridge": np.nan}, "ridge"),
        ({"rtol": -1}, "rtol"),
        ({"ball_mask": np.ones(7, bool)}, "8 booleans"),
        ({"ball_mask": np.ones(8)}, "dtype float64"),
    ],
)
def test_bad_arguments(change, message):
    M, Z = data()
    with pytest.raises(ValueError, match=message):
        solve_rows(*gram(M, Z), **{"kappa": 1.0, **change})


def test_bad_data():
    M, Z = data()
    G, C, zz = gram(M, Z)
    with pytest.raises(ValueError, match=r"\(8, 8\), \(3, 7\)"):
        solve_rows(G, C[:, :7], zz, kappa=1.0)
    with pytest.raises(ValueError, match="not symmetric"):
        solve_rows(G + np.triu(np.ones((8, 8)), 1), C, zz, kappa=1.0)
    spoiled = G.copy()
    spoiled[2, 5] = np.inf
    with pytest.raises(ValueError, match=r"G\[2, 5\]"):
        solve_rows(spoiled, C, zz, kappa=1.0)
    with pytest.raises(ValueError, match=r"G\[3, 3\] = -1"):
        solve_rows(np.diag([1.0, 1, 1, -1, 1, 1, 1, 1]), C, zz, kappa=1.0)
    with pytest.raises(TypeError, match="complex"):
        solve_rows(G, C.astype(complex), zz, kappa=1.0)


def test_gram_is_the_product_and_streams():
    M, Z = data(m=50)
    for chunk in (None, 7, 1):
        G, C, zz = gram(M, Z, chunk=chunk)
        np.testing.assert_allclose(G, M.T @ M, rtol=1e-12)
        np.testing.assert_allclose(C, Z.T @ M, rtol=1e-12)
        np.testing.assert_allclose(zz, (Z**2).sum(0), rtol=1e-12)
        assert (G == G.T).all()


def test_gram_refuses_bad_features():
    M, Z = data()
    with pytest.raises(ValueError, match=r"\(20, 8\) and Z \(19, 3\)"):
        gram(M, Z[:19])
    M[4, 6] = np.inf
    with pytest.raises(ValueError, match=r"M\[4, 6\] = inf"):
        gram(M, Z)
    with pytest.raises(ValueError, match="no sample"):
        gram(np.zeros((0, 3)), np.zeros((0, 1)))
    with pytest.raises(ValueError, match="overflow"):
        gram(np.full((3, 2), 1e200), np.zeros((3, 1)))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 3), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.4]))
def test_gap_bounds_the_distance_from_the_optimum(seed, kappa, beta, ridge):
    """For any feasible candidate, near the optimum or not."""
    rng = np.random.default_rng(seed)
    M, Z = rng.normal(size=(10, 6)), rng.normal(size=(10, 1))
    ball = rng.random(6) < 0.6
    G, C, zz = gram(M, Z)
    best = solve_rows(G, C, zz, kappa=kappa, ball_mask=ball, beta=beta, ridge=ridge, rtol=1e-10, atol=1e-12)
    candidate = best.A + rng.normal(size=(1, 6)) * rng.choice([1e-4, 1e-2, 1.0])
    norm = np.abs(candidate[:, ball]).sum()
    if norm > kappa:
        candidate[:, ball] *= kappa / norm
    terms = {"beta": beta, "ridge": ridge}
    gap, value = duality_gap(G, C, zz, candidate, kappa=kappa, ball_mask=ball, **terms)
    lost = ((M @ np.vstack([candidate, best.A]).T - Z) ** 2).sum(0)
    values = [0.5 * s + beta * np.abs(a).sum() + 0.5 * ridge * a @ a for s, a in zip(lost, (candidate[0], best.A[0]))]
    assert value[0] == pytest.approx(values[0], rel=1e-9, abs=1e-11 * zz[0])
    excess = [values[0] - values[1]]
    assert gap[0] >= excess[0] - 1e-9 * (1 + zz[0])


def test_gap_of_an_infeasible_row_is_infinite():
    M, Z = data(r=1)
    assert duality_gap(*gram(M, Z), np.full((1, 8), 1.0), kappa=7.9)[0] == np.inf


def test_ridge_term_of_the_gap():
    """Without it the dual value would exceed the optimum."""
    M, Z = data(seed=11)
    G, C, zz = gram(M, Z)
    rows = solve_rows(G, C, zz, kappa=0.4, ridge=5.0)
    gap, value = duality_gap(G, C, zz, rows.A, kappa=0.4, ridge=5.0)
    assert (gap >= -1e-12 * zz).all() and (gap <= 1e-6 * value).all()


def projected_optimum(M, Z, ball, kappa):
    """Optimal values by QR of the free columns in unit norm, from the samples: no Gram matrix of free columns."""
    F = M[:, ~ball]
    Q = np.linalg.qr(F / np.linalg.norm(F, axis=0))[0]
    left, target = (X - Q @ (Q.T @ X) for X in (M[:, ball], Z))
    if not ball.any():
        return 0.5 * (target**2).sum(0)
    rows = solve_rows(*gram(left, target), kappa=kappa, rtol=1e-11, atol=1e-13)
    return 0.5 * ((target - left @ rows.A.T) ** 2).sum(0)


@pytest.mark.parametrize("power", [-8, -6, -3, 3, 6, 7, 8])
@pytest.mark.parametrize("part", [True, False])
def test_units_of_free_columns_do_not_matter(power, part):
    rng = np.random.default_rng([abs(power), part])
    M = rng.normal(size=(40, 8))
    Z = M @ rng.normal(size=(8, 2)) + 0.1 * rng.normal(size=(40, 2))
    ball = (np.arange(8) < 4) & part
    M[:, 5] *= 10.0**power
    rows = solve_rows(*gram(M, Z), kappa=0.7, ball_mask=ball)
    assert (rows.status == "optimal").all()
    values = check(M, Z, rows, kappa=0.7, ball=ball)
    np.testing.assert_allclose(values, projected_optimum(M, Z, ball, 0.7), rtol=1e-6)
    # the same column in units of its own, by the conic solver
    N = M / np.linalg.norm(M, axis=0) ** (np.arange(8) == 5)
    assert values[0] == pytest.approx(conic(N, Z[:, 0], 0.7, ball, 0.0, 0.0)[0], rel=1e-6)


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
@pytest.mark.parametrize("power", [-8, 6, 8])
def test_units_of_free_columns_do_not_matter_with_a_ridge(ridge, power):
    """The ridge problem is least squares on stacked data."""
    rng = np.random.default_rng(1)
    M, Z = rng.normal(size=(60, 4)), rng.normal(size=(60, 2))
    M[:, 0] *= 10.0**power
    rows = solve_rows(*gram(M, Z), kappa=np.inf, ridge=ridge)
    stacked, target = np.vstack([M, np.sqrt(ridge) * np.eye(4)]), np.vstack([Z, np.zeros((4, 2))])
    size = np.linalg.norm(stacked, axis=0)
    exact = np.linalg.lstsq(stacked / size, target, rcond=None)[0] / size[:, None]
    best = 0.5 * ((target - stacked @ exact) ** 2).sum(0)
    np.testing.assert_allclose(check(M, Z, rows, kappa=np.inf, ridge=ridge), best, rtol=1e-9)
    assert (rows.status == "optimal").all()
    np.testing.assert_allclose(rows.A * size, exact.T * size, atol=1e-7)


def test_a_lost_direction_shows_in_the_certificate():
    """A row fitted without one of the free columns, however small that is: its gap covers what the column would
    gain."""
    rng = np.random.default_rng(2)
    M = rng.normal(size=(50, 5))
    M[:, 4] *= 1e-7
    z = M[:, :1] + 3e7 * M[:, 4:]
    G, C, zz = gram(M, z)
    A = np.zeros((1, 5))
    A[0, :4] = np.linalg.lstsq(M[:, :4], z[:, 0], rcond=None)[0]
    lost = 0.5 * ((M @ A[0] - z[:, 0]) ** 2).sum()
    assert lost > 1.0
    for ball in (np.zeros(5, bool), np.arange(5) < 2):
        assert duality_gap(G, C, zz, A, kappa=5.0, ball_mask=ball)[0] > 0.99 * lost


@pytest.mark.parametrize("eps", [1e-8, 1e-7, 6e-7, 1.2e-6, 2e-6, 3e-6, 1e-5])
def test_nearly_equal_free_columns_are_certified_or_said_to_be_inaccurate(eps):
    rng = np.random.default_rng(3)
    ball = np.arange(8) < 5
    optimal = 0
    for _ in range(12):
        M, Z = rng.normal(size=(40, 8)), 10 * rng.normal(size=(40, 2))
        M[:, 7] = M[:, 6] + eps * rng.normal(size=40)
        data = gram(M, Z)
        rows = solve_rows(*data, kappa=0.4, ball_mask=ball)
        np.testing.assert_allclose(
            rows.gap, duality_gap(*data, rows.A, kappa=0.4, ball_mask=ball)[0], rtol=1e-6, atol=1e-12 * data[2].max()
        )
        excess = 0.5 * ((Z - M @ rows.A.T) ** 2).sum(0) - projected_optimum(M, Z, ball, 0.4)
        assert (excess <= rows.gap + 1e-9 * data[2]).all()
        good = rows.status == "optimal"
        assert (excess[good] <= 2e-9 * data[2][good] + 2e-6 * 0.5 * data[2][good]).all()
        optimal += good.sum()
    assert optimal == 24 or eps < 5e-6


def test_dependent_free_columns_have_least_norm():
    """One-hot columns beside a bias in other units and a column of zeros: the coefficients of least norm."""
    rng = np.random.default_rng(4)
    M = np.hstack(
        [np.eye(5)[rng.integers(0, 5, 200)], np.full((200, 1), 3.0), np.zeros((200, 1)), rng.normal(size=(200, 2))]
    )
    Z = rng.normal(size=(200, 2))
    rows = solve_rows(*gram(M, Z), kappa=np.inf)
    np.testing.assert_allclose(rows.A, np.linalg.lstsq(M, Z, rcond=None)[0].T, atol=1e-10)
    assert (rows.status == "optimal").all()


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_a_slack_ball_of_any_radius_is_certified(beta):
    rng = np.random.default_rng(5)
    M = rng.normal(size=(50, 12))
    Z = M @ rng.normal(size=(12, 4)) + 0.5 * rng.normal(size=(50, 4))
    for kappa in (1e6, 1e10, 1e12, 1e15):
        rows = solve_rows(*gram(M, Z), kappa=kappa, beta=beta)
        assert (rows.status == "optimal").all()
        check(M, Z, rows, kappa=kappa, beta=beta)
        if not beta:
            np.testing.assert_allclose(rows.A, np.linalg.lstsq(M, Z, rcond=None)[0].T, atol=1e-10)


def test_data_that_no_columns_have_are_refused():
    M, Z = data()
    G, C, zz = gram(M, Z)
    wrong = G.copy()
    wrong[1, 4] = wrong[4, 1] = 2 * np.sqrt(G[1, 1] * G[4, 4])
    with pytest.raises(ValueError, match=r"G\[1, 4\] = .*no Gram matrix"):
        solve_rows(wrong, C, zz, kappa=1.0)
    with pytest.raises(ValueError, match=r"zz\[2\] = -1: "):
        solve_rows(G, C, np.where(np.arange(3) == 2, -1.0, zz), kappa=1.0)
    far = C.copy()
    far[1, 6] = -1.5 * np.sqrt(G[6, 6] * zz[1])
    with pytest.raises(ValueError, match=r"C\[1, 6\] = .*row 1"):
        solve_rows(G, far, zz, kappa=1.0)
    single = gram(M.astype(np.float32), M[:, :3].astype(np.float32))  # targets that are columns: equality
    assert (solve_rows(*(x.astype(np.float32) for x in single), kappa=1.0).status == "optimal").all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kappa": np.nan}, "kappa must be at least 0; got nan for row 0"),
        ({"kappa": np.array([1.0, -1.0, 1.0])}, "got -1.0 for row 1"),
        ({"beta": np.array([0.0, 0.0, np.nan])}, "beta must be at least 0; got nan for row 2"),
        ({"ridge": -0.1}, "ridge"),
        ({"ridge": np.nan}, "ridge"),
        ({"ball_mask": np.array([0, 2])}, "8 booleans"),
        ({"ball_mask": np.arange(8)}, "dtype int"),
    ],
)
def test_bad_arguments_of_the_certificate(change, message):
    M, Z = data()
    with pytest.raises(ValueError, match=message):
        duality_gap(*gram(M, Z), np.zeros((3, 8)), **{"kappa": 1.0, **change})


@pytest.mark.parametrize("chunk", [0, -3])
def test_chunk_of_no_samples(chunk):
    with pytest.raises(ValueError, match=f"chunk must be at least 1; got {chunk}"):
        gram(*data(), chunk=chunk)
