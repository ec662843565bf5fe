"""Operators of ONNX over windows of images and sequences: convolutions, pooling, batch normalisation.

Rules as in `onnx_operators`. Padding of two equal sides is torch's own; of other sides it is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from implicit_models.compose.onnx_builder import NetworkBuilder, Operand, Operation, Value, has_batch, known, value
from implicit_models.compose.onnx_rearrangements import padded, taken

Sides = list[tuple[int, int]]


def image(x: Operand, ndim: int | None = None) -> Value:
    """Raises: ValueError for anything but (1, C, L) and (1, C, H, W), of which ndim axes follow the channels."""
    x = value("input", x)
    if not has_batch(x.shape) or len(x.shape) not in ((3, 4) if ndim is None else (ndim + 2,)):
        axes = {1: "(1, C, L)", 2: "(1, C, H, W)", None: "(1, C, L) or (1, C, H, W)"}
        raise ValueError(f"it reads tensors of shape {axes[ndim]}, but its input has shape {x.shape}")
    return x


class Windows:
    """Sizes of an operator's windows: kernel, strides, dilations, and padding before and behind each axis."""

    def __init__(self, op: Operation, x: Value, kernel: tuple[int, ...]):
        ones = [1] * len(kernel)
        self.kernel, self.size = kernel, x.shape[2:]
        self.stride = tuple(op.attribute("strides", ones))
        self.dilation = tuple(op.attribute("dilations", ones))
        pads, auto = op.attribute("pads", [0] * 2 * len(kernel)), op.attribute("auto_pad", "NOTSET")
        for name, numbers, count in (
            ("kernel_shape", kernel, 1),
            ("strides", self.stride, 1),
            ("dilations", self.dilation, 1),
            ("pads", pads, 2),
        ):
            if len(numbers) != count * len(self.size) or min(numbers) < (0 if name == "pads" else 1):
                raise ValueError(f"its {name} {tuple(numbers)} do not fit an input of shape {x.shape}")
        self.extent = tuple(d * (k - 1) + 1 for k, d in zip(kernel, self.dilation))
        self.sides: Sides = [(int(pads[i]), int(pads[i + len(kernel)])) for i in range(len(kernel))]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = [max(0, (-(-n // s) - 1) * s + e - n) for n, s, e in zip(self.size, self.stride, self.extent)]
            self.sides = [(t // 2, t - t // 2) if auto == "SAME_UPPER" else (t - t // 2, t // 2) for t in total]
        elif auto == "VALID":
            self.sides = [(0, 0)] * len(kernel)
        elif auto != "NOTSET":
            raise ValueError(f"auto_pad {auto!r} is not known")

    @property
    def symmetric(self) -> bool:
        return all(before == behind for before, behind in self.sides)

    @property
    def padding(self) -> tuple[int, ...]:
        """torch's."""
        return tuple(before for before, _ in self.sides)

    @property
    def by_axis(self) -> dict[int, tuple[int, int]]:
        return dict(enumerate(self.sides, start=2))


def convolution(b: NetworkBuilder, op: Operation, x: Operand, weight: Operand, bias: Operand = None) -> Value:
    weight = known("weight", weight)
    ndim = weight.ndim - 2
    if ndim not in (1, 2):
        raise ValueError(f"a kernel of shape {weight.shape} is of no convolution over one or two axes")
    x, groups = image(x, ndim), op.attribute("group", 1)
    at = Windows(op, x, tuple(weight.shape[2:]))
    if tuple(op.attribute("kernel_shape", at.kernel)) != at.kernel:
        raise ValueError(f"its kernel_shape is not that of its weight, {weight.shape}")
    padding = at.padding if at.symmetric else (0,) * ndim
    kind: Callable[..., Any] = nn.Conv2d if ndim == 2 else nn.Conv1d
    layer = kind(  # its own weights are not drawn
        weight.shape[1] * groups,
        weight.shape[0],
        at.kernel,
        stride=at.stride,
        padding=padding,
        dilation=at.dilation,
        groups=groups,
        bias=bias is not None,
        dtype=b.dtype,
        device="meta",
    )
    layer.weight = nn.Parameter(b.tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(b.tensor(known("bias", bias)))
    return b.apply(layer, x if at.symmetric else padded(b, x, at.by_axis))


def _pool_windows(op: Operation, x: Value) -> tuple[Windows, bool]:
    kernel = op.attribute("kernel_shape")
    if kernel is None:
        raise ValueError("it has no kernel_shape")
    return Windows(op, x, tuple(kernel)), bool(op.attribute("ceil_mode", 0))


def max_pool(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    """Maxima; where padding is not torch's, the entries of the edge stand for it, which are in the same windows."""
    x = image(x)
    at, ceil = _pool_windows(op, x)
    op.attribute("storage_order")  # of the second output alone
    kind = nn.MaxPool2d if len(at.kernel) == 2 else nn.MaxPool1d
    padding = at.padding
    if not at.symmetric or any(2 * p > k for p, k in zip(padding, at.kernel)):
        if max(at.dilation) > 1:
            raise ValueError(f"its padding {at.sides} with dilation {at.dilation} has no conversion")
        if any(max(side) >= k for side, k in zip(at.sides, at.kernel)):
            raise ValueError(f"its padding {at.sides} holds whole windows")
        for axis, (before, behind) in at.by_axis.items():
            first, last = (taken(b, x, axis, slice(i, i + 1)) for i in (0, x.shape[axis] - 1))
            x = _side_by_side(b, [*[first] * before, x, *[last] * behind], axis)
        padding = (0,) * len(at.kernel)
    return b.apply(kind(at.kernel, at.stride, padding, at.dilation, ceil_mode=ceil), x)


def _side_by_side(b: NetworkBuilder, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else b.value(b.call(torch.cat, [p.node for p in parts], axis), 0)


def average_pool(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    """Means; where padding is not torch's and does not count, each window is scaled by the share that counts."""
    x = image(x)
    at, ceil = _pool_windows(op, x)
    counted = bool(op.attribute("count_include_pad", 0))
    if max(at.dilation) > 1:
        raise ValueError(f"dilation {at.dilation} has no conversion")
    kind: Callable[..., Any] = nn.AvgPool2d if len(at.kernel) == 2 else nn.AvgPool1d
    if at.symmetric and all(2 * p <= k for p, k in zip(at.padding, at.kernel)):
        return b.apply(kind(at.kernel, at.stride, at.padding, ceil, counted), x)
    if ceil:
        raise ValueError(f"its padding {at.sides} with ceil_mode has no conversion")
    means = kind(at.kernel, at.stride)
    out = b.apply(means, padded(b, x, at.by_axis))
    if counted:
        return out
    pads = [n for side in reversed(at.sides) for n in side]
    share = means(nn.functional.pad(torch.ones(1, 1, *at.size, dtype=torch.float64), pads))
    if not share.all():
        raise ValueError(f"its padding {at.sides} holds whole windows")
    return b.value(b.call(torch.div, out.node, b.constant(share.numpy())), 0)


def _over_space(b: NetworkBuilder, x: Operand, kind: tuple[type[nn.Module], type[nn.Module]]) -> Value:
    x = image(x)
    return b.apply(kind[len(x.shape) - 3](1), x)


def global_average_pool(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    return _over_space(b, x, (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d))


def global_max_pool(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    return _over_space(b, x, (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d))


def batch_normalisation(
    b: NetworkBuilder, op: Operation, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand
) -> Value:
    """(x - mean) / sqrt(variance + eps) scale + bias, a channel."""
    x, eps = value("input", x), op.attribute("epsilon", 1e-5)
    for name in ("momentum", "consumed_inputs"):
        op.attribute(name)
    if op.attribute("training_mode", 0) or len(op.outputs) > 1 or (op.opset < 7 and not op.attribute("is_test", 0)):
        raise ValueError("it is in training mode, its map depends on the whole batch")
    if not op.attribute("spatial", 1) and len(x.shape) > 2:
        raise ValueError("statistics of each entry (spatial=0) have no conversion")
    if not has_batch(x.shape) or len(x.shape) not in (2, 3, 4):
        raise ValueError(f"it reads (1, C), (1, C, L) or (1, C, H, W), but its input has shape {x.shape}")
    layer = (nn.BatchNorm2d if len(x.shape) == 4 else nn.BatchNorm1d)(x.shape[1], eps=eps, dtype=b.dtype)
    given = {"weight": scale, "bias": bias, "running_mean": mean, "running_var": variance}
    for name, array in given.items():
        tensor = b.tensor(known(name.removeprefix("running_"), array))
        if tensor.shape != (x.shape[1],):
            raise ValueError(f"its {name} has shape {tuple(tensor.shape)}, but its input has shape {x.shape}")
        setattr(layer, name, nn.Parameter(tensor) if name in ("weight", "bias") else tensor)
    return b.apply(layer, x)
