"""The steps of a traced network, and the graph that they make.

A value is a tensor of one sample, of shape (C, *S) or (F,); the batch is dimension 0 and belongs to no shape. Every
step names the steps whose values it reads, and computes itself (`run`) with the torch function of the network, out of
place: what the network changes in place is a new value.

    affine              Linear, Convolution, Normalisation, Scale, Average, AdaptiveAverage, Mean, Sum
    rearrangements      Reshape, Take, Concat
    componentwise maps  Activation
    others              Maximum, AdaptiveMaximum, Softmax, Product, Equilibrium
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, fx, nn
from torch.nn import functional as F

from implicit_models.model import ImplicitModel
from implicit_models.tracing.windows import adaptive_windows, padding_sides, pooling_windows


def numbers(t: Tensor) -> Float[np.ndarray, " ..."]:
    """A parameter, buffer or constant in float64."""
    return t.detach().cpu().double().numpy()


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(ABC):
    """A step of a network.

    name: unique in the graph. inputs: names of the steps that it reads. shape: of its value, of one sample. path: of
    the user's module, "" for a function. where: the module or function in words, for messages. names: field -> dotted
    name of the parameter or buffer of the network that it is.
    """

    name: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    path: str = ""
    where: str = ""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def index(self) -> Int[np.ndarray, " ..."]:
        """Number of each entry, in the shape of the value."""
        return np.arange(self.size).reshape(self.shape)

    @abstractmethod
    def run(self, *values: Tensor) -> Tensor:
        """(N, *shape) of the values (N, ...) of its inputs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Input(Node):
    """The network's input."""

    def run(self, *values: Tensor) -> Tensor:
        (u,) = values
        return u


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Node):
    """W x + bias over the last axis; weight (out, in), bias (out,) or None."""

    weight: Tensor
    bias: Tensor | None = None

    def run(self, *values: Tensor) -> Tensor:
        (x,) = values
        return F.linear(x, self.weight.to(x), None if self.bias is None else self.bias.to(x))


