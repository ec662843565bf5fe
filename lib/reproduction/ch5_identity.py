"""The identity task: y = u in ten dimensions, trained on U(-5, 5), tested on wider ranges.

Figure 5.5 and Table 5.1 of the thesis, with the controls that explain them. The papers state Adam's
learning rate (0.01) and the epochs, not batch size or schedule: batches of 100 and a cosine to zero
are used, since the number of steps decides how far the training error falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.functions import IDENTITY_SHIFTS, identity
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.models.linear import Linear
from reproduction.models.mlp import ACTIVATIONS, MLP
from reproduction.models.transformer import DepthwiseEncoder

DIM = 10
N_STATES = 4
KAPPA = 0.95
LINEAR_LR = 0.05
Model = tuple[Callable[[], nn.Module], Recipe]

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "n_train": 3_000,
        "n_test": 500,
        "shifts": (0, 5, 10, 15, 20, 25, 40, 100, 200),
        "epochs": 20,
        "transformer_epochs": 6,
        "activation_epochs": 10,
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "n_train": 10_000,
        "n_test": 3_000,
        "shifts": IDENTITY_SHIFTS,
        "epochs": 100,
        "transformer_epochs": 30,
        "activation_epochs": 50,
    },
}

LABELS = {
    "implicit": "implicit",
    "implicit_no_skip": "implicit without D",
    "implicit_strict_upper": "implicit, A strictly triangular",
    "linear": "linear",
    "mlp": "MLP 10-10-10",
    "mlp_10_9_9_10": "MLP 10-9-9-10",
    "mlp_bias_free": "MLP without biases",
    "mlp_skip": "MLP with linear skip",
    "transformer": "Transformer encoder",
}


settings = settings_of(PROFILES)  # seeds, sizes, shifts and epochs of a profile


def data(seed: int, profile: str = "full", shifts: Sequence[float] | None = None) -> Dataset:
    """Data set of one seed; `shifts` replaces the profile's."""
    chosen = settings(profile)
    return identity(
        chosen["n_train"], chosen["n_test"], DIM, shifts=chosen["shifts"] if shifts is None else shifts, seed=seed
    )


def models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Name -> (constructor, recipe): the papers' three models, their variants and the controls.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    from implicit_models.model import ImplicitModel

    chosen = settings(profile)
    recipe = Recipe(epochs=chosen["epochs"])

    def implicit(**options) -> Callable[[], nn.Module]:
        return lambda: ImplicitModel(DIM, DIM, N_STATES, kappa=KAPPA, seed=seed, **options)

    return {
        "implicit": (implicit(), recipe),
        "implicit_no_skip": (implicit(skip=False), recipe),
        "implicit_strict_upper": (implicit(feedback="strict_upper"), recipe),
        # A convex problem: a larger first step lets the short profile arrive too.
        "linear": (lambda: Linear(DIM, DIM, seed=seed), Recipe(epochs=chosen["epochs"], lr=LINEAR_LR)),
        "mlp": (lambda: MLP((DIM, 10, DIM), seed=seed), recipe),
        "mlp_10_9_9_10": (lambda: MLP((DIM, 9, 9, DIM), seed=seed), recipe),
        # A ReLU network without biases needs 2 p hidden units to write u = relu(u) - relu(-u).
        "mlp_bias_free": (lambda: MLP((DIM, 2 * DIM, DIM), bias=False, seed=seed), recipe),
        "mlp_skip": (lambda: MLP((DIM, 10, DIM), skip=True, seed=seed), recipe),
        "transformer": (lambda: DepthwiseEncoder(DIM, seed=seed), Recipe(epochs=chosen["transformer_epochs"])),
    }


def activation_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Activation -> (constructor, recipe) of the 10-10-10 MLP, the rows of Table 5.1.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    recipe = Recipe(epochs=settings(profile)["activation_epochs"])
    return {name: (lambda name=name: MLP((DIM, 10, DIM), name, seed=seed), recipe) for name in ACTIVATIONS}
