"""Figures of robust training: accuracy against radius, and certified against clean accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.core.plots import legend_below

# objective -> colour of the colour-blind palette, marker
STYLES = {
    "plain": (7, "x"),
    "weight_decay": (9, "s"),
    "convex_penalty": (1, "D"),
    "sensitivity": (2, "^"),
    "adversarial": (3, "v"),
    "interval": (0, "o"),
}


def accuracy_against_radius(
    epsilons: Sequence[float],
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    labels: Mapping[str, str],
    title: str,
):
    """Attacked (solid) and certified (dashed) accuracy of each objective: medians over the seeds, bands from the
    smallest to the largest.

    Args: epsilons: radii above 0; curves: objective -> one entry a seed with "clean", "attacked" and "certified".
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

    Args: points: objective -> one entry a weight with "clean", "certified" and "box", per cent.
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
