"""LASSO of one row by cyclic coordinate descent on the Gram matrix, stopped by its duality gap; the function g.

    Q(lambda) = min_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2 + lambda ||a||_1,      g(lambda) = ||a*_Q(lambda)||_1

With r = c - G a - ridge a kept up to date a coordinate costs d flops when it moves and nothing when it does not, so that
a full sweep is as cheap as a sweep over the support. This is the inner solver that all searches for g(lambda) = kappa
share (bisection.py, algorithm_one.py): their counts of sweeps compare.

Source: Friedman, Hastie, Tibshirani (2010), covariance updates; Tsai thesis (2024), (3.6) and (3.7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numba import njit

INNER_RTOL = 1e-10
MAX_EPOCHS = 50_000


@njit(cache=True, nogil=True)
def lasso_gap(c, zz, lam, a, r):
    """Primal objective and duality gap of Q(lambda) at a, from r = c - G a - ridge a.

    The dual point is s (rho, sqrt(ridge) a), rho = z - M a, with the s in [-lambda/|r|, lambda/|r|] that maximises
    s (zz - c'a) - s^2/2 (zz - c'a - a'r).
    """
    ca, ar, norm, largest = 0.0, 0.0, 0.0, 0.0
    for j in range(c.size):
        ca += c[j] * a[j]
        ar += a[j] * r[j]
        norm += abs(a[j])
        largest = max(largest, abs(r[j]))
    linear, square = zz - ca, max(zz - ca - ar, 0.0)
    limit = lam / largest if largest > 0.0 else np.inf
    s = min(max(linear / square, -limit), limit) if square > 0.0 else min(1.0, limit)
    primal = 0.5 * square + lam * norm
    return primal, primal - (s * linear - 0.5 * s * s * square)


@njit(cache=True, nogil=True)
def descend(G, c, zz, lam, ridge, a, r, rtol, atol, max_epochs):
    """Sweeps until gap <= rtol * objective or gap <= atol * zz/2; a and r are updated in place.

    Returns:
        (sweeps, gap, whether it met the tolerance).
    """
    d = c.size
    primal, gap = lasso_gap(c, zz, lam, a, r)
    if gap <= rtol * primal or gap <= atol * 0.5 * zz:
        return 0, gap, True
    for epoch in range(1, max_epochs + 1):
        for j in range(d):
            curvature = G[j, j] + ridge
            if G[j, j] <= 0.0:
                continue  # a column of zeros never moves
            v = r[j] + curvature * a[j]
            if v > lam:
                new = (v - lam) / curvature
            elif v < -lam:
                new = (v + lam) / curvature
            else:
                new = 0.0
            step = new - a[j]
            if step != 0.0:
                a[j] = new
                g = G[j]
                for q in range(d):
                    r[q] -= step * g[q]
                r[j] -= step * ridge
        if epoch % 1000 == 0:  # rounding piles up in r
            r[:] = c
            for j in range(d):
                if a[j] != 0.0:
                    g, x = G[j], a[j]
                    for q in range(d):
                        r[q] -= x * g[q]
                    r[j] -= ridge * x
        primal, gap = lasso_gap(c, zz, lam, a, r)
        if gap <= rtol * primal or gap <= atol * 0.5 * zz:
            return epoch, gap, True
    return max_epochs, gap, False


@dataclass(frozen=True)
class LassoRow:
    """Solution of Q(lambda).

    a: (d,); lam: lambda; gap: duality gap of Q; n_epochs: sweeps; converged: whether the gap met the tolerance.
    """

    a: Float[np.ndarray, " d"]
    lam: float
    gap: float
    n_epochs: int
    converged: bool


def check_row(G: object, c: object, zz: object, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray, float, float]:
    """One row problem as float64; ValueError names what does not fit."""
    G = np.ascontiguousarray(np.asarray(G, dtype=np.float64))
    c = np.ascontiguousarray(np.asarray(c, dtype=np.float64))
    if G.ndim != 2 or G.shape[0] != G.shape[1] or G.shape[0] == 0:
        raise ValueError(f"G must be a square matrix, got shape {G.shape}")
    if c.shape != (G.shape[0],):
        raise ValueError(f"c must have shape ({G.shape[0]},) as G is {G.shape}, got shape {c.shape}")
    if np.size(zz) != 1:
        raise ValueError(f"zz must be one number, ||z||^2, got shape {np.shape(zz)}")
    zz, ridge = float(np.asarray(zz).reshape(())), float(ridge)
    if not (np.isfinite(zz) and zz >= 0):
        raise ValueError(f"zz must be a finite number that is not negative, got {zz}")
    if not np.all(np.isfinite(c)):
        raise ValueError(f"c has values that are not finite, first at {int(np.flatnonzero(~np.isfinite(c))[0])}")
    if not np.all(np.isfinite(G)):
        raise ValueError(f"G has values that are not finite, first in row {int(np.argwhere(~np.isfinite(G))[0][0])}")
    if not (np.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"ridge must be a finite number that is not negative, got {ridge}")
    return G, c, zz, ridge


def lambda_max(c: Float[np.ndarray, " d"]) -> float:
    """Smallest lambda with a*_Q(lambda) = 0: ||M'z||_inf. The thesis prints the 2-norm.

    Args:
        c: (d,) M'z.
    Returns: ||c||_inf.
    Source: Tsai thesis (2024), Lemma 1, fourth property.
    """
    c = np.asarray(c, dtype=np.float64)
    return float(np.abs(c).max()) if c.size else 0.0


def lasso(
    G: Float[np.ndarray, "d d"],
    c: Float[np.ndarray, " d"],
    zz: float,
    lam: float,
    *,
    ridge: float = 0.0,
    start: Float[np.ndarray, " d"] | None = None,
    rtol: float = INNER_RTOL,
    atol: float = 1e-14,
    max_epochs: int = MAX_EPOCHS,
) -> LassoRow:
    """Q(lambda) of one row by coordinate descent.

    Mathematics: argmin_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2 + lam ||a||_1.

    Args:
        G: (d, d) M'M. c: (d,) M'z. zz: ||z||^2.
        lam: weight of the l1 norm, positive.
        ridge: weight of the squared norm.
        start: (d,) warm start; zeros by default.
        rtol, atol: stop when the duality gap is at most rtol times the objective, or atol times ||z||^2 / 2.
        max_epochs: largest number of sweeps; `converged` says whether they sufficed.
    Returns: the solution with its gap.
    Raises: ValueError naming the value or shape that does not fit.
    Source: Tsai thesis (2024), (3.7).
    """
    G, c, zz, ridge = check_row(G, c, zz, ridge)
    if not (np.isfinite(lam) and lam > 0):
        raise ValueError(f"lam must be a positive number, got {lam}")
    a = np.zeros(c.size) if start is None else np.array(start, dtype=np.float64)
    if a.shape != c.shape:
        raise ValueError(f"start must have shape {c.shape}, got {a.shape}")
    r = c - G @ a - ridge * a
    epochs, gap, converged = descend(G, c, zz, float(lam), ridge, a, r, rtol, atol, max_epochs)
    return LassoRow(a, float(lam), float(gap), int(epochs), bool(converged))


def g(G: Float[np.ndarray, "d d"], c: Float[np.ndarray, " d"], zz: float, lam: float, **settings: float) -> float:
    """g(lambda) = ||a*_Q(lambda)||_1: continuous, piecewise linear, non-increasing, 0 from lambda_max on.

    Args: as `lasso`.
    Returns: the l1 norm of the solution.
    Source: Tsai thesis (2024), (3.6).
    """
    return float(np.abs(lasso(G, c, zz, lam, **settings).a).sum())
