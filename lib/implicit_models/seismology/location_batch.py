"""The picks of many events as arrays for `geiger.locate_events`, and its answers as one `Location` an event."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from implicit_models.seismology.location import Location
from implicit_models.seismology.locations import BEYOND, OUTLIER, USED, Locations
from implicit_models.seismology.picks.phase_names import phase_of
from implicit_models.seismology.picks.pick import NOT_USED

if TYPE_CHECKING:
    import pandas


class Batch:
    """Picks sorted by event, in the order in which events and picks first appear.

    Args:
        picks: of `read_picks`; the index plays no part.
    """

    def __init__(self, picks: pandas.DataFrame) -> None:
        from pandas import factorize

        code, self.events = factorize(picks["event"], sort=False)
        order = np.argsort(code, kind="stable")
        self.order, self.code = order, code[order]
        self.picks = picks.iloc[order].reset_index(drop=True)
        self.begin = np.searchsorted(self.code, np.arange(len(self.events) + 1))
        self.usable = (self.picks["flag"] == "").to_numpy()
        before = np.cumsum(self.usable) - self.usable
        self.rank = before - before[self.begin[self.code]]  # of a usable pick among its event's
        counts = np.bincount(self.code[self.usable], minlength=len(self.events))
        self.shape = len(self.events), int(max(1, counts.max(initial=0)))
        self.by_code: dict[str, int] = picks.attrs.get("by_code", {})

    def padded(self, name: str, values: np.ndarray | None = None, missing: object = math.nan) -> np.ndarray:
        """(N, S) of the usable picks' column, or of values in the order of the picks given; the rest is missing."""
        column = self.picks[name].to_numpy(np.float64) if values is None else values[self.order]
        out = np.full(self.shape, missing, column.dtype)
        out[self.code[self.usable], self.rank[self.usable]] = column[self.usable]
        return out

    def locations(self, found: Locations, confidence: float, sigma_s: float) -> list[Location]:
        """A Location an event; sigma_s is that of picks that state none."""
        rows = self._residuals(found, sigma_s)
        return [
            self._location(found, k, str(event), rows.iloc[a:b].reset_index(drop=True), confidence)
            for k, (event, a, b) in enumerate(zip(self.events, self.begin[:-1], self.begin[1:]))
        ]

    def _residuals(self, found: Locations, sigma_s: float) -> pandas.DataFrame:
        from pandas import DataFrame

        picks, at = self.picks, (self.code, np.where(self.usable, self.rank, 0))
        taken = lambda values: np.where(self.usable, values[at], math.nan)
        residual, status = taken(found.residual_s), found.status[at]
        used = self.usable & (status == USED) & ~found.flags["too_few"][self.code]
        reason = picks["flag"].to_numpy(object).copy()
        baz, phases = picks["baz"].to_numpy(np.float64), picks["phase"]
        odd = self.usable & ((status == OUTLIER) | (status == BEYOND) | (np.isfinite(baz) & ~found.baz_used[at] & used))
        for i in np.flatnonzero(odd):
            phase = phase_of(phases[i]) or "P"
            if status[i] == OUTLIER:
                name = f"first {phase[0]}" if phase[0] in "PS" else phase
                reason[i] = f"outlier: {residual[i]:+.1f} s is no {name} of this event"
            elif status[i] == BEYOND:
                reason[i] = f"refused as {phase}: " + (
                    f"the direct P ends at {found.p_end_deg[self.code[i]]:.1f} degrees"
                    if phase == "P"
                    else f"none arrives first at {found.dist_deg[at][i]:.1f} degrees"
                )
            else:
                reason[i] = f"its back-azimuth of {baz[i]:.0f} degrees does not fit and is left out"
        sigma = picks["sigma_s"].to_numpy(np.float64)
        return DataFrame(
            {
                "station": picks["station"],
                "phase": phases,
                "row": picks["row"],
                "lat": picks["lat"],
                "lon": picks["lon"],
                "p_time": picks["p_time"],
                "dist_deg": taken(found.dist_deg),
                "azimuth": taken(found.azimuth),
                "residual_s": residual,
                "sigma_s": np.where(np.isnan(sigma), sigma_s, sigma),
                "used": used,
                "reason": reason,
            }
        )

    def _location(
        self, found: Locations, k: int, event: str, residuals: pandas.DataFrame, confidence: float
    ) -> Location:
        other = None
        if np.isfinite(found.other[k, 4]):
            lat, lon, depth_km = map(float, found.other[k, :3])
            other = (lat, lon, depth_km, float(found.other[k, 4] - found.chi2[k]))
        return Location(
            event=event,
            lat=float(found.lat[k]),
            lon=float(found.lon[k]),
            depth_km=float(found.depth_km[k]),
            origin_time=float(found.origin_time[k]),
            covariance=found.covariance[k],
            ellipse=found.ellipse(k, confidence),
            rms_s=float(found.rms_s[k]),
            chi2=float(found.chi2[k]),
            dof=int(found.dof[k]),
            azimuthal_gap=float(found.azimuthal_gap[k]),
            residuals=residuals,
            flags=found.flags_of(k),
            other=other,
            notes=self._notes(event, residuals),
        )

    def _notes(self, event: str, residuals: pandas.DataFrame) -> tuple[str, ...]:
        count, reasons = self.by_code.get(event, 0), set(residuals["reason"])
        if len(reasons) == 1 and (why := reasons.pop()).startswith(NOT_USED):
            return (why,)
        if not count:
            return ()
        what = "station was" if count == 1 else "stations were"
        return (f"{count} {what} found by code alone: the station list does not know the picks' networks",)
