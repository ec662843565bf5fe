"""A neural ordinary differential equation on vectors, solved with fixed steps."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded

FIELD_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class NeuralODE(nn.Module):
    """Flow of a learnt vector field and a linear head.

    Mathematics: dz/dt = W_2 phi(W_1 z + b_1) + b_2, z(0) = u, y = W z(1) + b. The field is the same at every time:
        where an implicit model
    looks for the point at which its map stands still, this one follows the field for unit time. With ReLU and without
    biases every step is positively homogeneous, hence y(t u) = t y(u) for t >= 0, whatever the number of steps.

    Args:
        in_features, out_features: p, q; the state has p entries.
        width: hidden units of the field.
        activation: phi, "tanh" or "relu".
        n_steps: equal steps from time 0 to 1, of the classical Runge-Kutta method of order 4.
        bias: whether there are b_1, b_2 and b.
        seed: of the initial weights.

    Raises:
        ValueError: an unknown activation, or fewer than one step.

    Source:
        Chen et al. (2018), Neural Ordinary Differential Equations, equation 1, which Tsai thesis (2024) names among the
        models with implicit depth.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int,
        *,
        activation: Literal["tanh", "relu"] = "tanh",
        n_steps: int = 4,
        bias: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if activation not in FIELD_ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(FIELD_ACTIVATIONS)}; got {activation!r}")
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        self.activation, self.n_steps = activation, n_steps
        with seeded(seed):
            self.inner = nn.Linear(in_features, width, bias=bias)
            self.outer = nn.Linear(width, in_features, bias=bias)
            self.head = nn.Linear(in_features, out_features, bias=bias)

    def field(self, z: Float[Tensor, "N p"]) -> Float[Tensor, "N p"]:
        """dz/dt at z."""
        return self.outer(FIELD_ACTIVATIONS[self.activation](self.inner(z)))

    def flow(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N p"]:
        """z(1) from z(0) = u."""
        step, z = 1 / self.n_steps, u
        for _ in range(self.n_steps):
            first = self.field(z)
            second = self.field(z + step / 2 * first)
            third = self.field(z + step / 2 * second)
            fourth = self.field(z + step * third)
            z = z + step / 6 * (first + 2 * second + 2 * third + fourth)
        return z

    def forward(self, u: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        return self.head(self.flow(u))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}, n_steps={self.n_steps}"
