"""The rolling tasks: the average, and the index of the maximum, of what a sequence of ten numbers has shown so far.

Figures 5.7 and 5.8 of the thesis, with the controls that explain them. Models on vectors read the whole sequence at
once, recurrent ones a number a step. The average is asked of every step, the argmax of the last one, on which the
papers score it; `_every` names the models that are taught the argmax of every step. Sizes are those of the
extrapolation paper, and of the report where a name says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.rolling import ARGMAX_SCALES, AVERAGE_SHIFTS, rolling_argmax, rolling_average
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.models.decoders import SequenceTransformer, with_previous_labels
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP
from reproduction.models.neural_ode import NeuralODE
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM
from reproduction.models.transformer import DepthwiseEncoder

LENGTH, LONG_LENGTH = 10, 20
AVERAGE_STATES, REPORT_STATES = 32, 200
ARGMAX_STATES = 36
KAPPA = 0.95
LINEAR_LR = 0.05
# Recurrent networks train on clipped gradients and smaller first steps than models on vectors.
RECURRENT = {"lr": 0.01, "clip": 1.0}
TRANSFORMER_LR = 0.005
# Of .002, .005, .01 and .03 the one with the lowest error in distribution, as the grid of `make search` chooses.
ENCODER_LR = 0.03
ODE_STEPS = 2
Model = tuple[Callable[[], nn.Module], Recipe]

# In the full profile every model takes the same number of updates; "recurrent_epochs" and "slow_epochs" (transformers,
# the sizes of the report) are there for the quick one, in which some would take most of the time.
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "sequence_seeds": 1,
        "n_train": 2_000,
        "n_test": 500,
        "shifts": (0.0, 10.0, 50.0, 100.0),
        "scales": (1.0, 10.0, 100.0, 1e5),
        "epochs": 30,
        "recurrent_epochs": 20,
        "slow_epochs": 7,
        "long_epochs": 6,
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "sequence_seeds": 3,
        "n_train": 10_000,
        "n_test": 3_000,
        "shifts": AVERAGE_SHIFTS,
        "scales": ARGMAX_SCALES,
        "epochs": 50,
        "recurrent_epochs": 50,
        "slow_epochs": 50,
        "long_epochs": 25,
    },
}

LABELS = {
    "implicit": "implicit",
    "implicit_no_skip": "implicit without D",
    "implicit_strict_upper": "implicit, A strictly triangular",
    "implicit_report": "implicit, n = 200 (report)",
    "implicit_rnn": "implicitRNN",
    "implicit_rnn_every": "implicitRNN, every step taught",
    "implicit_rnn_bias": "implicitRNN, head with bias",
    "lstm": "LSTM",
    "lstm_every": "LSTM, every step taught",
    "lstm_report": "LSTM 100 (report)",
    "linear": "linear",
    "mlp": "MLP",
    "mlp_bias_free": "MLP without biases",
    "mlp_skip": "MLP with linear skip",
    "transformer_encoder_decoder": "Transformer encoder-decoder",
    "transformer_report": "Transformer encoder (report)",
    "transformer_masked": "Transformer, masked, labels given",
    "transformer_unmasked": "Transformer, unmasked, labels given",
    "transformer_no_pe": "Transformer, unmasked without positions, labels given",
    "transformer_leak_free": "Transformer, no labels given",
    "neural_ode": "neural ODE",
    "neural_ode_bias_free": "neural ODE, ReLU, no biases",
}
# Models that read a sequence step by step or token by token, neural ODEs and the report's 200 states: slower, so fewer
# seeds.
FEWER_SEEDS = tuple(
    name
    for name in LABELS
    if name.split("_")[0] in ("lstm", "transformer", "neural") or name.startswith(("implicit_rnn", "implicit_report"))
)
# Models whose input holds the previous labels beside each number.
LABELS_GIVEN = ("transformer_masked", "transformer_unmasked", "transformer_no_pe")


settings = settings_of(PROFILES)  # seeds, sizes, shifts, scales and epochs of a profile


def of_seed(models: Mapping[str, Model], seed: int, seeds: Sequence[int], profile: str) -> dict[str, Model]:
    """The models that a seed trains: all of them for the first `sequence_seeds` of `seeds`, for the others those that
    are not in `FEWER_SEEDS`."""
    if seed in list(seeds)[: settings(profile)["sequence_seeds"]]:
        return dict(models)
    return {name: model for name, model in models.items() if name not in FEWER_SEEDS}


def average_data(seed: int, profile: str = "full", shifts: Sequence[float] | None = None) -> Dataset:
    """Rolling average of one seed, u and y (N, 10); `shifts` replaces the profile's."""
    chosen = settings(profile)
    return rolling_average(
        chosen["n_train"], chosen["n_test"], LENGTH, shifts=chosen["shifts"] if shifts is None else shifts, seed=seed
    )


