"""How long networks were trained, as counts: passes over the training set, and steps of the optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reproduction.core.recipe import History, Recipe


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
