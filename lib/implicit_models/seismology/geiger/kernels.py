"""Levenberg-Marquardt on one event: epicentre on the sphere, depth in its bounds, origin time eliminated.

With u the unit vector of the epicentre, s_i a station's, Delta_i their angle, the time residuals are r_i = t_i - t0 -
T_k(z, Delta_i), T_k of the pick's phase k, and

    dDelta_i / dn = -(s_i . n) / sin Delta_i        along a unit tangent n at u.

The best t0 for given (u, z) is the weighted mean of t_i - T_i; subtracting weighted means from the rows of the Jacobian
gives the normal equations in (north, east, depth) alone, whose solution is that of the four unknowns. A step moves u
along a great circle, so poles and the antimeridian are points like others. Back-azimuths beta_i = atan2(u . e_i, u .
n_i), with the station's own east and north, are further data.

Arrays of an event: place (S, 3) unit vectors; time (S,) s; weight (S,) 1/s^2, 0 for a pick that is left out; baz (S,)
radians; baz_weight (S,) 1/radian^2, 0 where there is none; phase (S,) index in the tables `phases` of `table.kernels`.

Source:
    Geiger (1912); separable least squares, Golub & Pereyra (1973).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from implicit_models.kernels import kernel
from implicit_models.seismology.table.kernels import lookup, of_phase

DEGREE = math.pi / 180
LONGEST_STEP = 0.3  # radians
TINY_ANGLE = 1e-9  # radians; nearer than this the direction to a station is undefined
LOST = 1e6  # damping at which no step helps


class Picks(NamedTuple):
    """Picks of one event, or of several one after the other; see the module."""

    place: Float[np.ndarray, "S 3"]
    time: Float[np.ndarray, " S"]
    weight: Float[np.ndarray, " S"]
    baz: Float[np.ndarray, " S"]
    baz_weight: Float[np.ndarray, " S"]
    phase: Int[np.ndarray, " S"]


class System(NamedTuple):
    """Normal equations H x = g for the step x in (north, east, depth), and the frame, J (S, 3) and r (S,) that they
    are made of."""

    north: Float[np.ndarray, " 3"]
    east: Float[np.ndarray, " 3"]
    H: Float[np.ndarray, "3 3"]
    g: Float[np.ndarray, " 3"]
    J: Float[np.ndarray, "S 3"]
    r: Float[np.ndarray, " S"]


@kernel
def picks_between(picks, a, b):
    """The picks a to b - 1, without a copy."""
    angles, phase = (picks.baz[a:b], picks.baz_weight[a:b]), picks.phase[a:b]
    return Picks(picks.place[a:b], picks.time[a:b], picks.weight[a:b], angles[0], angles[1], phase)


@kernel
def system_of(n):
    """A `System` for n picks, not filled."""
    return System(np.empty(3), np.empty(3), np.empty((3, 3)), np.empty(3), np.empty((n, 3)), np.empty(n))


@kernel(borrows=True)
def copy(source, target):
    """target[:] = source, of the length of source: numba's general assignment takes seconds to compile."""
    for k in range(source.size):
        target[k] = source[k]


@kernel(borrows=True)
def frame(u, north, east):
    """North and east at u; at a pole those of longitude 0."""
    across = math.hypot(u[0], u[1])
    if across < 1e-12:
        north[0], north[1], north[2] = -1.0 if u[2] > 0 else 1.0, 0.0, 0.0
        east[0], east[1], east[2] = 0.0, 1.0, 0.0
    else:
        north[0], north[1], north[2] = -u[2] * u[0] / across, -u[2] * u[1] / across, across
        east[0], east[1], east[2] = -u[1] / across, u[0] / across, 0.0


@kernel(borrows=True)
def move(u, north, east, to_north, to_east, out):
    """The point reached along a great circle; steps in radians."""
    angle = math.hypot(to_north, to_east)
    near, far = math.cos(angle), math.sin(angle) / angle if angle > 1e-12 else 1.0
    for k in range(3):
        out[k] = near * u[k] + far * (to_north * north[k] + to_east * east[k])
    length = math.sqrt(out[0] ** 2 + out[1] ** 2 + out[2] ** 2)
    for k in range(3):
        out[k] /= length


