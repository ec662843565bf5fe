"""The Perron-Frobenius eigenvalue of |A|, as an upper bound that holds.

Source:
    Tsai (2024), section 2.3; Collatz (1942) and Wielandt (1950) for the bracket; Noda (1971) for the inverse iteration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

DENSE_LIMIT = 3000  # above this many states a sparse factorisation replaces the dense one


def square_matrix(A: Any, name: str = "A") -> np.ndarray | sp.csr_array:
    """float64 copy of a dense or sparse, torch or NumPy matrix, checked to be square and finite."""
    if isinstance(A, torch.Tensor):
        A = A.detach().cpu()
        if A.layout is not torch.strided:
            c = A.to_sparse_csr()
            out = sp.csr_array((c.values().numpy(), c.col_indices().numpy(), c.crow_indices().numpy()), A.shape)
        else:
            out = A.double().numpy()  # NumPy has no bfloat16
    else:
        out = sp.csr_array(A) if sp.issparse(A) else np.asarray(A)
    if out.ndim != 2 or out.shape[0] != out.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(out.shape)}")
    out = out.astype(np.float64)
    values = out.data if sp.issparse(out) else out
    if not np.isfinite(values).all():
        bad = (
            out.tocoo().row[~np.isfinite(out.tocoo().data)][0]
            if sp.issparse(out)
            else np.argwhere(~np.isfinite(out))[0, 0]
        )
        raise ValueError(f"{name} has a value that is not finite in row {int(bad)}")
    return out


def _collatz_wielandt(N: np.ndarray | sp.csr_array, v: np.ndarray) -> tuple[float, float]:
    # what may have been lost to underflow is added, so that the upper bound holds for entries of any size
    ratio = (N @ v + N.shape[0] * np.finfo(float).smallest_subnormal) / v
    return float(ratio.min()), float(ratio.max())


def _balanced(N: np.ndarray | sp.csr_array) -> tuple[sp.csr_array, int]:
    """D^-1 N D / 2^e with D diagonal in powers of two and no entry above about 1, and e: the same spectrum but for 2^e.

    Mathematics: with mu the largest geometric mean of the entries along a cycle, the longest paths h_i = max_j
    (log N_ij - log mu + h_j, 0) are finite, and N_ij exp(h_j - h_i) <= mu for all i, j. mu is found by Karp's theorem.
    Entries that leave the range of float64 are replaced by the smallest normal number: never downwards.

    Source:
        Karp (1978), the largest cycle mean; Schneider and Schneider (1991), max-balancing.
    """
    M = sp.csr_array(N)
    M.eliminate_zeros()
    n, start, column, length = M.shape[0], M.indptr[:-1], M.indices, np.log2(M.data)
    walk = np.full((n + 1, n), -np.inf)  # the longest walks of k steps that end in state 0
    walk[0, 0] = 0
    for k in range(n):
        walk[k + 1] = np.maximum.reduceat(length + walk[k, column], start)
    ended = walk[n] > -np.inf
    with np.errstate(invalid="ignore"):
        mean = (walk[n, ended] - walk[:n, ended]) / np.arange(n, 0, -1)[:, None]
    mu = mean.min(axis=0).max()
    h = np.zeros(n)
    for _ in range(n):
        new = np.maximum(np.maximum.reduceat(length - mu + h[column], start), h)
        if np.all(new <= h + 1e-6):
            break
        h = new
    shift, exponent = round(mu), np.rint(h).astype(int)
    row = np.repeat(np.arange(n), np.diff(M.indptr))
    data = np.maximum(np.ldexp(M.data, exponent[column] - exponent[row] - shift), np.finfo(float).tiny)
    return sp.csr_array((data, column, M.indptr), M.shape), shift


def _irreducible_radius(N: np.ndarray | sp.csr_array) -> float:
    """Certified upper bound of an irreducible non-negative matrix, balanced first if its scaling asks for it."""
    with np.errstate(all="ignore"):
        lower, upper = _bracket(N)
    if (math.isfinite(upper) and upper - lower <= 1e-12 * upper) or N.shape[0] > DENSE_LIMIT:
        return upper
    balanced, shift = _balanced(N)
    radius = float(np.ldexp(_bracket(balanced if sp.issparse(N) else balanced.toarray())[1], shift))
    return radius if math.isnan(upper) else min(upper, radius)


def _bracket(N: np.ndarray | sp.csr_array, steps: int = 60, rtol: float = 1e-13) -> tuple[float, float]:
    """Collatz-Wielandt bracket of an irreducible non-negative matrix: power steps, then Noda's iteration.

    Noda's iteration v <- (upper I - N)^-1 v keeps v positive, and its upper bounds fall quadratically.
    """
    n = N.shape[0]
    v = np.ones(n)
    lower, upper = _collatz_wielandt(N, v)
    for _ in range(steps):  # the shift by the identity makes the power iteration aperiodic
        if upper - lower <= rtol * upper or not math.isfinite(upper):
            return lower, upper
        w = N @ v + upper * v
        v = w / w.max()
        lo, up = _collatz_wielandt(N, v)
        lower, upper = max(lower, lo), min(upper, up)
    if not isinstance(N, np.ndarray) and n <= DENSE_LIMIT:
        N = N.toarray()
    sparse = not isinstance(N, np.ndarray)
    for _ in range(30):
        if upper - lower <= rtol * upper:
            break
        shift = upper * (1 + 1e-14)
        if sparse:
            w = splu((shift * sp.eye_array(n) - N).tocsc()).solve(v)
        else:
            try:
                w = np.linalg.solve(shift * np.eye(n) - N, v)
            except np.linalg.LinAlgError:
                break
        w = w / w[np.argmax(np.abs(w))]
        if not np.all(w > 0):
            break  # rounding won: the bracket found so far stands
        v = w
        lo, up = _collatz_wielandt(N, v)
        if up >= upper and lo <= lower:
            break
        lower, upper = max(lower, lo), min(upper, up)
    return lower, upper


def spectral_radius(N: np.ndarray | sp.csr_array) -> float:
    """Certified upper bound of the spectral radius of N >= 0: the largest over its irreducible blocks."""
    n = N.shape[0]
    if n == 0:
        return 0.0
    count, label = connected_components(sp.csr_array(N), directed=True, connection="strong")
    radius = float(N.diagonal().max())  # exact for blocks of one state
    if count < n:
        size = np.bincount(label, minlength=count)
        order = np.argsort(label, kind="stable")
        start = np.concatenate([[0], np.cumsum(size)])
        for c in np.flatnonzero(size > 1):
            rows = order[start[c] : start[c + 1]]
            block = N[rows][:, rows] if sp.issparse(N) else N[np.ix_(rows, rows)]
            # a few ulps cover the rounding of the row sums behind the bound
            radius = max(radius, float(_irreducible_radius(block) * (1 + 2 * (size[c] + 2) * np.finfo(float).eps)))
    return radius


def shifted_solve(M: np.ndarray | sp.csr_array, t: float, steps: int = 1000) -> np.ndarray:
    """s = (t I - M)^-1 1 for M with a non-negative off-diagonal part.

    Sparse: Jacobi steps from below, exact after as many as a feed-forward network has layers (a factorisation would
    fill in); SuperLU if they do not settle. s may come out negative or infinite when t is not above the spectrum of M.
    """
    n = M.shape[0]
    if not sp.issparse(M):
        return np.linalg.solve(t * np.eye(n) - M, np.ones(n))
    d = t - M.diagonal()
    off = sp.csr_array(M - sp.diags_array(M.diagonal()))
    s = 1 / d
    for _ in range(steps):
        new = (1 + off @ s) / d
        if not np.all(np.isfinite(new)) or np.all(np.abs(new - s) <= 1e-15 * np.abs(new)):
            return new
        s = new
    return splu((t * sp.eye_array(n) - M).tocsc()).solve(np.ones(n))


def perron_frobenius(A: Any) -> float:
    """Perron-Frobenius eigenvalue of |A|, as a certified upper bound.

    Mathematics: for any v > 0, min (|A| v)_i / v_i <= lambda_PF <= max (|A| v)_i / v_i on an irreducible block
    (Collatz-Wielandt); a reducible matrix takes the largest value over its strongly connected blocks, so a
    triangular one is exact: max |A_ii|. A block whose entries are of very different size is balanced first
        (`_balanced`).

    Args:
        A: (n, n) dense or sparse, torch or NumPy.

    Returns:
        upper bound, relative gap about 1e-13.

    Raises:
        ValueError: if A is not square or not finite.

    Source:
        Tsai (2024), section 2.3.
    """
    return spectral_radius(abs(square_matrix(A)))
