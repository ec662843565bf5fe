"""Earthquakes as stations see them in the Ak135 Earth: synthetic events on a global mesh, stations, arrival times,
bands.

Sources: one in each 5-degree cell of the globe, uniform within its cell (the perturbation is half a cell at most, so
that no source leaves its cell, its band or the globe and nothing needs to be clipped at the poles), at each of 695
depths. The half from 90 E over 180 to 90 W has 1,296 cells, 900,720 events; a pair of bands, (90-10k, 100-10k) and
(-100+10k, -90+10k) degrees east, has 144. Stations: at a distance of the travel-time table, 0.25 to 90 degrees, each as
likely as another, in a random direction. The first station is the anchor: stations are drawn alike, so a random one of
them is the first.

The papers leave open how many samples of a band are tested ("20,016", which is 20 % of 144 x 695), whether one
epicentre may have depths in training and in test (yes, when samples are split at random, as 80 % of 900,720 says;
`split` has the control), the scales (see `implicit_models.seismology.encoding`) and the noise (none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np
from jaxtyping import Float

from data_gen.core.dataset import Dataset
from data_gen.core.sizes import check_sizes
from data_gen.core.streams import stream
from implicit_models.seismology.encoding import FEATURES, Encoding
from implicit_models.seismology.geodesy import destination
from implicit_models.seismology.table.travel_times import PTable, build_p_table
from implicit_models.summaries import summary

TEST_PART = 5  # one in five samples is tested
CHUNK = 16_384


@dataclass(frozen=True, eq=False)
class Samples:
    """Events and what S stations record of them; the anchor is station 0, the origin time is 0.

    Args:
        lat, lon, depth_km: (N,) of the events.
        station_lat, station_lon: (N, S) degrees; stations lie on the surface.
        dist_deg: (N, S) from the event.
        travel_time_s: (N, S) of the first P wave, without noise.
        arrival_s: (N, S) as picked, with noise.
        back_azimuth: (N, S) at the station towards the event, in [0, 360), with noise.
    """

    lat: Float[np.ndarray, " N"]
    lon: Float[np.ndarray, " N"]
    depth_km: Float[np.ndarray, " N"]
    station_lat: Float[np.ndarray, "N S"]
    station_lon: Float[np.ndarray, "N S"]
    dist_deg: Float[np.ndarray, "N S"]
    travel_time_s: Float[np.ndarray, "N S"]
    arrival_s: Float[np.ndarray, "N S"]
    back_azimuth: Float[np.ndarray, "N S"]

    def __repr__(self) -> str:
        return summary(self)

    @property
    def anchor(self) -> int:
        """Column of the anchor station."""
        return 0

    @property
    def delay_s(self) -> Float[np.ndarray, "N S"]:
        """Arrivals after the anchor's, as picked."""
        return self.arrival_s - self.arrival_s[:, :1]

    @property
    def anchor_time_s(self) -> Float[np.ndarray, " N"]:
        """Travel time to the anchor, without noise: with the pick it gives the origin time."""
        return self.travel_time_s[:, 0]

    @property
    def anchor_lon(self) -> Float[np.ndarray, " N"]:
        return self.station_lon[:, 0]

    def __len__(self) -> int:
        return len(self.lat)

    def encode(self, encoding: Encoding) -> tuple[Float[np.ndarray, "N F"], Float[np.ndarray, "N 4"]]:
        """Features and labels in float32."""
        U, Y = np.empty((len(self), encoding.n_features), np.float32), np.empty((len(self), 4), np.float32)
        for first in range(0, len(self), CHUNK):
            part = slice(first, first + CHUNK)
            delay = self.arrival_s[part] - self.arrival_s[part, :1]
            U[part] = encoding.encode(
                self.station_lat[part], self.station_lon[part], 0.0, delay, self.back_azimuth[part]
            )
            Y[part] = encoding.labels(
                self.lat[part], self.lon[part], self.depth_km[part], self.anchor_time_s[part], self.anchor_lon[part]
            )
        return U, Y


