"""What a channel of a network is: the rows that write it and the columns that read it, in all layers.

Every entry of every value bears a label. A convolution or linear layer gives each of its rows a new one; steps that
work entry by entry or plane by plane hand labels on, sums and products unite those of their operands, and what no
channel may be taken from (the input, the output, what is read in a way that depends on the number of channels) has the
label 0, which stays. All that bears one label is removed together.

A shortcut that rearranges channels before a sum (a padding, a choice of them) starts new labels: where a channel of its
source is gone, the sum takes zeros, and the other way round the shortcut drops what the sum no longer has. Without that
a stage of a network could lose no channel that the next one keeps.

Channels of one space have the same writers and readers, so that removing any of them saves the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from implicit_models.sim.pruning.layers import Layer, Plan
from implicit_models.tracing.nodes import (
    Activation,
    AdaptivePool,
    Concat,
    Convolution,
    Graph,
    Linear,
    Mean,
    Node,
    Normalisation,
    Pool,
    Product,
    Reshape,
    Scale,
    Sum,
    Take,
)

STAYS = 0  # the label of what cannot be removed


@dataclass(frozen=True, eq=False)
class Space:
    """Channels with the same writers and readers.

    labels (n,): of the channels. rows: number of a layer -> (n, m) its rows. columns: number of a layer -> (n, t) its
    columns. fed: number of a layer -> (n, k) its rows to whose pre-activation a shortcut adds the channel.
    """

    labels: Int[np.ndarray, " n"]
    rows: Mapping[int, Int[np.ndarray, "n m"]]
    columns: Mapping[int, Int[np.ndarray, "n t"]]
    fed: Mapping[int, Int[np.ndarray, "n k"]]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of a network: of every value by name, and the spaces they fall into. links: shortcuts that rearrange
    channels, by name, with the labels of what they read."""

    values: Mapping[str, Int[np.ndarray, " ..."]]
    spaces: tuple[Space, ...]
    links: Mapping[str, Int[np.ndarray, " ..."]]

    def kept(self, name: str, removed: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " ..."]:
        """Which entries of a value stay."""
        return ~np.isin(self.values[name], removed)

    def links_without(self, graph: Graph, removed: Int[np.ndarray, " k"]) -> dict[str, Node]:
        """The shortcuts that rearrange channels, with zeros for what is gone on either side."""
        out: dict[str, Node] = {}
        for name, source in self.links.items():
            step = graph[name]
            assert isinstance(step, Take)
            gone = np.isin(source.ravel(), removed)
            entries = np.where(self.kept(name, removed), step.entries, -1)
            entries = np.where((entries >= 0) & gone[entries], -1, entries)
            out[name] = Take(
                name=name, inputs=step.inputs, shape=step.shape, path=step.path, where=step.where, entries=entries
            )
        return out


class _Union:
    """Labels that are united as they turn out to be of one channel."""

    def __init__(self) -> None:
        self.parent = [STAYS]

    def fresh(self, count: int) -> Int[np.ndarray, " count"]:
        first = len(self.parent)
        self.parent.extend(range(first, first + count))
        return np.arange(first, first + count)

    def root(self, label: int) -> int:
        while self.parent[label] != label:
            self.parent[label] = self.parent[self.parent[label]]
            label = self.parent[label]
        return label

    def unite(self, a: Int[np.ndarray, " ..."], b: Int[np.ndarray, " ..."] | int) -> None:
        """The smallest label stands for all, so that what stays remains so."""
        pairs = np.unique(np.stack([np.ravel(a), np.ravel(np.broadcast_to(b, np.shape(a)))]), axis=1)
        for x, y in pairs.T:
            low, high = sorted((self.root(int(x)), self.root(int(y))))
            self.parent[high] = low

    def of(self, a: Int[np.ndarray, " ..."]) -> Int[np.ndarray, " ..."]:
        roots = np.array([self.root(i) for i in range(len(self.parent))])
        return roots[a]


