"""Exact backward elimination: every row loses the column whose removal costs least, until none is left.

With w the minimiser of 1/2 w'H w - c'w on the columns that are left and V the inverse of H on them, the removal of
column j raises the minimum by w_j^2 / (2 V_jj), and

    w <- w - V_j w_j / V_jj,    V <- V - V_j V_j' / V_jj

are those of the columns that remain. One inverse of H serves all rows: each works on a copy, a lower triangle, whose
last row takes the place of the one that goes. A row of d columns costs d^3 / 3 operations and gives supports of all
sizes.

Source:
    Hassibi and Stork (1992), optimal brain surgeon, for the two formulas; Frantar and Alistarh (2022) for rows.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS


@kernel(**OPTIONS)
def eliminate_rows(inverse, rows, order, rise):
    """Eliminate all columns of all rows.

    inverse: (d, d) of H, symmetric. rows: (r, d) minimisers on all columns. Filled: order (r, d), the columns as they
    go, and rise (r, d), what the minimum of 1/2 w'H w - c'w rises by at each removal.
    """
    r, d = rows.shape
    V, w, v = np.empty((d, d)), np.empty(d), np.empty(d)
    left = np.empty(d, np.int64)
    for row in range(r):
        V[:] = inverse
        w[:] = rows[row]
        for j in range(d):
            left[j] = j
        for step in range(d):
            last = d - 1 - step
            p, least = 0, np.inf
            for j in range(last + 1):
                cost = w[j] * w[j] / V[j, j]
                if cost < least:
                    p, least = j, cost
            order[row, step], rise[row, step] = left[p], 0.5 * least
            if p != last:
                for j in range(p):
                    V[p, j], V[last, j] = V[last, j], V[p, j]
                for j in range(p + 1, last):
                    V[j, p], V[last, j] = V[last, j], V[j, p]
                V[p, p], V[last, last] = V[last, last], V[p, p]
                w[p], w[last] = w[last], w[p]
                left[p], left[last] = left[last], left[p]
            share = w[last] / V[last, last]
            for j in range(last):
                v[j] = V[last, j]
                w[j] -= share * v[j]
            for i in range(last):
                g = v[i] / V[last, last]
                for j in range(i + 1):
                    V[i, j] -= g * v[j]


def backward_elimination(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"]
) -> tuple[Int[np.ndarray, "r d"], Float[np.ndarray, "r d"]]:
    """Columns of every row in the order of their removal, and the rise of 1/2 w'H w - c'w at each.

    Args:
        H: symmetric and positive definite.
        C: right-hand sides.

    Raises:
        numpy.linalg.LinAlgError: where H is singular.
    """
    inverse = np.linalg.inv(H)
    inverse = 0.5 * (inverse + inverse.T)
    rows = np.ascontiguousarray(C @ inverse)
    order, rise = np.empty(C.shape, np.int64), np.empty(C.shape)
    eliminate_rows(inverse, rows, order, rise)
    return order, rise


def cheapest(costs: Float[np.ndarray, "r d"], number: int) -> Int[np.ndarray, " r"]:
    """How many columns each row loses, where the `number` cheapest removals of all rows are taken.

    costs: of the removals, in the order of each row; a removal costs at least what those before it do.
    """
    r, d = costs.shape
    if not 0 <= number <= r * d:
        raise ValueError(f"of {r * d} columns {number} cannot be removed")
    if number in (0, r * d):
        return np.full(r, d if number else 0, np.int64)
    rising = np.maximum.accumulate(costs, axis=1).ravel()
    taken = np.argpartition(rising, number - 1)[:number]
    return np.bincount(taken // d, minlength=r)


def kept_columns(order: Int[np.ndarray, "r d"], removed: Int[np.ndarray, " r"]) -> Bool[np.ndarray, "r d"]:
    """The columns that are left after so many removals."""
    kept = np.ones(order.shape, bool)
    for row, count in enumerate(removed):
        kept[row, order[row, :count]] = False
    return kept


def minimisers(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], kept: Bool[np.ndarray, "r d"]
) -> Float[np.ndarray, "r d"]:
    """Each row's minimiser of 1/2 w'H w - c'w on its columns, solved for anew."""
    W = np.zeros(C.shape)
    for row, own in enumerate(kept):
        S = np.flatnonzero(own)
        if S.size:
            W[row, S] = np.linalg.solve(H[np.ix_(S, S)], C[row, S])
    return W


def objective(
    H: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], W: Float[np.ndarray, "r d"]
) -> Float[np.ndarray, " r"]:
    """1/2 w'H w - c'w of every row."""
    return 0.5 * np.einsum("ij,ij->i", W @ H, W) - np.einsum("ij,ij->i", C, W)
