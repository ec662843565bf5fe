"""Sparse models of a trained network's states: the thesis' row problems over a sweep of radii, and its lasso control.

Algorithm 2 of the thesis fits the rows of (A, B) only, with a := (a, b) in one ball. The outputs keep the network's own
last layer, which solves the output problem (3.5) without error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from implicit_models.model import ImplicitModel
from implicit_models.sim.fit import first_columns
from implicit_models.sim.network.normal_equations import row_problem
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States
from implicit_models.sim.network.teacher import teacher_matrices
from implicit_models.sim.result import DONE, original_units
from implicit_models.sim.solvers.rows import path_rows
from reproduction.core.pruning import lasso_rows


@dataclass(frozen=True)
class SparseModel:
    """A sparse implicit model and what was counted of it.

    Args:
        model: in the network's units, with the network's own read-out.
        states_nnz: non-zero entries of A, B, b.
        feedback_nnz: of A alone.
        own_nnz: of the diagonal of A: states that feed themselves.
        nnz: of all matrices and vectors, the read-out's included: the papers' ||M||_0.
        failed: rows without a certified solution.
        matching: (n,) share of each state's variance that its row explains, R^2 with the network's states as inputs.
    """

    model: ImplicitModel
    states_nnz: int
    feedback_nnz: int
    own_nnz: int
    nnz: int
    failed: int
    matching: Float[np.ndarray, " n"]


def radius_sweep(
    found: States, kappas: Sequence[float], *, scale: Any = "uniform", feedback: str = "full", ball: str = "row"
) -> dict[float, SparseModel]:
    """Rows of (A, B) inside balls of several radii, least squares otherwise; one pass over the path for all radii.

    Mathematics: min 1/2 ||A' x' + B' u + b - z'||^2 subject to ||(a', b')||_1 <= kappa for each row, in the units of
    `scale`; the bias is free.

    Args:
        found: states of a network.
        kappas: radii, any order.
        scale: see `implicit_models.sim.network.scaling.scale_of`; the papers print "uniform".
        feedback: "full", every state may explain every state; "strict_upper", only those of earlier layers.
        ball: "row", A' and B' (thesis); "state", A' only (SIM paper).

    Returns:
        kappa -> SparseModel.

    Raises:
        ValueError: as `path_rows`.

    Source:
        Tsai thesis (2024), (3.4), (3.7) and Algorithm 2.
    """
    problem = row_problem(found)
    units = scale_of(found, scale)
    scaled, mask, first = problem.scaled(units.s), problem.in_ball(ball), first_columns(found, feedback)
    n, d = found.n_states, len(mask)
    rows = {kappa: np.zeros((n, d)) for kappa in kappas}
    failed = dict.fromkeys(kappas, 0)
    for start in np.unique(first[:n]):
        own = np.flatnonzero(first[:n] == start)
        G = np.ascontiguousarray(scaled.G[start:, start:])
        C = np.ascontiguousarray(scaled.C[own, start:])
        path = path_rows(G, C, scaled.zz[own], kappas=np.asarray(kappas), ball_mask=mask[start:])
        for kappa in kappas:
            at = path.at(kappa)
            rows[kappa][own, start:] = at.A
            failed[kappa] += int((~np.isin(at.status, DONE)).sum())
    return {kappa: sparse_model(found, rows[kappa], units.s, failed[kappa]) for kappa in kappas}


def lasso_sweep(found: States, shares: Sequence[float], *, scale: Any = "std") -> dict[float, SparseModel]:
    """The control without a ball: lasso of every state on the layer below it, a sparse network of the same layers.

    Args:
        found: states of a layered network.
        shares: penalty of a row as a share of its largest, at which all coefficients are zero.
        scale: units of the states, which an l1 penalty depends on.

    Returns:
        share -> SparseModel, its A strictly block triangular.
    """
    problem = row_problem(found)
    units = scale_of(found, scale)
    scaled = problem.scaled(units.s)
    n, d = found.n_states, len(problem.G)
    rows = {share: np.zeros((n, d)) for share in shares}
    for k, block in enumerate(found.blocks):
        below = found.blocks[k + 1].states if k + 1 < len(found.blocks) else slice(n, n + problem.n_inputs)
        columns = np.zeros(d, bool)
        columns[below] = columns[-1] = True
        own = block.states
        # The largest correlation with a centred column: the bias is penalised too, but hardly.
        mean = scaled.G[-1, columns][None, :-1] * (scaled.C[own, -1:] / scaled.G[-1, -1])
        largest = np.abs(scaled.C[own][:, columns][:, :-1] - mean).max(axis=1)
        for share in shares:
            rows[share][own] = lasso_rows(
                scaled.G, scaled.C[own], scaled.zz[own], beta=share * largest, columns=columns
            )
    return {share: sparse_model(found, rows[share], units.s, 0) for share in shares}


def sparse_model(found: States, rows: Float[np.ndarray, "n d"], s: Float[np.ndarray, " n"], failed: int) -> SparseModel:
    """Implicit model of state rows (n, d) that were solved in the units s, with the network's own read-out."""
    problem, teacher = row_problem(found), teacher_matrices(found)
    n = found.n_states
    head = np.hstack([teacher.C.toarray() * s, teacher.D.toarray(), teacher.d[:, None]])
    A, B, C, D, b, d = original_units(np.vstack([rows, head]), problem, s)
    # Dense: a hundred states. At kappa = .99 Picard gains a hundredth a step; a model that does not converge is an
    # error.
    matrices = (M.toarray() for M in (A, B, C, D))
    model = ImplicitModel.from_matrices(*matrices, found.activation, b=b, d=d, on_failure="raise", max_iter=5000)
    states_nnz = A.nnz + B.nnz + int(np.count_nonzero(b))
    # R^2 from the normal equations, about the mean.
    full = np.hstack([A.toarray(), B.toarray(), b[:, None]])
    total = problem.zz[:n] - problem.C[:n, -1] ** 2 / problem.n_samples
    left = problem.zz[:n] - 2 * (full * problem.C[:n]).sum(axis=1) + ((full @ problem.G) * full).sum(axis=1)
    matching = 1 - np.divide(left, total, out=np.zeros(n), where=total > 1e-12 * problem.zz[:n])
    return SparseModel(
        model,
        states_nnz,
        A.nnz,
        int(np.count_nonzero(A.diagonal())),
        states_nnz + C.nnz + D.nnz + int(np.count_nonzero(d)),
        failed,
        matching,
    )


