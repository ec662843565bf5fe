"""Implicit CROWN for one sample after another: reduction to the non-linear units, adjoint fixed point, exact
evaluation, refinement.

Units that are linear on [zl, zh] (set L, slopes S) are eliminated, x_L = S (A_LL x_L + A_LI x_I + ...), by R = (I - S
A_LL)^-1 S; the rows of the non-linear units I then see A~ = A_II + A_IL R A_LI. A row c asks for lambda_I = s (c~ +
A~' lambda_I), slope s by the sign of the bracket, solved by sweeps with the diagonal in closed form, and lambda_L
follows. Whatever came out, the bound is evaluated for it in full:

    c'x + v'u >= sum_i inf (mu_i phi(z) - lambda_i z) + q'u0 - sup |q'(u - u0)| + b'lambda,
    mu = c + A'lambda,  q = v + B'lambda.

Source:
    adjoint bounds of equilibrium networks: Wei & Kolter, CerDEQ (ICML 2022); CROWN, Zhang et al. (2018).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numba.np.linalg import _LAPACK, F_INT_nptype, ensure_lapack
from numba.types import float64

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.relaxation import infimum, linear_slope, lower_slope, upper_slope

SWEEPS = 60
_REASSOCIATE = {"reassoc", "contract", "nsz"}
ensure_lapack()
_gesv = _LAPACK().numba_xgesv(float64)  # LAPACK's dgesv; np.linalg.solve takes seconds to compile around it


class Model(NamedTuple):
    """x = phi(A x + B u + b): `code` and `slope` of each unit as in `relaxation`; rounding of a bound is `coefficient`
    times its magnitude."""

    A: Float[np.ndarray, "n n"]
    B: Float[np.ndarray, "n p"]
    b: Float[np.ndarray, " n"]
    code: Int[np.ndarray, " n"]
    slope: Float[np.ndarray, " n"]
    coefficient: float


class Sets(NamedTuple):
    """Sets of inputs of N samples and what is known over them.

    radius: one row, or one a sample. card: how many inputs move, negative for all. weight: magnitudes that scale the
    rounding. live: samples to work on. fixed: units on one side of their kink, see `split_units`.
    """

    centre: Float[np.ndarray, "N p"]
    radius: Float[np.ndarray, "R p"]
    card: int
    zl: Float[np.ndarray, "N n"]
    zh: Float[np.ndarray, "N n"]
    xl: Float[np.ndarray, "N n"]
    xh: Float[np.ndarray, "N n"]
    weight: Float[np.ndarray, "N n"]
    live: Bool[np.ndarray, " N"]
    fixed: Bool[np.ndarray, "N n"]


class Sample(NamedTuple):
    """`Sets` of one sample."""

    centre: Float[np.ndarray, " p"]
    radius: Float[np.ndarray, " p"]
    card: int
    zl: Float[np.ndarray, " n"]
    zh: Float[np.ndarray, " n"]
    xl: Float[np.ndarray, " n"]
    xh: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    fixed: Bool[np.ndarray, " n"]


class Reduced(NamedTuple):
    """The model over one set after elimination of its linear units: the units that matter in their `order`, the
    n_linear linear ones first, A and B of these, R, feed = A_IL R, among = A~, onto = R A_LI, and the slopes of the
    lines below and above each other unit."""

    order: Int[np.ndarray, " m"]
    n_linear: int
    A: Float[np.ndarray, "m m"]
    B: Float[np.ndarray, "m p"]
    R: Float[np.ndarray, "l l"]
    feed: Float[np.ndarray, "k l"]
    among: Float[np.ndarray, "k k"]
    onto: Float[np.ndarray, "l k"]
    below: Float[np.ndarray, " k"]
    above: Float[np.ndarray, " k"]


class Record(NamedTuple):
    """Multipliers (rows, n) that are kept, with the unit, side (-1 below, 1 above) and pass of each; those of a sample
    go from at[sample] on."""

    units: Int[np.ndarray, " rows"]
    sides: Int[np.ndarray, " rows"]
    turn: Int[np.ndarray, " rows"]
    lams: Float[np.ndarray, "rows n"]
    at: Int[np.ndarray, " N"]


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
    p = q.size
    if card < 0 or card >= p:
        return support_gap(q, u0, radius)
    middle = 0.0
    for j in range(p):
        middle += q[j] * u0[j]
    if card == 0:
        return middle
    scaled = np.empty(p)
    for j in range(p):
        scaled[j] = radius[j] * abs(q[j])
    select(scaled, p - card)
    moved = 0.0
    for j in range(p - card, p):
        moved += scaled[j]
    return middle - moved


@kernel
def select(values, k):
    """Reorder so that values[:k] <= values[k] <= values[k + 1:], by Hoare's algorithm with the median of three."""
    low, high = 0, values.size - 1
    while True:
        middle = (low + high) >> 1
        if values[middle] < values[low]:
            values[low], values[middle] = values[middle], values[low]
        if values[high] < values[middle]:
            values[high], values[middle] = values[middle], values[high]
        if values[middle] < values[low]:
            values[low], values[middle] = values[middle], values[low]
        pivot = values[middle]
        values[high], values[middle] = values[middle], values[high]
        i, j = low, high - 1
        while True:
            while i < high and values[i] < pivot:
                i += 1
            while j >= low and pivot < values[j]:
                j -= 1
            if i >= j:
                break
            values[i], values[j] = values[j], values[i]
            i += 1
            j -= 1
        values[i], values[high] = values[high], values[i]
        if i == k:
            return
        if i < k:
            low = i + 1
        else:
            high = i - 1


