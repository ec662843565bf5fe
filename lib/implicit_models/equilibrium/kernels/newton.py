"""Compiled active-set Newton for x = phi(A x + b) with phi piecewise linear, and the direct adjoint.

For x = max(v, 0) + s min(v, 0) with v = A x + b, a guess of the signs of v leaves one linear system,
(I - D A) x = D b with D_ii = 1 or s_i; when its solution confirms the signs it is the equilibrium.
Rows with D_ii = 0 drop out, so that only the active submatrix is factorised.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int8, Int32

from implicit_models.kernels import kernel

from .blocks import all_finite
from .gauss_seidel import (
    CONVERGED,
    DIVERGING,
    MAX_ITER,
    NOT_FINITE,
    SINGULAR,
    check_arrays,
    empty_result,
    raise_not_finite,
)

CYCLE = 8  # linear solves after which a sweep is put in: patterns that come back are rare, and this ends them


@kernel(borrows=True)
def _fill(x, t, value):
    """x[t] = value: numba's general assignment takes long to compile."""
    for i in range(x.shape[1]):
        x[t, i] = value


@kernel(borrows=True, fastmath={"contract", "reassoc"})
def _factorise(M, s, pivots):
    """LU in place of the leading s by s block; the reciprocal pivots lie on the diagonal. False: singular."""
    for k in range(s):
        pivot = k
        if not abs(M[k, k]) > 0.1:
            best = abs(M[k, k])
            for i in range(k + 1, s):
                if abs(M[i, k]) > best:
                    best, pivot = abs(M[i, k]), i
            if not best > 0 or not math.isfinite(best):
                return False
        pivots[k] = pivot
        if pivot != k:
            for j in range(s):
                M[k, j], M[pivot, j] = M[pivot, j], M[k, j]
        inverse = 1 / M[k, k]
        M[k, k] = inverse
        for i in range(k + 1, s):
            factor = M[i, k] * inverse
            if factor != 0:
                M[i, k] = factor
                for j in range(k + 1, s):
                    M[i, j] -= factor * M[k, j]
    return True


@kernel(borrows=True, fastmath={"contract", "reassoc"})
def _substitute(M, s, pivots, y):
    """Solve in place with the factors of `_factorise`."""
    for k in range(s):
        p = pivots[k]
        if p != k:
            y[k], y[p] = y[p], y[k]
    for i in range(1, s):
        value = y[i]
        for j in range(i):
            value -= M[i, j] * y[j]
        y[i] = value
    for i in range(s - 1, -1, -1):
        value = y[i]
        for j in range(i + 1, s):
            value -= M[i, j] * y[j]
        y[i] = value * M[i, i]


@kernel(borrows=True)
def _sweep(A, b, slope, t, x, d):
    """One Gauss-Seidel sweep from x[t], for the signs it gives: it leads out of a cycle of patterns."""
    n = b.shape[1]
    for i in range(n):
        rest = b[t, i]
        for j in range(n):
            rest += A[i, j] * x[t, j] if j != i else 0
        d[i] = 1 if rest > 0 else slope[i]
        gain = 1 - d[i] * A[i, i]
        x[t, i] = d[i] * rest / gain if gain > 0 else d[i] * (rest + A[i, i] * x[t, i])


@kernel
def _solve(A, b, slope, x0, warm, tol, relative, max_iter, x, residual, n_iter, status):
    N, n = b.shape
    M, y = np.empty((n, n), b.dtype), np.empty(n, b.dtype)
    active, pivots = np.empty(n, np.int64), np.empty(n, np.int64)
    d, v = np.empty(n, b.dtype), np.empty(n, b.dtype)
    for t in range(N):
        finite = True
        for i in range(n):
            finite &= math.isfinite(b[t, i]) and (not warm or math.isfinite(x0[t, i]))
        if not finite:
            _fill(x, t, np.nan)
            residual[t], n_iter[t], status[t] = np.nan, 0, NOT_FINITE
            continue
        for i in range(n):
            d[i] = 1 if (x0[t, i] if warm else b[t, i]) > 0 else slope[i]
            x[t, i] = 0
        it = 0
        while True:
            s = 0
            for i in range(n):
                if d[i] != 0:
                    active[s] = i
                    s += 1
            for p in range(s):
                i = active[p]
                for q in range(s):
                    M[p, q] = -d[i] * A[i, active[q]]
                M[p, p] += 1
                y[p] = d[i] * b[t, i]
            it += 1
            if not _factorise(M, s, pivots):
                _fill(x, t, np.nan)
                residual[t], n_iter[t], status[t] = np.nan, it, SINGULAR
                break
            _substitute(M, s, pivots, y)
            for i in range(n):
                x[t, i] = 0
            for p in range(s):
                x[t, active[p]] = y[p]
            for polish in range(2):
                r, scale, same = 0.0, 0.0, True
                for i in range(n):
                    value = b[t, i]
                    for p in range(s):
                        value += A[i, active[p]] * x[t, active[p]]
                    v[i] = value
                    new = 1 if value > 0 else slope[i]
                    same &= new == d[i]
                    d[i] = new
                    gap = abs(new * value - x[t, i])
                    r = gap if not gap <= r else r
                    scale = max(scale, abs(x[t, i]))
                if relative and scale > 0:
                    r /= scale
                if r <= tol or not same or polish == 1:
                    break
                for i in range(n):
                    x[t, i] = d[i] * v[i]
            if r <= tol:
                residual[t], n_iter[t], status[t] = r, it, CONVERGED
                break
            if it >= max_iter or (same and math.isfinite(r)):  # the right pattern: rounding leaves no more
                residual[t], n_iter[t], status[t] = r, it, MAX_ITER if math.isfinite(r) else DIVERGING
                break
            if it % CYCLE == 0:
                _sweep(A, b, slope, t, x, d)