@torch.no_grad()
def own_states(
    model: ImplicitModel, u: Float[np.ndarray, "N p"], *, batch_size: int = 2000
) -> Float[np.ndarray, "N n"]:
    """Equilibria of a model, (N, n)."""
    return np.vstack([model.equilibrium(part).x.numpy() for part in torch.as_tensor(u).double().split(batch_size)])


def refit_head(
    model: ImplicitModel,
    u: Float[np.ndarray, "N p"],
    y: Float[np.ndarray, "N q"],
    u_test: Float[np.ndarray, "M p"],
    *,
    ridge: float = 1e-6,
) -> Float[np.ndarray, "M q"]:
    """Outputs for test samples after the read-out (C, d) was fitted anew to the model's own equilibria.

    Mathematics: ridge regression of y on (x, 1), penalty ridge times the number of samples. No label is used: y are the
    network's outputs.
    """
    x, x_test = (np.hstack([own_states(model, part), np.ones((len(part), 1))]) for part in (u, u_test))
    W = np.linalg.solve(x.T @ x + ridge * len(x) * np.eye(x.shape[1]), x.T @ np.asarray(y, dtype=np.float64))
    return x_test @ W


def largest_without_loss(sparsity: Sequence[float], drop: Sequence[float], allowed: float = 0.0) -> float:
    """Largest sparsity of a sweep whose accuracy drop is at most `allowed`; -inf where there is none."""
    fine = [s for s, d in zip(sparsity, drop, strict=True) if d <= allowed]
    return max(fine, default=float("-inf"))


def plateau(shares: Sequence[float], accuracies: Sequence[float], within: float = 0.01) -> float:
    """Smallest share of the data from which on the accuracy stays within `within` of that at the largest share."""
    order = np.argsort(shares)
    share, accuracy = np.asarray(shares)[order], np.asarray(accuracies)[order]
    short = np.flatnonzero(accuracy < accuracy[-1] - within)
    return float(share[short[-1] + 1] if len(short) else share[0])
