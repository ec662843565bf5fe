"""Depth phases: up from the source to the surface, and from there on as P (pP, sP).

A ray of parameter p gains on its way up, as P or as S, what `ray_branches` sums over the layers above the source, and
afterwards the angle and time of a P from the surface. Branches are those of the P that leaves the surface. T grows with
the source's depth, dT/dz = sqrt(u^2 - p^2) / r with the slowness u of the upward leg at the source, which is why such a
phase resolves the depth that P alone does not.
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.seismology.table.ray_branches import (
    TAKE_OFFS,
    Branches,
    Medium,
    height,
    interpolate,
    layer_of,
    through,
)


def reflected_times(medium: Medium, up: Medium, depth_km: float, grid: np.ndarray, *, above: bool) -> Branches:
    """Travel times of every branch of a depth phase from one source depth.

    Args:
        medium: of the P from the surface on.
        up: of the leg from the source to the surface, P or S.
        depth_km: of the source, above the core.
        grid: (X,) evenly spaced distances, radians.
        above: as in `ray_branches.branch_times`.

    Returns:
        Branches; `end` is where the ray that grazes the core arrives.
    """
    r, source = medium.radius - depth_km, layer_of(up, depth_km, above=above)
    shape = (len(medium.spans), len(grid))
    T, P, Z, reached = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    end = _reflected(r, source, grid, up.layers, medium.layers, medium.spans, medium.rays, T, P, Z, reached)
    own = int(medium.layers[4][layer_of(medium, depth_km, above=above)])
    return Branches(T, P, Z, reached, own, end)


@kernel
def _reflected(radius, source, grid, up, layers, spans, rays, T, P, Z, reached):
    """Fill T, P, Z, reached (B, X); returns the distance of the ray that grazes the core."""
    shot, group, angle, time = rays
    top, u_up, _, c_up, _ = up
    u = u_up[source] * (radius / top[source]) ** (1 / c_up[source])
    last, end = layers[3].size - 1, 0.0
    never = np.zeros(grid.size, np.bool_)
    for b in range(spans.shape[0]):
        first = np.searchsorted(group, b)
        stop = np.searchsorted(group, b, side="right")
        while first < stop and shot[first] >= u:
            first += 1
        # Close to the ray that leaves the source horizontally, where the distance changes with the root of p.
        fan = TAKE_OFFS if spans[b, 1] < u < spans[b, 0] else 0
        n = fan + stop - first
        if n < 2:
            continue
        p = np.empty(n)
        for k in range(fan):
            p[k] = u - (u - spans[b, 1]) * (k / fan) ** 2
        p[fan:] = shot[first:stop]
        order = np.argsort(-p)
        x, t, q = np.empty(n), np.empty(n), np.empty(n)
        for k in range(n):
            which = order[k]
            q[k] = p[which]
            x[k], t[k] = through(q[k], 0, source, u_up[0], up)
            beneath_x, beneath_t = through(q[k], source, source, u, up)
            x[k] -= beneath_x
            t[k] -= beneath_t
            if which < fan:
                down_x, down_t = through(q[k], 0, last, layers[1][0], layers)
            else:
                ray = first + which - fan
                down_x, down_t = angle[last + 1, ray], time[last + 1, ray]
            x[k] += 2 * down_x
            t[k] += 2 * down_t
        interpolate(x, t, q, 0, grid, T[b], P[b], never)
        near, far = x.argmin(), x.argmax()
        end = x[far] if b == spans.shape[0] - 1 else end
        for k in range(grid.size):
            reached[b, k] = T[b, k] < np.inf
            if not reached[b, k]:
                closest = near if grid[k] < x[near] else far
                T[b, k], P[b, k] = t[closest] + q[closest] * (grid[k] - x[closest]), q[closest]
            Z[b, k] = height(P[b, k], u) / radius
    return end
