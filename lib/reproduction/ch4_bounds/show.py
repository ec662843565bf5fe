"""Figures of bounds, rectangles around two states and certified accuracy against the radius, and labels of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from reproduction.core.figures import described
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

LABELS = {name: style["label"] for name, style in STYLE.items()}
SECTION_4_2 = {
    "norm bound broken": "fact_norm",
    "with few moving inputs": "fact_norm_card",
    "box broken": "fact_box",
    "box, few moving inputs": "fact_box_card",
    "block form broken": "fact_blocks",
    "Lipschitz constant broken": "fact_lipschitz",
    "box outside the norm ball": "fact_box_outside_norm",
    "iteration from zero less the solved box, relative": "fact_iteration",
    "support function of a box less enumeration": "support_box",
    "support function of few moving inputs less enumeration": "support_card",
}
DISPLAYED = {
    "displayed programme less c'(x0 + sigma), largest, relative": "programme_displayed_is_box",
    "it improves a lower bound, share of models": "programme_improves_lower",
    "the true bidual is tighter, share of models": "programme_theorem7_below_displayed",
    "bidual above the sum of separate maxima": "programme_trivial_sum",
    "interval outside the box": "programme_interval_outside_box",
    "triangle outside the interval": "programme_triangle_wider",
    "outputs outside a bound": "programme_outside",
    "the same, few moving inputs": "programme_card_outside",
    "states' width over the interval's, implicit: displayed": "envelope_implicit_displayed",
    "implicit, with the envelope": "envelope_implicit_triangle",
    "feed-forward: displayed": "envelope_explicit_displayed",
    "feed-forward, with the envelope": "envelope_explicit_triangle",
}
BIDUAL = {
    "bound over multipliers less bidual, largest, relative: box, linear": "bidual_gap_box_linear",
    "box, squared discrepancy": "bidual_gap_box_squared",
    "few moving inputs, linear": "bidual_gap_card_linear",
    "few moving inputs, squared discrepancy": "bidual_gap_card_squared",
    "implicit classifier, linear": "bidual_gap_implicit",
    "feed-forward network, linear": "bidual_gap_explicit",
    "largest value found less the bound: box, linear": "bidual_above_box_linear",
    "the same, box, squared discrepancy": "bidual_above_box_squared",
    "the same, few moving inputs, linear": "bidual_above_card_linear",
    "the same, few moving inputs, squared discrepancy": "bidual_above_card_squared",
}


def two_states_figure(source: Mapping[str, Any]):
    """Rectangles around two states, by all bounds and by the tighter ones, a row of panels for each kind of network.

    Args:
        source: content of a results file.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(7.2, 7.6), gridspec_kw={"hspace": 0.45, "wspace": 0.35})
    for row, name in zip(panels, ("implicit", "explicit"), strict=True):
        found = source["curves"][f"states/{name}"]
        rectangles(row[0], found, ("box", "displayed", "interval", "dual", "triangle"))
        rectangles(row[1], found, ("interval", "dual", "triangle"))
        row[0].set_title(name, fontsize="medium")
        row[1].set_title(described(source), fontsize="small")
    legend_below(panels[1, 0])
    return figure


def certified_figure(source: Mapping[str, Any], epsilons: Sequence[float]):
    """Certified accuracy against the radius, a panel for each kind of network.

    Args:
        source: content of a results file.
        epsilons: its radii.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.4, 8.4), gridspec_kw={"hspace": 0.75})
    for axes, name in zip(panels, ("implicit", "explicit"), strict=True):
        start = f"certified/{name}/"
        curves = {key.removeprefix(start): each for key, each in source["curves"].items() if key.startswith(start)}
        against_radius(axes, curves, epsilons)
        axes.set_title(f"{name} ({described(source)})", fontsize="medium")
    return figure


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
