"""Bars in the layout that vendors and programmes write by default, one small made file each."""

import gzip

import numpy as np
import pandas as pd
import pytest

from data_gen.market.bars import BarsError, check_bars, read_bars
from data_gen.market.daily_bars import check_daily_bars, read_daily_bars
from data_gen.market.minutes import minute_market
from data_gen.market.volatility import samples

NEW_YORK = "America/New_York"


@pytest.fixture(scope="module")
def market():
    """Two weeks of minute bars; in the first no day is above 12."""
    return minute_market(3, "2021-03-01", "2021-03-12")


def local(bars, form):
    return pd.DatetimeIndex(bars.time).tz_localize("UTC").tz_convert(NEW_YORK).strftime(form)


def ohlcv(bars, names="open high low close volume"):
    return dict(zip(names.split(), (bars.open, bars.high, bars.low, bars.close, bars.volume)))


def assert_same_bars(path, market, **options):
    bars, report = read_bars(path, **options)
    np.testing.assert_array_equal(bars.time, market.time)
    for name in ("open", "high", "low", "close"):
        np.testing.assert_allclose(getattr(bars, name), getattr(market, name), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(bars.volume, market.volume)
    return report


def yahoo(bars, tickers, form="%Y-%m-%d %H:%M:%S+00:00"):
    """The frame of yfinance.download, columns (field, ticker)."""
    columns = {}
    for factor, ticker in enumerate(tickers, start=1):
        for name, values in ohlcv(bars, "Open High Low Close Volume").items():
            columns[name, ticker] = values * (factor if name != "Volume" else 1)
    frame = pd.DataFrame(columns, index=pd.DatetimeIndex(bars.time, tz="UTC", name="Datetime"))
    frame.columns.names = ["Price", "Ticker"]
    return frame


# Minute bars


@pytest.mark.parametrize("tickers", [["AMC"], ["AMC", "GME"]])
def test_csv_of_yfinance_with_its_header_of_three_lines(market, tmp_path, tickers):
    path = tmp_path / "amc.csv"
    yahoo(market, tickers).to_csv(path)
    assert path.read_text().splitlines()[2].startswith("Datetime")
    assert_same_bars(path, market, ticker="AMC")
    if len(tickers) == 1:
        assert_same_bars(path, market)
        with pytest.raises(BarsError, match="ticker='GME' is not among AMC"):
            read_bars(path, ticker="GME")
    else:
        with pytest.raises(BarsError, match="2 stocks, AMC, GME: read one stock at a time, ticker="):
            read_bars(path)
        np.testing.assert_allclose(read_bars(path, ticker="GME")[0].close, 2 * market.close)


@pytest.mark.parametrize("by_ticker", [False, True])
def test_parquet_of_yfinance_with_two_levels_of_columns(market, tmp_path, by_ticker):
    pytest.importorskip("pyarrow")
    path = tmp_path / "amc.parquet"
    frame = yahoo(market, ["AMC", "GME"])
    (frame.swaplevel(axis=1).sort_index(axis=1) if by_ticker else frame).to_parquet(path)
    assert_same_bars(path, market, ticker="AMC")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_typed_parquet_with_a_time_zone(market, tmp_path, unit):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    time = pa.array(market.time.astype(f"datetime64[{unit}]").astype("int64"), pa.timestamp(unit, tz=NEW_YORK))
    table = pa.table({"timestamp": time} | {name: pa.array(values) for name, values in ohlcv(market).items()})
    pq.write_table(table, tmp_path / "amc.parquet")
    assert_same_bars(tmp_path / "amc.parquet", market)
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    frame.to_parquet(tmp_path / "arrow.parquet")
    assert_same_bars(tmp_path / "arrow.parquet", market)


@pytest.mark.parametrize("name", ["amc.PARQUET", "AMC.CSV", "amc.Csv.gz", "amc.txt", "AMC.CSV.GZ"])
def test_capital_endings_and_gzip(market, tmp_path, name):
    if name.lower().endswith("parquet"):
        pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"t": market.time.astype("datetime64[s]").astype("int64")} | ohlcv(market, "o h l c v"))
    path = tmp_path / name
    if name.lower().endswith("parquet"):
        frame.to_parquet(path)
    else:
        text = frame.to_csv(index=False).encode()
        path.write_bytes(gzip.compress(text) if name.lower().endswith("gz") else text)
    assert_same_bars(path, market)


