"""The torch network of an ONNX file under construction.

ONNX's tensors are those of one sample, with the shapes that the file gives them; the first axis is the batch if its
size is 1 and it is not the only one. torch's are (N, *S) with S the shape of a sample, so that an operator of ONNX
along axis a works along dimension a of torch's tensor, or a + 1 where ONNX's has no batch (`NetworkBuilder.view`).
Shapes are those of torch's own functions, run once on a sample of zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx, nn

_EXAMPLE = "example"


@dataclass(frozen=True)
class Value:
    """What depends on the input: a node of torch's graph, and ONNX's shape of it for one sample."""

    node: fx.Node
    shape: tuple[int, ...]


Operand: TypeAlias = Value | np.ndarray | None  # None stands for an optional input that is not there


@dataclass
class Operation:
    """A node of the file: its operator, the version of the operators, its attributes, the names of its outputs, and of
    inputs that no other node reads."""

    kind: str
    opset: int
    attributes: dict[str, Any]
    outputs: tuple[str, ...]
    alone: frozenset[int] = frozenset()

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, which counts as understood from here on; defaults are of single precision as in files."""
        default = float(np.float32(default)) if isinstance(default, float) else default
        return self.attributes.pop(name, default)

    def option(self, name: str, given: Operand, since: int, default: Any = None) -> Any:
        """What is an input since a version of the operators, and was an attribute before, as a list or a number."""
        if self.opset < since:
            return self.attribute(name, default)
        return default if given is None else known(name, given).tolist()


def has_batch(shape: Sequence[int]) -> bool:
    return len(shape) > 1 and shape[0] == 1


def of_sample(shape: Sequence[int]) -> tuple[int, ...]:
    """ONNX's shape without the batch."""
    return tuple(shape[1:]) if has_batch(shape) else tuple(shape)


def axis_of(axis: int, rank: int) -> int:
    """Raises: ValueError for an axis that is not there."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not there: its input has {rank} axes")
    return axis % rank


def known(name: str, given: Operand) -> np.ndarray:
    """Raises: ValueError for an input that is missing or depends on the network's."""
    if not isinstance(given, np.ndarray):
        raise ValueError(f"its {name} must be a constant" + (", and is missing" if given is None else ""))
    return given


def value(name: str, given: Operand) -> Value:
    """Raises: ValueError for an input that does not depend on the network's."""
    if not isinstance(given, Value):
        raise ValueError(f"its {name} must depend on the network's input")
    return given


class NetworkBuilder:
    """A torch.fx graph, and the modules and constants that it calls."""

    def __init__(self, dtype: torch.dtype):
        self.dtype, self.graph, self.root, self._name = dtype, fx.Graph(), nn.Module(), ""

    def at(self, name: str) -> None:
        """Modules and constants from here on bear the name of a node of the file."""
        name = re.sub(r"\W+", "_", name).strip("_")
        self._name = name if name[:1].isalpha() else f"node_{name}"

    def input(self, shape: Sequence[int]) -> Value:
        node = self.graph.placeholder("u")
        node.meta[_EXAMPLE] = torch.zeros(1, *of_sample(shape), dtype=self.dtype)
        return Value(node, tuple(shape))

    def finish(self, out: Value) -> fx.GraphModule:
        """The network with outputs (N, q)."""
        self.graph.output(self.reshape(out, (1, math.prod(out.shape))).node)
        for node in self.graph.nodes:
            node.meta.pop(_EXAMPLE, None)
        return fx.GraphModule(self.root, self.graph, "OnnxNetwork").eval()

    # torch's nodes

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> fx.Node:
        """A function of nodes, numbers and texts."""
        node = self.graph.call_function(function, args, named)
        node.meta[_EXAMPLE] = function(*fx.node.map_arg(args, lambda n: n.meta[_EXAMPLE]), **named)
        return node

    def module(self, module: nn.Module, node: fx.Node) -> fx.Node:
        name = self._attribute(module.requires_grad_(False).eval())
        out = self.graph.call_module(name, (node,))
        with torch.no_grad():
            out.meta[_EXAMPLE] = module(node.meta[_EXAMPLE])
        return out

    def constant(self, array: np.ndarray) -> fx.Node | float:
        """A buffer of the network; a number if it is one."""
        if array.dtype.kind not in "fiu":
            raise ValueError(f"a constant of {array.dtype} is no tensor of numbers")
        if array.size == 1:
            return float(array.reshape(()))
        tensor = self.tensor(array)
        node = self.graph.get_attr(self._attribute(tensor))
        node.meta[_EXAMPLE] = tensor
        return node

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array, dtype=np.float64)).to(self.dtype)

    def _attribute(self, found: nn.Module | Tensor) -> str:
        name, count = self._name, 0
        while hasattr(self.root, name):
            count += 1
            name = f"{self._name}_{count}"
        if isinstance(found, nn.Module):
            self.root.add_module(name, found)
        else:
            self.root.register_buffer(name, found)
        return name

    # ONNX's axes

    def view(self, of: Value, *axes: int) -> tuple[fx.Node, int]:
        """torch's node and what is added to an axis of ONNX for its dimension: 1 with the batch in front of all axes.

        axes: those that are worked on; ONNX's batch is torch's if it is not among them.
        """
        if has_batch(of.shape) and 0 not in axes:
            return of.node, 0
        if not has_batch(of.shape):
            return of.node, 1
        return self.call(torch.reshape, of.node, (-1, *of.shape)), 1

    def value(self, node: fx.Node, offset: int) -> Value:
        """The value of a node that was made of a view with that offset."""
        rest = tuple(node.meta[_EXAMPLE].shape[1:])
        shape = rest if offset else (1, *rest)
        wanted = of_sample(shape)
        return Value(node if wanted == rest else self.call(torch.reshape, node, (-1, *wanted)), shape)

    def apply(self, module: nn.Module, to: Value) -> Value:
        """A module that keeps the batch first."""
        node, offset = self.view(to)
        return self.value(self.module(module, node), offset)

    def reshape(self, of: Value, shape: Sequence[int]) -> Value:
        shape = tuple(int(s) for s in shape)
        if math.prod(shape) != math.prod(of.shape):
            raise ValueError(f"a tensor of shape {of.shape} does not reshape to {shape}")
        if of_sample(shape) == of_sample(of.shape):
            return Value(of.node, shape)
        return Value(self.call(torch.reshape, of.node, (-1, *of_sample(shape))), shape)
