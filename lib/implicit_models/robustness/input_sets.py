"""Sets of inputs: boxes |u - u0| <= sigma, and boxes of which at most k coordinates move.

Both are symmetric around their centre u0, so that the largest value of a linear functional is

    sup v'(u - u0) = sigma'|v|            for a box,
    sup v'(u - u0) = s_k(sigma * |v|)     where at most k coordinates move, s_k the sum of the k largest entries.

A radius may be zero, as that of a bias coordinate is. Clipping to a range of inputs, where it is asked for, shortens a
box on one side. Its centre then differs from the sample, and its ends are kept, since centre -/+ radius need not give
them back in floating point.

Source:
    Tsai thesis (2024), (4.1), (4.2) and section 4.3 (support functions; of the convex hull).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from implicit_models.robustness.arrays import EPS, real_array
from implicit_models.robustness.products import row_product
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """A set of inputs for every sample.

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


def uncertainty(
    U: Any,
    *,
    eps: float | None = None,
    sigma: Any = None,
    card: int | None = None,
    clip: tuple[float, float] | None = None,
) -> Uncertainty:
    """The sets around the rows of U.

    Args:
        U: (N, p) samples, torch or NumPy. A row with NaN keeps it: its bounds are NaN, those of the others are as
            without it.
        eps: one radius for all coordinates; or sigma: (p,) or (N, p). One of the two.
        card: at most so many coordinates move; None for all.
        clip: (low, high) range of inputs that the set is cut to; None, the default, for none. Not with `card`, whose
            set is then not symmetric in the coordinates that move.

    Raises:
        ValueError: naming the shape, value or sample that does not fit.

    Source:
        Tsai thesis (2024), (4.1), (4.2).
    """
    U = real_array("U", U)
    if U.ndim != 2 or not U.shape[1]:
        raise ValueError(f"U must have shape (N, p), got {U.shape}")
    if (eps is None) == (sigma is None):
        raise ValueError(
            f"give one of eps and sigma, got eps={eps!r} and sigma={'None' if sigma is None else 'an array'}"
        )
    N, p = U.shape
    sigma = real_array("eps", eps) if sigma is None else real_array("sigma", sigma)
    if sigma.ndim == 0:
        sigma = np.full(p, float(sigma))
    if sigma.shape not in ((p,), (N, p)):
        raise ValueError(f"sigma must have shape ({p},) or ({N}, {p}), got {sigma.shape}")
    wrong = np.argwhere(~(np.isfinite(sigma) & (sigma >= 0)))
    if wrong.size:
        where = tuple(int(i) for i in wrong[0])
        raise ValueError(f"a radius must be a finite number that is not negative, got {sigma[where]} at index {where}")
    if card is not None:
        if isinstance(card, bool) or not isinstance(card, (int, np.integer)) or not 0 <= card <= p:
            raise ValueError(f"card must be an int between 0 and p = {p}, got {card!r}")
        if clip is not None:
            raise ValueError(f"clip={clip} and card={card} do not go together: clip the samples' radii yourself")
        return Uncertainty(U, sigma, int(card))
    if clip is None:
        return Uncertainty(U, sigma)
    low, high = clip
    if not low < high:
        raise ValueError(f"clip must be (low, high) with low < high, got {clip}")
    outside = np.argwhere((U < low) | (U > high))
    if outside.size:
        i, j = (int(k) for k in outside[0])
        raise ValueError(f"sample {i} is outside the clip range {clip}: U[{i}, {j}] = {U[i, j]:.6g}")
    lower, upper = np.maximum(U - sigma, low), np.minimum(U + sigma, high)
    centre = 0.5 * (lower + upper)
    return Uncertainty(centre, np.maximum(upper - centre, centre - lower), None, (lower, upper))
