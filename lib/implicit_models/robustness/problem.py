"""The model behind a bound: its matrices in float64, why it is well-posed, and equilibria with an error that is proved.

    x = phi(A x + B u + b),    y = C x + D u + d;    A (n, n), B (n, p), C (q, n), D (q, p).

A deviation |x - x'| of two states, or of a state and its approximation, meets e <= M e + r with the comparison matrix M
>= 0: gamma_i |A_ij|, block norms for blockwise maps, and gamma_i A_ii with its sign on the diagonal where a Metzler
certificate needs it. Well-posed means that (I - M)^-1 >= 0, hence e <= (I - M)^-1 r. For an approximate state, r is the
residual |phi(A x + b) - x| and the rounding of the products; times 1 + gamma_i max(0, -A_ii) where the diagonal is
signed, since 1 / (1 - d A_ii) is largest at a slope d of zero.

Source:
    Tsai thesis (2024), section 4.2, with the diagonal signed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from scipy.sparse.linalg import splu

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium.solve import solve_equilibrium
from implicit_models.equilibrium.triangular import _levels
from implicit_models.matrices import scipy_csr
from implicit_models.robustness.products import row_product
from implicit_models.summaries import summary
from implicit_models.wellposed import Certificate, _aggregate, _block_norms, certificate

if TYPE_CHECKING:
    from implicit_models.tracing.nodes import Graph

    Matrix: TypeAlias = Any  # scipy has no types: a checker cannot tell the two apart
else:
    Matrix = np.ndarray | sp.csr_array
LEAST = 1e-290  # changes that are smaller, and not zero, are rounded up to it: shares of them would underflow


class NotCertified(ValueError):
    """The model has no proof of well-posedness, so that none of its bounds would mean anything."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Matrices of an implicit model in float64; A, B, C and D dense or CSR, b (n,) and d (q,) dense; and the steps of
    the network that they were made from, if there is one."""

    A: Matrix
    B: Matrix
    C: Matrix
    D: Matrix
    b: Float[np.ndarray, " n"]
    d: Float[np.ndarray, " q"]
    activation: Activation
    graph: Graph | None = None

    def __repr__(self) -> str:
        return summary(self)

    @property
    def n(self) -> int:
        return self.A.shape[0]

    @property
    def p(self) -> int:
        return self.B.shape[1]

    @property
    def q(self) -> int:
        return self.C.shape[0]

    @cached_property
    def certificate(self) -> Certificate:
        """Why the model is well-posed.

        Raises:
            NotCertified: if neither Perron-Frobenius nor Metzler nor a triangular order proves it, with the reason.
        """
        found = certificate(self.A, self.activation)
        if not found:
            largest = float(np.max(self.activation.lipschitz * self.A.diagonal()))
            loop = f"; gamma_i A_ii reaches {largest:.6g}" if largest >= 1 else ""
            raise NotCertified(
                f"no bound is given for this model: lambda_PF of |A| is {found.lambda_pf:.6g}, not below 1{loop}, the"
                " Metzler matrix with A_ii on its diagonal is not stable either, and A feeds back in every order of"
                " its states"
            )
        return found

    def pre_activation(self, X: Float[np.ndarray, "N n"], U: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N n"]:
        """A x + B u + b of every sample."""
        return row_product(X, self.A) + row_product(U, self.B, self.b)

    def output(self, X: Float[np.ndarray, "N n"], U: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N q"]:
        """C x + D u + d of every sample."""
        return row_product(X, self.C) + row_product(U, self.D, self.d)

    @cached_property
    def comparison(self) -> Matrix:
        """M (L, L) over the blocks of the activation, L = n for componentwise maps; its diagonal is signed for
        "metzler" and "triangular"."""
        signed = self.certificate.kind != "pf"
        return _aggregate(_block_norms(self.A, self.activation, signed), self.activation.unit)

    @cached_property
    def _factor(self) -> Callable[[np.ndarray], np.ndarray]:
        if sp.issparse(self.comparison):
            return splu((sp.eye_array(self.comparison.shape[0]) - self.comparison).tocsc()).solve
        # the inverse, and not its factors: products with it are the same for a sample in any batch
        inverse = np.linalg.inv(np.eye(self.comparison.shape[0]) - self.comparison)
        return lambda r: inverse @ r if r.ndim == 1 else row_product(np.ascontiguousarray(r.T), inverse).T

    @cached_property
    def _order(self) -> list[np.ndarray] | None:
        """Blocks level by level, none of which reads itself or a later one but by its diagonal; None with feedback."""
        off = sp.csr_array(self.comparison)
        off = sp.csr_array(off - sp.diags_array(off.diagonal()))
        off.eliminate_zeros()
        level = _levels(np.arange(off.shape[0]), off)
        return None if level is None else [np.flatnonzero(level == k) for k in range(int(level.max(initial=-1)) + 1)]

    def _substituted(self, R: Float[np.ndarray, "N L"]) -> Float[np.ndarray, "N L"]:
        """(I - M)^-1 R in the order of the blocks, rounded up: each step makes room for its own sums alone, which keeps
        its digits where (I - M)^-1 has entries beyond any precision."""
        M, assigned = sp.csr_array(self.comparison), np.zeros_like(R)
        diagonal = M.diagonal()
        room = 1 + 4 * (R.shape[1] + 4) * np.finfo(float).eps
        for blocks in self._order or ():
            reads = row_product(assigned, sp.csr_array(M[blocks]))  # their own entries are zero still
            assigned[:, blocks] = (reads + R[:, blocks]) * room / (1 - np.maximum(diagonal[blocks], 0.0))
        return assigned * room

    def deviation(self, r: Float[np.ndarray, "*N n"]) -> Float[np.ndarray, "*N n"]:
        """e >= (I - M)^-1 r, verified: M e + r <= e holds in floating point with room for its rounding, or by
        substitution where nothing feeds back; infinite where neither does.

        Args:
            r: (n,) or (N, n), not negative: the largest change of each post-activation for a given state.
        """
        unit, act = self.activation.unit, self.activation
        r = np.asarray(r, dtype=np.float64)
        flat = np.atleast_2d(r)
        if self.certificate.kind != "pf":
            flat = flat * (1 + act.lipschitz * np.maximum(0.0, -self.A.diagonal()))
        if unit[-1] + 1 != self.n:
            starts = np.flatnonzero(np.r_[True, np.diff(unit) > 0])
            flat = np.maximum.reduceat(flat, starts, axis=1)
        eps = np.finfo(float).eps
        finite = np.isfinite(flat).all(axis=1)
        R = np.where(finite[:, None], flat, 0.0) * (1 + 8 * eps)
        M, top = self.comparison, R.max(axis=1, initial=0.0)[:, None]
        small = (top > 0) & (top < LEAST)
        R, top = np.where(small, LEAST, R), np.where(small, LEAST, top)
        first, ones = np.maximum(self._factor(R.T).T, 0.0), np.maximum(self._factor(np.ones(R.shape[1])), 0.0)
        e, open_ = np.full_like(first, np.inf), np.ones(len(R), bool)
        e[top[:, 0] == 0], open_[top[:, 0] == 0] = 0.0, False
        for share in (
            1e-12,
            1e-9,
            1e-6,
        ):  # inflate by a share of (I - M)^-1 max r, strictly inside the cone, until the test holds
            rows = np.flatnonzero(open_)
            if not rows.size:
                break
            trial = first[rows] * (1 + share) + share * top[rows] * ones
            slack = 4 * (R.shape[1] + 2) * eps * (row_product(trial, abs(M)) + trial)
            good = (row_product(trial, M) + R[rows] + slack <= trial).all(axis=1)
            e[rows[good]], open_[rows[good]] = trial[good], False
        if open_.any() and self._order is not None:
            e[open_] = self._substituted(R[open_])
        e[~finite] = np.nan
        return (e if unit[-1] + 1 == self.n else e[:, unit]).reshape(r.shape)

    def equilibrium(
        self, U: Float[np.ndarray, "N p"], *, tol: float = 1e-12
    ) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"]]:
        """States and a bound of their error, both (N, n): |x - x*| <= error.

        A sample that is not finite has NaN, one whose solve fails an error as large as its residual makes it; the
        others are untouched.
        """
        pre = row_product(U, self.B, self.b)
        state = solve_equilibrium(
            _torch(self.A),
            torch.from_numpy(np.ascontiguousarray(pre)),
            self.activation,
            tol=tol,
            max_iter=2000,
            on_failure="ignore",
        ).x.numpy()
        residual = np.abs(self.activation(row_product(state, self.A) + pre) - state)
        magnitude = (
            row_product(np.abs(state), abs(self.A))
            + row_product(np.abs(U), abs(self.B), np.abs(self.b))
            + np.abs(state)
        )
        return state, self.deviation(residual + 2 * (self.n + self.p) * np.finfo(float).eps * magnitude)


def _torch(A: Matrix) -> torch.Tensor:
    if not sp.issparse(A):
        return torch.from_numpy(np.ascontiguousarray(A))
    from implicit_models.matrices import csr_tensor

    return csr_tensor(A, torch.float64, torch.device("cpu"))


def _array(name: str, value: Any) -> Matrix:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = scipy_csr(value) if value.layout is not torch.strided else value.double().numpy()
    array = sp.csr_array(value).astype(np.float64) if sp.issparse(value) else np.array(value, dtype=np.float64)
    entries = array.data if sp.issparse(array) else array
    bad = int(np.count_nonzero(~np.isfinite(entries)))
    if bad:
        raise ValueError(f"{name} has {bad} values that are not finite")
    return array


def problem(model: Any) -> Problem:
    """Matrices of a model, in float64.

    Args:
        model: an `ImplicitModel` (as `compose.from_network` makes of a feed-forward network too), or a `Problem`,
            returned as it is.

    Raises:
        TypeError: for anything else.
        ValueError: for a matrix that is not finite.
    """
    if isinstance(model, Problem):
        return model
    from implicit_models.model import ImplicitModel

    if not isinstance(model, ImplicitModel):
        raise TypeError(
            f"expected an ImplicitModel, got {type(model).__name__}; implicit_models.compose.from_network converts a"
            " torch network"
        )
    D = np.zeros((model.out_features, model.in_features)) if model.D is None else model.D
    vectors = [
        np.zeros(k) if v is None else _array(name, v)
        for name, v, k in (("b", model.b, model.n_states), ("d", model.d, model.out_features))
    ]
    return Problem(  # type: ignore[call-arg]
        _array("A", model._feedback_matrix()),
        _array("B", model.B),
        _array("C", model.C),
        _array("D", D),
        *vectors,  # type: ignore[arg-type]
        model.activation,
        getattr(model, "steps", None),
    )


def from_matrices(
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    activation: ActivationSpec | Activation = "relu",
    *,
    b: Any = None,
    d: Any = None,
) -> Problem:
    """A `Problem` from its matrices, dense or sparse; D, b and d default to zero.

    Raises:
        ValueError: naming the matrix whose shape does not fit.
    """
    A, B, C = (_array(name, M) for name, M in (("A", A), ("B", B), ("C", C)))
    n, p, q = A.shape[0], B.shape[1], C.shape[0]
    D = np.zeros((q, p)) if D is None else _array("D", D)
    b, d = (np.zeros(k) if v is None else _array(name, v) for name, v, k in (("b", b, n), ("d", d, q)))
    for name, M, shape in (
        ("A", A, (n, n)),
        ("B", B, (n, p)),
        ("C", C, (q, n)),
        ("D", D, (q, p)),
        ("b", b, (n,)),
        ("d", d, (q,)),
    ):
        if M.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {M.shape}")
    return Problem(A, B, C, D, b, d, resolve_activation(activation, n))
