"""Facts of the spiky series: its controls, the error that no forecast can avoid, and what a forecast does inside a
spike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from data_gen.core.dataset import Dataset
from data_gen.synthetic.spiky import spike

# Defaults of `data_gen.synthetic.spiky`.
SPACING = 100 / 9999
SPIKE_LENGTH = 100


def control_forecasts(data: Dataset) -> dict[str, tuple[Float[np.ndarray, "N 1"], Float[np.ndarray, "M 1"]]]:
    """Forecasts of the training and of the test windows that need no network.

    constant: the training mean. persistence: the window's last value. autoregression: the linear map of the window,
        with a constant,
    of least squared error on the training part.

    Args:
        data: from `data_gen.synthetic.spiky`.

    Returns:
        name -> (training forecasts, test forecasts).
    """
    u, y = data.u_train.astype(np.float64), data.y_train.astype(np.float64)
    tested = data.test[0][0].astype(np.float64)

    def with_constant(windows):
        return np.hstack([windows, np.ones((len(windows), 1))])

    weights = np.linalg.lstsq(with_constant(u), y, rcond=None)[0]
    return {
        "constant": (np.full_like(y, y.mean()), np.full((len(tested), 1), y.mean())),
        "persistence": (u[:, -1:], tested[:, -1:]),
        "autoregression": (with_constant(u) @ weights, with_constant(tested) @ weights),
    }


def split_error(
    forecast: Float[np.ndarray, "N 1"], target: Float[np.ndarray, "N 1"], inside: Bool[np.ndarray, " N"]
) -> dict[str, float]:
    """Mean squared error of all windows, and of those whose target lies inside and outside a spike.

    Raises:
        ValueError: shapes that differ.
    """
    if forecast.shape != target.shape or len(inside) != len(target):
        raise ValueError(f"forecast {forecast.shape}, target {target.shape} and mask {inside.shape} do not match")
    squared = ((np.asarray(forecast, np.float64) - target) ** 2)[:, 0]
    return {
        "all": float(squared.mean()),
        "inside": float(squared[inside].mean()),
        "outside": float(squared[~inside].mean()),
    }


def resemblance(
    forecast: Float[np.ndarray, "N 1"], target: Float[np.ndarray, "N 1"], inside: Bool[np.ndarray, " N"]
) -> dict[str, float]:
    """Inside spikes: the forecasts' standard deviation over the series' (magnitude), and their correlation (location).

    A constant forecast has magnitude 0 and no correlation, given as 0.
    """
    a, b = np.asarray(forecast, np.float64)[inside, 0], np.asarray(target, np.float64)[inside, 0]
    flat = a.std() < 1e-12 * max(1.0, np.abs(a).max())
    return {"magnitude": float(a.std() / b.std()), "correlation": 0.0 if flat else float(np.corrcoef(a, b)[0, 1])}


def unit_factors(data: Dataset) -> dict[str, float]:
    """By what a squared error in the data's scale is multiplied to be one in the scales "raw", "standard" and "unit".

    Errors of forecasts mapped along with the series scale exactly so, whatever the scale a model was trained in.
    """
    train = data.meta["series"][: _test_start(data)]
    in_raw = data.meta["scale"] ** 2
    return {"raw": in_raw, "standard": in_raw / train.var(), "unit": in_raw / np.ptp(train) ** 2}


def _test_start(data: Dataset) -> int:
    """Points of the training part: both parts lose the same number of points to windows."""
    lost = (len(data.meta["series"]) - len(data.u_train) - len(data.test[0][0])) // 2
    return len(data.u_train) + lost


def floor(data: Dataset, *, noise: float, restart: bool) -> dict[str, float]:
    """Mean squared test error, in the data's scale, of a forecaster that knows everything but the future.

    It knows the law of the series, the phase x and whether the present point is in a spike. It does not know the noise
    to come, nor that a spike will begin, nor that it ends, unless each spike restarts and so tells its age. A change
    being due in one step of a hundred or less, the best forecast is that there is none (hedging gains a hundredth of
    what follows). What remains is

        noise    variance of the noise times the share of noisy targets
        entries  sum of (spike(x) - sin(x))^2 over the first points of spikes, over the number of targets
        exits    the same over the first points after them; 0 where each spike restarts.

    Args:
        data: from `data_gen.synthetic.spiky` with these options, of spacing `SPACING` and regions of `SPIKE_LENGTH`
            points.
        noise, restart: as there.

    Returns:
        The three parts and their sum under "all".
    """
    start, series, inside = _test_start(data), data.meta["series"], data.meta["spiky"]
    first = len(series) - len(data.test[0][0])  # the first target of the test part
    targets = np.arange(first, len(series))
    x = SPACING * targets
    at = x if not restart else SPACING * ((targets - start) % SPIKE_LENGTH)
    jump = (spike(at) - np.sin(x)) ** 2
    changed = inside[targets] != inside[targets - 1]
    # A restarted spike is known to end with its slot: one that follows another at once is as new as the first.
    new = inside[targets] & ((targets - start) % SPIKE_LENGTH == 0 if restart else changed)
    parts = {
        "noise": noise**2 * float((~inside[targets]).mean()),
        "entries": float(jump[new].sum() / len(targets)),
        "exits": 0.0 if restart else float(jump[~inside[targets] & changed].sum() / len(targets)),
    }
    parts = {name: value / data.meta["scale"] ** 2 for name, value in parts.items()}
    return parts | {"all": sum(parts.values())}


def closest_epoch(train: Sequence[float], test: Sequence[float], published: Mapping[str, float]) -> tuple[float, float]:
    """The epoch, from 1, after which both errors are nearest to published ones, and the factor by which the worse of
    the two is off.

    Args:
        train, test: errors after each epoch.
        published: "train" and "test".
    """
    off = [
        max(abs(np.log(a / published["train"])), abs(np.log(b / published["test"])))
        for a, b in zip(train, test, strict=True)
    ]
    best = int(np.argmin(off))
    return float(best + 1), float(np.exp(off[best]))


def stretch(data: Dataset, length: int) -> slice:
    """Test targets to draw: the window of this length with the most changes between calm and spiky, the earliest such.

    Args:
        data: from `data_gen.synthetic.spiky`.
        length: of the window, cut to the number of targets.
    """
    inside = data.meta["target_spiky"]["test"].astype(int)
    length = min(length, len(inside))
    changes = np.abs(np.diff(inside, prepend=inside[0]))
    counts = np.convolve(changes, np.ones(length, int), mode="valid")
    start = int(counts.argmax())
    # some calm points before the first change
    first = int(np.flatnonzero(changes[start : start + length])[0]) if counts[start] else 0
    start = min(max(0, start + first - length // 8), len(inside) - length)
    return slice(start, start + length)


def in_raw_units(values: np.ndarray, meta: Mapping[str, Any]) -> np.ndarray:
    """Values of the data's scale as values of the raw series."""
    return meta["offset"] + meta["scale"] * np.asarray(values, np.float64)
