"""Operators of ONNX as functions and modules of torch: sums, products, linear maps, activations, rearrangements.

A rule is a function (builder, operation, operands) -> value. Operands are values, which depend on the network's input,
constants, or None. Attributes that a rule does not ask for are refused by the caller. What moves entries is in
`onnx_rearrangements`, convolutions and pooling are in `onnx_windows`.

Source:
    Open Neural Network Exchange, Operators (onnx.ai/onnx/operators), with the differences between their versions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.compose import onnx_rearrangements as moves
from implicit_models.compose import onnx_windows as windows
from implicit_models.compose.onnx_builder import (
    NetworkBuilder,
    Operand,
    Operation,
    Value,
    axis_of,
    has_batch,
    known,
    value,
)

Rule = Callable[..., Value | tuple[Value, ...] | np.ndarray]
UNBOUNDED = 3.4e38  # the largest number of single precision stands for no bound


def binary(b: NetworkBuilder, function: Callable[..., Any], x: Operand, y: Operand) -> Value:
    """A componentwise function of two operands, broadcast as in NumPy."""
    if x is None or y is None:
        raise ValueError("it must have two inputs")
    rank = len(np.broadcast_shapes(x.shape, y.shape))
    values = [v for v in (x, y) if isinstance(v, Value)]
    lifted = [b.reshape(v, (1,) * (rank - len(v.shape)) + v.shape) for v in values]
    constants = [v.shape for v in (x, y) if isinstance(v, np.ndarray)]
    alone = all(has_batch(v.shape) for v in lifted) and all(len(s) < rank or s[0] == 1 for s in constants)
    views = iter([b.view(v, *(() if alone else (0,))) for v in lifted])
    args = [next(views)[0] if isinstance(v, Value) else b.constant(v) for v in (x, y)]
    return b.value(b.call(function, *args), 0 if alone else 1)


def add(b: NetworkBuilder, op: Operation, x: Operand, y: Operand) -> Value:
    """Add; a constant row behind a product with a matrix is the bias of one linear layer."""
    for place, (first, second) in enumerate(((x, y), (y, x))):
        if isinstance(first, Value) and isinstance(second, np.ndarray) and place in op.alone:
            if _as_bias(b, first, second):
                return first
    return binary(b, operator.add, x, y)


def _as_bias(b: NetworkBuilder, of: Value, row: np.ndarray) -> bool:
    """Whether a constant became the bias of the linear layer that makes a value."""
    layer = b.root.get_submodule(str(of.node.target)) if of.node.op == "call_module" else None
    if not isinstance(layer, nn.Linear) or layer.bias is not None or of.shape[-1:] != (layer.out_features,):
        return False
    if len(row.shape) > len(of.shape) or row.size not in (1, layer.out_features) or row.size != (row.shape or (1,))[-1]:
        return False
    bias = b.tensor(np.broadcast_to(row.reshape(-1), layer.out_features))
    layer.bias = nn.Parameter(bias, requires_grad=False)
    return True


def divide(b: NetworkBuilder, op: Operation, x: Operand, y: Operand) -> Value:
    if not isinstance(y, np.ndarray):
        raise ValueError("it divides by what depends on the input, which has no Lipschitz constant")
    if not y.all():
        raise ValueError("it divides by zero")
    return binary(b, operator.truediv, x, y)


def total(b: NetworkBuilder, op: Operation, *terms: Operand) -> Value:
    out = terms[0]
    for term in terms[1:]:
        out = binary(b, operator.add, out, term)
    return value("input", out)


# activations


def leaky(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    return b.apply(nn.LeakyReLU(op.attribute("alpha", 0.01)), value("input", x))


def prelu(b: NetworkBuilder, op: Operation, x: Operand, slope: Operand) -> Value:
    """A slope for all, one a channel, or one an entry."""
    x, slope = value("input", x), known("slope", slope)
    whole = np.broadcast_to(slope, x.shape)  # what does not fit raises
    if slope.size == 1:
        return b.apply(nn.LeakyReLU(float(slope.reshape(()))), x)
    shape = x.shape
    channels = (shape[1], *(1,) * (len(shape) - 2)) if has_batch(shape) else ()
    if slope.shape not in (channels, (1, *channels)):
        x, slope = b.reshape(x, (1, math.prod(shape))), whole
    module = nn.PReLU(slope.size, dtype=b.dtype)
    module.weight = nn.Parameter(b.tensor(slope.reshape(-1)))
    return b.reshape(b.apply(module, x), shape)


def clip(b: NetworkBuilder, op: Operation, x: Operand, least: Operand = None, most: Operand = None) -> Value:
    """min(max(x, l), h) = h - relu(h - l - relu(x - l)), in states of a ReLU."""
    x = value("input", x)
    lo = float(np.squeeze(op.option("min", least, 11, -np.inf)))
    hi = float(np.squeeze(op.option("max", most, 11, np.inf)))
    if not lo <= hi:
        raise ValueError(f"it clips to [{lo}, {hi}], which is empty")
    if (lo, hi) == (0.0, 6.0):
        return b.apply(nn.ReLU6(), x)
    shift = lambda v, c: v if c == 0 else binary(b, operator.add, v, np.array(c))
    minus = lambda c, v: binary(b, operator.sub, np.array(c), v)
    below = lo > -UNBOUNDED
    if below:
        x = b.apply(nn.ReLU(), shift(x, -lo))  # max(x, l) - l
    if hi >= UNBOUNDED:
        return shift(x, lo) if below else x
    return minus(hi, b.apply(nn.ReLU(), minus(hi - lo if below else hi, x)))


def softmax(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    """Along one axis; before version 13 over all axes from that one on."""
    x = value("input", x)
    shape = x.shape
    axis = axis_of(op.attribute("axis", -1 if op.opset >= 13 else 1), len(shape))
    if op.opset < 13:
        x = b.reshape(x, (*shape[:axis], math.prod(shape[axis:])))
    node, offset = b.view(x, axis)
    return b.reshape(b.value(b.module(nn.Softmax(axis + offset), node), offset), shape)


# linear maps


def linear(b: NetworkBuilder, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
    """A matrix (out, in) along the last axis."""
    if weight.shape[1] != x.shape[-1:][0]:
        raise ValueError(f"a matrix for {weight.shape[1]} entries does not fit an input of shape {x.shape}")
    node, offset = b.view(x, len(x.shape) - 1)
    # on no device: its own weights are not drawn
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=b.dtype, device="meta")
    layer.weight = nn.Parameter(b.tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(b.tensor(bias))
    return b.value(b.module(layer, node), offset)


def matmul(b: NetworkBuilder, op: Operation, x: Operand, y: Operand) -> Value:
    """numpy.matmul with one constant matrix, or of two values of the same leading axes."""
    if x is None or y is None:
        raise ValueError("it must have two inputs")
    shape = _product_shape(x.shape, y.shape)
    if isinstance(x, Value) and isinstance(y, np.ndarray):
        return b.reshape(linear(b, x, _matrix(y).T if y.ndim > 1 else y[None]), shape)
    if isinstance(x, np.ndarray):
        y, matrix = value("second input", y), _matrix(np.atleast_2d(x))
        if len(y.shape) == 1:
            return b.reshape(linear(b, y, matrix), shape)
        node, offset = b.view(y, len(y.shape) - 2)
        if matrix.size == 1:
            return b.reshape(b.value(b.call(operator.mul, node, b.constant(matrix)), offset), shape)
        return b.reshape(b.value(b.call(torch.matmul, b.constant(matrix), node), offset), shape)
    y = value("second input", y)
    if len(x.shape) != len(y.shape) or len(x.shape) < 2 or x.shape[:-2] != y.shape[:-2]:
        raise ValueError(f"it multiplies values of shapes {x.shape} and {y.shape}: all axes but two must agree")
    return b.value(b.call(torch.matmul, b.view(x, 0)[0], b.view(y, 0)[0]), 1)


def _product_shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """Of numpy.matmul, without computing it."""
    if not x or not y or x[-1] != y[-2:][0]:
        raise ValueError(f"it multiplies shapes {x} and {y}")
    lead = np.broadcast_shapes(x[:-2], y[:-2])
    return (*lead, *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))


def _matrix(array: np.ndarray) -> np.ndarray:
    if math.prod(array.shape[:-2]) != 1:
        raise ValueError(f"a constant of shape {array.shape} is several matrices")
    return array.reshape(array.shape[-2:])


def gemm(b: NetworkBuilder, op: Operation, x: Operand, y: Operand, c: Operand = None) -> Value:
    """alpha x y + beta c, with x and y transposed if asked."""
    alpha, beta = op.attribute("alpha", 1.0), op.attribute("beta", 1.0)
    turned = [op.attribute("transA", 0), op.attribute("transB", 0)]
    x, y = (_turned(b, v) if turn else v for v, turn in zip((x, y), turned))
    if isinstance(c, np.ndarray):
        c = c if beta == 1 else c.astype(np.float64) * beta
    elif isinstance(c, Value) and beta != 1:
        c = binary(b, operator.mul, c, np.array(beta))
    if isinstance(x, Value) and isinstance(y, np.ndarray):
        y = y if alpha == 1 else y.astype(np.float64) * alpha
        row = isinstance(c, np.ndarray) and c.size in (1, y.shape[1]) and c.size == (c.shape or (1,))[-1]
        if row:
            assert isinstance(c, np.ndarray)
            return linear(b, x, y.T, np.broadcast_to(c.reshape(-1), y.shape[1]))
        out = linear(b, x, y.T)
    else:
        out = matmul(b, op, x, y)
        out = out if alpha == 1 else binary(b, operator.mul, out, np.array(alpha))
    return out if c is None else binary(b, operator.add, out, c)


def _turned(b: NetworkBuilder, x: Operand) -> Operand:
    return x.T if isinstance(x, np.ndarray) else moves.permuted(b, value("input", x), (1, 0))


# sums over axes, and what changes nothing


def reduced(function: Callable[..., Any], since: int) -> Rule:
    """A mean or a sum over axes, which are an input since a version of the operators."""

    def rule(b: NetworkBuilder, op: Operation, x: Operand, axes: Operand = None) -> Value:
        x = value("input", x)
        keep, given = bool(op.attribute("keepdims", 1)), op.option("axes", axes, since)
        if not given:
            if op.attribute("noop_with_empty_axes", 0):
                return x
            given = range(len(x.shape))
        op.attribute("noop_with_empty_axes")
        over = sorted({axis_of(a, len(x.shape)) for a in given})
        node, offset = b.view(x, *over)
        return b.value(b.call(function, node, tuple(a + offset for a in over), keepdim=keep), offset)

    return rule


def same(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    return value("input", x)


def dropout(b: NetworkBuilder, op: Operation, x: Operand, ratio: Operand = None, training: Operand = None) -> Value:
    """Itself, in evaluation mode."""
    for name in ("ratio", "seed", "is_test"):
        op.attribute(name)
    if training is not None and known("training_mode", training).any():
        raise ValueError("it is in training mode, its map is random")
    return value("input", x)


def cast(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    """Itself, to the network's own floating type."""
    import onnx

    to = onnx.helper.tensor_dtype_to_np_dtype(op.attribute("to"))
    if to != np.dtype(str(b.dtype).removeprefix("torch.")):
        raise ValueError(f"it rounds to {to}, but the network computes in {str(b.dtype).removeprefix('torch.')}")
    for name in ("saturate", "round_mode"):
        op.attribute(name)
    return value("input", x)