def labels_of(plan: Plan, held: Sequence[str] = ()) -> Labels:
    """The channels of a network. held: names of steps whose values must keep all of theirs."""
    labels, values, links = _Union(), {}, {}  # type: _Union, dict[str, np.ndarray], dict[str, np.ndarray]
    number = {layer.node.name: k for k, layer in enumerate(plan.layers) if layer.bias is not None}
    shared = _shared(plan.graph)
    sums = _shortcuts(plan)
    for step in plan.steps:
        read = [values[name] for name in step.inputs]
        found: np.ndarray | None = None
        if step.name in sums and isinstance(step, Take) and _moves_channels(step, plan.graph[step.inputs[0]]):
            found = np.broadcast_to(_column(labels.fresh(step.shape[0]), step.shape), step.shape)
            links[step.name] = read[0]
        elif step.name in number or not any(name in shared for name in step.names.values()):
            found = _through(step, read, labels, weighted=step.name in number)
        if found is None or step.name in held or _axes(found) > 1:
            for each in (*read, *(() if found is None else (found,))):
                labels.unite(each, STAYS)
            found = np.full(step.shape, STAYS)
        values[step.name] = found
    labels.unite(values[plan.graph.output], STAYS)
    values = {name: labels.of(each) for name, each in values.items()}
    links = {name: labels.of(each) for name, each in links.items()}
    return Labels(values, _spaces(plan, values, links, sums), links)


def _shared(graph: Graph) -> set[str]:
    """Tensors that several steps use."""
    uses: dict[str, int] = {}
    for step in graph.nodes:
        for name in step.names.values():
            uses[name] = uses.get(name, 0) + 1
    return {name for name, count in uses.items() if count > 1}


def _shortcuts(plan: Plan) -> dict[str, int]:
    """Steps whose one reader is a sum in the chain behind a layer, and the number of the layer."""
    readers: dict[str, list[str]] = {}
    for step in plan.steps:
        for name in step.inputs:
            readers.setdefault(name, []).append(step.name)
    added = {
        name: (k, step.name)
        for k, layer in enumerate(plan.layers)
        for step in layer.chain
        if isinstance(step, Sum)
        for name in step.inputs
    }
    return {name: k for name, (k, step) in added.items() if readers[name] == [step]}


