"""The state-driven implicit model that a fit found, with what certifies and what describes it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Shaped
from torch import nn

from implicit_models.sim.network.normal_equations import RowProblem
from implicit_models.sim.network.scaling import Scale
from implicit_models.sim.network.states import States
from implicit_models.sim.parallel.report import RunReport
from implicit_models.sim.problem import Exact, LeastSquares, Objective, terms
from implicit_models.status import Status
from implicit_models.summaries import summary

DONE = (Status.OPTIMAL, Status.FISTA)
MAX_ITER = 5000  # a row norm of .99 takes about a thousand Picard steps
DENSE_UP_TO = 1000  # states


def nonzero_parameters(network: nn.Module) -> int:
    """||N||_0 of the papers: non-zero entries of all parameters, and of constant sparse matrices of an implicit
    model."""
    from implicit_models.model import ImplicitModel

    count = sum(int(torch.count_nonzero(p)) for p in network.parameters())
    if isinstance(network, ImplicitModel):
        sparse = [M for M in network.buffers() if M.layout is not torch.strided]
        count += sum(int(torch.count_nonzero(M.values())) for M in sparse)
    return count


@dataclass(frozen=True)
class SIMResult:
    """Rows of a state-driven implicit model in the original units of the states.

    A (n, n), B (n, p), C (q, n), D (q, p): CSR, with the solver's own support; b (n,), d (q,): dense.
    gap, multiplier, status, n_steps: (n + q,), state rows before output rows, of the problems in scaled units.
    objective: f; matched: how states and outputs were. kappa, feedback: of the state rows. timing: seconds of the
        parts. run: how the chunks went.
    """

    A: sp.csr_array
    B: sp.csr_array
    C: sp.csr_array
    D: sp.csr_array
    b: Float[np.ndarray, " n"]
    d: Float[np.ndarray, " q"]
    gap: Float[np.ndarray, " r"]
    multiplier: Float[np.ndarray, " r"]
    status: Shaped[np.ndarray, " r"]
    n_steps: Shaped[np.ndarray, " r"]
    objective: Objective
    matched: LeastSquares | Exact
    kappa: float
    feedback: str
    scale: Scale
    states: States
    timing: dict[str, float]
    run: RunReport

    def __repr__(self) -> str:
        return summary(
            self,
            "A",
            "B",
            "C",
            "D",
            "status",
            "gap",
            "objective",
            "kappa",
            scale=self.scale.description,
            **self._shares(),
        )

    def _shares(self) -> dict[str, float]:
        """What is zero, in every count that is known."""
        known = self.states.network is not None
        names = ("sparsity_of_parameters", "sparsity_of_entries") if known else ("sparsity_of_full_matrix",)
        return {name: getattr(self, name) for name in names}

    @property
    def failed_rows(self) -> np.ndarray:
        """Rows without a certified solution; n_states and above are outputs."""
        return np.flatnonzero(~np.isin(self.status, DONE))

    @functools.cached_property
    def model(self) -> Any:
        """`ImplicitModel` with sparse CSR matrices, float64, in the network's units.

        Raises:
            ValueError: naming the rows that have no values (NaN in their data, or an infeasible exact match).
        """
        return self._build(self.A)

    def _build(self, A: Any, **settings: Any) -> Any:
        from implicit_models.model import ImplicitModel

        parts = [np.isnan(M.sum(1)) for M in (self.A, self.B, self.C, self.D)]
        lost = np.flatnonzero(np.concatenate([parts[0] | parts[1], parts[2] | parts[3]]))
        if lost.size:
            first = f"the first is row {lost[0]} ({self.status[lost[0]]})"
            raise ValueError(f"{lost.size} rows have no values, {first}: no model without them")
        keeps = {} if not 0 < self.kappa < 1 else {"kappa": self.kappa}  # type: dict[str, Any]
        return ImplicitModel.from_matrices(
            A,
            self.B,
            self.C,
            self.D,
            self.states.activation,
            b=self.b,
            d=self.d,
            max_iter=MAX_ITER,
            **keeps,
            **settings,
        )

    @functools.cached_property
    def _solved(self) -> Any:
        """The model with a dense A where it feeds back and is small: solvers for a dense A need far fewer steps at
        norms near 1."""
        if self.feedback == "strict_upper" or self.A.shape[0] > DENSE_UP_TO:
            return self.model
        return self._build(self.A.toarray(), tol=1e-9)

    def predict(self, U: Any, batch_size: int = 1024) -> Float[np.ndarray, "N q"]:
        """Outputs of the model for inputs of any floating dtype, (N, ...) torch or NumPy."""
        U = torch.as_tensor(np.asarray(U.detach().cpu() if isinstance(U, torch.Tensor) else U)).flatten(1)
        with torch.no_grad():
            return torch.cat([self._solved(u.double()) for u in U.split(batch_size)]).numpy()

    @property
    def nnz(self) -> int:
        """||M||_0: non-zero entries of A, B, C, D, b, d."""
        return sum(M.nnz for M in (self.A, self.B, self.C, self.D)) + int(
            np.count_nonzero(self.b) + np.count_nonzero(self.d)
        )

    @property
    def full_matrix(self) -> int:
        """Entries of A, B, C, D, b, d, zero or not."""
        return sum(int(np.prod(M.shape)) for M in (self.A, self.B, self.C, self.D)) + self.b.size + self.d.size

    @property
    def sparsity_of_parameters(self) -> float:
        """1 - ||M||_0 / ||N||_0, the papers' count: non-zero parameters of the network behind the states; negative if
        the model has more.

        Raises:
            ValueError: if no network is known.

        Source:
            SIM paper, section 4.1.
        """
        return 1 - self.nnz / nonzero_parameters(self._network())

    @property
    def sparsity_of_entries(self) -> float:
        """1 - ||M||_0 / non-zero entries of the network written as an implicit model (a convolution counts once per
        position).

        Raises:
            ValueError: if no network is known.
        """
        from implicit_models.sim.network.teacher import teacher_matrices

        self._network()
        t = teacher_matrices(self.states)
        return 1 - self.nnz / (sum(M.nnz for M in t[:4]) + int(np.count_nonzero(t.b)) + int(np.count_nonzero(t.d)))

    @property
    def sparsity_of_full_matrix(self) -> float:
        """1 - ||M||_0 / size of (A B b; C D d)."""
        return 1 - self.nnz / self.full_matrix

    def _network(self) -> nn.Module:
        if self.states.network is None:
            raise ValueError("these states come from matrices: no network is known whose parameters to compare with")
        return self.states.network

    @functools.cached_property
    def row_norms(self) -> Float[np.ndarray, " n"]:
        """sum_j s_j |a_ij| / s_i at most kappa."""
        s = self.scale.s
        return (abs(self.A) @ s) / s

    @functools.cached_property
    def matching(self) -> Float[np.ndarray, " r"]:
        """||M a - z|| / ||z|| of every row on the states it was fitted to; 0 where both vanish."""
        out = np.zeros((2, len(self.status)))
        X, U, step = self.states.X, self.states.U, 4096
        for at in range(0, X.shape[0], step):
            x, u = np.asarray(X[at : at + step], dtype=np.float64), np.asarray(U[at : at + step], dtype=np.float64)
            rows = [(self.A @ x.T + self.B @ u.T).T, (self.C @ x.T + self.D @ u.T).T]
            found = np.hstack([r + v for r, v in zip(rows, (self.b, self.d), strict=True)])
            wanted = np.hstack([self.states.Z[at : at + step], self.states.Y[at : at + step]]).astype(np.float64)
            out[0] += ((found - wanted) ** 2).sum(0)
            out[1] += (wanted**2).sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):  # 0/0 of a row that is zero
            return np.where((out == 0).all(0), 0.0, np.sqrt(out[0] / out[1]))

    def report(self) -> str:
        """What was fitted, how well, how sparse, and what certifies it; a few lines of text."""
        names, counts = np.unique(self.status, return_counts=True)
        n, match = self.A.shape[0], self.matching
        statuses = ", ".join(f"{c} {s}" for s, c in zip(names, counts, strict=True))
        found = {**terms(self.objective), **terms(self.matched)}
        weights = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
        lines = [
            (
                f"objective {self.objective.name} ({weights}), kappa {self.kappa:g}, feedback {self.feedback},"
                f" {self.scale.description}"
            ),
            f"{n} state rows, {len(self.status) - n} output rows: {statuses}",
            f"non-zeros {self.nnz} of {self.full_matrix} ({100 * self.sparsity_of_full_matrix:.1f} % zero)",
            (
                f"relative mismatch: states median {np.median(match[:n]):.3g}, largest {match[:n].max():.3g}; "
                f"outputs median {np.median(match[n:]):.3g}"
            ),
            f"largest row norm {self.row_norms.max():.6g}, largest gap {np.nanmax(self.gap, initial=0.0):.3g}",
        ]
        if self.states.network is not None:
            shares = self.sparsity_of_parameters, self.sparsity_of_entries
            lines.insert(3, f"sparsity of parameters {100 * shares[0]:.1f} %, of entries {100 * shares[1]:.1f} %")
        if not np.isnan(self.row_norms).any():
            certified = self.model.certificate()
            lines.append(f"well-posed: {certified.kind}, margin {certified.margin:.3g}")
        seconds = ", ".join(f"{k} {v:.3g}" for k, v in self.timing.items())
        lines.append(f"seconds: {seconds} ({self.run.backend}, {self.run.workers} workers)")
        return "\n".join(lines)


def original_units(rows: Float[np.ndarray, "r d"], problem: RowProblem, s: Float[np.ndarray, " n"]) -> tuple[Any, ...]:
    """A, B, C, D, b, d of rows that were solved in the units s: A = S A' S^-1, B = S B', b = S b', C = C' S^-1.

    Raises:
        ValueError: naming a row whose weights leave the range of float64 on the way.
    """
    n, p = problem.n_states, problem.n_inputs
    stored = sp.csr_array(rows)
    with np.errstate(over="ignore", under="ignore"):
        row = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
        data = stored.data * (problem.row_scale(s)[row] / problem.column_scale(s)[stored.indices])
    lost = np.isfinite(stored.data) & ((data == 0) | ~np.isfinite(data))
    if lost.any():
        first, span = row[np.flatnonzero(lost)[0]], f"{s.min():.3g} to {s.max():.3g}"
        raise ValueError(f"row {first} leaves the range of float64 in the original units: the scale spans {span}")
    whole = sp.csr_array((data, stored.indices, stored.indptr), stored.shape)
    A, B, C, D = whole[:n, :n], whole[:n, n : n + p], whole[n:, :n], whole[n:, n : n + p]
    bias = whole[:, n + p :].toarray()[:, 0]
    return A, B, C, D, bias[:n].copy(), bias[n:].copy()
