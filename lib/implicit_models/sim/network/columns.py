"""States as the columns of row problems: an array (c, m) holds one state a row, m samples long.

Columns are centred, x_j - mean(x_j), and have the deviation sqrt(mean x_j^2) of the centred samples. A column is live
when its deviation exceeds 1e-7 of its mean and it varies on at least min_active samples, counted as
(sum x^2)^2 / sum x^4. Units s_j fix the columns x_j ref / s_j up to the factor ref, which changes no solution but the
size of the numbers; it is chosen so that the median live column has variance 1.

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
    """Samples (m, C, P) as rows (P C, m) in float64, copied: the channels of a position are neighbouring rows."""
    wide = x.reshape(len(x), channels * positions).t().contiguous()
    return (
        wide.reshape(channels, positions, len(x))
        .transpose(0, 1)
        .to(torch.float64, memory_format=torch.contiguous_format, copy=True)
        .reshape(channels * positions, len(x))
    )


def runs(x: Tensor) -> list[slice]:
    """Slices of rows of x, each small enough that temporary arrays of its size do not count beside x."""
    size = max(1, TOGETHER[x.device.type] // max(1, x.shape[1]))
    return [slice(at, at + size) for at in range(0, len(x), size)]


def varies(mean: Float[Tensor, " c"], deviation: Float[Tensor, " c"]) -> Bool[Tensor, " c"]:
    """Which columns vary at all, on however few samples."""
    return deviation > 1e-7 * mean.abs().clamp_min(1e-300)


def centre_(
    x: Float[Tensor, "c m"], min_active: float
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"], Bool[Tensor, " c"]]:
    """Centre the rows of x (c, m) in place.

    Args:
        min_active: least number of samples, (sum x^2)^2 / sum x^4, on which a live row varies.

    Returns:
        Means (c,), deviations (c,) and live rows (c,).
    """
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
        live[part] = varies(mean[part], deviation[part]) & (square * square >= min_active * fourth)
    return mean, deviation, live


def divide_(x: Float[Tensor, "c m"], unit: Float[Tensor, " c"], live: Bool[Tensor, " c"]) -> None:
    """Divide the live rows of x (c, m) by unit (c,) in place; the others become zeros."""
    x *= torch.where(live, 1.0 / torch.where(live, unit, 1.0), 0.0)[:, None]


def log2_reference(
    scale: Float[np.ndarray, " c"], deviation: Float[np.ndarray, " c"], live: Bool[np.ndarray, " c"]
) -> float:
    """log2 of the reference ref of units s (c,), with which the median live column x ref / s has variance 1; 0 where
    no column is live."""
    return float(np.median(np.log2(scale[live]) - np.log2(deviation[live]))) if live.any() else 0.0


def channel_major(cells_of_columns: Int[np.ndarray, " c"], channels: int, positions: int) -> Int[np.ndarray, " c"]:
    """Indices (c,) of an array in (C, P) order for indices of the same entries in (P, C) order."""
    position, channel = np.divmod(cells_of_columns, channels)
    return channel * positions + position
