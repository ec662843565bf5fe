"""Rows in step: against the compiled path, row by row, and their certificates against ones made anew."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.solvers.batched_homotopy import batched_gap, batched_path, batched_refit
from implicit_models.sim.solvers.budget import refit, solve_each


def problems(b=12, k=40, m=160, seed=0, shared=1.5):
    """G, c, zz of rows with columns of their own that share a part, one of them zero; the columns and targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((b, k, m)) + shared * rng.standard_normal((b, 1, m))
    X /= X.std(2, keepdims=True)
    z = rng.standard_normal((b, m)) + 0.3 * X[:, : min(k, 6)].sum(1)
    if k > 7:
        X[:, 7] = 0.0
    return X @ X.transpose(0, 2, 1), np.einsum("bkm,bm->bk", X, z), (z * z).sum(1), X, z


def torched(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]


CASES = [
    (0.5, 0.0),
    (2.0, 0.0),
    (30.0, 0.0),
    (1e3, 0.0),
    (np.inf, 5.0),
    (np.inf, 0.1),
    (3.0, 20.0),
    (1e-9, 0.0),
    (np.inf, 1e9),
]


@pytest.mark.parametrize(("radius", "beta"), CASES)
def test_rows_are_those_of_the_compiled_path(radius, beta):
    G, c, zz, *_ = problems()
    kappa = np.full(len(c), radius)
    mine = batched_path(*torched(G, c, kappa), beta).numpy()
    a, gap, value, over = np.zeros(c.shape), np.full(len(c), np.nan), np.zeros(len(c)), np.zeros(len(c))
    solve_each(G, c, zz, kappa, beta, 1e-12, 1e-12 * zz, a, gap, value, over)
    np.testing.assert_allclose(mine, a, atol=1e-9 * max(1.0, np.abs(a).max()))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 999),
    k=st.integers(1, 30),
    m=st.integers(2, 60),
    radius=st.floats(1e-3, 50),
    shared=st.floats(0, 3),
)
def test_a_small_gap_is_a_small_gap(seed, k, m, radius, shared):
    """Whatever the path did, the gap is that of the problem; it is small wherever no columns depend on each other."""
    G, c, zz, X, z = problems(4, k, m, seed, shared)
    kappa = np.full(4, radius)
    a = batched_path(*torched(G, c, kappa), 0.0)
    gap, value, over = (t.numpy() for t in batched_gap(*torched(G, c, zz), a, torch.from_numpy(kappa), 0.0))
    r = z - np.einsum("bk,bkm->bm", a.numpy(), X)
    lead = np.abs(np.einsum("bkm,bm->bk", X, r)).max(1)
    own = 0.5 * (r * r).sum(1)
    np.testing.assert_allclose(value, own, atol=1e-10 * zz.max())
    np.testing.assert_allclose(gap, own - np.maximum((z * r).sum(1) - own - radius * lead, 0.0), atol=1e-9 * zz.max())
    np.testing.assert_allclose(over, np.maximum(np.abs(a.numpy()).sum(1) - radius, 0.0), atol=1e-14 * max(1.0, radius))
    if k < m - 2:
        assert (gap <= 1e-8 * zz).all() and (over <= 1e-8 * radius).all()


def test_rows_end_apart():
    """Radii of four orders in one batch: rows that have ended stay as they are."""
    G, c, zz, *_ = problems(b=30)
    kappa = np.geomspace(1e-3, 30, 30)
    together = batched_path(*torched(G, c, kappa), 0.0).numpy()
    for i in range(0, 30, 7):
        np.testing.assert_allclose(
            together[i],
            batched_path(*torched(G[i : i + 1], c[i : i + 1], kappa[i : i + 1]), 0.0)[0].numpy(),
            atol=1e-12,
        )


def test_copies_are_left_to_others():
    """Two equal columns: the path takes one of them, or is not certified; it never claims more."""
    G, c, zz, *_ = problems(k=12)
    G[:, 9], c[:, 9] = G[:, 3], c[:, 3]
    G[:, :, 9] = G[:, :, 3]
    kappa = np.full(len(c), 2.0)
    a = batched_path(*torched(G, c, kappa), 0.0)
    gap, value, over = batched_gap(*torched(G, c, zz), a, torch.from_numpy(kappa), 0.0)
    assert torch.isfinite(a).all() and torch.isfinite(gap).all()
    best = np.zeros(c.shape)
    own, objective = np.full(len(c), np.nan), np.zeros(len(c))
    solve_each(G, c, zz, kappa, 0.0, 1e-12, 1e-12 * zz, best, own, objective, np.zeros(len(c)))
    certified = ((gap <= 1e-10 * value) & (over <= 1e-9)).numpy()
    assert certified.any()
    np.testing.assert_allclose(value.numpy()[certified], objective[certified], rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_the_refit_is_that_of_the_rows(ridge):
    G, c, zz, *_ = problems()
    a = np.where(np.random.default_rng(1).random(c.shape) < 0.3, 1.0, 0.0)
    a[:, 7], a[0] = 0.0, 0.0
    again, explained, full = batched_refit(*torched(G, c, a), ridge)
    assert full.all()
    for i in range(len(c)):
        out = np.zeros(c.shape[1])
        assert refit(G[i], c[i], a[i], ridge, out) == pytest.approx(float(explained[i]), rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(again[i].numpy(), out, atol=1e-10)


def test_a_support_of_dependent_columns_is_told():
    G, c, *_ = problems(k=12)
    G[2, 9], G[2, :, 9] = G[2, 3], G[2, :, 3]
    G[2, 9, 9] = G[2, 3, 3]
    _, _, full = batched_refit(*torched(G, c, np.where(np.arange(12) == 7, 0.0, np.ones(c.shape))), 0.0)
    assert full.tolist() == [i != 2 for i in range(len(c))]
