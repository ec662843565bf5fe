"""The layers of a trained network as state-driven rows see them: blocks of states, and what each position of a block
reads.

The network is traced; every activation starts a block of states (channels x positions), and the affine part before it
is followed back to the blocks and the input that it reads. Position w of block l reads, from block k, all channels at
the positions `sources[k][w]`: the receptive field of convolutions, sums, averages and slices, whatever the weights are.
All rows of a position share these columns, and so one Gram matrix. Max-pooling keeps its exact form: a block of derived
states, to be read but not fitted.

Source:
    Tsai thesis (2024), sections 2.5 and 3.2; SIM paper, section 2.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from implicit_models.activations import COMPONENTWISE
from implicit_models.matrices import check_network
from implicit_models.sim.network.receptive_field import Reach, first_operand, pooled, reach_of
from implicit_models.sim.network.recording import activation_name
from implicit_models.tracing.reading import Tracer

INPUT = -1
FUNCTIONS = {torch.relu: "relu", nn.functional.relu: "relu", torch.tanh: "tanh", torch.sigmoid: "sigmoid"}
METHODS = {"relu": "relu", "relu_": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}
WEIGHTED, MAXIMA = (nn.Conv1d, nn.Conv2d, nn.Linear), (nn.MaxPool1d, nn.MaxPool2d)
OUT_OF_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    "add_": "add",
    "sub_": "sub",
    "mul_": "mul",
    "div_": "div",
}  # type: dict[Any, Any]
TRIED = 3  # samples of the forward passes that read shapes and compare the blocks with the network


class WrongShape(ValueError):
    """Samples of a shape that a network does not take."""


@dataclass(frozen=True)
class Block:
    """States of one call of an activation, or of a max-pooling (activation "max_pool", derived).

    node: in the traced graph. shape: (C, *S) of a sample, or (F,). sources: block (INPUT for the input) -> (P, k)
        positions read, -1 for none.
    channel: block -> (C, g) the channels that each of ours reads there, -1 for none, or None where the network mixes
        all of them.
    entries: block -> entries of the network's own rows there, what is read inside the image, one channel or all of
        them.
    """

    node: str
    activation: str
    shape: tuple[int, ...]
    sources: Mapping[int, np.ndarray]
    channel: Mapping[int, np.ndarray | None]
    entries: Mapping[int, int]

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
    _needed: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_states(self) -> int:
        return sum(b.size for b in self.blocks)

    def shape_of(self, block: int) -> tuple[int, ...]:
        return self.input_shape if block == INPUT else self.blocks[block].shape

    def entries(self, block: int) -> int:
        """Entries of the network's own rows of a block."""
        return sum(self.blocks[block].entries.values())

    def on(self, device: str) -> NetworkLayers:
        """The same layers on a torch device: themselves on the processor, where they are made, else a copy."""
        return self if device == "cpu" else self.over(copy.deepcopy(self.traced).to(device))

    def over(self, traced: fx.GraphModule) -> NetworkLayers:
        """The same layers of a copy of the traced network; what they remember are nodes of the graph."""
        return replace(self, traced=traced, _needed={})

    def kernel_weights(self, block: int) -> int:
        """Weights of the convolutions and linear layers between a block and those that it reads."""
        ends = {b.node: i for i, b in enumerate(self.blocks)}
        node = next(n for n in self.traced.graph.nodes if n.name == self.blocks[block].node)
        between = [n for n in _ancestors(node.all_input_nodes[0], ends) if n.op == "call_module" and n.name not in ends]
        modules = [self.traced.get_submodule(n.target) for n in between]
        return sum(m.weight.numel() for m in modules if isinstance(m, WEIGHTED))

    def affine(self, target: int | None, known: Mapping[int, Tensor]) -> Tensor:
        """The argument of block `target`'s activation, or the output for None, given the blocks and the input (INPUT)
        that it reads.

        What the forward changes in place is a new tensor here: `known` stays as it is.

        Args:
            known: block -> (N, *shape). Returns: (N, *shape).
        """
        graph = self.traced.graph
        name = None if target is None else self.blocks[target].node
        node = next(n for n in graph.nodes if (n.op == "output" if target is None else n.name == name))
        return self._value(node.args[0] if node.args else node.kwargs["input"], known)

    def _value(self, goal: Any, known: Mapping[int, Tensor]) -> Tensor:
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

        Raises:
            TypeError: where the network does not end in one.
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


def _ancestors(goal: Any, ends: Mapping[str, int]) -> tuple[Any, ...]:
    """Nodes that a value needs, in order, not looking behind the blocks it reads."""
    wanted, stack = {}, [goal]
    while stack:
        n = stack.pop()
        if n.name not in wanted:
            wanted[n.name] = n
            if n.name not in ends:
                stack.extend(n.all_input_nodes)
    return tuple(n for n in goal.graph.nodes if n.name in wanted)


