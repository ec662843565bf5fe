"""Picks from the catalogues that obspy reads: QuakeML, ISF (IMS1.0) and PDE (mchedr).

Back-azimuths are taken only where they were measured. A PDE bulletin has none: obspy fills the field with the azimuth
at the source minus 180 degrees, which follows from the catalogue's own location; and an ISF bulletin prints a computed
angle beside measured ones, which are those with a residual or the flag that they define the location.

A phase is what the preferred origin's arrival says; the pick's own is tentative (QuakeML) and stands where there is no
arrival.
"""

from __future__ import annotations

import glob
import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from implicit_models.seismology.picks.pick import Pick


def read_catalogue(path: Path) -> list[Pick]:
    """Picks of every event of a catalogue; `row` is the number of the pick in its event.

    Raises:
        ImportError: obspy is not installed.
        ValueError: obspy cannot read the file; a standard deviation is not positive, with event and pick.
    """
    try:
        from obspy import read_events
        from obspy.io.pde.mchedr import _is_mchedr
    except ImportError as error:
        raise ImportError(f"reading {path} needs obspy (the [seismology] extra); CSV does not") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on fields that no pick has
            catalogue = read_events(glob.escape(str(path)))
    except Exception as error:  # obspy's readers raise whatever their parser does
        raise ValueError(
            f"{path} is neither CSV (by its name) nor a catalogue that obspy reads: {type(error).__name__}: {error}"
        ) from error
    measured, picks = not _is_mchedr(str(path)), []
    for name, event in zip(_event_names(catalogue), catalogue, strict=True):
        own = _event_picks(event, name, measured, path)
        if not own:
            warnings.warn(f"{path}: event {name} has no picks", stacklevel=3)
        picks += own
    return picks


def _event_picks(event: Any, name: str, measured: bool, path: Path) -> list[Pick]:
    origin = event.preferred_origin() or (event.origins[0] if event.origins else None)
    arrivals = {str(a.pick_id.id): a for a in (origin.arrivals if origin else ()) if a.pick_id}
    picks = []
    for row, source in enumerate(event.picks, start=1):
        where = f"{path}, event {name}, row {row}"
        arrival = arrivals.get(str(source.resource_id.id))
        stream = source.waveform_id
        station = (stream.station_code or "").strip() if stream else ""
        network = (stream.network_code or "").strip() if stream else ""
        pick = Pick(
            event=name,
            station=f"{network}.{station}" if network and station else station,
            p_time=source.time.timestamp if source.time else math.nan,
            phase=((arrival.phase if arrival else "") or source.phase_hint or "").strip(),
            row=row,
            sigma_s=_uncertainty(source.time_errors, "sigma_s", where),
        )
        if not station:
            pick.flag = "the pick has no station"
        elif not source.time:
            pick.flag = "the pick has no time"
        elif source.evaluation_status == "rejected":
            pick.flag = "the catalogue rejects the pick"
        sigma_baz = _uncertainty(source.backazimuth_errors, "sigma_baz", where)
        if measured and source.backazimuth is not None and _is_measured(source, arrival, sigma_baz):
            pick.baz, pick.sigma_baz = float(source.backazimuth) % 360, sigma_baz
        picks.append(pick)
    return picks


def _event_names(catalogue: Any) -> list[str]:
    """The last part of every event's identifier where no other event has the same; otherwise all of it, or the event's
    number."""
    whole = [str(event.resource_id.id) if event.resource_id else "" for event in catalogue]
    short = [name.rpartition("/")[2] for name in whole]
    alike, names = (Counter(some) for some in (short, whole))
    return [
        last if last and alike[last] == 1 else name if name and names[name] == 1 else f"{last or 'event'} ({number})"
        for number, (last, name) in enumerate(zip(short, whole, strict=True), start=1)
    ]


def _is_measured(source: Any, arrival: Any, sigma_baz: float) -> bool:
    if arrival is None or not math.isnan(sigma_baz):
        return True
    return arrival.backazimuth_residual is not None or bool(arrival.backazimuth_weight)


def _uncertainty(errors: Any, name: str, where: str) -> float:
    """Standard deviation; NaN if there is none, or 0 or NaN, which catalogues write for none."""
    value = errors.uncertainty if errors else None
    if not value or math.isnan(value):
        return math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{where}: {name} = {value:g} must be positive")
    return float(value)
