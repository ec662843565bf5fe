"""UTC times of picks, those inside a leap second among them, and the clock that runs on through one.

Seconds since 1970-01-01 UTC count no leap second: 23:59:60.5 and 00:00:00.5 are the same number, and travel times
across one lack a second. So the picks of an event that lie after a leap second while others lie before or in
it are moved by that second: their clock is that of the event's first pick.

Source:
    IERS Bulletin C: the days (UTC) that end with a leap second.
"""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from implicit_models.seismology.picks.pick import Pick

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_JUNE = (1972, 1981, 1982, 1983, 1985, 1992, 1993, 1994, 1997, 2012, 2015)
_DECEMBER = (1972, 1973, 1974, 1975, 1976, 1977, 1978, 1979, 1987, 1989, 1990, 1995, 1998, 2005, 2008, 2016)
# Seconds since 1970 of the midnights that follow a leap second.
MIDNIGHTS = sorted(
    [(dt.datetime(year, 7, 1, tzinfo=dt.UTC) - EPOCH).total_seconds() for year in _JUNE]
    + [(dt.datetime(year + 1, 1, 1, tzinfo=dt.UTC) - EPOCH).total_seconds() for year in _DECEMBER]
)
_SIXTY = re.compile(r"^([^.]*\d\d:?59:?)60(\.\d+)?(\D.*)?$")


class LeapSecond(Exception):
    """A time inside a leap second; `seconds` is that of a clock that has run on."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def utc_moment(text: str) -> float:
    """Seconds since 1970-01-01 UTC of an ISO 8601 time; one without a zone is UTC.

    Raises:
        LeapSecond: the second is 60, on a day that has one.
        ValueError: not such a time.
    """
    sixty = _SIXTY.match(text)
    if sixty:
        seconds = utc_moment(f"{sixty[1]}59{sixty[2] or ''}{sixty[3] or ''}") + 1
        if seconds - seconds % 1 not in MIDNIGHTS:
            raise ValueError(f"{text} is no leap second")
        raise LeapSecond(seconds)
    moment = dt.datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - EPOCH).total_seconds()


def run_on(picks: Iterable[Pick]) -> None:
    """Put the picks of each event on one clock, that of its first."""
    span: dict[str, list[Pick]] = {}
    for pick in picks:
        if pick.p_time == pick.p_time:
            span.setdefault(pick.event, []).append(pick)
    for own in span.values():
        first, last = min(pick.p_time for pick in own), max(pick.p_time for pick in own)
        for midnight in MIDNIGHTS[bisect_left(MIDNIGHTS, last - 86_400) : bisect_right(MIDNIGHTS, last)]:
            before = first < midnight or any(pick.leap and pick.p_time - midnight < 1 for pick in own)
            if before and first - 1 <= midnight <= last < midnight + 86_400:
                for pick in own:
                    pick.p_time += pick.p_time >= midnight and not pick.leap


def civil(times: np.ndarray) -> np.ndarray:
    """Seconds since 1970 of an event's picks on a clock that `run_on` set."""
    known, out = times[np.isfinite(times)], np.array(times)
    if not known.size:
        return out
    first, last = float(known.min()), float(known.max())
    for midnight in MIDNIGHTS[bisect_left(MIDNIGHTS, last - 86_400) : bisect_right(MIDNIGHTS, last)]:
        if first < midnight + 1 <= last:
            out[times >= midnight + 1] -= 1
    return out
