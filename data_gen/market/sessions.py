"""Trading sessions of the New York Stock Exchange by its rules, without a calendar library.

A session runs from 09:30 to 16:00 New York time, 390 minutes; 14 of those from 2015-02-01 to 2021-12-31 close at 13:00,
210 minutes. The rules hold from 2013, when the present early closes began; no last year is set. Unscheduled closures,
which no rule gives, are listed as known in 2026.

Source: NYSE Rule 7.2 (holidays) and the exchange's announcements of early closes and of days of mourning.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Int, Shaped

from implicit_models.summaries import summary

NEW_YORK, ALWAYS = "XNYS", "24/7"  # calendars, by the names of ISO 10383 and of exchange_calendars
NEW_YORK_ZONE = ZoneInfo("America/New_York")
OPENS = 9 * 60 + 30
FULL, HALF = 390, 210
FIRST_YEAR = 2013
JUNETEENTH = 2022
# Days of mourning for presidents Bush and Carter.
CLOSED = (dt.date(2018, 12, 5), dt.date(2025, 1, 9))


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions in order.

    Args:
        dates: (D,) datetime64[D].
        minutes: (D,) their lengths in minutes.
        opening: minutes from midnight UTC to the opening; None: 09:30 New York time.
    """

    dates: Shaped[np.ndarray, " D"]
    minutes: Int[np.ndarray, " D"]
    opening: int | None = None

    def __repr__(self) -> str:
        return summary(self)

    @cached_property
    def first(self) -> Int[np.ndarray, " D"]:
        """Position of each session's first minute among the minutes of all sessions."""
        return np.cumsum(self.minutes) - self.minutes

    @cached_property
    def day(self) -> Int[np.ndarray, " N"]:
        """Index of the session of every minute."""
        return np.repeat(np.arange(len(self.dates)), self.minutes)

    @cached_property
    def minute(self) -> Int[np.ndarray, " N"]:
        """Minutes since the opening, of every minute."""
        return np.arange(self.minutes.sum()) - self.first[self.day]

    @cached_property
    def opens(self) -> Shaped[np.ndarray, " D"]:
        """Openings in UTC, datetime64[s]."""
        if self.opening is not None:
            return self.dates.astype("datetime64[s]") + np.timedelta64(self.opening, "m")
        hour, minute = divmod(OPENS, 60)
        local = (dt.datetime(*day.timetuple()[:3], hour, minute, tzinfo=NEW_YORK_ZONE) for day in self.dates.tolist())
        seconds = [int(moment.timestamp()) for moment in local]
        return np.array(seconds, dtype="int64").astype("datetime64[s]")

    def part(self, chosen: slice | np.ndarray) -> Sessions:
        """Some of the sessions."""
        return Sessions(self.dates[chosen], self.minutes[chosen], self.opening)


def always(first: np.datetime64, last: np.datetime64) -> Sessions:
    """The days of UTC from one to another, both included, of a market that never closes."""
    dates = np.arange(first, last + 1)
    return Sessions(dates, np.full(len(dates), 24 * 60), 0)


def sessions(first: str | dt.date, last: str | dt.date) -> Sessions:
    """Sessions from one date to another, both included.

    Args:
        first, last: ISO dates from 2013 on; unscheduled closures are known to 2026.

    Returns:
        Sessions; empty when no session lies between.

    Raises:
        ValueError: a date that is none or before 2013, or first after last.
    """
    start, end = _date("first", first), _date("last", last)
    if start > end:
        raise ValueError(f"first = {start} is after last = {end}")
    for name, day in (("first", start), ("last", end)):
        if day.year < FIRST_YEAR:
            raise ValueError(f"{name} = {day}: the rules are those from {FIRST_YEAR} on")
    closed = {day for year in range(start.year, end.year + 1) for day in holidays(year)}
    early = {day for year in range(start.year, end.year + 1) for day in early_closes(year)}
    span = (start + dt.timedelta(days=k) for k in range((end - start).days + 1))
    opened = [day for day in span if day.weekday() < 5 and day not in closed]
    return Sessions(
        np.array(opened, dtype="datetime64[D]"),
        np.array([HALF if day in early else FULL for day in opened], dtype=np.int64),
    )


def holidays(year: int) -> list[dt.date]:
    """Weekdays of a year on which the exchange is closed all day."""
    days = [
        _weekday(year, 1, 0, 3),  # Martin Luther King
        _weekday(year, 2, 0, 3),  # Washington
        easter(year) - dt.timedelta(days=2),
        _last_monday_of_may(year),
        *([_observed(dt.date(year, 6, 19))] if year >= JUNETEENTH else []),
        _observed(dt.date(year, 7, 4)),
        _weekday(year, 9, 0, 1),  # Labor Day
        _weekday(year, 11, 3, 4),  # Thanksgiving
        _observed(dt.date(year, 12, 25)),
        *(day for day in CLOSED if day.year == year),
    ]
    new_year = dt.date(year, 1, 1)
    # A New Year's Day on a Saturday is not made up for: the Friday before is the year's last session.
    if new_year.weekday() != 5:
        days.append(_observed(new_year))
    return sorted(days)


def early_closes(year: int) -> list[dt.date]:
    """Sessions of a year that close at 13:00: the days after Thanksgiving, before Christmas and before Independence
    Day."""
    closed = set(holidays(year))
    days = [_weekday(year, 11, 3, 4) + dt.timedelta(days=1), dt.date(year, 12, 24), dt.date(year, 7, 3)]
    return sorted(day for day in days if day.weekday() < 5 and day not in closed)


def easter(year: int) -> dt.date:
    """Easter Sunday by the anonymous Gregorian computus (Meeus, Astronomical Algorithms, chapter 8)."""
    golden = year % 19
    century, of_century = divmod(year, 100)
    leap_centuries, rest = divmod(century, 4)
    moon = (19 * golden + century - leap_centuries - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    leap_years, last = divmod(of_century, 4)
    sunday = (32 + 2 * rest + 2 * leap_years - moon - last) % 7
    shift = (golden + 11 * moon + 22 * sunday) // 451
    month, day = divmod(moon + sunday - 7 * shift + 114, 31)
    return dt.date(year, month, day + 1)


def _weekday(year: int, month: int, weekday: int, nth: int) -> dt.date:
    first = dt.date(year, month, 1)
    return first + dt.timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))


def _last_monday_of_may(year: int) -> dt.date:
    last = dt.date(year, 5, 31)
    return last - dt.timedelta(days=last.weekday())


def _observed(day: dt.date) -> dt.date:
    """Friday before a Saturday, Monday after a Sunday."""
    return day + dt.timedelta(days={5: -1, 6: 1}.get(day.weekday(), 0))


def _date(name: str, value: str | dt.date) -> dt.date:
    if isinstance(value, dt.datetime):
        value = value.date()
    if isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{name} must be a date such as 2015-02-01, got {value!r}") from None
