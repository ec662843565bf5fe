"""Picks from HYPO71's phase file, which HYPOINVERSE (format 3) and many analysis programmes write too.

    columns 1-4 station, 5-8 remark of P (onset, P, motion, weight), 10-24 yymmddhhmmss.ss, 32-36 seconds of S in the
    same minute, 37-40 remark of S

Weights 0 to 3 count 1, 3/4, 1/2 and 1/4, 4 and more nothing. A line with 10 or a blank in place of a station ends an
event. Years of two digits are 1970 to 2069. Source: Lee & Lahr (1975), HYPO71, US Geological Survey 75-311.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from implicit_models.seismology.leap_seconds import EPOCH
from implicit_models.seismology.picks.catalogue_rows import lines_of_events, no_weight
from implicit_models.seismology.picks.pick import Pick

LINE = re.compile(r"^[A-Z0-9][A-Z0-9 ]{3}[ EIei.?][Pp].[ 0-9] \d{10}[ \d]{2}\.?[ \d.]{2,3}")
ENDS = re.compile(r"^(\s{0,17}10\s*.*|\s*|\s+\d.*)$")


def is_phase_file(text: str) -> bool:
    return any(LINE.match(line) for line in text.splitlines()[:50])


def read_phase_file(path: Path, text: str) -> list[Pick]:
    """Picks of every event of a phase file.

    Raises:
        ValueError: a line that is none, with its number.
    """
    picks: list[Pick] = []
    kind = lambda line: "end" if ENDS.match(line) else "pick"
    for number, event, line in lines_of_events(path, text, LINE, kind, "line of a phase file of HYPO71"):
        try:
            year, month, day, hour, clock = (int(line[k : k + 2]) for k in range(9, 19, 2))
            minute = dt.datetime(year + (2000 if year < 70 else 1900), month, day, hour, clock, tzinfo=dt.UTC)
            start = (minute - EPOCH).total_seconds()
            picks.append(
                _pick(line, event, start + float(line[19:24].replace(" ", "0")), line[5].upper(), line[7], number)
            )
            if line[31:36].strip():
                picks.append(_pick(line, event, start + float(line[31:36]), "S", line[39:40], number))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {line.rstrip()[:60]!r} has no such time ({error})") from None
    return picks


def _pick(line: str, event: int, seconds: float, phase: str, weight: str, row: int) -> Pick:
    pick = Pick(event=str(event), station=line[:4].strip(), p_time=seconds, phase=phase, row=row)
    if weight in "456789" and weight:
        pick.flag = no_weight(weight)
    return pick
