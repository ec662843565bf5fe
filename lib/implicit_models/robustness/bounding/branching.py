"""Branch and bound over the kinks: a functional that the relaxation leaves undecided is bounded on both sides of one
unit's kink.

On the side z_i >= 0 or z_i <= 0 the unit is linear, and its multiplier is free to use the side (lambda_i is not s_i
mu_i); the others' pre-activations are refined again. The bound of the whole is the least of its leaves, so it is valid
whenever the budget ends. With enough leaves it is exact for piecewise-linear models: the remaining gap to an attack is
then the attack's.

Source: Bunel et al., branch and bound for piecewise-linear networks (JMLR 2020); multipliers of split units: Wang et
al., beta-CROWN (2021).
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.dual_kernels import refine
from implicit_models.robustness.bounding.dual_samples import functionals
from implicit_models.robustness.bounding.relaxation import PIECEWISE_LINEAR


@kernel
def _widest(zl, zh, code, a, fixed, lam, mu):
    """The unit whose triangle costs this functional most: |mu_i| times the height of its triangle at the kink; -1 if
    none is left.
    """
    best, unit = 0.0, -1
    for i in range(zl.size):
        if code[i] == PIECEWISE_LINEAR and a[i] != 1 and zl[i] < 0 < zh[i] and not fixed[i]:
            height = (1 - a[i]) * zh[i] * -zl[i] / (zh[i] - zl[i])
            cost = height * (abs(mu[i]) + 1e-12)
            if cost > best:
                best, unit = cost, i
    return unit


@kernel
def branch(
    A,
    B,
    b,
    code,
    a,
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
    w,
    v,
    constant,
    extra,
    steps,
    lower,
    budget,
):
    """Lower bound of w'x + v'u + constant with at most `budget` nodes, from `lower`; returns (bound, nodes). Stops
    once it is positive.

    zl, zh (n): the sample's refined pre-activation bounds, left as they are.
    """
    n, rows = zl.size, 1
    stack_l, stack_h, stack_fixed = (
        np.empty((budget + 2, n)),
        np.empty((budget + 2, n)),
        np.zeros((budget + 2, n), np.bool_),
    )
    stack_bound, stack_unit = np.empty(budget + 2), np.empty(budget + 2, np.int64)
    out, kept, found = np.empty(rows), np.empty((rows, n)), np.empty(rows)
    W, V = w.copy().reshape(1, n), v.copy().reshape(1, v.size)
    const, size = np.full(1, constant), np.full(1, extra)
    no_units, no_sides, no_rows = np.empty(0, np.int64), np.empty(0, np.int8), np.empty((0, n))
    at_l, at_h, fixed = zl.copy(), zh.copy(), np.zeros(n, np.bool_)
    # the root again, for its multipliers
    found[0] = -np.inf
    functionals(
        A,
        B,
        b,
        code,
        a,
        fixed,
        u0,
        radius,
        card,
        at_l,
        at_h,
        xl,
        xh,
        weight,
        coefficient,
        sweeps,
        W,
        V,
        const,
        size,
        steps,
        True,
        found,
        out,
        True,
        kept,
    )
    if found[0] > 0:
        return found[0], 1
    unit = _widest(at_l, at_h, code, a, fixed, kept[0], w + np.dot(kept[0], A))
    least_closed = np.inf
    stack_l[0], stack_h[0], stack_fixed[0], stack_bound[0], stack_unit[0] = (
        at_l,
        at_h,
        fixed,
        max(found[0], lower),
        unit,
    )
    depth, nodes = 1, 1
    while depth > 0 and nodes + 2 <= budget:
        depth -= 1
        bound, unit = stack_bound[depth], stack_unit[depth]
        if unit < 0:
            least_closed = min(least_closed, bound)
            break  # no kink is left and it is not positive
        base_l, base_h, base_fixed = stack_l[depth].copy(), stack_h[depth].copy(), stack_fixed[depth].copy()
        for side in range(2):
            nodes += 1
            at_l[:], at_h[:], fixed[:] = base_l, base_h, base_fixed
            fixed[unit] = True
            if side == 0:
                at_l[unit] = 0.0
            else:
                at_h[unit] = 0.0
            refine(
                A,
                B,
                b,
                code,
                a,
                fixed,
                u0,
                radius,
                card,
                at_l,
                at_h,
                xl,
                xh,
                weight,
                coefficient,
                sweeps,
                False,
                no_units,
                no_sides,
                no_rows,
            )
            found[0] = bound
            kept[0] = 0
            functionals(
                A,
                B,
                b,
                code,
                a,
                fixed,
                u0,
                radius,
                card,
                at_l,
                at_h,
                xl,
                xh,
                weight,
                coefficient,
                sweeps,
                W,
                V,
                const,
                size,
                steps,
                True,
                found,
                out,
                True,
                kept,
            )
            if found[0] > 0:
                least_closed = min(least_closed, found[0])
                continue
            lam = np.where(np.isnan(kept[0]), 0.0, kept[0])
            stack_l[depth], stack_h[depth], stack_fixed[depth] = at_l, at_h, fixed
            stack_bound[depth] = found[0]
            stack_unit[depth] = _widest(at_l, at_h, code, a, fixed, lam, w + np.dot(lam, A))
            depth += 1
    for k in range(depth):
        least_closed = min(least_closed, stack_bound[k])
    return max(lower, least_closed), nodes


@kernel
def branch_samples(
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
    sweeps,
    W,
    V,
    constant,
    extra,
    own_rows,
    steps,
    budget,
    ok,
    lower,
    nodes,
):
    """Raise the lower bounds (N, rows) that are not positive, in place; nodes (N, rows)."""
    for s in range(U.shape[0]):
        if not ok[s]:
            continue
        r = radius[s if radius.shape[0] > 1 else 0]
        # the hardest first: one that stays negative leaves the sample undecided whatever the others are
        for k in np.argsort(lower[s]):
            if lower[s, k] > 0:
                break
            w, v = (W[s, k], V[s, k]) if own_rows else (W[0, k], V[0, k])
            lower[s, k], nodes[s, k] = branch(
                A,
                B,
                b,
                code,
                a,
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
                constant[s, k],
                extra[s, k],
                steps,
                lower[s, k],
                budget,
            )
            if not lower[s, k] > 0:
                break
