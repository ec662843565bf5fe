"""Compile the numba kernels for both precisions, once, and leave them in numba's disk cache.

    python -m implicit_models.equilibrium.compile_kernels

`make` runs it during set-up, so that no notebook or test pays for compilation.
"""

from __future__ import annotations

import sys
import time


def main() -> int:
    """Compile every kernel; prints the seconds when it took any."""
    start = time.perf_counter()
    from implicit_models.equilibrium import gauss_seidel, newton, recurrence

    gauss_seidel.warm_up()
    newton.warm_up()
    recurrence.warm_up()
    seconds = time.perf_counter() - start
    print(f"equilibrium kernels ready ({seconds:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
