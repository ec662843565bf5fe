"""Figures of sparsity against accuracy and against the share of the data, medians and ranges over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.core.plots import legend_below

# name -> (label, colour of the colour-blind palette, marker, line): fits solid, controls dashed, published dotted.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "sim": ("sparse implicit model", 0, "o", "-"),
    "sim_head": ("same, read-out refitted", 9, "s", "-"),
    "magnitude": ("magnitude pruning, global", 3, "v", "--"),
    "magnitude_layer": ("magnitude pruning, per layer", 1, "^", "--"),
    "magnitude_retrained": ("magnitude, global, retrained", 2, "D", "--"),
    "lasso": ("lasso on the layer below", 4, "P", "--"),
    "published": ("Tsai (2024), Table 3.1", 7, "*", ":"),
    "l1": ("l1", 0, "o", "-"),
    "perspective": ("perspective, knee 1", 3, "v", "--"),
    "perspective_0.1": ("perspective, knee 0.1", 2, "D", "-."),
    "perspective_0.01": ("perspective, knee 0.01", 4, "P", "-."),
    "l2": ("ridge: (5) as printed", 1, "x", ":"),
    "dense": ("dense network, retrained", 7, "x", "--"),
}


def style(name: str, position: int = 0) -> dict[str, Any]:
    """Matplotlib keywords of a curve."""
    import seaborn

    label, colour, marker, line = STYLES.get(name, (name, position % 10, "osv^D<>ph*"[position % 10], "-"))
    return {"label": label, "color": seaborn.color_palette("colorblind")[colour], "marker": marker, "linestyle": line}


def tradeoff(
    axes, curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], *, limit: float | None = None
) -> None:
    """Accuracy drop against sparsity: a point is a setting, at its medians, its bar the range of drops over the seeds.

    Args:
        axes: matplotlib axes.
        curves: name -> one curve a seed, {"sparsity": [...], "drop": [...]}.
        limit: largest drop shown, in points.
    """
    for position, (name, seeds) in enumerate(curves.items()):
        length = min(len(curve["sparsity"]) for curve in seeds)
        if not length:
            continue
        x = np.median([curve["sparsity"][:length] for curve in seeds], axis=0)
        y = np.array([curve["drop"][:length] for curve in seeds], dtype=float)
        middle, order = np.median(y, axis=0), np.argsort(x)
        bars = np.abs(np.vstack([y.min(axis=0), y.max(axis=0)]) - middle)
        axes.errorbar(x[order], middle[order], yerr=bars[:, order], capsize=2, linewidth=1.4, **style(name, position))
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.axvline(0, color="0.5", linewidth=0.8)
    axes.set(xlabel="sparsity, 1 - |M|₀/|N|₀ (%)", ylabel="accuracy drop (points)")
    if limit is not None:
        axes.set_ylim(-4, limit)
    legend_below(axes)


def against_share(
    axes,
    shares: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    *,
    ylabel: str,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Curves over the share of the training data, median and range over the seeds.

    Args:
        axes: matplotlib axes.
        shares: (k,) in (0, 1].
        curves: name -> (seeds, k).
        ylabel: with units.
        labels: name -> label where it is not `STYLES`'.
    """
    x = 100 * np.asarray(shares)
    for position, (name, rows) in enumerate(curves.items()):
        values = np.asarray(rows, dtype=float)
        keywords = style(name, position) | ({"label": labels[name]} if labels and name in labels else {})
        axes.plot(x, np.median(values, axis=0), **keywords)
        axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=keywords["color"], alpha=0.18, linewidth=0)
    axes.set(xlabel="share of the training data (%)", ylabel=ylabel, xscale="log")
    axes.set_xticks(x, [f"{value:g}" for value in x], minor=False)
    axes.minorticks_off()
    legend_below(axes)
