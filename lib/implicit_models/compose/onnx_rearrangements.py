"""Operators of ONNX that move entries: shapes, permutations, slices, concatenations, padding.

Rules as in `onnx_operators`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.compose.onnx_builder import NetworkBuilder, Operand, Operation, Value, axis_of, known, value


def flatten(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    x = value("input", x)
    axis = op.attribute("axis", 1)
    axis = axis if axis == len(x.shape) else axis_of(axis, len(x.shape))
    return b.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def reshape(b: NetworkBuilder, op: Operation, x: Operand, shape: Operand = None) -> Value:
    x = value("input", x)
    wanted = [int(s) for s in op.option("shape", shape, 5, [])]
    if not op.attribute("allowzero", 0):
        if any(s == 0 and i >= len(x.shape) for i, s in enumerate(wanted)):
            raise ValueError(f"a zero of {wanted} stands for a size of its input, which has shape {x.shape}")
        wanted = [x.shape[i] if s == 0 else s for i, s in enumerate(wanted)]
    if -1 in wanted:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(x.shape) // rest if rest else 0
    return b.reshape(x, wanted)


def permuted(b: NetworkBuilder, x: Value, order: Sequence[int]) -> Value:
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"{tuple(order)} does not permute the axes of its input of shape {x.shape}")
    node, offset = b.view(x, *(() if order[0] == 0 else (0,)))
    dims = tuple(a + offset for a in order)
    return b.value(b.call(torch.permute, node, (0, *dims) if offset else dims), offset)


def transpose(b: NetworkBuilder, op: Operation, x: Operand) -> Value:
    x = value("input", x)
    return permuted(b, x, op.attribute("perm", list(range(len(x.shape)))[::-1]))


def concat(b: NetworkBuilder, op: Operation, *parts: Operand) -> Value:
    """Values side by side; constants are added to zeros between them."""
    first = next(p for p in parts if isinstance(p, Value))
    axis = axis_of(op.attribute("axis", 1), len(first.shape))
    there = [p for p in parts if p is not None]
    views = [b.view(p, axis) for p in there if isinstance(p, Value)]
    offset, nodes = views[0][1], iter(node for node, _ in views)
    if len(views) == len(there):
        return b.value(b.call(torch.cat, [node for node, _ in views], axis + offset), offset)
    ends = np.cumsum([p.shape[axis] for p in there])
    whole = np.zeros([ends[-1] if i == axis else s for i, s in enumerate(first.shape)])
    out: Any = None
    for end, part in zip(ends, there):
        start = int(end - part.shape[axis])
        if isinstance(part, np.ndarray):
            whole[(slice(None),) * axis + (slice(start, end),)] = part
            continue
        pads = [0, 0] * (len(first.shape) - 1 - axis) + [start, int(ends[-1] - end)]
        moved = b.call(nn.functional.pad, next(nodes), pads)
        out = moved if out is None else b.call(operator.add, out, moved)
    return b.value(b.call(operator.add, out, b.constant(whole if offset else whole[:1])), offset)


def taken(b: NetworkBuilder, x: Value, axis: int, index: int | slice | list[int]) -> Value:
    """Entries along an axis; a number drops it."""
    node, offset = b.view(x, axis)
    return b.value(b.call(operator.getitem, node, (*(slice(None),) * (axis + offset), index)), offset)


def sliced(
    b: NetworkBuilder,
    op: Operation,
    x: Operand,
    starts: Operand = None,
    ends: Operand = None,
    axes: Operand = None,
    steps: Operand = None,
) -> Value:
    out = value("input", x)
    first, last = op.option("starts", starts, 10), op.option("ends", ends, 10)
    along = op.option("axes", axes, 10) or list(range(len(first)))
    each = known("steps", steps).tolist() if steps is not None else [1] * len(first)
    for start, stop, axis, step in zip(first, last, along, each, strict=True):
        axis = axis_of(axis, len(out.shape))
        places = range(*slice(start, stop, step).indices(out.shape[axis]))
        if not places:
            raise ValueError(f"it takes no entry of axis {axis}")
        if len(places) < out.shape[axis] or step < 0:
            at = slice(places.start, places.stop, step) if step > 0 else list(places)
            out = taken(b, out, axis, at)
    return out


def split(b: NetworkBuilder, op: Operation, x: Operand, sizes: Operand = None) -> tuple[Value, ...]:
    x = value("input", x)
    axis = axis_of(op.attribute("axis", 0), len(x.shape))
    length, given = x.shape[axis], op.option("split", sizes, 13)
    count = op.attribute("num_outputs", len(op.outputs))
    if given is None:
        each = -(-length // count)
        given = [min(each, length - start) for start in range(0, length, each)]
    if sum(given) != length or len(given) != len(op.outputs):
        raise ValueError(f"it splits {length} entries into {len(op.outputs)} parts of {given}")
    ends = np.cumsum(given).tolist()
    return tuple(taken(b, x, axis, slice(end - size, end)) for end, size in zip(ends, given))


def squeeze(b: NetworkBuilder, op: Operation, x: Operand, axes: Operand = None) -> Value:
    x = value("input", x)
    given = op.option("axes", axes, 13)
    rank = len(x.shape)
    gone = {i for i, s in enumerate(x.shape) if s == 1} if given is None else {axis_of(a, rank) for a in given}
    if any(x.shape[a] != 1 for a in gone):
        raise ValueError(f"axes {sorted(gone)} of its input of shape {x.shape} are not all of size 1")
    return b.reshape(x, [s for i, s in enumerate(x.shape) if i not in gone])


def unsqueeze(b: NetworkBuilder, op: Operation, x: Operand, axes: Operand = None) -> Value:
    x = value("input", x)
    given = op.option("axes", axes, 13, [])
    rank = len(x.shape) + len(given)
    new, rest = {axis_of(a, rank) for a in given}, iter(x.shape)
    return b.reshape(x, [1 if i in new else next(rest) for i in range(rank)])


def gather(b: NetworkBuilder, op: Operation, x: Operand, indices: Operand) -> Value:
    x, index = value("data", x), known("indices", indices)
    axis = axis_of(op.attribute("axis", 0), len(x.shape))
    length = x.shape[axis]
    outside = index[(index < -length) | (index >= length)]
    if outside.size:
        raise ValueError(f"index {outside.reshape(-1)[0]} is outside of axis {axis}, which has {length} entries")
    index = index % length
    if index.ndim == 0:
        return taken(b, x, axis, int(index))
    out = taken(b, x, axis, [int(i) for i in index.reshape(-1)])
    return b.reshape(out, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def pad(
    b: NetworkBuilder, op: Operation, x: Operand, pads: Operand = None, fill: Operand = None, axes: Operand = None
) -> Value:
    x = value("input", x)
    mode = op.attribute("mode", "constant")
    if mode != "constant":
        raise ValueError(f"padding mode {mode!r} has no conversion")
    rank, sizes = len(x.shape), [int(p) for p in op.option("pads", pads, 11)]
    number = float(np.squeeze(op.option("value", fill, 11, 0.0)))
    along = list(range(rank)) if axes is None else [axis_of(a, rank) for a in known("axes", axes).tolist()]
    if len(sizes) != 2 * len(along):
        raise ValueError(f"it has {len(sizes)} sizes of padding for {len(along)} axes")
    return padded(b, x, {a: (sizes[i], sizes[i + len(along)]) for i, a in enumerate(along)}, number)


def padded(b: NetworkBuilder, x: Value, sides: dict[int, tuple[int, int]], fill: float = 0.0) -> Value:
    """Entries before and behind axes; negative numbers of them crop."""
    sides = {a: side for a, side in sides.items() if any(side)}
    if not sides:
        return x
    node, offset = b.view(x, *sides)
    sizes = [n for a in range(len(x.shape) - 1, min(sides) - 1, -1) for n in sides.get(a, (0, 0))]
    return b.value(b.call(nn.functional.pad, node, sizes, "constant", fill), offset)


def shape_of(b: NetworkBuilder, op: Operation, x: Operand) -> np.ndarray:
    shape = value("input", x).shape
    return np.array(shape[slice(op.attribute("start", 0), op.attribute("end"))], dtype=np.int64)
