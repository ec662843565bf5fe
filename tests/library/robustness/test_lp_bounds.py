"""Linear programmes against SciPy's on the same polytopes, brute force, and each other."""

import builtins
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding import lp
from implicit_models.robustness.bounding.options import LP, Dual
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import from_matrices

RELAXATIONS = ("displayed", "theorem7", "triangle")


def model(seed=0, n=6, p=4, q=3, activation="relu", radius=0.7, D=True):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(A).sum(1, keepdims=True)
    D = rng.normal(size=(q, p)) if D else None
    return from_matrices(
        A,
        rng.normal(size=(n, p)),
        rng.normal(size=(q, n)),
        D,
        activation,
        b=0.3 * rng.normal(size=n),
        d=rng.normal(size=q),
    )


def scipy_lower(P, c, u0, radius, relaxation, found, i, card=None):
    """min c'y written as a plain programme over x, u and t = |u - u0| / radius, pre-activations eliminated."""
    n, p = P.n, P.p
    a = P.activation.kernel_codes[1]
    x0, sigma = (found.cert.x0[i], found.cert.sigma[i]) if relaxation != "triangle" else (None, None)
    I = np.eye(n)
    Z = np.hstack([P.A, P.B])  # z = Z (x, u) + b
    X = np.hstack([I, np.zeros((n, p))])
    ub, rhs, eq, erhs = [Z - X], [-P.b], [], []
    ub.append(a[:, None] * Z - X), rhs.append(-a * P.b)
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if relaxation == "triangle":
        zl, zh = found.zl[i], found.zh[i]
        phi = lambda z: np.where(z > 0, z, a * z)
        low, high = phi(zl), phi(zh)
        ub += [Z, -Z]
        rhs += [zh - P.b, P.b - zl]
        for j in range(n):
            k = (phi(zh)[j] - phi(zl)[j]) / (zh[j] - zl[j])
            ub.append((X - k * Z)[j : j + 1])
            rhs.append(np.array([phi(zl)[j] + k * (P.b[j] - zl[j])]))
    else:
        low, high = np.where(a > 0, x0 - sigma, np.maximum(x0 - sigma, 0)), x0 + sigma
        if relaxation == "theorem7":
            on = x0 - sigma > 0
            eq, erhs = [(X - Z)[on]], [P.b[on]]
    columns = n + p
    bounds_ = [*zip(low, high), *zip(u0 - radius, u0 + radius)]
    cost = np.r_[c @ P.C, c @ P.D]
    ub, rhs = np.vstack(ub), np.concatenate(rhs)
    if card is not None:
        extra = np.zeros((ub.shape[0], p))
        ub = np.hstack([ub, extra])
        move = np.hstack([np.zeros((p, n)), np.eye(p), -np.diag(radius)])
        back = np.hstack([np.zeros((p, n)), -np.eye(p), -np.diag(radius)])
        ub = np.vstack([ub, move, back, np.r_[np.zeros(columns), np.ones(p)]])
        rhs = np.r_[rhs, u0, -u0, card]
        eq = [np.hstack([e, np.zeros((len(e), p))]) for e in eq]
        bounds_ += [(0, 1)] * p
        cost = np.r_[cost, np.zeros(p)]
    eq = np.vstack(eq) if eq and len(eq[0]) else None
    r = linprog(
        cost,
        A_ub=ub,
        b_ub=rhs,
        A_eq=eq,
        b_eq=np.concatenate(erhs) if eq is not None else None,
        bounds=bounds_,
        method="highs",
    )
    assert r.status == 0, r.message
    return r.fun + c @ P.d


