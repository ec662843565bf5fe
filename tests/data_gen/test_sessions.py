"""Sessions: the exchange's own calendar as kept by an independent library, and dates known by heart."""

import datetime as dt

import exchange_calendars
import numpy as np
import pytest

from data_gen.market.sessions import early_closes, easter, holidays, sessions


@pytest.fixture(scope="module")
def oracle():
    return exchange_calendars.get_calendar("XNYS", start="2013-01-01", end="2030-12-31").schedule


def test_sessions_and_lengths_are_those_of_the_oracle(oracle):
    found = sessions("2013-01-01", "2030-12-31")
    np.testing.assert_array_equal(found.dates, oracle.index.to_numpy().astype("datetime64[D]"))
    minutes = (oracle["close"] - oracle["open"]).dt.total_seconds().to_numpy() / 60
    np.testing.assert_array_equal(found.minutes, minutes)


def test_openings_follow_daylight_saving(oracle):
    found = sessions("2013-01-01", "2030-12-31")
    np.testing.assert_array_equal(found.opens, oracle["open"].dt.tz_localize(None).to_numpy().astype("datetime64[s]"))


def test_the_papers_years():
    years = sessions("2015-02-01", "2021-12-31")
    assert len(years.dates) == 1743 and int((years.minutes == 210).sum()) == 14 and int(years.minutes.sum()) == 677_250
    assert np.datetime64("2018-12-05") not in years.dates and np.datetime64("2021-12-31") in years.dates


def test_dates_known_by_heart():
    assert (
        easter(2018) == dt.date(2018, 4, 1)
        and easter(2019) == dt.date(2019, 4, 21)
        and easter(2038) == dt.date(2038, 4, 25)
    )
    assert dt.date(2022, 6, 20) in holidays(2022) and dt.date(2021, 6, 18) not in holidays(2021)
    assert early_closes(2020) == [dt.date(2020, 11, 27), dt.date(2020, 12, 24)]


def test_minutes_of_sessions():
    week = sessions("2019-07-01", "2019-07-05")
    assert week.minutes.tolist() == [390, 390, 210, 390]
    np.testing.assert_array_equal(week.first, [0, 390, 780, 990])
    assert week.day.size == week.minute.size == 1380
    assert week.minute[[0, 389, 390, 989, 990]].tolist() == [0, 389, 0, 209, 0]


def test_no_session_in_between():
    assert len(sessions("2021-01-02", "2021-01-03").dates) == 0


@pytest.mark.parametrize(
    "first, last, message",
    [
        ("2021-01-05", "2021-01-04", "after last"),
        ("2012-12-31", "2013-01-04", "first = 2012-12-31: the rules are those from 2013 on"),
        ("yesterday", "2021-01-04", "first must be a date"),
        ("2021-01-04", "2021-13-01", "last must be a date"),
    ],
)
def test_bad_dates_are_named(first, last, message):
    with pytest.raises(ValueError, match=message):
        sessions(first, last)
