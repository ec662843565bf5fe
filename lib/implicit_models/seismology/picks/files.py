"""Picks of P arrivals as a table, whatever the file: CSV, QuakeML, ISF (IMS1.0) and PDE bulletins.

A pick that cannot be used stays in the table; its column `flag` says why. An error is raised for what makes a row mean
something else than it says: a local time, a wrong unit, a coordinate that is none.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from implicit_models.seismology.picks.pick import COLUMNS, Pick
from implicit_models.seismology.stations import SAME_PLACE_DEG, Stations, coordinate, read_stations

if TYPE_CHECKING:
    import pandas

# Names under which bulletins report the first arriving P of the mantle and crust.
FIRST_P = frozenset({"P", "p", "Pn", "Pg", "Pb", "P*", "PN", "PG", "PB"})


def read_picks(path: str | Path, *, stations: str | Path | Stations | None = None) -> pandas.DataFrame:
    """Read the picks of a file.

    Args:
        path: CSV (see `picks.csv`), QuakeML, ISF/IMS1.0 or PDE (mchedr); all but CSV need obspy. CSV may be gzipped.
        stations: a list that `read_stations` reads, for stations without coordinates in the file. None: the default
            list, read only if a station needs it.

    Returns:
        DataFrame with the columns of `COLUMNS` (units in `Pick`), one row a pick, in the file's order. `flag` says why
        a pick is not used: another phase than a first P, a second P of the same station, a station that the list does
        not know.

    Raises:
        FileNotFoundError: no such file, no such station list, or none where one is needed.
        ValueError: a row that cannot mean what it says (with its number); two places for one station.

    Source:
        IMS1.0, https://www.isc.ac.uk/standards/isf; PDE, the USGS' EDR format.
    """
    from pandas import DataFrame

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no picks at {path}")
    if is_csv(path):
        from implicit_models.seismology.picks.csv import read_csv as read
    else:
        from implicit_models.seismology.picks.obspy import read_catalogue as read
    picks = read(path)
    if not picks:
        raise ValueError(f"{path} has no picks")
    flag_phases(picks)
    join_stations(picks, stations, path)
    check_places(picks, path)
    flag_repeats(picks)
    return DataFrame([vars(p) for p in picks], columns=list(COLUMNS))


def is_csv(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".csv")


def flag_phases(picks: list[Pick]) -> None:
    """Flag what is not reported as a first P."""
    for pick in picks:
        if pick.phase not in FIRST_P and not pick.flag:
            pick.flag = f"phase {pick.phase!r} is not a first P" if pick.phase else "the pick has no phase"


def join_stations(picks: list[Pick], stations: str | Path | Stations | None, path: Path) -> None:
    """Give coordinates to the picks that have none; flag those whose station is unknown."""
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
            place = stations.find(pick.station)
        except ValueError as error:
            raise ValueError(f"{path}, row {pick.row}: {error}") from error
        if place is None:
            pick.flag = pick.flag or f"station {pick.station!r} is not in {Path(stations.source).name}"
        else:
            pick.lat, pick.lon = place.lat, place.lon
            if math.isnan(pick.elev_m):
                pick.elev_m = place.elev_m


def check_places(picks: list[Pick], path: Path) -> None:
    """Elevation 0 where the file has none; one place a station.

    Raises:
        ValueError: coordinates out of range, or two places for one station of an event, with the rows.
    """
    first: dict[tuple[str, str], Pick] = {}
    for pick in picks:
        if math.isnan(pick.lat):
            continue
        where = f"{path}, row {pick.row} (station {pick.station})"
        if math.isnan(pick.elev_m):
            pick.elev_m = 0.0
        for name in ("lat", "lon", "elev_m"):
            coordinate(getattr(pick, name), name, where)
        other = first.setdefault((pick.event, pick.station), pick)
        turn = abs((pick.lon - other.lon + 180) % 360 - 180) * math.cos(math.radians(pick.lat))
        if math.hypot(pick.lat - other.lat, turn) > SAME_PLACE_DEG:
            raise ValueError(
                f"{where} is at {pick.lat:g}, {pick.lon:g}, but row {other.row} has the same station at {other.lat:g},"
                f" {other.lon:g}"
            )


def flag_repeats(picks: list[Pick]) -> None:
    """Of several P picks of a station in one event only the earliest counts."""
    earliest: dict[tuple[str, str], Pick] = {}
    usable = [pick for pick in picks if not pick.flag]
    for pick in usable:
        best = earliest.setdefault((pick.event, pick.station), pick)
        if pick.p_time < best.p_time:
            earliest[pick.event, pick.station] = pick
    for pick in usable:
        best = earliest[pick.event, pick.station]
        if pick is not best:
            pick.flag = f"the station's earlier P of row {best.row} is used"
