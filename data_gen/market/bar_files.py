"""Files of bars in the layouts that vendors and programmes write by default, as times in UTC and columns of numbers.

CSV (also with ; or tabs, compressed or not) and Parquet. Known beside a plain header: yfinance's table of two or three
header lines (fields and tickers), <TICKER>,<PER>,<DATE>,<TIME>,... of Stooq and MetaTrader, date and time in two
columns, and files without a header by MetaTrader 4, FirstRate and Binance. -1 and an empty field are missing values.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from data_gen.market.bar_times import TimesError, to_utc

ALIASES: dict[str, tuple[str, ...]] = {
    "time": (
        *("time", "timestamp", "datetime", "date_time", "date", "t", "window_start", "bar_time", "local_time"),
        *("gmt_time", "time_(utc)", "time_(et)", "open_time"),
    ),
    "open": ("open", "o", "open_price"),
    "high": ("high", "h", "high_price"),
    "low": ("low", "l", "low_price"),
    "close": ("close", "c", "close_price", "last", "price", "close/last"),
    "volume": ("volume", "v", "vol", "vol.", "shares"),
    "vwap": ("vwap", "vw", "average", "wap", "avg_price"),
}
# Stand in where no other column of the field is there.
SECOND = {"volume": ("tickvol", "tick_volume")}
DATE, CLOCK = ("date", "day", "trade_date", "yyyymmdd", "dtyyyymmdd"), ("time", "clock", "hhmmss", "timestamp")
# Columns that name the stock.
SYMBOLS = ("symbol", "ticker", "sym", "s", "instrument", "security", "isin", "cusip", "figi", "ric", "permno")
HEADERLESS = {
    6: ("time", "open", "high", "low", "close", "volume"),
    7: ("date", "time", "open", "high", "low", "close", "volume"),
    12: ("open_time", "open", "high", "low", "close", "volume", *(f"unused {k}" for k in range(6))),
}
SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz", ".tsv", ".prn", ".parquet")
DAY = 24 * 60
SCALE = {"K": 1e3, "M": 1e6, "B": 1e9}


class BarsError(ValueError):
    """Bars that cannot be read, or are not clean; `report` says in what."""

    def __init__(self, message: str, report=None) -> None:
        self.report = report
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a file of one stock.

    Args:
        source: name of the file.
        time: (N,) UTC, or local dates at midnight where `dates` says so.
        values: field -> (N,); NaN for missing.
        columns: field -> column of the file.
        dates: whether the file gives dates without a time of day.
    """

    source: str
    time: Shaped[np.ndarray, " N"]
    values: Mapping[str, np.ndarray]
    columns: Mapping[str, str]
    dates: bool


def read_rows(
    path: str | os.PathLike,
    *,
    time_zone: str | None = None,
    date_format: str | None = None,
    columns: Mapping[str, str] | None = None,
    ticker: str | None = None,
) -> Rows:
    """Read a file of bars; arguments and errors are those of `bars.read_bars`."""
    path = Path(path)
    frame = _one_stock(path.name, _frame(path), ticker)
    names = _columns(path.name, [str(c) for c in frame.columns], columns or {})
    if not len(frame):
        raise BarsError(f"{path.name}: no rows")
    values = {
        name: _numbers(path.name, frame[column]) for name, column in names.items() if name not in ("time", "date")
    }
    text, dates = _text_of_times(frame, names)
    given = time_zone
    if time_zone is None and _plain(names["time"]) in ("gmt_time", "time_(utc)"):
        given = "UTC"
    if time_zone is None and _plain(names["time"]) == "time_(et)":
        given = "America/New_York"
    try:
        time = to_utc(text, "UTC" if dates else given, date_format)
    except TimesError as error:
        raise BarsError(f"{path.name}: {error}") from error
    return Rows(path.name, time, values, {k: v for k, v in names.items() if k != "date"}, dates)


