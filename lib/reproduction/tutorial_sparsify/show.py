"""The figure and the tables of the tutorial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from implicit_models.sim.report import SparsityReport
from reproduction.book.results import summary
from reproduction.core.figures import described
from reproduction.core.plots import legend_below
from reproduction.tutorial_sparsify.measures import Gain

# name -> (label, colour of the colour-blind palette, marker, line).
STYLES: dict[str, tuple[str, int, str, str]] = {
    "l1": ("l1 solution, teacher's states", 3, "v", "-"),
    "refit": ("refit, teacher's states", 1, "^", "-"),
    "student": ("refit, own states", 9, "s", "-"),
    "head": ("refit, own states, head", 0, "o", "-"),
    "shared": ("same, shared kernels", 2, "D", "-"),
    "magnitude": ("magnitude pruning", 7, "x", "--"),
    "magnitude_retrained": ("magnitude, retrained on the samples", 4, "P", "--"),
}
LOST = {"accuracy, %": "{}_accuracy", "multiplications saved, %": "{}_sparsity", "numbers saved, %": "{}_numbers"}


def layer_rows(report: SparsityReport) -> dict[str, dict[str, Any]]:
    """Layer -> what its report says, for a table."""
    return {
        layer.name: {
            "rows": layer.rows,
            "columns a row may use": layer.columns,
            "used, median": layer.support,
            "entries": layer.entries,
            "the network's": layer.own_entries,
            "R2, fit": round(layer.fit, 3),
            "R2, held out": None if layer.held_out is None else round(layer.held_out, 3),
            "largest gap": f"{layer.gap:.0e}",
            "status": ", ".join(f"{name}: {count}" for name, count in layer.status.items()),
        }
        for layer in report.layers
    }


def gain_table(gain: Gain):
    """What is gained: multiplications, numbers, bytes, zeros and time of the network, the rows and the kernels."""
    import pandas as pd

    names = ("network", "sparse rows", "shared kernels")
    counts = {
        "multiplications of a sample": gain.entries,
        "different numbers": gain.numbers,
        "bytes as torch holds them": gain.stored,
    }
    table = {label: [f"{value:,}" for value in values] for label, values in counts.items()}
    table["zeros in the full [A B], %"] = [f"{100 * value:.3f}" for value in gain.zeros]
    table["CPU milliseconds of a sample, batch of 200"] = [f"{value:.3f}" for value in gain.cpu_ms]
    return pd.DataFrame.from_dict(table, orient="index", columns=names)


def tradeoff(axes, curves: Mapping[str, Sequence[Sequence[Mapping[str, float]]]], dense: float) -> None:
    """Accuracy against sparsity, medians over seeds with the range; dense: accuracy of the network itself.

    Args:
        curves: name -> one list of points a seed.
    """
    import seaborn

    palette = seaborn.color_palette("colorblind")
    for name, seeds in curves.items():
        label, colour, marker, line = STYLES[name]
        x = np.median([[float(p["sparsity"]) for p in points] for points in seeds], axis=0)
        y = np.array([[float(p["accuracy"]) for p in points] for points in seeds])
        middle, order = np.median(y, axis=0), np.argsort(x)
        bars = np.abs(np.vstack([y.min(axis=0), y.max(axis=0)]) - middle)
        axes.errorbar(
            x[order],
            middle[order],
            yerr=bars[:, order],
            capsize=2,
            linewidth=1.4,
            label=label,
            color=palette[colour],
            marker=marker,
            linestyle=line,
        )
    axes.axhline(dense, color="0.4", linewidth=1, linestyle=":", label="the network itself")
    axes.set(xlabel="multiplications saved (%)", ylabel="test accuracy (%)")
    legend_below(axes)


def tradeoff_figure(source: Mapping[str, Any]):
    """Accuracy against sparsity (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    curves = {name: source["curves"][f"keep/{name}"] for name in STYLES}
    tradeoff(axes, curves, float(np.median(source["values"]["accuracy"])))
    axes.set_title(described(source), fontsize="medium")
    return figure


def saved_table(values: Mapping[str, Any], epochs: int, m: int):
    """The loaded model and its fine-tuning, from the recorded values."""
    import pandas as pd

    after = f"after {epochs} epochs on the {m} samples with labels, %"
    rows = {
        "loaded model gives the same outputs": values["loaded_is_the_same"],
        "parameters that train as it comes": values["parameters_trained_as_it_comes"],
        "after shifts and head were made parameters": values["fine_tuned_parameters"],
        "accuracy before, %": summary(values["before_fine_tuning"]),
        after: summary(values["after_fine_tuning"]),
    }
    return pd.Series(rows, name="measured").to_frame()
