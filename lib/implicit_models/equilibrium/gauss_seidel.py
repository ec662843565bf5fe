"""Compiled Gauss-Seidel for x = phi(A x + b) and for its adjoint, one residual per sample.

A sweep updates the states one after the other with the newest values of the others. The diagonal of A is solved
in closed form, so that A_ii < -1 is harmless where Picard's iteration diverges. When a sample's changes have become
multiples of one vector, x_{k+1} - x_k = rho (x_k - x_{k-1}), the rest of the geometric series is added at once
(Aitken's extrapolation); this removes the slow mode of stiff matrices.

Samples advance side by side in the lanes of vector registers, but each is frozen by its own test: a result does
not depend on the other rows of its batch.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int8, Int32
from numba import njit

from .blocks import aligned, block_width, clear, gather, multiply_panel, pack, row_is_finite, scatter
from .simd import ROWS, VECTOR_BYTES, absolute, address, advance, any_positive, lanes, load, maximum, multiply_add, spread, store, where_positive
from .vector_math import vector_sigmoid, vector_tanh

PIECEWISE_LINEAR, TANH, SIGMOID = 0, 1, 2
CONVERGED, MAX_ITER, DIVERGING, NOT_FINITE, SINGULAR = 0, 1, 2, 3, 4

_EXTRAPOLATE_EVERY = 4  # sweeps; the stiff cases of the benchmark are flat between 3 and 6
_MARGIN, _LEAST_MARGIN = 0.8, 1e-4  # of the tolerance, for the change of a sweep
_GROWTH_LIMIT = 1e12  # changes this much larger than the first are taken for divergence
# Rows of the per-lane table
(_ACTIVE, _CHANGE, _SCALE, _NUMERATOR, _DENOMINATOR, _SQUARE, _COUNT, _LIMIT, _BOUND, _PREVIOUS, _FLOOR, _RESIDUAL,
 _FACTOR, _N_LANE_ROWS) = range(14)


@njit(nogil=True, cache=True)
def _scalar_phi(v, code):
    return math.tanh(v) if code == TANH else 1 / (1 + math.exp(-v)) if v > 0 else 1 - 1 / (1 + math.exp(v))


@njit(nogil=True, cache=True)
def _scalar_root(rest, a, code, x):
    """Root of x = phi(rest + a x), phi = tanh or sigmoid, by Newton kept inside a shrinking bracket."""
    low, high = (-1.0 if code == TANH else 0.0), 1.0
    x = min(max(x, low), high)
    for _ in range(100):
        value = _scalar_phi(rest + a * x, code)
        gap = x - value
        if gap > 0:
            high = x
        else:
            low = x
        slope = 1 - a * (1 - value * value if code == TANH else value * (1 - value))
        step = x - gap / slope if slope > 0 else low - 1
        if not low <= step <= high:
            step = 0.5 * (low + high)
        if step == x:
            break
        x = step
    return x


@njit(nogil=True, cache=True, forceinline=True)
def _update(rest, old, gain, i, position, adjoint, code, diagonal, above, below, scratch):
    """New value of state i from the sum over the other states."""
    if adjoint:
        return rest * load(gain, position)
    if code[i] == PIECEWISE_LINEAR:
        # the sum with 0 turns -0. into 0.
        return where_positive(rest, rest * spread(gain, above[i]), multiply_add(rest, spread(gain, below[i]), spread(gain, 0.0)))
    if diagonal[i] == 0:
        return vector_tanh(gain, rest) if code[i] == TANH else vector_sigmoid(gain, rest)
    n_lanes = lanes(gain)
    store(scratch, 0, rest)
    store(scratch, n_lanes, old)
    for lane in range(n_lanes):
        scratch[lane] = _scalar_root(scratch[lane], diagonal[i], code[i], scratch[n_lanes + lane])
    return load(scratch, 0)


@njit(nogil=True, cache=True)
def _sweep(panel, corner, x, b, step, gain, adjoint, code, diagonal, above, below, width, track, n_pad, table, out, scratch):
    """One sweep over all states of a block, with the per-lane sums that the stopping test needs."""
    n_lanes = lanes(x)
    samples = width * n_lanes
    zero = spread(x, 0.0)
    for w in range(width):
        lane = w * n_lanes
        store(table, _CHANGE * samples + lane, zero)
        store(table, _SCALE * samples + lane, load(table, _FLOOR * samples + lane))
        store(table, _NUMERATOR * samples + lane, zero)
        store(table, _DENOMINATOR * samples + lane, zero)
        store(table, _SQUARE * samples + lane, zero)
    for row in range(0, n_pad, ROWS):
        multiply_panel(panel, row, n_pad, x, b, out, width)
        for w in range(width):
            lane = w * n_lanes
            active = load(table, _ACTIVE * samples + lane)
            change, scale = load(table, _CHANGE * samples + lane), load(table, _SCALE * samples + lane)
            for r in range(ROWS):
                i = row + r
                position = i * samples + lane
                rest = load(out, r * samples + lane)
                for q in range(r):
                    rest = multiply_add(spread(x, corner[i * ROWS + q]), load(x, (row + q) * samples + lane), rest)
                old = load(x, position)
                new = where_positive(active, _update(rest, old, gain, i, position, adjoint, code, diagonal, above, below, scratch), old)
                difference = new - old
                store(x, position, new)
                change = maximum(change, absolute(difference))
                scale = maximum(scale, absolute(new))
                if track:
                    if track == 2:
                        before = load(step, position)
                        for index, value in ((_NUMERATOR, difference * before), (_DENOMINATOR, before * before), (_SQUARE, difference * difference)):
                            store(table, index * samples + lane, load(table, index * samples + lane) + value)
                    store(step, position, difference)
            store(table, _CHANGE * samples + lane, change)
            store(table, _SCALE * samples + lane, scale)


@njit(nogil=True, cache=True)
def _evaluate(panel, corner, x, b, gain, adjoint, code, slope, diagonal, width, n_pad, table, out):
    """Per-lane max|phi(A x + b) - x| (or of the adjoint equation) and max|x|."""
    n_lanes = lanes(x)
    samples = width * n_lanes
    for w in range(width):
        lane = w * n_lanes
        store(table, _RESIDUAL * samples + lane, spread(x, 0.0))
        store(table, _SCALE * samples + lane, load(table, _FLOOR * samples + lane))
    for row in range(0, n_pad, ROWS):
        multiply_panel(panel, row, n_pad, x, b, out, width)
        for w in range(width):
            lane = w * n_lanes
            residual, scale = load(table, _RESIDUAL * samples + lane), load(table, _SCALE * samples + lane)
            for r in range(ROWS):
                i = row + r
                rest = load(out, r * samples + lane)
                for q in range(r + 1):
                    rest = multiply_add(spread(x, corner[i * ROWS + q]), load(x, (row + q) * samples + lane), rest)
                if adjoint:
                    d = load(gain, i * samples + lane)
                    if diagonal[i] != 0:  # gain = d / (1 - d A_ii)
                        d = d / multiply_add(d, spread(x, diagonal[i]), spread(x, 1.0))
                    value = d * rest
                elif code[i] == PIECEWISE_LINEAR:
                    value = where_positive(rest, rest, rest * spread(x, slope[i]))
                else:
                    value = vector_tanh(x, rest) if code[i] == TANH else vector_sigmoid(x, rest)
                state = load(x, i * samples + lane)
                residual = maximum(residual, absolute(value - state))
                scale = maximum(scale, absolute(state))
            store(table, _RESIDUAL * samples + lane, residual)
            store(table, _SCALE * samples + lane, scale)


@njit(nogil=True, cache=True)
def _control(table, samples, contraction, relative, rounding, max_iter, first):
    """Freeze the lanes that have converged, diverged or used up their sweeps. Returns whether some go on."""
    n_lanes, some = lanes(table), False
    one, zero = spread(table, 1.0), spread(table, 0.0)
    for lane in range(0, samples, n_lanes):
        active, change = load(table, _ACTIVE * samples + lane), load(table, _CHANGE * samples + lane)
        if first:
            store(table, _LIMIT * samples + lane, change * spread(table, _GROWTH_LIMIT))
        bound, scale = load(table, _BOUND * samples + lane), load(table, _SCALE * samples + lane)
        if relative:
            bound = bound * scale
        bound = maximum(bound, scale * spread(table, rounding))
        count = load(table, _COUNT * samples + lane) + where_positive(active, one, zero)
        store(table, _COUNT * samples + lane, count)
        # the residual after a sweep is at most contraction times the change; NaN freezes too
        active = where_positive(multiply_add(spread(table, contraction), change, bound * spread(table, -1.0)), active, zero)
        active = where_positive(load(table, _LIMIT * samples + lane) - change, active, zero)
        active = where_positive(spread(table, max_iter) - count, active, zero)
        store(table, _ACTIVE * samples + lane, active)
        some |= any_positive(active)
    return some


@njit(nogil=True, cache=True)
def _extrapolate(table, x, step, samples, n_pad):
    """Add the rest of the geometric series, x += rho / (1 - rho) (x_k - x_{k-1}), in the lanes where it has set in.

    The change that follows is |step_k - rho step_{k-1}| / (1 - rho): the step is taken where this is less than half
    of the present change, and never again in a lane where changes have not decreased since the last one.
    """
    n_lanes, some = lanes(table), False
    one, zero = spread(table, 1.0), spread(table, 0.0)
    for lane in range(0, samples, n_lanes):
        change, previous = load(table, _CHANGE * samples + lane), load(table, _PREVIOUS * samples + lane)
        denominator, square = load(table, _DENOMINATOR * samples + lane), load(table, _SQUARE * samples + lane)
        rho = load(table, _NUMERATOR * samples + lane) / denominator
        rest = one - rho
        misfit = square - rho * rho * denominator
        factor = where_positive(multiply_add(rest * rest * spread(table, 0.25), square, misfit * spread(table, -1.0)), rho / rest, zero)
        factor = where_positive(rho - spread(table, 0.3), factor, zero)
        factor = where_positive(spread(table, 0.9999) - rho, factor, zero)
        factor = where_positive(previous - change, factor, zero)
        factor = where_positive(load(table, _ACTIVE * samples + lane), factor, zero)
        store(table, _PREVIOUS * samples + lane, where_positive(previous - change, change, zero))
        store(table, _FACTOR * samples + lane, factor)
        some |= any_positive(factor)
    if some:
        for lane in range(0, samples, n_lanes):
            factor = load(table, _FACTOR * samples + lane)
            for position in range(lane, n_pad * samples, samples):
                store(x, position, multiply_add(factor, load(step, position), load(x, position)))


@njit(nogil=True, cache=True)
def _pack_rows(A, adjoint, code, slope, reverse, n_pad, codes, slopes, picard, diagonal, above, below, panel, corner):
    """Fill what sweeps need of A and of the activation. Returns a bound of residual / change after a sweep."""
    n, lipschitz = A.shape[0], 1.0
    for row in range(n_pad):
        codes[row], slopes[row], picard[row], diagonal[row] = PIECEWISE_LINEAR, 0, 0, 0
    for row in range(n):
        i = n - 1 - row if reverse else row
        a = A[i, i]
        if adjoint:
            picard[row] = a >= 1
        else:
            codes[row], slopes[row] = code[i], slope[i]
            picard[row] = a >= (4 if code[i] == SIGMOID else 1) or (code[i] == PIECEWISE_LINEAR and slope[i] * a >= 1)
            if code[i] == PIECEWISE_LINEAR:
                lipschitz = max(lipschitz, abs(slope[i]))
        # where the scalar equation has no unique solution the state takes a Picard step
        diagonal[row] = 0 if picard[row] else a
    for row in range(n_pad):
        above[row] = 1 / (1 - diagonal[row])
        below[row] = slopes[row] / (1 - slopes[row] * diagonal[row])
    return pack(A, adjoint, reverse, picard, n_pad, panel, corner) * lipschitz


@njit(nogil=True, cache=True)
def _load_block(b, d, start, adjoint, warm, tol, t0, count, reverse, samples, n_pad, diagonal, x, rhs, gain, table, status):
    """Bring `count` samples into a block; a sample that is not finite becomes a frozen row of zeros."""
    n = b.shape[1]
    if count < samples:
        clear(rhs, n_pad * samples)
        clear(gain, n_pad * samples if adjoint else 0)
    else:
        clear(advance(rhs, n * samples), (n_pad - n) * samples)
        clear(advance(gain, n * samples), (n_pad - n) * samples if adjoint else 0)
    clear(x, n_pad * samples)
    clear(table, _N_LANE_ROWS * samples)
    gather(b, t0, count, reverse, rhs, samples)
    if warm:
        gather(start, t0, count, reverse, x, samples)
    if adjoint:
        gather(d, t0, count, reverse, gain, samples)
        for row in range(n):
            if diagonal[row] != 0:
                for position in range(row * samples, row * samples + count):
                    gain[position] /= 1 - gain[position] * diagonal[row]
    for lane in range(count):
        t = t0 + lane
        largest = b.dtype.type(0)
        finite = row_is_finite(b, t) and not (adjoint and not row_is_finite(d, t)) and not (warm and not row_is_finite(start, t))
        if adjoint and finite:
            for i in range(n):
                largest = max(largest, abs(b[t, i]))
        status[t] = MAX_ITER if finite else NOT_FINITE
        table[_ACTIVE * samples + lane] = 1 if finite and not (adjoint and largest == 0) else 0
        table[_FLOOR * samples + lane] = largest
        table[_BOUND * samples + lane] = _MARGIN * tol
        table[_PREVIOUS * samples + lane] = np.inf
        if not finite:
            for row in range(n):
                rhs[row * samples + lane] = x[row * samples + lane] = 0
                if adjoint:
                    gain[row * samples + lane] = 0


@njit(nogil=True, cache=True)
def _judge(table, samples, t0, count, tol, relative, max_iter, residual, n_iter, status):
    """Status of every sample of a block after its evaluation. Returns whether some must go on."""
    again = False
    for lane in range(count):
        t = t0 + lane
        if status[t] == NOT_FINITE:
            continue
        scale, r = table[_SCALE * samples + lane], table[_RESIDUAL * samples + lane]
        if relative and scale > 0:
            r /= scale
        residual[t], n_iter[t] = r, table[_COUNT * samples + lane]
        change, limit = table[_CHANGE * samples + lane], table[_LIMIT * samples + lane]
        if r <= tol:
            status[t] = CONVERGED
        elif change != 0 and not (math.isfinite(r) and change < limit):
            status[t] = DIVERGING
        elif n_iter[t] >= max_iter:
            status[t] = DIVERGING if change > limit / _GROWTH_LIMIT else MAX_ITER
        elif table[_BOUND * samples + lane] > _LEAST_MARGIN * tol:
            # rounding, or d > 1 in an adjoint: ask for a smaller change and go on
            table[_BOUND * samples + lane] *= 0.25
            table[_ACTIVE * samples + lane] = 1
            again = True
    return again


@njit(nogil=True, cache=True)
def _solve_blocks(A, adjoint, b, d, code, slope, start, warm, tol, relative, max_iter, reverse, widest, n_pad, work, integers,
                  x_out, residual, n_iter, status):
    N, n = b.shape
    # `work` and `integers` are owned by the caller: pointers do not keep an array alive
    panel = aligned(work)
    n_lanes = lanes(panel)
    size = n_pad * widest * n_lanes
    x = advance(panel, n_pad * n_pad)
    rhs, step, gain = advance(x, size), advance(x, 2 * size), advance(x, 3 * size)
    out = advance(x, 4 * size)
    table = advance(out, ROWS * widest * n_lanes)
    scratch = advance(table, _N_LANE_ROWS * widest * n_lanes)
    corner = advance(scratch, 2 * n_lanes)
    diagonal = advance(corner, ROWS * n_pad)
    above, below, slopes = advance(diagonal, n_pad), advance(diagonal, 2 * n_pad), advance(diagonal, 3 * n_pad)
    codes = address(integers)
    picard = advance(codes, n_pad)
    contraction = _pack_rows(A, adjoint, code, slope, reverse, n_pad, codes, slopes, picard, diagonal, above, below, panel, corner)
    rounding = 4.5e-16 if b.itemsize == 8 else 2.4e-7  # 2 eps: smaller changes are noise
    t0 = 0
    while t0 < N:
        left = (N - t0 + n_lanes - 1) // n_lanes
        width = min(widest, left)
        if left == widest + 1 and widest > 2:  # two middling blocks rather than a wide one and a lone register
            width = widest - 1
        samples = width * n_lanes
        count = min(samples, N - t0)
        _load_block(b, d, start, adjoint, warm, tol, t0, count, reverse, samples, n_pad, diagonal, x, rhs, gain, table, status)
        n_sweeps, again = 0, True
        while again:
            running = True
            while running:
                n_sweeps += 1
                phase = n_sweeps % _EXTRAPOLATE_EVERY
                track = 2 if phase == 0 else 1 if phase == _EXTRAPOLATE_EVERY - 1 else 0
                _sweep(panel, corner, x, rhs, step, gain, adjoint, codes, diagonal, above, below, width, track, n_pad, table, out, scratch)
                running = _control(table, samples, contraction, relative, rounding, max_iter, n_sweeps == 1)
                if running and track == 2:
                    _extrapolate(table, x, step, samples, n_pad)
            _evaluate(panel, corner, x, rhs, gain, adjoint, codes, slopes, diagonal, width, n_pad, table, out)
            again = _judge(table, samples, t0, count, tol, relative, max_iter, residual, n_iter, status)
        scatter(x, samples, t0, count, reverse, x_out)
        for t in range(t0, t0 + count):
            if status[t] == NOT_FINITE:
                x_out[t] = np.nan
                residual[t], n_iter[t] = np.nan, 0
        t0 += count


@njit(nogil=True, cache=True)
def _solve(A, adjoint, b, d, code, slope, start, warm, tol, relative, max_iter, reverse, x_out, residual, n_iter, status):
    N, n = b.shape
    n_lanes = VECTOR_BYTES // b.itemsize
    n_pad = (n + ROWS - 1) // ROWS * ROWS
    widest = block_width(n_pad, (N + n_lanes - 1) // n_lanes, b.itemsize, n_lanes)
    size = n_pad * (n_pad + ROWS + 4) + widest * n_lanes * (4 * n_pad + ROWS + _N_LANE_ROWS) + 2 * n_lanes + 64
    work, integers = np.empty(size, b.dtype), np.empty(2 * n_pad, np.int8)
    _solve_blocks(A, adjoint, b, d, code, slope, start, warm, tol, relative, max_iter, reverse, widest, n_pad, work, integers,
                  x_out, residual, n_iter, status)


def sweeps_in_reverse(A) -> bool:
    """Whether a sweep should run from the last state to the first: A is upper triangular and not lower."""
    return bool(not np.tril(A, -1).any() and np.triu(A, 1).any())


def gauss_seidel(A, b, code, param, x0, tol, relative, max_iter, reverse=None):
    """Solve x = phi(A x + b) for every row of b by Gauss-Seidel sweeps."""
    N = b.shape[0]
    x = np.empty_like(b)
    residual, n_iter, status = np.empty(N, b.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    if reverse is None:
        reverse = sweeps_in_reverse(A)
    _solve(A, False, b, b, code, param, b if x0 is None else x0, x0 is not None, tol, relative, max_iter, reverse, x, residual, n_iter, status)
    return x, residual, n_iter, status


def gauss_seidel_adjoint(A, d, g, tol, max_iter, reverse=None):
    """Solve v = d * (A^T v + g) for every row of g by Gauss-Seidel sweeps."""
    N, n = g.shape
    v = np.empty_like(g)
    residual, n_iter, status = np.empty(N, g.dtype), np.empty(N, np.int32), np.empty(N, np.int8)
    if reverse is None:
        reverse = sweeps_in_reverse(A.T)
    _solve(A, True, g, d, np.zeros(n, np.int8), np.zeros(n, g.dtype), g, False, tol, True, max_iter, reverse, v, residual, n_iter, status)
    return v, residual, n_iter, status
