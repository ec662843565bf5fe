"""The sweep itself: one pass over the states of a block, and what decides for every lane whether it goes on.

The table holds one row of per-lane numbers for each name below. A lane is active, then frozen for one more sweep that
gives its residual, then evaluated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int8, Int32

from implicit_models.kernels import kernel

from .blocks import multiply_panel
from .simd import (
    ROWS,
    VECTOR_BYTES,
    absolute,
    any_positive,
    lanes,
    load,
    maximum,
    multiply_add,
    nearest_integer,
    spread,
    store,
    where_positive,
)
from .vector_math import vector_sigmoid, vector_tanh

PIECEWISE_LINEAR, TANH, SIGMOID = 0, 1, 2

_EXTRAPOLATE_EVERY = 4  # sweeps
_LEAST_RATIO, _LARGEST_RATIO = 0.3, 0.9999  # of successive changes, for an extrapolation
# Self-loops of the logistic function up to here, and of tanh between -1 and 1, take one Newton step a sweep. With
# h(x) = x - phi(rest + a x) the error is multiplied by 1 - h'(between) / h'(old): below 1 in size for a Lipschitz
# constant times |a| up to 1/2 or a negative a; for a positive one h is convex beyond 0 on the side of `rest`, and steps
# that are kept between 0 and the bound of tanh come down to the root from there.
_ONE_STEP = 2.0
# A Newton step multiplies the rounding of phi, between 1 and 2 eps of the state, by 1 / (1 - a phi'). Where a phi' is
# above 0.8 that is 5 times or more, and changes no longer fall below the 8 eps that `freeze` puts down to rounding: a
# steep state whose gap phi(rest + a x) - x is at most 4 eps, what rounding leaves of one, stays where it is.
_STEEP, _GAP = 0.8, 4.0
GROWTH_LIMIT = 1e12  # changes this much larger than the first are taken for divergence
# Rows of the table
(
    ACTIVE,
    FROZEN,
    EVALUATED,
    CHANGE,
    LAST_CHANGE,
    SCALE,
    PRODUCT,
    SQUARE,
    LAST_SQUARE,
    COUNT,
    LIMIT,
    BOUND,
    PREVIOUS,
    UNIT,
    STALLS,
    N_LANE_ROWS,
) = range(16)


class Stop(NamedTuple):
    """When a sample is done: its residual is at most tol, relative to its largest state or not, or after max_iter
    sweeps."""

    tol: float
    relative: bool
    max_iter: int


class Found(NamedTuple):
    """Residual, sweeps and status of every sample."""

    residual: Float[np.ndarray, " N"]
    n_iter: Int32[np.ndarray, " N"]
    status: Int8[np.ndarray, " N"]


class Block(NamedTuple):
    """Pointers to what a sweep reads and writes: the packed matrix, states of `samples` lanes, one state after the
    other, what the activation needs a state, and the table of the lanes. `width` registers a state; n_pad states, a
    multiple of ROWS."""

    panel: object
    corner: object
    x: object
    rhs: object
    step: object
    gain: object
    adjoint: bool
    code: object
    slope: object
    diagonal: object
    above: object
    below: object
    width: int
    samples: int
    n_pad: int
    table: object
    out: object
    scratch: object


@kernel
def _scalar_phi(v, code):
    return math.tanh(v) if code == TANH else 1 / (1 + math.exp(-v)) if v > 0 else math.exp(v) / (1 + math.exp(v))


@kernel
def _scalar_root(rest, a, code, x):
    """Root of x = phi(rest + a x), phi = tanh or sigmoid, by Newton kept inside a shrinking bracket."""
    low, high = (-1.0 if code == TANH else 0.0), 1.0
    x, before = min(max(x, low), high), math.inf
    for _ in range(100):
        value = _scalar_phi(rest + a * x, code)
        gap = x - value
        if gap > 0:
            high = x
        else:
            low = x
        slope = 1 - a * (1 - value * value if code == TANH else value * (1 - value))
        step = x - gap / slope if slope > 0 else low - 1
        if not (low <= step <= high and abs(gap) <= 0.5 * before):  # steps may go round in circles
            step = 0.5 * (low + high)
        before = abs(gap)
        if step == x:
            break
        x = step
    return x


@kernel(forceinline=True)
def _piecewise_linear(like, v, above, below):
    # the sum with 0 turns -0. into 0.
    return where_positive(v, v * spread(like, above), multiply_add(v, spread(like, below), spread(like, 0.0)))


@kernel
def _smooth(like, v, code):
    return vector_tanh(like, v) if code == TANH else vector_sigmoid(like, v)


@kernel
def _smooth_root(rest, old, a, code, scratch):
    n_lanes = lanes(scratch)
    store(scratch, 0, rest)
    store(scratch, n_lanes, old)
    for lane in range(n_lanes):
        scratch[lane] = _scalar_root(scratch[lane], a, code, scratch[n_lanes + lane])
    return load(scratch, 0)


@kernel
def takes_one_step(a, code):
    """Whether a smooth state's self-loop a is solved by one Newton step a sweep."""
    return abs(a) <= (_ONE_STEP if code == SIGMOID else 1.0)


