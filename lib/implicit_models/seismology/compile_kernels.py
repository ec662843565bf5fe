"""Compile the travel-time and geodesy kernels once and leave them in numba's disk cache.

    python -m implicit_models.seismology.compile_kernels

`make` runs it during set-up, so that no notebook or test pays for compilation. The table of travel times itself is built on
first use, within seconds, and kept in the cache folder.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> int:
    """Run every kernel on a toy problem; prints the seconds."""
    start = time.perf_counter()
    from implicit_models.seismology import geodesy, ray_branches, table_kernels

    geodesy.destination(0.0, 0.0, 1.0, 0.0)
    geodesy.distance_azimuths(0.0, 0.0, 1.0, 1.0)
    # One layer of constant velocity 5.8 km/s and one below it, without obspy.
    top, bottom = np.array([6371.0, 6351.0]), np.array([6351.0, 6331.0])
    medium = ray_branches.layered(6371.0, top, bottom, top / np.array([5.8, 6.5]), bottom / np.array([5.8, 6.5]))
    ray_branches.branch_times(medium, 10.0, np.radians([0.0, 0.25]), above=False)
    grid, first = np.array([0.0, 1.0, 0.0, 0.25]), np.full((1, 1), -1, np.int32)
    tables = (grid, np.ones((2, 2, 3)), first, np.zeros((0, 4, 3)), np.full(2, 90.0))
    table_kernels.lookup_many(tables, np.zeros(1), np.zeros(1), True, *np.empty((3, 1)))
    print(f"travel-time kernels ready ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
