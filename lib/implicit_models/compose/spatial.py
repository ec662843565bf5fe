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
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import nn

from implicit_models.activations import Activation, Segment
from implicit_models.compose.values import Assembly, Value, double
from implicit_models.tracing.windows import OUTSIDE, ZERO, padding_sides, tuple_of, windows

PAD_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def spatial(value: Value, ndim: int, channels: int | None = None) -> np.ndarray:
    """The index array of an input of `ndim` axes behind the channels.

    Raises:
        ValueError: naming the shape.
    """
    if len(value.shape) != ndim + 1 or (channels is not None and value.shape[0] != channels):
        wanted = (
            f"({channels if channels is not None else 'C'},"
            f" {', '.join('LHWD'[i] if ndim == 1 else 'HWD'[i] for i in range(ndim))})"
        )
        raise ValueError(f"it reads samples of shape {wanted}, but its input has shape {value.shape}")
    return value.index


def _convolution(ndim: int) -> Callable[[Assembly, Any, Value], Value]:
    def rule(assembly: Assembly, module: Any, value: Value) -> Value:
        kernel, stride, dilation = (tuple_of(s, ndim) for s in (module.kernel_size, module.stride, module.dilation))
        index = _padded(spatial(value, ndim, module.in_channels), module, kernel, dilation)
        seen = windows(index, kernel, stride, dilation)
        out_shape = seen.shape[1 : ndim + 1]
        positions, taps = math.prod(out_shape), math.prod(kernel)
        seen = seen.reshape(module.in_channels, positions, taps)
        W = double(module.weight).reshape(module.out_channels, -1)
        group_in, group_out = module.in_channels // module.groups, module.out_channels // module.groups
        columns = (
            seen.reshape(module.groups, group_in, positions, taps)
            .transpose(0, 2, 1, 3)
            .reshape(module.groups, positions, -1)
        )
        # rows run over output channels, then positions; every row reads the taps of its position
        columns = np.repeat(columns, group_out, axis=0)
        data = np.broadcast_to(W[:, None, :], columns.shape)
        inside = columns >= 0
        pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=2).reshape(-1))])
        K = sp.csr_array((data[inside], columns[inside], pointer), (module.out_channels * positions, len(value.c)))
        shift = None if module.bias is None else np.repeat(double(module.bias), positions)
        return value.map(K, shift, (module.out_channels, *out_shape))

    return rule


