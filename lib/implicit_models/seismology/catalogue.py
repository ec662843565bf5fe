"""Located events as files: QuakeML 1.2, which obspy, SeisComP and others read on, and one CSV row an event.

QuakeML has for every event its origin with standard deviations, the confidence ellipse of the epicentre, the quality of
the fit, an arrival a pick with residual and weight (1 used, 0 left out, with the reason as a comment), and the picks.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from implicit_models.seismology.leap_seconds import civil
from implicit_models.seismology.location import Location, utc

ARRIVAL = ("station", "phase", "p_time", "sigma_s", "dist_deg", "azimuth", "residual_s", "used", "reason")
KM_PER_DEGREE = math.pi / 180 * 6371.0
COLUMNS = (
    *("event", "time", "lat", "lon", "depth_km", "lat_error_km", "lon_error_km", "depth_error_km", "time_error_s"),
    *("ellipse_major_km", "ellipse_minor_km", "ellipse_azimuth", "rms_s", "azimuthal_gap", "picks", "used", "flags"),
    "notes",
)
HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<q:quakeml xmlns="http://quakeml.org/xmlns/bed/1.2"'
    ' xmlns:q="http://quakeml.org/xmlns/quakeml/1.2">\n'
    '<eventParameters publicID="smi:local/implicit_models/catalogue">\n'
)
TAIL = "</eventParameters>\n</q:quakeml>\n"
IDENTIFIER = re.compile(r"^(smi|quakeml):[\w\-.*()~'+?=,;&/#]+$")


class CatalogueWriter:
    """Writes events as they are located; what was written before a failure is kept under the name with `.part`.

    Args:
        path: of the QuakeML file; the CSV is beside it, with the ending .csv.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() == ".csv":
            raise ValueError(f"{path}: name the QuakeML file (.xml); the CSV is written beside it")
        if not path.parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}")
        self.path, self.table = path, path.with_suffix(".csv")
        self.parts = [target.with_name(target.name + ".part") for target in (self.path, self.table)]
        self.names: set[str] = set()

    def __enter__(self) -> CatalogueWriter:
        self.xml: IO[str] = self.parts[0].open("w", encoding="utf-8")
        self.file: IO[str] = self.parts[1].open("w", encoding="utf-8", newline="")
        self.rows = csv.writer(self.file)
        self.xml.write(HEAD)
        self.rows.writerow(COLUMNS)
        return self

    def __exit__(self, kind, *_) -> None:
        self.xml.write(TAIL)
        self.xml.close()
        self.file.close()
        if kind is None:
            for part, target in zip(self.parts, (self.path, self.table), strict=True):
                part.replace(target)

    def add(self, locations: Iterable[Location]) -> None:
        for location in locations:
            name = location.event if IDENTIFIER.match(location.event) else _local(location.event)
            if name in self.names:
                name = f"{name}.{len(self.names)}"
            self.names.add(name)
            self.xml.write(_event(location, name))
            self.rows.writerow(_row(location))


def _local(event: str) -> str:
    return "smi:local/implicit_models/event." + re.sub(r"[^\w\-.~]", "_", event, flags=re.ASCII)


def _row(location: Location) -> list[str]:
    used, ellipse = int(location.residuals["used"].sum()), location.ellipse
    counts = [str(len(location.residuals)), str(used), " ".join(location.flags), "; ".join(location.notes)]
    if not location.located:
        return [location.event, *[""] * 13, *counts]
    errors = np.sqrt(np.diagonal(location.covariance))
    numbers = (location.lat, location.lon, location.depth_km, *errors)
    spread = (ellipse.semi_major_km, ellipse.semi_minor_km, ellipse.azimuth, location.rms_s, location.azimuthal_gap)
    written = [f"{value:.5f}" if math.isfinite(value) else "" for value in (*numbers, *spread)]
    return [location.event, utc(location.origin_time), *written, *counts]


