"""A calm sine with rare spiky regions, cut into windows for forecasting.

    outside    y = sin(x) + noise
    a spike    y = 5 (sin 2x + sin 23x + sin 78x + sin 100x)

The papers leave open what x is for each point, whether a spike continues in x or starts anew, the noise (its variance
or its deviation is .25; the report has none), the window, the horizon and the scale of the series. All are parameters
here. The defaults, and why: spacing 100 / 9999, since "frequencies in [0, 100]" over 10,000 points is a range of x of
100; look-back 10, the longest position of the transformers of that task; one step ahead; deviation .5, as N(0, .25)
names a variance; slots of whole spikes, so that none overlap. The unit is "raw"; "unit" is the [0, 1] scale of the
training part, on which the published errors are those of a constant and of persistence; "standard" the z-score.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from data_gen.core.dataset import Dataset
from data_gen.core.sizes import check_sizes
from data_gen.core.streams import stream

FREQUENCIES = (2.0, 23.0, 78.0, 100.0)
AMPLITUDE = 5.0

Scaling = Literal["raw", "unit", "standard"]


def spiky(
    n_train: int = 7_000,
    n_test: int = 3_000,
    n_spikes: int = 20,
    n_spikes_test: int = 9,
    spike_length: int = 100,
    *,
    look_back: int = 10,
    horizon: int = 1,
    spacing: float = 100 / 9999,
    noise: float = 0.5,
    restart: bool = False,
    scaling: Scaling = "raw",
    seed: int,
) -> Dataset:
    """Windows of the spiky series: u the last `look_back` points, y the point `horizon` steps after them.

    Args:
        n_train, n_test: points of the two parts, which follow each other.
        n_spikes, n_spikes_test: spiky regions of each; "proportionate" to 20 in 7,000 points is 8.6 in 3,000.
        spike_length: points of a region. Regions lie in slots of that length, drawn without replacement.
        look_back, horizon: of the windows, which never cross from one part to the other.
        spacing: of x between points.
        noise: standard deviation outside the spikes.
        restart: each spike starts at x = 0; else it uses the x of its points.
        scaling: "raw"; "unit" maps the training part to [0, 1]; "standard" to mean 0 and deviation 1; the test part by
            the same map.
        seed: of places and noise.

    Returns:
        Dataset with u (N, look_back) and y (N, 1) float32 and one test set, key 0. meta: "series" (n_train + n_test,)
        raw, "spiky" its mask, "scale" and "offset" of the map (raw = offset + scale * value), "target_spiky" {split:
        mask of the targets inside a spike}.

    Raises:
        ValueError, TypeError: a size or option outside its domain; more spikes than slots; a part no longer than a
            window.

    Source:
        Tsai thesis (2024), section 5.2; Ganesh (2023), appendix A.4; Decugis et al. (2024), appendix A.3.
    """
    check_sizes(1, n_train=n_train, n_test=n_test, spike_length=spike_length, look_back=look_back, horizon=horizon)
    check_sizes(0, n_spikes=n_spikes, n_spikes_test=n_spikes_test)
    for name, value, least in (("spacing", spacing, 0.0), ("noise", noise, -1.0)):
        if not (math.isfinite(value) and value > least and value >= 0):
            raise ValueError(
                f"{name} must be a finite number {'above' if least == 0 else 'of at least'} 0, got {value}"
            )
    if scaling not in ("raw", "unit", "standard"):
        raise ValueError(f"scaling must be 'raw', 'unit' or 'standard', got {scaling!r}")
    for name, n in (("n_train", n_train), ("n_test", n_test)):
        if n < look_back + horizon:
            raise ValueError(
                f"{name} = {n} is shorter than a window of {look_back} points and its target, {horizon} later"
            )

    x = spacing * np.arange(n_train + n_test)
    inside = np.concatenate(
        [
            _places(stream(seed, "train"), "n_train", n_train, n_spikes, spike_length),
            _places(stream(seed, "test"), "n_test", n_test, n_spikes_test, spike_length),
        ]
    )
    series = np.sin(x) + noise * stream(seed, "noise").normal(size=x.size)
    at = x
    if restart:
        at = spacing * (np.concatenate([np.arange(n_train), np.arange(n_test)]) % spike_length)
    series = np.where(inside, spike(at), series)

    train = series[:n_train]
    offset, scale = {
        "raw": (0.0, 1.0),
        "unit": (train.min(), train.max() - train.min()),
        "standard": (train.mean(), train.std()),
    }[scaling]
    values = (series - offset) / scale

    def windows(part: slice):
        each = np.lib.stride_tricks.sliding_window_view(values[part], look_back + horizon)
        return each[:, :look_back].astype(np.float32), each[:, -1:].astype(np.float32)

    parts = {"train": slice(0, n_train), "test": slice(n_train, None)}
    meta = {
        "name": "spiky",
        "seed": seed,
        "scaling": scaling,
        "series": series,
        "spiky": inside,
        "offset": float(offset),
        "scale": float(scale),
        "target_spiky": {name: inside[part][look_back + horizon - 1 :] for name, part in parts.items()},
    }
    return Dataset(*windows(parts["train"]), {0: windows(parts["test"])}, meta)


def spike(x: Float[np.ndarray, " ..."] | float) -> Float[np.ndarray, " ..."] | float:
    """5 (sin 2x + sin 23x + sin 78x + sin 100x), at most 20 in size."""
    return AMPLITUDE * sum(np.sin(frequency * np.asarray(x, dtype=np.float64)) for frequency in FREQUENCIES)


def _places(rng: np.random.Generator, name: str, n: int, spikes: int, length: int) -> Bool[np.ndarray, " n"]:
    """Mask of `spikes` whole slots of a part."""
    slots = n // length
    if spikes > slots:
        raise ValueError(f"{spikes} spikes of {length} points do not fit into {name} = {n}: there are {slots} slots")
    inside = np.zeros(n, bool)
    for slot in rng.choice(slots, spikes, replace=False):
        inside[slot * length : (slot + 1) * length] = True
    return inside
