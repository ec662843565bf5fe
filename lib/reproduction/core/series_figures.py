"""Figures of the sequence models: rolling tasks and spiky series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.core.figures import described, select
from reproduction.core.plots import legend_below, spread_curves, style_of

AVERAGE_PAPER = (
    "implicit",
    "implicit_report",
    "implicit_rnn",
    "lstm",
    "lstm_report",
    "transformer_encoder_decoder",
    "transformer_report",
)
CONTROLS = (
    "implicit",
    "implicit_no_skip",
    "implicit_strict_upper",
    "linear",
    "mlp",
    "mlp_bias_free",
    "mlp_skip",
    "neural_ode",
    "neural_ode_bias_free",
)
ARGMAX_PAPER = ("implicit", "implicit_rnn", "lstm", "transformer_masked", "transformer_unmasked", "transformer_no_pe")
ARGMAX_RECURRENT = (
    "implicit_rnn",
    "implicit_rnn_bias",
    "implicit_rnn_every",
    "lstm",
    "lstm_every",
    "transformer_leak_free",
    "neural_ode",
)
HOMOGENEOUS_OR_NEARLY = tuple(name for name in CONTROLS if name != "neural_ode")
CHANCE = 0.1


def _panels(rows: int, height: float, **options):
    import matplotlib.pyplot as plt

    return plt.subplots(rows, 1, figsize=(6.2, height * rows), squeeze=False, **options)


def rolling_average_figure(content: Mapping[str, Any]):
    """Test error of the rolling average against the shift of the mean: the papers' models above, controls below (a
    results file's content)."""
    figure, panels = _panels(2, 4.9, sharex=True, gridspec_kw={"hspace": 0.62})
    shifts = [float(shift) for shift in content["values"]["shifts"]]
    for axes, names, title in zip(
        panels[:, 0], (AVERAGE_PAPER, CONTROLS), ("the papers' models", "controls"), strict=True
    ):
        spread_curves(
            axes,
            shifts,
            select(content["curves"], names),
            xlabel="shift of the mean, test inputs N(3 + shift, 1)",
            ylabel="test MSE",
        )
        axes.set_title(f"{title} ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
        legend_below(axes)
    return figure


def rolling_argmax_figure(content: Mapping[str, Any]):
    """Accuracy at the last step against the scale t: the papers' models, the recurrent ones, the controls (a results
    file's content)."""
    figure, panels = _panels(3, 4.8, sharex=True, gridspec_kw={"hspace": 0.72})
    scales = [float(scale) for scale in content["values"]["scales"]]
    groups = (
        ("the papers' models", ARGMAX_PAPER),
        ("recurrent, neural ODE, no labels given", ARGMAX_RECURRENT),
        ("controls", HOMOGENEOUS_OR_NEARLY),
    )
    for axes, (title, names) in zip(panels[:, 0], groups, strict=True):
        close = names is HOMOGENEOUS_OR_NEARLY  # these lie close together, far from chance
        spread_curves(
            axes,
            scales,
            select(content["curves"], names),
            xlabel="scale t, test inputs U(0, t)",
            ylabel="accuracy at the last step",
            xscale="log",
            yscale="linear",
            limits=None if close else (0, 1.02),
        )
        if not close:
            axes.axhline(CHANCE, color="0.4", linewidth=1, linestyle=":")
        axes.set_title(f"{title} ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
        legend_below(axes)
    return figure


def accuracy_curves_figure(content: Mapping[str, Any], scales: Sequence[float], names: Sequence[str]):
    """Accuracy over training, one panel a scale.

    Args:
        content: with curves "epochs/<model>/<scale>", (seeds, epochs).
        scales: of the panels.
        names: of the models.
    """
    figure, panels = _panels(len(scales), 3.6, sharex=True, gridspec_kw={"hspace": 0.32})
    for axes, scale in zip(panels[:, 0], scales, strict=True):
        for name in names:
            rows = content["curves"].get(f"epochs/{name}/{scale:g}")
            if rows:
                spread_curves(
                    axes,
                    list(range(1, len(rows[0]) + 1)),
                    {name: rows},
                    xlabel="epoch",
                    ylabel="accuracy at the last step",
                    yscale="linear",
                    limits=(0, 1.02),
                )
        axes.axhline(CHANCE, color="0.4", linewidth=1, linestyle=":")
        axes.set_title(f"test inputs U(0, {scale:g}) ({described(content)})", fontsize="medium")
        axes.tick_params(labelbottom=True)
    legend_below(panels[-1, 0])
    return figure


def mean_prediction_figure(content: Mapping[str, Any], names: Sequence[str], key: str = "mean_prediction"):
    """What models predict on average against the shift, beside the mean that they should predict.

    Args:
        content: with curves "<key>/<model>", (seeds, shifts).
        names: of the models.
        key: of the curves.
    """
    figure, panels = _panels(1, 4.4)
    axes = panels[0, 0]
    shifts = [float(shift) for shift in content["values"]["shifts"]]
    axes.plot(shifts, [3 + shift for shift in shifts], color="0.6", linewidth=5, alpha=0.5, label="right: 3 + shift")
    curves = {name: content["curves"][f"{key}/{name}"] for name in names if f"{key}/{name}" in content["curves"]}
    spread_curves(
        axes, shifts, curves, xlabel="shift of the mean", ylabel="mean prediction at the last step", yscale="linear"
    )
    axes.set_title(described(content), fontsize="medium")
    legend_below(axes)
    return figure


def early_error_figure(content: Mapping[str, Any], names: Sequence[str], published: Mapping[str, float]):
    """Test error of the spiky series over the first epochs, on the [0, 1] scale, with the controls and the published
    values as lines.

    Args:
        content: with curves "early/<network>" (seeds, epochs) and values "unit_<control>", "unit_floor".
        names: of the networks.
        published: network -> published test error.
    """
    import numpy as np

    from reproduction.book.results import numbers

    figure, panels = _panels(1, 5.2)
    axes = panels[0, 0]
    for name in names:
        rows = content["curves"][f"early/{name}"]
        epochs = list(range(1, len(rows[0]) + 1))
        spread_curves(
            axes,
            epochs,
            {name: rows},
            xlabel="epoch (Adam, learning rate .001)",
            ylabel="test MSE, series scaled to [0, 1]",
        )
    for name in ("constant", "persistence", "autoregression"):
        style = style_of(name)
        axes.axhline(
            float(np.median(numbers(content["values"][f"unit_{name}"]))),
            color=style["color"],
            linestyle="--",
            linewidth=1.3,
        )
        axes.annotate(
            style["label"],
            (epochs[-1], float(np.median(numbers(content["values"][f"unit_{name}"])))),
            ha="right",
            va="bottom",
            fontsize="small",
            color=style["color"],
        )
    floor = float(np.median(numbers(content["values"]["unit_floor"])))
    axes.axhline(floor, color="0.5", linestyle=":", linewidth=1.3)
    axes.annotate("unforeseeable", (epochs[-1], floor), ha="right", va="bottom", fontsize="small", color="0.4")
    for name, value in published.items():
        style = style_of(name)
        axes.plot([0.4], [value], marker="<", color=style["color"], markersize=8, clip_on=False, linestyle="none")
    axes.set_xlim(0.4, epochs[-1] + 0.3)
    axes.set_title(f"arrowheads: published ({described(content)})", fontsize="medium")
    legend_below(axes)
    return figure


def forecast_figure(content: Mapping[str, Any], names: Sequence[str]):
    """Forecasts against the spiky series over one stretch of the test part, one panel a model.

    Args:
        content: with curves "forecast/series", "forecast/brief/<model>", "forecast/trained/<model>", raw values over
            the same steps.
        names: of the models.
    """
    figure, panels = _panels(len(names), 2.3, sharex=True, sharey=True, gridspec_kw={"hspace": 0.5})
    series = content["curves"]["forecast/series"]
    for axes, name in zip(panels[:, 0], names, strict=True):
        colour = style_of(name)["color"]
        axes.plot(series, color="0.75", linewidth=3)
        axes.plot(content["curves"][f"forecast/trained/{name}"], color=colour, linewidth=1.1)
        brief = content["curves"].get(f"forecast/brief/{name}")
        if brief:
            axes.plot(brief, color="0.1", linewidth=1.1, linestyle=":")
        axes.set_ylabel("series, raw")
        axes.set_title(style_of(name)["label"], fontsize="medium")
        axes.tick_params(labelbottom=True)
    last = panels[-1, 0]
    last.set_xlabel("test step")
    for label, style in (
        ("series", {"color": "0.75", "linewidth": 3}),
        ("trained", {"color": "0.3"}),
        ("after a few epochs", {"color": "0.1", "linestyle": ":"}),
    ):
        last.plot([], [], label=label, **style)
    legend_below(last, columns=3)
    return figure


def split_error_figure(content: Mapping[str, Any], names: Sequence[str]):
    """Test error inside and outside spikes, one group of bars a forecaster: median and range over the seeds.

    Args:
        content: with values "inside_<name>", "outside_<name>", z-score units.
        names: of the forecasters.
    """
    import numpy as np

    from reproduction.book.results import numbers

    figure, panels = _panels(1, 4.2)
    axes = panels[0, 0]
    for offset, (key, colour) in enumerate((("inside", "0.25"), ("outside", "0.65"))):
        values = [numbers(content["values"][f"{key}_{name}"]) for name in names]
        middle = np.array([np.median(v) for v in values])
        reach = np.array([[m - min(v), max(v) - m] for m, v in zip(middle, values)]).T
        axes.bar(
            np.arange(len(names)) + 0.38 * (offset - 0.5),
            middle,
            0.36,
            yerr=reach,
            color=colour,
            label=f"{key} spikes",
            error_kw={"elinewidth": 1},
        )
    axes.set(yscale="log", ylabel="test MSE, z-score units")
    axes.set_xticks(
        range(len(names)), [style_of(name)["label"] for name in names], rotation=25, ha="right", fontsize="small"
    )
    axes.set_title(described(content), fontsize="medium")
    axes.legend()
    return figure
