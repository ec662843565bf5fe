"""Ascent of the dual bound over its multipliers, to the optimum of the triangle relaxation.

For a row c, after elimination of the linear units, the bound of -c'x - v'u is the convex, piecewise-linear function of
the k multipliers of the ReLU-like units

    g(lam) = sum_i max_v (mu_i x_iv - lam_i z_iv) + b~'lam + q'u0 + sum_j radius_j |q_j|,    mu = c~ + A~'lam,   q = q0
    + B~'lam

with the corners v of each unit's triangle, (zl, phi(zl)), (0, 0), (zh, phi(zh)). It is minimised along the central
path of its primal: barriers log(1 - w_j^2) of the inputs and log p_iv of the weights of the corners, eliminated in
closed form, leave a self-concordant function of lam alone, whose gradient is what the relaxed state violates,
z - A~ x - B~ u - b~. Newton steps with a line search, while the barriers shrink. Every iterate is a valid bound; the
best one, by its exact value, is kept.

Source:
    the relaxation is that after Tsai thesis (2024), Theorem 7, with its upper envelope; path following: Nesterov &
    Nemirovskii (1994).
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.line_choice import choose_lines

# of the gap that the barriers may leave: first, relative to sum radius |q|; and its factor a step
_START, _SHRINK = 0.3, 0.15
_CLOSE = 4.0  # Newton decrement below which the barriers shrink
_SKIP = 0.4  # of the gap allowed: barriers rarely cost more of it
_TRIALS, _FLAT = 8, 0.3  # of the line search, and the share of the first slope that ends it
_REASSOCIATE = {"reassoc", "contract", "nsz"}


@kernel(fastmath=_REASSOCIATE)
def _inputs(q, u0, radius, theta, position, curvature):
    """Input of the central path for every coordinate, its derivative in q; returns q'u0 + sum radius |q|."""
    total = 0.0
    for j in range(q.size):
        t = radius[j] * q[j]
        s = math.sqrt(theta * theta + t * t)
        position[j] = u0[j] + radius[j] * (t / (theta + s))
        curvature[j] = radius[j] * math.sqrt(theta / (s * (theta + s)))
        total += q[j] * u0[j] + abs(t)
    return total


@kernel
def _corner_weights(values, theta, weights):
    """p_v = theta / (level - value_v) that add up to 1."""
    top = values[0]
    for value in values:
        top = max(top, value)
    level = top + theta  # the sum is at least 1 there, and convex and decreasing: Newton's steps stay on this side
    for _ in range(50):
        total, slope = 0.0, 0.0
        for value in values:
            p = theta / (level - value)
            total += p
            slope += p * p
        if total - 1 < 1e-12:
            break
        level += (total - 1) * theta / slope
    total = 0.0
    for v in range(values.size):
        weights[v] = theta / (level - values[v])
        total += weights[v]
    for v in range(values.size):
        weights[v] /= total


@kernel(fastmath=_REASSOCIATE)
def _inputs_along(q, dq, t, u0, radius, theta):
    """First and second derivative in t of the inputs' part at q + t dq."""
    first, second = 0.0, 0.0
    for j in range(q.size):
        r = radius[j]
        at = r * (q[j] + t * dq[j])
        s = math.sqrt(theta * theta + at * at)
        first += dq[j] * (u0[j] + r * (at / (theta + s)))
        second += dq[j] * dq[j] * (r * r * theta / (s * (theta + s)))
    return first, second


@kernel
def _line_minimum(relaxed, q, dq, mu, dmu, lam, dlam, theta, descent):
    """Step length near the minimum along a direction whose slope at 0 is -descent, by Newton's method in a bracket."""
    bias, u0, radius = relaxed.bias, relaxed.u0, relaxed.radius
    corners_z, corners_x = relaxed.corners_z, relaxed.corners_x
    low, high, t = 0.0, math.inf, 1.0
    values, weights = np.empty(3), np.empty(3)
    for _ in range(_TRIALS):
        first, second = _inputs_along(q, dq, t, u0, radius, theta)
        for i in range(lam.size):
            m, l = mu[i] + t * dmu[i], lam[i] + t * dlam[i]
            for v in range(3):
                values[v] = m * corners_x[i, v] - l * corners_z[i, v]
            _corner_weights(values, theta, weights)
            squares, mean, square, total = 0.0, 0.0, 0.0, 0.0
            for v in range(3):
                change = dmu[i] * corners_x[i, v] - dlam[i] * corners_z[i, v]
                w = weights[v] ** 2
                squares += w
                mean += w * change
                square += w * change * change
                total += weights[v] * change
            first += total + dlam[i] * bias[i]
            second += (square - mean * mean / squares) / theta
        if first > 0:
            high = t
        else:
            low = t
        if abs(first) <= _FLAT * descent or not second > 0:
            break
        step = t - first / second
        limit = 4 * t if high == math.inf else high
        if not low < step < limit:
            step = 4 * t if high == math.inf else 0.5 * (low + high)
        t = step
    return t


