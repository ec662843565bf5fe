"""The dual bound against closed forms, a linear programme by SciPy, CROWN written plainly, enumeration of activation
patterns, and samples.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding import relaxation
from implicit_models.robustness.bounding.options import Dual
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import from_matrices
from implicit_models.robustness.specification import margins
from test_box import cyclic, scalar
from test_interval_bounds import network

PIECEWISE_LINEAR, TANH, SIGMOID = relaxation.PIECEWISE_LINEAR, relaxation.TANH, relaxation.SIGMOID


def phi(z, code, a):
    if code == TANH:
        return np.tanh(z)
    return 1 / (1 + np.exp(-z)) if code == SIGMOID else np.where(z > 0, z, a * z)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([PIECEWISE_LINEAR, TANH, SIGMOID]),
    st.floats(0, 1),
    st.floats(-4, 4),
    st.floats(0.01, 5),
    st.floats(-3, 3),
    st.floats(-3, 3),
)
def test_infimum_of_a_unit_on_a_grid(code, a, low, width, mu, share):
    lam = share * mu if abs(share) < 2 else share
    z = np.linspace(low, low + width, 20001)
    least = float(np.min(mu * phi(z, code, a) - lam * z))
    found = relaxation.infimum(mu, lam, low, low + width, 0.0, 0.0, code, a)
    assert found <= least + 1e-12
    assert found >= least - 1e-4 * (1 + abs(mu) + abs(lam))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([TANH, SIGMOID]), st.floats(-4, 4), st.floats(0.01, 6))
def test_lines_of_smooth_maps_beat_constants(code, low, width):
    # on the average over the interval, with the smallest offset that makes each a bound
    high = low + width
    for slope, sign in (
        (relaxation.upper_slope(low, high, code, 0.0), 1),
        (relaxation.lower_slope(low, high, code, 0.0), -1),
    ):
        assert 0 <= slope <= (1 if code == TANH else 0.25) + 1e-12
        z = np.linspace(low, high, 2001)
        offset = np.max(sign * (phi(z, code, 0) - slope * z))
        gap = np.mean(offset - sign * (phi(z, code, 0) - slope * z))
        flat = np.mean(np.max(sign * phi(z, code, 0)) - sign * phi(z, code, 0))
        assert gap <= flat + 1e-9


def triangle_optimum(task, centre, sigma, zl, zh, w, v):
    """min w'x + v'u over the triangle relaxation by SciPy's HiGHS, every constraint written out."""
    n = task.n
    A, B, b, eye = task.A, task.B, task.b, np.eye(task.n)
    on, off = zl >= 0, zh <= 0
    mid = ~on & ~off
    k = zh[mid] / (zh[mid] - zl[mid])
    Z = np.hstack([A, B])
    upper = [np.hstack([A - eye, B])[~off], np.hstack([eye[mid] - k[:, None] * A[mid], -k[:, None] * B[mid]]), Z, -Z]
    right = [-b[~off], k * (b[mid] - zl[mid]), zh - b, b - zl]
    equal, value = (np.hstack([eye - A, -B])[on], b[on]) if on.any() else (None, None)
    low, high = np.maximum(zl, 0), np.maximum(zh, 0)
    box = list(zip(low, high, strict=True)) + list(zip(centre - sigma, centre + sigma, strict=True))
    found = linprog(
        np.r_[w, v],
        A_ub=np.vstack(upper),
        b_ub=np.concatenate(right),
        A_eq=equal,
        b_eq=value,
        bounds=box,
        method="highs",
    )
    assert found.status == 0 and len(found.x) == n + task.p
    return found.fun


@pytest.mark.parametrize("seed", range(6))
def test_reaches_the_triangle_optimum(seed):
    rng = np.random.default_rng(seed)
    task = cyclic(seed, n=10, p=12, radius=rng.uniform(0.3, 0.9))
    centre, sigma = rng.normal(size=12), 0.3 * rng.random(12)
    found = bounds(task, centre[None], Box(sigma), method=Dual(ascent_steps=60))
    start = bounds(task, centre[None], Box(sigma), method="interval")
    for r in range(3):
        least = triangle_optimum(task, centre, sigma, found.zl[0], found.zh[0], task.C[r], task.D[r]) + task.d[r]
        most = -triangle_optimum(task, centre, sigma, found.zl[0], found.zh[0], -task.C[r], -task.D[r]) + task.d[r]
        spread = most - least
        # the interval may be tighter than the programme without stable units' own rows; the dual is their intersection
        assert (
            found.lb[0, r] <= max(least, start.lb[0, r]) + 1e-7 and found.ub[0, r] >= min(most, start.ub[0, r]) - 1e-7
        )
        assert found.lb[0, r] >= least - 3e-3 * spread and found.ub[0, r] <= most + 3e-3 * spread


