"""What one unit contributes to a weak-duality bound, exactly, and the slopes that make it small.

A bound of c'x holds for every multiplier lambda of z = A x + B u + b, with the terms, mu = c + A'lambda,

    inf { mu phi(z) - lambda z : zl <= z <= zh },

which are computed exactly: at the ends and the kink of a piecewise-linear map, and at the points of slope lambda / mu
of tanh and sigmoid. The slopes, lambda = s mu, are those of CROWN: the lower or the upper line of the unit by the sign
of mu. States of softmax and max-pool blocks are FREE: only their range is used, lambda = 0.

Source:
    Zhang et al., CROWN (2018), for the lines; Tsai thesis (2024), (4.11) to Theorem 7, for the dual.
"""

from __future__ import annotations

import math

from implicit_models.kernels import kernel

PIECEWISE_LINEAR, TANH, SIGMOID, FREE = 0, 1, 2, 3


@kernel
def value(z, code):
    """tanh or the logistic function."""
    if code == TANH:
        return math.tanh(z)
    return 1 / (1 + math.exp(-z)) if z > 0 else math.exp(z) / (1 + math.exp(z))


@kernel
def derivative(z, code):
    x = value(z, code)
    return 1 - x * x if code == TANH else x * (1 - x)


@kernel
def linear_slope(zl, zh, code, a):
    """Slope of a unit that is linear on [zl, zh], else NaN."""
    if code != PIECEWISE_LINEAR:
        return math.nan
    if zl >= 0 or a == 1:
        return 1.0
    return a if zh <= 0 else math.nan


@kernel
def upper_slope(zl, zh, code, a):
    """Slope of a line above the map on [zl, zh]: the chord, or a tangent where the map is concave."""
    if code == FREE or not zh > zl:
        return 0.0 if code != PIECEWISE_LINEAR else a
    if code == PIECEWISE_LINEAR:
        return ((zh if zh > 0 else a * zh) - (zl if zl > 0 else a * zl)) / (zh - zl)
    if zl >= 0:
        return derivative(0.5 * (zl + zh), code)
    start = value(zl, code)
    chord = (value(zh, code) - start) / (zh - zl)
    if derivative(zh, code) >= chord:
        return chord
    low, high = 0.0, zh  # the line through the left end that touches the concave part
    for _ in range(40):
        z = 0.5 * (low + high)
        if derivative(z, code) * (z - zl) >= value(z, code) - start:
            low = z
        else:
            high = z
    return derivative(max(low, 0.5 * (zl + zh)), code)  # the tangent of the envelope in the middle


@kernel
def lower_slope(zl, zh, code, a):
    """Slope of a line below the map on [zl, zh]; for ReLU the one that leaves the smaller area."""
    if code == PIECEWISE_LINEAR:
        return 1.0 if zh > -zl else a
    return upper_slope(-zh, -zl, code, a)  # tanh and sigmoid are odd around their value at 0


@kernel
def infimum(mu, lam, zl, zh, xl, xh, code, a):
    """inf of mu phi(z) - lam z over zl <= z <= zh; for a FREE state phi(z) is anything in [xl, xh]."""
    if code == FREE:
        return min(mu * xl, mu * xh) - max(lam * zl, lam * zh)
    if code == PIECEWISE_LINEAR:
        low = (mu * (zl if zl > 0 else a * zl)) - lam * zl
        high = (mu * (zh if zh > 0 else a * zh)) - lam * zh
        least = min(low, high)
        return min(least, 0.0) if zl < 0 < zh else least
    least = min(mu * value(zl, code) - lam * zl, mu * value(zh, code) - lam * zh)
    if mu != 0:
        ratio = lam / mu
        top = 1.0 if code == TANH else 0.25
        if 0 < ratio < top:
            if code == TANH:
                z = math.atanh(math.sqrt(1 - ratio))
            else:
                root = math.sqrt(1 - 4 * ratio)
                z = math.log((1 + root) / (1 - root)) if root < 1 else math.inf
            for point in (-z, z):
                if zl < point < zh:
                    least = min(least, mu * value(point, code) - lam * point)
    return least - 1e-15 * (abs(mu) + abs(lam) * max(abs(zl), abs(zh)))


@kernel
def slopes(zl, zh, code, low, high):
    """Slopes of the lower and of the upper line of units of one smooth map, into low and high (N, m)."""
    for i in range(zl.shape[0]):
        for j in range(zl.shape[1]):
            low[i, j] = lower_slope(zl[i, j], zh[i, j], code, 0.0)
            high[i, j] = upper_slope(zl[i, j], zh[i, j], code, 0.0)


@kernel
def intercepts(zl, zh, code, low, high, low_at, high_at):
    """Where lines of these slopes meet z = 0 without cutting their units, into low_at and high_at (N, m)."""
    for i in range(zl.shape[0]):
        for j in range(zl.shape[1]):
            l, h = zl[i, j], zh[i, j]
            low_at[i, j] = infimum(1.0, low[i, j], l, h, 0.0, 0.0, code, 0.0)
            high_at[i, j] = -infimum(-1.0, -high[i, j], l, h, 0.0, 0.0, code, 0.0)
