"""Convolutions, pooling and batch normalisation as sparse maps of one sample.

Every layer is windows over an index array: entry j of `Value.index` names the row of a pixel, a negative one is
padding.

    convolution     y[o, w] = sum over the taps of window w of K[o, tap] v[tap] + bias[o]     a Toeplitz-like sparse
    matrix
    average         the same with weights 1 / (number of taps that count)
    max-pooling     states of the map max_pool, one block a window: phi(z) = (max z, 0, ..., 0)
    normalisation   a diagonal map, with the running mean and variance

Source:
    Tsai thesis (2024), section 2.5, "Convolutional Layers and Max-Pooling".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from implicit_models.activations import Activation, Segment
from implicit_models.compose.values import Assembly, Value
from implicit_models.tracing.nodes import (
    AdaptiveAverage,
    AdaptiveMaximum,
    Average,
    Convolution,
    Maximum,
    Mean,
    Normalisation,
    numbers,
)
from implicit_models.tracing.windows import ZERO, of_channels, windows

PAD_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def convolution(assembly: Assembly, node: Convolution, value: Value) -> Value:
    """The Toeplitz-like matrix of a convolution, times the value."""
    index = value.index
    if node.padding_mode == "zeros":
        index = np.pad(index, [(0, 0), *node.sides], constant_values=ZERO)
    else:
        index = np.pad(index, [(0, 0), *node.sides], mode=PAD_MODES[node.padding_mode])
    seen = windows(index, node.kernel, node.stride, node.dilation)
    inside, outside = value.shape[0], node.shape[0]
    positions, taps = math.prod(node.shape[1:]), math.prod(node.kernel)
    seen = seen.reshape(inside, positions, taps)
    W = numbers(node.weight).reshape(outside, -1)
    columns = (
        seen.reshape(node.groups, inside // node.groups, positions, taps)
        .transpose(0, 2, 1, 3)
        .reshape(node.groups, positions, -1)
    )
    # rows run over output channels, then positions; every row reads the taps of its position
    columns = np.repeat(columns, outside // node.groups, axis=0)
    data = np.broadcast_to(W[:, None, :], columns.shape)
    there = columns >= 0
    pointer = np.concatenate([[0], np.cumsum(there.sum(axis=2).reshape(-1))])
    K = sp.csr_array((data[there], columns[there], pointer), (outside * positions, len(value.c)))
    shift = None if node.bias is None else np.repeat(numbers(node.bias), positions)
    return value.map(K, shift, node.shape)


def _rows(node: Maximum | Average | AdaptiveMaximum | AdaptiveAverage, value: Value) -> np.ndarray:
    """(windows, taps) of row numbers, negative outside the image."""
    return of_channels(node.windows(value.shape), value.shape[0], math.prod(value.shape[1:]))


def max_pool(assembly: Assembly, node: Maximum | AdaptiveMaximum, value: Value) -> Value:
    """States of max_pool over the windows; padding never wins, a window of one entry needs no state."""
    rows = _rows(node, value)
    inside = rows >= 0
    first = rows[np.arange(len(rows)), inside.argmax(axis=1)]
    rows = np.where(inside, rows, first[:, None])
    w, k = rows.shape
    if k == 1:
        return value.take(rows.reshape(node.shape))
    out = assembly.states(value.take(rows.reshape(-1)), Activation([Segment("max_pool", 0.0, 0, w * k, k)]))
    return out.take((np.arange(w) * k).reshape(node.shape))


def mean_value(value: Value, rows: np.ndarray, counts: np.ndarray, shape: tuple[int, ...]) -> Value:
    """Sum over windows (w, k) of row numbers, divided by counts (w,)."""
    inside = rows >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
    weight = np.broadcast_to((1.0 / counts)[:, None], rows.shape)
    return value.map(sp.csr_array((weight[inside], rows[inside], pointer), (len(rows), len(value.c))), None, shape)


def average_pool(assembly: Assembly, node: Average | AdaptiveAverage, value: Value) -> Value:
    """Means of the windows."""
    rows = _rows(node, value)
    return mean_value(value, rows, np.tile(node.counts(node.windows(value.shape)), value.shape[0]), node.shape)


def mean(assembly: Assembly, node: Mean, value: Value) -> Value:
    """Means over axes."""
    moved = np.moveaxis(value.index, node.axes, range(-len(node.axes), 0))
    rows = moved.reshape(math.prod(node.shape), -1)
    return mean_value(value, rows, np.full(len(rows), rows.shape[1]), node.shape)


def normalisation(assembly: Assembly, node: Normalisation, value: Value) -> Value:
    """A factor and a shift a channel."""
    factor, shift = node.affine()
    each = math.prod(value.shape[1:])
    return value.map(sp.diags_array(np.repeat(factor, each), format="csr"), np.repeat(shift, each), value.shape)
