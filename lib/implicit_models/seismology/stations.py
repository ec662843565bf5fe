"""Where stations are, for picks that name their stations only; `station_lists` reads the lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from implicit_models.seismology.csv_rows import number
from implicit_models.summaries import summary

COLUMNS = ("sta", "lat", "lon", "elev_m")
SAME_PLACE_DEG = 0.01  # entries of one name this close are one station (epochs, sensors of one site)
ELEVATION_M = (-11_000.0, 9_000.0)
TEMPORARY = "XYZ0123456789"  # first letters of the FDSN's temporary networks; XX stands for none


class AmbiguousStation(ValueError):
    """A name that stands for stations at several places."""


@dataclass(frozen=True)
class Station:
    """Geographic latitude and longitude (degrees), elevation (m), the row of the file that says so, and the seconds
    since 1970 between which it stood there."""

    lat: float
    lon: float
    elev_m: float
    row: int
    start: float = -math.inf
    end: float = math.inf


@dataclass
class Stations:
    """Stations by name.

    Attributes:
        source: the file.
        places: name -> its entries; more than one only where they are apart by more than `SAME_PLACE_DEG`, or in time.
        networks: whether the list knows networks, so that a station of another network is another station.
        default: whether it is the registry that nobody named: a station of a temporary network is none of its.
    """

    source: str
    places: dict[str, list[Station]] = field(default_factory=dict)
    networks: bool = False
    default: bool = False

    def __repr__(self) -> str:
        return summary(self, "source", "networks", stations=len(self))

    def __len__(self) -> int:
        return len(self.places)

    def add(self, name: str, station: Station) -> None:
        """Add an entry; one that repeats a known place at the same time is left out."""
        known = self.places.setdefault(name, [])
        if not any(
            _near(station, other) and other.start <= station.start and station.end <= other.end for other in known
        ):
            known.append(station)

    def find(self, name: str, time: float = math.nan) -> tuple[Station | None, bool]:
        """The station of a name, "STA" or "NET.STA", at a time, and whether its network had to be left out.

        NET.STA is tried whole, then without the network if the list has none.

        Args:
            name: as the pick has it.
            time: seconds since 1970; NaN: at any.

        Raises:
            AmbiguousStation: the list has the name at two places.
        """
        network, _, code = name.rpartition(".")
        for key in (name,) if self.networks or not network or self._temporary(network) else (name, code):
            entries = [s for s in self.places.get(key, []) if not (time < s.start or time > s.end)]
            places = [s for k, s in enumerate(entries) if not any(_near(s, other) for other in entries[:k])]
            if len(places) > 1:
                where = " and ".join(f"{s.lat:.4f}, {s.lon:.4f} (row {s.row})" for s in places)
                raise AmbiguousStation(
                    f"{self.source} has station {key!r} at {where}: give the network or the coordinates with the picks"
                )
            if places:
                return places[0], key != name
        return None, False

    def why_not(self, name: str, time: float) -> str:
        """Why `find` has none."""
        network, _, code = name.rpartition(".")
        source = Path(self.source).name
        if self.places.get(name):
            return f"{source} has station {name!r} at other times than the pick's"
        if network and not self.networks and self._temporary(network) and self.places.get(code):
            return (
                f"station {name!r} is of a temporary network, and {source} has another of its code: name a list with"
                " its coordinates"
            )
        return f"station {name!r} is not in {source}"

    def _temporary(self, network: str) -> bool:
        return self.default and network[:1] in TEMPORARY and network != "XX"


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
