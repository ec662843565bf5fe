"""The volatility task: the variance of the VWAP over the next ten minutes from the VWAP of the past sixty.

    v = 1/h sum_j (w_j - mean w)^2,  j = 1..h,  the window's own mean subtracted first

A sample lies inside one session: across a night, a single gap would make up most of the variance. The papers do not
say; nor do they say the stride, 10 here, so that targets do not overlap. The split is by session, so no minute is seen
by both sides.

Two forms are offered. The papers': prices in, variance out, "without differencing". The homogeneous one: differences
in, standard deviation out. v is unchanged by w -> w + c and takes the factor t^2 under w -> t w, so that its root is a
function of degree one of the
differences: a model without biases that learns it at one level of volatility has learnt it at all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Shaped

from data_gen.core.dataset import Dataset
from data_gen.core.sizes import check_sizes
from data_gen.core.streams import stream
from data_gen.market.minute_bars import MinuteBars
from data_gen.market.minutes import minute_market
from implicit_models.summaries import summary

SPLIT = "2021-01-01"
# Ten prices rounded to 1/100 cent of which one moves by one unit have variance 0.09 (1e-4)^2 = 9e-10: below this there
# was no movement.
ZERO_VARIANCE = 1e-9
ZERO_RULE = (
    "windows whose variance is below 1e-9 dollar² (no price moved by more than one unit of 1/100 cent) are left out of"
    " MAPE, median APE, QLIKE and log-R²; RMSE and means keep them"
)

Inputs = Literal["price", "difference"]
Target = Literal["variance", "sd"]
Scaling = Literal["train", "raw"]


def volatility(
    bars: MinuteBars | None = None,
    *,
    look_back: int = 60,
    horizon: int = 10,
    stride: int = 10,
    split: str = SPLIT,
    inputs: Inputs = "price",
    target: Target = "variance",
    scaling: Scaling = "train",
    n_train: int | None = None,
    seed: int,
) -> Dataset:
    """Windows of minute bars: u the past VWAP, y the variance to come or its root.

    Args:
        bars: real or synthetic; None makes the synthetic market of this seed.
        look_back, horizon: minutes of the input and of the target.
        stride: minutes between the starts of two samples of a session.
        split: first day of the test set.
        inputs: "price", u (N, look_back); "difference", u (N, look_back - 1), w_j - w_{j-1}.
        target: "variance" in dollars^2, or "sd", its root.
        scaling: "raw", dollars; "train" divides prices by their mean over the training samples, differences by their
            root mean square, targets by their standard deviation. Only positive factors: no mean is subtracted, so that
            homogeneity stays.
        n_train: draw so many training samples; None keeps all.
        seed: of the market and of the draw.

    Returns:
        Dataset with u float32, y (N, 1) float32 and one test set, keyed by the year of `split`. meta: "variance"
        {"train" or year: (N,) float64, dollars^2}, "history" {...: (N, look_back) float64, dollars}, "date" {...:
        (N,)}, "input_scale" and "target_scale", "available" (training samples before the draw).

    Raises:
        ValueError, TypeError: an option outside its domain, a window longer than the longest session, a side of the
            split without samples, more training samples asked for than there are, or a training set without any
            movement, which has no scale.

    Source:
        Decugis et al. (2024), section 2.2; Tsai thesis (2024), section 5.2.
    """
    for name, value, known in (
        ("inputs", inputs, ("price", "difference")),
        ("target", target, ("variance", "sd")),
        ("scaling", scaling, ("train", "raw")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r}")
    check_sizes(2, look_back=look_back, horizon=horizon)
    check_sizes(1, stride=stride, **({} if n_train is None else {"n_train": n_train}))
    every = samples(minute_market(seed) if bars is None else bars, look_back, horizon, stride)
    test = every.date >= np.datetime64(split)
    year = int(str(split)[:4])
    if test.all() or not test.any():
        raise ValueError(
            f"{int((~test).sum())} samples before {split}, {int(test.sum())} from then on: both sides need some"
        )
    chosen = np.flatnonzero(~test)
    if n_train is not None:
        if n_train > len(chosen):
            raise ValueError(f"n_train = {n_train}: there are {len(chosen)} training samples")
        chosen = np.sort(stream(seed, "volatility samples").choice(chosen, n_train, replace=False))

    parts: dict[Any, Samples] = {"train": every[chosen], year: every[test]}
    history, variance, u, y = {}, {}, {}, {}
    for name, part in parts.items():
        history[name], variance[name] = part.past, part.variance
        u[name] = history[name] if inputs == "price" else np.diff(history[name], axis=1)
        y[name] = variance[name] if target == "variance" else np.sqrt(variance[name])
    input_scale, target_scale = _scales(u["train"], y["train"], inputs, scaling)

    def sample(name: Any) -> tuple[np.ndarray, np.ndarray]:
        return (u[name] / input_scale).astype(np.float32), (y[name] / target_scale).astype(np.float32)[:, None]

    meta = {
        "name": "volatility",
        "seed": seed,
        "inputs": inputs,
        "target": target,
        "scaling": scaling,
        "variance": variance,
        "history": history,
        "date": {name: part.date for name, part in parts.items()},
        "input_scale": input_scale,
        "target_scale": target_scale,
        "available": int((~test).sum()),
    }
    return Dataset(*sample("train"), {year: sample(year)}, meta)


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows of minute bars in order of time.

    Args:
        date: of their sessions, datetime64[D].
        windows: VWAP, dollars, the past and then the minutes to come.
        look_back: minutes of the past.
    """

    date: Shaped[np.ndarray, " N"]
    windows: Float[np.ndarray, "N M"]
    look_back: int

    def __repr__(self) -> str:
        return summary(self)

    def __getitem__(self, part: Shaped[np.ndarray, " ..."]) -> Samples:
        """Those of an index or a mask."""
        return Samples(self.date[part], self.windows[part], self.look_back)

    @property
    def past(self) -> Float[np.ndarray, "N T"]:
        """VWAP that a model is given: a view, since sums over a copy round in another order."""
        return self.windows[:, : self.look_back]

    @property
    def variance(self) -> Float[np.ndarray, " N"]:
        """Variance of the VWAP to come, dollars^2."""
        return window_variance(self.windows[:, self.look_back :])


