"""Attention with bounded queries, keys and values: the form that an implicit model holds, and that has a Lipschitz
constant."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.model import checked_size


class BoundedAttention(nn.Module):
    """Self-attention of one or several heads over a sequence, with queries, keys and values through tanh.

    Mathematics: Q, K, V = tanh(X W_q'), tanh(X W_k'), tanh(X W_v') with biases, head by head Y = softmax(Q K' /
    sqrt(d)) V, then a linear map of the heads side by side. Products are Lipschitz on bounded factors alone: without
    tanh, as in the usual layer, no constant exists. `compose.from_network` reads it: Q K' and the weights times V are
    states of the map "product".

    Args:
        features: of a token, in and out.
        heads: their number, a divisor of features.
        bias: of the linear maps.

    Raises:
        ValueError: if heads does not divide features.

    Source:
        Tsai thesis (2024), section 2.4, multiplicative connections; Vaswani et al. (2017) for the unbounded form.
    """

    def __init__(self, features: int, heads: int = 1, *, bias: bool = True):
        super().__init__()
        self.features, self.heads = checked_size("features", features), checked_size("heads", heads)
        if features % heads:
            raise ValueError(f"heads must divide features = {features}, got {heads}")
        self.query, self.key, self.value, self.out = (nn.Linear(features, features, bias=bias) for _ in range(4))

    def forward(self, tokens: Float[Tensor, "N T F"]) -> Float[Tensor, "N T F"]:
        """(N, T, features) -> (N, T, features)."""
        T, width = tokens.shape[1], self.features // self.heads
        q, k, v = (
            torch.tanh(linear(tokens)).reshape(tokens.shape[0], T, self.heads, width).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(width), dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2)
        return self.out(mixed.reshape(tokens.shape[0], T, self.features))
