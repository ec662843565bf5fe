"""Which states the rows of a block may use: what the network reads there, everything before, or what a function says.

Source:
    Tsai thesis (2024), (3.4) for everything before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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


def last_readers(layers: NetworkLayers, sources: Sequence[Mapping[int, np.ndarray]]) -> dict[int, int]:
    """The last block that reads each block (the number of blocks for the output)."""
    last: dict[int, int] = {}
    for block, b in enumerate(layers.blocks):
        for k in {**b.sources, **sources[block]}:
            last[k] = block
    for k in layers.output.reads:
        last[k] = len(layers.blocks)
    return last
