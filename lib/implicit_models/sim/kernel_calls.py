"""One small call of every kernel of this folder, which compiles it."""

from __future__ import annotations

from typing import Any

import numpy as np


def call_all() -> None:
    """Solve toy problems of one row."""
    from implicit_models.sim.network.column_store import Columns
    from implicit_models.sim.network.position_rows import solve_block
    from implicit_models.sim.network.working_rows import solve_working
    from implicit_models.sim.parallel.run import SERIAL
    from implicit_models.sim.problem import Cardinality, L1Ball, Tolerance
    from implicit_models.sim.pruning.sparse_convolution import convolve_lines, kernel_rows
    from implicit_models.sim.solvers.best_subset.backward import backward_elimination
    from implicit_models.sim.solvers.best_subset.exchange import exchange
    from implicit_models.sim.solvers.bisection import solve_on_path
    from implicit_models.sim.solvers.fista import fista_rows
    from implicit_models.sim.solvers.gram import Gram
    from implicit_models.sim.solvers.perspective import solve_perspective_rows
    from implicit_models.sim.solvers.refit import one_sided
    from implicit_models.sim.solvers.rows import path_rows

    G, C, zz = np.eye(3), np.ones((1, 3)), np.ones(1)
    part = np.array([True, True, False])
    Gram(np.ones((1, 1)))  # its check
    path_rows(G, C, zz, kappas=np.array([0.5]))
    path_rows(G, C, zz, kappas=np.array([0.5]), ball_mask=part, beta=0.1)
    solve_perspective_rows(G, C, zz, alpha=0.1, eta=0.001, kappa=5.0)  # beyond the knee
    fista_rows(G, C, 0.1, 0.1, np.array([0.5]), np.ones(3, bool), 1.0, np.zeros((1, 3)), np.zeros(1), 1)
    solve_on_path(G, C[0], 3.0, kappa=0.5)
    radius, ball = np.ones((1, 1)), [L1Ball(0.5)]
    options: dict[str, Any] = {"ridge": 0.1, "tolerance": Tolerance(1e-9, 1e-9), "cap": None, "parallel": SERIAL}
    solve_working(Columns.of(np.eye(3)), np.ones((1, 1, 3)), radius, ball, **options)
    rows = np.eye(3), np.array([0, 3]), np.zeros((1, 1), np.int64), np.ones((1, 1, 3)), radius
    for budgets in (ball, [Cardinality(0.5)]):
        solve_block(*rows, budgets, **options)
    backward_elimination(np.eye(3), np.ones((1, 3)))
    exchange(np.eye(3), np.ones((1, 3)), part[None])
    one_sided(np.eye(3), G, np.ones((1, 3)), np.zeros(1), C, C, 0.1)
    x = np.zeros((1, 3, 48), np.float32)  # one point and its margin
    convolve_lines(
        x.reshape(-1), kernel_rows(np.ones((1, 1, 1, 1)), np.zeros(1), (1, 1), 1), False, x, False, x, (1, 1), 1
    )