def make_samples(
    lat: Float[np.ndarray, " N"],
    lon: Float[np.ndarray, " N"],
    depth_km: Float[np.ndarray, " N"],
    n_stations: int = 5,
    *,
    min_dist_deg: float = 0.25,
    max_dist_deg: float = 90.0,
    noise_s: float = 0.0,
    noise_deg: float = 0.0,
    table: PTable | None = None,
    seed: int,
    name: str = "samples",
    values: Sequence[float] = (),
) -> Samples:
    """Stations around given events, and what they record.

    Args:
        lat, lon, depth_km: of the events; a depth is one of the table's.
        n_stations: S.
        min_dist_deg, max_dist_deg: of stations; the distances of the table in between are equally likely.
        noise_s: standard deviation of picks.
        noise_deg: standard deviation of back-azimuths.
        table: of travel times; the default one when None.
        seed: with name and values it fixes the random numbers. The first samples are the same however many follow, and
            the stations are the same with and without noise.

    Returns:
        Samples; longitudes in [-180, 180).

    Raises:
        ValueError: arrays of several lengths, a depth that the table lacks, distances without a P wave, a negative
            noise.
        TypeError: an argument that is no number.
    """
    _check_options(
        n_stations, min_dist_deg=min_dist_deg, max_dist_deg=max_dist_deg, noise_s=noise_s, noise_deg=noise_deg
    )
    table = build_p_table() if table is None else table
    lat, lon, depth_km = (_array(name, value) for name, value in (("lat", lat), ("lon", lon), ("depth_km", depth_km)))
    if lat.ndim != 1 or lat.shape != lon.shape or lat.shape != depth_km.shape:
        raise ValueError(
            f"lat, lon and depth_km must be vectors of one length, got {lat.shape}, {lon.shape}, {depth_km.shape}"
        )
    rows = _rows(table, depth_km)
    low, high = _columns(table, min_dist_deg, max_dist_deg)
    where, noise = stream(seed, f"{name} stations", *values), stream(seed, f"{name} noise", *values)
    shape = (len(lat), n_stations)
    found = {
        field: np.empty(shape) for field in ("station_lat", "station_lon", "dist_deg", "travel_time_s", "back_azimuth")
    }
    arrival = np.empty(shape) if noise_s else found["travel_time_s"]
    for first in range(0, len(lat), CHUNK):
        part = slice(first, min(first + CHUNK, len(lat)))
        drawn = where.random((part.stop - first, n_stations, 2))
        column = low + (drawn[..., 0] * (high + 1 - low)).astype(np.int64)
        found["dist_deg"][part] = dist = table.dist_deg[column]
        found["travel_time_s"][part] = table.times[rows[part, None], column]
        reached = destination(lat[part, None], lon[part, None], dist, 360 * drawn[..., 1])
        for field, values_of in zip(("station_lat", "station_lon", "back_azimuth"), reached, strict=True):
            found[field][part] = values_of
        if noise_s or noise_deg:
            errors = noise.standard_normal((*dist.shape, 2))
            arrival[part] = found["travel_time_s"][part] + noise_s * errors[..., 0]
            found["back_azimuth"][part] = np.mod(found["back_azimuth"][part] + noise_deg * errors[..., 1], 360)
    return Samples(lat, np.mod(lon + 180, 360) - 180, depth_km, arrival_s=arrival, **found)