def interval_of(time: np.ndarray) -> int:
    """Minutes from a bar to the next, as most steps have it; 1 where there is no step."""
    steps = np.diff(np.unique(time)).astype("timedelta64[s]").astype(np.int64)
    steps = steps[steps > 0]
    if not steps.size:
        return 1
    values, counts = np.unique(steps, return_counts=True)
    return max(1, int(values[counts.argmax()]) // 60)


def _frame(path: Path):
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise BarsError(f"{path.name}: neither .csv, .csv.gz, .txt nor .parquet")
    try:
        if name.endswith(".parquet"):
            frame = pandas.read_parquet(path)
            named = frame.index.names != [None] or not isinstance(frame.index, pandas.RangeIndex)
            return frame.reset_index() if named else frame
        packed = "gzip" if name.endswith(".gz") else None
        with gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig") as file:
            first, second = file.readline(), file.readline()
        options = {"compression": packed, "dtype": str, "sep": _separator(first)}
        if re.match(r"^\W*Price\W", first) and second.startswith("Ticker"):
            frame = pandas.read_csv(path, header=[0, 1], index_col=0, **options)
            frame = frame[frame.index.notna()]
            return frame.iloc[1:].reset_index() if str(frame.index[0]) in ("Date", "Datetime") else frame.reset_index()
        if re.match(r"^\s*[\d\"]", first) and _cells(first)[1:] and not re.search(r"[A-Za-z]{3}", first):
            known = HEADERLESS.get(len(_cells(first)))
            if known is None:
                raise BarsError(
                    f"{path.name}: no header, and {len(_cells(first))} columns; known without one are 6, 7 or 12"
                )
            return pandas.read_csv(path, header=None, names=list(known), **options)
        return pandas.read_csv(path, **options)
    except ImportError as error:
        raise ImportError(
            f"{path.name}: Parquet needs pyarrow (pip install 'implicit-models[parquet]'); or write the bars as CSV"
        ) from error
    except pandas.errors.EmptyDataError as error:
        raise BarsError(f"{path.name}: the file is empty") from error
    except BarsError:
        raise
    except (ValueError, OSError, EOFError) as error:  # rows of different lengths, an encoding, a file cut short
        raise BarsError(f"{path.name}: cannot be read: {error}") from error


def _separator(header: str) -> str:
    return max(",;\t|", key=header.count)


def _cells(line: str) -> list[str]:
    return line.strip().split(_separator(line))


def _one_stock(source: str, frame, ticker: str | None):
    """The columns, or the rows, of one stock: the only one, or the one that is named.

    Raises:
        BarsError: several and none named, or one named that is not there.
    """
    import pandas

    if isinstance(frame.columns, pandas.MultiIndex):
        level = next((k for k, name in enumerate(frame.columns.names) if str(name).lower() == "ticker"), None)
        if level is None:  # the level that is not that of the fields
            fields = [{_plain(str(c)) for c in frame.columns.get_level_values(k)} for k in range(2)]
            level = 0 if {"open", "close"} <= fields[1] else 1
        labels = frame.columns.get_level_values(level)
        other = frame.columns.get_level_values(1 - level)
        first = [
            k
            for k, label in enumerate(frame.columns)
            if _plain(str(label[0])) in ("date", "datetime", "price", "index")
        ]
        present = [name for k, name in enumerate(labels) if name and k not in first]
        chosen = _chosen(source, list(dict.fromkeys(present)), ticker, None)
        kept = frame.iloc[:, [k for k, label in enumerate(labels) if label == chosen and k not in first]]
        kept.columns = [other[k] for k, label in enumerate(labels) if label == chosen and k not in first]
        out = kept.copy()
        out.insert(0, "Datetime", frame.iloc[:, first[0]] if first else frame.index)
        return out
    named = [column for column in frame.columns if _plain(str(column)) in SYMBOLS]
    for column in named:
        values = frame[column].astype("string").str.strip()
        present = list(dict.fromkeys(values.dropna()))
        if len(present) > 1 or (ticker is not None and present and ticker not in present):
            row = int((values == present[-1 if len(present) < 2 else 1]).to_numpy(dtype=bool, na_value=False).argmax())
            chosen = _chosen(source, present, ticker, f"column {column!r} holds", row)
            frame = frame[(values == chosen).to_numpy(dtype=bool, na_value=False)].reset_index(drop=True)
    if ticker is not None and not named:
        raise BarsError(f"{source}: ticker={ticker!r}, but no column names a stock")
    return frame


def _chosen(source: str, present: list[str], ticker: str | None, what: str | None, row: int | None = None) -> str:
    listed = ", ".join(map(str, present[:5])) + ", ..." * (len(present) > 5)
    if ticker is not None:
        if ticker not in present:
            raise BarsError(f"{source}: ticker={ticker!r} is not among {listed}")
        return ticker
    if len(present) > 1:
        begins = f"; {present[1]} begins at row {row}" if row is not None else ""
        raise BarsError(
            f"{source}: {what or 'the header names'} {len(present)} stocks, {listed}{begins}: read one stock at a time,"
            " ticker=..."
        )
    return present[0]


def _plain(column: str) -> str:
    return column.strip().strip("<>").lower().replace(" ", "_")


def _columns(source: str, present: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Field -> column; "date" beside "time" where they stand in two columns."""
    known = {**ALIASES, "date": DATE}
    unknown = [name for name in given if name not in known] + [c for c in given.values() if c not in present]
    if unknown:
        raise BarsError(f"{source}: columns: {', '.join(unknown)} unknown; the file has {', '.join(present)}")
    names, plain = dict(given), {column: _plain(column) for column in present}
    if "time" not in names:
        dates, clocks = ([c for c in present if plain[c] in known] for known in (DATE, CLOCK))
        if len(dates) == 1 and len(clocks) == 1 and dates != clocks:
            names["date"], names["time"] = dates[0], clocks[0]
    for name, aliases in ALIASES.items():
        if name in names:
            continue
        matches = [column for column in present if plain[column] in aliases] or [
            column for column in present if plain[column] in SECOND.get(name, ())
        ]
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


def _text_of_times(frame, names: Mapping[str, str]):
    """Times as text, date and clock joined, and whether there are dates alone."""
    import pandas

    column = frame[names["time"]]
    if pandas.api.types.is_datetime64_any_dtype(column) or "timestamp" in str(column.dtype):
        column = pandas.to_datetime(column.astype(object))
        aware = getattr(column.dt, "tz", None) is not None
        form = "%Y-%m-%d %H:%M:%S.%f" + "%z" * aware
        text, midnight = column.dt.strftime(form), (column.dt.normalize() == column).all()
        return text, bool(midnight) and len(column) > 1
    text = column.map(lambda value: value if pandas.isna(value) else _whole(value)).astype("string").str.strip()
    if "date" in names:
        clock = text.where(~text.str.match(r"^\d{1,6}$").fillna(False), text.str.zfill(6))
        clock = clock.where(~clock.str.match(r"^00\d{4}$").fillna(False) | (text.str.len() > 4), text.str.zfill(4))
        day = frame[names["date"]].map(lambda value: value if pandas.isna(value) else _whole(value)).astype("string")
        return day.str.strip() + " " + clock, bool((clock.str.replace(r"\D", "", regex=True).astype(int) == 0).all())
    dates = text.str.match(
        r"^(\d{4}[-./]?\d\d[-./]?\d\d|\d{1,2}[-./]\d{1,2}[-./]\d{2,4}|[A-Za-z]{3} \d{1,2}, \d{4})$"
    ).fillna(False)
    midnight = text.str.match(r".*\d[T ]00:00(:00(\.0+)?)?([+-]\d\d:?\d\d|Z)?$").fillna(False)
    if dates.all() or (midnight.all() and len(text) > 1):
        return text.str.replace(r"[T ]00:00(:00(\.0+)?)?([+-]\d\d:?\d\d|Z)?$", "", regex=True), True
    return text, False


def _whole(value) -> str:
    """93000.0 as 93000."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(source: str, column) -> np.ndarray:
    """A column of prices or volumes, -1 as missing; the row of anything else than a number is named."""
    import pandas

    text = column.astype("string").str.strip()
    plain = text.str.replace(r"^\$", "", regex=True)
    scaled = plain.str.extract(r"^(-?[\d.]+)([KMB])$")
    numbers = pandas.to_numeric(plain.where(scaled[0].isna(), scaled[0]), errors="coerce")
    numbers = numbers * scaled[1].map(SCALE).astype(float).fillna(1.0)
    bad = (numbers.isna() & text.notna() & ~text.isin(["", "NaN", "nan", "null", "None", "-"])).to_numpy(dtype=bool)
    if bad.any():
        row = int(bad.argmax())
        raise BarsError(
            f"{source}: row {row}, column {column.name!r}: {column.iloc[row]!r} is not a number ({int(bad.sum())} such"
            " rows)"
        )
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(values == -1, np.nan, values)
