"""Picks from the catalogues that obspy reads: QuakeML, ISF (IMS1.0) and PDE (mchedr).

Back-azimuths are taken only where they were measured. A PDE bulletin has none: obspy fills the field with the azimuth at the source
minus 180 degrees, which follows from the catalogue's own location; and an ISF bulletin prints a computed angle beside measured ones,
which are those with a residual or the flag that they define the location.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

from implicit_models.seismology.picks import Pick


def read_catalogue(path: Path) -> list[Pick]:
    """Picks of every event of a catalogue; `row` is the number of the pick in its event.

    Raises:
        ImportError: obspy is not installed.
        ValueError: obspy cannot read the file.
    """
    try:
        from obspy import read_events
        from obspy.io.pde.mchedr import _is_mchedr
    except ImportError as error:
        raise ImportError(f"reading {path} needs obspy (the [seismology] extra); CSV does not") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on fields that no pick has
            catalogue = read_events(str(path))
    except Exception as error:  # obspy's readers raise whatever their parser does
        raise ValueError(f"{path} is neither CSV (by its name) nor a catalogue that obspy reads: {type(error).__name__}: {error}") from error
    measured, picks = not _is_mchedr(str(path)), []
    for number, event in enumerate(catalogue, start=1):
        own = _event_picks(event, number, measured)
        if not own:
            warnings.warn(f"{path}: event {_event_name(event, number)} has no picks", stacklevel=3)
        picks += own
    return picks


def _event_picks(event: Any, number: int, measured: bool) -> list[Pick]:
    name = _event_name(event, number)
    origin = event.preferred_origin() or (event.origins[0] if event.origins else None)
    arrivals = {str(a.pick_id.id): a for a in (origin.arrivals if origin else ()) if a.pick_id}
    picks = []
    for row, source in enumerate(event.picks, start=1):
        arrival = arrivals.get(str(source.resource_id.id))
        stream = source.waveform_id
        station = (stream.station_code or "").strip() if stream else ""
        network = (stream.network_code or "").strip() if stream else ""
        pick = Pick(
            event=name,
            station=f"{network}.{station}" if network and station else station,
            p_time=source.time.timestamp,
            phase=(source.phase_hint or (arrival.phase if arrival else "") or "").strip(),
            row=row,
            sigma_s=_uncertainty(source.time_errors),
        )
        if not station:
            pick.flag = "the pick has no station"
        if measured and source.backazimuth is not None and _is_measured(source, arrival):
            pick.baz, pick.sigma_baz = float(source.backazimuth) % 360, _uncertainty(source.backazimuth_errors)
        picks.append(pick)
    return picks


def _event_name(event: Any, number: int) -> str:
    return str(event.resource_id.id).rpartition("/")[2] if event.resource_id else str(number)


def _is_measured(source: Any, arrival: Any) -> bool:
    if arrival is None or not math.isnan(_uncertainty(source.backazimuth_errors)):
        return True
    return arrival.backazimuth_residual is not None or bool(arrival.backazimuth_weight)


def _uncertainty(errors: Any) -> float:
    value = errors.uncertainty if errors else None
    return float(value) if value else math.nan