@kernel
def sample_of(sets, s):
    """The sample s of some sets, without a copy."""
    return Sample(
        sets.centre[s],
        sets.radius[s if sets.radius.shape[0] > 1 else 0],
        sets.card,
        sets.zl[s],
        sets.zh[s],
        sets.xl[s],
        sets.xh[s],
        sets.weight[s],
        sets.fixed[s],
    )


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
def block(M, rows, columns):
    """M[rows][:, columns], contiguous."""
    out = np.empty((rows.size, columns.size))
    for i in range(rows.size):
        for j in range(columns.size):
            out[i, j] = M[rows[i], columns[j]]
    return out


@kernel
def rows_at(M, rows):
    """M[rows]."""
    out = np.empty((rows.size, M.shape[1]))
    for i in range(rows.size):
        for j in range(M.shape[1]):
            out[i, j] = M[rows[i], j]
    return out


@kernel
def product(M, N):
    """M N: the one place where BLAS is called for two matrices, which is long to compile."""
    return np.dot(M, N)


@kernel
def eliminated(A, slope):
    """R = (I - S A_LL)^-1 S of the linear units, the first of A, with slopes S."""
    n = slope.size
    system, right, pivots = np.empty((n, n)), np.zeros((n, n)), np.empty(n, F_INT_nptype)
    for i in range(n):  # column by column, as LAPACK reads it
        for j in range(n):
            system[j, i] = -slope[i] * A[i, j]
        system[i, i] += 1
        right[i, i] = slope[i]
    if _gesv(ord("d"), n, n, system.ctypes, n, pivots.ctypes, right.ctypes, n) != 0:
        raise ValueError("the linear units' system is singular to machine precision")
    R = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            R[i, j] = right[j, i]
    return R


@kernel
def reduce(model, sample):
    """`Reduced` of a sample."""
    code, a, zl, zh = model.code, model.slope, sample.zl, sample.zh
    order, slope, n_linear = split_units(zl, zh, code, a, sample.fixed)
    m = order.size
    k = m - n_linear
    linear, other = order[:n_linear], order[n_linear:]
    A, B = block(model.A, order, order), rows_at(model.B, order)
    among = block(model.A, other, other)
    R, feed, onto = np.empty((n_linear, n_linear)), np.empty((k, n_linear)), np.empty((n_linear, k))
    if n_linear:
        R = eliminated(A, slope)
        through = block(model.A, linear, other)
        feed, onto = product(block(model.A, other, linear), R), product(R, through)
        fed = product(feed, through)
        for i in range(k):
            for j in range(k):
                among[i, j] += fed[i, j]
    below, above = np.empty(k), np.empty(k)
    for i in range(k):
        unit = other[i]
        below[i] = lower_slope(zl[unit], zh[unit], code[unit], a[unit])
        above[i] = upper_slope(zl[unit], zh[unit], code[unit], a[unit])
    return Reduced(order, n_linear, A, B, R, feed, among, onto, below, above)


