"""Implicit CROWN for one sample after another: reduction to the non-linear units, adjoint fixed point, exact
evaluation, refinement.

Units that are linear on [zl, zh] (set L, slopes S) are eliminated, x_L = S (A_LL x_L + A_LI x_I + ...), by R = (I - S
A_LL)^-1 S; the rows of the non-linear units I then see A~ = A_II + A_IL R A_LI. A row c asks for lambda_I = s (c~ +
A~' lambda_I), slope s by the sign of the bracket, solved by sweeps with the diagonal in closed form, and lambda_L
follows. Whatever came out, the bound is evaluated for it in full:

    c'x + v'u >= sum_i inf (mu_i phi(z) - lambda_i z) + q'u0 - sup |q'(u - u0)| + b'lambda,
    mu = c + A'lambda,  q = v + B'lambda.

Source: adjoint bounds of equilibrium networks: Wei & Kolter, CerDEQ (ICML 2022); CROWN, Zhang et al. (2018).
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.relaxation import infimum, linear_slope, lower_slope, upper_slope

SWEEPS = 60
_REASSOCIATE = {"reassoc", "contract", "nsz"}


@kernel(fastmath=_REASSOCIATE)
def support_gap(q, u0, radius):
    """q'u0 - sum_j radius_j |q_j|."""
    total = 0.0
    for j in range(q.size):
        total += q[j] * u0[j] - radius[j] * abs(q[j])
    return total


@kernel
def lowest(q, u0, radius, card):
    """inf of q'u over the set; card < 0 for all coordinates."""
    if card < 0 or card >= q.size:
        return support_gap(q, u0, radius)
    scaled = radius * np.abs(q)
    middle = 0.0
    for j in range(q.size):
        middle += q[j] * u0[j]
    if card == 0:
        return middle
    return middle - np.partition(scaled, q.size - card)[q.size - card :].sum()


@kernel
def split_units(zl, zh, code, a, fixed):
    """(order, slope, n_linear): units that matter, the linear ones first; linear units of slope zero do not.

    Units `fixed` to one side of their kink by a branch stay among the non-linear ones: a multiplier of their own uses
    that side.
    """
    n = zl.size
    order, slope = np.empty(n, np.int64), np.empty(n)
    count = 0
    for i in range(n):
        s = math.nan if fixed[i] else linear_slope(zl[i], zh[i], code[i], a[i])
        if s == s and s != 0:
            order[count], slope[count] = i, s
            count += 1
    n_linear = count
    for i in range(n):
        s = math.nan if fixed[i] else linear_slope(zl[i], zh[i], code[i], a[i])
        if s != s:
            order[count] = i
            count += 1
    return order[:count], slope[:n_linear], n_linear


@kernel
def take(A, rows, columns):
    out = np.empty((rows.size, columns.size))
    for i in range(rows.size):
        for j in range(columns.size):
            out[i, j] = A[rows[i], columns[j]]
    return out


@kernel
def take_rows(B, rows):
    out = np.empty((rows.size, B.shape[1]))
    for i in range(rows.size):
        out[i] = B[rows[i]]
    return out


@kernel
def reduce_units(Ag, slope, n_linear):
    """(R, feed = A_IL R, A~): elimination of the linear units of Ag, the feedback among the units that matter."""
    m = Ag.shape[0]
    k = m - n_linear
    if n_linear == 0:
        return np.zeros((0, 0)), np.zeros((k, 0)), Ag.copy()
    system, right = np.empty((n_linear, n_linear)), np.zeros((n_linear, n_linear))
    for i in range(n_linear):
        for j in range(n_linear):
            system[i, j] = -slope[i] * Ag[i, j]
        system[i, i] += 1
        right[i, i] = slope[i]
    R = np.ascontiguousarray(np.linalg.solve(system, right))
    feed = np.dot(np.ascontiguousarray(Ag[n_linear:, :n_linear]), R)
    reduced = Ag[n_linear:, n_linear:] + np.dot(feed, np.ascontiguousarray(Ag[:n_linear, n_linear:]))
    return R, feed, reduced


@kernel(error_model="numpy")
def adjoint_sweeps(reduced, C, below, above, sweeps, tol):
    """lambda (k, rows) of lambda = s (C + A~' lambda): slope `below` where the bracket is positive, `above` where it
    is negative.
    """
    k, rows = C.shape
    lam, rest = np.zeros((k, rows)), np.empty(rows)
    for _ in range(sweeps):
        change, scale = 0.0, 0.0
        for i in range(k):
            rest[:] = C[i]
            for j in range(k):
                w = reduced[j, i]
                if j != i and w != 0:
                    for r in range(rows):
                        rest[r] += w * lam[j, r]
            d = reduced[i, i]
            gain_below, gain_above = below[i] / (1 - d * below[i]), above[i] / (1 - d * above[i])
            for r in range(rows):
                new = rest[r] * (gain_below if rest[r] > 0 else gain_above)
                change, scale = max(change, abs(new - lam[i, r])), max(scale, abs(new))
                lam[i, r] = new
        if not change > tol * scale:
            break
    return lam


