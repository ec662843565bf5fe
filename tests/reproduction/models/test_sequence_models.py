"""Recurrent networks with a head: recursion by hand, counts of the tables, homogeneity, lengths."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reproduction.core.recipe import Recipe
from reproduction.core.scores import count_parameters
from reproduction.core.train import train
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM, as_sequences


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_implicit_rnn_is_the_recursion_of_its_equilibria():
    model = SequenceImplicitRNN(6, 4, 3, output="every", seed=1, tol=1e-13).double()
    S, A, B, C, D = normal(5, 7), *(getattr(model.core.cell, name) for name in "ABCD")
    h, outputs = torch.zeros(5, 4, dtype=torch.float64), []
    for t in range(7):
        u, x = torch.cat([S[:, t : t + 1], h], dim=1), torch.zeros(5, 6, dtype=torch.float64)
        for _ in range(2000):  # Picard, |A| <= .95
            x = torch.relu(x @ A.T + u @ B.T)
        h = x @ C.T + u @ D.T
        outputs.append(h @ model.head.weight.T + model.head.bias)
    assert_close(model(S), torch.stack(outputs, dim=1), rtol=1e-9, atol=1e-10)


def test_lstm_is_the_gated_recursion():
    model = SequenceLSTM(3, 1, output="every", seed=0).double()
    S, core = normal(4, 5), model.core
    h = c = torch.zeros(4, 3, dtype=torch.float64)
    for t in range(5):
        gates = S[:, t : t + 1] @ core.weight_ih_l0.T + core.bias_ih_l0 + h @ core.weight_hh_l0.T + core.bias_hh_l0
        i, f, g, o = gates.split(3, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        assert_close(model(S)[:, t], model.head(h)[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (SequenceLSTM(19, 10), 1872),
        (SequenceLSTM(20, 1), 1861),
        (SequenceLSTM(100, 1), 41_301),
        (SequenceLSTM(100, 10), 42_210),
        (SequenceImplicitRNN(18, 22, 10), 1870),
        (SequenceImplicitRNN(20, 20, 1), 1661),
        (SequenceImplicitRNN(21, 22, 10, head_bias=False), 21 * 21 + 2 * 21 * 22 + 21 + 22 * 23 + 220),
    ],
)
def test_counts_of_the_tables(model, count):
    assert count_parameters(model) == count


@pytest.mark.parametrize(
    "make", [lambda **o: SequenceLSTM(4, 3, seed=2, **o), lambda **o: SequenceImplicitRNN(5, 4, 3, seed=2, **o)]
)
def test_layouts_hold_the_same_numbers(make):
    S = normal(6, 8).float()
    every = make(output="every")(S)
    assert every.shape == (6, 8, 3)
    assert_close(make(output="every_class")(S), every.transpose(1, 2))
    assert_close(make(output="last")(S), every[:, -1])
    assert_close(make(output="last")(S.unsqueeze(2)), every[:, -1])
    assert_close(make(output="last")(list(S)), every[:, -1])


def test_one_output_a_step_has_the_shape_of_its_targets():
    assert SequenceLSTM(4, 1, output="every")(torch.zeros(3, 5)).shape == (3, 5)
    assert SequenceLSTM(4, 1)(torch.zeros(3, 5)).shape == (3, 1)


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1e5), st.integers(0, 100))
def test_implicit_rnn_without_biases_is_homogeneous(t, seed):
    model = SequenceImplicitRNN(6, 5, 3, output="every", head_bias=False, seed=seed, kappa=0.8, tol=1e-12).double()
    S = normal(4, 6, seed=seed)
    assert_close(model(t * S), t * model(S), rtol=1e-7, atol=1e-9 * max(t, 1))


def test_outputs_depend_on_the_past_only():
    S, changed = normal(2, 6).float(), normal(2, 6).float()
    changed[:, 4:] += 1
    for model in (SequenceLSTM(4, 1, output="every", seed=0), SequenceImplicitRNN(5, 4, 1, output="every", seed=0)):
        difference = (model(S) - model(changed)).abs().amax(dim=0)
        assert difference[:4].max() < 1e-6 < 1e-4 < difference[4:].min()


@pytest.mark.parametrize(
    "make",
    [lambda: SequenceLSTM(6, 1, output="every", seed=0), lambda: SequenceImplicitRNN(5, 5, 1, output="every", seed=0)],
)
@pytest.mark.parametrize("length", [1, 4])
def test_learns_constant_sequences_of_any_length(make, length):
    """Each sequence repeats one number, which is the target of every step."""
    u = torch.linspace(-1, 1, 200).unsqueeze(1).expand(200, length).contiguous()
    model = make()
    history = train(model, u, u, recipe=Recipe(epochs=60, batch_size=50), seed=0, progress=False)
    assert history.loss[-1] < 0.01 < 0.1 < history.loss[0]


def test_the_equilibria_are_projected_in_training():
    model = SequenceImplicitRNN(5, 5, 1, kappa=0.3, seed=0)
    train(
        model,
        normal(100, 4).float(),
        normal(100, 1, seed=1).float(),
        recipe=Recipe(epochs=3, lr=0.1),
        seed=0,
        progress=False,
    )
    assert model.core.cell.A.abs().sum(1).max() <= 0.3 + 1e-6


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: as_sequences([torch.zeros(5), torch.zeros(5), torch.zeros(7)]),
            ValueError,
            "sequence 2 has 7 steps, sequence 0 has 5",
        ),
        (lambda: as_sequences(torch.zeros(3, 0)), ValueError, "no step"),
        (lambda: as_sequences(torch.zeros(3, 4, 2)), ValueError, r"\(N, T, 1\), got \(3, 4, 2\)"),
        (lambda: as_sequences([[1.0, 2.0]]), TypeError, "list of tensors, got list"),
        (lambda: SequenceLSTM(4, 1, output="first"), ValueError, "got 'first'"),
        (lambda: SequenceLSTM(4, 1)(torch.zeros(3)), ValueError, r"got \(3,\)"),
    ],
)
def test_bad_values_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
