"""The data of all row problems: Gram matrix, correlations and squared norms, accumulated over the samples, and what is
checked of them."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from implicit_models.kernels import kernel
from implicit_models.sim.problem import Tolerance

CHUNK_BYTES = 64 * 2**20  # of float64 samples held at a time
LENIENT, TINY = 1e-4, 1e-150  # room in the check of the data: relative, and for norms that underflow
SYMMETRIC = 1e-8  # of the largest diagonal entry, by which G and its transpose may differ
TILE = 64  # rows and columns that the check reads at a time


@dataclass(frozen=True, eq=False)
class Gram:
    """A Gram matrix that has been checked, for many calls of `solve_rows`, `path_rows` and `duality_gap` on it.

    These check a plain array at every call, which takes longer than a row. A `Gram` is checked here, once, and is taken
    in place of G; an array that is float64, contiguous and can be written is not copied, and must not be changed
    afterwards.

    Attributes:
        matrix: (d, d), read-only, float64.

    Raises:
        TypeError, ValueError: as `solve_rows` for its G.
    """

    matrix: Float[np.ndarray, "d d"] = field(repr=False)
    _held: Float[np.ndarray, "d d"] = field(init=False, repr=False)  # the same, for kernels

    def __post_init__(self) -> None:
        held = checked_matrix(self.matrix)
        view = held.view()
        view.setflags(write=False)
        object.__setattr__(self, "matrix", view)
        object.__setattr__(self, "_held", held)

    def __len__(self) -> int:
        return len(self.matrix)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.matrix, dtype=dtype, copy=copy)


def gram(
    M: Float[Any, "m d"], Z: Float[Any, "m r"], *, chunk: int | None = None
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "r d"], Float[np.ndarray, " r"]]:
    """G = M'M, C = Z'M and zz_i = ||z_i||^2, in float64.

    All that a row problem 1/2||M a - z||^2 needs: afterwards its cost does not depend on the number of samples m.

    Args:
        M: (m, d) features, one sample a row: states, inputs and a column of ones. NumPy (memory maps too) or torch.
        Z: (m, r) targets; a column is one row problem.
        chunk: samples converted to float64 at a time; by default what fits in 64 MiB.

    Returns:
        G (d, d) symmetric, C (r, d), zz (r,). A NaN or infinity in a column of Z shows in its row of C and entry of zz
        alone.

    Raises:
        TypeError: M or Z is no array of real numbers.
        ValueError: not two dimensions, different numbers of samples, no sample, or a value of M that is not finite (the
            message names its sample and feature: it would spoil every row).

    Source:
        Tsai thesis (2024), section 3.3, M = (X', U'); SIM paper, equation (7).
    """
    M, Z = as_matrix(M, "M"), as_matrix(Z, "Z")
    if len(M) != len(Z):
        raise ValueError(f"M and Z must hold the same samples; got M {M.shape} and Z {Z.shape}")
    m, d = M.shape
    if m == 0:
        raise ValueError(f"M and Z hold no sample: {M.shape} and {Z.shape}")
    step = max(256, CHUNK_BYTES // (8 * (d + Z.shape[1] + 1))) if chunk is None else chunk
    if step < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}")
    G, C, zz = np.zeros((d, d)), np.zeros((Z.shape[1], d)), np.zeros(Z.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):  # a bad target is reported with its row
        for first in range(0, m, step):
            block = np.asarray(M[first : first + step], dtype=np.float64)
            target = np.asarray(Z[first : first + step], dtype=np.float64)
            if not np.isfinite(block).all():
                sample, feature = np.argwhere(~np.isfinite(block))[0]
                raise ValueError(f"M[{first + sample}, {feature}] = {block[sample, feature]}: features must be finite")
            G += block.T @ block
            C += _correlations(target, block)
            zz += np.einsum("ij,ij->j", target, target)
    if not np.isfinite(G).all():
        raise ValueError(f"M'M overflows float64: largest |M| is {np.abs(np.asarray(M)).max():.3g}; scale the features")
    return np.triu(G) + np.triu(G, 1).T, C, zz


def _correlations(target: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Z'M; a product kernel may let a NaN column touch its neighbours, so bad columns are left out and marked."""
    bad = ~np.isfinite(target).all(axis=0)
    if not bad.any():
        return target.T @ block
    product = np.where(bad[None, :], 0.0, target).T @ block
    product[bad] = np.nan
    return product


