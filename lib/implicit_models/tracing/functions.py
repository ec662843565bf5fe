"""Rules of functions and methods of tensors in a network's forward: sums, products, maps, contractions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_models.tracing import rearrangements as moves
from implicit_models.tracing import spatial
from implicit_models.tracing.builder import Builder, WrongShape, is_constant
from implicit_models.tracing.nodes import Activation, Linear, Mean, Node, Product, Softmax
from implicit_models.tracing.rearrangements import axis_of, transposed


def activation(name: str) -> Callable[..., Node]:
    """The rule of a componentwise map."""

    def rule(b: Builder, value: Node, inplace: bool = False) -> Node:
        return b.add(Activation, [value], value.shape, map=name)

    return rule


def leaky(b: Builder, value: Node, negative_slope: float = 0.01, inplace: bool = False) -> Node:
    """torch.nn.functional.leaky_relu."""
    if not 0 <= negative_slope <= 1:
        raise ValueError(f"its slope {negative_slope} is not in [0, 1]")
    return b.add(Activation, [value], value.shape, map="leaky_relu", slope=float(negative_slope))


def prelu(b: Builder, value: Node, weight: Tensor) -> Node:
    """torch.nn.functional.prelu: a slope for all channels, or one each."""
    if len(weight) not in (1, value.shape[0]):
        raise WrongShape(f"it has {len(weight)} slopes, but its input has shape {value.shape}")
    outside = weight.detach()[~((weight >= 0) & (weight <= 1))]
    if len(outside):
        raise ValueError(f"its slope {float(outside[0]):g} is not in [0, 1]")
    return b.add(Activation, [value], value.shape, map="leaky_relu", slope=weight)


def relu6(b: Builder, value: Node, inplace: bool = False) -> Node:
    """min(max(z, 0), 6) = x - relu(x - 6) with x = relu(z), exact for small z: two maps of states, or one."""
    if b.whole_relu6:
        return activation("relu6")(b, value)
    x = activation("relu")(b, value)
    return b.sum([x, activation("relu")(b, b.scale(x, shift=-6.0))], (1.0, -1.0))


def softmax(b: Builder, value: Node, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Node:
    """Softmax along one dimension."""
    if dim is None:
        raise ValueError("softmax needs its dimension")
    return b.add(Softmax, [value], value.shape, axis=axis_of(value.shape, dim))


def aligned(b: Builder, x: Node, y: Node) -> tuple[Node, Node]:
    """Two values broadcast to one shape, as torch does beyond the batch."""
    if x.shape == y.shape:
        return x, y
    if len(x.shape) != len(y.shape):
        raise ValueError(f"shapes {('N', *x.shape)} and {('N', *y.shape)} do not align")
    shape = np.broadcast_shapes(x.shape, y.shape)
    return b.take(x, np.broadcast_to(x.index, shape)), b.take(y, np.broadcast_to(y.index, shape))


def _grown(b: Builder, value: Node, constant: Any) -> Node:
    """A value broadcast to the shape that a constant gives it."""
    wide = tuple(constant.shape) if isinstance(constant, Tensor) else ()
    if len(wide) > len(value.shape) and not (len(wide) == len(value.shape) + 1 and wide[0] == 1):
        return value  # refused where it is used
    shape = np.broadcast_shapes(value.shape, wide[1:] if len(wide) > len(value.shape) else wide)
    return value if shape == value.shape else b.take(value, np.broadcast_to(value.index, shape))


def add(b: Builder, x: Any, y: Any, alpha: float = 1) -> Node:
    if isinstance(x, Node) and isinstance(y, Node):
        return b.sum(aligned(b, x, y), (1.0, alpha))
    if not (is_constant(x) or is_constant(y)):
        raise TypeError("only sums of tensors that depend on the input, and of constants, are read")
    if isinstance(x, Node):
        return b.scale(_grown(b, x, y), shift=y if alpha == 1 else y * alpha)
    return add(b, y if alpha == 1 else b.scale(y, factor=float(alpha)), x)


def subtract(b: Builder, x: Any, y: Any, alpha: float = 1) -> Node:
    return add(b, x, y, -alpha)


def negative(b: Builder, value: Node) -> Node:
    return b.scale(value, factor=-1.0)


def multiply(b: Builder, x: Any, y: Any) -> Node:
    if isinstance(x, Node) and isinstance(y, Node):
        x, y = aligned(b, x, y)
        return b.add(Product, [x, y], x.shape)
    value, constant = (x, y) if isinstance(x, Node) else (y, x)
    if not is_constant(constant):
        raise TypeError("only products with numbers, constants and bounded tensors are read")
    return b.scale(_grown(b, value, constant), factor=constant)


def divide(b: Builder, x: Any, y: Any) -> Node:
    if not (isinstance(x, Node) and is_constant(y)):
        raise TypeError(
            "only division by numbers and constants is read: a quotient of tensors has no Lipschitz constant"
        )
    return b.scale(_grown(b, x, y), divisor=y)


def matmul(b: Builder, x: Any, y: Any) -> Node:
    """x y over the last two dimensions: sums of products of bounded entries, or a linear map if one is constant."""
    if isinstance(x, Node) and isinstance(y, Node):
        if (
            len(x.shape) < 2
            or len(x.shape) != len(y.shape)
            or x.shape[:-2] != y.shape[:-2]
            or x.shape[-1] != y.shape[-2]
        ):
            raise ValueError(f"it multiplies matrices of shapes {('N', *x.shape)} and {('N', *y.shape)}")
        lead, (r, k), s = x.shape[:-2], x.shape[-2:], y.shape[-1]
        first = np.broadcast_to(x.index[..., :, None, :], (*lead, r, s, k))
        second = np.broadcast_to(np.swapaxes(y.index, -1, -2)[..., None, :, :], (*lead, r, s, k))
        terms = b.add(Product, [b.take(x, first), b.take(y, second)], first.shape)
        return b.reshape(b.add(Linear, [terms], (*lead, r, s, 1), weight=torch.ones(1, k)), (*lead, r, s))
    value, constant = (x, y) if isinstance(x, Node) else (y, x)
    if not (isinstance(constant, Tensor) and constant.ndim == 2):
        raise TypeError("only products of two tensors that depend on the input, or with a constant matrix, are read")
    if value is x:  # ... x k times k x s
        if value.shape[-1] != constant.shape[0]:
            raise ValueError(f"it multiplies shapes {('N', *value.shape)} and {tuple(constant.shape)}")
        return b.add(Linear, [value], (*value.shape[:-1], constant.shape[1]), weight=constant.t())
    return transposed(b, matmul(b, transposed(b, value, -1, -2), constant.t()), -1, -2)


def linear(b: Builder, value: Node, weight: Tensor, bias: Tensor | None = None) -> Node:
    """torch.nn.functional.linear."""
    if not value.shape or value.shape[-1] != weight.shape[1]:
        raise WrongShape(f"it reads {weight.shape[1]} features, but its input has shape {value.shape}")
    return b.add(Linear, [value], (*value.shape[:-1], weight.shape[0]), weight=weight, bias=bias)


def mean(b: Builder, value: Node, dim: Any = None, keepdim: bool = False) -> Node:
    if dim is None:
        raise ValueError("mean needs its dimensions: without them it averages the batch too")
    axes = tuple(sorted({axis_of(value.shape, d) for d in ((dim,) if isinstance(dim, int) else dim)}))
    shape = [1 if i in axes else s for i, s in enumerate(value.shape) if keepdim or i not in axes]
    return b.add(Mean, [value], shape, axes=axes, keepdim=bool(keepdim))


def total(b: Builder, value: Node, dim: Any = None, keepdim: bool = False) -> Node:
    """torch.sum over dimensions of a sample."""
    if dim is None:
        raise ValueError("sum needs its dimensions: without them it adds up the batch too")
    found = mean(b, value, dim, keepdim)
    return b.scale(found, factor=float(math.prod(value.shape) // max(1, math.prod(found.shape))))


def dropped(b: Builder, value: Node, p: float = 0.5, training: bool = True, inplace: bool = False) -> Node:
    if training:
        raise ValueError("dropout with training=True is random: pass training=self.training")
    return value


def length(b: Builder, value: Any) -> Any:
    """len of a tuple."""
    return len(value)


SHARED: dict[str, Callable[..., Any]] = {
    "relu": activation("relu"),
    "tanh": activation("tanh"),
    "sigmoid": activation("sigmoid"),
    "softmax": softmax,
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "div": divide,
    "neg": negative,
    "matmul": matmul,
    "bmm": matmul,
    "mean": mean,
    "sum": total,
}
METHODS: dict[str, Callable[..., Any]] = {
    **SHARED,
    **moves.METHODS,
    "add_": add,
    "sub_": subtract,
    "mul_": multiply,
    "div_": divide,
    "relu_": activation("relu"),
    "tanh_": activation("tanh"),
    "sigmoid_": activation("sigmoid"),
}
_OF_TORCH: Sequence[str] = ("flatten", "transpose", "unsqueeze", "squeeze", "reshape", "permute", "split", "chunk")
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{getattr(torch, name): rule for name, rule in SHARED.items()},
    **{getattr(torch, name): moves.METHODS[name] for name in _OF_TORCH},
    torch.relu_: activation("relu"),
    torch.cat: moves.concatenated,
    torch.concat: moves.concatenated,
    torch.stack: moves.stacked,
    operator.add: add,
    operator.iadd: add,
    operator.sub: subtract,
    operator.isub: subtract,
    operator.mul: multiply,
    operator.imul: multiply,
    operator.truediv: divide,
    operator.itruediv: divide,
    operator.neg: negative,
    operator.matmul: matmul,
    operator.getitem: moves.item,
    getattr: moves.attribute_of,
    nn.functional.relu: activation("relu"),
    nn.functional.relu_: activation("relu"),
    nn.functional.relu6: relu6,
    nn.functional.leaky_relu: leaky,
    nn.functional.prelu: prelu,
    torch.prelu: prelu,
    nn.functional.tanh: activation("tanh"),
    nn.functional.sigmoid: activation("sigmoid"),
    nn.functional.softmax: softmax,
    nn.functional.pad: moves.padded,
    nn.functional.dropout: dropped,
    nn.functional.dropout1d: dropped,
    nn.functional.dropout2d: dropped,
    nn.functional.linear: linear,
    **spatial.FUNCTIONS,
}
IN_PLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv, torch.relu_, nn.functional.relu_}
