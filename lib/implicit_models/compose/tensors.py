"""Functions and methods of tensors in a network's forward: sums, products, rearrangements, contractions.

A rearrangement acts on the index array of one sample. Dimension 0 of the network's tensors is the batch: it stays where
it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from implicit_models.activations import Activation, Segment, resolve_activation
from implicit_models.compose.values import Assembly, Value, double, product_value, sum_value, wide

BATCH = "the batch"  # stands for the size of dimension 0


def axis_of(value: Value, dim: int) -> int:
    """Axis of one sample for a dimension of the batch.

    Raises:
        ValueError: for dimension 0 and for dimensions that are not there.
    """
    ndim = len(value.shape) + 1
    if not -ndim <= dim < ndim:
        raise ValueError(f"dimension {dim} is not there: the tensor has shape {('N', *value.shape)}")
    if dim % ndim == 0:
        raise ValueError("it works along dimension 0, the batch")
    return dim % ndim - 1


def flat(value: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """torch.flatten of a batch."""
    ndim = len(value.shape) + 1
    start, end = start_dim % ndim, end_dim % ndim
    if start == 0:
        raise ValueError("it flattens the batch: start_dim must be 1 or more")
    middle = math.prod(value.shape[start - 1 : end])
    return replace(value, shape=(*value.shape[: start - 1], middle, *value.shape[end:]))


def unflattened(value: Value, dim: int, sizes: Sequence[int]) -> Value:
    """torch.unflatten of a batch: one axis becomes several, of which one size may be -1."""
    axis = axis_of(value, dim)
    shape = value.index.reshape(*value.shape[:axis], *sizes, *value.shape[axis + 1 :]).shape
    return replace(value, shape=shape)


def activation(name: str) -> Callable[..., Value]:
    """The rule of a componentwise map."""

    def rule(assembly: Assembly, value: Value, inplace: bool = False) -> Value:
        return assembly.states(value, resolve_activation(name, len(value.c)))

    return rule


def softmax(assembly: Assembly, value: Value, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
    """Softmax along one dimension: a block for each line."""
    if dim is None:
        raise ValueError("softmax needs its dimension")
    axis = axis_of(value, dim)
    moved = np.moveaxis(value.index, axis, -1)
    block = value.shape[axis]
    act = Activation([Segment("softmax", 0.0, 0, moved.size, block)])
    out = assembly.states(value.take(moved.reshape(-1)), act)
    place = np.empty(moved.size, np.int64)
    place[moved.reshape(-1)] = np.arange(moved.size)
    return out.take(place.reshape(value.shape))


def _constant(c: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A number or a tensor without a batch, broadcast to one sample."""
    array = double(c) if isinstance(c, torch.Tensor) else np.asarray(float(c))
    if array.ndim > len(shape):
        if array.ndim != len(shape) + 1 or array.shape[0] != 1:
            raise ValueError(f"a constant of shape {array.shape} does not fit samples of shape {shape}")
        array = array[0]
    return np.broadcast_to(array, shape)


def _is_constant(c: Any) -> bool:
    return isinstance(c, torch.Tensor) or (isinstance(c, (int, float)) and not isinstance(c, bool))


def _aligned(a: Value, b: Value) -> tuple[Value, Value]:
    """Two values broadcast to one shape, as torch does beyond the batch."""
    if a.shape == b.shape:
        return a, b
    if len(a.shape) != len(b.shape):
        raise ValueError(f"shapes {('N', *a.shape)} and {('N', *b.shape)} do not align")
    shape = np.broadcast_shapes(a.shape, b.shape)
    return a.take(np.broadcast_to(a.index, shape)), b.take(np.broadcast_to(b.index, shape))


def scaled(value: Value, factor: np.ndarray) -> Value:
    """Entrywise product with constants of the value's shape."""
    return value.map(sp.diags_array(factor.reshape(-1), format="csr"), None, value.shape)


def add(assembly: Assembly, a: Any, b: Any, alpha: float = 1) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        a, b = _aligned(a, b)
        return sum_value(a, b if alpha == 1 else scaled(b, np.full(b.shape, float(alpha))))
    if not (_is_constant(a) or _is_constant(b)):
        raise TypeError("only sums of tensors that depend on the input, and of constants, are read")
    if isinstance(a, Value):
        return replace(a, c=a.c + float(alpha) * _constant(b, a.shape).reshape(-1))
    return add(assembly, scaled(b, np.full(b.shape, float(alpha))), a)


def subtract(assembly: Assembly, a: Any, b: Any, alpha: float = 1) -> Value:
    return add(assembly, a, b, -alpha)


def negative(assembly: Assembly, value: Value) -> Value:
    return scaled(value, np.full(value.shape, -1.0))


