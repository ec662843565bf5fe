"""Figures and tables of the ResNet-20 notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import numbers, summary
from reproduction.ch3_resnet20_cifar.compute import Task
from reproduction.ch3_resnet20_cifar.figures import against_images, by_iteration, by_layer, frontier
from reproduction.ch3_resnet20_cifar.kernels import CONTROLS
from reproduction.ch3_resnet20_cifar.measures_of_work import OBJECTIVES, WHOLE, Penalised, iterate_key
from reproduction.ch3_resnet20_cifar.tables import key_of, published_row
from reproduction.core.figures import described

QUOTED = ("sss-p1", "sss-p2", "spr-1", "spr-2", "mla-1", "mla-2")


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
