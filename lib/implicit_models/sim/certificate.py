"""Duality gap of any candidate for the row problems, from the data alone.

For residual rho = z - M a and correlations r = M'rho - ridge a, the scaled pair (s rho, s a) is dual feasible wherever
s |r_j| <= beta on the columns outside the ball. With S the ball, its value is

    D(s) = s z'rho - s^2/2 (||rho||^2 + ridge ||a||^2) - kappa max(0, s max_S |r| - beta),

and the gap is the objective less max(0, D(s)) (s = 0 is feasible). s = min(1, beta / max_off |r|), or 1 where no column
lies outside the ball. With beta = 0 and columns outside, rho is first made orthogonal to them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

RANK = 1e-12  # eigenvalues of a Gram matrix below this share of the largest count as zero


def objective(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    *,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
) -> Float[np.ndarray, " r"]:
    """1/2||M a - z||^2 + beta||a||_1 + ridge/2 ||a||^2 of each row."""
    rho = np.maximum(zz - 2.0 * np.einsum("ij,ij->i", A, C) + np.einsum("ij,ij->i", A @ G, A), 0.0)
    return 0.5 * rho + beta * np.abs(A).sum(axis=1) + 0.5 * ridge * np.einsum("ij,ij->i", A, A)


def certify(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    *,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
) -> Float[np.ndarray, " r"]:
    """Duality gap of each row of A: an upper bound on its objective's distance from the optimum.

    The bound holds for a feasible A; a row whose norm over the ball exceeds kappa by more than a share of 1e-9 has gap inf.

    Args:
        G, C, zz: from `gram`.
        A: (r, d) candidates.
        kappa: radius of the ball, a number or one a row; inf for no ball.
        ball_mask: (d,) the columns whose l1 norm the ball bounds; None for all.
        beta: l1 penalty, a number or one a row.
        ridge: gamma of the term gamma/2 ||a||^2.

    Returns:
        gap (r,); rounding may leave it below zero by about 1e-16 ||z||^2. NaN where the row's data or candidate are.

    Source: solves the dual of Tsai thesis (2024), P(kappa); with a ridge, of Ganesh MS report (2023), equation (4).
    """
    d = len(G)
    ball = np.ones(d, bool) if ball_mask is None else np.asarray(ball_mask, bool)
    kappa, beta = np.broadcast_to(kappa, len(C)).astype(float), np.broadcast_to(beta, len(C)).astype(float)
    GA = A @ G
    r = C - GA - ridge * A
    fit, square, size = (np.einsum("ij,ij->i", A, X) for X in (C, GA, A))
    rho, cross = np.maximum(zz - 2.0 * fit + square, 0.0), zz - fit
    primal = 0.5 * rho + beta * np.abs(A).sum(axis=1) + 0.5 * ridge * size
    none = ~np.isfinite(kappa)  # rows without a ball
    inside = np.where(none, 0.0, np.abs(r[:, ball]).max(axis=1, initial=0.0))
    outside = np.where(none, np.abs(r).max(axis=1, initial=0.0), np.abs(r[:, ~ball]).max(axis=1, initial=0.0))
    s = np.where(outside > 0.0, np.minimum(1.0, beta / np.where(outside > 0.0, outside, 1.0)), 1.0)
    excess = np.maximum(s * inside - beta, 0.0)
    with np.errstate(invalid="ignore"):
        cost = np.where(excess > 0.0, kappa, 0.0) * excess
        dual = s * cross - 0.5 * s * s * (rho + ridge * size) - cost
        dual = np.fmax(dual, 0.0) + 0.0 * cross  # a NaN row stays NaN
    for rows, off in (((beta == 0.0) & none, np.ones(d, bool)), ((beta == 0.0) & ~none, ~ball)):
        if rows.any() and off.any():
            dual[rows] = np.fmax(dual[rows], _projected(G, r, rho, cross, size, A, kappa, off, ridge, rows))
    gap = primal - dual
    norm = np.abs(A[:, ball]).sum(axis=1)
    gap[norm > kappa * (1.0 + 1e-9)] = np.inf
    return gap


def _projected(G, r, rho, cross, size, A, kappa, off, ridge, rows) -> np.ndarray:
    """Dual value after the residual is made orthogonal to the unpenalised columns outside the ball.

    The dual pair is (rho, sqrt(ridge) a) stacked, a residual of the ridge-augmented data; its part in the span of the
    augmented free columns F is F (F'F)^+ r_off, with F'F = G_off,off + ridge I.
    """
    values, vectors = np.linalg.eigh(G[np.ix_(off, off)] + ridge * np.eye(off.sum()))
    keep = values > RANK * values[-1]
    t = r[rows][:, off] @ vectors[:, keep]
    y = (t / values[keep]) @ vectors[:, keep].T  # the least-squares coefficients on the free columns
    r_new = r[rows] - y @ G[off]
    r_new[:, off] -= ridge * y
    moved = np.einsum("ij,ij->i", y, r[rows][:, off])
    # ||v - F y||^2 = ||v||^2 - y'F'v, and z'(rho - M y) with z'M y = c_off'y.
    square = rho[rows] + ridge * size[rows] - moved
    c_off = r[rows][:, off] + (A[rows] @ G[:, off]) + ridge * A[rows][:, off]
    value = cross[rows] - np.einsum("ij,ij->i", y, c_off) - 0.5 * square
    if off.all():
        return value
    return value - kappa[rows] * np.abs(r_new[:, ~off]).max(axis=1, initial=0.0)