@kernel(borrows=True)
def sine_cosine(u, s):
    """Sine and cosine of the angle of two unit vectors."""
    a, b, c = u[1] * s[2] - u[2] * s[1], u[2] * s[0] - u[0] * s[2], u[0] * s[1] - u[1] * s[0]
    return math.sqrt(a * a + b * b + c * c), u[0] * s[0] + u[1] * s[1] + u[2] * s[2]


@kernel(borrows=True)
def angle_between(u, s):
    """Angle of two unit vectors, radians."""
    sine, cosine = sine_cosine(u, s)
    return math.atan2(sine, cosine)


@kernel(borrows=True)
def travel_time(phases, k, depth, angle):
    """(T, dT/dz s/km, dT/dDelta s/radian) of phase k; below the table's last depth linear in depth."""
    deepest = phases[0][0] + phases[0][1] * (phases[1].shape[1] - 1)
    inside = min(depth, deepest)
    T, Tz, Tx = lookup(of_phase(phases, k), inside, min(angle / DEGREE, 180.0))
    return T + (depth - inside) * Tz, Tz, Tx / DEGREE


@kernel(borrows=True)
def baz_residual(u, s, baz):
    """(residual, and its derivatives' factors): observed minus predicted back-azimuth at station s, in (-pi, pi].

    The factors (p, q) are u's components along the station's east and north; sin^2 Delta = p^2 + q^2.
    """
    across = math.hypot(s[0], s[1])
    if across < 1e-12:
        p, q = u[1], -u[0] if s[2] > 0 else u[0]
    else:
        p = (s[0] * u[1] - s[1] * u[0]) / across
        q = across * u[2] - s[2] * (s[0] * u[0] + s[1] * u[1]) / across
    residual = baz - math.atan2(p, q)
    residual -= 2 * math.pi * math.floor(residual / (2 * math.pi) + 0.5)
    return residual, p, q


@kernel(borrows=True)
def jacobian(u, z, picks, phases, system):
    """T's derivatives J (S, 3) by north and east (s/radian) and depth (s/km); r (S,) = time - T; fills the frame at
    u."""
    place, time, phase = picks.place, picks.time, picks.phase
    north, east, J, r = system.north, system.east, system.J, system.r
    frame(u, north, east)
    for i in range(time.size):
        s = place[i]
        sine, cosine = sine_cosine(u, s)
        T, Tz, Tx = travel_time(phases, phase[i], z, math.atan2(sine, cosine))
        slope = -Tx / sine if sine > TINY_ANGLE else 0.0
        J[i, 0] = slope * (s[0] * north[0] + s[1] * north[1] + s[2] * north[2])
        J[i, 1] = slope * (s[0] * east[0] + s[1] * east[1] + s[2] * east[2])
        J[i, 2] = Tz
        r[i] = time[i] - T


@kernel(borrows=True, error_model="python")  # picks without any weight are an error
def normal_equations(u, z, picks, phases, system):
    """(chi-square, t0) at (u, z); fills the system."""
    place, time, weight, baz, baz_weight = picks.place, picks.time, picks.weight, picks.baz, picks.baz_weight
    north, east, H, g, J, r = system.north, system.east, system.H, system.g, system.J, system.r
    jacobian(u, z, picks, phases, system)
    total, m0, m1, m2, t0 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(time.size):
        w = weight[i]
        total += w
        m0 += w * J[i, 0]
        m1 += w * J[i, 1]
        m2 += w * J[i, 2]
        t0 += w * r[i]
    m0, m1, m2, t0 = m0 / total, m1 / total, m2 / total, t0 / total
    chi2 = 0.0
    H[:] = 0.0
    g[:] = 0.0
    for i in range(time.size):
        w = weight[i]
        a, b, c = J[i, 0] - m0, J[i, 1] - m1, J[i, 2] - m2
        e = r[i] - t0
        H[0, 0] += w * a * a
        H[0, 1] += w * a * b
        H[0, 2] += w * a * c
        H[1, 1] += w * b * b
        H[1, 2] += w * b * c
        H[2, 2] += w * c * c
        g[0] += w * a * e
        g[1] += w * b * e
        g[2] += w * c * e
        chi2 += w * e * e
    for i in range(time.size):
        w = baz_weight[i]
        if w > 0:
            s = place[i]
            e, p, q = baz_residual(u, s, baz[i])
            square = p * p + q * q
            chi2 += w * e * e
            if square > TINY_ANGLE**2:
                pn, qn = _station_components(north, s)
                pe, qe = _station_components(east, s)
                a, b = (q * pn - p * qn) / square, (q * pe - p * qe) / square
                H[0, 0] += w * a * a
                H[0, 1] += w * a * b
                H[1, 1] += w * b * b
                g[0] += w * a * e
                g[1] += w * b * e
    H[1, 0], H[2, 0], H[2, 1] = H[0, 1], H[0, 2], H[1, 2]
    return chi2, t0


