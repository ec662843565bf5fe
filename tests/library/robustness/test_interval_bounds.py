"""The interval fixed point against closed forms, plain interval propagation, a plain iteration, and samples."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from implicit_models.activations import resolve_activation
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding import interval as interval_module
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import from_matrices
from test_box import cyclic, scalar

MAPS = ["relu", "leaky_relu(0.3)", "tanh", "sigmoid", "identity", [("relu", 2), ("tanh", 2), ("sigmoid", 2)]]


def network(seed, sizes=(4, 6, 5, 3), activation="relu"):
    """(problem with the later layers first, weights, biases) of a random network."""
    rng = np.random.default_rng(seed)
    W = [rng.normal(size=(m, k)) / np.sqrt(k) for k, m in zip(sizes[:-1], sizes[1:], strict=True)]
    b = [rng.normal(size=m) * 0.3 for m in sizes[1:]]
    hidden = sizes[1:-1]
    n, starts = sum(hidden), np.cumsum([0, *hidden[::-1]])
    at = [slice(starts[k], starts[k + 1]) for k in range(len(hidden))][::-1]  # of each layer, the first one last
    A, B, C = np.zeros((n, n)), np.zeros((n, sizes[0])), np.zeros((sizes[-1], n))
    B[at[0]], C[:, at[-1]] = W[0], W[-1]
    for layer in range(1, len(hidden)):
        A[at[layer], at[layer - 1]] = W[layer]
    return from_matrices(A, B, C, None, activation, b=np.concatenate(b[:-1][::-1]), d=b[-1]), W, b


def propagated(W, b, low, high, phi):
    for layer, (M, shift) in enumerate(zip(W, b, strict=True)):
        low, high = (
            np.maximum(M, 0) @ low + np.minimum(M, 0) @ high + shift,
            np.maximum(M, 0) @ high + np.minimum(M, 0) @ low + shift,
        )
        if layer < len(W) - 1:
            low, high = phi(low), phi(high)
    return low, high


def test_scalar_closed_form():
    found = bounds(scalar(), [[0.5]], 0.5, method="interval")
    np.testing.assert_allclose([found.xl[0, 0], found.xh[0, 0]], [0, 10], atol=1e-7)
    assert found.xh[0, 0] >= 10 and found.xl[0, 0] <= 0
    loop = bounds(scalar(-3.0), [[2.0]], 1.0, method="interval")
    np.testing.assert_allclose(
        [loop.xl[0, 0], loop.xh[0, 0], loop.zl[0, 0], loop.zh[0, 0]], [0.25, 0.75, 0.25, 0.75], atol=1e-9
    )


@pytest.mark.parametrize("activation, phi", [("relu", lambda z: np.maximum(z, 0)), ("tanh", np.tanh)])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_interval_propagation_on_networks(activation, phi, sparse):
    for seed in range(3):
        task, W, b = network(seed, activation=activation)
        if sparse:
            task = from_matrices(
                *(sp.csr_array(M) for M in (task.A, task.B, task.C, task.D)), activation, b=task.b, d=task.d
            )
        u = np.random.default_rng(seed).normal(size=4)
        low, high = propagated(W, b, u - 0.2, u + 0.2, phi)
        found = bounds(task, u[None], 0.2, method="interval")
        np.testing.assert_allclose(found.lb[0], low, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.ub[0], high, rtol=1e-8, atol=1e-8)


def test_equals_a_plain_iteration():
    task, rng = cyclic(7), np.random.default_rng(7)
    # with no negative loop the plain map has the same fixed point
    A = task.A - np.diag(np.diag(task.A)) + np.diag(np.abs(np.diag(task.A)))
    task = from_matrices(A, task.B, task.C, task.D, b=task.b, d=task.d)
    U, eps = rng.normal(size=(3, 4)), 0.2
    c, r = U @ task.B.T + task.b, eps * np.abs(task.B).sum(1)
    low, high = np.zeros_like(c), np.full_like(c, 1e3)
    for _ in range(2000):
        zl, zh = (
            low @ np.maximum(A, 0).T + high @ np.minimum(A, 0).T + c - r,
            high @ np.maximum(A, 0).T + low @ np.minimum(A, 0).T + c + r,
        )
        low, high = np.maximum(zl, 0), np.maximum(zh, 0)
    found = bounds(task, U, eps, method="interval")
    for mine, plain in ((found.xl, low), (found.xh, high), (found.zl, zl), (found.zh, zh)):
        np.testing.assert_allclose(mine, plain, atol=1e-7)


@pytest.mark.parametrize(
    "activation", [*MAPS, [("softmax", 3), ("relu", 3)], [("max_pool", 3), ("relu", 3)], [("product", 4), ("relu", 2)]]
)
def test_samples_inside_and_inside_the_box(activation):
    rng = np.random.default_rng(1)
    for seed in range(3):
        task = cyclic(seed, radius=0.25 if "product" in str(activation) else 0.45, activation=activation)
        centre, sigma = rng.normal(size=(1, 4)), rng.random(4)
        found, box = (bounds(task, centre, Box(sigma), method=m) for m in ("interval", "box"))
        # up to 1e-9 of the largest value, as the solver leaves it
        for low, high in (("xl", "xh"), ("zl", "zh"), ("lb", "ub")):
            room = 1e-9 * np.maximum(1.0, np.abs([getattr(box, low), getattr(box, high)]).max())
            assert (getattr(found, low) >= getattr(box, low) - room).all()
            assert (getattr(found, high) <= getattr(box, high) + room).all()
        U = centre + sigma * rng.uniform(-1, 1, (300, 4)).round(rng.integers(0, 3))
        x, error = task.equilibrium(U)
        z, y = task.pre_activation(x, U), task.output(x, U)
        for value, low, high in ((x, found.xl, found.xh), (z, found.zl, found.zh), (y, found.lb, found.ub)):
            slack = error.max() * 20 + 1e-12
            assert (value >= low - slack).all() and (value <= high + slack).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "leaky_relu(0.2)"])
def test_loops_below_minus_one(activation):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(5, 5)) * 0.1
    A[np.diag_indices(5)] = [-5.0, -2.0, -1.5, 0.3, -0.5]
    task = from_matrices(A, rng.normal(size=(5, 3)), rng.normal(size=(2, 5)), None, activation)
    centre = rng.normal(size=(1, 3))
    found = bounds(task, centre, 0.5, method="interval")
    assert found.status[0] == "certified"
    U = centre + 0.5 * rng.uniform(-1, 1, (500, 3))
    x, error = task.equilibrium(U)
    assert (x + error >= found.xl).all() and (x - error <= found.xh).all()
    z = task.pre_activation(x, U)
    assert (z >= found.zl - 1e-8).all() and (z <= found.zh + 1e-8).all()
    box = bounds(task, centre, 0.5, method="metzler")
    assert (found.xl >= box.xl - 1e-9).all() and (found.xh <= box.xh + 1e-9).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_batching_permutation_and_scaling(seed):
    rng = np.random.default_rng(seed)
    task = cyclic(seed, radius=float(rng.uniform(0.1, 0.999)))
    U = rng.normal(size=(150, 4))
    whole = bounds(task, U, 0.1, method="interval")
    i = int(rng.integers(150))
    alone = bounds(task, U[i : i + 1], 0.1, method="interval")
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i])
    order = rng.permutation(6)
    shuffled = from_matrices(
        task.A[np.ix_(order, order)], task.B[order], task.C[:, order], task.D, b=task.b[order], d=task.d
    )
    part = U[:4]
    np.testing.assert_allclose(bounds(shuffled, part, 0.1, method="interval").lb, whole.lb[:4], rtol=1e-6, atol=1e-6)
    scale = np.exp(rng.normal(size=6))
    scaled = from_matrices(
        scale[:, None] * task.A / scale, scale[:, None] * task.B, task.C / scale, task.D, b=scale * task.b, d=task.d
    )
    np.testing.assert_allclose(bounds(scaled, part, 0.1, method="interval").lb, whole.lb[:4], rtol=1e-6, atol=1e-6)


def test_hard_cases():
    task, rng = cyclic(2, radius=0.999), np.random.default_rng(2)
    U = rng.normal(size=(5, 4))
    x, _ = task.equilibrium(U)
    point = bounds(task, U, 0.0, method="interval")
    np.testing.assert_allclose(point.lb, task.output(x, U), atol=1e-6)
    np.testing.assert_allclose(point.ub, point.lb, atol=1e-6)
    whole = bounds(task, U, Box([0.1, 0.0, 0.2, 0.0]), method="interval")
    broken = U.copy()
    broken[2, 1] = np.nan
    part = bounds(task, broken, Box([0.1, 0.0, 0.2, 0.0]), method="interval")
    assert list(part.status) == ["certified", "certified", "not_finite", "certified", "certified"]
    rows = [0, 1, 3, 4]
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert (
            np.array_equal(getattr(part, name)[rows], getattr(whole, name)[rows])
            and np.isnan(getattr(part, name)[2]).all()
        )
    own = bounds(task, U, Box(np.tile([0.1, 0.0, 0.2, 0.0], (5, 1))), method="interval")
    np.testing.assert_allclose(own.lb, whole.lb, atol=1e-9)
    few = bounds(task, U, SparseBox(0.1, 4), method="interval")  # all inputs may move: the box
    np.testing.assert_allclose(few.lb, bounds(task, U, 0.1, method="interval").lb, atol=1e-9)
    assert bounds(task, U[:0], 0.1, method="interval").lb.shape == (0, 3)


@pytest.mark.parametrize("seed", range(3))
def test_near_the_edge_inside_the_box_to_the_solvers_tolerance(seed):
    task = cyclic(seed, radius=0.999)
    U = np.random.default_rng(seed).normal(size=(20, 4))
    found, box = (bounds(task, U, 0.3, method=m) for m in ("interval", "box"))
    room = 1e-9 * np.abs([box.xl, box.xh]).max(axis=(0, 2))[:, None]
    assert room.max() > 1e-8  # states far above 1
    assert (found.xl >= box.xl - room).all() and (found.xh <= box.xh + room).all()


PHI = {"tanh": np.tanh, "sigmoid": lambda z: 0.5 * (1 + np.tanh(0.5 * z))}


def scalar_root(a, phi, r):
    return brentq(lambda z: z - a * phi(z) - r, r - abs(a) - 1, r + abs(a) + 1, xtol=1e-14, rtol=1e-14)


@pytest.mark.parametrize("activation", list(PHI))
@pytest.mark.parametrize("a", [-3.0, -5.0, -11.5, -22.5, -30.0, -40.0, -400.0])
def test_strong_loops_of_smooth_maps_against_bracketed_roots(activation, a):
    """One state: the interval's ends are the roots of z = a phi(z) + u at the ends of the set."""
    phi, eps = PHI[activation], 1e-4
    task = from_matrices([[a]], [[1.0]], [[1.0]], activation=activation)
    U = np.linspace(-1.2 * abs(a), 1.2 * abs(a), 801)
    found = bounds(task, U[:, None], eps, method="interval")
    low, high = (np.array([scalar_root(a, phi, u) for u in U + side * eps]) for side in (-1, 1))
    assert set(found.status) == {"certified"} and check(found.cert)
    room = 1e-13 * (1 + abs(a))
    assert (found.zl[:, 0] <= low + room).all() and (found.zh[:, 0] >= high - room).all()
    np.testing.assert_allclose(found.zl[:, 0], low, atol=1e-7)
    np.testing.assert_allclose(found.zh[:, 0], high, atol=1e-7)
    np.testing.assert_allclose(found.xh[:, 0], phi(high), atol=1e-7)
    alone = bounds(task, U[400:401, None], eps, method="interval")
    assert all(np.array_equal(getattr(alone, m)[0], getattr(found, m)[400]) for m in ("xl", "xh", "zl", "zh", "lb"))


