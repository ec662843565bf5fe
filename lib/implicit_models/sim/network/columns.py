"""States as the columns of row problems: one row of numbers a state, centred, with what says whether it varies.

Deviations are those of the samples; a column is live when it varies beyond the rounding of its mean and on min_active
samples at least, in the sense of (sum x^2)^2 / sum x^4. Units s need a reference, of which problems depend by their
numbers alone: that which makes the median live column of variance 1.

Source:
    Tsai thesis (2024), section 3.2.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TOGETHER = {"cpu": 2**19, "cuda": 2**27}  # entries that are worked on at a time


def state_rows(x: Float[Tensor, " m *S"], channels: int, positions: int) -> Float[Tensor, "c m"]:
    """Samples (m, C, P) as rows (P C, m) in float64, a copy: the channels of a position lie side by side."""
    wide = x.reshape(len(x), channels * positions).t().contiguous()
    return (
        wide.reshape(channels, positions, len(x))
        .transpose(0, 1)
        .to(torch.float64, memory_format=torch.contiguous_format, copy=True)
        .reshape(channels * positions, len(x))
    )


def runs(x: Tensor) -> list[slice]:
    """Rows of x that are worked on at a time, so that nothing of its size is held beside it."""
    size = max(1, TOGETHER[x.device.type] // max(1, x.shape[1]))
    return [slice(at, at + size) for at in range(0, len(x), size)]


def centre_(
    x: Float[Tensor, "c m"], min_active: float
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"], Bool[Tensor, " c"]]:
    """Centres the rows in place; their means, their deviations, and which are live."""
    mean, deviation, live = (
        x.new_empty(len(x)),
        x.new_empty(len(x)),
        torch.empty(len(x), dtype=torch.bool, device=x.device),
    )
    for part in runs(x):
        own = x[part]
        mean[part] = own.mean(1)
        own -= mean[part, None]
        squares = own.square()
        square, fourth = squares.sum(1), squares.square_().sum(1)
        deviation[part] = (square / x.shape[1]).sqrt()
        live[part] = (deviation[part] > 1e-7 * mean[part].abs().clamp_min(1e-300)) & (
            square * square >= min_active * fourth
        )
    return mean, deviation, live


def divide_(x: Float[Tensor, "c m"], unit: Float[Tensor, " c"], live: Bool[Tensor, " c"]) -> None:
    """Brings the live rows to their units in place; the others become zeros."""
    x *= torch.where(live, 1.0 / torch.where(live, unit, 1.0), 0.0)[:, None]


def log2_reference(
    scale: Float[np.ndarray, " c"], deviation: Float[np.ndarray, " c"], live: Bool[np.ndarray, " c"]
) -> float:
    """log2 of the reference ref of units s: the median live column x ref / s has variance 1."""
    return float(np.median(np.log2(scale[live]) - np.log2(deviation[live]))) if live.any() else 0.0


def channel_major(cells_of_columns: Int[np.ndarray, " c"], channels: int, positions: int) -> Int[np.ndarray, " c"]:
    """Index in (C, P) order of an index in (P, C) order."""
    position, channel = np.divmod(cells_of_columns, channels)
    return channel * positions + position
