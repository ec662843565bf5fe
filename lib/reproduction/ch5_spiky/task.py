"""The spiky series: forecasting the next point of a calm sine with rare spiky regions from a window of the last ones.

Table 5.3 and Figure 5.9 of the thesis. The papers state sizes and the series' formulas, not the scale, the noise's
unit, whether a spike restarts, the window or the recipe: `VARIANTS` holds the readings, `data` makes any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.spiky import Scaling, spiky
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.models.decoders import DecoderOnly
from reproduction.models.sequence import SequenceImplicitRNN, SequenceLSTM

WINDOW, LONG_WINDOW = 10, 60
HIDDEN = 20
KAPPA = 0.95
TOL = 1e-5
LR, EARLY_LR = 0.005, 0.001
Model = tuple[Callable[[], nn.Module], Recipe]

# Reading -> options of `data`: N(0, .25) names a variance, or carelessly a deviation; the report has no noise.
VARIANTS: dict[str, dict[str, Any]] = {
    "sd .5": {"noise": 0.5, "restart": False},
    "sd .25": {"noise": 0.25, "restart": False},
    "no noise": {"noise": 0.0, "restart": False},
    "sd .5, restart": {"noise": 0.5, "restart": True},
    "sd .25, restart": {"noise": 0.25, "restart": True},
    "no noise, restart": {"noise": 0.0, "restart": True},
}
DEFAULT_VARIANT = "sd .5"

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "network_seeds": 1,
        "n_train": 2_100,
        "n_test": 900,
        "n_spikes": 6,
        "n_spikes_test": 3,
        "variants": ("sd .5", "no noise, restart"),
        "epochs": 20,
        "transformer_variants": ("sd .5",),
        "transformer_epochs": 4,
        "early_epochs": 5,
        "long_epochs": 4,
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "network_seeds": 3,
        "n_train": 7_000,
        "n_test": 3_000,
        "n_spikes": 20,
        "n_spikes_test": 9,
        "variants": tuple(VARIANTS),
        "epochs": 20,
        "transformer_variants": ("sd .5", "no noise, restart"),
        "transformer_epochs": 15,
        "early_epochs": 15,
        "long_epochs": 8,
    },
}

LABELS = {
    "constant": "constant (training mean)",
    "persistence": "persistence (last value)",
    "autoregression": "linear autoregression",
    "implicit_rnn": "implicitRNN",
    "lstm": "LSTM",
    "transformer_decoder": "Transformer decoder",
}
NETWORKS = ("implicit_rnn", "lstm", "transformer_decoder")
CONTROLS = ("constant", "persistence", "autoregression")


settings = settings_of(PROFILES)  # seeds, sizes, variants and epochs of a profile


def data(
    seed: int,
    profile: str = "full",
    variant: str = DEFAULT_VARIANT,
    *,
    scaling: Scaling = "standard",
    window: int = WINDOW,
) -> Dataset:
    """Windows of one seed in one reading of the papers.

    Raises:
        ValueError: an unknown variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(map(repr, VARIANTS))}; got {variant!r}")
    chosen = settings(profile)
    sizes = {name: chosen[name] for name in ("n_train", "n_test", "n_spikes", "n_spikes_test")}
    return spiky(**sizes, look_back=window, scaling=scaling, seed=seed, **VARIANTS[variant])


def _networks(seed: int, recipe: Recipe, transformer: Recipe | None) -> dict[str, Model]:
    found: dict[str, Model] = {
        "implicit_rnn": (lambda: SequenceImplicitRNN(20, HIDDEN, 1, kappa=KAPPA, tol=TOL, seed=seed), recipe),
        "lstm": (lambda: SequenceLSTM(HIDDEN, 1, seed=seed), recipe),
    }
    if transformer is not None:
        found["transformer_decoder"] = (lambda: DecoderOnly(10, 2, seed=seed), transformer)
    return found


def models(seed: int, profile: str = "full", variant: str = DEFAULT_VARIANT) -> dict[str, Model]:
    """Name -> (constructor, recipe) of the papers' networks (1,661, 1,861 and 43,529 parameters), trained well.

    The transformer, ten times slower than the others, is left out of the variants that are not among the profile's
    `transformer_variants`.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
        variant: of the data.
    """
    chosen = settings(profile)
    transformer = (
        Recipe(epochs=chosen["transformer_epochs"], lr=LR, clip=1.0)
        if variant in chosen["transformer_variants"]
        else None
    )
    return _networks(seed, Recipe(epochs=chosen["epochs"], lr=LR, clip=1.0), transformer)


def recurrent_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """`models` without the transformer."""
    return {name: model for name, model in models(seed, profile).items() if name != "transformer_decoder"}


def early_models(seed: int, profile: str = "full", epochs: int | None = None) -> dict[str, Model]:
    """The same networks with a common default, Adam at 1e-3 throughout, to be looked at after each epoch.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
        epochs: replaces the profile's. The schedule being constant, fewer epochs are a beginning of more.
    """
    recipe = Recipe(
        epochs=settings(profile)["early_epochs"] if epochs is None else epochs, lr=EARLY_LR, schedule="constant"
    )
    return _networks(seed, recipe, recipe)


def long_models(seed: int, profile: str = "full") -> dict[str, Model]:
    """The recurrent networks for windows of sixty points.

    Args:
        seed: of the initial weights.
        profile: decides the epochs.
    """
    return _networks(seed, Recipe(epochs=settings(profile)["long_epochs"], lr=LR, clip=1.0), None)
