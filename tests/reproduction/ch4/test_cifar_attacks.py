"""Attacks without the matrices, against those with them, linear programmes, and brute force."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.options import LPAttack
from implicit_models.robustness.attacks.sparse import linear_direction
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.ch4_attacks import compute as attack_table
from reproduction.ch4_resnet20_cifar import attacks
from reproduction.models.resnet20 import ResNet20
from reproduction.resnet20 import network as networks

SHAPE = (3, 6, 6)
P = 108


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(2)
    body = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 4),
    )
    return networks.flat(body, SHAPE)


@pytest.fixture(scope="module")
def samples(network):
    u = np.random.default_rng(0).random((50, P))
    y = networks.classes_of(network, u)
    y[:8] = (y[:8] + 1) % 4  # eight are wrong before any attack
    return u, y


def test_the_table_is_that_of_the_other_networks(network, samples):
    u, y = samples
    S = sensitivity_matrix(network, input_shape=(P,)).S
    shares = [2.0, 30.0]
    wanted = attack_table.share_table(network, u, y, shares, 3, sensitivity=S)
    ranks = attacks.rankings(network, u, y, S, S[::-1].copy(), SHAPE)
    direction = attacks.cross_entropy_gradient(network, u, y)
    found = attacks.share_table(network, u, y, shares, 3, ranks, direction, SHAPE)
    for protocol in attack_table.PROTOCOLS:
        for column in attack_table.COLUMNS:
            assert found[protocol][column] == pytest.approx(wanted[protocol][column]), (protocol, column)
    assert all(found["wrong"][column] == pytest.approx(wanted["wrong"][column]) for column in attack_table.COLUMNS)
    assert attacks.greedy_rates(network, u, y, [attack_table.pixels(share, P) for share in shares]) == pytest.approx(
        wanted["sign"]["jsma"]
    )
    assert set(found["replace"]) == {*attack_table.COLUMNS, *attacks.CONTROLS}
    # 32 inputs of the disc are the three colours of 4 pixels, and then of some of the next 8; random choices reach more
    # pixels
    assert found["regions"]["disc"][1] == 12 and found["regions"]["random"][1] > 20
    other = attacks.share_table(network, u, y, shares, 4, ranks, direction, SHAPE, same=found["sign"])
    assert other["sign"]["gradient"] == found["sign"]["gradient"]
    assert other["sign"]["random"] == pytest.approx(
        attack_table.share_table(network, u, y, shares, 4, sensitivity=S)["sign"]["random"]
    )


def test_patches_lie_anywhere_and_wrap_around():
    found = attacks.patches(300, (3, 8, 8), 0).reshape(300, 3, 8, 8)
    assert np.array_equal(found[:, 0], found[:, 2]) and np.all(found.reshape(300, -1).max(axis=1) == 0)
    top = found[:, 0].reshape(300, -1).argmax(axis=1)
    assert len(set(top)) > 50
    corner = found[np.flatnonzero(top == top.min())[0], 0]
    rolled = np.roll(corner, (4 - top.min() // 8, 4 - top.min() % 8), axis=(0, 1))
    rows, columns = np.indices((8, 8))
    near = np.hypot(rows - 4, columns - 4) <= 3
    assert np.allclose(-rolled[near], np.hypot(rows - 4, columns - 4)[near])


def test_signed_rows_are_those_of_the_matrices(network, samples):
    u, y = samples
    model = from_network(network[1], SHAPE, dtype=torch.float64)
    assert np.allclose(attacks.signed_sensitivity(network, u, y), linear_direction(problem(model), u, y), atol=1e-5)


def test_the_linearised_programme_is_the_programme_where_no_unit_turns(network, samples):
    pytest.importorskip("highspy")
    u, y = (part[8:14] for part in samples)
    task, exact, eps = problem(from_network(network[1], SHAPE, dtype=torch.float64)), network.double(), 1e-5
    try:
        margin = lambda v: (
            lambda f: f[np.arange(len(v)), y] - np.sort(np.where(np.eye(4)[y] == 1, -np.inf, f), axis=1)[:, -1]
        )(exact(torch.from_numpy(v)).detach().numpy())
        clean, programme = (
            margin(u),
            margin(
                attack(task, u, y, Box(eps, clip=(0, 1)), LPAttack(objective="margin", relaxation="triangle")).U_adv
            ),
        )
        network.float()
        found = attacks.linearised_programme(network, u, y, eps)
        assert np.all(np.abs(found - u) <= eps * (1 + 1e-6)) and found.min() >= 0 and found.max() <= 1
        network.double()
        ours = margin(found)
    finally:
        network.float()
    assert np.allclose((clean - ours) / (clean - programme), 1, rtol=1e-2) and np.all(clean - programme > 0)


def test_discrepancy_ascent_stops_at_a_corner_that_no_sign_step_leaves():
    body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        body[0].bias.fill_(20.0)  # every unit stays active: the sum of squares is |W d|^2
    network = networks.flat(nn.Sequential(nn.Flatten(), body), (1, 2, 3))
    W = body[0].weight.detach().double().numpy()
    u = np.full((3, 6), 0.5)
    found = attacks.discrepancy_ascent(network, u, 0.1, 30, 0)
    d = found - u
    assert np.allclose(np.abs(d), 0.1)
    value = lambda d: float(np.square(W @ d).sum())
    largest = max(value(0.1 * np.array(signs)) for signs in itertools.product((-1, 1), repeat=6))
    for row in d:  # no sign step leaves it, and that is a good part of the largest sum
        assert np.array_equal(np.sign(W.T @ W @ row), np.sign(row)) and 0.7 * largest <= value(row) <= largest + 1e-6
    assert not any(module._forward_hooks for module in network.modules())


def test_dense_rates_are_ordered_and_drawn_once_where_nothing_is_random(network, samples):
    rates = attacks.dense_rates(network, *samples, [0.002, 0.2], 5, [0, 1])
    assert {name: len(each) for name, each in rates.items()} == {
        "random": 2,
        "discrepancy": 2,
        "signed_sensitivity": 1,
        "fgsm": 1,
        "pgd": 1,
        "linearised": 1,
    }
    for name in ("fgsm", "pgd", "linearised"):
        assert rates[name][0][1] > max(draw[1] for draw in rates["random"]), name
    assert rates["linearised"][0][1] >= 70


def test_size_of_a_programme_is_that_of_the_matrices():
    network = networks.flat(ResNet20(), (3, 8, 8))
    found = attacks.programme_size(network)
    model = from_network(network[1], (3, 8, 8))
    assert found == {"states": 11_776, "variables": 11_776 + 192, "entries": model.A._nnz() + model.B._nnz()}


def test_examples_are_right_before_and_wrong_after(network, samples):
    u, y = samples
    made = {
        "sparse": attack(network, u, y, SparseBox(float("inf"), 30, clip=(0, 1)), "gradient").U_adv,
        "dense": attacks.linearised_programme(network, u, y, 0.2),
    }
    shown = attacks.examples(network, u, y, made, 3, ["sparse"])
    assert len(shown) == 3
    for one in shown:
        clean, sparse, dense = one["panels"]
        assert clean["predicted"] == one["label"] and one["label"] not in (sparse["predicted"], dense["predicted"])
        assert (
            not clean["marked"]
            and not dense["marked"]
            and 10 <= len(sparse["marked"]) <= 30
            and len(clean["image"]) == 2 * P
        )


def test_rankings_of_a_linear_network():
    linear = networks.flat(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (3, 2, 2))
    W = linear[1][1].weight.detach().abs().double().numpy()
    u, y = np.random.default_rng(0).random((4, 12)), np.array([0, 1, 2, 1])
    found = attacks.rankings(linear, u, y, W, W[::-1].copy(), (3, 2, 2))
    assert (
        np.allclose(found["sensitivity"], W[y])
        and np.allclose(found["label_gradient"], W[y], rtol=1e-6)
        and np.allclose(found["any_row"][2], W.mean(axis=0))
    )
    assert np.allclose(found["untrained"], W[::-1][y]) and np.ptp(found["disc"]) == 0
    images = Dataset(u, y, {0: (u, y)}, {})
    assert attacks.cross_entropy_gradient(linear, *images.test[0]).shape == u.shape
