"""Figures of bounds: rectangles around two states, certified accuracy against the radius."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from reproduction.core.plots import legend_below, spread_curves

STYLE: dict[str, dict[str, Any]] = {
    "attack": {"label": "left by the attack", "color": "0.35", "linestyle": "--"},
    "triangle": {"label": "triangle programme", "color": "#009e73", "linestyle": "-."},
    "dual": {"label": "dual", "color": "#0072b2", "linestyle": "-"},
    "dual_once": {"label": "dual, one pass", "color": "#56b4e9", "linestyle": "-"},
    "interval": {"label": "interval", "color": "#e69f00", "linestyle": "-"},
    "theorem7": {"label": "programme of Theorem 7", "color": "#f0a3c8", "linestyle": ":"},
    "displayed": {"label": "programme as displayed", "color": "#cc79a7", "linestyle": "--"},
    "box": {"label": "box", "color": "#d55e00", "linestyle": "-"},
    "comparison": {"label": "comparison vector", "color": "#8c564b", "linestyle": ":"},
    "norm": {"label": "norm", "color": "#7f7f7f", "linestyle": ":"},
}


def rectangles(axes: Axes, found: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Bounds of two states by each method, and the states that were reached as dots."""
    reached = np.asarray(found["reached"])
    axes.plot(*reached.T, ".", color="0.3", markersize=2.5, label="states reached", zorder=5)
    low, high = reached.min(axis=0), reached.max(axis=0)
    for method in methods:
        corner, end = (np.asarray(side, float) for side in found[method])
        style = STYLE[method]
        axes.add_patch(
            Rectangle(
                corner,
                *(end - corner),
                fill=False,
                linewidth=1.8,
                color=style["color"],
                linestyle=style["linestyle"],
                label=style["label"],
            )
        )
        low, high = np.minimum(low, corner), np.maximum(high, end)
    pad = 0.06 * np.maximum(high - low, 1e-9)
    axes.set(
        xlim=(low[0] - pad[0], high[0] + pad[0]),
        ylim=(low[1] - pad[1], high[1] + pad[1]),
        xlabel="state i",
        ylabel="state j",
    )


def against_radius(axes: Axes, curves: Mapping[str, Sequence[Sequence[float]]], epsilons: Sequence[float]) -> None:
    """Certified accuracy in per cent against the radius, median and range over the networks."""
    ordered = {STYLE[name]["label"]: curves[name] for name in STYLE if name in curves}
    spread_curves(
        axes,
        list(epsilons),
        ordered,
        xlabel="radius of the box (pixel units)",
        ylabel="certified accuracy (%)",
        yscale="linear",
    )
    legend_below(axes)
