"""Row-wise projection on the l1 ball: the constraint ||A||_inf <= kappa that keeps a model well-posed in training.

Source: Tsai (2024), section 5.2; the sorting algorithm is Duchi et al. (2008), "Efficient projections onto the l1-ball".
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def _check(A: Tensor | np.ndarray, kappa: float) -> None:
    if not isinstance(A, (Tensor, np.ndarray)):
        raise TypeError(f"A must be a torch tensor or a NumPy array, got {type(A).__name__}")
    if isinstance(A, Tensor) and A.layout is not torch.strided:
        raise TypeError(f"A must be dense, got layout {A.layout}")
    if A.ndim != 2:
        raise ValueError(f"A must be a matrix, got shape {tuple(A.shape)}")
    if not (A.dtype.is_floating_point if isinstance(A, Tensor) else np.issubdtype(A.dtype, np.floating)):
        raise TypeError(f"A must have a floating dtype, got {A.dtype}")
    if not (math.isfinite(kappa) and kappa > 0):
        raise ValueError(f"kappa must be a positive number, got {kappa}")


def _rows_outside(A: Tensor, kappa: float) -> Tensor | None:
    """Boolean mask of the rows outside the ball, or None when there is none."""
    norm = A.abs().sum(1)
    if norm.numel() == 0:
        return None
    largest = float(norm.max())
    if largest <= kappa:
        return None
    if not math.isfinite(largest):
        rows = torch.nonzero(~torch.isfinite(norm)).flatten().tolist()
        raise ValueError(f"A has values that are not finite in rows {rows[:10]}")
    return norm > kappa


def _project(R: Tensor, kappa: float) -> Tensor:
    """Projection of rows that all lie outside: sign(a) max(|a| - theta, 0), theta differentiable in the support."""
    a = R.abs()
    with torch.no_grad():
        # the target is a few ulps inside, so that the sums of a projected row cannot round to above kappa
        target = kappa * (1 - 4 * torch.finfo(R.dtype).eps)
        u = a.sort(dim=1, descending=True).values
        excess = u.cumsum(1) - target
        rank = torch.arange(1, R.shape[1] + 1, dtype=R.dtype, device=R.device)
        count = (u * rank > excess).sum(1, keepdim=True)
        threshold = excess.gather(1, count - 1) / count
        support = a > threshold
    theta = ((a * support).sum(1, keepdim=True) - target) / support.sum(1, keepdim=True)
    out = torch.where(support, R - R.sign() * theta, torch.zeros_like(R))
    with torch.no_grad():
        norm = out.abs().sum(1, keepdim=True)
        over = norm > kappa
    if over.any():  # long rows in single precision: take the rounding of the threshold back
        out = torch.where(over, out * (kappa / norm * (1 - 4 * torch.finfo(R.dtype).eps)), out)
    return out


@overload
def project_rows(A: Float[Tensor, "n m"], kappa: float) -> Float[Tensor, "n m"]: ...
@overload
def project_rows(A: Float[np.ndarray, "n m"], kappa: float) -> Float[np.ndarray, "n m"]: ...
def project_rows(A, kappa):
    """Euclidean projection of every row of A on the l1 ball of radius kappa.

    Mathematics: argmin ||W - A||_F subject to sum_j |W_ij| <= kappa: w = sign(a) max(|a| - theta, 0), where
    theta >= 0 makes the l1 norm kappa. Rows inside are returned bit for bit. Differentiable: on its support S a
    projected row has the Jacobian I - sigma sigma' / |S| with sigma = sign(a_S), and 0 elsewhere.

    Args:
        A: (n, m) torch tensor or NumPy array, floating.
        kappa: radius, positive (a model asks for less than 1; the projection itself does not).
    Returns: new array of the same kind.
    Raises: TypeError for integers or sparse input; ValueError for a radius that is not positive, for an array that is
        not a matrix, and for rows that are not finite, which are named.
    Source: Tsai (2024), section 5.2; Duchi et al. (2008), Figure 1.
    """
    _check(A, kappa)
    if isinstance(A, np.ndarray):
        return project_rows(torch.from_numpy(np.ascontiguousarray(A)), kappa).numpy()
    outside = _rows_outside(A.detach(), kappa)
    if outside is None:
        return A.clone()
    rows = torch.nonzero(outside).flatten()
    return A.index_copy(0, rows, _project(A[rows], kappa))


def _project_array(R: np.ndarray, kappa: float) -> np.ndarray:
    """The same projection without a graph, in float64 throughout: a few NumPy calls, for the step of an optimiser."""
    a = np.abs(R.astype(np.float64))
    inside = 1 - 4 * float(np.finfo(R.dtype).eps)
    target = kappa * inside
    u = np.sort(a, axis=1)[:, ::-1]
    excess = np.cumsum(u, axis=1) - target
    count = np.count_nonzero(u * np.arange(1, u.shape[1] + 1) > excess, axis=1)
    a = np.maximum(a - (excess[np.arange(len(u)), count - 1] / count)[:, None], 0)
    # the running sum rounds: what is left of it is a factor next to 1
    a *= (target / a.sum(axis=1))[:, None]
    return np.copysign(a, R).astype(R.dtype)


def project_rows_(A: Float[Tensor, "n m"] | Float[np.ndarray, "n m"], kappa: float):
    """`project_rows` in place, outside autograd; only rows outside the ball are written. Returns A.

    Raises: as `project_rows`.
    """
    _check(A, kappa)
    with torch.no_grad():
        T = torch.from_numpy(A) if isinstance(A, np.ndarray) else A.detach()
        outside = _rows_outside(T, kappa)
        if outside is None:
            return A
        if T.device.type == "cpu" and T.dtype in (torch.float32, torch.float64):
            array, rows = T.numpy(), np.flatnonzero(outside.numpy())
            array[rows] = _project_array(array[rows], kappa)
        else:
            rows = torch.nonzero(outside).flatten()
            T[rows] = _project(T[rows], kappa)
    return A
