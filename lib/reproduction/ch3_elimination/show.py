"""Figures and tables of the notebook of elimination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch3_elimination.compute import ORDERS
from reproduction.ch3_elimination.earthquakes import N_STATIONS, QuakeElimination, SampledRows
from reproduction.ch3_elimination.elastic import STEPS
from reproduction.ch3_elimination.measures import CLAIMED, ELASTIC, Curves
from reproduction.core.figures import described
from reproduction.core.plots import legend_below

STYLES = (("correlation", "o", "-"), ("magnitude", "v", "--"), ("random", "x", ":"))  # order, marker, line
CERTIFIED = {
    "zeros certified in a row, median": "certified_per_row_{}",
    "share of all zeros, %": "certified_share_of_zeros_{}",
    "certified but used": "wrong_{}",
    "in all rows: states": "states_out_{}",
    "pixels": "inputs_out_{}",
    "second pass": "second_pass_{}",
    "rows with a slack ball": "slack_{}",
    "largest change of an optimum": "value_change_{}",
}


def scale_names(factor: float) -> dict[str, str]:
    """Units of the rows in words."""
    return {"theorem": "Theorem 2.4", "wide": f"Theorem 2.4 times {factor:g}"}


def order_table(curves: Curves, names: Mapping[str, str]):
    """Accuracy with the network's read-out and with a refitted one, at each share removed."""
    import pandas as pd

    rows = {
        f"{names[scale]}: {order}": {
            f"{share:g} %": f"{summary([c['accuracy'][i] for c in each])}; {summary([c['head'][i] for c in each])}"
            for i, share in enumerate(each[0]["share"])
        }
        for (scale, order), each in curves.items()
    }
    return pd.DataFrame(rows).fillna("")


def error_bars(axes, each: Sequence[Mapping[str, Any]], key: str, style: tuple[str, str, str]) -> None:
    """Median and range over the seeds of a quantity against the share removed."""
    order, marker, line = style
    y = np.array([[float(value) for value in curve[key]] for curve in each])
    middle = np.median(y, axis=0)
    bars = [middle - y.min(axis=0), y.max(axis=0) - middle]
    axes.errorbar(each[0]["share"], middle, yerr=bars, marker=marker, linestyle=line, capsize=2, label=order)


def removal_figure(source: Mapping[str, Any], names: Mapping[str, str]):
    """Figure 9, left: accuracy with a refitted read-out against the share removed (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 1, figsize=(6.4, 9), sharex=True)
    for axes, scale in zip(panels, ("wide", "theorem"), strict=True):
        for style in STYLES:
            error_bars(axes, source["curves"][f"removal/{scale}/{style[0]}"], "head", style)
        reached = np.median(source["values"]["accuracy_network"])
        certified = np.median(source["values"][f"certified_columns_{scale}"])
        axes.axhline(reached, color="0.4", linewidth=0.9, label="network")
        axes.axvspan(0, certified, color="0.85", label="certified in all rows")
        axes.set(ylabel="test accuracy (%)", title=f"{names[scale]}, refitted read-out ({described(source)})")
        axes.title.set_fontsize("medium")
    panels[1].set_xlabel("features removed (%)")
    legend_below(panels[1])
    return figure


def drop_table(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drops at the shares that the report states, as arguments of `Results.rows`."""
    shown = [name for name in CLAIMED if f"drop_head_{name}" in values]
    return {
        "parts": {f"{name} % removed": name for name in shown},
        "columns": {
            "drop, points, read-out refitted": "drop_head_{}",
            "network's read-out": "drop_accuracy_{}",
            "at random, refitted": "drop_random_head_{}",
            "at random, network's": "drop_random_accuracy_{}",
        },
        "texts": {
            f"{name} % removed": {"published": str(published_value(f"ms-elim-fashion-{name}"))} for name in shown
        },
    }


def kept_table(curves: Curves, names: Mapping[str, str], n_features: int):
    """States among the columns that are left, where at least half are gone."""
    import pandas as pd

    rows: dict[str, dict[str, str]] = {}
    for (scale, order), each in curves.items():
        for i, share in enumerate(each[0]["share"]):
            if share >= 50:
                text = f"{summary([c['states_kept'][i] for c in each])} of {n_features - each[0]['removed'][i]}"
                rows.setdefault(f"{names[scale]}: {order}", {})[f"{share:g} % removed"] = text
    return pd.DataFrame(rows).T.fillna("")


def conic_table(values: Mapping[str, Any], conic: Sequence[Mapping[str, Any]]):
    """The conic solver's dual, from the recorded values and `compute.conic_rows`."""
    import pandas as pd

    rows = {
        "largest difference of dual and primal value": f"{values['dual_difference']:.1e}",
        "seconds of the conic solver a row": f"{values['conic_seconds_a_row']:.2g}",
        "times the sphere test, solve included": f"{values['conic_over_sphere']:.0f}",
        "features used, all rows": str(sum(row["used"] for row in conic)),
    }
    return pd.Series(rows, name="measured").to_frame()


def time_table(curves: Curves, names: Mapping[str, str]) -> dict[str, Any]:
    """Times in units of the fit with all features, as arguments of `Results.rows`."""
    shares = curves["wide", "correlation"][0]["share"]
    columns = {f"{share:g} % removed": f"refit_time_{{}}_{share:g}" for share in shares}
    columns["screening pass, tight solve included"] = "screening_time_{}"
    return {"parts": {label: scale for scale, label in names.items()}, "columns": columns}


