"""What the notebook of addition and subtraction records: errors against the range, Table 5.2, controls, counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset
from reproduction.ch5_arithmetic import task
from reproduction.core.budgets import budgets
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import count_parameters, predict
from reproduction.core.study import Study, loglog_slope, ratio, run_study
from reproduction.models.transformer import DepthwiseEncoder

Studies = Mapping[str, Study]  # operation -> study
PAPER = ("mlp", "nalu", "transformer_sequential", "transformer_depthwise")
FEW_MODELS = ("implicit", "linear", "mlp", "mlp_bias_free")
DRAWN_OF_TABLE = ("implicit", "linear", "mlp_relu")


def _kept(profile: str) -> dict[str, Any]:
    """Options with which a long run resumes."""
    return {"key_module": "reproduction.ch5_arithmetic.task" if profile == "full" else None}


def trained(
    seeds: Sequence[int], profile: str, factors: Sequence[float] | None = None, epochs_scale: float = 1.0
) -> dict[str, Study]:
    """The papers' models and the controls, by operation; `factors` replaces the profile's values of t."""
    return {
        operation: run_study(
            operation,
            lambda seed, operation=operation: task.data(operation, seed, profile, factors),
            lambda seed: task.of_seed(seed, seeds, profile),
            seeds,
            epochs_scale=epochs_scale,
            **_kept(profile),
        )
        for operation in task.OPERATIONS
    }


def trained_table(seeds: Sequence[int], profile: str, epochs_scale: float = 1.0) -> dict[str, Study]:
    """The models of Table 5.2 by operation, tested after each epoch."""
    return {
        operation: run_study(
            f"table-{operation}",
            lambda seed, operation=operation: task.table_data(operation, seed, profile),
            lambda seed: task.table_models(seed, profile),
            seeds,
            epochs_scale=epochs_scale,
            evaluate_epochs=True,
            **_kept(profile),
        )
        for operation in task.OPERATIONS
    }


def error_curves(studies: Studies) -> dict[str, Any]:
    """`OPERATION/NAME`, test errors (seeds, t), and `OPERATION/NAME/loss`, the training loss of each epoch."""
    curves = {}
    for operation, study in studies.items():
        for name, errors in study.errors.items():
            curves[f"{operation}/{name}"] = errors
            curves[f"{operation}/{name}/loss"] = [history.loss for history in study.histories[name]]
    return curves


def sizes_and_training(studies: Studies) -> dict[str, Any]:
    """The values of t, `OPERATION_train_mse_NAME`, one a seed, and `parameters_NAME`."""
    first = studies["addition"]
    found: dict[str, Any] = {"t": [float(value) for value in first.shifts]}
    for operation, study in studies.items():
        found |= {f"{operation}_train_mse_{name}": errors for name, errors in study.train_errors.items()}
    return found | {f"parameters_{name}": count for name, count in first.parameters.items()}


def training_budgets(studies: Studies, seeds: Sequence[int], profile: str) -> dict[str, Any]:
    """Budgets of the models of the addition, which those of the subtraction share, see `budgets`."""
    recipes = {name: recipe for name, (_, recipe) in task.models(seeds[0], profile).items()}
    return budgets(studies["addition"].histories, recipes, task.settings(profile)["n_train"])


def _by_seed(errors: Sequence[Sequence[float]], n_seeds: int) -> np.ndarray:
    """Errors (seeds, t), with rows of NaN for seeds that did not train the model."""
    missing = [[np.nan] * len(errors[0])] * (n_seeds - len(errors))
    return np.array([*errors, *missing], dtype=float)


def _beyond(study: Study) -> list[int]:
    """Places of the ranges beyond that of training."""
    return [k for k, value in enumerate(study.shifts) if value >= 10]


def slopes(studies: Studies) -> dict[str, list[float]]:
    """`OPERATION_slope_NAME` of log error against log t beyond the training range, and `OPERATION_line_r2_NAME`, one
    a seed; empty where fewer than two ranges are beyond."""
    found = {}
    for operation, study in studies.items():
        beyond = _beyond(study)
        for name, errors in study.errors.items() if len(beyond) > 1 else ():
            x = [float(study.shifts[k]) for k in beyond]
            fits = [loglog_slope(x, [row[k] for k in beyond]) for row in errors]
            found[f"{operation}_slope_{name}"] = [fit[0] for fit in fits]
            found[f"{operation}_line_r2_{name}"] = [fit[1] for fit in fits]
    return found


def sentences(operation: str, study: Study) -> dict[str, Any]:
    """What the papers' sentences speak of, for one operation, one value a seed.

    Returns:
        `OPERATION_mse_NAME_tT`; the implicit model's error below t = 100; ratios of errors: the lowest of baselines to
        the implicit model over all t and over those beyond training, the lowest of NALU to the worst other model, the
        median of linear to implicit; ratios of training errors; and whether NALU diverged. A seed is compared with the
        models that it trained.
    """
    found: dict[str, Any] = {}
    for name in study.errors:
        for value in (10.0, 100.0, 1e5):
            if value in study.shifts:
                found[f"mse_{name}_t{value:g}"] = study.at(name, value)
    if 100.0 in study.shifts:  # by homogeneity the error just below t = 100 is that at 100
        found["implicit_below_100"] = study.at("implicit", 100.0)
    beyond, implicit = _beyond(study), study.errors["implicit"]
    with np.errstate(all="ignore"):
        lead = np.fmin.reduce([_by_seed(study.errors[name], len(implicit)) for name in PAPER]) / np.array(implicit)
        not_nalu = [_by_seed(errors, len(implicit)) for name, errors in study.errors.items() if name != "nalu"]
        worst = np.fmax.reduce(not_nalu)
        nalu = np.where(np.isfinite(study.errors["nalu"]), study.errors["nalu"], np.inf)[:, beyond] / worst[:, beyond]
    found["lowest_ratio_of_baselines"] = lead.min(axis=1)
    # the papers' range begins at 10; t = 2 is the range of training
    found["lowest_ratio_beyond_training"] = lead[:, beyond].min(axis=1)
    found["nalu_over_worst_other"] = nalu.min(axis=1)
    found["linear_over_implicit"] = np.median(np.array(study.errors["linear"]) / np.array(implicit), axis=1)
    fits = study.train_errors
    transformers = [name for name in PAPER if name.startswith("transformer")]
    for key, names in (("lowest_train_ratio", PAPER), ("transformer_train_ratio", transformers)):
        found[key] = [
            min(fits[name][k] for name in names if k < len(fits[name])) / own for k, own in enumerate(fits["implicit"])
        ]
    found["nalu_diverged_in_training"] = [float(h.reason != "completed") for h in study.histories["nalu"]]
    return {f"{operation}_{key}": value for key, value in found.items()}


def sequential_output_spread(study: Study) -> float:
    """Largest minus smallest output of the sequential encoder over a thousand inputs of very different size."""
    inputs = np.random.default_rng(study.seeds[0]).uniform(-50, 50, (1000, 50)).astype(np.float32)
    outputs = predict(study.models["transformer_sequential"][0], inputs)
    return float(outputs.max() - outputs.min())


def exact_fits(seeds: Sequence[int], profile: str) -> dict[str, list[float]]:
    """Table 5.2 by least squares, one value a seed: `OPERATION_table_linear_exact`, and the condition number of the
    normal equations."""
    found, conditions = {}, []
    for operation in task.OPERATIONS:
        exact, conditions = [], []
        for seed in seeds:
            data = task.table_data(operation, seed, profile)
            u = data.u_train.astype(float)
            weights = np.linalg.lstsq(u, data.y_train.astype(float), rcond=None)[0]
            conditions.append(float(np.linalg.cond(u) ** 2))
            exact.append(float(np.mean([((a @ weights - y) ** 2).mean() for a, y in data.test.values()])))
        found[f"{operation}_table_linear_exact"] = exact
    return found | {"table_condition_number": conditions}


def table_52(table: Studies) -> dict[str, Any]:
    """Test errors of Table 5.2, one a seed.

    Returns:
        `OPERATION_table_NAME`, of the best activation its name and its error too, the implicit model's ratio to it,
        and, of the curves over epochs, how far the ReLU network ends above its best and where the implicit model ends.
    """
    found: dict[str, Any] = {}
    for operation, study in table.items():
        tested = {name: [row[0] for row in errors] for name, errors in study.errors.items()}
        mlps = [name for name in tested if name.startswith("mlp_")]
        best = min(mlps, key=lambda name: np.median(tested[name]))
        found[f"{operation}_table_best_activation"] = best.removeprefix("mlp_")
        found[f"{operation}_table_best_mlp"] = tested[best]
        for name in ("implicit", "linear", "mlp_relu", "mlp_relu6"):
            found[f"{operation}_table_{name}"] = tested[name]
        found[f"{operation}_table_implicit_over_best_mlp"] = ratio(tested["implicit"], tested[best])
    for operation, study in table.items():
        relu = [[e[0] for e in h.evaluation] for h in study.histories["mlp_relu"]]
        found[f"{operation}_curve_mlp_last_over_best"] = [row[-1] / min(row) for row in relu]
        found[f"{operation}_curve_implicit_last"] = [h.evaluation[-1][0] for h in study.histories["implicit"]]
    # The report calls this shift "t = 3": neither the half-width nor the mean, but the width of the range trebles.
    return found | {"table_width_ratio": (5 - 2) / (2 - 1), "table_mean_ratio": (2 + 5) / (1 + 2)}


def table_curves(table: Studies) -> dict[str, Any]:
    """Test error after each epoch, (seeds, epochs): `table/OPERATION/NAME/test`."""
    return {
        f"table/{operation}/{name}/test": [[e[0] for e in h.evaluation] for h in study.histories[name]]
        for operation, study in table.items()
        for name in DRAWN_OF_TABLE
    }


def few_sizes(profile: str) -> list[int]:
    """Numbers of training samples that are compared."""
    largest = task.settings(profile)["n_train"]
    return [*(size for size in (100, 300, 1000) if size < largest), largest]


def few_samples(seeds: Sequence[int], profile: str, epochs_scale: float = 1.0) -> tuple[dict[str, Any], float]:
    """Errors at t = 10 after training on fewer samples, with the same number of steps.

    Returns:
        `few_NAME_SIZE` and `few_advantage_SIZE` (MLP over implicit; of all samples "largest"), one value a seed; and
        the CPU seconds of training.
    """
    sizes, largest = few_sizes(profile), task.settings(profile)["n_train"]
    found, seconds = {}, []
    for size in sizes:

        def subset(seed: int, size: int = size) -> Dataset:
            data = task.data("addition", seed, profile, [10.0])
            return dataclasses.replace(data, u_train=data.u_train[:size], y_train=data.y_train[:size])

        few = run_study(
            f"few-{size}",
            subset,
            lambda seed: {name: task.models(seed, profile)[name] for name in FEW_MODELS},
            seeds,
            epochs_scale=0.5 * epochs_scale * largest / size,
            **_kept(profile),
        )
        seconds.append(few.cpu_seconds)
        found |= {f"few_{name}_{size}": few.at(name, 10.0) for name in FEW_MODELS}
        label = "largest" if size == sizes[-1] else size
        found[f"few_advantage_{label}"] = ratio(few.at("mlp", 10.0), few.at("implicit", 10.0))
    return found, sum(seconds)


def per_sample(seeds: Sequence[int], profile: str) -> dict[str, list[float]]:
    """The reading in which each sample has positions of its own, one value a seed.

    Returns:
        `OPERATION_per_sample_floor` (mean of Var[y | u]), `..._reached` (least squares) and `..._variance` (of y).
    """
    found = {}
    for operation in task.OPERATIONS:
        facts: dict[str, list[float]] = {"floor": [], "reached": [], "variance": []}
        for seed in seeds:
            data = task.data(operation, seed, profile, [2.0], indices="per_sample")
            u, y = data.u_train.astype(float), data.y_train.astype(float)
            weights = np.linalg.lstsq(u, y, rcond=None)[0]
            u_test, y_test = data.test[2.0]
            facts["floor"].append(data.meta["floor"][2.0])
            facts["reached"].append(float(((u_test @ weights - y_test) ** 2).mean()))
            facts["variance"].append(float(y_test.var()))
        found |= {f"{operation}_per_sample_{key}": values for key, values in facts.items()}
    return found


def setup(studies: Studies, profile: str) -> dict[str, float]:
    """Training samples, the range of t, and the mean number of terms of both sums."""
    t = [float(value) for value in studies["addition"].shifts]
    lengths = [j - i + 1 for i in range(1, 51) for j in range(i + 1, 51)]
    return {
        "train_samples": task.settings(profile)["n_train"],
        "t_lowest": min(t),
        "t_highest": max(t),
        "mean_terms": 2 * float(np.mean(lengths)),
    }


def parameter_counts() -> dict[str, Any]:
    """`count_TASK_MODEL` and `count_TASK_MODEL_explained` of the printed architectures, or a text where there is none,
    and two counts of depth-wise encoders."""
    found: dict[str, Any] = {}
    for architecture in ARCHITECTURES:
        if architecture.task in ("identity", "arithmetic") and architecture.published is not None:
            key = f"count_{architecture.task}_{architecture.model.replace(' ', '_').replace('-', '_')}"
            counted, explained = architecture.counted, architecture.explained
            found[key] = "cannot be built" if counted is None else counted
            found[f"{key}_explained"] = "none needed" if explained is None else explained
    return found | {
        "count_encoder_width_10": count_parameters(DepthwiseEncoder(10, width=10, seed=0)),
        "count_depthwise_width_500": count_parameters(DepthwiseEncoder(50, 1, width=500, seed=0)),
    }
