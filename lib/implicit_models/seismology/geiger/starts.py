"""Starts of the iteration: a polar grid around the earliest pick, the best of it by chi-square, and descents from each.

The epicentre is nearest to the station that picked first, or about as near as that, so rings around it, close when near
and wide when far, hold a start in the right basin without a grid over the globe.
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.seismology.geiger.kernels import (
    DEGREE,
    angle_between,
    baz_residual,
    copy,
    descend,
    frame,
    move,
    picks_between,
    travel_time,
)
from implicit_models.seismology.table.kernels import outside_window

# Degrees from the earliest station, and points on each ring.
RINGS = np.array([0.3, 1.0, 2.5, 5.0, 8.0, 12.0, 17.0, 24.0, 33.0, 45.0, 60.0, 78.0, 95.0])
POINTS = np.array([6, 8, 10, 12, 12, 12, 12, 12, 14, 16, 16, 18, 18])
DEPTHS = np.array([10.0, 100.0, 300.0, 600.0])
# With S the depths of the crust differ, and minima lie on both sides of its boundaries.
DEPTHS_WITH_S = np.array([5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0])
SHADOW_PRICE = (
    12.25  # in chi-square, of a pick that a location puts beyond the direct P: 3.5 standard deviations, an outlier's
)
ROUGH, FINE = 1e-2, 1e-9  # decrease of chi-square that ends a descent: of each start, of the best of them
CHORDS = 2049  # points of a row of `chord_times`


@kernel(borrows=True)
def chord_times(phases, depth, rows):
    """Fill rows (F, CHORDS) with each phase's T at chords 0..2 (of the unit sphere) in even steps: what the grid looks
    up instead of the table."""
    for f in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            half = min(k / (rows.shape[1] - 1), 1.0)
            rows[f, k] = travel_time(phases, f, depth, 2 * math.asin(half))[0]


@kernel
def all_chord_times(phases, depths):
    """(Z, F, CHORDS) of `chord_times`."""
    rows = np.empty((depths.size, phases[6].size, CHORDS))
    for m in range(depths.size):
        chord_times(phases, depths[m], rows[m])
    return rows


@kernel(error_model="python")  # picks without any weight are an error
def grid_costs(centre, centre_baz, picks, rows, rings, points, robust, position, cost):
    """Misfit of every grid point: chi-square, or with `robust` the sum of absolute residuals about their median.

    rows (Z, F, CHORDS) from `chord_times`. position (G, 3) and cost (G, Z) are filled; centre_baz (radians) turns the
    rings towards a measured direction, NaN for none.
    """
    place, time, weight, baz, baz_weight = picks.place, picks.time, picks.weight, picks.baz, picks.baz_weight
    phase, n, n_depths, last = picks.phase, time.size, rows.shape[0], rows.shape[2] - 1
    north, east, r = np.empty(3), np.empty(3), np.empty(n)
    cell, part = np.empty(n, np.int64), np.empty(n)
    frame(centre, north, east)
    k, whole = 0, weight.sum()
    for ring in range(rings.size):
        out = rings[ring] * DEGREE
        for point in range(points[ring]):
            if centre_baz == centre_baz:
                azimuth = centre_baz + 2 * math.pi * point / points[ring]
            else:
                azimuth = 2 * math.pi * (point + 0.5 * (ring % 2)) / points[ring]
            u = position[k]
            move(centre, north, east, out * math.cos(azimuth), out * math.sin(azimuth), u)
            extra = 0.0
            for i in range(n):
                s = place[i]
                chord = 0.5 * last * math.sqrt(square_chord(u, s))
                cell[i] = min(int(chord), last - 1)
                part[i] = chord - cell[i]
                if baz_weight[i] > 0:
                    e = baz_residual(u, s, baz[i])[0]
                    extra += math.sqrt(baz_weight[i]) * abs(e) if robust else baz_weight[i] * e * e
            for m in range(n_depths):
                row = rows[m]
                if robust:
                    used = 0
                    for i in range(n):
                        if weight[i] > 0:
                            f = phase[i]
                            r[used] = time[i] - row[f, cell[i]] - part[i] * (row[f, cell[i] + 1] - row[f, cell[i]])
                            used += 1
                    middle, used, total = np.median(r[:used]), 0, 0.0
                    for i in range(n):
                        if weight[i] > 0:
                            total += math.sqrt(weight[i]) * abs(r[used] - middle)
                            used += 1
                else:
                    s1, s2 = 0.0, 0.0
                    for i in range(n):
                        f = phase[i]
                        e = time[i] - row[f, cell[i]] - part[i] * (row[f, cell[i] + 1] - row[f, cell[i]])
                        s1 += weight[i] * e
                        s2 += weight[i] * e * e
                    total = s2 - s1 * s1 / whole
                cost[k, m] = total + extra
            k += 1


@kernel(borrows=True)
def square_chord(u, s):
    return (u[0] - s[0]) ** 2 + (u[1] - s[1]) ** 2 + (u[2] - s[2]) ** 2


@kernel(borrows=True)
def choose_starts(centre, position, cost, depths, spacing, chosen):
    """Fill chosen (K, 2) with the best grid points, each away from the others; returns their number. cost is
    overwritten."""
    count = 0
    while count < chosen.shape[0]:
        best = np.argmin(cost)
        k, m = best // depths.size, best % depths.size
        if not cost[k, m] < np.inf:
            break
        chosen[count, 0], chosen[count, 1] = k, m
        count += 1
        scale = (0.3 * DEGREE + math.sqrt(square_chord(centre, position[k]))) ** 2
        for j in range(position.shape[0]):
            across = square_chord(position[k], position[j]) / scale
            if across < spacing**2:
                for l in range(depths.size):
                    if across + ((depths[l] - depths[m]) / 150.0) ** 2 < spacing**2:
                        cost[j, l] = np.inf
        cost[k, m] = np.inf
    return count


@kernel
def locate_one(picks, phases, rows, rings, points, depths, starts, lowest, highest, steps, out, other):
    """Best of the descents from `starts` grid points: out = (u, depth, t0, chi-square, iterations).

    other = (u, depth, t0, chi-square) of the best minimum at least 50 km away from it, chi-square inf if there is none.
    A place that has picks beyond the direct P is preferred only if it fits as much better as leaving these out would
    cost.
    """
    place, time, weight = picks.place, picks.time, picks.weight
    first = -1
    for i in range(time.size):
        if weight[i] > 0 and (first < 0 or time[i] < time[first]):
            first = i
    total = 0
    for ring in range(rings.size):
        total += points[ring]
    position, cost = np.empty((total, 3)), np.empty((total, depths.size))
    chosen = np.empty((starts, 2), np.int64)
    direction = picks.baz[first] if picks.baz_weight[first] > 0 else math.nan
    centre = place[first]
    grid_costs(centre, direction, picks, rows, rings, points, False, position, cost)
    count = choose_starts(centre, position, cost, depths, 0.5, chosen)
    found, price = np.empty((count, 6)), np.empty(count)
    best, iterations = 0, 0
    for k in range(count):
        copy(position[chosen[k, 0]], found[k])
        z, chi2, t0, done = descend(found[k, :3], depths[chosen[k, 1]], picks, phases, lowest, highest, steps, ROUGH)
        found[k, 3], found[k, 4], found[k, 5] = z, t0, chi2
        price[k] = chi2
        for i in range(time.size):
            if weight[i] > 0 and outside_window(
                phases, picks.phase[i], z, angle_between(found[k, :3], place[i]) / DEGREE
            ):
                price[k] += SHADOW_PRICE
        iterations += done
        if price[k] < price[best]:
            best = k
    lowest_price = price[best]
    z, chi2, t0, done = descend(found[best, :3], found[best, 3], picks, phases, lowest, highest, steps, FINE)
    gained = found[best, 5] - chi2
    found[best, 3], found[best, 4], found[best, 5] = z, t0, chi2
    copy(found[best], out)
    out[6] = iterations + done
    other[5] = np.inf
    for k in range(count):
        away = 6371.0 * angle_between(found[k, :3], found[best, :3])
        more = price[k] - lowest_price + gained
        if away > 50.0 and chi2 + more < other[5]:
            copy(found[k], other)
            other[5] = chi2 + more


@kernel
def locate_many(begin, picks, phases, rows, rings, points, depths, starts, lowest, highest, steps, out, other):
    """`locate_one` of every event e, picks begin[e]:begin[e+1]; lowest and highest (N,) are its bounds of depth, rows
    those of `all_chord_times`.

    An event whose bounds coincide has its depth fixed, and starts there.
    """
    own_row = np.empty((1, rows.shape[1], CHORDS))
    own_depth = math.nan
    for e in range(begin.size - 1):
        a, b = begin[e], begin[e + 1]
        at, times = depths, rows
        if lowest[e] == highest[e]:
            at, times = lowest[e : e + 1], own_row
            if lowest[e] != own_depth:
                own_depth = lowest[e]
                chord_times(phases, own_depth, own_row[0])
        locate_one(
            picks_between(picks, a, b),
            phases,
            times,
            rings,
            points,
            at,
            starts,
            lowest[e],
            highest[e],
            steps,
            out[e],
            other[e],
        )
