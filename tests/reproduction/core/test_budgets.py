"""Counts of epochs and updates against trainings that count their own steps."""

import numpy as np
import pytest
import torch

from reproduction.core.budgets import budgets, training_budget
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


def test_every_model_of_a_study_has_its_counts_its_first_step_and_its_seconds():
    recipe = Recipe(epochs=2, lr=0.02, batch_size=4)
    u = np.ones((10, 2), np.float32)
    history = train(torch.nn.Linear(2, 1), u, u[:, :1], recipe=recipe, seed=0)
    found = budgets({"net": [history]}, {"net": recipe, "never trained": recipe}, len(u))
    assert found["trained_epochs_net"] == [2] and found["trained_updates_net"] == [6]
    # the cosine has come down to lr / 2 (1 + cos(2 pi / 6)) = 3 lr / 4 at the third of six steps
    assert found["trained_lr_net"] == pytest.approx(history.learning_rate[0] / 0.75)
    assert found["trained_seconds_net"] == ([sum(history.cpu_seconds)], "s")
    assert not [key for key in found if "never" in key]


def test_a_training_that_stopped_counts_its_whole_epochs():
    recipe = Recipe(epochs=5, batch_size=None, on_nan="stop")
    u = np.ones((3, 1), np.float32)
    history = train(torch.nn.Linear(1, 1), u, np.inf * u, recipe=recipe, seed=0)
    assert budgets({"net": [history]}, {"net": recipe}, 3)["trained_updates_net"] == [0]


def test_a_model_without_a_recipe_is_named():
    with pytest.raises(KeyError, match="'net' was trained"):
        budgets({"net": []}, {}, 3)
