"""Rows of one position under a budget: a radius, a penalty, or a number of coefficients; and their least-squares refit.

Several radii, or numbers of coefficients, are met in one pass along the path. In units where columns and target have
variance 1 a penalty lam is lam m on m samples.

The refit ends the shrinkage: least squares on the support that the l1 solution selects, with a ridge that keeps rarely
active columns from huge weights. It leaves the ball, which the report says; a strictly triangular model stays
well-posed.

Source:
    Tsai thesis (2024), section 3.3; SIM paper, (7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.sim.problem import Budget, Cardinality, L1Ball, Tolerance
from implicit_models.sim.solvers.cholesky import OPTIONS
from implicit_models.sim.solvers.duality_gap import is_certified
from implicit_models.sim.solvers.homotopy import GROW, LARGE, Row, Stop, follow, start, workspace
from implicit_models.sim.solvers.row_kernels import FEW, Found, Problem, recomputed_gap, solve_chunk
from implicit_models.sim.solvers.rows import VIOLATION, solve_radii
from implicit_models.status import Status

REASONS = (Status.OPTIMAL, Status.FISTA, Status.INACCURATE, Status.NOT_FINITE, Status.SATURATED, Status.EMPTY)
OPTIMAL, FISTA, INACCURATE, NOT_FINITE, SATURATED, EMPTY = range(len(REASONS))
END_OF_PATH = 1e-9  # share of the largest correlation at which the path ends
EPS = float(np.finfo(float).eps)
PIVOT = 1e-9  # share of its squared norm that a column must keep beside the others to enter the refit


@kernel(**OPTIONS)
def path_to_sizes(G, C, zz, sizes, A, gap, value, reason):
    """The l1 path of every row to the last point with at most `sizes` (ascending) columns; A (r, K, d).

    That is the knot where one column more joins, still with coefficient zero. reason: LARGE where it was reached.
    """
    r, d = C.shape
    space, ball = workspace(d, min(d, sizes[-1] + 2)), np.ones(d, np.bool_)
    for i in range(r):
        row = Row(G, C[i], zz[i], ball, 0.0, 0.0)
        tau = start(G, C[i], space.a, space.r, space.barred)
        # nearer to zero the correlations of a target that is fitted exactly are rounding alone
        last, k, stop = END_OF_PATH * tau, 0, Stop(-1.0, 0.0, 40 * d + 1000)
        for t in range(len(sizes)):
            why = LARGE
            if k < sizes[t] + 1 and tau > last:
                k, tau, _, why = follow(row, space, space.zeros, space.ones, tau, last, -1.0, k, stop, sizes[t] + 1)
            for j in range(d):
                A[i, t, j] = space.a[j]
            # a is optimal for the radius ||a||_1, whose multiplier is tau
            norm = np.abs(space.a).sum()
            gap[i, t], value[i, t], _ = recomputed_gap(row, space, k, norm)
            reason[i, t] = why
            if why == GROW:
                break


@kernel(**OPTIONS)
def factor(G, a, ridge, L, S):
    """Cholesky factor L (k, k) of G + ridge diag G on the support of a, its columns S; columns that depend on earlier
    ones stay out. Returns k."""
    d = a.shape[0]
    row = np.empty(L.shape[0])
    k = 0
    for j in range(d):
        if a[j] == 0.0:
            continue
        square = G[j, j] * (1.0 + ridge)
        rest = square
        for i in range(k):
            v = G[j, S[i]]
            for h in range(i):
                v -= row[h] * L[i, h]
            v /= L[i, i]
            row[i] = v
            rest -= v * v
        if rest <= PIVOT * square:
            continue
        for i in range(k):
            L[k, i] = row[i]
        L[k, k] = math.sqrt(rest)
        S[k] = j
        k += 1
    return k


@kernel(**OPTIONS)
def substitute(L, S, k, c, out):
    """out on S with L L' out_S = c_S, zero elsewhere."""
    out[:] = 0.0
    y = np.empty(k)
    for i in range(k):
        v = c[S[i]]
        for h in range(i):
            v -= L[i, h] * y[h]
        y[i] = v / L[i, i]
    for i in range(k - 1, -1, -1):
        v = y[i]
        for h in range(i + 1, k):
            v -= L[h, i] * out[S[h]]
        out[S[i]] = v / L[i, i]


