"""The sensitivity matrix S (q, p): |y(u) - y(u0)| <= S |u - u0| for all inputs.

    S = |C| (I - M)^-1 Gamma |B| + |D|          componentwise maps of slopes at most gamma, M = Gamma |A|
    S = N(C) (I - M)^-1 N(B, gamma) + |D|       blockwise maps: M = N(A, gamma), N(B)_li = gamma_l max |B_li|, N(C)_kl =
    ||C_kl||_1

with gamma_i A_ii signed on the diagonal of M where only a signed diagonal, or a triangular order, makes the model
well-posed. The rows of the adjoint equation Y = M' Y + N(C)' are what S needs: q right-hand sides of n numbers, where
the iteration X <- |A| X + |B| carries p of them.

Every solution for an implicit model is certified. With w > 0 and g = w - M' w > 0, which proves that (I - M')^-1 >= 0,
and the defect E = N(C)' + M' Y - Y, the true solution is at most Y + w max(E / g): `upper` is a bound of S whatever the
solver did, rounding included.

Source:
    Tsai thesis (2024), Theorem 6, section 4.3 (the iteration on n x p numbers); the adjoint form is that of implicit
    differentiation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse.linalg import LinearOperator, gmres, splu, spsolve_triangular
from torch import nn

from implicit_models.equilibrium.triangular import _levels
from implicit_models.model import ImplicitModel
from implicit_models.robustness.arrays import chosen_rows
from implicit_models.robustness.problem import Matrix, NotCertified, Problem, problem
from implicit_models.summaries import summary
from implicit_models.wellposed import _aggregate, _block_norms

METHODS = ("auto", "dense", "triangular", "lu", "iterative")
DENSE_LIMIT = 1500  # states up to which a dense factorisation is the fastest
ACCURATE = 1e-8  # excess of the bound over S, relative to the largest entry, that a solver must reach
NETWORK_ROOM = 1e-9  # of the layer products of a torch network in float64; not proved
_EPS = np.finfo(float).eps
_RESTART, _CYCLES = 60, 20

Solve = Callable[[np.ndarray], np.ndarray]


class SensitivityMatrix(NamedTuple):
    """The sensitivity matrix and what is known of it.

    Attributes:
        S: (q, p) float64.
        upper: (q, p) bound of S, entry by entry.
        method: the solver that found it, or "network".
        residual: the largest of (upper - S) / max S.
        certified: whether `upper` is proved, as for implicit models; that of a torch network, S (1 + 1e-9), is an
            allowance for rounding that is not.
    """

    S: Float[np.ndarray, "q p"]
    upper: Float[np.ndarray, "q p"]
    method: str
    residual: float
    certified: bool

    def __repr__(self) -> str:
        return summary(self, *self._fields)


def _result(S: np.ndarray, upper: np.ndarray, method: str, certified: bool = True) -> SensitivityMatrix:
    top = float(S.max(initial=0.0))
    residual = float((upper - S).max(initial=0.0)) / top if top else 0.0
    return SensitivityMatrix(S, upper, method, residual, certified)


def sensitivity_matrix(
    model: ImplicitModel | Problem | nn.Module,
    rows: Sequence[int] | np.ndarray | None = None,
    *,
    method: str = "auto",
    input_shape: Sequence[int] | None = None,
) -> SensitivityMatrix:
    """Sensitivity matrix of an implicit model, or of a feed-forward network without its matrices.

    Args:
        model: an `ImplicitModel` or `Problem`; or a torch network of linear layers, convolutions, normalisations and
            activations, in evaluation mode (`sensitivity_network`).
        rows: outputs whose rows are wanted; None for all.
        method: "dense" LU; "triangular" substitution for a state without feedback; "lu", a sparse factorisation;
            "iterative" (GMRES with a certificate); "auto" takes dense up to 1500 states, then triangular where it can,
            then iterative, and LU where that does not settle.
        input_shape: of one sample, for a torch network that does not begin with a linear layer; not for implicit
            models.

    Returns:
        `SensitivityMatrix`: S (q, p) with its bound, whether that is proved, and the method.

    Raises:
        NotCertified: for a model without a proof of well-posedness, or where the solution cannot be certified to 1e-8.
        ValueError, TypeError: for arguments that do not fit.

    Source:
        Tsai thesis (2024), Theorem 6 and section 4.3.
    """
    if isinstance(model, nn.Module) and not isinstance(model, ImplicitModel):
        from implicit_models.robustness.sensitivity_network import network_sensitivity

        if method != "auto":
            raise ValueError(
                f"a torch network has one method, 'auto', not {method!r}; implicit_models.compose.from_network gives"
                " its matrices"
            )
        S = network_sensitivity(model, rows, input_shape)
        return _result(S, S * (1 + NETWORK_ROOM), "network", certified=False)
    if input_shape is not None:
        raise ValueError("input_shape is for torch networks: an implicit model has its own number of inputs")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    P = problem(model)
    rows = chosen_rows(rows, P.q)
    left, right = _output_norms(P, rows), _input_norms(P)
    D = P.D[rows]
    D = np.abs(D.toarray() if sp.issparse(D) else D)
    tried = []
    for name, M, make in _plans(P, method):
        tried.append(name)
        for proof in (_certified, _substituted) if name == "triangular" else (_certified,):
            found = proof(M, left, make)
            if found is None:
                continue
            Y, top = found
            S = _product(Y, right) + D
            upper = _product(top, right) * (1 + 4 * (Y.shape[0] + 4) * _EPS) + D * (1 + 2 * _EPS)
            result = _result(S, upper, name)
            if result.residual <= ACCURATE:
                return result
    others = [name for name in METHODS[1:] if name not in tried]
    if _order(sp.csr_array(P.comparison)) is None and "triangular" in others:
        others.remove("triangular")  # its states feed back
    hint = f"; try method={' or '.join(map(repr, others))}" if others else ""
    raise NotCertified(
        f"method {method!r} (tried: {', '.join(tried)}) does not prove the sensitivity matrix of this model of {P.n}"
        f" states to {ACCURATE:g} of its largest entry{hint}"
    )


def _product(Y: np.ndarray, right: Matrix) -> np.ndarray:
    return np.ascontiguousarray((right.T @ Y).T)


def _output_norms(P: Problem, rows: np.ndarray) -> np.ndarray:
    """N(C)' (L, k), the l1 norm of each block: dual to the infinity norm in which blocks of states are measured."""
    C = P.C[rows]
    C = np.abs(C.toarray() if sp.issparse(C) else C)
    unit = P.activation.unit
    if unit.size == 0 or unit[-1] + 1 == unit.size:
        return np.ascontiguousarray(C.T)
    return np.add.reduceat(C, np.flatnonzero(np.r_[True, np.diff(unit) > 0]), axis=1).T.copy()


