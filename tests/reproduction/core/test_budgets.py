"""Counts of epochs and updates against trainings that count their own steps."""

import numpy as np
import pytest
import torch

from reproduction.core.budgets import training_budget
from reproduction.core.recipe import Recipe
from reproduction.core.train import train


@pytest.mark.parametrize("batch_size", [4, 5, None])
def test_counts_are_those_of_the_optimiser(batch_size, monkeypatch):
    steps = []
    taken = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *args, **kwargs: steps.append(1) or taken(*args, **kwargs))
    recipe = Recipe(epochs=3, batch_size=batch_size)
    u = np.ones((10, 2), np.float32)
    history = train(torch.nn.Linear(2, 1), u, u[:, :1], recipe=recipe, seed=0)
    found = training_budget("net", recipe, [history], len(u))
    assert found == {"trained_epochs_net": [3], "trained_updates_net": [len(steps)]}


def test_a_training_set_without_samples_is_refused():
    with pytest.raises(ValueError, match="n_samples = 0"):
        training_budget("net", Recipe(epochs=1), [], 0)