def exact_state(A, c, phis, tol=1e-13):
    """x = phi(A x + c) by sweeps over single states, each by a bracketed root."""
    x = np.zeros(len(c))
    for _ in range(1000):
        before = x.copy()
        for i in range(len(c)):
            x[i] = phis[i](scalar_root(A[i, i], phis[i], A[i] @ x - A[i, i] * x[i] + c[i]))
        if np.abs(x - before).max() <= tol:
            return x
    raise AssertionError("no convergence")


@pytest.mark.parametrize("seed", range(6))
def test_samples_of_strong_smooth_loops_inside(seed):
    rng = np.random.default_rng(seed)
    n, p = 5, 3
    names = rng.choice(["tanh", "sigmoid"], n)
    A = rng.normal(size=(n, n))
    A *= 0.5 / np.abs(np.linalg.eigvals(np.abs(A))).max()
    A[np.diag_indices(n)] = [-40.0, -22.5, *-np.exp(rng.uniform(0, np.log(40), n - 2))]
    task = from_matrices(
        A,
        rng.normal(size=(n, p)),
        rng.normal(size=(2, n)),
        None,
        [(str(m), 1) for m in names],
        b=np.diag(A) * rng.uniform(-1, 1, n),
    )
    centre, eps = rng.normal(size=(4, p)), 0.02
    found = {m: bounds(task, centre, eps, method=m) for m in ("interval", "dual")}
    for i in range(4):
        for u in centre[i] + eps * rng.choice([-1, 0.3, 1], size=(6, p)):
            x = exact_state(A, task.B @ u + task.b, [PHI[m] for m in names])
            y = task.C @ x
            for b in found.values():
                assert (x >= b.xl[i] - 1e-11).all() and (x <= b.xh[i] + 1e-11).all()
                assert (y >= b.lb[i] - 1e-11).all() and (y <= b.ub[i] + 1e-11).all()
    assert all(check(b.cert) for b in found.values())


