"""Functionals of a value, carried back to the inputs through the lines of the units: lower bounds.

For a row w of coefficients of one value, w'v is taken apart from the last value to the first,

    affine v = L a + c:    w'v = (w L)'a + w'c
    units x = phi(z):      w'x >= (w+ low_slope + w- high_slope)'z + w+'low_at + w-'high_at,

until only the input is left, whose least value over the set is known. The coefficients of z are multipliers of weak
duality, any of which give a bound: what `check` proves them by.

Rounding: a product w L is off by a share of |w||L|, so that the bound is off by a share of |w|'(|L| |a|) at most. The
magnitudes |a| come with the ranges of the values, row sums of |L| from the operators; every bound is lowered by them.

Source:
    Zhang et al., CROWN (2018); Tsai thesis (2024), section 4.2.3, for the dual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.robustness.layered.lines import Lines
from implicit_models.robustness.layered.network import Affine, LayeredNetwork, Units
from implicit_models.robustness.layered.rows import Alive, Rows, alive, carried
from implicit_models.robustness.layered.windows import Windows


@dataclass(eq=False)
class Inputs:
    """The set of every sample in the precision of the network: |u - centre| <= radius, `card` entries at once."""

    centre: Float[Tensor, "N p"]
    radius: Float[Tensor, "N p"]
    card: int | None = None

    def take(self, samples: Tensor) -> Inputs:
        """The sets of some samples."""
        return Inputs(self.centre[samples], self.radius[samples], self.card)


@dataclass(eq=False)
class Ranges:
    """What is known of every value of every sample.

    Attributes:
        size: number of a value -> (N,) largest magnitude of its entries, rounded up; the input is 0.
        lines: number of an activation -> its lines.
    """

    size: dict[int, Float[Tensor, " N"]] = field(default_factory=dict)
    lines: dict[int, Lines] = field(default_factory=dict)

    def take(self, samples: Tensor) -> Ranges:
        """The same for some of the samples."""
        return Ranges(
            {k: v[samples] for k, v in self.size.items()}, {k: v.take(samples) for k, v in self.lines.items()}
        )

    def alive(self, net: LayeredNetwork) -> dict[int, Alive | None]:
        """Number of an activation that a dense layer reads -> the entries of it that matter."""
        return {k: alive(v) for k, v in self.lines.items() if k in net.read_by_dense}


def lower_bounds(
    net: LayeredNetwork,
    ranges: Ranges,
    inputs: Inputs,
    start: Mapping[int, Rows],
    constant: Float[Tensor, "N m"] | None = None,
    multipliers: dict[int, Rows] | None = None,
    living: Mapping[int, Alive | None] | None = None,
    boxes: Mapping[int, tuple[Tensor, Tensor]] | None = None,
) -> Float[Tensor, "N m"]:
    """Lower bounds of functionals over the sets of all samples.

    Args:
        net: the network.
        ranges: sizes of all values that the functionals read, and lines of the units among them.
        inputs: the sets.
        start: number of a value -> coefficients of the functionals.
        constant: added to each functional.
        multipliers: takes, for the number of each activation, the coefficients of its pre-activations, and for 0 those
            of the input.
        living: `ranges.alive(net)`, where it is known.
        boxes: number of a value -> centre and radius (N, k) of a box in which it lies, beyond which rows are not
            carried back.

    Returns:
        The bounds, rounding deducted; NaN for samples that are not finite.
    """
    living = ranges.alive(net) if living is None else living
    pending: dict[int, Rows] = dict(start)
    N, m = next(iter(start.values())).entries.shape[:2]
    bound = inputs.centre.new_zeros(N, m) if constant is None else constant.clone()
    loss = torch.zeros_like(bound)
    u = 0.5 * torch.finfo(net.dtype).eps
    boxes = boxes or {}
    for number in range(max(pending), 0, -1):
        if number not in pending:
            continue
        rows = pending.pop(number)
        if number in boxes:
            _over_box(net, Inputs(*boxes[number]), rows, ranges.size[number], bound, loss)
            continue
        value = net.values[number - 1]
        if isinstance(value, Affine):
            _through_affine(net, ranges, living, number, value, rows, pending, bound, loss)
            continue
        rows = _through_units(net, value, ranges, living.get(number), number, rows, bound, loss)
        if multipliers is not None:
            multipliers[number] = rows
        pending[value.of] = pending[value.of].add(rows, value.size) if value.of in pending else rows
    if 0 in pending:
        _over_box(net, inputs, pending[0], ranges.size[0], bound, loss)
        if multipliers is not None:
            multipliers[0] = pending[0]
    # what is left is the rounding of sums of magnitudes, and of a few terms
    return bound - loss * (1 + 64 * u) - 16 * u * bound.abs()


def _over_box(net: LayeredNetwork, box: Inputs, rows: Rows, size: Tensor, bound: Tensor, loss: Tensor) -> None:
    """Add the least w'v over the box to the bound, and the sizes of its terms to what rounding may take."""
    k = box.centre.shape[1]
    bound += rows.times(box.centre)
    if box.card is None or box.card >= k:
        bound -= rows.times(box.radius, sizes=True)
    else:
        moved = rows.full(k).abs() * box.radius.unsqueeze(1)
        bound -= moved.topk(box.card, dim=2).values.sum(2)
    u = 0.5 * torch.finfo(net.dtype).eps
    loss += max(net.rounding, (k + 8) * u) * _sum_of_sizes(rows.entries) * size.unsqueeze(1)


