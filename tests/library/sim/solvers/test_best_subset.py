"""Backward elimination, exchanges and bounds against closed forms and against all supports of small rows."""

from itertools import combinations

import numpy as np
import pytest
import scipy.optimize

from implicit_models.sim.solvers.best_subset.backward import (
    backward_elimination,
    cheapest,
    kept_columns,
    minimisers,
    objective,
)
from implicit_models.sim.solvers.best_subset.bound import least_rise
from implicit_models.sim.solvers.best_subset.exchange import exchange
from implicit_models.sim.solvers.best_subset.one_sided import Samples, one_sided_rows


def problem(d=7, r=4, seed=0, m=40):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(m, d)) @ rng.normal(size=(d, d))
    Z = M @ rng.normal(size=(d, r)) + rng.normal(size=(m, r))
    return M.T @ M / m + 1e-3 * np.eye(d), Z.T @ M / m


def minimum(H, c, S):
    S = list(S)
    return 0.0 if not S else -0.5 * c[S] @ np.linalg.solve(H[np.ix_(S, S)], c[S])


def best(H, c, k):
    """Over all supports."""
    return min(minimum(H, c, S) for S in combinations(range(len(c)), k))


def test_every_removal_is_the_cheapest_and_costs_what_least_squares_on_the_rest_says():
    H, C = problem()
    order, rise = backward_elimination(H, C)
    for i, c in enumerate(C):
        left = list(range(7))
        for step in range(7):
            costs = {j: minimum(H, c, [q for q in left if q != j]) - minimum(H, c, left) for j in left}
            assert order[i, step] == min(costs, key=costs.get)
            assert rise[i, step] == pytest.approx(costs[order[i, step]], rel=1e-8, abs=1e-12)
            left.remove(order[i, step])


def test_the_first_removal_is_that_of_the_optimal_brain_surgeon():
    H, C = problem(seed=1)
    V = np.linalg.inv(H)
    W = C @ V
    order, rise = backward_elimination(H, C)
    saliency = W**2 / (2 * np.diag(V))
    assert np.array_equal(order[:, 0], saliency.argmin(1))
    assert rise[:, 0] == pytest.approx(saliency.min(1), rel=1e-10)
    for i, j in enumerate(order[:, 0]):  # w - V_j w_j / V_jj
        kept = np.arange(7) != j
        moved = W[i] - V[:, j] * W[i, j] / V[j, j]
        assert minimisers(H, C[i : i + 1], kept[None])[0] == pytest.approx(moved, rel=1e-8, abs=1e-10)


def test_orthogonal_columns_go_by_size():
    H, C = np.diag([1.0, 4.0, 0.25]), np.array([[3.0, -2.0, 0.1]])
    order, rise = backward_elimination(H, C)
    assert order.tolist() == [[2, 1, 0]]
    assert rise == pytest.approx(np.array([[0.02, 0.5, 4.5]]))


def test_rises_add_up_to_what_all_columns_explain():
    H, C = problem(d=30, r=3, m=200)
    order, rise = backward_elimination(H, C)
    assert np.array_equal(np.sort(order, 1), np.tile(np.arange(30), (3, 1)))
    assert rise.sum(1) == pytest.approx(0.5 * np.einsum("ij,ij->i", C, C @ np.linalg.inv(H)), rel=1e-9)


def test_exchanges_end_in_supports_that_no_exchange_betters():
    H, C = problem(d=8, r=6, seed=3)
    order, _ = backward_elimination(H, C)
    start = kept_columns(order, np.full(6, 5))
    start[0] = False
    start[0, order[0, :3]] = True  # a poor one
    kept, done = exchange(H, C, start)
    assert done > 0 and np.array_equal(kept.sum(1), start.sum(1))
    for i, c in enumerate(C):
        S = np.flatnonzero(kept[i])
        value = minimum(H, c, S)
        assert best(H, c, 3) - 1e-12 <= value <= minimum(H, c, np.flatnonzero(start[i])) + 1e-12
        for out in S:
            for into in np.flatnonzero(~kept[i]):
                other = minimum(H, c, [*(S[S != out]), into])
                assert other >= value - 2e-5 * abs(value)


