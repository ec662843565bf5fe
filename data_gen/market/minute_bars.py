"""Minute bars of one stock on the grid of trading sessions, whether read or synthesised."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from data_gen.core.sizes import check_sizes
from data_gen.market.sessions import Sessions
from implicit_models.summaries import summary

PRICES = ("open", "high", "low", "close", "vwap")


@dataclass(frozen=True, eq=False)
class MinuteBars:
    """Bars in order of time; a minute that is absent has no entry.

    Args:
        calendar: sessions that the bars are of.
        day, minute: index of the session and minutes since its opening, (N,).
        open, high, low, close, vwap: dollars a share, (N,).
        volume: shares, (N,).
        traded: False where a minute without trades carries the last price.
        meta: name and origin.
        interval: minutes that a bar lasts.

    Raises:
        ValueError: lengths differ, a bar lies outside its session, or two bars are out of order or of one minute.
    """

    calendar: Sessions
    day: Int[np.ndarray, " N"]
    minute: Int[np.ndarray, " N"]
    open: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    low: Float[np.ndarray, " N"]
    close: Float[np.ndarray, " N"]
    vwap: Float[np.ndarray, " N"]
    volume: Float[np.ndarray, " N"]
    traded: Bool[np.ndarray, " N"]
    meta: Mapping[str, Any] = field(default_factory=dict)
    interval: int = 1

    def __repr__(self) -> str:
        return summary(self)

    def __post_init__(self) -> None:
        n = len(self.day)
        for name in ("minute", *PRICES, "volume", "traded"):
            if getattr(self, name).shape != (n,):
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, day has ({n},)")
        sessions = len(self.calendar.dates)
        if n and not (0 <= self.day.min() and self.day.max() < sessions):
            raise ValueError(f"day must index one of {sessions} sessions, got {self.day.min()} to {self.day.max()}")
        outside = (self.minute < 0) | (self.minute >= self.calendar.minutes[self.day])
        if outside.any():
            k = int(np.argmax(outside))
            raise ValueError(
                f"bar {k} is in minute {self.minute[k]} of a session of {self.calendar.minutes[self.day[k]]}"
            )
        steps = np.diff(self.position)
        if (steps <= 0).any():
            k = int(np.argmax(steps <= 0)) + 1
            raise ValueError(f"bar {k} does not come after bar {k - 1}: order and uniqueness are the reader's task")

    def __len__(self) -> int:
        return len(self.day)

    @property
    def position(self) -> Int[np.ndarray, " N"]:
        """Minutes of sessions before each bar."""
        return self.calendar.first[self.day] + self.minute

    @property
    def date(self) -> Shaped[np.ndarray, " N"]:
        """Session of each bar, datetime64[D]."""
        return self.calendar.dates[self.day]

    @property
    def time(self) -> Shaped[np.ndarray, " N"]:
        """Start of each bar in UTC, datetime64[s]."""
        return self.calendar.opens[self.day] + self.minute.astype("timedelta64[m]")

    def table(self, name: str) -> Float[np.ndarray, "D M"]:
        """A column as sessions x minutes, NaN where there is no bar."""
        values = np.full((len(self.calendar.dates), int(self.calendar.minutes.max(initial=0))), np.nan)
        values[self.day, self.minute] = getattr(self, name)
        return values

    def windows(self, length: int, stride: int = 1) -> Int[np.ndarray, " W"]:
        """First bars of the windows of `length` consecutive minutes inside one session.

        Args:
            length: minutes; a window that would cross a gap or the end of a session is left out.
            stride: windows start at every stride-th minute of a session.

        Raises:
            ValueError, TypeError: a length or stride that is no positive integer, or a length above every session's.
        """
        check_sizes(1, length=length, stride=stride)
        longest = int(self.calendar.minutes.max(initial=0))
        if length > longest:
            raise ValueError(f"a window of {length} minutes is longer than the longest session, {longest} minutes")
        last = len(self) - length
        if last < 0:
            return np.zeros(0, dtype=np.int64)
        first = np.arange(last + 1)
        whole = (self.minute[first + length - 1] - self.minute[first] == length - 1) & (
            self.day[first + length - 1] == self.day[first]
        )
        return first[whole & (self.minute[first] % stride == 0)]

    def between(self, first: str, last: str) -> MinuteBars:
        """Bars of the sessions from one date to another, both included."""
        calendar = self.calendar
        chosen = (calendar.dates >= np.datetime64(first, "D")) & (calendar.dates <= np.datetime64(last, "D"))
        bars = chosen[self.day]
        index = np.cumsum(chosen) - 1
        columns = {name: getattr(self, name)[bars] for name in (*PRICES, "volume", "traded", "minute")}
        return dataclasses.replace(self, calendar=calendar.part(chosen), day=index[self.day[bars]], **columns)
