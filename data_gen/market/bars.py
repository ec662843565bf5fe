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

import gzip
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from jaxtyping import Shaped

from data_gen.market.minute_bars import PRICES, MinuteBars
from data_gen.market.sessions import Sessions, sessions

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
# Columns that name the stock.
SYMBOLS = ("symbol", "ticker", "sym", "s", "instrument", "security", "isin", "cusip", "figi", "ric", "permno")
# Share of a session's volume that must lie better at another time before the time zone is called wrong.
CLEARLY = 0.02
# Least volume a minute, relative to the session's, of minutes that a shift would bring into it: extended hours have far
# less.
SESSION_LIKE = 0.25
# Least ratio of the volume of the opening minute to that of the minute before.
JUMP = 5.0
# Shifts that time zones can be wrong by, minutes, the smallest first.
ZONE_SHIFTS = tuple(sorted(range(-14 * 60, 14 * 60 + 1, 30), key=abs))
DAY = 24 * 60
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
    path: str | os.PathLike,
    *,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    accept: Collection[str] = (),
) -> tuple[MinuteBars, BarsReport]:
    """Read minute bars from a CSV or Parquet file.

    Args:
        path: .csv, .csv.gz or .parquet; one row a minute, the time at the start of the minute.
            A column of symbols, where there is one, must hold a single stock.
        time_zone: of times without an offset, such as "America/New_York" or "UTC"; numbers are Unix times (UTC) in s,
            ms, us or ns.
        columns: field -> column name, for those that no alias finds.
        accept: irregularities to deal with as the module says.

    Returns:
        The bars and the report. Without a VWAP column, (high + low + close) / 3 stands in, and the report says so.

    Raises:
        BarsError: columns or a time zone are missing, or the bars have irregularities that are not accepted.
        FileNotFoundError, ImportError: no such file, or no Parquet engine.
    """
    path = Path(path)
    _check_accept(accept)
    frame = _frame(path)
    names = _columns(path.name, [str(c) for c in frame.columns], columns or {})
    if not len(frame):
        raise BarsError(f"{path.name}: no rows")
    _check_symbol(path.name, frame, names)
    time = _times(path.name, frame[names["time"]], time_zone)
    values = {name: _numbers(path.name, frame[column]) for name, column in names.items() if name != "time"}
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

    try:  # New York's date of the first bar by winter time and of the last one by summer time
        calendar = sessions(
            *(
                str((t + np.timedelta64(h, "h")).astype("datetime64[D]"))
                for t, h in ((time.min(), -5), (time.max(), -4))
            )
        )
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
    first_day, last_day = int(day[rows].min()), int(day[rows].max())
    span = slice(first_day, last_day + 1)
    kept = Sessions(calendar.dates[span], calendar.minutes[span])
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
        int(kept.minutes.sum()) - len(keep),
        len(kept.dates),
        [str(calendar.dates[d]) for d in empty],
        examples=examples,
        **{kind: len(found[kind]) for kind in ACCEPTABLE},
    )
    if unequal.any():
        row = int(rows[np.argmax(unequal)])
        raise BarsError(
            f"{source}: two different bars of one minute, row {row} at {time[row]}Z; choose one before"
            f" reading\n{report}",
            report,
        )
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
    )
    return bars, report


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


def _check_zone(source: str, time: np.ndarray, calendar, weight: np.ndarray) -> None:
    """Refuse times that another shift fits clearly better, judged session by session.

    Clocks change over a weekend, on different ones in different zones, so that a zone may be wrong for a single week:
    sessions vote, and the votes are counted by calendar week.

    Args:
        source: for the message.
        time: (N,) starts of the bars.
        calendar: sessions around them.
        weight: (N,) volumes, or ones.

    Raises:
        BarsError: with the shift and the first session that it is found in.
    """
    day = np.maximum(np.searchsorted(calendar.opens, time + np.timedelta64(12, "h"), side="right") - 1, 0)
    offset = (time - calendar.opens[day]).astype(np.int64) // 60
    near = (offset >= -DAY) & (offset < 2 * DAY)
    # volume[d, DAY + m]: of session d's minute m, counted from its opening
    width = 3 * DAY
    volume = np.bincount(
        day[near] * width + offset[near] + DAY, weight[near], minlength=len(calendar.dates) * width
    ).reshape(-1, width)
    week = (calendar.dates.astype("datetime64[D]").astype(np.int64) + 3) // 7  # the epoch was a Thursday
    _check_minutes(source, calendar, volume, week)
    _check_half_hours(source, calendar, volume, week)


