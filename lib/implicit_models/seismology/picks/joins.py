"""What becomes of the picks that were read: their phases, their stations' coordinates, and which of several counts."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np

from implicit_models.seismology.picks.phase_names import phase_of
from implicit_models.seismology.picks.pick import NOT_USED, Pick
from implicit_models.seismology.station_lists import read_stations
from implicit_models.seismology.stations import SAME_PLACE_DEG, AmbiguousStation, Stations, coordinate

FAR_DEG, FAR_TIMES = 10.0, 5.0  # from the others: both
LEAST_SLOWNESS = 4.0  # s/degree; P is nowhere faster than 4.4 before the core


def flag_phases(picks: list[Pick]) -> None:
    """Flag what has no travel times."""
    for pick in picks:
        if not pick.flag and not phase_of(pick.phase):
            pick.flag = (
                f"phase {pick.phase!r} is neither a first P or S nor pP or sP"
                if pick.phase
                else "the pick has no phase"
            )


def join_stations(picks: list[Pick], stations: str | Path | Stations | None, path: Path) -> None:
    """Give coordinates to the picks that have none; flag those whose station is unknown, or is not one station."""
    if isinstance(stations, (str, Path)) and not Path(stations).is_file():
        raise FileNotFoundError(f"no station list at {stations}")
    bare = [pick for pick in picks if math.isnan(pick.lat) or math.isnan(pick.lon)]
    if not bare:
        return
    if not isinstance(stations, Stations):
        try:
            stations = read_stations(stations)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{path}, row {bare[0].row}: station {bare[0].station!r} has no coordinates, and {error}"
            ) from error
    for pick in bare:
        try:
            place, pick.by_code = stations.find(pick.station, pick.p_time)
        except AmbiguousStation as error:
            pick.flag = pick.flag or str(error)
            continue
        if place is None:
            pick.flag = pick.flag or stations.why_not(pick.station, pick.p_time)
            continue
        pick.lat, pick.lon = place.lat, place.lon
        if math.isnan(pick.elev_m):
            pick.elev_m = place.elev_m


def check_places(picks: list[Pick], path: Path, on_failure: str) -> None:
    """Elevation 0 where the file has none; one place a station.

    Raises:
        ValueError: coordinates out of range, or two places for one station of an event, with the rows; unless
            `on_failure` is "raise" all picks of the event are flagged instead.
    """
    first: dict[tuple[str, str], Pick] = {}
    bad: dict[str, str] = {}
    for pick in picks:
        if math.isnan(pick.lat) or pick.event in bad:
            continue
        where = f"{path}, row {pick.row} (station {pick.station})"
        if math.isnan(pick.elev_m):
            pick.elev_m = 0.0
        try:
            for name in ("lat", "lon", "elev_m"):
                coordinate(getattr(pick, name), name, where)
            other = first.setdefault((pick.event, pick.station), pick)
            turn = abs((pick.lon - other.lon + 180) % 360 - 180) * math.cos(math.radians(pick.lat))
            if math.hypot(pick.lat - other.lat, turn) > SAME_PLACE_DEG:
                raise ValueError(
                    f"{where} is at {pick.lat:g}, {pick.lon:g}, but row {other.row} has the same station at"
                    f" {other.lat:g}, {other.lon:g}"
                )
        except ValueError as error:
            if on_failure == "raise":
                raise
            bad[pick.event] = str(error)
            if on_failure == "warn":
                warnings.warn(f"event {pick.event} is not used: {error}", stacklevel=3)
    for pick in picks:
        if pick.event in bad:
            pick.flag = f"{NOT_USED}: {bad[pick.event]}"


def flag_far_codes(picks: list[Pick]) -> None:
    """Flag stations that were found by their code although they name a network, and lie far from the event's others,
    farther than a P can have come by then."""
    from implicit_models.seismology.geodesy import distance_azimuths

    groups: dict[str, list[Pick]] = {}
    for pick in picks:
        if not pick.flag and math.isfinite(pick.lat):
            groups.setdefault(pick.event, []).append(pick)
    for own in groups.values():
        if len(own) < 4 or not any(pick.by_code for pick in own):
            continue
        lat, lon, time = (np.array([getattr(pick, name) for pick in own]) for name in ("lat", "lon", "p_time"))
        apart = distance_azimuths(lat[:, None], lon[:, None], lat, lon)[0]
        middle = np.median(apart, axis=1).argmin()
        usual = float(np.median(apart[middle]))
        start = float(np.median(time[apart[middle] <= usual]))
        for pick, away, delay in zip(own, apart[middle], time - start, strict=True):
            too_early = delay < LEAST_SLOWNESS * (away - 2 * usual)
            if pick.by_code and away > max(FAR_DEG, FAR_TIMES * usual) and too_early:
                pick.flag = (
                    f"station {pick.station!r} was found by its code alone, {away:.1f} degrees from the others, where"
                    " nothing arrives so early: give its coordinates, or a list that knows networks"
                )


def _first(name: str) -> str:
    """P, S, pP or sP: Sg and Sn are the same first S at other distances."""
    phase = phase_of(name)
    return "S" if phase in ("Sg", "Sn") else phase


def flag_repeats(picks: list[Pick]) -> None:
    """Of several picks of one phase and station in one event only the earliest counts."""
    earliest: dict[tuple[str, str, str], Pick] = {}
    usable = [
        (pick, (pick.event, pick.station, phase_of(pick.phase)[:2].rstrip("gn"))) for pick in picks if not pick.flag
    ]
    for pick, key in usable:
        best = earliest.setdefault(key, pick)
        if pick.p_time < best.p_time:
            earliest[key] = pick
    for pick, key in usable:
        best = earliest[key]
        if pick is not best:
            pick.flag = f"the station's earlier {key[2]} of row {best.row} is used"
