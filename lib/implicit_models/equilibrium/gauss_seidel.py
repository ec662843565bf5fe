"""Compiled Gauss-Seidel for x = phi(A x + b) and for its adjoint, one residual per sample.

A sweep updates the states one after the other with the newest values of the others. The diagonal of A is solved
in closed form, so that A_ii < -1 is harmless where Picard's iteration diverges.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

PIECEWISE_LINEAR, TANH, SIGMOID = 0, 1, 2
CONVERGED, MAX_ITER, DIVERGING, NOT_FINITE, SINGULAR = 0, 1, 2, 3, 4


@njit(nogil=True, cache=True)
def _phi(v, code, slope):
    if code == 0:
        return v if v > 0 else slope * v
    if code == 1:
        return np.tanh(v)
    return 1.0 / (1.0 + np.exp(-v))


@njit(nogil=True, cache=True)
def _scalar_root(rest, a, code, slope, x_old):
    """The root x of x = phi(rest + a x); a Picard step where it is not unique."""
    if code == 0:
        if 1 - a > 0 and 1 - slope * a > 0:
            return rest / (1 - a) if rest > 0 else slope * rest / (1 - slope * a)
        return _phi(rest + a * x_old, code, slope)
    if a == 0:
        return _phi(rest, code, slope)
    low, high = (-1.0 if code == 1 else 0.0), 1.0
    x = min(max(x_old, low), high)
    for _ in range(60):
        value = _phi(rest + a * x, code, slope)
        gap = x - value
        if gap > 0:
            high = x
        else:
            low = x
        derivative = 1 - value * value if code == 1 else value * (1 - value)
        step = x - gap / (1 - a * derivative) if a * derivative < 1 else low - 1
        if not (low <= step <= high):
            step = 0.5 * (low + high)
        if step == x:
            break
        x = step
    return x


@njit(nogil=True, cache=True)
def _solve(A, b, code, param, x0, warm, tol, relative, max_iter, reverse, x, residual, n_iter, status):
    N, n = b.shape
    for t in range(N):
        finite = True
        for i in range(n):
            finite &= math.isfinite(b[t, i]) and (not warm or math.isfinite(x0[t, i]))
        if not finite:
            x[t] = np.nan
            residual[t], n_iter[t], status[t] = np.nan, 0, 3
            continue
        for i in range(n):
            x[t, i] = x0[t, i] if warm else 0
        r, first, it, state = np.inf, np.inf, 0, 1
        while True:
            change = scale = 0.0
            for k in range(n):
                i = n - 1 - k if reverse else k
                rest = b[t, i] - A[i, i] * x[t, i]
                for j in range(n):
                    rest += A[i, j] * x[t, j]
                value = _scalar_root(rest, A[i, i], code[i], param[i], x[t, i])
                change = max(change, abs(value - x[t, i]))
                x[t, i] = value
            it += 1
            r = scale = 0.0
            for i in range(n):
                v = b[t, i]
                for j in range(n):
                    v += A[i, j] * x[t, j]
                gap = abs(_phi(v, code[i], param[i]) - x[t, i])
                r = gap if not gap <= r else r
                scale = max(scale, abs(x[t, i]))
            if it == 1:
                first = change
            if relative and scale > 0:
                r /= scale
            if r <= tol:
                state = 0
                break
            if not math.isfinite(r) or change > 1e12 * first:
                state = 2
                break
            if it >= max_iter:
                state = 2 if change > first else 1
                break
        residual[t], n_iter[t], status[t] = r, it, state


@njit(nogil=True, cache=True)
def _solve_adjoint(A, d, g, tol, max_iter, reverse, v, residual, n_iter, status):
    N, n = g.shape
    for t in range(N):
        finite, scale = True, 0.0
        for i in range(n):
            finite &= math.isfinite(g[t, i]) and math.isfinite(d[t, i])
            scale = max(scale, abs(g[t, i]))
        if not finite:
            v[t] = np.nan
            residual[t], n_iter[t], status[t] = np.nan, 0, 3
            continue
        for i in range(n):
            v[t, i] = 0
        if scale == 0:
            residual[t], n_iter[t], status[t] = 0, 0, 0
            continue
        r, first, it, state = np.inf, np.inf, 0, 1
        while True:
            change = 0.0
            for k in range(n):
                i = n - 1 - k if reverse else k
                rest = g[t, i] - A[i, i] * v[t, i]
                for j in range(n):
                    rest += A[j, i] * v[t, j]
                gain = 1 - d[t, i] * A[i, i]
                value = d[t, i] * rest / gain if gain > 0 else d[t, i] * (rest + A[i, i] * v[t, i])
                change = max(change, abs(value - v[t, i]))
                v[t, i] = value
            it += 1
            r, largest = 0.0, scale
            for i in range(n):
                rest = g[t, i]
                for j in range(n):
                    rest += A[j, i] * v[t, j]
                gap = abs(d[t, i] * rest - v[t, i])
                r = gap if not gap <= r else r
                largest = max(largest, abs(v[t, i]))
            r /= largest
            if it == 1:
                first = change
            if r <= tol:
                state = 0
                break
            if not math.isfinite(r) or change > 1e12 * first:
                state = 2
                break
            if it >= max_iter:
                state = 2 if change > first else 1
                break
        residual[t], n_iter[t], status[t] = r, it, state


def sweeps_in_reverse(A: np.ndarray) -> bool:
    """Whether a sweep from the last state to the first is better: A upper triangular, and not lower."""
    return bool(not np.tril(A, -1).any() and np.triu(A, 1).any())


def gauss_seidel(A, b, code, param, x0, tol, relative, max_iter, reverse=None):
    """Solve x = phi(A x + b) for every row of b by Gauss-Seidel sweeps; returns (x, residual, n_iter, status)."""
    N, n = b.shape
    x = np.empty_like(b)
    residual, n_iter, status = np.empty(N, b.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    if reverse is None:
        reverse = sweeps_in_reverse(A)
    _solve(A, b, code, param, b if x0 is None else x0, x0 is not None, tol, relative, max_iter, reverse, x, residual, n_iter, status)
    return x, residual, n_iter, status


def gauss_seidel_adjoint(A, d, g, tol, max_iter, reverse=None):
    """Solve v = d * (A^T v + g) for every row of g by Gauss-Seidel sweeps; returns (v, residual, n_iter, status)."""
    N, n = g.shape
    v = np.empty_like(g)
    residual, n_iter, status = np.empty(N, g.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    if reverse is None:
        reverse = sweeps_in_reverse(A.T)
    _solve_adjoint(A, d, g, tol, max_iter, reverse, v, residual, n_iter, status)
    return v, residual, n_iter, status
