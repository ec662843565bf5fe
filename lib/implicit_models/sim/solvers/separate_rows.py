"""Row problems each on a Gram matrix of its own, compiled: the path of `row_solver` and the refit of `budget_rows`, row
after row."""

from __future__ import annotations

import numpy as np

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.budget import refit
from implicit_models.sim.solvers.cholesky import OPTIONS
from implicit_models.sim.solvers.row_kernels import FEW, Found, Problem, solve_chunk


@kernel(**OPTIONS)
def solve_each(G, c, zz, kappas, beta, rtol, slack, a, gap, value, violation):
    """`row_kernels.solve_chunk` of every row: G (b, k, k), c (b, k), zz, kappas, slack (b,) -> a (b, k), gap, value,
    violation (b,)."""
    b, k = c.shape
    multiplier, pieces, why = np.empty((1, 1)), np.empty((1, 1), np.int64), np.empty((1, 1), np.int64)
    kappa, penalty = np.empty((1, 1)), np.full(1, beta)
    A, own_gap, own_value, over = np.empty((1, 1, k)), np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1))
    found = Found(A, multiplier, own_gap, own_value, over, pieces, why)
    for i in range(b):
        kappa[0, 0] = kappas[i]
        A[:], own_gap[:], own_value[:], over[:], why[:] = 0.0, np.nan, 0.0, 0.0, -1
        ball = np.full(k, kappas[i] < np.inf)
        problem = Problem(G[i], c[i : i + 1], zz[i : i + 1], kappa, penalty, ball, 0.0)
        solve_chunk(problem, rtol, slack[i : i + 1], FEW, k + 1, 20 * k + 1000, found)
        gap[i], value[i], violation[i] = own_gap[0, 0], own_value[0, 0], over[0, 0]
        for j in range(k):
            a[i, j] = A[0, 0, j]


@kernel(**OPTIONS)
def refit_each(G, c, a, ridge, again, explained):
    """`budget_rows.refit` of every row: again (b, k), explained (b,)."""
    for i in range(len(c)):
        explained[i] = refit(G[i], c[i], a[i], ridge, again[i])
