"""Real minute bars from a user's file: read, checked, reported on, and never repaired without being told to.

Every irregularity is counted in a `BarsReport`. Those that cost nothing but coverage (minutes without a bar, bars
outside the session) are reported; the others are errors unless `accept` names them, which says in the caller's code
what was done to the data:

    "out_of_order"   the bars are sorted
    "duplicates"     equal bars of one minute are merged; unequal ones are always an error
    "non_positive"   bars with a price that is not positive and finite, or a negative volume, are left out
    "inconsistent"   bars whose open, close or VWAP lies outside low..high, or whose low is above high, are left out

Times that do not fit the exchange's sessions are an error that names the shift which would make them fit and the first
session that it is wrong for: a wrong time zone, or bars stamped at their end, moves the opening, and with it every
window, silently. A file of several stocks is an error as well.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Shaped

from data_gen.market.bar_clocks import check_zone
from data_gen.market.bar_files import DAY, BarsError, interval_of, read_rows
from data_gen.market.minute_bars import PRICES, MinuteBars
from data_gen.market.sessions import ALWAYS, NEW_YORK, Sessions, always, sessions

ACCEPTABLE = ("out_of_order", "duplicates", "non_positive", "inconsistent")
# Tolerance of the consistency check, dollars: vendors round VWAP and prices differently, or store them in float32.
ROUNDING = 0.005


@dataclass(frozen=True)
class BarsReport:
    """What was found in the bars.

    Args:
        source: file or name.
        columns: field -> column of the file; "vwap" may be "(high + low + close) / 3".
        n_rows: rows of the file.
        n_bars: bars kept.
        outside: rows outside the sessions (extended hours, holidays), left out.
        missing: bars that the sessions lack.
        interval: minutes from a bar to the next.
        sessions: sessions from the first bar's to the last one's.
        empty_sessions: their dates, where a session has no bar at all.
        out_of_order, duplicates, non_positive, inconsistent: rows of each kind.
        examples: kind -> up to three rows, described.
    """

    source: str
    columns: Mapping[str, str]
    n_rows: int
    n_bars: int
    outside: int
    missing: int
    sessions: int
    empty_sessions: Sequence[str]
    out_of_order: int
    duplicates: int
    non_positive: int
    inconsistent: int
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    interval: int = 1

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.n_rows} rows, {self.n_bars} bars of {self.interval} min in {self.sessions} sessions;"
            f" {self.outside} rows outside the sessions, {self.missing} bars absent"
        ]
        lines += [f"  sessions without any bar: {', '.join(self.empty_sessions)}"] if self.empty_sessions else []
        for kind in ACCEPTABLE:
            if getattr(self, kind):
                lines.append(f"  {kind}: {getattr(self, kind)} rows, e.g. {'; '.join(self.examples[kind])}")
        return "\n".join(lines)


def read_bars(
    path: str | os.PathLike,
    *,
    time_zone: str | None = None,
    date_format: str | None = None,
    columns: Mapping[str, str] | None = None,
    ticker: str | None = None,
    calendar: str = NEW_YORK,
    accept: Collection[str] = (),
) -> tuple[MinuteBars, BarsReport]:
    """Read bars of minutes from a file; `bar_files` lists the layouts.

    Args:
        path: CSV or text, compressed or not, or Parquet; one row a bar, the time at its start.
        time_zone: of times without an offset, such as "America/New_York" or "UTC"; numbers are Unix times (UTC) in s,
            ms, us or ns.
        date_format: of `datetime.strptime`, where days and months could be exchanged.
        columns: field -> column name, for those that no alias finds; "date" beside "time" where there are two.
        ticker: of a file of several stocks.
        calendar: "XNYS", or "24/7" for a market that never closes, whose sessions are the days of UTC.
        accept: irregularities to deal with as the module says.

    Returns:
        The bars and the report. Without a VWAP column, (high + low + close) / 3 stands in, and the report says so.

    Raises:
        BarsError: columns or a time zone are missing, the bars are days', or have irregularities that are not accepted.
        FileNotFoundError, ImportError: no such file, or no Parquet engine.
    """
    _check_accept(accept)
    rows = read_rows(path, time_zone=time_zone, date_format=date_format, columns=columns, ticker=ticker)
    if rows.dates:
        raise BarsError(f"{rows.source}: the bars are of days: data_gen.market.daily_bars.read_daily_bars reads them")
    return check_bars(
        rows.time, rows.values, source=rows.source, columns=rows.columns, calendar=calendar, accept=accept
    )


def check_bars(
    time: Shaped[np.ndarray, " N"],
    values: Mapping[str, Shaped[np.ndarray, " N"]],
    *,
    source: str = "bars",
    columns: Mapping[str, str] | None = None,
    calendar: str = NEW_YORK,
    accept: Collection[str] = (),
) -> tuple[MinuteBars, BarsReport]:
    """Check bars that are in memory, and put them on the grid of sessions.

    Args:
        time: starts of the bars in UTC, datetime64.
        values: "open", "high", "low", "close" and "volume", or "vwap" alone; NaN where a value is absent.
        source, columns: for the report.
        calendar, accept: as `read_bars`.

    Returns, Raises: as `read_bars`.
    """
    _check_accept(accept)
    columns = dict(columns or {name: name for name in values})
    values = _completed({name: np.asarray(column, dtype=np.float64) for name, column in values.items()}, columns)
    time = np.asarray(time).astype("datetime64[s]")
    n = len(time)
    if not n:
        raise BarsError(f"{source}: no rows")
    if any(len(column) != n for column in values.values()):
        raise BarsError(f"{source}: {n} times, but columns of {sorted({len(c) for c in values.values()})} rows")
    if np.isnat(time).any():
        raise BarsError(f"{source}: row {int(np.argmax(np.isnat(time)))} has no time")
    tomorrow = np.datetime64("now") + np.timedelta64(DAY, "m")  # a wrong time zone is named below
    if (time > tomorrow).any():
        row = int(np.argmax(time > tomorrow))
        raise BarsError(f"{source}: row {row} is of the future, {time[row]}Z: are unit and time zone right?")

    interval = interval_of(time)
    if interval >= DAY:
        raise BarsError(f"{source}: the bars are of days: data_gen.market.daily_bars.read_daily_bars reads them")
    days = _calendar(source, time, calendar)
    weight = np.where(np.isfinite(values["volume"]) & (values["volume"] > 0), values["volume"], 0.0)
    if calendar == NEW_YORK:
        if _never_closes(time, interval):
            raise BarsError(
                f"{source}: the bars run round the clock, as those of crypto assets and currencies do:"
                f" calendar={ALWAYS!r} reads them"
            )
        check_zone(source, time, days, weight if weight.any() else np.ones(n))

    minute = time.astype("datetime64[m]").astype(np.int64)
    opens = days.opens.astype("datetime64[m]").astype(np.int64)
    day = np.searchsorted(opens, minute, side="right") - 1
    within = minute - opens[np.maximum(day, 0)]
    inside = (day >= 0) & (within < days.minutes[np.maximum(day, 0)])
    rows = np.flatnonzero(inside)
    if not len(rows):
        raise BarsError(f"{source}: none of {n} rows lies inside a session ({_hours(calendar)})")

    found: dict[str, np.ndarray] = {}
    position = (days.first[np.maximum(day, 0)] + within)[rows]
    found["out_of_order"] = rows[1:][np.diff(position) < 0]
    order = np.argsort(position, kind="stable")
    rows, position = rows[order], position[order]
    repeated = np.diff(position, prepend=-1) == 0
    found["duplicates"] = rows[repeated]
    stacked = np.stack([values[name] for name in (*PRICES, "volume")])
    pairs = [(stacked[:, rows[k - 1]], stacked[:, rows[k]]) for k in np.flatnonzero(repeated)]
    unequal = repeated.copy()
    unequal[repeated] = [not np.array_equal(a, b, equal_nan=True) for a, b in pairs]
    prices = stacked[:-1]
    bad = ~(np.isfinite(prices) & (prices > 0)).all(axis=0) | (values["volume"] < 0)
    found["non_positive"] = rows[bad[rows]]
    low, high = values["low"] - ROUNDING, values["high"] + ROUNDING
    with np.errstate(invalid="ignore"):
        odd = ~((low[None] <= prices) & (prices <= high[None])).all(axis=0) & ~bad
    found["inconsistent"] = rows[odd[rows]]

    keep = rows[~(repeated | bad[rows] | odd[rows])]
    first_day, last_day = int(day[rows].min()), int(day[rows].max())
    span = slice(first_day, last_day + 1)
    kept = days.part(span)
    empty = np.setdiff1d(np.arange(first_day, last_day + 1), day[keep])
    examples = {
        kind: [f"row {row} at {time[row]}Z {_prices(stacked[:, row])}" for row in places[:3]]
        for kind, places in found.items()
        if len(places)
    }
    report = BarsReport(
        source,
        columns,
        n,
        len(keep),
        int((~inside).sum()),
        int(-(-kept.minutes // interval).sum()) - len(keep),
        len(kept.dates),
        [str(days.dates[d]) for d in empty],
        examples=examples,
        interval=interval,
        **{kind: len(found[kind]) for kind in ACCEPTABLE},
    )
    if unequal.any():
        row = int(rows[np.argmax(unequal)])
        raise BarsError(
            f"{source}: two different bars of one minute, row {row} at {time[row]}Z; choose one before"
            f" reading\n{report}",
            report,
        )
    if not len(keep):
        raise BarsError(f"{source}: no usable bar among {n} rows\n{report}", report)
    refused = [kind for kind in ACCEPTABLE if len(found[kind]) and kind not in accept]
    if refused:
        raise BarsError(f"{source}: {', '.join(refused)}; accept={refused!r} reads the rest\n{report}", report)
    bars = MinuteBars(
        kept,
        day[keep] - first_day,
        within[keep],
        *(values[name][keep] for name in PRICES),
        np.nan_to_num(values["volume"][keep]),
        np.ones(len(keep), bool),
        {"name": source},
        interval,
    )
    return bars, report


def _never_closes(time: np.ndarray, interval: int) -> bool:
    """Whether bars come at all hours, and at most of the times there are: extended hours leave the night out."""
    if time.max() - time.min() < np.timedelta64(1, "D") - np.timedelta64(interval, "m"):
        return False
    hours = np.unique(time.astype("datetime64[h]").astype(np.int64) % 24)
    span = int((time.max() - time.min()).astype("timedelta64[m]").astype(np.int64)) // interval + 1
    return len(hours) == 24 and 2 * len(np.unique(time)) > span


def _calendar(source: str, time: np.ndarray, calendar: str) -> Sessions:
    if calendar not in (NEW_YORK, ALWAYS):
        raise BarsError(f"{source}: calendar must be {NEW_YORK!r} or {ALWAYS!r}, got {calendar!r}")
    if calendar == ALWAYS:
        first, last = time.min().astype("datetime64[D]"), time.max().astype("datetime64[D]")
        return always(first, last)
    try:  # New York's date of the first bar by winter time and of the last one by summer time
        days = sessions(
            *(
                str((t + np.timedelta64(h, "h")).astype("datetime64[D]"))
                for t, h in ((time.min(), -5), (time.max(), -4))
            )
        )
    except ValueError as error:
        raise BarsError(f"{source}: times from {time.min()} to {time.max()}: {error}") from None
    if not len(days.dates):
        raise BarsError(f"{source}: no session between {time.min()} and {time.max()} UTC")
    return days


def _hours(calendar: str) -> str:
    return "09:30 to 16:00 New York time" if calendar == NEW_YORK else "any day of UTC"


def _check_accept(accept: Collection[str]) -> None:
    if isinstance(accept, str):  # its letters would be taken for words
        raise BarsError(f"accept: a collection of words is wanted, such as [{accept!r}]; got the string {accept!r}")
    unknown = set(accept) - set(ACCEPTABLE)
    if unknown:
        raise ValueError(f"accept: {', '.join(sorted(map(str, unknown)))} unknown; known are {', '.join(ACCEPTABLE)}")


def _completed(values: dict[str, np.ndarray], columns: dict[str, str]) -> dict[str, np.ndarray]:
    """All seven columns: VWAP from high, low and close, or all prices from the VWAP; both are named in `columns`."""
    if not {"high", "low", "close"} <= set(values) and "vwap" not in values:
        raise BarsError(f"columns high, low and close, or vwap, are needed; there are {', '.join(values) or 'none'}")
    if "vwap" not in values:
        values["vwap"] = (values["high"] + values["low"] + values["close"]) / 3
        columns["vwap"] = "(high + low + close) / 3"
    for name in ("close", "open", "high", "low"):
        if name not in values:
            values[name], columns[name] = (
                values["vwap" if name != "open" else "close"],
                "vwap" if name != "open" else "close",
            )
    if "volume" not in values:
        values["volume"], columns["volume"] = np.full(len(values["vwap"]), np.nan), "(none)"
    return values


def _prices(column: np.ndarray) -> str:
    return "o/h/l/c/vwap/volume " + "/".join(f"{value:g}" for value in column)
