"""Least squares on a support that counts what ReLU lets through: errors of a state that stays closed weigh less.

A row p = M b + beta stands before max(0, p), its target z too. Where z is positive, (p - z)^2 bounds what the
activations differ by; where it is not, they differ by max(0, p), and how far p is below zero only tells how near it is
to opening, with a weight 0 <= w <= 1:

    min_{b on the support, beta}  1/2 sum_{z_i > 0} (p_i - z_i)^2 + 1/2 sum_{z_i <= 0} (w (p_i - z_i)^2 + (1 - w) max(0,
    p_i)^2) + ridge/2 sum_j G_jj b_j^2.

w = 1 is least squares, w = 0 bounds the squared error of the activations. The sum is convex, and majorised at any p by
least squares to the targets t_i = z_i, or w z_i + (1 - w) min(0, p_i) where z_i <= 0: one factor of G on the support
serves every sweep t -> b. Sweeps are accelerated (Nesterov, with restarts).

Source:
    the majorisation is that of one-sided least squares (Hunter and Lange 2004); Beck and Teboulle (2009), O'Donoghue
    and Candes (2015) for the sweeps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.budget import factor, substitute
from implicit_models.sim.solvers.cholesky import OPTIONS

CLOSED = 0.3  # weight w of errors below zero
SWEEPS = 100  # at most
DECREASE = 1e-4  # relative, of the sum over a position's rows, below which it ends


def one_sided(
    M: Float[np.ndarray, "d m"],
    G: Float[np.ndarray, "d d"],
    z: Float[np.ndarray, "r m"],
    level: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    start: Float[np.ndarray, "r d"],
    ridge: float,
    weight: float = CLOSED,
    sweeps: int = SWEEPS,
    decrease: float = DECREASE,
) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Coefficients on the supports of A, the change of each bias, and the loss.

    Args:
        M: centred columns, G = M M'.
        z: centred targets, z + level[:, None] before the activation; zeros for a row without a target.
        start: least squares on the supports.
        ridge: relative to each column's squared norm.
        weight: w.

    Source:
        the module's.
    """
    r = len(z)
    factors, places, sizes = position_factors(G, A, ridge)
    square = np.diag(G)
    B, old = start.copy(), start.copy()
    bias, old_bias, new_bias = np.zeros(r), np.zeros(r), np.empty(r)
    momentum = np.ones(r)
    best, kept, kept_bias, last = np.full(r, np.inf), B.copy(), bias.copy(), np.inf
    for _ in range(sweeps + 1):
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        share = (momentum - 1) / following
        Y, b = B + share[:, None] * (B - old), bias + share * (bias - old_bias)
        t = Y @ M
        loss = majorised(t, b, z, level, weight, new_bias) + 0.5 * ridge * (square * Y * Y).sum(axis=1)
        lower = loss < best
        best[lower], kept[lower], kept_bias[lower] = loss[lower], Y[lower], b[lower]
        if best.sum() >= (1 - decrease) * last:
            break
        last = best.sum()
        new = np.zeros_like(B)
        substitute_all(factors, places, sizes, t @ M.T, new)
        again = ((Y - new) * (new - B)).sum(axis=1) + (b - new_bias) * (new_bias - bias) > 0
        momentum = np.where(again, 1.0, following)
        old, old_bias, B, bias = B, bias, new, new_bias.copy()
    return kept, kept_bias, best


@kernel(**OPTIONS)
def majorised(p, bias, z, level, weight, mean):
    """The loss of every row at p + bias, without its ridge; p becomes the targets t of the least squares that majorise
    it there, mean their means."""
    r, m = p.shape
    loss = np.empty(r)
    for i in range(r):
        lost, total = 0.0, 0.0
        for j in range(m):
            v, target = p[i, j] + bias[i], z[i, j]
            over = max(v + level[i], 0.0)
            share = weight if target <= -level[i] else 1.0
            error = v - target
            lost += share * error * error + (1.0 - share) * over * over
            t = share * target + (1.0 - share) * (v - over)
            p[i, j] = t
            total += t
        loss[i], mean[i] = 0.5 * lost, total / m
    return loss


@kernel(**OPTIONS)
def position_factors(G, A, ridge):
    """Cholesky factors (r, n, n) of G + ridge diag G on the rows' supports, their columns (r, n), and sizes (r,)."""
    r, d = A.shape
    most = 0
    for i in range(r):
        most = max(most, (A[i] != 0.0).sum())
    L, S, n = np.zeros((r, most, most)), np.zeros((r, most), np.int64), np.zeros(r, np.int64)
    for i in range(r):
        n[i] = factor(G, A[i], ridge, L[i], S[i])
    return L, S, n


@kernel(**OPTIONS)
def substitute_all(L, S, n, C, out):
    """Solutions (r, d) of the factored systems, for right-hand sides C (r, d)."""
    for i in range(len(C)):
        substitute(L[i], S[i], n[i], C[i], out[i])
