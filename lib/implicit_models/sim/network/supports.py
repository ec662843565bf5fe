"""Which states the rows of a block may use: what the network reads there, everything before, or what a function says.

Rows of channels that the network keeps apart use what their own channels read there, so that a depthwise row has never
more columns than the network gives it.

Source:
    Tsai thesis (2024), (3.4) for everything before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from implicit_models.sim.network.layers import INPUT, NetworkLayers

SUPPORTS = ("receptive", "before")
Support = str | Callable[[NetworkLayers, int], Mapping[int, np.ndarray]]


def sources_of(layers: NetworkLayers, block: int, support: Support) -> dict[int, np.ndarray]:
    """Block -> (P, k) positions that each position may use."""
    b = layers.blocks[block]
    if support == "receptive":
        return dict(b.sources)
    if support == "before":
        every = [INPUT, *range(block)]
        if set(b.sources) == {INPUT}:
            return dict(b.sources)
        return {
            k: np.broadcast_to(np.arange(p), (b.positions, p))
            for k in every
            for p in [math.prod(layers.shape_of(k)[1:])]
        }
    found = {int(k): np.asarray(v) for k, v in support(layers, block).items()}  # type: ignore[operator]
    for k, index in found.items():
        places = math.prod(layers.shape_of(k)[1:]) if INPUT <= k < block else 0
        if (
            index.ndim != 2
            or len(index) != b.positions
            or not np.issubdtype(index.dtype, np.integer)
            or index.max(initial=-1) >= places
            or index.min(initial=0) < -1
        ):
            raise ValueError(
                f"support of block {block}: source {k} must be an earlier block (or {INPUT}) with positions"
                f" ({b.positions}, k) below {places}, got shape {index.shape}"
            )
    return found


@dataclass(frozen=True)
class ChannelGroups:
    """Runs of neighbouring channels of a block, equally long, whose rows read channels of their own.

    ranges: source -> (G, 2), the first channel that each run reads there and the end; equal where it reads none.
    """

    ranges: Mapping[int, np.ndarray]

    @property
    def number(self) -> int:
        return len(next(iter(self.ranges.values())))

    def bounds(self, source: int, channels: int) -> np.ndarray:
        """Where the channels of a source are cut, so that every run reads one piece: 0 first, `channels` last."""
        some = self.ranges[source][self.ranges[source][:, 1] > self.ranges[source][:, 0]]
        return np.unique(np.r_[0, some.reshape(-1), channels])


def channel_groups(layers: NetworkLayers, block: int, sources: Mapping[int, np.ndarray]) -> ChannelGroups | None:
    """The runs of channels that the network keeps apart before a block, as grouped and depthwise convolutions do, or
    one run that reads a part of the channels; None where all read all, and where `sources` are not the network's
    own."""
    b = layers.blocks[block]
    if set(sources) != set(b.sources) or any(sources[k] is not b.sources[k] for k in sources):
        return None
    wide = {k: np.arange(layers.shape_of(k)[0])[None] for k, c in b.channel.items() if c is None}
    read = {k: wide[k] if c is None else c for k, c in b.channel.items()}
    rows = [tuple(tuple(sorted(set(c[i % len(c)].tolist()) - {-1})) for c in read.values()) for i in range(b.channels)]
    heads = [i for i in range(b.channels) if i == 0 or rows[i] != rows[i - 1]]
    size = b.channels // len(heads)
    everything = all(len(rows[0][at]) == layers.shape_of(k)[0] for at, k in enumerate(read))
    if heads != list(range(0, b.channels, size)) or (everything if len(heads) == 1 else wide):
        return None  # rows that share some columns share them all: one Gram matrix a position
    ranges = {}
    for at, k in enumerate(read):
        sets = [rows[i][at] for i in heads]
        if any(s and s != tuple(range(s[0], s[-1] + 1)) for s in sets):
            return None
        different = {s for s in sets if s}
        if sum(len(s) for s in different) > len(set().union(*different)):
            return None  # they overlap
        ranges[k] = np.array([(s[0], s[-1] + 1) if s else (0, 0) for s in sets])
    return ChannelGroups(ranges)


def last_readers(layers: NetworkLayers, sources: Sequence[Mapping[int, np.ndarray]]) -> dict[int, int]:
    """The last block that reads each block (the number of blocks for the output)."""
    last: dict[int, int] = {}
    for block, b in enumerate(layers.blocks):
        for k in {**b.sources, **sources[block]}:
            last[k] = block
    for k in layers.output.reads:
        last[k] = len(layers.blocks)
    return last
