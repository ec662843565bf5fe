"""Activation maps: componentwise non-expansive (CONE) maps and blockwise Lipschitz (BLIP) maps.

A state of size n carries one map, or a partition into named segments::

    "relu"                                  every state
    [("relu", 8), ("softmax", 4)]           states 0..7, then one softmax block of 4
    "product"                               pairs of states, their products
    "leaky_relu(0.2)"                       slope on the negative side (default 0.01)

CONE maps act on single states and are non-decreasing with slopes in [0, gamma]. A softmax, max_pool or product
segment is one block that couples its states. A max-pool block keeps its maximum inside itself:
phi(z) = (max z, 0, ..., 0), so that the block structure required by a BLIP map is met. So does a product, of two
factors cut to [-1, 1], without which it would not be Lipschitz: phi(a, b) = (clip(a) clip(b), 0).

Source:
    Tsai (2024), Definitions 1 and 2, section 2.4 (multiplicative connections), section 2.5 (max-pooling); constants of
    softmax and products: see `Activation.lipschitz`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

COMPONENTWISE = ("relu", "leaky_relu", "tanh", "sigmoid", "identity")
BLOCKWISE = ("softmax", "max_pool", "product")
NAMES = COMPONENTWISE + BLOCKWISE
DEFAULT_SLOPE = 0.01

ActivationSpec = str | Sequence[tuple[str, int]]
Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass(frozen=True)
class Segment:
    """States start..stop-1 under one map; block is the block size (1 for a componentwise map)."""

    name: str
    slope: float
    start: int
    stop: int
    block: int

    @property
    def componentwise(self) -> bool:
        return self.block == 1 and self.name in COMPONENTWISE


def _piecewise_value(z: Tensor, slope: float) -> Tensor:
    if slope == 0.0:
        return z.clamp_min(0)
    return z if slope == 1.0 else torch.where(z > 0, z, slope * z)


def _piecewise_slope(x: Tensor, slope: float) -> Tensor:
    if slope == 0.0:
        return (x > 0).to(x.dtype)
    return torch.ones_like(x) if slope == 1.0 else torch.where(x > 0, torch.ones_like(x), slope)


def _softmax_vjp(z: Tensor, v: Tensor) -> Tensor:
    s = torch.softmax(z, dim=-1)
    return s * (v - (s * v).sum(-1, keepdim=True))


def _max_pool(z: Tensor) -> Tensor:
    return torch.cat([z.amax(-1, keepdim=True), torch.zeros_like(z[..., 1:])], dim=-1)


def _max_pool_vjp(z: Tensor, v: Tensor) -> Tensor:
    winner = z.argmax(-1, keepdim=True)  # a tie goes to the first maximum
    return torch.zeros_like(v).scatter(-1, winner, v[..., :1])


def _product(z: Tensor) -> Tensor:
    return torch.stack([z.clamp(-1, 1).prod(-1), torch.zeros_like(z[..., 0])], dim=-1)


def _product_vjp(z: Tensor, v: Tensor) -> Tensor:
    return torch.where(z.abs() <= 1, v[..., :1] * z.clamp(-1, 1).flip(-1), torch.zeros_like(z))


_BLOCK_VALUE: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": functools.partial(torch.softmax, dim=-1),
    "max_pool": _max_pool,
    "product": _product,
}
_BLOCK_VJP = {"softmax": _softmax_vjp, "max_pool": _max_pool_vjp, "product": _product_vjp}


def _value(segment: Segment, z: Tensor) -> Tensor:
    if segment.name in ("relu", "leaky_relu", "identity"):
        return _piecewise_value(z, segment.slope)
    if segment.name == "tanh":
        return torch.tanh(z)
    if segment.name == "sigmoid":
        return torch.sigmoid(z)
    return _BLOCK_VALUE[segment.name](z.unflatten(-1, (-1, segment.block))).flatten(-2)


def _slope_at_value(segment: Segment, x: Tensor) -> Tensor:
    """phi'(z) written in x = phi(z); piecewise-linear maps take the left derivative at 0."""
    if segment.name == "tanh":
        return 1 - x * x
    if segment.name == "sigmoid":
        return x * (1 - x)
    return _piecewise_slope(x, segment.slope)


