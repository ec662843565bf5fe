"""Times of bars as text, in explicit formats, to UTC.

ISO 8601, with or without an offset; compact dates (20240102, 20240102 093000, 202401020930); year first with points or
slashes; day first with points (02.01.2024); the month by name; Unix times in s, ms, us or ns. A date with slashes or
hyphens whose day and month could be exchanged in every row is refused until `date_format` says which is which: sessions
would not notice before the 13th. A zone may stand behind each time (20240102 09:30:00 US/Eastern, GMT+0200).
"""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas

UNIX = {10: "s", 13: "ms", 16: "us", 19: "ns"}
UNIX_TEXT = re.compile(r"^-?(\d{9,10}|\d{12,13}|\d{15,16}|\d{18,19})(\.\d+)?$")
ZONE = re.compile(
    r"^(.*\d(?: ?[AP]M)?) ?"
    r"((?:[A-Z][A-Za-z]+/[A-Za-z_]+(?:/[A-Za-z_]+)?)|(?:GMT|UTC)(?:[+-]\d{1,2}:?\d{0,2})?|E[SD]?T|Z)$"
)
NAMED = {"EST": "-05:00", "EDT": "-04:00", "Z": "+00:00", "GMT": "+00:00", "UTC": "+00:00"}
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %H%M", " %H%M%S", " %I:%M %p", " %I:%M:%S %p")
DATES = ("%Y%m%d", "%Y.%m.%d", "%Y/%m/%d", "%d.%m.%Y", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y")
EITHER = (("%m/%d/%Y", "%d/%m/%Y"), ("%m-%d-%Y", "%d-%m-%Y"), ("%m/%d/%y", "%d/%m/%y"))
JOINED = ("%Y%m%d%H%M", "%Y%m%d%H%M%S")


class TimesError(ValueError):
    """Times that cannot be read as they are; the message says why, and names the row."""


def to_utc(text: pandas.Series, time_zone: str | None, date_format: str | None) -> np.ndarray:
    """Times in UTC, datetime64[ns].

    Args:
        text: strings; missing where a row has none.
        time_zone: of times that carry none, such as "America/New_York".
        date_format: of `datetime.strptime`, for times of one format.

    Raises:
        TimesError: no time, several formats, days and months that could be exchanged, an unknown zone, a zone twice or
            not at all, a local time that does not exist or exists twice.
    """
    text = text.astype("string").str.strip()
    absent = (text.isna() | (text == "")).to_numpy()
    if absent.any():
        raise TimesError(f"row {int(absent.argmax())} has no time")
    if date_format is None and text.map(lambda value: bool(UNIX_TEXT.match(value))).all():
        return _unix(text)
    zones = None
    if date_format is None and text.str.match(ZONE).all():
        parts = text.str.extract(ZONE)
        text, zones = parts[0].str.strip(), parts[1]
    naive, aware = _parsed(text, date_format)
    if zones is not None or aware:
        if time_zone is not None:
            raise TimesError(f"the times carry an offset, and time_zone={time_zone!r} was given too: drop one")
        return naive.to_numpy("datetime64[ns]") if zones is None else _by_row(naive, zones)
    if time_zone is None:
        raise TimesError(f"times such as {text.iloc[0]!r} have no offset: say time_zone='America/New_York' or 'UTC'")
    return _localised(naive, time_zone)


def _unix(text: pandas.Series) -> np.ndarray:
    digits = text.str.replace("-", "").str.split(".").str[0].str.len().max()
    unit = next(unit for length, unit in UNIX.items() if digits <= length)
    values = pandas.to_numeric(text).to_numpy()
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    whole = values.astype("int64") if values.dtype.kind in "iu" else np.round(values * 1e6).astype("int64")
    return (whole * scale // (1 if values.dtype.kind in "iu" else 10**6)).astype("datetime64[ns]")


def _parsed(text: pandas.Series, date_format: str | None) -> tuple[pandas.Series, bool]:
    """Times without a zone, and whether they carried an offset, in which case they are UTC."""
    if date_format is not None:
        found = _strptime(text, date_format)
        if found is None:
            raise TimesError(f"date_format={date_format!r} does not fit times such as {text.iloc[0]!r}")
        return _without_zone(found)
    if text.str.match(r"^\d{4}-\d{2}-\d{2}([T ]|$)").all():
        offsets = text.str.contains(r"\d{2}:\d{2}.*(?:Z|[+-]\d{2}:?\d{2})$")
        if offsets.any() and not offsets.all():
            row = int((~offsets).to_numpy().argmax())
            raise TimesError(f"row {row}: {text.iloc[row]} has no offset, and others have one")
        try:
            return _without_zone(pandas.to_datetime(text, format="ISO8601", utc=bool(offsets.all()) or None))
        except ValueError as error:
            raise TimesError(f"times cannot be read: {error}") from None
    for form in (*(date + clock for date in DATES for clock in CLOCKS), *JOINED):
        found = _strptime(text, form)
        if found is not None:
            return found, False
    for pair in EITHER:
        for clock in CLOCKS:
            fits = [form for form in (date + clock for date in pair) if _strptime(text, form) is not None]
            if len(fits) == 2 and not _strptime(text, fits[0]).equals(_strptime(text, fits[1])):
                raise TimesError(
                    f"in times such as {text.iloc[0]!r} no day is above 12, so that days and months could be exchanged:"
                    f" say date_format={fits[0]!r} or date_format={fits[1]!r}"
                )
            if fits:
                return _strptime(text, fits[0]), False
    raise TimesError(f"times cannot be read: {text.iloc[0]!r} is of no known format; say date_format=...")


def _strptime(text: pandas.Series, form: str) -> pandas.Series | None:
    try:
        pandas.to_datetime(text.iloc[:1], format=form)
        return pandas.to_datetime(text, format=form)
    except ValueError:
        return None


def _without_zone(times: pandas.Series) -> tuple[pandas.Series, bool]:
    if getattr(times.dtype, "tz", None) is None:
        return times, False
    return times.dt.tz_convert("UTC").dt.tz_localize(None), True


def _by_row(naive: pandas.Series, zones: pandas.Series) -> np.ndarray:
    out = np.empty(len(naive), "datetime64[ns]")
    for zone in zones.unique():
        rows = (zones == zone).to_numpy()
        out[rows] = _localised(naive[rows], _offset(str(zone)))
    return out


def _offset(zone: str) -> str:
    """The zone's name, or its offset as +HH:MM."""
    if zone in NAMED:
        return NAMED[zone]
    match = re.match(r"^(?:GMT|UTC)([+-])(\d{1,2}):?(\d{0,2})$", zone)
    return (
        f"{match[1]}{int(match[2]):02d}:{match[3] or '00'}" if match else "America/New_York" if zone == "ET" else zone
    )


def _localised(naive: pandas.Series, time_zone: str) -> np.ndarray:
    if re.match(r"^[+-]\d\d:\d\d$", time_zone):
        minutes = int(time_zone[1:3]) * 60 + int(time_zone[4:])
        return naive.to_numpy("datetime64[ns]") - np.timedelta64(minutes if time_zone[0] == "+" else -minutes, "m")
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise TimesError(f"time_zone {time_zone!r} is unknown") from error
    utc = naive.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT").dt.tz_convert("UTC").dt.tz_localize(None)
    unclear = (utc.isna() & naive.notna()).to_numpy()
    if unclear.any():
        row = int(unclear.argmax())
        raise TimesError(
            f"row {naive.index[row]}: {naive.iloc[row]} is ambiguous or does not exist in {time_zone}, where clocks"
            f" change then ({int(unclear.sum())} such rows): give times in UTC or with their offsets, or leave them"
            " out"
        )
    return utc.to_numpy("datetime64[ns]")
