"""Rows of positions: shared products, budgets and refits, against one matrix at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.network.position_grams import (
    gram_of_window,
    pair_products,
    plan_pairs,
    window_columns,
    window_gram,
    window_targets,
)
from implicit_models.sim.network.position_rows import solve_block
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty, Tolerance
from implicit_models.sim.solvers.budget import REASONS, explained_by, refit, solve_position
from implicit_models.sim.solvers.duality_gap import duality_gap
from implicit_models.sim.solvers.gram import gram
from implicit_models.sim.solvers.rows import solve_rows

TOLERANCES = {"tolerance": Tolerance(1e-9, 1e-9), "cap": None}


def cells_of(rng, n_cells, windows, k):
    """Ascending cells in every window, -1 behind."""
    out = np.full((windows, k), -1)
    for row in out:
        n = int(rng.integers(0, k + 1))
        row[:n] = np.sort(rng.choice(n_cells, n, replace=False))
    return out


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 9), st.integers(1, 6))
def test_grams_of_windows(seed, n_cells, windows, k):
    rng = np.random.default_rng(seed)
    k = min(k, n_cells)
    start = np.concatenate([[0], np.cumsum(rng.integers(1, 4, n_cells))])
    F, cells = rng.normal(size=(start[-1], 7)), cells_of(rng, n_cells, windows, k)
    plan = plan_pairs(cells, start)
    products = np.empty(plan.total)
    pair_products(F, start, plan.cell, plan.begin, plan.end, plan.offset, products)
    Z = rng.normal(size=(2, 7))
    for w in range(windows):
        columns = window_columns(cells[w], start)
        d = len(columns)
        G, C = np.full((d + 1, d + 1), np.nan), np.full((2, d), np.nan)
        assert (
            window_gram(products, plan.offset, plan.begin, plan.end, start, cells[w], plan.block[w], plan.column[w], G)
            == d
        )
        np.testing.assert_allclose(G[:d, :d], gram_of_window(F, start, cells[w]), rtol=1e-12, atol=1e-12)
        window_targets(F, start, cells[w], Z, C)
        np.testing.assert_allclose(C, Z @ F[columns].T, rtol=1e-12, atol=1e-12)


def test_products_are_shared():
    """3 x 3 windows on a 12 x 12 image: a pair of cells is computed once, not once a window."""
    index = np.arange(144).reshape(12, 12)
    seen = np.lib.stride_tricks.sliding_window_view(index, (3, 3)).reshape(-1, 9)
    plan = plan_pairs(seen, np.arange(145))
    assert plan.total < 144 * 13 and len(seen) * 45 > 2.5 * plan.total
    assert np.unique(plan.block[plan.block >= 0]).size == len(plan.cell)


def problem(seed, m=40, d=12, r=3):
    rng = np.random.default_rng(seed)
    M, Z = rng.normal(size=(m, d)), rng.normal(size=(m, r))
    return M, Z, *gram(M, Z)


def test_radii_are_those_of_the_row_solver():
    _, _, G, C, zz = problem(0)
    unit = np.array([1.0, 0.5, 2.0])
    A, gap, violation, reason = solve_position(
        G, C, zz, 40, [L1Ball(0.1), L1Ball(0.3), L1Ball(np.inf)], unit, **TOLERANCES
    )
    for t, value in enumerate((0.1, 0.3, np.inf)):
        expected = solve_rows(G, C, zz, kappa=value * unit, rtol=1e-12, atol=1e-14).A
        np.testing.assert_allclose(A[:, t], expected, atol=1e-8)
    assert (reason == 0).all() and (violation <= 1e-9).all() and (np.abs(A[:, 0]).sum(1) <= 0.1 * unit + 1e-12).all()


def test_penalties_count_samples():
    _, _, G, C, zz = problem(1)
    A, gap, _, reason = solve_position(G, C, zz, 40, [L1Penalty(0.2), L1Penalty(0.05)], np.ones(3), **TOLERANCES)
    for t, value in enumerate((0.2, 0.05)):
        expected = solve_rows(G, C, zz, kappa=np.inf, beta=value * 40, rtol=1e-12, atol=1e-14).A
        np.testing.assert_allclose(A[:, t], expected, atol=1e-8)
    assert (reason == 0).all()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6), st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=3, unique=True)
)
def test_a_number_of_columns_is_kept(seed, shares):
    _, _, G, C, zz = problem(seed)
    budgets = [Cardinality(share) for share in sorted(shares)]
    A, gap, _, reason = solve_position(G, C, zz, 40, budgets, np.ones(3), **TOLERANCES)
    assert (reason == 0).all()
    for t, share in enumerate(sorted(shares)):
        support = np.count_nonzero(A[:, t], axis=1)
        assert (support <= np.ceil(share * 12)).all() and (support >= min(np.ceil(share * 12), 12) - 1).all()
        # a point of the path: optimal in the ball of its own norm
        norms = np.abs(A[:, t]).sum(1)
        assert (duality_gap(G, C, zz, A[:, t], kappa=norms)[0] <= 1e-9 * zz).all()


def test_refit_is_least_squares_on_the_support():
    M, Z, G, C, zz = problem(3)
    a = np.zeros(12)
    a[[2, 5, 9]] = 1.0
    out = np.full(12, np.nan)
    explained = refit(G, C[0], a, 0.0, out)
    expected, rest, *_ = np.linalg.lstsq(M[:, [2, 5, 9]], Z[:, 0], rcond=None)
    np.testing.assert_allclose(out[[2, 5, 9]], expected, rtol=1e-10)
    assert np.count_nonzero(out) == 3 and explained == pytest.approx(zz[0] - rest[0], rel=1e-12)
    seen = np.empty((1, 1))
    explained_by(G, C[:1], out[None, None], seen)
    assert seen[0, 0] == pytest.approx(explained, rel=1e-12)


def test_refit_with_a_ridge_and_its_share():
    M, Z, G, C, zz = problem(4)
    a, out = np.ones(12), np.empty(12)
    explained = refit(G, C[1], a, 0.1, out)
    np.testing.assert_allclose(out, np.linalg.solve(G + 0.1 * np.diag(np.diag(G)), C[1]), rtol=1e-9)
    assert explained == pytest.approx(zz[1] - ((Z[:, 1] - M @ out) ** 2).sum(), rel=1e-10)


def test_refit_leaves_out_columns_that_depend_on_others():
    M, Z, *_ = problem(5)
    M[:, 7] = M[:, 2]
    G, C, zz = gram(M, Z)
    out = np.empty(12)
    explained = refit(G, C[0], np.ones(12), 0.0, out)
    rest = np.linalg.lstsq(M, Z[:, 0], rcond=None)[0]
    assert out[7] == 0 and explained == pytest.approx(zz[0] - ((Z[:, 0] - M @ rest) ** 2).sum(), rel=1e-9)


def test_rows_that_cannot_be_fitted_have_a_status():
    _, _, G, C, zz = problem(6)
    zz[0], C[0] = 0.0, 0.0  # a constant target
    C[2, 3] = np.nan
    A, gap, _, reason = solve_position(G, C, zz, 40, [L1Ball(0.2)], np.ones(3), **TOLERANCES)
    assert [REASONS[i] for i in reason[:, 0]] == ["empty", "optimal", "not_finite"]
    assert not A[0].any() and A[1].any() and not A[2].any()
    A, *_, reason = solve_position(np.zeros((0, 0)), np.zeros((3, 0)), zz, 40, [L1Ball(0.2)], np.ones(3), **TOLERANCES)
    assert A.shape == (3, 1, 0) and (reason[[0, 1], 0] == REASONS.index("empty")).all()


def test_a_cap_that_is_reached_is_a_status():
    _, _, G, C, zz = problem(7)
    A, *_, reason = solve_position(G, C, zz, 40, [L1Ball(0.01), L1Ball(np.inf)], np.ones(3), **TOLERANCES | {"cap": 4})
    assert [REASONS[i] for i in reason[0]] == ["optimal", "saturated"]
    assert (np.count_nonzero(A[:, 1], axis=1) <= 4).all() and (np.count_nonzero(A[:, 1], axis=1) >= 3).all()


@pytest.mark.parametrize(
    "make, value, words",
    [
        (L1Ball, 0.0, "radius must be positive, got 0"),
        (L1Ball, np.nan, "radius must be positive and finite, got nan"),
        (Cardinality, 1.5, "share must be at most 1, got 1.5"),
        (L1Penalty, -1.0, "lam must not be negative, got -1"),
        (L1Penalty, np.inf, "lam must be finite, got inf"),
        (Cardinality, "half", "share must be a number, got 'half'"),
        (L1Ball, True, "radius must be a number, got True"),
    ],
)
def test_budgets_are_checked(make, value, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make(value)


def block(seed=0, P=5, r=2, m=30):
    rng = np.random.default_rng(seed)
    start = np.arange(0, 3 * 6 + 1, 3)
    cells = np.array([[0, 1, -1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [4, 5, -1]])
    F, Z = rng.normal(size=(18, m)), rng.normal(size=(P, r, m))
    return F, start, cells, Z, np.ones((P, r))


@pytest.mark.parametrize("backend, workers", [("serial", None), ("threads", 2), ("processes", 2)])
def test_a_block_is_its_positions(backend, workers):
    F, start, cells, Z, radius = block()
    found = solve_block(
        F,
        start,
        cells,
        Z,
        radius,
        [L1Ball(0.3), L1Ball(0.9)],
        ridge=0.0,
        **TOLERANCES,
        parallel=Parallel(backend, workers),
    )
    for w in range(5):
        columns = window_columns(cells[w], start)
        G, C, zz = gram(F[columns].T, Z[w].T)
        for t, value in enumerate((0.3, 0.9)):
            expected = solve_rows(G, C, zz, kappa=value, rtol=1e-12, atol=1e-14).A
            for i in range(2):
                part = slice(*found.pointer[t][2 * w + i : 2 * w + i + 2])
                row = np.zeros(18)
                row[found.column[t][part]] = found.l1[t][part]
                np.testing.assert_allclose(row[columns], expected[i], atol=1e-7)
                lost = ((Z[w, i] - F.T @ row) ** 2).sum()
                assert found.fit[2 * w + i, t] == pytest.approx(1 - lost / zz[i], abs=1e-9)
    assert found.status(0) == {"optimal": 10} and (found.fit_refit >= found.fit - 1e-9).all()


def test_backends_give_the_same_bits_and_a_killed_run_goes_on(tmp_path):
    arrays = block(3)
    settings_, two = {"ridge": 1e-3, **TOLERANCES}, Parallel("threads", 2, tmp_path)
    serial = solve_block(*arrays, [Cardinality(0.4)], **settings_, parallel=Parallel())
    threads = solve_block(*arrays, [Cardinality(0.4)], **settings_, parallel=two)
    np.testing.assert_array_equal(serial.refit[0], threads.refit[0])
    (next(tmp_path.glob("rows-*.npz"))).unlink()  # what a killed run did not finish
    again = solve_block(*arrays, [Cardinality(0.4)], **settings_, parallel=two)
    assert again.run.n_loaded == again.run.n_chunks - 1 and again.run.n_solved == 1
    np.testing.assert_array_equal(serial.column[0], again.column[0])
    with pytest.raises(ValueError, match="another problem"):
        solve_block(*arrays, [Cardinality(0.5)], **settings_, parallel=two)
