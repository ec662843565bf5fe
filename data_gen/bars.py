"""Real minute bars from a user's file: read, checked, reported on, and never repaired without being told to.

Every irregularity is counted in a `BarsReport`. Those that cost nothing but coverage (minutes without a bar, bars outside the session) are
reported; the others are errors unless `accept` names them, which says in the caller's code what was done to the data:

    "out_of_order"   the bars are sorted
    "duplicates"     equal bars of one minute are merged; unequal ones are always an error
    "non_positive"   bars with a price that is not positive and finite, or a negative volume, are left out
    "inconsistent"   bars whose open, close or VWAP lies outside low..high, or whose low is above high, are left out

Times that do not fit the exchange's session are an error that names the shift which would make them fit: a wrong time zone moves the
opening, and with it every window, silently.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from jaxtyping import Shaped

from data_gen.minute_bars import PRICES, MinuteBars
from data_gen.sessions import sessions

ACCEPTABLE = ("out_of_order", "duplicates", "non_positive", "inconsistent")
ALIASES: dict[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "datetime", "date_time", "date", "t", "window_start", "bar_time"),
    "open": ("open", "o", "open_price"),
    "high": ("high", "h", "high_price"),
    "low": ("low", "l", "low_price"),
    "close": ("close", "c", "close_price", "last"),
    "volume": ("volume", "v", "vol", "shares"),
    "vwap": ("vwap", "vw", "average", "wap", "avg_price"),
}
# Share of the bars of a month that must lie better at another hour before the time zone is called wrong.
CLEARLY = 0.02
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
        missing: session minutes without a bar.
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

    def __str__(self) -> str:
        lines = [
            f"{self.source}: {self.n_rows} rows, {self.n_bars} bars in {self.sessions} sessions; "
            f"{self.outside} rows outside the sessions, {self.missing} minutes without a bar"
        ]
        lines += [f"  sessions without any bar: {', '.join(self.empty_sessions)}"] if self.empty_sessions else []
        for kind in ACCEPTABLE:
            if getattr(self, kind):
                lines.append(f"  {kind}: {getattr(self, kind)} rows, e.g. {'; '.join(self.examples[kind])}")
        return "\n".join(lines)


class BarsError(ValueError):
    """Bars that are not clean; `report` says in what."""

    def __init__(self, message: str, report: BarsReport | None = None) -> None:
        self.report = report
        super().__init__(message)


def read_bars(
    path: str | os.PathLike, *, time_zone: str | None = None, columns: Mapping[str, str] | None = None, accept: Collection[str] = ()
) -> tuple[MinuteBars, BarsReport]:
    """Read minute bars from a CSV or Parquet file.

    Args:
        path: .csv, .csv.gz or .parquet; one row a minute, the time at the start of the minute.
        time_zone: of times without an offset, such as "America/New_York" or "UTC"; numbers are Unix times (UTC) in s, ms, us or ns.
        columns: field -> column name, for those that no alias finds.
        accept: irregularities to deal with as the module says.

    Returns:
        The bars and the report. Without a VWAP column, (high + low + close) / 3 stands in, and the report says so.

    Raises:
        BarsError: columns or a time zone are missing, or the bars have irregularities that are not accepted.
        FileNotFoundError, ImportError: no such file, or no Parquet engine.
    """
    path = Path(path)
    frame = _frame(path)
    names = _columns(path.name, [str(c) for c in frame.columns], columns or {})
    time = _times(path.name, frame[names["time"]], time_zone)
    values = {name: frame[column].to_numpy(dtype=np.float64) for name, column in names.items() if name != "time"}
    return check_bars(time, values, source=path.name, columns=names, accept=accept)


def check_bars(
    time: Shaped[np.ndarray, " N"],
    values: Mapping[str, Shaped[np.ndarray, " N"]],
    *,
    source: str = "bars",
    columns: Mapping[str, str] | None = None,
    accept: Collection[str] = (),
) -> tuple[MinuteBars, BarsReport]:
    """Check bars that are in memory, and put them on the grid of sessions.

    Args:
        time: starts of the bars in UTC, datetime64.
        values: "open", "high", "low", "close" and "volume", or "vwap" alone; NaN where a value is absent.
        source, columns: for the report.
        accept: as `read_bars`.

    Returns, Raises: as `read_bars`.
    """
    unknown = set(accept) - set(ACCEPTABLE)
    if unknown:
        raise ValueError(f"accept: {', '.join(sorted(unknown))} unknown; known are {', '.join(ACCEPTABLE)}")
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

    try:  # a day around: a wrong time zone may put bars on the wrong side of midnight
        calendar = sessions(*(str((t + np.timedelta64(h, "h")).astype("datetime64[D]")) for t, h in ((time.min(), -5), (time.max(), -4))))
    except ValueError as error:
        raise BarsError(f"{source}: times from {time.min()} to {time.max()}: {error}") from None
    if not len(calendar.dates):
        raise BarsError(f"{source}: no session between {time.min()} and {time.max()} UTC")
    weight = np.where(np.isfinite(values["volume"]) & (values["volume"] > 0), values["volume"], 0.0)
    _check_zone(source, time, calendar, weight if weight.any() else np.ones(n))

    minute = time.astype("datetime64[m]").astype(np.int64)
    opens = calendar.opens.astype("datetime64[m]").astype(np.int64)
    day = np.searchsorted(opens, minute, side="right") - 1
    within = minute - opens[np.maximum(day, 0)]
    inside = (day >= 0) & (within < calendar.minutes[np.maximum(day, 0)])
    rows = np.flatnonzero(inside)
    if not len(rows):
        raise BarsError(f"{source}: none of {n} rows lies inside a session (09:30 to 16:00 New York time)")

    found: dict[str, np.ndarray] = {}
    position = (calendar.first[np.maximum(day, 0)] + within)[rows]
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
    first_day, last_day = (int(day[rows].min()), int(day[rows].max())) if len(rows) else (0, -1)
    spanned = calendar.dates[first_day : last_day + 1]
    empty = np.setdiff1d(np.arange(first_day, last_day + 1), day[keep])
    examples = {
        kind: [f"row {row} at {time[row]}Z {_prices(stacked[:, row])}" for row in places[:3]] for kind, places in found.items() if len(places)
    }
    report = BarsReport(
        source, columns, n, len(keep), int((~inside).sum()), int(calendar.minutes[first_day : last_day + 1].sum()) - len(keep),
        len(spanned), [str(calendar.dates[d]) for d in empty], examples=examples, **{kind: len(found[kind]) for kind in ACCEPTABLE},
    )  # fmt: skip
    if unequal.any():
        row = int(rows[np.argmax(unequal)])
        raise BarsError(f"{source}: two different bars of one minute, row {row} at {time[row]}Z; choose one before reading\n{report}", report)
    refused = [kind for kind in ACCEPTABLE if len(found[kind]) and kind not in accept]
    if refused:
        raise BarsError(f"{source}: {', '.join(refused)}; accept={refused!r} reads the rest\n{report}", report)
    bars = MinuteBars(
        sessions(str(spanned[0]), str(spanned[-1])), day[keep] - first_day, within[keep],
        *(values[name][keep] for name in PRICES), np.nan_to_num(values["volume"][keep]), np.ones(len(keep), bool),
        {"name": source, "report": report},
    )  # fmt: skip
    return bars, report


def _completed(values: dict[str, np.ndarray], columns: dict[str, str]) -> dict[str, np.ndarray]:
    """All seven columns: VWAP from high, low and close, or all prices from the VWAP; both are named in `columns`."""
    if not {"high", "low", "close"} <= set(values) and "vwap" not in values:
        raise BarsError(f"columns high, low and close, or vwap, are needed; there are {', '.join(values) or 'none'}")
    if "vwap" not in values:
        values["vwap"] = (values["high"] + values["low"] + values["close"]) / 3
        columns["vwap"] = "(high + low + close) / 3"
    for name in ("close", "open", "high", "low"):
        if name not in values:
            values[name], columns[name] = values["vwap" if name != "open" else "close"], "vwap" if name != "open" else "close"
    if "volume" not in values:
        values["volume"], columns["volume"] = np.full(len(values["vwap"]), np.nan), "(none)"
    return values


def _check_zone(source: str, time: np.ndarray, calendar, weight: np.ndarray) -> None:
    """Refuse times of which another whole hour would put clearly more weight into the sessions, month by month."""
    local_day = np.searchsorted(calendar.opens, time + np.timedelta64(12, "h"), side="right") - 1
    offset = (time - calendar.opens[np.maximum(local_day, 0)]).astype(np.int64) // 60
    length = calendar.minutes[np.maximum(local_day, 0)]
    month = calendar.dates[np.maximum(local_day, 0)].astype("datetime64[M]")
    for each in np.unique(month):
        chosen = month == each
        total = weight[chosen].sum()
        if total <= 0:
            continue

        def share(hours: int) -> float:
            at = offset[chosen] + 60 * hours
            return float(weight[chosen][(at >= 0) & (at < length[chosen])].sum() / total)

        here = share(0)
        best = max(range(-14, 15), key=lambda hours: (share(hours), -abs(hours)))
        if best and share(best) > here + CLEARLY:
            raise BarsError(
                f"{source}: in {each} only {here:.0%} of the volume lies inside the session, 09:30 to 16:00 New York time; "
                f"{best:+d} h would give {share(best):.0%}: is the time zone right?"
            )


def _prices(column: np.ndarray) -> str:
    return "o/h/l/c/vwap/volume " + "/".join(f"{value:g}" for value in column)


def _frame(path: Path):
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    if path.suffix == ".parquet":
        try:
            return pandas.read_parquet(path).reset_index()
        except ImportError as error:
            raise ImportError(f"{path.name}: Parquet needs pyarrow (pip install pyarrow); or write the bars as CSV") from error
    if path.name.endswith((".csv", ".csv.gz")):
        return pandas.read_csv(path)
    raise BarsError(f"{path.name}: neither .csv, .csv.gz nor .parquet")


def _columns(source: str, present: list[str], given: Mapping[str, str]) -> dict[str, str]:
    unknown = [name for name in given if name not in ALIASES] + [column for column in given.values() if column not in present]
    if unknown:
        raise BarsError(f"{source}: columns: {', '.join(unknown)} unknown; the file has {', '.join(present)}")
    names = dict(given)
    for name, aliases in ALIASES.items():
        if name in names:
            continue
        matches = [column for column in present if column.strip().lower().replace(" ", "_") in aliases]
        if len(matches) > 1:
            raise BarsError(f"{source}: {' and '.join(matches)} could both be {name}; say which with columns={{{name!r}: ...}}")
        if matches:
            names[name] = matches[0]
    if "time" not in names:
        raise BarsError(f"{source}: no column of times among {', '.join(present)}; say which with columns={{'time': ...}}")
    return names


def _times(source: str, column, time_zone: str | None) -> np.ndarray:
    import pandas

    if pandas.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            raise BarsError(f"{source}: row {int(np.argmax(~np.isfinite(values)))} has no time")
        unit = next(u for u, least in (("ns", 1e17), ("us", 1e14), ("ms", 1e11), ("s", -np.inf)) if np.median(values) >= least)
        return column.to_numpy().astype("int64").astype(f"datetime64[{unit}]")
    try:
        text = column if pandas.api.types.is_datetime64_any_dtype(column) else pandas.to_datetime(column)
    except (ValueError, TypeError):
        try:  # offsets that change with daylight saving
            text = pandas.to_datetime(column, utc=True)
        except (ValueError, TypeError) as error:
            raise BarsError(f"{source}: times cannot be read: {error}") from error
    aware = getattr(text.dtype, "tz", None) is not None
    if aware and time_zone is not None:
        raise BarsError(f"{source}: the times carry an offset, and time_zone={time_zone!r} was given too: drop one")
    if aware:
        return text.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    if time_zone is None:
        raise BarsError(f"{source}: times such as {column.iloc[0]!r} have no offset: say time_zone='America/New_York' or 'UTC'")
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BarsError(f"{source}: time_zone {time_zone!r} is unknown") from error
    return text.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT").dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
