"""Rows that all positions of a block share: sparse kernels, fitted to every sample at every position.

The problem is the row problem of position_rows with P m samples: one Gram matrix a block (`shared_problem`).

Source:
    Tsai thesis (2024), section 3.3, for the rows; a convolution's weights are those of its kernel.
"""

from __future__ import annotations

import numpy as np

from implicit_models.sim.network.position_rows import BlockRows
from implicit_models.sim.network.shared_problem import SharedProblem
from implicit_models.sim.parallel.report import RunReport
from implicit_models.sim.solvers.budget import Budget, explained_by, refit_all, solve_position


def solve_shared(
    problem: SharedProblem, budget: Budget, *, ridge: float, rtol: float, atol: float, cap: int | None
) -> BlockRows:
    """Kernels of a block. Args: as `solve_block`."""
    G, C, zz = problem.G, problem.C, problem.zz
    r = len(zz)
    A, gap, violation, reason = solve_position(
        G, C, zz, problem.count, budget, np.ones(r), rtol=rtol, atol=atol, cap=cap
    )
    B, seen, seen_refit = np.zeros_like(A), np.empty(A.shape[:2]), np.empty(A.shape[:2])
    explained_by(G, C, A, seen)
    refit_all(G, C, A, ridge, B, seen_refit)
    safe = np.where(zz > 0, zz, 1.0)[:, None]
    pointer, column, l1, refit = [], [], [], []
    for t in range(len(budget)):
        i, j = np.nonzero(A[:, t])
        pointer.append(np.concatenate([[0], np.cumsum(np.bincount(i, minlength=r))]))
        column.append(j.astype(np.int32))
        l1.append(A[i, t, j])
        refit.append(B[i, t, j])
    share = lambda s: np.where(zz[:, None] > 0, s / safe, 1.0)
    return BlockRows(
        pointer,
        column,
        l1,
        refit,
        gap / (0.5 * safe),
        share(seen),
        share(seen_refit),
        violation,
        reason,
        RunReport("serial", 1),
    )