@kernel
def roundoff(like):
    """eps of the type in which states are held."""
    return 1.2e-7 if lanes(like) == VECTOR_BYTES // 4 else 2.2e-16


@kernel
def _newton_step(like, x, value, rest, a, code):
    """One step for the root of x = phi(rest + a x) from x, with value = phi(rest + a x)."""
    one, zero = spread(like, 1.0), spread(like, 0.0)
    slope = one - value * value if code == TANH else value * (one - value)
    new = x + (value - x) / (one - slope * spread(like, a))
    if code == TANH and a > 0.5:
        side = where_positive(rest, one, zero - one)
        new = maximum(new * side, zero)
        new = where_positive(new - one, one, new) * side
        steep = slope * spread(like, a) - spread(like, _STEEP)
        gap = absolute(value - x) - absolute(x) * spread(like, _GAP * roundoff(like))
        new = where_positive(gap, new, where_positive(steep, x, new))
    return new


@kernel
def sweep(block):
    """One sweep over all states of a block.

    In an active lane `change` becomes the largest change of a state. A frozen lane keeps its states, so that the same
    sums give its residual, phi(A x + b) - x, in the same place.
    """
    corner, x, step, gain, adjoint = block.corner, block.x, block.step, block.gain, block.adjoint
    code, slope, diagonal, above, below = block.code, block.slope, block.diagonal, block.above, block.below
    samples, n_pad, table, out = block.samples, block.n_pad, block.table, block.out
    n_lanes = lanes(x)
    zero = spread(x, 0.0)
    for lane in range(0, samples, n_lanes):
        store(table, LAST_CHANGE * samples + lane, load(table, CHANGE * samples + lane))
        store(table, CHANGE * samples + lane, zero)
        store(table, SCALE * samples + lane, zero)
        store(table, LAST_SQUARE * samples + lane, load(table, SQUARE * samples + lane))
        store(table, SQUARE * samples + lane, zero)
        store(table, PRODUCT * samples + lane, zero)
    for row in range(0, n_pad, ROWS):
        multiply_panel(block.panel, row, n_pad, x, block.rhs, out, block.width)
        for lane in range(0, samples, n_lanes):
            active = load(table, ACTIVE * samples + lane)
            change, scale = load(table, CHANGE * samples + lane), load(table, SCALE * samples + lane)
            square, product = load(table, SQUARE * samples + lane), load(table, PRODUCT * samples + lane)
            for r in range(ROWS):
                i = row + r
                position = i * samples + lane
                rest = load(out, r * samples + lane)
                for q in range(r):
                    rest = multiply_add(spread(x, corner[i * ROWS + q]), load(x, (row + q) * samples + lane), rest)
                old = load(x, position)
                a, value = diagonal[i], rest
                if a != 0:
                    value = multiply_add(spread(x, a), old, rest)
                if adjoint:
                    new = rest * load(gain, position)
                    if a != 0:  # gain = d / (1 - d A_ii)
                        d = load(gain, position)
                        value = value * (d / multiply_add(d, spread(x, a), spread(x, 1.0)))
                elif code[i] == PIECEWISE_LINEAR:
                    new = _piecewise_linear(x, rest, above[i], below[i])
                    if a != 0:
                        value = _piecewise_linear(x, value, 1.0, slope[i])
                else:
                    new = value = _smooth(x, value, code[i])
                    if a != 0:
                        if takes_one_step(a, code[i]):
                            new = _newton_step(x, old, value, rest, a, code[i])
                        else:
                            new = _smooth_root(rest, old, a, code[i], block.scratch)
                difference = new - old
                if a != 0:
                    difference = where_positive(active, difference, value - old)
                new = where_positive(active, new, old)
                store(x, position, new)
                change = maximum(change, absolute(difference))
                scale = maximum(scale, absolute(new))
                square = multiply_add(difference, difference, square)
                product = multiply_add(difference, load(step, position), product)
                store(step, position, difference)
            store(table, CHANGE * samples + lane, change)
            store(table, SCALE * samples + lane, scale)
            store(table, SQUARE * samples + lane, square)
            store(table, PRODUCT * samples + lane, product)


