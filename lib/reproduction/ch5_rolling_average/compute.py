"""What the notebook of the rolling average records: errors, their growth with the shift, mean predictions, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.ch5_rolling_average import task
from reproduction.core.budgets import budgets
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import predict
from reproduction.core.study import Study, loglog_slope, ratio, run_study

QUOTED = (0.0, 50.0, 100.0)  # shifts that are recorded one by one


def trained(
    seeds: Sequence[int], profile: str, shifts: Sequence[float] | None = None, epochs_scale: float = 1.0
) -> Study:
    """The papers' models and the controls; `shifts` replaces the profile's. A long run resumes."""
    return run_study(
        "rolling-average",
        lambda seed: task.average_data(seed, profile, shifts),
        lambda seed: task.of_seed(task.average_models(seed, profile), seed, seeds, profile),
        seeds,
        epochs_scale=epochs_scale,
        key_module="reproduction.ch5_rolling_average.task" if profile == "full" else None,
    )


def sizes_and_training(study: Study, profile: str) -> dict[str, Any]:
    """The shifts, and of each model its budget (see `budgets`), `parameters_NAME` and, one a seed, `train_mse_NAME`."""
    recipes = {name: recipe for name, (_, recipe) in task.average_models(study.seeds[0], profile).items()}
    found: dict[str, Any] = {"shifts": [float(shift) for shift in study.shifts]}
    found |= budgets(study.histories, recipes, task.settings(profile)["n_train"])
    for name in study.errors:
        found[f"parameters_{name}"] = study.parameters[name]
        found[f"train_mse_{name}"] = study.train_errors[name]
    return found


def growth(study: Study) -> dict[str, Any]:
    """How errors grow with the shift, one value a seed.

    Returns:
        `mse_NAME_shift_SHIFT`, `largest_NAME`, `growth_NAME` (largest shift over smallest), `slope_NAME` (of log error
        against log shift), and ratios of models' errors beyond shift 0.
    """
    tested = [float(shift) for shift in study.shifts]
    beyond = [k for k, shift in enumerate(tested) if shift > 0]
    near, far = tested.index(min(tested)), tested.index(max(tested))
    found: dict[str, Any] = {}
    for name, errors in study.errors.items():
        found |= {f"mse_{name}_shift_{shift:g}": study.at(name, shift) for shift in QUOTED if shift in study.shifts}
        found[f"largest_{name}"] = [max(row) for row in errors]
        found[f"growth_{name}"] = ratio([row[far] for row in errors], [row[near] for row in errors])
        if len(beyond) > 1:
            x = [tested[k] for k in beyond]
            found[f"slope_{name}"] = [loglog_slope(x, [row[k] for k in beyond])[0] for row in errors]
    errors_of = {name: np.array(errors) for name, errors in study.errors.items()}
    alike = errors_of["transformer_encoder_decoder"][:, beyond] / errors_of["lstm"][:, beyond]
    first = len(errors_of["lstm"])  # the seeds that trained recurrent models too
    lead = errors_of["lstm"] / errors_of["implicit"][:first]
    return found | {
        "transformer_over_lstm_smallest": alike.min(axis=1),
        "transformer_over_lstm_largest": alike.max(axis=1),
        "lstm_over_implicit": np.median(lead[:, beyond], axis=1),
        "linear_over_implicit": np.median(errors_of["linear"] / errors_of["implicit"], axis=1),
    }


def mean_predictions(study: Study, profile: str) -> dict[str, list[list[float]]]:
    """Mean prediction at the last step, (seeds, shifts): `mean_prediction/NAME`."""
    found = {}
    for name, models in study.models.items():
        means = []
        for seed, model in zip(study.seeds, models):  # recurrent models have fewer seeds
            test = task.average_data(seed, profile, study.shifts).test
            means.append([float(predict(model, u)[:, -1].mean()) for u, _ in test.values()])
        found[f"mean_prediction/{name}"] = means
    return found


def followed(study: Study, predictions: dict[str, list[list[float]]]) -> dict[str, list[float]]:
    """`prediction_NAME_shift_SHIFT`, and `followed_NAME_shift_SHIFT`, the share of the shift that the prediction
    follows: 1 is right, 0 stays at the training mean. Empty where the shifts 0 and SHIFT are not tested."""
    found = {}
    for name in study.models:
        means = predictions[f"mean_prediction/{name}"]
        for shift in (s for s in QUOTED[1:] if s in study.shifts and 0.0 in study.shifts):
            at, zero = study.shifts.index(shift), study.shifts.index(0.0)
            found[f"prediction_{name}_shift_{shift:g}"] = [row[at] for row in means]
            found[f"followed_{name}_shift_{shift:g}"] = [(row[at] - row[zero]) / shift for row in means]
    return found


def setup(study: Study, profile: str) -> dict[str, Any]:
    """Sizes and moments of the data as drawn, the range of shifts, the bound of each LSTM's output, and printed
    architectures' `count_MODEL_counted` and `count_MODEL_explained`."""
    data = task.average_data(study.seeds[0], profile, [0.0, 100.0])
    far = data.test[100.0][0]
    heads = [model.head for model in study.models["lstm"]]
    found = {
        "train_samples": len(data.u_train),
        "test_samples": len(far),
        "sequence_length": data.u_train.shape[1],
        "train_mean": float(data.u_train.mean()),
        "train_sd": float(data.u_train.std()),
        "test_mean_shift_100": float(far.mean()),
        "test_sd_shift_100": float(far.std()),
        "lowest_shift": float(min(study.shifts)),
        "highest_shift": float(max(study.shifts)),
        "lstm_output_bound": [float(h.weight.detach().abs().sum() + h.bias.detach().abs().sum()) for h in heads],
    }
    for architecture in ARCHITECTURES:
        if architecture.task == "rolling average" and architecture.published is not None:
            for kind in ("counted", "explained"):
                value = getattr(architecture, kind)
                found[f"count_{architecture.model}_{kind}"] = "none" if value is None else value
    return found
