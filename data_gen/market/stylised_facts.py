"""Stylised facts of minute bars: what a synthetic market must share with a real one.

Source: Cont (2001) for the list; Andersen and Bollerslev (1997) for the intraday season; Hill (1975) for the tail
index.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from data_gen.market.minute_bars import MinuteBars
from data_gen.market.sessions import FULL

BLOCK = 30
TAIL = 0.01
HORIZON = 10
LAGS = (1, 5, 60)


def stylised_facts(bars: MinuteBars) -> dict[str, float]:
    """Facts of the full sessions of the bars; half sessions and those with under 380 bars are left out.

    Args:
        bars: real or synthetic; (high + low + close) / 3 stands in for VWAP, since real bars may be without it.

    Returns:
        Name -> value. r are log returns of closes from minute to minute inside a session, v variances of that price
        over ten minutes, "season removed" is |r| divided by its mean at that minute.

    Raises:
        ValueError: fewer than two full sessions.
    """
    close, high, low, volume = (bars.table(name) for name in ("close", "high", "low", "volume"))
    weighted = (high + low + close) / 3
    full = (bars.calendar.minutes == FULL) & (np.isfinite(close).sum(axis=1) >= FULL - 10)
    if full.sum() < 2:
        raise ValueError(f"{int(full.sum())} full sessions; facts need two")
    close, high, low, volume, weighted = (values[full][:, :FULL] for values in (close, high, low, volume, weighted))

    returns = np.diff(np.log(close), axis=1)
    size = np.abs(returns)
    season = np.nanmean(size, axis=0)
    sigma = np.nanstd(returns)
    facts: dict[str, float] = {
        "sessions": float(full.sum()),
        "mean price": float(np.nanmean(close)),
        "sd of r": float(sigma),
    }
    flat = returns[np.isfinite(returns)]
    facts["excess kurtosis of r"] = float(((flat - flat.mean()) ** 4).mean() / flat.var() ** 2 - 3)
    facts["Hill index, largest 1 %"] = hill_index(size[np.isfinite(size)])
    facts["share of r = 0"] = float((flat == 0).mean())
    for lag in LAGS:
        facts[f"acf of |r| at {lag} min"] = autocorrelation(size, lag)
    for lag in LAGS:
        facts[f"acf of |r| at {lag} min, season removed"] = autocorrelation(size / season, lag)
    facts["acf of r at 1 min"] = autocorrelation(returns, 1)
    facts["acf of VWAP returns at 1 min"] = autocorrelation(np.diff(np.log(weighted), axis=1), 1)
    for label, values in (("|r|", size), ("volume", volume)):
        blocks = _blocks(values)
        for place, k in (("first", 0), ("middle", len(blocks) // 2), ("last", -1)):
            facts[f"{label}, {place} half hour / mean"] = float(blocks[k] / blocks.mean())
    log_range = np.log(high / low)
    both = np.isfinite(volume) & (volume > 0) & (log_range > 0)
    log_volume = np.log(volume[both])
    facts["corr of log volume and log range"] = float(np.corrcoef(log_volume, np.log(log_range[both]))[0, 1])
    facts["sd of log volume"] = float(log_volume.std())
    facts["mean |VWAP - close| / sd"] = float(np.nanmean(np.abs(weighted / close - 1)) / sigma)
    facts |= _variance_facts(weighted)
    facts["sd of log daily deviation"] = float(np.std(np.log(np.nanstd(returns, axis=1))))
    return facts


def hill_index(sizes: Float[np.ndarray, " N"], share: float = TAIL) -> float:
    """Tail index alpha of P(size > x) ~ x^-alpha from the largest `share` of the sizes.

    Raises:
        ValueError: fewer than two sizes in the tail, or a threshold of zero.
    """
    ordered = np.sort(sizes)[::-1]
    k = int(share * len(ordered))
    if k < 2 or ordered[k] <= 0:
        raise ValueError(f"the largest {share:g} of {len(ordered)} sizes is no tail")
    return float(1 / np.mean(np.log(ordered[:k] / ordered[k])))


def autocorrelation(rows: Float[np.ndarray, "D M"], lag: int) -> float:
    """Correlation of a value with that `lag` columns later, over all rows; pairs with a NaN are left out."""
    a, b = rows[:, :-lag].ravel(), rows[:, lag:].ravel()
    known = np.isfinite(a) & np.isfinite(b)
    return float(np.corrcoef(a[known], b[known])[0, 1])


def _blocks(values: Float[np.ndarray, "D M"]) -> Float[np.ndarray, " B"]:
    mean = np.nanmean(values, axis=0)
    return np.array([np.nanmean(mean[k : k + BLOCK]) for k in range(0, len(mean), BLOCK)])


def _variance_facts(price: Float[np.ndarray, "D M"]) -> dict[str, float]:
    windows = np.lib.stride_tricks.sliding_window_view(price, HORIZON, axis=1)
    variance = windows.var(axis=-1)
    level = np.nanmean(price)
    known = variance[np.isfinite(variance)]
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(variance > 1e-9, np.log(variance), np.nan)
    return {
        "mean of v / price²": float(known.mean() / level**2),
        "mean / median of v": float(known.mean() / np.median(known)),
        "sd of log v": float(np.nanstd(log)),
        "corr of log v and the next": autocorrelation(log, HORIZON),
    }
