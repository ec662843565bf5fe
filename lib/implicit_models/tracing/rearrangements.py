"""Rules of functions and methods that move the entries of a sample: shapes, slices, transpositions, padding.

Dimension 0 of the network's tensors is the batch: it stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_models.tracing.builder import BATCH, Builder
from implicit_models.tracing.nodes import Node


def axis_of(shape: tuple[int, ...], dim: int) -> int:
    """Axis of a sample for a dimension of the batch.

    Raises:
        ValueError: for dimension 0 and for dimensions that are not there.
    """
    ndim = len(shape) + 1
    if not -ndim <= dim < ndim:
        raise ValueError(f"dimension {dim} is not there: the tensor has shape {('N', *shape)}")
    if dim % ndim == 0:
        raise ValueError("it works along dimension 0, the batch")
    return dim % ndim - 1


def flat(b: Builder, value: Node, start_dim: int = 0, end_dim: int = -1) -> Node:
    """torch.flatten of a batch."""
    ndim = len(value.shape) + 1
    start, end = start_dim % ndim, end_dim % ndim
    if start == 0:
        raise ValueError("it flattens the batch: start_dim must be 1 or more")
    middle = math.prod(value.shape[start - 1 : end])
    return b.reshape(value, (*value.shape[: start - 1], middle, *value.shape[end:]))


def unflattened(b: Builder, value: Node, dim: int, sizes: Sequence[int]) -> Node:
    """torch.unflatten of a batch: one axis becomes several, of which one size may be -1."""
    axis = axis_of(value.shape, dim)
    return b.reshape(value, value.index.reshape(*value.shape[:axis], *sizes, *value.shape[axis + 1 :]).shape)


def reshaped(b: Builder, value: Node, *sizes: Any) -> Node:
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
        rest[rest.index(-1)] = value.size // known if known else 0
    if math.prod(rest) != value.size:
        raise ValueError(f"samples of shape {value.shape} do not reshape to {tuple(sizes[1:])}")
    return b.reshape(value, rest)


def unsqueezed(b: Builder, value: Node, dim: int) -> Node:
    ndim = len(value.shape) + 2
    if dim % ndim == 0:
        raise ValueError("it puts a dimension before the batch")
    return b.reshape(value, np.expand_dims(value.index, dim % ndim - 1).shape)


def squeezed(b: Builder, value: Node, dim: int | None = None) -> Node:
    if dim is None:
        raise ValueError("squeeze needs its dimension: without one it drops the batch of a single sample too")
    axis = axis_of(value.shape, dim)
    return b.reshape(value, [s for i, s in enumerate(value.shape) if i != axis or s != 1])


def transposed(b: Builder, value: Node, dim0: int, dim1: int) -> Node:
    return b.take(value, np.swapaxes(value.index, axis_of(value.shape, dim0), axis_of(value.shape, dim1)))


def permuted(b: Builder, value: Node, *dims: Any) -> Node:
    order = [d % (len(value.shape) + 1) for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if order[0] != 0:
        raise ValueError(f"the batch must stay first, got dimensions {tuple(order)}")
    return b.take(value, np.transpose(value.index, [d - 1 for d in order[1:]]))


def expanded(b: Builder, value: Node, *sizes: Any) -> Node:
    """torch.Tensor.expand beyond the batch: axes of size 1 repeated."""
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], (int, str)) else sizes
    if len(sizes) != len(value.shape) + 1 or sizes[0] not in (BATCH, -1):
        raise ValueError(
            f"it expands samples of shape {value.shape} to {sizes}: the first size must be x.size(0) or -1"
        )
    return b.take(value, np.broadcast_to(value.index, [s if w == -1 else w for s, w in zip(value.shape, sizes[1:])]))


def concatenated(b: Builder, tensors: Sequence[Node], dim: int = 0, **named: Any) -> Node:
    if not all(isinstance(t, Node) for t in tensors):
        raise TypeError("only tensors that depend on the input are concatenated")
    return b.concat(tensors, axis_of(tensors[0].shape, named.get("axis", dim)))


def stacked(b: Builder, tensors: Sequence[Node], dim: int = 0) -> Node:
    return concatenated(b, [unsqueezed(b, t, dim) for t in tensors], dim)


def parts_of(b: Builder, value: Node, axis: int, ends: Sequence[int]) -> tuple[Node, ...]:
    """Slices of an axis that end there."""
    return tuple(b.take(value, part) for part in np.split(value.index, ends[:-1], axis=axis))


def split(b: Builder, value: Node, split_size_or_sections: Any, dim: int = 0) -> tuple[Node, ...]:
    """torch.split beyond the batch."""
    axis, sizes = axis_of(value.shape, dim), split_size_or_sections
    length = value.shape[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - at) for at in range(0, length, sizes)]
    if sum(sizes) != length:
        raise ValueError(f"it splits {length} entries into parts of {tuple(sizes)}")
    return parts_of(b, value, axis, np.cumsum(sizes).tolist())


def chunked(b: Builder, value: Node, chunks: int, dim: int = 0) -> tuple[Node, ...]:
    """torch.chunk beyond the batch."""
    axis = axis_of(value.shape, dim)
    return split(b, value, -(-value.shape[axis] // chunks), dim)


def padded(b: Builder, tensor: Node, /, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Node:
    """torch.nn.functional.pad with constants: pairs of sizes, last dimension first; negative ones crop."""
    if mode != "constant":
        raise TypeError(f"padding mode {mode!r} has no conversion")
    index = tensor.index
    if len(pad) % 2 or len(pad) // 2 > index.ndim:
        raise ValueError(f"padding {tuple(pad)} does not fit samples of shape {tensor.shape}")
    sides = [(0, 0)] * (index.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    index = np.pad(index, [(max(0, first), max(0, last)) for first, last in sides], constant_values=-1)
    kept = tuple(slice(max(0, -first), index.shape[i] - max(0, -last)) for i, (first, last) in enumerate(sides))
    return b.take(tensor, index[kept], float(value or 0.0))


def item(b: Builder, value: Any, key: Any) -> Any:
    """Slices and integers beyond the batch; an element of a tuple."""
    if not isinstance(value, Node):
        return value[key]
    key = key if isinstance(key, tuple) else (key,)
    if key[0] is Ellipsis:
        return b.take(value, value.index[key])
    if key[0] != slice(None):
        raise ValueError(f"it indexes the batch by {key[0]!r}")
    return b.take(value, value.index[key[1:]])


def all_sizes(args: Sequence[Any]) -> bool:
    """Whether the arguments are sizes of tensors and whole numbers alone, so that the forward computes a size."""
    return all(type(a) is int or isinstance(a, str) and a == BATCH for a in args)


def of_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of arithmetic with sizes.

    Raises:
        TypeError: for the size of the batch, which no model knows.
    """

    def rule(b: Builder, *sizes: Any) -> Any:
        if BATCH in sizes:
            raise TypeError("it computes with the size of the batch, which a model does not know")
        return function(*sizes)

    return rule


