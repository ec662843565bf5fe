"""What a trained implicit model answers when its loop is cut after k iterations, or started elsewhere than at 0.

Two properties that the papers cite: more inner iterations may overfit, and the equilibrium does not depend on the start
(path independence). Both are asked of models trained to equilibrium, in double precision.

Source: Liang et al. (2021) and Anil et al. (2022), as cited in Decugis et al. (2024), section 1.1, and Tsai (2024),
section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from implicit_models.model import ImplicitModel
from reproduction.ch5_depth import ablation
from reproduction.ch5_depth.compute import equilibria, matrices
from reproduction.ch5_depth.measures import Made, Runs

CAPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SAMPLES = 600
# An answer is settled where its error is within this factor of the error at equilibrium.
SETTLED = 1.01


def error(name: str, output: Float[np.ndarray, "N q"], y: Shaped[np.ndarray, "N ..."]) -> float:
    """Mean squared error of a task's outputs, or for the argmax the share of wrong answers."""
    if ablation.task_of(name).loss == "mse":
        return float(((output - y) ** 2).mean())
    return float((output.argmax(axis=1) != y).mean())


def cut_errors(
    model: ImplicitModel, name: str, u: Float[np.ndarray, "N p"], y: Shaped[np.ndarray, "N ..."], caps: Sequence[int]
) -> list[float]:
    """Errors of y = C x_k + D u with x_k after k Picard iterations from 0, for each k of `caps`, increasing; last that
    at the equilibrium.

    Raises:
        ValueError: caps do not increase from at least 0.
    """
    if list(caps) != sorted(set(caps)) or min(caps, default=0) < 0:
        raise ValueError(f"caps must increase from at least 0, got {list(caps)}")
    weights, u = matrices(model), np.asarray(u, dtype=np.float64)
    b, direct = u @ weights["B"].T, u @ weights["D"].T
    x, done, found = np.zeros_like(b), 0, []
    for cap in caps:
        for _ in range(cap - done):
            x = np.maximum(x @ weights["A"].T + b, 0)
        done = cap
        found.append(error(name, x @ weights["C"].T + direct, y))
    return [*found, error(name, equilibria(model, u) @ weights["C"].T + direct, y)]


def start_difference(model: ImplicitModel, u: Float[np.ndarray, "N p"], seed: int, *, steps: int = 4_000) -> float:
    """Largest difference of a state reached from a random start to that reached from 0, relative to the largest state.

    Starts are drawn from U(0, 10 max x*), far outside the equilibria. 0 up to rounding where the equilibrium is unique.
    """
    weights, reached = matrices(model), equilibria(model, u)
    size = np.abs(reached).max(initial=0)
    b = np.asarray(u, dtype=np.float64) @ weights["B"].T
    x = np.random.default_rng(seed).uniform(0, 10 * size, b.shape)
    for _ in range(steps):
        image = np.maximum(x @ weights["A"].T + b, 0)
        moved, x = np.abs(image - x).max(initial=0), image
        if moved <= 1e-14 * size:
            break
    return float(np.abs(x - reached).max(initial=0) / size) if size else 0.0


def inner_iterations(made: Made, runs: Runs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Errors against the cap, in distribution ("near") and at the farthest test set ("far"), one value or curve a seed.

    Returns:
        Values `TASK_PLACE_cut_CAP` and `TASK_PLACE_equilibrium`; `TASK_PLACE_settles`, the smallest cap whose error is
        within `SETTLED` of that at equilibrium and stays so, or 2 max(CAPS) for none; `TASK_equilibrium_over_best_cut`,
        in distribution, above 1 where more iterations make the error larger; `start_difference`, the largest of all
        tasks. Curves `cut/TASK/PLACE` over `cut/caps`.
    """
    values: dict[str, Any] = {}
    curves: dict[str, Any] = {"cut/caps": list(CAPS)}
    apart: list[list[float]] = []
    for name, task in ablation.TASKS.items():
        rows: dict[str, list[list[float]]] = {"near": [], "far": []}
        apart.append([])
        for seed, run in zip(runs.seeds, made[name, "full"], strict=True):
            test = ablation.data(name, seed, runs.profile).test
            for place, key in (("near", task.train), ("far", max(test))):
                u, y = (part[:SAMPLES] for part in test[key])
                rows[place].append(cut_errors(run.model, name, u, y, CAPS))
            apart[-1].append(start_difference(run.model, test[task.train][0][:300], seed))
        for place, errors in rows.items():
            curves[f"cut/{name}/{place}"] = [row[:-1] for row in errors]
            values |= {f"{name}_{place}_cut_{cap}": [row[k] for row in errors] for k, cap in enumerate(CAPS)}
            values[f"{name}_{place}_equilibrium"] = [row[-1] for row in errors]
            values[f"{name}_{place}_settles"] = [settles(row) for row in errors]
        values[f"{name}_equilibrium_over_best_cut"] = [row[-1] / min(row) if min(row) else 1.0 for row in rows["near"]]
    return values | {"start_difference": [max(row) for row in zip(*apart)]}, curves


def settles(errors: Sequence[float]) -> int:
    """Smallest cap of `CAPS` from which on the error is within the factor `SETTLED` of the last of `errors`, that at
    equilibrium; 2 max(CAPS) where it is at none."""
    last, found = errors[-1], 2 * max(CAPS)
    for cap, value in reversed(list(zip(CAPS, errors))):
        if not last / SETTLED <= value <= last * SETTLED:
            break
        found = cap
    return found
