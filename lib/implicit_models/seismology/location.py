"""One located event with its picks: what `locate` returns for every event of a file, and how it is put in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.locations import FLAGS
from implicit_models.seismology.uncertainty import Ellipse
from implicit_models.summaries import summary

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Location:
    """A located event; numbers are NaN if it could not be located (flag "too_few", of a learned locator a note that
    says why).

    Attributes:
        event: its name.
        lat, lon, depth_km: geographic degrees and km.
        origin_time: s since 1970-01-01 UTC.
        covariance: (4, 4) in north km, east km, depth km, origin time s; NaN for a learned locator, which has none.
        ellipse: confidence ellipse of the epicentre.
        rms_s, chi2, dof: of the picks used.
        azimuthal_gap: degrees.
        residuals: a row a pick: station, phase, row, lat, lon (of the station), dist_deg, azimuth, residual_s, sigma_s,
            used, reason.
        flags: names; `locations.FLAGS` explains them.
        other: lat, lon, depth_km, and how much larger chi-square is, of a second place that fits; None without one.
        method: "geiger", or the kind of the learned locator.
        notes: sentences on choices that were made.
    """

    event: str
    lat: float
    lon: float
    depth_km: float
    origin_time: float
    covariance: Float[np.ndarray, "4 4"]
    ellipse: Ellipse
    rms_s: float
    chi2: float
    dof: int
    azimuthal_gap: float
    residuals: pandas.DataFrame
    flags: tuple[str, ...]
    other: tuple[float, float, float, float] | None = None
    method: str = "geiger"
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return summary(
            self,
            "event",
            "lat",
            "lon",
            "depth_km",
            "rms_s",
            "azimuthal_gap",
            "ellipse",
            "residuals",
            "flags",
            "method",
            origin_time=utc(self.origin_time) if self.located else "not located",
        )

    @property
    def located(self) -> bool:
        return math.isfinite(self.lat)

    @property
    def depth_error_km(self) -> float:
        """Standard deviation of the depth; 0 where it was fixed."""
        return float(np.sqrt(self.covariance[2, 2]))

    @property
    def time_error_s(self) -> float:
        """Standard deviation of the origin time."""
        return float(np.sqrt(self.covariance[3, 3]))

    def report(self) -> str:
        """The location in words, and a line a pick."""
        if not self.located:
            lines = [f"Event {self.event}: not located", *self._remarks(), "", *self._picks()]
            return "\n".join(lines)
        lines = [
            f"Event {self.event} ({self.method})",
            f"  origin time  {utc(self.origin_time)}" + _plus_minus(self.time_error_s, "s", ".2f"),
            (
                f"  epicentre    {abs(self.lat):.4f} {'N' if self.lat >= 0 else 'S'}  {abs(self.lon):.4f}"
                f" {'E' if self.lon >= 0 else 'W'}"
            ),
            f"  depth        {self.depth_km:.1f} km"
            + (" (fixed)" if self.depth_error_km == 0 else _plus_minus(self.depth_error_km, "km", ".1f")),
        ]
        if math.isfinite(self.ellipse.semi_major_km):
            lines.append(
                f"  {100 * self.ellipse.confidence:.0f} % ellipse {self.ellipse.semi_major_km:.1f} x"
                f" {self.ellipse.semi_minor_km:.1f} km (half axes), long axis at {self.ellipse.azimuth:.0f} degrees"
                " from north"
            )
        used = int(self.residuals["used"].sum())
        lines.append(
            f"  {used} of {len(self.residuals)} picks used, rms {self.rms_s:.2f} s, azimuthal gap"
            f" {self.azimuthal_gap:.0f} degrees"
        )
        return "\n".join([*lines, *self._remarks(), "", *self._picks()])

    def _remarks(self) -> list[str]:
        lines = [f"  ! {name}: {FLAGS[name]}" for name in self.flags]
        if self.other is not None and "ambiguous" in self.flags:
            lat, lon, depth, more = self.other
            lines.append(f"    the second place: {lat:.3f}, {lon:.3f}, {depth:.0f} km; chi-square larger by {more:.2f}")
        return lines + [f"  {note}" for note in self.notes]

    def _picks(self) -> list[str]:
        width = max([7, *(len(name) for name in self.residuals["station"])])
        lines = [
            f"  {'station':<{width}}  {'phase':<5} {'row':>5}  {'dist deg':>8}  {'azimuth':>7}  {'residual s':>10} "
            f" {'sigma s':>7}"
        ]
        for p in self.residuals.itertuples():
            numbers = (
                _number(p.dist_deg, 8, 2),
                _number(p.azimuth, 7, 1),
                _number(p.residual_s, 10, 2),
                _number(p.sigma_s, 7, 2),
            )
            lines.append(f"  {p.station:<{width}}  {p.phase:<5} {p.row:>5}  {'  '.join(numbers)}  {p.reason}".rstrip())
        return lines


def utc(seconds: float) -> str:
    """ISO 8601 with milliseconds."""
    return f"{np.datetime64(round(1000 * seconds), 'ms')}Z"


def _plus_minus(value: float, unit: str, form: str) -> str:
    return f" +- {value:{form}} {unit}" if math.isfinite(value) else ""


def _number(value: float, width: int, digits: int) -> str:
    return f"{value:>{width}.{digits}f}" if math.isfinite(value) else " " * width
