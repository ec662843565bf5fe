"""The synthetic market: landmarks, mean variances, consistency of bars, determinism; and its place on the grid of
sessions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.core.streams import stream
from data_gen.market.minutes import autoregression, minute_market, volatility_profile, volume_profile
from data_gen.market.regimes import LANDMARKS, REGIMES, MarketParameters


@pytest.fixture(scope="module")
def market():
    return minute_market(3)


def test_every_minute_of_every_session(market):
    assert len(market) == 677_250 and market.traded.mean() > 0.9
    np.testing.assert_array_equal(market.position, np.arange(677_250))
    assert str(market.time[0]) == "2015-02-02T14:30:00" and str(market.time[-1]) == "2021-12-31T20:59:00"


def test_bars_are_consistent(market):
    assert (market.low <= market.open).all() and (market.low <= market.close).all()
    assert (market.high >= market.open).all() and (market.high >= market.close).all()
    vwap, low, high = (getattr(market, name)[market.traded] for name in ("vwap", "low", "high"))
    assert (vwap >= low - 5.1e-5).all() and (vwap <= high + 5.1e-5).all()
    for name in ("open", "high", "low", "close"):
        cents = 100 * getattr(market, name)
        np.testing.assert_allclose(cents, np.round(cents), atol=1e-6)
    assert (market.low >= 0.01).all() and (market.volume[~market.traded] == 0).all() and (market.volume >= 0).all()
    np.testing.assert_array_equal(market.vwap, np.round(market.vwap, 4))


def test_minutes_without_trade_carry_the_last_price(market):
    empty = np.flatnonzero(~market.traded)
    empty = empty[empty > 0]
    assert len(empty) > 1000
    for name in ("vwap", "close"):
        values = getattr(market, name)
        np.testing.assert_array_equal(values[empty], values[empty - 1])
    np.testing.assert_array_equal(market.high[empty], market.low[empty])


def test_path_passes_through_the_landmarks(market):
    closing = {str(date): market.close[market.day == day][-1] for day, date in enumerate(market.calendar.dates)}
    for date, price in LANDMARKS[1:]:
        half_tick_and_spread = 0.005 + 0.01 * price
        assert closing[date] == pytest.approx(price, abs=half_tick_and_spread), date


def test_variance_of_minute_returns_is_the_regime_s():
    """E sigma^2 is the regime's variance a day: averaged over seeds, since the slow part wanders within one."""
    first, last, daily = "2018-01-02", "2018-12-31", {r[0]: r[1] for r in REGIMES}["2018-01-01"]
    realised = []
    for seed in range(24):
        bars = minute_market(seed, first, last, parameters=MarketParameters(tick=1e-6, half_spread=0, slow_phi=0.5))
        close = np.log(bars.table("close"))
        inside = np.nansum(np.diff(close, axis=1) ** 2, axis=1)
        realised.append(inside.mean() + np.mean((close[:, 0] - np.log(bars.table("open")[:, 0])) ** 2))
    assert np.mean(realised) == pytest.approx(
        daily**2, rel=4 * np.std(realised) / np.mean(realised) / np.sqrt(24) + 0.03
    )


def test_same_seed_same_bars_and_another_seed_another_path():
    a, b, c = (minute_market(seed, "2021-01-04", "2021-02-26") for seed in (5, 5, 6))
    for name in ("open", "high", "low", "close", "vwap", "volume", "traded"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert not np.array_equal(a.vwap, c.vwap)


def test_volatility_jumps_in_2021(market):
    year = market.date.astype("datetime64[Y]").astype(int) + 1970
    move = np.diff(np.log(market.close), prepend=np.log(market.close[0]))
    move[market.minute == 0] = 0
    assert move[year == 2021].std() > 3 * move[(year < 2020)].std()


@pytest.mark.parametrize("profile, power", [(volatility_profile, 2), (volume_profile, 1)])
@pytest.mark.parametrize("minutes", [210, 390])
def test_profiles_are_normalised_and_u_shaped(profile, power, minutes):
    values = profile(minutes)
    assert (
        np.mean(values**power) == pytest.approx(1)
        and values[0] > 2 * values[minutes // 2]
        and values[-1] > values[minutes // 2]
    )


@settings(max_examples=6, deadline=None)
@given(phi=st.floats(0, 0.97), deviation=st.floats(0.05, 2))
def test_autoregression_is_stationary(phi, deviation):
    x = autoregression(stream(1, "test"), 200_000, phi, deviation)
    assert x.std() == pytest.approx(deviation, rel=0.06)
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(phi, abs=0.02)


@pytest.mark.parametrize(
    "first, last, message",
    [
        ("2021-01-02", "2021-01-03", "no session"),
        ("2014-01-02", "2014-02-03", "market is that of"),
        ("2021-12-01", "2022-02-03", "market is that of"),
    ],
)
def test_range_outside_is_named(first, last, message):
    with pytest.raises(ValueError, match=message):
        minute_market(0, first, last)


@pytest.mark.parametrize(
    "name, value",
    [
        ("slow_phi", 1.0),
        ("degrees", 2.0),
        ("tick", 0.0),
        ("white_sd", -0.1),
        ("trades", 0),
        ("half_spread", float("nan")),
    ],
)
def test_parameters_outside_their_domain_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        MarketParameters(**{name: value})


def test_without_randomness_in_volatility_returns_and_volumes_are_those_of_regime_and_profile():
    still = ("slow_sd", "fast_sd", "intraday_sd", "white_sd", "jumps_per_day", "volume_sd", "half_spread")
    calm = MarketParameters(**dict.fromkeys(still, 0), tick=1e-6)
    bars = minute_market(0, "2019-03-01", "2019-03-29", parameters=calm)
    _, daily, _, shares = next(row for row in REGIMES if row[0] == "2019-01-01")
    returns = np.diff(np.log(bars.table("close")), axis=1) / (daily * volatility_profile(390)[1:] / np.sqrt(390))
    n, kurtosis = returns.size, 3 + 6 / (calm.degrees - 4)
    assert np.mean(returns**2) == pytest.approx(1, abs=4 * np.sqrt((kurtosis - 1) / n))
    expected = np.round(shares * 1e6 / 390 * volume_profile(390))
    np.testing.assert_array_equal(bars.volume, np.where(bars.traded, expected[bars.minute], 0))