@kernel
def adjoint_sweeps(reduced, C, below, above, sweeps, tol):
    """lambda (k, rows) of lambda = s (C + A~' lambda): slope `below` where the bracket is positive, `above` where it
    is negative.
    """
    k, rows = C.shape
    lam, rest = np.zeros((k, rows)), np.empty(rows)
    for _ in range(sweeps):
        change, scale = 0.0, 0.0
        for i in range(k):
            for r in range(rows):
                rest[r] = C[i, r]
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
def multipliers(reduced, C, sweeps, tol):
    """Multipliers (rows, m) of rows C (rows, m)."""
    rows, m = C.shape
    n_linear = reduced.n_linear
    k = m - n_linear
    target, lam = np.empty((k, rows)), np.empty((rows, m))
    linear = np.empty((rows, n_linear))
    for r in range(rows):
        for i in range(n_linear):
            linear[r, i] = C[r, i]
        for i in range(k):
            target[i, r] = C[r, n_linear + i]
    if n_linear:
        onto = product(linear, reduced.onto)
        for r in range(rows):
            for i in range(k):
                target[i, r] += onto[r, i]
    found = adjoint_sweeps(reduced.among, target, reduced.below, reduced.above, sweeps, tol)
    own = np.empty((rows, k))
    for r in range(rows):
        for i in range(k):
            own[r, i] = lam[r, n_linear + i] = found[i, r]
    if n_linear:
        direct, through = product(linear, reduced.R), product(own, reduced.feed)
        for r in range(rows):
            for i in range(n_linear):
                lam[r, i] = direct[r, i] + through[r, i]
    return lam


@kernel
def evaluate(model, sample, reduced, lam, C, Q, constant, extra, out):
    """Bounds `out` of the rows for multipliers lam (rows, m), rounding taken off; C (rows, m), Q = V + lam B (rows, p).

    weight (n) of the sample, extra (rows): magnitudes that scale the rounding, per multiplier and of the row itself.
    """
    b, code, a, weight = model.b, model.code, model.slope, sample.weight
    zl, zh, xl, xh = sample.zl, sample.zh, sample.xl, sample.xh
    fed = product(lam, reduced.A)
    for r in range(lam.shape[0]):
        total, size = constant[r], extra[r]
        for i in range(reduced.order.size):
            unit = reduced.order[i]
            mu = C[r, i] + fed[r, i]
            total += infimum(mu, lam[r, i], zl[unit], zh[unit], xl[unit], xh[unit], code[unit], a[unit])
            total += lam[r, i] * b[unit]
            size += abs(lam[r, i]) * weight[unit]
        total += lowest(Q[r], sample.centre, sample.radius, sample.card)
        out[r] = total - model.coefficient * size


@kernel
def refine(model, sets, sweeps, keep, turn, record, gains):
    """One pass over the samples that are live: bounds of every non-linear unit's pre-activation from all bounds before
    it, in place of zl and zh.

    gains (N,): the largest gain of a sample, relative to the width. With `keep` the multipliers go to `record` under
    the number `turn` of the pass.
    """
    for s in range(sets.live.size):
        gains[s] = 0.0
        if sets.live[s]:
            gains[s] = _refined(model, sample_of(sets, s), sweeps, keep, turn, record, s)


@kernel
def _refined(model, sample, sweeps, keep, turn, record, s):
    """`refine` of one sample; returns its gain."""
    reduced = reduce(model, sample)
    n_linear, m = reduced.n_linear, reduced.order.size
    k = m - n_linear
    if k == 0:
        return 0.0
    C, constant, extra = np.empty((2 * k, m)), np.empty(2 * k), np.empty(2 * k)
    for i in range(k):
        unit = reduced.order[n_linear + i]
        for j in range(m):
            C[i, j] = reduced.A[n_linear + i, j]
            C[k + i, j] = -reduced.A[n_linear + i, j]
        constant[i], constant[k + i] = model.b[unit], -model.b[unit]
        extra[i] = extra[k + i] = sample.weight[unit]
    lam = multipliers(reduced, C, sweeps, 1e-9)
    shifted = lam.copy()
    for i in range(k):
        shifted[i, n_linear + i] += 1
        shifted[k + i, n_linear + i] -= 1
    found = np.empty(2 * k)
    evaluate(model, sample, reduced, lam, C, product(shifted, reduced.B), constant, extra, found)
    zl, zh, gain = sample.zl, sample.zh, 0.0
    for r in range(2 * k):
        unit = reduced.order[n_linear + r % k]
        width = zh[unit] - zl[unit]
        better = found[r] - zl[unit] if r < k else zh[unit] + found[r]
        if not better > 0:
            continue
        gain = max(gain, better / width if width > 0 else 0.0)
        if keep:
            row = record.at[s]
            record.units[row], record.sides[row], record.turn[row] = unit, -1 if r < k else 1, turn
            for i in range(record.lams.shape[1]):
                record.lams[row, i] = 0
            for i in range(m):
                record.lams[row, reduced.order[i]] = lam[r, i]
            record.at[s] += 1
    for i in range(k):
        unit = reduced.order[n_linear + i]
        zl[unit] = max(zl[unit], min(found[i], zh[unit]))
        zh[unit] = min(zh[unit], max(-found[k + i], zl[unit]))
    return gain
