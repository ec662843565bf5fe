"""Locate earthquakes from a file of picks, by Geiger's method or by a learned locator.

    python -m implicit_models.seismology.locate picks.csv [--stations FILE] [--method geiger|implicit|eikonet] [--model
    FILE] [--map out.png]

Prints location, origin time, confidence ellipse and residuals of every event. `picks` has the formats and columns. Exit
status 1: no event could be located; 2: the picks cannot be read as they are.
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
from implicit_models.seismology.locations import BEYOND, OUTLIER, USED, Locations
from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.picks.pick import COLUMNS
from implicit_models.seismology.table.travel_times import PTable

if TYPE_CHECKING:
    import pandas

    from implicit_models.seismology.learned import LearnedLocator

METHODS = ("geiger", "implicit", "eikonet")
SIGMA_S, SIGMA_BAZ = 0.5, 10.0  # of picks and back-azimuths that state none
MODEL_ERROR_S = 1.0  # how far Ak135 is from the Earth, at regional and larger distances
MODEL_RANGE_DEG = 10.0  # stations nearer to each other than this see much the same error
PRIOR_DOF = 8.0  # Jordan & Sverdrup: the standard deviations count as eight observations
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
    table: PTable | None = None,
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
        table: travel times from `build_p_table`; None: the default Ak135 table.
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
    events = list(dict.fromkeys(picks["event"]))
    if not isinstance(method, str):
        if not hasattr(method, "locate_picks"):
            raise TypeError(f"method must be 'geiger' or a LearnedLocator, got {type(method).__name__}")
        if fixed_depth_km is not None:
            raise ValueError(
                f"a learned locator finds the depth itself: fixed_depth_km = {fixed_depth_km} is for the method"
                " 'geiger'"
            )
        return _by_network([picks[picks["event"] == event] for event in events], method, table)
    if method != "geiger":
        raise ValueError(f"method must be 'geiger' or a LearnedLocator (LearnedLocator.load(FILE)), got {method!r}")
    groups = [picks[picks["event"] == event] for event in events]
    usable = [group[group["flag"] == ""] for group in groups]
    arrays = {name: _padded(usable, name) for name in ("lat", "lon", "p_time", "elev_m", "sigma_s", "baz", "sigma_baz")}
    found = locate_events(
        Arrivals(
            arrays["lat"],
            arrays["lon"],
            arrays["p_time"],
            _or(arrays["sigma_s"], sigma_s),
            elev_m=_or(arrays["elev_m"], 0.0),
        ),
        back_azimuths=BackAzimuths(arrays["baz"], _or(arrays["sigma_baz"], sigma_baz)),
        depth=DepthRange(fixed_km=fixed_depth_km),
        model_error=ModelError(model_error_s, range_deg=model_range_deg),
        table=table,
        prior_dof=prior_dof,
        outliers=outliers,
    )
    return [_location(found, k, event, groups[k], confidence, sigma_s) for k, event in enumerate(events)]


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


def _padded(groups, name: str) -> np.ndarray:
    out = np.full((len(groups), max([1, *map(len, groups)])), np.nan)
    for k, group in enumerate(groups):
        out[k, : len(group)] = group[name].to_numpy(np.float64)
    return out


def _or(values: np.ndarray, default: float) -> np.ndarray:
    return np.where(np.isnan(values), default, values)


def _location(found: Locations, k: int, event: str, group, confidence: float, sigma_s: float) -> Location:
    from pandas import DataFrame

    rows, place = [], 0
    for p in group.itertuples():
        row = {
            "station": p.station,
            "phase": p.phase,
            "row": p.row,
            "lat": p.lat,
            "lon": p.lon,
            "dist_deg": math.nan,
            "azimuth": math.nan,
            "residual_s": math.nan,
            "sigma_s": sigma_s if math.isnan(p.sigma_s) else p.sigma_s,
            "used": False,
            "reason": p.flag,
        }
        if not p.flag:
            status = found.status[k, place]
            row |= {
                "dist_deg": found.dist_deg[k, place],
                "azimuth": found.azimuth[k, place],
                "residual_s": found.residual_s[k, place],
            }
            row["used"] = bool(status == USED) and not found.flags["too_few"][k]
            if status == OUTLIER:
                row["reason"] = f"outlier: {row['residual_s']:+.1f} s is no first P of this event"
            elif status == BEYOND:
                row["reason"] = f"refused as P: the direct P ends at {found.p_end_deg[k]:.1f} degrees"
            elif math.isfinite(p.baz) and not found.baz_used[k, place] and row["used"]:
                row["reason"] = f"its back-azimuth of {p.baz:.0f} degrees does not fit and is left out"
            place += 1
        rows.append(row)
    other = None
    if np.isfinite(found.other[k, 4]):
        lat, lon, depth_km = map(float, found.other[k, :3])
        other = (lat, lon, depth_km, float(found.other[k, 4] - found.chi2[k]))
    return Location(
        event=event,
        lat=float(found.lat[k]),
        lon=float(found.lon[k]),
        depth_km=float(found.depth_km[k]),
        origin_time=float(found.origin_time[k]),
        covariance=found.covariance[k],
        ellipse=found.ellipse(k, confidence),
        rms_s=float(found.rms_s[k]),
        chi2=float(found.chi2[k]),
        dof=int(found.dof[k]),
        azimuthal_gap=float(found.azimuthal_gap[k]),
        residuals=DataFrame(rows),
        flags=found.flags_of(k),
        other=other,
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m implicit_models.seismology.locate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("picks", type=Path, help="CSV, QuakeML, ISF or PDE file")
    parser.add_argument(
        "--stations", type=Path, metavar="FILE", help="station list (sta, lat, lon, elev_m) or StationXML"
    )
    parser.add_argument("--method", choices=METHODS, default="geiger")
    parser.add_argument("--model", type=Path, metavar="FILE", help="weights of a learned locator")
    parser.add_argument(
        "--map",
        type=Path,
        metavar="FILE",
        help="figure of stations, epicentre and ellipse; of several events the first",
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
