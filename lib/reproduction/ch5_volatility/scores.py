"""How good a forecast of a variance is: several scores, since each alone can be gamed.

MAPE, in units of 1, is 1 for the forecast 0 and cannot exceed 1 by forecasting too little, so a model that is stuck at
a low level scores well where the truth is high. RMSE sees the largest windows only; log-R^2 and QLIKE weigh all levels
alike.

    MAPE = mean |f - v| / v     QLIKE = mean (v / f - ln(v / f) - 1)     log-R^2 = 1 - sum (ln f - ln v)^2 / sum (ln v -
    mean ln v)^2

Windows without movement (v below 1e-9 dollar^2) have no relative error and are left out of these three and of the
median; they count in RMSE and in the means. A forecast at or below 0 has no logarithm: it is taken as 1e-9 in QLIKE and
log-R^2, and its share is a score.

Source: Patton (2011), Volatility forecast comparison using imperfect volatility proxies (QLIKE).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from data_gen.market.volatility import ZERO_VARIANCE

# Samples below which a bin has no mean, and sessions that a rolling mean takes.
LEAST_IN_BIN = 20
ROLLING_DAYS = 21
SCORE_LABELS = {
    "mape": "MAPE",
    "median_ape": "median APE",
    "rmse": "RMSE ($²)",
    "qlike": "QLIKE",
    "log_r2": "log-R²",
    "not_positive": "share ≤ 0",
    "mean_ratio": "mean forecast / mean",
}


def scores(forecast: Float[np.ndarray, " N"], variance: Float[np.ndarray, " N"]) -> dict[str, float]:
    """Scores of one forecast, in the order of `SCORE_LABELS`.

    Args:
        forecast, variance: dollars^2.

    Returns:
        "mape", "median_ape" (units of 1), "rmse" (dollars^2), "qlike", "log_r2", "not_positive" (share of forecasts at
        or below 0), "mean_ratio" (mean forecast over mean variance). Infinite or NaN forecasts make theirs infinite or
        NaN.

    Raises:
        ValueError: shapes differ, a variance is negative or not finite, or none is above `ZERO_VARIANCE`.
    """
    forecast, variance = np.asarray(forecast, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if forecast.shape != variance.shape or forecast.ndim != 1:
        raise ValueError(f"forecasts {forecast.shape} and variances {variance.shape} must be vectors of one length")
    bad = ~(np.isfinite(variance) & (variance >= 0))
    if bad.any():
        raise ValueError(f"variance {int(np.argmax(bad))} is {variance[np.argmax(bad)]}")
    moved = variance >= ZERO_VARIANCE
    if not moved.any():
        raise ValueError(f"none of {len(variance)} variances is above {ZERO_VARIANCE:g}: relative errors do not exist")
    f, v = forecast[moved], variance[moved]
    relative = np.abs(f - v) / v
    # np.maximum keeps NaN.
    ratio = v / np.maximum(f, ZERO_VARIANCE)
    with np.errstate(divide="ignore"):  # an infinite forecast
        error = np.log(ratio)
    log = np.log(v)
    spread = np.sum((log - log.mean()) ** 2)
    return {
        "mape": float(relative.mean()),
        "median_ape": float(np.median(relative)),
        "rmse": float(np.sqrt(np.mean((forecast - variance) ** 2))),
        "qlike": float(np.mean(ratio - error - 1)),
        "log_r2": float(1 - np.sum(error**2) / spread) if spread > 0 else float("nan"),
        "not_positive": float(np.mean(forecast <= 0)),
        "mean_ratio": float(forecast.mean() / variance.mean()),
    }


def calibration(
    forecast: Float[np.ndarray, " N"],
    variance: Float[np.ndarray, " N"],
    level: Float[np.ndarray, " N"],
    edges: Sequence[float],
) -> list[float]:
    """Mean forecast over mean variance in bins of a level known beforehand; NaN in bins with fewer than `LEAST_IN_BIN`
    samples.

    Args:
        forecast, variance: dollars^2.
        level: what the bins are of, for instance the variance of the past hour.
        edges: rising; bin k is edges[k] <= level < edges[k + 1].
    """
    place = np.digitize(level, edges) - 1
    values = []
    for k in range(len(edges) - 1):
        inside = place == k
        enough = inside.sum() >= LEAST_IN_BIN
        values.append(float(forecast[inside].mean() / variance[inside].mean()) if enough else float("nan"))
    return values


def rolling_mean(values: Mapping[object, Float[np.ndarray, " N"]]) -> tuple[list, list[float]]:
    """Mean over the samples of each session, then over the last `ROLLING_DAYS` sessions, in the beginning over those
    there are.

    Args:
        values: session -> its samples, in order of time.

    Returns:
        The sessions and the means.
    """
    daily = np.array([np.mean(samples) for samples in values.values()])
    total = np.concatenate([[0.0], np.cumsum(daily)])
    last = np.arange(1, len(daily) + 1)
    first = np.maximum(0, last - ROLLING_DAYS)
    return list(values), ((total[last] - total[first]) / (last - first)).tolist()
