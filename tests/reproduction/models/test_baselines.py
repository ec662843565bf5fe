"""Explicit baselines: closed forms, parameter counts, homogeneity, local initialisation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reproduction.models.decoders import DecoderOnly, SequenceTransformer
from reproduction.models.linear import Linear
from reproduction.models.mlp import ACTIVATIONS, MLP, PAPER_ACTIVATIONS
from reproduction.models.nalu import NALU, NALUCell
from reproduction.models.neural_ode import NeuralODE
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM
from reproduction.models.transformer import DepthwiseEncoder, EncoderDecoder, SequentialEncoder


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


# Values at (-2.5, -0.3, 0.4, 7) from the activations' definitions.
CLOSED_FORMS = {
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu6": lambda x: np.clip(x, 0, 6),
    "tanh": np.tanh,
    "tanhshrink": lambda x: x - np.tanh(x),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "leakyrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "relu": lambda x: np.maximum(x, 0),
    "prelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "multiprelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_mlp_is_the_composition_of_its_layers(name):
    model = MLP((4, 4, 2), name, skip=True, seed=0).double()
    u = torch.tensor([[-2.5, -0.3, 0.4, 7.0], [1.0, 2.0, -3.0, 0.1]], dtype=torch.float64)
    with torch.no_grad():
        first, last = model.layers[0], model.layers[2]
        first.weight.copy_(torch.eye(4))  # the hidden layer then sees u itself
        first.bias.zero_()
        hidden = torch.from_numpy(CLOSED_FORMS[name](u.numpy()))
        expected = hidden @ last.weight.T + last.bias + u @ model.skip.weight.T + model.skip.bias
        assert_close(model(u), expected, rtol=1e-6, atol=1e-6)


def test_the_fifteen_activations_and_the_one_beside_them():
    assert len(PAPER_ACTIVATIONS) == 15 and set(ACTIVATIONS) - set(PAPER_ACTIVATIONS) == {"log_sigmoid"}
    assert set(CLOSED_FORMS) == set(ACTIVATIONS)
    assert n_parameters(MLP((10, 7, 10), "multiprelu")) == n_parameters(MLP((10, 7, 10))) + 7


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((10, 10, 10), 220), ((10, 9, 9, 10), 289), ((50, 10, 10, 1), 631), ((50, 17, 17, 17, 1), 1497)],
)
def test_mlp_counts(sizes, count):
    assert n_parameters(MLP(sizes)) == count
    weights = sum(p * q for p, q in zip(sizes[:-1], sizes[1:]))
    assert n_parameters(MLP(sizes, bias=False)) == weights
    assert n_parameters(MLP(sizes, skip=True)) == count + sizes[0] * sizes[-1] + sizes[-1]


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 1e5), st.booleans(), st.integers(0, 1000))
def test_bias_free_relu_network_is_homogeneous(t, skip, seed):
    model = MLP((5, 8, 3), bias=False, skip=skip, seed=seed).double()
    u = normal(6, 5, seed=seed)
    assert_close(model(t * u), t * model(u), rtol=1e-10, atol=1e-12)


def test_biases_break_homogeneity():
    model, u = MLP((5, 8, 3), seed=0).double(), normal(6, 5)
    assert not torch.allclose(model(10 * u), 10 * model(u), rtol=0.01)


@pytest.mark.parametrize("bias", [False, True])
def test_fitted_linear_map_satisfies_the_normal_equations(bias):
    u, y = normal(200, 6, seed=1, dtype=torch.float32), normal(200, 2, seed=2, dtype=torch.float32)
    model = Linear.fitted(u, y, bias=bias)
    residual = (y - model(u)).double()
    assert_close(u.double().T @ residual, torch.zeros(6, 2, dtype=torch.float64), atol=1e-4, rtol=0)
    assert (residual.sum(0).abs().max() < 1e-4) == bias
    assert n_parameters(model) == 12 + 2 * bias


def test_nalu_cell_by_hand():
    cell = NALUCell(2, 1)
    with torch.no_grad():
        cell.w_hat.copy_(torch.tensor([[0.5, -1.0]]))
        cell.m_hat.copy_(torch.tensor([[2.0, 0.0]]))
        cell.gate.copy_(torch.tensor([[0.3, 0.1]]))
    x = (3.0, -4.0)
    w = (math.tanh(0.5) / (1 + math.exp(-2)), math.tanh(-1.0) / 2)
    additive = w[0] * x[0] + w[1] * x[1]
    product = (3 + 1e-7) ** w[0] * (4 + 1e-7) ** w[1]
    gate = 1 / (1 + math.exp(-(0.3 * 3 - 0.1 * 4)))
    assert cell(torch.tensor([x])).item() == pytest.approx(gate * additive + (1 - gate) * product, rel=1e-5)


def test_saturated_nalu_adds_exactly():
    cell = NALUCell(3, 1).double()
    with torch.no_grad():
        cell.w_hat.fill_(30.0)
        cell.m_hat.fill_(30.0)
        cell.gate.fill_(30.0)
    u = normal(5, 3).abs() + 1
    assert_close(cell(u), u.sum(1, keepdim=True), rtol=1e-9, atol=0)


def test_nalu_counts_and_finite_at_zero():
    assert n_parameters(NALU((50, 10, 10, 1))) == 1830 and n_parameters(NALU((50, 10, 1))) == 1530
    assert torch.isfinite(NALU((4, 3, 1), seed=0)(torch.zeros(2, 4))).all()


def layer_norm(x, norm):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias


def test_depthwise_encoder_is_a_residual_network_with_layer_norm():
    """With a single token the softmax is 1, so attention is two linear maps."""
    model = DepthwiseEncoder(6, 2, n_heads=3, width=9, seed=0).double().eval()
    u, layer = normal(4, 6), model.encoder
    attention = layer.self_attn
    value = u @ attention.in_proj_weight[12:].T + attention.in_proj_bias[12:]
    x = layer_norm(u + attention.out_proj(value), layer.norm1)
    x = layer_norm(x + layer.linear2(torch.relu(layer.linear1(x))), layer.norm2)
    assert_close(model(u), model.head(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_published_sequential_encoder_outputs_a_constant(training):
    """Layer normalisation over one feature returns its bias whatever it is given."""
    model = SequentialEncoder(50, seed=0).train(training)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(normal(*parameter.shape, seed=1, dtype=torch.float32))
        y = model(100 * normal(30, 50, dtype=torch.float32))
    assert_close(y, y[:1].expand_as(y), rtol=1e-5, atol=1e-5)
    expected = model.head.bias + model.encoder.norm2.bias * model.head.weight.sum()
    assert_close(y[0], expected, rtol=1e-4, atol=1e-4)


def test_sequential_encoder_normalised_first_is_affine_in_the_input():
    model = SequentialEncoder(7, width=16, norm_first=True, seed=0).double().eval()
    u = normal(5, 7)
    slope = model(u) - model(torch.zeros_like(u))
    assert_close(slope, u @ model.head.weight.T, rtol=1e-9, atol=1e-9)


def test_transformer_counts():
    assert n_parameters(DepthwiseEncoder(10)) == 43_498
    assert n_parameters(DepthwiseEncoder(50, 1)) == 217_349
    assert n_parameters(DepthwiseEncoder(50, 1, width=500)) == 61_001
    assert n_parameters(SequentialEncoder(50)) == 6_208
    assert n_parameters(EncoderDecoder(10, 2, width=10, expand=1)) == 1_920


def test_causal_encoder_decoder_hides_the_future():
    sequence = normal(2, 6, 1, dtype=torch.float32)
    changed = sequence.clone()
    changed[:, 4:] += 1
    for causal in (True, False):
        model = EncoderDecoder(8, 2, width=12, expand=1, causal=causal, seed=0).eval()
        with torch.no_grad():
            difference = (model(sequence) - model(changed)).abs().amax(dim=(0, 2))
        assert (difference[:4].max() < 1e-6) == causal and difference[4:].min() > 1e-3


MAKERS = [
    lambda seed: Linear(4, 3, bias=True, seed=seed),
    lambda seed: MLP((4, 5, 3), seed=seed),
    lambda seed: NALU((4, 5, 3), seed=seed),
    lambda seed: DepthwiseEncoder(4, 2, width=8, seed=seed),
    lambda seed: SequentialEncoder(4, width=8, seed=seed),
    lambda seed: EncoderDecoder(4, 2, width=8, seed=seed),
    lambda seed: SequenceTransformer(4, 2, width=6, out_features=1, seed=seed),
    lambda seed: DecoderOnly(4, 2, seed=seed),
    lambda seed: SequenceLSTM(4, 1, seed=seed),
    lambda seed: SequenceImplicitRNN(4, 3, 1, seed=seed),
    lambda seed: NeuralODE(4, 3, 5, seed=seed),
]


@pytest.mark.parametrize("make", MAKERS)
def test_seed_decides_the_weights_and_the_global_state_is_untouched(make):
    before = torch.get_rng_state()
    one, same, other = make(3).state_dict(), make(3).state_dict(), make(4).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MLP((10, 10), "gelu"), "got 'gelu'"),
        (lambda: MLP((10,)), r"got \(10,\)"),
        (lambda: MLP((10, 0, 10)), r"got \(10, 0, 10\)"),
        (lambda: DepthwiseEncoder(10, n_heads=3), "n_heads must divide d_model = 10, got 3"),
        (lambda: EncoderDecoder(10, 0), "n_heads must divide d_model = 10, got 0"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
