"""Compiled active-set Newton for x = phi(A x + b) with phi piecewise linear, and the direct adjoint.

For x = max(v, 0) + s min(v, 0) with v = A x + b, a guess of the signs of v leaves one linear system,
(I - D A) x = D b with D_ii = 1 or s_i; when its solution confirms the signs it is the equilibrium.
Rows with D_ii = 0 drop out, so that only the active submatrix is factorised.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
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


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
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


@njit(nogil=True, cache=True)
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
            x[t] = np.nan
            residual[t], n_iter[t], status[t] = np.nan, 0, 3
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
                x[t] = np.nan
                residual[t], n_iter[t], status[t] = np.nan, it, 4
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
                residual[t], n_iter[t], status[t] = r, it, 0
                break
            if it >= max_iter:
                residual[t], n_iter[t], status[t] = r, it, 1 if math.isfinite(r) else 2
                break


@njit(nogil=True, cache=True)
def _solve_adjoint(A, d, g, v, residual, n_iter, status):
    N, n = g.shape
    M, y = np.empty((n, n), g.dtype), np.empty(n, g.dtype)
    active, pivots = np.empty(n, np.int64), np.empty(n, np.int64)
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
            v[t] = np.nan
            residual[t], n_iter[t], status[t] = np.nan, 0, 3
            continue
        residual[t], n_iter[t], status[t] = 0, 0, 0
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
            v[t] = np.nan
            residual[t], status[t] = np.nan, 4
            continue
        _substitute(M, s, pivots, y)
        r = 0.0
        for p in range(s):
            i = active[p]
            value = g[t, i]
            for q in range(s):
                value += A[active[q], i] * y[q]
            gap = abs(d[t, i] * value - y[p])
            r = gap if not gap <= r else r
            v[t, i] = y[p]
            scale = max(scale, abs(y[p]))
        residual[t] = r / scale
        status[t] = 0 if math.isfinite(r) else 2


def newton(A, b, code, param, x0, tol, relative, max_iter):
    """Solve x = phi(A x + b), phi piecewise linear, by active-set Newton; returns (x, residual, n_iter, status)."""
    if code.any():
        i = int(np.flatnonzero(code)[0])
        raise ValueError(f"newton needs piecewise linear activations (code 0), got code {code[i]} at state {i}")
    N, n = b.shape
    x = np.empty_like(b)
    residual, n_iter, status = np.empty(N, b.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    _solve(A, b, param, b if x0 is None else x0, x0 is not None, tol, relative, max_iter, x, residual, n_iter, status)
    return x, residual, n_iter, status


def newton_adjoint(A, d, g):
    """Solve v = d * (A^T v + g) directly by LU of the rows with d != 0; returns (v, residual, n_iter, status)."""
    N, n = g.shape
    v = np.empty_like(g)
    residual, n_iter, status = np.empty(N, g.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    _solve_adjoint(A, d, g, v, residual, n_iter, status)
    return v, residual, n_iter, status


def warm_up() -> None:
    """Compile the kernels for float32 and float64, or load them from numba's disk cache."""
    for dtype in (np.float32, np.float64):
        A, b = np.zeros((1, 1), dtype), np.ones((1, 1), dtype)
        newton(A, b, np.zeros(1, np.int8), np.zeros(1, dtype), None, 1e-3, True, 2)
        newton_adjoint(A, b, b)
