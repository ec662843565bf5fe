"""Correlations of residuals with very many columns in low precision, with a bound on their rounding: where the largest
one can be, and where it cannot.

Columns and residuals are brought to unit length and rounded, x_j / ||x_j|| = u_j + e_j and r / ||r|| = v + f. What is
computed is s_j = (1 + t) (u_j'v + g):

    | x_j'r | <= ||x_j|| ||r|| ( (1 + 2t) |s_j| + ||e_j|| ||v|| + ||f|| + gamma_m ||u_j|| ||v|| ),

with t the rounding of the result, and gamma_m that of m products and their sum in any order in single precision (Higham
2002, (3.5)). ||e_j|| and ||f|| are
computed, not bounded: they are a fraction of the largest rounding of an entry. bfloat16 is used where the machine
multiplies matrices of it in hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS

ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9}  # t
SMALL = 2**22  # entries below which single precision is as fast
RUN = 64  # columns looked at together
CUT = 2.0**-22  # rounding of a term of a sum on tensor cores, which cut digits; 2^-24 elsewhere


class Rounded(NamedTuple):
    """Columns at unit length in low precision (bfloat16 as its bits), the norms of what rounding took, ||e_j||, and the
    lengths ||x_j||."""

    low: Shaped[np.ndarray, "d m"]
    lost: Float[np.ndarray, " d"]
    norm: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, values: Tensor, lost: Tensor, norm: Tensor) -> Rounded:
        """Of tensors of the processor, whose memory it shares."""
        low = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
        return cls(low.numpy(), lost.numpy(), norm.numpy())

    @property
    def values(self) -> Tensor:
        low = torch.from_numpy(self.low)
        return low.view(torch.bfloat16) if low.dtype == torch.int16 else low


def fast_dtype(entries: int, device: str = "cpu") -> torch.dtype:
    """bfloat16 on a graphics card and on processors with matrix units for it (AMX), for problems of some size; else
    float32."""
    there = device != "cpu" or getattr(torch.cpu, "get_capabilities", dict)().get(  # type: ignore[call-overload]
        "amx_bf16", False
    )
    return torch.bfloat16 if there and entries >= SMALL else torch.float32


def gamma(m: int, term: float) -> float:
    """Rounding of an inner product of m terms of vectors of unit length in single precision.

    Raises:
        ValueError: where m is so large that no digit is known.
    """
    if m * term >= 0.5:
        raise ValueError(f"inner products of {m} terms in single precision have no known digit")
    return (
        m * term / (1 - m * term) * (1 + 1e-6) + 2.0**-100
    )  # lengths are rounded too, and entries below the least normal number


def rounded_columns(
    X: Float[Tensor, "d m"], dtype: torch.dtype
) -> tuple[Tensor, Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Columns, the rows of X, at unit length in low precision, and `lost` and `norm` of `Rounded`, on the device of X;
    a column of zeros stays."""
    most = X.abs().amax(1, keepdim=True)
    unit = X / torch.where(most > 0, most, 1.0)
    length = unit.norm(dim=1, keepdim=True)
    unit /= torch.where(length > 0, length, 1.0)
    values = unit.to(dtype)
    unit -= values
    return values, unit.norm(dim=1), (length * most)[:, 0]


def correlations(
    values: Tensor, r: Float[Tensor, "b m"], term: float = 2.0**-24
) -> tuple[Tensor, float, Tensor, Tensor]:
    """s (b, d) in single precision, 1 + 2t, ||v|| and ||f|| + gamma_m ||u|| ||v|| (b,) of residuals."""
    most = r.abs().amax(1, keepdim=True)
    unit = r / torch.where(most > 0, most, 1.0)
    length = unit.norm(dim=1, keepdim=True)
    unit = unit / torch.where(length > 0, length, 1.0)
    v = unit.to(values.dtype)
    with in_single(v.is_cuda):
        s = (v @ values.T).float()
    t = ROUNDING[values.dtype]
    size = v.double().norm(dim=1)
    return s, 1 + 2 * t, size, (unit - v.double()).norm(dim=1) + gamma(r.shape[1], term) * (1 + 2 * t) * size