def plain_crown(W, b, low, high, c):
    """Lower bound of c'y on a ReLU network with CROWN intermediate bounds intersected with interval propagation, layer
    by layer.
    """
    boxes, l, h = [], low, high
    for layer in range(len(W) - 1):
        il, ih = (
            np.maximum(W[layer], 0) @ l + np.minimum(W[layer], 0) @ h + b[layer],
            np.maximum(W[layer], 0) @ h + np.minimum(W[layer], 0) @ l + b[layer],
        )
        if layer:
            cl = np.array(
                [
                    back(W[:layer], b[:layer], boxes, low, high, row, s)
                    for row, s in zip(W[layer], b[layer], strict=True)
                ]
            )
            ch = np.array(
                [
                    -back(W[:layer], b[:layer], boxes, low, high, -row, -s)
                    for row, s in zip(W[layer], b[layer], strict=True)
                ]
            )
            il, ih = np.maximum(il, cl), np.minimum(ih, ch)
        boxes.append((il, ih))
        l, h = np.maximum(il, 0), np.maximum(ih, 0)
    return back(W[:-1], b[:-1], boxes, low, high, c @ W[-1], c @ b[-1])


def back(W, b, boxes, low, high, row, total):
    for M, shift, (zl, zh) in zip(W[::-1], b[::-1], boxes[: len(W)][::-1], strict=True):
        mid = (zl < 0) & (zh > 0)
        above = np.where(zl >= 0, 1.0, np.where(mid, zh / np.where(mid, zh - zl, 1), 0.0))
        below = np.where(zl >= 0, 1.0, np.where(mid & (zh > -zl), 1.0, 0.0))
        total = total + np.minimum(row, 0) @ np.where(mid, -above * zl, 0)
        row = np.where(row > 0, row * below, row * above)
        total, row = total + row @ shift, row @ M
    return total + np.maximum(row, 0) @ low + np.minimum(row, 0) @ high


@pytest.mark.parametrize("seed", range(4))
def test_is_crown_on_networks_without_ascent(seed):
    task, W, b = network(seed, sizes=(5, 8, 6, 7, 3))
    u = np.random.default_rng(seed).normal(size=5)
    found = bounds(task, u[None], 0.15, method=Dual(ascent_steps=0, passes=2))
    start = bounds(task, u[None], 0.15, method="interval")
    for r in range(3):
        c = np.eye(3)[r]
        low, high = plain_crown(W, b, u - 0.15, u + 0.15, c), -plain_crown(W, b, u - 0.15, u + 0.15, -c)
        low, high = max(low, start.lb[0, r]), min(high, start.ub[0, r])
        # equal, but for the second pass, whose bounds of the last layer may change the slopes of its units
        np.testing.assert_allclose([found.lb[0, r], found.ub[0, r]], [low, high], atol=0.03 * (high - low))


def exact_minimum(task, W, b, low, high, c):
    """min c'y over the box by one programme for each activation pattern of a network with one hidden layer."""
    best = np.inf
    for pattern in product([0, 1], repeat=len(b[0])):
        s = np.array(pattern)
        sign = 2 * s - 1
        found = linprog(
            c @ W[1] * s @ W[0],
            A_ub=-sign[:, None] * W[0],
            b_ub=sign * b[0],
            bounds=list(zip(low, high, strict=True)),
            method="highs",
        )
        if found.status == 0:
            best = min(best, found.fun + (c @ W[1] * s) @ b[0] + c @ b[1])
    return best


