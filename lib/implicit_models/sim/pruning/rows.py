"""The rows of one layer: elimination, exchanges, certificates and refits, in units of the pre-activation.

With moments G, e of a layer (see `moments`) and its own rows w_0 = f w, a row minimises

    E (w'x - z)^2 + ridge ||w - w_0||^2 = w'H w - 2 c'w + constant,    H = G + ridge I, c = H w_0 + e,

over the weights that it is left with. The network itself is the answer where nothing is removed and the inputs are its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.sim.pruning.layers import Layer
from implicit_models.sim.pruning.moments import Moments
from implicit_models.sim.solvers.best_subset.backward import backward_elimination, cheapest, kept_columns, minimisers
from implicit_models.sim.solvers.best_subset.backward import objective as half
from implicit_models.sim.solvers.best_subset.bound import least_rise
from implicit_models.sim.solvers.best_subset.exchange import exchange
from implicit_models.sim.solvers.best_subset.one_sided import Samples, one_sided_rows


@dataclass(frozen=True)
class Rows:
    """What the rows of a layer solve. H (g, d, d), C, own (r, d): see the module; ridge (g,)."""

    H: Float[np.ndarray, "g d d"]
    C: Float[np.ndarray, "r d"]
    own: Float[np.ndarray, "r d"]
    ridge: Float[np.ndarray, " g"]
    moments: Moments

    @property
    def runs(self) -> list[slice]:
        """The rows of each group."""
        each = len(self.C) // len(self.H)
        return [slice(k * each, (k + 1) * each) for k in range(len(self.H))]

    @property
    def dead(self) -> Bool[np.ndarray, "r d"]:
        """Columns of each row that do not vary. They cost nothing, and where they stay their weights are the network's
        own."""
        return np.repeat(self.moments.dead, len(self.C) // len(self.H), axis=0)

    def curves(self) -> tuple[Int[np.ndarray, "r d"], Float[np.ndarray, "r d"]]:
        """Columns of every row in the order of their removal, and the rise of the mean square at each."""
        parts = [backward_elimination(H, self.C[run]) for H, run in zip(self.H, self.runs, strict=True)]
        order, rise = (np.concatenate(each) for each in zip(*parts, strict=True))
        return order, 2 * rise

    def exchanged(self, kept: Bool[np.ndarray, "r d"], most: int) -> tuple[Bool[np.ndarray, "r d"], int]:
        """Supports of the same sizes that are no worse, and the number of exchanges."""
        parts = [exchange(H / 2, self.C[run] / 2, kept[run], most) for H, run in zip(self.H, self.runs, strict=True)]
        return np.concatenate([part for part, _ in parts]), sum(done for _, done in parts)

    def least_squares(self, kept: Bool[np.ndarray, "r d"]) -> Float[np.ndarray, "r d"]:
        parts = [minimisers(H, self.C[run], kept[run]) for H, run in zip(self.H, self.runs, strict=True)]
        return self._with_dead(np.concatenate(parts), kept)

    def _with_dead(self, W: Float[np.ndarray, "r d"], kept: Bool[np.ndarray, "r d"]) -> Float[np.ndarray, "r d"]:
        return np.where(self.dead & kept, self.own, W)

    def one_sided(
        self, kept: Bool[np.ndarray, "r d"], start: Float[np.ndarray, "r d"], drawn: Sequence[Samples], closed: float
    ) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, " r"]]:
        """Weights, and the changes of the biases."""
        parts = [
            one_sided_rows(H, self.C[run], kept[run], start[run], given, closed, float(ridge), self.own[run])
            for H, run, given, ridge in zip(self.H, self.runs, drawn, self.ridge, strict=True)
        ]
        weights, shifts = zip(*parts, strict=True)
        return self._with_dead(np.concatenate(weights), kept), np.concatenate(shifts)

    @property
    def _plain(self) -> Float[np.ndarray, "r d"]:
        """Means of columns and targets, c less the ridge."""
        ridge = np.repeat(self.ridge, len(self.C) // len(self.H))[:, None]
        return self.C - ridge * np.where(self.dead, 0.0, self.own)

    def bias(self, W: Float[np.ndarray, "r d"]) -> Float[np.ndarray, " r"]:
        """What brings the mean of each row to that of its target."""
        mean = np.repeat(self.moments.mean, len(W) // len(self.H), axis=0)
        return self.moments.mean_z - np.einsum("ij,ij->i", W, mean)

    def certificate(self, kept: Bool[np.ndarray, "r d"], W: Float[np.ndarray, "r d"]) -> dict[str, np.ndarray]:
        """What is proved of supports and of the least squares W on them, each (r,).

        loss: mean square over that of the target, W's own. rise: of the problem's minimum from that on all columns,
        computed from W alone, 0 where it is rounding. bound: what it is at least for any support of the size. slope:
        largest derivative on the support, over the largest correlation, 0 at the minimum.
        """
        rise, bound, loss, slope = (np.empty(len(W)) for _ in range(4))
        kept, W = kept & ~self.dead, np.where(self.dead, 0.0, W)
        for H, G, run in zip(self.H, self.moments.G, self.runs, strict=True):
            w, c, own = W[run], self.C[run], kept[run]
            best = np.linalg.solve(H, c.T).T
            above = half(H, c, w) - half(H, c, best)
            # the sums of both, of the sizes of their terms, are known to this
            terms = -half(-np.abs(H), np.abs(c), np.abs(w)) - half(-np.abs(H), np.abs(c), np.abs(best))
            seen = above > H.shape[0] * np.finfo(float).eps * terms
            rise[run] = np.where(seen, 2 * above, 0.0)
            bound[run] = np.where(seen, 2 * least_rise(H, c, own.sum(axis=1)), 0.0)
            loss[run] = self.moments.zz[run] + 2 * half(G, self._plain[run], w)
            largest = np.abs(c).max(axis=1, initial=0.0)
            slope[run] = np.abs(np.where(own, c - w @ H, 0.0)).max(axis=1) / np.where(largest > 0, largest, 1.0)
        zz = self.moments.zz
        loss = np.maximum(np.where(zz > 0, loss / np.where(zz > 0, zz, 1.0), 0.0), 0.0)
        return {"loss": loss, "rise": rise, "bound": bound, "slope": slope}


def rows_of(layer: Layer, found: Moments, ridge: float) -> Rows:
    """The problem of a layer's rows; ridge: relative to the mean square of its columns that vary."""
    g, r, d = layer.groups, layer.rows, layer.columns
    own = np.where(np.repeat(found.dead, r // g, axis=0), 0.0, layer.rows_before())
    square = np.einsum("gjj->gj", found.G)
    varying = np.maximum((~found.dead).sum(axis=1), 1)
    pull = ridge * square.sum(axis=1) / varying
    pull = np.where(pull > 0, pull, 1.0)
    H = found.G + pull[:, None, None] * np.eye(d)
    C = np.concatenate([part @ M for part, M in zip(np.split(own, g), H, strict=True)]) + found.E
    return Rows(H, C, layer.rows_before(), pull, found)


def supports(curves: tuple[np.ndarray, np.ndarray], effect: Float[np.ndarray, " r"], left: int) -> np.ndarray:
    """Columns that the rows of a layer keep, (r, d), where it keeps `left` in all: the cheapest removals, each row's
    by its effect."""
    order, rise = curves
    return kept_columns(order, cheapest(rise * effect[:, None], order.size - left))
