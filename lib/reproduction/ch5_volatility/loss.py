"""Training on the mean absolute percentage error, as a loss that the training loop knows under the name "mape".

    mean |f - y| / y

in units of 1. For a target that is a standard deviation this is the error of the deviation: in the square the gradient
would vanish at 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from reproduction.core.recipe import Recipe
from reproduction.core.train import LOSS_FUNCTIONS


def relative_error(prediction: Float[Tensor, "N 1"], y: Float[Tensor, "N 1"]) -> Tensor:
    """Mean of |prediction - y| / y.

    Args:
        prediction, y: of one shape.

    Raises:
        ValueError: shapes differ, or a target is not positive, naming the first of the batch.
    """
    if prediction.shape != y.shape:
        raise ValueError(f"predictions {tuple(prediction.shape)} and targets {tuple(y.shape)} differ in shape")
    bad = (y <= 0).flatten().nonzero()
    if len(bad):
        raise ValueError(
            f"target {int(bad[0])} of the batch is {float(y.flatten()[bad[0]])}: a relative error needs positive"
            " targets"
        )
    return ((prediction - y).abs() / y).mean()


# The loop is shared by every notebook and knows two losses; this one belongs to one task.
LOSS_FUNCTIONS.setdefault("mape", relative_error)


@dataclass(frozen=True)
class RelativeRecipe(Recipe):
    """A recipe whose loss is "mape"; all else as `Recipe`.

    Raises:
        ValueError: another loss, or a setting outside its domain.
    """

    loss: str = "mape"

    def __post_init__(self) -> None:
        if self.loss != "mape":
            raise ValueError(f"recipe: loss = {self.loss!r} is not 'mape'")
        Recipe(**(vars(self) | {"loss": "mse"}))
