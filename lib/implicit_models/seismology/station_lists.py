"""Station lists as their programmes write them.

    CSV             columns sta, lat, lon (degrees) and elev_m (metres); others are ignored
    FDSN text       #Network | Station | Latitude | Longitude | Elevation | SiteName | StartTime | EndTime
    NonLinLoc       GTSRCE name LATLON lat lon depth_km elevation_km, also LATLONDM and LATLONDS
    HypoDD          name lat lon [elevation m]
    HYPOINVERSE     format 2: columns 1-5 name, 7-8 network, 16-17 and 19-25 latitude, 27-29 and 31-37 longitude (west
                    unless E), 39-42 elevation m
    HYPO71, SEISAN  columns 1-6 name, 7-14 latitude, 15-23 longitude as degrees, minutes and hemisphere, 24-27 m
    XML             StationXML, SeisComP's inventory, by obspy

Each is told by its content, not by its name.
"""

from __future__ import annotations

import io
import math
import os
import re
from pathlib import Path

from implicit_models.seismology.csv_rows import check_doubled, content, decoded, number, records
from implicit_models.seismology.leap_seconds import utc_moment
from implicit_models.seismology.stations import COLUMNS, Station, Stations, coordinate

DEFAULT_LIST = "isc_station_list.csv.gz"
HYPOINVERSE = re.compile(
    r"^(?P<name>\S.{4}) (?P<net>[A-Z0-9]{2}).{7}(?P<lat>[ \d]\d) (?P<latm>[ \d.]{7})(?P<ns>[NS ])"
    r"(?P<lon>[ \d]{2}\d) (?P<lonm>[ \d.]{7})(?P<ew>[EW ])(?P<elev>[ \d-]{3}\d)"
)
MINUTES = re.compile(
    r"^(?P<name>.{6})(?P<lat>[ \d]\d)(?P<latm>[ \d]\d[.\d]\d{1,2})(?P<ns>[NS])"
    r"(?P<lon>[ \d]{2}\d)(?P<lonm>[ \d]\d[.\d]\d{1,2})(?P<ew>[EW])(?P<elev>[ \d-]{3}\d)?"
)
HYPODD = re.compile(
    r"^\s*(?P<name>[A-Za-z]\S{0,9})\s+(?P<lat>-?\d+\.\d+)\s+(?P<lon>-?\d+\.\d+)(\s+(?P<elev>-?\d+(\.\d*)?))?\s*$"
)


def read_stations(path: str | Path | None = None) -> Stations:
    """Read a station list.

    Args:
        path: a table with the columns sta, lat, lon (degrees, geographic) and elev_m (metres), FDSN station text, lines
            of NonLinLoc, HYPOINVERSE, HypoDD, HYPO71 or SEISAN, compressed or not; StationXML and
            SeisComP's inventory need obspy. None: isc_station_list.csv.gz in the folder that IMPLICIT_DATA names.

    Raises:
        FileNotFoundError: no such file, or path is None and there is no default; the message says what to give.
        ValueError: a missing column, or a value that is not a coordinate, with its row.
    """
    default = path is None
    path = _default() if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no station list at {path}")
    found = _read(path, content(path))
    found.default = default
    return found


def _read(path: Path, raw: bytes) -> Stations:
    if raw.lstrip()[:1] == b"<":
        return _xml(path, raw)
    lines = decoded(path, raw).splitlines()
    filled = [line for line in lines if line.strip()]
    first = filled[0] if filled else ""
    if "|" in first:
        return _fdsn_text(path, lines)
    if any(line.startswith("GTSRCE") for line in filled[:100]):
        return _nonlinloc(path, lines)
    if "," not in first and first:
        for pattern in (HYPOINVERSE, MINUTES, HYPODD):
            if pattern.match(first.rstrip()):
                return _columns(path, lines, pattern)
    return _csv(path, raw)


def _csv(path: Path, raw: bytes) -> Stations:
    found = Stations(str(path))
    header, rows = records(path, raw)
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}: a station list has {', '.join(COLUMNS)} (degrees, metres)"
        )
    check_doubled(header, COLUMNS, path)
    for row, record in rows:
        if not record["sta"]:
            raise ValueError(f"{path}, row {row}: sta is empty")
        found.add(record["sta"], _station([record[name] for name in COLUMNS[1:]], path, row))
    return found


def _station(texts, path: Path, row: int, start: float = -math.inf, end: float = math.inf) -> Station:
    lat, lon, elev = (coordinate(text, name, f"{path}, row {row}") for text, name in zip(texts, COLUMNS[1:]))
    return Station(lat, lon, elev, row, start, end)