def multiply(assembly: Assembly, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        return product_value(assembly, *_aligned(a, b))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    if not _is_constant(constant):
        raise TypeError("only products with numbers, constants and bounded tensors are read")
    return scaled(value, _constant(constant, value.shape))


def divide(assembly: Assembly, a: Any, b: Any) -> Value:
    if not (isinstance(a, Value) and _is_constant(b)):
        raise TypeError(
            "only division by numbers and constants is read: a quotient of tensors has no Lipschitz constant"
        )
    return scaled(a, 1.0 / _constant(b, a.shape))


def matmul(assembly: Assembly, a: Any, b: Any) -> Value:
    """a b over the last two dimensions: sums of products of bounded entries, or a linear map if one is constant."""
    if isinstance(a, Value) and isinstance(b, Value):
        if (
            len(a.shape) < 2
            or len(a.shape) != len(b.shape)
            or a.shape[:-2] != b.shape[:-2]
            or a.shape[-1] != b.shape[-2]
        ):
            raise ValueError(f"it multiplies matrices of shapes {('N', *a.shape)} and {('N', *b.shape)}")
        lead, (r, k), s = a.shape[:-2], a.shape[-2:], b.shape[-1]
        first = np.broadcast_to(a.index[..., :, None, :], (*lead, r, s, k))
        second = np.broadcast_to(np.swapaxes(b.index, -1, -2)[..., None, :, :], (*lead, r, s, k))
        terms = product_value(assembly, a.take(first), b.take(second))
        m = len(terms.c) // k
        return terms.map(sp.kron(sp.eye_array(m), np.ones((1, k)), format="csr"), None, (*lead, r, s))
    value, constant = (a, b) if isinstance(a, Value) else (b, a)
    if not (isinstance(constant, torch.Tensor) and constant.ndim == 2):
        raise TypeError("only products of two tensors that depend on the input, or with a constant matrix, are read")
    M = double(constant)
    if value is a:  # ... x k times k x s
        if value.shape[-1] != M.shape[0]:
            raise ValueError(f"it multiplies shapes {('N', *value.shape)} and {M.shape}")
        rows = math.prod(value.shape[:-1])
        return value.map(sp.kron(sp.eye_array(rows), M.T, format="csr"), None, (*value.shape[:-1], M.shape[1]))
    return transposed(assembly, matmul(assembly, transposed(assembly, value, -1, -2), constant.t()), -1, -2)


def concatenate(assembly: Assembly, tensors: Sequence[Value], dim: int = 0) -> Value:
    if not all(isinstance(t, Value) for t in tensors):
        raise TypeError("only tensors that depend on the input are concatenated")
    axis = axis_of(tensors[0], dim)
    ends = np.cumsum([len(t.c) for t in tensors])
    index = np.concatenate([t.index + end - len(t.c) for t, end in zip(tensors, ends)], axis=axis)
    n = max(t.X.shape[1] for t in tensors)
    stacked = Value(
        sp.csr_array(sp.vstack([wide(t.X, n) for t in tensors], format="csr")),
        sp.csr_array(sp.vstack([t.U for t in tensors], format="csr")),
        np.concatenate([t.c for t in tensors]),
        (int(ends[-1]),),
    )
    return stacked.take(index)


def stack(assembly: Assembly, tensors: Sequence[Value], dim: int = 0) -> Value:
    raised = [unsqueezed(assembly, t, dim) for t in tensors]
    return concatenate(assembly, raised, dim)


def unsqueezed(assembly: Assembly, value: Value, dim: int) -> Value:
    ndim = len(value.shape) + 2
    if dim % ndim == 0:
        raise ValueError("it puts a dimension before the batch")
    return replace(value, shape=np.expand_dims(value.index, dim % ndim - 1).shape)


def squeezed(assembly: Assembly, value: Value, dim: int | None = None) -> Value:
    if dim is None:
        raise ValueError("squeeze needs its dimension: without one it drops the batch of a single sample too")
    axis = axis_of(value, dim)
    return replace(value, shape=tuple(s for i, s in enumerate(value.shape) if i != axis or s != 1))


def transposed(assembly: Assembly, value: Value, dim0: int, dim1: int) -> Value:
    return value.take(np.swapaxes(value.index, axis_of(value, dim0), axis_of(value, dim1)))


def permuted(assembly: Assembly, value: Value, *dims: Any) -> Value:
    order = [d % (len(value.shape) + 1) for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if order[0] != 0:
        raise ValueError(f"the batch must stay first, got dimensions {tuple(order)}")
    return value.take(np.transpose(value.index, [d - 1 for d in order[1:]]))


def reshaped(assembly: Assembly, value: Value, *sizes: Any) -> Value:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], (int, str)) else sizes
    if not sizes or sizes[0] not in (BATCH, -1):
        raise ValueError(
            f"it reshapes the batch to {sizes[0] if sizes else ()}: the first size must be x.size(0) or -1"
        )
    rest = [int(s) for s in sizes[1:]]
    if sizes[0] == -1 and -1 in rest:
        raise ValueError("only one size may be -1")
    if -1 in rest:
        known = -math.prod(rest)
        rest[rest.index(-1)] = len(value.c) // known if known else 0
    if math.prod(rest) != len(value.c):
        raise ValueError(f"samples of shape {value.shape} do not reshape to {tuple(sizes[1:])}")
    return replace(value, shape=tuple(rest))


