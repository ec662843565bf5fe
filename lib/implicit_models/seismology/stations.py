"""Where stations are: a list (CSV, .gz allowed) or StationXML, for picks that name their stations only."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from implicit_models.seismology.csv_rows import check_doubled, content, number, records
from implicit_models.summaries import summary

DEFAULT_LIST = "isc_station_list.csv.gz"
COLUMNS = ("sta", "lat", "lon", "elev_m")
SAME_PLACE_DEG = 0.01  # entries of one name this close are one station (epochs, sensors of one site)
ELEVATION_M = (-11_000.0, 9_000.0)


@dataclass(frozen=True)
class Station:
    """Geographic latitude and longitude (degrees), elevation (m), and the row of the file that says so."""

    lat: float
    lon: float
    elev_m: float
    row: int


@dataclass
class Stations:
    """Stations by name.

    Attributes:
        source: the file.
        places: name -> its entries; more than one only where they are apart by more than `SAME_PLACE_DEG`.
        networks: whether the list knows networks, so that a station of another network is another station.
    """

    source: str
    places: dict[str, list[Station]] = field(default_factory=dict)
    networks: bool = False

    def __repr__(self) -> str:
        return summary(self, "source", "networks", stations=len(self))

    def __len__(self) -> int:
        return len(self.places)

    def add(self, name: str, station: Station) -> None:
        """Add an entry; one that repeats a known place is left out."""
        known = self.places.setdefault(name, [])
        if not any(_near(station, other) for other in known):
            known.append(station)

    def find(self, name: str) -> Station | None:
        """The station of a name, "STA" or "NET.STA"; None if there is none.

        NET.STA is tried whole, then without the network if the list has none.

        Raises:
            ValueError: the list has the name at two places.
        """
        for key in (name,) if self.networks else (name, name.rpartition(".")[2]):
            entries = self.places.get(key, [])
            if len(entries) > 1:
                where = " and ".join(f"{s.lat:.4f}, {s.lon:.4f} (row {s.row})" for s in entries)
                raise ValueError(f"{self.source} has station {key!r} at {where}: give the coordinates with the picks")
            if entries:
                return entries[0]
        return None


def read_stations(path: str | Path | None = None) -> Stations:
    """Read a station list.

    Args:
        path: CSV with the columns sta, lat, lon (degrees, geographic) and elev_m (metres), compressed or not, or
            StationXML (needs obspy). None: isc_station_list.csv.gz in the folder that IMPLICIT_DATA names.

    Raises:
        FileNotFoundError: no such file, or path is None and there is no default; the message says what to give.
        ValueError: a missing column, or a value that is not a coordinate, with its row.
    """
    path = _default() if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no station list at {path}")
    raw = content(path)
    if raw.lstrip()[:1] == b"<":
        return _station_xml(path, raw)
    found = Stations(str(path))
    header, rows = records(path, raw)
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}: a station list has {', '.join(COLUMNS)} (degrees, metres)"
        )
    check_doubled(header, COLUMNS, path)
    for row, record in rows:
        where = f"{path}, row {row}"
        if not record["sta"]:
            raise ValueError(f"{where}: sta is empty")
        lat, lon, elev = (coordinate(record[name], name, where) for name in COLUMNS[1:])
        found.add(record["sta"], Station(lat, lon, elev, row))
    return found


def coordinate(text: str | float | None, name: str, where: str) -> float:
    """A latitude ("lat"), longitude ("lon") or elevation ("elev_m") as a number in its range.

    Raises:
        ValueError: not a finite number, or outside its range; the message starts with `where`.
    """
    low, high = {"lat": (-90.0, 90.0), "lon": (-180.0, 360.0), "elev_m": ELEVATION_M}[name]
    value = number(text, name, where)
    if not (math.isfinite(value) and low <= value <= high):
        unit = "m" if name == "elev_m" else "degrees"
        raise ValueError(f"{where}: {name} = {value:g} is not in {low:g}..{high:g} {unit}")
    return value


def _near(a: Station, b: Station) -> bool:
    turn = abs((a.lon - b.lon + 180) % 360 - 180) * math.cos(math.radians(a.lat))
    return math.hypot(a.lat - b.lat, turn) <= SAME_PLACE_DEG


def _default() -> Path:
    named = os.environ.get("IMPLICIT_DATA")
    if not named:
        raise FileNotFoundError(
            f"the picks need a station list: name one (columns {', '.join(COLUMNS)}), or put {DEFAULT_LIST} into a"
            " folder that IMPLICIT_DATA names, which is not set"
        )
    return Path(named).expanduser() / DEFAULT_LIST


def _station_xml(path: Path, raw: bytes) -> Stations:
    try:
        from obspy import read_inventory
    except ImportError as error:
        raise ImportError(f"{path} is XML: reading StationXML needs obspy (the [seismology] extra)") from error
    try:
        inventory = read_inventory(io.BytesIO(raw))
    except Exception as error:  # obspy's readers raise whatever their parser does
        raise ValueError(f"{path} is no StationXML that obspy reads: {type(error).__name__}: {error}") from error
    found = Stations(str(path), networks=True)
    for network in inventory:
        for row, station in enumerate(network, start=1):
            place = Station(float(station.latitude), float(station.longitude), float(station.elevation), row)
            for name in (f"{network.code}.{station.code}", station.code):
                found.add(name, place)
    return found