def test_date_and_time_in_two_columns(market, tmp_path):
    frame = pd.DataFrame(
        {"Date": local(market, "%Y-%m-%d"), "Time": local(market, "%H:%M")}
        | ohlcv(market, "Open High Low Close Volume")
    )
    frame.to_csv(tmp_path / "amc.csv", index=False)
    assert_same_bars(tmp_path / "amc.csv", market, time_zone=NEW_YORK)
    with pytest.raises(BarsError, match="have no offset: say time_zone"):
        read_bars(tmp_path / "amc.csv")


@pytest.mark.parametrize("clock", ["%H%M%S", "%H%M"])
def test_stooq(market, tmp_path, clock):
    head = {"<TICKER>": "AMC.US", "<PER>": "1", "<DATE>": local(market, "%Y%m%d"), "<TIME>": local(market, clock)}
    frame = pd.DataFrame(head | ohlcv(market, "<OPEN> <HIGH> <LOW> <CLOSE> <VOL>") | {"<OPENINT>": 0})
    frame.to_csv(tmp_path / "amc.us.txt", index=False)
    assert_same_bars(tmp_path / "amc.us.txt", market, time_zone=NEW_YORK)


def test_a_clock_that_lost_its_leading_zero(market, tmp_path):
    """93000 for 09:30:00, as a spreadsheet leaves it."""
    clock = [str(int(text)) for text in local(market, "%H%M%S")]
    frame = pd.DataFrame({"date": local(market, "%Y%m%d"), "time": clock} | ohlcv(market))
    frame.to_csv(tmp_path / "amc.csv", index=False)
    assert_same_bars(tmp_path / "amc.csv", market, time_zone=NEW_YORK)


def test_metatrader_5_export(market, tmp_path):
    head = {"<DATE>": local(market, "%Y.%m.%d"), "<TIME>": local(market, "%H:%M:%S")}
    frame = pd.DataFrame(head | ohlcv(market, "<OPEN> <HIGH> <LOW> <CLOSE> <TICKVOL>") | {"<SPREAD>": 1})
    frame.to_csv(tmp_path / "AMC_M1.csv", index=False, sep="\t")
    assert_same_bars(tmp_path / "AMC_M1.csv", market, time_zone=NEW_YORK)


def test_metatrader_4_export_without_a_header(market, tmp_path):
    frame = pd.DataFrame({"d": local(market, "%Y.%m.%d"), "t": local(market, "%H:%M")} | ohlcv(market))
    frame.to_csv(tmp_path / "AMC1.csv", index=False, header=False)
    assert_same_bars(tmp_path / "AMC1.csv", market, time_zone=NEW_YORK)


def test_firstrate_without_a_header(market, tmp_path):
    frame = pd.DataFrame({"t": local(market, "%Y-%m-%d %H:%M:%S")} | ohlcv(market))
    frame.to_csv(tmp_path / "AMC_1min.txt", index=False, header=False)
    assert_same_bars(tmp_path / "AMC_1min.txt", market, time_zone=NEW_YORK)
    frame.assign(more=1, again=2).to_csv(tmp_path / "odd.txt", index=False, header=False)
    with pytest.raises(BarsError, match="no header, and 8 columns"):
        read_bars(tmp_path / "odd.txt", time_zone=NEW_YORK)


@pytest.mark.parametrize(
    ("zone", "form"),
    [
        ("US/Eastern", "%Y%m%d %H:%M:%S US/Eastern"),
        ("EST", "%Y%m%d %H:%M:%S EST"),
        ("GMT-0500", "%d.%m.%Y %H:%M:%S.000 GMT-0500"),
    ],
)
def test_a_zone_behind_every_time(market, tmp_path, zone, form):
    """Interactive Brokers writes the zone's name, Dukascopy its offset."""
    frame = pd.DataFrame({"Date": local(market, form)} | ohlcv(market))
    frame.to_csv(tmp_path / "amc.csv", index=False)
    assert_same_bars(tmp_path / "amc.csv", market)  # all of these days are in winter time
    with pytest.raises(BarsError, match="carry an offset, and time_zone="):
        read_bars(tmp_path / "amc.csv", time_zone="UTC")


