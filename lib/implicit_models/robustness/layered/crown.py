"""Bounds of a layered model, layer by layer: intervals first, then the units that an interval leaves undecided.

For each layer in order, the pre-activations of units whose range holds a kink, or that are not piecewise linear, are
bounded from below and above by functionals carried back to the input through the layers before, whose lines come from
bounds that are as tight already. One pass over the layers does what refining all at once needs as many passes for as
there are layers. Samples are treated together; a sample's rows are those of its own undecided units.

Source:
    Zhang et al., CROWN (2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.robustness.layered.backward import Inputs, Ranges, lower_bounds
from implicit_models.robustness.layered.lines import IMAGE_ERROR, PIECEWISE, lines
from implicit_models.robustness.layered.network import Affine, LayeredNetwork, Units
from implicit_models.robustness.layered.operators import Dense, one_hot
from implicit_models.robustness.layered.rows import Alive, Rows, looked_up
from implicit_models.robustness.layered.windows import single

CHUNK_BYTES = 2**27  # of coefficients of one layer
TINY = 1e-300  # values of a sigmoid that underflow
EXACT = ("relu", "identity", "max_pool")  # maps without rounding
HOPS = 2  # layers that rows are first carried back


@dataclass(eq=False)
class LayerRows:
    """Multipliers that prove bounds of one layer's pre-activations.

    Attributes:
        number: of the activation.
        sample, unit: (N,) and (N, m), what each row bounds.
        side: -1 for lower bounds, 1 for upper ones, which are those of the negative.
        multipliers: number of an earlier activation -> rows.
    """

    number: int
    sample: Tensor
    unit: Tensor
    side: int
    multipliers: dict[int, Rows]


@dataclass(eq=False)
class LayerBounds:
    """Bounds of all values of all samples, in float64 where they are those of units.

    Attributes:
        low, high: number of an affine value -> (N, m) bounds, the last ones those of the outputs.
        image: number of an activation -> (N, m) bounds of its values.
        ranges: what `backward` needs of them.
        rows: what proves those of each layer, where it is kept.
    """

    low: dict[int, Float[Tensor, "N m"]] = field(default_factory=dict)
    high: dict[int, Float[Tensor, "N m"]] = field(default_factory=dict)
    image: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=Ranges)
    rows: list[LayerRows] = field(default_factory=list)


def layer_bounds(
    net: LayeredNetwork,
    inputs: Inputs,
    *,
    refine: bool = True,
    keep: bool = False,
    known: tuple[Float[Tensor, "N n"], Float[Tensor, "N n"]] | None = None,
) -> LayerBounds:
    """Bounds of every value of a layered model.

    Args:
        net: the model.
        inputs: a set for each sample.
        refine: carry undecided units back to the input; else intervals alone.
        keep: keep the multipliers.
        known: bounds of all pre-activations, layer after layer, that are proved already, as by those of a larger set.

    Returns:
        Bounds with their rounding deducted; NaN for samples that are not finite.
    """
    found = LayerBounds()
    centre, radius = inputs.centre.double(), inputs.radius.double()
    ends: dict[int, tuple[Tensor, Tensor]] = {0: (centre - radius, centre + radius)}
    found.ranges.size[0] = _size(net, centre.abs() + radius)
    begin = 0
    for number, value in enumerate(net.values, 1):
        if isinstance(value, Affine):
            low, high = _affine_interval(net, value, ends, found.ranges, inputs)
            found.low[number], found.high[number] = ends[number] = low, high
            found.ranges.size[number] = _size(net, torch.maximum(low.abs(), high.abs()))
        else:
            low, high = ends[value.of]
            if known is not None:
                at = slice(begin, begin := begin + value.size)
                low, high = torch.fmax(low, known[0][:, at]), torch.fmin(high, known[1][:, at])
                found.low[value.of], found.high[value.of] = ends[value.of] = low, high
            if refine:
                low, high = _refined(net, value, number, low, high, found, inputs, keep)
                found.low[value.of], found.high[value.of] = ends[value.of] = low, high
                found.ranges.size[value.of] = _size(net, torch.maximum(low.abs(), high.abs()))
                found.ranges.lines[number] = lines(value.activation, low, high, net.dtype)
            found.image[number] = ends[number] = _image(value, low, high)
            found.ranges.size[number] = _size(net, torch.maximum(*(v.abs() for v in ends[number])))
    return found


def _size(net: LayeredNetwork, magnitude: Tensor) -> Tensor:
    """(N,) largest magnitude, rounded up to the precision."""
    largest = magnitude.amax(1) if magnitude.shape[1] else magnitude.new_zeros(len(magnitude))
    return (largest * (1 + 2 * torch.finfo(net.dtype).eps)).to(net.dtype)


def _image(value: Units, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    known = torch.isfinite(low).all(1) & torch.isfinite(high).all(1)
    out = torch.full_like(low, torch.nan), torch.full_like(high, torch.nan)
    out[0][known], out[1][known] = value.activation.interval(low[known], torch.maximum(low[known], high[known]))
    share = IMAGE_ERROR
    if all(s.name in EXACT for s in value.activation.segments):
        return out
    if value.activation.piecewise_linear:
        share = torch.finfo(torch.float64).eps
    pad = share * torch.maximum(out[0].abs(), out[1].abs()) + TINY
    return out[0] - pad, out[1] + pad


def _affine_interval(
    net: LayeredNetwork, value: Affine, ends: dict[int, tuple[Tensor, Tensor]], ranges: Ranges, inputs: Inputs
) -> tuple[Tensor, Tensor]:
    """Interval of an affine value, float64, rounded outward."""
    N = len(inputs.centre)
    middle, spread = value.bias.expand(N, -1).clone(), value.bias.new_zeros(N, value.size)
    magnitude = value.bias.abs().expand(N, -1).clone()
    for earlier, L in value.parts:
        if earlier == 0:
            m, r = inputs.centre, inputs.radius
        else:
            m, r = box_of(net, *ends[earlier])
        reach = ranges.size[earlier].unsqueeze(1)
        if L is None:
            middle, spread, magnitude = middle + m, spread + r, magnitude + reach
        else:
            middle, spread = middle + L.forward(m), spread + L.absolute(r)
            magnitude = magnitude + L.row_sums * reach
    room = net.share(value) * magnitude
    wide = spread.double() + 3 * room.double()
    return middle.double() - wide, middle.double() + wide


def _refined(
    net: LayeredNetwork,
    value: Units,
    number: int,
    low: Tensor,
    high: Tensor,
    found: LayerBounds,
    inputs: Inputs,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Bounds of a layer's pre-activations, those of undecided units carried back to the input."""
    affine = net.values[value.of - 1]
    assert isinstance(affine, Affine)
    if inputs.card is None and all(earlier == 0 for earlier, _ in affine.parts):
        return low, high  # an interval of the input is exact
    low, high = low.clone(), high.clone()
    for boxes in _stops(net, number, found):
        for samples, unit in _groups(net, _undecided(value, low, high)):
            ranges, sets = found.ranges.take(samples), inputs.take(samples)
            near = {k: (m[samples], r[samples]) for k, (m, r) in boxes.items()}
            living = ranges.alive(net)
            at, constant, room = _start(net, value.of, affine, unit, ranges, living)
            for side in (-1, 1):
                kept: dict[int, Rows] | None = {} if keep else None
                turned = {k: v if side < 0 else Rows(-v.entries, v.at) for k, v in at.items()}
                bound = lower_bounds(net, ranges, sets, turned, -side * constant, kept, living, near) - room
                ends, better = (low, torch.fmax) if side < 0 else (high, torch.fmin)
                before = ends[samples]
                ends[samples] = before.scatter(1, unit, better(before.gather(1, unit), -side * bound.double()))
                if kept is not None:
                    found.rows.append(LayerRows(number, samples, unit, side, kept))
    return low, high


