"""Sequence transformers: positions by their formula, what a mask hides, what the given labels give away, counts."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from reproduction.core.scores import count_parameters
from reproduction.models.decoders import (
    START,
    DecoderOnly,
    SequenceTransformer,
    decoded,
    positional_encoding,
    with_previous_labels,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def argmax_sequences(n, length, seed=0):
    u = torch.rand(n, length, generator=torch.Generator().manual_seed(seed))
    return u, torch.tensor([[int(np.argmax(row[: j + 1])) for j in range(length)] for row in u.numpy()])


@pytest.mark.parametrize("d_model", [6, 7])
def test_positions_by_their_formula(d_model):
    encoding = positional_encoding(5, d_model)
    for t in range(5):
        for k in range(d_model):
            angle = t / 10_000 ** ((k - k % 2) / d_model)
            assert float(encoding[t, k]) == pytest.approx(math.cos(angle) if k % 2 else math.sin(angle), abs=1e-6)


def test_previous_labels_are_shifted_by_one_step():
    u, labels = argmax_sequences(4, 6)
    both = with_previous_labels(u, labels)
    assert_close(both[..., 0], u)
    assert (both[:, 0, 1] == START).all() and torch.equal(both[:, 1:, 1].long(), labels[:, :-1])


def test_counts_of_the_tables():
    assert count_parameters(SequenceTransformer(10, 2, width=10)) == 1_920
    assert count_parameters(SequenceTransformer(10, 5, width=10, out_features=1)) == 1_920 + 11
    assert count_parameters(DecoderOnly(10, 2)) == count_parameters(DecoderOnly(10, 10)) == 43_529


def changes(model, sequence, at):
    """Largest change of each step's output when the inputs from step `at` on are changed."""
    model.eval()
    other = sequence.clone()
    other[:, at:] += 1
    with torch.no_grad():
        return (model(sequence) - model(other)).abs().amax(dim=(0, 2))


@pytest.mark.parametrize(
    ("model", "masked"),
    [
        (SequenceTransformer(8, 2, width=12, seed=0), True),
        (SequenceTransformer(8, 2, width=12, masked=False, seed=0), False),
        (DecoderOnly(8, 2, 3, width=12, output="every", seed=0), True),
    ],
)
def test_a_mask_hides_the_future(model, masked):
    difference = changes(model, normal(3, 6), 4)
    assert (difference[:4].max() < 1e-6) == masked and difference[4:].min() > 1e-4


def test_without_positions_and_mask_the_order_is_not_seen():
    order = [3, 0, 2, 1]
    for positions in (False, True):
        model = SequenceTransformer(8, 2, width=12, masked=False, positions=positions, seed=0).eval()
        sequence = normal(2, 4)
        with torch.no_grad():
            permuted = torch.allclose(model(sequence[:, order]), model(sequence)[:, order], atol=1e-5)
        assert permuted != positions


def label_changes(masked):
    u, labels = argmax_sequences(6, 8)
    model = SequenceTransformer(8, 2, width=12, decoder="labels", masked=masked, seed=0).eval()
    other = labels.clone()
    other[:, 5] = (other[:, 5] + 1) % 8
    with torch.no_grad():
        return (model(with_previous_labels(u, labels)) - model(with_previous_labels(u, other))).abs().amax(dim=(0, 2))


def test_the_label_of_a_step_is_seen_by_later_steps_and_unmasked_by_its_own():
    """The target leak: unmasked, the answer of every step but the last stands in the decoder's input at the next
    position."""
    masked, unmasked = label_changes(True), label_changes(False)
    assert masked[:6].max() < 1e-6 < 1e-3 < masked[6:].min()
    assert unmasked.min() > 1e-3


@pytest.mark.parametrize("masked", [True, False])
def test_the_last_label_is_never_given(masked):
    u, labels = argmax_sequences(6, 8)
    model = SequenceTransformer(8, 2, width=12, decoder="labels", masked=masked, seed=0).eval()
    other = labels.clone()
    other[:, -1] = (other[:, -1] + 1) % 8
    with torch.no_grad():
        assert_close(model(with_previous_labels(u, labels)), model(with_previous_labels(u, other)))


def test_leak_free_decoder_takes_no_labels():
    u, labels = argmax_sequences(3, 8)
    model = SequenceTransformer(8, 2, width=12, seed=0)
    assert model(u).shape == (3, 8, 8)
    with pytest.raises(ValueError, match=r"\(N, T, 1\), got \(3, 8, 2\)"):
        model(with_previous_labels(u, labels))


def test_decoded_feeds_the_model_its_own_answers():
    u, _ = argmax_sequences(5, 6)
    model = SequenceTransformer(6, 2, width=8, decoder="labels", output="every_class", seed=3)
    labels = decoded(model, u)
    assert model.training and labels.shape == (5, 6)
    with torch.no_grad():  # a fixed point: given these labels, the model answers them
        assert torch.equal(model.eval()(with_previous_labels(u, labels)).argmax(dim=1), labels)
    with pytest.raises(ValueError, match="'inputs'"):
        decoded(SequenceTransformer(6, 2, width=8, output="every_class"), u)


@pytest.mark.parametrize(
    "model", [SequenceTransformer(4, 2, width=6, output="last", seed=0), DecoderOnly(4, 2, 3, width=6, seed=0)]
)
def test_single_steps_and_constant_sequences(model):
    model.eval()
    assert torch.isfinite(model(torch.zeros(2, 1))).all()
    y = model(torch.full((3, 5), 2.0))
    assert_close(y, y[:1].expand_as(y))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SequenceTransformer(8, 3, width=4), "n_heads must divide d_model = 8, got 3"),
        (lambda: SequenceTransformer(8, 2, width=4, decoder="target"), "got 'target'"),
        (lambda: SequenceTransformer(8, 2, width=4, output="first"), "got 'first'"),
        (lambda: DecoderOnly(8, 2, output="first"), "got 'first'"),
        (lambda: with_previous_labels(torch.zeros(2, 3), torch.zeros(2, 4)), r"inputs \(2, 3\) and labels \(2, 4\)"),
        (
            lambda: SequenceTransformer(4, 2, width=4, decoder="labels")(torch.full((1, 2, 2), 4.0)),
            "label 4 is neither a class below 4",
        ),
        (
            lambda: SequenceTransformer(4, 2, width=4)([torch.zeros(3), torch.zeros(5)]),
            "sequence 1 has 5 steps, sequence 0 has 3",
        ),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
