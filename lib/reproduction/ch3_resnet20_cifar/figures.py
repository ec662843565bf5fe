"""Kinds of figures of the ResNet-20 study: accuracy against sparsity, R^2 by layer, accuracy against images, models at
each iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.core.plots import legend_below
from reproduction.core.sparsity_figures import style

# name -> (label, colour of the colour-blind palette, marker, line): literal fits solid, repaired ones dash-dotted,
# controls dashed, published without.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "published": ("thesis, Table 3.1", 7, "*", "none"),
    "std": ("literal, deviations", 0, "o", "-"),
    "std_refit": ("same, refit, new head", 9, "s", "-."),
    "theorem": ("literal, Theorem 2.4", 4, "^", "-"),
    "uniform": ("literal, uniform, kernels", 3, "v", "-"),
    "student": ("own states, refit, head", 2, "D", "-."),
    "student_large": ("same, more images", 1, "P", "-."),
    "one_sided": ("same, one-sided refit", 6, "p", "-."),
    "effect": ("same, penalties by effect", 5, "d", "-."),
    "kernels": ("path, own states, refit", 4, "h", "-."),
    "magnitude": ("magnitude", 5, "<", "--"),
    "magnitude_bias": ("magnitude, biases", 7, ">", "--"),
    "magnitude_refit": ("magnitude, own states, refit", 0, "X", "--"),
    "random_refit": ("random weights, the same", 1, "1", "--"),
    "l1": ("l1", 0, "o", "-"),
    "perspective": ("perspective, knee 1", 3, "x", "-"),
    "perspective_small": ("perspective, small knee", 4, "^", "-"),
    "perspective_student": ("perspective, own states, refit", 2, "D", "-."),
    "sim": ("SIM paper", 7, "*", "none"),
    "quoted": ("SSS, SPR, MLA, as quoted", 5, "P", "none"),
    "l1_forced": ("literal, network's states", 0, "o", "--"),
    "l1_own": ("literal, own states", 0, "o", "-"),
    "refit_forced": ("refit, network's states", 9, "s", "--"),
    "refit_own": ("refit, own states", 9, "s", "-"),
    "student_forced": ("fitted on own states, network's", 2, "D", "--"),
    "student_own": ("fitted on own states, own", 2, "D", "-"),
}


def look(name: str) -> dict[str, Any]:
    """Matplotlib keywords of a curve of `STYLES`.

    Raises:
        ValueError for another name.
    """
    import seaborn

    if name not in STYLES:
        raise ValueError(f"no style for the curve {name!r}: known are {', '.join(STYLES)}")
    label, colour, marker, line = STYLES[name]
    return {"label": label, "color": seaborn.color_palette("colorblind")[colour], "marker": marker, "linestyle": line}


def ranged(axes, x: Sequence[Sequence[float]], y: Sequence[Sequence[float]], **keywords: Any) -> None:
    """Medians of (seeds, k) points in order of x, bars from the smallest to the largest y."""
    middle = np.median(np.asarray(x, float), axis=0)
    values = np.asarray(y, float)
    centre, order = np.median(values, axis=0), np.argsort(middle)
    bars = np.abs(np.vstack([values.min(axis=0), values.max(axis=0)]) - centre)
    axes.errorbar(middle[order], centre[order], yerr=bars[:, order], capsize=2, linewidth=1.4, markersize=5, **keywords)


def frontier(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    counts: Sequence[tuple[str, str, Sequence[str]]],
    *,
    network: float,
    title: str,
    lowest: float = 0.0,
    floor: float = 0.0,
):
    """Accuracy against sparsity, a panel for each count.

    Args:
        curves: name -> a curve for each seed, {count: [...], "accuracy": [...]}.
        counts: (key of the sparsity, label, names that are drawn in its panel).
        network: accuracy of the network itself. lowest: left edge, per cent; floor: lower edge.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        len(counts), 1, figsize=(6.2, 4.9 * len(counts)), squeeze=False, gridspec_kw={"hspace": 0.62}
    )
    for axes, (key, label, names) in zip(panels[:, 0], counts, strict=True):
        for name in names:
            if curves.get(name):
                ranged(axes, [c[key] for c in curves[name]], [c["accuracy"] for c in curves[name]], **look(name))
        axes.axhline(network, color="0.5", linewidth=1, linestyle=":")
        axes.set(xlabel=label, ylabel="test accuracy (%)", xlim=(lowest, 100), ylim=(floor, None))
        legend_below(axes)
    panels[0, 0].set_title(title, fontsize="medium")
    return figure


def by_layer(found: Mapping[str, Mapping[str, Sequence[float]]], title: str, lowest: float = -1.0):
    """R^2 of each layer's pre-activations, rows fed with the network's states and with the model's own; below `lowest`
    a mark on the edge."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.6))
    for name, each in found.items():
        for key in ("forced", "own"):
            values = np.array([float(v) for v in each[key]])
            axes.plot(np.arange(2, len(values) + 2), np.maximum(values, lowest), **look(f"{name}_{key}"), clip_on=False)
    axes.set(xlabel="ReLU layer", ylabel="share of variance explained (R²)", ylim=(lowest, 1.02), title=title)
    axes.title.set_fontsize("medium")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend_below(axes)
    return figure


def against_images(
    images: Mapping[str, Sequence[float]],
    curves: Mapping[str, Sequence[float]],
    labels: Mapping[str, str],
    *,
    network: float,
    title: str,
):
    """Accuracy against the number of images of the fit, one seed; images and curves by name."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.6))
    for position, (name, values) in enumerate(curves.items()):  # names of no style: one by position
        axes.plot(images[name], values, **(style(f"curve {name}", position) | {"label": labels[name]}))
    axes.axhline(network, color="0.5", linewidth=1, linestyle=":")
    axes.set(xlabel="images of the fit", ylabel="test accuracy (%)", xscale="log", ylim=(0, None), title=title)
    axes.title.set_fontsize("medium")
    ticks = sorted({value for each in images.values() for value in each})
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize="small")
    axes.minorticks_off()
    legend_below(axes)
    return figure


def by_iteration(
    curves: Mapping[str, Mapping[str, Sequence[float]]], kappas: Sequence[float], *, network: float, title: str
):
    """Accuracy and gap at each outer iteration, cold and warm, a colour for each radius."""
    import matplotlib.pyplot as plt
    import seaborn

    palette = seaborn.color_palette("colorblind")
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 8.2), sharex=True, gridspec_kw={"hspace": 0.14})
    for axes, key, label in zip(
        panels, ("accuracy", "gap"), ("test accuracy (%)", "median gap / (||z||²/2)"), strict=True
    ):
        for k, kappa in enumerate(kappas):
            for start, line, marker in (("cold", "--", "x"), ("warm", "-", "o")):
                values = curves[f"{start}/{kappa:g}"][key]
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    line,
                    marker=marker,
                    color=palette[k],
                    label=f"κ = {kappa:g}, {start}",
                )
        axes.set(ylabel=label)
    panels[0].axhline(network, color="0.5", linewidth=1, linestyle=":")
    panels[0].set_title(title, fontsize="medium")
    panels[1].set(xlabel="outer iteration", yscale="log")
    panels[1].xaxis.get_major_locator().set_params(integer=True)
    legend_below(panels[1])
    return figure