@kernel(**OPTIONS)
def refit(G, c, a, ridge, out):
    """Least squares on the support of a, 1/2 b'(G_SS + ridge diag) b - c_S'b; columns that depend on earlier ones stay
    zero.

    Returns 2 c'b - b'G b, what b explains of z'z: c'b + ridge sum_j G_jj b_j^2 at this optimum.
    """
    n = 0
    for j in range(c.shape[0]):
        if a[j] != 0.0:
            n += 1
    L, S = np.zeros((n, n)), np.empty(n, np.int64)
    k = factor(G, a, ridge, L, S)
    substitute(L, S, k, c, out)
    explained = 0.0
    for i in range(k):
        j = S[i]
        explained += c[j] * out[j] + ridge * G[j, j] * out[j] * out[j]
    return explained


@kernel(**OPTIONS)
def refit_all(G, C, A, ridge, B, explained):
    """`refit` of every row and budget; explained (r, K)."""
    for i in range(A.shape[0]):
        for t in range(A.shape[1]):
            explained[i, t] = refit(G, C[i], A[i, t], ridge, B[i, t])


@kernel(**OPTIONS)
def explained_by(G, C, A, explained):
    """2 c'a - a'G a of sparse rows, (r, K)."""
    r, K, d = A.shape
    S = np.empty(d, np.int64)
    for i in range(r):
        for t in range(K):
            n = 0
            for j in range(d):
                if A[i, t, j] != 0.0:
                    S[n] = j
                    n += 1
            total = 0.0
            for h in range(n):
                j = S[h]
                row = 0.0
                for g in range(n):
                    row += G[j, S[g]] * A[i, t, S[g]]
                total += A[i, t, j] * (2.0 * C[i, j] - row)
            explained[i, t] = total


@kernel(**OPTIONS)
def solve_each(G, c, zz, kappas, beta, rtol, slack, a, gap, value, violation):
    """`solve_chunk` of every row, each on a Gram matrix of its own: G (b, k, k), c (b, k), zz, kappas, slack (b,) ->
    a (b, k), gap, value, violation (b,)."""
    b, k = c.shape
    multiplier, pieces, why = np.empty((1, 1)), np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)
    kappa, penalty = np.empty((1, 1)), np.full(1, beta)
    A, own_gap, own_value, over = np.empty((1, 1, k)), np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1))
    found = Found(A, multiplier, own_gap, own_value, over, pieces, why)
    for i in range(b):
        kappa[0, 0] = kappas[i]
        A[:], own_gap[:], own_value[:], over[:], why[:] = 0.0, np.nan, 0.0, 0.0, -1
        ball = np.full(k, kappas[i] < np.inf)
        problem = Problem(G[i], c[i : i + 1], zz[i : i + 1], kappa, penalty, ball, 0.0)
        solve_chunk(problem, rtol, slack[i : i + 1], FEW, k + 1, 20 * k + 1000, found)
        gap[i], value[i], violation[i] = own_gap[0, 0], own_value[0, 0], over[0, 0]
        for j in range(k):
            a[i, j] = A[0, 0, j]


@kernel(**OPTIONS)
def refit_each(G, c, a, ridge, again, explained):
    """`refit` of every row, each on a Gram matrix of its own: again (b, k), explained (b,)."""
    for i in range(len(c)):
        explained[i] = refit(G[i], c[i], a[i], ridge, again[i])


