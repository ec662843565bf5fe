"""A synthetic market of minute bars, 2015-2021, with the volatility of a stock that jumped in January 2021.

Minute bars of those years cannot be had freely. This market stands in for them: regimes and price levels of
`regimes.py`,

    log sigma = regime + slow and fast daily AR(1) + intraday Ornstein-Uhlenbeck + white, times a U-shaped profile,
    minute returns Student-t with rare jumps, overnight returns Student-t,

and a log price that is a Brownian bridge, in the time of accumulated variance, from landmark to landmark. Up to eight
sub-trades a minute, at bid or ask and on the tick, give open, high, low, close, volume and VWAP; a minute without trade
carries the last price.

Weak spots: volatility does not react to the sign of returns; no order flow, no splits, no halts of trading, though the
real stock was halted on several days of 2021; sub-penny trades are absent; in 2015-16 the real minutes are not known,
so their share of empty ones is a guess from the daily volume; the landmarks tie every path to one history, so seeds
differ less than markets would.

Source: profiles and persistence are fitted by eye to the facts of `stylised_facts`; Andersen and Bollerslev (1997) for
the U shape.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.signal import lfilter

from data_gen.core.streams import stream
from data_gen.market.minute_bars import MinuteBars
from data_gen.market.regimes import FIRST, LANDMARKS, LAST, REGIMES, MarketParameters
from data_gen.market.sessions import FULL, Sessions, sessions

VWAP_DIGITS = 4


def minute_market(
    seed: int, first: str = FIRST, last: str = LAST, *, parameters: MarketParameters | None = None
) -> MinuteBars:
    """Every minute of every session from `first` to `last`.

    Args:
        seed: of everything random; equal seeds, equal bars.
        first, last: dates; the landmarks between them bind the path.
        parameters: see `MarketParameters`.

    Returns:
        MinuteBars without gaps.

    Raises:
        ValueError: no session in the range, or a range that no regime covers.
    """
    parameters = parameters or MarketParameters()
    calendar = sessions(first, last)
    if not len(calendar.dates):
        raise ValueError(f"no session from {first} to {last}")
    starts = np.array([row[0] for row in REGIMES], dtype="datetime64[D]")
    if calendar.dates[0] < starts[0] or calendar.dates[-1] > np.datetime64(LAST):
        raise ValueError(f"the market is that of {starts[0]} to {LAST}, asked for {first} to {last}")
    regime = np.searchsorted(starts, calendar.dates, side="right") - 1
    deviation, night_share, shares = (np.array([row[k] for row in REGIMES])[regime] for k in (1, 2, 3))

    daily, excess, sigma = _volatility(calendar, deviation, parameters, seed)
    start, end = _log_price(calendar, deviation, night_share, daily, sigma, parameters, seed)
    return _trades(calendar, shares * 1e6, excess, sigma, start, end, parameters, seed)


def volatility_profile(minutes: int) -> Float[np.ndarray, " M"]:
    """Deviation of a minute's return over the session, mean square 1: high at the opening, somewhat at the close."""
    m = np.arange(minutes)
    profile = 0.74 + 1.25 * np.exp(-m / 12) + 0.95 * np.exp(-m / 50) + 0.12 * np.exp(-(minutes - 1 - m) / 20)
    profile[0] *= 1.4
    return profile / np.sqrt(np.mean(profile**2))


def volume_profile(minutes: int) -> Float[np.ndarray, " M"]:
    """Volume over the session, mean 1."""
    m = np.arange(minutes)
    profile = 0.72 + 1.2 * np.exp(-m / 8) + 1.3 * np.exp(-m / 45) + 0.75 * np.exp(-(minutes - 1 - m) / 15)
    return profile / profile.mean()


def autoregression(rng: np.random.Generator, n: int, phi: float, deviation: float) -> Float[np.ndarray, " n"]:
    """Stationary Gaussian AR(1): x_t = phi x_{t-1} + e_t with Var x = deviation^2."""
    shocks = deviation * np.sqrt(1 - phi**2) * rng.standard_normal(n)
    shocks[0] = deviation * rng.standard_normal()
    return lfilter([1.0], [1.0, -phi], shocks)


def _profile(shape, calendar: Sessions) -> Float[np.ndarray, " N"]:
    by_length = {n: shape(n) for n in np.unique(calendar.minutes).tolist()}
    return np.concatenate([by_length[n] for n in calendar.minutes.tolist()])


def _volatility(calendar: Sessions, deviation, parameters: MarketParameters, seed: int):
    """Daily part of log sigma, whole deviation of log sigma from its regime, and sigma with E sigma^2 = regime
    variance."""
    n_days, n = len(calendar.dates), int(calendar.minutes.sum())
    slow = autoregression(stream(seed, "market slow"), n_days, parameters.slow_phi, parameters.slow_sd)
    fast = autoregression(stream(seed, "market fast"), n_days, parameters.fast_phi, parameters.fast_sd)
    intraday = autoregression(
        stream(seed, "market intraday"), n, float(np.exp(-1 / parameters.intraday_minutes)), parameters.intraday_sd
    )
    white = parameters.white_sd * stream(seed, "market white").standard_normal(n)
    daily = slow + fast
    excess = daily[calendar.day] + intraday + white
    # Half sessions have the variance of their share of minutes.
    base = (deviation / np.sqrt(FULL))[calendar.day] * _profile(volatility_profile, calendar)
    # E exp(2 x) = exp(2 Var x): the division keeps the regime's variance on average.
    return daily, excess, base * np.exp(excess - parameters.excess_variance)


