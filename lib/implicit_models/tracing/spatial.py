"""Rules of convolutions and pooling, each over one or two axes behind the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from implicit_models.tracing.builder import Builder, WrongShape
from implicit_models.tracing.nodes import AdaptiveAverage, AdaptiveMaximum, Average, Convolution, Maximum, Node
from implicit_models.tracing.windows import padding_sides, pooling_windows, tuple_of, windows


def images(value: Node, ndim: int, channels: int | None = None) -> None:
    """Check that samples have `ndim` axes behind the channels.

    Raises:
        WrongShape: naming the shape.
    """
    if len(value.shape) != ndim + 1 or (channels is not None and value.shape[0] != channels):
        axes = ", ".join("L" if ndim == 1 else "HW"[i] for i in range(ndim))
        wanted = f"({channels if channels is not None else 'C'}, {axes})"
        raise WrongShape(f"it reads samples of shape {wanted}, but its input has shape {value.shape}")


def convolution(
    b: Builder,
    value: Node,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    ndim: int = 2,
    padding_mode: str = "zeros",
) -> Node:
    """torch.nn.functional.conv1d and conv2d."""
    images(value, ndim, weight.shape[1] * groups)
    stride, dilation = tuple_of(stride, ndim), tuple_of(dilation, ndim)
    padding = padding if isinstance(padding, str) else tuple_of(padding, ndim)
    kernel = tuple(weight.shape[2:])
    sides = padding_sides(padding, kernel, dilation)
    places = np.empty([s + first + last for s, (first, last) in zip(value.shape[1:], sides, strict=True)], bool)
    try:
        seen = windows(places[None], kernel, stride, dilation)
    except ValueError as error:
        raise WrongShape(str(error)) from error
    fields = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = (weight.shape[0], *seen.shape[1 : ndim + 1])
    return b.add(Convolution, [value], shape, weight=weight, bias=bias, padding_mode=padding_mode, **fields)


def _pool(value: Node, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, ndim: int) -> tuple:
    """Fields of a pooling step and the shape of its value."""
    images(value, ndim)
    kernel = tuple_of(kernel, ndim)
    stride = kernel if stride is None or stride == [] else tuple_of(stride, ndim)
    fields = {
        "kernel": kernel,
        "stride": stride,
        "padding": tuple_of(padding, ndim),
        "dilation": tuple_of(dilation, ndim),
        "ceil_mode": bool(ceil_mode),
    }
    try:
        seen, size = pooling_windows(value.shape[1:], *fields.values())
    except ValueError as error:
        raise WrongShape(str(error)) from error
    return fields, seen, (value.shape[0], *size)


def max_pool(
    b: Builder,
    value: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    ndim: int = 2,
) -> Node:
    """torch.nn.functional.max_pool1d and max_pool2d; windows of one entry take it."""
    if return_indices:
        raise TypeError("return_indices has no conversion")
    fields, seen, shape = _pool(value, kernel_size, stride, padding, dilation, ceil_mode, ndim)
    inside = (seen >= 0).any(axis=1)
    if not inside.all():
        raise ValueError(f"window {int(np.argmin(inside))} holds padding alone")
    return b.add(Maximum, [value], shape, **fields)


def average_pool(
    b: Builder,
    value: Node,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    ndim: int = 2,
) -> Node:
    """torch.nn.functional.avg_pool1d and avg_pool2d."""
    fields, _, shape = _pool(value, kernel_size, stride, padding, 1, ceil_mode, ndim)
    return b.add(Average, [value], shape, count_include_pad=count_include_pad, divisor=divisor_override, **fields)


def _adaptive_shape(value: Node, size: Any, ndim: int) -> tuple[int, ...]:
    images(value, ndim)
    wanted = (size,) * ndim if isinstance(size, int) or size is None else tuple(size)
    return (value.shape[0], *(s if o is None else int(o) for s, o in zip(value.shape[1:], wanted, strict=True)))


def adaptive_average_pool(b: Builder, value: Node, output_size: Any, *, ndim: int = 2) -> Node:
    """torch.nn.functional.adaptive_avg_pool1d and adaptive_avg_pool2d."""
    return b.add(AdaptiveAverage, [value], _adaptive_shape(value, output_size, ndim))


def adaptive_max_pool(
    b: Builder, value: Node, output_size: Any, return_indices: bool = False, *, ndim: int = 2
) -> Node:
    """torch.nn.functional.adaptive_max_pool1d and adaptive_max_pool2d."""
    if return_indices:
        raise TypeError("return_indices has no conversion")
    return b.add(AdaptiveMaximum, [value], _adaptive_shape(value, output_size, ndim))


def _at(function: Callable[..., Node], ndim: int) -> Callable[..., Node]:
    return lambda b, *args, **kwargs: function(b, *args, **kwargs, ndim=ndim)


FUNCTIONS: dict[Any, Callable[..., Node]] = {
    f: _at(rule, ndim)
    for rule, found in (
        (convolution, ((nn.functional.conv1d, 1), (nn.functional.conv2d, 2))),
        (max_pool, ((nn.functional.max_pool1d, 1), (nn.functional.max_pool2d, 2))),
        (average_pool, ((nn.functional.avg_pool1d, 1), (nn.functional.avg_pool2d, 2))),
        (adaptive_average_pool, ((nn.functional.adaptive_avg_pool1d, 1), (nn.functional.adaptive_avg_pool2d, 2))),
    )
    for f, ndim in found
}
