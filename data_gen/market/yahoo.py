"""Daily bars from Yahoo, for what it serves: calibrating a market, not minute bars of past years.

Yahoo keeps 30 days of 1-minute bars and 730 of hourly ones. Without a network the client returns an empty frame, or
raises that the stock may be delisted. An empty answer is a failure here, whatever its reason, and the message names
what can be done instead.

    python -m data_gen.market.yahoo AMC 2015-01-01 2021-12-31 [--out amc.csv]

prints how the days moved, year by year, which is what a synthetic market is calibrated to, and keeps the bars. They are
of days: nothing at Yahoo has the minutes of past years. Exit status 1: Yahoo gave nothing; the message says what to do.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np

from data_gen.core.dataset import DatasetUnavailable
from data_gen.market.daily_bars import DailyBars, check_daily_bars

# Days that Yahoo keeps, by interval; None is all.
KEPT_DAYS: dict[str, int | None] = {
    "1m": 30,
    "2m": 60,
    "5m": 60,
    "15m": 60,
    "30m": 60,
    "60m": 730,
    "90m": 60,
    "1h": 730,
    "1d": None,
    "1wk": None,
    "1mo": None,
}
REMEDY = (
    "Give minute bars of your own, data_gen.market.bars.read_bars(path, time_zone=...) with columns time, vwap or time,"
    " open, high, low, close, volume; or use the synthetic market, data_gen.market.minutes.minute_market(seed), and say"
    " so on the figure."
)


def daily_bars(symbol: str, first: str, last: str) -> DailyBars:
    """Daily bars of a stock from Yahoo.

    Args:
        symbol: such as "AMC".
        first, last: dates, both included.

    Raises:
        DatasetUnavailable: no network, no such symbol, or an empty answer.
        BarsError: an answer whose bars are doubled, out of order or inconsistent.
        ImportError: yfinance is not installed.
    """
    frame = download(symbol, first, last, "1d")
    values = {name.lower(): frame[name].to_numpy(np.float64) for name in ("Open", "High", "Low", "Close", "Volume")}
    days = frame.index.to_numpy().astype("datetime64[D]")
    return check_daily_bars(days, values, source=f"Yahoo's {symbol}", accept=("non_positive",))


def download(symbol: str, first: str, last: str, interval: str = "1d"):
    """One stock's bars as yfinance gives them, a DataFrame with columns Open, High, Low, Close, Volume; never an empty
    one.

    Args:
        symbol, first, last: as `daily_bars`.
        interval: a key of `KEPT_DAYS`.

    Raises:
        ValueError: an unknown interval, or dates out of order.
        DatasetUnavailable: Yahoo does not keep these bars, or gave nothing.
    """
    if interval not in KEPT_DAYS:
        raise ValueError(f"interval must be one of {', '.join(KEPT_DAYS)}; got {interval!r}")
    start, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
    if start > end:
        raise ValueError(f"first = {first} is after last = {last}")
    what, kept = f"{symbol} {interval} {first}..{last}", KEPT_DAYS[interval]
    if kept is not None and (dt.date.today() - start).days > kept:
        raise DatasetUnavailable(what, [("Yahoo", f"it keeps {kept} days of {interval} bars")], REMEDY)
    try:
        import yfinance
    except ImportError as error:
        raise ImportError("Yahoo's bars need yfinance (pip install yfinance, or the [book] extra)") from error
    from yfinance.exceptions import YFException

    said = io.StringIO()
    try:  # the client prints its errors
        with redirect_stdout(said), redirect_stderr(said):
            frame = yfinance.download(
                symbol,
                start=first,
                end=str(end + dt.timedelta(days=1)),
                interval=interval,
                auto_adjust=False,
                progress=False,
                multi_level_index=False,
            )
    except (YFException, OSError) as error:  # OSError covers the client's own network errors
        raise DatasetUnavailable(what, [("Yahoo", f"{type(error).__name__}: {error}")], REMEDY) from error
    if frame is None or not len(frame):
        why = (
            " ".join(said.getvalue().split())
            or "an empty answer: no network, no such symbol, or no session in these days"
        )
        raise DatasetUnavailable(what, [("Yahoo", why)], REMEDY)
    return frame


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_gen.market.yahoo", description=__doc__.split("\n")[0])
    parser.add_argument("symbol")
    parser.add_argument("first", help="date, such as 2015-01-01")
    parser.add_argument("last", help="date, included")
    parser.add_argument("--out", metavar="FILE", help="CSV that data_gen.market.daily_bars.read_daily_bars reads")
    options = parser.parse_args(arguments)
    try:
        bars = daily_bars(options.symbol, options.first, options.last)
    except (DatasetUnavailable, ImportError, ValueError) as error:
        print(f"yahoo: {error}", file=sys.stderr)
        return 1
    years = bars.dates.astype("datetime64[Y]")
    print(f"{options.symbol}: {len(bars)} daily bars\nyear  days  mean price  standard deviation from the days' ranges")
    for year in np.unique(years):
        own = years == year
        print(f"{year}  {own.sum():>4}  {bars.close[own].mean():>10.2f}  {np.sqrt(bars.parkinson()[own].mean()):.4f}")
    if options.out:
        table = np.column_stack([bars.dates.astype(str), bars.open, bars.high, bars.low, bars.close, bars.volume])
        np.savetxt(options.out, table, "%s", ",", header="date,open,high,low,close,volume", comments="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