def as_matrix(values, name: str) -> np.ndarray:
    """A NumPy view of a matrix of real numbers; torch tensors are taken off their graph and device.

    Raises:
        TypeError: not real numbers.
        ValueError: not a matrix.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if not isinstance(values, np.ndarray):
        values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers; got dtype {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{name} must be a matrix; got shape {values.shape}")
    return values


def check_problem(G, C, zz, kappa, ball_mask, beta, ridge, rtol, atol) -> Any:
    """Validated float64 arrays (G, C, zz, kappa (r,), ball, beta (r,), ridge, tolerance, whole (r,)) of a set
    of row problems.

    Raises:
        as `solve_rows`.
    """
    G, C, zz, *terms = check_rows(G, C, zz, kappa, ball_mask, beta, ridge)
    tolerance = Tolerance(_weight("rtol", rtol), _weight("atol", atol))
    return G, C, zz, *terms, tolerance, np.where(np.isfinite(zz), zz, 0.0)


def check_rows(G, C, zz, kappa, ball_mask, beta, ridge) -> Any:
    """The part of `check_problem` that is the problem alone: (G, C, zz, kappa (r,), ball, beta (r,), ridge)."""
    G = G._held if isinstance(G, Gram) else checked_matrix(G)
    C, zz = as_matrix(C, "C"), np.asarray(zz)
    if zz.dtype.kind not in "fiub":
        raise TypeError(f"zz must hold real numbers; got dtype {zz.dtype}")
    C, zz = _as_kernels_take(C), _as_kernels_take(zz)
    d, r = len(G), len(C)
    if C.shape[1] != d or zz.shape != (r,):
        raise ValueError(f"G must be (d, d), C (r, d), zz (r,); got {G.shape}, {C.shape}, {zz.shape}")
    _check_products(C, zz, np.diag(G))
    ball = as_mask(ball_mask, d)
    kappa, beta = row_values(kappa, "kappa", r, np.inf), row_values(beta, "beta", r, np.finfo(float).max)
    return G, C, zz, kappa, ball, beta, _weight("ridge", ridge)


def _as_kernels_take(values) -> np.ndarray:
    """Contiguous, float64, and free to be written, which is a type of its own to numba: every kernel would be compiled
    once more for arrays that are not, such as memory maps."""
    return np.require(values, np.float64, ["C", "W"])


def checked_matrix(G) -> np.ndarray:
    """G as a contiguous float64 array that may be a Gram matrix: finite, symmetric, |G_ij|^2 <= G_ii G_jj."""
    G = _as_kernels_take(as_matrix(G, "G"))
    if G.shape != (len(G), len(G)):
        raise ValueError(f"G must be (d, d), C (r, d), zz (r,); got G {G.shape}")
    diagonal = np.diag(G).copy()
    largest = diagonal.max(initial=0.0)
    norm = np.sqrt(np.maximum(diagonal, 0.0))
    room = LENIENT * norm.max(initial=0.0) + TINY
    if not bool((diagonal >= 0.0).all()) or not _may_be_gram(
        G, norm * (1.0 + LENIENT), norm, room * room, SYMMETRIC * largest
    ):
        _name_what_is_wrong(G, diagonal, norm, room)
    return G


@kernel
def _may_be_gram(G, wide, norm, room, skew):
    """Whether all |G_ij| <= wide_i norm_j + room and |G_ij - G_ji| <= skew; one pass, tile by tile. NaN fails."""
    d, good = len(G), True
    for first in range(0, d, TILE):
        for left in range(first, d, TILE):
            for i in range(first, min(first + TILE, d)):
                for j in range(left, min(left + TILE, d)):
                    value = G[i, j]
                    good &= (abs(value) <= wide[i] * norm[j] + room) & (abs(value - G[j, i]) <= skew)
        if not good:
            break
    return good


def _name_what_is_wrong(G, diagonal, norm, room) -> None:
    """Raise ValueError for the entry that fails, where one does."""
    if not np.isfinite(G).all():
        i, j = np.argwhere(~np.isfinite(G))[0]
        raise ValueError(f"G[{i}, {j}] = {G[i, j]}: the Gram matrix must be finite")
    if (diagonal < 0.0).any():
        j = int(np.argmin(diagonal))
        raise ValueError(f"G[{j}, {j}] = {diagonal[j]:.6g}: a Gram matrix has no negative diagonal")
    worst = np.abs(G - G.T).max(initial=0.0)
    if worst > SYMMETRIC * diagonal.max(initial=0.0):
        raise ValueError(f"G is not symmetric: |G - G'| reaches {worst:.6g}")
    bad = np.abs(G) > (1.0 + LENIENT) * norm[:, None] * norm + room * room
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"G[{i}, {j}] = {G[i, j]:.6g} with G[{i}, {i}] = {diagonal[i]:.6g}, G[{j}, {j}] = {diagonal[j]:.6g}: no"
            " Gram matrix"
        )


def _weight(name: str, value) -> float:
    """A number. Raises: TypeError for anything else; ValueError where it is negative or not finite."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number; got {value!r}")
    if not 0.0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be at least 0 and finite; got {value}")
    return float(value)


