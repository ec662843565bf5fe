"""What the rows of all catalogues share: names of events, weights that exclude a pick, standard deviations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path


def event_names(identifiers: list[str]) -> list[str]:
    """The last part of every event's identifier where no other event has the same; otherwise all of it, or the event's
    number."""
    short = [name.rpartition("/")[2] for name in identifiers]
    alike, names = (Counter(some) for some in (short, identifiers))
    return [
        last if last and alike[last] == 1 else name if name and names[name] == 1 else f"{last or 'event'} ({number})"
        for number, (last, name) in enumerate(zip(short, identifiers, strict=True), start=1)
    ]


def lines_of_events(
    path: Path, text: str, line: re.Pattern[str], kind: Callable[[str], str], what: str
) -> Iterator[tuple[int, int, str]]:
    """Lines of picks of a file that has one a line, with their numbers and those of their events.

    Args:
        path: for messages.
        text: of the file.
        line: what a line of a pick begins with.
        kind: of a line, "pick", "end" of an event or "other".
        what: a line of a pick is, in words.

    Raises:
        ValueError: naming the line that is no pick and should be one.
    """
    event, ended, some = 1, False, False
    for number, each in enumerate(text.splitlines(), start=1):
        if (found := kind(each)) != "pick":
            ended = ended or found == "end"
            continue
        if not line.match(each):
            raise ValueError(f"{path}, row {number}: {each.strip()[:60]!r} is no {what}")
        event += ended and some
        ended, some = False, True
        yield number, event, each


def no_weight(value: str) -> str:
    """Why a pick of weight `value` is not used."""
    return f"the catalogue gives the pick no weight ({value})"


def standard_deviation(value: float | None) -> float:
    """Standard deviation in seconds or degrees; NaN for none, which catalogues also write as 0, -1, NaN or a number of
    days."""
    return float(value) if value is not None and 0 < value < 1e6 and math.isfinite(value) else math.nan
