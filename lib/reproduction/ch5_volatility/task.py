"""The volatility task: the papers' models, the controls and the forms in which the task can be put to them.

Table 5.3 of the thesis, AMC columns. A form is what goes in, what comes out, the scale and the loss; the papers give
the first two and keep silent on the others. In the form `difference` the target is a function of degree one of the
input, and models without biases are too. Sizes are those of the extrapolation paper, Table 4; inputs are 59 wide where
they are differences.

Batches of 250 (100 in the quick profile) and Adam with a cosine from .003 to zero: the papers give neither. The
implicitRNN starts at .001: sixty steps blow its states up early in training, and from .003 it takes longer to recover.
The transformer starts at .01, since its cost allows one epoch, in which it has but one number to learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.market.minute_bars import MinuteBars
from data_gen.market.minutes import minute_market
from data_gen.market.volatility import ZERO_VARIANCE, volatility
from reproduction.ch5_volatility.loss import RelativeRecipe
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP
from reproduction.models.neural_ode import NeuralODE
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM
from reproduction.models.transformer import SequentialEncoder

LOOK_BACK, HORIZON = 60, 10
YEAR = 2021
KAPPA = 0.95
LR = 0.003
LEARNING_RATES = {"implicit_rnn": 0.001, "transformer": 0.01}
HIDDEN_LAYERS = (50, 27, 27, 27, 10)
Model = tuple[Callable[[], nn.Module], Recipe]

# In the full profile every model but the transformer, whose output is a constant, takes the same number of updates. The
# epochs have three names for the quick one, in which the slow models would take most of the time.
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "sequence_seeds": 1,
        "n_train": 1_500,
        "stride": 60,
        "batch": 100,
        "epochs": 20,
        "recurrent_epochs": 4,
        "implicit_epochs": 8,
        "transformer_epochs": 1,
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "sequence_seeds": 3,
        "n_train": 16_000,
        "stride": 10,
        "batch": 250,
        "epochs": 20,
        "recurrent_epochs": 20,
        "implicit_epochs": 20,
        "transformer_epochs": 1,
    },
}

LABELS = {
    "transformer": "Transformer encoder",
    "lstm": "LSTM",
    "linear": "linear regression",
    "mlp": "MLP",
    "mlp_bias_free": "MLP without biases",
    "implicit": "implicit",
    "implicit_rnn": "implicitRNN",
    "neural_ode": "neural ODE",
    "neural_ode_bias_free": "neural ODE, ReLU, no biases",
}
PAPER = ("transformer", "lstm", "linear", "mlp", "implicit", "implicit_rnn")


@dataclass(frozen=True)
class Form:
    """What a model is given and asked.

    Args:
        label: in words.
        inputs, target, scaling: as `data_gen.market.volatility.volatility`.
        loss: "mse" or "mape", that of the target.
        models: names of those that are trained in this form.
    """

    label: str
    inputs: str
    target: str
    scaling: str
    loss: str
    models: tuple[str, ...]


FORMS: dict[str, Form] = {
    "price": Form("prices, variance (as the papers)", "price", "variance", "train", "mse", tuple(LABELS)),
    "raw": Form(
        "the same in dollars, unscaled", "price", "variance", "raw", "mse", ("lstm", "linear", "mlp", "implicit")
    ),
    "price_mape": Form(
        "prices, variance, MAPE as loss",
        "price",
        "variance",
        "train",
        "mape",
        ("lstm", "linear", "mlp", "implicit", "implicit_rnn"),
    ),
    "price_sd": Form(
        "prices, standard deviation", "price", "sd", "train", "mse", ("linear", "mlp", "mlp_bias_free", "implicit")
    ),
    "difference": Form(
        "differences, standard deviation",
        "difference",
        "sd",
        "train",
        "mse",
        tuple(name for name in LABELS if not name.startswith("transformer")),
    ),
    "difference_mape": Form(
        "differences, deviation, MAPE as loss", "difference", "sd", "train", "mape", ("mlp_bias_free", "implicit")
    ),
}


# Slower than models on vectors, hence trained for fewer seeds.
SEQUENTIAL = ("transformer", "lstm", "implicit_rnn")


settings = settings_of(PROFILES)  # seeds, sizes, stride and epochs of a profile


@lru_cache(maxsize=4)
def market(seed: int) -> MinuteBars:
    """The synthetic market of a seed, made once in a process."""
    return minute_market(seed)


def form_of(name: str) -> Form:
    """Form of that name.

    Raises:
        ValueError: there is none, listing those there are.
    """
    if name not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {name!r}")
    return FORMS[name]


def data(
    form: str, seed: int, profile: str = "full", *, bars: MinuteBars | None = None, n_train: int | None = None
) -> Dataset:
    """Data set of one form and seed.

    Args:
        form: key of `FORMS`. With a relative loss, training samples without movement, which have no relative error, are
            left out.
        seed: of the market and of the drawn training samples.
        profile: decides the number of training samples and the stride.
        bars: real bars in place of the synthetic market.
        n_train: in place of the profile's.
    """
    chosen = form_of(form)
    built = volatility(
        market(seed) if bars is None else bars,
        look_back=LOOK_BACK,
        horizon=HORIZON,
        stride=settings(profile)["stride"],
        inputs=chosen.inputs,
        target=chosen.target,
        scaling=chosen.scaling,
        seed=seed,
        n_train=settings(profile)["n_train"] if n_train is None else n_train,
    )
    if chosen.loss == "mse":
        return built
    moved = built.meta["variance"]["train"] >= ZERO_VARIANCE
    kept = {
        name: built.meta[name] | {"train": built.meta[name]["train"][moved]} for name in ("variance", "history", "date")
    }
    return dataclasses.replace(
        built,
        u_train=built.u_train[moved],
        y_train=built.y_train[moved],
        meta={**built.meta, **kept, "without_movement": int(np.sum(~moved))},
    )


def models(form: str, seed: int, profile: str = "full", *, sequential: bool = True) -> dict[str, Model]:
    """Name -> (constructor, recipe) of the models of a form.

    Args:
        form: key of `FORMS`.
        seed: of the initial weights.
        profile: decides epochs and batch.
        sequential: whether those of `SEQUENTIAL` are among them.
    """
    from implicit_models.model import ImplicitModel

    chosen, epochs = form_of(form), settings(profile)
    width = LOOK_BACK if chosen.inputs == "price" else LOOK_BACK - 1
    # Differences go to the standard deviation by a function of degree one: the recurrent cell's head needs no bias
    # then.
    bias = chosen.inputs == "price"
    sizes = (width, *HIDDEN_LAYERS, 1)
    built: dict[str, tuple[Callable[[], nn.Module], str, float | None]] = {
        # The last normalisation erases what dropout would draw, which is most of a step's cost.
        "transformer": (lambda: SequentialEncoder(width, dropout=0.0, seed=seed), "transformer_epochs", None),
        "lstm": (lambda: SequenceLSTM(38, 1, seed=seed), "recurrent_epochs", 1.0),
        "linear": (lambda: Linear(width, 1, bias=True, seed=seed), "epochs", None),
        "mlp": (lambda: MLP(sizes, seed=seed), "epochs", None),
        "mlp_bias_free": (lambda: MLP(sizes, bias=False, seed=seed), "epochs", None),
        "implicit": (lambda: ImplicitModel(width, 1, 53, kappa=KAPPA, seed=seed), "implicit_epochs", None),
        "implicit_rnn": (
            lambda: SequenceImplicitRNN(37, 40, 1, head_bias=bias, kappa=KAPPA, seed=seed),
            "recurrent_epochs",
            1.0,
        ),
        "neural_ode": (lambda: NeuralODE(width, 1, 50, n_steps=2, seed=seed), "implicit_epochs", None),
        "neural_ode_bias_free": (
            lambda: NeuralODE(width, 1, 50, activation="relu", n_steps=2, bias=False, seed=seed),
            "implicit_epochs",
            None,
        ),
    }

    def recipe(name: str, kind: str, clip: float | None) -> Recipe:
        # A run that diverges says so in its history, as the unscaled form may.
        options = {
            "epochs": epochs[kind],
            "lr": LEARNING_RATES.get(name, LR),
            "batch_size": epochs["batch"],
            "clip": clip,
            "on_nan": "stop",
        }
        return (Recipe if chosen.loss == "mse" else RelativeRecipe)(**options)

    return {
        name: (built[name][0], recipe(name, *built[name][1:]))
        for name in chosen.models
        if sequential or name not in SEQUENTIAL
    }
