r"""Perspective relaxation of the cardinality of a row: penalty, prox, conjugate, certified solutions.

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

from implicit_models.sim.solvers.perspective_fista import fista_rows
from implicit_models.sim.solvers.perspective_homotopy import follow_rows
from implicit_models.status import Status

FISTA_BATCH, FISTA_BATCHES = 2000, 20  # iterations between two certificates, and how many times
ROUNDS = 3  # passes of the active set: a later one starts from an earlier one's end and removes its rounding


def _weights(alpha: float, eta: float) -> tuple[float, float]:
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be a positive number, got {alpha}")
    if not (np.isfinite(eta) and eta >= 0):
        raise ValueError(f"eta must be a finite number that is not negative, got {eta}")
    return float(alpha), float(eta)


def perspective_penalty(x: Float[np.ndarray, " ..."] | float, *, alpha: float, eta: float) -> Float[np.ndarray, " ..."]:
    """phi(x): 2 sqrt(alpha eta) |x| up to the knee sqrt(eta / alpha), alpha x^2 + eta beyond.

    Args:
        x: any shape.
        alpha: weight of the square, positive.
        eta: weight of a non-zero, not negative.

    Returns:
        phi, of the shape of x; 0 at 0 and lower semicontinuous for eta = 0 as well.

    Raises:
        ValueError: if a weight is out of range.

    Source:
        SIM paper, (4), with the cost eta of t kept.
    """
    alpha, eta = _weights(alpha, eta)
    size = np.abs(np.asarray(x, dtype=np.float64))
    return np.where(size <= np.sqrt(eta / alpha), 2 * np.sqrt(alpha * eta) * size, alpha * size**2 + eta)


def perspective_conjugate(
    y: Float[np.ndarray, " ..."] | float, *, alpha: float, eta: float
) -> Float[np.ndarray, " ..."] | float:
    """phi*(y) = max(0, y^2 / (4 alpha) - eta).

    Args:
        y: any shape.
        alpha, eta: as `perspective_penalty`.

    Returns:
        phi*, of the shape of y.
    """
    alpha, eta = _weights(alpha, eta)
    return np.maximum(0.0, np.asarray(y, dtype=np.float64) ** 2 / (4 * alpha) - eta)


def perspective_prox(
    v: Float[np.ndarray, " ..."] | float, step: float, *, alpha: float, eta: float
) -> Float[np.ndarray, " ..."] | float:
    """argmin_x 1/2 (x - v)^2 + step phi(x).

    Mathematics: soft(v, 2 step sqrt(alpha eta)) if that is no larger than the knee, else v / (1 + 2 step alpha).

    Args:
        v: any shape.
        step: positive.
        alpha, eta: as `perspective_penalty`.

    Returns:
        the minimiser, of the shape of v.

    Raises:
        ValueError: if a number is out of range.
    """
    alpha, eta = _weights(alpha, eta)
    if not (np.isfinite(step) and step > 0):
        raise ValueError(f"step must be a positive number, got {step}")
    v = np.asarray(v, dtype=np.float64)
    soft = np.maximum(np.abs(v) - 2 * step * np.sqrt(alpha * eta), 0.0)
    return np.sign(v) * np.where(soft <= np.sqrt(eta / alpha), soft, np.abs(v) / (1 + 2 * step * alpha))


def _best_mu(excess: np.ndarray, kappa: float, alpha: float, eta: float) -> float:
    """argmin over mu >= 0 of kappa mu + sum phi*((excess - mu)_+): convex, slope by bisection."""
    low, high = 0.0, float(excess.max(initial=0.0))
    threshold = 2 * np.sqrt(alpha * eta)
    for _ in range(100):
        mu = 0.5 * (low + high)
        rest = excess - mu
        if kappa < rest[rest > threshold].sum() / (2 * alpha):
            low = mu
        else:
            high = mu
    return high if high > 0.5 * np.finfo(float).tiny else 0.0


def certify_perspective(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    *,
    alpha: float,
    eta: float,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Duality gap and objective of every row, from G, C, zz and A alone.

    Mathematics: P(a) - D(z - M a, mu) with the best mu; see the module. The gap bounds P(a) - P* for a feasible a only.

    Args:
        G: (d, d).
        C: (r, d).
        zz: (r,).
        A: (r, d) candidate rows.
        alpha, eta: as `perspective_penalty`.
        kappa: scalar or (r,).
        ball_mask: (d,), None for all, all False for no ball.

    Returns:
        gap (r,), objective (r,).
    """
    G, C, A = (np.asarray(v, dtype=np.float64) for v in (G, C, A))
    zz, kappa = np.asarray(zz, dtype=np.float64), np.broadcast_to(np.asarray(kappa, dtype=np.float64), C.shape[:1])
    ball = np.ones(C.shape[1], bool) if ball_mask is None else np.asarray(ball_mask, bool)
    gap, objective = np.empty(len(C)), np.empty(len(C))
    weights = {"alpha": alpha, "eta": eta}
    for i in range(
        len(C)
    ):  # one by one: a product of many rows rounds differently, and a row must not depend on its batch
        Ga = G @ A[i]
        fit, square, r = C[i] @ A[i], A[i] @ Ga, np.abs(C[i] - Ga)
        penalty = perspective_penalty(A[i], **weights).sum()
        objective[i] = 0.5 * max(zz[i] - 2 * fit + square, 0.0) + penalty
        if not np.all(np.isfinite(r)):
            gap[i], objective[i] = np.nan, np.nan
            continue
        mu = _best_mu(r[ball], kappa[i], alpha, eta) if np.isfinite(kappa[i]) and ball.any() else 0.0
        r[ball] = np.maximum(r[ball] - mu, 0.0)
        gap[i] = square - fit + penalty + perspective_conjugate(r, **weights).sum() + (kappa[i] * mu if mu > 0 else 0.0)  # type: ignore[union-attr]
    return gap, objective


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
    active set of perspective_path.py. A row that ends above the tolerance goes to FISTA, and its status says so.

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

    alpha, eta = _weights(alpha, eta)
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
    weights = {"alpha": alpha, "eta": eta}

    def gaps(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gap, objective = certify_perspective(G, C[at], zz[at], A[at], kappa=kappas[at], ball_mask=ball, **weights)
        return gap, (gap <= rtol * objective) | (gap <= 0.5 * atol * zz[at])

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
        _inside(a, radius, ball)
        A[todo], mu[todo] = a, m
        gap[todo], good = gaps(todo)
        status[todo[good]] = Status.OPTIMAL
        todo = todo[~good]
    lipschitz = 1.02 * float(np.linalg.eigvalsh(G)[-1]) if todo.size else 0.0
    for _ in range(FISTA_BATCHES):
        if todo.size == 0:
            break
        a, m = A[todo], mu[todo]
        fista_rows(G, C[todo], alpha, knee, kappas[todo].copy(), ball, lipschitz, a, m, FISTA_BATCH)
        _inside(a, kappas[todo], ball)
        A[todo], mu[todo] = a, m
        n_steps[todo] += FISTA_BATCH
        gap[todo], good = gaps(todo)
        status[todo] = np.where(good, Status.FISTA, Status.INACCURATE)
        todo = todo[~good]
    return Rows(A=A, multiplier=mu, gap=gap, n_steps=n_steps, status=status.astype(str))


def _inside(A: np.ndarray, kappa: np.ndarray, ball: np.ndarray) -> None:
    """Rows whose norm exceeds kappa by rounding are scaled back onto the sphere, in place."""
    norm = np.abs(A[:, ball]).sum(1)
    over = norm > kappa
    share = np.where(over, kappa / np.where(norm > 0, norm, 1.0), 1.0)
    A[:, ball] *= share[:, None]
