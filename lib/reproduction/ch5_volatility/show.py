"""Figures of the volatility chapter, from a results file's content: the committed full run's or this build's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.ch5_volatility.compute import CONTROL_LABELS
from reproduction.ch5_volatility.task import FORMS, LABELS, PAPER, YEAR
from reproduction.core.figures import described
from reproduction.core.plots import legend_below, style_of

# The row that the papers call ImplicitRNN is drawn once, with that model.
PUBLISHED = ("transformer", "lstm", "linear", "mlp", "implicit_rnn")
TABLE_CONTROLS = (
    "zero",
    "mean",
    "median",
    "least_mape_constant",
    "persistence",
    "price_regression",
    "har",
    "log_har",
    "log_har_scaled",
)
FORM_LABELS = {
    "price": "prices →\nvariance\n(the papers)",
    "price_mape": "the same,\nrelative loss",
    "price_sd": "prices →\ndeviation",
    "difference": "differences →\ndeviation",
    "difference_mape": "the same,\nrelative loss",
}


def _palette():
    import seaborn

    return seaborn.color_palette("colorblind")


def jump_figure(content: Mapping[str, Any]):
    """Figure 5.2: the 21-day mean of the ten-minute variance on a logarithmic axis, one line a seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 3.6))
    lines = ("-", "--", ":", "-.")
    for place, seed in enumerate(content["seeds"]):
        curve = content["curves"][f"actual/{seed}"]
        axes.plot(
            np.array(curve["date"], dtype="datetime64[D]"),
            curve["value"],
            color=_palette()[place % 10],
            linestyle=lines[place % 4],
            linewidth=1.3,
            label=f"market of seed {seed}",
        )
    axes.axvline(np.datetime64(f"{YEAR}-01-01"), color="0.4", linewidth=1, linestyle=":")
    axes.set(yscale="log", ylabel="variance of VWAP over 10 min,\n21-day mean ($²)", xlabel="year")
    axes.set_title(f"synthetic market ({described(content)})", fontsize="medium")
    legend_below(axes, columns=3)
    return figure


