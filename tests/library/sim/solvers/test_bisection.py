"""Searches on the LASSO path against CVXPY and scikit-learn, and every defect of the printed algorithms shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.problem import Tolerance
from implicit_models.sim.solvers.bisection import METHODS, solve_on_path
from implicit_models.sim.solvers.conic import conic_row
from implicit_models.sim.solvers.coordinate_descent import g, lambda_max, lasso
from implicit_models.sim.solvers.unpenalised import eliminate
from reproduction.ch3_bisection.algorithm_one import algorithm_1, algorithm_2


def problem(m=40, d=25, seed=0, noise=0.5, rows=None):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(m, d)) * rng.uniform(0.3, 2, d)
    shape = (d,) if rows is None else (d, rows)
    z = M @ (rng.normal(size=shape) * (rng.random(shape) < 0.4)) + noise * rng.normal(size=(m, *shape[1:]))
    return M, z


def normal(M, z):
    return M.T @ M, M.T @ z, float(z @ z)


def objective(M, z, a, ridge=0.0):
    return 0.5 * np.sum((M @ a - z) ** 2) + 0.5 * ridge * a @ a


# -- against independent solvers


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kappa, ridge", [(0.3, 0.0), (1.5, 0.0), (1.5, 2.0)])
def test_optimum_of_the_conic_program(method, kappa, ridge):
    M, z = problem()
    a, value = conic_row(M, z, kappa=kappa, ridge=ridge)
    found = solve_on_path(*normal(M, z), kappa=kappa, method=method, ridge=ridge, tolerance=Tolerance(1e-10))
    assert found.status == "optimal" and found.violation < 1e-12
    assert objective(M, z, found.a, ridge) == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(found.a, a, atol=2e-4)


def test_g_follows_the_lars_path():
    from sklearn.linear_model import lars_path

    M, z = problem()
    alphas, _, coefs = lars_path(M, z, method="lasso")
    for lam, norm in zip(alphas[1:-1] * len(z), np.abs(coefs).sum(0)[1:-1], strict=True):
        assert g(*normal(M, z), lam) == pytest.approx(norm, rel=1e-7)
    assert lambda_max(M.T @ z) == pytest.approx(alphas[0] * len(z))


@pytest.mark.parametrize("newton", [False, True])
def test_lasso_of_scikit_learn(newton):
    from sklearn.linear_model import Lasso

    M, z = problem(seed=3)
    lam = 0.2 * lambda_max(M.T @ z)
    want = Lasso(alpha=lam / len(z), fit_intercept=False, tol=1e-14, max_iter=100_000).fit(M, z).coef_
    found = lasso(*normal(M, z), lam, newton=newton, rtol=1e-13)
    np.testing.assert_allclose(found.a, want, atol=1e-7)
    assert found.converged and (found.n_systems > 0) == newton
    assert np.array_equal(found.a != 0, want != 0)


def test_multiplier_is_where_the_lars_path_meets_kappa():
    from sklearn.linear_model import lars_path

    M, z = problem(seed=5)
    alphas, _, coefs = lars_path(M, z, method="lasso")
    norms = np.abs(coefs).sum(0)
    kappa = 0.6 * norms[-1]
    want = np.interp(kappa, norms, alphas) * len(z)
    for method in METHODS:
        assert solve_on_path(
            *normal(M, z), kappa=kappa, method=method, tolerance=Tolerance(1e-12, 1e-14)
        ).lam == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_ball_over_part_of_the_vector(ridge):
    M, z = problem(seed=2)
    ball = np.arange(25) < 15
    G, c, zz = normal(M, z)
    part = eliminate(G, c[None], np.array([zz]), ~ball, ridge)
    inner, right, left = part.problem
    found = solve_on_path(inner, right[0], left[0], kappa=0.4, method="newton", ridge=ridge, tolerance=Tolerance(1e-11))
    _, value = conic_row(M, z, kappa=0.4, ball_mask=ball, ridge=ridge)
    assert objective(M, z, part.recover(found.a[None])[0], ridge) == pytest.approx(value, rel=1e-8)


# -- certificates and counts


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(2, 25),
    d=st.integers(1, 30),
    ridge=st.sampled_from([0.0, 0.3]),
    share=st.floats(1e-4, 2.0),
    method=st.sampled_from(METHODS),
    spoil=st.sampled_from(["none", "duplicate", "zero", "equal"]),
)
def test_gap_bounds_the_distance_to_the_optimum(seed, m, d, ridge, share, method, spoil):
    M, z = problem(m, d, seed)
    if spoil == "duplicate":
        M[:, -1] = M[:, 0]
    elif spoil == "zero":
        M[:, 0] = 0
    elif spoil == "equal":
        M = M + 5 * M[:, :1]
    G, c, zz = normal(M, z)
    kappa = share * np.abs(np.linalg.lstsq(M, z, rcond=None)[0]).sum()
    found = solve_on_path(G, c, zz, kappa=kappa, method=method, ridge=ridge)
    tight = solve_on_path(G, c, zz, kappa=kappa, method="newton", ridge=ridge, tolerance=Tolerance(1e-12, 1e-14))
    assert found.status == "optimal" and found.violation <= 1e-12 * max(kappa, 1)
    value, best = objective(M, z, found.a, ridge), objective(M, z, tight.a, ridge)
    assert found.gap <= max(1e-6 * value * (1 + 1e-6), 0.5e-9 * zz)
    assert value - best <= found.gap + 1e-11 * zz
    rho = z - M @ found.a  # the same certificate from the data
    dual = z @ rho - 0.5 * (rho @ rho + ridge * found.a @ found.a) - kappa * np.abs(M.T @ rho - ridge * found.a).max()
    assert value - dual == pytest.approx(found.gap, abs=1e-11 * zz)


def test_counts():
    M, Z = problem(m=60, d=80, rows=8, noise=0.1)
    M = M + 2 * np.random.default_rng(9).normal(size=(60, 1))  # correlated columns, as the states of a network are
    count = {}
    for method in METHODS:
        for warm in (False, True):
            runs = [solve_on_path(*normal(M, z), kappa=2.0, method=method, warm=warm, newton=False) for z in Z.T]
            assert all(run.status == "optimal" for run in runs)
            count[method, warm] = sum(run.n_solves for run in runs), sum(run.n_epochs for run in runs)
    for method in METHODS:  # a warm start saves sweeps, not solves
        assert count[method, True][1] < count[method, False][1]
    assert count["bisection", True][1] < count["bisection", False][1] / 1.3
    assert count["newton", True][0] < count["illinois", True][0] < count["bisection", True][0] / 2


def test_history():
    M, z = problem()
    found = solve_on_path(*normal(M, z), kappa=1.0, keep=True)
    assert len(found.history) == found.n_solves and sum(s.n_epochs for s in found.history) == found.n_epochs
    for step in found.history:
        assert np.abs(step.a).sum() == pytest.approx(step.norm)
        want = lasso(*normal(M, z), step.lam)
        np.testing.assert_allclose(step.a, want.a, atol=1e-4)
    assert solve_on_path(*normal(M, z), kappa=1.0).history[0].a is None
    # the gap shown at a step belongs to the feasible point made of it
    outside = next(s for s in found.history if s.norm > 1.0)
    a = outside.a / outside.norm
    assert outside.gap >= objective(M, z, a) - objective(M, z, found.a) - 1e-9


# -- the printed algorithms and their defects


def test_algorithm_1_may_end_outside_the_ball():
    M, Z = problem(rows=10)
    printed = [algorithm_1(*normal(M, z), kappa=1.0) for z in Z.T]
    assert 0 < sum(run.violation > 1e-9 for run in printed) < 10
    for run in printed:
        assert run.lam == run.history[-1].lam and np.abs(run.a).sum() == run.history[-1].norm
    assert all(solve_on_path(*normal(M, z), kappa=1.0).violation < 1e-12 for z in Z.T)


def test_algorithm_1_starts_too_high():
    M, z = problem(d=100, m=120)
    c = M.T @ z
    first = algorithm_1(*normal(M, z), kappa=1.0).history[0]
    assert first.lam == np.linalg.norm(c) / 2 > lambda_max(c)  # nothing to be found there
    assert first.norm == 0 and g(*normal(M, z), lambda_max(c)) == 0 < g(*normal(M, z), 0.999 * lambda_max(c))


def test_printed_bound_of_g_at_zero_is_false():
    M, z = 0.1 * np.eye(3), np.ones(3)
    assert g(*normal(M, z), 1e-9) == pytest.approx(30, rel=1e-6)
    assert np.abs(M.T @ z).sum() / 3 < 1
    M, z = (
        np.array([[1.0, 2.0]]),
        np.array([2.0]),
    )  # rank-deficient: the limit is the least l1 norm, the inverse does not exist
    assert g(*normal(M, z), 1e-9) == pytest.approx(1.0, rel=1e-6)
    assert np.abs(np.linalg.lstsq(M, z, rcond=None)[0]).sum() == pytest.approx(1.2)


def test_lemma_4_is_false_with_root_n_and_holds_as_corrected():
    n, high, low = 16, 0.2, 0.1
    M, z = np.eye(n), np.ones(n)
    value = {}
    for lam in (low, high):
        a = lasso(*normal(M, z), lam).a
        np.testing.assert_allclose(a, 1 - lam, rtol=1e-9)
        value[lam] = objective(M, z, a) + lam * np.abs(a).sum()
    assert value[high] - value[low] > np.sqrt(n) * (high - low) * 1.0  # A = sup ||a||_inf = 1
    M, z = problem()
    top = lambda_max(M.T @ z)
    for one, two in [(0.1, 0.11), (0.3, 0.1), (0.05, 0.5)]:
        first, second = lasso(*normal(M, z), one * top), lasso(*normal(M, z), two * top)
        norms = np.abs(first.a).sum(), np.abs(second.a).sum()
        gap = objective(M, z, second.a) + one * top * norms[1] - objective(M, z, first.a) - one * top * norms[0]
        assert 0 < gap <= abs(one - two) * top * abs(norms[0] - norms[1]) * (1 + 1e-6)


def test_epsilon_is_absolute():
    M, z = problem()
    counts = [algorithm_1(*normal(M, t * z), kappa=t, eps=0.01).n_solves for t in (1.0, 2.0**8)]
    assert counts[1] == counts[0] + 8
    corrected = [solve_on_path(*normal(M, t * z), kappa=t).n_solves for t in (1.0, 2.0**8)]
    assert corrected[0] == corrected[1]
    gaps = [algorithm_1(*normal(t * M, t * z), kappa=1.0, eps=0.01).gap / t**2 for t in (0.1, 10.0)]
    assert abs(gaps[0]) > 100 * abs(gaps[1])  # the same problem in other units


def test_large_kappa_is_biased_in_print_only():
    M, z = problem()
    G, c, zz = normal(M, z)
    exact = np.linalg.lstsq(M, z, rcond=None)[0]
    kappa = 1.5 * np.abs(exact).sum()
    printed = algorithm_1(G, c, zz, kappa=kappa, eps=0.5)
    assert printed.lam > 0 and np.abs(printed.a - exact).max() > 1e-4
    for method in METHODS:
        found = solve_on_path(G, c, zz, kappa=kappa, method=method, tolerance=Tolerance(1e-9))
        np.testing.assert_allclose(found.a, exact, atol=1e-7)
        assert found.lam == 0 and found.status == "optimal"


def test_zero_target():
    M, _ = problem()
    with pytest.raises(ValueError, match="has no output"):
        algorithm_1(*normal(M, np.zeros(40)), kappa=1.0)
    found = solve_on_path(*normal(M, np.zeros(40)), kappa=1.0)
    assert not found.a.any() and found.gap == 0 and found.status == "optimal" and found.n_solves == 0


def test_algorithm_2_warm_and_cold():
    M, Z = problem(rows=6)
    G, C, zz = M.T @ M, Z.T @ M, (Z**2).sum(0)
    warm, cold = (algorithm_2(G, C, zz, kappa=1.0, warm=w) for w in (True, False))
    assert [run.n_solves for run in warm] == [run.n_solves for run in cold]
    for w, k in zip(warm, cold, strict=True):
        assert w.lam == k.lam
        np.testing.assert_allclose(w.a, k.a, atol=1e-4)
    # the second row starts at the first row's solution
    again = algorithm_1(G, C[1], zz[1], kappa=1.0, warm=True, start=warm[0].a)
    assert np.array_equal(again.a, warm[1].a)


# -- edges


def test_edges():
    M, z = problem()
    G, c, zz = normal(M, z)
    assert not solve_on_path(G, c, zz, kappa=0.0).a.any()
    for method in METHODS:
        tiny = solve_on_path(G, c, zz, kappa=1e-9, method=method)
        assert tiny.status == "optimal" and np.abs(tiny.a).sum() <= 1e-9 * (1 + 1e-12)
        one = solve_on_path(*normal(M[:, :1], z), kappa=0.01, method=method)
        assert one.a == pytest.approx(0.01 * np.sign(M[:, 0] @ z), rel=1e-6)
    single = solve_on_path(G.astype(np.float32), c.astype(np.float32), np.float32(zz), kappa=1.0)
    assert single.a.dtype == np.float64 and single.status == "optimal"
    assert solve_on_path(G, c, zz, kappa=1.0, max_solves=2).status == "inaccurate"
    assert not lasso(G, c, zz, 1e-3, max_epochs=1).converged
    assert not lasso(G, c, zz, 1.001 * lambda_max(c)).a.any()


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"kappa": -1.0}, "kappa must be"),
        ({"kappa": np.nan}, "kappa must be"),
        ({"method": "secant"}, "method must be one of"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"start": np.zeros(3)}, r"start must have shape \(25,\), got \(3,\)"),
        ({"G": np.zeros((25, 3))}, r"square matrix, got shape \(25, 3\)"),
        ({"c": np.zeros(3)}, r"c must have shape \(25,\).*\(3,\)"),
        ({"zz": -1.0}, "zz must be"),
        ({"zz": np.ones(2)}, "zz must be one number"),
        ({"c": np.full(25, np.nan)}, "c has values that are not finite"),
    ],
)
def test_bad_input(bad, message):
    M, z = problem()
    G, c, zz = normal(M, z)
    arguments = {"G": G, "c": c, "zz": zz, "kappa": 1.0} | bad
    with pytest.raises(ValueError, match=message):
        solve_on_path(arguments.pop("G"), arguments.pop("c"), arguments.pop("zz"), **arguments)


def test_bad_lambda_and_eps():
    M, z = problem()
    with pytest.raises(ValueError, match="lam must be a positive number, got 0"):
        lasso(*normal(M, z), 0.0)
    with pytest.raises(ValueError, match="eps must be"):
        algorithm_1(*normal(M, z), kappa=1.0, eps=0.0)
    with pytest.raises(ValueError, match="resolution"):
        algorithm_1(*normal(M, z), kappa=1.0, eps=1e-18)
