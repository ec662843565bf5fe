"""Bars on the grid of sessions: windows by brute force, gaps."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.market.minute_bars import MinuteBars
from data_gen.market.minutes import minute_market
from data_gen.market.sessions import sessions


@pytest.fixture(scope="module")
def bars():
    return minute_market(1, "2019-07-01", "2019-07-05")


def without(bars, absent):
    keep = np.ones(len(bars), bool)
    keep[absent] = False
    columns = {
        f.name: getattr(bars, f.name)[keep]
        for f in dataclasses.fields(bars)
        if f.name not in ("calendar", "meta", "interval")
    }
    return dataclasses.replace(bars, **columns)


@settings(max_examples=25, deadline=None)
@given(absent=st.sets(st.integers(0, 1379), max_size=12), length=st.integers(1, 390), stride=st.integers(1, 20))
def test_windows_are_those_of_brute_force(absent, length, stride):
    bars = without(minute_market(1, "2019-07-01", "2019-07-05"), sorted(absent))
    present = set(zip(bars.day.tolist(), bars.minute.tolist()))
    expected = [
        k
        for k, (d, m) in enumerate(zip(bars.day.tolist(), bars.minute.tolist()))
        if m % stride == 0 and all((d, m + j) in present for j in range(length))
    ]
    assert bars.windows(length, stride).tolist() == expected


def test_window_longer_than_every_session(bars):
    assert len(bars.windows(390)) == 3  # the half day has none
    with pytest.raises(ValueError, match="longer than the longest session, 390"):
        bars.windows(391)
    half = minute_market(1, "2019-07-03", "2019-07-03")
    with pytest.raises(ValueError, match="longest session, 210"):
        half.windows(300)


def test_a_part_of_the_sessions(bars):
    part = bars.between("2019-07-02", "2019-07-03")
    assert len(part) == 600 and part.day.min() == 0 and len(part.calendar.dates) == 2
    np.testing.assert_array_equal(part.vwap, bars.vwap[390:990])
    np.testing.assert_array_equal(part.time, bars.time[390:990])


def test_table_has_nan_where_there_is_no_bar(bars):
    table = without(bars, [5, 6]).table("close")
    assert table.shape == (4, 390) and np.isnan(table[0, 5:7]).all() and np.isnan(table[2, 210:]).all()
    assert np.isfinite(table).sum() == 1380 - 2


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((70.0,), TypeError, "length must be an integer, got 70.0"),
        ((70, 2.5), TypeError, "stride must be an integer, got 2.5"),
        ((0,), ValueError, "length must be at least 1, got 0"),
        ((70, 0), ValueError, "stride must be at least 1, got 0"),
    ],
)
def test_bad_windows_are_named(bars, arguments, error, message):
    with pytest.raises(error, match=message):
        bars.windows(*arguments)


def test_bad_grids_are_named(bars):
    with pytest.raises(ValueError, match="bar 3 does not come after bar 2"):
        dataclasses.replace(bars, minute=np.where(np.arange(1380) == 3, 2, bars.minute))
    with pytest.raises(ValueError, match="minute 400 of a session of 390"):
        dataclasses.replace(bars, minute=np.where(np.arange(1380) == 389, 400, bars.minute))
    with pytest.raises(ValueError, match="vwap has shape"):
        dataclasses.replace(bars, vwap=bars.vwap[:-1])
    with pytest.raises(ValueError, match="one of 4 sessions"):
        dataclasses.replace(bars, day=bars.day + 1)


def test_no_bars_no_windows():
    empty = np.zeros(0)
    none = MinuteBars(
        sessions("2019-07-01", "2019-07-01"), empty.astype(int), empty.astype(int), *(empty,) * 6, empty.astype(bool)
    )
    assert none.windows(5).size == 0
