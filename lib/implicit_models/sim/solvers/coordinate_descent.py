"""LASSO of one row by cyclic coordinate descent on the Gram matrix, stopped by its duality gap; the function g.

    Q(lambda) = min_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2 + lambda ||a||_1,      g(lambda) = ||a*_Q(lambda)||_1

With r = c - G a - ridge a kept up to date a coordinate costs d flops when it moves and nothing when it does not, so
that a full sweep is as cheap as a sweep over the support. States of a network are so correlated that sweeps alone take
thousands; therefore every few sweeps the support's linear system is solved and a moves towards its solution as far as
the signs allow, which never raises the objective. This is the inner solver that all searches for g(lambda) = kappa
share (bisection.py, algorithm_one.py): their counts compare.

Source:
    Friedman, Hastie, Tibshirani (2010), covariance updates; Tsai thesis (2024), (3.6) and (3.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS, append, backward, delete, forward

INNER_RTOL = 1e-10
MAX_EPOCHS = 50_000
SWEEPS_BETWEEN = 5  # sweeps from one solve on the support to the next
DUAL = 1e-8  # by how much of lambda a correlation may exceed it
PROXIMAL = 1e-11  # share of the diagonal added in the support's linear system
STILL = 1e-15  # a sweep whose steps stay below this share of lambda changes nothing any more


@kernel(**OPTIONS)
def lasso_gap(c, zz, lam, a, r):
    """Primal objective, duality gap of Q(lambda) and max|r| at a, from r = c - G a - ridge a.

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
    return primal, primal - (s * linear - 0.5 * s * s * square), largest


@kernel(**OPTIONS)
def correlations(G, c, ridge, a, r):
    """r = c - G a - ridge a."""
    for j in range(c.size):
        r[j] = c[j]
    for j in range(c.size):
        x = a[j]
        if x != 0.0:
            g = G[j]
            for q in range(c.size):
                r[q] -= x * g[q]
            r[j] -= ridge * x


@kernel(**OPTIONS)
def support_newton(G, lam, ridge, a, r, R):
    """Move a, signs kept, towards the minimum over its support; a coefficient that reaches zero is dropped, and so on.

    Solves H x = r - lambda s on the support; after a share t of that step the right side is (1 - t) times what it was.
    H carries PROXIMAL of its diagonal: columns that depend on each other then exchange until one of them is dropped,
        and the
    point where r = lambda s is not moved.

    Returns:
        Number of linear systems solved.
    """
    d = a.size
    active, u, x = np.empty(d, np.int64), np.empty(d), np.empty(d)
    k = 0
    for j in range(d):
        if a[j] != 0.0 and append(R, k, G, active, j, ridge + PROXIMAL * G[j, j], x):
            k += 1
    for i in range(k):
        j = active[i]
        u[i] = r[j] - lam if a[j] > 0.0 else r[j] + lam
    forward(R, k, u)
    solved = 0
    while k > 0:
        backward(R, k, u, x)
        solved += 1
        step, first = 1.0, -1
        for i in range(k):
            y = a[active[i]]
            if y * (y + x[i]) <= 0.0:
                t = -y / x[i]
                if t < step:
                    step, first = t, i
        for i in range(k):
            a[active[i]] += step * x[i]
        if first < 0:
            break
        a[active[first]] = 0.0
        for i in range(k):
            u[i] *= 1.0 - step
        delete(R, k, active, first, u)
        k -= 1
    return solved


