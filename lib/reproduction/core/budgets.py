"""How long networks were trained: passes over the training set, steps of the optimiser, seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.core.recipe import History, Recipe

# Columns of a notebook's table, for `Results.rows`.
BUDGET_COLUMNS = {
    "epochs": "trained_epochs_{}",
    "updates": "trained_updates_{}",
    "learning rate": "trained_lr_{}",
    "CPU seconds a run": "trained_seconds_{}",
}


def training_budget(name: str, recipe: Recipe, histories: Sequence[History], n_samples: int) -> dict[str, list[int]]:
    r"""`trained_epochs_NAME` and `trained_updates_NAME`, one a history: $E$ and $E \lceil m / b \rceil$.

    Args:
        name: of the network in the keys.
        recipe: with its batch size $b$; without one a batch holds all samples.
        histories: of the trainings, with an entry for each of their $E$ epochs.
        n_samples: $m$, of the training set.

    Raises:
        ValueError: where there are no samples.
    """
    if n_samples < 1:
        raise ValueError(f"n_samples = {n_samples}: a training set has samples")
    steps = math.ceil(n_samples / (recipe.batch_size or n_samples))
    epochs = [len(history.loss) for history in histories]
    return {f"trained_epochs_{name}": epochs, f"trained_updates_{name}": [steps * count for count in epochs]}


def budgets(
    histories: Mapping[str, Sequence[History]], recipes: Mapping[str, Recipe], n_samples: int
) -> dict[str, Any]:
    """Of every model of a study its `training_budget`, the learning rate of the first step and the CPU seconds.

    Args:
        histories: model -> one history a seed.
        recipes: model -> how it was trained; those of models without a history are not read.
        n_samples: of the training set.

    Returns:
        `trained_epochs_NAME`, `trained_updates_NAME` and `trained_seconds_NAME` (CPU seconds), one a seed, and
        `trained_lr_NAME`. An epoch in which training stopped is not counted.

    Raises:
        KeyError: a history without a recipe, naming the model.
    """
    found: dict[str, Any] = {}
    for name, runs in histories.items():
        if name not in recipes:
            raise KeyError(f"{name!r} was trained, but there is no recipe of that name")
        found |= training_budget(name, recipes[name], runs, n_samples)
        found[f"trained_lr_{name}"] = recipes[name].lr
        found[f"trained_seconds_{name}"] = [sum(history.cpu_seconds) for history in runs], "s"
    return found
