"""Compile the row kernels once and leave them in numba's disk cache.

    python -m implicit_models.sim.compile_kernels

`make` runs it during set-up, so that no notebook or test pays for compilation.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> int:
    """Run every kernel on a toy problem; prints the seconds."""
    start = time.perf_counter()
    from implicit_models.sim.bisection import solve_on_path
    from implicit_models.sim.budget_rows import kappa
    from implicit_models.sim.column_store import Columns
    from implicit_models.sim.path import path_rows
    from implicit_models.sim.perspective import solve_perspective_rows
    from implicit_models.sim.perspective_fista import fista_rows
    from implicit_models.sim.position_rows import solve_block
    from implicit_models.sim.working_rows import solve_working

    G, C, zz = np.eye(3), np.ones((1, 3)), np.ones(1)
    part = np.array([True, True, False])
    path_rows(G, C, zz, kappas=[0.5])
    path_rows(G, C, zz, kappas=[0.5], ball_mask=part, beta=0.1)
    solve_perspective_rows(G, C, zz, alpha=0.1, eta=0.001, kappa=5.0)  # beyond the knee
    fista_rows(G, C, 0.1, 0.1, np.array([0.5]), np.ones(3, bool), 1.0, np.zeros((1, 3)), np.zeros(1), 1)
    solve_on_path(G, C[0], 3.0, kappa=0.5)
    radius, budget, options = (
        np.ones((1, 1)),
        kappa(0.5),
        {"ridge": 0.1, "rtol": 1e-9, "atol": 1e-9, "cap": None, "backend": "serial", "workers": 1},
    )
    solve_working(Columns.of(np.eye(3)), np.ones((1, 1, 3)), radius, budget, **options)
    solve_block(np.eye(3), np.array([0, 3]), np.zeros((1, 1), np.int64), np.ones((1, 1, 3)), radius, budget, **options)
    print(f"row kernels ready ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