def _padded(index: np.ndarray, module: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> np.ndarray:
    sides = padding_sides(module.padding, kernel, dilation)
    if module.padding_mode == "zeros":
        return np.pad(index, [(0, 0), *sides], constant_values=ZERO)
    return np.pad(index, [(0, 0), *sides], mode=PAD_MODES[module.padding_mode])


def pooling_windows(
    value: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, ndim: int
) -> tuple[np.ndarray, tuple[int, ...]]:
    """(windows, taps) of row numbers, ZERO for padding and OUTSIDE beyond it, and the output's shape."""
    index = spatial(value, ndim)
    kernel = tuple_of(kernel, ndim)
    stride = kernel if stride is None or stride == [] else tuple_of(stride, ndim)
    padding, dilation = tuple_of(padding, ndim), tuple_of(dilation, ndim)
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
    seen = windows(index, kernel, stride, dilation)
    return seen.reshape(-1, math.prod(kernel)), seen.shape[: ndim + 1]


def max_value(assembly: Assembly, value: Value, rows: np.ndarray, shape: tuple[int, ...]) -> Value:
    """States of max_pool over windows (w, k) of row numbers; padding never wins, a window of one entry needs no
    state."""
    inside = rows >= 0
    if not inside.any(axis=1).all():
        raise ValueError(f"window {int(np.argmin(inside.any(axis=1)))} holds padding alone")
    first = rows[np.arange(len(rows)), inside.argmax(axis=1)]
    rows = np.where(inside, rows, first[:, None])
    w, k = rows.shape
    if k == 1:
        return value.take(rows.reshape(shape))
    out = assembly.states(value.take(rows.reshape(-1)), Activation([Segment("max_pool", 0.0, 0, w * k, k)]))
    return out.take((np.arange(w) * k).reshape(shape))


def mean_value(value: Value, rows: np.ndarray, counts: np.ndarray, shape: tuple[int, ...]) -> Value:
    """Sum over windows (w, k) of row numbers, divided by counts (w,)."""
    inside = rows >= 0
    pointer = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
    weight = np.broadcast_to((1.0 / counts)[:, None], rows.shape)
    return value.map(sp.csr_array((weight[inside], rows[inside], pointer), (len(rows), len(value.c))), None, shape)


def max_pool(
    assembly: Assembly,
    value: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    ndim: int = 2,
) -> Value:
    """torch.nn.functional.max_pool1d and max_pool2d."""
    if return_indices:
        raise TypeError("return_indices has no conversion")
    return max_value(assembly, value, *pooling_windows(value, kernel_size, stride, padding, dilation, ceil_mode, ndim))


def average_pool(
    assembly: Assembly,
    value: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    ndim: int = 2,
) -> Value:
    """torch.nn.functional.avg_pool1d and avg_pool2d."""
    rows, shape = pooling_windows(value, kernel_size, stride, padding, 1, ceil_mode, ndim)
    counts = (rows >= (ZERO if count_include_pad else 0)).sum(axis=1)
    return mean_value(value, rows, counts if divisor_override is None else np.full(len(rows), divisor_override), shape)


def _adaptive(value: Value, size: Any, ndim: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Windows floor(i L / o) .. ceil((i + 1) L / o) of each axis, shorter ones filled with OUTSIDE."""
    index = spatial(value, ndim)
    wanted = (size,) * ndim if isinstance(size, int) or size is None else tuple(size)
    for axis, out in enumerate(wanted, start=1):
        length = index.shape[axis]
        out = length if out is None else int(out)
        start, stop = np.arange(out) * length // out, -(-(np.arange(1, out + 1) * length) // out)
        k = int((stop - start).max())
        place = start[:, None] + np.arange(k)
        taken = np.take(index, np.minimum(place, length - 1).reshape(-1), axis=axis)
        taken = taken.reshape(*index.shape[:axis], out, k, *index.shape[axis + 1 :])
        outside = (place >= stop[:, None]).reshape(out, k, *(1,) * (taken.ndim - axis - 2))
        index = np.moveaxis(np.where(outside, OUTSIDE, taken), axis + 1, -1)
    shape = index.shape[: ndim + 1]
    return index.reshape(math.prod(shape), -1), shape


def adaptive_average_pool(assembly: Assembly, value: Value, output_size: Any, *, ndim: int = 2) -> Value:
    """torch.nn.functional.adaptive_avg_pool1d and adaptive_avg_pool2d."""
    rows, shape = _adaptive(value, output_size, ndim)
    return mean_value(value, rows, (rows >= 0).sum(axis=1), shape)


def adaptive_max_pool(
    assembly: Assembly, value: Value, output_size: Any, return_indices: bool = False, *, ndim: int = 2
) -> Value:
    """torch.nn.functional.adaptive_max_pool1d and adaptive_max_pool2d."""
    if return_indices:
        raise TypeError("return_indices has no conversion")
    return max_value(assembly, value, *_adaptive(value, output_size, ndim))


def _of_module(
    function: Callable[..., Value], names: tuple[str, ...], ndim: int
) -> Callable[[Assembly, Any, Value], Value]:
    return lambda assembly, module, value: function(
        assembly, value, **{name: getattr(module, name) for name in names}, ndim=ndim
    )


def _normalisation(ndims: tuple[int, ...]) -> Callable[[Assembly, Any, Value], Value]:
    def rule(assembly: Assembly, module: Any, value: Value) -> Value:
        if module.running_mean is None:
            raise ValueError(
                "it has no running statistics (track_running_stats=False): its map depends on the whole batch"
            )
        if len(value.shape) - 1 not in ndims or value.shape[0] != module.num_features:
            raise ValueError(f"it reads {module.num_features} channels first, but its input has shape {value.shape}")
        mean, variance = (double(t) for t in (module.running_mean, module.running_var))
        scale = 1 / np.sqrt(variance + module.eps)
        if module.affine:
            scale = scale * double(module.weight)
        shift = -mean * scale + (double(module.bias) if module.affine else 0.0)
        each = math.prod(value.shape[1:])
        return value.map(sp.diags_array(np.repeat(scale, each), format="csr"), np.repeat(shift, each), value.shape)

    return rule


_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
MODULES: dict[type[nn.Module], Callable[[Assembly, Any, Value], Value]] = {
    nn.Conv1d: _convolution(1),
    nn.Conv2d: _convolution(2),
    nn.MaxPool1d: _of_module(max_pool, _MAX, 1),
    nn.MaxPool2d: _of_module(max_pool, _MAX, 2),
    nn.AvgPool1d: _of_module(average_pool, _MEAN, 1),
    nn.AvgPool2d: _of_module(average_pool, (*_MEAN, "divisor_override"), 2),
    nn.AdaptiveAvgPool1d: _of_module(adaptive_average_pool, ("output_size",), 1),
    nn.AdaptiveAvgPool2d: _of_module(adaptive_average_pool, ("output_size",), 2),
    nn.AdaptiveMaxPool1d: _of_module(adaptive_max_pool, ("output_size", "return_indices"), 1),
    nn.AdaptiveMaxPool2d: _of_module(adaptive_max_pool, ("output_size", "return_indices"), 2),
    nn.BatchNorm1d: _normalisation((0, 1)),
    nn.BatchNorm2d: _normalisation((2,)),
}


def _at(function: Callable[..., Value], ndim: int) -> Callable[..., Value]:
    return lambda assembly, value, *args, **kwargs: function(assembly, value, *args, **kwargs, ndim=ndim)


FUNCTIONS: dict[Any, Callable[..., Value]] = {
    f: _at(rule, ndim)
    for rule, found in (
        (max_pool, ((nn.functional.max_pool1d, 1), (nn.functional.max_pool2d, 2))),
        (average_pool, ((nn.functional.avg_pool1d, 1), (nn.functional.avg_pool2d, 2))),
        (adaptive_average_pool, ((nn.functional.adaptive_avg_pool1d, 1), (nn.functional.adaptive_avg_pool2d, 2))),
    )
    for f, ndim in found
}