@dataclass(frozen=True, eq=False, kw_only=True)
class Convolution(Node):
    """A convolution over one or two axes; weight (out, in / groups, *kernel), bias (out,) or None.

    padding: numbers an axis, "valid" or "same"; padding_mode as in torch.
    """

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str = "zeros"

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(self.weight.shape[2:])

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Entries of padding before and behind each axis."""
        return padding_sides(self.padding, self.kernel, self.dilation)

    def run(self, *values: Tensor) -> Tensor:
        (x,) = values
        weight, bias = self.weight.to(x), None if self.bias is None else self.bias.to(x)
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x = F.pad(x, [p for side in reversed(self.sides) for p in side], mode=self.padding_mode)
            padding = 0
        function = (F.conv1d, F.conv2d)[len(self.kernel) - 1]
        return function(x, weight, bias, self.stride, padding, self.dilation, self.groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class Normalisation(Node):
    """Batch normalisation in evaluation mode, a factor and a shift a channel: (x - mean) / sqrt(variance + eps), times
    weight, plus bias; each (C,)."""

    mean: Tensor
    variance: Tensor
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    def affine(self) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, " C"]]:
        """Factor and shift of each channel, in float64."""
        factor = 1 / np.sqrt(numbers(self.variance) + self.eps)
        if self.weight is not None:
            factor = factor * numbers(self.weight)
        return factor, -numbers(self.mean) * factor + (0.0 if self.bias is None else numbers(self.bias))

    def run(self, *values: Tensor) -> Tensor:
        (x,) = values
        of: Any = [None if t is None else t.to(x) for t in (self.mean, self.variance, self.weight, self.bias)]
        return F.batch_norm(x, *of, False, 0.0, self.eps)  # type: ignore[call-arg]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scale(Node):
    """x factor / divisor + shift, entry by entry: numbers, or tensors that broadcast to (N, *shape); of the three, one
    is given."""

    factor: Tensor | float | None = None
    divisor: Tensor | float | None = None
    shift: Tensor | float | None = None

    def affine(self) -> tuple[Float[np.ndarray, " ..."] | None, Float[np.ndarray, " ..."] | None]:
        """Factor and shift of every entry, in the shape of the value; None where there is none."""
        if self.divisor is not None:
            return 1.0 / constant_of(self.divisor, self.shape), None
        each = lambda c: None if c is None else constant_of(c, self.shape)
        return each(self.factor), each(self.shift)

    def run(self, *values: Tensor) -> Tensor:
        (x,) = values
        like = lambda c: c.to(x) if isinstance(c, Tensor) else c
        if self.factor is not None:
            return x * like(self.factor)
        return x / like(self.divisor) if self.divisor is not None else x + like(self.shift)


def constant_of(c: Any, shape: tuple[int, ...]) -> Float[np.ndarray, " ..."]:
    """A number or a tensor without a batch, broadcast to one sample, in float64.

    Raises:
        ValueError: naming the shapes that do not fit.
    """
    array = numbers(c) if isinstance(c, Tensor) else np.asarray(float(c))
    if array.ndim > len(shape):
        if array.ndim != len(shape) + 1 or array.shape[0] != 1:
            raise ValueError(f"a constant of shape {array.shape} does not fit samples of shape {shape}")
        array = array[0]
    return np.broadcast_to(array, shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Activation(Node):
    """A componentwise map of `activations`: "relu", "tanh", "sigmoid", "identity", or "leaky_relu" with its slopes on
    the negative side, one number for all or a tensor (C,), one a channel; "relu6" where it is asked for."""

    map: str
    slope: Tensor | float = 0.0

    def slopes(self) -> list[float]:
        """One slope for all, or one a channel."""
        return numbers(self.slope).reshape(-1).tolist() if isinstance(self.slope, Tensor) else [float(self.slope)]

    def run(self, *values: Tensor) -> Tensor:
        (x,) = values
        if self.map == "leaky_relu":
            return F.prelu(x, self.slope.to(x)) if isinstance(self.slope, Tensor) else F.leaky_relu(x, self.slope)
        if self.map == "identity":
            return x
        return {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu6": F.relu6}[self.map](x)


@dataclass(frozen=True, eq=False, kw_only=True)
class Softmax(Node):
    """Softmax along one axis of a sample."""

    axis: int

    def run(self, *values: Tensor) -> Tensor:
        return values[0].softmax(self.axis + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool(Node):
    """Windows over the last axes, each channel by itself."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool

    def windows(self, shape: tuple[int, ...]) -> Int[np.ndarray, "P taps"]:
        """Positions that each window reads of samples of a shape (C, *S), `ZERO` for padding, `OUTSIDE` beyond it."""
        return pooling_windows(shape[1:], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class Maximum(Pool):
    """Largest entry of each window; padding never wins."""

    def run(self, *values: Tensor) -> Tensor:
        function = (F.max_pool1d, F.max_pool2d)[len(self.kernel) - 1]
        return function(values[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)


@dataclass(frozen=True, eq=False, kw_only=True)
class Average(Pool):
    """Mean of each window: its sum over `divisor`, or over the entries that count, padding among them if asked for."""

    count_include_pad: bool
    divisor: int | None

    def counts(self, windows: Int[np.ndarray, "P taps"]) -> Int[np.ndarray, " P"]:
        """What the sum of each window is divided by."""
        if self.divisor is not None:
            return np.full(len(windows), self.divisor)
        return (windows >= (-1 if self.count_include_pad else 0)).sum(axis=1)

    def run(self, *values: Tensor) -> Tensor:
        options: Any = (self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        if len(self.kernel) == 1 and self.divisor is None:
            return F.avg_pool1d(values[0], *options)
        return F.avg_pool2d(values[0], *options, self.divisor)  # type: ignore[call-arg]


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptivePool(Node):
    """Windows floor(i L / o) .. ceil((i + 1) L / o) of the last axes, of length L, for o outputs."""

    def windows(self, shape: tuple[int, ...]) -> Int[np.ndarray, "P taps"]:
        """Positions that each window reads of samples of a shape (C, *S), `OUTSIDE` behind the shorter ones."""
        return adaptive_windows(shape[1:], self.shape[1:])


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveAverage(AdaptivePool):
    """Mean of each window."""

    def counts(self, windows: Int[np.ndarray, "P taps"]) -> Int[np.ndarray, " P"]:
        """What the sum of each window is divided by."""
        return (windows >= 0).sum(axis=1)

    def run(self, *values: Tensor) -> Tensor:
        function = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d)[len(self.shape) - 2]
        return function(values[0], self.shape[1:])  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveMaximum(AdaptivePool):
    """Largest entry of each window."""

    def run(self, *values: Tensor) -> Tensor:
        function = (F.adaptive_max_pool1d, F.adaptive_max_pool2d)[len(self.shape) - 2]
        return function(values[0], self.shape[1:])


@dataclass(frozen=True, eq=False, kw_only=True)
class Mean(Node):
    """Mean over axes of a sample, which are left out, or kept with size 1."""

    axes: tuple[int, ...]
    keepdim: bool = False

    def run(self, *values: Tensor) -> Tensor:
        return values[0].mean([a + 1 for a in self.axes], keepdim=self.keepdim)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sum(Node):
    """sum_k coefficients[k] x_k of values of one shape."""

    coefficients: tuple[float, ...]

    def run(self, *values: Tensor) -> Tensor:
        first, *others = self.coefficients
        out = values[0] if first == 1 else values[0] * first
        for c, x in zip(others, values[1:], strict=True):
            out = torch.add(out, x, alpha=c)
        return out


@dataclass(frozen=True, eq=False, kw_only=True)
class Concat(Node):
    """Values side by side along one axis of a sample."""

    axis: int

    def run(self, *values: Tensor) -> Tensor:
        return torch.cat(values, dim=self.axis + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reshape(Node):
    """The same entries in the same order, in another shape."""

    def run(self, *values: Tensor) -> Tensor:
        return values[0].reshape(len(values[0]), *self.shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(Node):
    """Entries by their numbers, in the shape of the value; `fill` where a number is negative: slices, transpositions,
    repetitions, padding by a constant."""

    entries: Int[np.ndarray, " ..."]
    fill: float = 0.0

    def run(self, *values: Tensor) -> Tensor:
        flat, index = values[0].flatten(1), torch.from_numpy(self.entries.reshape(-1)).to(values[0].device)
        if self.entries.min(initial=0) < 0:
            flat = torch.cat([flat, flat.new_full((len(flat), 1), self.fill)], dim=1)
            index = torch.where(index < 0, flat.shape[1] - 1, index)
        return flat[:, index].reshape(len(flat), *self.shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Product(Node):
    """The entrywise product of two values of one shape."""

    def run(self, *values: Tensor) -> Tensor:
        return values[0] * values[1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Equilibrium(Node):
    """An implicit model."""

    model: ImplicitModel

    def run(self, *values: Tensor) -> Tensor:
        return self.model(values[0])


@dataclass(frozen=True, eq=False)
class Graph:
    """A network in evaluation mode (a copy) as its steps, in order of execution.

    traced: the copy, traced by torch.fx; the tensors of the steps are its parameters and buffers. nodes: the input
    first. output: name of the step that gives the output. dtype: of the network.
    """

    traced: fx.GraphModule
    nodes: tuple[Node, ...]
    output: str
    dtype: torch.dtype

    @property
    def input(self) -> Node:
        return self.nodes[0]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {n.name: n for n in self.nodes}

    def __getitem__(self, name: str) -> Node:
        return self.by_name[name]

    def needed(self, goals: Sequence[str], known: Collection[str] = ()) -> tuple[Node, ...]:
        """Steps that values need, in order, not looking behind those that are known."""
        wanted, stack = set(), list(goals)
        while stack:
            name = stack.pop()
            if name not in wanted:
                wanted.add(name)
                if name not in known:
                    stack.extend(self[name].inputs)
        return tuple(n for n in self.nodes if n.name in wanted)

    def over(self, traced: fx.GraphModule) -> Graph:
        """The same steps with the tensors of another copy of the network: of another dtype, on another device."""
        used = next((t.dtype for t in (*traced.parameters(), *traced.buffers()) if t.is_floating_point()), self.dtype)
        return replace(self, traced=traced, nodes=tuple(_with_tensors(n, traced) for n in self.nodes), dtype=used)

    def live(self, node: Node) -> Node:
        """A step with the tensors that the network has now, which a conversion may have replaced."""
        return _with_tensors(node, self.traced)

    def values(self, u: Tensor) -> dict[str, Tensor]:
        """Value (N, *shape) of every step for inputs (N, *shape)."""
        found: dict[str, Tensor] = {self.input.name: u}
        for node in self.nodes[1:]:
            found[node.name] = node.run(*(found[name] for name in node.inputs))
        return found


def _with_tensors(node: Node, network: nn.Module) -> Node:
    return replace(node, **{f: attribute(network, name) for f, name in node.names.items()}) if node.names else node


def attribute(module: nn.Module, path: str) -> Any:
    """What a dotted path of attributes names."""
    *parts, name = path.split(".")
    return getattr(module.get_submodule(".".join(parts)), name)