@kernel
def _cholesky_solve(H, g):
    """H^-1 g in place of g, H positive definite and overwritten; False where it is not."""
    k = g.size
    for j in range(k):
        for i in range(j, k):
            total = H[i, j]
            for l in range(j):
                total -= H[i, l] * H[j, l]
            if i == j:
                if not total > 0:
                    return False
                H[j, j] = math.sqrt(total)
            else:
                H[i, j] = total / H[j, j]
    for i in range(k):
        total = g[i]
        for l in range(i):
            total -= H[i, l] * g[l]
        g[i] = total / H[i, i]
    for i in range(k - 1, -1, -1):
        total = g[i]
        for l in range(i + 1, k):
            total -= H[l, i] * g[l]
        g[i] = total / H[i, i]
    return True


@kernel
def ascend(relaxed, lam, steps, tol, allowed, enough):
    """Minimise g from lam (k), which is overwritten by the best multipliers; returns (g there, Newton steps).

    Stops when the barriers can cost no more than `allowed`, or tol times the first value of sum radius |q|, or once g <
    enough.
    """
    reduced, inputs, bias, c, q0 = relaxed.reduced, relaxed.inputs, relaxed.bias, relaxed.c, relaxed.q0
    u0, radius, corners_z, corners_x = relaxed.u0, relaxed.radius, relaxed.corners_z, relaxed.corners_x
    k, p = inputs.shape
    scale = 0.0
    q = q0 + np.dot(lam, inputs)
    for j in range(p):
        scale += radius[j] * abs(q[j])
    allowed = max(allowed, tol * scale)
    best, good = choose_lines(relaxed, lam, _SKIP * allowed, enough)
    if good:
        return best, 0
    best_lam = lam.copy()
    q = q0 + np.dot(lam, inputs)
    position, curvature, mu = np.empty(p), np.empty(p, np.float32), np.empty(k)
    values, weights = np.empty(3), np.empty(3)
    mean_x, xx, xz, zz = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    # Newton's matrix needs no more digits: the line search judges the step
    rough, scaled = inputs.astype(np.float32), np.empty((k, p), np.float32)
    barriers = 2 * p + 3 * k
    theta, last = max(_START * scale, allowed) / barriers, allowed / barriers
    if not scale > 0:
        theta, last = 1e-12, 1e-12
    done = 0
    for step in range(steps + 1):
        g = _inputs(q, u0, radius, theta, position, curvature)
        gradient = bias + np.dot(inputs, position)
        for i in range(k):
            mu[i] = c[i]
            for j in range(k):
                mu[i] += reduced[j, i] * lam[j]
            for v in range(3):
                values[v] = mu[i] * corners_x[i, v] - lam[i] * corners_z[i, v]
            g += max(values[0], max(values[1], values[2])) + lam[i] * bias[i]
            _corner_weights(values, theta, weights)
            squares = 0.0
            for v in range(3):
                squares += weights[v] ** 2
            x = z = 0.0
            sx = sz = 0.0
            cxx = cxz = czz = 0.0
            for v in range(3):
                w = weights[v] ** 2
                x += weights[v] * corners_x[i, v]
                z += weights[v] * corners_z[i, v]
                sx += w * corners_x[i, v]
                sz += w * corners_z[i, v]
                cxx += w * corners_x[i, v] ** 2
                cxz += w * corners_x[i, v] * corners_z[i, v]
                czz += w * corners_z[i, v] ** 2
            mean_x[i] = x
            gradient[i] -= z
            xx[i], xz[i] = (cxx - sx * sx / squares) / theta, (cxz - sx * sz / squares) / theta
            zz[i] = (czz - sz * sz / squares) / theta
        if g < best:
            best = g
            for i in range(k):
                best_lam[i] = lam[i]
        if step == steps or best < enough:
            break
        gradient += np.dot(reduced, mean_x)
        for i in range(k):
            for j in range(p):
                scaled[i, j] = rough[i, j] * curvature[j]
        H = np.dot(scaled, scaled.T).astype(np.float64)
        for i in range(k):
            H[i, i] += zz[i]
            for j in range(k):
                H[i, j] -= reduced[i, j] * xz[j] + reduced[j, i] * xz[i]
                total = 0.0
                for l in range(k):
                    total += reduced[i, l] * xx[l] * reduced[j, l]
                H[i, j] += total
        for i in range(k):
            H[i, i] *= 1 + 1e-6
        slope = gradient.copy()
        if not _cholesky_solve(H, gradient):
            break  # as good as rounding allows
        decrement = 0.0
        for i in range(k):
            decrement += slope[i] * gradient[i]
        if not 0 <= decrement < math.inf:
            break
        decrement = math.sqrt(decrement / theta)
        done += 1
        direction = -gradient
        dq = np.dot(direction, inputs)
        length = 1.0
        if decrement > 0.7:
            dmu = np.dot(direction, reduced)
            length = _line_minimum(relaxed, q, dq, mu, dmu, lam, direction, theta, decrement**2 * theta)
        lam += length * direction
        q += length * dq
        if decrement < _CLOSE:
            if theta <= last and decrement < 0.3:
                steps = step + 1  # evaluate where this step leads, then stop
            theta = max(last, theta * _SHRINK)
    for i in range(k):
        lam[i] = best_lam[i]
    return best, done
