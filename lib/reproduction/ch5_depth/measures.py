"""What the notebook of depth records of trained models: counts, their law, difficulty, depth during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reproduction.ch5_depth import ablation
from reproduction.ch5_depth import compute as depth
from reproduction.core.budgets import budgets

VARIANTS = ("full", "kappa_half", "strict_upper")
# Prefix of the keys -> the models that it stands for.
MODELS = {"": "trained", "kappa_half_": "κ = 0.5", "strict_upper_": "A strictly triangular", "untrained_": "untrained"}
Made = dict[tuple[str, str], list[ablation.Run]]  # (task, variant) -> one run a seed


@dataclass(frozen=True)
class Runs:
    """Seeds and budget of a notebook's run.

    Args:
        seeds: of data and weights.
        profile: decides sizes and epochs.
        epochs_scale: multiplies the epochs of every training.
    """

    seeds: Sequence[int]
    profile: str
    epochs_scale: float = 1.0

    def run(self, name: str, variant: str, seed: int, **options: Any) -> ablation.Run:
        """A training, see `ablation.run`; a long one resumes."""
        given = {"epochs_scale": self.epochs_scale, "cached": self.profile == "full"} | options
        return ablation.run(name, variant, seed, self.profile, **given)


def trained(runs: Runs) -> Made:
    """Every task and variant, with the measure and the count looked at after each epoch."""
    return {
        (name, variant): [
            runs.run(name, variant, seed, after=depth.during_training(name, seed, runs.profile)) for seed in runs.seeds
        ]
        for name in ablation.TASKS
        for variant in VARIANTS
    }


def training(made: Made, profile: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values `TASK_VARIANT_trained`, the measure on the training set, one a seed, and the budgets of TASK_VARIANT (see
    `budgets`); curves over the epochs `training/TASK/VARIANT/measure` and `.../iterations`."""
    histories = {"_".join(pair): [run.history for run in runs] for pair, runs in made.items()}
    recipes = {"_".join(pair): ablation.recipe(*pair, profile) for pair in made}
    values, curves = budgets(histories, recipes, ablation.settings(profile)["n_train"]), {}
    for (name, variant), runs in made.items():
        for k, kind in ((0, "measure"), (1, "iterations")):
            curves[f"training/{name}/{variant}/{kind}"] = [depth.column(run.history, k) for run in runs]
        values[f"{name}_{variant}_trained"] = [run.trained for run in runs]
    return values, curves


def _laws(name: str, made: Made, runs: Runs) -> tuple[dict[str, list[Any]], list[Any], Any]:
    """Facts of `depth_law` of each model, one a seed, with the model's prefix; keys and sizes of the inputs."""
    laws: dict[str, list[Any]] = {}
    keys, sizes = [], None
    for k, seed in enumerate(runs.seeds):
        test = ablation.data(name, seed, runs.profile).test
        keys, inputs, sizes = depth.growing_inputs(name, test)
        for variant in (*VARIANTS, "untrained"):
            random = variant == "untrained"
            model = depth.untrained(name, seed) if random else made[name, variant][k].model
            prefix = "" if variant == "full" else f"{variant}_"
            for key, value in depth.depth_law(model, inputs, sizes).items():
                laws.setdefault(f"{prefix}{key}", []).append(value)
        full = made[name, "full"][k].model
        laws.setdefault("scaling", []).append(depth.scaling_difference(full, inputs[0]))
        farthest = depth.counts(full, test[keys[-1]][0][:300])
        laws.setdefault("fresh", []).append(float(farthest.mean()))
    return laws, keys, sizes


