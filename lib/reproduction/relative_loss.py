"""Training on the mean absolute percentage error, as a loss that the training loop knows under the name "mape".

    mean |f^k - y^k| / y^k

in units of 1. k is 1 for a target that is the variance itself, 2 for its root, so that the loss is the MAPE of the variance in both.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from reproduction.recipe import Recipe
from reproduction.training import LOSS_FUNCTIONS


def relative_error(prediction: Float[Tensor, "N 1"], y: Float[Tensor, "N 1"], power: int = 1) -> Tensor:
    """Mean of |prediction^power - y^power| / y^power.

    Args:
        prediction, y: of one shape.
        power: 1 or 2.

    Raises:
        ValueError: shapes differ, or a target is not positive, naming the first of the batch.
    """
    if prediction.shape != y.shape:
        raise ValueError(f"predictions {tuple(prediction.shape)} and targets {tuple(y.shape)} differ in shape")
    bad = (y <= 0).flatten().nonzero()
    if len(bad):
        raise ValueError(f"target {int(bad[0])} of the batch is {float(y.flatten()[bad[0]])}: a relative error needs positive targets")
    return ((prediction**power - y**power).abs() / y**power).mean()


def _squared(prediction: Tensor, y: Tensor) -> Tensor:
    return relative_error(prediction, y, 2)


# The loop is shared by every notebook and knows two losses; these belong to this task alone.
LOSS_FUNCTIONS.setdefault("mape", relative_error)
LOSS_FUNCTIONS.setdefault("mape of the square", _squared)


@dataclass(frozen=True)
class RelativeRecipe(Recipe):
    """A recipe whose loss is "mape" or "mape of the square"; all else as `Recipe`.

    Raises:
        ValueError: another loss, or a setting outside its domain.
    """

    loss: str = "mape"

    def __post_init__(self) -> None:
        if self.loss not in ("mape", "mape of the square"):
            raise ValueError(f"recipe: loss = {self.loss!r} is none of 'mape', 'mape of the square'")
        Recipe(**(vars(self) | {"loss": "mse"}))