def _sum_of_sizes(entries: Tensor) -> Tensor:
    return torch.linalg.vector_norm(entries, ord=1, dim=2)


def _through_affine(
    net: LayeredNetwork,
    ranges: Ranges,
    living: Mapping[int, Alive | None],
    number: int,
    value: Affine,
    rows: Rows,
    pending: dict[int, Rows],
    bound: Tensor,
    loss: Tensor,
) -> None:
    bound += rows.times(value.bias)
    # sizes of the constant's and of each operator's terms, and of the value itself, whose units had their slopes
    magnitude = value.bias.abs() + ranges.size[number].unsqueeze(1)
    for earlier, L in value.parts:
        back = rows if L is None else carried(L, rows, living.get(earlier))
        pending[earlier] = pending[earlier].add(back, net.size(earlier)) if earlier in pending else back
        reach = ranges.size[earlier].unsqueeze(1)
        magnitude = magnitude + (reach if L is None else L.row_sums * reach)
    loss += net.share(value) * rows.times(magnitude, sizes=True)


def _through_units(
    net: LayeredNetwork,
    value: Units,
    ranges: Ranges,
    living: Alive | None,
    number: int,
    rows: Rows,
    bound: Tensor,
    loss: Tensor,
) -> Rows:
    line, head, row = ranges.lines[number], None, rows.entries
    if isinstance(rows.at, Windows) and not line.blocks:
        line = line.each(rows.at.gather)
        positive, negative = row.clamp_min(0), row.clamp_max(0)
        bound += (positive * line.low_at + negative * line.high_at).sum(2)
    else:
        if living is not None and rows.at is living.columns:
            line, head, row = living.rest, row[..., : living.plain], row[..., living.plain :]
        else:
            rows = Rows(spread_blocks(value.activation, rows.full(value.size)))
            row = rows.entries
        positive, negative = row.clamp_min(0), row.clamp_max(0)
        for part, at in ((positive, line.low_at), (negative, line.high_at)):
            bound += torch.bmm(part, at.unsqueeze(2))[..., 0]
        line = line.each(lambda v: v.unsqueeze(1))
    # sums with intercepts, which are no larger than the pre-activations, and the slopes' own rounding
    room = (value.size + 8) * 0.5 * torch.finfo(net.dtype).eps
    loss += room * 2 * _sum_of_sizes(row) * ranges.size[value.of].unsqueeze(1)
    row = positive * line.low_slope + negative * line.high_slope
    return Rows(row if head is None else torch.cat([head, row], dim=2), rows.at)


def spread_blocks(activation: Activation, row: Tensor) -> Tensor:
    """The coefficient of a maximum stands at the first state of its block; its line may read any entry of the block."""
    blocks = [s for s in activation.segments if s.name == "max_pool"]
    if not blocks:
        return row
    row = row.clone()
    for s in blocks:
        part = row[..., s.start : s.stop].unflatten(-1, (-1, s.block))
        row[..., s.start : s.stop] = part[..., :1].expand_as(part).flatten(-2)
    return row
