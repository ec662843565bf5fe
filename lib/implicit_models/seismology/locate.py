"""Locate earthquakes from a file of picks, by Geiger's method or by a learned locator.

    python -m implicit_models.seismology.locate picks.csv [--stations FILE] [--method geiger|implicit|eikonet] [--model
    FILE] [--map out.png] [--out located.xml]

Prints location, origin time, confidence ellipse and residuals of every event; with --out it writes them instead, as
QuakeML and as a CSV beside it (`catalogue`), and an event that cannot be used does not stop the others. `picks` has the
formats and columns. Exit status 1: no event could be located; 2: the picks cannot be read as they are.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from implicit_models.seismology.event_data import Arrivals, BackAzimuths, DepthRange, ModelError
from implicit_models.seismology.geiger.events import locate_events
from implicit_models.seismology.location import Location
from implicit_models.seismology.location_batch import Batch
from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.picks.phase_names import phase_of
from implicit_models.seismology.picks.pick import COLUMNS
from implicit_models.seismology.table.phases import PhaseTable, build_phase_table
from implicit_models.seismology.table.travel_times import PTable, build_p_table

if TYPE_CHECKING:
    import pandas

    from implicit_models.seismology.learned import LearnedLocator

METHODS = ("geiger", "implicit", "eikonet")
SIGMA_S, SIGMA_BAZ = 0.5, 10.0  # of picks and back-azimuths that state none
MODEL_ERROR_S = 1.0  # how far Ak135 is from the Earth, at regional and larger distances
MODEL_RANGE_DEG = 10.0  # stations nearer to each other than this see much the same error
PRIOR_DOF = 8.0  # Jordan & Sverdrup: the standard deviations count as eight observations
BATCH = 500  # events located together
ONLY_P = "the table of travel times has P alone"
NO_FLAG = "; a pick that is used has the flag ''"
# What the columns of picks in use must hold; an optional value is NaN where there is none.
DEMANDS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "lat": (lambda v: np.abs(v) <= 90, "degrees in -90..90"),
    "lon": (np.isfinite, "degrees"),
    "p_time": (np.isfinite, "seconds since 1970-01-01 UTC"),
    "elev_m": (lambda v: ~np.isinf(v), "metres"),
    "sigma_s": (lambda v: np.isnan(v) | (v > 0) & np.isfinite(v), "positive seconds"),
    "baz": (lambda v: ~np.isinf(v), "degrees"),
    "sigma_baz": (lambda v: np.isnan(v) | (v > 0) & np.isfinite(v), "positive degrees"),
}


def locate(
    picks: pandas.DataFrame,
    *,
    method: str | LearnedLocator = "geiger",
    table: PTable | PhaseTable | None = None,
    sigma_s: float = SIGMA_S,
    sigma_baz: float = SIGMA_BAZ,
    model_error_s: float = MODEL_ERROR_S,
    model_range_deg: float = MODEL_RANGE_DEG,
    prior_dof: float = PRIOR_DOF,
    outliers: bool = True,
    fixed_depth_km: float | None = None,
    confidence: float = 0.9,
) -> list[Location]:
    """Locate every event of a table of picks.

    Args:
        picks: from `read_picks`, or a DataFrame with its columns; rows whose `flag` is not empty are reported, not
            used.
        method: "geiger", or a `LearnedLocator`.
        table: travel times from `build_phase_table`, or from `build_p_table`, which leaves other phases than P out;
            None: the default Ak135 tables.
        sigma_s, sigma_baz: standard deviations (s, degrees) where a pick states none; this and what follows is for
            "geiger" alone.
        model_error_s, model_range_deg, prior_dof: of `geiger.locate_events`; the defaults are for the real Earth.
        outliers: whether picks that do not fit are set aside (events of six or more picks).
        fixed_depth_km: a depth for all events; a learned locator refuses it.
        confidence: of the ellipse.

    Returns:
        A Location an event, in the order in which they first appear; one that a learned locator cannot place beside
        others that it can is NaN, and its notes say why. Arrays go to `geiger.locate_events`.

    Raises:
        TypeError: picks is not a DataFrame; method is none.
        ValueError: missing columns; a value that its column cannot have, with event and row; an unknown method; a
            learned locator that can place none of the events.
    """
    _check(picks)
    for name, value in (("sigma_s", sigma_s), ("sigma_baz", sigma_baz)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive, got {value}")
    if not isinstance(method, str):
        if not hasattr(method, "locate_picks"):
            raise TypeError(f"method must be 'geiger' or a LearnedLocator, got {type(method).__name__}")
        if fixed_depth_km is not None:
            raise ValueError(
                f"a learned locator finds the depth itself: fixed_depth_km = {fixed_depth_km} is for the method"
                " 'geiger'"
            )
        return _by_network([group for _, group in picks.groupby("event", sort=False)], method, p_table(table))
    if method != "geiger":
        raise ValueError(f"method must be 'geiger' or a LearnedLocator (LearnedLocator.load(FILE)), got {method!r}")
    if isinstance(table, PTable):
        others = [phase_of(phase) not in ("P", "") for phase in picks["phase"]]
        picks = picks.assign(flag=[flag or ONLY_P * other for flag, other in zip(picks["flag"], others)])
    batch = Batch(picks)
    times = batch.padded("p_time", picks["p_time"].to_numpy(np.float64))
    phase = batch.padded("phase", np.array([phase_of(name) or "P" for name in picks["phase"]], object), "P")
    found = locate_events(
        Arrivals(
            batch.padded("lat"),
            batch.padded("lon"),
            times,
            _or(batch.padded("sigma_s"), sigma_s),
            elev_m=_or(batch.padded("elev_m"), 0.0),
            phase=phase,
        ),
        back_azimuths=BackAzimuths(batch.padded("baz"), _or(batch.padded("sigma_baz"), sigma_baz)),
        depth=DepthRange(fixed_km=fixed_depth_km),
        model_error=ModelError(model_error_s, range_deg=model_range_deg),
        table=table,
        prior_dof=prior_dof,
        outliers=outliers,
    )
    return batch.locations(found, confidence, sigma_s)


def p_table(table: PTable | PhaseTable | None) -> PTable | None:
    return table.p if isinstance(table, PhaseTable) else table


def _by_network(groups: list, locator: LearnedLocator, table: PTable | None) -> list[Location]:
    from implicit_models.seismology.learned import NoAnswer

    found, refused = [], []
    for group in groups:
        try:
            found.append(locator.locate_picks(group, table=table))
        except NoAnswer as why:
            found.append(locator.not_located(group, why))
            refused.append(why)
    if len(refused) == len(groups):
        raise refused[0]
    return found


def _check(picks) -> None:
    if not hasattr(picks, "columns"):
        raise TypeError(
            f"picks must be a DataFrame from read_picks, got {type(picks).__name__}; arrays go to geiger.locate_events"
        )
    missing = [name for name in COLUMNS if name not in picks.columns]
    if missing:
        raise ValueError(f"picks has no column {', '.join(missing)}: it needs {', '.join(COLUMNS)}")
    if not len(picks):
        raise ValueError("picks has no rows")
    for name in ("event", "flag"):
        if picks[name].isna().any():
            raise ValueError(
                f"picks, row {picks['row'][picks[name].isna()].iloc[0]}: {name} is missing" + NO_FLAG * (name == "flag")
            )
    usable = picks[picks["flag"] == ""]
    for name, (right, what) in DEMANDS.items():
        column = usable[name]
        if column.dtype.kind not in "fiu":
            raise ValueError(f"picks: {name} must be numbers ({what}), its column has {column.dtype}")
        values = column.to_numpy(np.float64)
        wrong = np.flatnonzero(~right(values))
        if wrong.size:
            row = usable.iloc[wrong[0]]
            raise ValueError(
                f"picks, row {row['row']} (event {row['event']}, station {row['station']}): {name} ="
                f" {values[wrong[0]]:g} is not {what}"
            )


def _or(values: np.ndarray, default: float) -> np.ndarray:
    return np.where(np.isnan(values), default, values)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m implicit_models.seismology.locate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("picks", type=Path, help="CSV, QuakeML, or another file that read_picks knows")
    parser.add_argument(
        "--stations", type=Path, metavar="FILE", help="station list (sta, lat, lon, elev_m), FDSN text, StationXML, ..."
    )
    parser.add_argument("--method", choices=METHODS, default="geiger")
    parser.add_argument("--model", type=Path, metavar="FILE", help="weights of a learned locator")
    parser.add_argument(
        "--map",
        type=Path,
        metavar="FILE",
        help="figure of stations, epicentre and ellipse; of several events the first",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write QuakeML, and a CSV beside it, instead of a report"
    )
    parser.add_argument("--depth", type=float, metavar="KM", help="fix the depth")
    parser.add_argument("--sigma", type=float, metavar="S", help=f"of picks that state none ({SIGMA_S:g} s)")
    parser.add_argument("--model-error", type=float, metavar="S", help=f"of the travel times ({MODEL_ERROR_S:g} s)")
    options = parser.parse_args(arguments)
    if options.method == "geiger" and options.model:
        parser.error("--model belongs to --method implicit or eikonet")
    chosen = {"sigma_s": options.sigma, "model_error_s": options.model_error, "fixed_depth_km": options.depth}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if options.method != "geiger" and chosen:
        parser.error("--depth, --sigma and --model-error belong to --method geiger")
    if options.map and (wrong := _no_figure(options.map)):
        parser.error(f"--map {options.map}: {wrong}")
    try:
        method: str | LearnedLocator = "geiger"
        if options.method != "geiger":
            from implicit_models.seismology.learned import LearnedLocator, default_file

            method = LearnedLocator.load(options.model or default_file(options.method), kind=options.method)
        if options.out:
            return _write_catalogue(options, method, chosen)
        picks = read_picks(options.picks, stations=options.stations)
        found = locate(picks, method=method, **chosen)
    except (ValueError, OSError, ImportError) as error:
        print(f"locate: {error}", file=sys.stderr)
        return 2
    print("\n\n".join(location.report() for location in found))
    located = [location for location in found if location.located]
    if options.map and located:
        from implicit_models.seismology.location_figure import location_figure

        location_figure(located[0]).savefig(options.map, dpi=160)
        print(f"\nfigure of event {located[0].event}: {options.map}")
    return 0 if located else 1


def _write_catalogue(options: argparse.Namespace, method: str | LearnedLocator, chosen: dict) -> int:
    """Locate in batches and write as it goes; returns the exit status."""
    from implicit_models.seismology.catalogue import CatalogueWriter

    with CatalogueWriter(options.out) as writer:
        picks = read_picks(options.picks, stations=options.stations, on_failure="warn")
        groups, count, first = in_batches(picks), 0, None
        table = tables_for(picks) if method == "geiger" else None
        for group in _reported(groups, picks["event"].nunique()):
            located = locate(group, method=method, table=table, **chosen)
            writer.add(located)
            count += sum(location.located for location in located)
            first = first or next((location for location in located if location.located), None)
    by_code, usable = sum(picks.attrs["by_code"].values()), int((picks["flag"] == "").sum())
    print(
        f"{count} of {picks['event'].nunique()} events located from {usable} of {len(picks)} picks:"
        f" {options.out}, {options.out.with_suffix('.csv')}"
        + (f"\n{by_code} picks name a network that the station list does not know" if by_code else "")
    )
    if options.map and first is not None:
        from implicit_models.seismology.location_figure import location_figure

        location_figure(first).savefig(options.map, dpi=160)
    return 0 if count else 1


def tables_for(picks: pandas.DataFrame) -> PTable | PhaseTable:
    """The travel times that the picks in use need."""
    used = picks["phase"][picks["flag"] == ""].unique()
    return build_p_table() if all(phase_of(phase) in ("P", "") for phase in used) else build_phase_table()


def in_batches(picks: pandas.DataFrame, size: int = BATCH) -> list[pandas.DataFrame]:
    """The table in parts of `size` events, with the events in their order."""
    code = picks["event"].factorize()[0]
    parts = []
    for start in range(0, int(code.max()) + 1, size):
        part = picks[(code >= start) & (code < start + size)]
        part.attrs = picks.attrs
        parts.append(part)
    return parts


def _reported(groups: list[pandas.DataFrame], events: int):
    """The batches, with a bar on a terminal where there are more than a hundred events."""
    if events <= 100:
        yield from groups
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        tqdm = None
    bar = tqdm(total=events, desc="locate", unit="event", disable=None) if tqdm else None
    for done, group in enumerate(groups, start=1):
        yield group
        if bar:
            bar.update(group["event"].nunique())
        elif sys.stderr.isatty():
            print(f"locate: {min(done * BATCH, events)} of {events} events", file=sys.stderr)
    if bar:
        bar.close()


def _no_figure(path: Path) -> str:
    """Why no figure can be written there; empty if one can."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        return "the map needs matplotlib (pip install matplotlib)"
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        return f"the name must end in one of {', '.join(sorted(known))}"
    return "" if path.parent.is_dir() else f"there is no folder {path.parent}"


if __name__ == "__main__":
    sys.exit(main())