def _log_price(calendar: Sessions, deviation, night_share, daily, sigma, parameters: MarketParameters, seed: int):
    """Log price at the start and at the end of every minute; nights lie between a session's end and the next one's
    start."""
    n, first = len(sigma), calendar.first
    rng = stream(seed, "market returns")
    returns = sigma * rng.standard_t(parameters.degrees, n) * np.sqrt(1 - 2 / parameters.degrees)
    returns = np.where(rng.random(n) < parameters.jumps_per_day / FULL, parameters.jump_size * returns, returns)

    night_sd = (
        deviation
        * np.sqrt(night_share / (1 - night_share))
        * np.exp(daily - parameters.slow_sd**2 - parameters.fast_sd**2)
    )
    rng = stream(seed, "market nights")
    nights = night_sd * rng.standard_t(parameters.night_degrees, len(daily)) * np.sqrt(1 - 2 / parameters.night_degrees)
    nights[0] = 0.0

    steps, clock = returns.copy(), sigma**2
    steps[first] += nights
    clock[first] += night_sd**2
    free, clock = np.cumsum(steps), np.cumsum(clock)

    at, level = _landmarks(calendar)
    bridge = np.interp(clock, clock[at], level - free[at])
    end = free + bridge
    # The bridge moves during a session's first minute too, in proportion to that minute's own part of the variance.
    start = np.concatenate([end[:1] - returns[:1], end[:-1]])
    share = sigma[first] ** 2 / np.diff(clock, prepend=0.0)[first]
    start[first] = end[first] - returns[first] - share * np.diff(bridge, prepend=bridge[0])[first]
    return start, end


def _landmarks(calendar: Sessions):
    """Minutes whose closing price is bound, and its logarithm; the first and the last minute always are."""
    dates = np.array([date for date, _ in LANDMARKS], dtype="datetime64[D]")
    log_level = np.log([price for _, price in LANDMARKS])
    days = dates.astype(float)
    inside = (dates > calendar.dates[0]) & (dates < calendar.dates[-1])
    session = np.searchsorted(calendar.dates, dates[inside], side="right") - 1
    at = np.concatenate(
        [[0], calendar.first[session] + calendar.minutes[session] - 1, [int(calendar.minutes.sum()) - 1]]
    )
    ends = np.interp(calendar.dates[[0, -1]].astype(float), days, log_level)
    level = np.concatenate([ends[:1], log_level[inside], ends[1:]])
    at, chosen = np.unique(at, return_index=True)
    return at, level[chosen]


def _trades(
    calendar: Sessions, shares, excess, sigma, start, end, parameters: MarketParameters, seed: int
) -> MinuteBars:
    n, k, tick, day = len(sigma), parameters.trades, parameters.tick, calendar.day
    spread = parameters.volume_sd**2 + parameters.volume_slope**2 * parameters.excess_variance
    mean = (shares / FULL)[day] * _profile(volume_profile, calendar)
    noise = parameters.volume_sd * stream(seed, "market volume").standard_normal(n)
    volume = mean * np.exp(parameters.volume_slope * excess + noise - spread / 2)

    rng = stream(seed, "market trades")
    count = rng.poisson(volume / parameters.trade_size)
    few = np.minimum(1.0, k / np.maximum(count, 1))
    # Sub-trades at k equal steps of a bridge from the minute's start to its end.
    part = np.arange(1, k + 1) / k
    walk = np.cumsum(rng.standard_normal((n, k)), axis=1) / np.sqrt(k)
    price = walk - walk[:, -1:] * part
    price *= sigma[:, None]
    price += start[:, None] + (end - start)[:, None] * part
    np.exp(price, out=price)
    half = np.maximum(0.5 * tick, parameters.half_spread * sigma * np.exp(end) * np.minimum(1.0, 4 * few))
    price += half[:, None] * np.where(rng.random((n, k), dtype=np.float32) < 0.5, -1.0, 1.0)
    price = np.maximum(np.round(price / tick), 1.0) * tick

    first_used = k - np.minimum(count, k)
    used = np.arange(k) >= first_used[:, None]
    weight = (1 + (rng.exponential(size=(n, k)) - 1) * np.sqrt(few)[:, None]) * used
    total = weight.sum(axis=1)
    traded = total > 0
    with np.errstate(invalid="ignore"):
        vwap = np.round((weight * price).sum(axis=1) / total, VWAP_DIGITS)

    opened = price[np.arange(n), np.minimum(first_used, k - 1)]
    high = np.where(used, price, -np.inf).max(axis=1)
    low = np.where(used, price, np.inf).min(axis=1)
    # A minute without trade carries the last close and VWAP; before the first trade there is a quote, the price itself.
    opening = np.round(np.exp(end[0]) / tick) * tick
    source = np.maximum.accumulate(np.where(traded, np.arange(n), -1))
    known = source >= 0
    close = np.where(known, price[source, -1], opening)
    vwap = np.where(known, vwap[source], opening)
    opened, high, low = (np.where(traded, values, close) for values in (opened, high, low))
    decimals = 10  # tick multiples without the dust of the product
    return MinuteBars(
        calendar,
        day,
        calendar.minute,
        *(np.round(values, decimals) for values in (opened, high, low, close)),
        vwap,
        np.where(traded, np.round(volume), 0.0),
        traded,
        {"name": "synthetic market", "seed": seed},
    )
