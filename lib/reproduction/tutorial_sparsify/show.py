"""The figure and the tables of the tutorial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.results import summary
from reproduction.core.figures import described
from reproduction.core.plots import legend_below, style_of

# name -> (label, colour of the colour-blind palette, marker, line); one call solid, peers dashed.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "share": ("one call, Share", 0, "o", "-"),
    "shared": ("l1 rows, shared kernels", 2, "D", "--"),
    "by_position": ("l1 rows at every position", 1, "^", "--"),
    "magnitude_norm": ("magnitude, batch norm anew", 4, "P", "-."),
    "layer_norm": ("magnitude by layer, batch norm anew", 9, "s", "-."),
    "magnitude": ("magnitude", 7, "x", ":"),
    "layer": ("magnitude by layer", 3, "v", ":"),
}
GAINS = {
    "weights": "weights{}",
    "multiplications of a sample": "multiplications{}",
    "file of torch.save, bytes": "torch_bytes{}",
    "file of save, bytes": "packed_bytes{}",
    "CPU milliseconds of a sample": "ms{}",
}


def gain_table(values: Mapping[str, Any], shares: Sequence[float]):
    """What is gained: a column for the network and for every share, from the recorded values."""
    import pandas as pd

    columns = {"network": ""} | {f"Share({share:g})": f"_{share:g}" for share in shares}
    texts = {
        column: {row: _text(values[key.format(part)]) for row, key in GAINS.items()} for column, part in columns.items()
    }
    return pd.DataFrame(texts, index=list(GAINS))


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def accuracy_table(values: Mapping[str, Any], shares: Sequence[float]):
    """Accuracy of every model at every share, and the numbers that it stores as weights at the least of them, all
    in per cent, the numbers of the network's weights."""
    import pandas as pd

    rows = {}
    for name, (label, *_) in STYLES.items():
        keys = {f"{100 * share:g} %": f"{share:g}_{name}" for share in shares}
        if any(key in values for key in keys.values()):
            rows[label] = {column: summary(values[key]) if key in values else "" for column, key in keys.items()}
            least = f"stored_{min(shares):g}_{name}"
            rows[label][f"stored at {100 * min(shares):g} %"] = summary(values[least]) if least in values else ""
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("weights kept")


def tradeoff(axes, values: Mapping[str, Any], shares: Sequence[float]) -> None:
    """Accuracy against the share of the weights, medians over seeds with the range, from the recorded values."""
    for name in STYLES:
        x = [share for share in sorted(shares) if f"{share:g}_{name}" in values]
        if not x:
            continue
        y = np.array([values[f"{share:g}_{name}"] for share in x], dtype=float)
        middle = np.median(y, axis=1)
        bars = np.abs(np.vstack([y.min(axis=1), y.max(axis=1)]) - middle)
        axes.errorbar(100 * np.array(x), middle, yerr=bars, capsize=2, **style_of(name, styles=STYLES))
    dense = float(np.median(values["accuracy"]))
    axes.axhline(dense, color="0.4", linewidth=1, linestyle=":", label="the network itself")
    axes.set(xscale="log", xlabel="weights kept (%)", ylabel="test accuracy (%)")
    ticks = [100 * share for share in sorted(shares)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    legend_below(axes)


def tradeoff_figure(source: Mapping[str, Any]):
    """Accuracy against the share of the weights (a results file's content, of the shares that it lists)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    tradeoff(axes, source["values"], source["curves"]["shares"])
    axes.set_title(described(source), fontsize="medium")
    return figure
