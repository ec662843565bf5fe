"""Compile the kernels of the dual bounds once and leave them in numba's disk cache.

    python -m implicit_models.robustness.compile_kernels

`make` runs it during set-up, so that no notebook or test pays for compilation.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> int:
    """Run every kernel on a toy problem; prints the seconds."""
    start = time.perf_counter()
    from implicit_models.robustness.bound_methods import bounds
    from implicit_models.robustness.problem import from_matrices

    toy = from_matrices([[0.0, 0.5], [0.5, 0.0]], np.eye(2), [[1.0, -1.0]])
    bounds(toy, np.zeros((1, 2)), eps=1.0, method="dual", splits=2)
    print(f"dual kernels ready ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
