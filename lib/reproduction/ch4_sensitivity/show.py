"""Figures of sensitivity matrices, the matrix itself, its rows as images and classes against what they gain from data;
labels of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.core.figures import described
from reproduction.core.plots import legend_below

# label of a row -> end of the key
THREE_WAYS = {
    "iteration less adjoint, relative": "iteration_error",
    "closed form less adjoint, relative": "closed_error",
    "steps of the iteration": "steps",
    "time of the iteration over the adjoint's": "ratio",
    "proved bound over S, relative": "excess",
}
MOVED = {
    "largest share reached": "largest",
    "median share": "median",
    "median share, random signs": "random",
    "outputs outside": "violations",
}
BLOCKS = {
    "violations, random models": "blocks_violations",
    "||S|| over plain norms: softmax, max-pool, relu": "blocks_mixed",
    "softmax alone": "blocks_softmax",
    "the same matrices, relu": "blocks_relu",
    "largest of all": "blocks_largest",
    "x = 2x + u: (I - N)^-1": "inverse_bound",
    "x = 2x + u: movement for a unit step": "inverse_moved",
    "proof, |relu(0) - relu(1)|": "step_left",
    "proof, |relu(0 - 1)|": "step_right",
}
CLASSES = {
    "largest over smallest row sum": "ratio",
    "the same before training": "ratio_before",
    "order of the classes, rank correlation of seeds": "order_between_seeds",
    "row sum with error of the class, rank correlation": "with_error",
    "row sum with gain from data, rank correlation": "with_gain",
}
PIXELS = {
    "correlation with the mean image of the own class": "pixels_own",
    "of the other classes": "pixels_other",
    "of all images": "pixels_lit",
    "share of rows that fit their own class best": "pixels_own_is_best",
    "correlation with the row before training": "pixels_before",
    "class 0: correlation with its mean image": "pixels_first_own",
    "class 0: with the others'": "pixels_first_other",
    "correlation of two rows of S": "pixels_between",
    "accuracy on the class, all pixels": "pixels_kept",
    "without the tenth with largest S": "pixels_top",
    "without a random tenth": "pixels_random",
    "without the tenth with smallest S": "pixels_bottom",
    "without the tenth with most ink": "pixels_ink",
    "change of S with the image": "image_matrix",
    "correlation of gradients at two images": "image_gradient",
}


def matrix_figure(source: Mapping[str, Any], classes: Mapping[str, Sequence[Any]]):
    """The matrices of a results file with their row sums.

    Args:
        source: its content.
        classes: data set -> names of its classes; those without a curve are left out.
    """
    named = {name: f"{name} ({described(source)})" for name in classes if f"S/{name}" in source["curves"]}
    return matrix_and_row_sums(
        {label: source["curves"][f"S/{name}"] for name, label in named.items()},
        {label: [str(k) for k in classes[name]] for name, label in named.items()},
    )


def gain_figure(source: Mapping[str, Any], names: Sequence[str]):
    """What each class gains from data, of those data sets for which a results file has it."""
    found = {name: source["curves"][f"gain/{name}"] for name in names if f"gain/{name}" in source["curves"]}
    return rows_against_gain({f"{name} ({described(source)})": points for name, points in found.items()})


def rows_figure(full: Mapping[str, Any] | None, content: Mapping[str, Any], name: str, classes: Sequence[Any]):
    """Rows of S as images, of the committed full run where it has this data set, else of this run."""
    source = full if full and f"S/{name}" in full["curves"] else content
    return row_images(source["curves"][f"S/{name}"], list(classes), f"rows of S, {name} ({described(source)})")


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
