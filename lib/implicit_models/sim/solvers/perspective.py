r"""Rows with the perspective relaxation of their cardinality, certified.

Minimising alpha s + eta t over s t >= x^2, 0 <= t <= 1 leaves the penalty ("reverse Huber")

    phi(x) = 2 sqrt(alpha eta) |x|   for |x| <= knee = sqrt(eta / alpha),      alpha x^2 + eta   beyond.

Its conjugate is explicit: for |y| <= 2 sqrt(alpha eta) the supremum of x y - phi(x) is at x = 0, beyond it at x = y /
(2 alpha):

    phi*(y) = max(0, y^2 / (4 alpha) - eta).

The row problem and its dual, with r = M'rho and mu the multiplier of the ball over the coordinates S:

    P(a)       = 1/2 ||M a - z||^2 + sum_j phi(a_j)   s.t.  sum_S |a_j| <= kappa
    D(rho, mu) = z'rho - 1/2 ||rho||^2 - sum_{not S} phi*(r_j) - sum_S phi*((|r_j| - mu)_+) - kappa mu.

phi* is finite everywhere, so rho = z - M a gives a bound without any scaling; mu is the best for that rho.

Two identities. phi(x) >= 2 sqrt(alpha eta) |x| with equality up to the knee: an l1 solution (weight 2 sqrt(alpha eta))
whose coefficients all stay below the knee solves this problem too. With eta = alpha, as SIM paper (4) has it, the knee
is 1: inside a ball kappa <= 1 the perspective relaxation IS the l1 norm, with weight 2 alpha. And with eta = 0, which
is what (5) and (10) of the paper print (no cost on t, so t = 1), phi(x) = alpha x^2: ridge, without zeros.

Source:
    SIM paper, (4), (5), (10), corrected; Frangioni and Gentile (2006).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.problem import Perspective, Tolerance
from implicit_models.sim.solvers.duality_gap import is_certified, perspective_gap
from implicit_models.sim.solvers.fista import fista, into_ball
from implicit_models.sim.solvers.perspective_homotopy import follow_rows
from implicit_models.status import Status

ROUNDS = 3  # passes of the active set: a later one starts from an earlier one's end and removes its rounding


def solve_perspective_rows(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    alpha: float,
    eta: float,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> Any:
    """All rows of the perspective relaxation, each with a certified duality gap.

    Mathematics: min_a 1/2 ||M a - z||^2 + sum_j phi(a_j) s.t. sum_S |a_j| <= kappa. The l1 rows (weight 2 sqrt(alpha
    eta)) come first; a row whose coefficients stay below the knee is solved, the others are followed from there by the
    active set of `perspective_homotopy`. A row that ends above the tolerance goes to FISTA, and its status says so.

    Args:
        G: (d, d) M'M.
        C: (r, d) Z'M.
        zz: (r,) squared norms of the targets.
        alpha: weight of the square, positive.
        eta: weight of a non-zero, not negative; 0 is ridge.
        kappa: radius of the ball, scalar or (r,).
        ball_mask: (d,) coordinates in it, None for all, all False for no ball.
        rtol, atol: certificate, gap <= rtol * objective or gap <= atol * ||z||^2 / 2.

    Returns:
        `Rows` as `solve_rows`: A (r, d), multiplier (r,), gap (r,), n_steps (r,), status (r,).

    Raises:
        ValueError: naming the value or shape that does not fit.

    Source:
        SIM paper, (4) and (7).
    """
    from implicit_models.sim.solvers.rows import Rows, solve_rows

    penalty = Perspective(alpha, eta)
    alpha, eta = float(alpha), float(eta)
    threshold, knee = 2 * np.sqrt(alpha * eta), np.sqrt(eta / alpha)
    weights = {"beta": threshold} if eta > 0 else {"ridge": 2 * alpha}
    rows = solve_rows(G, C, zz, kappa=kappa, ball_mask=ball_mask, rtol=rtol, atol=atol, **weights)
    if eta == 0:
        return rows
    G, C, zz = (np.ascontiguousarray(np.asarray(v, dtype=np.float64)) for v in (G, C, zz))
    ball = np.ones(C.shape[1], bool) if ball_mask is None else np.asarray(ball_mask, bool)
    kappas = np.broadcast_to(np.asarray(kappa, dtype=np.float64), C.shape[:1])
    A, mu, n_steps = np.array(rows.A), np.array(rows.multiplier), np.array(rows.n_steps)
    status = np.array(rows.status, dtype=object)
    tolerance = Tolerance(rtol, atol)

    def gaps(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gap, value = perspective_gap(G, C[at], zz[at], A[at], penalty, kappa=kappas[at], ball_mask=ball)
        return gap, is_certified(gap, value, zz[at], tolerance)

    live = np.flatnonzero(status != Status.NOT_FINITE)
    gap = np.full(C.shape[0], np.nan)
    gap[live], good = gaps(live)
    todo = live[~good]
    status[live[good]] = Status.OPTIMAL
    for _ in range(ROUNDS):
        if todo.size == 0:
            break
        a, m = A[todo], mu[todo]
        pieces, reached = np.zeros(todo.size, np.int64), np.zeros(todo.size, bool)
        radius = np.where(np.isfinite(kappas[todo]), kappas[todo], np.inf)
        follow_rows(G, C[todo], alpha, knee, radius, ball, a, m, 40 * C.shape[1] + 1000, pieces, reached)
        n_steps[todo] += pieces
        into_ball(a, radius, ball)
        A[todo], mu[todo] = a, m
        gap[todo], good = gaps(todo)
        status[todo[good]] = Status.OPTIMAL
        todo = todo[~good]
    if todo.size:
        a, m, last = A[todo], mu[todo], todo

        def judge(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            A[last[at]] = a[at]
            return gaps(last[at])

        own = np.full(todo.size, alpha), knee, kappas[todo].copy()
        gap[todo], good, pieces = fista(G, C[todo], *own, ball, a, m, judge)
        mu[todo] = m
        n_steps[todo] += pieces
        status[todo] = np.where(good, Status.FISTA, Status.INACCURATE)
    return Rows(A=A, multiplier=mu, gap=gap, n_steps=n_steps, status=status.astype(str))
