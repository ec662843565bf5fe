"""A plain map of a location: stations, epicentre and ellipse, in an azimuthal equidistant projection about the
epicentre.

There is no coastline: none comes with this package. Distances and azimuths from the epicentre are true. Left all picks;
right the ellipse at its own scale.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from implicit_models.seismology.location import Location, utc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette; shapes differ too.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8A8A8A"
RINGS_DEG = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 90, 180)


def location_figure(location: Location) -> Figure:
    """The map of a located event.

    Args:
        location: from `locate`.

    Returns:
        A matplotlib Figure of two panels; not attached to pyplot.

    Raises:
        ValueError: the event was not located.
        ImportError: matplotlib is not installed.
    """
    if not location.located:
        raise ValueError(f"event {location.event} was not located: there is no map to draw")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the map needs matplotlib (pip install matplotlib)") from error
    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    stations, close = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _stations(stations, location)
    _ellipse(close, location)
    depth = f"depth {location.depth_km:.0f} km" + (" (fixed)" if location.depth_error_km == 0 else "")
    figure.suptitle(
        f"{utc(location.origin_time)}   {location.lat:.3f}°, {location.lon:.3f}°   {depth}   ({location.method})",
        fontsize=11,
    )
    return figure


def _stations(axes: Axes, location: Location) -> None:
    picks = location.residuals.dropna(subset=["dist_deg"])
    used, refused = picks[picks["used"]], picks[~picks["used"]]
    reach = max(float(picks["dist_deg"].max()) if len(picks) else 1.0, 0.05)
    for ring in RINGS_DEG:
        if reach / 8 < ring <= 1.15 * reach:
            turn = np.linspace(0, 2 * math.pi, 181)
            axes.plot(ring * np.sin(turn), ring * np.cos(turn), color=GREY, lw=0.6, zorder=0)
            axes.text(
                ring * math.sin(math.radians(225)),
                ring * math.cos(math.radians(225)),
                f"{ring:g}°",
                color="#555555",
                fontsize=8,
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    for group, colour, marker, label in ((used, BLUE, "^", "used"), (refused, ORANGE, "v", "left out")):
        x, y = _plane(group)
        if len(group):
            axes.scatter(
                x,
                y,
                s=34,
                marker=marker,
                color=colour if label == "used" else "none",
                edgecolor=colour,
                linewidth=1.1,
                zorder=2,
                label=f"{len(group)} {'station' if len(group) == 1 else 'stations'} {label}",
            )
    _names(axes, picks, reach)
    axes.scatter([0], [0], s=130, marker="*", color="black", zorder=3, label="epicentre")
    axes.legend(loc="upper left", fontsize=8, framealpha=0.9)
    axes.set(
        xlim=(-1.2 * reach, 1.2 * reach),
        ylim=(-1.2 * reach, 1.2 * reach),
        aspect="equal",
        xlabel="degrees towards the east of the epicentre",
        ylabel="degrees towards the north",
        title=f"Stations (azimuthal equidistant), gap {location.azimuthal_gap:.0f}°",
    )


def _plane(group) -> tuple[np.ndarray, np.ndarray]:
    azimuth, dist = np.radians(group["azimuth"].to_numpy(float)), group["dist_deg"].to_numpy(float)
    return dist * np.sin(azimuth), dist * np.cos(azimuth)


def _names(axes: Axes, picks, reach: float) -> None:
    """Names of stations, as long as each has room beside those already written."""
    written: list[tuple[float, float]] = []
    for name, x, y in zip(picks["station"], *_plane(picks), strict=True):
        if all(abs(x - a) > 0.22 * reach or abs(y - b) > 0.07 * reach for a, b in written):
            axes.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7, color="#333333")
            written.append((x, y))


def _ellipse(axes: Axes, location: Location) -> None:
    from matplotlib.patches import Ellipse

    shape = location.ellipse
    axes.scatter([0], [0], s=130, marker="*", color="black", zorder=3)
    reach = 10.0
    if math.isfinite(shape.semi_major_km):
        # matplotlib's angle runs anticlockwise from the x axis, an azimuth clockwise from north.
        patch = Ellipse(
            (0, 0),
            2 * shape.semi_major_km,
            2 * shape.semi_minor_km,
            angle=90 - shape.azimuth,
            facecolor=BLUE,
            alpha=0.25,
        )
        edge = Ellipse(
            (0, 0),
            2 * shape.semi_major_km,
            2 * shape.semi_minor_km,
            angle=90 - shape.azimuth,
            fill=False,
            edgecolor=BLUE,
            lw=1.5,
        )
        axes.add_patch(patch)
        axes.add_patch(edge)
        reach = 1.25 * shape.semi_major_km
        title = (
            f"{100 * shape.confidence:.0f} % ellipse, {shape.semi_major_km:.1f} x {shape.semi_minor_km:.1f} km (half"
            " axes)"
        )
    else:
        title = "no ellipse"
    axes.set(
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        aspect="equal",
        xlabel="km towards the east",
        ylabel="km towards the north",
        title=title,
    )
    axes.grid(color=GREY, lw=0.4, alpha=0.6)
