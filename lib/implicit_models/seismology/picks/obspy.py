"""Picks from the catalogues that obspy reads: ISF (IMS1.0), PDE (mchedr), GSE2, Nordic, HypoDD, NonLinLoc, SeisComP.

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
from pathlib import Path
from typing import Any

from implicit_models.seismology.picks.catalogue_rows import event_names, no_weight, standard_deviation
from implicit_models.seismology.picks.pick import Pick


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
            catalogue = read_events(glob.escape(str(path)))
    except Exception as error:  # obspy's readers raise whatever their parser does
        raise ValueError(
            f"{path} is neither CSV (by its name), QuakeML, NonLinLoc's or HYPO71's, nor a catalogue that obspy reads:"
            f" {type(error).__name__}: {error}"
        ) from error
    measured, picks = not _is_mchedr(str(path)), []
    names = event_names([str(event.resource_id.id) if event.resource_id else "" for event in catalogue])
    for name, event in zip(names, catalogue, strict=True):
        own = _event_picks(event, name, measured)
        if not own:
            warnings.warn(f"{path}: event {name} has no picks", stacklevel=3)
        picks += own
    return picks


def _event_picks(event: Any, name: str, measured: bool) -> list[Pick]:
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
            p_time=source.time.timestamp if source.time else math.nan,
            phase=((arrival.phase if arrival else "") or source.phase_hint or "").strip(),
            row=row,
            sigma_s=standard_deviation(source.time_errors.uncertainty if source.time_errors else None),
        )
        if not station:
            pick.flag = "the pick has no station"
        elif not source.time:
            pick.flag = "the pick has no time"
        elif source.evaluation_status == "rejected":
            pick.flag = "the catalogue rejects the pick"
        elif excluded := _excluded(source, arrival):
            pick.flag = no_weight(excluded)
        sigma_baz = standard_deviation(source.backazimuth_errors.uncertainty if source.backazimuth_errors else None)
        if measured and source.backazimuth is not None and _is_measured(source, arrival, sigma_baz):
            pick.baz, pick.sigma_baz = float(source.backazimuth) % 360, sigma_baz
        picks.append(pick)
    return picks


def _excluded(source: Any, arrival: Any) -> str:
    """The weight of a pick that counts nothing: 4 and more of SEISAN's codes, 0 of an arrival; otherwise empty."""
    code = str(source.get("extra", {}).get("nordic_pick_weight", {}).get("value", ""))
    if code in ("4", "9"):
        return code
    return "0" if arrival is not None and arrival.time_weight == 0 else ""


def _is_measured(source: Any, arrival: Any, sigma_baz: float) -> bool:
    if arrival is None or not math.isnan(sigma_baz):
        return True
    return arrival.backazimuth_residual is not None or bool(arrival.backazimuth_weight)