def earthquake(
    n_stations: int = 5,
    *,
    min_dist_deg: float = 0.25,
    max_dist_deg: float = 90.0,
    step_deg: float = 5.0,
    depths: int | Sequence[float] = 695,
    noise_s: float = 0.0,
    noise_deg: float = 0.0,
    split: Literal["sample", "epicentre"] = "sample",
    layout: Literal["six", "five"] = "six",
    longitude: Literal["absolute", "anchor"] = "absolute",
    bands: Sequence[int] = range(1, 10),
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int,
) -> Dataset:
    """The location task: u what stations record, y the event's longitude, latitude, depth and travel time to the
    anchor.

    Args:
        n_stations: 5, or 45 for feature elimination.
        min_dist_deg, max_dist_deg: of stations from the event.
        step_deg: size of the mesh's cells; 10 is a whole multiple of it.
        depths: in km; a number means that many whole km spread evenly over 0 to 694, both included.
        noise_s, noise_deg: standard deviations of picks and back-azimuths.
        split: by "sample", as the papers; or by "epicentre", none of which is in training and in test at other depths.
        layout, longitude: of the features, see `Encoding`.
        bands: k in 1..9 of the tests outside the training half.
        n_train, n_test: keep so many samples, drawn without replacement, of the training set and of each test set; a
            smaller set is the beginning of a larger one.
        seed: of all draws.

    Returns:
        Dataset with u (N, 6 S) and y (N, 4) float32; test 0 is in distribution, k the pair of bands. meta: "encoding"
        (plain values for `Encoding.from_dict`), "samples" {"train", 0, k: Samples} with all physical quantities.

    Raises:
        ValueError: an option outside its domain, a step that does not divide the bands, more samples than there are,
            two depths that are one row of the travel-time table.
        TypeError: an argument of another kind, which is named.

    Source:
        Ganesh (2023), section 4.2 and Table 1; Decugis et al. (2024), A.4 and Table 3; Tsai thesis (2024), section 5.3.
    """
    _check_options(
        n_stations, min_dist_deg=min_dist_deg, max_dist_deg=max_dist_deg, noise_s=noise_s, noise_deg=noise_deg
    )
    known = {
        "split": (split, ("sample", "epicentre")),
        "layout": (layout, tuple(FEATURES)),
        "longitude": (longitude, ("absolute", "anchor")),
    }
    for name, (value, values) in known.items():
        if not isinstance(value, str) or value not in values:
            raise ValueError(f"{name} must be {' or '.join(map(repr, values))}, got {value!r}")
    if not isinstance(
        bands, (Sequence, np.ndarray)
    ):  # what can be read once only would be empty when the bands are drawn
        raise TypeError(f"bands must be a list of 1 to 9, got {bands!r}")
    for k in bands:
        if k not in range(1, 10):
            raise ValueError(f"bands are numbered 1 to 9, got {k!r}")
        check_sizes(1, band=k)
    check_sizes(1, **{name: n for name, n in (("n_train", n_train), ("n_test", n_test)) if n is not None})
    table = build_p_table()
    depth = _depths(depths, table)
    lat, lon = mesh(step_deg, seed=seed)
    longest = float(table.times[0, _columns(table, min_dist_deg, max_dist_deg)[1]])
    encoding = Encoding(n_stations, longest, layout, longitude, float(table.depths_km[-1]))
    stations = {"min_dist_deg": min_dist_deg, "max_dist_deg": max_dist_deg, "noise_s": noise_s, "noise_deg": noise_deg}

    def record(events: np.ndarray, count: int | None, name: str, *values: int) -> Samples:
        if count is not None and not 1 <= count <= len(events):
            raise ValueError(f"{name}{list(values) or ''} has {len(events)} samples, {count} are wanted")
        cell, at = np.divmod(events[:count], len(depth))
        of_split = {"table": table, "seed": seed, "name": name, "values": values}
        return make_samples(lat[cell], lon[cell], depth[at], n_stations, **stations, **of_split)

    inside = np.flatnonzero((lon > 90) & (lon < 270))
    train, test = _divide(inside, len(depth), split, stream(seed, "split"))
    samples = {"train": record(train, n_train, "train"), 0: record(test, n_test, "test", 0)}
    for k in bands:
        away = np.abs(lon - 180)
        cells = np.flatnonzero((away > 80 + 10 * k) & (away < 90 + 10 * k))
        samples[k] = record(_divide(cells, len(depth), split, stream(seed, "split", k))[1], n_test, "test", k)
    encoded = {key: part.encode(encoding) for key, part in samples.items()}
    meta = {
        "name": "earthquake",
        "seed": seed,
        "encoding": encoding.to_dict(),
        "samples": samples,
        "split": split,
        "step_deg": step_deg,
        "depths_km": depth,
        "n_stations": n_stations,
        "model": table.model,
        **stations,
    }
    return Dataset(*encoded.pop("train"), encoded, meta)