@kernel
def _solve_adjoint(A, d, g, v, residual, n_iter, status):
    N, n = g.shape
    M, y = np.empty((n, n), g.dtype), np.empty(n, g.dtype)
    active, pivots = np.empty(n, np.int64), np.empty(n, np.int64)
    accepted = 1e-10 if g.itemsize == 8 else 1e-4  # of a direct solve: what is worse comes from a system near singular
    for t in range(N):
        finite, scale, s = True, 0.0, 0
        for i in range(n):
            finite &= math.isfinite(g[t, i]) and math.isfinite(d[t, i])
            scale = max(scale, abs(g[t, i]))
            v[t, i] = 0
            if d[t, i] != 0:
                active[s] = i
                s += 1
        if not finite:
            _fill(v, t, np.nan)
            residual[t], n_iter[t], status[t] = np.nan, 0, NOT_FINITE
            continue
        residual[t], n_iter[t], status[t] = 0, 0, CONVERGED
        if scale == 0:
            continue
        for p in range(s):
            i = active[p]
            for q in range(s):
                M[p, q] = -d[t, i] * A[active[q], i]
            M[p, p] += 1
            y[p] = d[t, i] * g[t, i]
        n_iter[t] = 1
        if not _factorise(M, s, pivots):
            _fill(v, t, np.nan)
            residual[t], status[t] = np.nan, SINGULAR
            continue
        _substitute(M, s, pivots, y)
        r = largest = 0.0
        for p in range(s):
            i = active[p]
            value = g[t, i]
            for q in range(s):
                value += A[active[q], i] * y[q]
            gap = abs(d[t, i] * value - y[p])
            r = gap if not gap <= r else r
            v[t, i] = y[p]
            largest = max(largest, abs(y[p]))
        residual[t] = r / scale
        status[t] = CONVERGED if r <= accepted * max(scale, largest) else MAX_ITER if math.isfinite(r) else DIVERGING


def newton(
    A: Float[np.ndarray, "n n"],
    b: Float[np.ndarray, "N n"],
    code: Int8[np.ndarray, " n"],
    param: Float[np.ndarray, " n"],
    x0: Float[np.ndarray, "N n"] | None,
    tol: float,
    relative: bool,
    max_iter: int,
) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, " N"], Int32[np.ndarray, " N"], Int8[np.ndarray, " N"]]:
    """Equilibrium x = phi(A x + b) of every row of b, phi piecewise linear, by Newton on the activation pattern.

    Mathematics: D_ii = 1 where v_i > 0, else s_i; solve (I - D A) x = D b; take D from v = A x + b; repeat until
    max_i |phi(v) - x|_i <= tol, in relative mode <= tol max_i |x_i|. Exact as soon as D is right.

    Args:
        A, b, code, param, tol, relative: as in `gauss_seidel`; code 0 only.
        x0: (N, n), the signs of which give the first pattern; None: those of b.
        max_iter: linear solves per sample.

    Returns:
        x (N, n); residual (N,) of that x; n_iter (N,), linear solves; status (N,): 0 converged, 1 not within max_iter
        or stopped by rounding, 2 not finite on the way, 3 b or x0 not finite, 4 singular system.

    Raises:
        ValueError: for another activation.
        ValueError, TypeError: for shapes, types or layouts that do not fit.
        ValueError: if A is not finite.

    Source:
        Hintermueller, Ito and Kunisch (2002), the primal-dual active set method as a semismooth Newton method.
    """
    if code.any():
        i = int(np.flatnonzero(code)[0])
        raise ValueError(f"newton needs piecewise linear activations (code 0), got code {code[i]} at state {i}")
    check_arrays(A, b=b, x0=x0)
    if not all_finite(A):
        raise_not_finite(A)
    found = empty_result(b)
    _solve(A, b, param, b if x0 is None else x0, x0 is not None, float(tol), bool(relative), int(max_iter), *found)
    return found


def newton_adjoint(
    A: Float[np.ndarray, "n n"], d: Float[np.ndarray, "N n"], g: Float[np.ndarray, "N n"]
) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, " N"], Int32[np.ndarray, " N"], Int8[np.ndarray, " N"]]:
    """Adjoint state v = d * (A^T v + g) of every row of g by a factorisation of the rows with d != 0.

    Args:
        A: (n, n).
        d, g: (N, n).

    Returns:
        v (N, n); residual (N,) max|d (A^T v + g) - v| / max|g| (0 where g = 0); n_iter (N,), 1, or 0 where nothing was
        to solve; status (N,) as in `newton`, 1 where the system is so near singular that the residual is large.

    Raises:
        ValueError, TypeError: for shapes, types or layouts that do not fit.
        ValueError: if A is not finite.

    Source:
        Tsai (2024), section 5.2 (implicit differentiation).
    """
    check_arrays(A, d=d, g=g)
    if not all_finite(A):
        raise_not_finite(A)
    found = empty_result(g)
    _solve_adjoint(A, d, g, *found)
    return found
