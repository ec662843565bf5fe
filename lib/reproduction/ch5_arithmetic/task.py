"""Addition and subtraction of two index ranges of a vector, trained on U(-1, 1).

Figure 5.6 and Table 5.2 of the thesis, with the controls that explain them. The positions are drawn
once for each data set; `data(..., indices="per_sample")` gives the papers' literal reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.functions import ARITHMETIC_FACTORS, TABLE_5_2_RANGES, addition, subtraction
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP, PAPER_ACTIVATIONS
from reproduction.models.nalu import NALU
from reproduction.models.transformer import DepthwiseEncoder, SequentialEncoder

DIM = 50
N_STATES = 20
KAPPA = 0.95
LINEAR_LR = 0.05
# Inputs of mean 1.5 make a condition number of 2,700: smaller steps do not arrive in the epochs given.
TABLE_LINEAR_LR = 0.2
TABLE_DIM = 100
TABLE_N_STATES = 50
OPERATIONS = {"addition": addition, "subtraction": subtraction}
Model = tuple[Callable[[], nn.Module], Recipe]

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "n_train": 1_000,
        "n_test": 300,
        "t": (2.0, 10.0, 100.0, 1e5),
        "epochs": 30,
        "depthwise_seeds": 1,
        "sequential_epochs": 1,
        "table_epochs": 20,
        "table_activations": ("relu", "relu6"),
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "n_train": 10_000,
        "n_test": 3_000,
        "t": ARITHMETIC_FACTORS,
        "epochs": 60,
        "depthwise_seeds": 3,
        "sequential_epochs": 1,
        "table_epochs": 60,
        "table_activations": tuple(PAPER_ACTIVATIONS),
    },
}

LABELS = {
    "implicit": "implicit",
    "implicit_no_skip": "implicit without D",
    "implicit_strict_upper": "implicit, A strictly triangular",
    "linear": "linear",
    "mlp": "MLP 50-10-10-1",
    "mlp_bias_free": "MLP without biases",
    "mlp_skip": "MLP with linear skip",
    "nalu": "NALU",
    "transformer_sequential": "sequential encoder",
    "transformer_depthwise": "depth-wise encoder",
}


settings = settings_of(PROFILES)  # seeds, sizes, factors and epochs of a profile


def data(
    operation: str, seed: int, profile: str = "full", t: Sequence[float] | None = None, indices: str = "once"
) -> Dataset:
    """Data set of one operation and seed; `t` replaces the profile's factors.

    Raises:
        ValueError: an operation other than "addition" and "subtraction".
    """
    chosen = settings(profile)
    return _operation(operation)(
        chosen["n_train"], chosen["n_test"], DIM, chosen["t"] if t is None else t, indices=indices, seed=seed
    )


def table_data(operation: str, seed: int, profile: str = "full") -> Dataset:
    """Data set of Table 5.2: 100 entries, U(1, 2) in training and U(2, 5) in the test."""
    chosen = settings(profile)
    return _operation(operation)(chosen["n_train"], chosen["n_test"], TABLE_DIM, ranges=TABLE_5_2_RANGES, seed=seed)


def _operation(name: str) -> Callable[..., Dataset]:
    if name not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}; got {name!r}")
    return OPERATIONS[name]


def models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Name -> (constructor, recipe): the papers' five models and the controls.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    from implicit_models.model import ImplicitModel

    chosen = settings(profile)
    recipe = Recipe(epochs=chosen["epochs"])

    def implicit(**options) -> Callable[[], nn.Module]:
        return lambda: ImplicitModel(DIM, 1, N_STATES, kappa=KAPPA, seed=seed, **options)

    return {
        "implicit": (implicit(), recipe),
        "implicit_no_skip": (implicit(skip=False), recipe),
        "implicit_strict_upper": (implicit(feedback="strict_upper"), recipe),
        # A convex problem: a larger first step lets the short profile arrive too.
        "linear": (lambda: Linear(DIM, 1, seed=seed), Recipe(epochs=chosen["epochs"], lr=LINEAR_LR)),
        "mlp": (lambda: MLP((DIM, 10, 10, 1), seed=seed), recipe),
        "mlp_bias_free": (lambda: MLP((DIM, 10, 10, 1), bias=False, seed=seed), recipe),
        "mlp_skip": (lambda: MLP((DIM, 10, 10, 1), skip=True, seed=seed), recipe),
        "nalu": (lambda: NALU((DIM, 10, 10, 1), seed=seed), Recipe(epochs=chosen["epochs"], on_nan="stop")),
        # Its output is a constant (see the class), so it has learnt all it can after a few steps; and the last
        # normalisation erases what dropout would draw, which is most of a step's cost.
        "transformer_sequential": (
            lambda: SequentialEncoder(DIM, dropout=0.0, seed=seed),
            Recipe(epochs=chosen["sequential_epochs"], batch_size=50),
        ),
        "transformer_depthwise": (lambda: DepthwiseEncoder(DIM, 1, seed=seed), recipe),
    }


def of_seed(seed: int, seeds: Sequence[int], profile: str = "full") -> dict[str, Model]:
    """The models that a seed trains: all of them for the first `depthwise_seeds` of `seeds`, for the others all but the
    depth-wise encoder, whose steps cost the most."""
    made = models(seed, profile)
    if seed not in list(seeds)[: settings(profile)["depthwise_seeds"]]:
        del made["transformer_depthwise"]
    return made


def table_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """Rows of Table 5.2: implicit (n = 50, 7,650 parameters), linear, and an MLP for each activation.

    Args:
        seed: of the initial weights.
        profile: decides the epochs and which activations are tried.
    """
    from implicit_models.model import ImplicitModel

    chosen = settings(profile)
    recipe = Recipe(epochs=chosen["table_epochs"], on_nan="stop")
    rows: dict[str, Model] = {
        "implicit": (lambda: ImplicitModel(TABLE_DIM, 1, TABLE_N_STATES, kappa=KAPPA, seed=seed), recipe),
        "linear": (lambda: Linear(TABLE_DIM, 1, seed=seed), Recipe(epochs=chosen["table_epochs"], lr=TABLE_LINEAR_LR)),
    }
    for name in chosen["table_activations"]:
        rows[f"mlp_{name}"] = (lambda name=name: MLP((TABLE_DIM, 10, 10, 1), name, seed=seed), recipe)
    return rows