def argmax_data(
    seed: int,
    profile: str = "full",
    scales: Sequence[float] | None = None,
    *,
    labels: Literal["last", "every"] = "last",
    given: bool = False,
    length: int = LENGTH,
) -> Dataset:
    """Rolling argmax of one seed.

    Args:
        seed, profile: of the data.
        scales: replaces the profile's.
        labels: "last" gives y (N,), the label of the last step; "every" y (N, T).
        given: u (N, T, 2) holds each number beside the label of the step before (see `with_previous_labels`), else u is
            (N, T).
        length: T.
    """
    if labels not in ("last", "every"):
        raise ValueError(f"labels must be 'last' or 'every', got {labels!r}")
    chosen = settings(profile)
    data = rolling_argmax(
        chosen["n_train"], chosen["n_test"], length, chosen["scales"] if scales is None else scales, seed=seed
    )

    def arranged(u, y):
        return (with_previous_labels(u, y).numpy() if given else u), (y[:, -1].copy() if labels == "last" else y)

    u_train, y_train = arranged(data.u_train, data.y_train)
    test = {scale: arranged(*pair) for scale, pair in data.test.items()}
    return dataclasses.replace(data, u_train=u_train, y_train=y_train, test=test)


def average_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Name -> (constructor, recipe) of the rolling average: the papers' models and the controls.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    from implicit_models.model import ImplicitModel

    chosen = settings(profile)
    recipe, ode = Recipe(epochs=chosen["epochs"]), Recipe(epochs=chosen["recurrent_epochs"])
    recurrent = Recipe(epochs=chosen["recurrent_epochs"], **RECURRENT)

    def implicit(n_states: int = AVERAGE_STATES, **options) -> Callable[[], nn.Module]:
        return lambda: ImplicitModel(LENGTH, LENGTH, n_states, kappa=KAPPA, seed=seed, **options)

    return {
        "implicit": (implicit(), recipe),
        "implicit_no_skip": (implicit(skip=False), recipe),
        "implicit_strict_upper": (implicit(feedback="strict_upper"), recipe),
        "implicit_report": (implicit(REPORT_STATES), Recipe(epochs=chosen["slow_epochs"])),
        "implicit_rnn": (
            lambda: SequenceImplicitRNN(21, 22, 1, output="every", head_bias=False, kappa=KAPPA, seed=seed),
            recurrent,
        ),
        "lstm": (lambda: SequenceLSTM(18, 1, output="every", seed=seed), recurrent),
        "lstm_report": (
            lambda: SequenceLSTM(100, 1, output="every", seed=seed),
            Recipe(epochs=chosen["slow_epochs"], **RECURRENT),
        ),
        # A convex problem: a larger first step lets the short profile arrive too.
        "linear": (lambda: Linear(LENGTH, LENGTH, seed=seed), Recipe(epochs=chosen["epochs"], lr=LINEAR_LR)),
        "mlp": (lambda: MLP((LENGTH, 80, LENGTH), seed=seed), recipe),
        "mlp_bias_free": (lambda: MLP((LENGTH, 80, LENGTH), bias=False, seed=seed), recipe),
        "mlp_skip": (lambda: MLP((LENGTH, 80, LENGTH), skip=True, seed=seed), recipe),
        "transformer_encoder_decoder": (
            lambda: SequenceTransformer(10, 5, width=10, out_features=1, output="every", seed=seed),
            Recipe(epochs=chosen["slow_epochs"], lr=TRANSFORMER_LR),
        ),
        "transformer_report": (
            lambda: DepthwiseEncoder(LENGTH, n_heads=2, seed=seed),
            Recipe(epochs=chosen["slow_epochs"], lr=ENCODER_LR),
        ),
        "neural_ode": (lambda: NeuralODE(LENGTH, LENGTH, 78, n_steps=ODE_STEPS, seed=seed), ode),
        "neural_ode_bias_free": (
            lambda: NeuralODE(LENGTH, LENGTH, 78, activation="relu", n_steps=ODE_STEPS, bias=False, seed=seed),
            ode,
        ),
    }


