"""Row-wise projection on the l1 ball: the constraint ||A||_inf <= kappa that keeps a model well-posed in training.

Source:
    Tsai (2024), section 5.2; Duchi et al. (2008), "Efficient projections onto the l1-ball", by sorting; Michelot (1986)
    and Condat (2016) for Newton's method on the threshold.
"""

from __future__ import annotations

import math
import numbers
from typing import overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

CACHED = 2**15  # entries projected at a time: passes over them stay in the cache


def _check(A: Tensor | np.ndarray, kappa: float) -> None:
    if not isinstance(A, (Tensor, np.ndarray)):
        raise TypeError(f"A must be a torch tensor or a NumPy array, got {type(A).__name__}")
    if isinstance(A, Tensor) and A.layout is not torch.strided:
        raise TypeError(f"A must be dense, got layout {A.layout}")
    if A.ndim != 2:
        raise ValueError(f"A must be a matrix, got shape {tuple(A.shape)}")
    if not (A.dtype.is_floating_point if isinstance(A, Tensor) else np.issubdtype(A.dtype, np.floating)):
        raise TypeError(f"A must have a floating dtype, got {A.dtype}")
    if isinstance(kappa, (bool, np.bool_)) or not isinstance(kappa, numbers.Real):
        raise TypeError(f"kappa must be a number, got {kappa!r}")
    if not (math.isfinite(kappa) and kappa > 0):
        raise ValueError(f"kappa must be a positive number, got {kappa}")


