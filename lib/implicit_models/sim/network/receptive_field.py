"""What a value of a network reads: the receptive field of its positions.

An entry counts as read where the operation can use it, also where its weight happens to be zero. A `Reach` holds, for
every block of states that a value depends on, the positions that each of its own positions reads and the channels that
each of its channels reads. `RULES` holds the rules by which an affine step of the network makes a new `Reach` of those
of its inputs.

Source:
    Tsai thesis (2024), section 2.5 (convolutions, pooling, residual sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_models.tracing import nodes as steps
from implicit_models.tracing.windows import windows

Widths = Mapping[int, int]  # block -> its channels


@dataclass(frozen=True)
class Reach:
    """What a value of the trace reads: its shape (C, *S) or (F,), block -> (P, k) positions, and block -> its channels
    (see `Block`).

    parts: of a value that was flattened, what it read before, since a flat value has one position that reads all; of
    values side by side, each by itself.
    """

    shape: tuple[int, ...]
    reads: Mapping[int, np.ndarray]
    channel: Mapping[int, np.ndarray | None]
    parts: tuple[Reach, ...] = ()

    def entries(self, block: int, channels: int) -> int:
        """Pairs of an entry of the value and an entry of a block, of so many channels, that it reads."""
        if self.parts:
            return sum(part.entries(block, channels) for part in self.parts if block in part.reads)
        channel, inside = self.channel[block], int((self.reads[block] >= 0).sum())
        return inside * (self.shape[0] * channels if channel is None else int((channel >= 0).sum()))

    @classmethod
    def of_block(cls, block: int, shape: tuple[int, ...]) -> Reach:
        return cls(shape, {block: np.arange(math.prod(shape[1:]))[:, None]}, {block: np.arange(shape[0])[:, None]})

    def mixed(self, widths: Widths, channels: int, groups: int = 1) -> Reach:
        """So many channels of a map that mixes the present ones, or those of each of several groups, at the same
        positions."""
        shape, each = (channels, *self.shape[1:]), {}
        for k, c in self.channel.items():
            read = None if c is None else union(np.broadcast_to(c, (self.shape[0], c.shape[1])).reshape(groups, -1))
            if read is not None and groups == 1 and int((read >= 0).sum()) == widths[k]:
                read = None  # all of them
            each[k] = None if read is None else np.repeat(read, channels // groups, axis=0)
        return Reach(shape, self.reads, each)

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


def _channels(read: list[Any], channels: int) -> np.ndarray | None:
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


def _windows(node: steps.Convolution, reach: Reach) -> Reach:
    """What windows read; beyond the border there is nothing, unless the border is mirrored or repeated there."""
    how: dict[str, Any] = {"constant_values": -1} if node.padding_mode == "zeros" else {}
    mode = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[node.padding_mode]
    index = np.pad(reach.places, [(0, 0), *node.sides], mode=mode, **how)  # type: ignore[call-overload]
    seen = windows(index, node.kernel, node.stride, node.dilation)[0]
    size = seen.shape[: len(node.kernel)]
    return reach.at(seen.reshape(math.prod(size), -1), (reach.shape[0], *size))


def _convolution(node: steps.Convolution, widths: Widths, reach: Reach) -> Reach:
    return _windows(node, reach).mixed(widths, node.shape[0], node.groups)


def pooled(node: steps.Node, widths: Widths, reach: Reach) -> Reach:
    """What the windows of a pooling layer read."""
    assert isinstance(node, (steps.Pool, steps.AdaptivePool))
    return reach.at(np.maximum(node.windows(reach.shape), -1), node.shape)


def _linear(node: steps.Linear, widths: Widths, reach: Reach) -> Reach:
    if len(reach.shape) == 1:
        return reach.mixed(widths, node.shape[0])
    *lead, last = reach.shape[1:]  # over the last axis of several: channels stay apart
    index = reach.places.reshape(-1, 1, last)
    index = np.broadcast_to(index, (len(index), node.shape[-1], last))
    return reach.at(index.reshape(-1, last), node.shape)


def _sum(node: steps.Node, widths: Widths, *reaches: Reach) -> Reach:
    out = reaches[0]
    for other in reaches[1:]:
        out = _added(out, other)
    return out


def _added(a: Reach, b: Reach) -> Reach:
    joined = {k: _distinct(np.hstack([r.reads[k] for r in (a, b) if k in r.reads])) for k in {**a.reads, **b.reads}}
    channel = {k: _channels([r.channel[k] for r in (a, b) if k in r.reads], a.shape[0]) for k in joined}
    parts: tuple[Reach, ...] = ()
    if len(a.parts) == len(b.parts) and all(p.shape == q.shape for p, q in zip(a.parts, b.parts, strict=True)):
        parts = tuple(_added(p, q) for p, q in zip(a.parts, b.parts, strict=True))
    return Reach(a.shape, joined, channel, parts)


def _concat(node: steps.Concat, widths: Widths, *reaches: Reach) -> Reach:
    if node.axis > 0:  # positions side by side
        starts = np.cumsum([0, *(math.prod(r.shape[1:]) for r in reaches)])
        places = [r.places + s for r, s in zip(reaches, starts, strict=False)]
        order = np.concatenate(places, axis=node.axis).reshape(-1)
        blocks = {k: None for r in reaches for k in r.reads}
        reads = {
            k: _stacked([r.reads.get(k, np.full((math.prod(r.shape[1:]), 1), -1)) for r in reaches])[order]
            for k in blocks
        }
        channel = {k: _channels([r.channel[k] for r in reaches if k in r.reads], node.shape[0]) for k in blocks}
        return Reach(node.shape, reads, channel, reaches)
    joined = _added_positions(reaches)
    channel = {k: _side_by_side(reaches, k, widths[k]) for k in joined}
    return Reach(node.shape, joined, channel, reaches)


def _side_by_side(reaches: Sequence[Reach], block: int, width: int) -> np.ndarray | None:
    """Channels of a block, of so many, that the channels of values side by side read."""
    if all(block in r.reads and r.channel[block] is None for r in reaches):
        return None
    rows = []
    for r in reaches:
        c = r.channel.get(block)
        if block not in r.reads:
            rows.append(np.full((r.shape[0], 1), -1))
        else:
            c = np.arange(width)[None] if c is None else c
            rows.append(np.broadcast_to(c, (r.shape[0], c.shape[1])))
    return _stacked(rows)


def _added_positions(reaches: Sequence[Reach]) -> dict[int, np.ndarray]:
    """Block -> the positions that any of several values reads at each position."""
    blocks = {k: None for r in reaches for k in r.reads}
    found = {}
    for k in blocks:
        reads = [r.reads[k] for r in reaches if k in r.reads]
        found[k] = reads[0] if len(reads) == 1 else _distinct(np.hstack(reads))
    return found


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Rows below each other, -1 behind the shorter ones."""
    width = max(p.shape[1] for p in parts)
    return np.vstack([np.pad(p, [(0, 0), (0, width - p.shape[1])], constant_values=-1) for p in parts])


