"""The weighted steps of a network as layers to prune: what their rows read, and what becomes of their values.

Behind a convolution or linear layer stands a chain of steps that are affine in its value, a factor a channel, and read
by the next one alone: batch norm, factors, sums with what was computed before. Its end is the pre-activation

    p = f z + s,    z = w'x + beta of each row and position, s what the chain adds, shortcuts included,

in whose units rows are fitted: the row f w to the target p - s, so that each layer makes good what its shortcut lacks.
Steps are ordered so that of two layers with a common sum the one with fewer columns comes first.

Source:
    He et al. (2016) for the networks; the target with the shortcut taken off is this project's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from implicit_models.tracing.nodes import Activation, Convolution, Graph, Linear, Node, Normalisation, Scale, Sum
from implicit_models.tracing.windows import windows

PAD = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
Weighted = Convolution | Linear


@dataclass(frozen=True, eq=False)
class Layer:
    """A weighted step that is used once.

    node: the step. chain: the steps behind it up to the pre-activation. one_sided: whether ReLU alone reads that.
    bias: what takes a bias, the name of a parameter or buffer; "" if a module has to get one, None if nothing can.
    factor: f (r,).
    """

    node: Weighted
    chain: tuple[Node, ...]
    one_sided: bool
    bias: str | None
    factor: Float[np.ndarray, " r"]
    reads: tuple[int, ...]  # shape of what it reads

    @property
    def weight(self) -> str:
        """Dotted name of its weight."""
        return self.node.names["weight"]

    @property
    def name(self) -> str:
        return self.weight.removesuffix(".weight")

    @property
    def end(self) -> str:
        """The step whose value is the pre-activation."""
        return self.chain[-1].name if self.chain else self.node.name

    @property
    def groups(self) -> int:
        return self.node.groups if isinstance(self.node, Convolution) else 1

    @property
    def rows(self) -> int:
        return int(self.node.weight.shape[0])

    @property
    def columns(self) -> int:
        return int(self.node.weight[0].numel())

    @property
    def size(self) -> int:
        return int(self.node.weight.numel())

    @property
    def positions(self) -> int:
        return math.prod(self.node.shape) // self.rows

    def kernels(self) -> Float[np.ndarray, "r d"]:
        """The network's own rows, w."""
        return self.node.weight.detach().double().flatten(1).numpy()

    def rows_before(self) -> Float[np.ndarray, "r d"]:
        """The network's own rows in units of the pre-activation, f w."""
        return self.factor[:, None] * self.kernels()

    def by_row(self, value: Float[Tensor, "N ..."]) -> Float[Tensor, "N r P"]:
        """Values of the layer with the rows first and the positions behind."""
        if isinstance(self.node, Linear) and len(self.node.shape) > 1:
            return value.reshape(len(value), -1, self.rows).transpose(1, 2)
        return value.reshape(len(value), self.rows, -1)

    def places(self) -> Int[np.ndarray, "P taps"]:
        """Position of its input that each tap of each position reads, the number of positions for padding by zeros."""
        if isinstance(self.node, Linear):
            return np.arange(math.prod(self.reads[:-1]))[:, None]
        size = self.reads[1:]
        index = np.arange(math.prod(size)).reshape(1, *size)
        mode = PAD[self.node.padding_mode]
        options = {"constant_values": index.size} if mode == "constant" else {}
        index = np.pad(index, [(0, 0), *self.node.sides], mode=mode, **options)  # type: ignore[call-overload]
        seen = windows(index, self.node.kernel, self.node.stride, self.node.dilation)
        return seen.reshape(-1, math.prod(self.node.kernel)).copy()

    def windows_of(self, x: Float[Tensor, "N ..."], places: Int[Tensor, "p taps"]) -> Float[Tensor, "g d Np"]:
        """Columns of each group at chosen positions, in the order of its weights."""
        if isinstance(self.node, Linear):
            flat = x.reshape(len(x), -1, x.shape[-1])[:, places[:, 0]]
            return flat.reshape(1, -1, x.shape[-1]).transpose(1, 2)
        flat = x.flatten(2)
        if bool((places == flat.shape[2]).any()):
            flat = torch.cat([flat, flat.new_zeros(*flat.shape[:2], 1)], dim=2)
        p, taps = places.shape
        seen = flat[:, :, places.t().reshape(-1)].reshape(len(x), flat.shape[1], taps, p)
        return seen.permute(1, 2, 0, 3).reshape(self.groups, -1, len(x) * p)

    def with_kernels(self, weight: Float[np.ndarray, "r d"], bias: Float[np.ndarray, " r"] | None) -> Weighted:
        """The step with other rows."""
        like = self.node.weight
        own = torch.from_numpy(weight).to(like).reshape(like.shape)
        return replace(self.node, weight=own, bias=None if bias is None else torch.from_numpy(bias).to(like), names={})

    def gets_bias(self, step: Weighted) -> bool:
        """Whether its module needs a new bias to compute what a step does."""
        return self.bias == "" and step.bias is not None

    def rest(self, values: Mapping[str, Tensor]) -> Float[Tensor, "N ..."]:
        """s, the pre-activation of a value 0, given the others that the chain reads."""
        count = len(values[self.node.inputs[0]])
        alone = all(
            step.inputs == (before.name,) for before, step in zip((self.node, *self.chain), self.chain, strict=False)
        )
        if alone:  # of every sample the same
            return self.through(self.node.weight.new_zeros(1, *self.node.shape), {}).expand(count, *self.node.shape)
        return self.through(self.node.weight.new_zeros(count, *self.node.shape), values)

    def through(self, z: Float[Tensor, "N ..."], values: Mapping[str, Tensor]) -> Float[Tensor, "N ..."]:
        """The pre-activation of a value z."""
        last = self.node.name
        for step in self.chain:
            z, last = step.run(*(z if name == last else values[name] for name in step.inputs)), step.name
        return z