@pytest.mark.parametrize(
    "relaxation, activation",
    [
        ("displayed", "relu"),
        ("displayed", "leaky_relu(0.2)"),
        ("theorem7", "relu"),
        ("triangle", "relu"),
        ("triangle", "leaky_relu(0.2)"),
    ],
)
@pytest.mark.parametrize("card", [None, 2])
def test_equal_to_a_plain_programme_by_scipy(relaxation, card, activation):
    P = model(3, activation=activation)
    U = np.random.default_rng(1).normal(size=(4, P.p))
    sigma = np.array([0.2, 0.0, 0.4, 0.1])
    sets = Box(sigma) if card is None else SparseBox(sigma, card)
    triangle = relaxation == "triangle"
    found = bounds(P, U, sets, method=LP(passes=0) if triangle else LP(relaxation))
    start = bounds(P, U, sets, method=Dual(passes=0) if triangle else "box")
    assert set(found.status) == {"certified"}
    for i in range(len(U)):
        for k, c in enumerate(np.eye(P.q)):
            lower = scipy_lower(P, c, U[i], sigma, relaxation, found, i, card)
            upper = -scipy_lower(P, -c, U[i], sigma, relaxation, found, i, card)
            # what is returned is the better of the programme and of its start
            assert found.lb[i, k] == pytest.approx(max(lower, start.lb[i, k]), abs=1e-6)
            assert found.ub[i, k] == pytest.approx(min(upper, start.ub[i, k]), abs=1e-6)
            assert found.lb[i, k] <= max(lower, start.lb[i, k]) + 1e-12


def test_the_displayed_programme_never_improves_an_upper_bound_of_non_negative_weights():
    P = model(5, D=False)
    positive = from_matrices(P.A, P.B, np.abs(P.C), None, "relu", b=P.b)
    U = np.random.default_rng(2).normal(size=(5, P.p))
    box = bounds(positive, U, 0.3, method="box")
    shown = bounds(positive, U, 0.3, method=LP(relaxation="displayed"))
    x0, _ = positive.equilibrium(U)
    np.testing.assert_allclose(shown.ub, (x0 + box.cert.sigma) @ positive.C.T, rtol=1e-9)
    np.testing.assert_allclose(shown.ub, box.ub, rtol=1e-9)
    assert (shown.lb > box.lb + 0.1).any()  # lower bounds do gain, by x >= 0 if nothing else


def test_the_bidual_is_stricter_where_a_state_stays_positive():
    # x = (0.5 u + 2)_+ for |u| <= 1, y = x: exact [1.5, 2.5]; the display leaves x >= z, so that x may be 2.5 at any u
    P = from_matrices(np.zeros((2, 2)), np.array([[0.5], [0.5]]), np.array([[1.0, -1.0]]), None, "relu", b=[2.0, 2.0])
    U = np.zeros((1, 1))
    shown, exact = (bounds(P, U, 1.0, method=LP(relaxation=r)) for r in ("displayed", "theorem7"))
    assert shown.ub[0, 0] == pytest.approx(1.0, abs=1e-9)  # x_1 = 2.5 with x_2 = 1.5
    assert exact.ub[0, 0] == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["relu", "leaky_relu(0.3)", "identity"]),
    st.sampled_from([None, 1, 3]),
    st.floats(0, 0.5),
)
def test_samples_are_inside_and_the_chain_holds(seed, activation, card, eps):
    P = model(seed, activation=activation)
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(2, P.p))
    found = {
        r: bounds(
            P,
            U,
            Box(eps) if card is None else SparseBox(eps, card),
            method=LP(relaxation=r, passes=1 if r == "triangle" else 3),
        )
        for r in RELAXATIONS
    }
    box, interval, dual = (
        bounds(P, U, Box(eps) if card is None else SparseBox(eps, card), method=m) for m in ("box", "interval", "dual")
    )
    moves = rng.choice([-1, 0, 0.3, 1], size=(200, *U.shape)) * eps
    if card is not None:
        for move in moves.reshape(-1, P.p):
            move[rng.permutation(P.p)[card:]] = 0
    V = (U + moves).reshape(-1, P.p)
    y = P.output(P.equilibrium(V)[0], V).reshape(200, 2, -1)
    for b in found.values():
        assert (b.lb <= y.min(0) + 1e-9).all() and (y.max(0) <= b.ub + 1e-9).all()
        assert check(b.cert), check(b.cert).reason
    for r in ("displayed", "theorem7"):
        assert (found[r].lb >= box.lb - 1e-12).all() and (found[r].ub <= box.ub + 1e-12).all()
    assert (found["triangle"].lb >= interval.lb - 1e-12).all() and (found["triangle"].ub <= interval.ub + 1e-12).all()
    if (
        card is None and activation != "identity"
    ):  # the same pre-activations after one pass: dual ascent ends at the programme's optimum
        tight = bounds(P, U, eps, method=Dual(passes=1))
        assert np.nanmax((found["triangle"].ub - tight.ub) / (interval.ub - interval.lb + 1e-9)) < 1e-3
    assert (dual.lb >= interval.lb - 1e-12).all()