def _moves_channels(step: Take, source: Node) -> bool:
    """Whether every channel of a rearrangement is one of its source, or zeros."""
    if len(step.shape) < 2 or len(source.shape) < 2 or step.fill != 0:
        return False
    flat = step.entries.reshape(step.shape[0], -1)
    plane = np.where(flat >= 0, flat // (source.size // source.shape[0]), -1)
    return bool((plane == plane[:, :1]).all())


def _column(labels: Int[np.ndarray, " C"], shape: Sequence[int]) -> Int[np.ndarray, " ..."]:
    return labels.reshape(-1, *[1] * (len(shape) - 1))


def _axes(labels: Int[np.ndarray, " ..."]) -> int:
    """Along how many axes they vary."""
    return sum(bool((np.diff(labels, axis=axis) != 0).any()) for axis in range(labels.ndim))


def _by_plane(labels: _Union, value: Int[np.ndarray, "C ..."]) -> Int[np.ndarray, " C"]:
    """One label a channel, of all that is in its plane."""
    flat = value.reshape(len(value), -1)
    labels.unite(flat, flat[:, :1])
    return flat[:, 0]


def _through(
    step: Node, read: list[Int[np.ndarray, " ..."]], labels: _Union, *, weighted: bool
) -> Int[np.ndarray, " ..."] | None:
    """Labels of a step's value, None where it cannot work on fewer channels."""
    match step:
        case Convolution() if weighted and step.groups == 1:
            _by_plane(labels, read[0])
            return np.broadcast_to(_column(labels.fresh(step.shape[0]), step.shape), step.shape)
        case Convolution() if weighted and step.groups == len(read[0]):  # each channel by itself
            each = np.repeat(_by_plane(labels, read[0]), step.shape[0] // step.groups)
            return np.broadcast_to(_column(each, step.shape), step.shape)
        case Linear() if weighted:
            _by_plane(labels, np.moveaxis(read[0], -1, 0))
            return np.broadcast_to(labels.fresh(step.shape[-1]), step.shape)
        case Normalisation():
            return read[0]
        case Scale():
            given = [c for c in (step.factor, step.divisor, step.shift) if c is not None]
            alike = all(not hasattr(c, "numel") or c.numel() == 1 for c in given)
            return read[0] if alike else None
        case Activation():
            return read[0] if len(step.slopes()) == 1 else None
        case Pool() | AdaptivePool():
            return np.broadcast_to(_column(_by_plane(labels, read[0]), step.shape), step.shape)
        case Mean():
            if any((np.diff(read[0], axis=axis) != 0).any() for axis in step.axes):
                return None
            return read[0].take(0, axis=step.axes[0]).reshape(step.shape) if len(step.axes) == 1 else _mean(step, read)
        case Sum() | Product():
            for other in read[1:]:
                labels.unite(read[0], other)
            return read[0]
        case Concat():
            return np.concatenate(read, axis=step.axis)
        case Reshape():
            return read[0].reshape(step.shape)
        case Take():
            return _taken(step, read[0])
    return None


def _mean(step: Mean, read: list[Int[np.ndarray, " ..."]]) -> Int[np.ndarray, " ..."]:
    first = tuple(0 if axis in step.axes else slice(None) for axis in range(read[0].ndim))
    return read[0][first].reshape(step.shape)


def _taken(step: Take, read: Int[np.ndarray, " ..."]) -> Int[np.ndarray, " ..."] | None:
    """Filled entries go with the others of their plane."""
    found = np.where(step.entries >= 0, read.ravel()[step.entries], -1)
    flat = found.reshape(len(found), -1)
    largest = flat.max(axis=1, keepdims=True)
    found = np.where(flat < 0, largest, flat).reshape(step.shape)
    return found if step.fill == 0 and (found >= 0).all() else None


def _spaces(
    plan: Plan, values: Mapping[str, np.ndarray], links: Mapping[str, np.ndarray], sums: Mapping[str, int]
) -> tuple[Space, ...]:
    """Labels by what writes and reads them."""
    found: dict[int, dict[tuple[str, int], list[int]]] = {}

    def note(labels: np.ndarray, kind: str, k: int, entries: Sequence[int] | np.ndarray) -> None:
        for label, entry in zip(labels.tolist(), entries, strict=True):
            if label != STAYS:
                found.setdefault(label, {}).setdefault((kind, k), []).append(int(entry))

    for k, layer in enumerate(plan.layers):
        note(row_labels(layer, values), "rows", k, range(layer.rows))
        if layer.groups == 1:
            note(column_labels(layer, values), "columns", k, range(layer.columns))
    for name, source in links.items():
        step = plan.graph[name]
        assert isinstance(step, Take)
        first = step.entries.reshape(step.shape[0], -1)[:, 0]
        rows = np.flatnonzero(first >= 0)
        note(source.ravel()[first[rows]], "fed", sums[name], rows)
    kinds: dict[tuple, list[int]] = {}
    for label, parts in found.items():
        if any(kind == "rows" for kind, _ in parts):
            kinds.setdefault(tuple(sorted((key, len(own)) for key, own in parts.items())), []).append(label)
    out = []
    for signature, own in kinds.items():
        by_kind = {
            kind: {k: np.array([found[label][kind, k] for label in own]) for (name, k), _ in signature if name == kind}
            for kind in ("rows", "columns", "fed")
        }
        out.append(Space(np.array(own), **by_kind))
    return tuple(out)


def row_labels(layer: Layer, values: Mapping[str, np.ndarray]) -> Int[np.ndarray, " r"]:
    """Of a layer's rows."""
    own = values[layer.node.name]
    return own[(0,) * (own.ndim - 1)] if isinstance(layer.node, Linear) else own.reshape(len(own), -1)[:, 0]


def column_labels(layer: Layer, values: Mapping[str, np.ndarray]) -> Int[np.ndarray, " d"]:
    """Of a layer's columns, for one that reads all channels in every row."""
    own = values[layer.node.inputs[0]]
    if isinstance(layer.node, Linear):
        return own[(0,) * (own.ndim - 1)]
    return np.repeat(own.reshape(len(own), -1)[:, 0], layer.columns // len(own))
