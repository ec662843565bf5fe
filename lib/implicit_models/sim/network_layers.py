"""The layers of a trained network as state-driven rows see them: blocks of states, and what each position of a block reads.

The network is traced; every activation starts a block of states (channels x positions), and the affine part before it is followed
back to the blocks and the input that it reads. Position w of block l reads, from block k, all channels at the positions
`sources[k][w]`: the receptive field of convolutions, sums, averages and slices, whatever the weights are. All rows of a position share
these columns, and so one Gram matrix. Max-pooling keeps its exact form: a block of derived states, to be read but not fitted.

Source: Tsai thesis (2024), sections 2.5 and 3.2; SIM paper, section 2.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from implicit_models.activations import COMPONENTWISE
from implicit_models.compose_network import Tracer
from implicit_models.compose_spatial import tuple_of, windows
from implicit_models.sim.recording import activation_name

INPUT = -1
FUNCTIONS = {torch.relu: "relu", nn.functional.relu: "relu", torch.tanh: "tanh", torch.sigmoid: "sigmoid"}
METHODS = {"relu": "relu", "relu_": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}
CONVOLUTIONS, AVERAGES, MAXIMA = (nn.Conv1d, nn.Conv2d), (nn.AvgPool1d, nn.AvgPool2d), (nn.MaxPool1d, nn.MaxPool2d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
OUT_OF_PLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul, operator.itruediv: operator.truediv,
    "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div",
}  # fmt: skip
SUMS = ("add", "iadd", "sub", "isub", "add_", "sub_")
FACTORS = ("mul", "imul", "mul_", "truediv", "itruediv", "div", "div_", "neg")
TRIED = 3  # samples of the forward passes that read shapes and compare the blocks with the network
SAME = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Identity)


@dataclass(frozen=True)
class Block:
    """States of one call of an activation, or of a max-pooling (activation "max_pool", derived).

    node: in the traced graph. shape: (C, *S) of a sample, or (F,). sources: block (INPUT for the input) -> (P, k) positions read, -1 for none.
    channel: block -> (C, g) the channels that each of ours reads there, -1 for none, or None where the network mixes all of them.
    """

    node: str
    activation: str
    shape: tuple[int, ...]
    sources: Mapping[int, np.ndarray]
    channel: Mapping[int, np.ndarray | None]

    @property
    def channels(self) -> int:
        return self.shape[0]

    @property
    def positions(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def derived(self) -> bool:
        return self.activation == "max_pool"


@dataclass(frozen=True)
class NetworkLayers:
    """A traced network in evaluation mode (a copy), its blocks in order of computation, and what the output reads."""

    traced: fx.GraphModule
    blocks: tuple[Block, ...]
    input_shape: tuple[int, ...]
    output: Reach
    dtype: torch.dtype
    _needed: dict[str, tuple[fx.Node, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_states(self) -> int:
        return sum(b.size for b in self.blocks)

    def shape_of(self, block: int) -> tuple[int, ...]:
        return self.input_shape if block == INPUT else self.blocks[block].shape

    def entries(self, block: int) -> int:
        """Entries of the network's own rows of a block: what is read inside the image, one channel or all of them."""
        b, total = self.blocks[block], 0
        for source, index in b.sources.items():
            channel, inside = b.channel[source], int((index >= 0).sum())
            total += inside * (b.channels * self.shape_of(source)[0] if channel is None else int((channel >= 0).sum()))
        return total

    def kernel_weights(self, block: int) -> int:
        """Weights of the convolutions and linear layers between a block and those that it reads."""
        ends = {b.node: i for i, b in enumerate(self.blocks)}
        node = next(n for n in self.traced.graph.nodes if n.name == self.blocks[block].node)
        between = [n for n in _ancestors(node.all_input_nodes[0], ends) if n.op == "call_module" and n.name not in ends]
        modules = [self.traced.get_submodule(n.target) for n in between]
        return sum(m.weight.numel() for m in modules if isinstance(m, (*CONVOLUTIONS, nn.Linear)))

    def affine(self, target: int | None, known: Mapping[int, Tensor]) -> Tensor:
        """The argument of block `target`'s activation, or the output for None, given the blocks and the input (INPUT) that it reads.

        What the forward changes in place is a new tensor here: `known` stays as it is.

        Args: known: block -> (N, *shape). Returns: (N, *shape).
        """
        graph = self.traced.graph
        name = None if target is None else self.blocks[target].node
        node = next(n for n in graph.nodes if (n.op == "output" if target is None else n.name == name))
        return self._value(node.args[0] if node.args else node.kwargs["input"], known)

    def _value(self, goal: fx.Node, known: Mapping[int, Tensor]) -> Tensor:
        ends = {b.node: i for i, b in enumerate(self.blocks)}
        if goal.name not in self._needed:
            self._needed[goal.name] = _ancestors(goal, ends)
        values: dict[str, Any] = {}
        modules = dict(self.traced.named_modules())
        for n in self._needed[goal.name]:
            if n.op == "placeholder":
                values[n.name] = known[INPUT]
            elif n.name in ends:
                values[n.name] = known[ends[n.name]]
            else:
                args, kwargs = fx.node.map_arg((n.args, n.kwargs), lambda a: values[a.name])
                if n.op == "call_module":
                    values[n.name] = modules[n.target](*args, **kwargs)
                elif n.op == "call_function":
                    values[n.name] = OUT_OF_PLACE.get(n.target, n.target)(*args, **kwargs)
                elif n.op == "call_method":
                    values[n.name] = getattr(args[0], OUT_OF_PLACE.get(n.target, n.target))(*args[1:], **kwargs)
                else:
                    values[n.name] = attribute(self.traced, n.target)
        return values[goal.name]

    def head(self) -> fx.Node:
        """The node of the linear layer that gives the output.

        Raises: TypeError where the network does not end in one.
        """
        goal = next(n for n in self.traced.graph.nodes if n.op == "output").args[0]
        if goal.op != "call_module" or not isinstance(self.traced.get_submodule(goal.target), nn.Linear):
            raise TypeError("the network does not end in a linear layer: fit no head (head=False)")
        return goal

    def features(self, known: Mapping[int, Tensor]) -> Tensor:
        """The argument of the linear layer that gives the output; raises what `head` does."""
        return self._value(self.head().args[0], known)

    def apply(self, block: int, z: Tensor) -> Tensor:
        """The block's own map of its argument."""
        name = self.blocks[block].activation
        if name == "max_pool":
            node = next(n for n in self.traced.graph.nodes if n.name == self.blocks[block].node)
            return self.traced.get_submodule(node.target)(z)
        if name.startswith("leaky_relu"):
            return nn.functional.leaky_relu(z, float(name[11:-1]))
        return {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "identity": lambda t: t}[name](z)


