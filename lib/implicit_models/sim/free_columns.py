"""Exact elimination of unpenalised columns that the ball does not bound.

Without a penalty the best coefficients of the free columns F follow from the others, a_F = K^+ (c_F - G_FB a_B) with
K = G_FF + ridge I, and what is left is a row problem in the columns B of the ball:

    G~ = G_BB - G_BF K^+ G_FB,    c~ = c_B - G_BF K^+ c_F,    z~'z~ = z'z - c_F' K^+ c_F.

Where the free columns explain a column of B, or z itself, up to rounding, what is left of it is set to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.certificate import RANK

ROUNDING = 1e-11  # share of a squared norm that rounding can leave after elimination


@dataclass(frozen=True)
class Reduced:
    """The problem in the columns of the ball, and the way back."""

    problem: tuple[np.ndarray, np.ndarray, np.ndarray]
    free: Bool[np.ndarray, " d"]
    fit: Float[np.ndarray, "r f"]
    slope: Float[np.ndarray, "f b"]

    def recover(self, A: Float[np.ndarray, "r b"]) -> Float[np.ndarray, "r d"]:
        """Coefficients of all columns for those of the ball."""
        whole = np.empty((len(A), len(self.free)))
        whole[:, ~self.free] = A
        whole[:, self.free] = self.fit - A @ self.slope.T
        return whole


def eliminate(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    free: Bool[np.ndarray, " d"],
    ridge: float = 0.0,
) -> Reduced:
    """Eliminate the columns `free`; rank-deficient ones get the coefficients of least norm.

    Args:
        G, C, zz: from `gram`. free: (d,) columns to eliminate. ridge: l2 penalty, on these columns too.

    Returns:
        Reduced; rows with NaN data stay NaN.
    """
    kept = ~free
    values, vectors = np.linalg.eigh(G[np.ix_(free, free)] + ridge * np.eye(free.sum()))
    keep = values > RANK * values[-1]
    half = vectors[:, keep] / np.sqrt(values[keep])  # K^+ = half half'
    cross = G[np.ix_(free, kept)]
    cross_half, c_half = half.T @ cross, C[:, free] @ half
    G_left = G[np.ix_(kept, kept)] - cross_half.T @ cross_half
    C_left = C[:, kept] - c_half @ cross_half
    zz_left = zz - np.einsum("ij,ij->i", c_half, c_half)
    gone = np.diag(G_left) <= ROUNDING * np.diag(G)[kept]
    G_left[gone], G_left[:, gone], C_left[:, gone] = 0.0, 0.0, 0.0
    done = zz_left <= ROUNDING * zz
    C_left[done], zz_left[done] = 0.0, 0.0
    G_left = 0.5 * (G_left + G_left.T)
    return Reduced((G_left, C_left, zz_left), free, c_half @ half.T, half @ cross_half)