def transformed() -> bool:
    """Whether a transform of torch.func or forward-mode differentiation is going on: tensors may then have no values to
    read."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _wide(T: Tensor) -> torch.dtype:
    return torch.float32 if T.device.type == "mps" else torch.float64  # that device has no float64


def _rows_outside(A: Tensor, kappa: float) -> Tensor | None:
    """Boolean mask of the rows outside the ball, or None when there is none."""
    norm = A.abs().sum(1, dtype=_wide(A))
    if norm.numel() == 0:
        return None
    largest = float(norm.max())
    if largest <= kappa:
        return None
    if not math.isfinite(largest):  # or a sum of finite numbers that overflows
        finite = torch.isfinite(A).all(1)
        if not bool(finite.all()):
            rows = torch.nonzero(~finite).flatten().tolist()
            raise ValueError(f"A has values that are not finite in rows {rows[:10]}")
    return norm > kappa


def _target(kappa: float, dtype: torch.dtype, m: int) -> float:
    """Radius aimed at: so far inside that rounding m values to dtype, and adding them in it, cannot lead out of the
    ball."""
    info = torch.finfo(dtype)
    ulps = (
        4 if info.bits >= 32 else 0.5
    )  # sums in half precision are nobody's measure: the rounding of the values alone
    return max(kappa * (1 - ulps * info.eps) - 0.5 * m * info.smallest_normal * info.eps, 0.0)


def _project(R: Tensor, kappa: float) -> Tensor:
    """Projection of rows that all lie outside: sign(a) max(|a| - theta, 0), theta differentiable in the support.

    All magnitudes are taken from the largest of their row: the differences are exact where they matter, however large
    the row, and what lies 2 kappa or more below the largest is outside the support in any case.
    """
    target = _target(kappa, R.dtype, R.shape[1])
    W = R.to(_wide(R))
    with torch.no_grad():
        top = W.abs().amax(1, keepdim=True)
        u = (W.abs() - top).clamp_min(-2 * kappa)
        v = u.sort(dim=1, descending=True).values
        excess = v.cumsum(1) - target
        rank = torch.arange(1, R.shape[1] + 1, dtype=W.dtype, device=R.device)
        count = (v * rank > excess).sum(1, keepdim=True).clamp_min(1)
        support = u > excess.gather(1, count - 1) / count
    a = torch.where(support, W.abs() - top, 0)
    theta = (a.sum(1, keepdim=True) - target) / support.sum(1, keepdim=True).clamp_min(1)
    return torch.where(support, W.sign() * (a - theta), 0).to(R.dtype)


@overload
def project_rows(A: Float[Tensor, "n m"], kappa: float) -> Float[Tensor, "n m"]: ...
@overload
def project_rows(A: Float[np.ndarray, "n m"], kappa: float) -> Float[np.ndarray, "n m"]: ...
def project_rows(A, kappa):
    """Euclidean projection of every row of A on the l1 ball of radius kappa.

    Mathematics: argmin ||W - A||_F subject to sum_j |W_ij| <= kappa: w = sign(a) max(|a| - theta, 0), where
    theta >= 0 makes the l1 norm kappa. Rows inside are returned bit for bit. Differentiable: on its support S a
    projected row has the Jacobian I - sigma sigma' / |S| with sigma = sign(a_S), and 0 elsewhere. Computed in float64
    for every dtype, then rounded; the l1 norm of what is returned, summed in float64, never exceeds kappa.

    Args:
        A: (n, m) torch tensor or NumPy array, floating.
        kappa: radius, positive (a model asks for less than 1; the projection itself does not).

    Returns:
        new array of the same kind.

    Raises:
        TypeError: for integers or sparse input, and for a radius that is no number.
        ValueError: for a radius that is not positive, for an array that is not a matrix, and for rows that are not
            finite, which are named.

    Source:
        Tsai (2024), section 5.2; Duchi et al. (2008), Figure 1.
    """
    _check(A, kappa)
    if isinstance(A, np.ndarray):
        return project_rows(torch.from_numpy(np.array(A, order="C")), kappa).numpy()
    outside = _rows_outside(A.detach(), kappa)
    if outside is None:
        return A.clone()
    if not (A.requires_grad and torch.is_grad_enabled()) and type(A) is Tensor and not transformed():
        return project_rows_(A.detach().clone(), kappa)
    rows = torch.nonzero(outside).flatten()
    return A.index_copy(0, rows, _project(A[rows], kappa))


def _project_array(R: np.ndarray, target: float) -> np.ndarray:
    """The same projection of float64 rows without a graph: Newton's method for the threshold in place of sorting.

    With magnitudes a from the largest of their row, f(t) = sum max(a - t, 0) - target falls and is convex; where f >= 0
    the steps t += f / #(a > t) rise to the root and end there, as f is piecewise linear. They start from the larger of
    -target and what would do if all entries were in the support.
    """
    a = np.abs(R)
    a -= a.max(axis=1, keepdims=True)
    np.maximum(a, -2 * target, out=a)
    ones, rest, inside = np.ones(a.shape[1]), np.empty_like(a), np.empty_like(a)
    threshold = np.maximum(-target, (a @ ones - target) / a.shape[1])
    count = np.zeros(len(a))
    while True:
        np.subtract(a, threshold[:, None], out=rest)
        support = np.greater(rest, 0, out=inside) @ ones
        np.maximum(rest, 0, out=rest)
        if (support == count).all():  # each support holds the next: as many are the same
            break
        count = support
        threshold += np.maximum(rest @ ones - target, 0) / np.maximum(count, 1)
    # the sum rounds: what is left of it is a factor next to 1
    total = rest.sum(axis=1)
    rest *= (target / np.where(total > 0, total, 1))[:, None]
    return np.copysign(rest, R, out=rest)


def project_rows_(A: Float[Tensor, "n m"] | Float[np.ndarray, "n m"], kappa: float):
    """`project_rows` in place, outside autograd; only rows outside the ball are written. Returns A.

    A tensor that a graph still needs for its backward pass is marked as modified where a row changes, as by any
    operation in place: that backward pass then raises.

    Raises:
        as `project_rows`; ValueError for a NumPy array that is read-only.
    """
    _check(A, kappa)
    if isinstance(A, np.ndarray):
        if not A.flags.writeable:
            raise ValueError("A is a read-only array and cannot be projected in place: use project_rows")
        T = torch.from_numpy(np.array(A, order="C"))
        outside = _rows_outside(T, kappa)
        if outside is not None:
            A[outside.numpy()] = project_rows_(T, kappa).numpy()[outside.numpy()]
        return A
    with torch.no_grad():
        T = A.detach()
        outside = _rows_outside(T, kappa)
        if outside is None:
            return A
        # every write is torch's own: it counts the version that autograd compares
        if T.device.type != "cpu" or T.dtype not in (torch.float32, torch.float64):
            T[outside] = _project(T[outside], kappa)
            return A
        array, rows = T.numpy(), np.flatnonzero(outside.numpy())
        target, step = _target(kappa, T.dtype, T.shape[1]), max(1, CACHED // max(1, T.shape[1]))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            new = torch.from_numpy(_project_array(array[part].astype(np.float64), target).astype(array.dtype))
            if part[-1] - part[0] == len(part) - 1:
                T[part[0] : part[-1] + 1] = new
            else:
                T[torch.from_numpy(part)] = new
    return A
