"""Picks from NonLinLoc's observation file (.obs): one pick a line, the events apart by blank lines.

    station instrument component onset phase motion yyyymmdd hhmm seconds GAU error ...

A field that is not known is ?, an error of -1 or of 0 is none. Source: NonLinLoc's file formats, A. Lomax.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from implicit_models.seismology.leap_seconds import EPOCH
from implicit_models.seismology.picks.catalogue_rows import lines_of_events, no_weight, standard_deviation
from implicit_models.seismology.picks.pick import Pick

LINE = re.compile(r"^\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+\d{8}\s+\d{3,4}\s+-?[\d.]+")


def is_observations(text: str) -> bool:
    return any(LINE.match(line) for line in text.splitlines()[:50])


def read_observations(path: Path, text: str) -> list[Pick]:
    """Picks of every event of an observation file.

    Raises:
        ValueError: a line that is none, with its number.
    """
    picks: list[Pick] = []
    for number, event, line in lines_of_events(path, text, LINE, _kind, "pick of NonLinLoc"):
        fields = line.split()
        try:
            day = dt.datetime.strptime(fields[6] + fields[7].zfill(4), "%Y%m%d%H%M").replace(tzinfo=dt.UTC)
        except ValueError:
            raise ValueError(f"{path}, row {number}: {fields[6]} {fields[7]} is no date and time") from None
        error = float(fields[10]) if len(fields) > 10 and fields[9] == "GAU" else None
        pick = Pick(
            event=str(event),
            station=fields[0],
            p_time=(day - EPOCH).total_seconds() + float(fields[8]),
            phase="" if fields[4] == "?" else fields[4],
            row=number,
            sigma_s=standard_deviation(error),
        )
        if len(fields) > 14 and _is_zero(fields[14]):
            pick.flag = no_weight("0")
        picks.append(pick)
    return picks


def _kind(line: str) -> str:
    if not line.strip():
        return "end"
    return "other" if line.startswith(("#", "PUBLIC_ID", "COMMENT", "END_PHASE", "PHASE ")) else "pick"


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False
