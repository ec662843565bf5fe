"""FISTA with restart on many rows at once: the fallback where the homotopy cannot certify a row.

    y+ = prox(y + (c - G y - ridge y) / L),  L = 1.02 lambda_max(G) + ridge,

where prox is soft-thresholding by beta / L followed by the projection of the ball's columns. Rows stop one by one, at
their own duality gap.

Source:
    Beck and Teboulle (2009); O'Donoghue and Candes (2015) for the restart.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.solvers.duality_gap import certify, objective

CHECK = 50  # iterations between two looks at the gap


def fista(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"],
    beta: Float[np.ndarray, " r"],
    ridge: float,
    rtol: float,
    slack: Float[np.ndarray, " r"],
    start: Float[np.ndarray, "r d"],
    max_iter: int = 20_000,
) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, " r"], np.ndarray]:
    """The row problems from `start` until the gap is small enough.

    Args are those of `solve_rows`, arrays throughout; slack (r,) is the absolute gap that is enough; start (r, d) need
    not be feasible.

    Returns:
        A (r, d) feasible, gap (r,), iterations (r,). A row that does not reach its tolerance returns its best iterate.
    """
    rows, d = C.shape
    L = 1.02 * float(np.linalg.eigvalsh(G)[-1]) + ridge
    if not L > 0.0:
        L = 1.0
    best = _prox(start, np.zeros(rows), kappa, ball_mask)
    gap = certify(G, C, zz, best, kappa=kappa, ball_mask=ball_mask, beta=beta, ridge=ridge)
    n_iter = np.zeros(rows, np.int64)
    live = np.flatnonzero(~_enough(G, C, zz, best, gap, beta, ridge, rtol, slack))
    x, y, t = best[live], best[live], np.ones(len(live))
    for step in range(1, max_iter + 1):
        if len(live) == 0:
            break
        gradient = y @ G + ridge * y - C[live]
        new = _prox(y - gradient / L, beta[live] / L, kappa[live], ball_mask)
        move = new - x
        restart = np.einsum("ij,ij->i", y - new, move) > 0.0
        t_new = np.where(restart, 1.0, 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t)))
        y = new + np.where(restart, 0.0, (t - 1.0) / t_new)[:, None] * move
        x, t = new, t_new
        if step % CHECK == 0 or step == max_iter:
            data = (G, C[live], zz[live], x)
            now = certify(*data, kappa=kappa[live], ball_mask=ball_mask, beta=beta[live], ridge=ridge)
            better = now < gap[live]
            best[live[better]], gap[live[better]] = x[better], now[better]
            n_iter[live] = step
            keep = ~_enough(*data, now, beta[live], ridge, rtol, slack[live])
            live, x, y, t = live[keep], x[keep], y[keep], t[keep]
    return best, gap, n_iter


def _enough(G, C, zz, A, gap, beta, ridge, rtol, slack) -> np.ndarray:
    return (gap <= rtol * objective(G, C, zz, A, beta=beta, ridge=ridge)) | (gap <= slack)


def _prox(V: np.ndarray, threshold: np.ndarray, kappa: np.ndarray, ball: np.ndarray) -> np.ndarray:
    """Soft-thresholding, then the exact projection of the ball's columns on the l1 ball (sort and threshold)."""
    size = np.maximum(np.abs(V) - threshold[:, None], 0.0)
    if ball.any():
        part = size[:, ball]
        outside = part.sum(axis=1) > kappa
        if outside.any():
            u = -np.sort(-part[outside], axis=1)
            excess = np.cumsum(u, axis=1) - kappa[outside, None]
            count = (u * np.arange(1, u.shape[1] + 1) > excess).sum(axis=1)
            theta = excess[np.arange(len(u)), np.maximum(count, 1) - 1] / np.maximum(count, 1)
            part[outside] = np.maximum(part[outside] - np.maximum(theta, 0.0)[:, None], 0.0)
            part[outside & (kappa == 0.0)] = 0.0
            size[:, ball] = part
    return np.copysign(size, V)