def mean(assembly: Assembly, value: Value, dim: Any = None, keepdim: bool = False) -> Value:
    if dim is None:
        raise ValueError("mean needs its dimensions: without them it averages the batch too")
    axes = sorted({axis_of(value, d) for d in ((dim,) if isinstance(dim, int) else dim)})
    moved = np.moveaxis(value.index, axes, range(-len(axes), 0))
    kept = moved.shape[: moved.ndim - len(axes)]
    rows = moved.reshape(math.prod(kept), -1)
    k = rows.shape[1]
    W = sp.csr_array(
        (np.full(rows.size, 1.0 / k), rows.reshape(-1), np.arange(0, rows.size + 1, k)), (len(rows), len(value.c))
    )
    return value.map(W, None, tuple(1 if i in axes else s for i, s in enumerate(value.shape)) if keepdim else kept)


def padded(
    assembly: Assembly, tensor: Value, /, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Value:
    """torch.nn.functional.pad with constants: pairs of sizes, last dimension first; negative ones crop."""
    if mode != "constant":
        raise TypeError(f"padding mode {mode!r} has no conversion")
    index = tensor.index
    if len(pad) % 2 or len(pad) // 2 > index.ndim:
        raise ValueError(f"padding {tuple(pad)} does not fit samples of shape {tensor.shape}")
    sides = [(0, 0)] * (index.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    index = np.pad(index, [(max(0, a), max(0, b)) for a, b in sides], constant_values=-1)
    return tensor.take(
        index[tuple(slice(max(0, -a), index.shape[i] - max(0, -b)) for i, (a, b) in enumerate(sides))],
        float(value or 0.0),
    )


def item(assembly: Assembly, value: Any, key: Any) -> Any:
    """Slices and integers beyond the batch; an element of a tuple."""
    if not isinstance(value, Value):
        return value[key]
    key = key if isinstance(key, tuple) else (key,)
    if key[0] is Ellipsis:
        return value.take(value.index[key])
    if key[0] != slice(None):
        raise ValueError(f"it indexes the batch by {key[0]!r}")
    return value.take(value.index[key[1:]])


def all_sizes(args: Sequence[Any]) -> bool:
    """Whether the arguments are sizes of tensors and whole numbers alone, so that the forward computes a size."""
    return all(type(a) is int or isinstance(a, str) and a == BATCH for a in args)


def of_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of arithmetic with sizes.

    Raises:
        TypeError: for the size of the batch, which no model knows.
    """

    def rule(assembly: Assembly, *sizes: Any) -> Any:
        if BATCH in sizes:
            raise TypeError("it computes with the size of the batch, which a model does not know")
        return function(*sizes)

    return rule


def size(assembly: Assembly, value: Value, dim: int | None = None) -> Any:
    whole = (BATCH, *value.shape)
    return whole if dim is None else whole[dim]


def attribute(assembly: Assembly, value: Value, name: str) -> Any:
    if name == "shape":
        return (BATCH, *value.shape)
    raise TypeError(f"the attribute {name!r} of a tensor has no conversion")


def same(assembly: Assembly, value: Value, *args: Any, **kwargs: Any) -> Value:
    return value


def dropped(assembly: Assembly, value: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    if training:
        raise ValueError("dropout with training=True is random: pass training=self.training")
    return value


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
    "transpose": transposed,
    "unsqueeze": unsqueezed,
    "squeeze": squeezed,
    "mean": mean,
    "reshape": reshaped,
    "permute": permuted,
}
METHODS: dict[str, Callable[..., Any]] = {
    **SHARED,
    "flatten": lambda assembly, value, start_dim=0, end_dim=-1: flat(value, start_dim, end_dim),
    "view": reshaped,
    "size": size,
    "contiguous": same,
    "clone": same,
    "add_": add,
    "relu_": activation("relu"),
    "mul_": multiply,
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{getattr(torch, name): rule for name, rule in SHARED.items()},
    operator.add: add,
    operator.iadd: add,
    operator.sub: subtract,
    operator.isub: subtract,
    operator.mul: multiply,
    operator.imul: multiply,
    operator.truediv: divide,
    operator.neg: negative,
    operator.matmul: matmul,
    operator.getitem: item,
    getattr: attribute,
    torch.flatten: METHODS["flatten"],
    torch.cat: concatenate,
    torch.concat: concatenate,
    torch.stack: stack,
    nn.functional.relu: activation("relu"),
    nn.functional.softmax: softmax,
    nn.functional.pad: padded,
    nn.functional.dropout: dropped,
    nn.functional.tanh: activation("tanh"),
    nn.functional.sigmoid: activation("sigmoid"),
}
