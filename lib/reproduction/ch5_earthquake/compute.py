"""The earthquake study: every model in every setting, scored in distribution and on the nine pairs of bands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.core.streams import stream
from data_gen.earthquakes import Samples
from implicit_models.seismology.encoding import Encoding
from implicit_models.seismology.geodesy import distance_azimuths
from reproduction.ch5_earthquake import controls, task
from reproduction.core.recipe import History
from reproduction.core.scores import count_parameters, predict
from reproduction.core.study import fitted, scaled

KEY_MODULES = {task: "reproduction.ch5_earthquake.task", controls: "reproduction.ch5_earthquake.controls"}
LABELS = {**task.LABELS, **controls.LABELS}
KM_PER_DEGREE = 6371.0 * np.pi / 180.0
FAR_KM = 50.0
NOISE_FREE_SIGMA_S = 0.01
TURN_DEG = 100.0
LOCATED = ("km_median", "km_p90", "km_p95", "far", "depth_km", "time_s", "mse")
SIDES = (0, *task.BANDS)
SCORE_UNITS = {
    "km_median": "km",
    "km_p90": "km",
    "km_p95": "km",
    "far": "%",
    "longitude_deg": "°",
    "longitude_circular_deg": "°",
    "latitude_deg": "°",
    "depth_km": "km",
    "time_s": "s",
    "unbroken": "%",
    "longitude_unbroken_deg": "°",
}
Scores = dict[str, list[list[float]]]


@dataclass
class EarthquakeStudy:
    """What was measured.

    Args:
        seeds: of mesh, stations, split, weights and shuffling; `task.repeats` says which run for the first ones alone.
        scores: setting -> model -> score -> (seeds, 10) values, in distribution first, then the bands.
        histories: setting -> model -> one training a seed.
        parameters: setting -> model -> trainable parameters.
        models: setting -> model -> one trained model a seed.
        sizes: setting -> samples of the training set, of the test set in distribution and of that of a band.
        steps: setting -> model -> steps of a training.
        located: (locator, noise in s, k) -> score -> values, "geiger" and the papers' models on the same events.
        responses: model of the setting "papers" -> `longitude_response`.
        misplaced: test sources outside the printed bands.
        turned: largest change of anchor-relative inputs and labels when a sample is turned about the poles.
    """

    seeds: Sequence[int]
    scores: dict[str, dict[str, Scores]] = field(default_factory=dict)
    histories: dict[str, dict[str, list[History]]] = field(default_factory=dict)
    parameters: dict[str, dict[str, int]] = field(default_factory=dict)
    models: dict[str, dict[str, list[nn.Module]]] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    located: dict[tuple[str, float, int], dict[str, list[float]]] = field(default_factory=dict)
    responses: dict[str, list[float]] = field(default_factory=dict)
    turned: float = 0.0
    misplaced: int = 0

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all trainings, those read from the cache included."""
        return sum(sum(h.cpu_seconds) for models in self.histories.values() for runs in models.values() for h in runs)

    def score(self, setting: str, model: str, name: str, k: int) -> list[float]:
        """One score at one factor, a value a seed."""
        return [row[SIDES.index(k)] for row in self.scores[setting][model][name]]


def run_earthquake(
    profile: str,
    seeds: Sequence[int],
    settings: Sequence[str] = tuple(task.SETTINGS),
    *,
    n_train: int | None = None,
    epochs_scale: float = 1.0,
    resume: bool = False,
    events: int = 2000,
    noises: Sequence[float] = (0.0, 0.5),
) -> EarthquakeStudy:
    """Train and score everything.

    Args:
        profile, seeds: as `reproduction.ch5_earthquake.task`.
        settings: keys of its `SETTINGS`.
        n_train: training samples, in place of the profile's.
        epochs_scale: multiplies the epochs.
        resume: keep trained models in the cache.
        events: of the first seed that Geiger's method and the models locate side by side, in distribution and at
            k = 9; 0: none.
        noises: standard deviations of the picks there, s.
    """
    study = EarthquakeStudy(list(seeds))
    for place, seed in enumerate(seeds):
        # Settings of one generated data set follow one another, since only the last one is kept.
        for name in sorted(
            settings,
            key=lambda s: (
                task.setting_of(s).longitude == "anchor",
                task.setting_of(s).split,
                task.setting_of(s).max_dist_deg,
            ),
        ):
            chosen = [
                (key, model_name, *model)
                for source, key in KEY_MODULES.items()
                for model_name, model in source.models(name, seed, profile).items()
                if place < (task.repeats(name, model_name, profile) or len(seeds))
            ]
            if not chosen:
                continue
            data = task.data(name, seed, profile, n_train=n_train)
            study.sizes[name] = {
                "train": len(data.u_train),
                "test": len(data.test[0][0]),
                "band": len(data.test[task.BANDS[0]][0]),
            }
            for key, model_name, build, recipe in chosen:
                recipe = scaled(recipe, epochs_scale)
                model, history = fitted(
                    f"earthquake-{name}-{model_name}-{seed}",
                    build,
                    data,
                    recipe,
                    seed,
                    key_module=key if resume else None,
                    parameters={},
                )
                study.steps.setdefault(name, {})[model_name] = recipe.epochs * -(
                    -len(data.u_train) // recipe.batch_size
                )
                study.histories.setdefault(name, {}).setdefault(model_name, []).append(history)
                study.models.setdefault(name, {}).setdefault(model_name, []).append(model)
                study.parameters.setdefault(name, {})[model_name] = count_parameters(model)
                add_scores(study, name, model_name, model, data)
            if name == "papers":
                trained = [model_name for _, model_name, *_ in chosen]
                add_comparison(study, data, seed, trained, events if place == 0 else 0, noises)
    return study