def _module(kind: type[nn.Module]) -> Rule:
    return lambda b, op, x: b.apply(kind(), value("input", x))


def _binary(function: Callable[..., Any]) -> Rule:
    return lambda b, op, x, y: binary(b, function, x, y)


def negative(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    node, offset = b.view(value("input", x))
    return b.value(b.call(operator.neg, node), offset)


OPERATORS: dict[str, Rule] = {
    "Add": add,
    "AveragePool": windows.average_pool,
    "BatchNormalization": windows.batch_normalisation,
    "Cast": cast,
    "Clip": clip,
    "Concat": moves.concat,
    "Conv": windows.convolution,
    "Div": divide,
    "Dropout": dropout,
    "Flatten": moves.flatten,
    "Gather": moves.gather,
    "Gemm": gemm,
    "GlobalAveragePool": windows.global_average_pool,
    "GlobalMaxPool": windows.global_max_pool,
    "Identity": same,
    "LeakyRelu": leaky,
    "MatMul": matmul,
    "MaxPool": windows.max_pool,
    "Mul": _binary(operator.mul),
    "Neg": negative,
    "PRelu": prelu,
    "Pad": moves.pad,
    "ReduceMean": reduced(torch.mean, 18),
    "ReduceSum": reduced(torch.sum, 13),
    "Relu": _module(nn.ReLU),
    "Reshape": moves.reshape,
    "Shape": moves.shape_of,
    "Sigmoid": _module(nn.Sigmoid),
    "Slice": moves.sliced,
    "Softmax": softmax,
    "Split": moves.split,
    "Squeeze": moves.squeeze,
    "Sub": _binary(operator.sub),
    "Sum": total,
    "Tanh": _module(nn.Tanh),
    "Transpose": moves.transpose,
    "Unsqueeze": moves.unsqueeze,
}
