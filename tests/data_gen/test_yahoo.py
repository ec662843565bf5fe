"""Yahoo's bars without Yahoo: an empty frame, no network, and an answer, all by a stub of the client."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import yfinance

from data_gen.core.dataset import DatasetUnavailable
from data_gen.market.yahoo import DailyBars, daily_bars, download, main

COLUMNS = ["Adj Close", "Close", "High", "Low", "Open", "Volume"]


def answer_with(monkeypatch, answer):
    asked = {}

    def stub(symbol, **options):
        asked.update(symbol=symbol, **options)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(yfinance, "download", stub)
    return asked


def test_an_empty_frame_is_a_failure_that_names_the_alternatives(monkeypatch):
    answer_with(monkeypatch, pd.DataFrame(columns=COLUMNS))
    with pytest.raises(
        DatasetUnavailable, match="(?s)AMC 1d 2015-02-01..2021-12-31.*empty answer.*read_bars.*minute_market"
    ):
        daily_bars("AMC", "2015-02-01", "2021-12-31")


@pytest.mark.parametrize("error", [OSError("Could not resolve host"), yfinance.exceptions.YFTzMissingError("AMC")])
def test_no_network_keeps_the_cause(monkeypatch, error):
    answer_with(monkeypatch, error)
    with pytest.raises(DatasetUnavailable) as caught:
        daily_bars("AMC", "2021-01-01", "2021-12-31")
    assert caught.value.__cause__ is error and type(error).__name__ in str(caught.value)


def test_minutes_of_past_years_are_refused_without_asking(monkeypatch):
    asked = answer_with(monkeypatch, pd.DataFrame())
    with pytest.raises(DatasetUnavailable, match="(?s)30 days of 1m bars.*synthetic market"):
        download("AMC", "2015-02-01", "2021-12-31", "1m")
    assert not asked


def test_an_answer_becomes_arrays(monkeypatch):
    days = pd.DatetimeIndex(["2021-01-04", "2021-01-05"])
    frame = pd.DataFrame([[2.0, 2.0, 2.2, 1.9, 2.1, 100.0], [2.1, 2.1, 2.1, 2.1, 2.1, 50.0]], days, COLUMNS)
    asked = answer_with(monkeypatch, frame)
    bars = daily_bars("AMC", "2021-01-04", "2021-01-05")
    assert asked["end"] == "2021-01-06" and asked["interval"] == "1d"  # Yahoo leaves the last day out
    np.testing.assert_array_equal(bars.dates, days.to_numpy().astype("datetime64[D]"))
    np.testing.assert_array_equal(bars.high, [2.2, 2.1])
    np.testing.assert_allclose(bars.parkinson(), [np.log(2.2 / 1.9) ** 2 / (4 * np.log(2)), 0])


def test_the_command_shows_years_and_keeps_what_the_reader_reads(monkeypatch, tmp_path, capsys):
    from data_gen.market.daily_bars import read_daily_bars

    days = pd.DatetimeIndex(["2020-12-30", "2020-12-31", "2021-01-04"])
    frame = pd.DataFrame([[2.0, 2.0, 2.2, 1.9, 2.1, 100.0]] * 3, days, COLUMNS)
    answer_with(monkeypatch, frame)
    path = tmp_path / "amc.csv"
    assert main(["AMC", "2020-12-30", "2021-01-04", "--out", str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    # sqrt(ln(2.2 / 1.9)^2 / (4 ln 2)) of each day
    assert (
        said[0] == "AMC: 3 daily bars" and said[2].split() == ["2020", "2", "2.00", "0.0880"] and said[3][:4] == "2021"
    )
    bars = read_daily_bars(path)
    np.testing.assert_array_equal(bars.dates, days.to_numpy().astype("datetime64[D]"))
    np.testing.assert_array_equal(bars.low, [1.9] * 3)


def test_the_command_says_offline_what_to_do(monkeypatch, capsys):
    answer_with(monkeypatch, OSError("Could not resolve host"))
    assert main(["AMC", "2021-01-01", "2021-01-31"]) == 1
    assert (
        "Could not resolve host" in (said := capsys.readouterr().err)
        and "read_bars" in said
        and "minute_market" in said
    )


def test_an_answer_with_doubled_days_is_refused(monkeypatch):
    days = pd.DatetimeIndex(["2021-01-04", "2021-01-04"])
    answer_with(monkeypatch, pd.DataFrame([[2.0, 2.0, 2.2, 1.9, 2.1, 100.0]] * 2, days, COLUMNS))
    with pytest.raises(ValueError, match="Yahoo's AMC: duplicates: 1 rows"):
        daily_bars("AMC", "2021-01-04", "2021-01-05")


def test_parkinson_s_estimator_of_brownian_motion():
    rng = np.random.default_rng(0)
    path = np.cumsum(rng.normal(0, 0.02 / np.sqrt(2000), (2000, 2000)), axis=1)
    high, low = np.exp(np.maximum(path.max(axis=1), 0)), np.exp(np.minimum(path.min(axis=1), 0))
    bars = DailyBars(np.arange(2000).astype("datetime64[D]"), low, high, low, high, low)
    assert bars.parkinson().mean() == pytest.approx(0.02**2, rel=0.08)  # discrete steps see a little less of the range


def test_bad_arguments():
    with pytest.raises(ValueError, match="interval must be one of 1m"):
        download("AMC", "2021-01-01", "2021-01-02", "7m")
    with pytest.raises(ValueError, match="after last"):
        download("AMC", "2021-01-03", str(dt.date(2021, 1, 2)))