@kernel
def evaluate(
    lam, C, Q, constant, order, A_g, b, u0, radius, card, zl, zh, xl, xh, code, a, weight, extra, coefficient, out
):
    """Bounds of the rows for multipliers lam (rows, m), rounding taken off; C (rows, m), Q = V + lam B (rows, p).

    weight (n), extra (rows): the magnitudes that scale the rounding, per multiplier and of the row itself.
    """
    mu = C + np.dot(lam, A_g)
    for r in range(lam.shape[0]):
        total, size = constant[r], extra[r]
        for i in range(order.size):
            unit = order[i]
            total += infimum(mu[r, i], lam[r, i], zl[unit], zh[unit], xl[unit], xh[unit], code[unit], a[unit])
            total += lam[r, i] * b[unit]
            size += abs(lam[r, i]) * weight[unit]
        total += lowest(Q[r], u0, radius, card)
        out[r] = total - coefficient * size


@kernel
def slopes_of(order, n_linear, zl, zh, code, a):
    k = order.size - n_linear
    below, above = np.empty(k), np.empty(k)
    for i in range(k):
        unit = order[n_linear + i]
        below[i] = lower_slope(zl[unit], zh[unit], code[unit], a[unit])
        above[i] = upper_slope(zl[unit], zh[unit], code[unit], a[unit])
    return below, above


@kernel
def rows_of(C, order, n_linear, R, reduced_from, feed, reduced, below, above, sweeps, tol):
    """Multipliers (rows, m) of rows C (rows, m); reduced_from = R A_LI."""
    rows, m = C.shape
    lam = np.empty((rows, m))
    linear = np.ascontiguousarray(C[:, :n_linear])
    target = C[:, n_linear:].T.copy()
    if n_linear:
        target += np.dot(linear, reduced_from).T
    found = adjoint_sweeps(reduced, target, below, above, sweeps, tol)
    lam[:, n_linear:] = found.T
    if n_linear:
        lam[:, :n_linear] = np.dot(linear, R) + np.dot(np.ascontiguousarray(found.T), feed)
    return lam


@kernel
def refine(
    A, B, b, code, a, fixed, u0, radius, card, zl, zh, xl, xh, weight, coefficient, sweeps, keep, units, sides, lams
):
    """One pass: bounds of every non-linear unit's pre-activation from all bounds before it. Returns (largest gain,
    rows written).

    The gain is relative to the width. With `keep` the multipliers go to lams (rows, n), their units and sides beside
    them.
    """
    order, slope, n_linear = split_units(zl, zh, code, a, fixed)
    k = order.size - n_linear
    if k == 0:
        return 0.0, 0
    m = order.size
    A_g, B_g = take(A, order, order), take_rows(B, order)
    R, feed, reduced = reduce_units(A_g, slope, n_linear)
    reduced_from = np.dot(R, np.ascontiguousarray(A_g[:n_linear, n_linear:])) if n_linear else np.zeros((0, k))
    below, above = slopes_of(order, n_linear, zl, zh, code, a)
    C, constant, extra = np.empty((2 * k, m)), np.empty(2 * k), np.empty(2 * k)
    for i in range(k):
        unit = order[n_linear + i]
        C[i] = A_g[n_linear + i]
        C[k + i] = -A_g[n_linear + i]
        constant[i], constant[k + i] = b[unit], -b[unit]
        extra[i] = extra[k + i] = weight[unit]
    lam = rows_of(C, order, n_linear, R, reduced_from, feed, reduced, below, above, sweeps, 1e-9)
    shifted = lam.copy()
    for i in range(k):
        shifted[i, n_linear + i] += 1
        shifted[k + i, n_linear + i] -= 1
    found = np.empty(2 * k)
    evaluate(
        lam,
        C,
        np.dot(shifted, B_g),
        constant,
        order,
        A_g,
        b,
        u0,
        radius,
        card,
        zl,
        zh,
        xl,
        xh,
        code,
        a,
        weight,
        extra,
        coefficient,
        found,
    )
    gain, count = 0.0, 0
    for r in range(2 * k):
        unit = order[n_linear + r % k]
        width = zh[unit] - zl[unit]
        better = found[r] - zl[unit] if r < k else zh[unit] + found[r]
        if not better > 0:
            continue
        gain = max(gain, better / width if width > 0 else 0.0)
        if keep:
            units[count], sides[count] = unit, -1 if r < k else 1
            lams[count] = 0
            for i in range(m):
                lams[count, order[i]] = lam[r, i]
            count += 1
    for i in range(k):
        unit = order[n_linear + i]
        zl[unit] = max(zl[unit], min(found[i], zh[unit]))
        zh[unit] = min(zh[unit], max(-found[k + i], zl[unit]))
    return gain, count