def test_two_zones_in_one_file(tmp_path):
    bars = minute_market(3, "2021-03-11", "2021-03-16")
    summer = bars.date > np.datetime64("2021-03-14")
    text = np.where(summer, local(bars, "%Y%m%d %H:%M:%S EDT"), local(bars, "%Y%m%d %H:%M:%S EST"))
    pd.DataFrame({"date": text} | ohlcv(bars)).to_csv(tmp_path / "amc.csv", index=False)
    assert_same_bars(tmp_path / "amc.csv", bars)


def test_dukascopy_in_gmt(market, tmp_path):
    time = pd.DatetimeIndex(market.time).strftime("%d.%m.%Y %H:%M:%S.000")
    pd.DataFrame({"Gmt time": time} | ohlcv(market, "Open High Low Close Volume")).to_csv(
        tmp_path / "a.csv", index=False
    )
    assert_same_bars(tmp_path / "a.csv", market)


def test_alpha_vantage(market, tmp_path):
    pd.DataFrame({"timestamp": local(market, "%Y-%m-%d %H:%M:%S")} | ohlcv(market)).iloc[::-1].to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(BarsError, match="out_of_order"):  # it begins with the latest
        read_bars(tmp_path / "a.csv", time_zone=NEW_YORK)
    assert_same_bars(tmp_path / "a.csv", market, time_zone=NEW_YORK, accept=["out_of_order"])


def test_polygon_flat_file(market, tmp_path):
    time = market.time.astype("datetime64[ns]").astype("int64")
    frame = pd.DataFrame({"ticker": "AMC"} | ohlcv(market) | {"window_start": time, "transactions": 3})
    other = frame.assign(ticker="GME", close=1.0)
    pd.concat([frame, other]).to_csv(tmp_path / "2021.csv.gz", index=False)
    assert_same_bars(tmp_path / "2021.csv.gz", market, ticker="AMC")
    with pytest.raises(BarsError, match="ticker='T' is not among AMC, GME"):
        read_bars(tmp_path / "2021.csv.gz", ticker="T")


def test_tradingview_export(market, tmp_path):
    frame = pd.DataFrame({"time": market.time.astype("int64")} | ohlcv(market, "open high low close Volume"))
    frame.to_csv(tmp_path / "BATS_AMC, 1.csv", index=False)
    assert_same_bars(tmp_path / "BATS_AMC, 1.csv", market)
    stamped = [t.isoformat() for t in pd.DatetimeIndex(market.time).tz_localize("UTC").tz_convert(NEW_YORK)]
    frame.assign(time=stamped).to_csv(tmp_path / "iso.csv", index=False)
    assert_same_bars(tmp_path / "iso.csv", market)


def test_semicolons(market, tmp_path):
    frame = pd.DataFrame({"Datetime": local(market, "%Y-%m-%d %H:%M")} | ohlcv(market))
    frame.to_csv(tmp_path / "amc.csv", index=False, sep=";")
    assert_same_bars(tmp_path / "amc.csv", market, time_zone=NEW_YORK)


@pytest.mark.parametrize("form", ["%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m-%d-%Y %I:%M %p", "%d/%m/%y %H:%M"])
def test_days_and_months_that_could_be_exchanged_are_refused(market, tmp_path, form):
    path = tmp_path / "amc.csv"
    pd.DataFrame({"Date": local(market, form)} | ohlcv(market)).to_csv(path, index=False)
    with pytest.raises(BarsError, match="days and months could be exchanged: say date_format="):
        read_bars(path, time_zone=NEW_YORK)
    assert_same_bars(path, market, time_zone=NEW_YORK, date_format=form)
    with pytest.raises(BarsError, match="date_format='%Y' does not fit"):
        read_bars(path, time_zone=NEW_YORK, date_format="%Y")


@pytest.mark.parametrize("form", ["%d/%m/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p"])
def test_a_day_above_12_says_which_is_the_month(tmp_path, form):
    bars = minute_market(3, "2021-03-11", "2021-03-16")
    pd.DataFrame({"Date": local(bars, form)} | ohlcv(bars)).to_csv(tmp_path / "amc.csv", index=False)
    assert_same_bars(tmp_path / "amc.csv", bars, time_zone=NEW_YORK)


