"""Daily bars of one stock, from a file or from Yahoo, checked as those of minutes are."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from data_gen.market.bar_files import DAY, BarsError, interval_of, read_rows
from implicit_models.summaries import summary

ACCEPTABLE = ("out_of_order", "duplicates", "non_positive", "inconsistent")
ROUNDING = 0.005  # dollars: vendors round prices differently


@dataclass(frozen=True, eq=False)
class DailyBars:
    """Daily bars: dates (D,) datetime64[D]; prices in dollars; volume in shares, 0 where there is none."""

    dates: Shaped[np.ndarray, " D"]
    open: Float[np.ndarray, " D"]
    high: Float[np.ndarray, " D"]
    low: Float[np.ndarray, " D"]
    close: Float[np.ndarray, " D"]
    volume: Float[np.ndarray, " D"]

    def __repr__(self) -> str:
        return summary(self)

    def __len__(self) -> int:
        return len(self.dates)

    def parkinson(self) -> Float[np.ndarray, " D"]:
        """Variance of each day's log price from its range, ln(high / low)^2 / (4 ln 2) (Parkinson 1980)."""
        return np.log(self.high / self.low) ** 2 / (4 * np.log(2))


def read_daily_bars(
    path: str | os.PathLike,
    *,
    date_format: str | None = None,
    columns: Mapping[str, str] | None = None,
    ticker: str | None = None,
    accept: Collection[str] = (),
) -> DailyBars:
    """Read daily bars from a file; arguments as in `bars.read_bars`.

    Raises:
        BarsError: columns are missing, the bars are shorter than a day, or have irregularities that are not accepted.
        FileNotFoundError, ImportError: no such file, or no Parquet engine.
    """
    rows = read_rows(path, time_zone="UTC", date_format=date_format, columns=columns, ticker=ticker)
    if not rows.dates and interval_of(rows.time) < DAY:
        raise BarsError(f"{rows.source}: the bars are shorter than a day: data_gen.market.bars.read_bars reads them")
    return check_daily_bars(rows.time, rows.values, source=rows.source, accept=accept)


def check_daily_bars(
    dates: Shaped[np.ndarray, " N"],
    values: Mapping[str, Float[np.ndarray, " N"]],
    *,
    source: str = "daily bars",
    accept: Collection[str] = (),
) -> DailyBars:
    """Check daily bars that are in memory.

    Args:
        dates: datetime64.
        values: "open", "high", "low", "close", and "volume" if there is one; NaN where a value is absent.
        source: for messages.
        accept: of "out_of_order" (they are sorted), "duplicates" (equal bars of a day are merged), "non_positive" (a
            bar with a price that is not positive and finite, or a negative volume, is left out), "inconsistent" (so is
            one whose open or close lies outside low..high).

    Raises:
        BarsError: an irregularity that is not accepted, with its first row; two different bars of a day; no usable bar.
    """
    if isinstance(accept, str) or set(accept) - set(ACCEPTABLE):
        raise BarsError(f"accept must be a collection of words among {', '.join(ACCEPTABLE)}; got {accept!r}")
    missing = [name for name in ("open", "high", "low", "close") if name not in values]
    if missing:
        raise BarsError(f"{source}: daily bars need open, high, low and close; {', '.join(missing)} lack")
    day = np.asarray(dates).astype("datetime64[D]")
    volume = np.asarray(values.get("volume", np.zeros(len(day))), np.float64)
    table = np.stack([np.asarray(values[name], np.float64) for name in ("open", "high", "low", "close")] + [volume])
    order = np.argsort(day, kind="stable")
    again = np.zeros(len(day), bool)
    again[order[1:]] = np.diff(day[order]).astype(int) == 0
    prices = table[:4]
    bad = ~(np.isfinite(prices) & (prices > 0)).all(axis=0) | (volume < 0)
    with np.errstate(invalid="ignore"):
        odd = ~bad & ~((prices >= table[2] - ROUNDING) & (prices <= table[1] + ROUNDING)).all(axis=0)
    late = np.r_[False, np.diff(day).astype(int) < 0]
    for first, second in zip(order[:-1], order[1:], strict=True):
        if again[second] and not np.array_equal(table[:, first], table[:, second], equal_nan=True):
            raise BarsError(f"{source}: two different bars of {day[second]}, rows {first} and {second}; choose one")
    for kind, rows in (("out_of_order", late), ("duplicates", again), ("non_positive", bad), ("inconsistent", odd)):
        if rows.any() and kind not in accept:
            row = int(rows.argmax())
            numbers = "/".join(f"{value:g}" for value in table[:, row])
            raise BarsError(
                f"{source}: {kind}: {int(rows.sum())} rows, the first {row}, {day[row]}, o/h/l/c/volume {numbers};"
                f" accept=[{kind!r}] reads the rest"
            )
    kept = order[~(again | bad | odd)[order]]
    if not kept.size:
        raise BarsError(f"{source}: no usable bar among {len(day)} rows")
    return DailyBars(day[kept], *prices[:, kept], np.nan_to_num(volume[kept]))
