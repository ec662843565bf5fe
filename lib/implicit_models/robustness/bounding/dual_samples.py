"""The dual bound of a batch, sample by sample: passes of refinement, the functionals, ascent where it may help."""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.ascent import ascend
from implicit_models.robustness.bounding.dual_kernels import (
    evaluate,
    reduce_units,
    refine,
    rows_of,
    slopes_of,
    split_units,
    take,
    take_rows,
)
from implicit_models.robustness.bounding.relaxation import PIECEWISE_LINEAR

# what the barriers may cost: of the gain on the bound before, or of the bound's own spread if that is more
ACCURACY, ASCENT_TOL = 2e-2, 5e-3


@kernel
def _corners(order, n_linear, zl, zh, a):
    k = order.size - n_linear
    z, x = np.zeros((k, 3)), np.zeros((k, 3))
    for i in range(k):
        unit = order[n_linear + i]
        z[i, 0], x[i, 0] = zl[unit], a[unit] * zl[unit]
        z[i, 2], x[i, 2] = zh[unit], zh[unit]
    return z, x


@kernel
def _ascend_rows(
    A_g,
    B_g,
    b,
    code,
    a,
    order,
    slope,
    n_linear,
    R,
    feed,
    reduced,
    reduced_from,
    u0,
    radius,
    zl,
    zh,
    C,
    V,
    lam,
    wanted,
    steps,
    allowed,
    enough,
):
    """Better multipliers for the rows that are wanted, in place of lam (rows, m); returns Newton steps taken."""
    rows, m = C.shape
    k = m - n_linear
    corners_z, corners_x = _corners(order, n_linear, zl, zh, a)
    bias = np.empty(k)
    linear_bias = np.empty(n_linear)
    for i in range(n_linear):
        linear_bias[i] = b[order[i]]
    for i in range(k):
        bias[i] = b[order[n_linear + i]]
    inputs = B_g[n_linear:].copy()
    if n_linear:
        bias += np.dot(feed, linear_bias)
        inputs += np.dot(feed, B_g[:n_linear])
    taken = 0
    for r in range(rows):
        if not wanted[r]:
            continue
        # ascent bounds -c'x - v'u from above: its multipliers are minus those of the row
        c, q0 = -C[r, n_linear:], -V[r]
        offset = 0.0
        if n_linear:
            through = np.dot(C[r, :n_linear].copy(), R)
            c = c - np.dot(C[r, :n_linear].copy(), reduced_from)
            q0 = q0 - np.dot(through, B_g[:n_linear])
            offset = -np.dot(through, linear_bias)
        inner = -lam[r, n_linear:]
        inner = inner.copy()
        taken += ascend(
            reduced,
            inputs,
            bias,
            c,
            q0,
            u0,
            radius,
            corners_z,
            corners_x,
            inner,
            steps,
            ASCENT_TOL,
            allowed[r],
            enough[r] - offset,
        )[1]
        lam[r, n_linear:] = -inner
        if n_linear:
            lam[r, :n_linear] = np.dot(C[r, :n_linear].copy(), R) - np.dot(inner, feed)
    return taken


@kernel
def functionals(
    A,
    B,
    b,
    code,
    a,
    fixed,
    u0,
    radius,
    card,
    zl,
    zh,
    xl,
    xh,
    weight,
    coefficient,
    sweeps,
    W,
    V,
    constant,
    extra,
    steps,
    stop,
    lower,
    out,
    keep,
    kept,
):
    """Lower bounds of rows W x + V u + constant, raised in `lower` where they are better; kept (rows, n): the
    multipliers of those.
    """
    rows = W.shape[0]
    order, slope, n_linear = split_units(zl, zh, code, a, fixed)
    m = order.size
    k = m - n_linear
    A_g, B_g = take(A, order, order), take_rows(B, order)
    R, feed, reduced = reduce_units(A_g, slope, n_linear)
    reduced_from = np.dot(R, np.ascontiguousarray(A_g[:n_linear, n_linear:])) if n_linear else np.zeros((0, k))
    below, above = slopes_of(order, n_linear, zl, zh, code, a)
    C = np.empty((rows, m))
    for r in range(rows):
        for i in range(m):
            C[r, i] = W[r, order[i]]
    lam = rows_of(C, order, n_linear, R, reduced_from, feed, reduced, below, above, sweeps, 1e-10)
    evaluate(
        lam,
        C,
        V + np.dot(lam, B_g),
        constant,
        order,
        A_g,
        b,
        u0,
        radius,
        card,
        zl,
        zh,
        xl,
        xh,
        code,
        a,
        weight,
        extra,
        coefficient,
        out,
    )
    taken = 0
    possible = steps > 0 and k > 0 and card < 0
    for i in range(k):
        possible &= code[order[n_linear + i]] == PIECEWISE_LINEAR
    if possible:
        wanted = np.ones(rows, np.bool_)
        enough, allowed = np.full(rows, -np.inf), ACCURACY * np.maximum(out - lower, 0.0)
        for r in range(rows):
            if stop:
                wanted[r] = max(out[r], lower[r]) <= 0
                enough[r] = -1e-9 * (1 + abs(constant[r])) + constant[r]
        tried = lam.copy()
        taken = _ascend_rows(
            A_g,
            B_g,
            b,
            code,
            a,
            order,
            slope,
            n_linear,
            R,
            feed,
            reduced,
            reduced_from,
            u0,
            radius,
            zl,
            zh,
            C,
            V,
            tried,
            wanted,
            steps,
            allowed,
            enough,
        )
        again = np.empty(rows)
        evaluate(
            tried,
            C,
            V + np.dot(tried, B_g),
            constant,
            order,
            A_g,
            b,
            u0,
            radius,
            card,
            zl,
            zh,
            xl,
            xh,
            code,
            a,
            weight,
            extra,
            coefficient,
            again,
        )
        for r in range(rows):
            if again[r] > out[r]:
                out[r] = again[r]
                lam[r] = tried[r]
    if keep:
        for r in range(rows):
            if out[r] > lower[r]:
                kept[r] = 0
                for i in range(m):
                    kept[r, order[i]] = lam[r, i]
    for r in range(rows):
        lower[r] = max(lower[r], out[r])
    return taken


