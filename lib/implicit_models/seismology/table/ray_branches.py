"""P or S rays of a spherical Earth, in branches between its discontinuities.

In a layer v = A r^B, so with slowness u = r/v and c = 1/(1-B) = log(r_t/r_b)/log(u_t/u_b), a ray of parameter p gains

    angle  c [arccos(p/u)],    time  c [sqrt(u^2 - p^2)]        from one end to the other,

until it turns where u = p. The layers are those of obspy's model, so that the rays are TauPy's own; but every row of
the table takes as many of them as it needs, and all branches share the sums over layers.

A branch is the set of rays that turn between two depths at which T(Delta) folds, jumps of the velocity or kinks of it.
The source's own branch holds the upgoing rays as well: they meet the downgoing ones at the horizontal ray. Along a
branch dT/dDelta = p, so T(Delta) is interpolated by cubic Hermite polynomials in Delta, and the first arrival is the
minimum over branches. The deepest branch ends at the core; diffraction continues it with the slowness of the grazing
ray. With the source's depth,

    dT/dz = +- sqrt(u^2 - p^2) / r,    + for upgoing rays, u and r at the source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from implicit_models.kernels import kernel

SUBDIVISIONS = 3  # of the steps in ray parameter that obspy's model has
TAKE_OFFS = 64  # rays between vertical and horizontal, and again below the horizontal
FOLD = 1e-5  # radians by which the next ray must fall back


@dataclass(frozen=True)
class Medium:
    """Layers above the core, and rays shot once from the surface.

    Args:
        radius: of the planet, km.
        layers: (top radius km, slowness u at the top, u at the bottom s/rad, exponent c, branch of rays that turn
            there), each (L,), from the surface down.
        spans: (B, 2) largest and smallest ray parameter of each branch, s/rad.
        rays: (ray parameter, branch, angle, time): parameters falling within a branch; angle and time (L + 1, R) from
            the surface to the top of each layer, one way, to the turning point at most.
        bottom: radius of the core, km.
    """

    radius: float
    layers: tuple[np.ndarray, ...]
    spans: np.ndarray
    rays: tuple[np.ndarray, ...]
    bottom: float

    def boundaries(self) -> np.ndarray:
        """Depths in km between branches."""
        top, branch = self.layers[0], self.layers[4]
        return self.radius - top[np.flatnonzero(np.diff(branch)) + 1]


@dataclass(frozen=True)
class Branches:
    """Every branch of one source depth at the nodes of a grid.

    Args:
        T: (B, X) s; where no ray of the branch arrives, along the tangent of its nearest end; infinite for branches
            above the source.
        P: (B, X) dT/dDelta, s/rad.
        Z: (B, X) dT/dz, s/km.
        reached: (B, X) whether a ray of the branch arrives; the diffracted wave counts as the deepest branch's.
        own: the branch of the source's layer.
        end: Delta in radians of the ray that grazes the core.
    """

    T: np.ndarray
    P: np.ndarray
    Z: np.ndarray
    reached: np.ndarray
    own: int
    end: float

    def first_arrival(self) -> np.ndarray:
        """(X,) branch of the earliest ray at each node; where none arrives, that of the nearest node where one does."""
        code = np.where(self.reached, self.T, np.inf).argmin(axis=0)
        some = np.flatnonzero(self.reached.any(axis=0))
        if some.size in (0, code.size):
            return code
        at = np.clip(np.searchsorted(some, np.arange(code.size)), 1, some.size - 1) if some.size > 1 else 0
        left, right = some[np.maximum(at - 1, 0)], some[at]
        columns = np.arange(code.size)
        nearest = np.where(np.abs(columns - left) <= np.abs(columns - right), left, right)
        return np.where(self.reached.any(axis=0), code, code[nearest])


def earth(name: str, wave: Literal["P", "S"] = "P") -> Medium:
    """The P or S velocities of one of obspy's models, down to the core.

    Raises:
        ModuleNotFoundError: obspy is missing.
        ValueError: obspy has no such model, or its slowness r/v rises with depth somewhere (rays cannot turn there).
    """
    try:
        from obspy.taup import TauPyModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "travel times come from obspy's Earth models: pip install 'implicit-models[seismology]'", name=error.name
        ) from error
    try:
        model = TauPyModel(name).model
    except (FileNotFoundError, OSError) as error:
        raise ValueError(f"obspy has no Earth model {name!r}, such as 'ak135' and 'iasp91'") from error
    sampled = model.s_mod.p_layers if wave == "P" else model.s_mod.s_layers
    kept = sampled[(sampled["top_depth"] < model.cmb_depth) & (sampled["bot_depth"] > sampled["top_depth"])]
    radius = float(model.radius_of_planet)
    return layered(
        radius, radius - kept["top_depth"], radius - kept["bot_depth"], kept["top_p"].copy(), kept["bot_p"].copy()
    )


def layered(radius: float, top: np.ndarray, bottom: np.ndarray, u_top: np.ndarray, u_bottom: np.ndarray) -> Medium:
    """A medium of layers v = A r^B above a core.

    Args:
        radius: of the planet, km.
        top, bottom: (L,) radii of the layers, km, from the surface down.
        u_top, u_bottom: (L,) slowness r/v there, s/rad.

    Raises:
        ValueError: the slowness rises with depth, naming where.
    """
    rising = np.flatnonzero((u_bottom >= u_top) | np.r_[False, u_top[1:] > u_bottom[:-1] * (1 + 1e-9)])
    if rising.size:
        raise ValueError(
            f"the slowness r/v rises with depth at {radius - top[rising[0]]:g} km; rays do not turn in such a zone"
        )
    c = np.log(top / bottom) / np.log(u_top / u_bottom)
    jump = u_top[1:] < u_bottom[:-1] * (1 - 1e-9)
    layers = (np.ascontiguousarray(top), u_top, u_bottom, c, np.zeros(len(c), np.int64))
    # A jump brings rays back as well, and ends a branch itself.
    branch = np.r_[0, np.cumsum(jump | (_folds(layers) & ~np.r_[jump[1:], False]))]
    layers = (*layers[:4], branch)
    members = [branch == k for k in range(branch[-1] + 1)]
    spans = np.array([(u_top[member].max(), u_bottom[member].min()) for member in members])
    parts = [_ray_parameters(np.unique(np.r_[u_top[member], u_bottom[member]])) for member in members]
    rays, group = np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    angle, time = np.empty((len(c) + 1, len(rays))), np.empty((len(c) + 1, len(rays)))
    _descend(rays, layers, angle, time)
    return Medium(radius, layers, spans, (rays, group, angle, time), float(bottom[-1]))


def _folds(layers: tuple[np.ndarray, ...]) -> np.ndarray:
    """(L - 1,) boundaries below which rays from the surface come back: a kink of the velocity folds T(Delta) as a jump
    does."""
    levels = layers[1]
    angle, time = np.empty((len(levels) + 1, len(levels))), np.empty((len(levels) + 1, len(levels)))
    _descend(levels, layers, angle, time)
    reach = angle[-1]
    return (reach[1:] > reach[:-1] + FOLD) & (np.r_[reach[2:], np.inf] < reach[1:] - FOLD)


def _ray_parameters(levels: np.ndarray) -> np.ndarray:
    """The slownesses of a branch's layers and points between, falling; closer at the grazing ray, where dDelta/dp is
    infinite."""
    steps = np.arange(SUBDIVISIONS) / SUBDIVISIONS
    between = (levels[:-1, None] + np.diff(levels)[:, None] * steps).ravel()
    grazing = levels[-1] - (levels[-1] - levels[-2]) * np.linspace(0, 1, 16) ** 2
    return np.unique(np.r_[between, grazing, levels[-1]])[::-1].copy()


def branch_times(medium: Medium, depth_km: float, grid: np.ndarray, *, above: bool) -> Branches:
    """Travel times of every branch from one source depth.

    Args:
        medium: where.
        depth_km: of the source, above the core.
        grid: (X,) evenly spaced distances, radians.
        above: on a boundary between layers the source lies in the upper one; it decides the sign and size of dT/dz.

    Returns:
        Branches.
    """
    r, source = medium.radius - depth_km, layer_of(medium, depth_km, above=above)
    shape = (len(medium.spans), len(grid))
    T, P, Z, reached = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    end = _all_branches(r, source, grid, medium.layers, medium.spans, medium.rays, T, P, Z, reached)
    reached[-1] |= grid > end
    return Branches(T, P, Z, reached, int(medium.layers[4][source]), end)


def layer_of(medium: Medium, depth_km: float, *, above: bool) -> int:
    """Layer of a source; on a boundary the upper one if `above`."""
    top, r = medium.layers[0], medium.radius - depth_km
    below = np.r_[top[1:], medium.bottom]
    return int(np.flatnonzero((top > r) & (below <= r) if above else (top >= r) & (below < r))[0])


@kernel
def _angle(p, u):
    """arccos(p/u) with its digits at p = u."""
    return math.atan2(math.sqrt(max((u - p) * (u + p), 0.0)), p)


@kernel
def height(p, u):
    return math.sqrt(max((u - p) * (u + p), 0.0))


@kernel
def _descend(rays, layers, angle, time):
    """Cumulative angle and time of every ray to the top of each layer; constant below the turning point."""
    _, u_top, u_bottom, c, _ = layers
    for k in range(rays.size):
        p = rays[k]
        x = t = 0.0
        for layer in range(c.size):
            angle[layer, k], time[layer, k] = x, t
            if p < u_top[layer]:
                low = max(u_bottom[layer], p)
                x += c[layer] * (_angle(p, u_top[layer]) - _angle(p, low))
                t += c[layer] * (height(p, u_top[layer]) - height(p, low))
        angle[c.size, k], time[c.size, k] = x, t


@kernel
def through(p, first, last, u, layers):
    """(angle, time) from slowness u inside layer `first` to the bottom of layer `last`, or to the turning point."""
    _, u_top, u_bottom, c, _ = layers
    x = t = 0.0
    for layer in range(first, last + 1):
        high = u if layer == first else u_top[layer]
        if p >= high:
            break
        low = max(u_bottom[layer], p)
        x += c[layer] * (_angle(p, high) - _angle(p, low))
        t += c[layer] * (height(p, high) - height(p, low))
        if p >= u_bottom[layer]:
            break
    return x, t


@kernel
def _chain(b, u, source, layers, spans, rays):
    """(Delta, T, p, number of upgoing rays) along branch b, for a source of slowness u in layer `source`.

    In the source's own branch the upgoing rays come first. Rays are closest at the horizontal, where the distances of a
    shallow source run off and Delta changes with the square root of p.
    """
    shot, group, angle, time = rays
    u_top, c, own = layers[1], layers[3], layers[4][source] == b
    last = c.size - 1
    first = np.searchsorted(group, b)
    stop = np.searchsorted(group, b, side="right")
    while first < stop and shot[first] >= u:
        first += 1
    fan = TAKE_OFFS if own else 0
    p_down = np.empty(fan + stop - first)
    for k in range(fan):
        p_down[k] = u - (u - spans[b, 1]) * ((k + 1) / fan) ** 2
    p_down[fan:] = shot[first:stop]
    order = np.argsort(-p_down)
    n_up = fan + 1 if own else 0
    x, t, p = np.empty(n_up + order.size), np.empty(n_up + order.size), np.empty(n_up + order.size)
    for k in range(n_up):
        p[k] = u if k == fan else u * math.sin(0.5 * math.pi * (1 - (1 - k / fan) ** 2))
        all_x, all_t = through(p[k], 0, source, u_top[0], layers)
        below_x, below_t = through(p[k], source, source, u, layers)
        x[k], t[k] = all_x - below_x, all_t - below_t
    for k in range(order.size):
        which, at = order[k], n_up + k
        p[at] = p_down[which]
        if which < fan:
            all_x, all_t = through(p[at], 0, last, u_top[0], layers)
            below_x, below_t = through(p[at], source, last, u, layers)
            x[at], t[at] = all_x + below_x, all_t + below_t
        else:
            ray = first + which - fan
            below_x, below_t = through(p[at], source, source, u, layers)
            x[at] = 2 * angle[last + 1, ray] - angle[source + 1, ray] + below_x
            t[at] = 2 * time[last + 1, ray] - time[source + 1, ray] + below_t
    return x, t, p, n_up


@kernel
def interpolate(x, t, p, n_up, grid, T, P, up):
    """Earliest T at the nodes that lie between two neighbouring rays of a branch; infinite elsewhere."""
    step = grid[1] - grid[0]
    for k in range(x.size - 1):
        h = x[k + 1] - x[k]
        if abs(h) < 1e-14:
            continue
        low, high = min(x[k], x[k + 1]), max(x[k], x[k + 1])
        first = max(int(math.ceil((low - grid[0]) / step - 1e-9)), 0)
        last = min(int(math.floor((high - grid[0]) / step + 1e-9)), grid.size - 1)
        for node in range(first, last + 1):
            s = (grid[node] - x[k]) / h
            rise = t[k + 1] - t[k]
            value = t[k] + s * s * (3 - 2 * s) * rise + h * s * (1 - s) * ((1 - s) * p[k] - s * p[k + 1])
            if value < T[node]:
                T[node] = value
                P[node] = 6 * s * (1 - s) * rise / h + (1 - s) * (1 - 3 * s) * p[k] + s * (3 * s - 2) * p[k + 1]
                up[node] = k + 1 < n_up


@kernel
def _all_branches(radius, source, grid, layers, spans, rays, T, P, Z, reached):
    """Fill T, P, Z, reached (B, X) of `Branches`; returns Delta of the ray that grazes the core."""
    top, u_top, _, c, branch = layers
    u = u_top[source] * (radius / top[source]) ** (1 / c[source])
    up = np.zeros(grid.size, np.bool_)
    end = 0.0
    for b in range(branch[source], spans.shape[0]):
        x, t, p, n_up = _chain(b, u, source, layers, spans, rays)
        up[:] = False
        interpolate(x, t, p, n_up, grid, T[b], P[b], up)
        near, far = x.argmin(), x.argmax()
        end = x[far]
        for k in range(grid.size):
            reached[b, k] = T[b, k] < np.inf
            if not reached[b, k]:
                closest = near if grid[k] < x[near] else far
                T[b, k], P[b, k] = t[closest] + p[closest] * (grid[k] - x[closest]), p[closest]
            slope = height(P[b, k], u) / radius
            Z[b, k] = slope if up[k] else -slope
    return end
