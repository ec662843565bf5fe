"""The layers of a trained network as state-driven rows see them: blocks of states, and what each position of a block
reads.

The network is read into its steps (`tracing`); every activation starts a block of states (channels x positions), and
the affine part before it is followed back to the blocks and the input that it reads. Position w of block l reads, from
block k, all channels at the positions `sources[k][w]`: the receptive field of convolutions, sums, averages and slices,
whatever the weights are. All rows of a position share these columns, and so one Gram matrix. What is no componentwise
map (max-pooling, softmax, a product of two values, an implicit model) keeps its exact form: a block of derived states,
to be read but not fitted.

Source:
    Tsai thesis (2024), sections 2.5 and 3.2; SIM paper, section 2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, fx, nn

from implicit_models.sim.network.receptive_field import RULES, Reach, pooled, reach_of
from implicit_models.tracing import nodes as steps
from implicit_models.tracing.nodes import Graph, Node
from implicit_models.tracing.reading import read

INPUT = -1
DERIVED: dict[type[Node], str] = {
    steps.Maximum: "max_pool",
    steps.AdaptiveMaximum: "max_pool",
    steps.Softmax: "softmax",
    steps.Product: "product",
    steps.Equilibrium: "equilibrium",
}


@dataclass(frozen=True)
class Block:
    """States of one call of an activation, or what a map that is not componentwise makes (derived).

    node: its step in the graph. activation: "prelu" has a slope a channel. shape: (C, *S) of a sample, or (F,).
    sources: block (INPUT for the input) -> (P, k) positions read, -1 for none.
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
        return self.activation in DERIVED.values()


@dataclass(frozen=True)
class NetworkLayers:
    """A network in evaluation mode (a copy) as its steps, its blocks in order of computation, and what the output
    reads."""

    graph: Graph
    blocks: tuple[Block, ...]
    output: Reach
    _needed: dict[tuple[str, ...], tuple[Node, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def traced(self) -> fx.GraphModule:
        return self.graph.traced

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.graph.input.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.graph.dtype

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
        """The same layers of a copy of the traced network."""
        return replace(self, graph=self.graph.over(traced), _needed={})

    @property
    def _ends(self) -> list[str]:
        return [self.graph.input.name, *(b.node for b in self.blocks)]

    def kernel_weights(self, block: int) -> int:
        """Weights of the convolutions and linear layers between a block and those that it reads."""
        between = self.graph.needed(self.graph[self.blocks[block].node].inputs, self._ends)
        return sum(n.weight.numel() for n in between if isinstance(n, (steps.Convolution, steps.Linear)))

    def weights(self) -> int:
        """Weights of the convolutions and linear layers before the output, each once."""
        own = {
            n.names.get("weight", n.name): n.weight.numel()
            for n in self.graph.nodes
            if isinstance(n, (steps.Convolution, steps.Linear)) and n.name != self.graph.output
        }
        return sum(own.values())

    def affine(self, target: int | None, known: Mapping[int, Tensor]) -> Tensor:
        """The argument of block `target`'s map, or the output for None, given the blocks and the input (INPUT) that it
        reads; the two factors of a product side by side, (N, 2, *shape).

        What the forward changes in place is a new tensor here: `known` stays as it is.

        Args:
            known: block -> (N, *shape). Returns: (N, *shape).
        """
        goals = (self.graph.output,) if target is None else self.graph[self.blocks[target].node].inputs
        found = self._values(goals, known)
        return found[0] if len(found) == 1 else torch.stack(found, dim=1)

    def _values(self, goals: Sequence[str], known: Mapping[int, Tensor]) -> list[Tensor]:
        ends, goals = {name: k for k, name in enumerate(self._ends, INPUT)}, tuple(goals)
        if goals not in self._needed:
            self._needed[goals] = self.graph.needed(goals, ends)
        values: dict[str, Tensor] = {}
        for n in self._needed[goals]:
            if n.name in ends:
                values[n.name] = known[ends[n.name]]
            else:
                values[n.name] = self.graph.live(n).run(*(values[name] for name in n.inputs))
        return [values[goal] for goal in goals]

    def head(self) -> Node:
        """The step of the linear layer that gives the output.

        Raises:
            TypeError: where the network does not end in one.
        """
        goal = self.graph[self.graph.output]
        if not isinstance(goal, steps.Linear) or len(goal.shape) != 1:
            raise TypeError("the network does not end in a linear layer: fit no head (head=False)")
        return goal

    def features(self, known: Mapping[int, Tensor]) -> Tensor:
        """The argument of the linear layer that gives the output; raises what `head` does."""
        return self._values(self.head().inputs, known)[0]

    def apply(self, block: int, z: Tensor) -> Tensor:
        """The block's own map of its argument."""
        node = self.graph.live(self.graph[self.blocks[block].node])
        return node.run(z[:, 0], z[:, 1]) if isinstance(node, steps.Product) else node.run(z)


def read_layers(network: nn.Module, input_shape: tuple[int, ...]) -> NetworkLayers:
    """Blocks of a network and their receptive fields.

    Args:
        network: of what `tracing.reading.read` takes; in evaluation mode.
        input_shape: of a sample, (C, *S) or (F,).

    Raises:
        ValueError: for a network in training mode, which has no function to imitate.
        TypeError, ValueError, WrongShape: as `tracing.reading.read`.
    """
    return blocks_of(read_steps(network, input_shape))


def read_steps(network: nn.Module, input_shape: tuple[int, ...]) -> Graph:
    """Steps of a network that is to be imitated. Args and raises: as `read_layers`."""
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch module, got {type(network).__name__}")
    training = [name or type(network).__name__ for name, m in network.named_modules() if m.training]
    if training:
        others = f" and {len(training) - 1} more" if len(training) > 1 else ""
        raise ValueError(f"the network is in training mode ({training[0]}{others}): call eval() first")
    return read(network, tuple(input_shape), whole_relu6=True)


def blocks_of(graph: Graph) -> NetworkLayers:
    """Blocks of the steps of a network and their receptive fields."""
    blocks: list[Block] = []
    found: dict[str, Reach] = {graph.input.name: Reach.of_block(INPUT, graph.input.shape)}
    widths = {INPUT: graph.input.shape[0]}
    for node in graph.nodes[1:]:
        reaches = [found[name] for name in node.inputs]
        if type(node) in RULES:
            found[node.name] = reach_of(node, widths, reaches)
            continue
        if isinstance(node, (steps.Maximum, steps.AdaptiveMaximum)):
            reach = pooled(node, widths, reaches[0])
        else:
            reach = reaches[0] if len(reaches) == 1 else RULES[steps.Sum](node, widths, *reaches)
        entries = {k: reach.entries(k, widths[k]) for k in reach.reads}
        blocks.append(Block(node.name, _map(node), node.shape, reach.reads, reach.channel, entries))
        found[node.name] = Reach.of_block(len(blocks) - 1, node.shape)
        widths[len(blocks) - 1] = node.shape[0]
    return NetworkLayers(graph, tuple(blocks), found[graph.output])


def _map(node: Node) -> str:
    """Name of a block's map."""
    if not isinstance(node, steps.Activation):
        return DERIVED[type(node)]
    if node.map != "leaky_relu":
        return node.map
    slopes = node.slopes()
    return f"leaky_relu({slopes[0]!r})" if len(slopes) == 1 else "prelu"
