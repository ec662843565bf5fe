"""Figures and tables on depth from recorded values: the law of the count, depth during training, the cost of a step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from reproduction.book.results import summary
from reproduction.ch5_depth import ablation, measures, trainings
from reproduction.ch5_depth.ablation import TASKS
from reproduction.ch5_depth.compute import epochs_over
from reproduction.core.figures import described
from reproduction.core.plots import legend_below, spread_curves, style_of

# Looks of variants, which are no models of their own.
STYLES = {
    "depth_absolute": ("implicit, absolute tolerance", 0, "o", "-"),
    "depth_relative": ("implicit, relative tolerance", 9, "s", "-"),
    "depth_law": ("law: ln t / -ln ρ", -1, "", ":"),
    "depth_strict_upper": ("A strictly triangular, absolute", 4, "^", "-"),
    "depth_untrained": ("untrained, absolute", 7, "x", "--"),
    "depth_kappa_half": ("implicit, κ = 0.5, absolute", 2, "D", "-"),
    "training_full": ("implicit, κ = 0.95", 0, "o", "-"),
    "training_kappa_half": ("implicit, κ = 0.5", 2, "D", "-"),
    "training_strict_upper": ("A strictly triangular", 4, "^", "-"),
}
SHOWN_CAPS = (1, 4, 16, 64)
LAW_CURVES = ("absolute", "law", "kappa_half", "relative", "strict_upper", "untrained")


def law_figure(content: Mapping[str, Any]):
    """Iterations against the size of the inputs, one panel a task (Figure 5.13 of the thesis and its controls)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(6.6, 6.6), gridspec_kw={"hspace": 0.45, "wspace": 0.28})
    for axes, name in zip(panels.flat, TASKS, strict=True):
        sizes = content["curves"][f"{name}/sizes"]
        curves = {
            f"depth_{kind}": content["curves"][f"{name}/{kind}"]
            for kind in LAW_CURVES
            if f"{name}/{kind}" in content["curves"]
        }
        # The law's band would hide the measured one, on which it lies.
        curves["depth_law"] = [[statistics.median(column) for column in zip(*curves["depth_law"], strict=True)]]
        spread_curves(
            axes,
            sizes,
            curves,
            xlabel="size of inputs (training: 1)",
            ylabel="mean iterations",
            xscale="log",
            yscale="linear",
            styles=STYLES,
        )
        axes.set_title(TASKS[name].label, fontsize="medium")
        axes.set_ylim(bottom=0)
        axes.minorticks_off()
    figure.suptitle(described(content), fontsize="medium", y=0.95)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.04), ncols=2)
    return figure


