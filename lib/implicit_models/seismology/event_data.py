"""Picks of many events as flat arrays on the geocentric sphere, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from implicit_models.seismology.geodesy import geocentric_latitude
from implicit_models.summaries import summary

SURFACE_P_KM_S = 5.8  # Ak135's P velocity at the surface


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
    reference: np.ndarray
    shape: tuple[int, int]

    def __repr__(self) -> str:
        return summary(self)

    @property
    def n_events(self) -> int:
        return self.shape[0]


def event_data(lat, lon, time, sigma_s, elev_m, baz, sigma_baz, model_error_s, geographic) -> EventData:
    """Check the arguments of `geiger.locate_events` and flatten them.

    Raises:
        ValueError: shapes that differ; values outside their ranges, with event and station.
    """
    time = np.asarray(time, np.float64)
    if time.ndim != 2:
        raise ValueError(f"time must be (events, stations), got shape {time.shape}")
    given = {
        "lat": lat,
        "lon": lon,
        "sigma_s": sigma_s,
        "elev_m": elev_m,
        "sigma_baz": sigma_baz,
        "baz": np.nan if baz is None else baz,
    }
    arrays = {}
    for name, value in given.items():
        value = np.asarray(value, np.float64)
        if value.ndim and value.shape != time.shape:
            raise ValueError(f"{name} has shape {value.shape}, time has {time.shape}")
        arrays[name] = np.broadcast_to(value, time.shape)
    if not 0 <= model_error_s < math.inf:
        raise ValueError(f"model_error_s must be 0 or more, got {model_error_s}")
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
    clock = time[present] - np.repeat(reference, counts) - flat["elev_m"] / 1000 / SURFACE_P_KM_S
    has = ~np.isnan(flat["baz"])
    return EventData(
        begin=np.r_[0, np.cumsum(counts)],
        cell=cell,
        place=np.ascontiguousarray(place),
        time=clock,
        weight=1 / (flat["sigma_s"] ** 2 + model_error_s**2),
        baz=np.radians(np.where(has, flat["baz"], 0.0)),
        baz_weight=np.where(has, 1 / np.radians(flat["sigma_baz"]) ** 2, 0.0),
        reference=reference,
        shape=time.shape,
    )
