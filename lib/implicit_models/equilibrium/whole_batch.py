"""Picard steps of a whole batch in BLAS, for maps that contract fast: few products, one or two looks at the change.

Where A has small eigenvalues (any random one has, whatever its norm) the error falls by an order of magnitude a step,
and nothing is faster than large products. After the second step the contraction is known well enough to say how many
are needed; the change is measured when they are done, and a sample's residual is bounded by it:

    |F(x_k) - x_k| <= L |x_k - x_{k-1}|,    L = gamma ||A||_inf,    for the adjoint gamma ||A||_1, in the infinity norm.

Where the steps would cost more than sweeps from the present iterate (`costs`), that iterate is handed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_

from implicit_models.activations import Activation
from implicit_models.equilibrium.costs import (
    FEW_STEPS,
    FEW_SWEEPS,
    SWEEPS_PER_STEP,
    remaining,
    smooth,
    step_cost,
    sweeps_cost,
)
from implicit_models.equilibrium.kernels import fused
from implicit_models.matrices import check_finite

MOST_STEPS = 60  # a slower contraction is for sweeps, whatever they cost
LOOKS_AHEAD, FIRST_LOOK = 8, 3  # steps at most between two looks at the change, and after the first


class Steps(NamedTuple):
    """Last iterate (N, n); change of the last step over its scale, a sample (N,); steps; whether they ended at the
    tolerance, and if not, whether they came nearer."""

    x: Tensor
    change: Tensor
    taken: int
    done: bool
    nearer: bool = True


def pays(A: Tensor, N: int, act: Activation) -> bool:
    """Whether the steps that a fast contraction takes are cheaper in BLAS than in sweeps; one map for all states."""
    if len(act.segments) != 1:
        return False
    size = A.shape[0], N, A.dtype, smooth(act)
    return FEW_STEPS * step_cost(*size) < sweeps_cost(*size, FEW_SWEEPS)


def _map_in_place(act: Activation, like: Tensor) -> Callable[[Tensor], object]:
    name = act.segments[0].name
    if name == "relu":
        return torch.relu_
    if name in ("tanh", "sigmoid"):
        register, is_tanh = np.empty(64, like.numpy().dtype), name == "tanh"
        return lambda z: fused.smooth_in_place(z.numpy().reshape(-1), is_tanh, register)
    if name == "leaky_relu":
        return lambda z: leaky_relu_(z, act.segments[0].slope)
    return lambda z: z


def _norms(A: Tensor, act: Activation) -> tuple[float, float]:
    """gamma times the largest row and column sum of |A|; checks that A is finite on the way."""
    values = A.detach().contiguous().numpy()
    columns = np.empty(A.shape[0], values.dtype)
    row = float(fused.norms(values, columns))
    if not math.isfinite(row):
        check_finite(A)
    gamma = float(act.lipschitz[0])
    return gamma * row, gamma * float(columns.max())


def _iterate(
    offset: Tensor,
    M: Tensor,
    image_: Callable[[Tensor], object],
    start: Tensor | None,
    floor: np.ndarray,
    weight: float,
    tol: float,
    max_iter: int,
    dear: Callable[[float], bool],
) -> Steps:
    """Steps x <- image(offset + x M) until the largest change is at most tol, or until sweeps are cheaper.

    Args:
        image_: in place; start: None for zero, whose first step needs no product.
        floor, weight: scale of a sample, max(floor_i, weight max|x_i|).
        dear: whether so many further steps cost more than the sweeps in their place.
    """
    out = torch.empty_like(offset)
    x = offset.clone() if start is None else torch.addmm(offset, start, M)
    image_(x)
    dtype = x.numpy().dtype
    register, unit, ratio = np.empty(64, dtype), dtype.type(weight), np.empty(len(x), dtype)
    k, last, before, rate, until, missed = 1, 1, math.inf, 1.0, 2, -1
    while k < max_iter:
        image_(torch.addmm(offset, x, M, out=out))
        x, out = out, x
        k += 1
        if k < until and k < max_iter:
            continue
        change = float(fused.worst_change(x.numpy(), out.numpy(), floor, unit, register, ratio))
        if change <= tol:
            return Steps(x, torch.from_numpy(ratio), k, math.isfinite(float(x.sum())))
        if k > 2:
            rate = (change / before) ** (1 / (k - last))
        elif start is None:
            rate = change  # the first change was the state itself, 1 on its own scale
        if k > 2 or start is None:
            # what was said before has passed: contraction slows as the fast part of the error dies away
            missed += k > 2
            left = (1 + max(missed, 0)) * remaining(change, tol, rate)
            if k + left > MOST_STEPS or dear(left):
                break
            ahead = left / (1 + max(missed, 0)) - 0.2 if k > 2 else min(0.6 * left, FIRST_LOOK)  # the first is coarse
            until = k + min(max(1, math.ceil(ahead)), LOOKS_AHEAD)
        last, before = k, change
    return Steps(x, torch.from_numpy(ratio), k, False, rate < 1 and math.isfinite(float(x.sum())))


def _dear(n: int, N: int, act: Activation, dtype: torch.dtype) -> Callable[[float], bool]:
    size = n, N, dtype, smooth(act)
    return lambda left: left * step_cost(*size) > sweeps_cost(*size, SWEEPS_PER_STEP * left)


def state_steps(
    A: Tensor, b: Tensor, act: Activation, start: Tensor | None, tol: float, relative: bool, max_iter: int
) -> Steps:
    """x = phi(A x + b) by steps of the whole batch; b and start are finite, change is a bound of the residual."""
    lipschitz = _norms(A, act)[0]
    dtype, bound = b.numpy().dtype, max(lipschitz, 0.05)
    floor = np.empty(0, dtype) if relative else np.ones(len(b), dtype)
    dear = _dear(A.shape[0], len(b), act, b.dtype)
    A, b = A.detach(), b.detach().contiguous()
    found = _iterate(
        b, A.t(), _map_in_place(act, b), start, floor, 1.0 if relative else 0.0, tol / bound, max_iter, dear
    )
    return found._replace(change=found.change * bound)


def adjoint_steps(A: Tensor, slopes: Tensor, g: Tensor, act: Activation, tol: float, max_iter: int) -> Steps:
    """v = slopes (A' v + g) by steps of the whole batch, to tol max|g| of each sample or 4 eps max|v|."""
    lipschitz = _norms(A, act)[1]
    g = g.detach().contiguous()
    floor, bound = g.abs().amax(1).numpy(), max(lipschitz, 0.05)
    weight = 4 * torch.finfo(g.dtype).eps / tol
    dear = _dear(A.shape[0], len(g), act, g.dtype)
    found = _iterate(g, A.detach(), lambda z: z.mul_(slopes), None, floor, weight, tol / bound, max_iter, dear)
    return found._replace(change=found.change * bound)
