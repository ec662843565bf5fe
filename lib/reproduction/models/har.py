"""Forecasts of the coming variance that need no network: constants, persistence, autoregressions.

All map the past prices of a window, in dollars, to the variance of the next minutes, in dollars^2:

    constant         the training mean or median, 0, or the constant with the least MAPE
    persistence      the variance of the last 10 minutes
    HAR              b + sum_k a_k x_k over the variances of the last 10, 30 and 60 minutes and the mean squared
    differences of the same
    log-HAR          exp(b + sum_k a_k log x_k), fitted to log v
    ordinary least squares on the prices themselves, which knows no quadratic

Source: Corsi (2009), A simple approximate long-memory model of realized volatility (HAR: averages over several
horizons).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from data_gen.market.volatility import ZERO_VARIANCE, window_variance

HORIZONS = (10, 30, 60)


def past_variances(history: Float[np.ndarray, "N T"], horizons: tuple[int, ...] = HORIZONS) -> Float[np.ndarray, "N k"]:
    """Variances of the last minutes and mean squared differences of the same, one pair for every horizon.

    Args:
        history: past prices.
        horizons: in minutes, at most T.

    Raises:
        ValueError: a horizon below 2 or above T.
    """
    history = np.asarray(history, dtype=np.float64)
    for horizon in horizons:
        if not 2 <= horizon <= history.shape[1]:
            raise ValueError(f"horizon {horizon} is outside 2..{history.shape[1]}, the length of the history")
    steps = np.square(np.diff(history, axis=1))
    levels = [window_variance(history[:, -h:]) for h in horizons]
    moves = [steps[:, -(h - 1) :].mean(axis=1) for h in horizons]
    return np.stack([*levels, *moves], axis=1)


class Constant:
    """The same forecast for every sample.

    Args:
        value: dollars^2.
    """

    def __init__(self, value: float) -> None:
        self.value = float(value)

    def __call__(self, history: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
        return np.full(len(history), self.value)


class Persistence:
    """The variance of the last minutes, as many as the first of `HORIZONS`."""

    def __call__(self, history: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
        return past_variances(history, HORIZONS[:1])[:, 0]


class HAR:
    """Heterogeneous autoregression of the variance, by least squares.

    Args:
        history, variance: training samples, dollars and dollars^2.
        logarithmic: fit log v on log x. Values below `ZERO_VARIANCE` count as that in the logarithm, and targets below
            it are left out.

    Raises:
        ValueError: fewer samples than coefficients.
    """

    def __init__(
        self, history: Float[np.ndarray, "N T"], variance: Float[np.ndarray, " N"], *, logarithmic: bool = False
    ) -> None:
        self.logarithmic = logarithmic
        variance = np.asarray(variance, dtype=np.float64)
        used = variance >= ZERO_VARIANCE if logarithmic else np.ones(len(variance), bool)
        x = self._regressors(np.asarray(history)[used])
        if len(x) < x.shape[1]:
            raise ValueError(f"{len(x)} samples for {x.shape[1]} coefficients")
        target = np.log(variance[used]) if logarithmic else variance[used]
        # Columns of one size: a variance of 1e-9 beside one of 1 must not decide the rank.
        size = np.sqrt(np.mean(x**2, axis=0))
        size[size == 0] = 1.0
        self.coefficients = np.linalg.lstsq(x / size, target, rcond=None)[0] / size

    def _regressors(self, history: np.ndarray) -> np.ndarray:
        x = past_variances(history)
        if self.logarithmic:
            x = np.log(np.maximum(x, ZERO_VARIANCE))
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    def __call__(self, history: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
        value = self._regressors(history) @ self.coefficients
        return np.exp(value) if self.logarithmic else value


class PriceRegression:
    """v on the prices of the window and a constant, by least squares: the closed form of the papers' linear
    regression."""

    def __init__(self, history: Float[np.ndarray, "N T"], variance: Float[np.ndarray, " N"]) -> None:
        # Levels and differences span the same space as prices, and are far better conditioned.
        self.coefficients = np.linalg.lstsq(
            self._regressors(history), np.asarray(variance, dtype=np.float64), rcond=None
        )[0]

    @staticmethod
    def _regressors(history: np.ndarray) -> np.ndarray:
        history = np.asarray(history, dtype=np.float64)
        return np.concatenate([np.ones((len(history), 1)), history[:, -1:], np.diff(history, axis=1)], axis=1)

    def __call__(self, history: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
        return self._regressors(history) @ self.coefficients


def least_mape_constant(variance: Float[np.ndarray, " N"]) -> float:
    """The constant c that makes mean |c - v| / v least: the median of v under weights 1 / v.

    Args:
        variance: of the training samples; those below `ZERO_VARIANCE` are left out, as in the metric.

    Raises:
        ValueError: no variance is above it.
    """
    values = np.sort(np.asarray(variance, dtype=np.float64))
    values = values[values >= ZERO_VARIANCE]
    if not len(values):
        raise ValueError(f"no variance is above {ZERO_VARIANCE:g}")
    weight = np.cumsum(1 / values)
    return float(values[np.searchsorted(weight, weight[-1] / 2)])


class Scaled:
    """A forecast times the factor that makes its MAPE on the training samples least: what the metric alone rewards."""

    def __init__(self, forecast, history: Float[np.ndarray, "N T"], variance: Float[np.ndarray, " N"]) -> None:
        self.forecast = forecast
        value, variance = forecast(history), np.asarray(variance, dtype=np.float64)
        used = (variance >= ZERO_VARIANCE) & (value > 0)
        self.factor = least_mape_constant(variance[used] / value[used])  # |c f - v| / v = |c - v / f| / (v / f)

    def __call__(self, history: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
        return self.factor * self.forecast(history)


def controls(history: Float[np.ndarray, "N T"], variance: Float[np.ndarray, " N"]) -> dict[str, object]:
    """All controls, fitted to the training samples: name -> callable (N, T) prices -> (N,) variances.

    Args:
        history, variance: training samples.
    """
    log_har = HAR(history, variance, logarithmic=True)
    return {
        "zero": Constant(0.0),
        "mean": Constant(np.mean(variance)),
        "median": Constant(np.median(variance)),
        "least_mape_constant": Constant(least_mape_constant(variance)),
        "persistence": Persistence(),
        "price_regression": PriceRegression(history, variance),
        "har": HAR(history, variance),
        "log_har": log_har,
        "log_har_scaled": Scaled(log_har, history, variance),
    }