def solve_position(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    m: int,
    budgets: Sequence[Budget],
    radius: Float[np.ndarray, " r"],
    *,
    tolerance: Tolerance,
    cap: int | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A (r, K, d), gap, violation (r, K), reason (r, K) of the rows of one position.

    Args:
        budgets: K of one kind, ascending in the size of the model.
        radius: the unit of each row's ball, by which the budgets' radii are multiplied.
        cap: largest support, beyond which a row's status is "saturated" and it keeps the solution of that size; None
            for no cap.
    """
    (r, d), K = C.shape, len(budgets)
    A, gap, violation = np.zeros((r, K, d)), np.zeros((r, K)), np.zeros((r, K))
    reason = np.full((r, K), EMPTY, np.int8)
    live = (zz > 0) & np.isfinite(zz) & np.isfinite(C).all(axis=1)
    reason[~np.isfinite(zz) | ~np.isfinite(C).all(axis=1)] = NOT_FINITE
    if not d or not live.any() or not G.any():
        return A, gap, violation, reason
    C, zz, radius, at = np.ascontiguousarray(C[live]), zz[live], radius[live], np.flatnonzero(live)
    if isinstance(budgets[0], Cardinality):
        wanted = np.array(
            [min(d, math.ceil(b.share * d * (1 - 4 * EPS))) for b in budgets],  # type: ignore[union-attr]
            np.int64,
        )  # .07 of 100 is 7
        sizes = wanted if cap is None else np.minimum(wanted, cap)
        found, value, why = np.zeros((len(C), K, d)), np.zeros((len(C), K)), np.full((len(C), K), -1, np.int64)
        own = np.zeros((len(C), K))
        path_to_sizes(G, C, zz, sizes, found, own, value, why)
        good = is_certified(own, value, zz[:, None], tolerance)
        over = (wanted > sizes) & (why == LARGE)  # the path would go on
        A[at], gap[at], reason[at] = found, own, np.where(over, SATURATED, np.where(good, OPTIMAL, INACCURATE))
        return A, gap, violation, reason
    if isinstance(budgets[0], L1Ball):
        kappas, beta = (
            radius[:, None] * np.array([float(b.radius) for b in budgets]),  # type: ignore[union-attr]
            np.zeros(len(C)),
        )
        parts = [_radii(G, C, zz, kappas, beta, tolerance)]
    else:
        parts = [
            _radii(
                G,
                C,
                zz,
                np.full((len(C), 1), np.inf),
                np.full(len(C), b.lam * m),  # type: ignore[union-attr]
                tolerance,
            )
            for b in budgets
        ]
    A[at], gap[at], violation[at], reason[at] = (np.concatenate([p[i] for p in parts], axis=1) for i in range(4))
    if cap is not None:
        over = np.argwhere(np.count_nonzero(A, axis=2) > cap)
        if len(over):
            sizes = np.array([cap], np.int64)
            rows = np.unique(over[:, 0])
            place = {int(row): int(np.flatnonzero(at == row)[0]) for row in rows}
            own = [place[int(row)] for row in rows]  # type: ignore[assignment]
            capped, small, value, why = (
                np.zeros((len(rows), 1, d)),
                np.zeros((len(rows), 1)),
                np.zeros((len(rows), 1)),
                np.full((len(rows), 1), -1, np.int64),
            )
            path_to_sizes(G, np.ascontiguousarray(C[own]), zz[own], sizes, capped, small, value, why)
            for row, t in over:
                A[row, t] = capped[np.searchsorted(rows, row), 0]
                reason[row, t], gap[row, t] = SATURATED, np.nan
    return A, gap, violation, reason


def _radii(G, C, zz, kappas, beta, tolerance):
    """Rows at each radius by the compiled path; those that it does not certify by the ladder of `rows`."""
    (r, d), K = C.shape, kappas.shape[1]
    rtol, slack = tolerance.rtol, tolerance.atol * 0.5 * zz
    A, gap, value, violation = np.zeros((r, K, d)), np.full((r, K), np.nan), np.zeros((r, K)), np.zeros((r, K))
    multiplier, pieces, why = np.zeros((r, K)), np.zeros((r, K), np.int64), np.full((r, K), -1, np.int64)
    ball, room = np.ones(d, bool), min(d, 256)
    if not np.isfinite(kappas).any():
        ball = np.zeros(d, bool)
    problem, found = (
        Problem(G, C, zz, kappas, beta, ball, 0.0),
        Found(A, multiplier, gap, value, violation, pieces, why),
    )
    while solve_chunk(problem, rtol, slack, FEW, room, 20 * d + 1000, found) < r:
        room = min(d, 2 * room)
    reason = np.full((r, K), OPTIMAL, np.int8)
    good = is_certified(gap, value, zz[:, None], tolerance) & (
        violation <= VIOLATION * np.where(np.isfinite(kappas), kappas, 1.0)
    )
    bad = np.flatnonzero(~good.all(axis=1))
    if len(bad):
        names = {name: i for i, name in enumerate(REASONS)}
        for t, rows in enumerate(
            solve_radii(G, np.ascontiguousarray(C[bad]), zz[bad], kappas[bad], ball, beta[bad], 0.0, tolerance, zz[bad])
        ):
            A[bad, t], gap[bad, t] = rows.A, rows.gap
            reason[bad, t] = [names[s] for s in rows.status]
            violation[bad, t] = (
                np.maximum(np.abs(rows.A).sum(axis=1) - kappas[bad, t], 0.0)
                if np.isfinite(kappas[bad, t]).all()
                else 0.0
            )
    return A, gap, violation, reason
