"""Statements about exact matching, scaling and counting: closed forms and small networks."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.network.states import states
from reproduction.ch3_sim_fashion.matching import (
    counts,
    divided,
    exact_match,
    joint_difference,
    norm_ratio,
    random_agreement,
    scaling_effect,
    trivial_fit,
)
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(0).standard_normal((50, 10))


def test_exact_rows_run_as_the_network(inputs):
    found = states(MLP((10, 6, 4, 3), seed=0).double(), inputs[:8], dtype=torch.float64)
    match = exact_match(found)
    assert match["unsolved"] == 0 and match["row_norm"] <= 0.99 + 1e-5
    assert match["state"] < 1e-5 and match["output"] < 1e-5 and match["agree"] == 100


@pytest.mark.parametrize(("m", "trivial"), [(7, True), (11, True), (12, False), (50, False)])
def test_inputs_and_a_constant_explain_as_many_samples_as_they_are(inputs, m, trivial):
    found = states(MLP((10, 6, 4, 3), seed=0).double(), inputs[:m], dtype=torch.float64)
    fit = trivial_fit(found)
    assert fit["rank"] == min(m, 10) and fit["samples"] == m
    assert (fit["residual"] < 1e-10) == trivial


def test_the_division_by_hand():
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        network[0].weight[:] = torch.tensor([[1.0, -3.0], [0.5, 0.5]])
        network[2].weight[:] = torch.tensor([[1.0, 1.0]])
        network[0].bias[:] = 1.0
    small, factor = divided(network, gamma=1.25)
    assert (
        factor == 5
        and torch.equal(small[0].weight, network[0].weight / 5)
        and torch.equal(small[0].bias, network[0].bias)
    )
    assert torch.equal(network[2].weight, torch.ones(1, 2, dtype=torch.float64))


def test_without_biases_only_the_logits_shrink(inputs):
    effect = scaling_effect(MLP((10, 6, 4, 3), seed=0), inputs)
    assert effect["agree_bias_free"] == 100 and effect["depth"] == 3 and effect["largest"] == pytest.approx(1 / 1.01)
    assert effect["logit_ratio"] == pytest.approx(effect["factor"] ** 3, rel=1e-4)
    # a state of layer l shrinks by the factor's power l
    ratios = np.array(effect["norms"]) / effect["norms_before"]
    assert ratios == pytest.approx(effect["factor"] ** -np.arange(1.0, 3.0), rel=1e-4)


def test_biases_make_it_another_function():
    agreement = random_agreement(60, 0)
    assert agreement["bias_free"] == 100 and agreement["biased"] < 60
    assert agreement == random_agreement(60, 0)


def test_counts():
    few, many = counts(4, 5, 3, 6, 0), counts(4, 5, 3, 12, 0)
    assert (few["printed"], few["equations"], few["unknowns"], few["rank"]) == (54, 42, 63, 42)
    # more samples than columns: the rank is the number of unknowns
    assert many["rank"] == many["unknowns"] == 63 and (many["rank_UtU"], many["rank_UUt"]) == (5, 5)


def test_the_joint_problem_is_its_rows():
    assert joint_difference(1) < 1e-6


def test_norms():
    assert norm_ratio(0, vectors=50, dimension=1) == pytest.approx(1, abs=1e-12)
    assert norm_ratio(0, vectors=50, dimension=20) < 1
