"""What a location is asked from, and the same picks as flat arrays on the geocentric sphere, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from implicit_models.seismology.geodesy import geocentric_latitude
from implicit_models.seismology.table.kernels import SHEAR_ERROR
from implicit_models.seismology.table.phases import PHASES
from implicit_models.summaries import summary

SURFACE_P_KM_S, SURFACE_S_KM_S = 5.8, 3.46  # Ak135's velocities at the surface
SHEAR = [PHASES.index(name) for name in ("S", "Sg", "Sn")]


DEEPEST_KM = 700.0


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arrival times of N events at S stations at most.

    Attributes:
        lat, lon: (N, S) of the stations, degrees; one that has several picks stands as often.
        time: (N, S) picks in s on any clock; NaN where a station has none.
        sigma_s: standard deviation of the picks in s, a number or one a pick.
        elev_m: of the stations in m; the picks are brought to sea level by elevation / 5.8 km/s, an S by elevation /
            3.46 km/s.
        phase: (N, S) names among `table.phases.PHASES`; None: all are P.
    """

    lat: Float[np.ndarray, "N S"]
    lon: Float[np.ndarray, "N S"]
    time: Float[np.ndarray, "N S"]
    sigma_s: float | Float[np.ndarray, "N S"] = 0.5
    elev_m: float | Float[np.ndarray, "N S"] = 0.0
    phase: np.ndarray | None = None

    def __repr__(self) -> str:
        return summary(self)


@dataclass(frozen=True, eq=False)
class BackAzimuths:
    """Directions measured at the stations; they count only where there is a pick.

    Attributes:
        angle: (N, S) degrees, at the station towards the source, clockwise from north; NaN where there is none.
        sigma: standard deviation in degrees, a number or one an angle.
    """

    angle: Float[np.ndarray, "N S"]
    sigma: float | Float[np.ndarray, "N S"] = 10.0

    def __repr__(self) -> str:
        return summary(self)


@dataclass(frozen=True)
class DepthRange:
    """Depths that an event may have, in km.

    Attributes:
        bounds: within 0..700; below the table's last depth T is continued linearly, and flagged.
        fixed_km: a depth for all events.
        default_km: where three data are too few for a depth.

    Raises:
        ValueError: bounds that are none; a depth outside them.
    """

    bounds: tuple[float, float] = (0.0, DEEPEST_KM)
    fixed_km: float | None = None
    default_km: float = 10.0

    def __post_init__(self) -> None:
        low, high = (float(value) for value in self.bounds)
        if not 0.0 <= low < high <= DEEPEST_KM:
            raise ValueError(f"bounds must be two depths in 0..{DEEPEST_KM:g} km in order, got {self.bounds}")
        for name in ("fixed_km", "default_km"):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} = {value} lies outside the bounds {self.bounds}")


@dataclass(frozen=True)
class ModelError:
    """What the Earth model does not know of travel times.

    Attributes:
        sigma_s: standard deviation in s of the time of a P, added in quadrature to that of the pick; of an S it is 1.8
            times this.
        range_deg: distance of stations over which these errors are alike, for the covariance; 0: independent.

    Raises:
        ValueError: a negative number, or one that is not finite.
    """

    sigma_s: float = 0.0
    range_deg: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sigma_s", "range_deg"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} of the model's error must be 0 or more, got {value}")


@dataclass
class EventData:
    """Flat arrays of all events: event e has begin[e]:begin[e+1]; cell is the pick's place in (N, S)."""

    begin: np.ndarray
    cell: np.ndarray
    place: np.ndarray
    time: np.ndarray
    weight: np.ndarray
    baz: np.ndarray
    baz_weight: np.ndarray
    phase: np.ndarray
    reference: np.ndarray
    shape: tuple[int, int]

    def __repr__(self) -> str:
        return summary(self)

    @property
    def n_events(self) -> int:
        return self.shape[0]


