"""Picks from CSV: a header with known names and units, one pick a line.

    station, p_time            required; p_time is ISO 8601 with a zone (2012-01-01T05:28:48.18Z, ...+09:00), or
    p_epoch_s takes
                               its place, seconds since 1970-01-01 UTC
    event                      name of the event; without it all picks belong to one
    lat, lon, elev_m           geographic degrees, metres; left out or empty: from the station list
    phase                      default P
    sigma_s, baz, sigma_baz    standard deviation of the time in seconds, back-azimuth (at the station towards the
    source, clockwise
                               from north) and its standard deviation in degrees

Other columns are ignored, unless their name looks like one of these in another unit or spelling: a column Phase that
were ignored would make every S a P.
"""

from __future__ import annotations

import re
from pathlib import Path

from implicit_models.seismology.csv_rows import check_doubled, content, finite, records
from implicit_models.seismology.leap_seconds import LeapSecond, utc_moment
from implicit_models.seismology.picks.pick import Pick
from implicit_models.seismology.stations import coordinate

KNOWN = ("station", "p_time", "p_epoch_s", "event", "lat", "lon", "elev_m", "phase", "sigma_s", "baz", "sigma_baz")
# A column whose name starts like this, or has "phase" in it, and is not known may mean one that is: it is refused, not
# ignored.
SUSPECT = (
    "lat",
    "lon",
    "elev",
    "alt",
    "height",
    "time",
    "p_time",
    "p_epoch",
    "epoch",
    "date",
    "sigma",
    "baz",
    "back",
    "azim",
    "depth_m",
    "sta",
    "event",
)
ZONE = re.compile(r"(Z|[T ]\d\d.*[+-]\d\d(:?\d\d)?(:?\d\d(\.\d+)?)?)$", re.IGNORECASE)
EPOCH_RANGE_S = (-62_135_596_800.0, 253_402_300_800.0)  # of the years 1 to 9999, those of p_time


def read_csv(path: Path) -> list[Pick]:
    """Picks of a CSV file.

    Raises:
        ValueError: a missing, doubled or doubtful column; a value that is not what its column holds, with the row.
    """
    header, rows = records(path, content(path))
    _check_header(header, path)
    picks = [_pick(record, f"{path}, row {row}", row) for row, record in rows]
    grouped = "event" in header and any(pick.event for pick in picks)
    for pick in picks:
        if grouped and not pick.event:
            raise ValueError(f"{path}, row {pick.row}: event is empty, and other rows name theirs")
        pick.event = pick.event or "1"
    return picks


def _check_header(header: list[str], path: Path) -> None:
    check_doubled(header, KNOWN, path)
    strange = [
        name for name in header if name not in KNOWN and (name.lower().startswith(SUSPECT) or "phase" in name.lower())
    ]
    if strange:
        raise ValueError(
            f"{path}: column {strange[0]!r} is not known; known are {', '.join(KNOWN)} (degrees, metres, seconds)"
        )
    if "station" not in header:
        raise ValueError(f"{path} has no column station; known are {', '.join(KNOWN)}")
    if ("p_time" in header) == ("p_epoch_s" in header):
        raise ValueError(
            f"{path} needs one of the columns p_time (ISO 8601 with zone) and p_epoch_s (UTC seconds since 1970), not"
            " both"
        )
    if ("lat" in header) != ("lon" in header):
        raise ValueError(f"{path} has one of the columns lat and lon without the other")


def _pick(record: dict[str, str], where: str, row: int) -> Pick:
    if not record["station"]:
        raise ValueError(f"{where}: station is empty")
    leap = False
    try:
        seconds = utc_seconds(record["p_time"], where) if "p_time" in record else _epoch(record["p_epoch_s"], where)
    except LeapSecond as moment:
        seconds, leap = moment.seconds, True
    pick = Pick(
        event=record.get("event", ""),
        station=record["station"],
        p_time=seconds,
        leap=leap,
        phase=record.get("phase") or "P",
        row=row,
    )
    if bool(record.get("lat")) != bool(record.get("lon")):
        raise ValueError(f"{where}: one of lat and lon is empty")
    for name in ("lat", "lon", "elev_m"):
        if record.get(name):
            setattr(pick, name, coordinate(record[name], name, where))
    for name in ("sigma_s", "sigma_baz"):
        if record.get(name):
            value = finite(record[name], name, where)
            if not value > 0:
                raise ValueError(f"{where}: {name} = {value:g} must be positive")
            setattr(pick, name, value)
    if record.get("baz"):
        pick.baz = finite(record["baz"], "baz", where)
        if not 0 <= pick.baz <= 360:
            raise ValueError(f"{where}: baz = {pick.baz:g} is not in 0..360 degrees")
    return pick


def _epoch(text: str, where: str) -> float:
    value = finite(text, "p_epoch_s", where)
    if not EPOCH_RANGE_S[0] <= value < EPOCH_RANGE_S[1]:
        raise ValueError(
            f"{where}: p_epoch_s = {text} is in none of the years 1 to 9999: it counts seconds since 1970, not"
            " milliseconds"
        )
    return value


def utc_seconds(text: str, where: str) -> float:
    """Seconds since 1970-01-01 UTC of an ISO 8601 time that carries its zone.

    Raises:
        LeapSecond: the time lies inside one.
        ValueError: not such a time, or one without a zone; the message starts with `where`.
    """
    try:
        moment: float | LeapSecond = utc_moment(text)
    except LeapSecond as leap:
        moment = leap
    except ValueError as error:
        raise ValueError(
            f"{where}: p_time = {text!r} is not an ISO 8601 time such as 2012-01-01T05:28:48.18Z ({error})"
        ) from None
    if not ZONE.search(text):
        raise ValueError(
            f"{where}: p_time = {text!r} has no time zone: end it with Z if it is UTC, or with an offset such as +09:00"
        )
    if isinstance(moment, LeapSecond):
        raise moment
    return moment
