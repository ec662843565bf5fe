"""One pick as it was read: what it says, where it stood, and why it is not used."""

from __future__ import annotations

import math
from dataclasses import dataclass

COLUMNS = ("event", "station", "lat", "lon", "elev_m", "p_time", "phase", "sigma_s", "baz", "sigma_baz", "row", "flag")


@dataclass
class Pick:
    """One row of the table; NaN for what the file does not say.

    Attributes:
        event, station: names.
        p_time: seconds since 1970-01-01 UTC.
        phase: as reported.
        row: line of a CSV file (the header is line 1), or the number of the pick in its event.
        lat, lon, elev_m: geographic degrees and metres.
        sigma_s, baz, sigma_baz: standard deviation of the time, back-azimuth and its standard deviation (degrees).
        flag: why the pick is not used; empty if it is.
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
