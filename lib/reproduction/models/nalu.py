"""Neural arithmetic logic units."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reproduction.models.seeding import seeded


class NALUCell(nn.Module):
    """One arithmetic unit: a gated mixture of an additive and a multiplicative path.

    W = tanh(What) * sigmoid(Mhat), entries drawn to -1, 0, 1;  a = W x;  m = exp(W log(|x| + eps));
    g = sigmoid(G x);  y = g * a + (1 - g) * m.

    Args:
        in_features, out_features: widths; three matrices of in x out parameters.
        eps: keeps the logarithm finite at zero.
        seed: of the initial weights (Glorot uniform).

    Source:
        Trask et al. (2018), Neural Arithmetic Logic Units, equations 1 and 2.
    """

    def __init__(self, in_features: int, out_features: int, *, eps: float = 1e-7, seed: int | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.w_hat, self.m_hat, self.gate = (nn.Parameter(torch.empty(out_features, in_features)) for _ in range(3))
        with seeded(seed):
            for parameter in self.parameters():
                nn.init.xavier_uniform_(parameter)

    def forward(self, x: Float[Tensor, "N p"]) -> Float[Tensor, "N q"]:
        weight = torch.tanh(self.w_hat) * torch.sigmoid(self.m_hat)
        additive = x @ weight.T
        multiplicative = torch.exp(torch.log(x.abs() + self.eps) @ weight.T)
        gate = torch.sigmoid(x @ self.gate.T)
        return gate * additive + (1 - gate) * multiplicative


class NALU(nn.Sequential):
    """A stack of arithmetic units.

    Args:
        sizes: widths from input to output.
        eps: of every unit.
        seed: of the initial weights.

    Source:
        Ganesh (2023), Table 1 (50-10-10-1).
    """

    def __init__(self, sizes: Sequence[int], *, eps: float = 1e-7, seed: int | None = None) -> None:
        with seeded(seed):
            super().__init__(*(NALUCell(p, q, eps=eps) for p, q in zip(sizes[:-1], sizes[1:])))