def as_mask(ball_mask, d: int) -> np.ndarray:
    """(d,) booleans; all True for None. Raises: ValueError for anything else, indices among them."""
    ball = np.ones(d, bool) if ball_mask is None else np.ascontiguousarray(np.asarray(ball_mask))
    if ball.shape != (d,) or ball.dtype != bool:
        raise ValueError(f"ball_mask must be {d} booleans; got shape {ball.shape}, dtype {ball.dtype}")
    return ball


def row_values(value, name: str, r: int, largest: float) -> np.ndarray:
    """(r,) floats of a number or one a row.

    Raises:
        TypeError: for booleans and what is no number.
        ValueError: naming the row of a value outside [0, largest].
    """
    if np.asarray(value).dtype.kind not in "fiu":
        raise TypeError(f"{name} must be a number or one a row; got {value!r}")
    values = np.asarray(value, dtype=np.float64)
    if values.ndim and values.shape != (r,):
        raise ValueError(f"{name} must be a number or one a row, shape ({r},); got shape {values.shape}")
    values = np.broadcast_to(values, (r,)).copy()
    bad = np.flatnonzero(~((values >= 0.0) & (values <= largest)))
    if len(bad):
        raise ValueError(f"{name} must be at least 0; got {values[bad[0]]} for row {bad[0]}")
    return values


def _check_products(C, zz, diagonal) -> None:
    """c_j^2 <= G_jj z'z, with room for data that were summed in single precision."""
    if (zz < 0.0).any():
        i = int(np.flatnonzero(zz < 0.0)[0])
        raise ValueError(f"zz[{i}] = {zz[i]:.6g}: a squared norm is not negative")
    norm, target = np.sqrt(diagonal), np.sqrt(zz)
    room = LENIENT * norm.max(initial=0.0) + TINY
    # Written so that a NaN in a row's own data passes: that row is reported by its status.
    bad = np.abs(C) > (1.0 + LENIENT) * target[:, None] * norm + room * (LENIENT * target[:, None] + TINY)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"C[{i}, {j}] = {C[i, j]:.6g} with G[{j}, {j}] = {diagonal[j]:.6g}, zz[{i}] = {zz[i]:.6g} (row {i}): no"
            " products of such columns"
        )
