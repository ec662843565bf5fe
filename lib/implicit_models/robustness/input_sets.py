"""Sets of inputs: boxes |u - u0| <= radius, and boxes of which at most k coordinates move.

A `Box` or a `SparseBox` says how far inputs may go from whatever sample; around samples it becomes an `Uncertainty`,
the sets that bounds work on. A number in place of a set is the radius of a box. Both kinds are symmetric around their
centre u0, so that the largest value of a linear functional is

    sup v'(u - u0) = radius'|v|            for a box,
    sup v'(u - u0) = s_k(radius * |v|)     where at most k coordinates move, s_k the sum of the k largest entries.

A radius may be zero, as that of a bias coordinate is. Clipping to a range of inputs, where it is asked for, shortens a
box on one side. Its centre then differs from the sample, and its ends are kept, since centre -/+ radius need not give
them back in floating point. `Replace` is for attacks alone: k inputs become random values of a range.

Source:
    Tsai thesis (2024), (4.1), (4.2) and section 4.3 (support functions; of the convex hull), section 4.4 (`Replace`).
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float

from implicit_models.robustness.arrays import EPS, check_number, checked_count, own_array, real_array
from implicit_models.robustness.products import row_product
from implicit_models.summaries import array_text, summary


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """A set of inputs for every sample, as `Box.around` and `SparseBox.around` make them.

    Attributes:
        centre: (N, p).
        radius: (p,) for all samples, or (N, p); not negative.
        card: how many coordinates may move at once; None for all.
        ends: lower and upper ends (N, p) of clipped boxes, else None.
    """

    centre: Float[np.ndarray, "N p"]
    radius: Float[np.ndarray, "*N p"]
    card: int | None = None
    ends: tuple[Float[np.ndarray, "N p"], Float[np.ndarray, "N p"]] | None = None

    def __repr__(self) -> str:
        return summary(self)

    @property
    def shared(self) -> bool:
        """Whether one radius serves all samples: products with it are then made once."""
        return self.radius.ndim == 1

    @property
    def lower(self) -> Float[np.ndarray, "N p"]:
        return self.centre - self.radius if self.ends is None else self.ends[0]

    @property
    def upper(self) -> Float[np.ndarray, "N p"]:
        return self.centre + self.radius if self.ends is None else self.ends[1]

    def support(self, V: Any) -> Float[np.ndarray, "*N k"]:
        """sup of v'(u - centre) for every row v of V (k, p), dense or CSR: (k,) for a shared radius, else (N, k)."""
        if self.card is None:
            return self.radius @ abs(V).T if self.shared else row_product(self.radius, abs(V))
        V = np.abs(V.toarray() if sp.issparse(V) else V)
        if self.shared:
            return _largest(V * self.radius, self.card)
        return np.stack([_largest(V * radius, self.card) for radius in self.radius])

    def support_each(self, V: Float[np.ndarray, "N k p"]) -> Float[np.ndarray, "N k"]:
        """sup of v'(u - centre), (N, k), for rows V (N, k, p) of which each sample has its own."""
        scaled = np.abs(V) * (self.radius if self.shared else self.radius[:, None, :])
        return scaled.sum(axis=-1) if self.card is None else _largest(scaled, self.card)

    def take(self, samples: Any) -> Uncertainty:
        """The sets of some samples: an index array, a mask or a slice."""
        ends = None if self.ends is None else tuple(end[samples] for end in self.ends)
        return Uncertainty(self.centre[samples], self.radius if self.shared else self.radius[samples], self.card, ends)

    def contains(self, U: Float[np.ndarray, "N p"]) -> np.ndarray:
        """(N,) whether each row of U lies in its set, up to the rounding of the sample's own coordinates."""
        ulp = 4 * EPS * np.max(np.abs(self.centre) + self.radius, axis=1, keepdims=True, initial=0.0)
        inside = np.all((self.lower - ulp <= U) & (U <= self.upper + ulp), axis=1)
        return inside if self.card is None else inside & ((np.abs(U - self.centre) > ulp).sum(axis=1) <= self.card)


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    if k == 0:
        return np.zeros(values.shape[:-1])
    if k >= values.shape[-1]:
        return values.sum(axis=-1)
    return np.partition(values, -k, axis=-1)[..., -k:].sum(axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Box:
    """The boxes |u - u0| <= radius around samples u0.

    Attributes:
        radius: a number, (p,) one for each input, or (N, p) for each sample's own; not negative. Kept as a float64
            array of its own, which is read-only.
        clip: (low, high) range of inputs that the boxes are cut to, in which the samples must lie; None for none.

    Raises:
        ValueError: naming the radius or the range that is none.
        TypeError: naming what is no real number, truth values and texts among them.

    Source:
        Tsai thesis (2024), (4.1).
    """

    radius: Any
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _checked_radius(self.radius))
        object.__setattr__(self, "clip", _checked_range(self.clip))

    def __repr__(self) -> str:
        return _text(self)

    def take(self, rows: Any) -> Box:
        """The set for some of the samples: an index array, a mask or a slice."""
        return replace(self, radius=_radius_of(self.radius, rows))

    def around(self, U: Any) -> Uncertainty:
        """The boxes around the rows of U (N, p), torch or NumPy.

        A row with NaN keeps it: its bounds are NaN, those of the others are as without it. The sets hold copies: what
        is proved of them stays so when U changes.

        Raises:
            ValueError: naming the shape or the sample that does not fit; TypeError for complex numbers.
        """
        U, radius = _centres(self.radius, U)
        if self.clip is None:
            return Uncertainty(U, radius)
        check_inside(U, self.clip)
        lower, upper = np.maximum(U - radius, self.clip[0]), np.minimum(U + radius, self.clip[1])
        centre = 0.5 * (lower + upper)
        return Uncertainty(centre, np.maximum(upper - centre, centre - lower), None, (lower, upper))


