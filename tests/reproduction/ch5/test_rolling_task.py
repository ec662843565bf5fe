"""The rolling tasks: counts, labels that are given, accuracy at the last step by hand, which seed trains what."""

import numpy as np
import pytest
import torch

from reproduction.ch5_rolling_argmax.study import (
    AccuracyStudy,
    accuracy_by_step,
    changed_by_scaling,
    given_label_facts,
    last_step_accuracy,
    recursion_difference,
    run_accuracy_study,
)
from reproduction.ch5_rolling_average import task as rolling
from reproduction.core.recipe import Recipe
from reproduction.core.scores import count_parameters
from reproduction.core.train import evaluate
from reproduction.models.decoders import SequenceTransformer
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP
from reproduction.models.sequence import SequenceImplicitRNN


def implicit(n, p, q):
    return n * n + n * p + q * n + q * p


def lstm(hidden, out):
    return 4 * (hidden + hidden**2 + 2 * hidden) + hidden * out + out


# 43,498 and 1,920 are printed; the others by formulas.
AVERAGE_COUNTS = {
    "implicit": 1764,
    "implicit_no_skip": 1664,
    "implicit_strict_upper": 1764,
    "implicit_report": 44_100,
    "implicit_rnn": implicit(21, 23, 22) + 22,
    "lstm": lstm(18, 1),
    "lstm_report": 41_301,
    "linear": 100,
    "mlp": 80 * 21 + 10,
    "mlp_bias_free": 1600,
    "mlp_skip": 80 * 21 + 120,
    "transformer_encoder_decoder": 1_920 + 11,
    "transformer_report": 43_498,
    "neural_ode": 78 * 21 + 120,
    "neural_ode_bias_free": 78 * 20 + 100,
}
ARGMAX_COUNTS = {
    "implicit": 2116,
    "implicit_no_skip": 2016,
    "implicit_strict_upper": 2116,
    "implicit_rnn": implicit(21, 23, 22) + 220,
    "implicit_rnn_bias": implicit(21, 23, 22) + 230,
    "implicit_rnn_every": implicit(21, 23, 22) + 220,
    "lstm": 2236,
    "lstm_every": 2236,
    "linear": 100,
    "mlp": 2110,
    "mlp_bias_free": 2000,
    "mlp_skip": 2220,
    "transformer_masked": 1920,
    "transformer_unmasked": 1920,
    "transformer_no_pe": 1920,
    "transformer_leak_free": 1920,
    "neural_ode": 95 * 21 + 120,
    "neural_ode_bias_free": 95 * 20 + 100,
}


@pytest.mark.parametrize(
    ("models_of", "counts"), [(rolling.average_models, AVERAGE_COUNTS), (rolling.argmax_models, ARGMAX_COUNTS)]
)
def test_models_are_named_counted_and_seeded(models_of, counts):
    models = models_of(3)
    assert {name: count_parameters(build()) for name, (build, _) in models.items()} == counts
    for name, (build, recipe) in models.items():
        assert isinstance(recipe, Recipe) and name in rolling.LABELS
        one, same, other = build(), build(), models_of(4)[name][0]()
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters()))
        assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


def test_every_model_takes_its_data():
    average = rolling.average_data(0, "quick", [0.0])
    for name, (build, _) in rolling.average_models(0, "quick").items():
        model = build().eval()
        assert np.isfinite(evaluate(model, {0: (average.u_train[:7], average.y_train[:7])})[0]), name
    for name, (build, _) in rolling.argmax_models(0, "quick").items():
        data = rolling.argmax_data_of(name, 0, "quick", [1.0])
        with torch.no_grad():
            scores = build().eval()(torch.as_tensor(data.u_train[:7]))
        assert scores.shape == ((7, 10, 10) if data.y_train.ndim == 2 else (7, 10)), name


def test_given_labels_are_those_of_the_step_before():
    plain = rolling.argmax_data(1, "quick", [1.0, 10.0], labels="every")
    given = rolling.argmax_data(1, "quick", [1.0, 10.0], given=True)
    for (u, y), (both, last) in (
        (plain.test[10.0], given.test[10.0]),
        ((plain.u_train, plain.y_train), (given.u_train, given.y_train)),
    ):
        np.testing.assert_array_equal(both[..., 0], u)
        np.testing.assert_array_equal(both[:, 1:, 1], y[:, :-1])
        np.testing.assert_array_equal(last, [int(np.argmax(row)) for row in u])
    assert both.dtype == np.float32 and last.dtype == np.int64


def test_longer_sequences():
    data = rolling.argmax_data(0, "quick", [1.0], length=25)
    assert data.u_train.shape[1] == 25 and data.y_train.max() == 24
    assert rolling.argmax_data(0, "quick", [1.0], length=1).y_train.max() == 0