def samples(bars: MinuteBars, look_back: int, horizon: int, stride: int) -> Samples:
    """Every window of the bars that begins at a stride-th minute of a session and stays inside it.

    Args:
        as `volatility`.

    Raises:
        as `MinuteBars.windows`; ValueError for bars of another interval than a minute.
    """
    if bars.interval != 1:
        raise ValueError(f"the task is one of minute bars, these last {bars.interval} minutes each")
    first = bars.windows(look_back + horizon, stride)
    return Samples(bars.date[first], bars.vwap[first[:, None] + np.arange(look_back + horizon)], look_back)


def window_variance(prices: Float[np.ndarray, "N h"]) -> Float[np.ndarray, " N"]:
    """Variance of each row in float64, its mean subtracted first: E w^2 - (E w)^2 would lose all digits of a calm
    window."""
    prices = np.asarray(prices, dtype=np.float64)
    return np.square(prices - prices.mean(axis=1, keepdims=True)).mean(axis=1)


def to_variance(y: Float[np.ndarray, "N 1"], meta: dict[str, Any]) -> Float[np.ndarray, " N"]:
    """A model's output in dollars^2: scale undone, and a standard deviation squared; a negative one is a variance below
    zero.

    Args:
        y: in the units of the data set's targets.
        meta: of that data set.
    """
    value = np.asarray(y, dtype=np.float64)[:, 0] * meta["target_scale"]
    return value if meta["target"] == "variance" else np.sign(value) * value**2


def _scales(u: np.ndarray, y: np.ndarray, inputs: Inputs, scaling: Scaling) -> tuple[float, float]:
    if scaling == "raw":
        return 1.0, 1.0
    scales = (float(u.mean() if inputs == "price" else np.sqrt(np.mean(u**2))), float(y.std()))
    for name, scale in zip(("inputs", "targets"), scales, strict=True):
        if not scale > 0:
            raise ValueError(
                f"the training {name} do not move, so there is nothing to scale them by: use scaling='raw'"
            )
    return scales
