"""Figures of robust training, accuracy against radius and certified against clean accuracy, and labels of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.ch4_robust_training.compute import LABELS
from reproduction.core.figures import described
from reproduction.core.plots import legend_below

PENALTIES = {
    "pairs of inputs beyond rho": "penalty_violations",
    "models against ||S|| <= rho <= penalty": "penalty_order",
    "segments on which the penalty is not convex": "penalty_convexity",
    "segments on which rho is not": "penalty_nonconvex",
    "penalty over rho, median": "penalty_over_rho",
    "the same where ||B|| = ||C||, largest": "penalty_equal",
    "||S|| over rho, median": "penalty_sensitivity_over_rho",
}
LOSSES = {
    "squared loss: closed form less the largest corner, relative": "loss_squared_error",
    "cross-entropy, exact form less the largest corner, relative": "loss_exact_error",
    "bounds of the thesis below the largest corner": "loss_below",
    "violations of L <= L_wc <= L + 2 rho ||C||": "loss_chain",
    "increase by the box form over the exact increase, median": "loss_box_increase",
    "increase by the norm form over the exact increase of the box": "loss_norm_increase",
}
UNDECIDED = {
    "undecided, points": "{}_undecided",
    "box over dual": "{}_box_share",
    "cross-entropy": "{}_loss_nominal",
    "worst case, interval": "{}_loss_interval_exact",
    "worst case, S": "{}_loss_s_exact",
    "bound of the thesis, S": "{}_loss_s_box",
    "its increase over the exact one, interval": "{}_loss_interval_ratio",
}

# objective -> colour of the colour-blind palette, marker
STYLES = {
    "plain": (7, "x"),
    "weight_decay": (9, "s"),
    "convex_penalty": (1, "D"),
    "sensitivity": (2, "^"),
    "adversarial": (3, "v"),
    "interval": (0, "o"),
}


def measured_columns(radius: float) -> dict[str, str]:
    """Columns of the table of objectives, label -> keys, shares of the test images at one radius."""
    return {
        "weight": "{}_weight",
        "clean, %": "{}_clean",
        f"attacked, {radius:g}, %": f"{{}}_attacked_{radius:g}",
        f"certified, {radius:g}, dual, %": f"{{}}_certified_{radius:g}",
        "interval, %": f"{{}}_interval_{radius:g}",
        "box, %": f"{{}}_box_{radius:g}",
        "norm of S": "{}_sensitivity",
        "rho": "{}_rho",
        "CPU seconds": "{}_cpu_seconds",
    }


def gain_columns() -> dict[str, str]:
    """Columns of the table of gains, label -> keys."""
    columns = {
        f"{key}, over {LABELS[other]}": f"{{}}_{key}_gain_over_{other}"
        for key in ("attacked", "certified", "box")
        for other in ("plain", "weight_decay")
    }
    return columns | {"clean, over plain": "{}_clean_gain_over_plain"}


def radius_figure(full: Mapping[str, Any] | None, content: Mapping[str, Any]):
    """Accuracy against the radius in the committed full run, else in this run."""
    source = full or content
    curves = {name: source["curves"][f"radius/{name}"] for name in LABELS if f"radius/{name}" in source["curves"]}
    note = f"Fashion-MNIST ({described(source)})" if full else described(source)
    return accuracy_against_radius(source["values"]["epsilons"], curves, LABELS, note)


def clean_figure(source: Mapping[str, Any]):
    """Certified against clean accuracy at the largest radius of a results file."""
    points = {name: source["curves"][f"weights/{name}"] for name in LABELS if f"weights/{name}" in source["curves"]}
    title = f"radius {source['values']['epsilons'][-1]:g} ({described(source)})"
    return certified_against_clean(points, LABELS, title)


def accuracy_against_radius(
    epsilons: Sequence[float],
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    labels: Mapping[str, str],
    title: str,
):
    """Attacked (solid) and certified (dashed) accuracy of each objective: medians over the seeds, bands from the
    smallest to the largest.

    Args:
        epsilons: radii above 0
        curves: objective -> one entry a seed with "clean", "attacked" and "certified".
    """
    import matplotlib.pyplot as plt
    import seaborn

    figure, axes = plt.subplots(figsize=(6.2, 4.8))
    palette, x = seaborn.color_palette("colorblind"), [0.0, *epsilons]
    for name, seeds in curves.items():
        colour, marker = STYLES[name]
        for key, line in (("attacked", "-"), ("certified", "--")):
            rows = 100 * np.array([[one["clean"], *one[key]] for one in seeds], dtype=float)
            axes.plot(
                x,
                np.median(rows, axis=0),
                line,
                marker=marker,
                color=palette[colour],
                label=labels[name] if line == "-" else None,
            )
            axes.fill_between(x, rows.min(axis=0), rows.max(axis=0), color=palette[colour], alpha=0.12, linewidth=0)
    axes.set(xlabel="radius of the box (pixel units)", ylabel="accuracy (%)", title=title)
    legend_below(axes)
    return figure


def certified_against_clean(points: Mapping[str, Sequence[Mapping[str, float]]], labels: Mapping[str, str], title: str):
    """Certified accuracy at one radius against clean accuracy: a point is a weight, at its medians; filled by the dual
    bound, empty by the box.

    Args:
        points: objective -> one entry a weight with "clean", "certified" and "box", per cent.
    """
    import matplotlib.pyplot as plt
    import seaborn

    figure, axes = plt.subplots(figsize=(6.2, 4.8))
    palette = seaborn.color_palette("colorblind")
    for name, each in points.items():
        colour, marker = STYLES[name]
        keywords = {"marker": marker, "color": palette[colour], "linewidth": 1}
        clean = [point["clean"] for point in each]
        axes.plot(clean, [point["certified"] for point in each], linestyle="-", label=labels[name], **keywords)
        axes.plot(clean, [point["box"] for point in each], linestyle=":", markerfacecolor="none", **keywords)
    axes.set(xlabel="clean accuracy (%)", ylabel="certified accuracy (%)", title=title)
    legend_below(axes)
    return figure
