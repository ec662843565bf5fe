"""Refits on a given support that count what ReLU lets through, by Newton's method on samples.

The loss is that of `solvers.refit`, here for a row p = x'w + beta beside a given rest s of what stands before the ReLU,
with target z for p:

    f(w, beta) = closed/2 E (p - z)^2 + (1 - closed)/2 E_open l(p) + ridge/2 ||w - w0||^2,
    l(p) = (p - z)^2 where s + z > 0, and max(0, s + p)^2 elsewhere.

The first expectation is that of all samples and positions, from the moments; the second one is taken on drawn ones. f
is convex and piecewise quadratic: a Newton step is least squares on the samples with l'' = 1, and between steps only
the samples that change sides change its matrix. Steps are halved until f falls.

Source:
    finite Newton method for squared hinge losses (Mangasarian 2002; Keerthi and DeCoste 2005).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

STEPS = 6  # Newton steps at most
HALVINGS = 6
DECREASE = 1e-4  # of f, relative, below which it ends
FEWEST = 2  # open samples that a weight has at least: with fewer the row stays as it is


class Samples(NamedTuple):
    """Drawn samples: columns X (d, n) and targets Z (r, n), both less their means, and level (r, n), what is added to
    a centred row and its mean before the ReLU."""

    X: Float[np.ndarray, "d n"]
    Z: Float[np.ndarray, "r n"]
    level: Float[np.ndarray, "r n"]


def one_sided_rows(
    H: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    kept: Bool[np.ndarray, "r d"],
    start: Float[np.ndarray, "r d"],
    samples: Samples,
    closed: float,
    ridge: float,
    prior: Float[np.ndarray, "r d"],
) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, " r"]]:
    """Weights (r, d) on the supports and the change of each bias (r,).

    Args:
        H, C: of the plain problem 1/2 w'H w - c'w, its ridge in both, a mean over samples.
        start: its minimisers on the supports.
        samples: of the second expectation.
        closed: weight of errors that ReLU does not let through, in [0, 1]; 1 is the plain problem.
        ridge, prior: what H and C hold of ridge/2 ||w - prior||^2.
    """
    W, shift = start.copy(), np.zeros(len(start))
    if closed >= 1:
        return W, shift
    for row, own in enumerate(kept):
        S = np.flatnonzero(own)
        z, level = samples.Z[row], samples.level[row]
        if (z + level > 0).sum() >= FEWEST * (S.size + 1):
            X = np.vstack([samples.X[S], np.ones((1, samples.X.shape[1]), samples.X.dtype)])
            pull = (1 - closed) * ridge  # beside the share of it in H
            plain = closed * H[np.ix_(S, S)] + pull * np.eye(S.size), closed * C[row, S] + pull * prior[row, S]
            found = _row(*plain, X, z, level, start[row, S], closed)
            W[row, S], shift[row] = found[:-1], found[-1]
    return W, shift


def _row(H, c, X, z, level, start, closed):
    """(w, beta) of one row; X with a row of ones."""
    n = X.shape[1]
    live = z + level > 0
    goal = np.where(live, z, -level)
    A, v = np.zeros((len(X), len(X))), np.zeros(len(X))
    A[:-1, :-1], v[:-1], A[-1, -1] = H, c, closed
    share = (1 - closed) / n

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        p = w.astype(X.dtype) @ X
        on = live | (p + level > 0)
        lost = p[on] - goal[on]
        return 0.5 * w @ A @ w - v @ w + 0.5 * share * float(np.dot(lost, lost)), on

    w = np.append(start, 0.0)
    f, on = value(w)
    Q, q, counted = np.zeros(A.shape), np.zeros(len(v)), np.zeros(n, bool)
    for _ in range(STEPS):
        for sign, changed in ((1.0, on & ~counted), (-1.0, counted & ~on)):
            if changed.any():
                part = X[:, changed]
                Q += sign * (part @ part.T)
                q += sign * (part @ goal[changed])
        counted = on
        step = np.linalg.solve(A + share * Q, v + share * q) - w
        for _ in range(HALVINGS):
            new, new_on = value(w + step)
            if new <= f:
                break
            step = 0.5 * step
        else:
            break
        w, on, done = w + step, new_on, f - new <= DECREASE * abs(f)
        f = new
        if done:
            break
    return w
