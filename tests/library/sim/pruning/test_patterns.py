"""Two of every four weights: the choice, and networks in the pattern."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim import OptimalBrainSurgeon, TwoOfFour, prune
from implicit_models.sim.solvers.best_subset.patterns import two_of_four


def problem(d, r, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3 * d, d)) @ rng.standard_normal((d, d))
    return X.T @ X / (3 * d) + 0.1 * np.eye(d), rng.standard_normal((r, d))


def least(H, c, kept):
    S = np.flatnonzero(kept)
    return -0.5 * c[S] @ np.linalg.solve(H[np.ix_(S, S)], c[S])


def test_of_one_group_the_best_pair_of_six_stays():
    for seed in range(20):
        H, C = problem(4, 3, seed)
        for c, kept in zip(C, two_of_four(H, C, np.arange(4)[None]), strict=True):
            pairs = [np.isin(np.arange(4), pair) for pair in itertools.combinations(range(4), 2)]
            assert kept.sum() == 2
            assert least(H, c, kept) == pytest.approx(min(least(H, c, pair) for pair in pairs), rel=1e-9)


def test_groups_go_one_after_the_other_the_cheapest_first():
    H, C = problem(12, 1)
    groups = np.array([[0, 5, 1, 9], [2, 3, 4, 6], [7, 8, 10, 11]])
    kept, whole = np.ones(12, bool), [0, 1, 2]
    while whole:  # brute force, every minimum solved for anew
        best = None
        for g in whole:
            for pair in itertools.combinations(groups[g], 2):
                other = kept.copy()
                other[list(pair)] = False
                if best is None or least(H, C[0], other) < best[0]:
                    best = least(H, C[0], other), g, other
        _, g, kept = best
        whole.remove(g)
    assert np.array_equal(two_of_four(H, C, groups)[0], kept)


def test_on_a_diagonal_the_largest_stay_and_columns_of_no_group_too():
    h, c = np.arange(1.0, 10.0), np.array([3.0, -1, 2, 0.5, 9, 1, 1, -8, 0.01])
    kept = two_of_four(np.diag(h), c[None], np.array([[0, 1, 2, 3], [4, 5, 6, 7]]))[0]
    worth = c**2 / h
    for group in (range(4), range(4, 8)):
        assert {i for i in group if kept[i]} == set(sorted(group, key=lambda i: worth[i])[2:])
    assert kept[8]
    with pytest.raises(ValueError, match="with every column once"):
        two_of_four(np.eye(4), np.ones((1, 4)), np.array([[0, 1, 2, 2]]))


def test_a_network_in_the_pattern_is_better_than_by_magnitude():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 4),
    ).eval()
    u, v = torch.randn(300, 3, 4, 4), torch.randn(200, 3, 4, 4)
    sparse = prune(network, u, TwoOfFour(), OptimalBrainSurgeon(samples=60), held_out=v)
    dense = sparse.dense()
    assert (dense[0].weight != 0).all()  # three input channels
    by_four = (dense[2].weight != 0).reshape(8, 2, 4, 3, 3).sum(2)
    assert (by_four <= 2).all() and sparse.report.layers[1].left == 8 * 8 * 9 // 2
    assert ((dense[5].weight != 0).reshape(4, 32, 4).sum(2) <= 2).all()
    other = [w.clone() for w in (network[2].weight, network[5].weight)]
    with torch.no_grad():
        wanted = network(v)
        for layer, own, shape in ((2, other[0], (8, 2, 4, 9)), (5, other[1], (4, 32, 4, 1))):
            size = own.abs().reshape(shape)
            network[layer].weight *= (size >= size.topk(2, dim=2).values[:, :, 1:]).reshape(own.shape)
        magnitude = float(((network(v) - wanted) ** 2).sum() / ((wanted - wanted.mean(0)) ** 2).sum())
        for layer, own in zip((2, 5), other, strict=True):
            network[layer].weight.copy_(own)
        lost = float(((dense(v) - wanted) ** 2).sum() / ((wanted - wanted.mean(0)) ** 2).sum())
    assert sparse.report.held_out == pytest.approx(lost, rel=1e-3) and lost < 0.7 * magnitude
    with pytest.raises(ValueError, match="multiple of four"):
        prune(nn.Sequential(nn.Linear(3, 2)).eval(), torch.randn(20, 3), TwoOfFour())
