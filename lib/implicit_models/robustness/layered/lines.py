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

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation, Segment

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
    from implicit_models.robustness.bounding import relaxation

    code = relaxation.TANH if name == "tanh" else relaxation.SIGMOID
    ends = tuple(np.ascontiguousarray(v.numpy()) for v in (zl, zh))
    low, high, low_at, high_at = (np.empty(zl.shape) for _ in range(4))
    relaxation.slopes(*ends, code, low, high)
    slopes = [torch.from_numpy(v).to(dtype) for v in (low, high)]
    # of the slopes as the precision has them
    relaxation.intercepts(*ends, code, *(v.double().numpy() for v in slopes), low_at, high_at)
    return Lines(
        slopes[0], _down(torch.from_numpy(low_at), dtype), slopes[1], -_down(-torch.from_numpy(high_at), dtype)
    )


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
