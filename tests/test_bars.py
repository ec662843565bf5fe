"""Reader of real bars: gaps, duplicates, disorder, bad prices and wrong time zones are reported, and repaired only where that is accepted."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data_gen.bars import BarsError, check_bars, read_bars
from data_gen.market import minute_market

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
    return pd.DataFrame({"Timestamp": time.tz_localize(None).strftime("%Y-%m-%d %H:%M:%S"), "O": bars.open, "High": bars.high,
                         "low": bars.low, "Close Price": bars.close, "Vol": bars.volume})


def test_clean_bars_come_back_as_they_are(market):
    bars, report = check_bars(market.time, columns(market))
    assert len(bars) == len(market) and report.missing == report.outside == report.duplicates == report.out_of_order == 0
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
    pd.DataFrame({"t": market.time.astype(f"datetime64[{unit}]").astype("int64"), "vw": market.vwap}).to_csv(path, index=False)
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
    with pytest.raises(BarsError, match=r"in 2021-03 only \d+% of the volume.*[+-]\d+ h would give.*time zone"):
        read_bars(path, time_zone=wrong)


def test_a_fixed_offset_fails_in_the_months_it_is_wrong_for():
    bars = minute_market(2, "2021-02-01", "2021-04-30")
    with pytest.raises(BarsError, match="in 2021-04 only"):  # UTC-5 all year: right in winter
        check_bars(np.where(bars.time > np.datetime64("2021-03-14"), bars.time + np.timedelta64(1, "h"), bars.time), columns(bars))


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


@pytest.mark.parametrize("change, options, message", [
    (lambda f: f, {}, "have no offset: say time_zone"),
    (lambda f: f, {"time_zone": "Mars/Base"}, "'Mars/Base' is unknown"),
    (lambda f: f.drop(columns="Timestamp"), {"time_zone": "UTC"}, "no column of times"),
    (lambda f: f.drop(columns="low"), {"time_zone": "America/New_York"}, "high, low and close, or vwap"),
    (lambda f: f.assign(c=1.0), {"time_zone": "America/New_York"}, "could both be close"),
    (lambda f: f.assign(Timestamp="noon"), {"time_zone": "America/New_York"}, "times cannot be read"),
    (lambda f: f.iloc[:0], {"time_zone": "America/New_York"}, "no rows"),
    (lambda f: f, {"columns": {"price": "O"}}, "price unknown"),
])  # fmt: skip
def test_files_that_cannot_be_read_say_why(market, tmp_path, change, options, message):
    path = tmp_path / "amc.csv"
    change(frame(market)).to_csv(path, index=False)
    with pytest.raises(BarsError, match=message):
        read_bars(path, **options)


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


@pytest.mark.skipif(not (Path(os.environ.get("IMPLICIT_DATA", "")) / "us_minute_bars.npz").is_file(), reason="no real bars in IMPLICIT_DATA")
def test_real_bars_are_read_and_a_shift_of_an_hour_is_seen():
    with np.load(Path(os.environ["IMPLICIT_DATA"]) / "us_minute_bars.npz") as real:
        time = real["AMC_time"].astype("int64").astype("datetime64[s]")
        values = dict(zip(("open", "high", "low", "close"), real["AMC_ohlc"].astype(float).T)) | {"volume": real["AMC_volume"]}
    bars, report = check_bars(time, values)
    assert len(bars) == 8573 and report.empty_sessions == ["2022-03-21", "2022-03-29", "2022-04-06"]
    for hours in (-1, 1):
        with pytest.raises(BarsError, match="time zone"):
            check_bars(time + np.timedelta64(hours, "h"), values)