@dataclass(frozen=True, eq=False)
class Plan:
    """A network as its steps, in the order in which they are taken, and the layers among them that are pruned."""

    graph: Graph
    steps: tuple[Node, ...]
    layers: tuple[Layer, ...]
    kept: tuple[tuple[str, int], ...]  # weights that stay as they are, and how many they are

    @property
    def weights(self) -> int:
        """All weights of convolutions and linear layers, each once."""
        return sum(layer.size for layer in self.layers) + sum(size for _, size in self.kept)

    def with_kernels(self, rows: Mapping[str, Weighted]) -> tuple[Node, ...]:
        """The steps, with others in the place of some, by name."""
        return tuple(rows.get(n.name, n) for n in self.steps)


def plan(graph: Graph, *, head: bool = True) -> Plan:
    """Layers of a graph.

    A weight that is used more than once stays as it is, and so do one with a bias that is, and the linear layer that
    gives the output unless `head`.
    """
    readers: dict[str, list[Node]] = {n.name: [] for n in graph.nodes}
    for n in graph.nodes:
        for name in set(n.inputs):
            readers[name].append(n)
    parameters = dict(graph.traced.named_parameters())
    weighted = [n for n in graph.nodes if isinstance(n, Weighted) and n.names.get("weight") in parameters]
    uses: dict[str, int] = {}
    for n in graph.nodes:
        for name in n.names.values():
            uses[name] = uses.get(name, 0) + 1
    steps = _ordered(graph)
    at = {n.name: i for i, n in enumerate(steps)}
    layers, kept = [], {}
    for n in sorted(weighted, key=lambda n: at[n.name]):
        bias = n.names.get("bias", "")
        alone = uses[n.names["weight"]] == 1 and (n.bias is None or (bias in parameters and uses[bias] == 1))
        if not alone or (not head and n.name == graph.output):
            kept[n.names["weight"]] = n.weight.numel()
        else:
            layers.append(_layer(graph, n, readers, at, uses))
    return Plan(graph, steps, tuple(layers), tuple(kept.items()))


def _ordered(graph: Graph) -> tuple[Node, ...]:
    """Steps in an order of execution: weighted ones as late as may be, those of fewer columns first."""
    done: set[str] = set()
    rest, out = list(graph.nodes), []
    while rest:
        ready = [n for n in rest if all(name in done for name in n.inputs)]
        free = [n for n in ready if not isinstance(n, Weighted)]
        for n in free or [min(ready, key=lambda n: n.weight[0].numel())]:  # type: ignore[attr-defined]
            out.append(n)
            done.add(n.name)
            rest.remove(n)
    return tuple(out)


def _layer(
    graph: Graph, node: Weighted, readers: Mapping[str, Sequence[Node]], at: Mapping[str, int], uses: Mapping[str, int]
) -> Layer:
    rows = int(node.weight.shape[0])
    axis = len(node.shape) - 1 if isinstance(node, Linear) else 0
    chain: list[Node] = []
    factor, last = np.ones(rows), node.name
    while len(readers[last]) == 1 and last != graph.output:
        (step,) = readers[last]
        before = all(at[name] < at[node.name] for name in step.inputs if name != last)
        found = _factor(step, last, axis) if before else None
        if found is None:
            break
        factor, last = factor * found, step.name
        chain.append(step)
    after = readers[last]
    relu = len(after) == 1 and isinstance(after[0], Activation) and after[0].map == "relu" and last != graph.output
    return Layer(node, tuple(chain), relu, _bias(graph, node, chain, uses), factor, graph[node.inputs[0]].shape)


def _factor(step: Node, last: str, axis: int) -> Float[np.ndarray, " r"] | float | None:
    """What a step multiplies the rows along an axis by, None where it is not affine in that way."""
    if isinstance(step, Normalisation):
        return step.affine()[0] if axis == 0 else None
    if isinstance(step, Sum):
        places = [k for k, name in enumerate(step.inputs) if name == last]
        return step.coefficients[places[0]] if len(places) == 1 else None
    if isinstance(step, Scale):
        each = step.affine()[0]
        if each is None:
            return 1.0
        flat = np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1)
        return flat[:, 0] if bool((flat == flat[:, :1]).all()) else None
    return None


def _bias(graph: Graph, node: Weighted, chain: Sequence[Node], uses: Mapping[str, int]) -> str | None:
    """What takes the bias of a layer: its own, the mean of the batch norm behind it, or a new one of its module."""
    if node.bias is not None:
        return node.names["bias"]
    if chain and isinstance(chain[0], Normalisation):
        name = chain[0].names.get("mean")
        if name is not None and uses[name] == 1:
            return name
    owner = node.names["weight"].rpartition(".")[0]
    module = graph.traced.get_submodule(owner) if owner else graph.traced
    return "" if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Linear)) else None
