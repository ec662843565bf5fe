"""Penalties that bound how sensitive an implicit model is, differentiable in its parameters.

    rho         ||B|| ||C|| / (1 - ||A||) + ||D||                        Lipschitz constant in the infinity norm
    convex      (||B||^2 + ||C||^2) / (2 (1 - ||A||)) + ||D|| >= rho     (4.7), printed again as (4.9)
    sensitivity ||S||_inf,  S = |C| (I - |A|)^-1 |B| + |D| <= rho        one linear solve with |A|

All norms are induced by the infinity norm: the largest l1 norm of a row. Row i of A, B and b counts times the Lipschitz
constant of its activation. rho and its convex bound need ||A|| < 1, which the projection of a model with kappa < 1
keeps; ||S|| needs lambda_PF(|A|) < 1 only, and is refused
otherwise: outside, the formulas are finite and mean nothing.

Source:
    Tsai thesis (2024), section 4.2 (rho, (4.7)), section 4.3 ((4.9), ||S||).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.model import ImplicitModel
from implicit_models.robustness.problem import NotCertified

__all__ = ["convex_penalty", "lipschitz_constant", "sensitivity_norm"]


def _norm(M: Tensor) -> Tensor:
    return M.abs().sum(1).amax()


def _scaled(model: ImplicitModel) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gamma |A|, Gamma |B|, |C|, |D| on the graph of the parameters."""
    if not isinstance(model, ImplicitModel):
        raise TypeError(f"expected an ImplicitModel, got {type(model).__name__}")
    if any(M is not None and M.layout is not torch.strided for M in (model.A, model.B, model.C, model.D)):
        raise TypeError(
            "a penalty is for the trained, dense matrices of a model; those of this one are sparse and constant"
        )
    if not model.activation.componentwise:
        raise TypeError(f"the penalties are stated for componentwise maps, not for {model.activation!r}")
    A, B, C, D = model._feedback_matrix(), model.B, model.C, model.D
    gamma = torch.as_tensor(model.activation.lipschitz.copy(), dtype=A.dtype, device=A.device)[:, None]
    return gamma * A.abs(), gamma * B.abs(), C.abs(), None if D is None else D.abs()


def _gap(A: Tensor) -> Tensor:
    norm = _norm(A)
    if not bool(norm < 1):
        raise NotCertified(
            f"the penalty needs ||A||_inf < 1, and it is {float(norm.detach()):.6g}: project or rescale the model first"
        )
    return 1 - norm


def lipschitz_constant(model: ImplicitModel) -> Float[Tensor, ""]:
    """rho with ||y(u) - y(v)||_inf <= rho ||u - v||_inf.

    Mathematics: ||B|| ||C|| / (1 - ||A||) + ||D||.

    Returns:
        scalar tensor on the graph of the model's parameters.

    Raises:
        NotCertified: where ||A||_inf >= 1.
        TypeError: for sparse or blockwise models.

    Source:
        Tsai thesis (2024), section 4.2.
    """
    A, B, C, D = _scaled(model)
    value = _norm(B) * _norm(C) / _gap(A)
    return value if D is None else value + _norm(D)


def convex_penalty(model: ImplicitModel) -> Float[Tensor, ""]:
    """Convex upper bound of `lipschitz_constant`.

    Mathematics: (||B||^2 + ||C||^2) / (2 (1 - ||A||)) + ||D||, convex in (A, B, C, D) on ||A|| < 1; equal to rho where
        ||B|| = ||C||.
    Returns, Raises: as `lipschitz_constant`.

    Source:
        Tsai thesis (2024), (4.7) and (4.9), which are the same.
    """
    A, B, C, D = _scaled(model)
    value = 0.5 * (_norm(B) ** 2 + _norm(C) ** 2) / _gap(A)
    return value if D is None else value + _norm(D)


def sensitivity_norm(model: ImplicitModel) -> Float[Tensor, ""]:
    """||S||_inf, the l1 norm of the most sensitive output.

    Mathematics: the largest entry of |C| (I - |A|)^-1 |B| 1 + |D| 1; gradients by the solve with the transposed matrix.

    Returns:
        scalar tensor on the graph of the model's parameters, at most `lipschitz_constant`.

    Raises:
        NotCertified: where lambda_PF(|A|) >= 1.
        TypeError: for sparse or blockwise models.

    Source:
        Tsai thesis (2024), section 4.3.
    """
    A, B, C, D = _scaled(model)
    eye = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    if not bool(_norm(A.detach()) < 1):  # else the projection has proved it
        try:
            s = torch.linalg.solve(eye - A.detach(), torch.ones_like(A[:, 0]))
        except torch.linalg.LinAlgError:
            s = torch.full_like(A[:, 0], -1.0).detach()
        if not (bool((s > 0).all()) and bool((A.detach() @ s < s).all())):
            raise NotCertified("||S||_inf needs lambda_PF(|A|) < 1, and no vector s > 0 with |A| s < s was found")
    sigma = torch.linalg.solve(eye - A, B.sum(1))
    total = C @ sigma
    return (total if D is None else total + D.sum(1)).amax()
