"""Budgets are counted from the training loop itself."""

import pytest
import torch
from torch import nn

from reproduction.core.budgets import budgets
from reproduction.core.recipe import Recipe
from reproduction.core.train import train


@pytest.mark.parametrize(("batch_size", "a_epoch"), [(4, 3), (5, 2), (None, 1), (100, 1)])
def test_updates_are_the_steps_that_the_optimiser_took(batch_size, a_epoch, monkeypatch):
    """Ten samples; `torch.optim.Adam.step` is counted while the model trains."""
    steps = []
    original = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *a, **k: steps.append(1) or original(self, *a, **k))
    recipe = Recipe(epochs=7, lr=0.02, batch_size=batch_size)
    u, y = torch.linspace(-1, 1, 10).reshape(10, 1), torch.zeros(10, 1)
    history = train(nn.Linear(1, 1), u, y, recipe=recipe, seed=0, progress=False)
    found = budgets({"line": [history]}, {"line": recipe}, 10)
    assert found["trained_updates_line"] == [len(steps)] == [7 * a_epoch]
    assert found["trained_epochs_line"] == [7] and found["trained_lr_line"] == 0.02
    assert found["trained_seconds_line"] == ([sum(history.cpu_seconds)], "s")


def test_a_training_that_stopped_counts_its_whole_epochs():
    recipe = Recipe(epochs=5, batch_size=None, on_nan="stop")
    u, y = torch.ones(3, 1), torch.full((3, 1), float("inf"))
    history = train(nn.Linear(1, 1), u, y, recipe=recipe, seed=0, progress=False)
    assert budgets({"line": [history]}, {"line": recipe}, 3)["trained_updates_line"] == [0]


def test_a_model_without_a_recipe_is_named():
    with pytest.raises(KeyError, match="'line' was trained"):
        budgets({"line": []}, {}, 3)
