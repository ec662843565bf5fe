"""Boxes around the state: closed forms, the formulas of the thesis in plain NumPy, and samples that must lie inside."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.box import state_deviation
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import NotCertified, from_matrices


def cyclic(seed, n=6, p=4, q=3, radius=0.8, activation="relu", bias=True):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(np.linalg.eigvals(np.abs(A))).max()
    b, d = (rng.normal(size=n), rng.normal(size=q)) if bias else (None, None)
    return from_matrices(
        A, rng.normal(size=(n, p)), rng.normal(size=(q, n)), rng.normal(size=(q, p)), activation, b=b, d=d
    )


def scalar(slope=0.9):
    return from_matrices([[slope]], [[1.0]], [[1.0]])


def test_scalar_closed_form():
    # x = (0.9 x + u)+ is 10 u for u >= 0: over [0, 1] the state reaches exactly 0 and 10
    for method in ("norm", "box", "comparison", "metzler"):
        found = bounds(scalar(), [[0.5]], 0.5, method=method)
        assert found.status[0] == "certified"
        np.testing.assert_allclose(
            [found.xl[0, 0], found.xh[0, 0], found.lb[0, 0], found.ub[0, 0]], [0, 10, 0, 10], atol=1e-8
        )


@pytest.mark.parametrize("seed", range(3))
def test_formulas(seed):
    task, rng = cyclic(seed), np.random.default_rng(seed)
    sigma = rng.random(4)
    inputs = Box(sigma).around(rng.normal(size=(2, 4)))
    reach = np.abs(task.B) @ sigma
    inverse = np.linalg.inv(np.eye(6) - np.abs(task.A))
    np.testing.assert_allclose(state_deviation(task, inputs, "box"), inverse @ reach, rtol=1e-8)
    np.testing.assert_allclose(
        state_deviation(task, inputs, "comparison"), inverse @ np.ones(6) * reach.max(), rtol=1e-8
    )
    signed = np.abs(task.A) - np.diag(np.abs(np.diag(task.A)) - np.diag(task.A))
    np.testing.assert_allclose(
        state_deviation(task, inputs, "metzler"), np.linalg.solve(np.eye(6) - signed, reach), rtol=1e-8
    )
    found = bounds(task, inputs.centre, Box(sigma), method="box")
    width = np.abs(task.C) @ (inverse @ reach) + np.abs(task.D) @ sigma
    np.testing.assert_allclose(found.ub - found.lb, np.tile(2 * width, (2, 1)), rtol=1e-7)


@pytest.mark.parametrize("method", ["norm", "box", "comparison", "metzler", "interval", "dual", "lp"])
@pytest.mark.parametrize("eps", [5e-324, 1e-310, 1e-295])
def test_radii_next_to_underflow(method, eps):
    task = cyclic(0)
    found = bounds(task, np.ones((2, 4)), eps, method=method)
    assert set(found.status) == {"certified"} and check(found.cert), check(found.cert).reason
    assert (found.ub - found.lb < 1e-7).all()


def test_norm_bound_of_the_thesis():
    task = cyclic(1)
    A = task.A * (0.9 / np.abs(task.A).sum(1).max())
    task = from_matrices(A, task.B, task.C)
    inputs = Box(0.3).around(np.zeros((1, 4)))
    expected = (0.3 * np.abs(task.B).sum(1)).max() / (1 - 0.9)
    np.testing.assert_allclose(state_deviation(task, inputs, "norm"), np.full(6, expected), rtol=1e-9)


def test_norm_bound_after_rescaling():
    # row sums above 1, Perron-Frobenius eigenvalue 0.5: the plain norm bound does not exist
    task = from_matrices([[0.5, 8.0], [0.0, 0.5]], np.eye(2), np.eye(2))
    sigma = state_deviation(task, Box(1.0).around(np.zeros((1, 2))), "norm")
    assert np.isfinite(sigma).all() and (sigma >= np.linalg.solve(np.eye(2) - task.A, np.ones(2)) - 1e-9).all()


@pytest.mark.parametrize("card", [0, 1, 2, 4])
def test_cardinality_by_enumeration(card):
    task, rng = cyclic(3), np.random.default_rng(0)
    sigma = rng.random(4)
    reach = np.zeros(6)
    for chosen in combinations(range(4), card):
        reach = np.maximum(reach, np.abs(task.B)[:, list(chosen)] @ sigma[list(chosen)])
    found = state_deviation(
        task, (Box(sigma) if card is None else SparseBox(sigma, card)).around(np.zeros((1, 4))), "box"
    )
    np.testing.assert_allclose(found, np.linalg.solve(np.eye(6) - np.abs(task.A), reach), rtol=1e-8, atol=1e-12)


def test_negative_loop_needs_the_sign():
    # x = (u - 3 x)+ = u / 4: |A| has lambda_PF = 3
    task = scalar(-3.0)
    with pytest.raises(NotCertified, match="metzler"):
        bounds(task, [[2.0]], 1.0, method="box")
    found = bounds(task, [[2.0]], 1.0, method="metzler")
    np.testing.assert_allclose([found.xl[0, 0], found.xh[0, 0]], [0.25, 0.75], atol=1e-9)


def test_no_certificate_is_refused_with_the_reason():
    with pytest.raises(NotCertified, match="lambda_PF"):
        bounds(from_matrices([[0.0, 1.2], [1.2, 0.0]], np.eye(2), np.eye(2)), [[0.0, 0.0]], 0.1, method="box")


@pytest.mark.parametrize(
    "activation",
    [
        "relu",
        "leaky_relu(0.3)",
        "tanh",
        "sigmoid",
        [("softmax", 3), ("relu", 3)],
        [("max_pool", 2), ("tanh", 4)],
        [("product", 2), ("tanh", 4)],
    ],
)
@pytest.mark.parametrize("method", ["norm", "box", "comparison", "metzler"])
def test_samples_lie_inside(activation, method):
    rng = np.random.default_rng(5)
    for seed in range(4):
        task = cyclic(seed, radius=0.3, activation=activation)
        centre, sigma = rng.normal(size=(1, 4)), rng.random(4)
        found = bounds(task, centre, Box(sigma), method=method)
        U = centre + sigma * rng.uniform(-1, 1, (200, 4)).round(rng.integers(0, 3))
        x, error = task.equilibrium(U)
        z, y = task.pre_activation(x, U), task.output(x, U)
        assert (x + error >= found.xl).all() and (x - error <= found.xh).all()
        assert (z >= found.zl - 1e-9).all() and (z <= found.zh + 1e-9).all()
        assert (y >= found.lb - 1e-9).all() and (y <= found.ub + 1e-9).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_order_of_the_methods_and_scaling(seed):
    task, rng = cyclic(seed, radius=float(np.random.default_rng(seed).uniform(0.1, 0.95))), np.random.default_rng(seed)
    centre, sigma = rng.normal(size=(2, 4)), rng.random(4) * (rng.random(4) < 0.7)
    inputs = Box(sigma).around(centre)
    box = state_deviation(task, inputs, "box")
    for wider in ("norm", "comparison"):
        assert (state_deviation(task, inputs, wider) >= box * (1 - 1e-8)).all()
    assert (state_deviation(task, inputs, "metzler") <= box * (1 + 1e-8)).all()
    scale = np.exp(rng.normal(size=6))
    scaled = from_matrices(
        scale[:, None] * task.A / scale, scale[:, None] * task.B, task.C / scale, task.D, b=scale * task.b, d=task.d
    )
    np.testing.assert_allclose(state_deviation(scaled, inputs, "box"), scale * box, rtol=1e-6)
    np.testing.assert_allclose(
        bounds(scaled, centre, Box(sigma), method="box").lb,
        bounds(task, centre, Box(sigma), method="box").lb,
        rtol=1e-6,
        atol=1e-7,
    )


def test_hard_cases():
    task, rng = cyclic(2, radius=0.999), np.random.default_rng(2)
    U = rng.normal(size=(5, 4))
    for method in ("norm", "box", "comparison", "metzler"):
        point = bounds(task, U, 0.0, method=method)
        x, _ = task.equilibrium(U)
        np.testing.assert_allclose(point.lb, task.output(x, U), atol=1e-6)
        np.testing.assert_allclose(point.ub, point.lb, atol=1e-6)
        whole = bounds(task, U, 0.1, method=method)
        broken = U.copy()
        broken[2, 1] = np.nan
        part = bounds(task, broken, 0.1, method=method)
        assert list(part.status) == ["certified", "certified", "not_finite", "certified", "certified"]
        assert np.isnan(part.lb[2]).all() and np.isnan(part.xl[2]).all()
        rows = [0, 1, 3, 4]
        np.testing.assert_allclose(part.lb[rows], whole.lb[rows], rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(bounds(task, U[:1], 0.1, method=method).lb, whole.lb[:1], rtol=1e-10, atol=1e-9)