def _stops(net: LayeredNetwork, number: int, found: LayerBounds) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
    """Boxes at which rows of a layer stop: first those of two layers before, which decide most units of a deep network
    for a share of the work, then none."""
    before = [k for k in net.units() if k < number]
    if len(before) > HOPS:
        yield {k: box_of(net, *found.image[k]) for k in before[:-HOPS]}
    yield {}


def box_of(net: LayeredNetwork, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of a box in the precision of the network, rounded outward."""
    middle = (0.5 * (low + high)).to(net.dtype)
    radius = torch.maximum(high - middle.double(), middle.double() - low)
    return middle, (radius * (1 + 2 * torch.finfo(net.dtype).eps)).to(net.dtype)


def _undecided(value: Units, low: Tensor, high: Tensor) -> Tensor:
    """(N, m) units whose line is not their map on its range."""
    out = torch.zeros(low.shape, dtype=torch.bool)
    for s in value.activation.segments:
        at = slice(s.start, s.stop)
        l, h = low[:, at], high[:, at]
        if s.name in PIECEWISE:
            out[:, at] = (l < 0) & (h > 0) if s.slope != 1 else False
        elif s.name == "max_pool":
            blocks = [v.unflatten(1, (-1, s.block)) for v in (l, h)]
            top = blocks[0].amax(-1, keepdim=True)
            could = blocks[1] >= top
            out[:, at] = (could & (could.sum(-1, keepdim=True) > 1)).flatten(1)
        else:
            out[:, at] = torch.isfinite(l)
    return out


def _groups(net: LayeredNetwork, open_: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples and units (N, m) that are carried back together, samples with about as many beside one another; where one
    has fewer, its first is repeated."""
    count = open_.sum(1)
    order = torch.argsort(count, descending=True)
    order = order[: int((count > 0).sum())]
    widest = max(net.size(k) for k in range(len(net.values) + 1))
    rows = max(1, CHUNK_BYTES // (8 * widest))
    begin = 0
    while begin < len(order):
        most = int(count[order[begin]])
        samples = order[begin : begin + max(1, rows // most)]
        places = torch.argsort(open_[samples].to(torch.uint8), dim=1, descending=True, stable=True)[:, :most]
        places = torch.where(torch.arange(most) < count[samples].unsqueeze(1), places, places[:, :1])
        for part in places.split(rows, dim=1):
            yield samples, part
        begin += len(samples)


def _start(
    net: LayeredNetwork, number: int, affine: Affine, unit: Tensor, ranges: Ranges, living: Mapping[int, Alive | None]
) -> tuple[dict[int, Rows], Tensor, Tensor | float]:
    """Coefficients and constants of entries of an affine value, and what they lack in precision: rows of the operator
    where they can be looked up, else unit vectors."""
    earlier, L = affine.parts[0] if len(affine.parts) == 1 else (0, None)
    if isinstance(L, Dense):
        constant = affine.bias[unit]
        room = net.share(affine) * (L.row_sums[unit] * ranges.size[earlier].unsqueeze(1) + constant.abs())
        return {earlier: looked_up(L, unit, living.get(earlier))}, constant, room
    zero = affine.bias.new_zeros(unit.shape)
    if affine.shape is not None:
        windows, entries = single(unit, affine.shape, net.dtype)
        return {number: Rows(entries, windows)}, zero, 0.0
    return {number: Rows(one_hot(unit, affine.size, net.dtype))}, zero, 0.0