def argmax_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Name -> (constructor, recipe) of the rolling argmax: the papers' models and the controls.

    Models whose name ends in `_every`, and those in `LABELS_GIVEN` and the leak-free transformer, return scores (N, 10,
    T) for labels of every step; the others (N, 10) for the last.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    from implicit_models.model import ImplicitModel

    chosen = settings(profile)
    recipe, ode = (
        Recipe(epochs=chosen["epochs"], loss="cross_entropy"),
        Recipe(epochs=chosen["recurrent_epochs"], loss="cross_entropy"),
    )
    recurrent = Recipe(epochs=chosen["recurrent_epochs"], loss="cross_entropy", **RECURRENT)
    attention = Recipe(epochs=chosen["slow_epochs"], lr=TRANSFORMER_LR, loss="cross_entropy")

    def implicit(**options) -> Callable[[], nn.Module]:
        return lambda: ImplicitModel(LENGTH, LENGTH, ARGMAX_STATES, kappa=KAPPA, seed=seed, **options)

    def implicit_rnn(**options) -> Callable[[], nn.Module]:
        return lambda: SequenceImplicitRNN(21, 22, LENGTH, kappa=KAPPA, seed=seed, **options)

    def transformer(**options) -> Callable[[], nn.Module]:
        return lambda: SequenceTransformer(LENGTH, 2, width=10, output="every_class", seed=seed, **options)

    return {
        "implicit": (implicit(), recipe),
        "implicit_no_skip": (implicit(skip=False), recipe),
        "implicit_strict_upper": (implicit(feedback="strict_upper"), recipe),
        "implicit_rnn": (implicit_rnn(head_bias=False), recurrent),
        "implicit_rnn_bias": (implicit_rnn(), recurrent),
        "implicit_rnn_every": (implicit_rnn(head_bias=False, output="every_class"), recurrent),
        "lstm": (lambda: SequenceLSTM(21, LENGTH, seed=seed), recurrent),
        "lstm_every": (lambda: SequenceLSTM(21, LENGTH, output="every_class", seed=seed), recurrent),
        "linear": (lambda: Linear(LENGTH, LENGTH, seed=seed), dataclasses.replace(recipe, lr=LINEAR_LR)),
        "mlp": (lambda: MLP((LENGTH, 100, LENGTH), seed=seed), recipe),
        "mlp_bias_free": (lambda: MLP((LENGTH, 100, LENGTH), bias=False, seed=seed), recipe),
        "mlp_skip": (lambda: MLP((LENGTH, 100, LENGTH), skip=True, seed=seed), recipe),
        "transformer_masked": (transformer(decoder="labels"), attention),
        "transformer_unmasked": (transformer(decoder="labels", masked=False), attention),
        "transformer_no_pe": (transformer(decoder="labels", masked=False, positions=False), attention),
        "transformer_leak_free": (transformer(), attention),
        "neural_ode": (lambda: NeuralODE(LENGTH, LENGTH, 95, n_steps=ODE_STEPS, seed=seed), ode),
        "neural_ode_bias_free": (
            lambda: NeuralODE(LENGTH, LENGTH, 95, activation="relu", n_steps=ODE_STEPS, bias=False, seed=seed),
            ode,
        ),
    }


def long_models(seed: int, profile: str = "full", length: int = LONG_LENGTH) -> dict[str, Model]:
    """Name -> (constructor, recipe) of the rolling argmax of longer sequences, with one class a step.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
        length: T.
    """
    recurrent = Recipe(epochs=settings(profile)["long_epochs"], loss="cross_entropy", **RECURRENT)
    return {
        "implicit_rnn": (
            lambda: SequenceImplicitRNN(21, 22, length, head_bias=False, kappa=KAPPA, seed=seed),
            recurrent,
        ),
        "lstm": (lambda: SequenceLSTM(21, length, seed=seed), recurrent),
    }


def argmax_data_of(name: str, seed: int, profile: str = "full", scales: Sequence[float] | None = None) -> Dataset:
    """The data that a model of `argmax_models` is trained and tested on."""
    every = name.endswith("_every") or name.startswith("transformer")
    return argmax_data(seed, profile, scales, labels="every" if every else "last", given=name in LABELS_GIVEN)
