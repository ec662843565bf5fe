"""Two columns of every four: elimination by pairs, for processors that skip every second factor.

In each group of four columns two go. With w the minimiser of 1/2 w'H w - c'w on the columns that are left and V the
inverse of H on them, the removal of a pair p raises the minimum by 1/2 w_p' (V_pp)^-1 w_p. Of the six pairs of every
group that is still whole the cheapest one goes, and w and V are brought up to date, until no group is whole. A row of d
columns costs d^3 / 2 operations.

Source:
    Mishra et al. (2021) for the pattern; Frantar and Alistarh (2022) for elimination within patterns, column by column;
    whole pairs are this project's.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def two_of_four(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], groups: Int[np.ndarray, "n 4"]
) -> Bool[np.ndarray, "r d"]:
    """Columns that each row keeps: two of every group, and all that belong to none.

    Args:
        H: symmetric and positive definite.
        C: right-hand sides.
        groups: columns, each in one group at most.

    Raises:
        ValueError: for groups of another size, or with a column twice.
        numpy.linalg.LinAlgError: where H is singular.
    """
    if groups.ndim != 2 or groups.shape[1] != 4 or len(np.unique(groups)) < groups.size:
        raise ValueError(f"groups must be (n, 4) with every column once, got {groups.shape} and {groups.tolist()[:2]}")
    inverse = np.linalg.inv(H)
    inverse = 0.5 * (inverse + inverse.T)
    kept = np.ones(C.shape, bool)
    for own, w in zip(kept, C @ inverse, strict=True):
        _take_pairs(own, w, inverse.copy(), groups[:, PAIRS])
    return kept


def _take_pairs(
    kept: Bool[np.ndarray, " d"],
    w: Float[np.ndarray, " d"],
    V: Float[np.ndarray, "d d"],
    pairs: Int[np.ndarray, "n 6 2"],
) -> None:
    """One row; kept, w and V are changed."""
    first, second = pairs[..., 0], pairs[..., 1]
    whole = np.ones(len(pairs), bool)
    for _ in pairs:
        a, b, c = V[first, first], V[second, second], V[first, second]
        x, y = w[first], w[second]
        cost = (x * x * b - 2 * x * y * c + y * y * a) / (a * b - c * c)
        g, p = np.unravel_index(np.argmin(np.where(whole[:, None], cost, np.inf)), cost.shape)
        out = pairs[g, p]
        update = np.linalg.solve(V[np.ix_(out, out)], V[out])
        w -= w[out] @ update
        V -= V[:, out] @ update
        V[out], V[:, out], w[out] = 0.0, 0.0, 0.0
        V[out, out] = 1.0
        kept[out], whole[g] = False, False
