"""Compiled Gauss-Seidel for x = phi(A x + b) and for its adjoint, one residual per sample.

A sweep updates the states one after the other with the newest values of the others. The diagonal of A is solved
in closed form, so that A_ii < -1 is harmless where Picard's iteration diverges. When a sample's changes have become
multiples of one vector, x_{k+1} - x_k = rho (x_k - x_{k-1}), the rest of the geometric series is added at once
(Aitken's extrapolation); this removes the slow mode of stiff matrices. The sweep itself stands in `sweeps.py`; here are
the loops around it, and what is packed for it.

Samples advance side by side in the lanes of vector registers, but each is frozen by its own test: a result does
not depend on the other rows of its batch.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int8, Int32

from implicit_models.kernels import kernel

from .blocks import aligned, all_finite, block_width, clear, pack
from .simd import ROWS, VECTOR_BYTES, address, advance, any_positive, lanes, load
from .sweeps import (
    ACTIVE,
    BOUND,
    CHANGE,
    COUNT,
    EVALUATED,
    GROWTH_LIMIT,
    LIMIT,
    N_LANE_ROWS,
    PIECEWISE_LINEAR,
    PREVIOUS,
    SCALE,
    SIGMOID,
    SQUARE,
    UNIT,
    Block,
    Stop,
    extrapolate,
    freeze,
    roundoff,
    sweep,
    takes_one_step,
)

CONVERGED, MAX_ITER, DIVERGING, NOT_FINITE, SINGULAR = 0, 1, 2, 3, 4

_TYPES = np.dtype(np.float32), np.dtype(np.float64)
_NO_CODE = {dtype: (np.zeros(0, np.int8), np.zeros(0, dtype)) for dtype in _TYPES}
_NO_START = {dtype: np.zeros((0, 0), dtype) for dtype in _TYPES}
RELATIVE, REVERSE = 1, 2
_MARGIN, _LEAST_MARGIN = 0.8, 1e-4  # of the tolerance, for the change of a sweep


@kernel
def _pack_rows(A, code, slope, reverse, picard, block):
    """Fill what sweeps need of A and of the activation. Returns a bound of residual / change after a sweep."""
    n, n_pad, lipschitz, adjoint, loop = A.shape[0], block.n_pad, 1.0, block.adjoint, 0.0
    codes, slopes, diagonal = block.code, block.slope, block.diagonal
    for row in range(n_pad):
        codes[row], slopes[row], picard[row], diagonal[row] = PIECEWISE_LINEAR, 0, 0, 0
    for row in range(n):
        i = n - 1 - row if reverse else row
        a = A[i, i]
        if not adjoint:
            codes[row], slopes[row] = code[i], slope[i]
            if code[i] == PIECEWISE_LINEAR:
                picard[row] = a >= 1 or slope[i] * a >= 1
                lipschitz = max(lipschitz, abs(slope[i]))
            else:
                picard[row] = a > (4 if code[i] == SIGMOID else 1)
            if code[i] != PIECEWISE_LINEAR and takes_one_step(a, code[i]):
                loop = max(loop, abs(a) / (4 if code[i] == SIGMOID else 1))
        # where the scalar equation has no unique solution the state takes a Picard step
        diagonal[row] = 0 if picard[row] else a
    for row in range(n_pad):
        block.above[row] = 1 / (1 - diagonal[row])
        block.below[row] = slopes[row] / (1 - slopes[row] * diagonal[row])
    # one Newton step of a state on itself leaves at most its loop gain times the step
    return pack(A, adjoint, reverse, picard, n_pad, block.panel, block.corner) * lipschitz + loop


@kernel
def _all_finite(values, n):
    finite = True
    for i in range(n):
        finite &= values[i] - values[i] == 0
    return finite


@kernel  # 1 - d A_ii = 0 is singular: infinite, and reported as diverging
def _load_lane(b, d, start, warm, tol, n, reverse, lane, block):
    """Bring a sample into a lane. One that is not finite is replaced by zeros, which do no harm; returns False then."""
    adjoint, samples, table = block.adjoint, block.samples, block.table
    x, rhs, gain, diagonal = block.x, block.rhs, block.gain, block.diagonal
    finite = _all_finite(b, n) and (not adjoint or _all_finite(d, n)) and (not warm or _all_finite(start, n))
    for k in range(N_LANE_ROWS):
        table[k * samples + lane] = 0
    unit = abs(b[0] * 0)
    for row in range(n):
        i = n - 1 - row if reverse else row
        position = row * samples + lane
        rhs[position] = b[i] if finite else 0
        x[position] = start[i] if warm and finite else 0
        if adjoint:
            unit = max(unit, abs(rhs[position]))
            gain[position] = d[i] / (1 - d[i] * diagonal[row]) if finite else 0
    if unit == 0:
        unit += 1
    table[ACTIVE * samples + lane] = 1
    table[UNIT * samples + lane] = unit
    table[BOUND * samples + lane] = _MARGIN * tol * unit
    table[PREVIOUS * samples + lane] = np.inf
    return finite


@kernel
def _judge(table, lane, samples, stop, rounding, t, residual, n_iter, status):
    """Write residual and status of a frozen sample. Returns False when it should go on."""
    tol = stop.tol
    scale, change = table[SCALE * samples + lane], table[CHANGE * samples + lane]
    if math.isnan(table[SQUARE * samples + lane]):  # a maximum may pass over a NaN, a sum cannot
        change = np.nan
    unit = table[UNIT * samples + lane]
    r = change / scale if stop.relative and scale > 0 else change / unit
    residual[t], n_iter[t] = r, int(table[COUNT * samples + lane])
    limit = table[LIMIT * samples + lane]
    if math.isfinite(change) and (r <= tol or change <= rounding * scale):
        status[t] = CONVERGED
    elif not change < limit:
        status[t] = DIVERGING
    elif n_iter[t] >= stop.max_iter:
        status[t] = DIVERGING if change > limit / GROWTH_LIMIT else MAX_ITER
    elif table[BOUND * samples + lane] > _LEAST_MARGIN * tol * unit:
        # rounding, or d > 1 in an adjoint: ask for a smaller change
        table[BOUND * samples + lane] *= 0.25
        table[ACTIVE * samples + lane] = 1
        return False
    else:
        status[t] = MAX_ITER
    return True


@kernel
def _store_lane(x, lane, samples, n, reverse, finite, target):
    for row in range(n):
        target[n - 1 - row if reverse else row] = x[row * samples + lane] if finite else np.nan


@kernel
def _solve(A, b, other, code, slope, tol, max_iter, flags, x_out, residual, n_iter, status):
    """Solve every row of b. Returns False, with nothing written, when A is not finite.

    The interpreter hands over plain arrays and numbers: of a small solve, tuples would take a third of the time.

    Args:
        other: where `code` is empty, d of the adjoint equation; else the start, without rows for zero.
        flags: sum of RELATIVE and REVERSE.
    """
    if not all_finite(A):
        return False
    N, n = b.shape
    n_lanes = VECTOR_BYTES // b.itemsize
    n_pad = (n + ROWS - 1) // ROWS * ROWS
    width = block_width(n_pad, N, b.itemsize, n_lanes)
    size = n_pad * (n_pad + ROWS + 4) + width * n_lanes * (4 * n_pad + ROWS + N_LANE_ROWS) + 2 * n_lanes + 64
    work, integers = np.empty(size, b.dtype), np.empty(2 * n_pad + width * n_lanes, np.int64)
    adjoint = code.size == 0
    warm = not adjoint and other.shape[0] > 0
    reverse = flags & REVERSE != 0
    stop = Stop(tol, flags & RELATIVE != 0, max_iter)
    panel = aligned(work)
    n_lanes = lanes(panel)
    samples = width * n_lanes
    size = n_pad * samples
    x = advance(panel, n_pad * n_pad)
    out = advance(x, 4 * size)
    table = advance(out, ROWS * samples)
    scratch = advance(table, N_LANE_ROWS * samples)
    corner = advance(scratch, 2 * n_lanes)
    diagonal = advance(corner, ROWS * n_pad)
    codes, sample = address(integers), advance(address(integers), 2 * n_pad)
    block = Block(
        panel,
        corner,
        x,
        advance(x, size),
        advance(x, 2 * size),
        advance(x, 3 * size),
        adjoint,
        codes,
        advance(diagonal, 3 * n_pad),
        diagonal,
        advance(diagonal, n_pad),
        advance(diagonal, 2 * n_pad),
        width,
        samples,
        n_pad,
        table,
        out,
        scratch,
    )
    contraction = _pack_rows(A, code, slope, reverse, advance(codes, n_pad), block)
    rounding = roundoff(block.x)
    accepted = 4 * rounding if adjoint else 0.0
    clear(x, 4 * size)
    clear(table, N_LANE_ROWS * samples)
    b_, d_, start_, x_out_ = address(b), address(other), address(other), address(x_out)
    residual_, n_iter_, status_ = address(residual), address(n_iter), address(status)
    live = min(N, samples)
    loaded = 0
    for lane in range(live):
        sample[lane] = -1
        table[EVALUATED * samples + lane] = 1  # asks for a sample
    first_turn = True
    while live > 0:
        if not first_turn:
            sweep(block)
        for first in range(0, samples, n_lanes):
            if not first_turn:
                freeze(table, first, samples, contraction, stop, rounding)
                extrapolate(table, first, samples, x, block.step, n_pad)
            if not any_positive(load(table, EVALUATED * samples + first)):
                continue
            for lane in range(first, first + n_lanes):
                if table[EVALUATED * samples + lane] == 0:
                    continue
                t = sample[lane]
                if t >= 0:
                    finite = status_[t] != NOT_FINITE
                    if not finite:
                        residual_[t], n_iter_[t] = np.nan, 0
                    elif not _judge(table, lane, samples, stop, accepted, t, residual_, n_iter_, status_):
                        continue
                    _store_lane(x, lane, samples, n, reverse, finite, advance(x_out_, t * n))
                    if loaded == N:
                        live -= 1
                        continue
                at = loaded * n
                finite = _load_lane(
                    advance(b_, at), advance(d_, at), advance(start_, at), warm, stop.tol, n, reverse, lane, block
                )
                sample[lane], status_[loaded] = loaded, MAX_ITER if finite else NOT_FINITE
                loaded += 1
        first_turn = False
    return work.size + integers.size > 0  # pointers do not keep arrays alive: these are used to the end


@kernel
def sweeps_in_reverse(A, transpose=False):
    """Whether a sweep should run from the last state to the first: A, or A', is upper triangular, and not diagonal."""
    n, other = A.shape[0], False
    for i in range(n):
        for j in range(i):
            if (A[j, i] if transpose else A[i, j]) != 0:
                return False
            other |= (A[i, j] if transpose else A[j, i]) != 0
    return other


