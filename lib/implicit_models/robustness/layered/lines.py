"""Lines below and above a unit on the range of its pre-activation, as CROWN has them.

    low_slope z + low_at <= phi(z) <= high_slope z + high_at    for zl <= z <= zh

A piecewise-linear unit that stays on one side of its kink is its own line. ReLU that does not takes the chord above,
and below the one of the lines 0 and z that leaves the smaller area. tanh and sigmoid take chord or tangent. Slopes may
have any value; the intercepts follow from them and are rounded outward, so that no line cuts its unit. Blocks of
softmax and products have their range alone; the maximum of a window is at least the entry with the largest lower bound,
and is this entry where no other can exceed it.

Source:
    Zhang et al., CROWN (2018); Singh et al., DeepPoly (2019) for the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation, Segment

_BISECTIONS = 40
IMAGE_ERROR = 1e-12  # share of the values of maps that are evaluated with an error
PIECEWISE = ("relu", "leaky_relu", "identity")


@dataclass(eq=False)
class Lines:
    """Slopes and intercepts (N, m) of the lines of one layer's units.

    A block of a maximum has the line of its first state; its slopes say which entry of the block is read. blocks: there
    are such.
    """

    low_slope: Float[Tensor, "N m"]
    low_at: Float[Tensor, "N m"]
    high_slope: Float[Tensor, "N m"]
    high_at: Float[Tensor, "N m"]
    blocks: bool = False

    def each(self, part: Callable[[Tensor], Tensor]) -> Lines:
        """What `part` makes of slopes and intercepts."""
        return Lines(
            part(self.low_slope), part(self.low_at), part(self.high_slope), part(self.high_at), blocks=self.blocks
        )

    def take(self, samples: Tensor) -> Lines:
        """Those of some samples."""
        return self.each(lambda v: v[samples])

    def gather(self, columns: Tensor) -> Lines:
        """Those of some units (N, k) of each sample."""
        return self.each(lambda v: v.gather(1, columns))


def lines(activation: Activation, zl: Float[Tensor, "N m"], zh: Float[Tensor, "N m"], dtype: torch.dtype) -> Lines:
    """Lines of all units for float64 ranges, in the precision of the network."""
    blocks = any(s.name == "max_pool" for s in activation.segments)
    if len(activation.segments) == 1:
        found = _of_segment(activation.segments[0], zl, zh, dtype)
        found.blocks = blocks
        return found
    zeros = [torch.zeros(zl.shape, dtype=dtype) for _ in range(4)]
    found = Lines(zeros[0], zeros[1], zeros[2], zeros[3], blocks)
    for s in activation.segments:
        at = slice(s.start, s.stop)
        part = _of_segment(s, zl[:, at], zh[:, at], dtype)
        for name in ("low_slope", "low_at", "high_slope", "high_at"):
            getattr(found, name)[:, at] = getattr(part, name)
    return found


def _of_segment(s: Segment, zl: Tensor, zh: Tensor, dtype: torch.dtype) -> Lines:
    if s.name in PIECEWISE:
        return _piecewise(s.slope, zl, zh, dtype)
    if s.name in ("tanh", "sigmoid"):
        return _smooth(s.name, zl, zh, dtype)
    if s.name == "max_pool":
        return _maximum(s.block, zl, zh, dtype)
    low, high = Activation([Segment(s.name, s.slope, 0, s.stop - s.start, s.block)]).interval(zl, zh)
    pad = IMAGE_ERROR * torch.maximum(low.abs(), high.abs())
    low, high = low - pad, high + pad
    zero = torch.zeros(zl.shape, dtype=dtype)
    return Lines(zero, _down(low, dtype), zero, -_down(-high, dtype))


def _down(value: Tensor, dtype: torch.dtype) -> Tensor:
    """float64 to the precision, rounded down."""
    if dtype is torch.float64:
        return value
    cast = value.to(dtype)
    return torch.where(cast.double() > value, torch.nextafter(cast, cast.new_tensor(-torch.inf)), cast)


def _piecewise_value(z: Tensor, a: float) -> Tensor:
    return torch.where(z > 0, z, a * z)


def _piecewise(a: float, zl: Tensor, zh: Tensor, dtype: torch.dtype) -> Lines:
    crossing = (zl < 0) & (zh > 0)
    one, other = torch.ones_like(zl), torch.full_like(zl, a)
    side = torch.where(zh > 0, one, other)
    width = torch.where(crossing, zh - zl, 1.0)
    high = torch.where(crossing, (zh - a * zl) / width, side).to(dtype)
    low = torch.where(crossing, torch.where(zh > -zl, one, other), side).to(dtype)
    zero = torch.zeros_like(low)
    # the slopes 0, 1 and a leave nothing between line and unit, unless they have been rounded to another precision
    exact = dtype is torch.float64 or a in (0.0, 1.0)
    low_at = zero if exact else _down(_gap(low, a, zl, zh, crossing, -1), dtype)
    top = _gap(high, a, zl, zh, crossing, 1)
    return Lines(low, low_at, high, -_down(-(torch.where(crossing, top, 0.0) if exact else top), dtype))


def _gap(slope: Tensor, a: float, zl: Tensor, zh: Tensor, crossing: Tensor, side: int) -> Tensor:
    """The least (side -1) or largest (side 1) phi(z) - slope z on [zl, zh], rounded outward; float64."""
    slope = slope.double()
    left, right = _piecewise_value(zl, a) - slope * zl, _piecewise_value(zh, a) - slope * zh
    choose, at_kink = (torch.minimum, torch.clamp_max) if side < 0 else (torch.maximum, torch.clamp_min)
    found = choose(left, right)
    found = torch.where(crossing, at_kink(found, 0.0), found)
    room = 4 * torch.finfo(torch.float64).eps * torch.maximum(zl.abs(), zh.abs()) * (1 + slope.abs())
    return torch.where(found == 0, found, found + side * room)


def _smooth(name: str, zl: Tensor, zh: Tensor, dtype: torch.dtype) -> Lines:
    high, low = _upper_slope(name, zl, zh).to(dtype), _upper_slope(name, -zh, -zl).to(dtype)
    return Lines(
        low,
        _down(_least(name, low.double(), zl, zh), dtype),
        high,
        -_down(_least_of_negative(name, high, zl, zh), dtype),
    )


def _value(name: str, z: Tensor) -> Tensor:
    return torch.tanh(z) if name == "tanh" else torch.sigmoid(z)


def _derivative(name: str, z: Tensor) -> Tensor:
    x = _value(name, z)
    return 1 - x * x if name == "tanh" else x * (1 - x)


def _upper_slope(name: str, zl: Tensor, zh: Tensor) -> Tensor:
    """Slope of a line above: the chord, or a tangent where the map is concave."""
    start = _value(name, zl)
    width = torch.where(zh > zl, zh - zl, 1.0)
    chord = (_value(name, zh) - start) / width
    low, high = torch.zeros_like(zl), zh.clamp_min(0)  # the line through the left end that touches the concave part
    for _ in range(_BISECTIONS):
        z = 0.5 * (low + high)
        inside = _derivative(name, z) * (z - zl) >= _value(name, z) - start
        low, high = torch.where(inside, z, low), torch.where(inside, high, z)
    touching = _derivative(name, torch.maximum(low, 0.5 * (zl + zh)))
    slope = torch.where(_derivative(name, zh) >= chord, chord, touching)
    slope = torch.where(zl >= 0, _derivative(name, 0.5 * (zl + zh)), slope)
    return torch.where(zh > zl, slope, 0.0)


def _least(name: str, slope: Tensor, zl: Tensor, zh: Tensor) -> Tensor:
    """inf of phi(z) - slope z over [zl, zh], rounded down."""
    gap = lambda z: _value(name, z) - slope * z
    found = torch.minimum(gap(zl), gap(zh))
    if name == "tanh":
        root = torch.atanh((1 - slope).clamp_min(0).sqrt())
    else:
        r = (1 - 4 * slope).clamp_min(0).sqrt()
        root = torch.log1p(r) - torch.log1p(-r)
    for z in (-root, root):
        z = torch.where(torch.isfinite(z), z, zl).clamp(min=zl, max=zh)
        found = torch.minimum(found, gap(z))
    eps = torch.finfo(torch.float64).eps
    # at a root that is off by rounding the gap is off by its square; values are exact to a few eps
    return found - 16 * eps * (1 + slope.abs() * torch.maximum(zl.abs(), zh.abs()))


def _least_of_negative(name: str, slope: Tensor, zl: Tensor, zh: Tensor) -> Tensor:
    """inf of slope z - phi(z): phi is odd around its value at zero."""
    shift = 0.0 if name == "tanh" else 1.0
    return _least(name, slope.double(), -zh, -zl) - shift - (0.0 if name == "tanh" else 4e-16)


def _maximum(block: int, zl: Tensor, zh: Tensor, dtype: torch.dtype) -> Lines:
    shape = zl.shape
    l, h = zl.reshape(len(zl), -1, block), zh.reshape(len(zh), -1, block)
    best = l.argmax(-1, keepdim=True)
    mark = torch.zeros_like(l).scatter_(-1, best, 1.0)
    others = torch.where(mark.bool(), -torch.inf, h).amax(-1, keepdim=True)
    sure = l.gather(-1, best) >= others
    first = torch.zeros_like(l)
    first[..., :1] = torch.where(sure, 0.0, h.amax(-1, keepdim=True))
    low, high = (v.reshape(shape).to(dtype) for v in (mark, mark * sure))
    return Lines(low, torch.zeros_like(low), high, -_down(-first.reshape(shape), dtype))
