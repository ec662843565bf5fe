"""Compiled recurrence with an implicit cell: a whole sequence forward, and exactly backward through time.

    u_t = [s_t, h_{t-1}],   x_t = phi(A x_t + B u_t + b),   h_t = C x_t + D u_t + d,        t = 1..T.

With g_t = dL/dh_t in total, d_t = phi'(z_t) and v_t the adjoint state,

    v_t = d_t (A' v_t + C' g_t),      g_{t-1} += B_h' v_t + D_h' g_t,      t = T..1,

and the gradients of the matrices are single products over all steps: dA = sum v_t x_t', dB = sum v_t u_t', dC = sum g_t
x_t', dD = sum g_t u_t'. A block of samples goes through all steps inside the cache; equilibria and adjoints are the
Gauss-Seidel sweeps of `gauss_seidel.py`, warm-started from the step before in the forward direction. Every lane is
frozen by its own test, so that a sequence does not depend on the others of its batch. Entries of g_t and of C' g_t
below 1e-29 (1e-290 in double precision) count as 0.

Arrays are feature-major: column t N' + s is step t of sample s, N' the batch rounded up to whole registers.

Source:
    Decugis et al. (2024), section 2.1 (the cell); Tsai (2024), section 5.2 (implicit differentiation of one
    equilibrium).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int8

from implicit_models.kernels import kernel

from .blocks import aligned, clear
from .gauss_seidel import _MARGIN, MAX_ITER, _judge, _pack_rows
from .simd import (
    ROWS,
    VECTOR_BYTES,
    absolute,
    address,
    advance,
    any_positive,
    lanes,
    load,
    maximum,
    multiply_rows,
    spread,
    store,
    where_positive,
)
from .sweeps import (
    ACTIVE,
    BOUND,
    EVALUATED,
    N_LANE_ROWS,
    PIECEWISE_LINEAR,
    PREVIOUS,
    TANH,
    UNIT,
    Block,
    Found,
    extrapolate,
    freeze,
    roundoff,
    sweep,
)


@kernel
def _panels(M, transpose, reverse_rows, reverse_columns, first, columns, panel):
    """Pack M, or if transpose the rows of M' from `first` on, into panels of ROWS rows, filled up with zeros."""
    rows = M.shape[1] - first if transpose else M.shape[0]
    used = M.shape[0] if transpose else M.shape[1]
    padded = (rows + ROWS - 1) // ROWS * ROWS
    clear(panel, padded * columns)
    for row in range(rows):
        i = rows - 1 - row if reverse_rows else row
        for column in range(used):
            j = used - 1 - column if reverse_columns else column
            value = M[j, first + i] if transpose else M[i, j]
            panel[row // ROWS * ROWS * columns + column * ROWS + row % ROWS] = value


@kernel
def _multiply(panel, rows, columns, x, bias, out, width, samples):
    """out = bias + panel @ x, for a number of rows that is a multiple of ROWS; out may be bias itself."""
    for row in range(0, rows, ROWS):
        target, start = advance(out, row * samples), row * columns
        if width == 4:
            multiply_rows(panel, start, x, columns, 0, bias, row, target, 4)
        elif width == 3:
            multiply_rows(panel, start, x, columns, 0, bias, row, target, 3)
        elif width == 2:
            multiply_rows(panel, start, x, columns, 0, bias, row, target, 2)
        else:
            multiply_rows(panel, start, x, columns, 0, bias, row, target, 1)


@kernel
def _copy(source, source_stride, target, target_stride, rows, reverse, samples):
    """Rows of `samples` numbers from one feature-major array to another, whole registers at a time."""
    step = lanes(source)
    for row in range(rows):
        i = rows - 1 - row if reverse else row
        for lane in range(0, samples, step):
            store(target, row * target_stride + lane, load(source, i * source_stride + lane))


@kernel
def _put(source, source_stride, target, target_stride, rows, reverse, samples):
    """As `_copy`, with the rows of the target in reverse order."""
    step = lanes(source)
    for row in range(rows):
        i = rows - 1 - row if reverse else row
        for lane in range(0, samples, step):
            store(target, i * target_stride + lane, load(source, row * source_stride + lane))


class Cell(NamedTuple):
    """The cell's matrices (n, n), (n, k), (h, n) and (h, k), where k is the number of inputs plus h, biases (n,) and
    (h,), and the activation's code and slope, see `gauss_seidel`."""

    A: Float[np.ndarray, "n n"]
    B: Float[np.ndarray, "n k"]
    C: Float[np.ndarray, "h n"]
    D: Float[np.ndarray, "h k"]
    b: Float[np.ndarray, " n"]
    d: Float[np.ndarray, " h"]
    code: Int8[np.ndarray, " n"]
    slope: Float[np.ndarray, " n"]


class Workspace(NamedTuple):
    """Scratch arrays of one thread, for blocks of `width` registers."""

    work: np.ndarray
    integers: np.ndarray
    width: int


@kernel(borrows=True)
def _settle(block, n, contraction, stop, rounding, accepted, found, at, judged):
    """Sweep until every lane has converged or failed; the iterations are added to the counts of the samples at `at`,
    and the worst residual and status are kept. judged: `Found` of one sample, scratch."""
    x, rhs, table, samples = block.x, block.rhs, block.table, block.samples
    residual, n_iter, status = found.residual, found.n_iter, found.status
    n_lanes = lanes(x)
    clear(table, N_LANE_ROWS * samples)
    for lane in range(0, samples, n_lanes):
        store(table, ACTIVE * samples + lane, spread(x, 1.0))
        store(table, PREVIOUS * samples + lane, spread(x, np.inf))
        unit = spread(x, 0.0)
        if block.adjoint:
            for row in range(n):
                unit = maximum(absolute(load(rhs, row * samples + lane)), unit)
        unit = where_positive(unit, unit, spread(x, 1.0))
        store(table, UNIT * samples + lane, unit)
        store(table, BOUND * samples + lane, unit * spread(x, _MARGIN * stop.tol))
    live = samples
    own, count, what = judged.residual, judged.n_iter, judged.status
    while live > 0:
        sweep(block)
        for first in range(0, samples, n_lanes):
            freeze(table, first, samples, contraction, stop, rounding)
            extrapolate(table, first, samples, x, block.step, block.n_pad)
            if not any_positive(load(table, EVALUATED * samples + first)):
                continue
            for lane in range(first, first + n_lanes):
                if table[EVALUATED * samples + lane] == 0:
                    continue
                what[0] = MAX_ITER
                if _judge(table, lane, samples, stop, accepted, 0, own, count, what):
                    live -= 1
                    s = at + lane
                    n_iter[s] += count[0]
                    status[s] = max(status[s], what[0])
                    if not own[0] <= residual[s]:  # a NaN is kept
                        residual[s] = own[0]


def workspace(n: int, k: int, h: int, width: int, dtype: np.dtype) -> Workspace:
    """Scratch arrays of one thread. The caller must hold them while a kernel runs: kernels keep pointers, which do not
    keep an array alive."""
    n_lanes = VECTOR_BYTES // dtype.itemsize
    samples = width * n_lanes
    n_pad, h_pad = (n + ROWS - 1) // ROWS * ROWS, (h + ROWS - 1) // ROWS * ROWS
    panels = n_pad * (n_pad + ROWS + 4 + k) + h_pad * (n_pad + max(k, h))
    size = panels + samples * (4 * n_pad + max(n_pad, h_pad) + ROWS + N_LANE_ROWS + k + 3 * h_pad) + 2 * n_lanes + 256
    return Workspace(np.empty(size, dtype), np.empty(2 * n_pad, np.int64), width)


@kernel
def sequence_forward(cell, U, X, scratch, first, last, stop, found):
    """Compute the states and hidden states of the samples first to last - 1, a whole number of blocks, at every step.

    Args:
        U: (k, (T + 1) N'); its first rows hold the inputs, its last h rows the hidden states, of which those of step 0
            are given and the others are written.
        X: (n, T N') states, written.
        found: (N',) zeros on entry; on return the worst residual, the number of iterations and the worst status of all
            steps.
    """
    A, B, C, D, width = cell.A, cell.B, cell.C, cell.D, scratch.width
    n, k, h = A.shape[0], B.shape[1], C.shape[0]
    n_lanes = VECTOR_BYTES // A.itemsize
    samples = width * n_lanes
    n_pad, h_pad = (n + ROWS - 1) // ROWS * ROWS, (h + ROWS - 1) // ROWS * ROWS
    columns = found.residual.size
    steps = X.shape[1] // columns
    panel = aligned(scratch.work)
    corner = advance(panel, n_pad * n_pad)
    B_panel = advance(corner, n_pad * ROWS)
    C_panel = advance(B_panel, n_pad * k)
    D_panel = advance(C_panel, h_pad * n_pad)
    diagonal = advance(D_panel, h_pad * max(k, h))
    above, below, slopes = advance(diagonal, n_pad), advance(diagonal, 2 * n_pad), advance(diagonal, 3 * n_pad)
    x = advance(slopes, n_pad)
    rhs, step = advance(x, n_pad * samples), advance(x, 2 * n_pad * samples)
    b_wide = advance(step, 2 * n_pad * samples)
    u = advance(b_wide, n_pad * samples)
    y = advance(u, k * samples)
    d_wide = advance(y, h_pad * samples)
    out = advance(d_wide, 2 * h_pad * samples)
    table = advance(out, ROWS * samples)
    room = advance(table, N_LANE_ROWS * samples)
    codes = address(scratch.integers)
    judged = Found(np.empty(1, A.dtype), np.empty(1, np.int32), np.empty(1, np.int8))
    block = Block(
        panel,
        corner,
        x,
        rhs,
        step,
        step,
        False,
        codes,
        slopes,
        diagonal,
        above,
        below,
        width,
        samples,
        n_pad,
        table,
        out,
        room,
    )
    contraction = _pack_rows(A, cell.code, cell.slope, False, advance(codes, n_pad), block)
    _panels(B, False, False, False, 0, k, B_panel)
    _panels(C, False, False, False, 0, n_pad, C_panel)
    _panels(D, False, False, False, 0, k, D_panel)
    rounding = roundoff(block.x)
    clear(b_wide, n_pad * samples)
    clear(d_wide, h_pad * samples)
    for row in range(n):
        for lane in range(samples):
            b_wide[row * samples + lane] = cell.b[row]
    for row in range(h):
        for lane in range(samples):
            d_wide[row * samples + lane] = cell.d[row]
    U_, X_, p = address(U), address(X), k - h
    stride_u, stride_x = U.shape[1], X.shape[1]
    for at in range(first, last, samples):
        clear(x, 3 * n_pad * samples)
        _copy(advance(U_, at), stride_u, u, samples, k, False, samples)
        for t in range(steps):
            if t > 0:
                _copy(advance(U_, t * columns + at), stride_u, u, samples, p, False, samples)
            _multiply(B_panel, n_pad, k, u, b_wide, rhs, width, samples)
            _settle(block, n, contraction, stop, rounding, 0.0, found, at, judged)
            _copy(x, samples, advance(X_, t * columns + at), stride_x, n, False, samples)
            _multiply(D_panel, h_pad, k, u, d_wide, y, width, samples)
            _multiply(C_panel, h_pad, n_pad, x, y, y, width, samples)
            _copy(y, samples, advance(u, p * samples), samples, h, False, samples)
            _copy(y, samples, advance(U_, p * stride_u + (t + 1) * columns + at), stride_u, h, False, samples)


@kernel
def sequence_backward(cell, X, G, V, first_carry, scratch, reverse, first, last, stop, found):
    """Compute the adjoint states of the samples first to last - 1, a whole number of blocks, from step T to step 1.

    Args:
        cell, X, found: as in `sequence_forward`.
        G: (h, T N'); on entry the loss's direct gradient in every hidden state, on return the total gradient.
        V: (n, T N') adjoint states, written.
        first_carry: (h, N') the gradient of h_0, written.
        reverse: sweep A' from the last state to the first.
    """
    A, B, C, D, width = cell.A, cell.B, cell.C, cell.D, scratch.width
    n, k, h = A.shape[0], B.shape[1], C.shape[0]
    n_lanes = VECTOR_BYTES // A.itemsize
    samples = width * n_lanes
    n_pad, h_pad = (n + ROWS - 1) // ROWS * ROWS, (h + ROWS - 1) // ROWS * ROWS
    code, slope = cell.code, cell.slope
    columns = found.residual.size
    steps = X.shape[1] // columns
    panel = aligned(scratch.work)
    corner = advance(panel, n_pad * n_pad)
    Ct = advance(corner, n_pad * ROWS)
    Bt = advance(Ct, n_pad * k)
    Dt = advance(Bt, h_pad * n_pad)
    diagonal = advance(Dt, h_pad * max(k, h))
    above, below, slopes = advance(diagonal, n_pad), advance(diagonal, 2 * n_pad), advance(diagonal, 3 * n_pad)
    v = advance(slopes, n_pad)
    rhs, step, gain = advance(v, n_pad * samples), advance(v, 2 * n_pad * samples), advance(v, 3 * n_pad * samples)
    zeros = advance(gain, n_pad * samples)
    g = advance(zeros, max(n_pad, h_pad) * samples)
    carry = advance(g, k * samples)
    out = advance(carry, 3 * h_pad * samples)
    table = advance(out, ROWS * samples)
    room = advance(table, N_LANE_ROWS * samples)
    codes = address(scratch.integers)
    judged = Found(np.empty(1, A.dtype), np.empty(1, np.int32), np.empty(1, np.int8))
    block = Block(
        panel,
        corner,
        v,
        rhs,
        step,
        gain,
        True,
        codes,
        slopes,
        diagonal,
        above,
        below,
        width,
        samples,
        n_pad,
        table,
        out,
        room,
    )
    contraction = _pack_rows(A, code, slope, reverse, advance(codes, n_pad), block)
    _panels(C, True, reverse, False, 0, h, Ct)
    _panels(B, True, False, reverse, k - h, n_pad, Bt)
    _panels(D, True, False, False, k - h, h, Dt)
    rounding = roundoff(block.x)
    clear(zeros, max(n_pad, h_pad) * samples)
    X_, G_, V_ = address(X), address(G), address(V)
    stride_x, stride_g, stride_v = X.shape[1], G.shape[1], V.shape[1]
    one, zero = spread(v, 1.0), spread(v, 0.0)
    # Through time a gradient may fade out of the format's range, where no relative tolerance can be met: below this it
    # is 0
    floor = spread(v, 1e-290 if A.itemsize == 8 else 1e-29)
    for at in range(first, last, samples):
        clear(carry, h_pad * samples)
        clear(gain, n_pad * samples)
        for t in range(steps - 1, -1, -1):
            here = t * columns + at
            for row in range(h):
                for lane in range(0, samples, n_lanes):
                    total = load(G_, row * stride_g + here + lane) + load(carry, row * samples + lane)
                    total = where_positive(floor - absolute(total), zero, total)
                    store(g, row * samples + lane, total)
                    store(G_, row * stride_g + here + lane, total)
            for row in range(n):
                i = n - 1 - row if reverse else row
                a = spread(v, diagonal[row])
                for lane in range(0, samples, n_lanes):
                    state = load(X_, i * stride_x + here + lane)
                    if code[i] == PIECEWISE_LINEAR:
                        slope_here = where_positive(state, one, spread(v, slope[i]))
                    elif code[i] == TANH:
                        slope_here = one - state * state
                    else:
                        slope_here = state * (one - state)
                    store(gain, row * samples + lane, slope_here / (one - slope_here * a))
            _multiply(Ct, n_pad, h, g, zeros, rhs, width, samples)
            for position in range(0, n * samples, n_lanes):
                value = load(rhs, position)
                store(rhs, position, where_positive(floor - absolute(value), zero, value))
            clear(v, n_pad * samples)
            clear(step, n_pad * samples)
            _settle(block, n, contraction, stop, rounding, 4 * rounding, found, at, judged)
            _put(v, samples, advance(V_, here), stride_v, n, reverse, samples)
            _multiply(Dt, h_pad, h, g, zeros, carry, width, samples)
            _multiply(Bt, h_pad, n_pad, v, carry, carry, width, samples)
        _copy(carry, samples, advance(address(first_carry), at), first_carry.shape[1], h, False, samples)