def add_scores(study: EarthquakeStudy, setting: str, name: str, model: nn.Module, data: Dataset) -> None:
    """Score one trained model on every test set."""
    store = study.scores.setdefault(setting, {}).setdefault(name, {})
    rows: dict[str, list[float]] = {}
    for k in SIDES:
        u, y = data.test[k]
        for score, value in location_scores(
            predict(model, u, batch_size=4000).double().numpy(), y, setting, data.meta, k
        ).items():
            rows.setdefault(score, []).append(value)
    for score, row in rows.items():
        store.setdefault(score, []).append(row)


def location_scores(
    outputs: Float[np.ndarray, "N q"], labels: Float[np.ndarray, "N q"], setting: str, meta: Mapping[str, Any], k: int
) -> dict[str, float]:
    """Errors of one test set, of scaled labels and in physical units.

    Args:
        outputs, labels: as the setting has them; labels it does not ask for count as known.
        setting: key of `reproduction.ch5_earthquake.task.SETTINGS`.
        meta: of the data set.
        k: key of the test set.

    Returns:
        mse and mse_LABEL; mean absolute errors longitude_deg (on the line of the label), longitude_circular_deg,
        latitude_deg, depth_km and time_s; quantiles km_median, km_p90 and km_p95 of the distance between epicentres,
        and far, the share (%) beyond 50 km; mse_latitude_inside and _outside, of the sources up to 45 degrees from the
        equator and of the others; on absolute longitudes also unbroken, the share (%) of samples whose source and
        stations lie on one side of the jump of the longitude, with mse_unbroken and longitude_unbroken_deg of these.
    """
    chosen = task.setting_of(setting)
    square = (np.asarray(outputs, np.float64) - labels) ** 2
    found = {"mse": float(square.mean())} | {
        f"mse_{name}": float(square[:, at].mean()) for at, name in enumerate(chosen.outputs)
    }
    absolute = np.abs(np.asarray(outputs, np.float64) - labels)
    units = label_units(meta, setting)
    for name, key in (
        ("depth", "depth_km"),
        ("time", "time_s"),
        ("latitude", "latitude_deg"),
        ("longitude", "longitude_deg"),
    ):
        if name in chosen.outputs:
            found[key] = float(units[name] * absolute[:, chosen.outputs.index(name)].mean())
    if "longitude" not in chosen.outputs:
        return found
    away = units["longitude"] * absolute[:, 0]
    round_circle = np.abs((away + 180.0) % 360.0 - 180.0)
    found["longitude_circular_deg"] = float(round_circle.mean())
    samples = meta["samples"][k]
    # A latitude beyond a pole is an error of its own: the distance is taken to the pole.
    lat = np.clip(samples.lat + units["latitude"] * (np.asarray(outputs, np.float64) - labels)[:, 1], -90.0, 90.0)
    lon = samples.lon + units["longitude"] * (np.asarray(outputs, np.float64) - labels)[:, 0]
    km = KM_PER_DEGREE * distance_azimuths(samples.lat, samples.lon, lat, (lon + 180.0) % 360.0 - 180.0)[0]
    found |= distance_scores(km)
    if chosen.longitude != "anchor":
        whole = unbroken(samples)
        found["unbroken"] = 100 * float(whole.mean())
        found["mse_unbroken"], found["longitude_unbroken_deg"] = float(square[whole].mean()), float(away[whole].mean())
    inside = np.abs(samples.lat) <= task.RESTRICTED_LATITUDE
    found["mse_latitude_inside"], found["mse_latitude_outside"] = (
        float(square[inside, 1].mean()),
        float(square[~inside, 1].mean()),
    )
    return found


def unbroken(samples: Samples) -> Bool[np.ndarray, " N"]:
    """Samples whose source and stations lie within 180 degrees of one another on the line of longitudes from 0 to
    360."""
    line = np.column_stack([samples.lon, samples.station_lon]) % 360.0
    return np.ptp(line, axis=1) <= 180.0


def label_units(meta: Mapping[str, Any], setting: str) -> dict[str, float]:
    """Degrees, km and seconds of one unit of each scaled label."""
    encoding = Encoding.from_dict(meta["encoding"])
    return {
        "longitude": encoding.longitude_scale_deg,
        "latitude": 90.0,
        "depth": encoding.max_depth_km / 2,
        "time": encoding.time_scale_s / 2,
    }


def cut(samples: Samples, count: int) -> Samples:
    """The first events of some samples."""
    return Samples(*(getattr(samples, part.name)[:count] for part in dataclasses.fields(samples)))