@dataclass(frozen=True, eq=False, repr=False)
class SparseBox:
    """Around samples u0, the inputs with |u - u0| <= radius of which at most k coordinates differ from u0.

    Attributes:
        radius: as that of `Box`; infinite for moves of any size within `clip`.
        k: how many coordinates may move at once.
        clip: (low, high) range that an attack stays in. Bounds refuse it: the set would not be symmetric in the
            coordinates that move.

    Raises:
        ValueError: naming the radius, the k or the range that is none.
        TypeError: naming what is no real number, truth values and texts among them.

    Source:
        Tsai thesis (2024), (4.2), section 4.4.
    """

    radius: Any
    k: int
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _checked_radius(self.radius, infinite=self.clip is not None))
        checked_count("k", self.k)
        object.__setattr__(self, "clip", _checked_range(self.clip))

    def __repr__(self) -> str:
        return _text(self)

    def take(self, rows: Any) -> SparseBox:
        """The set for some of the samples: an index array, a mask or a slice."""
        return replace(self, radius=_radius_of(self.radius, rows))

    def around(self, U: Any) -> Uncertainty:
        """The sets around the rows of U (N, p), torch or NumPy; as `Box.around`.

        Raises:
            ValueError: also for a k beyond p, and for a range, which this set cannot be cut to.
        """
        U, radius = _centres(self.radius, U)
        check_k(self.k, U.shape[1])
        if self.clip is not None:
            raise ValueError(f"clip={self.clip} and k={self.k} do not go together: clip the samples' radii yourself")
        return Uncertainty(U, radius, int(self.k))


@dataclass(frozen=True)
class Replace:
    """Of an attack: k inputs become uniform draws of [low, high], such as [0, 1], or [0, 0.1] for small ones.

    Raises:
        ValueError: naming what is no range, a range whose width overflows, or no number of inputs.
        TypeError: naming an end that is no number.

    Source:
        Tsai thesis (2024), section 4.4, which does not say how small its random values are.
    """

    low: float
    high: float
    k: int

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _checked_end(name, getattr(self, name)))
        if not -np.inf < self.low <= self.high < np.inf:
            raise ValueError(f"values must be drawn from [low, high] with low <= high, got {(self.low, self.high)}")
        if not float(self.high) - float(self.low) < np.inf:
            raise ValueError(f"the width of [low, high] must be finite in float64, got {(self.low, self.high)}")
        checked_count("k", self.k)

    def take(self, rows: Any) -> Replace:
        """The same: no sample has values of its own."""
        return self