def test_five_minute_bars_are_what_they_are(market, tmp_path):
    every = market.minute % 5 == 0
    frame = pd.DataFrame({"t": market.time.astype("int64")} | ohlcv(market, "o h l c v"))[every]
    frame.to_csv(tmp_path / "amc.csv", index=False)
    bars, report = read_bars(tmp_path / "amc.csv")
    assert (bars.interval, report.interval, report.missing) == (5, 5, 0) and "bars of 5 min" in str(report)
    with pytest.raises(ValueError, match="one of minute bars, these last 5 minutes"):
        samples(bars, 60, 10, 1)
    assert market.interval == 1 and len(samples(market, 60, 10, 1).date)


def always_open(minutes):
    time = np.datetime64("2021-03-01T00:00") + np.arange(0, 5 * 1440, minutes)
    return time, {name: np.full(len(time), 3.0) for name in ("open", "high", "low", "close", "volume")}


@pytest.mark.parametrize("minutes", [1, 15, 60])
def test_bars_round_the_clock_are_named_and_read(minutes):
    time, values = always_open(minutes)
    with pytest.raises(BarsError, match="run round the clock.*calendar='24/7' reads them"):
        check_bars(time, values)
    bars, report = check_bars(time, values, calendar="24/7")
    np.testing.assert_array_equal(bars.time, time.astype("datetime64[s]"))
    assert (report.outside, report.missing, report.sessions, bars.interval) == (0, 0, 5, minutes)
    with pytest.raises(BarsError, match="calendar must be 'XNYS' or '24/7', got 'XLON'"):
        check_bars(time, values, calendar="XLON")


def test_binance_without_a_header(tmp_path):
    time, values = always_open(1)
    start = time.astype("datetime64[ms]").astype("int64")
    pd.DataFrame({"t": start} | values | {f"x{k}": 0 for k in range(6)}).to_csv(
        tmp_path / "BTCUSDT-1m.csv", index=False, header=False
    )
    bars, _ = read_bars(tmp_path / "BTCUSDT-1m.csv", calendar="24/7")
    np.testing.assert_array_equal(bars.time, time.astype("datetime64[s]"))


def test_minus_one_is_missing_and_no_usable_bar_is_an_error(market, tmp_path):
    frame = pd.DataFrame({"t": market.time.astype("int64")} | ohlcv(market, "o h l c v"))
    frame.loc[7, "c"] = -1
    frame.loc[3, "v"] = -1
    frame.to_csv(tmp_path / "amc.csv", index=False)
    with pytest.raises(BarsError, match="non_positive: 1 rows, e.g. row 7 .*nan"):
        read_bars(tmp_path / "amc.csv")
    bars, _ = read_bars(tmp_path / "amc.csv", accept=["non_positive"])
    assert len(bars) == len(market) - 1 and bars.volume[3] == 0
    frame.assign(c=np.nan).to_csv(tmp_path / "amc.csv", index=False)
    with pytest.raises(BarsError, match="no usable bar among 3900 rows"):
        read_bars(tmp_path / "amc.csv", accept=["non_positive"])


# Daily bars


DAYS = pd.bdate_range("2021-03-01", periods=20)


def daily(**changes):
    rng = np.random.default_rng(0)
    close = 10 + rng.normal(0, 0.1, 20).cumsum()
    frame = {
        "Open": close,
        "High": close + 0.2,
        "Low": close - 0.2,
        "Close": close + 0.1,
        "Volume": np.arange(20.0) + 5,
    }
    return pd.DataFrame({"Date": DAYS} | frame | changes)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("%Y-%m-%d", {}),
        ("%Y%m%d", {}),
        ("%d.%m.%Y", {}),
        ("%m/%d/%Y", {}),
        ("%b %d, %Y", {}),
        ("%Y-%m-%d 00:00:00-05:00", {}),
    ],
)
def test_daily_bars_of_kaggle_stooq_and_others(tmp_path, form, options):
    frame = daily()
    frame.assign(Date=DAYS.strftime(form)).to_csv(tmp_path / "amc.csv", index=False)
    bars = read_daily_bars(tmp_path / "amc.csv", **options)
    np.testing.assert_array_equal(bars.dates, DAYS.to_numpy().astype("datetime64[D]"))
    np.testing.assert_allclose(bars.parkinson(), np.log(frame["High"] / frame["Low"]) ** 2 / (4 * np.log(2)))
    with pytest.raises(BarsError, match="the bars are of days: .*read_daily_bars"):
        read_bars(tmp_path / "amc.csv", time_zone=NEW_YORK)