@kernel
def freeze(table, lane, samples, contraction, stop, rounding):
    """Freeze the lanes of one register that have converged, diverged or used up their sweeps."""
    one, zero = spread(table, 1.0), spread(table, 0.0)
    before, change = load(table, ACTIVE * samples + lane), load(table, CHANGE * samples + lane)
    count, limit = load(table, COUNT * samples + lane), load(table, LIMIT * samples + lane)
    limit = where_positive(count, limit, change * spread(table, GROWTH_LIMIT))
    bound, scale = load(table, BOUND * samples + lane), load(table, SCALE * samples + lane)
    if stop.relative:
        bound = bound * scale
    # Near the last place the change ceases to decrease: each time, a quarter of an eps more is put down to rounding
    unit_roundoff, last = scale * spread(table, rounding), load(table, LAST_CHANGE * samples + lane)
    stall = where_positive(
        unit_roundoff * spread(table, 8.0) - change,
        where_positive(last - change, zero, where_positive(count, one, zero)),
        zero,
    )
    stalls = load(table, STALLS * samples + lane) + stall
    store(table, STALLS * samples + lane, stalls)
    bound = maximum(bound, stalls * unit_roundoff * spread(table, 0.25))
    count = count + where_positive(before, one, zero)
    # the residual after a sweep is at most contraction times the change; NaN freezes too
    active = where_positive(multiply_add(spread(table, contraction), change, zero - bound), before, zero)
    active = where_positive(limit - change, active, zero)
    active = where_positive(spread(table, stop.max_iter) - count, active, zero)
    store(table, COUNT * samples + lane, count)
    store(table, LIMIT * samples + lane, limit)
    store(table, ACTIVE * samples + lane, active)
    store(table, EVALUATED * samples + lane, load(table, FROZEN * samples + lane))
    store(table, FROZEN * samples + lane, before - active)


@kernel
def extrapolate(table, lane, samples, x, step, n_pad):
    """Add the rest of the geometric series, x += rho / (1 - rho) (x_k - x_{k-1}), in the lanes where it has set in.

    The change that follows is |step_k - rho step_{k-1}| / (1 - rho): the step is taken where this is less than half
    of the present change, and never again in a lane where changes have not decreased since the last one.
    """
    one, zero = spread(table, 1.0), spread(table, 0.0)
    count = load(table, COUNT * samples + lane)
    quotient = count * spread(table, 1 / _EXTRAPOLATE_EVERY)
    due = spread(table, 0.5 / _EXTRAPOLATE_EVERY) - absolute(quotient - nearest_integer(quotient))
    due = where_positive(load(table, ACTIVE * samples + lane), due, zero)
    if not any_positive(due):
        return
    change, previous = load(table, CHANGE * samples + lane), load(table, PREVIOUS * samples + lane)
    last, square = load(table, LAST_SQUARE * samples + lane), load(table, SQUARE * samples + lane)
    rho = load(table, PRODUCT * samples + lane) / last
    rest = one - rho
    misfit = square - rho * rho * last
    factor = where_positive(rest * rest * square * spread(table, 0.25) - misfit, rho / rest, zero)
    factor = where_positive(rho - spread(table, _LEAST_RATIO), factor, zero)
    factor = where_positive(spread(table, _LARGEST_RATIO) - rho, factor, zero)
    factor = where_positive(previous - change, factor, zero)
    factor = where_positive(due, factor, zero)
    previous = where_positive(due, where_positive(previous - change, change, zero), previous)
    store(table, PREVIOUS * samples + lane, previous)
    if any_positive(factor):
        for position in range(lane, n_pad * samples, samples):
            # steps of the other lanes are finite or their lanes are frozen
            store(
                x,
                position,
                where_positive(
                    factor, multiply_add(factor, load(step, position), load(x, position)), load(x, position)
                ),
            )
