"""Exact elimination of unpenalised columns that the ball does not bound.

Without a penalty the best coefficients of the free columns F follow from the others, a_F = K^+ (c_F - G_FB a_B) with
K = G_FF + ridge I, and what is left is a row problem in the columns B of the ball:

    G~ = G_BB - G_BF K^+ G_FB,    c~ = c_B - G_BF K^+ c_F,    z~'z~ = z'z - c_F' K^+ c_F.

K is factored in columns of unit norm, S = E K E with E = diag(K)^(-1/2): what counts as dependent must not change with
the units of a column. Where the free columns explain a column of B, or z itself, up to rounding, what is left of it is
set to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solve_triangular

EPS = np.finfo(float).eps
RANK = 1e-12  # eigenvalues of the Gram matrix of unit columns below this share of the largest count as zero
NOISE = 64.0 * EPS  # share of the norms in a product of columns that the sums behind it may have lost
LEAST = 1e-18  # squared norm that a column which looks like zero may have all the same
ROUNDING = 1e-11  # share of a squared norm that rounding can leave after elimination


@dataclass(frozen=True)
class FreeBlock:
    """K = G_FF + ridge I of the free columns, factored in unit columns.

    scale: (f,) E, 0 for a column of zeros.
    half: (f, k) with K^+ = half half' on the directions that count as independent.
    back: (f, k) with coefficients back half' of least norm; half itself where no direction was dropped.
    every: (f, q) as half, of all directions whose eigenvalue is above rounding.
    null: (f, p) the directions below it, dropped: (f, n) all that count as dependent; of unit length in unit columns.
    """

    scale: Float[np.ndarray, " f"]
    half: Float[np.ndarray, "f k"]
    back: Float[np.ndarray, "f k"]
    every: Float[np.ndarray, "f q"]
    null: Float[np.ndarray, "f p"]
    dropped: Float[np.ndarray, "f n"]

    @cached_property
    def unscale(self) -> Float[np.ndarray, " f"]:
        """1/E, 0 for a column of zeros."""
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0.0)

    def charge(
        self,
        t: Float[np.ndarray, "r f"],
        first: Float[np.ndarray, "r f"],
        b: Float[np.ndarray, "r f"],
        reach: Float[np.ndarray, " r"],
    ) -> Float[np.ndarray, " r"]:
        """Dual value that it costs to remove the correlations t, which a projection left, from a residual v.

        1/2 t'K^-1 t + |b|'|K^-1 t| over the directions, b = F'(z - v), and 1/2 (eps reach)^2 tr S^-1 for the rounding
        of t. What a direction gained is known to the share NOISE / eigenvalue. One that looks like zero has a
        correlation of zero up to NOISE reach; if it has more, its squared norm is taken as LEAST.

        Args:
            first: (r, f) correlations before the projection.
            reach: (r,) norms of all the terms that t is the sum of.
        """
        left, other = t @ self.every, b @ self.every
        inverse = ((self.unscale[:, None] * self.every) ** 2).sum(axis=0)
        seen = np.maximum(np.abs(t @ self.null) - NOISE * reach[:, None], 0.0)
        cost = (first @ self.every) ** 2 @ (NOISE * inverse)
        cost += 0.5 * (2.0 * EPS * reach) ** 2 * inverse.sum() + 0.5 / LEAST * (seen * seen).sum(axis=1)
        return cost + 0.5 * np.einsum("ij,ij->i", left, left) + np.abs(left * other).sum(axis=1)


def factor(G: Float[np.ndarray, "f f"], ridge: float = 0.0) -> FreeBlock:
    """Factor of the Gram matrix of the free columns.

    With a ridge K is definite and no direction is dropped, unless the ridge is below the rounding of G.

    Args:
        G: (f, f) of the free columns.
        ridge: l2 penalty on them.
    """
    f = len(G)
    diagonal = np.diag(G) + ridge
    live = diagonal > 0.0
    if not live.all():  # columns of zeros stay apart: they have no unit
        inner = factor(G[np.ix_(live, live)], ridge)
        parts = []
        for part in (inner.scale, inner.half, inner.back, inner.every, inner.null, inner.dropped):
            parts.append(np.zeros((f, *part.shape[1:])))
            parts[-1][live] = part
        return FreeBlock(*parts)
    scale = 1.0 / np.sqrt(diagonal)
    S = (G + ridge * np.eye(f)) * scale[:, None] * scale
    none = np.zeros((f, 0))
    if f == 0:
        return FreeBlock(scale, none, none, none, none, none)
    if ridge > 0.0:
        try:
            half = scale[:, None] * solve_triangular(np.linalg.cholesky(S), np.eye(f), lower=True).T
        except np.linalg.LinAlgError:
            pass
        else:
            return FreeBlock(scale, half, half, half, none, none)
    values, vectors = np.linalg.eigh(S)
    noise = 8.0 * EPS * np.sqrt(f) * values[-1]
    keep = values > (noise if ridge > 0.0 else RANK * values[-1])
    unit = scale[:, None] * vectors
    half = back = unit[:, keep] / np.sqrt(values[keep])
    seen = values > noise
    dropped, null = unit[:, ~keep], unit[:, ~seen]
    if dropped.shape[1]:
        # A move along the dropped directions leaves the fit alone: least norm in the units of the caller.
        back = half - dropped @ np.linalg.lstsq(dropped, half, rcond=None)[0]
    return FreeBlock(scale, half, back, unit[:, seen] / np.sqrt(values[seen]), null, dropped)


@dataclass(frozen=True)
class Reduced:
    """The problem in the columns of the ball, and the way back."""

    problem: tuple[np.ndarray, np.ndarray, np.ndarray]
    free: Bool[np.ndarray, " d"]
    fit: Float[np.ndarray, "r f"]
    slope: Float[np.ndarray, "f b"]
    block: FreeBlock
    gone: Bool[np.ndarray, " b"]

    def recover(self, A: Float[np.ndarray, "r b"]) -> Float[np.ndarray, "r d"]:
        """Coefficients of all columns for those of the ball."""
        whole = np.empty((len(A), len(self.free)))
        whole[:, ~self.free] = A
        whole[:, self.free] = self.fit - A @ self.slope.T
        return whole

    def rounding(
        self,
        G: Float[np.ndarray, "d d"],
        C: Float[np.ndarray, "r d"],
        zz: Float[np.ndarray, " r"],
        A: Float[np.ndarray, "r b"],
    ) -> Float[np.ndarray, "r b"]:
        """Bound of the error of c~ - G~ a that the elimination makes.

        S + D is factored instead of S, ||D|| <= eta = 16 f eps, and products with F have errors eta of the two norms:
        c~_j has an error of at most eta (||z|| + ||S^+ E c_F||)(||M_j|| + ||S^+ E G_Fj||), column i of G~ likewise. A
        dropped direction v contributes what it would if it counted, |v'c| |v'G_Fj| / v'S v, each beyond NOISE of its
        norms, v'S v less eta and at least LEAST. A column set to zero may have been up to ROUNDING of its squared norm.

        Args:
            G, C, zz: the data that were reduced.
            A: (r, b) coefficients over the ball.
        """
        kept, free, block = ~self.free, self.free, self.block
        eta = 16.0 * max(1, free.sum()) * EPS
        own, target = np.sqrt(np.diag(G)[kept]), np.sqrt(np.maximum(zz, 0.0))
        size = own + np.linalg.norm(block.unscale[:, None] * self.slope, axis=0)
        reach = target + np.linalg.norm(block.unscale * self.fit, axis=1) + np.abs(A) @ size
        error = eta * reach[:, None] * size
        if block.dropped.shape[1]:
            v = block.dropped
            root = np.sqrt(
                np.maximum(np.einsum("fn,fg,gn->n", v, G[np.ix_(free, free)], v, optimize=True) - eta, LEAST)
            )
            column = np.maximum(np.abs(v.T @ G[np.ix_(free, kept)]) - NOISE * own, 0.0) / root[:, None]
            row = np.maximum(np.abs(C[:, free] @ v) - NOISE * target[:, None], 0.0) / root
            error += (row + np.abs(A) @ column.T) @ column
        return (
            error
            + np.where(self.gone, np.sqrt(ROUNDING) * own, 0.0) * np.sqrt(np.maximum(self.problem[2], 0.0))[:, None]
        )


def eliminate(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    free: Bool[np.ndarray, " d"],
    ridge: float = 0.0,
) -> Reduced:
    """Eliminate the columns `free`; rank-deficient ones get the coefficients of least norm.

    Args:
        G, C, zz: from `gram`.
        free: (d,) columns to eliminate.
        ridge: l2 penalty, on these columns too.

    Returns:
        Reduced; rows with NaN data stay NaN.
    """
    kept = ~free
    block = factor(G[np.ix_(free, free)], ridge)
    half, cross = block.half, G[np.ix_(free, kept)]
    cross_half, c_half = half.T @ cross, C[:, free] @ half
    G_left = G[np.ix_(kept, kept)] - cross_half.T @ cross_half
    C_left = C[:, kept] - c_half @ cross_half
    zz_left = zz - np.einsum("ij,ij->i", c_half, c_half)
    gone = np.diag(G_left) <= ROUNDING * np.diag(G)[kept]
    G_left[gone], G_left[:, gone], C_left[:, gone] = 0.0, 0.0, 0.0
    done = zz_left <= ROUNDING * zz
    C_left[done], zz_left[done] = 0.0, 0.0
    G_left = 0.5 * (G_left + G_left.T)
    return Reduced((G_left, C_left, zz_left), free, c_half @ block.back.T, block.back @ cross_half, block, gone)
