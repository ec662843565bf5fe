"""The interval fixed point against closed forms, plain interval propagation, a plain iteration, and samples."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_box import cyclic, scalar

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.problem import from_matrices

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
        low, high = (np.maximum(M, 0) @ low + np.minimum(M, 0) @ high + shift, np.maximum(M, 0) @ high + np.minimum(M,
                                                                                                                    0) @ low + shift)
        if layer < len(W) - 1:
            low, high = phi(low), phi(high)
    return low, high


def test_scalar_closed_form():
    found = bounds(scalar(), [[0.5]], eps=0.5, method="interval")
    np.testing.assert_allclose([found.xl[0, 0], found.xh[0, 0]], [0, 10], atol=1e-7)
    assert found.xh[0, 0] >= 10 and found.xl[0, 0] <= 0
    loop = bounds(scalar(-3.0), [[2.0]], eps=1.0, method="interval")
    np.testing.assert_allclose([loop.xl[0, 0], loop.xh[0, 0], loop.zl[0, 0], loop.zh[0, 0]], [0.25, 0.75, 0.25, 0.75],
                               atol=1e-9)


@pytest.mark.parametrize("activation, phi", [("relu", lambda z: np.maximum(z, 0)), ("tanh", np.tanh)])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_interval_propagation_on_networks(activation, phi, sparse):
    for seed in range(3):
        task, W, b = network(seed, activation=activation)
        if sparse:
            task = from_matrices(*(sp.csr_array(M) for M in (task.A, task.B, task.C, task.D)), activation, b=task.b,
                                 d=task.d)
        u = np.random.default_rng(seed).normal(size=4)
        low, high = propagated(W, b, u - 0.2, u + 0.2, phi)
        found = bounds(task, u[None], eps=0.2, method="interval")
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
        zl, zh = low @ np.maximum(A, 0).T + high @ np.minimum(A, 0).T + c - r, high @ np.maximum(A,
                                                                                                 0).T + low @ np.minimum(A, 0).T + c + r
        low, high = np.maximum(zl, 0), np.maximum(zh, 0)
    found = bounds(task, U, eps=eps, method="interval")
    for mine, plain in ((found.xl, low), (found.xh, high), (found.zl, zl), (found.zh, zh)):
        np.testing.assert_allclose(mine, plain, atol=1e-7)


@pytest.mark.parametrize("activation", [*MAPS, [("softmax", 3), ("relu", 3)], [("max_pool", 3), ("relu", 3)]])
def test_samples_inside_and_inside_the_box(activation):
    rng = np.random.default_rng(1)
    for seed in range(3):
        task = cyclic(seed, radius=0.45, activation=activation)
        centre, sigma = rng.normal(size=(1, 4)), rng.random(4)
        found, box = (bounds(task, centre, sigma=sigma, method=m) for m in ("interval", "box"))
        for name in ("xl", "zl", "lb"):
            assert (getattr(found, name) >= getattr(box, name) - 1e-9).all()
        for name in ("xh", "zh", "ub"):
            assert (getattr(found, name) <= getattr(box, name) + 1e-9).all()
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
    found = bounds(task, centre, eps=0.5, method="interval")
    assert found.status[0] == "ok"
    U = centre + 0.5 * rng.uniform(-1, 1, (500, 3))
    x, error = task.equilibrium(U)
    assert (x + error >= found.xl).all() and (x - error <= found.xh).all()
    z = task.pre_activation(x, U)
    assert (z >= found.zl - 1e-8).all() and (z <= found.zh + 1e-8).all()
    box = bounds(task, centre, eps=0.5, method="metzler")
    assert (found.xl >= box.xl - 1e-9).all() and (found.xh <= box.xh + 1e-9).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_batching_permutation_and_scaling(seed):
    rng = np.random.default_rng(seed)
    task = cyclic(seed, radius=float(rng.uniform(0.1, 0.999)))
    U = rng.normal(size=(150, 4))
    whole = bounds(task, U, eps=0.1, method="interval")
    i = int(rng.integers(150))
    alone = bounds(task, U[i : i + 1], eps=0.1, method="interval")
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[i])
    order = rng.permutation(6)
    shuffled = from_matrices(task.A[np.ix_(order, order)], task.B[order], task.C[:, order], task.D, b=task.b[order],
                             d=task.d)
    part = U[:4]
    np.testing.assert_allclose(bounds(shuffled, part, eps=0.1, method="interval").lb, whole.lb[:4], rtol=1e-6,
                               atol=1e-6)
    scale = np.exp(rng.normal(size=6))
    scaled = from_matrices(scale[:, None] * task.A / scale, scale[:, None] * task.B, task.C / scale, task.D,
                           b=scale * task.b, d=task.d)
    np.testing.assert_allclose(bounds(scaled, part, eps=0.1, method="interval").lb, whole.lb[:4], rtol=1e-6, atol=1e-6)


def test_hard_cases():
    task, rng = cyclic(2, radius=0.999), np.random.default_rng(2)
    U = rng.normal(size=(5, 4))
    x, _ = task.equilibrium(U)
    point = bounds(task, U, eps=0.0, method="interval")
    np.testing.assert_allclose(point.lb, task.output(x, U), atol=1e-6)
    np.testing.assert_allclose(point.ub, point.lb, atol=1e-6)
    whole = bounds(task, U, sigma=[0.1, 0.0, 0.2, 0.0], method="interval")
    broken = U.copy()
    broken[2, 1] = np.nan
    part = bounds(task, broken, sigma=[0.1, 0.0, 0.2, 0.0], method="interval")
    assert list(part.status) == ["ok", "ok", "not_finite", "ok", "ok"]
    rows = [0, 1, 3, 4]
    for name in ("xl", "xh", "zl", "zh", "lb", "ub"):
        assert np.array_equal(getattr(part, name)[rows], getattr(whole, name)[rows]) and np.isnan(getattr(part,
                                                                                                          name)[2]).all()
    own = bounds(task, U, sigma=np.tile([0.1, 0.0, 0.2, 0.0], (5, 1)), method="interval")
    np.testing.assert_allclose(own.lb, whole.lb, atol=1e-9)
    few = bounds(task, U, eps=0.1, card=4, method="interval")  # all inputs may move: the box
    np.testing.assert_allclose(few.lb, bounds(task, U, eps=0.1, method="interval").lb, atol=1e-9)
    assert bounds(task, U[:0], eps=0.1, method="interval").lb.shape == (0, 3)
