"""Steps under construction: what the rules of modules and functions add to a graph.

A rule is a function (builder, arguments of the module or function) -> value. A value is a `Node`; whatever depends on
no input, a size or a constant, is itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from implicit_models.tracing.nodes import Concat, Node, Reshape, Scale, Sum, Take

BATCH = "the batch"  # stands for the size of dimension 0
Kind = TypeVar("Kind", bound=Node)


class WrongShape(ValueError):
    """Samples of a shape that a module or function does not take."""


class Builder:
    """The steps so far.

    tensors: identity of the network's parameters, buffers and modules -> their dotted names. dtype: of constants.
    whole_relu6: whether ReLU6 is one map.
    """

    def __init__(self, tensors: Mapping[int, str], dtype: torch.dtype, whole_relu6: bool):
        self.tensors, self.dtype, self.whole_relu6 = tensors, dtype, whole_relu6
        self.nodes: list[Node] = []
        self._name, self._path, self._where, self._count = "input", "", "", 0

    def at(self, name: str, path: str, where: str) -> None:
        """What is added from here on stems from one node of the trace; its first step bears the node's name."""
        self._name, self._path, self._where, self._count = name, path, where, 0

    def add(self, kind: type[Kind], inputs: Sequence[Node], shape: Sequence[int], **fields: Any) -> Kind:
        """A new step."""
        names = {
            key: self.tensors[id(value)]
            for key, value in fields.items()
            if isinstance(value, (Tensor, nn.Module)) and id(value) in self.tensors
        }
        name = f"{self._name}.{self._count}" if self._count else self._name
        self._count += 1
        node = kind(
            name=name,
            inputs=tuple(i.name for i in inputs),
            shape=tuple(int(s) for s in shape),
            path=self._path,
            where=self._where,
            names=names,
            **fields,
        )
        self.nodes.append(node)
        return node

    def take(self, value: Node, entries: np.ndarray, fill: float = 0.0) -> Node:
        """Entries of a value by their numbers, the value itself where they are all, in order."""
        flat = entries.reshape(-1)
        if flat.size == value.size and np.array_equal(flat, np.arange(flat.size)):
            return self.reshape(value, entries.shape)
        return self.add(Take, [value], entries.shape, entries=entries, fill=fill)

    def reshape(self, value: Node, shape: Sequence[int]) -> Node:
        return value if tuple(shape) == value.shape else self.add(Reshape, [value], shape)

    def scale(self, value: Node, **constant: Tensor | float) -> Node:
        """The value times a factor, over a divisor, or plus a shift."""
        (given,) = constant.values()
        node = self.add(Scale, [value], value.shape, **constant)
        node.affine()  # what does not broadcast to the value raises
        if isinstance(given, Tensor) and given.ndim > len(value.shape) + 1:
            raise ValueError(f"a constant of shape {tuple(given.shape)} does not fit samples of shape {value.shape}")
        return node

    def sum(self, values: Sequence[Node], coefficients: Sequence[float] | None = None) -> Node:
        """The sum of values of one shape.

        Raises:
            ValueError: naming the shapes that differ.
        """
        for other in values[1:]:
            if other.shape != values[0].shape:
                raise ValueError(f"it adds values of shapes {values[0].shape} and {other.shape}")
        c = tuple(float(k) for k in coefficients) if coefficients is not None else (1.0,) * len(values)
        return self.add(Sum, values, values[0].shape, coefficients=c)

    def concat(self, values: Sequence[Node], axis: int) -> Node:
        """Values side by side along an axis of a sample."""
        if len(values) == 1:
            return values[0]
        first = values[0].shape
        for other in values[1:]:
            if len(other.shape) != len(first) or any(
                a != b for i, (a, b) in enumerate(zip(first, other.shape, strict=True)) if i != axis
            ):
                raise ValueError(
                    f"it concatenates shapes {('N', *first)} and {('N', *other.shape)} along dimension {axis + 1}"
                )
        shape = [sum(v.shape[axis] for v in values) if i == axis else s for i, s in enumerate(first)]
        return self.add(Concat, values, shape, axis=axis)


def is_constant(c: Any) -> bool:
    """Whether an argument is a number or a tensor that depends on no input."""
    return isinstance(c, Tensor) or (isinstance(c, (int, float)) and not isinstance(c, bool))
