"""The residual MLP locator: printed size, the residual block, the skip, and states that an implicit model
reproduces."""

import numpy as np
import pytest
import torch

from implicit_models.sim.network.states import states
from reproduction.core.scores import count_parameters
from reproduction.models.eikonet import WIDTHS, EikoNet
from reproduction.models.eikonet_bias_free import BiasFreeEikoNet


def test_size_is_the_printed_one_for_thirty_inputs():
    # W and b of six layers: sum of (a + 1) b over 30-32-128-128-128-32-4
    assert count_parameters(EikoNet(30, 4)) == 31 * 32 + 33 * 128 + 2 * 129 * 128 + 129 * 32 + 33 * 4 == 42_500
    assert count_parameters(EikoNet(270, 4)) == 50_180
    assert count_parameters(EikoNet(30, 4, skip=True)) == 42_500 + 120


def test_forward_is_the_formula_with_one_residual_block():
    model = EikoNet(5, 3, widths=(4, 6, 6, 6, 2), skip=True, seed=3).double()
    u = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    W = [(layer.weight, layer.bias) for layer in model.layers]
    h = torch.clamp(u @ W[0][0].T + W[0][1], min=0)
    h = torch.clamp(h @ W[1][0].T + W[1][1], min=0)
    inner = torch.clamp(h @ W[2][0].T + W[2][1], min=0)
    h = torch.clamp(h + inner @ W[3][0].T + W[3][1], min=0)
    h = torch.clamp(h @ W[4][0].T + W[4][1], min=0)
    wanted = h @ W[5][0].T + W[5][1] + u @ model.skip.weight.T
    torch.testing.assert_close(model(u), wanted)


def test_without_the_block_the_output_is_another():
    model = EikoNet(seed=0)
    u = torch.randn(4, 30, generator=torch.Generator().manual_seed(1))
    before = model(u)
    with torch.no_grad():
        model.layers[3].weight.zero_()
        model.layers[3].bias.zero_()
    first, second, *_, last, head = model.layers
    plain = head(torch.relu(last(torch.relu(second(torch.relu(first(u)))))))
    torch.testing.assert_close(model(u), plain)
    assert (before - plain).abs().max() > 1e-3


def test_seed_decides_the_weights_and_leaves_the_global_state():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (EikoNet(seed=seed).layers[0].weight for seed in (1, 1, 2))
    torch.testing.assert_close(torch.rand(3), wanted)
    assert torch.equal(one, two) and not torch.equal(one, other)


@pytest.mark.parametrize("widths", [(32, 128, 128, 32), (32, 128, 64, 128, 32), (32, 0, 0, 0, 32)])
def test_widths_without_a_block_are_refused(widths):
    with pytest.raises(ValueError, match="five positive numbers"):
        EikoNet(widths=widths)


def test_its_states_are_those_of_the_printed_elimination_problem():
    """448 states: 270 + 448 = 718 features, and 270 + 10 x 448 = 4,750 for the net ten times wider."""
    u = np.random.default_rng(0).uniform(-1, 1, (6, 270)).astype(np.float32)
    model = EikoNet(270, 4, seed=0).eval()
    found = states(model, u)
    assert found.n_states == sum(WIDTHS) == 448 and 270 + found.n_states == 718 and 270 + 10 * found.n_states == 4750
    # the read-out applied to the last block is the network's output
    head = model.layers[5]
    top = torch.as_tensor(found.X[:, : WIDTHS[-1]]).float()
    torch.testing.assert_close(head(top), model(torch.as_tensor(u)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("skip, parameters", [(False, 42_500 - 452), (True, 42_500 - 452 + 120)])
def test_without_biases_it_is_homogeneous_and_smaller_by_them(skip, parameters):
    model = BiasFreeEikoNet(30, 4, skip=skip, seed=2).double()
    assert count_parameters(model) == parameters  # 32 + 3 x 128 + 32 + 4 biases
    u = torch.randn(9, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model(37.0 * u), 37.0 * model(u))
    with_biases = EikoNet(30, 4, skip=skip, seed=2).double()
    assert (with_biases(37.0 * u) - 37.0 * with_biases(u)).abs().max() > 1e-2
    assert torch.equal(with_biases.layers[2].weight, model.layers[2].weight)
