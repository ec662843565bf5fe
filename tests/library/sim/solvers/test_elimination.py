"""Elimination across rows: what is proved keeps every optimum, the rest is counted and labelled."""

import numpy as np
import pytest

from implicit_models.sim.solvers.conic import conic_row
from implicit_models.sim.solvers.elimination import eliminate, entry_kappa, retrain
from implicit_models.sim.solvers.rows import path_rows, solve_rows


def problem(rows=3, seed=0, m=40, d=40):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(m, d)) * rng.uniform(0.3, 2, d)
    return M, M[:, :5] @ rng.normal(size=(5, rows)) + 0.3 * rng.normal(size=(m, rows))


def normal(M, Z):
    return M.T @ M, Z.T @ M, (Z**2).sum(0)


def values(G, C, zz, A):
    return 0.5 * (zz - 2 * (C * A).sum(1) + ((A @ G) * A).sum(1))


def test_certified_columns_leave_every_optimum():
    M, Z = problem()
    found = eliminate(*normal(M, Z), kappa=0.8)
    assert found.certified == found.removed.size == found.n_certifiable > 5
    assert np.array_equal(np.sort(np.r_[found.kept, found.removed]), np.arange(40))
    rows, A = retrain(*normal(M, Z), found, kappa=0.8, rtol=1e-12)
    assert (
        rows.A.shape == (3, found.kept.size)
        and not A[:, found.removed].any()
        and np.array_equal(A[:, found.kept], rows.A)
    )
    for i in range(3):
        _, value = conic_row(M, Z[:, i], kappa=0.8)
        assert values(*normal(M, Z), A)[i] == pytest.approx(value, rel=1e-8)


def test_a_zero_of_one_row_does_not_free_the_column():
    M, Z = problem()
    found = eliminate(*normal(M, Z), kappa=0.8)
    some = found.screening.certified.any(0) & ~found.screening.certified.all(0)
    assert some.any() and np.isin(np.flatnonzero(some), found.kept).all()
    # without such a column a row's optimum is worse
    used = (found.screening.A != 0) & some
    j = int(np.flatnonzero(used.any(0))[0])
    i = int(np.flatnonzero(used[:, j])[0])
    assert conic_row(np.delete(M, j, 1), Z[:, i], kappa=0.8)[1] > conic_row(M, Z[:, i], kappa=0.8)[1] * (1 + 1e-6)


def test_a_second_pass_removes_nothing():
    M, Z = problem()
    G, C, zz = normal(M, Z)
    first = eliminate(G, C, zz, kappa=0.8)
    again = eliminate(*first.reduce(G, C), zz, kappa=0.8)
    assert first.certified > 5 and again.certified == again.n_certifiable == 0


@pytest.mark.parametrize("n_remove", [0, 3, 12, 30, 40])
@pytest.mark.parametrize("order", ["correlation", "entry"])
def test_exactly_k_go(n_remove, order):
    M, Z = problem()
    kappas = np.array([0.1, 0.4, 0.8, 1.6, 3.0])
    found = eliminate(*normal(M, Z), kappa=0.8, n_remove=n_remove, order=order, kappas=kappas)
    assert found.removed.size == n_remove and found.kept.size == 40 - n_remove
    assert found.certified == min(n_remove, found.n_certifiable)
    proved = np.flatnonzero(found.screening.removable)
    assert np.isin(found.removed[: found.certified], proved).all()
    assert not np.isin(found.removed[found.certified :], proved).any()
    for part in (found.removed[: found.certified], found.removed[found.certified :]):
        assert (np.diff(np.minimum(found.scores[part], 1 if order == "correlation" else np.inf)) >= -1e-9).all()


def test_small_coefficients_go_before_large_ones():
    M, Z = problem()
    found = eliminate(*normal(M, Z), kappa=0.8, n_remove=39)
    size = np.abs(found.screening.A).max(0)
    tied = [j for j in found.removed if found.scores[j] >= 1 - 1e-9]
    assert len(tied) > 3 and (np.diff(size[tied]) >= 0).all()
    assert size[found.kept[0]] == size.max()


def test_entry_is_the_first_radius_with_the_column():
    M, Z = problem()
    kappas = np.array([0.1, 0.4, 0.8, 1.6])
    entry = entry_kappa(*normal(M, Z), kappas=kappas)
    used = np.array([(solve_rows(*normal(M, Z), kappa=k).A != 0).any(0) for k in kappas])
    for j in range(40):
        assert entry[j] == (kappas[used[:, j]][0] if used[:, j].any() else np.inf)
    assert np.isinf(entry).any() and len(set(entry)) > 3
    assert len(path_rows(*normal(M, Z), kappas=kappas).rows) == 4
    ball = np.arange(40) < 30
    assert not entry_kappa(*normal(M, Z), kappas=kappas, ball_mask=ball)[30:].any()


def test_columns_outside_the_ball_and_non_candidates_stay():
    M, Z = problem(m=60)
    ball, candidates = np.arange(40) < 30, np.arange(40) >= 10
    found = eliminate(*normal(M, Z), kappa=0.3, ball_mask=ball, candidates=candidates, n_remove=20)
    assert np.array_equal(np.sort(found.removed), np.arange(10, 30))
    rows, A = retrain(*normal(M, Z), found, kappa=0.3, ball_mask=ball)
    assert rows.A.shape == (3, 20) and (np.abs(A[:, :30]).sum(1) <= 0.3 * (1 + 1e-9)).all() and A[:, 30:].all()
    with pytest.raises(ValueError, match="from 0 to 20"):
        eliminate(*normal(M, Z), kappa=0.3, ball_mask=ball, candidates=candidates, n_remove=21)


def test_ridge():
    M, Z = problem()
    found = eliminate(*normal(M, Z), kappa=0.8, ridge=2.0)
    rows, _ = retrain(*normal(M, Z), found, kappa=0.8, ridge=2.0, rtol=1e-12)
    assert found.certified > 3
    for i in range(3):
        _, value = conic_row(M, Z[:, i], kappa=0.8, ridge=2.0)
        _, left = conic_row(M[:, found.kept], Z[:, i], kappa=0.8, ridge=2.0)
        assert left == pytest.approx(value, rel=1e-8) and rows.status[i] == "optimal"


def test_bad_input():
    G, C, zz = normal(*problem())
    with pytest.raises(ValueError, match="order must be one of"):
        eliminate(G, C, zz, kappa=1.0, order="random")
    with pytest.raises(ValueError, match="needs kappas"):
        eliminate(G, C, zz, kappa=1.0, order="entry")
    with pytest.raises(ValueError, match="n_remove must be an integer from 0 to 40.*got 41"):
        eliminate(G, C, zz, kappa=1.0, n_remove=41)
    with pytest.raises(ValueError, match="n_remove must be an integer"):
        eliminate(G, C, zz, kappa=1.0, n_remove=2.5)
    with pytest.raises(ValueError, match="ascending"):
        entry_kappa(G, C, zz, kappas=np.array([1.0, 0.5]))
    with pytest.raises(ValueError, match=r"candidates must have shape|broadcast"):
        eliminate(G, C, zz, kappa=1.0, candidates=np.ones(3, bool))