def test_supports_that_cannot_be_exchanged_stay():
    H, C = problem()
    kept = np.zeros((4, 7), bool)
    kept[1] = True
    assert exchange(H, C, kept)[1] == 0
    assert exchange(H, C, kept, most=0)[1] == 0


@pytest.mark.parametrize("seed", range(4))
def test_no_support_of_the_size_is_below_the_bound(seed):
    H, C = problem(d=7, seed=seed)
    for k in range(8):
        bound = least_rise(H, C, np.full(4, k))
        for i, c in enumerate(C):
            lowest = minimum(H, c, range(7))
            assert bound[i] <= best(H, c, k) - lowest + 1e-12
            assert bound[i] > 0 or k == 7


def test_the_bound_is_exact_for_orthogonal_columns():
    H, C = np.diag([1.0, 4.0, 0.25]), np.array([[3.0, -2.0, 0.1]])
    assert least_rise(H, C, np.array([1])) == pytest.approx([0.52])


def test_the_cheapest_removals_are_exactly_as_many_as_asked_for():
    costs = np.array([[1.0, 5.0, 2.0], [0.0, 0.0, 0.0], [4.0, 4.0, 9.0]])
    assert cheapest(costs, 4).tolist() == [1, 3, 0]
    assert cheapest(costs, 0).tolist() == [0, 0, 0] and cheapest(costs, 9).tolist() == [3, 3, 3]
    assert cheapest(costs, 6).sum() == 6
    with pytest.raises(ValueError, match="of 9 columns 10 cannot"):
        cheapest(costs, 10)


def one_sided_problem(seed=0, n=400, d=5, r=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(d, n))
    X -= X.mean(1, keepdims=True)
    Z = rng.normal(size=(r, d)) @ X + rng.normal(size=(r, n))
    Z -= Z.mean(1, keepdims=True)
    prior, ridge = rng.normal(size=(r, d)), 0.05
    H, C = X @ X.T / n + ridge * np.eye(d), Z @ X.T / n + ridge * prior
    return Samples(X, Z, rng.normal(size=(r, n)) - 0.5), H, C, ridge, prior


def test_one_sided_refits_are_those_of_a_general_minimiser():
    given, H, C, ridge, prior = one_sided_problem()
    kept = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 1, 0]], bool)
    closed = 0.2
    W, shift = one_sided_rows(H, C, kept, minimisers(H, C, kept), given, closed, ridge, prior)
    assert not W[~kept].any()
    for i, own in enumerate(kept):

        def loss(v, i=i, own=own):
            w = np.zeros(5)
            w[own] = v[:-1]
            p, z, s = w @ given.X + v[-1], given.Z[i], given.level[i]
            soft = np.where(s + z > 0, (p - z) ** 2, np.maximum(0, s + p) ** 2)
            plain = closed * (p - z) ** 2 + (1 - closed) * soft
            return 0.5 * plain.mean() + 0.5 * ridge * ((w - prior[i])[own] ** 2).sum()

        found = scipy.optimize.minimize(loss, np.zeros(own.sum() + 1), method="BFGS", options={"gtol": 1e-9})
        mine = np.append(W[i, own], shift[i])
        assert loss(mine) == pytest.approx(found.fun, rel=1e-4)
        assert mine == pytest.approx(found.x, abs=0.03)


def test_one_sided_refits_with_the_weight_one_or_few_open_samples_are_plain():
    given, H, C, ridge, prior = one_sided_problem()
    kept = np.ones((3, 5), bool)
    start = minimisers(H, C, kept)
    assert np.array_equal(one_sided_rows(H, C, kept, start, given, 1.0, ridge, prior)[0], start)
    shut = given._replace(level=np.full_like(given.level, -100.0))
    assert np.array_equal(one_sided_rows(H, C, kept, start, shut, 0.1, ridge, prior)[0], start)


def test_objective():
    H, C = problem()
    W = np.random.default_rng(0).normal(size=C.shape)
    assert objective(H, C, W) == pytest.approx([0.5 * w @ H @ w - c @ w for w, c in zip(W, C, strict=True)])