def test_accuracy_counts_the_last_step_only():
    scores = torch.zeros(4, 3, 2)
    scores[:, :, 0] = torch.tensor([9.0, 0, 0])
    scores[[0, 1, 2, 3], [0, 1, 2, 2], 1] = 1
    labels = np.array([[0, 0], [0, 1], [0, 1], [0, 2]])
    assert last_step_accuracy(scores, labels) == last_step_accuracy(scores[..., 1], labels[:, 1]) == 0.75


def test_slow_models_are_trained_for_the_first_seeds_only():
    models = rolling.argmax_models(0)
    assert set(rolling.of_seed(models, 2, [0, 1, 2, 3, 4], "full")) == set(models)
    fast = set(rolling.of_seed(models, 3, [0, 1, 2, 3, 4], "full"))
    assert (
        set(models) - fast == set(rolling.FEWER_SEEDS) & set(models)
        and "implicit" in fast
        and "implicit_rnn" not in fast
    )


def small_study(names, epochs=10, **options):
    return run_accuracy_study(
        "test",
        lambda name, seed: rolling.argmax_data_of(name, seed, "quick", [1.0, 100.0]),
        lambda seed: {
            name: (rolling.argmax_models(seed, "quick")[name][0], Recipe(epochs=epochs, loss="cross_entropy"))
            for name in names
        },
        [0],
        **options,
    )


def test_study_is_homogeneous_where_the_model_is():
    study = small_study(["implicit", "linear", "mlp_bias_free", "lstm_every"], evaluate_epochs=["linear"])
    assert isinstance(study, AccuracyStudy) and study.scales == [1.0, 100.0]
    for name in ("implicit", "linear", "mlp_bias_free"):
        model, (u, y) = study.models[name][0], rolling.argmax_data(0, "quick", [1.0]).test[1.0]
        with torch.no_grad():
            one, many = (model.double()(torch.as_tensor(u).double() * t) for t in (1.0, 1e5))
        assert last_step_accuracy(one, y) == last_step_accuracy(many, y) > 0.3  # chance is .1
    assert len(study.histories["linear"][0].evaluation) == 10 and not study.histories["implicit"][0].evaluation
    assert study.histories["linear"][0].evaluation[-1] == study.accuracies["linear"][0]
    assert study.at("linear", 100.0) == [study.accuracies["linear"][0][1]] and study.cpu_seconds > 0
    with pytest.raises(KeyError, match="shift 7.0 was not tested"):
        study.at("linear", 7.0)


def test_copying_the_given_label_scores_nine_tenths():
    """The label before the last is right unless the last number is the largest, which happens once in T."""
    data = rolling.argmax_data(0, "full", [1.0], given=True)
    assert (data.u_train[:, -1, 1] == data.y_train).mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 10_000))


@pytest.mark.parametrize(
    "call", [lambda: rolling.settings("fast"), lambda: rolling.argmax_data(0, "quick", labels="first")]
)
def test_bad_values_are_named(call):
    with pytest.raises(ValueError, match="'fast'|'first'"):
        call()


class Copies(torch.nn.Module):
    """Answers the label given at each step."""

    decoder, output = "labels", "every_class"

    def forward(self, u):
        return torch.nn.functional.one_hot(u[..., 1].long().clamp(min=0), 10).transpose(1, 2).to(u.dtype)


def test_a_copying_model_is_seen_through():
    data = rolling.argmax_data(2, "quick", [1.0], labels="every", given=True)
    u, labels = data.test[1.0]
    facts = given_label_facts(Copies(), u, labels)
    assert facts["copied"] == 1 and facts["given"] == (labels[:, -2] == labels[:, -1]).mean()
    # Alone it repeats its first answer, 0, right where the first number is the largest.
    assert facts["alone"] == (labels[:, -1] == 0).mean()
    by_step = accuracy_by_step(Copies(), u, labels)
    assert by_step[0] == 1 and by_step[4] == pytest.approx((labels[:, 3] == labels[:, 4]).mean())


def test_scaling_changes_labels_of_models_with_biases_only():
    u = rolling.argmax_data(0, "quick", [1.0]).test[1.0][0]
    assert changed_by_scaling(Linear(10, 10, seed=0), u, 1e4) == 0
    assert (
        changed_by_scaling(
            SequenceImplicitRNN(5, 6, 10, head_bias=False, output="every_class", seed=0, kappa=0.8), u, 1e4
        )
        == 0
    )
    assert changed_by_scaling(MLP((10, 20, 10), seed=0), u, 1e4) > 0.05
    assert changed_by_scaling(SequenceTransformer(10, 2, width=10, output="every_class", seed=0), u, 1e4) > 0.05


def test_recursion_by_hand_agrees_and_a_wrong_one_does_not():
    model, u = SequenceImplicitRNN(6, 5, 3, seed=1, kappa=0.8), rolling.argmax_data(0, "quick", [1.0]).test[1.0][0][:20]
    assert recursion_difference(model, u) < 1e-5
    assert recursion_difference(model, u, sweeps=1) > 1e-3