def test_no_radius_gives_the_outputs():
    P = model(7)
    U = np.random.default_rng(0).normal(size=(3, P.p))
    y = P.output(P.equilibrium(U)[0], U)
    for relaxation in RELAXATIONS:
        found = bounds(P, U, 0.0, method=LP(relaxation=relaxation))
        np.testing.assert_allclose(found.lb, y, atol=1e-8)
        np.testing.assert_allclose(found.ub, y, atol=1e-8)


def test_a_sample_that_is_not_finite_leaves_the_others():
    P = model(8)
    U = np.random.default_rng(0).normal(size=(3, P.p))
    alone = bounds(P, U[[0, 2]], 0.1, method="lp")
    U[1, 0] = np.nan
    found = bounds(P, U, 0.1, method="lp")
    assert list(found.status) == ["certified", "not_finite", "certified"] and np.isnan(found.lb[1]).all()
    np.testing.assert_allclose(found.lb[[0, 2]], alone.lb, atol=1e-9)


def test_rows_of_every_samples_own():
    P = model(9)
    U = np.random.default_rng(0).normal(size=(2, P.p))
    spec = np.random.default_rng(1).normal(size=(2, 2, P.q))
    found = bounds(P, U, 0.2, method="lp", spec=spec)
    for i in range(2):
        one = bounds(P, U[[i]], 0.2, method="lp", spec=spec[i])
        np.testing.assert_allclose(found.lb[[i]], one.lb, atol=1e-8)


def test_a_wrong_answer_of_the_solver_loosens_and_never_breaks_a_bound(monkeypatch):
    P = model(10)
    U = np.random.default_rng(0).normal(size=(2, P.p))
    honest = bounds(P, U, 0.2, method="lp")
    start = bounds(P, U, 0.2, method=Dual(ascent_steps=0))
    minimise = lp.Programme.minimise

    def lie(self, w, v):  # optimal and far too good, with multipliers of another programme
        found = minimise(self, w, v)
        return lp.Solved(np.full_like(found.lam, 3.0), found.u, found.reported + 1e3, True)

    monkeypatch.setattr(lp.Programme, "minimise", lie)
    found = bounds(P, U, 0.2, method="lp")
    assert (found.lb <= honest.lb + 1e-9).all() and (found.lb >= start.lb).all() and check(found.cert)


def test_a_sample_whose_programme_fails_leaves_the_others(monkeypatch):
    P = model(11)
    U = np.random.default_rng(0).normal(size=(3, P.p))
    honest = bounds(P, U, 0.2, method="lp")
    minimise = lp.Programme.minimise

    def fail(self, w, v):
        found = minimise(self, w, v)
        return lp.Solved(found.lam, found.u, found.reported, found.optimal and not np.array_equal(self.u0, U[1]))

    monkeypatch.setattr(lp.Programme, "minimise", fail)
    found = bounds(P, U, 0.2, method="lp")
    assert list(found.status) == ["certified", "failed", "certified"] and np.isnan(found.lb[1]).all()
    np.testing.assert_array_equal(found.lb[[0, 2]], honest.lb[[0, 2]])
    assert check(found.cert)


def test_unknown_names_and_maps():
    P = model(0)
    start = bounds(P, np.zeros((1, P.p)), 0.1, method="interval")

    with pytest.raises(ValueError, match="unknown relaxation 'convex'"):
        lp.lp_bounds(P, Box(0.1).around(np.zeros((1, P.p))), relaxation="convex", start=start)
    with pytest.raises(ValueError, match="relu, leaky_relu and identity"):
        bounds(model(0, activation="tanh"), np.zeros((1, P.p)), 0.1, method="lp")


def test_without_highspy_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def blocked(name, *args, **kwargs):
        if name == "highspy":
            raise ImportError("No module named 'highspy'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(ImportError, match=r"implicit-models\[robustness\]"):
        bounds(model(0), np.zeros((1, 4)), 0.1, method="lp")


def test_a_solve_prints_nothing():
    code = (
        "import numpy as np; from implicit_models.robustness import bounds; from implicit_models.robustness.problem"
        " import from_matrices;bounds(from_matrices([[0.5]], [[1.0]], [[1.0]]), np.ones((1, 1)), 0.1, method='lp');"
        " print('done')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "done\n"
