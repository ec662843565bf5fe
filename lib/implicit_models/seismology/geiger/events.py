"""Location of many events at once by Geiger's method.

    min over epicentre, depth, t0 of  sum_i (t_i - t0 - T(z, Delta_i))^2 / (sigma_i^2 + model_error^2) + the same of
    back-azimuths

from a grid of starts an event (`geiger.starts`), with outliers set aside (`outliers`) and the covariance of
`uncertainty`. T is that of the pick's phase: the first P, the first S, pP or sP. A pick that turns out to lie where its
phase does not arrive, as beyond the end of the direct P, is refused and left out.
"""

from __future__ import annotations

import math

import numpy as np

from implicit_models.seismology.event_data import Arrivals, BackAzimuths, DepthRange, EventData, ModelError, event_data
from implicit_models.seismology.geiger.fit import Fit
from implicit_models.seismology.locations import Locations
from implicit_models.seismology.table.phases import PHASES, PhaseTable, build_phase_table
from implicit_models.seismology.table.travel_times import PTable, build_p_table

STARTS = 8
WHOLE_RANGE, NO_MODEL_ERROR = DepthRange(), ModelError()


def locate_events(
    arrivals: Arrivals,
    *,
    back_azimuths: BackAzimuths | None = None,
    table: PTable | PhaseTable | None = None,
    depth: DepthRange = WHOLE_RANGE,
    model_error: ModelError = NO_MODEL_ERROR,
    prior_dof: float = math.inf,
    outliers: bool = True,
    geographic: bool = True,
    starts: int = STARTS,
) -> Locations:
    """Locate N events.

    Args:
        arrivals: picks and their stations.
        back_azimuths: measured at some of the stations.
        table: from `build_p_table`, or where there are other phases than P from `build_phase_table`; None: the default
            Ak135 table.
        depth: bounds, or a depth for all events.
        model_error: of the travel times.
        prior_dof: K of `uncertainty`; inf: the standard deviations are taken at their word.
        outliers: whether picks that do not fit are set aside, where an event has at least six.
        geographic: latitudes are geographic, and so are those returned; False: on the sphere.
        starts: descents an event.

    Returns:
        Locations.

    Raises:
        ValueError: shapes that differ; values outside their ranges, with event and station; a table that is too small
            for the depths.

    Source:
        Geiger (1912); Ak135, Kennett, Engdahl & Buland (1995).
    """
    data = event_data(arrivals, back_azimuths, model_error, geographic)
    table = _table_of(data, table)
    _check_table(depth, table)
    if not prior_dof >= 0:
        raise ValueError(f"prior_dof must be 0 or more, got {prior_dof}")
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise ValueError(f"starts must be a whole number of at least 1, got {starts!r}")
    fit = Fit(data, table, depth, model_error, starts)
    everything = np.arange(data.n_events)
    fit.solve(everything)
    fit.leave_out(outliers)
    return fit.finished(prior_dof, geographic)


def _table_of(data: EventData, table: PTable | PhaseTable | None) -> PTable | PhaseTable:
    """The table of the phases that are there; of P alone, P's."""
    if not data.phase.any():
        return build_p_table() if table is None else table.p if isinstance(table, PhaseTable) else table
    if isinstance(table, PTable):
        name = PHASES[int(data.phase.max())]
        raise ValueError(f"the picks have the phase {name}: a table of P has none, build_phase_table() has")
    return build_phase_table() if table is None else table


def _check_table(depth: DepthRange, table: PTable | PhaseTable) -> None:
    (low, high), depths, dist = depth.bounds, table.depths_km, table.dist_deg
    if depths[0] > low or depths[-1] < min(high, 690.0) or dist[0] > 0 or dist[-1] < 180:
        raise ValueError(
            f"depths {low:g}..{high:g} km need a table of these depths (the last 10 km may lack) and 0..180 degrees;"
            f" this one has {depths[0]:g}..{depths[-1]:g} km and {dist[0]:g}..{dist[-1]:g} degrees"
        )