def _vjp(segment: Segment, z: Tensor, v: Tensor) -> Tensor:
    if segment.componentwise:
        return _slope_at_value(segment, _value(segment, z)) * v
    zb, vb = z.unflatten(-1, (-1, segment.block)), v.unflatten(-1, (-1, segment.block))
    return _BLOCK_VJP[segment.name](zb, vb).flatten(-2)


def _interval(segment: Segment, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    if segment.name not in ("softmax", "product"):  # every other map is non-decreasing in each coordinate
        return _value(segment, lower), _value(segment, upper)
    lo, hi = lower.unflatten(-1, (-1, segment.block)), upper.unflatten(-1, (-1, segment.block))
    if segment.name == "product":
        ends = torch.stack(
            [_product(torch.stack([a, b], -1)) for a in (lo[..., 0], hi[..., 0]) for b in (lo[..., 1], hi[..., 1])]
        )
        return ends.amin(0).flatten(-2), ends.amax(0).flatten(-2)
    eye = torch.eye(segment.block, dtype=torch.bool, device=lower.device)
    lo, hi = lo.unsqueeze(-2), hi.unsqueeze(-2)

    def own(z: Tensor) -> Tensor:  # entry i of the softmax whose coordinate i sits at the other end of its interval
        return torch.softmax(z, -1).diagonal(dim1=-2, dim2=-1).flatten(-2)

    return own(torch.where(eye, lo, hi)), own(torch.where(eye, hi, lo))


class Activation:
    """The activation map of an n-dimensional state.

    Mathematics: phi(z) = (phi_1(z_1), ..., phi_L(z_L)) for the partition of z into blocks. All methods take
    (..., n) torch tensors or NumPy arrays and return the same kind; the last axis is the state.

    Source:
        Tsai (2024), Definitions 1 and 2.
    """

    def __init__(self, segments: Iterable[Segment]):
        self.segments = tuple(segments)
        self.n = self.segments[-1].stop if self.segments else 0
        self.componentwise = all(s.componentwise for s in self.segments)
        self.piecewise_linear = all(s.name in ("relu", "leaky_relu", "identity") for s in self.segments)
        self.homogeneous = all(s.name in ("relu", "leaky_relu", "identity", "max_pool") for s in self.segments)

    def __repr__(self) -> str:
        return f"Activation({', '.join(f'{s.name}[{s.start}:{s.stop}]' for s in self.segments)})"

    def _apply(self, f: Callable[..., Any], *arrays: Tensor | np.ndarray):
        is_numpy = isinstance(arrays[0], np.ndarray)
        tensors = [torch.from_numpy(np.ascontiguousarray(a)) if is_numpy else a for a in arrays]
        for t in tensors:
            if t.ndim == 0 or t.shape[-1] != self.n:
                raise ValueError(f"activation of {self.n} states got an array of shape {tuple(t.shape)}")
        if len(self.segments) == 1:
            out = f(self.segments[0], *tensors)
        else:
            parts = [f(s, *(t[..., s.start : s.stop] for t in tensors)) for s in self.segments]
            if parts and isinstance(parts[0], tuple):
                out = tuple(torch.cat(p, dim=-1) for p in zip(*parts, strict=True))
            else:
                out = torch.cat(parts, dim=-1)
        if not is_numpy:
            return out
        return tuple(o.numpy() for o in out) if isinstance(out, tuple) else out.numpy()

    def __call__(self, z: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Post-activation x = phi(z)."""
        return self._apply(_value, z)

    def _require_componentwise(self, what: str) -> None:
        if not self.componentwise:
            raise ValueError(f"{what} is defined for componentwise maps only, not for {self!r}; use vjp")

    def derivative(self, z: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Slopes phi'(z) of a componentwise map (0 or the left slope at a kink).

        Raises:
            ValueError: for blockwise maps, whose Jacobian is not diagonal (use `vjp`).
        """
        self._require_componentwise("derivative")
        return self._apply(lambda s, t: _slope_at_value(s, _value(s, t)), z)

    def derivative_at_value(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """The same slopes from the post-activation x = phi(z): no pre-activation is kept for the backward pass."""
        self._require_componentwise("derivative_at_value")
        return self._apply(_slope_at_value, x)

    def vjp(self, z: Float[Array, "*batch n"], v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """J(z)' v, with J the Jacobian of phi at the pre-activation z, for every map."""
        return self._apply(_vjp, z, v)

    def interval(
        self, lower: Float[Array, "*batch n"], upper: Float[Array, "*batch n"]
    ) -> tuple[Float[Array, "*batch n"], Float[Array, "*batch n"]]:
        """Tightest box that holds phi(z) for lower <= z <= upper.

        Raises:
            ValueError: where lower > upper, naming the first such position.
        """
        crossed = lower > upper
        if crossed.any():
            where = tuple(int(i) for i in np.argwhere(np.asarray(crossed))[0])
            raise ValueError(f"lower > upper at index {where}")
        return self._apply(_interval, lower, upper)

    @functools.cached_property
    def lipschitz(self) -> np.ndarray:
        """(n,) Lipschitz constant gamma of each state's block, in the infinity norm of the block.

        1 for relu, leaky_relu, tanh, identity, max_pool; 1/4 for sigmoid; 1/2 for softmax: its Jacobian
        diag(s) - s s' has absolute row and column sums 2 s_j (1 - s_j) <= 1/2, so 1/2 is the best constant in the
        l1 norm too (Tsai (2024) states 1). 2 for a product, |a b - a' b'| <= |a - a'| + |b - b'| (1 in the l1 norm, as
        Tsai (2024), section 2.4, has it).
        """
        gamma = {"sigmoid": 0.25, "softmax": 0.5, "product": 2.0}
        out = np.ones(self.n)
        for s in self.segments:
            out[s.start : s.stop] = gamma.get(s.name, 1.0)
        out.setflags(write=False)
        return out

    @functools.cached_property
    def unit(self) -> np.ndarray:
        """(n,) index of the block that holds each state: a componentwise state is a block of its own."""
        ids, count = np.empty(self.n, dtype=np.int64), 0
        for s in self.segments:
            size = s.stop - s.start
            ids[s.start : s.stop] = count + np.arange(size) // s.block
            count += size // s.block
        ids.setflags(write=False)
        return ids

    def restrict(self, states: np.ndarray) -> Activation:
        """The map of a subset of the states (sorted indices that hold whole blocks), renumbered from 0."""
        segments, at = [], 0
        for s in self.segments:
            inside = states[(states >= s.start) & (states < s.stop)] - s.start
            if np.any(np.unique(inside // s.block, return_counts=True)[1] != s.block):
                raise ValueError(f"the selection cuts a {s.name} block of {s.block} states")
            if inside.size:
                segments.append(Segment(s.name, s.slope, at, at + inside.size, s.block))
                at += inside.size
        return Activation(segments)

    @functools.cached_property
    def kernel_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """(code (n,) int8, param (n,) float64) for the compiled kernels.

        code 0: max(z, 0) + param min(z, 0); 1: tanh; 2: sigmoid.

        Raises:
            ValueError: for blockwise maps.
        """
        self._require_componentwise("kernel_codes")
        code, param = np.zeros(self.n, dtype=np.int8), np.zeros(self.n)
        for s in self.segments:
            code[s.start : s.stop] = {"tanh": 1, "sigmoid": 2}.get(s.name, 0)
            param[s.start : s.stop] = s.slope
        return code, param


_SPEC = re.compile(r"(?P<name>[a-z_]+)(?:\((?P<slope>[^()]*)\))?")


def _parse(name: object) -> tuple[str, float]:
    if not isinstance(name, str):
        raise TypeError(f"an activation is a name, got {name!r} of type {type(name).__name__}")
    match = _SPEC.fullmatch(name)
    if not match or match["name"] not in NAMES:
        raise ValueError(f"unknown activation {name!r}; known: {', '.join(NAMES)}")
    base, text = match["name"], match["slope"]
    if text is None:
        return base, {"leaky_relu": DEFAULT_SLOPE, "identity": 1.0}.get(base, 0.0)
    if base != "leaky_relu":
        raise ValueError(f"activation {base!r} takes no parameter, got {name!r}")
    try:
        slope = float(text)
    except ValueError:
        raise ValueError(f"the slope of leaky_relu must be a number, got {name!r}") from None
    if not 0.0 <= slope <= 1.0:
        raise ValueError(f"the slope of leaky_relu must lie in [0, 1] for a CONE map, got {slope}")
    return base, slope


@functools.lru_cache(maxsize=256)
def _resolve(spec: str | tuple[tuple[str, int], ...], n: int) -> Activation:
    parts = ((spec, n),) if isinstance(spec, str) else spec
    segments: list[Segment] = []
    at = 0
    for name, size in parts:
        base, slope = _parse(name)
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"the size of activation segment {name!r} must be an int, got {size!r}")
        if size < 1 and not isinstance(spec, str):
            raise ValueError(f"the size of activation segment {name!r} must be positive, got {size}")
        size = int(size)
        if base == "product" and size % 2:
            raise ValueError(f"a product segment holds pairs of factors: its size must be even, got {size}")
        block = 2 if base == "product" else size if base in BLOCKWISE else 1
        last = segments[-1] if segments else None
        if last and (last.name, last.slope, last.block) == (base, slope, block):
            segments[-1] = Segment(base, slope, last.start, at + size, block)  # equal neighbours run as one batch
        else:
            segments.append(Segment(base, slope, at, at + size, block))
        at += size
    if at != n:
        raise ValueError(f"activation segments {parts} cover {at} states, but the state has {n}")
    return Activation(segments)


def resolve_activation(activation: ActivationSpec | Activation, n: int) -> Activation:
    """The activation map of n states named by a string or by a list of (name, size).

    Args:
        activation: one of "relu", "leaky_relu", "leaky_relu(slope)", "tanh", "sigmoid", "identity", "softmax",
            "max_pool", "product" (pairs of states); or (name, size) pairs whose sizes add up to n; or an `Activation`,
            returned as it is.
        n: number of states.

    Returns:
        the map.

    Raises:
        ValueError: for an unknown name, a slope outside [0, 1] or sizes that do not add up to n.
        TypeError: for anything else.
    """
    if isinstance(activation, Activation):
        if activation.n != n:
            raise ValueError(f"activation covers {activation.n} states, but the state has {n}")
        return activation
    if isinstance(activation, str):
        return _resolve(activation, n)
    if not isinstance(activation, Sequence) or not all(
        isinstance(part, Sequence) and not isinstance(part, str) and len(part) == 2 for part in activation
    ):
        raise TypeError(f"activation must be a name or a list of (name, size), got {activation!r}")
    parts = tuple((part[0], part[1]) for part in activation)
    try:
        hash(parts)
    except TypeError:  # a list or an array among them: past the cache, to the check that names it
        return _resolve.__wrapped__(parts, n)
    if any(type(size) is not int for _, size in parts):
        return _resolve.__wrapped__(
            parts, n
        )  # 4.0 and True equal an int, and would be given the cached map of that int
    return _resolve(parts, n)
