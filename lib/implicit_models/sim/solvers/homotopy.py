"""Exact l1 homotopy of one row on the shared Gram matrix (LARS-lasso with drops), compiled.

Follows the solution of

    min_a  1/2 a'(G + ridge I) a - c'a + sum_j v_j(tau) |a_j|,      v_j(tau) = v0_j + tau v1_j

in tau, piece by piece: on the active set with signs s, da/dtau = -w with (G_AA + ridge I) w = v1_A s, and the
correlations r = c - G a - ridge a move by dr/dtau = G_:A w + ridge w. A piece ends when a coefficient reaches zero (it
leaves), a correlation reaches its bound (it joins), the l1 norm over the ball reaches kappa, tau ends, or the gap is
small enough.

Source:
    Osborne, Presnell, Turlach (2000); Efron et al. (2004); the row problem is Tsai thesis (2024), section 3.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import LEAN, OPTIONS, append, backward, delete, extend, forward

END, KAPPA, GAP, CAP, GROW, LARGE = 0, 1, 2, 3, 4, 5  # why a path stopped
LEAVE, JOIN = 10, 11
AGAIN = 1e-9  # a column that just left may not rejoin on the same side within this share of tau
BEYOND = 1e-9  # relative speed at which a dependent column must leave its bound to count as doing so
NEVER = 1e300  # stands for infinity, so that the scan needs no care for infinities
# The scan meets no NaN: rows with one are refused before.
SCAN = {"borrows": True, "fastmath": {"nnan", "nsz", "contract", "reassoc", "arcp"}}


class Row(NamedTuple):
    """One row problem: Gram matrix, products with the target and its squared norm, columns in the ball, penalties."""

    G: Float[np.ndarray, "d d"]
    c: Float[np.ndarray, " d"]
    zz: float
    ball: Bool[np.ndarray, " d"]
    ridge: float
    beta: float


class Workspace(NamedTuple):
    """Solution of the present row, and scratch.

    a, r: coefficients and correlations c - G a - ridge a. active, R: columns in use, and the factor of `cholesky`.
    barred: NEVER for a column that may not join: active, or all zeros, or (2 NEVER) dependent on the active ones. sign:
    of the active columns, 0 elsewhere. inside: 1.0 for the columns of the ball. level: a penalty a column.
    """

    a: Float[np.ndarray, " d"]
    r: Float[np.ndarray, " d"]
    active: Int[np.ndarray, " room"]
    R: Float[np.ndarray, "room room"]
    barred: Float[np.ndarray, " d"]
    sign: Float[np.ndarray, " d"]
    inside: Float[np.ndarray, " d"]
    level: Float[np.ndarray, " d"]
    zeros: Float[np.ndarray, " d"]
    ones: Float[np.ndarray, " d"]
    scratch: Float[np.ndarray, "6 d"]
    kept: Float[np.ndarray, "2 d"]


class Stop(NamedTuple):
    """Gap at which to stop, relative to the objective and absolute (rtol < 0: not for a gap), and largest number of
    pieces."""

    rtol: float
    slack: float
    cap: int


@kernel(**OPTIONS)
def workspace(d, room):
    """A `Workspace` for rows of d columns and supports of at most `room`."""
    return Workspace(
        np.empty(d),
        np.empty(d),
        np.zeros(room, np.int64),
        np.zeros((room, room)),
        np.empty(d),
        np.zeros(d),
        np.zeros(d),
        np.empty(d),
        np.zeros(d),
        np.ones(d),
        np.empty((6, d)),
        np.empty((2, d)),
    )


@kernel(**LEAN)
def combine(G, active, k, w, out):
    """out = sum_i w_i G[active_i]: eight rows of G a pass."""
    d = out.shape[0]
    i = k % 8
    out[:] = 0.0
    for h in range(i):
        g0, w0 = G[active[h]], w[h]
        for j in range(d):
            out[j] += g0[j] * w0
    while i < k:
        g0, g1, g2, g3 = G[active[i]], G[active[i + 1]], G[active[i + 2]], G[active[i + 3]]
        g4, g5, g6, g7 = G[active[i + 4]], G[active[i + 5]], G[active[i + 6]], G[active[i + 7]]
        w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
        w4, w5, w6, w7 = w[i + 4], w[i + 5], w[i + 6], w[i + 7]
        for j in range(d):
            out[j] += (g0[j] * w0 + g1[j] * w1 + g2[j] * w2 + g3[j] * w3) + (
                g4[j] * w4 + g5[j] * w5 + g6[j] * w6 + g7[j] * w7
            )
        i += 8


@kernel(**SCAN)
def joins(r, dr, v0, v1, tau, direction, barred, times):
    """Step to each column's bound into `times`, and the least of them; `barred` is 0, or NEVER for a column not in
    play."""
    nearest = NEVER
    for j in range(r.shape[0]):
        v, dv, dj = v0[j] + tau * v1[j], v1[j] * direction, dr[j] * direction
        up = (v - r[j]) / (dj - dv) if dj - dv > 1e-300 else NEVER
        down = (v + r[j]) / (-dj - dv) if -dj - dv > 1e-300 else NEVER
        t = (up if up < down else down) + barred[j]
        t = t if t > 0.0 else 0.0
        times[j] = t
        nearest = t if t < nearest else nearest
    return nearest


@kernel(**LEAN)
def enough(zz, fit, norm, tau, base, kappa, rtol, slack):
    """Whether the solution at penalty tau is near enough to the one in the ball of radius kappa at penalty base.

    The residual at tau is dual feasible with gap (tau - base)(kappa - ||a||_1); zero is with the objective as gap.
    """
    objective = 0.5 * (zz - fit - tau * norm) + base * norm
    gap = min((tau - base) * (kappa - norm), objective)
    return gap <= rtol * objective or gap <= slack


@kernel(**LEAN)
def exchange(R, k, active, a, j, side, x, q, ball, kappa):
    """Bring in column j that depends on the active ones; returns the position of the one that goes, k at kappa, or -1.

    With M_j = M_A q the move a_j += side t, a_A -= side t q changes neither the residual nor, at a correlation that
    stands at its bound, the penalty. It ends where the first coefficient is zero, or before it where the norm over the
    ball is kappa (negative for none). x = R^-T G_Aj is left there by `append`.
    """
    backward(R, k, x, q)
    nearest, at = NEVER, -1
    norm, rate = 0.0, (1.0 if ball[j] else 0.0)
    for i in range(k):
        value, move = a[active[i]], side * q[i]
        if value * move > 0.0:
            t = value / move
            if t < nearest:
                nearest, at = t, i
        if ball[active[i]]:
            norm += abs(value)
            rate -= move if value > 0.0 else -move
    if at < 0:
        return -1
    if kappa >= 0.0 and (norm - kappa) * (norm + nearest * rate - kappa) < 0.0:
        nearest, at = (kappa - norm) / rate, k
    for i in range(k):
        a[active[i]] -= side * nearest * q[i]
    a[j] = side * nearest
    return at


@kernel(**LEAN)
def follow(row, space, v0, v1, tau, tau_end, kappa, k, stop, large):
    """Follow the path from tau to tau_end; `space` holds the solution at tau, with k active columns, and is updated.

    Args:
        kappa: bound on the l1 norm over the ball; negative for none.
        row: its beta is the penalty at the end of the path; where the whole vector is in the ball the gap at tau is
            (tau - beta)(kappa - ||a||_1).
        large: support at which to stop with LARGE.

    Returns:
        (k, tau, pieces, reason), reason one of END, KAPPA, GAP, LARGE, CAP, GROW (the factor has no room for one more
        column).
    """
    G, c, ball, ridge, rtol = row.G, row.c, row.ball, row.ridge, stop.rtol
    a, r, active, R, barred = space.a, space.r, space.active, space.R, space.barred
    d = c.shape[0]
    u, w, dr, times, x = space.scratch[0], space.scratch[1], space.scratch[2], space.scratch[3], space.scratch[4]
    direction = 1.0 if tau_end > tau else -1.0
    for i in range(k):
        u[i] = v1[active[i]] if r[active[i]] > 0.0 else -v1[active[i]]
    forward(R, k, u)
    for q in range(d):  # what depended on the active columns on the way here may be free to move under other penalties
        if barred[q] > NEVER:
            barred[q] = 0.0
    left, left_side = -1, 0.0
    pieces = 0
    while pieces < stop.cap:
        pieces += 1
        backward(R, k, u, w)
        combine(G, active, k, w, dr)

        step, event, at = abs(tau_end - tau), END, -1
        norm, rate = 0.0, 0.0
        for i in range(k):
            j = active[i]
            da = -w[i] * direction
            dr[j] += ridge * w[i]
            grows = da if r[j] > 0.0 else -da
            if a[j] * da < 0.0 or (a[j] == 0.0 and grows < 0.0):  # the second: one of several that joined at a tie
                t = -a[j] / da
                if t < step:
                    step, event, at = t, LEAVE, i
            if ball[j]:
                norm += abs(a[j])
                rate += grows
        if left >= 0:
            barred[left] = NEVER
        nearest = joins(r, dr, v0, v1, tau, direction, barred, times)
        if left >= 0:  # its correlation stands at the bound of one side, from which rounding alone could call it back
            barred[left] = 0.0
            v, dv = v0[left] + tau * v1[left], v1[left] * direction
            for side in (-1.0, 1.0):
                slope = side * dr[left] * direction - dv
                if slope > 1e-300:
                    t = max((v - side * r[left]) / slope, 0.0)
                    if (side != left_side or t > AGAIN * tau) and t < nearest:
                        nearest, times[left] = t, t
        if nearest < step:
            step, event = nearest, JOIN
        # The norm grows to kappa on a path down, and shrinks to it on a path up.
        if kappa >= 0.0 and rate * direction < 0.0:
            t = max((kappa - norm) / rate, 0.0)
            if t <= step:
                step, event = t, KAPPA

        for i in range(k):
            a[active[i]] -= w[i] * direction * step
        for j in range(d):
            r[j] += dr[j] * direction * step
        tau += direction * step
        left = -1
        if event == END:
            return k, tau_end, pieces, END
        if event == KAPPA:
            return k, tau, pieces, KAPPA
        if rtol >= 0.0:
            norm, fit = 0.0, 0.0
            for i in range(k):
                norm += abs(a[active[i]])
                fit += a[active[i]] * c[active[i]]
            if enough(row.zz, fit, norm, tau, row.beta, kappa, rtol, stop.slack):
                return k, tau, pieces, GAP
        if event == LEAVE:
            j = active[at]
            left, left_side = j, (1.0 if r[j] > 0.0 else -1.0)
            a[j] = 0.0
            delete(R, k, active, at, u)
            k -= 1
            barred[j] = 0.0
            for q in range(d):
                if barred[q] > NEVER:
                    barred[q] = 0.0
        else:
            j = 0
            while times[j] != nearest:
                j += 1
            if k == R.shape[0]:
                return k, tau, pieces, GROW
            side = 1.0 if r[j] > 0.0 else -1.0
            joined = append(R, k, G, active, j, ridge, x)
            if not joined and (side * dr[j] - v1[j]) * direction > BEYOND * (abs(dr[j]) + v1[j]):
                at = exchange(R, k, active, a, j, side, x, w, ball, kappa)
                if at == k:  # the end of the path: the factor need not follow
                    active[k] = j
                    return k + 1, tau, pieces, KAPPA
                if at >= 0:  # what leaves stands at its bound; the path goes on with the other
                    left, left_side = active[at], (1.0 if r[active[at]] > 0.0 else -1.0)
                    a[left], barred[left] = 0.0, 0.0
                    delete(R, k, active, at, u)
                    k -= 1
                    for q in range(d):
                        if barred[q] > NEVER:
                            barred[q] = 0.0
                    joined = append(R, k, G, active, j, ridge, x)
                    if not joined:
                        a[j] = 0.0
            if joined:
                k += 1
                extend(R, k, side * v1[j], u)
                barred[j] = NEVER
            else:
                barred[j] = 2.0 * NEVER
            if k >= large:
                return k, tau, pieces, LARGE
    return k, tau, pieces, CAP


@kernel(**LEAN)
def start(G, c, a, r, barred):
    """The empty solution: a = 0, r = c, columns of zeros barred; returns the largest correlation."""
    top = 0.0
    for j in range(c.shape[0]):
        a[j], r[j] = 0.0, c[j]
        barred[j] = 0.0 if G[j, j] > 0.0 else NEVER
        if barred[j] == 0.0:
            top = max(top, abs(c[j]))
    return top
