"""FISTA with restarts for the perspective penalty inside an l1 ball: the visible fallback of perspective.py, compiled.

The prox of step * phi plus the ball's indicator is prox_phi(soft(v, m)) on the ball, where m >= 0 is the root of a norm
that does not increase in m.

Source:
    Beck and Teboulle (2009); O'Donoghue and Candes (2015), gradient restart.
"""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS


@kernel(**OPTIONS)
def _prox(size, step, alpha, knee):
    soft = size - 2.0 * step * alpha * knee
    if soft <= 0.0:
        return 0.0
    return soft if soft <= knee else size / (1.0 + 2.0 * step * alpha)


@kernel(**OPTIONS)
def _norm(v, shift, step, alpha, knee, ball):
    total = 0.0
    for j in range(v.size):
        if ball[j]:
            total += _prox(abs(v[j]) - shift, step, alpha, knee)
    return total


@kernel(**OPTIONS)
def prox_in_ball(v, step, alpha, knee, kappa, ball, out):
    """out = argmin 1/2 ||x - v||^2 + step sum phi(x_j) over the ball; returns the multiplier of the ball / step."""
    shift = 0.0
    if _norm(v, 0.0, step, alpha, knee, ball) > kappa:
        low, high = 0.0, 0.0
        for j in range(v.size):
            if ball[j]:
                high = max(high, abs(v[j]))
        for _ in range(200):
            shift = 0.5 * (low + high)
            if shift == low or shift == high:
                break
            if _norm(v, shift, step, alpha, knee, ball) > kappa:
                low = shift
            else:
                high = shift
        shift = high
    for j in range(v.size):
        x = _prox(abs(v[j]) - (shift if ball[j] else 0.0), step, alpha, knee)
        out[j] = x if v[j] > 0.0 else -x
    return shift / step


@kernel(**OPTIONS)
def fista_rows(G, C, alpha, knee, kappa, ball, lipschitz, A, mu, iterations):
    """That many iterations for every row, from A; A and mu are updated in place. lipschitz: above the largest
    eigenvalue of G."""
    d = C.shape[1]
    y, v, new = np.empty(d), np.empty(d), np.empty(d)
    step = 1.0 / lipschitz
    for i in range(C.shape[0]):
        a, c = A[i], C[i]
        for j in range(d):
            y[j] = a[j]
        momentum = 1.0
        for _ in range(iterations):
            for j in range(d):
                v[j] = c[j]
            for j in range(d):
                if y[j] != 0.0:
                    g, x = G[j], y[j]
                    for q in range(d):
                        v[q] -= x * g[q]
            for j in range(d):
                v[j] = y[j] + step * v[j]
            mu[i] = prox_in_ball(v, step, alpha, knee, kappa[i], ball, new)
            uphill = 0.0
            for j in range(d):
                uphill += (y[j] - new[j]) * (new[j] - a[j])
            if uphill > 0.0:
                momentum = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            share = (momentum - 1.0) / following
            for j in range(d):
                y[j] = new[j] + share * (new[j] - a[j])
                a[j] = new[j]
            momentum = following
