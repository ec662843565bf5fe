"""Better lower lines for CROWN: each unit takes the piece on which its relaxed state lies, as long as that improves
the bound.

For multipliers lam the bound of `ascent` is attained at the input u0 + radius sign(q) by the relaxed state that
follows the lines. A unit with mu < 0 whose state there has z > 0 bounds itself better by the line x >= z, else by x >=
a z. Taking those lines and solving the adjoint fixed point again is one step; it is kept if it improves. Where the
state also lies in every triangle its value is a lower bound of the optimum: the gap is known.

Source:
    the lines are those of Zhang et al., CROWN (2018); choosing among them: Xu et al., alpha-CROWN (2021), by gradient
    steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel

_SWEEPS, _ROUNDS = 40, 4
_WORTH = 0.05  # of the gap, or of the bound's change, that a step must gain


class Relaxation(NamedTuple):
    """What the bound of a row c, q0 is made of; see `ascent`: reduced = A~, inputs = B~, bias = b~, corners of the
    triangles."""

    reduced: Float[np.ndarray, "k k"]
    inputs: Float[np.ndarray, "k p"]
    bias: Float[np.ndarray, " k"]
    c: Float[np.ndarray, " k"]
    q0: Float[np.ndarray, " p"]
    u0: Float[np.ndarray, " p"]
    radius: Float[np.ndarray, " p"]
    corners_z: Float[np.ndarray, "k 3"]
    corners_x: Float[np.ndarray, "k 3"]


@kernel
def _relaxed_state(reduced, source, mu, corners_z, corners_x, x, z):
    """Relaxed state x, z with source B~ u + b~; False where it leaves a triangle."""
    k = mu.size
    for _ in range(_SWEEPS):
        change, scale = 0.0, 0.0
        for i in range(k):
            zi = source[i]
            for j in range(k):
                zi += reduced[i, j] * x[j]
            zl, zh, low, high = corners_z[i, 0], corners_z[i, 2], corners_x[i, 0], corners_x[i, 2]
            if mu[i] > 0:
                new = low + (high - low) / (zh - zl) * (zi - zl)
            else:
                new = zi if zi > 0 or zl == 0 else low / zl * zi
            change, scale = max(change, abs(new - x[i])), max(scale, abs(new))
            x[i], z[i] = new, zi
        if not change > 1e-7 * scale:
            break
    inside = True
    for i in range(k):
        margin = 1e-6 * (corners_z[i, 2] - corners_z[i, 0])
        inside &= corners_z[i, 0] - margin <= z[i] <= corners_z[i, 2] + margin
    return inside


@kernel
def _follow(reduced, c, z, corners_z, corners_x, lam):
    """Multipliers of the chord where mu > 0 and of the piece of z where mu < 0, in place."""
    k = z.size
    for _ in range(_SWEEPS):
        change, scale = 0.0, 0.0
        for i in range(k):
            rest = c[i]
            for j in range(k):
                if j != i:
                    rest += reduced[j, i] * lam[j]
            zl, zh, low, high = corners_z[i, 0], corners_z[i, 2], corners_x[i, 0], corners_x[i, 2]
            if rest > 0:
                s = (high - low) / (zh - zl)
            else:
                s = 1.0 if z[i] > 0 or zl == 0 else low / zl
            new = rest * s / (1 - reduced[i, i] * s)
            change, scale = max(change, abs(new - lam[i])), max(scale, abs(new))
            lam[i] = new
        if not change > 1e-8 * scale:
            break


@kernel
def bound_of(relaxed, q, lam, mu):
    """g at lam with its q; fills mu."""
    reduced, bias, c, u0, radius = relaxed.reduced, relaxed.bias, relaxed.c, relaxed.u0, relaxed.radius
    corners_z, corners_x = relaxed.corners_z, relaxed.corners_x
    total = 0.0
    for j in range(q.size):
        total += q[j] * u0[j] + radius[j] * abs(q[j])
    for i in range(lam.size):
        mu[i] = c[i]
        for j in range(lam.size):
            mu[i] += reduced[j, i] * lam[j]
        most = -math.inf
        for v in range(3):
            most = max(most, mu[i] * corners_x[i, v] - lam[i] * corners_z[i, v])
        total += most + lam[i] * bias[i]
    return total


@kernel
def choose_lines(relaxed, lam, sufficient, enough):
    """Improve lam (k) in place; returns (g, whether the gap to the optimum is at most `sufficient` or g < enough).
    Arguments: see `ascend`.
    """
    reduced, inputs, bias, c, q0 = relaxed.reduced, relaxed.inputs, relaxed.bias, relaxed.c, relaxed.q0
    u0, radius, corners_z, corners_x = relaxed.u0, relaxed.radius, relaxed.corners_z, relaxed.corners_x
    k = lam.size
    mu, other, x, z = np.empty(k), np.empty(k), np.zeros(k), np.empty(k)
    q = q0 + np.dot(lam, inputs)
    g = bound_of(relaxed, q, lam, mu)
    for _ in range(_ROUNDS):
        if g < enough:
            return g, True
        u = u0 + radius * np.sign(q)
        inside = _relaxed_state(reduced, bias + np.dot(inputs, u), mu, corners_z, corners_x, x, z)
        gap = g - np.dot(c, x) - np.dot(q0, u) if inside else math.inf
        if gap <= sufficient:
            return g, True
        for i in range(k):
            other[i] = lam[i]
        _follow(reduced, c, z, corners_z, corners_x, other)
        q_other = q0 + np.dot(other, inputs)
        found = bound_of(relaxed, q_other, other, mu)
        if not found < g:
            break
        gain, g, q = g - found, found, q_other
        for i in range(k):
            lam[i] = other[i]
        if gain < _WORTH * (gap if inside else sufficient):
            break
    return g, False
