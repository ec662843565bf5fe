"""The identity task: y = u in ten dimensions, trained on U(-5, 5), tested on wider ranges.

Figure 5.5 and Table 5.1 of the thesis, with the controls that explain them. The papers state Adam's
learning rate (0.01) and the epochs, not batch size or schedule: batches of 100 and a cosine to zero
are used, since the number of steps decides how far the training error falls.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.functions import IDENTITY_SHIFTS, identity
from reproduction.ch5_depth.compute import PAPER_TOLERANCE, RELATIVE_TOLERANCE, counts
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import Recipe
from reproduction.core.scores import predict
from reproduction.core.study import Study, ratio, run_study
from reproduction.models.linear import Linear
from reproduction.models.mlp import ACTIVATIONS, MLP
from reproduction.models.transformer import DepthwiseEncoder

DIM = 10
N_STATES = 4
KAPPA = 0.95
LINEAR_LR = 0.05
FAR = (5, 25, 40, 200)  # shifts at which the growth of the error is measured
QUOTED = (5, 10, 40, 75, 200)  # shifts of which the papers' sentences speak
TABLE_WIDTHS = (5, 10, 15, 75)  # shifts at which Table 5.1 is evaluated
BASELINES = ("mlp", "mlp_10_9_9_10", "transformer")
HOMOGENEOUS = ("linear", "mlp_bias_free")
TOLERANCES = {"absolute": PAPER_TOLERANCE, "relative": RELATIVE_TOLERANCE}
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


def _trained(
    name: str, makes: Callable[[int], Mapping[str, Model]], seeds: Sequence[int], profile: str, shifts, epochs_scale
) -> Study:
    return run_study(
        name,
        lambda seed: data(seed, profile, shifts),
        makes,
        seeds,
        epochs_scale=epochs_scale,
        # A long run resumes.
        key_module="reproduction.ch5_identity:models" if profile == "full" else None,
    )


def trained(
    seeds: Sequence[int], profile: str, shifts: Sequence[float] | None = None, epochs_scale: float = 1.0
) -> Study:
    """The papers' models and the controls, trained and tested on every shift; `shifts` replaces the profile's."""
    return _trained("identity", lambda seed: models(seed, profile), seeds, profile, shifts, epochs_scale)


def trained_for_table(seeds: Sequence[int], profile: str, epochs_scale: float = 1.0) -> tuple[Study, Study]:
    """The MLP with every activation, and the implicit model, tested on the shifts of `TABLE_WIDTHS`."""
    activations = _trained(
        "identity-activation", lambda seed: activation_models(seed, profile), seeds, profile, TABLE_WIDTHS, epochs_scale
    )
    reference = _trained(
        "identity-reference",
        lambda seed: {"implicit": models(seed, profile)["implicit"]},
        seeds,
        profile,
        TABLE_WIDTHS,
        epochs_scale,
    )
    return activations, reference


def sizes_and_training(study: Study) -> dict[str, Any]:
    """The shifts, and of each model `parameters_NAME` and, one a seed, `train_mse_NAME`."""
    found: dict[str, Any] = {"shifts": study.shifts}
    for name in study.errors:
        found[f"parameters_{name}"] = study.parameters[name]
        found[f"train_mse_{name}"] = study.train_errors[name]
    return found


def _squared_error(model: nn.Module, u: Tensor) -> float:
    return float((predict(model, u) - u).square().mean())


def growth(study: Study, profile: str) -> dict[str, Any]:
    """By what the error grows when the test points of the training range are scaled, in double precision.

    Returns:
        `growth_NAME_SHIFT`: the ratios of the error at half-width 5 + SHIFT to that at 5, one a seed whose error is
        not 0, or a text where all are 0.
    """
    found: dict[str, Any] = {}
    for name, trained_models in study.models.items():
        for s in FAR:
            ratios = []
            for seed, model in zip(study.seeds, trained_models, strict=True):
                double = copy.deepcopy(model).double()
                u = torch.as_tensor(data(seed, profile, [0]).test[0][0]).double()
                ratios += ratio([_squared_error(double, (5 + s) / 5 * u)], [_squared_error(double, u)])
            known = [value for value in ratios if not math.isnan(value)]
            found[f"growth_{name}_{s}"] = known or "no error to grow"
    return found


def _lowest_ratio(study: Study, names: Sequence[str]) -> list[float]:
    """Seed by seed, the smallest ratio of the error of one of the models to the implicit model's at any shift."""
    return [
        min(min(b / i for b, i in zip(study.errors[name][k], row, strict=True)) for name in names)
        for k, row in enumerate(study.errors["implicit"])
    ]


