"""Well-posedness of x = phi(A x + b): certificates, the Perron-Frobenius eigenvalue, rescaling.

A is well-posed when the equation has exactly one solution for every b. Three sufficient conditions are
certified here by a positive vector s that anyone can check with one product M s < s:

    pf          M = N(A, gamma), the matrix of block norms (|A| for CONE maps);
    metzler     M has gamma_i A_ii with its SIGN on the diagonal: a slope d in [0, gamma_i] turns row i into
                |dx_i| <= d / (1 - d A_ii) sum_j |A_ij| |dx_j|, largest at d = gamma_i; A_ii < -1 is welcome;
    triangular  no feedback between blocks and gamma_i A_ii < 1: solved by substitution.

Source: Tsai (2024), section 2.3 (Theorem 1, PF), section 2.4 (Theorems 2 and 3, triangular); SIM paper, Theorem 2.4.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.projection import project_rows, project_rows_

__all__ = ["Certificate", "certificate", "perron_frobenius", "project_rows", "project_rows_", "rescale"]

DENSE_LIMIT = 3000  # above this many states a sparse factorisation replaces the dense one


@dataclass(frozen=True)
class Certificate:
    """Why A is well-posed, with the vector that proves it.

    kind: "pf", "triangular", "metzler" or "none".
    margin: M s <= (1 - margin) s holds for the matrix M of that kind; 0 for "none"; 1 - max gamma_i A_ii for a
        triangular A whose s would overflow.
    s: (n,) positive comparison vector, float64; None for "none" and for that triangular case.
    lambda_pf: certified upper bound of the Perron-Frobenius eigenvalue of N(A, gamma).
    """

    kind: str
    margin: float
    s: Float[np.ndarray, " n"] | None
    lambda_pf: float

    def __bool__(self) -> bool:
        return self.kind != "none"


def _to_numpy(A: Any, name: str = "A") -> np.ndarray | sp.csr_array:
    """float64 copy of a dense or sparse, torch or NumPy matrix, checked to be square and finite."""
    if isinstance(A, torch.Tensor):
        A = A.detach().cpu()
        if A.layout is not torch.strided:
            c = A.to_sparse_csr()
            out = sp.csr_array((c.values().numpy(), c.col_indices().numpy(), c.crow_indices().numpy()), A.shape)
        else:
            out = A.numpy()
    else:
        out = sp.csr_array(A) if sp.issparse(A) else np.asarray(A)
    if out.ndim != 2 or out.shape[0] != out.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(out.shape)}")
    out = out.astype(np.float64)
    values = out.data if sp.issparse(out) else out
    if not np.isfinite(values).all():
        bad = out.tocoo().row[~np.isfinite(out.tocoo().data)][0] if sp.issparse(out) else np.argwhere(~np.isfinite(out))[0, 0]
        raise ValueError(f"{name} has a value that is not finite in row {int(bad)}")
    return out


def _collatz_wielandt(N: np.ndarray | sp.csr_array, v: np.ndarray) -> tuple[float, float]:
    ratio = (N @ v) / v
    return float(ratio.min()), float(ratio.max())


def _irreducible_radius(N: np.ndarray | sp.csr_array, steps: int = 60, rtol: float = 1e-13) -> float:
    """Upper Collatz-Wielandt bound of an irreducible non-negative matrix: power steps, then Noda's iteration.

    Noda's iteration v <- (upper I - N)^-1 v keeps v positive, and its upper bounds fall quadratically.
    """
    n = N.shape[0]
    v = np.ones(n)
    lower, upper = _collatz_wielandt(N, v)
    for _ in range(steps):  # the shift by the identity makes the power iteration aperiodic
        if upper - lower <= rtol * upper:
            return upper
        w = N @ v + upper * v
        v = w / w.max()
        lo, up = _collatz_wielandt(N, v)
        lower, upper = max(lower, lo), min(upper, up)
    sparse = sp.issparse(N)
    if sparse and n <= DENSE_LIMIT:
        N, sparse = N.toarray(), False
    for _ in range(30):
        if upper - lower <= rtol * upper:
            break
        shift = upper * (1 + 1e-14)
        if sparse:
            w = splu((shift * sp.eye_array(n) - N).tocsc()).solve(v)
        else:
            w = np.linalg.solve(shift * np.eye(n) - N, v)
        w = w / w[np.argmax(np.abs(w))]
        if not np.all(w > 0):
            break  # rounding won: the bracket found so far stands
        v = w
        lo, up = _collatz_wielandt(N, v)
        if up >= upper and lo <= lower:
            break
        lower, upper = max(lower, lo), min(upper, up)
    return upper


def _radius(N: np.ndarray | sp.csr_array) -> float:
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


def perron_frobenius(A: Any) -> float:
    """Perron-Frobenius eigenvalue of |A|, as a certified upper bound.

    Mathematics: for any v > 0, min (|A| v)_i / v_i <= lambda_PF <= max (|A| v)_i / v_i on an irreducible block
    (Collatz-Wielandt); a reducible matrix takes the largest value over its strongly connected blocks, so a
    triangular one is exact: max |A_ii|.

    Args:
        A: (n, n) dense or sparse, torch or NumPy.
    Returns: upper bound, relative gap about 1e-13.
    Raises: ValueError if A is not square or not finite.
    Source: Tsai (2024), section 2.3.
    """
    return _radius(abs(_to_numpy(A)))


def _block_norms(A: np.ndarray | sp.csr_array, act: Activation, signed_diagonal: bool) -> np.ndarray | sp.csr_array:
    """N(A, gamma) (2.6) in the infinity norm of each block, spread back over the states.

    With M_ij = gamma_i |A_ij|, the block norm is max over the block's rows of sum over the other block's columns; the
    vector s is constant on a block, so the row-wise matrix M certifies at least as much and needs no aggregation.
    """
    gamma = act.lipschitz
    if sp.issparse(A):
        M = (sp.diags_array(gamma) @ abs(A)).tocsr()
        diagonal = A.diagonal()
    else:
        M, diagonal = gamma[:, None] * np.abs(A), np.diagonal(A)
    if signed_diagonal:
        single = np.bincount(act.unit)[act.unit] == 1  # a block of several states has no scalar slope
        keep = np.where(single & _componentwise(act), gamma * diagonal, gamma * np.abs(diagonal))
        M = M - sp.diags_array(M.diagonal() - keep) if sp.issparse(M) else M - np.diag(np.diagonal(M) - keep)
    return M


def _componentwise(act: Activation) -> np.ndarray:
    out = np.zeros(act.n, dtype=bool)
    for s in act.segments:
        out[s.start : s.stop] = s.componentwise
    return out


def _aggregate(M: np.ndarray | sp.csr_array, unit: np.ndarray) -> np.ndarray | sp.csr_array:
    """L x L matrix max_{i in block k} sum_{j in block l} M_ij; M itself when every block is one state."""
    if unit.size == 0 or unit[-1] + 1 == unit.size:
        return M
    n, L = unit.size, int(unit[-1]) + 1
    member = sp.csr_array((np.ones(n), (np.arange(n), unit)), (n, L))
    sums = sp.csr_array(M @ member).tocoo()
    flat = unit[sums.row].astype(np.int64) * L + sums.col
    key, at = np.unique(flat, return_inverse=True)
    best = np.zeros(key.size)
    np.maximum.at(best, at, sums.data)
    out = sp.csr_array((best, (key // L, key % L)), (L, L))
    return out.toarray() if L <= DENSE_LIMIT else out


def _comparison_vector(M: np.ndarray | sp.csr_array, radius: float) -> tuple[np.ndarray | None, float]:
    """s > 0 and the largest verified margin with M s <= (1 - margin) s, for M with non-negative off-diagonal.

    s = (t I - M)^-1 1 is positive for every t above the spectral abscissa of M and gives M s = t s - 1 < t s.
    """
    n = M.shape[0]
    best, best_margin = None, 0.0
    for share in (1e-3, 0.1, 0.5, 1.0):
        t = radius + share * (1 - radius)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a singular factor shows as a vector that fails the test below
                if sp.issparse(M):
                    s = splu((t * sp.eye_array(n) - M).tocsc()).solve(np.ones(n))
                else:
                    s = np.linalg.solve(t * np.eye(n) - M, np.ones(n))
                ratio = (M @ s) / s
        except (RuntimeError, np.linalg.LinAlgError):
            continue
        if np.all(np.isfinite(s)) and np.all(s > 0) and np.all(np.isfinite(ratio)):
            margin = float(1 - ratio.max() - 2 * (n + 2) * np.finfo(float).eps)
            if margin > best_margin:
                best, best_margin = s, margin
        if best is not None:
            break
    return best, best_margin


def triangular_order(A: Any, activation: ActivationSpec | Activation) -> str | None:
    """ "upper", "lower" (blocks of the activation taken whole) or None when A feeds back between blocks.

    A block of several states must have a zero diagonal block; a diagonal matrix counts as upper.
    """
    A = _to_numpy(A)
    act = resolve_activation(activation, A.shape[0])
    row, column = sp.coo_array(A).coords if not sp.issparse(A) else A.tocoo().coords
    if sp.issparse(A):
        nonzero = A.tocoo().data != 0
        row, column = row[nonzero], column[nonzero]
    ur, uc = act.unit[row], act.unit[column]
    same = ur == uc
    if np.any(same & ~_componentwise(act)[row]):
        return None
    if np.all(ur <= uc):
        return "upper"
    return "lower" if np.all(ur >= uc) else None


def certificate(A: Any, activation: ActivationSpec | Activation = "relu") -> Certificate:
    """Proof that A is well-posed for the activation, or "none".

    Mathematics: looks for s > 0 with M s < s, first for M = N(A, gamma) (pf), then, if that fails, tests for a
    triangular A with gamma_i A_ii < 1, then takes M with gamma_i A_ii signed on the diagonal (metzler). gamma is the
    Lipschitz constant of each map (1/4 for sigmoid, 1/2 for softmax), so bounds are scaled by it.

    Args:
        A: (n, n) dense or sparse, torch or NumPy.
        activation: name, list of (name, size), or `Activation`.
    Returns: the certificate; `bool(certificate)` is False for kind "none", which proves nothing either way.
    Raises: ValueError if A is not square or not finite, or if the activation does not fit.
    Source: Tsai (2024), Theorems 1 to 3 and Remark 3.
    """
    A = _to_numpy(A)
    n = A.shape[0]
    act = resolve_activation(activation, n)
    if n == 0:
        return Certificate("pf", 1.0, np.ones(0), 0.0)
    N = _aggregate(_block_norms(A, act, False), act.unit)
    radius = _radius(N)
    if radius < 1:
        s, margin = _comparison_vector(N, radius)
        if s is not None:
            return Certificate("pf", margin, s[act.unit], radius)
    M = _aggregate(_block_norms(A, act, True), act.unit)
    diagonal = float(M.diagonal().max())
    if diagonal >= 1:
        return Certificate("none", 0.0, None, radius)
    # the spectral abscissa of a Metzler matrix, through the radius of its non-negative shift
    shift = max(0.0, -float(M.diagonal().min()))
    eye = sp.eye_array(M.shape[0], format="csr") if sp.issparse(M) else np.eye(M.shape[0])
    abscissa = _radius(M + shift * eye) - shift
    s, margin = _comparison_vector(M, max(abscissa, diagonal)) if abscissa < 1 else (None, 0.0)
    if triangular_order(A, act) is not None:
        if s is None:
            margin = 1 - diagonal
        return Certificate("triangular", margin, None if s is None else s[act.unit], radius)
    if s is not None:
        return Certificate("metzler", margin, s[act.unit], radius)
    return Certificate("none", 0.0, None, radius)


def rescale(A: Any, B: Any, C: Any, *, kappa: float = 1.0) -> tuple[Any, Any, Any, Any]:
    """Equivalent model whose state matrix has infinity norm below kappa.

    Mathematics: s = (I - |A|/kappa)^-1 1, S = diag(1/s); (S A S^-1, S B, C S^-1) has the same outputs for a positively
    homogeneous CONE map (relu, leaky_relu, identity), its state is S x, and
    ||S A S^-1||_inf <= kappa (1 - 1/max s). A bias scales as B does: b -> S b.

    Args:
        A: (n, n), B: (n, p), C: (q, n): torch or NumPy, dense or (A only, NumPy side) SciPy sparse.
        kappa: target norm, above lambda_PF(|A|).
    Returns: (A, B, C, s) of the same kinds; s (n,).
    Raises: ValueError if kappa <= lambda_PF(|A|), or if the shapes disagree.
    Source: SIM paper, Theorem 2.4 (with S = diag(1/s)).
    """
    a = _to_numpy(A)
    n = a.shape[0]
    if B.ndim != 2 or B.shape[0] != n:
        raise ValueError(f"B must have {n} rows, got shape {tuple(B.shape)}")
    if C.ndim != 2 or C.shape[1] != n:
        raise ValueError(f"C must have {n} columns, got shape {tuple(C.shape)}")
    radius = _radius(abs(a))
    if not (np.isfinite(kappa) and kappa > radius):
        raise ValueError(f"kappa must exceed lambda_PF(|A|) = {radius:.6g}, got {kappa}")
    M = abs(a) / kappa
    if sp.issparse(M):
        s = splu((sp.eye_array(n) - M).tocsc()).solve(np.ones(n))
    else:
        s = np.linalg.solve(np.eye(n) - M, np.ones(n))
    if not (np.all(np.isfinite(s)) and np.all(s > 0)):
        raise ValueError("the rescaling vector is not finite in float64: A is too badly scaled to be rescaled")

    def scaled(M: Any, left: np.ndarray | None, right: np.ndarray | None) -> Any:
        if isinstance(M, torch.Tensor):
            if M.layout is not torch.strided:
                raise TypeError("rescale takes dense torch tensors; pass a SciPy sparse array instead")
            to = lambda v: torch.as_tensor(v, dtype=M.dtype, device=M.device)  # noqa: E731
            M = M if left is None else to(left)[:, None] * M
            return M if right is None else M * to(right)
        if sp.issparse(M):
            M = M if left is None else sp.diags_array(left) @ M
            return sp.csr_array(M if right is None else M @ sp.diags_array(right))
        M = np.asarray(M)
        M = M if left is None else left[:, None] * M
        return M if right is None else M * right

    out_s = torch.as_tensor(s, dtype=A.dtype, device=A.device) if isinstance(A, torch.Tensor) else s
    return scaled(A, 1 / s, s), scaled(B, 1 / s, None), scaled(C, None, s), out_s