@kernel(borrows=True)
def _station_components(v, s):
    across = math.hypot(s[0], s[1])
    if across < 1e-12:
        return v[1], -v[0] if s[2] > 0 else v[0]
    return (s[0] * v[1] - s[1] * v[0]) / across, across * v[2] - s[2] * (s[0] * v[0] + s[1] * v[1]) / across


@kernel(borrows=True)
def damped_step(H, g, damping, depth_step, x):
    """x (3,) of (H + damping diag H) x = g; a finite depth_step is taken as given."""
    a, b, c = H[0, 0] * (1 + damping) + 1e-12, H[1, 1] * (1 + damping) + 1e-12, H[2, 2] * (1 + damping) + 1e-12
    d, e, f = H[0, 1], H[0, 2], H[1, 2]
    lower = d / a
    pivot = b - lower * d
    if depth_step == depth_step:
        x[2] = depth_step
        first, second = g[0] - e * depth_step, g[1] - f * depth_step
        x[1] = (second - lower * first) / pivot
    else:
        across = f - lower * e
        first, second = g[0], g[1] - lower * g[0]
        x[2] = (g[2] - e / a * g[0] - across / pivot * second) / (c - e / a * e - across / pivot * across)
        x[1] = (second - across * x[2]) / pivot
        first = g[0] - e * x[2]
    x[0] = (first - d * x[1]) / a


@kernel
def descend(u, z, picks, phases, lowest, highest, steps, enough):
    """(depth, chi-square, t0, iterations) of Levenberg-Marquardt from (u, z); u is overwritten.

    It ends with a step that lowers chi-square by less than `enough`.

    The depth stays in [lowest, highest]: a step beyond is cut at the bound and the epicentre's share is solved again.
    """
    at, new, reached, x = system_of(picks.time.size), system_of(picks.time.size), np.empty(3), np.empty(3)
    north, east, H, g = at.north, at.east, at.H, at.g
    chi2, t0 = normal_equations(u, z, picks, phases, at)
    damping, done = 1e-2, 0
    for step in range(steps):
        done = step + 1
        pinned = (z <= lowest and g[2] <= 0) or (z >= highest and g[2] >= 0)
        damped_step(H, g, damping, 0.0 if pinned else math.nan, x)
        if z + x[2] < lowest:
            damped_step(H, g, damping, lowest - z, x)
        elif z + x[2] > highest:
            damped_step(H, g, damping, highest - z, x)
        new_z = min(max(z + x[2], lowest), highest)
        length = math.hypot(x[0], x[1])
        if not length < np.inf:
            break
        if length > LONGEST_STEP:
            x[0] *= LONGEST_STEP / length
            x[1] *= LONGEST_STEP / length
        move(u, north, east, x[0], x[1], reached)
        found, new_t0 = normal_equations(reached, new_z, picks, phases, new)
        if found <= chi2:
            finished = chi2 - found < enough * (1 + 0.01 * chi2) or found < 1e-10
            copy(reached, u)
            copy(new.north, north)
            copy(new.east, east)
            copy(new.g, g)
            for k in range(3):
                copy(new.H[k], H[k])
            z, chi2, t0, damping = new_z, found, new_t0, max(0.1 * damping, 1e-9)
            if finished:
                break
        else:
            damping = max(10 * damping, 1e-3)
            if damping > LOST or (length < 1e-9 and abs(x[2]) < 1e-6):
                break
    return z, chi2, t0, done
