"""Parametric active set for the perspective penalty of one row, compiled.

    min_a  1/2 a'Ga - c'a + sum_j phi(a_j)   s.t.  sum over the ball of |a_j| <= kappa,
    phi(x) = t |x| for |x| <= knee,  t |x| + alpha (|x| - knee)^2 beyond,   t = 2 alpha knee

Any start (a, mu) is the solution for another linear term c0, made so that the optimality conditions hold, and another
kappa0. The solution is followed along c0 + theta (c - c0), kappa0 + theta (kappa - kappa0) to theta = 1: it is
piecewise linear. On the active set, with s the signs and E the coordinates beyond the knee,

    (G + 2 alpha E) da = dc - dmu s_ball,        s_ball'da = dkappa   while the ball is tight.

A piece ends when a coefficient reaches zero or crosses the knee, a correlation reaches its bound t (+ mu in the ball),
the ball becomes tight or mu returns to zero. Columns that depend on the active ones join as well: a small proximal term
around the start, `REGULAR` of every diagonal, gives each system one solution; a second pass from the end of the first
removes its effect, and the certificate is that of the problem without it.

Source:
    the homotopy of Osborne, Presnell, Turlach (2000) for the penalty of SIM paper (4); see perspective.py.
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS, append, backward, delete, forward
from implicit_models.sim.solvers.homotopy import combine

ZERO, LINEAR, QUADRATIC, BARRED = 0, 1, 2, 3
REGULAR = 1e-11  # of G_jj, added to the diagonal of every active column
AGAIN = 1e-10  # a column that just left may not come back on the same side within this share of the way


@kernel(**OPTIONS)
def follow(G, c, alpha, knee, kappa, ball, a, mu, cap):
    """Move a in place to the solution for c.

    Returns:
        (mu, pieces, whether theta reached 1).
    """
    d = c.size
    t = 2.0 * alpha * knee
    kind, side = np.zeros(d, np.int64), np.zeros(d)
    R, active = np.empty((d, d)), np.empty(d, np.int64)
    u, w, v, x, scratch = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    r, dc, moved = np.empty(d), np.zeros(d), np.empty(d)
    k = 0
    norm = 0.0
    for j in range(d):
        if G[j, j] <= 0.0 or (ball[j] and kappa == 0.0):
            kind[j], a[j] = BARRED, 0.0
        elif a[j] != 0.0:
            side[j] = 1.0 if a[j] > 0.0 else -1.0
            kind[j] = LINEAR if abs(a[j]) <= knee else QUADRATIC
            extra = REGULAR * G[j, j] + (2.0 * alpha if kind[j] == QUADRATIC else 0.0)
            if append(R, k, G, active, j, extra, scratch):
                k += 1
            else:
                kind[j], side[j], a[j] = ZERO, 0.0, 0.0
        if ball[j]:
            norm += abs(a[j])
    tight = mu > 0.0 and norm > 0.0
    if not tight:
        mu = 0.0
        if norm > kappa:
            for i in range(k):
                if ball[active[i]]:
                    a[active[i]] *= kappa / norm
            norm = kappa
    dkappa = kappa - norm if tight else 0.0
    for i in range(k):
        w[i] = a[active[i]]
    combine(G, active, k, w, moved)
    for j in range(d):
        r[j] = c[j] - moved[j]
        if kind[j] == BARRED:
            continue
        bound = t + (mu if ball[j] else 0.0)
        if kind[j] == ZERO:
            dc[j] = r[j] - min(max(r[j], -bound), bound)
        else:
            over = 2.0 * alpha * (abs(a[j]) - knee) if kind[j] == QUADRATIC else 0.0
            dc[j] = r[j] - side[j] * (bound + over)
        r[j] -= dc[j]

    left, pieces, rest = -1, 0, 1.0
    while pieces < cap:
        pieces += 1
        for i in range(k):
            u[i] = dc[active[i]]
        forward(R, k, u)
        backward(R, k, u, w)
        dmu, dnorm = 0.0, 0.0
        for i in range(k):
            j = active[i]
            x[i] = side[j] if ball[j] else 0.0
            dnorm += x[i] * w[i]
        if tight:
            for i in range(k):
                u[i] = x[i]
            forward(R, k, u)
            backward(R, k, u, v)
            steep = 0.0
            for i in range(k):
                steep += x[i] * v[i]
            if steep <= 0.0:
                return mu, pieces, False
            dmu = (dnorm - dkappa) / steep
            for i in range(k):
                w[i] -= dmu * v[i]
        combine(G, active, k, w, moved)

        step, event, at = rest, 0, -1
        for i in range(k):
            j = active[i]
            size, rate = abs(a[j]), side[j] * w[i]
            if kind[j] == LINEAR:
                if rate < 0.0 and size < -rate * step:
                    step, event, at = size / -rate, 1, i
                elif rate > 0.0 and knee - size < rate * step:
                    step, event, at = max((knee - size) / rate, 0.0), 2, i
            elif rate < 0.0 and size - knee < -rate * step:
                step, event, at = max((size - knee) / -rate, 0.0), 3, i
        if tight:
            if dmu < 0.0 and mu < -dmu * step:
                step, event = mu / -dmu, 5
        elif dnorm > 0.0 and kappa - norm < dnorm * step:
            step, event = max((kappa - norm) / dnorm, 0.0), 6
        for j in range(d):
            if kind[j] != ZERO:
                continue
            bound = t + (mu if ball[j] else 0.0)
            dbound = dmu if ball[j] else 0.0
            dr = dc[j] - moved[j]
            gain = abs(dr) if dr * r[j] >= 0.0 else -abs(dr)  # towards the side that r is on
            for way in range(2):
                speed = (gain if way == 0 else -gain) - dbound
                if speed <= 0.0:
                    continue
                distance = max(bound - abs(r[j]) if way == 0 else bound + abs(r[j]), 0.0)
                if j == left and distance <= AGAIN * bound:
                    continue
                if distance < speed * step:
                    step, event, at = distance / speed, 4, j

        for i in range(k):
            a[active[i]] += step * w[i]
        for j in range(d):
            r[j] += step * (dc[j] - moved[j])
        for i in range(k):
            r[active[i]] -= step * REGULAR * G[active[i], active[i]] * w[i]
        mu += step * dmu
        norm += step * (dkappa if tight else dnorm)
        rest -= step
        left = -1
        if event == 0:
            return mu, pieces, True
        if event == 1:
            j = active[at]
            a[j], kind[j], left = 0.0, ZERO, j
            delete(R, k, active, at, u)
            k -= 1
        elif event == 2 or event == 3:
            j = active[at]
            a[j] = side[j] * knee
            kind[j] = QUADRATIC if event == 2 else LINEAR
            delete(R, k, active, at, u)
            k -= 1
            if not append(R, k, G, active, j, REGULAR * G[j, j] + (2.0 * alpha if event == 2 else 0.0), scratch):
                return mu, pieces, False
            k += 1
        elif event == 4:
            side[at] = 1.0 if r[at] > 0.0 else -1.0
            if not append(R, k, G, active, at, REGULAR * G[at, at], scratch):
                return mu, pieces, False
            kind[at] = LINEAR
            k += 1
        elif event == 5:
            mu, tight, dkappa = 0.0, False, 0.0
        else:
            tight, norm, dkappa = True, kappa, 0.0
    return mu, pieces, False


@kernel(**OPTIONS)
def follow_rows(G, C, alpha, knee, kappa, ball, A, mu, cap, pieces, reached):
    """`follow` for every row of C; A, mu, pieces and reached are updated in place."""
    for i in range(C.shape[0]):
        mu[i], pieces[i], reached[i] = follow(G, C[i], alpha, knee, kappa[i], ball, A[i], mu[i], cap)
