"""Which positions a window sees: convolutions and pooling as tables of numbers.

An array (*S) holds the numbers of the positions; a negative one is padding. Windows of it say what every output reads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Int

ZERO, OUTSIDE = -1, -2  # padding that counts as a zero, and what a window reaches beyond it


def tuple_of(size: Any, ndim: int) -> tuple[int, ...]:
    """One number for all axes, or one each."""
    return (int(size),) * ndim if isinstance(size, int) else tuple(int(s) for s in size)


def windows(
    index: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> np.ndarray:
    """(C, *S) -> (C, *O, *kernel).

    Raises:
        ValueError: where a window is larger than the input.
    """
    ndim = len(kernel)
    extent = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    if any(e > s for e, s in zip(extent, index.shape[1:], strict=True)):
        raise ValueError(f"its window of {extent} entries is larger than the padded input, {index.shape[1:]}")
    view = np.lib.stride_tricks.sliding_window_view(index, extent, axis=tuple(range(1, ndim + 1)))
    return view[(slice(None), *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))]


def padding_sides(padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> list[tuple[int, int]]:
    """Entries before and behind each axis: torch's numbers, "valid" or "same", whose odd one goes behind."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in tuple_of(padding, len(kernel))]


def pooling_windows(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[Int[np.ndarray, "P taps"], tuple[int, ...]]:
    """Positions of an image of a size that each window reads, ZERO for padding and OUTSIDE beyond it, and the output's
    size."""
    index = np.arange(math.prod(size)).reshape(1, *size)
    index = np.pad(index, [(0, 0), *((p, p) for p in padding)], constant_values=ZERO)
    more = []
    for axis, (k, s, p, d) in enumerate(zip(kernel, stride, padding, dilation, strict=True), start=1):
        length, extent = index.shape[axis], d * (k - 1) + 1
        count = (length - extent + (s - 1 if ceil_mode else 0)) // s + 1
        if (
            ceil_mode and (count - 1) * s >= length - p
        ):  # the last window must begin inside the input or its left padding
            count -= 1
        more.append(max(0, (count - 1) * s + extent - length))
    index = np.pad(index, [(0, 0), *((0, m) for m in more)], constant_values=OUTSIDE)
    seen = windows(index, kernel, stride, dilation)[0]
    return seen.reshape(-1, math.prod(kernel)), seen.shape[: len(kernel)]


def adaptive_windows(size: tuple[int, ...], wanted: tuple[int, ...]) -> Int[np.ndarray, "P taps"]:
    """Windows floor(i L / o) .. ceil((i + 1) L / o) of each axis, shorter ones filled with OUTSIDE."""
    index = np.arange(math.prod(size)).reshape(size)
    for axis, out in enumerate(wanted):
        length = size[axis]
        start, stop = np.arange(out) * length // out, -(-(np.arange(1, out + 1) * length) // out)
        k = int((stop - start).max())
        place = start[:, None] + np.arange(k)
        taken = np.take(index, np.minimum(place, length - 1).reshape(-1), axis=axis)
        taken = taken.reshape(*index.shape[:axis], out, k, *index.shape[axis + 1 :])
        outside = (place >= stop[:, None]).reshape(out, k, *(1,) * (taken.ndim - axis - 2))
        index = np.moveaxis(np.where(outside, OUTSIDE, taken), axis + 1, -1)
    return index.reshape(math.prod(wanted), -1)


def of_channels(rows: Int[np.ndarray, "P taps"], channels: int, positions: int) -> Int[np.ndarray, "CP taps"]:
    """The same windows of every channel, over the entries of an image (C, *S) of so many positions."""
    each = rows[None] + positions * np.arange(channels)[:, None, None]
    return np.where(rows[None] >= 0, each, rows[None]).reshape(-1, rows.shape[1])
