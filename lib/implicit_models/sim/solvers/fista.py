"""FISTA with restarts inside an l1 ball, for the perspective penalty and, with its knee far away, the l1 norm: the
visible fallback where no path certifies a row, compiled.

The prox of step * phi plus the ball's indicator is prox_phi(soft(v, m)) on the ball, where m >= 0 is the root of a norm
that does not increase in m.

Source:
    Beck and Teboulle (2009); O'Donoghue and Candes (2015), gradient restart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS

BATCH, BATCHES = 2000, 20  # iterations between two certificates, and how many times
NO_KNEE = 1e9  # beyond every coefficient: the perspective penalty is then the l1 norm


def fista(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    alpha: Float[np.ndarray, " r"],
    knee: float,
    kappa: Float[np.ndarray, " r"],
    ball: Bool[np.ndarray, " d"],
    A: Float[np.ndarray, "r d"],
    mu: Float[np.ndarray, " r"],
    judge: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of 1/2 a'G a - c'a + sum phi(a_j) in the ball, from A, each until its gap is small enough.

    Args:
        alpha: of each row's penalty phi, of weight 2 alpha knee up to the knee.
        A, mu: (r, d) where to start, and the multipliers; both are updated in place.
        judge: rows -> their gaps, and whether these certify them.

    Returns:
        gap (r,), certified (r,), iterations (r,).
    """
    gap, certified, steps = np.full(len(C), np.nan), np.zeros(len(C), bool), np.zeros(len(C), np.int64)
    todo, largest = np.arange(len(C)), 1.02 * float(np.linalg.eigvalsh(G)[-1])
    for _ in range(BATCHES):
        if todo.size == 0:
            break
        for i in todo:
            k = slice(i, i + 1)
            fista_rows(G, C[k], alpha[i], knee, kappa[k], ball, largest if largest > 0 else 1.0, A[k], mu[k], BATCH)
        a = A[todo]
        into_ball(a, kappa[todo], ball)
        A[todo] = a
        steps[todo] += BATCH
        gap[todo], certified[todo] = judge(todo)
        todo = todo[~certified[todo]]
    return gap, certified, steps


def into_ball(A: np.ndarray, kappa: np.ndarray, ball: np.ndarray) -> None:
    """Rows whose norm exceeds kappa by rounding are scaled back onto the sphere, in place."""
    norm = np.abs(A[:, ball]).sum(1)
    over = norm > kappa
    share = np.where(over, kappa / np.where(norm > 0, norm, 1.0), 1.0)
    A[:, ball] *= share[:, None]


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
