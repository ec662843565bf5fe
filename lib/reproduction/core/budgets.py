"""What the training of each model of a study took: epochs, updates, first learning rate, CPU seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.core.recipe import History, Recipe

BUDGET_COLUMNS = {
    "epochs": "trained_epochs_{}",
    "updates": "trained_updates_{}",
    "learning rate": "trained_lr_{}",
    "CPU seconds a run": "trained_seconds_{}",
}


def budgets(histories: Mapping[str, Sequence[History]], recipes: Mapping[str, Recipe], n_train: int) -> dict[str, Any]:
    """Budgets of trained models, counted from what was run rather than from what was asked for.

    Args:
        histories: model -> one history a seed.
        recipes: model -> how it was trained; only the batch size and the learning rate are read.
        n_train: training samples, N.

    Returns:
        `trained_epochs_NAME`, `trained_updates_NAME` = epochs ceil(N / batch) and `trained_seconds_NAME` (CPU seconds),
        one a seed, and `trained_lr_NAME`, the learning rate of the first step. An epoch in which training stopped is
        not counted.

    Raises:
        KeyError: a history without a recipe, naming the model.
    """
    found: dict[str, Any] = {}
    for name, runs in histories.items():
        if name not in recipes:
            raise KeyError(f"{name!r} was trained, but there is no recipe of that name")
        size = recipes[name].batch_size or n_train
        epochs = [len(history.loss) for history in runs]
        found[f"trained_epochs_{name}"] = epochs
        found[f"trained_updates_{name}"] = [count * math.ceil(n_train / size) for count in epochs]
        found[f"trained_lr_{name}"] = recipes[name].lr
        found[f"trained_seconds_{name}"] = [sum(history.cpu_seconds) for history in runs], "s"
    return found
