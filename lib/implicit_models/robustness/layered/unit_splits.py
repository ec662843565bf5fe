"""Branch and bound over the units: a unit that may be on either side of its kink is taken on each side in turn.

For a part of the box on which units i have signs s_i, s_i z_i >= 0, any functional has the lower bound

    w'y >= min ( w'y - sum_i beta_i s_i z_i ),    beta >= 0,

which is carried back as without splits (`backward`), units with a sign being their own lines. The lower slopes of the
undecided units and beta are raised by steps of the gradient; any values of them give a bound. A part is proved when
some average of the rows of its polyhedron of unsafe outputs stays above that of the right-hand sides; the weights are
raised with the rest. A part that is not proved is split at the unit after whose split, bounded without further steps,
the worse half is best, among the few that cost the bound most; one without an undecided unit is settled by a linear
programme (`decided_parts`).

Source:
    Bunel et al., Branch and bound for piecewise linear neural network verification (2020), and De Palma et al.,
    Improved branch and bound (2021), for the choice of the unit; Wang et al., beta-CROWN (2021), for the multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int8, Int64
from torch import Tensor

from implicit_models.robustness.layered.backward import Inputs, Ranges, lower_bounds
from implicit_models.robustness.layered.crown import layer_bounds
from implicit_models.robustness.layered.decided_parts import is_affine_on_parts, least_on_part, segments_of
from implicit_models.robustness.layered.input_splits import centred
from implicit_models.robustness.layered.lines import PIECEWISE, Lines, lines
from implicit_models.robustness.layered.network import LayeredNetwork, Units
from implicit_models.robustness.layered.rows import Rows
from implicit_models.robustness.layered.unit_tree import UnitTree

if TYPE_CHECKING:
    from implicit_models.robustness.problem import Problem
    from implicit_models.robustness.properties import Property

STEPS = 12  # of the gradient
RATE, BETA_RATE = 0.25, 0.2  # of slopes, and of beta as a share of the part's largest multiplier
DECAY = 0.93
CANDIDATES = 6  # units whose halves are bounded before one is chosen
PARTS_BYTES = 2**28  # of the coefficients of parts that are bounded at once
PROOF_BYTES = 2**29  # of the multipliers that are kept
PER_UNIT = ("signs", "slope", "beta")  # of parts
ROOM = 1e-9  # share of the sizes by which a part is above its right-hand side at least


@dataclass(eq=False)
class Parts:
    """Parts of the box, each with the coefficients that it inherits.

    Attributes:
        node: (M,) of the tree.
        signs: (M, n) of the units, 0 for any.
        slope, beta: (M, n) of lower lines and of signs.
        weights: (M, k) of the rows.
        bound: (M,) how far each is from proved, at least.
    """

    node: Int64[Tensor, " M"]
    signs: Int8[Tensor, "M n"]
    slope: Float[Tensor, "M n"]
    beta: Float[Tensor, "M n"]
    weights: Float[Tensor, "M k"]
    bound: Float[Tensor, " M"]

    def __len__(self) -> int:
        return len(self.node)

    def take(self, which: Tensor) -> Parts:
        """Some of them."""
        return Parts(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def joined(self, *others: Parts) -> Parts:
        """These and others."""
        return Parts(
            *(torch.cat([getattr(part, name) for part in (self, *others)]) for name in self.__dataclass_fields__)
        )


class UnitSearch:
    """The state of a search.

    Attributes:
        tree: the splits, with the proofs of the leaves.
        open: parts that are left to prove.
        points: number of parts in which no unit is undecided and which are not proved; they are no longer open.
        least: how far the one of them that is furthest from proved is from it, at least.
        most: parts that are looked at in one step, by the memory that they need.
    """

    def __init__(self, net: LayeredNetwork, task: Problem, wanted: Property) -> None:
        self.net, self.wanted = net, wanted
        self._affine = is_affine_on_parts(net)
        self.box = centred(wanted.lower[None], wanted.upper[None], net.dtype)
        with torch.no_grad():
            root = layer_bounds(net, self.box)
        self.size = {k: v.expand(1) for k, v in root.ranges.size.items()}
        self.places: list[tuple[int, Units, slice]] = []
        begin = 0
        for number in net.units():
            value = net.values[number - 1]
            assert isinstance(value, Units)
            self.places.append((number, value, slice(begin, begin := begin + value.size)))
        self.states = torch.from_numpy(np.concatenate([v.states for _, v, _ in self.places] or [np.zeros(0, np.int64)]))
        self.low = torch.cat([root.low[v.of] for _, v, _ in self.places], 1) if begin else self.box.centre[:, :0]
        self.high = torch.cat([root.high[v.of] for _, v, _ in self.places], 1) if begin else self.box.centre[:, :0]
        negative = [_negative_slopes(v) for _, v, _ in self.places]
        self.negative = torch.cat(negative).to(net.dtype) if begin else self.low[0]
        # to weigh units: what one more of a state adds to the rows that are carried back
        self.back = sp.csr_array(task.A.T)[self.states.numpy()][:, self.states.numpy()] if begin else None
        matrix, right = wanted.rows
        self.through = torch.from_numpy(np.ascontiguousarray((task.C.T @ matrix.T).T[:, self.states.numpy()])).to(
            net.dtype
        )
        self.matrix, self.right = (torch.from_numpy(v).to(net.dtype) for v in (matrix, right))
        ends = np.cumsum([0, *(len(part.b) for part in wanted.unsafe)])
        most = int(np.diff(ends).max())
        # rows of each polyhedron, the first repeated where it has fewer
        self.rows = torch.tensor([[a + (j if a + j < b else 0) for j in range(most)] for a, b in zip(ends, ends[1:])])
        self.polyhedron = torch.arange(len(wanted.unsafe))  # of each node
        self.tree, self.points = UnitTree.of(len(wanted.unsafe), most), 0
        count = len(wanted.unsafe)
        first = torch.eye(most, dtype=net.dtype)[:1].expand(count, -1)
        zeros = torch.zeros(count, begin, dtype=net.dtype)
        start = torch.where(self.high > -self.low, 1.0, self.negative).to(net.dtype).expand(count, -1).clone()
        signs = torch.zeros(count, begin, dtype=torch.int8)
        self.open = Parts(
            torch.arange(count),
            signs,
            start.nan_to_num(),
            zeros,
            first,
            torch.full((count,), -torch.inf, dtype=net.dtype),
        )
        self.least = np.inf
        # gradients keep the rows of all values, and those of each row of a polyhedron are carried back at first
        sizes = [net.size(k) for k in range(len(net.values) + 1)]
        self.most = max(1, PARTS_BYTES // (64 * max(sum(sizes), (most + 1) * max(sizes))))

    @property
    def left(self) -> int:
        """Number of open parts."""
        return len(self.open)

    @property
    def worst(self) -> float:
        """How far the part that is furthest from proved, open or not, is from it, at least."""
        return min(self.least, float(self.open.bound.min())) if len(self.open) else self.least

    @property
    def proof(self) -> UnitTree:
        """What a safe answer follows from."""
        return self.tree

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` goes on."""
        kept = self.tree.multipliers
        own = {f"open_{name}": getattr(self.open, name).numpy() for name in self.open.__dataclass_fields__}
        for name in PER_UNIT:  # by states: the same model may be read into layers in another order of its units
            own[f"open_{name}"] = own[f"open_{name}"][:, np.argsort(self.states.numpy())]
        own |= {name: getattr(self.tree, name) for name in ("unit", "children", "weights")}
        own |= {
            "polyhedron": self.polyhedron.numpy(),
            "points": np.asarray(self.points),
            "least": np.asarray(self.least),
            "lost": np.asarray(kept is None),
        }
        nodes = np.fromiter(kept or (), np.int64)
        lam = np.stack(list(kept.values())) if kept else np.zeros((0, self.low.shape[1]))
        return own | {"proved": nodes, "multipliers": lam}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from arrays of the same search."""
        of = self.states.numpy()
        own = {name: state[f"open_{name}"] for name in self.open.__dataclass_fields__}
        own |= {name: own[name][:, of] for name in PER_UNIT}
        self.open = Parts(**{name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in own.items()})
        kept = dict(zip(state["proved"].tolist(), state["multipliers"], strict=True))
        self.tree = UnitTree(state["unit"], state["children"], state["weights"], None if state["lost"] else kept)
        self.polyhedron, self.points = torch.from_numpy(state["polyhedron"]), int(state["points"])
        self.least = float(state["least"])

    def step(self, most: int) -> Float[np.ndarray, "C p"]:
        """Look at up to `most` parts: drop those that are proved and split the others. A shallow copy that was made
        before is the search before; of what it shares, only proofs of parts that it has open are written to.

        Returns:
            inputs that may break the property.
        """
        order = torch.argsort(self.open.bound, stable=True)
        parts, rest = self.open.take(order[:most]), self.open.take(order[most:])
        candidates = self._raised(parts)
        parts = parts.take(~(parts.bound > 0))
        undecided = self._undecided(parts.signs)
        free = undecided.any(1)
        candidates = np.concatenate([candidates, self._decided(parts.take(~free))])
        parts, undecided = parts.take(free), undecided[free]
        self.open = rest.joined(*self._halves(parts, undecided)) if len(parts) else rest
        return candidates

    def _ends(self, signs: Tensor) -> tuple[Tensor, Tensor]:
        zl = torch.where(signs > 0, self.low.clamp_min(0), self.low)
        return zl, torch.where(signs < 0, self.high.clamp_max(0), self.high)

    def _undecided(self, signs: Tensor) -> Tensor:
        kinked = (self.low < 0) & (self.high > 0) & ~torch.isnan(self.negative) & (self.negative != 1)
        return kinked & (signs == 0)

    def _lines(self, signs: Tensor) -> tuple[dict[int, Lines], Tensor]:
        zl, zh = self._ends(signs)
        found = {number: lines(v.activation, zl[:, at], zh[:, at], self.net.dtype) for number, v, at in self.places}
        return found, self._undecided(signs)

    def _bounds(
        self,
        base: dict[int, Lines],
        free: Tensor,
        parts: Parts,
        weights: Float[Tensor, "M m k"],
        multipliers: dict[int, Rows] | None = None,
    ) -> Float[Tensor, "M m"]:
        """How far averages of the rows of parts are above those of the right-hand sides, at least."""
        M, m = weights.shape[:2]
        own = self.rows[self.polyhedron[parts.node]]
        start = {len(self.net.values): Rows(torch.bmm(weights, self.matrix[own]))}
        shift = -(parts.beta * parts.signs).unsqueeze(1)
        found = {}
        for number, value, at in self.places:
            line = base[number]
            slope = torch.where(free[:, at], parts.slope[:, at], line.low_slope)
            found[number] = Lines(slope, line.low_at, line.high_slope, line.high_at, line.blocks)
            added = Rows(shift[..., at].expand(-1, m, -1))
            start[value.of] = start[value.of].add(added, value.size) if value.of in start else added
        ranges = Ranges({k: v.expand(M) for k, v in self.size.items()}, found)
        box = Inputs(self.box.centre.expand(M, -1), self.box.radius.expand(M, -1))
        low = lower_bounds(self.net, ranges, box, start, multipliers=multipliers, living={})
        right = (weights * self.right[own].unsqueeze(1)).sum(2)
        # rows and right-hand sides that cancel in an average have the rounding of each
        last = self.size[len(self.net.values)].expand(M)[:, None, None]
        sizes = self.right[own].abs().unsqueeze(1) + self.matrix[own].abs().sum(2).unsqueeze(1) * last
        lost = 2 * (weights.shape[2] + 2) * torch.finfo(self.net.dtype).eps * (weights * sizes).sum(2)
        return low - right - ROOM * (low.detach().abs() + right.abs()) - lost.detach()

    def _raised(self, parts: Parts) -> Float[np.ndarray, "C p"]:
        """Raise the bounds of parts in place, keeping the proofs of those that are proved.

        Returns:
            the inputs at which the linear bounds are least.
        """
        base, free = self._lines(parts.signs)
        k = parts.weights.shape[1]
        if k > 1:
            with torch.no_grad():
                each = torch.eye(k, dtype=parts.weights.dtype).expand(len(parts), -1, -1)
                tried = torch.cat([parts.weights.unsqueeze(1), each], 1)
                first = self._bounds(base, free, parts, tried).nan_to_num(-torch.inf, torch.inf, -torch.inf)
                parts.weights = tried[torch.arange(len(parts)), first.argmax(1)]
        active, candidates = torch.arange(len(parts)), []
        values = [parts.slope.clone(), parts.beta.clone(), parts.weights.clone()]
        moments = [torch.zeros_like(v) for v in (*values, *values)]
        reach = torch.ones(len(parts), 1, dtype=self.net.dtype)
        for step in range(STEPS + 1):
            for v in values:
                v.requires_grad_(True)
            now = Parts(parts.node[active], parts.signs[active], values[0], values[1], values[2], parts.bound[active])
            kept: dict[int, Rows] = {}
            lines_now = {number: line.take(active) for number, line in base.items()}
            value = self._bounds(lines_now, free[active], now, values[2].unsqueeze(1), kept)[:, 0]
            with torch.no_grad():
                parts.bound[active] = torch.fmax(parts.bound[active], value)
                if 0 in kept and step in (0, STEPS):
                    sign = torch.where(kept[0].full(self.net.p)[:, 0] > 0, -1.0, 1.0)
                    candidates.append(self.box.centre + sign * self.box.radius)
                if step == 0:
                    reach = self._multipliers(now, kept).abs().amax(1, keepdim=True)
                proved = value > 0
                if proved.any():
                    self._keep(now, kept, proved)
            if step == STEPS or bool(proved.all()):
                break
            gradients = torch.autograd.grad(value.sum(), values, allow_unused=True)
            with torch.no_grad():
                rates = (RATE, BETA_RATE * reach, RATE if k > 1 else 0.0)
                _ascend(values, gradients, moments, [rate * DECAY**step for rate in rates], step)
                values[0].clamp_(self.negative.nan_to_num().expand_as(values[0]), torch.ones_like(values[0]))
                values[1].clamp_min_(0)
                values[2].clamp_min_(1e-6)
                values[2] /= values[2].sum(1, keepdim=True)
                parts.slope[active], parts.beta[active], parts.weights[active] = values
                still = ~proved
                values, moments = [v[still].detach() for v in values], [v[still] for v in moments]
                active, reach = active[still], reach[still]
        found = torch.cat(candidates) if candidates else self.box.centre[:0]
        return found.detach().double().numpy()

    def _decided(self, parts: Parts) -> Float[np.ndarray, "C p"]:
        """Prove parts without an undecided unit by the linear programme of each, or find an input that may break the
        property; they are counted where neither is possible."""
        found = []
        for i in range(len(parts)):
            part = parts.take(torch.tensor([i]))
            base, free = self._lines(part.signs)
            slopes = torch.cat([base[number].low_slope[0] for number, _, _ in self.places])
            own = self.rows[self.polyhedron[part.node[0]]]
            ends = self.matrix[own].double().numpy(), self.right[own].double().numpy()
            least = least_on_part(self.net, self.box, part.signs[0], slopes, *ends) if self._affine else None
            if least is not None:
                part.weights = torch.from_numpy(least.weights).to(self.net.dtype)[None]
                part.beta = torch.from_numpy(least.beta).to(self.net.dtype)[None]
                kept: dict[int, Rows] = {}
                with torch.no_grad():
                    value = self._bounds(base, free, part, part.weights.unsqueeze(1), kept)[:, 0]
                if bool(value > 0):
                    self._keep(part, kept, torch.ones(1, dtype=torch.bool))
                    continue
                if least.input is not None:
                    found.append(least.input)
            self.points += 1
            self.least = min(self.least, float(part.bound.nan_to_num(-torch.inf)))
        return np.stack(found) if found else np.zeros((0, self.net.p))

    def _keep(self, parts: Parts, kept: dict[int, Rows], which: Tensor) -> None:
        """Keep the multipliers of parts that are proved."""
        node = parts.node[which].numpy()
        self.tree.weights[node] = parts.weights[which].numpy()
        if self.tree.multipliers is None:
            return
        own = self._multipliers(parts, kept)[which].double()
        out = torch.zeros_like(own)
        out[:, self.states] = own
        if (len(self.tree.multipliers) + len(out)) * out.shape[1] * 8 > PROOF_BYTES:
            self.tree.multipliers = None
            return
        self.tree.multipliers.update(zip(node.tolist(), out.numpy(), strict=True))

    def _multipliers(self, parts: Parts, kept: dict[int, Rows]) -> Float[Tensor, "M n"]:
        """Coefficients of all pre-activations, those of signs included, in the order of the layers."""
        out = -(parts.beta * parts.signs).detach().clone()
        for number, value, at in self.places:
            if number in kept:
                out[:, at] += kept[number].full(value.size)[:, 0].detach()
        return out

    def _halves(self, parts: Parts, undecided: Tensor) -> list[Parts]:
        """Both halves of each part, split at the unit that promises most."""
        with torch.no_grad():
            kept: dict[int, Rows] = {}
            base, free = self._lines(parts.signs)
            self._bounds(base, free, parts, parts.weights.unsqueeze(1), kept)
            own = self.rows[self.polyhedron[parts.node]]
            weight = torch.bmm(parts.weights.unsqueeze(1), self.through[own])[:, 0] + torch.from_numpy(
                np.ascontiguousarray((self.back @ self._multipliers(parts, kept).numpy().T).T)
            )
            zl, zh, slope = self.low, self.high, parts.slope
            width = torch.where(undecided, zh - zl, 1.0)
            chord = weight.clamp_max(0) * (zl * zh * (1 - self.negative.nan_to_num()) / width)
            below = weight.clamp_min(0) * torch.minimum((slope - self.negative) * -zl, (1 - slope) * zh)
            score = torch.where(undecided, torch.maximum(chord, below), -1.0)
            count = min(CANDIDATES, score.shape[1])
            top = score.topk(count, dim=1)
            tried = [self._tried(parts, top.indices[:, j]) for j in range(count)]
            ends = torch.stack([torch.stack(pair, 1) for pair in tried], 1)  # (M, candidates, 2)
            worth = ends.amin(2).clamp_max(0) + 1e-3 * ends.amax(2).clamp_max(0)
            worth = torch.where(top.values >= 0, worth, -torch.inf).nan_to_num(-torch.inf)
            choice = worth.argmax(1, keepdim=True)
            place = top.indices.gather(1, choice)
        self.tree, nodes = self.tree.split(parts.node.numpy(), self.states[place[:, 0]].numpy())
        whose = self.polyhedron[parts.node]
        self.polyhedron = torch.cat([self.polyhedron, whose.repeat_interleave(2)])
        out = []
        for side, sign in ((0, -1), (1, 1)):
            child = parts.take(torch.arange(len(parts)))
            child.node = torch.from_numpy(nodes[:, side].copy())
            child.signs = parts.signs.scatter(1, place, torch.full_like(place, sign, dtype=torch.int8))
            better = ends.gather(1, choice.unsqueeze(2).expand(-1, 1, 2))[:, 0, side]
            child.bound = torch.fmax(parts.bound, torch.where(better > 0, parts.bound, better))
            out.append(child)
        return out

    def _tried(self, parts: Parts, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of both halves of each part, without further steps."""
        out = []
        for sign in (-1, 1):
            signs = parts.signs.scatter(1, unit.unsqueeze(1), torch.full((len(unit), 1), sign, dtype=torch.int8))
            child = Parts(parts.node, signs, parts.slope, parts.beta, parts.weights, parts.bound)
            out.append(self._bounds(*self._lines(signs), child, parts.weights.unsqueeze(1))[:, 0])
        return out[0], out[1]


def _ascend(
    values: list[Tensor], gradients: Sequence[Tensor | None], moments: list[Tensor], rates: list, step: int
) -> None:
    """A step of Adam upwards for each of the values; moments: the first ones, then the second ones."""
    for j, (v, gradient, rate) in enumerate(zip(values, gradients, rates, strict=True)):
        if gradient is None:
            continue
        first, second = moments[j], moments[j + len(values)]
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        v += rate * (first / (1 - 0.9 ** (step + 1))) / ((second / (1 - 0.99 ** (step + 1))).sqrt() + 1e-12)


def can_split(net: LayeredNetwork) -> bool:
    """Whether some unit has a kink."""
    return any(s.name in PIECEWISE and s.slope != 1 for s in segments_of(net))


def _negative_slopes(value: Units) -> Tensor:
    """(m,) slope of each unit below its kink; NaN for maps that are not split."""
    out = torch.full((value.size,), torch.nan, dtype=torch.float64)
    for s in value.activation.segments:
        if s.name in PIECEWISE:
            out[s.start : s.stop] = s.slope
    return out
