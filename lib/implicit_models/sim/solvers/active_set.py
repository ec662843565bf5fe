"""Long steps along the homotopy: from the solution at one penalty straight to the solution at a distant one, compiled.

The exact path visits every event. Where many columns are active it is cheaper to aim at a distant penalty lambda with
the present active set and signs, to exchange every column that then violates its condition (a coefficient of the wrong
sign leaves, a correlation above its bound joins with its sign), and to repeat until none does: the primal-dual active
set method, whose fixed point is the solution at that lambda. The ball is part of the system: on an active set with
signs s

    a = p - mu q,   (G_AA + ridge I) p = c_A - lambda s,   (G_AA + ridge I) q = s on the ball,   mu = max(0, (s'p -
    kappa) / s'q),

so that the multiplier mu comes with every exchange. The method may cycle; its rounds are bounded, and a failed step
restores the solution that it started from.

Source:
    Hintermueller, Ito, Kunisch (2002) for the exchange rule; Kim and Park (2010) for its use on the lasso.
"""

from __future__ import annotations

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import LEAN, append, backward, delete, forward
from implicit_models.sim.solvers.homotopy import NEVER, combine

ROUNDS = 15  # exchanges before a step is given up
SLACK = 1e-9  # share of its bound by which a correlation may exceed it
NOISE = 64 * 2.2e-16  # rounding of a correlation, relative to the largest at the start of the path


@kernel(**LEAN)
def settle(row, space, lam, kappa, inside, k, noise):
    """The solution of the active set with its signs; one refinement if needed. Returns (mu, residual relative to its
    bound)."""
    G, c, ridge = row.G, row.c, row.ridge
    a, r, active, R, sign = space.a, space.r, space.active, space.R, space.sign
    u, w, total, x, q = space.scratch[0], space.scratch[1], space.scratch[2], space.scratch[4], space.scratch[5]
    norm, rate = 0.0, 0.0
    for i in range(k):
        u[i] = c[active[i]] - lam * sign[active[i]]
    forward(R, k, u)
    backward(R, k, u, w)
    mu = 0.0
    if kappa >= 0.0:
        for i in range(k):
            u[i] = inside[active[i]] * sign[active[i]]
            norm += u[i] * w[i]
        if norm > kappa:
            forward(R, k, u)
            backward(R, k, u, q)
            for i in range(k):
                rate += inside[active[i]] * sign[active[i]] * q[i]
            mu = (norm - kappa) / rate
            for i in range(k):
                w[i] -= mu * q[i]
    worst = 0.0
    for turn in range(2):
        combine(G, active, k, w, total)
        for j in range(c.shape[0]):
            r[j] = c[j] - total[j]
        worst = 0.0
        for i in range(k):
            j = active[i]
            r[j] -= ridge * w[i]
            v = lam + mu * inside[j]
            u[i] = r[j] - v * sign[j]
            worst = max(worst, (abs(u[i]) - noise) / v)
        if turn == 1 or worst <= 0.1 * SLACK:
            break
        forward(R, k, u)
        backward(R, k, u, x)
        drift = 0.0
        for i in range(k):
            w[i] += x[i]
            drift += inside[active[i]] * sign[active[i]] * x[i]
        if rate > 0.0:  # the correction must not leave the ball's face
            mu += drift / rate
            for i in range(k):
                w[i] -= drift / rate * q[i]
    for i in range(k):
        a[active[i]] = w[i]
    return mu, worst


@kernel(**LEAN)
def leap(row, space, lam, target, kappa, inside, k, noise):
    """One long step from the solution at penalty lam to the one at target > 0.

    Args:
        kappa: radius of the ball; negative for none. inside: 1.0 for its columns, else 0.0.
        noise: absolute error of a correlation that counts as rounding. Others as in `homotopy.follow`.

    Returns:
        (k, mu, rounds): the solution at target; or rounds = -1 and the solution at lam; or -2 where the factor has no
        room.
    """
    G, c, ridge = row.G, row.c, row.ridge
    a, r, active, R, barred = space.a, space.r, space.active, space.R, space.barred
    sign, kept = space.sign, space.kept
    d = c.shape[0]
    u, x = space.scratch[0], space.scratch[4]
    before = k
    for i in range(k):
        kept[0, i] = active[i]
        kept[1, i] = sign[active[i]]
    for j in range(d):
        if barred[j] > NEVER:
            barred[j] = 0.0
    failed, least = -1, d
    for rounds in range(1, ROUNDS + 1):
        mu, worst = settle(row, space, target, kappa, inside, k, noise)
        if not worst < 1e-6:
            break
        changes = 0
        for i in range(k - 1, -1, -1):  # from the end, where a deletion is cheap
            j = active[i]
            if a[j] * sign[j] < 0.0:
                a[j], sign[j], barred[j] = 0.0, 0.0, 0.0
                delete(R, k, active, i, u)
                k -= 1
                changes += 1
        full, stuck = False, False
        for j in range(d):
            if sign[j] == 0.0 and barred[j] != NEVER:
                v = target + mu * inside[j]
                if abs(r[j]) > v * (1.0 + SLACK) + noise:
                    if barred[j] > NEVER:  # a dependent column within rounding of its bound is no obstacle
                        stuck = stuck or abs(r[j]) > v * (1.0 + 1e-6) + noise
                        continue
                    if k == R.shape[0]:
                        full = True
                        break
                    changes += 1
                    if append(R, k, G, active, j, ridge, x):
                        k += 1
                        sign[j] = 1.0 if r[j] > 0.0 else -1.0
                        barred[j] = NEVER
                    else:
                        barred[j] = 2.0 * NEVER
        if full:
            failed = -2
            break
        if changes == 0:
            if stuck:
                break
            return k, mu, rounds
        if rounds > 2 and changes > 3 * least + 32:  # it diverges
            break
        least = min(least, changes)
    for i in range(k):
        j = active[i]
        a[j], sign[j], barred[j] = 0.0, 0.0, 0.0
    for j in range(d):
        if barred[j] > NEVER:
            barred[j] = 0.0
    k = 0
    for i in range(before):
        j = int(kept[0, i])
        if append(R, k, G, active, j, ridge, x):
            sign[j] = kept[1, i]
            barred[j] = NEVER
            k += 1
    mu, worst = settle(row, space, lam, kappa, inside, k, noise)
    return k, mu, failed