def size(b: Builder, value: Node, dim: int | None = None) -> Any:
    whole = (BATCH, *value.shape)
    return whole if dim is None else whole[dim]


def attribute_of(b: Builder, value: Any, name: str) -> Any:
    if name == "shape":
        return (BATCH, *value.shape)
    if name in ("dtype", "device"):
        return None  # the network's own
    if name == "ndim":
        return len(value.shape) + 1
    raise TypeError(f"the attribute {name!r} of a tensor has no conversion")


def new_zeros(b: Builder, value: Node, *sizes: Any, **named: Any) -> Tensor:
    """Zeros for every sample."""
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], (int, str)) else sizes
    if not sizes or sizes[0] != BATCH:
        raise ValueError("it makes zeros that are not one tensor a sample: the first size must be x.size(0)")
    return torch.zeros(1, *sizes[1:], dtype=b.dtype)


def same(b: Builder, value: Node, *args: Any, **kwargs: Any) -> Node:
    return value


def cloned(b: Builder, value: Node, **kwargs: Any) -> Node:
    """Itself, but for changes in place that follow."""
    return replace(value)


METHODS: dict[str, Callable[..., Any]] = {
    "flatten": flat,
    "unflatten": unflattened,
    "view": reshaped,
    "reshape": reshaped,
    "unsqueeze": unsqueezed,
    "squeeze": squeezed,
    "transpose": transposed,
    "permute": permuted,
    "expand": expanded,
    "split": split,
    "chunk": chunked,
    "size": size,
    "new_zeros": new_zeros,
    "contiguous": same,
    "clone": cloned,
}
