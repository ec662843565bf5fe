"""Figures on feedback: the ablation over the shifts, and which entries of A carry feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch5_depth import ablation
from reproduction.ch5_depth.ablation import TASKS
from reproduction.ch5_feedback.compute import VARIANTS
from reproduction.core.figures import described
from reproduction.core.plots import spread_curves

# Looks of variants, which are no models of their own.
STYLES = {
    "feedback_full": ("implicit, A full", 0, "o", "-"),
    "feedback_strict_upper": ("A strictly triangular", 4, "^", "-"),
    "feedback_strict_upper_free": ("same, no norm constraint", 1, "v", "-"),
    "feedback_strict_upper_matched": ("same, as many weights as A full", 2, "D", "-"),
    "feedback_linear": ("linear", 7, "x", "--"),
}
PUBLISHED = {
    "addition": "ch5-t54-add",
    "subtraction": "ch5-t54-sub",
    "argmax": "ch5-t54-rmax",
    "average": "ch5-t54-ravg",
}


def ablation_figure(content: Mapping[str, Any]):
    """Test error, or accuracy, against the shift for every variant; the published values of Table 5.4 at 100."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(6.6, 7.0), gridspec_kw={"hspace": 0.45, "wspace": 0.34})
    for axes, (name, task) in zip(panels.flat, TASKS.items(), strict=True):
        curves = {
            f"feedback_{variant}": content["curves"][f"{name}/{variant}"]
            for variant in ("full", "strict_upper", "strict_upper_free", "strict_upper_matched", "linear")
        }
        keys, square = content["curves"][f"{name}/keys"], task.loss == "mse"
        spread_curves(
            axes,
            keys,
            curves,
            xlabel=task.axis,
            ylabel=task.measure,
            xscale="linear" if name == "average" else "log",
            yscale="log" if square else "linear",
            styles=STYLES,
        )
        scale = 1 if square else 100
        for kind, marker in (("feedback", "*"), ("no feedback", "X")):
            axes.plot(
                100,
                float(published_value(PUBLISHED[name])[kind]) / scale,
                marker,
                color="0.1",
                markersize=9,
                zorder=5,
                label=f"Table 5.4, {kind}",
                markerfacecolor="white",
            )
        axes.set_title(task.label, fontsize="medium")
        axes.minorticks_off()
    figure.suptitle(described(content), fontsize="medium", y=0.95)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.045), ncols=2)
    return figure


def feedback_diagram():
    """A 3 x 3 matrix A and its nodes: entries above the diagonal lead onwards, the others back (Figure 5.14 of the
    thesis)."""
    import matplotlib.pyplot as plt
    import seaborn
    from matplotlib.patches import FancyArrowPatch, Rectangle

    from reproduction.ch5_feedback.compute import feedback_entries

    palette = seaborn.color_palette("colorblind")
    back, onwards = palette[3], palette[0]
    figure, (matrix, nodes) = plt.subplots(1, 2, figsize=(6.2, 3.2), gridspec_kw={"width_ratios": (1, 1.35)})
    stars = set(feedback_entries(3))
    onward_names = iter(("$W_0$", "$W_1$", "$W_2$"))
    for i in range(3):
        for j in range(3):
            star = (i, j) in stars
            matrix.add_patch(
                Rectangle((j, 2 - i), 1, 1, facecolor=back if star else onwards, alpha=0.35, edgecolor="0.2")
            )
            matrix.text(j + 0.5, 2.5 - i, "★" if star else next(onward_names), ha="center", va="center", color="0.1")
    matrix.set(
        xlim=(0, 3),
        ylim=(0, 3),
        aspect="equal",
        xticks=[0.5, 1.5, 2.5],
        yticks=[2.5, 1.5, 0.5],
        xticklabels=["$x_0$", "$x_1$", "$x_2$"],
        yticklabels=["$x_0$", "$x_1$", "$x_2$"],
        title="A: row from column",
    )
    matrix.tick_params(length=0)
    places = {0: (2.4, 0.0), 1: (1.2, 0.0), 2: (0.0, 0.0)}
    for k, (a, b) in places.items():
        nodes.text(
            a,
            b,
            f"$x_{k}$",
            ha="center",
            va="center",
            bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": "0.2"},
            zorder=3,
        )
    for i in range(3):
        for j in range(3):
            star, (start, end) = (i, j) in stars, (places[j], places[i])
            if i == j:
                start, end = (start[0] - 0.16, start[1] + 0.16), (end[0] + 0.16, end[1] + 0.16)
            bend = -1.9 if i == j else -0.45 if abs(i - j) == 2 else -0.28
            nodes.add_patch(
                FancyArrowPatch(
                    start,
                    end,
                    arrowstyle="-|>",
                    mutation_scale=12,
                    shrinkA=0 if i == j else 12,
                    shrinkB=0 if i == j else 12,
                    linestyle="--" if star else "-",
                    color=back if star else onwards,
                    connectionstyle=f"arc3,rad={bend}",
                )
            )
    nodes.set(xlim=(-0.7, 3.1), ylim=(-1.1, 1.1), aspect="equal", title="onwards solid, feedback dashed")
    nodes.axis("off")
    for axes in (matrix, nodes):
        axes.grid(False)
        axes.title.set_fontsize("medium")
    return figure


def weight_table():
    """States and weights of each task's models with and without feedback."""
    import pandas as pd

    rows = {}
    for task in TASKS.values():
        full, none = (ablation.weights(task.n, task.p, task.q, kind) for kind in ("full", "strict_upper"))
        matched = ablation.matched_states(task.n, task.p, task.q)
        rows[task.label] = {
            "states": task.n,
            "weights with feedback": full,
            "without": none,
            "ratio": f"{full / none:.3g}",
            "ratio of A alone": f"{task.n**2 / (task.n * (task.n - 1) // 2):.3g}",
            "states of the matched model": matched,
            "its weights": ablation.weights(matched, task.p, task.q, "strict_upper"),
        }
    return pd.DataFrame(rows).T


def training_columns() -> dict[str, str]:
    """Label of each task's measure in training -> the keys of its recorded values, by variant."""
    return {
        f"{task.label}, {task.measure.replace('test', 'train')}": f"{name}_{{}}_trained" for name, task in TASKS.items()
    }


def slope_columns() -> dict[str, str]:
    """Label of each task -> the keys of its recorded slopes, by variant."""
    spread = "rolling argmax: range of accuracy over shifts, points"
    return {task.label if task.loss == "mse" else spread: f"{name}_slope_{{}}" for name, task in TASKS.items()}


def far_table(values: Mapping[str, Any], published: Mapping[str, Mapping[str, float]]):
    """Recorded measures far from the training range and gains of feedback, beside published ones (by task)."""
    import pandas as pd

    rows = {}
    for name, task in TASKS.items():
        row = {
            "published, feedback": f"{published[name]['feedback']:g}",
            "published, none": f"{published[name]['no feedback']:g}",
        }
        row |= {ablation.VARIANTS[variant]: summary(values[f"{name}_{variant}_far"]) for variant in VARIANTS}
        for variant in VARIANTS[1:-1]:
            row[f"gain over: {ablation.VARIANTS[variant]}"] = summary(values[f"{name}_gain_over_{variant}"])
        rows[f"{task.label}, {task.measure}"] = row
    return pd.DataFrame(rows)