def attribute(module: nn.Module, path: str) -> Any:
    """What a dotted path of attributes names."""
    *parts, name = path.split(".")
    return getattr(module.get_submodule(".".join(parts)), name)


def _ancestors(goal: fx.Node, ends: Mapping[str, int]) -> tuple[fx.Node, ...]:
    """Nodes that a value needs, in order, not looking behind the blocks it reads."""
    wanted, stack = {}, [goal]
    while stack:
        n = stack.pop()
        if n.name not in wanted:
            wanted[n.name] = n
            if n.name not in ends:
                stack.extend(n.all_input_nodes)
    return tuple(n for n in goal.graph.nodes if n.name in wanted)


@dataclass(frozen=True)
class Reach:
    """What a value of the trace reads: its shape (C, *S) or (F,), block -> (P, k) positions, and block -> its channels (see `Block`)."""

    shape: tuple[int, ...]
    reads: Mapping[int, np.ndarray]
    channel: Mapping[int, np.ndarray | None]

    @classmethod
    def of_block(cls, block: int, shape: tuple[int, ...]) -> Reach:
        return cls(shape, {block: np.arange(math.prod(shape[1:]))[:, None]}, {block: np.arange(shape[0])[:, None]})

    def mixed(self, groups: int = 1, channels: int = 1) -> Reach:
        """The same positions behind a map that mixes the channels, or those of each of several groups."""
        if groups == 1:
            return Reach(self.shape, self.reads, dict.fromkeys(self.reads))
        each = {k: None if c is None else np.repeat(union(c.reshape(groups, -1)), channels // groups, axis=0) for k, c in self.channel.items()}
        return Reach((channels, *self.shape[1:]), self.reads, each)

    @property
    def places(self) -> np.ndarray:
        return np.arange(math.prod(self.shape[1:])).reshape(1, *self.shape[1:])

    def at(self, index: np.ndarray, shape: tuple[int, ...]) -> Reach:
        """The value whose position w reads the union of the present positions index[w], -1 for none."""
        out = {}
        for block, reads in self.reads.items():
            wide = np.vstack([reads, np.full((1, reads.shape[1]), -1)])[index]  # -1 is the last row
            out[block] = _distinct(wide.reshape(len(index), -1))
        return Reach(shape, out, self.channel)


def _channels(read: list[np.ndarray | None], channels: int) -> np.ndarray | None:
    """The channels that a sum reads of one block; a single one is spread over all."""
    if any(c is None for c in read):
        return None
    wide = [np.broadcast_to(c, (channels, c.shape[1])) if len(c) == 1 else c for c in read]
    return wide[0] if len(wide) == 1 else union(np.hstack(wide))


def _distinct(reads: np.ndarray) -> np.ndarray:
    """Each row's entries once; in their order where none repeats, so that column t is the same tap of every window."""
    ordered = np.sort(reads, axis=1)
    return union(reads) if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any() else reads


def union(reads: np.ndarray) -> np.ndarray:
    """Each row's entries once, ascending, -1 behind them; as narrow as the widest row allows."""
    ordered = np.sort(reads, axis=1)
    again = np.zeros(ordered.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    ordered = np.where(again, -1, ordered)
    there = ordered >= 0
    width = max(1, int(there.sum(axis=1).max(initial=0)))
    order = np.argsort(~there, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(ordered, order, axis=1)


def read_layers(network: nn.Module, input_shape: tuple[int, ...]) -> NetworkLayers:
    """Blocks of a network and their receptive fields.

    Args:
        network: modules Conv1d/2d, Linear behind a flattened or flat value, BatchNorm, pooling, dropout, and activations (modules or functions)
            of `activations.COMPONENTWISE`, with sums, slices, padding by constants, means over positions, and constants; in evaluation mode.
        input_shape: of a sample, (C, *S) or (F,).
    Raises: ValueError for a network in training mode, or whose blocks do not make its outputs again; TypeError naming the module or function
        that is not read.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch module, got {type(network).__name__}")
    training = [name or type(network).__name__ for name, m in network.named_modules() if m.training]
    if training:
        raise ValueError(f"the network is in training mode ({training[0]} and {len(training) - 1} more): call eval() first")
    own = copy.deepcopy(network).cpu().requires_grad_(False)
    dtype = next((t.dtype for t in (*own.parameters(), *own.buffers()) if t.is_floating_point()), torch.get_default_dtype())
    try:
        traced = fx.GraphModule(own, Tracer().trace(own))
    except Exception as error:  # whatever the forward raises when it is given a symbol
        raise TypeError(f"{type(network).__name__} cannot be traced by torch.fx: {error}") from error
    traced.eval()
    shapes = _shapes(traced, input_shape, dtype)
    blocks: list[Block] = []
    values: dict[str, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if values:
                raise TypeError(f"{type(network).__name__}.forward has a second argument, {node.target!r}: a model has one input")
            shape = tuple(input_shape)
            values[node.name] = Reach.of_block(INPUT, shape)
        elif node.op == "output":
            found = values[node.args[0].name] if isinstance(node.args[0], fx.Node) else None
            if not isinstance(found, Reach):
                raise TypeError(f"{type(network).__name__} must return one tensor that depends on the input, it returns {node.args[0]!r}")
            layers = NetworkLayers(traced, tuple(blocks), tuple(input_shape), found, dtype)
            _compare(layers, own)
            return layers
        elif node.op == "get_attr":
            values[node.name] = attribute(traced, node.target)
        else:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n.name])
            name = _activation(traced, node)
            module = traced.get_submodule(node.target) if node.op == "call_module" else None
            where = f"module {node.target!r} ({type(module).__name__})" if module is not None else f"{getattr(node.target, '__name__', node.target)} in the forward"
            try:
                if name is not None or isinstance(module, MAXIMA):
                    before = _first(args, kwargs) if name is not None else _pooled(module, _first(args, kwargs))
                    blocks.append(Block(node.name, name or "max_pool", shapes[node.name], before.reads, before.channel))
                    values[node.name] = Reach.of_block(len(blocks) - 1, shapes[node.name])
                else:
                    values[node.name] = _read(node, module, args, kwargs, shapes)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {error}") from error
    raise TypeError(f"{type(network).__name__} returns nothing")


def _shapes(traced: fx.GraphModule, input_shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, tuple[int, ...]]:
    """Shape of a sample at every node, from one forward pass of zeros."""
    found: dict[str, tuple[int, ...]] = {}

    class Record(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            out = super().run_node(n)
            if isinstance(out, Tensor):
                found[n.name] = tuple(out.shape[1:])
            return out

    with torch.no_grad():
        Record(traced).run(torch.zeros(TRIED, *input_shape, dtype=dtype))
    return found


def _compare(layers: NetworkLayers, network: nn.Module) -> None:
    """Raises: ValueError where the blocks, one after the other, do not make the network's outputs of random inputs."""
    u = torch.randn(TRIED, *layers.input_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(layers.dtype)
    with torch.no_grad():
        y, known = network(u.clone()), {INPUT: u}
        for block in range(len(layers.blocks)):
            known[block] = layers.apply(block, layers.affine(block, known))
        mine = layers.affine(None, known)
    if len(y) != TRIED:
        raise ValueError(f"{type(network).__name__} makes {len(y)} outputs of {TRIED} samples: the batch must stay dimension 0")
    tol = 1e3 * torch.finfo(layers.dtype).eps
    there = y[torch.isfinite(y)]
    if not torch.allclose(mine, y, rtol=tol, atol=tol * float(there.abs().max() if len(there) else 1.0), equal_nan=True):
        raise ValueError(
            f"{type(network).__name__} differs from its blocks by {float((mine - y).abs().max()):.3g} on random inputs: a part of it is random, "
            "or changes in place what it reads again"
        )


def _activation(traced: fx.GraphModule, node: fx.Node) -> str | None:
    if node.op == "call_module":
        name = activation_name(traced.get_submodule(node.target))
    else:
        name = (FUNCTIONS if node.op == "call_function" else METHODS).get(node.target)
    if name is not None and name.split("(")[0] not in COMPONENTWISE:
        raise TypeError(f"{node.target!r} is the map {name}, which is not componentwise: its rows cannot be fitted one by one")
    return name


def _windows(module: Any, reach: Reach, ndim: int) -> Reach:
    """What windows read; beyond the border there is nothing, whatever fills it."""
    if len(reach.shape) != ndim + 1:
        raise ValueError(f"it reads samples with {ndim} axes behind the channels, got shape {reach.shape}")
    kernel = tuple_of(module.kernel_size, ndim)
    stride = tuple_of(module.stride if module.stride is not None else module.kernel_size, ndim)
    dilation = tuple_of(getattr(module, "dilation", 1), ndim)
    if getattr(module, "ceil_mode", False) or getattr(module, "padding_mode", "zeros") != "zeros":
        raise TypeError("only floor mode and padding with zeros are read")
    if module.padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        sides = [(t // 2, t - t // 2) for t in total]
    else:
        sides = [(0, 0)] * ndim if module.padding == "valid" else [(p, p) for p in tuple_of(module.padding, ndim)]
    index = np.pad(reach.places, [(0, 0), *sides], constant_values=-1)
    seen = windows(index, kernel, stride, dilation)[0]
    shape = seen.shape[:ndim]
    return reach.at(seen.reshape(math.prod(shape), -1), (reach.shape[0], *shape))


def _pooled(module: Any, reach: Reach) -> Reach:
    return _windows(module, reach, 1 if isinstance(module, (nn.MaxPool1d, nn.AvgPool1d)) else 2)


def _whole(reach: Reach, shape: tuple[int, ...]) -> Reach:
    """All positions at once: a flattened value, or a mean over them (whose channels stay apart)."""
    out = reach.at(np.arange(math.prod(reach.shape[1:]))[None, :], shape)
    return out if shape[0] == reach.shape[0] else out.mixed()


def _first(args: tuple, kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else kwargs.get("input")


def _read(node: fx.Node, module: nn.Module | None, args: tuple, kwargs: dict, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """What the value of an affine node reads.

    Raises: TypeError where it is not read, and where a value is spread over positions or channels that it does not have.
    """
    out = _reach_of(node, module, args, kwargs, shapes)
    if isinstance(out, Reach):
        positions, channels = math.prod(out.shape[1:]), {len(c) for c in out.channel.values() if c is not None}
        if any(len(reads) != positions for reads in out.reads.values()) or not channels <= {out.shape[0]}:
            raise TypeError(f"it makes a value of shape {out.shape} of positions or channels in another number: only equal ones are read")
    return out


def _reach_of(node: fx.Node, module: nn.Module | None, args: tuple, kwargs: dict, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    shape = shapes.get(node.name)
    first = _first(args, kwargs)
    if module is not None:
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) and module.running_mean is None:
            raise ValueError("it has no running statistics (track_running_stats=False): its map depends on the whole batch")
        if isinstance(module, CONVOLUTIONS):
            reach = _windows(module, first, len(module.kernel_size)).mixed(module.groups, module.out_channels)
        elif isinstance(module, AVERAGES):
            reach = _pooled(module, first)
        elif isinstance(module, ADAPTIVE) and math.prod(shape[1:]) == 1 or isinstance(module, nn.Flatten) and len(shape) == 1:
            reach = _whole(first, shape) if len(first.shape) > 1 else first
        elif isinstance(module, nn.Linear) and len(first.shape) == 1:
            reach = first.mixed()
        elif isinstance(module, SAME):
            reach = first
        else:
            raise TypeError("it is not read: see the modules that read_layers names")
        return Reach(shape, reach.reads, reach.channel)
    name = getattr(node.target, "__name__", node.target)
    operands = [*args, *kwargs.values()]
    reaches = [a for a in operands if isinstance(a, Reach)]
    if name in ("size", "getattr") or not reaches:
        return "size" if name in ("size", "getattr") else None
    if name in SUMS and len(reaches) == 2:
        a, b = reaches
        if a.shape[1:] != b.shape[1:]:
            raise TypeError(f"values of shapes {a.shape} and {b.shape} are added: only equal positions are read")
        joined = {k: _distinct(np.hstack([r.reads[k] for r in (a, b) if k in r.reads])) for k in {**a.reads, **b.reads}}
        channel = {k: _channels([r.channel[k] for r in (a, b) if k in r.reads], shape[0]) for k in joined}
        return Reach(shape, joined, channel)
    if name in (*SUMS, *FACTORS, "dropout", "contiguous", "clone"):
        if len(reaches) > 1:
            raise TypeError("a product of two values is not affine")
        if name in ("truediv", "itruediv", "div", "div_") and reaches[0] is not first:
            raise TypeError("a quotient by a value is not affine")
        if name == "dropout" and kwargs.get("training", args[2] if len(args) > 2 else True):
            raise ValueError("dropout with training=True is random: pass training=self.training")
        return Reach(shape, reaches[0].reads, reaches[0].channel)
    if name in ("flatten", "view", "reshape") and len(shape) == 1:
        return _whole(first, shape) if len(first.shape) > 1 else Reach(shape, first.reads, first.channel)
    if name in ("adaptive_avg_pool2d", "adaptive_avg_pool1d") and math.prod(shape[1:]) == 1:
        return _whole(first, shape)
    if name == "mean":
        ndim, dims = len(first.shape) + 1, kwargs.get("dim", args[1] if len(args) > 1 else None)
        dims = (dims,) if isinstance(dims, int) else dims
        if dims is None or ndim < 3 or {d % ndim for d in dims} != set(range(2, ndim)):
            raise TypeError(f"means are read over all positions, dimensions {tuple(range(2, ndim))}, got {dims}")
        return _whole(first, shape)
    if name == "getitem":
        key = args[1] if isinstance(args[1], tuple) else (args[1],)
        if all(isinstance(k, slice) for k in key) and key[0] == slice(None) and (len(key) < 2 or key[1] == slice(None)):
            index = first.places[(slice(None), *key[2:])]
            return first.at(index.reshape(-1)[:, None], shape)
        raise TypeError("only slices of positions are read")
    if name == "pad":
        pads = list(args[1] if len(args) > 1 else kwargs["pad"])
        mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
        sides = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
        sides = [(0, 0)] * (len(first.shape) - len(sides)) + sides
        if mode != "constant" or min(min(s) for s in sides) < 0:
            raise TypeError("only padding with a constant is read")
        index = np.pad(first.places, [(0, 0), *sides[1:]], constant_values=-1)
        out = first.at(index.reshape(-1)[:, None], shape)
        return Reach(shape, out.reads, {k: None if c is None else np.pad(c, [sides[0], (0, 0)], constant_values=-1) for k, c in out.channel.items()})
    raise TypeError("it is not read: see the modules that read_layers names")
