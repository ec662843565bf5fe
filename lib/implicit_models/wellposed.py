"""Well-posedness of x = phi(A x + b): certificates, the Perron-Frobenius eigenvalue, rescaling.

A is well-posed when the equation has exactly one solution for every b. Three sufficient conditions are
certified here by a positive vector s that anyone can check with one product M s < s:

    pf          M = N(A, gamma), the matrix of block norms (|A| for CONE maps);
    metzler     M has gamma_i A_ii with its SIGN on the diagonal: a slope d in [0, gamma_i] turns row i into
                |dx_i| <= d / (1 - d A_ii) sum_j |A_ij| |dx_j|, largest at d = gamma_i; A_ii < -1 is welcome;
    triangular  no feedback between blocks, in whatever order they are stored, and gamma_i A_ii < 1: solved by
    substitution.

Source:
    Tsai (2024), section 2.3 (Theorem 1, PF), section 2.4 (Theorems 2 and 3, triangular); SIM paper, Theorem 2.4.
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

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.perron import DENSE_LIMIT, perron_frobenius, shifted_solve, spectral_radius, square_matrix
from implicit_models.projection import project_rows, project_rows_
from implicit_models.summaries import summary

__all__ = ["Certificate", "certificate", "perron_frobenius", "project_rows", "project_rows_", "rescale"]


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

    def __repr__(self) -> str:
        return summary(self)

    def __bool__(self) -> bool:
        return self.kind != "none"


def _block_norms(A: np.ndarray | sp.csr_array, act: Activation, signed_diagonal: bool) -> np.ndarray | sp.csr_array:
    """gamma_i |A_ij|, with gamma_i A_ii on the diagonal of componentwise states if asked; `_aggregate` makes block
    norms."""
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
    """N(A, gamma) (2.6) in the infinity norm of each block: max_{i in block k} sum_{j in block l} M_ij, (L, L)."""
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
                s = shifted_solve(M, t)
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


def _without_feedback(A: np.ndarray | sp.csr_array, act: Activation) -> bool:
    """Whether A is triangular in some order of the blocks: no strongly connected component has more than one of
    them."""
    coo = sp.coo_array(A)
    nonzero = coo.data != 0
    reader, source = act.unit[coo.coords[0][nonzero]], act.unit[coo.coords[1][nonzero]]
    if np.any((reader == source) & ~_componentwise(act)[coo.coords[0][nonzero]]):
        return False
    L = int(act.unit[-1]) + 1
    graph = sp.csr_array((np.ones(reader.size), (reader, source)), (L, L))
    return connected_components(graph, connection="strong")[0] == L


def certificate(A: Any, activation: ActivationSpec | Activation = "relu") -> Certificate:
    """Proof that A is well-posed for the activation, or "none".

    Mathematics: looks for s > 0 with M s < s, first for M = N(A, gamma) (pf), then, if that fails, tests for a
    triangular A with gamma_i A_ii < 1, then takes M with gamma_i A_ii signed on the diagonal (metzler). gamma is the
    Lipschitz constant of each map (1/4 for sigmoid, 1/2 for softmax), so bounds are scaled by it.

    Args:
        A: (n, n) dense or sparse, torch or NumPy.
        activation: name, list of (name, size), or `Activation`.

    Returns:
        the certificate; `bool(certificate)` is False for kind "none", which proves nothing either way.

    Raises:
        ValueError: if A is not square or not finite, or if the activation does not fit.

    Source:
        Tsai (2024), Theorems 1 to 3 and Remark 3.
    """
    A = square_matrix(A)
    n = A.shape[0]
    act = resolve_activation(activation, n)
    if n == 0:
        return Certificate("pf", 1.0, np.ones(0), 0.0)
    N = _aggregate(_block_norms(A, act, False), act.unit)
    radius = spectral_radius(N)
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
    abscissa = spectral_radius(M + shift * eye) - shift
    s, margin = _comparison_vector(M, max(abscissa, diagonal)) if abscissa < 1 else (None, 0.0)
    if _without_feedback(A, act):
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

    Returns:
        (A, B, C, s) of the same kinds; s (n,).

    Raises:
        ValueError: if kappa <= lambda_PF(|A|), or if the shapes disagree.

    Source:
        SIM paper, Theorem 2.4 (with S = diag(1/s)).
    """
    a = square_matrix(A)
    n = a.shape[0]
    if B.ndim != 2 or B.shape[0] != n:
        raise ValueError(f"B must have {n} rows, got shape {tuple(B.shape)}")
    if C.ndim != 2 or C.shape[1] != n:
        raise ValueError(f"C must have {n} columns, got shape {tuple(C.shape)}")
    radius = spectral_radius(abs(a))
    if not (np.isfinite(kappa) and kappa > radius):
        raise ValueError(f"kappa must exceed lambda_PF(|A|) = {radius:.6g}, got {kappa}")
    s = shifted_solve(abs(a) / kappa, 1.0)
    if not (np.all(np.isfinite(s)) and np.all(s > 0)):
        raise ValueError("the rescaling vector is not finite in float64: A is too badly scaled to be rescaled")

    def scaled(M: Any, left: np.ndarray | None, right: np.ndarray | None) -> Any:
        if isinstance(M, torch.Tensor):
            if M.layout is not torch.strided:
                raise TypeError("rescale takes dense torch tensors; pass a SciPy sparse array instead")
            to = lambda v: torch.as_tensor(v, dtype=M.dtype, device=M.device)
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