@torch.inference_mode(False)  # the copy is for gradients too
def read_layers(network: nn.Module, input_shape: tuple[int, ...]) -> NetworkLayers:
    """Blocks of a network and their receptive fields.

    Args:
        network: modules Conv1d/2d, Linear behind a flattened or flat value, BatchNorm, pooling, dropout, and
            activations (modules or functions) of `activations.COMPONENTWISE`, with sums, slices, padding by constants,
            means over positions, and constants; in evaluation mode.
        input_shape: of a sample, (C, *S) or (F,).

    Raises:
        WrongShape: where a forward pass fails, naming the module.
        ValueError: for a network in training mode, or whose blocks do not make its outputs again.
        TypeError: naming the module or function that is not read.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch module, got {type(network).__name__}")
    check_network(network)
    training = [name or type(network).__name__ for name, m in network.named_modules() if m.training]
    if training:
        others = f" and {len(training) - 1} more" if len(training) > 1 else ""
        raise ValueError(f"the network is in training mode ({training[0]}{others}): call eval() first")
    own = copy.deepcopy(network).cpu().requires_grad_(False)
    dtype = next(
        (t.dtype for t in (*own.parameters(), *own.buffers()) if t.is_floating_point()), torch.get_default_dtype()
    )
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
                raise TypeError(
                    f"{type(network).__name__}.forward has a second argument, {node.target!r}: a model has one input"
                )
            shape = tuple(input_shape)
            values[node.name] = Reach.of_block(INPUT, shape)
        elif node.op == "output":
            found = values[node.args[0].name] if isinstance(node.args[0], fx.Node) else None
            if not isinstance(found, Reach):
                raise TypeError(
                    f"{type(network).__name__} must return one tensor that depends on the input, it returns"
                    f" {node.args[0]!r}"
                )
            layers = NetworkLayers(traced, tuple(blocks), tuple(input_shape), found, dtype)
            _compare(layers, own)
            return layers
        elif node.op == "get_attr":
            values[node.name] = attribute(traced, node.target)
        else:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n.name])
            name = _activation(traced, node)
            module = traced.get_submodule(node.target) if node.op == "call_module" else None
            where = (
                f"module {node.target!r} ({type(module).__name__})"
                if module is not None
                else f"{getattr(node.target, '__name__', node.target)} in the forward"
            )
            try:
                if name is not None or isinstance(module, MAXIMA):
                    before = (
                        first_operand(args, kwargs) if name is not None else pooled(module, first_operand(args, kwargs))
                    )
                    channels = {k: (input_shape if k == INPUT else blocks[k].shape)[0] for k in before.reads}
                    entries = {k: before.entries(k, c) for k, c in channels.items()}
                    blocks.append(
                        Block(node.name, name or "max_pool", shapes[node.name], before.reads, before.channel, entries)
                    )
                    values[node.name] = Reach.of_block(len(blocks) - 1, shapes[node.name])
                else:
                    values[node.name] = reach_of(
                        module, getattr(node.target, "__name__", node.target), args, kwargs, shapes.get(node.name)
                    )
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {error}") from error
    raise TypeError(f"{type(network).__name__} returns nothing")


def _shapes(traced: fx.GraphModule, input_shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, tuple[int, ...]]:
    """Shape of a sample at every node, from one forward pass of zeros."""
    found: dict[str, tuple[int, ...]] = {}

    class Record(fx.Interpreter):
        extra_traceback = False

        def run_node(self, n: fx.Node) -> Any:
            args, _ = self.fetch_args_kwargs_from_env(n)
            module = traced.get_submodule(str(n.target)) if n.op == "call_module" else None
            where = f"module {n.target!r} ({type(module).__name__})" if module is not None else str(n.target)
            # torch takes a value without its batch dimension for one sample
            for kind, dims in ((nn.Conv1d, 3), (nn.Conv2d, 4)):
                if isinstance(module, kind) and args and args[0].ndim != dims:
                    raise WrongShape(f"{where}: it takes {dims - 1} dimensions a sample, got {args[0].ndim - 1}")
            try:
                out = super().run_node(n)
            except (RuntimeError, ValueError, IndexError) as error:
                raise WrongShape(f"{where}: {error}") from error
            if isinstance(out, Tensor):
                found[n.name] = tuple(out.shape[1:])
            return out

    with torch.no_grad():
        Record(traced).run(torch.zeros(TRIED, *input_shape, dtype=dtype))
    return found


def _compare(layers: NetworkLayers, network: nn.Module) -> None:
    """Raises: ValueError where the blocks, one after the other, do not make the network's outputs of random inputs."""
    u = torch.randn(TRIED, *layers.input_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        layers.dtype
    )
    with torch.no_grad():
        y, known = network(u.clone()), {INPUT: u}
        for block in range(len(layers.blocks)):
            known[block] = layers.apply(block, layers.affine(block, known))
        mine = layers.affine(None, known)
    if len(y) != TRIED:
        raise ValueError(
            f"{type(network).__name__} makes {len(y)} outputs of {TRIED} samples: the batch must stay dimension 0"
        )
    tol = 1e3 * torch.finfo(layers.dtype).eps
    there = y[torch.isfinite(y)]
    if not torch.allclose(
        mine, y, rtol=tol, atol=tol * float(there.abs().max() if len(there) else 1.0), equal_nan=True
    ):
        raise ValueError(
            f"{type(network).__name__} differs from its blocks by {float((mine - y).abs().max()):.3g} on random inputs:"
            " a part of it is random, or changes in place what it reads again"
        )


def _activation(traced: fx.GraphModule, node: Any) -> str | None:
    if node.op == "call_module":
        name = activation_name(traced.get_submodule(node.target))
    else:
        name = (FUNCTIONS if node.op == "call_function" else METHODS).get(node.target)
    if name is not None and name.split("(")[0] not in COMPONENTWISE:
        raise TypeError(
            f"{node.target!r} is the map {name}, which is not componentwise: its rows cannot be fitted one by one"
        )
    return name