def _input_norms(P: Problem) -> Matrix:
    """N(B, gamma) (L, p), (4.5) in the infinity norm, every input a block of its own."""
    gamma, unit = P.activation.lipschitz, P.activation.unit
    whole = unit.size == 0 or unit[-1] + 1 == unit.size
    if sp.issparse(P.B) and whole:
        return (sp.diags_array(gamma) @ abs(P.B)).tocsr()
    B = gamma[:, None] * np.abs(P.B.toarray() if sp.issparse(P.B) else P.B)
    return B if whole else np.maximum.reduceat(B, np.flatnonzero(np.r_[True, np.diff(unit) > 0]), axis=0)


def _plans(P: Problem, method: str):
    """(name, M, factory of a solver) in the order in which they are tried."""
    large = sp.issparse(P.A) and P.n > DENSE_LIMIT
    if method == "dense" or (method == "auto" and not large):
        M = P.comparison
        yield "dense", (M.toarray() if sp.issparse(M) else M), _dense
        order = _order(sp.csr_array(M)) if method == "auto" else None
        if order is not None:  # no inverse, whose entries may be beyond any precision
            yield "triangular", sp.csr_array(M), lambda M: _substitution(M, order)
        return
    if method in ("auto", "iterative"):
        # the certificate of the iteration is its own: that of the model would cost as much again
        plain = sp.csr_array(_aggregate(_block_norms(P.A, P.activation, False), P.activation.unit))
        order = _order(plain) if method == "auto" else None
        if order is not None:
            yield "triangular", plain, lambda M: _substitution(M, order)
        else:
            yield "iterative", plain, _iterative
    M = sp.csr_array(P.comparison)  # raises NotCertified where nothing proves the model well-posed
    if method == "triangular":
        order = _order(M)
        if order is None:
            raise ValueError(
                "method 'triangular' needs a state without feedback, and A feeds back in every order of its states"
            )
        yield "triangular", M, lambda M: _substitution(M, order)
        return
    if method in ("auto", "iterative"):
        yield "iterative", M, _iterative
    if method in ("auto", "lu"):
        yield "lu", M, lambda M: splu((sp.eye_array(M.shape[0]) - M.T).tocsc()).solve


