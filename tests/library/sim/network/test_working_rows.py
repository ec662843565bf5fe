"""Rows on working sets: against the same problems with all Gram matrices, scikit-learn, and certificates made anew."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso
from torch import nn

from implicit_models.sim.layerwise import sparsify
from implicit_models.sim.network import working_rows
from implicit_models.sim.network.column_store import Columns
from implicit_models.sim.network.position_rows import solve_block
from implicit_models.sim.network.working_set import DeviceColumns, HostColumns
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty, Tolerance
from implicit_models.sim.row_models import ByPosition, Refit, WorkingSet

OPTIONS = {"ridge": 1e-3, "tolerance": Tolerance(1e-9, 1e-9), "cap": None, "parallel": Parallel()}


def problem(m=90, d=700, shape=(3, 5), seed=0, noise=1.0):
    """Correlated columns of variance 1, targets that few of them make, a zero and a duplicate column, a row without a
    target."""
    rng = np.random.default_rng(seed)
    F = (rng.standard_normal((m, 20)) @ rng.standard_normal((20, d)) + rng.standard_normal((m, d))).T.copy()
    F -= F.mean(1, keepdims=True)
    F /= F.std(1, keepdims=True)
    if d > 9:
        F[5], F[7] = 0.0, F[8]
    Z = noise * rng.standard_normal((*shape, m)) + (F[: min(d, 30)].sum(0) / 30)
    Z -= Z.mean(2, keepdims=True)
    Z /= Z.std(2, keepdims=True)
    if shape[1] > 2:
        Z[0, 2] = 0.0
    return F, Z, np.exp(rng.uniform(-1, 1, shape))


def dense(rows, t, d, kind="l1"):
    out = np.zeros((len(rows.pointer[t]) - 1, d))
    for i in range(len(out)):
        at = slice(rows.pointer[t][i], rows.pointer[t][i + 1])
        out[i, rows.column[t][at]] = getattr(rows, kind)[t][at]
    return out


def solve_working(F, Z, radius, *budgets, device="cpu", **options):
    return working_rows.solve_working(Columns.of(F, device), Z, radius, budgets, **options)


def one_gram(F, Z, radius, *budgets, **options):
    return solve_block(
        F, np.array([0, len(F)]), np.zeros((len(Z), 1), np.int64), Z, radius, budgets, **{**OPTIONS, **options}
    )


@pytest.mark.parametrize(
    "budgets",
    [[L1Ball(v) for v in (0.05, 0.5, 1.0, 3.0)], [L1Penalty(v) for v in (0.3, 0.1, 0.02, 0.004)]],
    ids=["ball", "penalty"],
)
@pytest.mark.parametrize("cap", [None, 6])
def test_rows_are_those_of_the_whole_gram_matrix(budgets, cap):
    F, Z, radius = problem()
    mine, whole = (f(F, Z, radius, *budgets, **{**OPTIONS, "cap": cap}) for f in (solve_working, one_gram))
    for t in range(len(budgets)):
        for kind in ("l1", "refit"):
            np.testing.assert_allclose(dense(mine, t, len(F), kind), dense(whole, t, len(F), kind), atol=1e-9)
        assert mine.status(t) == whole.status(t)
    for name in ("fit", "fit_refit", "violation"):
        np.testing.assert_allclose(getattr(mine, name), getattr(whole, name), atol=1e-9)


@pytest.mark.parametrize("value", [0.2, 0.05, 0.01])
def test_penalised_rows_are_scikit_learns(value):
    F, Z, radius = problem(d=300, shape=(1, 4), seed=3)
    found = dense(solve_working(F, Z, radius, L1Penalty(value), **OPTIONS), 0, len(F))
    for a, z in zip(found, Z[0], strict=True):
        if not z.any():
            assert not a.any()
            continue
        theirs = Lasso(alpha=value, fit_intercept=False, tol=1e-14, max_iter=200_000).fit(F.T, z)
        np.testing.assert_allclose(F.T @ a, F.T @ theirs.coef_, atol=1e-5)
        assert np.abs(a).sum() == pytest.approx(np.abs(theirs.coef_).sum(), rel=1e-5)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), m=st.integers(2, 40), d=st.integers(1, 200), radius=st.floats(1e-3, 20))
def test_every_certificate_holds(seed, m, d, radius):
    F, Z, scale = problem(m, d, (1, 3), seed)
    rows = solve_working(F, Z, scale, L1Ball(radius), **OPTIONS)
    for i, (a, z) in enumerate(zip(dense(rows, 0, d), Z[0], strict=True)):
        r, ball = z - a @ F, radius * scale[0, i]
        value, lead = 0.5 * r @ r, np.abs(F @ r).max()
        gap = value - (z @ r - value - ball * lead)
        assert np.abs(a).sum() <= ball * (1 + 1e-9)
        if rows.reason[i, 0] == 0:
            assert gap <= max(1e-9 * value, 0.5e-9 * z @ z) + 1e-12 * (z @ z)
        assert rows.gap[i, 0] == pytest.approx(gap / max(0.5 * z @ z, 1e-300), abs=1e-9) or not z.any()
    assert set(rows.status(0)) <= {"optimal", "empty"}


def test_a_poor_first_proposal_is_mended(monkeypatch):
    F, Z, radius = problem(seed=5)
    whole = dense(one_gram(F, Z, radius, L1Ball(2.0)), 0, len(F))
    monkeypatch.setattr(HostColumns, "proposed", lambda self, z, k: np.tile(np.arange(600, 600 + k), (len(z), 1)))
    np.testing.assert_allclose(dense(solve_working(F, Z, radius, L1Ball(2.0), **OPTIONS), 0, len(F)), whole, atol=1e-9)


def test_a_set_that_may_not_grow_leaves_rows_inaccurate(monkeypatch):
    F, Z, radius = problem(seed=5)
    monkeypatch.setattr(working_rows, "FIRST", 4)
    monkeypatch.setattr(working_rows, "MOST", 4)
    rows = solve_working(F, Z, radius, L1Ball(5.0), **OPTIONS)
    assert rows.status(0) == {"inaccurate": 14, "empty": 1} and rows.gap.max() > 1e-6


def test_batches_backends_and_devices_agree(monkeypatch, tmp_path):
    F, Z, radius = problem(shape=(6, 5))
    budgets = [L1Ball(0.3), L1Ball(1.5)]
    alone = solve_working(F, Z, radius, *budgets, **OPTIONS)
    resumed = [
        solve_working(F, Z, radius, *budgets, **{**OPTIONS, "parallel": Parallel("threads", 2, tmp_path)})
        for _ in range(2)
    ]
    assert resumed[1].run.n_loaded == resumed[1].run.n_chunks > 1
    monkeypatch.setattr(Columns, "on_host", False)
    device, on_disk, again = (
        solve_working(F, Z, radius, *budgets, **{**OPTIONS, "parallel": Parallel(resume=folder)})
        for folder in (None, tmp_path / "card", tmp_path / "card")
    )
    assert again.run.n_loaded == again.run.n_chunks > 1
    original = DeviceColumns.__init__

    def narrow(self, columns):
        original(self, columns)
        self.size = 7

    monkeypatch.setattr(DeviceColumns, "__init__", narrow)
    batched = solve_working(F, Z, radius, *budgets, **OPTIONS)
    for other in (*resumed, device, on_disk, again, batched):
        for t in range(2):
            np.testing.assert_allclose(dense(other, t, len(F)), dense(alone, t, len(F)), atol=1e-11)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics card")
def test_a_graphics_card_certifies_the_same_rows():
    F, Z, radius = problem()
    card, host = (
        solve_working(F, Z, radius, L1Ball(0.3), L1Ball(1.5), device=device, **OPTIONS) for device in ("cuda", "cpu")
    )
    for t in range(2):
        np.testing.assert_allclose(dense(card, t, len(F)), dense(host, t, len(F)), atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), b=st.integers(1, 4), k=st.integers(1, 8), width=st.integers(1, 8))
def test_a_set_is_the_support_and_the_proposal(seed, b, k, width):
    rng = np.random.default_rng(seed)
    W, best = (np.array([np.sort(rng.choice(12, n, replace=False)) for _ in range(b)]) for n in (k, width))
    a = rng.standard_normal((b, k)) * (rng.random((b, k)) < 0.5)
    for row, w, v, p in zip(working_rows.joined(W, a, best), W, a, best, strict=True):
        kept = row[row >= 0]
        assert (
            len(set(kept)) == len(kept)
            and set(kept) == set(w[v != 0]) | set(p)
            and (np.diff((row < 0).astype(int)) >= 0).all()
        )


@pytest.mark.parametrize("budget", [L1Ball(1e6), L1Ball(50.0), L1Penalty(1e-7)], ids=str)
def test_rows_that_are_fitted_exactly(budget):
    """Their objective is nearly 0, which bounds the gap whatever the radius."""
    rng = np.random.default_rng(0)
    F, Z = rng.standard_normal((90, 30)), rng.standard_normal((1, 4, 30))
    rows = solve_working(F, Z, np.ones((1, 4)), budget, **OPTIONS)
    assert rows.status(0) == {"optimal": 4} and rows.fit.min() > 1 - 1e-6


def test_slices_of_gram_matrices_change_nothing(monkeypatch):
    F, Z, radius = problem()
    whole = solve_working(F, Z, radius, L1Ball(2.0), **OPTIONS)
    monkeypatch.setattr(working_rows, "GRAMS", 1)
    alone = solve_working(F, Z, radius, L1Ball(2.0), **OPTIONS)
    for kind in ("l1", "refit"):
        np.testing.assert_allclose(dense(alone, 0, len(F), kind), dense(whole, 0, len(F), kind), atol=1e-11)


def test_one_row_that_is_not_finite_leaves_the_others():
    F, Z, radius = problem()
    clean = solve_working(F, Z, radius, L1Ball(1.0), **OPTIONS)
    Z = Z.copy()
    Z[1, 1, 3] = np.nan
    rows = solve_working(F, Z, radius, L1Ball(1.0), **OPTIONS)
    assert rows.status(0) == {"optimal": 13, "not_finite": 1, "empty": 1} and rows.reason[6, 0] == 3
    others = np.arange(15) != 6
    np.testing.assert_array_equal(dense(rows, 0, len(F))[others], dense(clean, 0, len(F))[others])


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 9),
        nn.ReLU(),
        nn.Linear(9, 3),
    ).eval()


@pytest.mark.parametrize("scale", ["std", "theorem", "uniform"])
def test_everything_before_in_every_scale(scale):
    """The same models as with the Gram matrix of everything before."""
    u = torch.randn(60, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    options = {"states": "teacher", "head": False}
    mine, whole = (
        sparsify(network().double(), u.double(), L1Ball(0.5), rows, **options)
        for rows in (WorkingSet(scale=scale, refit=None), ByPosition(support="before", scale=scale, refit=None))
    )
    # a row that is fitted exactly has many solutions
    assert mine.report.entries == (
        whole.report.entries if scale == "std" else pytest.approx(whole.report.entries, rel=1e-3)
    )
    torch.testing.assert_close(mine(u.double()), whole(u.double()), atol=1e-7 if scale == "std" else 1e-5, rtol=1e-6)


def test_what_a_working_set_is_not_for():
    u = torch.randn(20, 2, 6, 6)
    with pytest.raises(ValueError, match=r"L1Ball\(...\) or L1Penalty\(...\), not for Cardinality\(share=0.5\)"):
        sparsify(network(), u, Cardinality(0.5), WorkingSet())
    with pytest.raises(ValueError, match="one-sided refit is for rows of their own with a Gram matrix a position"):
        WorkingSet(refit=Refit(one_sided=True))