def training_figure(content: Mapping[str, Any]):
    """Accuracy on the rolling argmax and iterations in distribution after each epoch (Figure 5.12 of the thesis and its
    controls)."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, panels = plt.subplots(2, 1, figsize=(6.2, 7.6), sharex=True, gridspec_kw={"hspace": 0.15})
    for axes, kind, label in zip(
        panels,
        ("measure", "iterations"),
        ("accuracy, in distribution", "mean iterations, absolute tolerance"),
        strict=True,
    ):
        for variant in ("full", "kappa_half", "strict_upper"):
            rows = content["curves"][f"training/argmax/{variant}/{kind}"]
            spread_curves(
                axes,
                list(range(1, len(rows[0]) + 1)),
                {f"training_{variant}": rows},
                xlabel="epoch",
                ylabel=label,
                yscale="linear",
                styles=STYLES,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_xlabel("")
    panels[0].set_title(f"rolling argmax ({described(content)})", fontsize="medium")
    legend_below(panels[1])
    return figure


def cost_figure(content: Mapping[str, Any]):
    """Memory that a forward pass keeps against depth, and time of an epoch against iterations."""
    import matplotlib.pyplot as plt
    import numpy as np

    figure, (memory, time) = plt.subplots(2, 1, figsize=(6.2, 9.0), gridspec_kw={"hspace": 0.62})
    depths = content["curves"]["memory/depths"]
    explicit = [content["values"][f"bytes_explicit_{depth}"] for depth in depths]
    memory.plot(depths, explicit, label="explicit network, a layer a step", **_style("mlp_bias_free"))
    for key, label, name in (
        ("unrolled", "implicit, unrolled", "implicit_no_skip"),
        ("implicit", "implicit, adjoint", "implicit"),
    ):
        height = float(np.median(content["values"][f"bytes_{key}"]))
        style = _style(name)
        memory.axhline(height, color=style["color"], linestyle=style["linestyle"], label=label)
    memory.set(xlabel="layers of the explicit network", ylabel="bytes kept for a sample", xscale="log", yscale="log")
    memory.set_title(f"memory of a training step, addition ({described(content)})", fontsize="medium")
    legend_below(memory)
    for key, label, name in (
        ("picard", "Picard", "implicit"),
        ("auto", "compiled Gauss-Seidel", "implicit_strict_upper"),
    ):
        iterations, seconds = (
            np.array(content["curves"][f"time/{key}/{what}"], dtype=float) for what in ("iterations", "seconds")
        )
        order = np.argsort(np.median(iterations, axis=0))
        time.plot(np.median(iterations, axis=0)[order], np.median(seconds, axis=0)[order], label=label, **_style(name))
    reference = float(np.median(content["values"]["seconds_mlp"]))
    time.axhline(reference, label="MLP 50-10-10-1", **{k: v for k, v in _style("mlp").items() if k != "marker"})
    time.set(xlabel="mean iterations in training, relative tolerance", ylabel="CPU seconds an epoch", yscale="log")
    time.set_title("time of an epoch, norm balls from small to large", fontsize="medium")
    legend_below(time)
    return figure


def _style(name: str) -> dict[str, Any]:
    return {key: value for key, value in style_of(name).items() if key != "label"}


def law_table(values: Mapping[str, Any], published: Mapping[str, float]):
    """Recorded counts, law and growth, by task and model, beside published counts (task -> iterations)."""
    import pandas as pd

    def shown(key: str) -> str:
        return summary(values[key])

    rows = {}
    for name, task in TASKS.items():
        for prefix, title in measures.MODELS.items():
            key = f"{name}_{prefix}"
            rows[task.label, title] = {
                "iterations, mean": shown(f"{key}iterations"),
                "published": f"{published[name]:g}" if name in published and not prefix else "",
                "largest": shown(f"{key}iterations_largest"),
                "slope": shown(f"{key}slope"),
                "law, 1 / -ln ρ": shown(f"{key}predicted"),
                "bound, 1 / -ln λ_PF": shown(f"{key}bound"),
                "growth, absolute": shown(f"{key}growth"),
                "growth, relative": shown(f"{key}growth_relative"),
                "difference by scaling": "" if prefix else shown(f"{name}_scaling_difference"),
            }
    return pd.DataFrame(rows).T


def by_task(values: Mapping[str, Any], columns: Mapping[str, str]):
    """Recorded values by task.

    Args:
        columns: label -> key, with `{}` where the task's name stands. In a label, `{}` is the task's measure; what
            no measure of a task fits is empty.
    """
    import pandas as pd

    rows: dict[str, dict[str, str]] = {}
    for name, task in TASKS.items():
        measure = "error" if task.loss == "mse" else "accuracy"
        rows[task.label] = {label.format(measure): summary(values[key.format(name)]) for label, key in columns.items()}
    return pd.DataFrame(rows).T.fillna("")


def cut_table(values: Mapping[str, Any]):
    """Errors of loops that are cut, by task, in distribution and at the farthest test set."""
    columns: dict[str, str] = {}
    for place, title in (("near", "in distribution"), ("far", "farthest")):
        columns |= {f"{title}, k = {cap}": f"{{}}_{place}_cut_{cap}" for cap in SHOWN_CAPS}
        columns |= {f"{title}, equilibrium": f"{{}}_{place}_equilibrium", f"{title}, settled": f"{{}}_{place}_settles"}
    return by_task(values, columns | {"equilibrium over best cut": "{}_equilibrium_over_best_cut"}).T


def training_table(values: Mapping[str, Any]):
    """Measure on the training set and CPU seconds by task and variant, and the updates that all have."""
    import pandas as pd

    rows: dict[str, dict[str, str]] = {}
    for name, task in TASKS.items():
        measure = "train MSE" if task.loss == "mse" else "train accuracy"
        rows[task.label] = {"updates of each": summary(values[f"trained_updates_{name}_full"])}
        for variant in measures.VARIANTS:
            label = f"{ablation.VARIANTS[variant]}, {measure}"
            rows[task.label][label] = summary(values[f"{name}_{variant}_trained"])
            seconds = f"{ablation.VARIANTS[variant]}, CPU seconds a run"
            rows[task.label][seconds] = summary(values[f"trained_seconds_{name}_{variant}"])
    return pd.DataFrame(rows).T.fillna("")


def failure_table(values: Mapping[str, Any], histories: trainings.Histories, cap: int):
    """Failures of the papers' solver with this cap, with smaller caps, and its largest count."""
    import pandas as pd

    rows = {}
    for (label, dtype), made in histories.items():
        title = label.replace("_table", ", 100 entries of U(1, 2)")
        over = {limit: [epochs_over(history, limit) for history in made] for limit in trainings.LIMITS}
        rows[title, trainings.PRECISIONS[dtype]] = {
            f"epochs with a failure, % (cap {cap})": summary(values[f"{label}_failed_epochs_{dtype}"]),
            **{f"cap {limit}": summary(shares) for limit, shares in over.items()},
            "largest count": summary(values[f"{label}_largest_iterations_{dtype}"]),
        }
    return pd.DataFrame(rows).T


def cost_table(values: Mapping[str, Any]):
    """CPU seconds of an epoch and bytes kept for a sample."""
    import pandas as pd

    models = {
        "implicit, Picard": ("picard", None),
        "implicit, compiled": ("auto", "implicit"),
        "MLP 50-10-10-1": ("mlp", "mlp"),
        "implicit, unrolled": (None, "unrolled"),
    }
    rows = {
        label: {
            "CPU seconds an epoch": summary(values[f"seconds_{solver}"]) if solver else "",
            "bytes kept for a sample": summary(values[f"bytes_{kind}"]) if kind else "",
        }
        for label, (solver, kind) in models.items()
    }
    return pd.DataFrame(rows).T