def add_comparison(
    study: EarthquakeStudy, data: Dataset, seed: int, trained: Sequence[str], events: int, noises: Sequence[float]
) -> None:
    """Locate the same events by Geiger's method and by the models trained for this seed, and see how these answer a
    turn of the globe."""
    models = {name: study.models["papers"][name][-1] for name in trained}
    encoding = Encoding.from_dict(data.meta["encoding"])
    for k in (0, task.BANDS[-1]) if events else ():
        clean = cut(data.meta["samples"][k], events)
        for noise_s in noises:
            noise = stream(seed, "noise of the picks", k).standard_normal(clean.arrival_s.shape)
            samples = dataclasses.replace(clean, arrival_s=clean.arrival_s + noise_s * noise)
            u, y = samples.encode(encoding)
            rows = {"geiger": geiger_scores(samples, noise_s, encoding)}
            for name, model in models.items():
                outputs = predict(model, torch.as_tensor(u), batch_size=4000).double().numpy()
                rows[name] = location_scores(
                    outputs, y, "papers", {"encoding": data.meta["encoding"], "samples": {k: samples}}, k
                )
            for name, scores in rows.items():
                store = study.located.setdefault((name, float(noise_s), k), {})
                for score in LOCATED:
                    store.setdefault(score, []).append(scores[score])
    for k in task.BANDS:
        lon = data.meta["samples"][k].lon
        inside = (lon > 90 - 10 * k) & (lon < 100 - 10 * k) | (lon > -100 + 10 * k) & (lon < -90 + 10 * k)
        study.misplaced += int((~inside).sum())
    u = data.test[0][0][:4000]
    for name, model in models.items():
        study.responses.setdefault(name, []).append(longitude_response(model, u, TURN_DEG / 90.0))
    study.turned = max(study.turned, turned_difference(cut(data.meta["samples"][0], 1000), TURN_DEG, encoding))


def geiger_scores(samples: Samples, noise_s: float, encoding: Encoding) -> dict[str, float]:
    """Errors of Geiger's method, which is given the picks alone, no back-azimuth; longitudes round the circle.

    Args:
        samples: events with picks; the origin time of all is 0.
        noise_s: standard deviation of the picks.
        encoding: scales of the labels, for the loss.
    """
    from implicit_models.seismology.event_data import Arrivals, DepthRange
    from implicit_models.seismology.geiger.events import locate_events

    found = locate_events(
        Arrivals(samples.station_lat, samples.station_lon, samples.arrival_s, max(noise_s, NOISE_FREE_SIGMA_S)),
        depth=DepthRange(bounds=(0.0, encoding.max_depth_km)),
        outliers=False,
        geographic=False,
    )
    km = KM_PER_DEGREE * distance_azimuths(samples.lat, samples.lon, found.lat, found.lon)[0]
    longitude = (found.lon - samples.lon + 180.0) % 360.0 - 180.0
    depth, time = found.depth_km - samples.depth_km, found.origin_time
    scaled_errors = (
        longitude / 90.0,
        (found.lat - samples.lat) / 90.0,
        depth / (encoding.max_depth_km / 2),
        time / (encoding.time_scale_s / 2),
    )
    return distance_scores(km) | {
        "depth_km": float(np.abs(depth).mean()),
        "time_s": float(np.abs(time).mean()),
        "mse": float(np.mean([np.mean(e**2) for e in scaled_errors])),
    }


def distance_scores(km: Float[np.ndarray, " N"]) -> dict[str, float]:
    """Quantiles of distances between epicentres and the share (%) beyond 50 km."""
    found = {
        name: float(value)
        for name, value in zip(("km_median", "km_p90", "km_p95"), np.quantile(km, (0.5, 0.9, 0.95)), strict=True)
    }
    return found | {"far": 100 * float(np.mean(km > FAR_KM))}


def turned_difference(samples: Samples, by_deg: float, encoding: Encoding) -> float:
    """Largest change of anchor-relative inputs and labels when source and stations turn about the poles together."""
    relative = dataclasses.replace(encoding, longitude="anchor", longitude_scale_deg=None)
    turned = dataclasses.replace(samples, lon=samples.lon + by_deg, station_lon=samples.station_lon + by_deg)
    return max(
        float(np.abs(a - b).max()) for a, b in zip(samples.encode(relative), turned.encode(relative), strict=True)
    )


def shifted(u: Float[np.ndarray, "N F"], by: float) -> Float[np.ndarray, "N F"]:
    """Inputs with every station's scaled longitude moved: the same event on the turned globe."""
    moved = u.copy()
    moved[:, ::6] += by
    return moved


def longitude_response(model: nn.Module, u: Float[np.ndarray, "N F"], by: float) -> float:
    """Mean change of the predicted longitude over the change of all stations' longitudes; 1 for a map that turns with
    the globe."""
    change = predict(model, torch.as_tensor(shifted(u, by)), batch_size=4000) - predict(
        model, torch.as_tensor(u), batch_size=4000
    )
    return float(change[:, 0].double().mean() / by)
