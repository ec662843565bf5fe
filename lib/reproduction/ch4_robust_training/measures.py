"""What the notebook of robust training records: the measurements of `compute` on all objectives, one value a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset
from reproduction.ch4_robust_training import compute, losses

CONSTANTS = ("rho", "convex_penalty", "sensitivity", "row_norm")
BOUNDS = ("attacked", "certified", "interval", "box")  # shares of the test images, one a radius
WITH_LOSS = ("plain", "interval")  # objectives of which the worst-case loss is measured
COMPARED = ("convex_penalty", "sensitivity", "adversarial", "interval")
Setting = tuple[str, float]  # objective and its weight


@dataclass(frozen=True)
class Study:
    """What `compute.measured` says of every objective and weight, one a seed.

    Args:
        epsilons: radii of the test.
        found: setting -> the measurements.
        seconds: setting -> CPU time of the training.
        losses: values of the worst-case losses.
        best: objective -> the weight that stands up best to the attack, by the mean over the seeds.
    """

    epsilons: Sequence[float]
    found: Mapping[Setting, list[dict[str, Any]]]
    seconds: Mapping[Setting, list[float]]
    losses: Mapping[str, list[float]]
    best: Mapping[str, float]

    def of(self, name: str) -> list[dict[str, Any]]:
        """The measurements of an objective at its best weight."""
        return self.found[name, self.best[name]]

    def at_largest(self, name: str, key: str) -> list[float]:
        """A share of the test images at the largest radius, in per cent, one a seed."""
        return [100 * one[key][-1] for one in self.of(name)]


def penalties(count: int, seed: int) -> dict[str, float]:
    """`penalty_FACT` of `losses.penalty_facts` on random models."""
    return {f"penalty_{key}": value for key, value in losses.penalty_facts(count, seed).items()}


def worst_cases(count: int, seed: int) -> dict[str, float]:
    """`loss_FACT` of `losses.enumeration_facts` on random models."""
    return {f"loss_{key}": value for key, value in losses.enumeration_facts(count, seed).items()}


def trained(
    images: Dataset,
    settings: Mapping[str, Sequence[compute.Objective]],
    epsilons: Sequence[float],
    *,
    count: int,
    seeds: Sequence[int],
) -> Study:
    """Every objective trained with every seed, and measured on the first test images.

    Args:
        images: training and test images.
        settings: of `compute.objectives`.
        epsilons: radii of the test.
        count: of the test images.
        seeds: of the trainings.
    """
    found: dict[Setting, list[dict[str, Any]]] = {}
    seconds: dict[Setting, list[float]] = {}
    of_losses: dict[str, list[float]] = {}
    u, labels = (part[:count] for part in images.test[0])
    for name, objectives in settings.items():
        for objective in objectives:
            runs = [compute.trained(images, objective, seed=seed) for seed in seeds]
            found[name, objective.weight] = [
                compute.measured(model, images, epsilons, n_samples=count, seed=seed)
                for (model, _), seed in zip(runs, seeds, strict=True)
            ]
            seconds[name, objective.weight] = [sum(history.cpu_seconds) for _, history in runs]
            if name in WITH_LOSS:
                each = [losses.trained_facts(model, u.astype(float), labels, epsilons[0]) for model, _ in runs]
                of_losses |= {f"{name}_loss_{key}": [one[key] for one in each] for key in each[0]}
    best = {
        name: max(
            (weight for other, weight in found if other == name),
            key=lambda weight: np.mean([one["attacked"][-1] for one in found[name, weight]]),
        )
        for name in settings
    }
    return Study(epsilons, found, seconds, of_losses, best)


def of_objectives(study: Study) -> dict[str, Any]:
    """Worst-case losses `OBJECTIVE_loss_FACT`; of each objective at its best weight `OBJECTIVE_weight`, `_cpu_seconds`,
    `_clean`, the constants, and the share of the test images by bound and radius, `OBJECTIVE_BOUND_RADIUS`; `epsilons`
    and `training_cpu_seconds` of all weights."""
    values: dict[str, Any] = dict(study.losses)
    for name, weight in study.best.items():
        runs = study.of(name)
        values[f"{name}_weight"] = weight
        values[f"{name}_cpu_seconds"] = study.seconds[name, weight], "s"
        values[f"{name}_clean"] = [100 * one["clean"] for one in runs], "%"
        values |= {f"{name}_{key}": [one[key] for one in runs] for key in CONSTANTS}
        for key in BOUNDS:
            for i, eps in enumerate(study.epsilons):
                values[f"{name}_{key}_{eps:g}"] = [100 * one[key][i] for one in runs], "%"
    spent = sum(sum(each) for each in study.seconds.values())
    return values | {"epsilons": study.epsilons, "training_cpu_seconds": (spent, "s")}


def curves(study: Study) -> dict[str, Any]:
    """`radius/OBJECTIVE` at its best weight, one entry a seed; `weights/OBJECTIVE` at the largest radius, medians, one
    entry a weight."""
    values: dict[str, Any] = {}
    for name in study.best:
        values[f"radius/{name}"] = [{key: one[key] for key in ("clean", *BOUNDS)} for one in study.of(name)]
        values[f"weights/{name}"] = [
            {
                "weight": weight,
                "clean": 100 * float(np.median([one["clean"] for one in runs])),
                **{
                    bound: 100 * float(np.median([one[bound][-1] for one in runs]))
                    for bound in ("attacked", "certified", "box")
                },
            }
            for (other, weight), runs in study.found.items()
            if other == name
        ]
    return values


def gains(study: Study) -> dict[str, list[float]]:
    """Points that an objective gains seed by seed at the largest radius, `OBJECTIVE_BOUND_gain_over_OTHER`, and in
    clean accuracy over plain training, `OBJECTIVE_clean_gain_over_plain`; `OBJECTIVE_undecided`, accuracy under attack
    less certified."""
    values: dict[str, list[float]] = {}
    for name in COMPARED:
        for key in ("attacked", "certified", "box"):
            for other in ("plain", "weight_decay"):
                pair = (study.at_largest(which, key) for which in (name, other))
                values[f"{name}_{key}_gain_over_{other}"] = [a - b for a, b in zip(*pair, strict=True)]
        clean = ([100 * one["clean"] for one in study.of(which)] for which in (name, "plain"))
        values[f"{name}_clean_gain_over_plain"] = [a - b for a, b in zip(*clean, strict=True)]
    for name in study.best:
        pair = (study.at_largest(name, key) for key in ("attacked", "certified"))
        values[f"{name}_undecided"] = [a - b for a, b in zip(*pair, strict=True)]
    return values


def box_shares(study: Study) -> dict[str, list[float]]:
    """`OBJECTIVE_box_share`: what the box certifies of what the dual bound does, NaN where that is nothing."""
    return {
        f"{name}_box_share": [
            b / c if c else float("nan")
            for b, c in zip(study.at_largest(name, "box"), study.at_largest(name, "certified"), strict=True)
        ]
        for name in study.best
    }