InputSet: TypeAlias = Box | SparseBox | float


def input_set(inputs: Any, *kinds: type) -> Any:
    """The set that is meant: one of the kinds as it is, a number as the radius of a `Box`.

    Args:
        kinds: classes that are welcome, `Box` and `SparseBox` if none are named.

    Raises:
        TypeError: for anything else.
    """
    kinds = kinds or (Box, SparseBox)
    if isinstance(inputs, kinds):
        return inputs
    if np.ndim(inputs) == 0 and isinstance(inputs, (numbers.Real, np.ndarray)) and not isinstance(inputs, bool):
        return Box(inputs)
    names = " or ".join(f"a {kind.__name__}" for kind in kinds)
    raise TypeError(f"inputs must be {names}, or the radius of a Box as a number, got {type(inputs).__name__}")


def check_inside(U: Float[np.ndarray, "N p"], clip: tuple[float, float]) -> None:
    """Raises: ValueError naming the first sample outside the range; one that is not a number is not."""
    outside = np.argwhere((U < clip[0]) | (U > clip[1]))
    if outside.size:
        i, j = (int(k) for k in outside[0])
        raise ValueError(f"sample {i} is outside the clip range {clip}: U[{i}, {j}] = {U[i, j]:.6g}")


def check_k(k: int, p: int) -> None:
    """Raises: ValueError for more inputs than there are."""
    if k > p:
        raise ValueError(f"k must be an int between 0 and p = {p}, got {k!r}")


def check_radius(radius: np.ndarray, N: int, p: int) -> None:
    """Raises: ValueError for radii that are not those of N samples of p inputs."""
    if radius.shape not in ((), (p,), (N, p)):
        raise ValueError(f"radius must be a number or have shape ({p},) or ({N}, {p}), got {radius.shape}")


def _checked_radius(radius: Any, infinite: bool = False) -> np.ndarray:
    radius = own_array("radius", radius, writeable=False)
    if radius.ndim > 2:
        raise ValueError(f"radius must be a number, (p,) or (N, p), got shape {radius.shape}")
    wrong = np.argwhere(~((radius >= 0) & (np.isfinite(radius) | infinite)))
    if len(wrong):
        where = tuple(int(i) for i in wrong[0])
        at = f" at index {where}" if where else ""
        hint = "; a SparseBox with a clip range may have an infinite one" if np.isposinf(radius[where]) else ""
        raise ValueError(f"a radius must be a finite number that is not negative, got {radius[where]}{at}{hint}")
    return radius


def _checked_end(name: str, value: Any) -> Any:
    check_number(name, value)
    return value.item() if isinstance(value, (np.generic, np.ndarray, torch.Tensor)) else value


def _checked_range(clip: Any) -> tuple[Any, Any] | None:
    if clip is None:
        return None
    try:
        ends = tuple(clip)
    except TypeError:  # a number, or an array of one
        ends = ()
    ends = tuple(_checked_end("an end of clip", end) for end in ends)
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ValueError(f"clip must be (low, high) with low < high, got {clip}")
    return ends


def _radius_of(radius: np.ndarray, rows: Any) -> np.ndarray:
    return radius[rows] if radius.ndim == 2 else radius


def _centres(radius: np.ndarray, U: Any) -> tuple[Float[np.ndarray, "N p"], Float[np.ndarray, "*N p"]]:
    U = np.array(real_array("U", U), copy=True)
    if U.ndim != 2 or not U.shape[1]:
        raise ValueError(f"U must have shape (N, p), got {U.shape}")
    N, p = U.shape
    radius = np.full(p, float(radius)) if radius.ndim == 0 else np.array(radius)  # kernels take writeable arrays
    check_radius(radius, N, p)
    return U, radius


def _text(box: Box | SparseBox) -> str:
    radius = f"{float(box.radius):g}" if box.radius.ndim == 0 else array_text(box.radius)
    k = f", k={box.k}" if isinstance(box, SparseBox) else ""
    return f"{type(box).__name__}(radius={radius}{k}" + (")" if box.clip is None else f", clip={box.clip})")
