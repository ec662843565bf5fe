"""Figures and tables of the ResNet-20 study: accuracy against sparsity, R^2 by layer, accuracy against images, models
at each iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import numbers, summary
from reproduction.ch3_resnet20_cifar.compute import Task
from reproduction.ch3_resnet20_cifar.kernels import CONTROLS
from reproduction.ch3_resnet20_cifar.measures_of_work import OBJECTIVES, WHOLE, Penalised, iterate_key
from reproduction.ch3_resnet20_cifar.tables import key_of, published_row
from reproduction.core.figures import described
from reproduction.core.plots import legend_below
from reproduction.core.sparsity_figures import style

# name -> (label, colour of the colour-blind palette, marker, line): literal fits solid, repaired ones dash-dotted,
# controls dashed, published without.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "published": ("thesis, Table 3.1", 7, "*", "none"),
    "std": ("literal, deviations", 0, "o", "-"),
    "std_refit": ("same, refit, new head", 9, "s", "-."),
    "theorem": ("literal, Theorem 2.4", 4, "^", "-"),
    "uniform": ("literal, uniform, kernels", 3, "v", "-"),
    "student": ("own states, refit, head", 2, "D", "-."),
    "student_large": ("same, more images", 1, "P", "-."),
    "one_sided": ("same, one-sided refit", 6, "p", "-."),
    "effect": ("same, penalties by effect", 5, "d", "-."),
    "kernels": ("path, own states, refit", 4, "h", "-."),
    "magnitude": ("magnitude", 5, "<", "--"),
    "magnitude_bias": ("magnitude, biases", 7, ">", "--"),
    "magnitude_refit": ("magnitude, own states, refit", 0, "X", "--"),
    "random_refit": ("random weights, the same", 1, "1", "--"),
    "l1": ("l1", 0, "o", "-"),
    "perspective": ("perspective, knee 1", 3, "x", "-"),
    "perspective_small": ("perspective, small knee", 4, "^", "-"),
    "perspective_student": ("perspective, own states, refit", 2, "D", "-."),
    "sim": ("SIM paper", 7, "*", "none"),
    "quoted": ("SSS, SPR, MLA, as quoted", 5, "P", "none"),
    "l1_forced": ("literal, network's states", 0, "o", "--"),
    "l1_own": ("literal, own states", 0, "o", "-"),
    "refit_forced": ("refit, network's states", 9, "s", "--"),
    "refit_own": ("refit, own states", 9, "s", "-"),
    "student_forced": ("fitted on own states, network's", 2, "D", "--"),
    "student_own": ("fitted on own states, own", 2, "D", "-"),
}
QUOTED = ("sss-p1", "sss-p2", "spr-1", "spr-2", "mla-1", "mla-2")


def look(name: str) -> dict[str, Any]:
    """Matplotlib keywords of a curve of `STYLES`.

    Raises: ValueError for another name.
    """
    import seaborn

    if name not in STYLES:
        raise ValueError(f"no style for the curve {name!r}: known are {', '.join(STYLES)}")
    label, colour, marker, line = STYLES[name]
    return {"label": label, "color": seaborn.color_palette("colorblind")[colour], "marker": marker, "linestyle": line}


def ranged(axes, x: Sequence[Sequence[float]], y: Sequence[Sequence[float]], **keywords: Any) -> None:
    """Medians of (seeds, k) points in order of x, bars from the smallest to the largest y."""
    middle = np.median(np.asarray(x, float), axis=0)
    values = np.asarray(y, float)
    centre, order = np.median(values, axis=0), np.argsort(middle)
    bars = np.abs(np.vstack([values.min(axis=0), values.max(axis=0)]) - centre)
    axes.errorbar(middle[order], centre[order], yerr=bars[:, order], capsize=2, linewidth=1.4, markersize=5, **keywords)


def frontier(
    curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    counts: Sequence[tuple[str, str, Sequence[str]]],
    *,
    network: float,
    title: str,
    lowest: float = 0.0,
    floor: float = 0.0,
):
    """Accuracy against sparsity, a panel for each count.

    Args:
        curves: name -> a curve for each seed, {count: [...], "accuracy": [...]}.
        counts: (key of the sparsity, label, names that are drawn in its panel).
        network: accuracy of the network itself. lowest: left edge, per cent; floor: lower edge.
    """
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        len(counts), 1, figsize=(6.2, 4.9 * len(counts)), squeeze=False, gridspec_kw={"hspace": 0.62}
    )
    for axes, (key, label, names) in zip(panels[:, 0], counts, strict=True):
        for name in names:
            if curves.get(name):
                ranged(axes, [c[key] for c in curves[name]], [c["accuracy"] for c in curves[name]], **look(name))
        axes.axhline(network, color="0.5", linewidth=1, linestyle=":")
        axes.set(xlabel=label, ylabel="test accuracy (%)", xlim=(lowest, 100), ylim=(floor, None))
        legend_below(axes)
    panels[0, 0].set_title(title, fontsize="medium")
    return figure


def by_layer(found: Mapping[str, Mapping[str, Sequence[float]]], title: str, lowest: float = -1.0):
    """R^2 of each layer's pre-activations, rows fed with the network's states and with the model's own; below `lowest`
    a mark on the edge."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.6))
    for name, each in found.items():
        for key in ("forced", "own"):
            values = np.array([float(v) for v in each[key]])
            axes.plot(np.arange(2, len(values) + 2), np.maximum(values, lowest), **look(f"{name}_{key}"), clip_on=False)
    axes.set(xlabel="ReLU layer", ylabel="share of variance explained (R²)", ylim=(lowest, 1.02), title=title)
    axes.title.set_fontsize("medium")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend_below(axes)
    return figure


