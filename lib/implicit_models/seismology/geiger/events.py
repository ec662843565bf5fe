"""Location of many events at once by Geiger's method.

    min over epicentre, depth, t0 of  sum_i (t_i - t0 - T(z, Delta_i))^2 / (sigma_i^2 + model_error^2) + the same of
    back-azimuths

from a grid of starts an event (`geiger.starts`), with outliers set aside (`outliers`) and the covariance of
`uncertainty`. T is the table's first P; a pick that turns out to lie beyond the end of the direct P is refused as P and
left out.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.event_data import event_data
from implicit_models.seismology.geiger.fit import Fit
from implicit_models.seismology.locations import Locations
from implicit_models.seismology.table.travel_times import PTable, build_p_table

DEPTH_BOUNDS = (0.0, 700.0)
STARTS = 8


def locate_events(
    lat: Float[np.ndarray, "N S"],
    lon: Float[np.ndarray, "N S"],
    time: Float[np.ndarray, "N S"],
    sigma_s: float | Float[np.ndarray, "N S"] = 0.5,
    *,
    elev_m: float | Float[np.ndarray, "N S"] = 0.0,
    baz: Float[np.ndarray, "N S"] | None = None,
    sigma_baz: float | Float[np.ndarray, "N S"] = 10.0,
    table: PTable | None = None,
    model_error_s: float = 0.0,
    model_range_deg: float = 0.0,
    prior_dof: float = math.inf,
    outliers: bool = True,
    depth_bounds: tuple[float, float] = DEPTH_BOUNDS,
    fixed_depth_km: float | None = None,
    default_depth_km: float = 10.0,
    geographic: bool = True,
    starts: int = STARTS,
) -> Locations:
    """Locate N events.

    Args:
        lat, lon: (N, S) of the stations, degrees.
        time: (N, S) P picks in s on any clock; NaN where a station has none.
        sigma_s: standard deviation of the picks in s, a number or one a pick.
        elev_m: of the stations in m; the picks are brought to sea level by elevation / 5.8 km/s.
        baz: (N, S) back-azimuths in degrees (at the station, clockwise from north); NaN where there is none. They count
            only where there is a pick.
        sigma_baz: their standard deviation in degrees.
        table: from `build_p_table`; None: the default Ak135 table.
        model_error_s: standard deviation of what the Earth model does not know, added in quadrature.
        model_range_deg: distance of stations over which the model's errors are alike, for the covariance; 0:
            independent.
        prior_dof: K of `uncertainty`; inf: the standard deviations are taken at their word.
        outliers: whether picks that do not fit are set aside, where an event has at least six.
        depth_bounds: km, within 0..700; below the table's last depth T is continued linearly, and flagged.
        fixed_depth_km: a depth for all events.
        default_depth_km: where three data are too few for a depth.
        geographic: latitudes are geographic, and so are those returned; False: on the sphere.
        starts: descents an event.

    Returns:
        Locations.

    Raises:
        ValueError: shapes that differ; values outside their ranges, with event and station; bounds that the table does
            not allow.

    Source:
        Geiger (1912); Ak135, Kennett, Engdahl & Buland (1995).
    """
    table = build_p_table() if table is None else table
    data = event_data(lat, lon, time, sigma_s, elev_m, baz, sigma_baz, model_error_s, geographic)
    low, high = _bounds(depth_bounds, fixed_depth_km, default_depth_km, table)
    if not prior_dof >= 0:
        raise ValueError(f"prior_dof must be 0 or more, got {prior_dof}")
    if not 0 <= model_range_deg < math.inf:
        raise ValueError(f"model_range_deg must be 0 or more, got {model_range_deg}")
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise ValueError(f"starts must be a whole number of at least 1, got {starts!r}")
    fit = Fit(data, table, low, high, fixed_depth_km, default_depth_km, starts, model_error_s, model_range_deg)
    everything = np.arange(data.n_events)
    fit.solve(everything)
    fit.leave_out(outliers)
    return fit.finished(prior_dof, geographic)


def _bounds(depth_bounds, fixed, default, table: PTable) -> tuple[float, float]:
    low, high = (float(value) for value in depth_bounds)
    if not DEPTH_BOUNDS[0] <= low < high <= DEPTH_BOUNDS[1]:
        raise ValueError(
            f"depth_bounds must be two depths in {DEPTH_BOUNDS[0]:g}..{DEPTH_BOUNDS[1]:g} km in order, got"
            f" {depth_bounds}"
        )
    for name, value in (("fixed_depth_km", fixed), ("default_depth_km", default)):
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name} = {value} lies outside depth_bounds = {depth_bounds}")
    depths, dist = table.depths_km, table.dist_deg
    if depths[0] > low or depths[-1] < min(high, 690.0) or dist[0] > 0 or dist[-1] < 180:
        raise ValueError(
            f"depths {low:g}..{high:g} km need a table of these depths (the last 10 km may lack) and 0..180 degrees;"
            f" this one has {depths[0]:g}..{depths[-1]:g} km and {dist[0]:g}..{dist[-1]:g} degrees"
        )
    return low, high