def elastic_table(values: Mapping[str, Any]) -> dict[str, Any]:
    """The elastic net beside the LASSO, as arguments of `Results.rows`."""
    weights = {name: values[f"elastic_weight_{name}"] for name in ELASTIC}
    return {
        "parts": {
            f"{'elastic net, weight ' + format(weights[name], 'g') if weights[name] else 'LASSO'}, radius"
            f" {values[f'elastic_radius_{name}']:g}": name
            for name in ELASTIC
        },
        "columns": {
            "accuracy, %": "elastic_accuracy_{}",
            "read-out refitted": "elastic_head_{}",
            "coefficients used a row": "elastic_used_{}",
            "zeros certified, %": "elastic_certified_{}",
        },
    }


def unfinished_table() -> dict[str, Any]:
    """Rows that are not solved to the end, as arguments of `Results.rows`."""
    return {
        "parts": {f"{steps} gradient steps": str(steps) for steps in STEPS},
        "columns": {
            "gap, relative": "unfinished_gap_{}",
            "zeros of the rows that the solution uses": "unfinished_primal_wrong_{}",
            "zeros proved by the dual, %": "unfinished_dual_share_{}",
            "of these used by the solution": "unfinished_dual_wrong_{}",
        },
    }


def station_table(located: Sequence[QuakeElimination]) -> dict[str, Any]:
    """Rises of the error of earthquakes after whole stations went, as arguments of `Results.rows`."""
    stations = located[0].stations
    return {
        "parts": {
            (order, f"{count} of {N_STATIONS}"): f"{order}_{count}"
            for order in stations
            for count in stations[order]["count"]
        },
        "columns": {
            "MSE": "quake_stations_rise_mse_{}",
            "read-out refitted": "quake_stations_rise_head_{}",
            "network trained without them": "quake_stations_rise_retrained_{}",
        },
        "corner": ("rise after stations went by", "stations removed"),
        "digits": 2,
    }


def rise_table(located: Sequence[QuakeElimination]) -> dict[str, Any]:
    """Rises of the error of earthquakes after removal, as arguments of `Results.rows`."""
    return {
        "parts": {
            (order, f"{share:g} %"): f"{order}_{share:g}"
            for order in ORDERS
            for share in located[0].curves[order]["share"][1:]
        },
        "columns": {
            "MSE": "quake_rise_mse_{}",
            "longitude (°)": "quake_rise_longitude_deg_{}",
            "latitude (°)": "quake_rise_latitude_deg_{}",
            "% of the way to the best constant": "quake_lost_{}",
        },
        "corner": ("rise after removal by", "of"),
        "digits": 2,
    }


def rows_sentence(rows: SampledRows) -> str:
    """How many rows of the wide teacher were screened, and how long it took."""
    return (
        f"{rows.features} features, {rows.n_rows} rows, {rows.seconds_a_row:.2g} CPU seconds a row for screening;"
        f" {summary(rows.slack)} % of them inside the ball"
    )


def baseline_table(each: Sequence[QuakeElimination]):
    """Test MSE of the trained models beside constants."""
    import pandas as pd

    loss = published_value("ms-elim-quake-baselines")
    rows = {
        "training mean": ("", "constant"),
        "best constant: the variance of the labels": ("", "variance"),
        "residual MLP": (f"{loss['EikoNet']:g}", "teacher"),
        "the same on its training events": ("", "train_teacher"),
        "implicit model": (f"{loss['implicit']:g}", "implicit"),
    }
    return pd.DataFrame(
        {
            row: {"published": text, "test MSE": summary([getattr(e, key) for e in each])}
            for row, (text, key) in rows.items()
        }
    ).T


def quake_removal_table(each: Sequence[QuakeElimination]):
    """Test MSE with the teacher's read-out, and with a refitted one, at each share of features removed."""
    import pandas as pd

    shares = each[0].curves[ORDERS[0]]["share"]
    return pd.DataFrame(
        {
            order: {
                f"{share:g} %": (
                    f"{summary([e.curves[order]['mse'][k] for e in each])};"
                    f" {summary([e.curves[order]['head'][k] for e in each])}"
                )
                for k, share in enumerate(shares)
            }
            for order in ORDERS
        }
    )


def rows_table(sampled_rows: Sequence[SampledRows]):
    """Residual of sampled rows of the wide teacher, relative to the size of their targets, at each share removed."""
    import pandas as pd

    return pd.DataFrame(
        {
            order: {
                f"{share:g} %": summary([r.residual[order][k] for r in sampled_rows], 2)
                for k, share in enumerate(sampled_rows[0].share)
            }
            for order in ORDERS
        }
    )


def quake_figure(content: Mapping[str, Any]):
    """Figure 9, right: test MSE against the share of features removed (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.4))
    for style in STYLES:
        error_bars(axes, content["curves"][f"quake/{style[0]}"], "mse", style)
    for key, label, line in (("variance", "best constant", "-."), ("teacher", "residual MLP", "-")):
        axes.axhline(
            np.median([float(v) for v in content["values"][f"quake_{key}"]]),
            color="0.4",
            linewidth=0.9,
            linestyle=line,
            label=label,
        )
    axes.set(xlabel="features removed (%)", ylabel="test MSE, scaled labels", yscale="log")
    axes.set_title(f"45 stations ({described(content)})", fontsize="medium")
    legend_below(axes)
    return figure
