"""The row problem by homotopy, many rows a call: down in the penalty, then up in the multiplier of the ball.

Phase one lowers the penalty of all columns from max|c| to beta. With every column in the ball it stops where the l1
norm reaches kappa: the multiplier is what is left of the penalty above beta. Otherwise, where the norm over the ball is
above kappa at beta, phase two keeps the factor and raises the penalty of the ball's columns alone until the norm is
kappa.

That is event by event. Beyond `few` active columns long steps take over, which keep the ball's multiplier as they go
and need no second phase; where they fail, the row goes on, or starts again, event by event.
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.active_set import NOISE, leap
from implicit_models.sim.solvers.cholesky import OPTIONS
from implicit_models.sim.solvers.homotopy import CAP, END, GAP, GROW, KAPPA, LARGE, combine, enough, follow, start

EVERYTHING = 1 << 40
FEW = 80  # support up to which the path is followed event by event


@kernel(**OPTIONS)
def recomputed_gap(G, c, zz, a, active, k, kappa, beta, ball, ridge, r):
    """Duality gap, objective and norm over the ball from a alone; overwrites r. See `certificate.certify`."""
    values = np.empty(k)
    for i in range(k):
        values[i] = a[active[i]]
    combine(G, active, k, values, r)
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


@kernel(**OPTIONS)
def descend(
    G,
    c,
    lam,
    beta,
    kappa,
    inside,
    everything,
    a,
    r,
    active,
    k,
    R,
    work,
    barred,
    ridge,
    zz,
    rtol,
    slack,
    sign,
    kept,
    noise,
):
    """Long steps in the penalty from lam down to beta; arguments as in `long_step.leap`.

    Returns:
        (k, lam, multiplier of the ball, rounds, reason): END at beta, KAPPA or GAP before it where the whole vector is
        in the ball, GROW, or CAP where a step fails however short; then lam is where it stands.
    """
    sign[:] = 0.0
    for i in range(k):
        sign[active[i]] = 1.0 if r[active[i]] > 0.0 else -1.0
    share, least, total, mu = 0.6, 0.05, 0, 0.0
    while lam > beta:
        target = max(beta, share * lam)
        k, mu, rounds = leap(
            G, c, lam, target, kappa, inside, a, r, active, k, R, work, barred, ridge, sign, kept, noise
        )
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
            if enough(zz, fit, norm, lam, beta, kappa, rtol, slack):
                return k, lam, mu, total, GAP
    return k, lam, mu, total, END


@kernel(**OPTIONS)
def ball_norm(a, active, k, ball):
    total = 0.0
    for i in range(k):
        if ball[active[i]]:
            total += abs(a[active[i]])
    return total


@kernel(**OPTIONS)
def whole_ball_row(
    G,
    c,
    zz,
    kappas,
    beta,
    ball,
    ones,
    zeros,
    ridge,
    rtol,
    slack,
    few,
    cap,
    a,
    r,
    active,
    R,
    work,
    barred,
    sign,
    kept,
    A,
    multiplier,
    gap,
    value,
    violation,
    pieces,
    reason,
):
    """All radii of one row in one pass, in ascending order; returns False where the factor has no room."""
    tau = start(G, c, a, r, barred)
    k, long, noise = 0, False, NOISE * tau
    for t in range(kappas.shape[0]):
        kappa = kappas[t]
        steps, why = 0, KAPPA
        bounded = kappa < np.inf
        if kappa > 0.0 and tau > beta:
            why = LARGE
            radius, tolerance = (kappa, rtol) if bounded else (-1.0, -1.0)
            if not long:
                k, tau, steps, why = follow(
                    G,
                    c,
                    zeros,
                    ones,
                    tau,
                    beta,
                    radius,
                    ball,
                    a,
                    r,
                    active,
                    k,
                    R,
                    work,
                    barred,
                    ridge,
                    zz,
                    beta,
                    tolerance,
                    slack,
                    few,
                    cap,
                )
            if why == LARGE:
                long = True
                k, at, mu, more, why = descend(
                    G,
                    c,
                    tau,
                    beta,
                    radius,
                    ones,
                    True,
                    a,
                    r,
                    active,
                    k,
                    R,
                    work,
                    barred,
                    ridge,
                    zz,
                    rtol,
                    slack,
                    sign,
                    kept,
                    noise,
                )
                steps += more
                tau = at + mu
                if why == CAP:
                    k, tau, more, why = follow(
                        G,
                        c,
                        zeros,
                        ones,
                        tau,
                        beta,
                        radius,
                        ball,
                        a,
                        r,
                        active,
                        k,
                        R,
                        work,
                        barred,
                        ridge,
                        zz,
                        beta,
                        tolerance,
                        slack,
                        EVERYTHING,
                        cap,
                    )
                    steps += more
            if why == GROW:
                return False
        multiplier[t] = max(tau - beta, 0.0) if bounded else 0.0
        gap[t], value[t], norm = recomputed_gap(G, c, zz, a, active, k, kappa, beta, ball, ridge, work[5])
        violation[t] = max(norm - kappa, 0.0)
        pieces[t] = steps
        reason[t] = why
        A[t] = a
    return True


@kernel(**OPTIONS)
def part_ball_row(
    G,
    c,
    zz,
    kappas,
    beta,
    ball,
    inside,
    ones,
    zeros,
    level,
    ridge,
    rtol,
    slack,
    few,
    cap,
    a,
    r,
    active,
    R,
    work,
    barred,
    sign,
    kept,
    A,
    multiplier,
    gap,
    value,
    violation,
    pieces,
    reason,
):
    """All radii of one row whose ball holds some columns only, from the largest; returns False where the factor has no
    room."""
    k, long, noise = 0, False, 0.0
    for t in range(kappas.shape[0] - 1, -1, -1):
        kappa = kappas[t]
        radius = kappa if kappa < np.inf else -1.0
        steps, mu, why = 0, 0.0, END
        done = False
        if long:  # the solution at the radius before is near
            k, mu, rounds = leap(
                G, c, beta, beta, radius, inside, a, r, active, k, R, work, barred, ridge, sign, kept, noise
            )
            if rounds == -2:
                return False
            done, steps = rounds > 0, max(rounds, 0)
        if not done:
            # long steps early, then earlier, then none: but for a penalty without ridge the caller has a better last
            # resort
            for attempt in range(2 if ridge == 0.0 and beta > 0.0 else 3):
                tau = start(G, c, a, r, barred)
                k, long, noise, mu, why = 0, False, NOISE * tau, 0.0, END
                early = few if attempt == 0 else (2 if attempt == 1 else EVERYTHING)
                if tau > beta:
                    k, tau, more, why = follow(
                        G,
                        c,
                        zeros,
                        ones,
                        tau,
                        beta,
                        -1.0,
                        ball,
                        a,
                        r,
                        active,
                        0,
                        R,
                        work,
                        barred,
                        ridge,
                        zz,
                        beta,
                        -1.0,
                        slack,
                        early,
                        cap,
                    )
                    steps += more
                if why == LARGE:
                    k, tau, mu, more, why = descend(
                        G,
                        c,
                        tau,
                        beta,
                        radius,
                        inside,
                        False,
                        a,
                        r,
                        active,
                        k,
                        R,
                        work,
                        barred,
                        ridge,
                        zz,
                        rtol,
                        slack,
                        sign,
                        kept,
                        noise,
                    )
                    steps += more
                    long = why == END
                if why != CAP:
                    break
            if why == END and not long and radius >= 0.0 and ball_norm(a, active, k, ball) > kappa:
                k, mu, more, why = follow(
                    G,
                    c,
                    level,
                    inside,
                    0.0,
                    1e280,
                    kappa,
                    ball,
                    a,
                    r,
                    active,
                    k,
                    R,
                    work,
                    barred,
                    ridge,
                    zz,
                    beta,
                    -1.0,
                    slack,
                    EVERYTHING,
                    cap,
                )
                steps += more
            if why == GROW:
                return False
        multiplier[t] = mu
        gap[t], value[t], norm = recomputed_gap(G, c, zz, a, active, k, kappa, beta, ball, ridge, work[5])
        violation[t] = max(norm - kappa, 0.0)
        pieces[t] = steps
        reason[t] = why
        A[t] = a
    return True


@kernel(**OPTIONS)
def solve_chunk(
    G,
    C,
    zz,
    kappas,
    beta,
    ball,
    ridge,
    rtol,
    slack,
    few,
    room,
    cap,
    A,
    multiplier,
    gap,
    value,
    violation,
    pieces,
    reason,
):
    """Solve the rows whose reason is negative; returns the first that needs a larger factor, or the number of rows.

    Args:
        G (d, d), C (r, d), zz (r,), kappas (r, K) ascending, inf for no ball, beta (r,), ball (d,): the problems.
        ridge, rtol, slack (r,): ridge, and the gap at which to stop, relative and absolute.
        few: support up to which the path goes event by event (where part of the row is in the ball, a quarter of it:
            long steps should meet the ball early). room: largest support that the factor holds. cap: pieces.
        A (r, K, d), multiplier, gap, value (objective), violation, pieces, reason (r, K): the results.
    """
    d = C.shape[1]
    everything = ball.all()
    R = np.zeros((room, room))
    active = np.zeros(room, np.int64)
    a, r, work, barred = np.empty(d), np.empty(d), np.empty((6, d)), np.empty(d)
    sign, kept = np.zeros(d), np.empty((2, d))
    zeros, ones, inside, level = np.zeros(d), np.ones(d), np.zeros(d), np.empty(d)
    for j in range(d):
        inside[j] = 1.0 if ball[j] else 0.0
    for i in range(C.shape[0]):
        if reason[i, 0] >= 0:
            continue
        if everything:
            fits = whole_ball_row(
                G,
                C[i],
                zz[i],
                kappas[i],
                beta[i],
                ball,
                ones,
                zeros,
                ridge,
                rtol,
                slack[i],
                few,
                cap,
                a,
                r,
                active,
                R,
                work,
                barred,
                sign,
                kept,
                A[i],
                multiplier[i],
                gap[i],
                value[i],
                violation[i],
                pieces[i],
                reason[i],
            )
        else:
            level[:] = beta[i]
            fits = part_ball_row(
                G,
                C[i],
                zz[i],
                kappas[i],
                beta[i],
                ball,
                inside,
                ones,
                zeros,
                level,
                ridge,
                rtol,
                slack[i],
                few // 4,
                cap,
                a,
                r,
                active,
                R,
                work,
                barred,
                sign,
                kept,
                A[i],
                multiplier[i],
                gap[i],
                value[i],
                violation[i],
                pieces[i],
                reason[i],
            )
        if not fits:
            reason[i] = -1
            return i
    return C.shape[0]