def _fdsn_text(path: Path, lines: list[str]) -> Stations:
    found = Stations(str(path), networks=True)
    header = [name.strip().lower() for name in lines[0].lstrip("# ").split("|")]
    wanted = ("network", "station", "latitude", "longitude", "elevation")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}: FDSN station text has {' | '.join(wanted)}")
    for row, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.startswith("#"):
            continue
        values = [value.strip() for value in line.split("|")]
        if len(values) < len(wanted):
            raise ValueError(f"{path}, row {row}: {len(values)} values for {len(header)} columns")
        record = dict(zip(header, values))
        try:
            start, end = (
                utc_moment(record[name]) if record.get(name) else missing
                for name, missing in (("starttime", -math.inf), ("endtime", math.inf))
            )
        except ValueError as error:
            raise ValueError(f"{path}, row {row}: {error}") from None
        _add(
            found,
            record["network"],
            record["station"],
            _station([record[n] for n in wanted[2:]], path, row, start, end),
        )
    return found


def _nonlinloc(path: Path, lines: list[str]) -> Stations:
    found = Stations(str(path))
    for row, line in enumerate(lines, start=1):
        fields = line.split()
        if fields[:1] != ["GTSRCE"]:
            continue
        where = f"{path}, row {row}"
        if len(fields) < 7 or not fields[2].startswith("LATLON"):
            raise ValueError(f"{where}: {line.strip()!r} has no latitude and longitude (GTSRCE name LATLON ...)")
        kind, rest = fields[2], fields[3:]
        if kind == "LATLON":
            lat, lon = rest[:2]
            rest = rest[2:]
        else:
            parts = 2 if kind == "LATLONDM" else 3
            angles = []
            for _ in range(2):
                values = [number(text, "an angle", where) for text in rest[:parts]]
                if rest[parts] not in ("N", "S", "E", "W"):
                    raise ValueError(f"{where}: {rest[parts]!r} is none of N, S, E, W")
                size = sum(value / 60**k for k, value in enumerate(values))
                angles.append(-size if rest[parts] in "SW" else size)
                rest = rest[parts + 1 :]
            lat, lon = angles
        height = (
            1000 * (number(rest[1], "elevation", where) - number(rest[0], "depth", where)) if len(rest) > 1 else 0.0
        )
        found.add(fields[1], _station((lat, lon, height), path, row))
    return found


def _columns(path: Path, lines: list[str], pattern: re.Pattern) -> Stations:
    found = Stations(str(path), networks=pattern is HYPOINVERSE)
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            if pattern is MINUTES:
                break  # what follows is the velocity model
            continue
        match = pattern.match(line.rstrip())
        if not match:
            raise ValueError(f"{path}, row {row}: {line.rstrip()!r} is no station as the rows before are")
        part = match.groupdict()
        if pattern is HYPODD:
            place = (part["lat"], part["lon"], part["elev"] or 0.0)
        else:
            lat, lon = (float(part[name]) + _minutes(part[f"{name}m"]) / 60 for name in ("lat", "lon"))
            west = part["ew"] == "W" or (pattern is HYPOINVERSE and part["ew"] == " ")
            place = (-lat if part["ns"] == "S" else lat, -lon if west else lon, part["elev"] or 0.0)
        _add(found, part.get("net") or "", part["name"].strip(), _station(place, path, row))
    return found


def _minutes(text: str) -> float:
    """F5.2 with its point, or without one."""
    return float(text) if "." in text else float(text) / 100


def _add(found: Stations, network: str, code: str, station: Station) -> None:
    for name in (f"{network}.{code}", code) if network else (code,):
        found.add(name, station)


def _xml(path: Path, raw: bytes) -> Stations:
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
            place = (float(station.latitude), float(station.longitude), float(station.elevation))
            start, end = (
                moment.timestamp if moment else missing
                for moment, missing in ((station.start_date, -math.inf), (station.end_date, math.inf))
            )
            _add(found, network.code, station.code, Station(*place, row, start, end))
    return found


def _default() -> Path:
    named = os.environ.get("IMPLICIT_DATA")
    if not named:
        raise FileNotFoundError(
            f"the picks need a station list: name one (columns {', '.join(COLUMNS)}), or put {DEFAULT_LIST} into a"
            " folder that IMPLICIT_DATA names, which is not set"
        )
    return Path(named).expanduser() / DEFAULT_LIST
