"""The relative loss: by hand, its gradient, and a training that reaches the minimiser known in closed form."""

import numpy as np
import pytest
import torch

from reproduction.ch5_volatility.loss import RelativeRecipe, relative_error
from reproduction.core.study import scaled
from reproduction.core.train import train
from reproduction.models.har import least_mape_constant
from reproduction.models.linear import Linear


def test_by_hand_and_gradient():
    prediction = torch.tensor([[2.0], [1.0]], requires_grad=True)
    loss = relative_error(prediction, torch.tensor([[1.0], [4.0]]))
    assert loss.item() == pytest.approx((1 + 0.75) / 2)
    loss.backward()
    assert prediction.grad.flatten().tolist() == pytest.approx([0.5, -0.125])


def test_training_finds_the_weighted_median():
    """A constant that minimises mean |c - y| / y is the median of y under weights 1 / y."""
    y = np.array([1.0, 1.0, 2.0, 3.0, 10.0, 50.0], dtype=np.float32)[:, None]
    model = Linear(1, 1, seed=0)
    train(
        model, np.ones_like(y), y, recipe=RelativeRecipe(epochs=300, lr=0.05, batch_size=None), seed=0, progress=False
    )
    assert model.weight.item() == pytest.approx(least_mape_constant(y[:, 0]), rel=0.02)


def test_bad_targets_and_shapes():
    with pytest.raises(ValueError, match="target 1 of the batch is 0.0"):
        relative_error(torch.ones(2, 1), torch.tensor([[1.0], [0.0]]))
    with pytest.raises(ValueError, match="differ in shape"):
        relative_error(torch.ones(2), torch.ones(2, 1))


def test_recipe_is_a_recipe():
    assert scaled(RelativeRecipe(epochs=4), 0.5) == RelativeRecipe(epochs=2)
    with pytest.raises(ValueError, match="loss = 'mse'"):
        RelativeRecipe(epochs=1, loss="mse")
    with pytest.raises(ValueError, match="lr = 0"):
        RelativeRecipe(epochs=1, lr=0)