@contextmanager
def in_single(on_card: bool = True) -> Iterator[None]:
    """Products and convolutions of single precision numbers on a card with sums in single precision inside, whatever
    the user allows. For one thread: the settings are global."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    allowed = matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32
    if on_card:
        matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32 = False, False, False
    try:
        yield
    finally:
        if on_card:
            matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, cudnn.allow_tf32 = allowed


@kernel(**OPTIONS)
def largest(S, factor, size, base, lost, norm, k, best, bound, outside):
    """The k columns j of the largest (factor |S_ij| + lost_j size_i + base_i) norm_j of every row, ascending in j, and
    that of each; outside (b,): the largest of the others.

    A heap whose root is the least of the k; runs of columns that do not reach it are passed by their maximum.
    """
    b, d = S.shape
    value, place, run = np.empty(k), np.empty(k, np.int64), np.empty(RUN)
    for i in range(b):
        rest, n = 0.0, 0
        for first in range(0, d, RUN):
            width = min(RUN, d - first)
            row, own, length = S[i, first : first + width], lost[first : first + width], norm[first : first + width]
            above, root = 0, value[0] if n == k else -1.0
            for h in range(width):
                run[h] = (factor * abs(row[h]) + own[h] * size[i] + base[i]) * length[h]
                above += run[h] > root
            if not above:
                for h in range(width):
                    rest = run[h] if run[h] > rest else rest
                continue
            for h in range(width):
                v = run[h]
                if n < k:
                    at = n
                    while at > 0 and value[(at - 1) // 2] > v:
                        up = (at - 1) // 2
                        value[at], place[at] = value[up], place[up]
                        at = up
                    n += 1
                elif v > value[0]:
                    at = 0
                    rest = max(rest, value[0])
                    while True:
                        down = 2 * at + 1
                        if down >= k:
                            break
                        if down + 1 < k and value[down + 1] < value[down]:
                            down += 1
                        if value[down] >= v:
                            break
                        value[at], place[at] = value[down], place[down]
                        at = down
                else:
                    rest = max(rest, v)
                    continue
                value[at], place[at] = v, first + h
        outside[i] = rest
        order = np.argsort(place)
        for h in range(k):
            best[i, h], bound[i, h] = place[order[h]], value[order[h]]


@kernel(**OPTIONS)
def leads(X, r, best, bound, outside, lead):
    """max_j |x_j'r_i| over all columns in double precision, read from the largest bound on until no other could be
    larger; returns how many rows were read whole.

    A product above its bound tells that the machine's low precision is not what the bound assumes: that row is read
    whole too.
    """
    whole = 0
    for i in range(len(r)):
        length = np.sqrt(np.dot(r[i], r[i]))
        top, holds = 0.0, True
        for h in np.argsort(-bound[i]):
            if bound[i, h] * length <= top:
                break
            product = abs(np.dot(X[best[i, h]], r[i]))
            holds = holds and product <= bound[i, h] * length * (1.0 + 1e-9)
            top = max(top, product)
        if outside[i] * length > top or not holds:
            whole += 1
            top = np.abs(np.dot(X, r[i])).max()
        lead[i] = top
    return whole


def host_bounds(
    rounded: Rounded, values: Tensor, r: Float[np.ndarray, "b m"], k: int
) -> tuple[Int[np.ndarray, "b k"], np.ndarray, np.ndarray]:
    """Columns of the k largest bounds of every row, ascending, their bounds, and the largest of all others, over
    ||r||."""
    S, factor, size, base = correlations(values, torch.from_numpy(r))
    best, bound, outside = np.empty((len(r), k), np.int64), np.empty((len(r), k)), np.empty(len(r))
    largest(S.numpy(), factor, size.numpy(), base.numpy(), rounded.lost, rounded.norm, k, best, bound, outside)
    return best, bound, outside
