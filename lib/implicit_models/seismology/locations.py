"""What a location is: epicentre, depth and origin time with covariance, the fate of every pick, and flags that say what
to distrust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.seismology.uncertainty import Ellipse, ellipse_of
from implicit_models.summaries import summary

UNRESOLVED_KM, VAGUE_DEPTH_KM = 2000.0, 100.0
CLOSE_CHI2 = 4.605  # a second minimum this near the first cannot be told from it at 90 %

USED, ABSENT, OUTLIER, BEYOND = 0, 1, 2, 3
FLAGS = {
    "too_few": "fewer data than unknowns even with the depth fixed: no location",
    "depth_fixed": "three data for four unknowns: the depth is fixed, and the ellipse does not contain its error",
    "depth_at_bound": "the depth ends at a bound of its range",
    "depth_extrapolated": "the depth lies below the travel-time table, which is continued linearly",
    "depth_vague": f"the depth has a standard deviation above {VAGUE_DEPTH_KM:g} km",
    "gap": "azimuthal gap above 180 degrees: all stations lie on one side",
    "outliers": "some picks do not fit and are left out",
    "beyond_p": "some picks lie beyond the end of the direct P, or where their phase is not first: they are left out",
    "back_azimuths": "some back-azimuths do not fit and are left out",
    "diffracted": "picks used lie beyond the end of the direct P: without them too few are left",
    "poor_fit": "residuals larger than their standard deviations allow (chi-square, 0.1 %)",
    "ambiguous": "a second place, 50 km away or more, fits about as well",
    "unresolved": f"the ellipse is longer than {UNRESOLVED_KM:g} km: these stations do not locate it",
    "extrapolated": "the network was trained on other longitudes (90 E over 180 to 90 W), or on nearer stations",
    "off_range": "the network's answer lies beyond a pole or outside the depths of the travel times",
}


@dataclass(frozen=True, eq=False)
class Locations:
    """Locations of N events from at most S picks each; NaN where an event could not be located.

    Attributes:
        lat, lon: (N,) degrees, latitudes of the kind that was given, longitudes in [-180, 180).
        depth_km, origin_time: (N,) km, and s on the picks' clock.
        covariance: (N, 4, 4) in north km, east km, depth km, s.
        chi2, dof, rms_s: (N,) weighted squares, data minus unknowns, root mean square of the used time residuals.
        azimuthal_gap: (N,) degrees, of the used stations seen from the epicentre.
        status: (N, S) USED, ABSENT, OUTLIER or BEYOND.
        baz_used: (N, S) whether the pick's back-azimuth counts.
        residual_s, dist_deg, azimuth: (N, S) observed minus predicted time, and from the epicentre to the station.
        p_end_deg: (N,) where the direct P ends at the event's depth.
        flags: name -> (N,) bool; `FLAGS` says what each means.
        other: (N, 5) lat, lon, depth, origin time, chi2 of the second minimum; NaN if there is none.
        prior_dof: K of `uncertainty`.
    """

    lat: Float[np.ndarray, " N"]
    lon: Float[np.ndarray, " N"]
    depth_km: Float[np.ndarray, " N"]
    origin_time: Float[np.ndarray, " N"]
    covariance: Float[np.ndarray, "N 4 4"]
    chi2: Float[np.ndarray, " N"]
    dof: Int[np.ndarray, " N"]
    rms_s: Float[np.ndarray, " N"]
    azimuthal_gap: Float[np.ndarray, " N"]
    status: Int[np.ndarray, "N S"]
    baz_used: Bool[np.ndarray, "N S"]
    residual_s: Float[np.ndarray, "N S"]
    dist_deg: Float[np.ndarray, "N S"]
    azimuth: Float[np.ndarray, "N S"]
    p_end_deg: Float[np.ndarray, " N"]
    flags: dict[str, Bool[np.ndarray, " N"]]
    other: Float[np.ndarray, "N 5"]
    prior_dof: float

    def __repr__(self) -> str:
        return summary(
            self,
            "lat",
            "lon",
            "depth_km",
            "origin_time",
            "rms_s",
            "dof",
            "azimuthal_gap",
            "status",
            flags={name: int(where.sum()) for name, where in self.flags.items() if where.any()},
        )

    def __len__(self) -> int:
        return len(self.lat)

    def flags_of(self, k: int) -> tuple[str, ...]:
        return tuple(name for name, where in self.flags.items() if where[k])

    def ellipse(self, k: int, confidence: float = 0.9) -> Ellipse:
        return ellipse_of(self.covariance[k], confidence=confidence, dof=self.dof[k], prior_dof=self.prior_dof)