def check_arrays(A: np.ndarray, **others: np.ndarray | None) -> None:
    """Raise ValueError or TypeError naming the array that a kernel cannot take."""
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(f"A must be square and not empty, got shape {A.shape}")
    if A.dtype != np.float32 and A.dtype != np.float64:
        raise TypeError(f"A must be float32 or float64, got {A.dtype}")
    shape = next(array.shape for array in others.values() if array is not None)
    for name, array in others.items():
        if array is None:
            continue
        if array.ndim != 2 or array.shape != shape or array.shape[1] != A.shape[0]:
            raise ValueError(f"{name} must have one row per sample and {A.shape[0]} columns, got shape {array.shape}")
        if array.dtype != A.dtype:
            raise TypeError(f"{name} is {array.dtype}, but A is {A.dtype}")
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be C-contiguous, got strides {array.strides}")


def raise_not_finite(A: np.ndarray) -> None:
    raise ValueError(f"A has values that are not finite: {int(np.count_nonzero(~np.isfinite(A)))} of {A.size}")


def empty_result(like: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    N = like.shape[0]
    return np.empty_like(like), np.empty(N, like.dtype), np.empty(N, np.int32), np.empty(N, np.int8)


def gauss_seidel(
    A: Float[np.ndarray, "n n"],
    b: Float[np.ndarray, "N n"],
    code: Int8[np.ndarray, " n"],
    param: Float[np.ndarray, " n"],
    x0: Float[np.ndarray, "N n"] | None,
    tol: float,
    relative: bool,
    max_iter: int,
    reverse: bool | None = None,
) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, " N"], Int32[np.ndarray, " N"], Int8[np.ndarray, " N"]]:
    """Equilibrium x = phi(A x + b) of every row of b by Gauss-Seidel sweeps.

    Mathematics: x_i <- root of x_i = phi_i(sum_{j != i} A_ij x_j + b_i + A_ii x_i), i = 1..n, with the newest x_j. A
    sample is done when max_i |phi(A x + b) - x|_i <= tol, in relative mode <= tol max_i |x_i|.

    Args:
        A: (n, n).
        b: (N, n), one sample a row. Both float32 or float64.
        code: (n,) 0 = max(v, 0) + s min(v, 0) with s = param, 1 = tanh, 2 = sigmoid.
        param: (n,), of A's type.
        x0: (N, n) start; zero if None.
        max_iter: sweeps per sample.
        reverse: sweep from the last state to the first; None: where A is upper triangular (one sweep solves it).

    Returns:
        x (N, n); residual (N,) of that x; n_iter (N,), sweeps; status (N,): 0 converged, 1 not within max_iter sweeps
        or stopped by rounding, 2 diverging, 3 b or x0 not finite (x and residual are NaN).

    Raises:
        ValueError, TypeError: for shapes, types or layouts that do not fit.
        ValueError: if A is not finite.

    Source:
        Tsai (2024), section 2.3, for the fixed point; Varga, Matrix Iterative Analysis (2000), section 3.1, for sweeps.
    """
    check_arrays(A, b=b, x0=x0)
    found = empty_result(b)
    reverse = sweeps_in_reverse(A, False) if reverse is None else reverse
    flags = (RELATIVE if relative else 0) + (REVERSE if reverse else 0)
    start = _NO_START[A.dtype] if x0 is None else x0
    A = np.ascontiguousarray(A)
    if len(b) and not _solve(A, b, start, code, param, float(tol), int(max_iter), flags, *found):
        raise_not_finite(A)
    return found


