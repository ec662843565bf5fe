"""Columns that the ball leaves free, eliminated from the normal equations.

With S the ball and F its complement, minimising over a_F leaves a problem of the same form in a_S alone:

    G' = G_SS - G_SF K G_FS,   c' = c_S - G_SF K c_F,   zz' = zz - c_F'K c_F,   K = (G_FF + ridge I)^+,
    a_F = K (c_F - G_FS a_S).

The method that knows one ball over the whole vector then serves a ball over part of it (beta = 0: free columns carry no l1 norm).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

RANK = 1e-12  # eigenvalues of G_FF + ridge I below this share of the largest count as zero


@dataclass(frozen=True)
class BallProblem:
    """Normal equations over the ball's columns. G (s, s), C (r, s), zz (r,); ball (d,) says which columns these are."""

    G: Float[np.ndarray, "s s"]
    C: Float[np.ndarray, "r s"]
    zz: Float[np.ndarray, " r"]
    ball: Bool[np.ndarray, " d"]
    coupling: Float[np.ndarray, "f s"]
    constant: Float[np.ndarray, "r f"]

    def restore(self, A: Float[np.ndarray, "r s"]) -> Float[np.ndarray, "r d"]:
        """Rows over all columns, with the best a_F for the given a_S."""
        full = np.zeros((A.shape[0], self.ball.size))
        full[:, self.ball] = A
        full[:, ~self.ball] = self.constant - A @ self.coupling.T
        return full


def eliminate_free(
    G: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"], zz: Float[np.ndarray, " r"], *, ball_mask: Bool[np.ndarray, " d"] | None, ridge: float = 0.0
) -> BallProblem:
    """Problem over the columns in the ball, the others minimised out.

    Args:
        G: (d, d). C: (r, d). zz: (r,). ball_mask: (d,) columns in the ball, None for all. ridge: on every coefficient.
    Returns: the problem; with the whole vector in the ball it is the one given.
    """
    G, C, zz = (np.asarray(v, dtype=np.float64) for v in (G, C, zz))
    ball = np.ones(G.shape[0], bool) if ball_mask is None else np.asarray(ball_mask, dtype=bool)
    if ball.all():
        return BallProblem(G, C, zz, ball, np.zeros((0, G.shape[0])), np.zeros((C.shape[0], 0)))
    values, vectors = np.linalg.eigh(G[np.ix_(~ball, ~ball)] + ridge * np.eye(int((~ball).sum())))
    kept = values > RANK * max(values[-1], 0.0)
    half = vectors[:, kept] / np.sqrt(values[kept])
    cross, right = half.T @ G[np.ix_(~ball, ball)], C[:, ~ball] @ half
    reduced = G[np.ix_(ball, ball)] - cross.T @ cross
    return BallProblem(0.5 * (reduced + reduced.T), C[:, ball] - right @ cross, np.maximum(zz - (right**2).sum(1), 0.0), ball, half @ cross, right @ half.T)