def test_daily_csv_of_yfinance(tmp_path):
    frame = daily().set_index("Date")
    frame.columns = pd.MultiIndex.from_product([frame.columns, ["AMC"]], names=["Price", "Ticker"])
    frame.to_csv(tmp_path / "amc.csv")
    assert len(read_daily_bars(tmp_path / "amc.csv", ticker="AMC")) == 20


@pytest.mark.parametrize("hour", [0, 14])
def test_daily_bars_with_unix_times(tmp_path, hour):
    """TradingView stamps a day with its midnight or its opening."""
    seconds = DAYS.to_numpy().astype("datetime64[s]").astype("int64") + 3600 * hour
    daily().drop(columns="Date").assign(time=seconds).to_csv(tmp_path / "amc.csv", index=False)
    bars = read_daily_bars(tmp_path / "amc.csv")
    np.testing.assert_array_equal(bars.dates, DAYS.to_numpy().astype("datetime64[D]"))
    with pytest.raises(BarsError, match="the bars are of days: .*read_daily_bars"):
        read_bars(tmp_path / "amc.csv")


def test_dollars_and_millions(tmp_path):
    """Nasdaq's prices have a dollar sign, Investing.com's volumes a letter."""
    frame = daily()
    dollars = {name: ["$" + repr(v) for v in frame[name]] for name in ("Open", "High", "Low")}
    letters = [f"{v:g}M" for v in frame["Volume"]]
    made = pd.DataFrame({"Date": DAYS.strftime("%m/%d/%Y"), "Close/Last": frame["Close"], "Vol.": letters} | dollars)
    made.to_csv(tmp_path / "amc.csv", index=False)
    bars = read_daily_bars(tmp_path / "amc.csv")
    np.testing.assert_allclose(bars.high, frame["High"])
    np.testing.assert_allclose(bars.volume, 1e6 * frame["Volume"])


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (4, "High", np.nan, "non_positive: 1 rows, the first 4, 2021-03-05"),
        (4, "Low", 0.0, "non_positive: 1 rows, the first 4"),
        (4, "Low", -1.0, "non_positive: 1 rows, the first 4"),
        (4, "Close", 99.0, "inconsistent: 1 rows, the first 4"),
        (4, "Date", DAYS[2], "two different bars of 2021-03-03, rows 2 and 4"),
        (4, "Date", pd.Timestamp("2020-03-03"), "out_of_order: 1 rows, the first 4"),
    ],
)
def test_bad_days_are_named_then_left_out_when_accepted(tmp_path, row, column, value, said):
    frame = daily()
    frame.loc[row, column] = value
    frame.to_csv(tmp_path / "amc.csv", index=False)
    with pytest.raises(BarsError, match=said):
        read_daily_bars(tmp_path / "amc.csv")
    if "different" not in said:
        kind = said.split(":")[0]
        kept = read_daily_bars(tmp_path / "amc.csv", accept=[kind])
        assert len(kept) == 20 - (kind != "out_of_order") and np.isfinite(kept.parkinson()).all()


def test_days_without_a_usable_bar_and_other_errors(tmp_path):
    with pytest.raises(BarsError, match="no usable bar among 3 rows"):
        check_daily_bars(
            DAYS[:3].to_numpy(), dict.fromkeys(("open", "high", "low", "close"), np.zeros(3)), accept=["non_positive"]
        )
    with pytest.raises(BarsError, match="need open, high, low and close; low lack"):
        check_daily_bars(DAYS[:1].to_numpy(), dict.fromkeys(("open", "high", "close"), np.ones(1)))
    with pytest.raises(BarsError, match="accept must be a collection of words"):
        check_daily_bars(
            DAYS[:1].to_numpy(), dict.fromkeys(("open", "high", "low", "close"), np.ones(1)), accept="duplicates"
        )
    twice = daily().iloc[[0, 0, 1]]
    twice.to_csv(tmp_path / "amc.csv", index=False)
    with pytest.raises(BarsError, match="duplicates: 1 rows"):
        read_daily_bars(tmp_path / "amc.csv")
    assert len(read_daily_bars(tmp_path / "amc.csv", accept=["duplicates"])) == 2
    minutes = daily().assign(Date=pd.date_range("2021-03-01 09:30", periods=20, freq="min"))
    minutes.to_csv(tmp_path / "minutes.csv", index=False)
    with pytest.raises(BarsError, match="the bars are shorter than a day"):
        read_daily_bars(tmp_path / "minutes.csv")