def sentences(study: Study, profile: str) -> dict[str, Any]:
    """What the papers' sentences speak of, one value a seed where it is an error or a ratio.

    Returns:
        The implicit model's largest error to shift 25, `mse_NAME_shift_SHIFT`, `mse_ratio_NAME_205`, the lowest ratios
        of baselines and of controls to the implicit model, mean and deviation of the test inputs at shift 40, the
        range of shifts and the numbers of samples.
    """
    low = [k for k, s in enumerate(study.shifts) if s <= 25]
    found: dict[str, Any] = {
        "implicit_max_mse_to_shift_25": [max(row[k] for k in low) for row in study.errors["implicit"]]
        if low
        else "not tested"
    }
    tested = [s for s in QUOTED if s in study.shifts]
    found |= {f"mse_{name}_shift_{s}": study.at(name, s) for name in ("implicit", *BASELINES) for s in tested}
    if 200 in study.shifts:
        for name in ("mlp", "transformer", *HOMOGENEOUS):
            found[f"mse_ratio_{name}_205"] = ratio(study.at(name, 200), study.at("implicit", 200))
    u_far, _ = data(study.seeds[0], profile, [40]).test[40]
    return found | {
        "lowest_ratio_of_baselines": _lowest_ratio(study, BASELINES),
        "lowest_ratio_of_controls": _lowest_ratio(study, HOMOGENEOUS),
        "test_mean_shift_40": float(u_far.mean()),
        "test_sd_shift_40": float(u_far.std()),
        "lowest_shift": min(study.shifts),
        "highest_shift": max(study.shifts),
        "train_samples": settings(profile)["n_train"],
        "test_samples": settings(profile)["n_test"],
    }


def counted_shifts(study: Study) -> list[float]:
    """Shifts at which iterations are counted."""
    return [s for s in (0, 40, 200) if s in study.shifts] or study.shifts[:1]


def iterations(study: Study, profile: str) -> dict[str, list[float]]:
    """Mean number of Picard iterations of a test sample, one value a seed: `iterations_MODE_shift_SHIFT`."""
    found: dict[str, list[float]] = {}
    for s in counted_shifts(study):
        for mode, tol in TOLERANCES.items():
            mean = []
            for seed, model in zip(study.seeds, study.models["implicit"], strict=True):
                u, _ = data(seed, profile, [s]).test[s]
                mean.append(float(counts(model, u, tol=tol, relative=mode == "relative").mean()))
            found[f"iterations_{mode}_shift_{s}"] = mean
    return found


def table_51(activations: Study, reference: Study) -> dict[str, list[float]]:
    """Errors of each activation and of the implicit model: `table51_NAME_train` and `table51_NAME_HALFWIDTH`."""
    found: dict[str, list[float]] = {}
    for name, source in [*((n, activations) for n in activations.errors), ("implicit", reference)]:
        found[f"table51_{name}_train"] = source.train_errors[name]
        found |= {f"table51_{name}_{5 + s}": source.at(name, s) for s in TABLE_WIDTHS}
    return found


def best_activation(activations: Study, reference: Study, listed: Sequence[str]) -> dict[str, Any]:
    """How many activations are listed, whether the log sigmoid is, and the ratio of the best one's error to the
    implicit model's, one a seed and shift."""
    return {
        "activations_listed": len(listed),
        "log_sigmoid_in_the_list": "log_sigmoid" in listed,
        "best_activation_ratio": [
            min(activations.at(name, s)[k] for name in listed) / reference.at("implicit", s)[k]
            for k in range(len(activations.seeds))
            for s in TABLE_WIDTHS
        ],
    }