def _mean(node: steps.Mean, widths: Widths, reach: Reach) -> Reach:
    index = np.arange(math.prod(reach.shape)).reshape(reach.shape)
    moved = np.moveaxis(index, node.axes, range(-len(node.axes), 0)).reshape(math.prod(node.shape), -1)
    return gathered(moved, node.shape, reach)


def _reshaped(node: steps.Reshape, widths: Widths, reach: Reach) -> Reach:
    if len(node.shape) > 1:
        return gathered(np.arange(node.size)[:, None], node.shape, reach)
    out = reach.at(np.arange(math.prod(reach.shape[1:]))[None, :], reach.shape[:1])
    out = out if node.shape[0] == reach.shape[0] else out.mixed(widths, node.shape[0])
    return replace(out, parts=(reach,)) if len(reach.shape) > 1 else reach


def gathered(entries: np.ndarray, shape: tuple[int, ...], reach: Reach) -> Reach:
    """The value whose entries are sums of others: entries (size, k) by their numbers, negative for none.

    Exact where channels and positions go their own ways: slices, padding, means over axes, permutations of either.
    Elsewhere an entry is taken to read what any entry of its position and of its channel reads.
    """
    size, channels, positions = math.prod(reach.shape[1:]), shape[0], math.prod(shape[1:])
    e = entries.reshape(channels, positions, -1)
    there = e >= 0
    place = np.where(there, e % size, -1).transpose(1, 0, 2).reshape(positions, -1)
    source = np.where(there, e // size, -1).reshape(channels, -1)
    one = place[:, : e.shape[2]] if channels == 1 else None
    rows = np.flatnonzero(there.any(axis=(1, 2)))
    if one is None and len(rows):  # all channels that read anything read the same positions
        each = place.reshape(positions, channels, -1)
        one = each[:, rows[0]] if (each[:, rows] == each[:, rows[:1]]).all() else None
    moved = reach.at(one if one is not None else union(place), shape)
    channel: dict[int, np.ndarray | None] = {}
    for k, c in reach.channel.items():
        if c is None:
            channel[k] = None
            continue
        wide = np.vstack([np.broadcast_to(c, (reach.shape[0], c.shape[1])), np.full((1, c.shape[1]), -1)])
        channel[k] = union(wide[union(source)].reshape(channels, -1))
    return Reach(shape, moved.reads, channel)


def _same(node: steps.Node, widths: Widths, reach: Reach) -> Reach:
    return reach


RULES: dict[type[steps.Node], Callable[..., Reach]] = {
    steps.Linear: _linear,
    steps.Convolution: _convolution,
    steps.Normalisation: _same,
    steps.Scale: _same,
    steps.Average: pooled,
    steps.AdaptiveAverage: pooled,
    steps.Mean: _mean,
    steps.Sum: _sum,
    steps.Concat: _concat,
    steps.Reshape: _reshaped,
    steps.Take: lambda node, widths, reach: gathered(node.entries.reshape(-1, 1), node.shape, reach),
}


def reach_of(node: steps.Node, widths: Widths, reaches: Sequence[Reach]) -> Reach:
    """What the value of an affine step reads."""
    found = RULES[type(node)](node, widths, *reaches)
    return Reach(node.shape, found.reads, found.channel, found.parts)