@pytest.mark.parametrize("seed", range(4))
def test_branching_finds_the_exact_minimum(seed):
    task, W, b = network(seed, sizes=(3, 7, 2))
    u = np.random.default_rng(seed).normal(size=3)
    exact = exact_minimum(task, W, b, u - 1.5, u + 1.5, np.array([1.0, 0.0]))
    # y_0 - shift is positive everywhere, or is not
    for shift, decided in ((exact - 0.01, True), (exact + 0.01, False)):
        moved = from_matrices(task.A, task.B, task.C, None, b=task.b, d=task.d - [shift, 0])
        kinks = bounds(moved, u[None], 1.5, method=Dual(early_stop=True), spec=[[1.0, 0.0]])
        found = bounds(
            moved, u[None], 1.5, method=Dual(early_stop=True, splits=2000, ascent_steps=60), spec=[[1.0, 0.0]]
        )
        assert (found.lb[0, 0] > 0) == decided
        assert found.lb[0, 0] <= exact - shift + 1e-9 and found.lb[0, 0] >= kinks.lb[0, 0] - 1e-12
        assert found.cert.lb[0, 0] <= found.lb[0, 0]


def test_scalar_closed_form():
    found = bounds(scalar(), [[0.5]], 0.5, method="dual")
    np.testing.assert_allclose(
        [found.xl[0, 0], found.xh[0, 0], found.lb[0, 0], found.ub[0, 0]], [0, 10, 0, 10], atol=1e-6
    )
    loop = bounds(scalar(-3.0), [[0.5]], 1.0, method="dual")
    np.testing.assert_allclose([loop.lb[0, 0], loop.ub[0, 0]], [0, 0.375], atol=1e-6)


MAPS = [
    "relu",
    "leaky_relu(0.3)",
    "tanh",
    "sigmoid",
    "identity",
    [("relu", 2), ("tanh", 2), ("sigmoid", 2)],
    [("softmax", 3), ("relu", 3)],
    [("max_pool", 2), ("tanh", 2), ("relu", 2)],
    [("product", 4), ("relu", 2)],
]


@pytest.mark.parametrize("activation", MAPS)
@pytest.mark.parametrize("card", [None, 2])
def test_samples_inside_the_dual_inside_the_interval(activation, card):
    rng = np.random.default_rng(4)
    for seed in range(3):
        task = cyclic(seed, radius=0.25 if "product" in str(activation) else 0.45, activation=activation)
        centre, sigma = rng.normal(size=(1, 4)), rng.random(4)
        start = bounds(task, centre, Box(sigma) if card is None else SparseBox(sigma, card), method="interval")
        found = bounds(task, centre, Box(sigma) if card is None else SparseBox(sigma, card), method="dual")
        for name in ("xl", "zl", "lb"):
            assert (getattr(found, name) >= getattr(start, name)).all()
        for name in ("xh", "zh", "ub"):
            assert (getattr(found, name) <= getattr(start, name)).all()
        step = rng.uniform(-1, 1, (400, 4)).round(rng.integers(0, 3))
        if card is not None:
            step[np.arange(400)[:, None], np.argsort(rng.random((400, 4)))[:, card:]] = 0
        U = centre + sigma * step
        x, error = task.equilibrium(U)
        z, y = task.pre_activation(x, U), task.output(x, U)
        for value, low, high in ((x, found.xl, found.xh), (z, found.zl, found.zh), (y, found.lb, found.ub)):
            slack = 30 * error.max() + 1e-12
            assert (value >= low - slack).all() and (value <= high + slack).all()
        assert check(found.cert), check(found.cert).reason


def test_dual_gains_on_smooth_maps():
    task, rng = cyclic(1, radius=0.8, activation="tanh"), np.random.default_rng(1)
    U = rng.normal(size=(20, 4))
    start, found = (bounds(task, U, 0.1, method=m) for m in ("interval", "dual"))
    assert np.mean((found.ub - found.lb) / (start.ub - start.lb)) < 0.6


