"""One small call of every kernel of this folder, which compiles it.

The table of travel times itself is built on first use, within seconds, and kept in the cache folder.
"""

from __future__ import annotations

import numpy as np


def call_all() -> None:
    """Trace rays in two layers and locate one event."""
    from implicit_models.seismology import geodesy
    from implicit_models.seismology.table import depth_phases, ray_branches
    from implicit_models.seismology.table import kernels as table_kernels

    geodesy.destination(0.0, 0.0, 1.0, 0.0)
    geodesy.distance_azimuths(0.0, 0.0, 1.0, 1.0)
    # One layer of constant velocity 5.8 km/s and one below it, without obspy.
    top, bottom = np.array([6371.0, 6351.0]), np.array([6351.0, 6331.0])
    medium = ray_branches.layered(6371.0, top, bottom, top / np.array([5.8, 6.5]), bottom / np.array([5.8, 6.5]))
    ray_branches.branch_times(medium, 10.0, np.radians([0.0, 0.25]), above=False)
    depth_phases.reflected_times(medium, medium, 10.0, np.radians([0.0, 0.25]), above=False)
    grid, first = np.array([0.0, 1.0, 0.0, 0.25]), np.full((1, 1), -1, np.int32)
    tables = (grid, np.ones((2, 2, 3)), first, np.zeros((0, 4, 3)), np.full(2, 90.0))
    table_kernels.lookup_many(tables, np.zeros(1), np.zeros(1), True, *np.empty((3, 1)))
    _locate()


def _locate() -> None:
    """One event with an outlier, in an Earth of 10 km/s."""
    from implicit_models.seismology.event_data import Arrivals
    from implicit_models.seismology.geiger.events import locate_events
    from implicit_models.seismology.table.travel_times import PTable

    depths, dist = np.linspace(0.0, 700.0, 8), np.linspace(0.0, 180.0, 181)
    r, angle = 6371.0 - depths[:, None], np.radians(dist)
    chord = np.sqrt(6371.0**2 + r**2 - 2 * 6371.0 * r * np.cos(angle))
    slopes = 6371.0 * r * np.sin(angle) * np.radians(1.0), 6371.0 * np.cos(angle) - r
    nodes = np.stack([chord, *(slope / np.maximum(chord, 1e-9) for slope in slopes)], axis=-1) / 10
    cells = np.full((7, 180), -1, np.int32)
    arrays = (np.array([0.0, 100.0, 0.0, 1.0]), nodes, cells, np.zeros((0, 4, 3)), np.full(8, 180.0))
    toy = PTable(nodes[:, :, 0].copy(), depths, dist, arrays[4], "diffracted", "toy", arrays)
    lat, lon = np.array([[3.0, -2.0, 1.0, 5.0, -4.0, 0.0, 6.0]]), np.array([[4.0, 3.0, -5.0, -3.0, 1.0, 8.0, 7.0]])
    angle = np.degrees(np.arccos(np.cos(np.radians(lat)) * np.cos(np.radians(lon))))
    time = toy.lookup(100.0, angle)[0] + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 60.0])
    locate_events(Arrivals(lat, lon, time), table=toy, geographic=False)
