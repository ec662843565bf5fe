"""Picks that belong to another phase or another earthquake: found by a robust fit of the times, and left out rather
than averaged.

The robust location minimises the truncated squares sum_i min(e_i^2, CUT^2) of the standardised residuals e_i. It is
reached by reweighted Levenberg-Marquardt with Geman and McClure's weights (s^2 / (s^2 + e^2))^2, whose scale s shrinks
from that of the residuals at the start to CUT, from the best points by absolute deviation of grids around several of
the first picks: one of them may be wrong.

Source:
    Black & Rangarajan (1996); graduated non-convexity, Yang et al. (2020).
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.seismology.geiger.kernels import Picks, angle_between, copy, descend, travel_time
from implicit_models.seismology.geiger.starts import ROUGH, choose_starts, grid_costs

CUT = 3.5  # standard deviations of a residual beyond which a pick is an outlier
CENTRES = 4  # first picks whose surroundings are searched
STARTS_EACH = 4
SHRINK = 0.6  # of the scale, from one round of reweighting to the next
LEAST_PICKS = 6  # with fewer, any pick could be left out to fit the others exactly


@kernel
def _used(values, weight):
    """Those of the values that have a weight."""
    found, n = np.empty(values.size), 0
    for i in range(values.size):
        if weight[i] > 0:
            found[n] = values[i]
            n += 1
    return found[:n]


@kernel
def standardised(u, z, picks, phases, t0, e):
    """e (S,) = sqrt(weight) (time - T - t0); t0 NaN: the median is taken. Returns t0."""
    place, time, weight = picks.place, picks.time, picks.weight
    n = time.size
    for i in range(n):
        e[i] = time[i] - travel_time(phases, picks.phase[i], z, angle_between(u, place[i]))[0]
    if t0 != t0:
        t0 = np.median(_used(e, weight))
    for i in range(n):
        e[i] = math.sqrt(weight[i]) * (e[i] - t0)
    return t0


@kernel
def robust_descend(u, z, picks, phases, lowest, highest):
    """(depth, truncated squares, t0) of the reweighted iteration from (u, z); u is overwritten."""
    n, weight, baz_weight = picks.time.size, picks.weight, picks.baz_weight
    e, share, baz_share = np.empty(n), np.empty(n), np.empty(n)
    weighted = Picks(picks.place, picks.time, share, picks.baz, baz_share, picks.phase)
    t0 = standardised(u, z, picks, phases, math.nan, e)
    scale = max(CUT, 3 * np.median(np.abs(_used(e, weight))))
    last = 0
    while last < 4:
        if scale <= CUT:
            scale = CUT
            last += 1
        for i in range(n):
            factor = scale * scale / (scale * scale + e[i] * e[i])
            share[i] = weight[i] * factor * factor
            baz_share[i] = baz_weight[i] * factor * factor
        z, _, t0, _ = descend(u, z, weighted, phases, lowest, highest, 6, ROUGH)
        t0 = standardised(u, z, picks, phases, t0, e)
        scale *= SHRINK
    total = 0.0
    for i in range(n):
        total += min(e[i] * e[i], CUT * CUT)
    return z, total, t0


@kernel
def robust_locate(picks, phases, rows, rings, points, depths, lowest, highest, e):
    """Fill e (S,) with the standardised residuals of the best robust location; returns its truncated squares.

    rows (Z, F, CHORDS) are those of the depths.
    """
    place, time, weight = picks.place, picks.time, picks.weight
    total = 0
    for ring in range(rings.size):
        total += points[ring]
    position, cost = np.empty((total, 3)), np.empty((total, depths.size))
    chosen = np.empty((STARTS_EACH, 2), np.int64)
    u, best_u, best_z, best_t0, best = np.empty(3), np.empty(3), 0.0, 0.0, np.inf
    left = weight > 0
    for _ in range(CENTRES):
        i = -1
        for k in range(time.size):
            if left[k] and (i < 0 or time[k] < time[i]):
                i = k
        if i < 0:
            break
        left[i] = False
        centre = place[i]
        grid_costs(centre, math.nan, picks, rows, rings, points, True, position, cost)
        count = choose_starts(centre, position, cost, depths, 0.5, chosen)
        for k in range(count):
            copy(position[chosen[k, 0]], u)
            z, found, t0 = robust_descend(u, depths[chosen[k, 1]], picks, phases, lowest, highest)
            if found < best:
                best, best_z, best_t0 = found, z, t0
                copy(u, best_u)
    standardised(best_u, best_z, picks, phases, best_t0, e)
    return best
