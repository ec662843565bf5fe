"""Reader of real bars: gaps, duplicates, disorder, bad prices and wrong time zones are reported, and repaired only
where that is accepted."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

from data_gen.market.bars import BarsError, check_bars, read_bars
from data_gen.market.minutes import minute_market
from reproduction.ch5_volatility.compute import real_rows

FIELDS = ("open", "high", "low", "close", "volume", "vwap")


@pytest.fixture(scope="module")
def market():
    bars = minute_market(2, "2021-03-01", "2021-03-31")  # daylight saving starts on the 14th
    return bars


def columns(bars):
    values = {name: getattr(bars, name).copy() for name in FIELDS}
    # a carried VWAP may lie outside its minute's flat range: real files have no such bars
    values["vwap"] = np.clip(values["vwap"], values["low"], values["high"])
    return values


def frame(bars, zone="America/New_York"):
    time = pd.DatetimeIndex(bars.time).tz_localize("UTC").tz_convert(zone)
    return pd.DataFrame(
        {
            "Timestamp": time.tz_localize(None).strftime("%Y-%m-%d %H:%M:%S"),
            "O": bars.open,
            "High": bars.high,
            "low": bars.low,
            "Close Price": bars.close,
            "Vol": bars.volume,
        }
    )


def test_clean_bars_come_back_as_they_are(market):
    bars, report = check_bars(market.time, columns(market))
    assert (
        len(bars) == len(market) and report.missing == report.outside == report.duplicates == report.out_of_order == 0
    )
    np.testing.assert_array_equal(bars.position, market.position)
    np.testing.assert_array_equal(bars.close, market.close)


def test_csv_with_aliases_and_local_times(market, tmp_path):
    path = tmp_path / "amc.csv"
    frame(market).to_csv(path, index=False)
    bars, report = read_bars(path, time_zone="America/New_York")
    np.testing.assert_array_equal(bars.time, market.time)
    assert report.columns["open"] == "O" and report.columns["vwap"] == "(high + low + close) / 3"
    np.testing.assert_allclose(bars.vwap, (market.high + market.low + market.close) / 3, rtol=1e-12)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unix_times_are_utc(market, tmp_path, unit):
    path = tmp_path / "amc.csv"
    pd.DataFrame({"t": market.time.astype(f"datetime64[{unit}]").astype("int64"), "vw": market.vwap}).to_csv(
        path, index=False
    )
    bars, _ = read_bars(path)
    np.testing.assert_array_equal(bars.time, market.time)
    np.testing.assert_array_equal(bars.vwap, market.vwap)
    np.testing.assert_array_equal(bars.high, market.vwap)


def test_times_with_offsets_that_change(market, tmp_path):
    path = tmp_path / "amc.csv.gz"
    time = pd.DatetimeIndex(market.time).tz_localize("UTC").tz_convert("America/New_York")
    pd.DataFrame({"time": [t.isoformat() for t in time], "vwap": market.vwap}).to_csv(path, index=False)
    bars, _ = read_bars(path)
    np.testing.assert_array_equal(bars.time, market.time)
    with pytest.raises(BarsError, match="carry an offset"):
        read_bars(path, time_zone="UTC")


@pytest.mark.parametrize("wrong", ["UTC", "America/Chicago", "Europe/London"])
def test_wrong_time_zone_is_an_error_that_names_the_shift(market, tmp_path, wrong):
    path = tmp_path / "amc.csv"
    frame(market).to_csv(path, index=False)
    with pytest.raises(BarsError, match=r"from 2021-03-01 only \d+% of the volume.*[+-]\d+ h would give.*time zone"):
        read_bars(path, time_zone=wrong)


def test_a_fixed_offset_fails_in_the_months_it_is_wrong_for():
    bars = minute_market(2, "2021-02-01", "2021-04-30")
    with pytest.raises(
        BarsError, match="from 2021-03-15 only.*-1 h would give 100%"
    ):  # UTC-5 all year: right in winter
        check_bars(
            np.where(bars.time > np.datetime64("2021-03-14"), bars.time + np.timedelta64(1, "h"), bars.time),
            columns(bars),
        )


# Clocks changed on 2021-03-14 and 2021-11-07 in New York, on 2021-03-28 and 2021-10-31 in London.
@pytest.mark.parametrize(
    "first, last, offset, session, shift",
    [
        ("2021-11-01", "2021-11-30", "-05:00", "5 sessions from 2021-11-01", "-1 h"),
        ("2021-11-01", "2021-11-30", "-04:00", "5 sessions from 2021-11-08", "+1 h"),
        ("2021-03-01", "2021-03-31", "-05:00", "5 sessions from 2021-03-15", "-1 h"),
        ("2021-03-01", "2021-03-31", "-04:00", "5 sessions from 2021-03-01", "+1 h"),
        ("2021-11-05", "2021-11-30", "-05:00", "1 session from 2021-11-05", "-1 h"),
    ],
)
def test_a_fixed_offset_fails_in_a_month_in_which_clocks_change(tmp_path, first, last, offset, session, shift):
    bars = minute_market(2, first, last)
    path = tmp_path / "amc.csv"
    data = frame(bars)
    data.assign(Timestamp=data["Timestamp"] + offset).to_csv(path, index=False)
    with pytest.raises(BarsError, match=f"in {session} only.*{re.escape(shift)} would give 100%"):
        read_bars(path)


@pytest.mark.parametrize(
    "first, last, session", [("2021-10-18", "2021-11-19", "2021-11-01"), ("2021-03-01", "2021-04-09", "2021-03-15")]
)
def test_london_less_five_hours_fails_in_the_weeks_between_two_changes(tmp_path, first, last, session):
    bars = minute_market(2, first, last)
    london = pd.DatetimeIndex(bars.time).tz_localize("UTC").tz_convert("Europe/London").tz_localize(
        None
    ) - pd.Timedelta(hours=5)
    path = tmp_path / "amc.csv"
    frame(bars).assign(Timestamp=london.strftime("%Y-%m-%d %H:%M:%S")).to_csv(path, index=False)
    with pytest.raises(BarsError, match=f"5 sessions from {session} only.*[+]1 h would give 100%"):
        read_bars(path, time_zone="America/New_York")


def test_two_sessions_of_a_week_an_hour_off_are_seen(market):
    late = market.date >= np.datetime64("2021-03-30")
    with pytest.raises(BarsError, match="in 2 sessions from 2021-03-30 only.*-1 h would"):
        check_bars(market.time + np.where(late, 60, 0).astype("timedelta64[m]"), columns(market))


@pytest.mark.parametrize(
    "minutes, message",
    [
        (30, "from 2021-03-01 only.*-30 min would give 100%"),
        (-30, "from 2021-03-01 only.*[+]30 min would give 100%"),
        (330, "from 2021-03-01 only.*-5 h 30 min would give 100%"),
        (
            1,
            (
                "5 of the 5 sessions of a week, from 2021-03-01, begin and end 1 min after .*-1 min would fit: are the"
                " bars stamped at their end"
            ),
        ),
        (-1, "from 2021-03-01, begin and end 1 min before .*[+]1 min would fit"),
        (15, "from 2021-03-01, begin and end 15 min after .*-15 min would fit"),
    ],
)
@pytest.mark.parametrize("volume", [True, False])
def test_shifts_of_less_than_an_hour_are_seen(market, minutes, message, volume):
    values = {name: column for name, column in columns(market).items() if volume or name != "volume"}
    with pytest.raises(BarsError, match=message):
        check_bars(market.time + np.timedelta64(minutes, "m"), values)


def with_extended_hours(bars, seed=0):
    """Times and columns with 04:00 to 20:00: a twentieth of the session's volume a minute, and the closing auction at
    16:00."""
    generator = np.random.default_rng(seed)
    times, volumes = [bars.time], [bars.volume]
    for day, (opening, length) in enumerate(zip(bars.calendar.opens, bars.calendar.minutes)):
        minute = np.concatenate([np.arange(-330, 0), np.arange(length, 630)])
        times.append(opening + minute.astype("timedelta64[m]"))
        mean = bars.volume[bars.day == day].mean()
        volumes.append(generator.exponential(mean / 20, len(minute)) + 30 * mean * (minute == length))
    order = np.argsort(np.concatenate(times))
    return np.concatenate(times)[order], {"vwap": np.ones(len(order)), "volume": np.concatenate(volumes)[order]}


@pytest.mark.parametrize("minutes", [1, -1, 30, -30, 60, -60])
def test_shifts_are_seen_among_extended_hours(market, minutes):
    time, values = with_extended_hours(market)
    bars, report = check_bars(time, values)
    assert report.missing == 0 and len(bars) == len(market)
    hours, rest = divmod(abs(minutes), 60)
    name = f"{'+' if minutes < 0 else '-'}{f'{hours} h' if hours else f'{rest} min'}"
    with pytest.raises(BarsError, match=f"from 2021-03-01.*{re.escape(name)} would"):
        check_bars(time + np.timedelta64(minutes, "m"), values)


def test_sessions_that_begin_late_are_no_shift(market):
    time, values = with_extended_hours(market)
    minute = (time - time.astype("datetime64[D]")).astype("timedelta64[m]").astype(int)
    keep = minute >= 17 * 60  # 12:00 or 13:00 in New York: as a download that starts at noon
    keep |= time.astype("datetime64[D]") > time[0].astype("datetime64[D]")
    for last in ("2021-03-02", "2021-03-20"):
        part = keep & (time < np.datetime64(last))
        _, report = check_bars(time[part], {name: column[part] for name, column in values.items()})
        assert report.missing == 150


def test_absent_opening_minutes_in_some_sessions_are_no_shift(market):
    time, values = with_extended_hours(market)
    first = np.isin(time, market.calendar.opens[::3])
    _, report = check_bars(time[~first], {name: column[~first] for name, column in values.items()})
    assert report.missing == first.sum() == 8


def test_a_gap_is_reported_and_no_window_crosses_it(market):
    keep = np.ones(len(market), bool)
    keep[100:105] = False
    bars, report = check_bars(market.time[keep], {name: values[keep] for name, values in columns(market).items()})
    assert report.missing == 5 and len(bars) == len(market) - 5 and report.empty_sessions == []
    starts = bars.position[bars.windows(70)]
    assert not ((starts > 100 - 70) & (starts < 105)).any() and (starts == 105).any() and (starts == 30).any()


def test_a_missing_session_is_named(market):
    keep = market.date != np.datetime64("2021-03-09")
    bars, report = check_bars(market.time[keep], {name: values[keep] for name, values in columns(market).items()})
    assert report.empty_sessions == ["2021-03-09"] and report.missing == 390 and "2021-03-09" in str(report)


def test_a_duplicate_minute_is_refused_then_merged_when_accepted(market):
    rows = np.insert(np.arange(len(market)), 50, 49)
    values = {name: column[rows] for name, column in columns(market).items()}
    with pytest.raises(BarsError, match="duplicates") as caught:
        check_bars(market.time[rows], values)
    assert caught.value.report.duplicates == 1
    bars, report = check_bars(market.time[rows], values, accept=["duplicates"])
    assert report.duplicates == 1 and len(bars) == len(market)
    np.testing.assert_array_equal(bars.close, market.close)


def test_two_different_bars_of_one_minute_are_always_an_error(market):
    rows = np.insert(np.arange(len(market)), 50, 49)
    values = {name: column[rows] for name, column in columns(market).items()}
    values["close"][50] = values["high"][50] = values["high"][50] + 1
    with pytest.raises(BarsError, match=f"two different bars of one minute, row 50 at {market.time[49]}Z"):
        check_bars(market.time[rows], values, accept=["duplicates"])


def test_rows_out_of_order_are_refused_then_sorted_when_accepted(market):
    rows = np.arange(len(market))
    rows[[10, 11]] = 11, 10
    values = {name: column[rows] for name, column in columns(market).items()}
    with pytest.raises(BarsError, match="out_of_order.*accept=\\['out_of_order'\\]"):
        check_bars(market.time[rows], values)
    bars, report = check_bars(market.time[rows], values, accept=["out_of_order"])
    assert report.out_of_order == 1
    np.testing.assert_array_equal(bars.close, market.close)


@pytest.mark.parametrize("name, value", [("low", 0.0), ("close", -1.0), ("open", np.nan), ("volume", -5.0)])
def test_prices_that_are_none_are_refused_then_left_out_when_accepted(market, name, value):
    values = columns(market)
    values[name][77] = value
    with pytest.raises(BarsError, match="non_positive: 1 rows, e.g. row 77"):
        check_bars(market.time, values)
    bars, report = check_bars(market.time, values, accept=["non_positive"])
    assert report.non_positive == 1 and report.missing == 1 and 77 not in bars.position


def test_a_close_outside_its_range_is_inconsistent(market):
    values = columns(market)
    values["close"][5] = values["high"][5] + 1
    with pytest.raises(BarsError, match="inconsistent"):
        check_bars(market.time, values)
    bars, report = check_bars(market.time, values, accept=["inconsistent"])
    assert report.inconsistent == 1 and len(bars) == len(market) - 1


def test_extended_hours_are_left_out_and_counted(market):
    early = market.time[:1] - np.timedelta64(45, "m")
    values = {name: np.concatenate([column[:1], column]) for name, column in columns(market).items()}
    bars, report = check_bars(np.concatenate([early, market.time]), values)
    assert report.outside == 1 and len(bars) == len(market)


def test_constant_series_is_read(market):
    values = {name: np.full(len(market), 3.0) for name in FIELDS}
    bars, _ = check_bars(market.time, values)
    assert np.ptp(bars.vwap) == 0


@pytest.mark.parametrize(
    "change, options, message",
    [
        (lambda f: f, {}, "have no offset: say time_zone"),
        (lambda f: f, {"time_zone": "Mars/Base"}, "'Mars/Base' is unknown"),
        (lambda f: f.drop(columns="Timestamp"), {"time_zone": "UTC"}, "no column of times"),
        (lambda f: f.drop(columns="low"), {"time_zone": "America/New_York"}, "high, low and close, or vwap"),
        (lambda f: f.assign(c=1.0), {"time_zone": "America/New_York"}, "could both be close"),
        (lambda f: f.assign(Timestamp="noon"), {"time_zone": "America/New_York"}, "times cannot be read"),
        (lambda f: f.iloc[:0], {"time_zone": "America/New_York"}, "no rows"),
        (lambda f: f, {"columns": {"price": "O"}}, "price unknown"),
    ],
)
def test_files_that_cannot_be_read_say_why(market, tmp_path, change, options, message):
    path = tmp_path / "amc.csv"
    change(frame(market)).to_csv(path, index=False)
    with pytest.raises(BarsError, match=message):
        read_bars(path, **options)


@pytest.mark.parametrize("name", ["symbol", "Ticker", " SYM "])
def test_two_stocks_in_one_file_are_an_error_that_names_them(market, tmp_path, name):
    path = tmp_path / "amc.csv"
    second = market.date >= np.datetime64("2021-03-08")
    data = frame(market)
    prices = [column for column in data if column not in ("Timestamp", "Vol")]
    data.loc[second, prices] *= 10
    options = {"time_zone": "America/New_York"}
    data.assign(**{name: np.where(second, "GME", "AMC")}).to_csv(path, index=False)
    with pytest.raises(BarsError, match=f"column '{name}' holds 2 stocks, AMC, GME; GME begins at row {5 * 390}"):
        read_bars(path, **options)
    data.assign(**{name: "AMC"}).to_csv(path, index=False)
    assert len(read_bars(path, **options)[0]) == len(market)


@pytest.mark.parametrize("column, value", [("low", "n/q"), ("Vol", "1,234")])
def test_a_number_that_is_none_is_named_by_row_and_column(market, tmp_path, column, value):
    path = tmp_path / "amc.csv"
    data = frame(market).astype({column: object})
    data.loc[17, column] = value
    data.to_csv(path, index=False)
    with pytest.raises(BarsError, match=f"row 17, column '{column}': '{value}' is not a number"):
        read_bars(path, time_zone="America/New_York")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.csv", b"time,vwap\n", "no rows"),
        ("a.csv", b"time,vwap\n1,2\n1,2,3,4\n", "cannot be read"),
        ("a.csv", b"time,vwap\n\xff,2\n", "cannot be read"),
        ("a.csv.gz", b"time,vwap\n", "cannot be read"),
        ("a.csv.gz", gzip.compress(b"time,vwap\n1,2\n", mtime=0)[:-9], "cannot be read"),
    ],
)
def test_broken_files_say_so(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BarsError, match=message):
        read_bars(tmp_path / name)


@pytest.mark.parametrize(
    "first, last, row, what",
    [
        # 01:00 to 01:59 comes twice on the 7th: row 60 of the second day in New York
        ("2021-11-06 04:00", "2021-11-08 20:59", 1440 + 60, "2021-11-07 01:00:00"),
        # 02:00 does not come on the 14th
        (None, None, 1440 + 120, "2021-03-14 02:00:00"),
    ],
)
def test_a_local_time_that_is_unclear_is_called_so(tmp_path, first, last, row, what):
    if first:
        local = pd.date_range(first, last, freq="min", tz="UTC").tz_convert("America/New_York").tz_localize(None)
    else:
        local = pd.date_range("2021-03-13 00:00", "2021-03-15 16:00", freq="min")
    path = tmp_path / "amc.csv"
    pd.DataFrame({"time": local.strftime("%Y-%m-%d %H:%M:%S"), "vwap": 1.0}).to_csv(path, index=False)
    with pytest.raises(BarsError, match=f"row {row}: {what} is ambiguous or does not exist in America/New_York"):
        read_bars(path, time_zone="America/New_York")


def test_a_row_without_a_time_is_called_so(market, tmp_path):
    path = tmp_path / "amc.csv"
    data = frame(market)
    data.loc[5, "Timestamp"] = None
    data.to_csv(path, index=False)
    with pytest.raises(BarsError, match="row 5 has no time"):
        read_bars(path, time_zone="America/New_York")


def test_accept_is_a_collection(market):
    with pytest.raises(BarsError, match=r"a collection of words is wanted, such as \['duplicates'\]"):
        check_bars(market.time, columns(market), accept="duplicates")


def test_accept_takes_known_words_only(market):
    with pytest.raises(ValueError, match="gaps unknown"):
        check_bars(market.time, columns(market), accept=["gaps"])


def test_file_names(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_bars(tmp_path / "none.csv")
    (tmp_path / "bars.xlsx").write_text("")
    with pytest.raises(BarsError, match="neither .csv"):
        read_bars(tmp_path / "bars.xlsx")


def test_parquet_goes_through_pandas(market, tmp_path, monkeypatch):
    path = tmp_path / "amc.parquet"
    path.write_text("")
    monkeypatch.setattr(pd, "read_parquet", lambda p: frame(market).set_index("Timestamp"))
    bars, _ = read_bars(path, time_zone="America/New_York")
    np.testing.assert_array_equal(bars.time, market.time)

    def no_engine(p):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", no_engine)
    with pytest.raises(ImportError, match="pyarrow"):
        read_bars(path, time_zone="America/New_York")


def test_times_of_the_future_are_named(market):
    time = market.time.copy()
    time[7] = np.datetime64("9999-12-31")
    with pytest.raises(BarsError, match="row 7 is of the future, 9999-12-31"):
        check_bars(time, columns(market))


@pytest.mark.skipif(real_rows() is None, reason="no real bars in IMPLICIT_DATA")
def test_real_bars_are_read_and_a_shift_of_an_hour_is_seen():
    time, values = real_rows()
    bars, report = check_bars(time, values)
    assert len(bars) == 8573 and report.empty_sessions == ["2022-03-21", "2022-03-29", "2022-04-06"]
    for minutes, name in (
        (-60, "[+]1 h"),
        (60, "-1 h"),
        (-30, "[+]30 min"),
        (30, "-30 min"),
        (-1, "[+]1 min"),
        (1, "-1 min"),
    ):
        with pytest.raises(BarsError, match=f"from 2022-03-14.* {name} would"):
            check_bars(time + np.timedelta64(minutes, "m"), values)
    for date in np.unique(bars.date):  # neither is a single real session called shifted
        day = time.astype("datetime64[D]") == date
        check_bars(time[day], {name: column[day] for name, column in values.items()})
