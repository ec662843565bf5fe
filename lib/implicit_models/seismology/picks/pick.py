"""One pick as it was read: what it says, where it stood, and why it is not used."""

from __future__ import annotations

import math
from dataclasses import dataclass

COLUMNS = ("event", "station", "lat", "lon", "elev_m", "p_time", "phase", "sigma_s", "baz", "sigma_baz", "row", "flag")
NOT_USED = "the event is not used"  # how the flag of its picks begins


@dataclass(slots=True)
class Pick:
    """One row of the table; NaN for what the file does not say.

    Attributes:
        event, station: names.
        p_time: seconds since 1970-01-01 UTC, on a clock that runs on through a leap second within an event.
        phase: as reported.
        row: line of a text file (the header is line 1), or the number of the pick in its event.
        lat, lon, elev_m: geographic degrees and metres.
        sigma_s, baz, sigma_baz: standard deviation of the time, back-azimuth and its standard deviation (degrees).
        flag: why the pick is not used; empty if it is.
        leap: whether the time lies inside a leap second.
        by_code: whether the station was found by its code although the pick names a network.
    """

    event: str
    station: str
    p_time: float
    phase: str
    row: int
    lat: float = math.nan
    lon: float = math.nan
    elev_m: float = math.nan
    sigma_s: float = math.nan
    baz: float = math.nan
    sigma_baz: float = math.nan
    flag: str = ""
    leap: bool = False
    by_code: bool = False
