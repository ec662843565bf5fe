"""The papers' "EikoNet": a residual network that locates an earthquake from its picks.

EikoNet of Smith et al. (2021) solves the eikonal equation: it maps a source and a receiver to the travel time between
them. What the papers call by that name maps stations, delays and back-azimuths to the source, and is a residual
multi-layer perceptron of six layers. It keeps the name here as a key only; figures and tables say "residual MLP".
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded

WIDTHS = (32, 128, 128, 128, 32)


class EikoNet(nn.Module):
    """Residual MLP: h <- relu(W h + b) layer by layer, one block h <- relu(h + W' relu(W h + b) + b'), a linear
    read-out.

    The block spans the two layers between equal widths. With `skip` the output is y + D u.

    Args:
        in_features, out_features: p inputs, q outputs.
        widths: of the hidden layers; the third and fourth form the residual block, so the second, third and fourth are
            equal.
        skip: whether a bias-free linear map from input to output is added.
        seed: of the initial weights (PyTorch's own for linear layers).

    Raises:
        ValueError: widths that are not five positive numbers with the middle three equal.

    Source:
        Ganesh (2023), section 4.2 and Table 1: six layers, one residual block, 30-32-128-128-128-32-4, 42,500
        parameters.
    """

    def __init__(
        self,
        in_features: int = 30,
        out_features: int = 4,
        *,
        widths: Sequence[int] = WIDTHS,
        skip: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if len(widths) != 5 or min(in_features, out_features, *widths) < 1 or len(set(widths[1:4])) != 1:
            raise ValueError(
                "widths must be five positive numbers, the middle three equal, for the residual block; got"
                f" {tuple(widths)} from {in_features} inputs to {out_features} outputs"
            )
        sizes = (in_features, *widths, out_features)
        with seeded(seed):
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
            # One module a layer, not a function: what records the states of a network listens to modules.
            self.activations = nn.ModuleList(nn.ReLU() for _ in widths)
            self.skip = nn.Linear(in_features, out_features, bias=False) if skip else None

    def forward(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        first, second, inner, outer, last, head = self.layers
        one, two, three, four, five = self.activations
        h = two(second(one(first(u))))
        h = four(h + outer(three(inner(h))))
        y = head(five(last(h)))
        return y if self.skip is None else y + self.skip(u)
