"""Certificates of composed models from those of their parts.

A block-triangular A has diagonal blocks A_11, ..., A_kk, the parts, with M_ii s_i <= (1 - m_i) s_i, s_i > 0. With s =
(s_1, t_2 s_2, ...) and t_j small enough M s < s: what part i reads of later ones costs half its margin at most. In a
feedback loop the parts' gains
decide: if lambda_PF(S_g S_f) < 1, S = |D| + |C| (I - N(A))^-1 N(B), there is v > 0 with S_g S_f v < v, and the states
that v drives are a comparison vector of the whole.

Each vector is checked on the composed A by one product, its rounding counted: the proof does not rest on the way it was
found.

Source:
    Tsai thesis (2024), Theorems 2 and 3; Khammash and Pearson (1991) for the gains of positive loops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.sparse.linalg import splu

from implicit_models.matrices import scipy_csr
from implicit_models.model import ImplicitModel
from implicit_models.perron import spectral_radius
from implicit_models.wellposed import Certificate

EPS = np.finfo(float).eps
SHARE = 1e-3  # of the drive of a loop, added everywhere so that the inequalities are strict
NONE = Certificate("none", 0.0, None, np.inf)


def triangular_proof(model: ImplicitModel, sizes: Sequence[int], proofs: Sequence[Certificate]) -> Certificate:
    """Certificate of a block upper triangular A whose diagonal blocks have the given sizes and certificates, in order
    of the states.

    Returns:
        kind "none" if a part has none, or if its states are too far apart in size for a common vector.
    """
    if not all(proofs):
        return NONE
    lambda_pf = max(p.lambda_pf for p in proofs)
    vectors = [p.s for p in proofs if p.s is not None]
    if len(vectors) < len(proofs):  # triangular parts whose vectors overflow
        if all(p.kind == "triangular" for p in proofs):
            return Certificate("triangular", min(p.margin for p in proofs), None, lambda_pf)
        return NONE
    M = _comparison(model, signed=any(p.kind != "pf" for p in proofs))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    s, unit = np.zeros(starts[-1]), model.activation.unit
    # Later parts are read by earlier ones: from the last to the first, every part grows until half its margin covers
    # what it reads.
    scale = 1.0
    for k in range(len(sizes) - 1, -1, -1):
        part, later = slice(starts[k], starts[k + 1]), slice(starts[k + 1], None)
        own = vectors[k] * scale
        read = (
            _block_maximum(M[part][:, later] @ s[later], unit[part])
            if starts[k + 1] < starts[-1]
            else np.zeros(sizes[k])
        )
        need = float((read / own).max(initial=0.0)) / (0.5 * proofs[k].margin)
        if need > 1.0:
            own, scale = own * need, scale * need
        s[part] = own
    kind = (
        "pf"
        if all(p.kind == "pf" for p in proofs)
        else "triangular"
        if all(p.kind == "triangular" for p in proofs)
        else "metzler"
    )
    return checked(M, s, unit, kind, lambda_pf)


def loop_proof(model: ImplicitModel, f: ImplicitModel, g: ImplicitModel) -> Certificate:
    """Certificate of the loop y = f(u + g(y)), states (x_f, x_g), from the gains of parts with Perron-Frobenius
    certificates."""
    proofs = f.certificate(), g.certificate()
    if not all(p.kind == "pf" or p.lambda_pf < 1 for p in proofs):
        return NONE
    S_f, S_g = gain(f), gain(g)
    if not (np.isfinite(S_f).all() and np.isfinite(S_g).all()):
        return NONE
    loop = S_g @ S_f
    if not spectral_radius(loop) < 1:
        return NONE
    v = np.linalg.solve(np.eye(len(loop)) - loop, np.ones(len(loop)))
    if not (np.isfinite(v).all() and (v > 0).all()):
        return NONE
    y = S_f @ v
    parts = []
    for part, drive in ((f, v), (g, y)):
        push = part.activation.lipschitz * (abs(scipy_csr(part.B)) @ drive)
        parts.append(_response(part, push + SHARE * max(push.max(initial=0.0), 1e-300)))
    s = np.concatenate(parts)
    unit = model.activation.unit
    s = _block_maximum(s, unit)
    return checked(_comparison(model, signed=False), s, unit, "pf", None)


def gain(model: ImplicitModel) -> Float[np.ndarray, "q p"]:
    """S = |D| + |C| (I - N)^-1 N(B), N = diag(gamma) |A|: |y(u) - y(v)| <= S |u - v| entrywise.

    A state of a block moves by gamma times the largest move of the block's arguments at most: its rows of N and N(B)
    are the entrywise largest of the block's. Where that N has no bounded inverse, the certificate (s, m) of the model
    gives |x_i(u) - x_i(v)| <= s_i / m sum_k max_j (N(B)_jk / s_j) |u_k - v_k|; without one S is inf.
    """
    B = _moves(model, sp.csr_array(abs(scipy_csr(model.B)).astype(np.float64))).toarray()
    N = _moves(model, sp.csr_array(abs(scipy_csr(model._feedback_matrix())).astype(np.float64)))
    solve = splu(sp.csc_array(sp.eye_array(N.shape[0]) - N)).solve if _bounded(N) else None
    if solve is not None:
        moved = solve(np.ascontiguousarray(B))
    else:
        proof = model.certificate()
        if not proof or proof.s is None:
            return np.full((model.out_features, model.in_features), np.inf)
        moved = proof.s[:, None] / proof.margin * (B / proof.s[:, None]).max(axis=0)
    S = abs(scipy_csr(model.C)) @ moved
    return S if model.D is None else S + abs(scipy_csr(model.D)).toarray()


def _moves(model: ImplicitModel, M: sp.csr_array) -> sp.csr_array:
    """gamma_i times row i of M >= 0; for blocks the entrywise largest of their rows, zero for the states that are
    always 0."""
    M = sp.csr_array(sp.diags_array(model.activation.lipschitz) @ M)
    if model.activation.componentwise:
        return M
    unit, moving = model.activation.unit, np.ones(M.shape[0])
    for s in model.activation.segments:
        if s.name in ("max_pool", "product"):
            moving[s.start : s.stop] = np.arange(s.stop - s.start) % s.block == 0
    found = M.tocoo()
    order = np.lexsort((found.col, unit[found.row]))
    row, column, value = unit[found.row][order], found.col[order], found.data[order]
    heads = (
        np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (column[1:] != column[:-1])])
        if len(row)
        else np.zeros(0, np.int64)
    )
    largest = np.maximum.reduceat(value, heads) if len(heads) else value
    each = sp.csr_array((largest, (row[heads], column[heads])), (int(unit[-1]) + 1, M.shape[1]))
    return sp.csr_array(sp.diags_array(moving) @ each[unit])


def _bounded(N: sp.csr_array) -> bool:
    """Whether (I - N)^-1 is a non-negative matrix, N >= 0: by x > 0 with N x < x."""
    try:
        x = splu(sp.csc_array(sp.eye_array(N.shape[0]) - N)).solve(np.ones(N.shape[0]))
    except RuntimeError:  # singular
        return False
    return bool(np.isfinite(x).all() and (x > 0).all() and (N @ x < x).all())


def checked(M: sp.csr_array, s: np.ndarray, unit: np.ndarray, kind: str, lambda_pf: float | None) -> Certificate:
    """The certificate of s, its margin recomputed; kind "none" if M s < s does not hold. lambda_pf None, of
    kind "pf" only: 1 - margin."""
    if not (np.isfinite(s).all() and (s > 0).all()):
        return NONE
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = _block_maximum(M @ s, unit) / s
    margin = float(
        1 - ratio.max(initial=0.0) - 2 * (M.shape[0] + 2) * EPS * max(1.0, float(((abs(M) @ s) / s).max(initial=0.0)))
    )
    if not margin > 0:
        return NONE
    bound = np.inf if lambda_pf is None else float(lambda_pf)
    return Certificate(kind, margin, s, min(1 - margin, bound) if kind == "pf" else bound)


def _comparison(model: ImplicitModel, *, signed: bool) -> sp.csr_array:
    """gamma_i |A_ij|; with gamma_i A_ii of componentwise states on the diagonal if signed."""
    A, gamma = scipy_csr(model._feedback_matrix()).astype(np.float64), model.activation.lipschitz
    M = sp.csr_array(sp.diags_array(gamma) @ abs(A))
    if not signed:
        return M
    single = np.zeros(len(gamma), bool)
    for s in model.activation.segments:
        single[s.start : s.stop] = s.componentwise
    diagonal = A.diagonal()
    change = np.where(single, gamma * (diagonal - np.abs(diagonal)), 0.0)
    return sp.csr_array(M + sp.diags_array(change))


def _block_maximum(v: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The largest entry of each block, in all its places: the vector of a certificate is constant on a block."""
    starts = np.flatnonzero(np.r_[True, np.diff(unit) > 0])
    return v if len(starts) == len(v) else np.maximum.reduceat(v, starts)[np.cumsum(np.r_[0, np.diff(unit) > 0])]


def _response(model: ImplicitModel, drive: np.ndarray) -> np.ndarray:
    """(I - N)^-1 drive for N = diag(gamma) |A|, non-negative."""
    A = sp.csc_array(
        sp.diags_array(model.activation.lipschitz) @ abs(scipy_csr(model._feedback_matrix()).astype(np.float64))
    )
    return splu(sp.csc_array(sp.eye_array(A.shape[0]) - A)).solve(np.ascontiguousarray(drive))
