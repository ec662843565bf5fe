"""Interpolation in a travel-time table, for single calls inside other kernels and for whole arrays.

Between nodes S = T^2 is interpolated, by cubic Hermite polynomials in depth and distance with the exact slopes of the
nodes (twists zero). Around a source S is a paraboloid, (z^2 + x^2)/v^2, where T is a cone: with S the first degree of
distance needs no finer grid. A cell whose corners belong to different branches has one such surface for each, and its
first arrival is their minimum; so the kinks of a crossover lie where they are. A cell just above a discontinuity has a
surface too, with the slopes of its side.

`tables` is a plain tuple, `PTable.arrays`:

    grid (4,)       first depth, depth step (km), first distance, distance step (degrees)
    nodes (Z, X, 3) T, dT/dDelta, dT/dz, from the deeper side where dT/dz jumps
    first (Z-1, X-1) int32: -1, or 16 * (index of the cell's first surface) + number of surfaces
    sheets (n, 4, 3) T, dT/dDelta, dT/dz at the corners (z0,x0), (z0,x1), (z1,x0), (z1,x1)
    p_end (Z,)      distance in degrees at which the direct P ends; beyond it nodes hold the diffracted wave

`phases` is the same for several phases, `PhaseTable.arrays`; phases that are named after where a wave arrives first
(S, Sg, Sn) share one sheaf of nodes:

    grid            as above
    nodes, first, ends  (K, ...) of the K sheaves, `sheets` common to all
    window (F, Z, 2) first and last distance in degrees at which the phase arrives
    sheaf (F,)      of each phase
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.kernels import kernel

S_SHEAF = 1  # of those of `phases`
SHEAR_ERROR = 1.8  # of an S beside a P: the same relative error of velocities, over the longer time


@kernel(borrows=True)
def _basis(s):
    """Values and derivatives of the cubic Hermite basis: (value 0, value 1, slope 0, slope 1) and their d/ds."""
    r = 1.0 - s
    values, slopes = ((1 + 2 * s) * r * r, s * s * (3 - 2 * s)), (s * r * r, -s * s * r)
    return (*values, *slopes, -6 * s * r, 6 * s * r, r * (1 - 3 * s), s * (3 * s - 2))


@kernel(borrows=True)
def _corner(T, Tx, Tz, along, column, down, row, hx, hz):
    """A corner's share of (S, hz dS/dz, hx dS/dDelta); along and down are the bases in distance and depth."""
    square, across, below = T * T, 2 * T * Tx * hx, 2 * T * Tz * hz
    value, change = (
        along[column] * square + along[2 + column] * across,
        along[4 + column] * square + along[6 + column] * across,
    )
    return (
        down[row] * value + down[2 + row] * along[column] * below,
        down[4 + row] * value + down[6 + row] * along[column] * below,
        down[row] * change + down[2 + row] * along[4 + column] * below,
    )


@kernel(borrows=True)
def lookup(tables, depth, dist):
    """(T s, dT/dz s/km, dT/dDelta s/degree) at a depth (km) and a distance (degrees); NaN outside the grid.

    Beyond the end of P these are the diffracted wave's: `beyond_p` tells. At a source on the receiver, T = 0, both
    slopes are 0: the cone has no derivative there.
    """
    grid, nodes, first, sheets, _ = tables
    fz, fx = (depth - grid[0]) / grid[1], (dist - grid[2]) / grid[3]
    rows, columns = first.shape
    if not (0 <= fz <= rows and 0 <= fx <= columns):
        return np.nan, np.nan, np.nan
    i, j = min(int(fz), rows - 1), min(int(fx), columns - 1)
    down, along = _basis(fz - i), _basis(fx - j)
    hz, hx = grid[1], grid[3]
    where = first[i, j]
    if where < 0:
        best = best_z = best_x = 0.0
        for row in range(2):
            for column in range(2):
                node = nodes[i + row, j + column]
                S, Sz, Sx = _corner(node[0], node[1], node[2], along, column, down, row, hx, hz)
                best, best_z, best_x = best + S, best_z + Sz, best_x + Sx
    else:
        best, best_z, best_x = np.inf, 0.0, 0.0
        for k in range(where >> 4, (where >> 4) + (where & 15)):
            T2 = T2z = T2x = 0.0
            for row in range(2):
                for column in range(2):
                    node = sheets[k, 2 * row + column]
                    S, Sz, Sx = _corner(node[0], node[1], node[2], along, column, down, row, hx, hz)
                    T2, T2z, T2x = T2 + S, T2z + Sz, T2x + Sx
            if T2 < best:
                best, best_z, best_x = T2, T2z, T2x
    if best <= 1e-18:
        return 0.0, 0.0, 0.0
    T = math.sqrt(best)
    return T, best_z / (2 * T * hz), best_x / (2 * T * hx)


@kernel(borrows=True)
def beyond_p(tables, depth, dist):
    """Whether a distance lies in the shadow, beyond the last direct P."""
    grid, p_end = tables[0], tables[4]
    f = (depth - grid[0]) / grid[1]
    i = min(max(int(f), 0), p_end.size - 2)
    return dist > p_end[i] + (f - i) * (p_end[i + 1] - p_end[i])


@kernel(borrows=True)
def of_phase(phases, k):
    """The `tables` of phase k, without a copy."""
    grid, nodes, first, sheets, ends, _, sheaf = phases
    s = sheaf[k]
    return grid, nodes[s], first[s], sheets, ends[s]


@kernel(borrows=True)
def outside_window(phases, k, depth, dist):
    """Whether phase k does not arrive at a distance: a P beyond the last direct P, an Sn nearer than its begin."""
    grid, window = phases[0], phases[5][k]
    f = (depth - grid[0]) / grid[1]
    i = min(max(int(f), 0), window.shape[0] - 2)
    end = window[i, 1] + (f - i) * (window[i + 1, 1] - window[i, 1])
    begin = window[i, 0] + (f - i) * (window[i + 1, 0] - window[i, 0])
    return dist > end or dist < begin


@kernel
def lookup_many(tables, depth, dist, refuse, T, Tz, Tx):
    """`lookup` of flat arrays. Returns the number of NaN results; with `refuse` those in the shadow are among them."""
    missing = 0
    for k in range(depth.size):
        T[k], Tz[k], Tx[k] = lookup(tables, depth[k], dist[k])
        if refuse and beyond_p(tables, depth[k], dist[k]):
            T[k] = Tz[k] = Tx[k] = np.nan
        missing += T[k] != T[k]
    return missing