def event_data(
    arrivals: Arrivals, back_azimuths: BackAzimuths | None, model_error: ModelError, geographic: bool
) -> EventData:
    """Check the arguments of `geiger.locate_events` and flatten them.

    Raises:
        ValueError: shapes that differ; values outside their ranges, with event and station.
    """
    time = np.asarray(arrivals.time, np.float64)
    if time.ndim != 2:
        raise ValueError(f"time must be (events, stations), got shape {time.shape}")
    given = {
        "lat": arrivals.lat,
        "lon": arrivals.lon,
        "sigma_s": arrivals.sigma_s,
        "elev_m": arrivals.elev_m,
        "sigma_baz": 1.0 if back_azimuths is None else back_azimuths.sigma,
        "baz": np.nan if back_azimuths is None else back_azimuths.angle,
    }
    arrays = {}
    for name, value in given.items():
        value = np.asarray(value, np.float64)
        if value.ndim and value.shape != time.shape:
            raise ValueError(f"{name} has shape {value.shape}, time has {time.shape}")
        arrays[name] = np.broadcast_to(value, time.shape)
    present = ~np.isnan(time)
    measured = present & ~np.isnan(arrays["baz"])
    demands = {
        "time": (np.isfinite(time), present, "finite, or NaN for none"),
        "lat": (np.abs(arrays["lat"]) <= 90, present, "in [-90, 90] degrees"),
        "lon": (np.isfinite(arrays["lon"]), present, "finite"),
        "elev_m": (np.isfinite(arrays["elev_m"]), present, "finite"),
        "sigma_s": ((arrays["sigma_s"] > 0) & np.isfinite(arrays["sigma_s"]), present, "positive"),
        "baz": (np.isfinite(arrays["baz"]), measured, "finite, or NaN for none"),
        "sigma_baz": ((arrays["sigma_baz"] > 0) & np.isfinite(arrays["sigma_baz"]), measured, "positive"),
    }
    for name, (right, where, what) in demands.items():
        wrong = np.argwhere(where & ~right)
        if wrong.size:
            event, station = wrong[0]
            value = time[event, station] if name == "time" else arrays[name][event, station]
            raise ValueError(f"{name} of event {event}, station {station} must be {what}, got {value}")
    cell = np.flatnonzero(present)
    flat = {name: value[present] for name, value in arrays.items()}
    latitude = np.radians(geocentric_latitude(flat["lat"]) if geographic else flat["lat"])
    turn = np.radians(flat["lon"])
    place = np.stack([np.cos(latitude) * np.cos(turn), np.cos(latitude) * np.sin(turn), np.sin(latitude)], axis=-1)
    reference = np.min(time, axis=1, initial=np.inf, where=present)
    reference[~np.isfinite(reference)] = 0.0
    counts = present.sum(axis=1)
    phase = _phases(arrivals.phase, time.shape, present)
    shear = np.isin(phase, SHEAR)
    speed = np.where(shear, SURFACE_S_KM_S, SURFACE_P_KM_S)
    clock = time[present] - np.repeat(reference, counts) - flat["elev_m"] / 1000 / speed
    has = ~np.isnan(flat["baz"])
    return EventData(
        begin=np.r_[0, np.cumsum(counts)],
        cell=cell,
        place=np.ascontiguousarray(place),
        time=clock,
        weight=1 / (flat["sigma_s"] ** 2 + (np.where(shear, SHEAR_ERROR, 1.0) * model_error.sigma_s) ** 2),
        baz=np.radians(np.where(has, flat["baz"], 0.0)),
        baz_weight=np.where(has, 1 / np.radians(flat["sigma_baz"]) ** 2, 0.0),
        phase=phase,
        reference=reference,
        shape=time.shape,
    )


def _phases(given: np.ndarray | None, shape: tuple[int, int], present: np.ndarray) -> np.ndarray:
    """Index in PHASES of the picks that are present."""
    if given is None:
        return np.zeros(int(present.sum()), np.int64)
    names = np.asarray(given)
    if names.shape != shape:
        raise ValueError(f"phase has shape {names.shape}, time has {shape}")
    out = np.full(shape, -1)
    for index, name in enumerate(PHASES):
        out[names == name] = index
    wrong = np.argwhere(present & (out < 0))
    if wrong.size:
        event, station = wrong[0]
        raise ValueError(
            f"phase of event {event}, station {station} must be one of {', '.join(PHASES)}, got"
            f" {str(names[event, station])!r}"
        )
    return out[present]
