"""Features and labels of the learned locators: what stations saw of an event, and where and when it was, near [-1, 1].

A sample is one event seen by S stations, the anchor first. "six" numbers a station (30 for 5 stations, 270 for 45):

    longitude, latitude, depth, delay of the P wave after the anchor's, sin and cos of the back-azimuth,

"five" has the back-azimuth itself in place of sine and cosine. The labels are longitude, latitude and depth of the
event and the travel time to the anchor. All maps are linear:

    longitude  (lambda - 180) / 90, lambda in [0, 360): the half from 90 E over 180 to 90 W is [-1, 1], Greenwich is -2
               ("absolute"); or the difference to the anchor's longitude in [-180, 180), over 180 ("anchor")
    latitude   over 90
    depth      of the event: the range given onto [-1, 1]; of a station: over a scale of its own, so that stations which
               all lie at 0 have the feature 0 (the range of a constant is no scale)
    time       2 T / scale - 1, scale the longest travel time; delays: over the same scale
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from implicit_models.summaries import summary

FEATURES = {"six": 6, "five": 5}


@dataclass(frozen=True)
class Encoding:
    """The maps between physical quantities and a network's inputs and outputs.

    Args:
        n_stations: S, stations of a sample, the anchor included.
        time_scale_s: longest travel time.
        layout: "six" or "five" features a station.
        longitude: "absolute", or relative to the "anchor" station.
        max_depth_km: of an event.
        station_depth_scale_km: unit of a station's depth below sea level.
        longitude_scale_deg: None for 90 ("absolute") or 180 ("anchor").

    Raises:
        ValueError: a scale that is not positive, no station, or an unknown option.
    """

    n_stations: int
    time_scale_s: float
    layout: Literal["six", "five"] = "six"
    longitude: Literal["absolute", "anchor"] = "absolute"
    max_depth_km: float = 694.0
    station_depth_scale_km: float = 10.0
    longitude_scale_deg: float | None = None

    def __repr__(self) -> str:
        return summary(self)

    def __post_init__(self) -> None:
        if self.layout not in FEATURES:
            raise ValueError(f"layout must be 'six' or 'five', got {self.layout!r}")
        if self.longitude not in ("absolute", "anchor"):
            raise ValueError(f"longitude must be 'absolute' or 'anchor', got {self.longitude!r}")
        if self.n_stations < 1:
            raise ValueError(f"n_stations must be at least 1, got {self.n_stations}")
        if self.longitude_scale_deg is None:
            object.__setattr__(self, "longitude_scale_deg", 90.0 if self.longitude == "absolute" else 180.0)
        for name in ("time_scale_s", "max_depth_km", "station_depth_scale_km", "longitude_scale_deg"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, got {value}")

    @property
    def n_features(self) -> int:
        """Numbers of a sample: 6 S or 5 S."""
        return FEATURES[self.layout] * self.n_stations

    def encode(
        self,
        station_lat: Float[np.ndarray, "N S"],
        station_lon: Float[np.ndarray, "N S"],
        station_depth_km: Float[np.ndarray, "N S"] | float,
        p_delay_s: Float[np.ndarray, "N S"],
        back_azimuth: Float[np.ndarray, "N S"],
    ) -> Float[np.ndarray, "N F"]:
        """Inputs of a network, station by station.

        Args:
            station_lat, station_lon: degrees; column 0 is the anchor.
            station_depth_km: below sea level.
            p_delay_s: arrival minus the anchor's; column 0 is 0.
            back_azimuth: at the station towards the event, degrees clockwise from north.

        Returns:
            U (N, n_features).

        Raises:
            ValueError: another shape, a value that is not finite (names sample and station), or a delay of the anchor.
        """
        shape = np.shape(station_lat)
        if len(shape) != 2 or shape[1] != self.n_stations:
            raise ValueError(f"station_lat must have shape (N, {self.n_stations}), got {shape}")
        lat = self._checked("station_lat", station_lat, shape)
        lon = self._checked("station_lon", station_lon, shape)
        depth = self._checked("station_depth_km", station_depth_km, shape)
        delay = self._checked("p_delay_s", p_delay_s, shape)
        azimuth = self._checked("back_azimuth", back_azimuth, shape)
        late = np.flatnonzero(delay[:, 0])
        if late.size:
            raise ValueError(
                f"delays count from the anchor in column 0, but p_delay_s[{late[0]}, 0] is {delay[late[0], 0]}"
            )
        U = np.empty((*shape, FEATURES[self.layout]))
        U[..., 0] = self._longitude(lon, lon[:, :1])
        np.divide(lat, 90, out=U[..., 1])
        np.divide(depth, self.station_depth_scale_km, out=U[..., 2])
        np.divide(delay, self.time_scale_s, out=U[..., 3])
        if self.layout == "six":
            angle = np.radians(azimuth)
            np.sin(angle, out=U[..., 4])
            np.cos(angle, out=U[..., 5])
        else:
            U[..., 4] = np.mod(azimuth, 360) / 180 - 1
        return U.reshape(len(U), self.n_features)

    def labels(
        self,
        lat: Float[np.ndarray, " N"],
        lon: Float[np.ndarray, " N"],
        depth_km: Float[np.ndarray, " N"],
        anchor_time_s: Float[np.ndarray, " N"],
        anchor_lon: Float[np.ndarray, " N"] | None = None,
    ) -> Float[np.ndarray, "N 4"]:
        """Outputs that a network should have: longitude, latitude, depth, time.

        Args:
            lat, lon, depth_km: of the event.
            anchor_time_s: travel time to the anchor.
            anchor_lon: its longitude, needed with longitude="anchor".

        Raises:
            ValueError: arrays of several lengths, values that are not finite, or a missing anchor_lon.
        """
        shape = np.shape(lat)
        given = {"lat": lat, "lon": lon, "depth_km": depth_km, "anchor_time_s": anchor_time_s}
        lat, lon, depth_km, anchor_time_s = (self._checked(name, value, shape) for name, value in given.items())
        x = self._longitude(lon, self._anchor(anchor_lon, shape))
        return np.stack(
            [x, lat / 90, 2 * depth_km / self.max_depth_km - 1, 2 * anchor_time_s / self.time_scale_s - 1], axis=-1
        )

    def decode(
        self, Y: Float[np.ndarray, "N 4"], anchor_lon: Float[np.ndarray, " N"] | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Inverse of `labels`: latitude, longitude in [-180, 180), depth in km, travel time to the anchor in s.

        A network's outputs are taken as they are: a latitude may come out beyond a pole, a depth above the surface.

        Raises:
            ValueError: another shape, or a missing anchor_lon.
        """
        Y = np.asarray(Y, np.float64)
        if Y.ndim != 2 or Y.shape[1] != 4:
            raise ValueError(f"Y must have shape (N, 4), got {Y.shape}")
        anchor = self._anchor(anchor_lon, (len(Y),))
        lon = _wrapped(Y[:, 0] * self.longitude_scale_deg + (180.0 if anchor is None else anchor))
        return 90 * Y[:, 1], lon, (Y[:, 2] + 1) * (self.max_depth_km / 2), (Y[:, 3] + 1) * (self.time_scale_s / 2)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file of weights."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Encoding:
        """Inverse of `to_dict`.

        Raises:
            ValueError: a name that an encoding does not have, or one that it needs.
        """
        known = {field.name for field in fields(cls)}
        if wrong := (set(values) - known) | ({"n_stations", "time_scale_s"} - set(values)):
            raise ValueError(f"an encoding has {sorted(known)}; unknown or missing: {sorted(wrong)}")
        return cls(**values)

    def _longitude(self, lon: np.ndarray, anchor_lon: np.ndarray | None) -> np.ndarray:
        if self.longitude == "anchor":
            return _wrapped(lon - anchor_lon) / self.longitude_scale_deg
        turned = np.mod(lon, 360)
        turned[turned == 360] = 0  # what a tiny negative longitude rounds to
        return (turned - 180) / self.longitude_scale_deg

    def _anchor(self, anchor_lon, shape) -> np.ndarray | None:
        if self.longitude == "absolute":
            return None
        if anchor_lon is None:
            raise ValueError("longitude='anchor' needs anchor_lon, the longitude of each sample's anchor station")
        return self._checked("anchor_lon", anchor_lon, shape)

    @staticmethod
    def _checked(name: str, values, shape: tuple[int, ...]) -> np.ndarray:
        values = np.asarray(values, np.float64)
        if values.ndim == 0:
            values = np.broadcast_to(values, shape)
        if values.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
        if not np.isfinite(values.sum()):
            wrong = np.argwhere(~np.isfinite(values))
            if wrong.size:
                at = tuple(int(i) for i in wrong[0])
                raise ValueError(f"{name} must be finite, got {values[at]} at {at}")
        return values


def _wrapped(lon: np.ndarray) -> np.ndarray:
    """Longitudes in [-180, 180)."""
    turned = np.mod(lon + 180, 360) - 180
    turned[turned == 180] = -180
    return turned