def _ends(volume: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last minute with volume of every session, counted from its opening."""
    traded = volume > 0
    return traded.argmax(axis=1) - DAY, volume.shape[1] - 1 - traded[:, ::-1].argmax(axis=1) - DAY


def _check_half_hours(source: str, calendar, volume: np.ndarray, week: np.ndarray) -> None:
    """Refuse when another half hour puts clearly more of the volume into two sessions of a week, or into all there are.

    The minutes that the shift brings in must trade like a session's: otherwise a session that merely begins late would
    be called shifted for the sake of its extended hours. A single session is enough where its first and its last bar
    are both off by the shift.
    """
    total = volume.sum(axis=1)
    judged = np.flatnonzero(total > 0)
    cumulated = np.concatenate([np.zeros((len(volume), 1)), volume.cumsum(axis=1)], axis=1)

    def inside(days: np.ndarray, shift: int) -> np.ndarray:
        start = DAY - shift
        return cumulated[days, start + calendar.minutes[days]] - cumulated[days, start]

    shares = np.stack([inside(judged, shift) for shift in ZONE_SHIFTS], axis=1) / total[judged, None]
    best = (shares >= shares.max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
    suspects = np.flatnonzero(shares[np.arange(len(judged)), best] > shares[:, 0] + CLEARLY)
    votes = [
        k
        for k in suspects
        if _trades_like_a_session(volume[judged[k]], calendar.minutes[judged[k]], ZONE_SHIFTS[best[k]], total[judged])
    ]
    if not votes:
        return
    votes = np.array(votes)
    first, last = _ends(volume[judged[votes]])
    shift = np.array(ZONE_SHIFTS)[best[votes]]
    common = np.bincount(best[votes], minlength=len(ZONE_SHIFTS))
    both = np.maximum(abs(first + shift), abs(last + shift - calendar.minutes[judged[votes]] + 1)) <= 5
    for each in np.unique(week[judged[votes]]):
        chosen = week[judged[votes]] == each
        if not (chosen.sum() > 1 or both[chosen].any() or len(votes) == len(judged)):
            continue
        days = judged[votes[chosen]]
        pooled = np.array([inside(days, shift).sum() for shift in ZONE_SHIFTS]) / total[days].sum()
        # a session that begins late fits several shifts: take the one of most sessions, then the smallest
        k = int(np.where(pooled >= pooled.max() - 1e-9, common, -1).argmax())
        if k:
            raise BarsError(
                f"{source}: in {len(days)} session{'s' * (len(days) > 1)} from {calendar.dates[days[0]]} only "
                f"{pooled[0]:.0%} of the volume lies inside the session, 09:30 to 16:00 New York time; "
                f"{_shift(ZONE_SHIFTS[k])} would give {pooled[k]:.0%}: is the time zone right?"
            )


def _trades_like_a_session(volume: np.ndarray, length: int, shift: int, totals: np.ndarray) -> bool:
    """Whether the minutes that a shift brings into a session trade like those that it keeps there.

    Volumes are capped at the median minute, since one print after the close may be a tenth of the day.
    """
    minute = np.arange(len(volume)) - DAY
    now, then = (minute >= 0) & (minute < length), (minute + shift >= 0) & (minute + shift < length)
    kept, gained = volume[now & then], volume[then & ~now]
    if not kept.any():  # nothing to compare with inside this session: compare with the other ones
        return bool(gained.sum() >= SESSION_LIKE * np.median(totals))
    cap = np.median(kept[kept > 0])
    return bool(np.minimum(gained, cap).mean() >= SESSION_LIKE * np.minimum(kept, cap).mean())


def _check_minutes(source: str, calendar, volume: np.ndarray, week: np.ndarray) -> None:
    """Refuse when most sessions of a week begin and end equally late or early, or open a minute beside the opening.

    Without extended hours the first and the last bar tell. With them the opening does: its minute trades many times
    what the one before does.
    Absent bars can look alike in one or two sessions, so that these count only when they are nearly whole.
    """
    length = calendar.minutes
    days = np.arange(len(volume))
    within = volume[:, DAY : DAY + length.max()]
    judged = within.any(axis=1)
    first, last = _ends(volume)
    late = np.where(first == last - length + 1, first, 0)
    traded = np.where(within > 0, within, np.nan)
    median = np.full(len(volume), np.inf)
    median[judged] = np.nanmedian(traded[judged], axis=1)
    before, opening, after = volume[:, DAY - 1], volume[:, DAY], volume[:, DAY + 1]
    opens_late = (after > JUMP * opening) & (after >= median) & (volume[days, DAY + length] > 0)
    opens_early = (before > JUMP * volume[:, DAY - 2]) & (before >= median) & (before > opening)
    late = np.where(late == 0, opens_late * 1 - opens_early * 1, late)
    late[late % 30 == 0] = 0  # left to the half hours
    cumulated = np.concatenate([np.zeros((len(volume), 1), int), (volume > 0).cumsum(axis=1)], axis=1)
    begin = np.clip(DAY + late, 0, 2 * DAY)
    whole = cumulated[days, begin + length] - cumulated[days, begin] >= 0.95 * length
    for each in np.unique(week[judged & (late != 0)]):
        chosen = judged & (week == each)
        values, counts = np.unique(late[chosen], return_counts=True)
        k = int(values[counts.argmax()])
        votes = days[chosen & (late == k)]
        enough = len(votes) > 2 or (whole[votes].all() and (len(votes) == 2 or judged.sum() == 1))
        if k and 4 * len(votes) >= 3 * chosen.sum() and enough:
            hint = "stamped at their end" if k == 1 else "delayed" if k > 0 else "early"
            raise BarsError(
                f"{source}: {len(votes)} of the {chosen.sum()} sessions of a week, from {calendar.dates[votes[0]]},"
                f" begin and end {abs(k)} min {'after' if k > 0 else 'before'} 09:30 and the close, New York time;"
                f" {_shift(-k)} would fit: are the bars {hint}? Each needs the time at which it starts"
            )


def _shift(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return ("-" if minutes < 0 else "+") + " ".join([f"{hours} h"] * (hours > 0) + [f"{rest} min"] * (rest > 0))


def _prices(column: np.ndarray) -> str:
    return "o/h/l/c/vwap/volume " + "/".join(f"{value:g}" for value in column)


def _frame(path: Path):
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path).reset_index()
        if path.name.endswith((".csv", ".csv.gz")):
            return pandas.read_csv(path)
    except ImportError as error:
        raise ImportError(
            f"{path.name}: Parquet needs pyarrow (pip install pyarrow); or write the bars as CSV"
        ) from error
    except pandas.errors.EmptyDataError as error:
        raise BarsError(f"{path.name}: the file is empty") from error
    except (
        ValueError,
        EOFError,
        gzip.BadGzipFile,
    ) as error:  # rows of different lengths, an encoding, a file cut short
        raise BarsError(f"{path.name}: cannot be read: {error}") from error
    raise BarsError(f"{path.name}: neither .csv, .csv.gz nor .parquet")


def _check_symbol(source: str, frame, names: Mapping[str, str]) -> None:
    """Refuse a file of several stocks: their bars would make one series with a jump."""
    for column in frame.columns:
        if column in names.values() or _plain(str(column)) not in SYMBOLS:
            continue
        values = frame[column].astype(str).str.strip().where(frame[column].notna())
        present = list(dict.fromkeys(values.dropna()))
        if len(present) > 1:
            row = int((values == present[1]).to_numpy().argmax())
            listed = ", ".join(present[:5]) + ", ..." * (len(present) > 5)
            raise BarsError(
                f"{source}: column {column!r} holds {len(present)} stocks, {listed}; {present[1]} begins at row {row}: "
                "read one stock at a time"
            )


def _numbers(source: str, column) -> np.ndarray:
    """A column of prices or volumes; the row of anything else than a number is named."""
    import pandas

    numbers = pandas.to_numeric(column, errors="coerce")
    bad = (numbers.isna() & column.notna()).to_numpy()
    if bad.any():
        row = int(bad.argmax())
        raise BarsError(
            f"{source}: row {row}, column {column.name!r}: {column.iloc[row]!r} is not a number ({int(bad.sum())} such"
            " rows)"
        )
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def _columns(source: str, present: list[str], given: Mapping[str, str]) -> dict[str, str]:
    unknown = [name for name in given if name not in ALIASES] + [
        column for column in given.values() if column not in present
    ]
    if unknown:
        raise BarsError(f"{source}: columns: {', '.join(unknown)} unknown; the file has {', '.join(present)}")
    names = dict(given)
    for name, aliases in ALIASES.items():
        if name in names:
            continue
        matches = [column for column in present if _plain(column) in aliases]
        if len(matches) > 1:
            raise BarsError(
                f"{source}: {' and '.join(matches)} could both be {name}; say which with columns={{{name!r}: ...}}"
            )
        if matches:
            names[name] = matches[0]
    if "time" not in names:
        raise BarsError(
            f"{source}: no column of times among {', '.join(present)}; say which with columns={{'time': ...}}"
        )
    return names


def _times(source: str, column, time_zone: str | None) -> np.ndarray:
    import pandas

    if pandas.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            raise BarsError(f"{source}: row {int(np.argmax(~np.isfinite(values)))} has no time")
        unit = next(
            u for u, least in (("ns", 1e17), ("us", 1e14), ("ms", 1e11), ("s", -np.inf)) if np.median(values) >= least
        )
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
        raise BarsError(
            f"{source}: times such as {column.iloc[0]!r} have no offset: say time_zone='America/New_York' or 'UTC'"
        )
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BarsError(f"{source}: time_zone {time_zone!r} is unknown") from error
    utc = text.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT").dt.tz_convert("UTC").dt.tz_localize(None)
    unclear = (utc.isna() & text.notna()).to_numpy()
    if unclear.any():
        row = int(unclear.argmax())
        raise BarsError(
            f"{source}: row {row}: {text.iloc[row]} is ambiguous or does not exist in {time_zone}, where clocks change"
            f" then ({int(unclear.sum())} such rows): give times in UTC or with their offsets, or leave these rows out"
        )
    return utc.to_numpy()
