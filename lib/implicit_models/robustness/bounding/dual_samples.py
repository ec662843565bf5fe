"""The dual bound of a batch: the functionals of every sample, ascent where it may help, and the passes of refinement
before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.ascent import ascend
from implicit_models.robustness.bounding.dual_kernels import (
    SWEEPS,
    Model,
    Record,
    Sets,
    evaluate,
    multipliers,
    product,
    reduce,
    refine,
    sample_of,
)
from implicit_models.robustness.bounding.line_choice import Relaxation
from implicit_models.robustness.bounding.relaxation import PIECEWISE_LINEAR

# what the barriers may cost: of the gain on the bound before, or of the bound's own spread if that is more
ACCURACY, ASCENT_TOL = 2e-2, 5e-3
LEAST_GAIN = 1e-3  # of a pass, below which a sample's refinement ends


class Functionals(NamedTuple):
    """Functionals W x + V u + constant of states and inputs.

    Attributes:
        W: (S, rows, n), with S = 1 where all samples share them, else S = N.
        V: (S, rows, p).
        constant: (N, rows).
        extra: (N, rows) magnitudes that scale the rounding of a row.
    """

    W: Float[np.ndarray, "S rows n"]
    V: Float[np.ndarray, "S rows p"]
    constant: Float[np.ndarray, "N rows"]
    extra: Float[np.ndarray, "N rows"]


@kernel
def bound_functionals(model, sets, rows, sweeps, steps, stop, lower, kept):
    """Lower bounds of the live samples' rows, raised in `lower` (N, rows) where they are better.

    steps: Newton steps of the ascent at most, 0 for none. stop: a positive bound is enough. kept (N, rows, n), or (0,
    rows, n) for none: the multipliers of the bounds that are better.
    """
    out, tried, no_row = np.empty(lower.shape[1]), np.empty(lower.shape[1]), np.empty((0, 0))
    for s in range(sets.live.size):
        if sets.live[s]:
            own = s if rows.W.shape[0] > 1 else 0
            part = kept[s] if kept.shape[0] else no_row
            row = Functionals(rows.W[own], rows.V[own], rows.constant[s], rows.extra[s])
            _bounded(model, sample_of(sets, s), row, sweeps, steps, stop, lower[s], part, out, tried)


@kernel
def _bounded(model, sample, rows, sweeps, steps, stop, lower, kept, out, again):
    """`bound_functionals` of one sample. out, again (rows,): scratch."""
    count, p = rows.W.shape[0], rows.V.shape[1]
    reduced = reduce(model, sample)
    order, m = reduced.order, reduced.order.size
    C = np.empty((count, m))
    for r in range(count):
        for i in range(m):
            C[r, i] = rows.W[r, order[i]]
    lam = multipliers(reduced, C, sweeps, 1e-10)
    possible = steps > 0 and m > reduced.n_linear and sample.card < 0
    for i in range(reduced.n_linear, m):
        possible &= model.code[order[i]] == PIECEWISE_LINEAR
    tried, bound = lam, out
    for attempt in range(2):
        if attempt == 1:
            if not possible:
                break
            tried, bound = lam.copy(), again
            _ascend_rows(model, sample, reduced, rows, C, tried, steps, stop, lower, out)
        Q = product(tried, reduced.B)
        for r in range(count):
            for j in range(p):
                Q[r, j] = rows.V[r, j] + Q[r, j]
        evaluate(model, sample, reduced, tried, C, Q, rows.constant, rows.extra, bound)
    for r in range(count):
        if possible and again[r] > out[r]:
            out[r] = again[r]
            for i in range(m):
                lam[r, i] = tried[r, i]
        if kept.shape[0] and out[r] > lower[r]:
            for i in range(kept.shape[1]):
                kept[r, i] = 0
            for i in range(m):
                kept[r, order[i]] = lam[r, i]
        lower[r] = max(lower[r], out[r])


@kernel
def _corners(reduced, sample, slope):
    """Corners (k, 3) of the triangles of the non-linear units."""
    k = reduced.order.size - reduced.n_linear
    z, x = np.zeros((k, 3)), np.zeros((k, 3))
    for i in range(k):
        unit = reduced.order[reduced.n_linear + i]
        z[i, 0], x[i, 0] = sample.zl[unit], slope[unit] * sample.zl[unit]
        z[i, 2], x[i, 2] = sample.zh[unit], sample.zh[unit]
    return z, x


@kernel
def _ascend_rows(model, sample, reduced, rows, C, lam, steps, stop, lower, found):
    """Better multipliers in place of lam (rows, m) with bounds `found`; with `stop` for the rows not positive yet."""
    count, m = C.shape
    n_linear, p = reduced.n_linear, rows.V.shape[1]
    k = m - n_linear
    corners_z, corners_x = _corners(reduced, sample, model.slope)
    bias, linear_bias = np.empty(k), np.empty(n_linear)
    for i in range(n_linear):
        linear_bias[i] = model.b[reduced.order[i]]
    for i in range(k):
        bias[i] = model.b[reduced.order[n_linear + i]]
    inputs = reduced.B[n_linear:].copy()
    if n_linear:
        bias += np.dot(reduced.feed, linear_bias)
        fed = product(reduced.feed, reduced.B[:n_linear])
        for i in range(k):
            for j in range(p):
                inputs[i, j] += fed[i, j]
    first, c, q0, inner = np.empty(n_linear), np.empty(k), np.empty(p), np.empty(k)
    for r in range(count):
        if stop and not max(found[r], lower[r]) <= 0:
            continue
        allowed = ACCURACY * max(found[r] - lower[r], 0.0)
        enough = -1e-9 * (1 + abs(rows.constant[r])) + rows.constant[r] if stop else -np.inf
        # ascent bounds -c'x - v'u from above: its multipliers are minus those of the row
        for i in range(k):
            c[i], inner[i] = -C[r, n_linear + i], -lam[r, n_linear + i]
        for j in range(p):
            q0[j] = -rows.V[r, j]
        if n_linear:
            for i in range(n_linear):
                first[i] = C[r, i]
            through = np.dot(first, reduced.R)
            c -= np.dot(first, reduced.onto)
            q0 -= np.dot(through, reduced.B[:n_linear])
            enough += np.dot(through, linear_bias)
        relaxed = Relaxation(reduced.among, inputs, bias, c, q0, sample.centre, sample.radius, corners_z, corners_x)
        ascend(relaxed, inner, steps, ASCENT_TOL, allowed, enough)
        for i in range(k):
            lam[r, n_linear + i] = -inner[i]
        if n_linear:
            direct, fed_back = np.dot(first, reduced.R), np.dot(inner, reduced.feed)
            for i in range(n_linear):
                lam[r, i] = direct[i] - fed_back[i]


class Search(NamedTuple):
    """How much work goes into the bounds.

    Attributes:
        passes: refinements of the pre-activation bounds.
        steps: Newton steps of the dual ascent at most, 0 for none.
        stop: whether a sample is finished once all its lower bounds are positive.
        both: whether upper bounds are wanted too.
    """

    passes: int
    steps: int
    stop: bool
    both: bool


class Evidence(NamedTuple):
    """What is kept for the checker; the arrays are empty where keep is False.

    Attributes:
        keep: whether anything is kept.
        low, high: (N, rows, n) multipliers of the lower and of the upper bounds.
        record: multipliers of the passes.
        zl, zh: (passes, N, n) pre-activation bounds after each pass.
    """

    keep: bool
    low: np.ndarray
    high: np.ndarray
    record: Record
    zl: np.ndarray
    zh: np.ndarray


def bound_samples(
    model: Model,
    sets: Sets,
    rows: Functionals,
    search: Search,
    lower: Float[np.ndarray, "N rows"],
    upper: Float[np.ndarray, "N rows"],
    evidence: Evidence,
) -> None:
    """Tighten the bounds of every live sample in place: sets.zl and sets.zh (N, n), lower and upper (N, rows).

    Passes of refinement come first; a sample leaves them when a pass gains less than LEAST_GAIN or, with search.stop,
    when its lower bounds are positive. The functionals are bounded with what the passes left. Multipliers of the
    bounds and of the passes are written to `evidence` where it is kept.
    """
    known, going, gains = np.zeros(len(lower), bool), sets.live.copy(), np.empty(len(lower))
    for turn in range(search.passes):
        if search.stop:
            bound_functionals(model, sets._replace(live=going), rows, SWEEPS, 0, True, lower, evidence.low)
            known |= going & (lower.min(axis=1) > 0)
            going &= ~known
        refine(model, sets._replace(live=going), SWEEPS, evidence.keep, turn, evidence.record, gains)
        if evidence.keep:
            evidence.zl[turn:, going], evidence.zh[turn:, going] = sets.zl[going], sets.zh[going]
        going &= ~(gains < LEAST_GAIN)
    last = sets._replace(live=sets.live & ~known)
    bound_functionals(model, last, rows, SWEEPS, search.steps, search.stop, lower, evidence.low)
    if search.both:
        turned = Functionals(-rows.W, -rows.V, -rows.constant, rows.extra)
        negative = -upper
        bound_functionals(model, sets, turned, SWEEPS, search.steps, False, negative, evidence.high)
        upper[sets.live] = -negative[sets.live]
