"""A torch network is checked wherever it is read: its weights are finite, all in single or all in double precision."""

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.compose import from_network
from implicit_models.robustness import attack, sensitivity_matrix
from implicit_models.robustness.attacks.gradient import input_gradient
from implicit_models.sim import Cardinality, sparsify, states
from implicit_models.sim.network.layers import read_layers

U, Y = torch.rand(12, 4, generator=torch.Generator().manual_seed(0)), np.zeros(12, dtype=int)
ENTRANCES = {
    "states": lambda network: states(network, U),
    "read_layers": lambda network: read_layers(network, (4,)),
    "sparsify": lambda network: sparsify(network, U, Cardinality(0.5)),
    "sensitivity_matrix": sensitivity_matrix,
    "attack": lambda network: attack(network, U, Y, 0.1, "fgsm"),
    "input_gradient": lambda network: input_gradient(network, U.double().numpy(), Y),
    "from_network": from_network,
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(entrance, value):
    broken = network()
    with torch.no_grad():
        broken[2].weight[1, :2] = value
    with pytest.raises(ValueError, match=r"^2\.weight has values that are not finite: 2 of 15"):
        ENTRANCES[entrance](broken)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_by_name(entrance, half):
    with pytest.raises(TypeError, match=rf"^0\.weight is {half}: half precision is too coarse.*network\.float\(\)"):
        ENTRANCES[entrance](network().to(half))


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_mixed_dtypes_are_refused_by_name(entrance):
    mixed = network()
    mixed[2].double()
    with pytest.raises(TypeError, match=r"^2\.weight is torch\.float64, but 0\.weight is torch\.float32"):
        ENTRANCES[entrance](mixed)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_sound_network_passes_and_keeps_its_modes(entrance):
    sound = network()
    assert ENTRANCES[entrance](sound) is not None and not sound.training