@pytest.mark.parametrize("steps", [0, 1, 3, 200])
@pytest.mark.parametrize("activation", list(PHI))
def test_scalar_roots_are_enclosed_wherever_the_iteration_stops(monkeypatch, activation, steps):
    rng, phi = np.random.default_rng(0), PHI[activation]
    top = 1.0 if activation == "tanh" else 4.0
    a = np.r_[-np.exp(rng.uniform(-3, np.log(400), 60)), 0.0, rng.uniform(0, 0.99 * top, 20)]
    r = rng.uniform(-1.5, 1.5, (5, a.size)) * (1 + np.abs(a))
    monkeypatch.setattr(interval_module, "_ROOT_STEPS", steps)
    act = resolve_activation(activation, a.size)
    low, high = (interval_module._roots(act, a, r, side) for side in (-1, 1))
    exact = np.array([[scalar_root(a[j], phi, row[j]) for j in range(a.size)] for row in r])
    room = 1e-13 * (1 + np.abs(exact) + np.abs(a)) / (1 - np.maximum(a, 0) / top)
    assert (low <= exact + room).all() and (high >= exact - room).all()
    if steps == 200:  # to rounding
        assert (high - low <= room).all()


def test_an_inclusion_that_does_not_hold_is_no_bound(monkeypatch):
    honest, calls = interval_module._image, []

    def wrong(act, zl, zh):
        calls.append(1)
        low, high = honest(act, zl, zh)
        if len(calls) == 2:  # the image of the box that is claimed, not that which sizes it
            high[1] += 1.0
        return low, high

    monkeypatch.setattr(interval_module, "_image", wrong)
    found = bounds(cyclic(0), np.random.default_rng(0).normal(size=(3, 4)), 0.1, method="interval")
    assert list(found.status) == ["certified", "failed", "certified"] and np.isnan(found.lb[1]).all()
