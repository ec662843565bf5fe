"""Figures of the earthquake chapter, from a results file's content: the committed full run's or this build's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.ch5_earthquake.task import BANDS, LABELS, OUTPUTS, PAPER, SETTINGS
from reproduction.core.figures import described, select
from reproduction.core.plots import STYLES, legend_below, spread_curves, style_of

FORMS = ("implicit", "implicit_no_skip", "implicit_strict_upper", "linear")
BIASES = ("implicit", "implicit_bias", "eikonet", "eikonet_skip", "eikonet_bias_free", "eikonet_bias_free_skip")
LOOKS = {
    **STYLES,
    "implicit_bias": ("implicit, with biases", 9, "s", "-"),
    "eikonet_bias_free": ("residual MLP, no biases", 2, "D", "--"),
    "eikonet_bias_free_skip": ("residual MLP + skip, no biases", -1, "*", ":"),
    "eikonet_long": ("residual MLP, three times the epochs", 5, "h", ":"),
}
ABSCISSA = (0, *BANDS)
XLABEL = "extrapolation factor k (0: in distribution)"


def rows_of(content: Mapping[str, Any], score: str, setting: str, names: Sequence[str]) -> dict[str, Any]:
    """Model -> (seeds, 10) values of a score against k, those there are."""
    return select(
        {
            name: content["curves"].get(f"{score}/{setting}/{name}")
            for name in names
            if f"{score}/{setting}/{name}" in content["curves"]
        },
        names,
    )


def _against_k(
    axes, content: Mapping[str, Any], score: str, setting: str, names: Sequence[str], ylabel: str, title: str
) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    spread_curves(axes, ABSCISSA, rows_of(content, score, setting, names), xlabel=XLABEL, ylabel=ylabel, styles=LOOKS)
    axes.set_title(title, fontsize="medium")
    axes.set_xticks(ABSCISSA)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def error_figure(content: Mapping[str, Any]):
    """Figure 5.10: test MSE against k, the papers' models and the forms of the implicit model."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.2, 8.6), sharey=True, gridspec_kw={"hspace": 0.62})
    for axes, names, title in zip(panels, (PAPER, FORMS), ("the papers' models", "controls"), strict=True):
        _against_k(axes, content, "mse", "papers", names, "test MSE, scaled labels", f"{title} ({described(content)})")
        legend_below(axes)
    return figure


def bias_figure(content: Mapping[str, Any]):
    """Test MSE of samples on one side of the jump against k, models with biases and without."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.8))
    _against_k(
        axes,
        content,
        "mse_unbroken",
        "papers",
        BIASES,
        "test MSE away from the jump",
        f"biases or none ({described(content)})",
    )
    legend_below(axes)
    return figure


def loss_figure(content: Mapping[str, Any]):
    """Training loss against the epoch, the models of the papers' setting."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.8))
    names = (*BIASES, "implicit_no_skip", "implicit_strict_upper", "eikonet_long")
    for name, rows in rows_of(content, "loss", "papers", names).items():
        spread_curves(
            axes,
            range(1, len(rows[0]) + 1),
            {name: rows},
            xlabel=f"epoch ({described(content)})",
            ylabel="training loss",
            styles=LOOKS,
        )
    legend_below(axes)
    return figure


def label_figure(
    content: Mapping[str, Any],
    names: Sequence[str] = ("implicit", "implicit_bias", "eikonet", "eikonet_bias_free_skip"),
):
    """Figure 5.11: mean squared error of each label against k."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(4, 1, figsize=(6.2, 11), sharex=True, gridspec_kw={"hspace": 0.2})
    for axes, output in zip(panels, OUTPUTS, strict=True):
        _against_k(axes, content, f"mse_{output}", "papers", names, "test MSE", output)
        axes.set_xlabel("")
    panels[-1].set_xlabel(f"{XLABEL}; {described(content)}")
    legend_below(panels[-1])
    return figure


def setting_figure(content: Mapping[str, Any], names: Sequence[str] = ("papers", "anchor", "wide")):
    """Test MSE against k in the settings that differ in their coordinates and networks."""
    import matplotlib.pyplot as plt

    shown = [name for name in names if rows_of(content, "mse", name, PAPER)]
    figure, panels = plt.subplots(
        len(shown),
        1,
        figsize=(6.2, 2.9 * len(shown)),
        sharex=True,
        sharey=True,
        squeeze=False,
        gridspec_kw={"hspace": 0.2},
    )
    for axes, name in zip(panels[:, 0], shown, strict=True):
        _against_k(axes, content, "mse", name, (*PAPER, "linear"), "test MSE", SETTINGS[name].label)
        axes.set_xlabel("")
    panels[-1, 0].set_xlabel(f"{XLABEL}; {described(content)}")
    legend_below(panels[-1, 0])
    return figure


def longitude_figure(content: Mapping[str, Any]):
    """Mean error of the longitude in degrees against k: on the line from 0 to 360, round the circle, and away from the
    jump."""
    import matplotlib.pyplot as plt

    scores = {
        "longitude_deg": "on the line from 0° to 360°",
        "longitude_circular_deg": "round the circle",
        "longitude_unbroken_deg": "source and stations on one side of the jump",
    }
    figure, panels = plt.subplots(3, 1, figsize=(6.2, 9), sharex=True, sharey=True, gridspec_kw={"hspace": 0.2})
    for axes, (score, title) in zip(panels, scores.items(), strict=True):
        _against_k(
            axes,
            content,
            score,
            "papers",
            (*PAPER, "eikonet_skip", "linear"),
            "mean |error| of\nlongitude (degrees)",
            title,
        )
        axes.set_xlabel("")
    panels[-1].set_xlabel(f"{XLABEL}; {described(content)}")
    legend_below(panels[-1])
    return figure


def depth_time_figure(content: Mapping[str, Any]):
    """Errors of depth (above) and origin time (below) when asked alone, and with the epicentre given."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.2, 6.8), sharex=True, gridspec_kw={"hspace": 0.16})
    lines = {
        "papers": ("-", "all four labels"),
        "depth_time": ("--", "depth and time alone"),
        "depth_time_given": (":", "epicentre given"),
    }
    for axes, score, ylabel in zip(
        panels, ("depth_km", "time_s"), ("mean |error| of depth (km)", "mean |error| of time (s)"), strict=True
    ):
        for name, (line, words) in lines.items():
            for model in PAPER:
                rows = content["curves"].get(f"{score}/{name}/{model}")
                if rows is None:
                    continue
                values = np.array([[float(v) for v in row] for row in rows])
                style = style_of(model) | {"linestyle": line, "label": f"{LABELS[model]}, {words}"}
                axes.plot(ABSCISSA, np.median(values, axis=0), **style)
                if len(rows) > 1:
                    axes.fill_between(
                        ABSCISSA, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.12, linewidth=0
                    )
        axes.set(ylabel=ylabel)
    panels[-1].set_xticks(ABSCISSA)
    panels[-1].set_xlabel(f"{XLABEL}; {described(content)}")
    legend_below(panels[-1], columns=1)
    return figure