@kernel(**OPTIONS)
def descend(G, c, zz, lam, ridge, a, r, rtol, atol, max_epochs, newton):
    """Sweeps until gap <= rtol * objective or gap <= atol * zz/2, with max|r| <= lambda; a and r are updated in place.

    Where g is flat a small gap alone says little of r, of which the gap of P(kappa) is made.

    Returns:
        (sweeps, linear systems solved, gap, whether it met the tolerance).
    """
    d, systems, last = c.size, 0, np.inf
    R = np.empty((d, d)) if newton else np.empty((1, 1))
    primal, gap, top = lasso_gap(c, zz, lam, a, r)
    if top <= lam * (1.0 + DUAL) and (gap <= rtol * primal or gap <= atol * 0.5 * zz):
        return 0, 0, gap, True
    for epoch in range(1, max_epochs + 1):
        largest, dropped = 0.0, 0
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
                largest = max(largest, abs(step) * curvature)
                g = G[j]
                for q in range(d):
                    r[q] -= step * g[q]
                r[j] -= step * ridge
        if newton and epoch % SWEEPS_BETWEEN == 0:
            dropped = support_newton(G, lam, ridge, a, r, R)
            systems += dropped
            correlations(G, c, ridge, a, r)
        elif epoch % 1000 == 0:  # rounding piles up in r
            correlations(G, c, ridge, a, r)
        primal, gap, top = lasso_gap(c, zz, lam, a, r)
        if top <= lam * (1.0 + DUAL) and (gap <= rtol * primal or gap <= atol * 0.5 * zz):
            return epoch, systems, gap, True
        if largest <= STILL * lam:
            return epoch, systems, gap, False
        if newton and epoch % SWEEPS_BETWEEN == 0:
            if dropped == 1 and gap > 0.5 * last:
                return (
                    epoch,
                    systems,
                    gap,
                    False,
                )  # exact on its support but for rounding, and the sweeps add nothing to it
            last = gap if dropped == 1 else np.inf
    return max_epochs, systems, gap, False


@dataclass(frozen=True)
class LassoRow:
    """Solution of Q(lambda).

    a: (d,); lam: lambda; gap: duality gap of Q; n_epochs: sweeps; n_systems: linear systems solved on supports;
        converged:
    whether the gap met the tolerance.
    """

    a: Float[np.ndarray, " d"]
    lam: float
    gap: float
    n_epochs: int
    n_systems: int
    converged: bool


def check_row(G: Any, c: Any, zz: Any, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray, float, float]:
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

    Returns:
        ||c||_inf.

    Source:
        Tsai thesis (2024), Lemma 1, fourth property.
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
    newton: bool = True,
) -> LassoRow:
    """Q(lambda) of one row by coordinate descent.

    Mathematics: argmin_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2 + lam ||a||_1.

    Args:
        G: (d, d) M'M.
        c: (d,) M'z.
        zz: ||z||^2.
        lam: weight of the l1 norm, positive.
        ridge: weight of the squared norm.
        start: (d,) warm start; zeros by default.
        rtol, atol: stop when the duality gap is at most rtol times the objective, or atol times ||z||^2 / 2.
        max_epochs: largest number of sweeps; `converged` says whether they sufficed.
        newton: solve the support's linear system every few sweeps; False for coordinate descent alone.

    Returns:
        the solution with its gap.

    Raises:
        ValueError: naming the value or shape that does not fit.

    Source:
        Tsai thesis (2024), (3.7).
    """
    G, c, zz, ridge = check_row(G, c, zz, ridge)
    if not (np.isfinite(lam) and lam > 0):
        raise ValueError(f"lam must be a positive number, got {lam}")
    a = np.zeros(c.size) if start is None else np.array(start, dtype=np.float64)
    if a.shape != c.shape:
        raise ValueError(f"start must have shape {c.shape}, got {a.shape}")
    r = c - G @ a - ridge * a
    epochs, systems, gap, converged = descend(G, c, zz, float(lam), ridge, a, r, rtol, atol, max_epochs, bool(newton))
    return LassoRow(a, float(lam), float(gap), int(epochs), int(systems), bool(converged))


def g(G: Float[np.ndarray, "d d"], c: Float[np.ndarray, " d"], zz: float, lam: float, **settings: Any) -> float:
    """g(lambda) = ||a*_Q(lambda)||_1: continuous, piecewise linear, non-increasing, 0 from lambda_max on.

    Args:
        as `lasso`.

    Returns:
        the l1 norm of the solution.

    Source:
        Tsai thesis (2024), (3.6).
    """
    return float(np.abs(lasso(G, c, zz, lam, **settings).a).sum())