def table_figure(content: Mapping[str, Any]):
    """MAPE of the papers' models in their form and of the controls, beside the published values."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    models = [
        name for name in (*PAPER, "mlp_bias_free", "neural_ode") if f"mape_price_{name}_train" in content["values"]
    ]
    rows = [("price", name, LABELS[name]) for name in models] + [
        ("control", name, CONTROL_LABELS[name]) for name in TABLE_CONTROLS
    ]
    sides = (("train", _palette()[0], "o", "training years"), (YEAR, _palette()[3], "s", str(YEAR)))
    figure, axes = plt.subplots(figsize=(6.2, 6.6))
    for place, (group, name, _) in enumerate(rows):
        for side, colour, marker, _label in sides:
            sample = [float(v) for v in content["values"][f"mape_{group}_{name}_{side}"]]
            shift = -0.16 if side == "train" else 0.16
            axes.plot([min(sample), max(sample)], [place + shift] * 2, color=colour, linewidth=2.2, alpha=0.5)
            axes.plot(np.median(sample), place + shift, marker, color=colour)
            if group == "price" and name in PUBLISHED:
                value = float(content["values"][f"published_{name}_{side}"])
                axes.plot(value, place + shift, marker, color=colour, markerfacecolor="white", markersize=7)
    for _, colour, marker, label in sides:
        axes.plot([], [], marker, color=colour, label=f"{label}, measured")
        axes.plot([], [], marker, color=colour, markerfacecolor="white", markersize=7, label=f"{label}, published")
    axes.axvline(1, color="0.2", linewidth=1.2, linestyle="--", label="the forecast 0")
    axes.axhline(len(models) - 0.5, color="0.7", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for _, _, label in rows])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="MAPE (units of 1)")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"models in the papers' form, then controls ({described(content)})", fontsize="medium")
    axes.grid(axis="y", visible=False)
    legend_below(axes, columns=2)
    return figure


def forms_figure(content: Mapping[str, Any]):
    """log-R² of every model in every form, training years above 2021."""
    import matplotlib.pyplot as plt

    forms = [form for form in FORM_LABELS if any(f"log_r2_{form}_{name}_train" in content["values"] for name in LABELS)]
    names = [name for name in LABELS if name != "transformer"]
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 7.4), sharex=True, sharey=True, gridspec_kw={"hspace": 0.16})
    floor = -1.5
    for axes, side in zip(panels, ("train", YEAR), strict=True):
        for place, name in enumerate(names):
            style = style_of(name) | {"linestyle": "none"}
            where, middle = [], []
            for column, form in enumerate(forms):
                sample = content["values"].get(f"log_r2_{form}_{name}_{side}")
                if sample is None:
                    continue
                x, values = column + 0.09 * (place - (len(names) - 1) / 2), np.array([float(v) for v in sample])
                if np.median(values) < floor:
                    axes.annotate("▾", (x, floor), ha="center", va="bottom", color=style["color"])
                    continue
                axes.plot(
                    [x, x], [max(values.min(), floor), values.max()], color=style["color"], linewidth=2, alpha=0.5
                )
                where.append(x)
                middle.append(np.median(values))
            axes.plot(where, middle, **style)
        level = np.median([float(v) for v in content["values"][f"log_r2_control_log_har_{side}"]])
        axes.axhline(level, color="0.1", linestyle="--", linewidth=1.2, label="log-HAR")
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.set(ylabel="log-R²", ylim=(floor, 1))
        axes.set_title("training years" if side == "train" else f"{YEAR} ({described(content)})", fontsize="medium")
    panels[-1].set_xticks(range(len(forms)), [FORM_LABELS[form] for form in forms])
    panels[-1].set_xlim(-0.5, len(forms) - 0.5)
    # Labels of three lines need more room above the legend than labels of one.
    panels[-1].legend(loc="upper center", bbox_to_anchor=(0.45, -0.3), ncols=3, borderaxespad=0, columnspacing=1.2)
    return figure


def follow_figure(content: Mapping[str, Any], names: Sequence[str] = ("linear", "mlp_bias_free", "implicit")):
    """21-day means of forecast and truth from 2020 on, the first seed: prices above, differences below."""
    import matplotlib.pyplot as plt
    from matplotlib.dates import ConciseDateFormatter

    seed = content["seeds"][0]
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 7.4), sharex=True, sharey=True, gridspec_kw={"hspace": 0.16})
    start = np.datetime64(f"{YEAR - 1}-01-01")
    truth = content["curves"][f"actual/{seed}"]
    low = high = None
    for axes, form in zip(panels, ("price", "difference"), strict=True):
        curves = [("actual", truth)] + [(name, content["curves"][f"follow/{form}/{name}"]) for name in names]
        for name, curve in curves:
            date, value = np.array(curve["date"], dtype="datetime64[D]"), np.array([float(v) for v in curve["value"]])
            shown = date >= start
            if name == "actual":
                low, high = value[shown].min(), value[shown].max()
                axes.plot(date[shown], value[shown], color="0.1", linewidth=2.4, alpha=0.55, label="actual")
            else:
                axes.plot(date[shown], value[shown], markevery=12, **style_of(name))
        axes.axvline(np.datetime64(f"{YEAR}-01-01"), color="0.4", linewidth=1, linestyle=":")
        axes.set(yscale="log", ylabel="21-day mean ($²)", ylim=(low / 4, high * 3))
        axes.set_title(
            {"price": "prices → variance, as the papers", "difference": "differences → standard deviation"}[form],
            fontsize="medium",
        )
    panels[-1].set_xlabel(f"month (market of seed {seed}, {content['profile']} profile)")
    panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(panels[-1].xaxis.get_major_locator(), show_offset=False))
    legend_below(panels[-1], columns=2)
    return figure


def calibration_figure(
    content: Mapping[str, Any], names: Sequence[str] = ("linear", "mlp", "mlp_bias_free", "implicit", "implicit_rnn")
):
    """Mean forecast over mean variance in 2021 against the variance of the past hour: prices above, differences
    below."""
    import matplotlib.pyplot as plt

    edges = np.array([float(v) for v in content["values"]["level_edges"]])
    middle = np.sqrt(edges[:-1] * edges[1:])
    seen = float(np.median([float(v) for v in content["values"]["train_level_99"]]))
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 7.4), sharex=True, sharey=True, gridspec_kw={"hspace": 0.16})
    for axes, form in zip(panels, ("price", "difference"), strict=True):
        for name in names:
            rows = content["curves"].get(f"calibration/{form}/{name}/{YEAR}")
            if rows is None:
                continue
            values = np.array([[float(v) for v in row] for row in rows])
            known = np.isfinite(values).any(axis=0)
            values = np.where(values > 0, values, np.nan)[:, known]
            style = style_of(name)
            with np.errstate(all="ignore"):
                axes.plot(middle[known], _median(values), **style)
                if len(rows) > 1:
                    axes.fill_between(middle[known], *_range(values), color=style["color"], alpha=0.15, linewidth=0)
        axes.axvspan(edges[0], seen, color="0.9", zorder=0)
        axes.axhline(1, color="0.3", linewidth=1)
        axes.set(
            xscale="log",
            yscale="log",
            ylabel=f"mean forecast / mean variance, {YEAR}",
            ylim=(3e-4, 60),
            xlim=(edges[0], edges[-1]),
        )
        axes.set_title(
            {"price": "prices → variance, as the papers", "difference": "differences → standard deviation"}[form],
            fontsize="medium",
        )
    panels[-1].set_xlabel("variance of the past hour ($²); grey: below the 99 % quantile of training")
    legend_below(panels[-1], columns=2)
    return figure


def _median(values: np.ndarray) -> np.ndarray:
    return np.array(
        [np.median(column[np.isfinite(column)]) if np.isfinite(column).any() else np.nan for column in values.T]
    )


def _range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = [
        (column[np.isfinite(column)].min(), column[np.isfinite(column)].max())
        if np.isfinite(column).any()
        else (np.nan, np.nan)
        for column in values.T
    ]
    return np.array([end[0] for end in ends]), np.array([end[1] for end in ends])


def form_table(names: Sequence[str]):
    """Inputs, target, scaling, loss and number of models of the forms in which the task is put."""
    import pandas as pd

    rows = {
        name: {
            "inputs": form.inputs,
            "target": form.target,
            "scaling": form.scaling,
            "loss": form.loss,
            "models": len(form.models),
        }
        for name, form in FORMS.items()
        if name in names
    }
    return pd.DataFrame(rows).T