def _dense(M: np.ndarray) -> Solve:
    factor = lu_factor(np.eye(M.shape[0]) - M.T)
    return lambda R: lu_solve(factor, R, check_finite=False)


def _order(M: sp.csr_array) -> np.ndarray | None:
    """Blocks sorted so that each reads earlier ones and at most itself; None where they feed back."""
    off = sp.csr_array(M - sp.diags_array(M.diagonal()))
    off.eliminate_zeros()
    level = _levels(np.arange(M.shape[0]), off)
    return None if level is None else np.argsort(level, kind="stable")


def _substitution(M: sp.csr_array, order: np.ndarray) -> Solve:
    upper = (sp.eye_array(M.shape[0]) - M.T).tocsr()[order][:, order].tocsr()  # a block feeds later ones only

    def solve(R: np.ndarray) -> np.ndarray:
        out = np.empty_like(R)
        out[order] = spsolve_triangular(upper, R[order], lower=False)
        return out

    return solve


def _iterative(M: sp.csr_array) -> Solve:
    """GMRES on the system scaled by its diagonal: few steps where the spectrum of M lies far below its Perron
    eigenvalue."""
    n = M.shape[0]
    transposed = M.T.tocsr()
    scale = 1 / (1 - M.diagonal()) if np.all(M.diagonal() < 1) else np.ones(n)
    operator = LinearOperator((n, n), matvec=lambda v: scale * (v - transposed @ v), dtype=np.float64)

    def steps(r: np.ndarray, rtol: float) -> np.ndarray:
        return gmres(operator, r, rtol=rtol, restart=_RESTART, maxiter=_CYCLES)[0]

    def solve(R: np.ndarray) -> np.ndarray:
        out = np.empty_like(R)
        for k, right in enumerate((scale[:, None] * R).T):
            out[:, k] = steps(right, 1e-8)
            if (
                k + 1 < R.shape[1]
            ):  # once more on what is left, down to rounding; the comparison vector (last column) needs few digits
                out[:, k] += steps(right - operator @ out[:, k], 1e-6)
        return out

    return solve


def _substituted(
    M: sp.csr_array, left: np.ndarray, make: Callable[[Matrix], Solve]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Y (L, k) and a bound of it, by substitution alone: nothing but sums and products of numbers that are not
    negative, each of which adds a roundoff to the relative error of what it reads. None for a positive diagonal."""
    if M.diagonal().max(initial=0.0) > 0:
        return None
    Y = make(M)(left)
    if not np.isfinite(Y).all() or Y.min(initial=0.0) < 0:
        return None
    level = _levels(np.arange(M.shape[0]), sp.csr_array(M - sp.diags_array(M.diagonal())))
    steps = 1 if level is None else int(level.max(initial=0)) + 1
    terms = int(np.bincount(M.indices, minlength=1).max()) + 4
    return Y, Y * (1 + 2 * steps * terms * _EPS)


def _certified(M: Matrix, left: np.ndarray, make: Callable[[Matrix], Solve]) -> tuple[np.ndarray, np.ndarray] | None:
    """Y (L, k) and a proved bound of (I - M')^-1 left, or None where nothing is proved."""
    L = M.shape[0]
    if L == 0:
        return left, left
    try:
        found = make(M)(np.column_stack([left, np.ones(L)]))
    except (RuntimeError, np.linalg.LinAlgError):  # an exactly singular factor
        return None
    if not np.isfinite(found).all():
        return None
    Y, w = np.maximum(found[:, :-1], 0.0), found[:, -1]
    back = M.T if not sp.issparse(M) else M.T.tocsr()
    slack = 4 * (L if not sp.issparse(M) else int(np.bincount(M.indices, minlength=1).max()) + 1) * _EPS
    g = w - back @ w - slack * (abs(back) @ np.abs(w) + np.abs(w))
    if not (np.all(w > 0) and np.all(g > 0)):
        return None
    image = back @ Y
    defect = left + image - Y + slack * (abs(back) @ Y + Y + left)
    return Y, Y + w[:, None] * np.maximum((defect / g[:, None]).max(axis=0), 0.0) * (1 + 4 * _EPS)
