"""Rows of a small network: the printed search and its measurements against the exact row solver."""

import numpy as np
import pytest

from implicit_models.sim.network.states import states
from implicit_models.sim.solvers.rows import solve_rows
from reproduction.ch3_bisection import compute as path_study
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def rows():
    u = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    return path_study.ball_rows(states(MLP((8, 6, 4, 3), seed=1).eval(), u), "theorem")


def test_bias_is_the_least_squares_one(rows):
    A = rows.reduced.recover(np.zeros(rows.C.shape))
    assert A.shape[1] == rows.C.shape[1] + 1
    np.testing.assert_allclose(A[:, -1], (rows.found.Z / rows.units).mean(axis=0), rtol=1e-5, atol=1e-6)


def test_last_iterates_are_near_the_optimum(rows):
    A, epochs = path_study.outer_iterates(rows, kappa=0.3, eps=1e-6, warm=True, max_epochs=3000)
    best = solve_rows(rows.G, rows.C, rows.zz, kappa=0.3).A
    np.testing.assert_allclose(A[-1], best, atol=1e-4)
    assert (np.diff(epochs) >= 0).all() and len(epochs) == len(A)
    inside = path_study.into_ball(A[-1], 0.3)
    assert np.abs(inside).sum(axis=1).max() <= 0.3 * (1 + 1e-12)
    gaps = path_study.relative_gaps(rows, inside, 0.3)
    assert gaps.max() < 1e-4 and gaps.min() > -1e-12
    # the zero row has the gap kappa ||c||_inf
    np.testing.assert_allclose(
        path_study.relative_gaps(rows, 0 * inside, 0.3), 0.3 * np.abs(rows.C).max(axis=1) / (0.5 * rows.zz)
    )


def test_cold_and_warm_share_their_iterates(rows):
    cold, warm = (path_study.outer_iterates(rows, kappa=0.3, eps=1e-2, warm=w, max_epochs=5000) for w in (False, True))
    np.testing.assert_allclose(cold[0], warm[0], atol=1e-4)


def test_count_of_solves_follows_the_start(rows):
    out = path_study.unit_dependence(rows.G, rows.C[0], float(rows.zz[0]), kappa=0.3, factors=[1, 1024])
    assert out[1]["solves"] - out[0]["solves"] == 10
    assert out[0]["published"] == 7


def test_searches_and_one_pass_solve_the_same_problem(rows):
    found = path_study.one_pass(rows, [0, 3, 7], [0.1, 0.5])
    assert found["difference"] < 1e-5 and found["newton_solves"] <= found["bisection_solves"]


def test_speedups_count_the_same_solves(rows):
    part = path_study.ball_rows(rows.found.take(np.arange(90)), "theorem")
    found = path_study.speedups(rows, part, [0, 5], kappa=0.3)
    assert found["solves"] == found["warm_solves"] and found["limit"] == pytest.approx(300 / 90)
    assert found["data_on_samples"] == pytest.approx(found["data_epochs"] * 300 / 90)


def test_ball_on_the_states_alone_fits_no_worse(rows):
    found = path_study.ball_moved(rows, 0.3)
    assert -1e-9 <= found["state"] <= found["row"] + 1e-9


def test_row_without_output_is_none():
    G = np.eye(3)
    rows = path_study.BallRows(G, np.zeros((1, 3)), np.ones(1), None, None, None)
    assert path_study.printed(rows, 0, kappa=0.5) is None
    with pytest.raises(ValueError, match="eps"):
        path_study.printed(rows, 0, kappa=0.5, eps=-1.0)


def test_path_function_falls_to_zero(rows):
    found = path_study.path_function(rows, 0)
    assert found["beyond"] == 0 and found["largest_rise"] <= 1e-9 and found["norm"][0] > 0


def test_starts_and_defects_are_counted(rows):
    counts = path_study.starts(rows, [0, 1, 2], kappa=0.3, eps=0.01)
    assert set(counts) == {"cold", "rows", "lambdas", "both"} and min(counts.values()) > 0
    found = path_study.defects(rows, 0.3)
    assert found["start_ratio"] >= 1 and 0 <= found["infeasible"] <= 100 and found["no_output"] == 0
