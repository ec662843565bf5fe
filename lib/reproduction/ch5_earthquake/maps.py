"""Maps of the earthquake chapter: what a sample holds, and where training and test sources lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from data_gen.earthquakes import make_samples, mesh
from implicit_models.seismology.geodesy import distance_azimuths
from reproduction.ch5_earthquake import task
from reproduction.core.plots import legend_below

HALF = (90.0, 270.0)  # degrees east of the training sources
SHOWN_BAND = 3  # the one that the papers' map colours


def bands_of(k: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The two bands of test sources of factor k, degrees east: west of the training half, and east of it (-180 to
    180)."""
    return (90.0 - 10.0 * k, 100.0 - 10.0 * k), (-100.0 + 10.0 * k, -90.0 + 10.0 * k)


def clearest(station_lat: Float[np.ndarray, "N S"], station_lon: Float[np.ndarray, "N S"]) -> int:
    """The sample whose nearest two stations are farthest apart: its figure has the most room."""
    apart = distance_azimuths(
        station_lat[:, :, None], station_lon[:, :, None], station_lat[:, None], station_lon[:, None]
    )[0]
    apart[:, np.arange(station_lat.shape[1]), np.arange(station_lat.shape[1])] = np.inf
    return int(apart.min(axis=(1, 2)).argmax())


def setup_figure(
    station_lat: Float[np.ndarray, " S"],
    station_lon: Float[np.ndarray, " S"],
    delay_s: Float[np.ndarray, " S"],
    back_azimuth: Float[np.ndarray, " S"],
    source: tuple[float, float, float],
    anchor: int,
    time_s: float,
):
    """Figure 5.3: one sample on a map that keeps distances and directions from the source; depth and time in words.

    Args:
        station_lat, station_lon: degrees.
        delay_s: arrivals after the anchor's.
        back_azimuth: degrees at the stations towards the source.
        source: latitude, longitude, depth in km.
        anchor: which station it is.
        time_s: travel time to the anchor.
    """
    import matplotlib.pyplot as plt
    import seaborn

    colour = seaborn.color_palette("colorblind")
    distance, azimuth, _ = distance_azimuths(source[0], source[1], station_lat, station_lon)
    east, north = distance * np.sin(np.radians(azimuth)), distance * np.cos(np.radians(azimuth))
    figure, axes = plt.subplots(figsize=(6.2, 5.6))
    for k in range(len(east)):
        axes.plot([0, east[k]], [0, north[k]], color="0.75", linewidth=1, zorder=1)
        # North as seen from the station, on this map; the back-azimuth is measured from it.
        to_source = np.degrees(np.arctan2(-east[k], -north[k]))
        turn = np.radians(to_source - back_azimuth[k])
        size = 0.16 * distance.max()
        axes.annotate(
            "",
            (east[k] + size * np.sin(turn), north[k] + size * np.cos(turn)),
            (east[k], north[k]),
            arrowprops={"arrowstyle": "->", "color": "0.45", "linewidth": 0.9},
        )
        arc = turn + np.radians(np.linspace(0, back_azimuth[k], 40))
        axes.plot(
            east[k] + 0.6 * size * np.sin(arc),
            north[k] + 0.6 * size * np.cos(arc),
            color=colour[4],
            linewidth=1.2,
            label="back-azimuth θ, from north" if k == 0 else None,
        )
        below = north[k] < 0  # away from the lines to the source
        axes.annotate(
            f"p = {delay_s[k]:+.1f} s\nθ = {back_azimuth[k]:.0f}°",
            (east[k], north[k]),
            textcoords="offset points",
            xytext=(0, -13 if below else 13),
            ha="center",
            va="top" if below else "bottom",
            fontsize="small",
        )
    rest = np.arange(len(east)) != anchor
    axes.plot(east[rest], north[rest], "^", color=colour[0], markersize=10, linestyle="none", label="station (x, y, z)")
    axes.plot(
        east[anchor],
        north[anchor],
        "^",
        color=colour[3],
        markersize=12,
        linestyle="none",
        label=f"anchor station, T = {time_s:.1f} s",
    )
    axes.plot(
        0,
        0,
        "*",
        color="0.1",
        markersize=15,
        linestyle="none",
        label=f"source: X = {source[1] % 360:.1f}° E, Y = {source[0]:.1f}° N, Z = {source[2]:.0f} km",
    )
    reach = 1.28 * distance.max()
    axes.set(
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        aspect="equal",
        xlabel="degrees east of the source",
        ylabel="degrees north of the source",
    )
    legend_below(axes, columns=1)
    return figure


def region_figure(lat: Float[np.ndarray, " N"], lon: Float[np.ndarray, " N"], bands: Sequence[int]):
    """Figure 5.4: training half and the nine pairs of bands with the mesh's epicentres, equal spacing in longitude and
    latitude.

    Args:
        lat, lon: degrees, of the mesh's epicentres.
        bands: factors k.
    """
    import matplotlib.pyplot as plt
    import seaborn
    from matplotlib.patches import Patch

    colour = seaborn.color_palette("colorblind")
    figure, axes = plt.subplots(figsize=(6.4, 4.3))
    for low, high in ((HALF[0], 180.0), (-180.0, HALF[1] - 360.0)):
        axes.axvspan(low, high, color=colour[0], alpha=0.28, linewidth=0)
    for k in bands:
        for low, high in bands_of(k):
            axes.axvspan(low, high, color=colour[3], alpha=0.5 if k == SHOWN_BAND else 0.06 + 0.02 * k, linewidth=0)
            axes.text((low + high) / 2, 82 if k % 2 else 74, str(k), ha="center", va="center", fontsize="small")
    axes.plot((lon + 180.0) % 360.0 - 180.0, lat, ".", color="0.2", markersize=1.6, alpha=0.7, linestyle="none")
    axes.set(
        xlim=(-180, 180),
        ylim=(-90, 90),
        xlabel="longitude (degrees east)",
        ylabel="latitude (degrees north)",
        aspect="equal",
        xticks=np.arange(-180, 181, 60),
        yticks=np.arange(-90, 91, 30),
    )
    handles: list[Any] = [
        Patch(color=colour[0], alpha=0.28, label="training half"),
        Patch(color=colour[3], alpha=0.15, label="test bands, k = 1 to 9"),
        Patch(color=colour[3], alpha=0.5, label=f"k = {SHOWN_BAND}, the one that the papers colour"),
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.45, -0.22), ncols=2, borderaxespad=0)
    return figure


def sample_figure(seed: int):
    """One sample of the generator, the clearest of many drawn with a seed."""
    sizes = {"max_dist_deg": task.LOCAL_DEG, "seed": seed, "name": "figure"}
    drawn = make_samples([12.0] * 200, [140.0] * 200, [120.0] * 200, task.N_STATIONS, **sizes)
    k = clearest(drawn.station_lat, drawn.station_lon)
    return setup_figure(
        drawn.station_lat[k],
        drawn.station_lon[k],
        drawn.delay_s[k],
        drawn.back_azimuth[k],
        (drawn.lat[k], drawn.lon[k], drawn.depth_km[k]),
        drawn.anchor,
        drawn.anchor_time_s[k],
    )


def mesh_figure(step_deg: float, seed: int):
    """The training half and the test bands, with one epicentre in each cell of a mesh."""
    lat, lon = mesh(step_deg, seed=seed)
    return region_figure(lat, lon, task.BANDS)
