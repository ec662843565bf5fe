"""Feedback: which weights carry it, what its absence costs, and what else the ablation changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.ch5_depth import ablation
from reproduction.ch5_depth.compute import largest_row_norm
from reproduction.ch5_depth.measures import Made, Runs
from reproduction.core.study import loglog_slope

# Variants with a single change each: feedback, the norm constraint, the number of states.
ABLATION = ("full", "strict_upper", "strict_upper_free", "strict_upper_matched")
VARIANTS = (*ABLATION, "linear")
OTHER_SIZES = ((50, 100, 1), (200, 10, 10), (33, 10, 10))  # n, p, q that the papers print besides the tasks'


def loops(adjacency: np.ndarray) -> bool:
    """Whether a state can reach itself along the non-zero entries of A, in any number of iterations."""
    reach = np.asarray(adjacency, dtype=bool).astype(int)
    power = reach.copy()
    for _ in range(len(reach)):
        if np.trace(power) > 0:
            return True
        power = ((power @ reach) > 0).astype(int)
    return False


def feedback_entries(n: int) -> list[tuple[int, int]]:
    """Entries that close a loop when they join a strictly upper triangular A whose other entries are not zero.

    Source:
        Tsai thesis (2024), (5.1), where these are the stars.
    """
    upper = np.triu(np.ones((n, n), dtype=bool), 1)
    found = []
    for i in range(n):
        for j in range(n):
            if not upper[i, j]:
                with_entry = upper.copy()
                with_entry[i, j] = True
                if loops(with_entry):
                    found.append((i, j))
    return found


def advantage(full: Sequence[float], ablated: Sequence[float], measure: str) -> list[float]:
    """Seed by seed what feedback gains: error ratio ablated / full, or accuracy full - ablated in percentage points.

    Raises:
        ValueError: a measure other than "test MSE" and "accuracy".
    """
    if measure not in ("test MSE", "accuracy"):
        raise ValueError(f"measure must be 'test MSE' or 'accuracy', got {measure!r}")
    pairs = zip(full, ablated, strict=True)
    return [100 * (a - b) if measure == "accuracy" else b / a for a, b in pairs]


def growth(keys: Sequence[float], errors: Sequence[Sequence[float]], least: float) -> list[float]:
    """Slope of log error against log key, one a seed, over the keys from `least` on."""
    chosen = [k for k, key in enumerate(keys) if key >= least]
    return [loglog_slope([keys[k] for k in chosen], [row[k] for k in chosen])[0] for row in errors]


def verdicts(advantages: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Number of seeds, over each task, in which the model with feedback is the better one.

    The advantage is a difference of accuracies on "argmax", elsewhere a ratio of errors.
    """
    return {name: sum(v > (0 if name == "argmax" else 1) for v in values) for name, values in advantages.items()}


