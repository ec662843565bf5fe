"""What the synthetic minute market is made to look like: regimes, price landmarks and parameters.

Rounded levels of the stock's daily history (public daily bars, rounded here to one or two digits); nothing of it is a
quotation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

FIRST, LAST = "2015-02-01", "2021-12-31"

# first day, deviation of the intraday log return of a day, share of the night in the variance of a day, million shares
# a day
REGIMES: tuple[tuple[str, float, float, float], ...] = (
    ("2015-01-01", 0.0205, 0.20, 0.28),
    ("2017-01-01", 0.0265, 0.30, 2.2),
    ("2018-01-01", 0.0285, 0.15, 1.8),
    ("2019-01-01", 0.0275, 0.20, 2.3),
    ("2020-02-20", 0.078, 0.50, 7.6),
    ("2020-08-01", 0.064, 0.50, 14.0),
    ("2021-01-01", 0.075, 0.35, 80.0),
    ("2021-01-25", 0.26, 0.65, 450.0),
    ("2021-02-05", 0.078, 0.25, 95.0),
    ("2021-05-24", 0.18, 0.25, 330.0),
    ("2021-06-21", 0.072, 0.18, 95.0),
    ("2021-09-15", 0.058, 0.18, 45.0),
)

# Closing prices in dollars that every path passes through. June 2021 needs many, or paths run away between two of them.
LANDMARKS: tuple[tuple[str, float], ...] = (
    ("2015-02-02", 28.0),
    ("2015-07-01", 31.0),
    ("2015-12-31", 24.0),
    ("2016-07-01", 27.5),
    ("2016-12-30", 33.0),
    ("2017-07-31", 20.0),
    ("2017-08-03", 15.0),
    ("2018-02-01", 14.0),
    ("2018-09-14", 20.0),
    ("2018-12-31", 12.5),
    ("2019-07-01", 10.0),
    ("2020-02-20", 7.0),
    ("2020-03-20", 3.0),
    ("2020-06-10", 6.0),
    ("2020-08-25", 6.0),
    ("2020-10-30", 2.5),
    ("2021-01-04", 2.05),
    ("2021-01-22", 3.5),
    ("2021-01-26", 5.0),
    ("2021-01-27", 18.0),
    ("2021-02-05", 7.0),
    ("2021-03-15", 12.0),
    ("2021-05-21", 12.0),
    ("2021-05-27", 26.0),
    ("2021-06-02", 60.0),
    ("2021-06-10", 45.0),
    ("2021-06-18", 58.0),
    ("2021-08-05", 32.0),
    ("2021-09-13", 48.0),
    ("2021-12-31", 27.0),
)


@dataclass(frozen=True)
class MarketParameters:
    """Parameters of the market; deviations are those of log sigma unless said otherwise.

    Args:
        slow_sd, slow_phi: daily AR(1) that lasts for months.
        fast_sd, fast_phi: daily AR(1) that lasts for days.
        intraday_sd, intraday_minutes: Ornstein-Uhlenbeck process and its relaxation time.
        white_sd: independent from minute to minute.
        degrees: of freedom of a minute's Student-t return.
        night_degrees: of freedom of an overnight return.
        jumps_per_day, jump_size: rate, and factor on a minute's return.
        volume_slope: of log volume on the deviation of log sigma from its regime.
        volume_sd: of the rest of log volume.
        trade_size: mean shares a trade.
        half_spread: in deviations of a minute's price; at least half a tick.
        tick: in dollars.
        trades: sub-trades that a minute is made of, at most.

    Raises:
        ValueError: a value outside its domain.
    """

    slow_sd: float = 0.31
    slow_phi: float = 0.99
    fast_sd: float = 0.13
    fast_phi: float = 0.5
    intraday_sd: float = 0.43
    intraday_minutes: float = 110.0
    white_sd: float = 0.12
    degrees: float = 12.0
    night_degrees: float = 4.0
    jumps_per_day: float = 0.05
    jump_size: float = 4.0
    volume_slope: float = 1.4
    volume_sd: float = 0.30
    trade_size: float = 120.0
    half_spread: float = 0.08
    tick: float = 0.01
    trades: int = 8

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            positive = each.name in ("intraday_minutes", "trade_size", "tick", "trades")
            least = 2.0 if each.name.endswith("degrees") else 0.0
            fine = math.isfinite(value) and value >= least and not (value == least and (positive or least))
            if each.name.endswith("phi"):
                fine = 0 <= value < 1
            if not fine:
                raise ValueError(f"{each.name} = {value!r} is outside its domain")

    @property
    def excess_variance(self) -> float:
        """Variance of log sigma about its regime."""
        return sum(sd**2 for sd in (self.slow_sd, self.fast_sd, self.intraday_sd, self.white_sd))