def _event(location: Location, name: str) -> str:
    name, located = escape(name), location.located
    rows = {column: location.residuals[column].tolist() for column in ARRIVAL}
    moments = _instants(civil(np.array(rows["p_time"])))
    picks, arrivals = [], []
    for k, (station, phase, _, sigma, dist, azimuth, residual, used, reason) in enumerate(zip(*rows.values())):
        if not moments[k]:
            continue
        phase = _escaped(phase)
        picks.append(
            f'<pick publicID="{name}/pick.{k + 1}"><time><value>{moments[k]}</value><uncertainty>{sigma:.4g}'
            f"</uncertainty></time><waveformID {_stream(station)}/><phaseHint>{phase}</phaseHint></pick>\n"
        )
        if not located:
            continue
        numbers = (
            f"<azimuth>{azimuth:.2f}</azimuth><distance>{dist:.4f}</distance>"
            f"<timeResidual>{residual:.4f}</timeResidual>"
            if residual == residual
            else ""
        )
        said = f"<comment><text>{escape(reason)}</text></comment>" if reason else ""
        arrivals.append(
            f'<arrival publicID="{name}/arrival.{k + 1}">{said}<pickID>{name}/pick.{k + 1}</pickID>'
            f"<phase>{phase or 'P'}</phase>{numbers}<timeWeight>{used:d}</timeWeight></arrival>\n"
        )
    said = "".join(
        f"<comment><text>{escape(text)}</text></comment>"
        for text in (*location.notes, *(f"flag: {flag}" for flag in location.flags))
    )
    origin = _origin(location, name, rows, "".join(arrivals)) if located else ""
    preferred = f"<preferredOriginID>{name}/origin</preferredOriginID>" if located else ""
    return f'<event publicID="{name}">{preferred}{said}\n{origin}{"".join(picks)}</event>\n'


def _origin(location: Location, name: str, rows: dict[str, list], arrivals: str) -> str:
    north, east, depth, time = np.sqrt(np.diagonal(location.covariance))
    shrink = max(math.cos(math.radians(location.lat)), 1e-6)
    used = [k for k, yes in enumerate(rows["used"]) if yes]
    distances, stations = [rows["dist_deg"][k] for k in used], {rows["station"][k] for k in used}
    ellipse, fixed = location.ellipse, depth == 0
    spread = (
        "<originUncertainty><preferredDescription>uncertainty ellipse</preferredDescription>"
        f"<minHorizontalUncertainty>{1000 * ellipse.semi_minor_km:.1f}</minHorizontalUncertainty>"
        f"<maxHorizontalUncertainty>{1000 * ellipse.semi_major_km:.1f}</maxHorizontalUncertainty>"
        f"<azimuthMaxHorizontalUncertainty>{ellipse.azimuth:.1f}</azimuthMaxHorizontalUncertainty>"
        f"<confidenceLevel>{100 * ellipse.confidence:g}</confidenceLevel></originUncertainty>\n"
        if math.isfinite(ellipse.semi_major_km)
        else ""
    )
    return (
        f'<origin publicID="{name}/origin">'
        f"{_value('time', utc(location.origin_time), time)}"
        f"{_value('latitude', f'{location.lat:.6f}', north / KM_PER_DEGREE)}"
        f"{_value('longitude', f'{location.lon:.6f}', east / KM_PER_DEGREE / shrink)}"
        f"{_value('depth', f'{1000 * location.depth_km:.1f}', 0.0 if fixed else 1000 * depth)}"
        f"<depthType>{'operator assigned' if fixed else 'from location'}</depthType>"
        f"<methodID>smi:local/implicit_models/{escape(location.method)}</methodID>"
        "<earthModelID>smi:local/ak135</earthModelID>\n"
        f"<quality><associatedPhaseCount>{len(rows['used'])}</associatedPhaseCount>"
        f"<usedPhaseCount>{len(used)}</usedPhaseCount><usedStationCount>{len(stations)}</usedStationCount>"
        f"<standardError>{location.rms_s:.4f}</standardError><azimuthalGap>{location.azimuthal_gap:.2f}</azimuthalGap>"
        f"<minimumDistance>{min(distances):.4f}</minimumDistance><maximumDistance>{max(distances):.4f}"
        f"</maximumDistance></quality>\n{spread}{arrivals}</origin>\n"
    )


_escaped = lru_cache(maxsize=10_000)(escape)


@lru_cache(maxsize=100_000)
def _stream(station: str) -> str:
    network, _, code = station.rpartition(".")
    return f"networkCode={quoteattr(network)} stationCode={quoteattr(code)}"


def _instants(seconds: np.ndarray) -> list[str]:
    """ISO 8601 with microseconds; empty for none."""
    known = np.isfinite(seconds)
    micro = np.round(1e6 * np.where(known, seconds, 0.0)).astype("datetime64[us]")
    return [f"{text}Z" if yes else "" for text, yes in zip(np.datetime_as_string(micro).tolist(), known.tolist())]


def _value(name: str, value: str, error: float) -> str:
    spread = f"<uncertainty>{error:.6g}</uncertainty>" if error > 0 and math.isfinite(error) else ""
    return f"<{name}><value>{value}</value>{spread}</{name}>"