def test_multipliers_prove_the_bound():
    task, rng = cyclic(5, n=8), np.random.default_rng(5)
    U, sigma = rng.normal(size=(3, 4)), 0.3 * rng.random(4)
    found = bounds(task, U, Box(sigma), method="dual")
    for i in range(3):
        for r in range(3):
            lam = found.cert.lam_low[i, r]
            if np.isnan(lam).any():
                continue
            mu, q = task.C[r] + task.A.T @ lam, task.D[r] + task.B.T @ lam
            zl, zh = found.zl[i], found.zh[i]
            ends = np.stack([mu * np.maximum(z, 0) - lam * z for z in (zl, zh, np.clip(0, zl, zh))])
            value = ends.min(0).sum() + q @ U[i] - sigma @ np.abs(q) + lam @ task.b + task.d[r]
            np.testing.assert_allclose(found.lb[i, r], value, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_batching_permutation_and_scaling(seed):
    rng = np.random.default_rng(seed)
    task = cyclic(seed, radius=float(rng.uniform(0.1, 0.95)))
    U = rng.normal(size=(140, 4))
    whole = bounds(task, U, 0.2, method="dual")
    i = int(rng.integers(140))
    alone = bounds(task, U[i : i + 1], 0.2, method="dual")
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i])
    own = bounds(task, U[i : i + 2], 0.2, method="dual", spec=np.tile(np.eye(3), (len(U[i : i + 2]), 1, 1)))
    np.testing.assert_allclose(own.lb, whole.lb[i : i + 2], atol=1e-9)
    order = rng.permutation(6)
    shuffled = from_matrices(
        task.A[np.ix_(order, order)], task.B[order], task.C[:, order], task.D, b=task.b[order], d=task.d
    )
    spread = (whole.ub - whole.lb)[:4]
    assert (np.abs(bounds(shuffled, U[:4], 0.2, method="dual").lb - whole.lb[:4]) <= 2e-3 * spread + 1e-9).all()
    scale = np.exp(rng.normal(size=6))
    scaled = from_matrices(
        scale[:, None] * task.A / scale, scale[:, None] * task.B, task.C / scale, task.D, b=scale * task.b, d=task.d
    )
    assert (np.abs(bounds(scaled, U[:4], 0.2, method="dual").lb - whole.lb[:4]) <= 2e-3 * spread + 1e-9).all()


def test_early_stop_decides_alike():
    task, rng = cyclic(8, n=12, p=10, q=4), np.random.default_rng(8)
    U = rng.normal(size=(60, 10))
    x, _ = task.equilibrium(U)
    spec = margins(task.output(x, U).argmax(1), 4)
    for eps in (0.02, 0.1):
        full, lower, early = (
            bounds(task, U, eps, method=method, sides=sides, spec=spec)
            for method, sides in ((Dual(), "both"), (Dual(), "lower"), (Dual(early_stop=True), "lower"))
        )
        assert np.array_equal(full.lb, lower.lb)
        assert (
            np.array_equal((full.lb > 0).all(1), (early.lb > 0).all(1))
            and (early.lb <= full.lb + 0.02 * (full.ub - full.lb)).all()
        )
        assert 0 < (full.lb > 0).all(1).mean() < 1 or eps == 0.02
        assert check(early.cert)


def test_hard_cases():
    task, rng = cyclic(2, radius=0.999), np.random.default_rng(2)
    U = rng.normal(size=(5, 4))
    x, _ = task.equilibrium(U)
    point = bounds(task, U, 0.0, method="dual")
    np.testing.assert_allclose(point.lb, task.output(x, U), atol=1e-5)
    np.testing.assert_allclose(point.ub, point.lb, atol=1e-5)
    sigma = [0.1, 0.0, 0.2, 0.0]
    whole = bounds(task, U, Box(sigma), method="dual")
    broken = U.copy()
    broken[2, 1] = np.nan
    part = bounds(task, broken, Box(sigma), method="dual")
    assert list(part.status) == ["certified", "certified", "not_finite", "certified", "certified"]
    rows = [0, 1, 3, 4]
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert (
            np.array_equal(getattr(part, name)[rows], getattr(whole, name)[rows])
            and np.isnan(getattr(part, name)[2]).all()
        )
    assert check(whole.cert) and bounds(task, U[:0], 0.1, method="dual").lb.shape == (0, 3)
    one = from_matrices(task.A, task.B, task.C[:1])
    assert bounds(one, U, 0.1, method="dual", spec=np.zeros((1, 1))).lb.shape == (5, 1)
    passes = bounds(task, U, 0.1, method=Dual(passes=0))
    assert np.array_equal(passes.zl, bounds(task, U, 0.1, method="interval").zl) and check(passes.cert)