def against_images(
    images: Mapping[str, Sequence[float]],
    curves: Mapping[str, Sequence[float]],
    labels: Mapping[str, str],
    *,
    network: float,
    title: str,
):
    """Accuracy against the number of images of the fit, one seed; images and curves by name."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.2, 4.6))
    for position, (name, values) in enumerate(curves.items()):  # names of no style: one by position
        axes.plot(images[name], values, **(style(f"curve {name}", position) | {"label": labels[name]}))
    axes.axhline(network, color="0.5", linewidth=1, linestyle=":")
    axes.set(xlabel="images of the fit", ylabel="test accuracy (%)", xscale="log", ylim=(0, None), title=title)
    axes.title.set_fontsize("medium")
    ticks = sorted({value for each in images.values() for value in each})
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize="small")
    axes.minorticks_off()
    legend_below(axes)
    return figure


def by_iteration(
    curves: Mapping[str, Mapping[str, Sequence[float]]], kappas: Sequence[float], *, network: float, title: str
):
    """Accuracy and gap at each outer iteration, cold and warm, a colour for each radius."""
    import matplotlib.pyplot as plt
    import seaborn

    palette = seaborn.color_palette("colorblind")
    figure, panels = plt.subplots(2, 1, figsize=(6.2, 8.2), sharex=True, gridspec_kw={"hspace": 0.14})
    for axes, key, label in zip(
        panels, ("accuracy", "gap"), ("test accuracy (%)", "median gap / (||z||²/2)"), strict=True
    ):
        for k, kappa in enumerate(kappas):
            for start, line, marker in (("cold", "--", "x"), ("warm", "-", "o")):
                values = curves[f"{start}/{kappa:g}"][key]
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    line,
                    marker=marker,
                    color=palette[k],
                    label=f"κ = {kappa:g}, {start}",
                )
        axes.set(ylabel=label)
    panels[0].axhline(network, color="0.5", linewidth=1, linestyle=":")
    panels[0].set_title(title, fontsize="medium")
    panels[1].set(xlabel="outer iteration", yscale="log")
    panels[1].xaxis.get_major_locator().set_params(integer=True)
    legend_below(panels[1])
    return figure


def tested(source: Mapping[str, Any]) -> float:
    """The recorded accuracy of the network itself."""
    return float(source["values"]["network_accuracy_tested"])


def matching_figure(source: Mapping[str, Any]):
    """R^2 by layer (a results file's content)."""
    return by_layer(source["curves"]["matching"], f"rows of every position ({described(source)})")


def frontier_figure(source: Mapping[str, Any]):
    """Table 3.1 as curves (a results file's content)."""
    drawn = dict(source["curves"]["frontier"]) | {"published": [source["curves"]["printed"]]}
    literal, repaired = ("std", "std_refit", "theorem", "uniform"), ("student", "student_large", "one_sided", "effect")
    panels = [
        ("rows", "sparsity of the entries of rows (%)", ("published", *literal, *repaired)),
        ("kernels", "sparsity of the kernels' weights (%)", ("kernels", "uniform", *CONTROLS)),
    ]
    return frontier(drawn, panels, network=tested(source), title=f"ResNet-20, CIFAR-10 ({described(source)})")


def penalty_figure(source: Mapping[str, Any]):
    """Figure 2 of the SIM paper with the published drops (a results file's content)."""
    network = tested(source)
    drawn = {name: source["curves"][f"penalty/{name}"] for name in OBJECTIVES}
    known = {
        "sim": [published_value(f"sim-t1-sim-{number}") for number in (1, 2)],
        "quoted": [published_value(f"sim-t1-{name}") for name in QUOTED],
    }
    known["sim"].append({"sparsity, %": 41, "accuracy drop, points": 0})
    for name, points in known.items():
        sparsity = [p["sparsity, %"] for p in points]
        drawn[name] = [{"kernels": sparsity, "accuracy": [network + p["accuracy drop, points"] for p in points]}]
    panels = [("kernels", "sparsity of the kernels' weights (%)", ("sim", "quoted", *OBJECTIVES))]
    title = f"ResNet-20, CIFAR-10 ({described(source)})"
    return frontier(drawn, panels, network=network, title=title, floor=network - 20, lowest=10)


def data_figure(source: Mapping[str, Any]):
    """Accuracy against the number of images (a results file's content)."""
    data = source["curves"]["data"]
    shown = {name: values for name, values in data["lines"].items() if name != "sparsity" and values}
    at = {name: data["images"][name.split("/")[0]] for name in shown}
    labels = {"rows": "rows, own states, a fifth kept", "kernels": "kernels, own states"}
    for name in shown:
        if "/" in name:
            labels[name] = f"rows, network's states, refit, κ = {name.split('/')[1]}"
    title = f"ResNet-20, CIFAR-10 ({described(source)})"
    return against_images(at, shown, labels, network=tested(source), title=title)


def iteration_figure(source: Mapping[str, Any]):
    """Models at each outer iteration (a results file's content)."""
    start = "iterates/"
    drawn = {name.removeprefix(start): c for name, c in source["curves"].items() if name.startswith(start)}
    radii = [float(kappa) for kappa in source["values"]["radii"]]
    title = f"kernels, uniform scale ({described(source)})"
    return by_iteration(drawn, radii, network=tested(source), title=title)


def task_note(given: Task):
    """Which network and images these are."""
    from IPython.display import Markdown

    real = f"CIFAR-10: {len(given.images):,} training images, a fifth of the whole set; models are tested on"
    return Markdown(f"> {given.banner or f'{real} {len(given.test):,} test images.'}")


def network_table(values: Mapping[str, Any]):
    """Accuracy and sizes of the network, from the recorded values."""
    import pandas as pd

    known = published_value("ch3-baseline-cifar-accuracy")
    sizes = {key.removeprefix("count_"): value for key, value in values.items() if key.startswith("count_")}
    rows = {
        f"test accuracy, % ({values['test_images']:,} images)": summary(values["network_accuracy"], 4),
        "thesis, CIFAR-100": known["002"],
        "SIM paper, CIFAR-100": known["004"],
        "classes of the images": values["classes"],
        "states (rows)": f"{sizes['states']:,}",
        "weights of the kernels": f"{sizes['kernel_weights']:,}",
        "entries of the rows": f"{sizes['row_entries']:,}",
        "entries of the full [A B]": f"{sizes['full_entries']:.4g}",
        "the network's own sparsity in the full [A B], %": f"{sizes['own_full_sparsity']:.3f}",
        "41 % sparsity of the weights leaves, a row": f"{sizes['left_at_41_a_row']:.2f}",
        "90.1 % leaves, a row": f"{sizes['left_at_90_a_row']:.2f}",
        "90.1 % sparsity of the full [A B], times the weights": f"{sizes['full_at_90_over_weights']:,.0f}",
    }
    return pd.Series(rows, name="counted").to_frame()


def unit_table(unit: Mapping[str, Sequence[float]]):
    """What the scales do to some of the layers, from `compute.units`."""
    import pandas as pd

    columns = {
        "s, Theorem 2.4 (median)": unit["theorem"],
        "s, uniform": unit["uniform"],
        "l1 norm of the network's rows": [np.nan, *unit["norm"]],
        "the same in deviations": [np.nan, *unit["std_norm"]],
    }
    last = len(unit["theorem"])
    table = pd.DataFrame(columns, index=pd.Index(range(1, last + 1), name="layer"))
    chosen = table.iloc[sorted({0, 1, 6, 7, 12, 13, last - 1})]
    return chosen.map(lambda value: "" if np.isnan(value) else f"{value:.3g}")


def decades_remark(values: Mapping[str, Any]):
    """What one penalty for all rows does in the uniform scale."""
    from IPython.display import Markdown

    return Markdown(
        "In the uniform scale the largest useful penalty of the first fitted layer is"
        f" {values['penalty_decades_uniform']:.0f} decades above that of the last: **one weight for all rows**, as the"
        " SIM paper has it, either does nothing in the first layers or zeroes the last ones. Penalties below are in"
        " units of deviations."
    )


def ball_table(radii: Sequence[float]) -> dict[str, Any]:
    """Kernels in units of deviations, as arguments of `Results.rows`."""
    return {
        "parts": {f"kernels in deviations, kappa {kappa:g}": key_of(kappa) for kappa in sorted(radii)},
        "columns": {
            "literal, %": "kernel_l1_accuracy_k{}",
            "refit, %": "kernel_refit_accuracy_k{}",
            "refit, head, %": "kernel_refit_head_k{}",
            "sparsity of row entries, %": "kernel_l1_rows_k{}",
            "of kernel weights, %": "kernel_l1_kernels_k{}",
        },
    }


def matching_table(kappa: float) -> dict[str, Any]:
    """R^2 of the layers, as arguments of `Results.rows`."""
    return {
        "parts": {
            f"literal, kappa {kappa:g}": "l1",
            "refit of it": "refit",
            "fitted on own states, more columns": "student",
        },
        "columns": {
            "median R2, network's states": "match_{}_forced_median",
            "median R2, own states": "match_{}_own_median",
            "last layer, network's states": "match_{}_forced_last",
            "last layer, own states": "match_{}_own_last",
        },
    }


def table_31(values: Mapping[str, Any], kappas: Sequence[float], scales: Mapping[str, Sequence[float]]):
    """Table 3.1: accuracy and sparsity of the thesis, and of the fits that were recorded."""
    import pandas as pd

    rows = {}
    show = lambda key, digits=4: summary(values[key], digits) if key in values else ""
    for kappa in kappas:
        known, k = published_row(kappa), key_of(kappa)
        rows[f"κ = {kappa:g}"] = {
            "thesis, accuracy": str(known.get("accuracy, %", "")),
            "literal": show(f"std_l1_accuracy_k{k}"),
            "refit": show(f"std_refit_accuracy_k{k}"),
            "refit, head": show(f"std_refit_head_k{k}"),
            "own states": show(f"student_kappa_{k}_head"),
            **{f"literal, {name}": show(f"{name}_l1_accuracy_k{k}") for name in scales},
            "thesis, sparsity": str(known.get("sparsity, %", "")),
            "entries of rows": show(f"std_l1_rows_k{k}"),
            "kernel weights": show(f"std_l1_kernels_k{k}"),
            "full [A B]": show(f"std_l1_full_k{k}", 6),
            **{f"entries, {name}": show(f"{name}_l1_rows_k{k}") for name in scales},
        }
    return pd.DataFrame(rows).T


def sweep_rows(points: Mapping[str, Sequence[Mapping[str, float]]]):
    """One row a setting: accuracies and sparsities in the three counts, median and range over the seeds."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: {
                "accuracy, %": summary([p["accuracy"] for p in seeds], 4),
                "new head, %": summary([p["head"] for p in seeds], 4),
                "sparsity of row entries, %": summary([p["rows"] for p in seeds]),
                "of kernel weights, %": summary([p["kernels"] for p in seeds], 4),
                "of the full [A B], %": summary([p["full"] for p in seeds], 5),
                "numbers stored": f"{np.median([p['numbers'] for p in seeds]):,.0f}",
            }
            for name, seeds in points.items()
        }
    ).T


def table_1(values: Mapping[str, Any], drops: Mapping[str, Sequence[Mapping[str, Any]]]):
    """Table 1 of the SIM paper: quoted rows as they stand, its own beside what was measured at the same sparsity."""
    import pandas as pd

    rows = {}
    for name in QUOTED:
        known = published_value(f"sim-t1-{name}")
        rows[f"{name.upper()}, as quoted"] = {
            "sparsity, %": str(known["sparsity, %"]),
            "drop, points": str(known["accuracy drop, points"]),
            **dict.fromkeys(drops, "not run"),
        }
    for number in (1, 2):
        known = published_value(f"sim-t1-sim-{number}")
        rows[f"SIM, row {number}"] = {
            "sparsity, %": str(known["sparsity, %"]),
            "drop, points": str(known["accuracy drop, points"]),
            **{label: summary([-v for v in numbers(values[f"{key}_{number}"])]) for label, key in drops.items()},
        }
    return pd.DataFrame(rows).T


def penalty_table(fits: Penalised, weights: Sequence[float], student_weights: Sequence[float]):
    """Sparsity and accuracy under each penalty, from `measures_of_work.penalised`."""
    import pandas as pd

    rows = {}
    for name, each in fits.items():
        for t, weight in enumerate(student_weights if name.endswith("student") else weights):
            rows[f"{name.replace('_', ', ')}, weight {weight:g}"] = {
                "sparsity of kernel weights, %": summary([seed[t]["kernels"] for seed in each]),
                "accuracy, %": summary([seed[t]["accuracy"] for seed in each], 4),
                "new head, %": summary([seed[t]["head"] for seed in each], 4),
            }
    return pd.DataFrame(rows).T


def data_table(data: Mapping[str, Mapping[str, Sequence[Any]]]):
    """Kernels fitted to a part of the images, from `measures_of_work.data_lines`."""
    import pandas as pd

    lines = data["lines"]
    rows = {
        f"kernels, {n}": {
            "images": n,
            "% of 50,000": n / WHOLE,
            "accuracy, %": round(accuracy, 2),
            "sparsity, %": round(sparsity, 1),
        }
        for n, accuracy, sparsity in zip(data["images"]["kernels"], lines["kernels"], lines["sparsity"], strict=True)
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def speed_table(radii: Sequence[float]) -> dict[str, Any]:
    """Table 3.3 beside the published one, as arguments of `Results.rows`."""
    known = {kappa: published_value(f"ch3-t33-cifar-k{key_of(kappa)}") for kappa in radii}
    columns = {
        "LASSOs, cold": "solves",
        "LASSOs, warm": "warm_solves",
        "warm start, sweeps": "warm_gain",
        "CPU": "warm_gain_seconds",
        "other inner solver": "support_gain",
        "20 % of the data, sweeps": "data_epochs",
        "on samples": "data_on_samples",
        "and warm": "data_warm_on_samples",
    }
    return {
        "parts": {f"kappa {kappa:g}": key_of(kappa) for kappa in radii},
        "columns": {label: f"{key}_k{{}}" for label, key in columns.items()},
        "texts": {
            f"kappa {kappa:g}": {
                "published, warm start": str(row["warm start"]),
                "published, 20 %": str(row["20 % data"]),
            }
            for kappa, row in known.items()
        },
    }


def iterate_table(runs: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """The last iterates, as arguments of `Results.rows`."""
    labels = {name: name.replace("/", ", kappa ") for name in runs}
    return {
        "parts": {label: iterate_key(name) for name, label in labels.items()},
        "columns": {
            "final accuracy, %": "final_accuracy_{}",
            "iterations to within a point of it": "iterations_{}",
            "sweeps up to there": "sweeps_{}",
        },
        "texts": {label: {"median gap at the end": f"{runs[name]['gap'][-1]:.2g}"} for name, label in labels.items()},
    }