def weights() -> dict[str, Any]:
    """Entries that carry feedback in three states, and numbers of weights with and without them.

    Returns:
        Two facts of the entries; `TASK_weights_full`, `TASK_weights_strict_upper`, their ratio, that of A alone; and
        `weights_ratio_nSTATES` of other printed sizes.
    """
    stars = feedback_entries(3)
    found: dict[str, Any] = {
        "feedback_entries_of_3": len(stars),
        "feedback_is_lower_triangle": stars == [(i, j) for i in range(3) for j in range(i + 1)],
    }
    for name, task in ablation.TASKS.items():
        counts = {kind: ablation.weights(task.n, task.p, task.q, kind) for kind in ("full", "strict_upper")}
        found |= {f"{name}_weights_{kind}": count for kind, count in counts.items()}
        found[f"{name}_weights_ratio"] = counts["full"] / counts["strict_upper"]
        found[f"{name}_weights_ratio_of_A"] = task.n**2 / (task.n * (task.n - 1) // 2)
    for n, p, q in OTHER_SIZES:
        ratio = ablation.weights(n, p, q, "full") / ablation.weights(n, p, q, "strict_upper")
        found[f"weights_ratio_n{n}"] = ratio
    return found


def trained(runs: Runs) -> Made:
    """Every task and variant, and a linear map: (task, variant) -> one run a seed."""
    return {
        (name, variant): [runs.run(name, variant, seed) for seed in runs.seeds]
        for name in ablation.TASKS
        for variant in VARIANTS
    }


def training(made: Made) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values `TASK_VARIANT_trained` and `TASK_free_row_norm`, one a seed, and CPU seconds; curves `TASK/VARIANT` over
    `TASK/keys`."""
    values, curves = {}, {}
    for (name, variant), runs in made.items():
        values[f"{name}_{variant}_trained"] = [run.trained for run in runs]
        curves[f"{name}/{variant}"] = [run.measured for run in runs]
        curves[f"{name}/keys"] = runs[0].keys
    for name in ablation.TASKS:
        free = made[name, "strict_upper_free"]
        values[f"{name}_free_row_norm"] = [largest_row_norm(run.model) for run in free]
    seconds = sum(sum(run.history.cpu_seconds) for runs in made.values() for run in runs)
    return values | {"training_cpu_seconds": (seconds, "s")}, curves


def far_from_training(made: Made, far: float, n_seeds: int) -> dict[str, Any]:
    """The measures at one shift, and what feedback gains there, one value a seed.

    Returns:
        `TASK_VARIANT_far` (accuracies in per cent), `TASK_gain_over_VARIANT`, numbers of seeds and of tasks where
        feedback helps.
    """
    found: dict[str, Any] = {}
    gains = {}
    for name, task in ablation.TASKS.items():
        scale, unit, difference = (1, "", "") if task.loss == "mse" else (100, "%", "points")
        at = {variant: [run.at(far) for run in made[name, variant]] for variant in VARIANTS}
        found |= {f"{name}_{variant}_far": ([scale * v for v in values], unit) for variant, values in at.items()}
        for variant in ABLATION[1:]:
            gain = advantage(at["full"], at[variant], task.measure)
            found[f"{name}_gain_over_{variant}"] = gain, difference
        gains[name] = found[f"{name}_gain_over_strict_upper"][0]
    wins = verdicts(gains)
    found |= {f"{name}_seeds_where_feedback_helps": (won, f"of {n_seeds} seeds") for name, won in wins.items()}
    found["tasks_where_feedback_helps"] = sum(2 * won > n_seeds for won in wins.values())
    return found | {"tasks_where_every_seed_helps": sum(won == n_seeds for won in wins.values())}


def slopes(made: Made) -> dict[str, Any]:
    """How the measures change with the shift, one value a seed.

    Returns:
        `TASK_slope_VARIANT` of log error against log size (of accuracies the range over the shifts in points), their
        difference without and with feedback, and by how much the distance of the argmax's accuracies varies.
    """
    found: dict[str, Any] = {}
    for name, task in ablation.TASKS.items():
        keys = [float(key) for key in made[name, "full"][0].keys]
        sizes, least = ([3 + key for key in keys], 3 + 5) if name == "average" else (keys, 5)
        for variant in VARIANTS:
            rows = [run.measured for run in made[name, variant]]
            if task.loss == "mse":
                found[f"{name}_slope_{variant}"] = growth(sizes, rows, least), ""
            else:
                ranges = [100 * (max(row) - min(row)) for row in rows]
                found[f"{name}_slope_{variant}"] = ranges, "points between the shifts"
        pairs = zip(*(found[f"{name}_slope_{variant}"][0] for variant in ("full", "strict_upper")))
        found[f"{name}_slope_difference"] = [b - a for a, b in pairs]
    offsets = []
    for full, triangular in zip(made["argmax", "full"], made["argmax", "strict_upper"]):
        points = [100 * (a - b) for a, b in zip(full.measured, triangular.measured)]
        offsets.append(max(points) - min(points))
    return found | {"argmax_offset_by_shift": (offsets, "points")}
