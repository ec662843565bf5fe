"""Forward mode through an equilibrium: dx = J (A dx + dA x + db), J = phi'(z), solved directly, sample by sample.

Every step is an operation of torch, so that tangents are themselves differentiable and second derivatives exist in
forward over forward and reverse over forward mode.

Source:
    implicit function theorem; Tsai (2024), section 5.2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.matrices import product

ENTRIES = 2**24  # of the matrices I - J A that are held at a time


def _jacobian(A: Tensor, x: Tensor, b: Tensor | None, act: Activation) -> Tensor:
    """J (N, n, n); b None where x is phi of something."""
    if act.componentwise:
        return torch.diag_embed(act.derivative_at_value(x) if b is None else act.derivative(product(x, A, b)))
    z = product(x, A, b)
    eye = torch.eye(act.n, dtype=x.dtype, device=x.device)
    return torch.stack([act.vjp(z, row.expand_as(z)) for row in eye], dim=1)


def state_tangent(
    A: Float[Tensor, "n n"],
    x: Float[Tensor, "N n"],
    b: Float[Tensor, "N n"] | None,
    act: Activation,
    change: Float[Tensor, "N n"],
) -> Float[Tensor, "N n"]:
    """dx (N, n) for change = dA x + db; NaN for a sample without a finite state."""
    N, n = x.shape
    dense = A if A.layout is torch.strided else A.to_dense()
    eye = torch.eye(n, dtype=x.dtype, device=x.device)
    parts, step = [], max(1, ENTRIES // (n * n))
    for at in range(0, N, step):
        rows = slice(at, at + step)
        J = _jacobian(A, x[rows], None if b is None else b[rows], act)
        parts.append(torch.linalg.solve(eye - J @ dense, (J @ change[rows].unsqueeze(-1))).squeeze(-1))
    dx = torch.cat(parts) if parts else torch.zeros_like(x)
    return torch.where(torch.isfinite(x).all(1, keepdim=True), dx, float("nan"))
