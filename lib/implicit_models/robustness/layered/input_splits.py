"""Branch and bound over the inputs: boxes are halved until each is proved, or an input is found that is unsafe.

A box is proved when each polyhedron of unsafe outputs has a row that stays above its right-hand side. Boxes that are
not are halved along the input whose width, times its coefficient in the bound, is largest; those furthest from proved
come first, in batches. Bounds of thousands of boxes are one product, which pays where the inputs are few.

Source:
    Bunel et al., Branch and bound for piecewise linear neural network verification (2020); Wang et al., Formal security
    analysis of neural networks using symbolic intervals (2018), for the choice of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from implicit_models.robustness.layered.backward import Inputs, lower_bounds
from implicit_models.robustness.layered.crown import layer_bounds
from implicit_models.robustness.layered.network import LayeredNetwork
from implicit_models.robustness.layered.rows import Rows

LEAST_EFFECT = 0.02

if TYPE_CHECKING:
    from implicit_models.robustness.properties import Property


@dataclass(eq=False)
class SplitTree:
    """How a box was halved: node 0 is the whole, the halves of node i are children[i], below and above at[i].

    Attributes:
        axis: (M,) input along which a node is halved, -1 for one that is not.
        at: (M,) where.
        children: (M, 2) numbers of its halves, -1 for none.
    """

    axis: Int64[np.ndarray, " M"] = field(default_factory=lambda: np.full(1, -1))
    at: Float[np.ndarray, " M"] = field(default_factory=lambda: np.zeros(1))
    children: Int64[np.ndarray, "M 2"] = field(default_factory=lambda: np.full((1, 2), -1))

    def split(self, nodes: Int64[np.ndarray, " k"], axis: np.ndarray, at: np.ndarray) -> Int64[np.ndarray, "k 2"]:
        """Halve nodes; the numbers of their halves."""
        first, k = len(self.axis), len(nodes)
        self.axis[nodes], self.at[nodes] = axis, at
        self.children[nodes] = first + np.arange(2 * k).reshape(k, 2)
        self.axis = np.concatenate([self.axis, np.full(2 * k, -1)])
        self.at = np.concatenate([self.at, np.zeros(2 * k)])
        self.children = np.concatenate([self.children, np.full((2 * k, 2), -1)])
        return self.children[nodes]

    def leaves(
        self, lower: Float[np.ndarray, " p"], upper: Float[np.ndarray, " p"]
    ) -> tuple[Float[np.ndarray, "L p"], Float[np.ndarray, "L p"]]:
        """Ends of all boxes that are not halved; together they cover the whole.

        Raises:
            ValueError: for a tree that is none, or a node that is halved outside itself.
        """
        seen, nodes = 1, np.zeros(1, np.int64)
        lows, highs, out = lower[None].copy(), upper[None].copy(), []
        while nodes.size:
            whole = self.axis[nodes] < 0
            out.append((lows[whole], highs[whole]))
            nodes, lows, highs = nodes[~whole], lows[~whole], highs[~whole]
            rows, axis, at = np.arange(len(nodes)), self.axis[nodes], self.at[nodes]
            if not ((lows[rows, axis] <= at) & (at <= highs[rows, axis])).all():
                raise ValueError("a box is halved outside itself")
            below, above = highs.copy(), lows.copy()
            below[rows, axis] = above[rows, axis] = at
            nodes = self.children[nodes].T.reshape(-1)
            lows, highs = np.concatenate([lows, above]), np.concatenate([below, highs])
            seen += len(nodes)
            if seen > len(self.axis) or np.any(nodes <= 0):
                raise ValueError("the nodes are not a tree")
        return tuple(np.concatenate([part[k] for part in out]) for k in range(2))  # type: ignore[return-value]


def centred(lower: Float[np.ndarray, "N p"], upper: Float[np.ndarray, "N p"], dtype: torch.dtype) -> Inputs:
    """Boxes as centre and radius that hold them, rounding included."""
    centre = torch.from_numpy(0.5 * (lower + upper)).to(dtype)
    wide = np.maximum(upper - centre.double().numpy(), centre.double().numpy() - lower)
    return Inputs(centre, torch.from_numpy(np.nextafter(wide, np.inf) * (1 + 4e-16)).to(dtype) if wide.size else centre)


Known = tuple[Float[Tensor, "N n"], Float[Tensor, "N n"]]


def row_bounds(
    net: LayeredNetwork, boxes: Inputs, matrix: Float[np.ndarray, "k q"], known: Known
) -> tuple[Float[Tensor, "N k"], Float[Tensor, "N k p"], Known]:
    """Lower bounds of rows of the outputs over boxes, the coefficients of the inputs in them, and the bounds of all
    pre-activations, within those that are known."""
    N, last = len(boxes.centre), len(net.values)
    found = layer_bounds(net, boxes, known=known)
    rows = Rows(torch.from_numpy(matrix).to(net.dtype).expand(N, -1, -1))
    back: dict[int, Rows] = {}
    low = lower_bounds(net, found.ranges, boxes, {last: rows}, multipliers=back)
    layers = [net.values[k - 1].of for k in net.units()]  # type: ignore[union-attr]
    inner = torch.cat([found.low[k] for k in layers], dim=1), torch.cat([found.high[k] for k in layers], dim=1)
    slopes = back[0].full(net.p) if 0 in back else low.new_zeros(*low.shape, net.p)
    return low, slopes, inner


@dataclass(eq=False)
class InputSearch:
    """The state of a search: what is left to prove, and how the whole was halved.

    Attributes:
        net: the layers.
        wanted: the property.
        nodes: (M,) open nodes of the tree.
        lower, upper: (M, p) their boxes.
        bound: (M,) how far each is from proved, at least; -inf before it was looked at.
        inner: (M, n) bounds of all pre-activations, from the box that each is a half of.
        points: number of boxes that are neither proved nor large enough to be halved; they are no longer open.
    """

    net: LayeredNetwork
    wanted: Property
    tree: SplitTree
    nodes: Int64[np.ndarray, " M"]
    lower: Float[np.ndarray, "M p"]
    upper: Float[np.ndarray, "M p"]
    bound: Float[np.ndarray, " M"]
    inner: Known
    points: int = 0

    @classmethod
    def of(cls, net: LayeredNetwork, wanted: Property) -> InputSearch:
        """A search that has not begun."""
        whole = wanted.lower[None].copy(), wanted.upper[None].copy()
        inner = torch.full((1, net.n), -torch.inf, dtype=torch.float64)
        return cls(net, wanted, SplitTree(), np.zeros(1, np.int64), *whole, np.full(1, -np.inf), (inner, -inner))

    @property
    def left(self) -> int:
        """Number of open boxes."""
        return len(self.nodes)

    @property
    def worst(self) -> float:
        """How far the open box that is furthest from proved is from it, at least."""
        return float(self.bound.min(initial=np.inf))

    @property
    def proof(self) -> SplitTree:
        """What a safe answer follows from."""
        return self.tree

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` goes on."""
        own = {name: getattr(self, name) for name in ("nodes", "lower", "upper", "bound")}
        tree = {name: getattr(self.tree, name) for name in ("axis", "at", "children")}
        return own | tree | {"points": np.asarray(self.points)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from arrays of the same search; bounds of pre-activations are found again."""
        self.points = int(state["points"])
        self.tree = SplitTree(state["axis"], state["at"], state["children"])
        self.nodes, self.lower, self.upper, self.bound = (state[k] for k in ("nodes", "lower", "upper", "bound"))
        inner = torch.full((len(self.nodes), self.net.n), -torch.inf, dtype=torch.float64)
        self.inner = inner, -inner

    def step(self, most: int) -> Float[np.ndarray, "C p"]:
        """Look at up to `most` boxes: drop those that are proved and halve the others.

        Returns:
            inputs that may break the property.
        """
        order = np.argsort(self.bound, kind="stable")
        chosen, rest = order[:most], order[most:]
        lower, upper, nodes = self.lower[chosen], self.upper[chosen], self.nodes[chosen]
        boxes = centred(lower, upper, self.net.dtype)
        matrix, right = self.wanted.rows
        with torch.no_grad():
            low, slopes, inner = row_bounds(self.net, boxes, matrix, (self.inner[0][chosen], self.inner[1][chosen]))
        gap = (low.double().numpy() - right) * (1 - 4e-16)
        slack, row = row_slack(self.wanted, gap)
        open_ = ~(slack > 0)
        slope = slopes.double().numpy()
        lower, upper, nodes, slope, row = (v[open_] for v in (lower, upper, nodes, slope, row))
        # an input whose effects cancel in the bound may still bend it: none counts as less than a share of the largest
        effect = np.abs(slope).max(axis=1)
        effect = np.maximum(effect, LEAST_EFFECT * effect.max(axis=1, keepdims=True) + 1e-300)
        axis = np.argmax((upper - lower) * effect, axis=1)
        slope = slope[np.arange(len(row)), row]
        corners = np.where(slope > 0, lower, upper)
        candidates = np.concatenate([0.5 * (lower + upper), corners])
        each = np.arange(len(axis))
        at = (0.5 * lower + 0.5 * upper)[each, axis]
        wide = (lower[each, axis] < at) & (at < upper[each, axis])
        self.points += int((~wide).sum())
        open_[open_] = wide
        lower, upper, nodes, axis, at = (v[wide] for v in (lower, upper, nodes, axis, at))
        halves = self.tree.split(nodes, axis, at)
        below, above = upper.copy(), lower.copy()
        below[np.arange(len(axis)), axis] = above[np.arange(len(axis)), axis] = at
        self.nodes = np.concatenate([self.nodes[rest], halves[:, 0], halves[:, 1]])
        self.lower = np.concatenate([self.lower[rest], lower, above])
        self.upper = np.concatenate([self.upper[rest], below, upper])
        self.bound = np.concatenate([self.bound[rest], slack[open_], slack[open_]])
        still = torch.from_numpy(open_)
        low, high = (torch.cat([v[rest], w[still], w[still]]) for v, w in zip(self.inner, inner, strict=True))
        self.inner = low, high
        return candidates


def row_slack(
    wanted: Property, gap: Float[np.ndarray, "N k"]
) -> tuple[Float[np.ndarray, " N"], Int64[np.ndarray, " N"]]:
    """The smallest over the polyhedra of the largest gap of their rows, and that row: positive proves a box. NaN proves
    nothing."""
    gap = np.where(np.isnan(gap), -np.inf, gap)
    best, rows, start = [], [], 0
    for part in wanted.unsafe:
        stop = start + len(part.b)
        best.append(gap[:, start:stop].max(axis=1))
        rows.append(start + gap[:, start:stop].argmax(axis=1))
        start = stop
    which = np.argmin(best, axis=0)
    samples = np.arange(len(gap))
    return np.stack(best)[which, samples], np.stack(rows)[which, samples]