def mesh(step_deg: float = 5.0, *, seed: int) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Latitude and longitude in (0, 360) of one epicentre in each cell of the globe, uniform within its cell.

    Args:
        step_deg: size of a cell in both directions; 10 is a whole multiple of it, so that cells lie in bands.

    Raises:
        ValueError: another step.
        TypeError: a step that is no number.
    """
    _check_numbers(step_deg=step_deg)
    parts = 10 / step_deg if step_deg > 0 else 0.0
    if (
        not 1 - 1e-9 <= parts < np.inf or abs(parts - round(parts)) > 1e-9
    ):  # a huge step would divide 10 degrees into no cell
        raise ValueError(f"step_deg must divide 10 degrees, the width of a band, got {step_deg}")
    rows, columns = round(180 / step_deg), round(360 / step_deg)
    inside = np.clip(stream(seed, "mesh").random((2, rows, columns)), 2**-30, 1)  # an edge belongs to neither neighbour
    lat = -90 + step_deg * (np.arange(rows)[:, None] + inside[0])
    lon = step_deg * (np.arange(columns) + inside[1])
    return lat.ravel(), lon.ravel()


def _divide(cells: np.ndarray, n_depths: int, split: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Training and test events (cell * n_depths + depth) in random order, four to one."""
    if split == "sample":
        events = rng.permutation((cells[:, None] * n_depths + np.arange(n_depths)).ravel())
        tested = len(events) // TEST_PART
        return events[tested:], events[:tested]
    chosen = rng.permutation(cells)
    tested = max(1, len(cells) // TEST_PART)
    parts = (chosen[tested:], chosen[:tested])
    train, test = (rng.permutation((part[:, None] * n_depths + np.arange(n_depths)).ravel()) for part in parts)
    return train, test


def _depths(depths: int | Sequence[float], table: PTable) -> np.ndarray:
    if isinstance(depths, (int, np.integer)) and not isinstance(depths, bool):
        if not 1 <= depths <= len(table.depths_km):
            raise ValueError(f"depths must be 1 to {len(table.depths_km)} whole km, or a list of them, got {depths}")
        return table.depths_km[np.round(np.linspace(0, len(table.depths_km) - 1, depths)).astype(int)]
    depth = _array("depths", depths)
    if depth.ndim != 1 or not depth.size:
        raise ValueError(f"depths must be a number or a list of km, got {depths!r}")
    rows = _rows(table, depth)
    order = np.argsort(rows, kind="stable")
    same = np.flatnonzero(np.diff(rows[order]) == 0)
    if same.size:  # copies of one event would be in training and in test
        one, other = depth[order[same[0] : same[0] + 2]]
        raise ValueError(f"depths must differ by a row of the travel-time table, got {one} and {other} km")
    return depth


def _rows(table: PTable, depth_km: np.ndarray) -> np.ndarray:
    step = table.depths_km[1] - table.depths_km[0]
    rows = (depth_km - table.depths_km[0]) / step
    whole = np.round(np.nan_to_num(rows, posinf=-1, neginf=-1))  # no row: infinity less infinity would warn
    wrong = np.flatnonzero(~((np.abs(rows - whole) < 1e-6) & (whole >= 0) & (whole < len(table.depths_km))))
    if wrong.size:
        raise ValueError(
            f"depth_km must be one of the table's, {table.depths_km[0]:g} to {table.depths_km[-1]:g} in steps of"
            f" {step:g} km, got {depth_km[wrong[0]]:g} at index {wrong[0]}"
        )
    return whole.astype(np.int64)


def _columns(table: PTable, min_dist_deg: float, max_dist_deg: float) -> tuple[int, int]:
    """First and last column of the distances wanted."""
    if not 0 < min_dist_deg <= max_dist_deg:
        raise ValueError(f"distances need 0 < min_dist_deg <= max_dist_deg, got {min_dist_deg} and {max_dist_deg}")
    end = float(table.p_end_deg.min())
    if max_dist_deg > end:
        raise ValueError(
            f"max_dist_deg = {max_dist_deg} is in the core's shadow: P ends at {end:.2f} degrees for deep events"
        )
    inside = np.flatnonzero((table.dist_deg >= min_dist_deg - 1e-9) & (table.dist_deg <= max_dist_deg + 1e-9))
    if not inside.size:
        raise ValueError(f"no distance of the table lies in {min_dist_deg} to {max_dist_deg} degrees")
    return int(inside[0]), int(inside[-1])


def _check_options(n_stations: int, *, min_dist_deg: float, max_dist_deg: float, **noises: float) -> None:
    """Refuse stations, distances and noises by name; distances that are numbers are held against the table by
    `_columns`."""
    check_sizes(1, n_stations=n_stations)
    _check_numbers(min_dist_deg=min_dist_deg, max_dist_deg=max_dist_deg, **noises)
    for name, value in noises.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite standard deviation of at least 0, got {value}")


def _check_numbers(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, got {value!r}")


def _array(name: str, values: Sequence[float]) -> np.ndarray:
    """Values in float64; what cannot be is named."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {values!r}") from None