def gauss_seidel_adjoint(
    A: Float[np.ndarray, "n n"],
    d: Float[np.ndarray, "N n"],
    g: Float[np.ndarray, "N n"],
    tol: float,
    max_iter: int,
    reverse: bool | None = None,
) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, " N"], Int32[np.ndarray, " N"], Int8[np.ndarray, " N"]]:
    """Adjoint state v = d * (A^T v + g) of every row of g by Gauss-Seidel sweeps.

    Mathematics: with d = phi'(A x + b) and g = dL/dx, v gives dL/db = v and dL/dA = v^T x. A sample is done when
    max_i |d (A^T v + g) - v|_i <= tol max_i |g_i|, or where rounding leaves no more: <= 4 eps max_i |v_i|.

    Args:
        A: (n, n).
        d, g: (N, n).
        max_iter, reverse: as in `gauss_seidel`, for A^T.

    Returns:
        v (N, n), residual (N,) relative to max|g| (absolute where g = 0), n_iter (N,), status (N,) as in
        `gauss_seidel`.

    Raises:
        ValueError, TypeError: for shapes, types or layouts that do not fit.
        ValueError: if A is not finite.

    Source:
        Tsai (2024), section 5.2 (implicit differentiation).
    """
    check_arrays(A, d=d, g=g)
    found = empty_result(g)
    reverse = sweeps_in_reverse(A, True) if reverse is None else reverse
    flags, A = (REVERSE if reverse else 0), np.ascontiguousarray(A)
    if len(g) and not _solve(A, g, d, *_NO_CODE[A.dtype], float(tol), int(max_iter), flags, *found):
        raise_not_finite(A)
    return found
