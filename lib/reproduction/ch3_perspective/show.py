"""Figures and tables of the notebook of the perspective penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from implicit_models.sim.problem import Perspective
from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch3_perspective.measures import SCALES, Objectives, Solution
from reproduction.core.figures import described
from reproduction.core.plots import legend_below
from reproduction.core.sparsity_figures import against_share, style, tradeoff


def penalty_figure(knees: Sequence[float]):
    """Penalty against coefficient, with the weight of the l1 part held."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 3.8))
    x = np.linspace(-1.6, 1.6, 801)
    axes.plot(x, 2 * np.abs(x), **style("l1") | {"marker": ""})
    for knee in [1.0, *knees]:
        name = "perspective" if knee == 1 else f"perspective_{knee:g}"
        axes.plot(x, Perspective(1 / knee, knee).penalty(x), **style(name) | {"marker": ""})
    axes.plot(x, x**2, **style("l2") | {"marker": ""})
    axes.axvspan(-0.99, 0.99, color="0.9", zorder=0)
    axes.set(xlabel="coefficient", ylabel="penalty", ylim=(0, 4))
    legend_below(axes)
    return figure


def row_table(solutions: Mapping[str, Solution]):
    """Value and zeros of each solution, from `measures.one_row`."""
    import pandas as pd

    rows = {
        name: {"value": f"{value:.9f}", "coefficients below 1e-5": int((np.abs(a) < 1e-5).sum())}
        for name, (value, a) in solutions.items()
    }
    return pd.DataFrame(rows).T


def objective_labels(objectives: Objectives, start: str = "") -> dict[str, str]:
    """Label of a curve -> its part of the keys, for objectives whose name has a given start."""
    return {
        f"{scale}: {style(name)['label']}": f"{scale}_{name}"
        for scale in SCALES
        for name in objectives
        if name.startswith(start)
    }


def tradeoff_figure(source: Mapping[str, Any]):
    """Figure 2 in two scales (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.4, 9.2), gridspec_kw={"hspace": 0.62})
    for axes, scale in zip(panels, SCALES, strict=True):
        start = f"tradeoff/{scale}/"
        shown = {key.rpartition("/")[2]: curve for key, curve in source["curves"].items() if key.startswith(start)}
        tradeoff(axes, shown, limit=40)
        axes.set_title(f"20 Newsgroups, {scale} scale ({described(source)})", fontsize="medium")
    return figure


def count_table(counts: Mapping[tuple[str, str, float], Mapping[str, Any]]):
    """Weights on states and inputs, from `measures.weight_counts`."""
    import pandas as pd

    rows = {}
    for (scale, name, weight), count in counts.items():
        kind = ", earlier layers only" if scale == "std" else ""
        rows[f"{scale}{kind}: {style(name)['label']}, weight {weight:g}"] = {
            "drop, points": f"{count['drop']:.1f}",
            "sparsity, %": f"{count['sparsity']:.1f}",
        } | {part: count[part] for part in "ABCD"}
    return pd.DataFrame(rows).T


def part_table(parts: Mapping[tuple[str, str, float], Sequence[Sequence[float]]], values: Mapping[str, Any]):
    """Sparsity at the smallest share and with all data, from `measures.part_curves` and recorded values."""
    import pandas as pd

    rows = {}
    for weight in sorted({weight for _, _, weight in parts}):
        for name in dict.fromkeys(name for _, name, _ in parts):
            found = parts["sparsity", name, weight]
            above = values[f"sparsity_above_l1_{name}_w{weight:g}".replace(".", "p")]
            rows[f"{style(name)['label']}, weight {weight:g}"] = {
                "sparsity at the smallest share, %": summary([curve[0] for curve in found]),
                "with all data, %": summary([curve[-1] for curve in found]),
                "mean sparsity less l1's, points": summary(above),
            }
    return pd.DataFrame(rows).T


def part_figure(source: Mapping[str, Any], shares: Sequence[float]):
    """Figure 3 (a results file's content)."""
    import matplotlib.pyplot as plt

    start = "shares/sparsity/"
    curves = {name: curve for name, curve in source["curves"].items() if name.startswith(start)}
    chosen = sorted({float(name.rpartition("/")[2]) for name in curves})
    size = (6.4, 4.6 * len(chosen))
    figure, panels = plt.subplots(len(chosen), 1, figsize=size, squeeze=False, gridspec_kw={"hspace": 0.62})
    for axes, weight in zip(panels[:, 0], chosen, strict=True):
        shown = {name.split("/")[2]: curve for name, curve in curves.items() if name.endswith(f"/{weight:g}")}
        against_share(axes, sorted(shares), shown, ylabel="sparsity (%)")
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.set_title(f"weight {weight:g}, scale of Theorem 2.4 ({described(source)})", fontsize="medium")
    return figure


def small_table(share: float) -> dict[str, Any]:
    """The paper's statements on a small share of the data, as arguments of `Results.rows`."""
    parts = {"no drop": "no_drop", "at most one point": "one_point"}
    known = published_value("sim-20news-17pct-no-drop")
    return {
        "parts": parts,
        "columns": {
            f"sparsity with {100 * share:g} % of the data, %": "small_share_{}",
            "with all data, %": "{}_uniform_perspective",
        },
        "texts": {label: {"published, %": known} for label in parts},
    }
