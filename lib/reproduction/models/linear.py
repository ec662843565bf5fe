"""The linear control: what the skip matrix D of an implicit model can do alone."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded


class Linear(nn.Linear):
    """A linear map y = W u (+ b).

    Args:
        in_features: p.
        out_features: q.
        bias: whether to add b; off by default, as in the implicit model.
        seed: of the initial weights, PyTorch's uniform in +-1/sqrt(p).
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False, seed: int | None = None) -> None:
        with seeded(seed):
            super().__init__(in_features, out_features, bias=bias)

    @classmethod
    @torch.no_grad()
    def fitted(cls, u: Float[Tensor, "N p"], y: Float[Tensor, "N q"], *, bias: bool = False) -> Linear:
        """Return the least-squares map, min ||U W' (+ b) - Y||^2, solved in float64.

        Args:
            u: inputs (N, p).
            y: targets (N, q).
            bias: whether to fit b too.
        """
        model = cls(u.shape[1], y.shape[1], bias=bias, seed=0)
        inputs = u.double()
        if bias:
            inputs = torch.cat([inputs, inputs.new_ones(len(u), 1)], dim=1)
        solution = torch.linalg.lstsq(inputs, y.double(), driver="gelsd").solution.T
        model.weight.copy_(solution[:, : u.shape[1]])
        if bias:
            model.bias.copy_(solution[:, -1])
        return model
