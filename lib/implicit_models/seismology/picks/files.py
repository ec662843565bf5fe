"""Picks as a table, whatever the file: CSV, QuakeML, the files of NonLinLoc and HYPO71, and what obspy reads.

A pick that cannot be used stays in the table; its column `flag` says why. An error is raised for what makes a row mean
something else than it says: a local time, a wrong unit, a coordinate that is none.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from implicit_models.seismology.csv_rows import content
from implicit_models.seismology.leap_seconds import run_on
from implicit_models.seismology.picks.joins import (
    check_places,
    flag_far_codes,
    flag_phases,
    flag_repeats,
    join_stations,
)
from implicit_models.seismology.picks.pick import COLUMNS, Pick
from implicit_models.seismology.stations import Stations

if TYPE_CHECKING:
    import pandas


def read_picks(
    path: str | Path, *, stations: str | Path | Stations | None = None, on_failure: str = "raise"
) -> pandas.DataFrame:
    """Read the picks of a file.

    Args:
        path: CSV (see `picks.csv`), QuakeML, observations of NonLinLoc (.obs), a phase file of HYPO71, or what obspy
            reads: ISF/IMS1.0, PDE (mchedr), GSE2, Nordic (SEISAN), HypoDD (.pha), NonLinLoc (.hyp), SeisComP's XML. CSV
            and text may be gzipped.
        stations: a list that `read_stations` reads, for stations without coordinates in the file. None: the default
            list, read only if a station needs it.
        on_failure: "raise"; otherwise an event with a station at two places, or at a place that is none, stays, its
            picks flagged with the error, which "warn" also warns of.

    Returns:
        DataFrame with the columns of `COLUMNS` (units in `Pick`), one row a pick, in the file's order. `flag` says why
        a pick is not used: a phase that has no travel times here, a weight of none, a second pick of a station's phase,
        a station that the list does not know, or that lies far from the others and was found by its code alone. The
        frame's `attrs["by_code"]` counts, for each event, the picks whose network the list does not know.

    Raises:
        FileNotFoundError: no such file, no such station list, or none where one is needed.
        ValueError: a row that cannot mean what it says (with its number); two places for one station.

    Source:
        IMS1.0, https://www.isc.ac.uk/standards/isf; PDE, the USGS' EDR format; QuakeML 1.2.
    """
    from pandas import DataFrame

    from implicit_models.status import check_on_failure

    check_on_failure(on_failure)
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no picks at {path}")
    picks = _read(path)
    if not picks:
        raise ValueError(f"{path} has no picks")
    run_on(picks)
    flag_phases(picks)
    join_stations(picks, stations, path)
    check_places(picks, path, on_failure)
    flag_far_codes(picks)
    flag_repeats(picks)
    table = DataFrame({name: [getattr(pick, name) for pick in picks] for name in COLUMNS})
    table.attrs["by_code"] = dict(Counter(pick.event for pick in picks if pick.by_code))
    return table


def _read(path: Path) -> list[Pick]:
    if is_csv(path):
        from implicit_models.seismology.picks.csv import read_csv

        return read_csv(path)
    from implicit_models.seismology.picks import hypo71, nonlinloc, quakeml

    if quakeml.is_quakeml(path):
        return quakeml.read_quakeml(path)
    head = content(path)
    text = head.decode("latin1") if b"\0" not in head[:4096] else ""
    if nonlinloc.is_observations(text) and not text.startswith("NLLOC"):
        return nonlinloc.read_observations(path, text)
    if hypo71.is_phase_file(text):
        return hypo71.read_phase_file(path, text)
    from implicit_models.seismology.picks.obspy import read_catalogue

    return read_catalogue(path)


def is_csv(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".csv")
