"""How many channels each space loses: multiplications saved where the outputs lose least.

A layer costs positions x rows x columns multiplications of what it has left, so that what a channel saves depends on
what is left elsewhere. Channels go in steps of `multiple`, always those of the least loss for each multiplication that
is saved now, until few enough are left; then whatever fits comes back, the dearest first.

Source:
    the ratio rule of greedy knapsacks; losses in units of the outputs and steps of channels are this project's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from implicit_models.sim.pruning.channels.spaces import Space
from implicit_models.sim.pruning.layers import Plan
from implicit_models.tracing.nodes import Convolution, Linear


@dataclass(frozen=True)
class Costs:
    """Multiplications of a network. positions, rows, columns (L,): of the layers; each (L, S), what a channel of a
    space is of a layer's rows and columns. stays: of the steps that are no layers."""

    positions: Int[np.ndarray, " L"]
    rows: Int[np.ndarray, " L"]
    columns: Int[np.ndarray, " L"]
    each_row: Int[np.ndarray, "L S"]
    each_column: Int[np.ndarray, "L S"]
    stays: int

    def of(self, removed: Int[np.ndarray, " S"]) -> int:
        """Multiplications that are left where each space has lost so many channels."""
        return self.stays + int(self.by_layer(removed).sum())

    def by_layer(self, removed: Int[np.ndarray, " S"]) -> Int[np.ndarray, " L"]:
        """The same of each layer."""
        return self.positions * (self.rows - self.each_row @ removed) * (self.columns - self.each_column @ removed)


def costs_of(plan: Plan, spaces: Sequence[Space]) -> Costs:
    """What a network costs, and what its channels are of it."""
    L = len(plan.layers)
    each = lambda of: np.array([[of(s).get(k, np.empty((1, 0))).shape[1] for s in spaces] for k in range(L)], np.int64)
    own = {layer.node.name for layer in plan.layers}
    stays = sum(
        math.prod(step.shape) * step.weight[0].numel()
        for step in plan.graph.nodes
        if isinstance(step, (Convolution, Linear)) and step.name not in own
    )
    numbers = lambda name: np.array([getattr(layer, name) for layer in plan.layers])
    shape = (L, len(spaces))
    return Costs(
        numbers("positions"),
        numbers("rows"),
        numbers("columns"),
        each(lambda s: s.rows).reshape(shape),
        each(lambda s: s.columns).reshape(shape),
        stays,
    )


def shared_out(
    rises: Sequence[Float[np.ndarray, " n"]], costs: Costs, most: float, multiple: int
) -> Int[np.ndarray, " S"]:
    """How many channels each space loses.

    Args:
        rises: of each space, what the outputs lose at each removal, in order.
        most: multiplications that may be left.
        multiple: of which the number of channels left is one, unless the space loses none.

    Raises:
        ValueError: where no choice leaves as few, naming the least.
    """
    lost = [np.concatenate([[0.0], np.cumsum(np.maximum.accumulate(rise))]) for rise in rises]
    sizes = [len(rise) for rise in rises]
    allowed = [sorted({0} | {n - left for left in range(multiple, n, multiple)}) for n in sizes]
    removed = np.zeros(len(sizes), np.int64)
    while (now := costs.of(removed)) > most:
        best: tuple[float, int, int] | None = None
        for s, choices in enumerate(allowed):
            for count in (c for c in choices if c > removed[s]):
                other = removed.copy()
                other[s] = count
                saved = now - costs.of(other)
                if saved > 0:
                    price = (lost[s][count] - lost[s][removed[s]]) / saved
                    if best is None or price < best[0]:
                        best = price, s, count
        if best is None:
            raise ValueError(
                f"share {most / costs.of(np.zeros_like(removed)):.3g} of the multiplications cannot be reached with"
                f" channels in multiples of {multiple}: the least is {now / costs.of(np.zeros_like(removed)):.3g}"
            )
        removed[best[1]] = best[2]
    while True:
        fits = []
        for s, choices in enumerate(allowed):
            for count in (c for c in choices if c < removed[s]):
                other = removed.copy()
                other[s] = count
                if costs.of(other) <= most:
                    fits.append((lost[s][removed[s]] - lost[s][count], s, count))
        if not fits:
            return removed
        _, s, count = max(fits)
        removed[s] = count
