"""The row problem by homotopy, many rows a call: down in the penalty, then up in the multiplier of the ball.

Phase one lowers the penalty of all columns from max|c| to beta. With every column in the ball it stops where the l1
norm reaches kappa: the multiplier is what is left of the penalty above beta. Otherwise, where the norm over the ball is
above kappa at beta, phase two keeps the factor and raises the penalty of the ball's columns alone until the norm is
kappa.

That is event by event. Beyond `few` active columns long steps take over, which keep the ball's multiplier as they go
and need no second phase; where they fail, the row goes on, or starts again, event by event.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.active_set import NOISE, leap
from implicit_models.sim.solvers.cholesky import LEAN, OPTIONS
from implicit_models.sim.solvers.homotopy import (
    CAP,
    END,
    GAP,
    GROW,
    KAPPA,
    LARGE,
    Row,
    Stop,
    combine,
    enough,
    follow,
    start,
    workspace,
)

EVERYTHING = 1 << 40
FEW = 80  # support up to which the path is followed event by event


@kernel(**LEAN)
def recomputed_gap(row, space, k, kappa):
    """Duality gap, objective and norm over the ball from a alone. See `certificate.certify`."""
    c, zz, ball, ridge, beta = row.c, row.zz, row.ball, row.ridge, row.beta
    a, active, r, values = space.a, space.active, space.scratch[5], space.scratch[4]
    for i in range(k):
        values[i] = a[active[i]]
    combine(row.G, active, k, values, r)
    fit, square, size, norm_ball, norm = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(k):
        j = active[i]
        fit += values[i] * c[j]
        square += values[i] * r[j]
        size += values[i] * values[i]
        norm += abs(values[i])
        if ball[j]:
            norm_ball += abs(values[i])
    inside, outside, free = 0.0, 0.0, False
    for j in range(c.shape[0]):
        r[j] = c[j] - r[j] - ridge * a[j]
        if ball[j] and kappa < np.inf:
            inside = max(inside, abs(r[j]))
        else:
            free = True
            outside = max(outside, abs(r[j]))
    rho = max(zz - 2.0 * fit + square, 0.0)  # ||z - M a||^2
    objective = 0.5 * rho + beta * norm + 0.5 * ridge * size
    s = min(1.0, beta / outside) if free and outside > 0.0 else 1.0
    excess = max(s * inside - beta, 0.0)
    dual = s * (zz - fit) - 0.5 * s * s * (rho + ridge * size) - (kappa * excess if excess > 0.0 else 0.0)
    dual = max(dual, 0.0)  # rho = 0 is feasible too
    return objective - dual, objective, norm_ball


@kernel(**LEAN)
def descend(row, space, lam, kappa, inside, everything, k, stop, noise):
    """Long steps in the penalty from lam down to beta; arguments as in `active_set.leap`.

    Returns:
        (k, lam, multiplier of the ball, rounds, reason): END at beta, KAPPA or GAP before it where the whole vector is
        in the ball, GROW, or CAP where a step fails however short; then lam is where it stands.
    """
    c, a, r, active, sign, beta = row.c, space.a, space.r, space.active, space.sign, row.beta
    sign[:] = 0.0
    for i in range(k):
        sign[active[i]] = 1.0 if r[active[i]] > 0.0 else -1.0
    share, least, total, mu = 0.6, 0.05, 0, 0.0
    while lam > beta:
        target = max(beta, share * lam)
        k, mu, rounds = leap(row, space, lam, target, kappa, inside, k, noise)
        if rounds == -2:
            return k, lam, mu, total, GROW
        if rounds < 0:
            share = least = 1.0 - 0.35 * (1.0 - share)
            if share > 0.99:
                return k, lam, mu, total, CAP
            continue
        lam = target
        total += rounds
        if rounds <= 2:
            share *= 0.5
        elif rounds <= 4:
            share *= 0.85
        elif rounds >= 7:
            share = min(0.9, 1.15 * share)
        least = max(0.05, 0.97 * least)
        share = max(share, least)
        if everything and kappa >= 0.0:
            norm, fit = 0.0, 0.0
            for i in range(k):
                norm += abs(a[active[i]])
                fit += a[active[i]] * c[active[i]]
            if mu > 0.0:
                return k, lam, mu, total, KAPPA
            if enough(row.zz, fit, norm, lam, beta, kappa, stop.rtol, stop.slack):
                return k, lam, mu, total, GAP
    return k, lam, mu, total, END


@kernel(**LEAN)
def ball_norm(a, active, k, ball):
    total = 0.0
    for i in range(k):
        if ball[active[i]]:
            total += abs(a[active[i]])
    return total


class Problem(NamedTuple):
    """Row problems: kappas (r, K) ascending, inf for no ball."""

    G: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "r d"]
    zz: Float[np.ndarray, " r"]
    kappas: Float[np.ndarray, "r K"]
    beta: Float[np.ndarray, " r"]
    ball: Bool[np.ndarray, " d"]
    ridge: float


class Found(NamedTuple):
    """Solutions: coefficients, multiplier of the ball, gap, objective, what the norm exceeds the radius by, pieces of
    the path, and why it stopped."""

    A: Float[np.ndarray, "r K d"]
    multiplier: Float[np.ndarray, "r K"]
    gap: Float[np.ndarray, "r K"]
    value: Float[np.ndarray, "r K"]
    violation: Float[np.ndarray, "r K"]
    pieces: Int[np.ndarray, "r K"]
    reason: Int[np.ndarray, "r K"]


@kernel(**LEAN)
def _write(row, space, k, kappa, mu, steps, why, found, i, t):
    """Write the solution in `space` as that of row i at its radius t."""
    found.multiplier[i, t], found.pieces[i, t], found.reason[i, t] = mu, steps, why
    found.gap[i, t], found.value[i, t], norm = recomputed_gap(row, space, k, kappa)
    found.violation[i, t] = max(norm - kappa, 0.0)
    for j in range(space.a.shape[0]):
        found.A[i, t, j] = space.a[j]


@kernel(**LEAN)
def whole_ball_row(row, space, kappas, stop, few, found, i):
    """All radii of row i in one pass, in ascending order; returns False where the factor has no room."""
    beta, zeros, ones = row.beta, space.zeros, space.ones
    tau = start(row.G, row.c, space.a, space.r, space.barred)
    k, long, noise = 0, False, NOISE * tau
    for t in range(kappas.shape[0]):
        kappa = kappas[t]
        steps, why = 0, KAPPA
        bounded = kappa < np.inf
        if kappa > 0.0 and tau > beta:
            why = LARGE
            radius, tolerance = (kappa, stop.rtol) if bounded else (-1.0, -1.0)
            gap = Stop(tolerance, stop.slack, stop.cap)
            if not long:
                k, tau, steps, why = follow(row, space, zeros, ones, tau, beta, radius, k, gap, few)
            if why == LARGE:
                long = True
                k, at, mu, more, why = descend(row, space, tau, radius, ones, True, k, stop, noise)
                steps += more
                tau = at + mu
                if why == CAP:
                    k, tau, more, why = follow(row, space, zeros, ones, tau, beta, radius, k, gap, EVERYTHING)
                    steps += more
            if why == GROW:
                return False
        mu = max(tau - beta, 0.0) if bounded else 0.0
        _write(row, space, k, kappa, mu, steps, why, found, i, t)
    return True


@kernel(**LEAN)
def part_ball_row(row, space, kappas, stop, few, found, i):
    """All radii of row i, whose ball holds some columns only, from the largest; returns False where the factor has no
    room."""
    beta, inside = row.beta, space.inside
    k, long, noise, to_the_end = 0, False, 0.0, Stop(-1.0, stop.slack, stop.cap)
    for t in range(kappas.shape[0] - 1, -1, -1):
        kappa = kappas[t]
        radius = kappa if kappa < np.inf else -1.0
        steps, mu, why = 0, 0.0, END
        done = False
        if long:  # the solution at the radius before is near
            k, mu, rounds = leap(row, space, beta, beta, radius, inside, k, noise)
            if rounds == -2:
                return False
            done, steps = rounds > 0, max(rounds, 0)
        if not done:
            # long steps early, then earlier, then none: but for a penalty without ridge the caller has a better last
            # resort
            for attempt in range(2 if row.ridge == 0.0 and beta > 0.0 else 3):
                tau = start(row.G, row.c, space.a, space.r, space.barred)
                k, long, noise, mu, why = 0, False, NOISE * tau, 0.0, END
                early = few if attempt == 0 else (2 if attempt == 1 else EVERYTHING)
                if tau > beta:
                    k, tau, more, why = follow(
                        row, space, space.zeros, space.ones, tau, beta, -1.0, 0, to_the_end, early
                    )
                    steps += more
                if why == LARGE:
                    k, tau, mu, more, why = descend(row, space, tau, radius, inside, False, k, stop, noise)
                    steps += more
                    long = why == END
                if why != CAP:
                    break
            if why == END and not long and radius >= 0.0 and ball_norm(space.a, space.active, k, row.ball) > kappa:
                k, mu, more, why = follow(row, space, space.level, inside, 0.0, 1e280, kappa, k, to_the_end, EVERYTHING)
                steps += more
            if why == GROW:
                return False
        _write(row, space, k, kappa, mu, steps, why, found, i, t)
    return True


@kernel(**OPTIONS)
def solve_chunk(problem, rtol, slack, few, room, cap, found):
    """Solve the rows whose reason is negative; returns the first that needs a larger factor, or the number of rows.

    Args:
        rtol, slack (r,): the gap at which to stop, relative and absolute.
        few: support up to which the path goes event by event (where part of the row is in the ball, a quarter of it:
            long steps should meet the ball early). room: largest support that the factor holds. cap: pieces.
    """
    G, C, ball = problem.G, problem.C, problem.ball
    everything, space = ball.all(), workspace(C.shape[1], room)
    for j in range(C.shape[1]):
        space.inside[j] = 1.0 if ball[j] else 0.0
    for i in range(C.shape[0]):
        if found.reason[i, 0] >= 0:
            continue
        row = Row(G, C[i], problem.zz[i], ball, problem.ridge, problem.beta[i])
        stop = Stop(rtol, slack[i], cap)
        if everything:
            fits = whole_ball_row(row, space, problem.kappas[i], stop, few, found, i)
        else:
            space.level[:] = row.beta
            fits = part_ball_row(row, space, problem.kappas[i], stop, few // 4, found, i)
        if not fits:
            found.reason[i] = -1
            return i
    return C.shape[0]