@kernel
def bound_samples(
    A,
    B,
    b,
    code,
    a,
    U,
    radius,
    card,
    zl,
    zh,
    xl,
    xh,
    weight,
    coefficient,
    passes,
    sweeps,
    W,
    V,
    constant,
    extra,
    own_rows,
    steps,
    stop,
    both,
    ok,
    lower,
    upper,
    kept,
    lam_low,
    lam_high,
    kept_stages,
    first,
    units,
    sides,
    turn,
    lams,
    stage_zl,
    stage_zh,
    effort,
):
    """Every sample that is ok: zl, zh (N, n) and lower, upper (N, rows) made tighter in place.

    radius (1, p) or (N, p); W, V (rows, .) or, with own_rows, (N, rows, .); lams and what is beside it: rows kept of
    the passes, those of sample i from first[i] on; stage_zl, stage_zh (passes, N, n): the bounds after each pass.
    effort: (N, 2) passes and Newton steps.
    """
    rows = lower.shape[1]
    out = np.empty(rows)
    fixed = np.zeros(A.shape[0], np.bool_)
    for s in range(U.shape[0]):
        if not ok[s]:
            continue
        r = radius[s if radius.shape[0] > 1 else 0]
        w, v = (W[s], V[s]) if own_rows else (W[0], V[0])
        at = first[s]
        known = False
        for turn_of in range(passes):
            if stop:
                effort[s, 1] += functionals(
                    A,
                    B,
                    b,
                    code,
                    a,
                    fixed,
                    U[s],
                    r,
                    card,
                    zl[s],
                    zh[s],
                    xl[s],
                    xh[s],
                    weight[s],
                    coefficient,
                    sweeps,
                    w,
                    v,
                    constant[s],
                    extra[s],
                    0,
                    True,
                    lower[s],
                    out,
                    kept,
                    lam_low[s if kept else 0],
                )
                known = lower[s].min() > 0
                if known:
                    break
            gain, count = refine(
                A,
                B,
                b,
                code,
                a,
                fixed,
                U[s],
                r,
                card,
                zl[s],
                zh[s],
                xl[s],
                xh[s],
                weight[s],
                coefficient,
                sweeps,
                kept_stages,
                units[at:],
                sides[at:],
                lams[at:],
            )
            if kept_stages:
                turn[at : at + count] = turn_of
                at += count
                for later in range(turn_of, passes):
                    stage_zl[later, s], stage_zh[later, s] = zl[s], zh[s]
            effort[s, 0] += 1
            if gain < 1e-3:
                break
        if not known:
            effort[s, 1] += functionals(
                A,
                B,
                b,
                code,
                a,
                fixed,
                U[s],
                r,
                card,
                zl[s],
                zh[s],
                xl[s],
                xh[s],
                weight[s],
                coefficient,
                sweeps,
                w,
                v,
                constant[s],
                extra[s],
                steps,
                stop,
                lower[s],
                out,
                kept,
                lam_low[s if kept else 0],
            )
        if both:
            negative = -upper[s]
            effort[s, 1] += functionals(
                A,
                B,
                b,
                code,
                a,
                fixed,
                U[s],
                r,
                card,
                zl[s],
                zh[s],
                xl[s],
                xh[s],
                weight[s],
                coefficient,
                sweeps,
                -w,
                -v,
                -constant[s],
                extra[s],
                steps,
                False,
                negative,
                out,
                kept,
                lam_high[s if kept else 0],
            )
            upper[s] = -negative
