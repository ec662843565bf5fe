"""Correlations in low precision: every bound holds, and the largest is that of double precision, whatever the screen
says."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.network.column_store import Columns
from implicit_models.sim.network.low_precision import (
    Rounded,
    correlations,
    fast_dtype,
    gamma,
    host_bounds,
    in_single,
    largest,
    leads,
    rounded_columns,
)
from implicit_models.sim.network.working_set import DeviceColumns, HostColumns

DTYPES = [torch.float32, torch.bfloat16]
MAKERS = {"host": lambda columns: HostColumns(columns.X.numpy(), Rounded.of(*columns[1:4])), "device": DeviceColumns}


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 999), d=st.integers(1, 300), data=st.data())
def test_the_largest_bounds_of_rows(seed, d, data):
    """Also across runs of columns, with ties."""
    k, rng = data.draw(st.integers(1, min(d, 40))), np.random.default_rng(seed)
    S, lost, norm = rng.integers(-9, 10, (4, d)).astype(np.float32), rng.uniform(0, 1, d), rng.uniform(0, 3, d)
    size, base = rng.uniform(0, 1, 4), rng.uniform(0, 1, 4)
    best, bound, outside = np.empty((4, k), np.int64), np.empty((4, k)), np.empty(4)
    largest(S, 1.5, size, base, lost, norm, k, best, bound, outside)
    value = (1.5 * np.abs(S) + lost * size[:, None] + base[:, None]) * norm
    order = np.argsort(-value, axis=1, kind="stable")
    np.testing.assert_array_equal(best, np.sort(order[:, :k], axis=1))
    np.testing.assert_allclose(bound, np.take_along_axis(value, best, axis=1), rtol=1e-12)
    np.testing.assert_allclose(outside, np.take_along_axis(value, order, axis=1)[:, k] if k < d else 0.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), m=st.integers(1, 300), exponent=st.integers(-30, 30), mean=st.sampled_from([0.0, 3.0]))
def test_every_product_is_within_its_bound(dtype, seed, m, exponent, mean):
    """Also of columns whose length no single precision number holds, and of sums without cancellation."""
    rng = np.random.default_rng(seed)
    X, r = (
        (rng.standard_normal((5, m)) + mean) * 10.0 ** np.array([0, 100, -100, exponent, 0])[:, None],
        rng.standard_normal((3, m)) + mean,
    )
    X[4], r[2] = 0.0, 0.0
    rounded = Rounded.of(*rounded_columns(torch.from_numpy(X), dtype))
    assert rounded.norm[4] == 0 and not rounded.values[4].any() and rounded.values.dtype == dtype
    most = np.maximum(np.abs(X).max(1), 1e-300)
    np.testing.assert_allclose(rounded.norm, most * np.linalg.norm(X / most[:, None], axis=1), rtol=1e-12)
    best, bound, outside = host_bounds(rounded, rounded.values, r, 5)
    exact = np.abs((r / np.maximum(np.linalg.norm(r, axis=1), 1e-300)[:, None]) @ X.T)
    assert (best == np.arange(5)).all() and not outside.any()
    assert (exact <= bound * (1 + 1e-12)).all()
    # and they are no looser than twice what the rounding of every entry may make
    unit = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}[dtype]  # unit roundoff
    assert (bound[:2, :4] <= exact[:2, :4] + (5 * unit + 2 * m * 2.0**-24) * rounded.norm[:4]).all()


def test_the_bound_of_a_sum():
    assert gamma(2000, 2.0**-24) == pytest.approx(2000 * 2**-24, rel=1e-3)
    with pytest.raises(ValueError, match="16777216 terms in single precision"):
        gamma(2**24, 2.0**-24)


def test_half_precision_is_for_machines_and_problems_that_gain(monkeypatch):
    assert fast_dtype(100) == torch.float32 and fast_dtype(2**30, "cuda") == torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    assert fast_dtype(2**30) == torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert fast_dtype(2**30) == torch.float32
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert fast_dtype(2**30) == torch.float32


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ["usual", "level", "copies", "wide bounds"])
def test_the_maximum_is_that_of_double_precision(make, dtype, case):
    """Where low precision does not tell the columns apart too: nearly equal ones, more copies than places, bounds that
    exclude nothing."""
    rng = np.random.default_rng(4)
    X, z = rng.standard_normal((900, 64)), rng.standard_normal((6, 64))
    if case == "level":
        X = X[:1] + 1e-7 * X
    if case == "copies":
        X = np.tile(X[:3], (300, 1)) * (1 + 1e-9 * rng.standard_normal((900, 1)))
    columns = Columns(torch.from_numpy(X), *rounded_columns(torch.from_numpy(X), dtype))
    if case == "wide bounds":
        columns = columns._replace(lost=columns.lost + 2.5)
    columns = make(columns)
    W = np.tile(np.arange(5), (6, 1))
    W[:, 4] = -1
    a = 0.1 * rng.standard_normal((6, 5)) * (W >= 0)
    found = columns.scores(z, W, a, 8)
    r = z - a[:, :4] @ X[:4]
    np.testing.assert_allclose(found.lead, np.abs(r @ X.T).max(1), rtol=1e-14)
    np.testing.assert_allclose(found.inner, np.einsum("bk,bk->b", a[:, :4], r @ X[:4].T), atol=1e-12)
    np.testing.assert_allclose(found.square, (r * r).sum(1))
    np.testing.assert_allclose(found.against, (r * z).sum(1), atol=1e-12)
    assert found.best.shape == (6, 8) and (np.diff(found.best, axis=1) > 0).all()


def test_a_product_above_its_bound_is_noticed():
    """A machine whose low precision loses more than the bound says: the row is read whole."""
    rng = np.random.default_rng(0)
    X, r = rng.standard_normal((50, 30)), rng.standard_normal((2, 30))
    best = np.tile(np.arange(3), (2, 1))
    lead = np.empty(2)
    assert leads(X, r, best, np.full((2, 3), 1e-3), np.full(2, 1e-3), lead) == 2
    np.testing.assert_allclose(lead, np.abs(r @ X.T).max(1))


def test_settings_of_the_products_are_as_they_were(monkeypatch):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    seen = lambda: (matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32)
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    before = seen()
    with in_single():
        assert seen() == (False, False, False)
    with pytest.raises(KeyboardInterrupt), in_single():
        raise KeyboardInterrupt
    with in_single(False):  # threads of the processor leave them alone
        assert seen() == before
    assert seen() == before
    assert correlations(torch.ones(3, 4), torch.ones(2, 4, dtype=torch.float64))[0].shape == (2, 3)
