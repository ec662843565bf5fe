"""Figures of sensitivity matrices: the matrix itself, its rows as images, classes against what they gain from data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.core.plots import legend_below


def matrix_and_row_sums(matrices: Mapping[str, Sequence[Sequence[float]]], classes: Mapping[str, Sequence[str]]):
    """Each matrix as a heat map above the row sums of its classes (mean over columns, so that both have one unit)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        2 * len(matrices), 1, figsize=(6.2, 6.0 * len(matrices)), squeeze=False, gridspec_kw={"hspace": 0.62}
    )
    for (name, S), above, below in zip(matrices.items(), panels[::2, 0], panels[1::2, 0], strict=True):
        S = np.asarray(S, dtype=float)
        shown = above.imshow(S, aspect="auto", cmap="cividis", interpolation="nearest")
        above.set(xlabel="input pixel", ylabel="output", title=f"S of 784-300-10, {name}", yticks=range(len(S)))
        above.grid(False)
        figure.colorbar(
            shown, ax=[above, below], label="bound of the slope", location="right", shrink=0.4, anchor=(0, 1)
        )
        below.bar(range(len(S)), S.sum(axis=1), color="#0173b2")
        below.set(ylabel="row sum of S", xticks=range(len(S)))
        below.set_xticklabels(classes[name], rotation=45, ha="right", fontsize="small")
    return figure


def row_images(S: Sequence[Sequence[float]], classes: Sequence[str], title: str):
    """Rows of S as images, two rows of panels, one grey scale for all."""
    import matplotlib.pyplot as plt

    S = np.asarray(S, dtype=float)
    side, columns = round(S.shape[1] ** 0.5), -(-len(S) // 2)
    figure, panels = plt.subplots(2, columns, figsize=(6.2, 3.3), squeeze=False)
    for k, axes in enumerate(panels.flat):
        axes.axis("off")
        if k < len(S):
            axes.imshow(S[k].reshape(side, side), cmap="cividis", vmin=0, vmax=S.max())
            axes.set_title(str(classes[k]), fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def rows_against_gain(points: Mapping[str, Mapping[str, Sequence[float]]]):
    """Row sum of a class over the mean of its network against the accuracy that the class gains from more data."""
    import matplotlib.pyplot as plt
    import seaborn

    figure, axes = plt.subplots(figsize=(6.2, 4.2))
    for (name, both), colour, marker in zip(points.items(), seaborn.color_palette("colorblind"), "osD^v", strict=False):
        axes.scatter(
            both["row_sum"], 100 * np.asarray(both["gain"], dtype=float), color=colour, marker=marker, label=name
        )
    axes.set(xlabel="row sum of S over the mean of the network", ylabel="accuracy gained from all the data (points)")
    legend_below(axes)
    return figure
