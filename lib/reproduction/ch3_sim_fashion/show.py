"""Figures of accuracy under attack against sparsity, medians and ranges over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.core.plots import legend_below

# name -> (label, colour of the colour-blind palette, marker, line): fits solid, controls dashed, published dotted.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "l1": ("l1", 0, "o", "-"),
    "perspective": ("perspective, knee 1", 3, "v", "-"),
    "perspective_0.1": ("perspective, knee 0.1", 2, "D", "-"),
    "l2": ("ridge: (5) as printed", 1, "x", "-"),
    "lasso": ("lasso on the layer below", 4, "P", "--"),
    "magnitude": ("magnitude pruning", 5, "<", "--"),
    "magnitude_retrained": ("magnitude, retrained on the samples", 9, ">", "--"),
    "dense": ("dense, trained on the samples", 7, "s", "--"),
    "teacher": ("the network itself", 8, "*", "--"),
    "published_l1": ("SIM paper, l1", 0, "2", ":"),
    "published_perspective": ("SIM paper, perspective", 3, "1", ":"),
    "theorem": ("scale of Theorem 2.4", 0, "o", "-"),
    "std": ("standard deviations", 2, "D", "-"),
    "uniform": ("uniform, as printed", 3, "v", "-"),
}


def attacked_against_sparsity(
    axes, curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], key: str, *, lowest: float = -10.0
) -> None:
    """Accuracy against sparsity: a point is a setting, at its medians over the seeds, its bar the range.

    Args:
        axes: matplotlib axes.
        curves: name -> one curve a seed, {"sparsity": [...], key: [...]}, per cent.
        key: what is drawn.
        lowest: sparsity of the left edge, per cent; a curve that lies wholly to the left is drawn at the edge as a
            horizontal line.
    """
    import seaborn

    palette = seaborn.color_palette("colorblind")
    for name, seeds in curves.items():
        label, colour, marker, line = STYLES[name]
        keywords = {"label": label, "color": palette[colour], "linewidth": 1.4}
        x = np.median([curve["sparsity"] for curve in seeds], axis=0)
        y = np.array([curve[key] for curve in seeds], dtype=float)
        middle, order = np.median(y, axis=0), np.argsort(x)
        if name in ("teacher", "dense"):
            axes.axhline(middle[0], linestyle=line, **keywords)
        elif len(x) and x.max() < lowest:
            axes.axhline(
                float(np.max(middle)),
                linestyle=line,
                **(keywords | {"label": f"{label} (best; {np.median(x):.0f} % sparsity)"}),
            )
        else:
            bars = np.abs(np.vstack([y.min(axis=0), y.max(axis=0)]) - middle)
            axes.errorbar(
                x[order], middle[order], yerr=bars[:, order], capsize=2, marker=marker, linestyle=line, **keywords
            )
    axes.set(xlabel="sparsity, 1 - |M|₀/|N|₀ (%)", ylabel="accuracy (%)", xlim=(lowest, 100))
    legend_below(axes)