def law(name: str, made: Made, runs: Runs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Iterations of one task against the size of the inputs, one value or curve a seed.

    Returns:
        Values `TASK_PREFIXiterations`, of the smallest and the farthest inputs, their growth, the slope, the law's
        prediction, bound and radius, with the prefixes of `MODELS`; the difference by scaling, the count on fresh far
        inputs, the keys. Curves `TASK/absolute`, `TASK/VARIANT`, `TASK/law`, `TASK/relative` and `TASK/sizes`.
    """
    laws, keys, sizes = _laws(name, made, runs)
    values: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for prefix in MODELS:
        key, absolute, relative = f"{name}_{prefix}", laws[f"{prefix}absolute"], laws[f"{prefix}relative"]
        values[f"{key}iterations"] = [row[0] for row in absolute]
        values[f"{key}iterations_largest"] = [row[0] for row in laws[f"{prefix}absolute_largest"]]
        values[f"{key}iterations_farthest"] = [row[-1] for row in absolute]
        values[f"{key}growth"] = [row[-1] / row[0] for row in absolute]
        values[f"{key}growth_relative"] = [row[-1] / row[0] for row in relative]
        values |= {f"{key}{kind}": laws[f"{prefix}{kind}"] for kind in ("slope", "predicted", "bound", "radius")}
        curves[f"{name}/{prefix.strip('_') or 'absolute'}"] = absolute
    values[f"{name}_scaling_difference"] = laws["scaling"]
    values[f"{name}_iterations_fresh"] = laws["fresh"]
    values[f"{name}_keys"] = keys
    return values, curves | {f"{name}/{curve}": laws[curve] for curve in ("law", "relative")} | {f"{name}/sizes": sizes}


def orders(values: dict[str, Any], seeds: Sequence[int]) -> list[list[str]]:
    """Seed by seed, the papers' tasks from the fewest to the most iterations (recorded `TASK_iterations`)."""
    names = ("addition", "subtraction", "argmax")
    return [sorted(names, key=lambda name: values[f"{name}_iterations"][k]) for k in range(len(seeds))]


def difficulty(made: Made, runs: Runs, values: dict[str, Any]) -> dict[str, Any]:
    """Whether the count ranks samples and tasks by difficulty, one value a seed.

    Args:
        values: of `law`.

    Returns:
        `TASK_count_follows_difficulty`, `TASK_kappa_half_depth_ratio`, `TASK_kappa_half_quality`, and shares of seeds
        with the published order and with the argmax deepest.
    """
    found: dict[str, Any] = {}
    for name, task in ablation.TASKS.items():
        follows = []
        for seed, run in zip(runs.seeds, made[name, "full"], strict=True):
            u, y = ablation.data(name, seed, runs.profile, [task.train]).test[task.train]
            follows.append(depth.count_follows_difficulty(run.model, name, u, y))
        found[f"{name}_count_follows_difficulty"] = follows
        pairs = zip(values[f"{name}_iterations"], values[f"{name}_kappa_half_iterations"])
        found[f"{name}_kappa_half_depth_ratio"] = [a / b for a, b in pairs]
        other = [run.trained for run in made[name, "kappa_half"]]
        found[f"{name}_kappa_half_quality"] = [b / run.trained for b, run in zip(other, made[name, "full"])]
    ordered = orders(values, runs.seeds)
    found["order_as_published"] = [float(order == ["addition", "subtraction", "argmax"]) for order in ordered]
    found["argmax_deepest"] = [float(order[-1] == "argmax") for order in ordered]
    return found


def during_training(made: Made) -> dict[str, list[float]]:
    """Depth over the epochs, one value a seed.

    Returns:
        `TASK_depth_follows_quality` (rank correlation), `TASK_depth_settles`, `TASK_depth_last_over_first`, and the
        largest range in which a task settles.
    """
    found: dict[str, list[float]] = {}
    for name, task in ablation.TASKS.items():
        sign = 1 if task.loss == "cross_entropy" else -1
        looks = [[depth.column(run.history, k) for k in (0, 1)] for run in made[name, "full"]]
        found[f"{name}_depth_follows_quality"] = [
            depth.rank_correlation([sign * v for v in quality], depths) for quality, depths in looks
        ]
        found[f"{name}_depth_settles"] = [depth.settled(depths) for _, depths in looks]
        found[f"{name}_depth_last_over_first"] = [depths[-1] / depths[0] for _, depths in looks]
    settles = zip(*(found[f"{name}_depth_settles"] for name in ablation.TASKS))
    return found | {"largest_settling_range": [max(row) for row in settles]}


def largest_row_norms(made: Made) -> list[float]:
    """Seed by seed, the largest row norm of A in any trained model."""
    return [max(depth.largest_row_norm(run.model) for run in runs) for runs in zip(*made.values())]
