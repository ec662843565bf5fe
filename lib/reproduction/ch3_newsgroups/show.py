"""Figures and tables of the notebook of the text classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch3_newsgroups.measures import PRUNED, Curve, named, part_key
from reproduction.classifiers import newsgroups
from reproduction.core.figures import described
from reproduction.core.sparsity_figures import against_share, tradeoff

PUBLISHED = (0.005, 0.01, 0.05, 0.1, 0.5, 0.99)  # radii of Table 3.1
ORDERS = {
    "sparsity falls with kappa, every seed": "sparsity_falls_with_kappa",
    "accuracy rises with kappa, every seed": "accuracy_rises_with_kappa",
    "the same with a refitted read-out": "head_accuracy_rises_with_kappa",
    "rows without a certificate": "failed_rows",
}
CAUSES = {
    "drop": "drop_{}",
    "fed with the network's states": "drop_forced_{}",
    "read-out refitted": "drop_head_{}",
    "R², first layer": "match_1_{}",
    "R², second layer": "match_2_{}",
    "second layer's weights on inputs, %": "bypass_{}",
}


def known_radius(kappa: float) -> dict[str, float]:
    """The published row of Table 3.1."""
    return published_value(f"ch3-t31-20news-{named(kappa)}")


def baseline() -> dict[str, float]:
    """The published network's accuracy and F1."""
    return published_value("ch3-baseline-20news")


def split_table() -> dict[str, Any]:
    """Classifiers on both splits, as arguments of `Results.rows`."""
    known = baseline()
    return {
        "parts": {
            f"{label}, split {split}": f"{name}_{split}"
            for split in newsgroups.SPLITS
            for name, label in newsgroups.LABELS.items()
        },
        "columns": {"accuracy, %": "accuracy_{}", "macro F1, %": "f1_{}"},
        "texts": {
            "DistilBERT, Tsai (2024)": {"accuracy, %": known["002 accuracy"]},
            "DistilBERT, SIM paper": {"macro F1, %": f"{known['004 F1']} (averaging not said)"},
        },
    }


def gap_table() -> dict[str, Any]:
    """Differences of splits and metrics beside the published ones, as arguments of `Results.rows`."""
    known = baseline()
    return {
        "parts": {"random split less split by date, accuracy": "split", "macro F1 less accuracy, by date": "metric"},
        "columns": {"points": "{}_gap"},
        "texts": {"thesis' accuracy less SIM paper's F1": {"points": f"{known['002 accuracy'] - known['004 F1']:.1f}"}},
    }


def radius_table(kappas: Sequence[float]) -> dict[str, Any]:
    """Table 3.1, as arguments of `Results.rows`."""
    texts = {}
    for kappa in kappas:
        if kappa in PUBLISHED:
            known = known_radius(kappa)
            texts[f"{kappa:g}"] = {
                "published drop": f"{baseline()['002 accuracy'] - known['accuracy, %']:.1f}",
                "published sparsity, %": known["sparsity, %"],
            }
    return {
        "parts": {f"{kappa:g}": named(kappa) for kappa in kappas},
        "columns": {
            "accuracy, %": "accuracy_{}",
            "drop, points": "drop_{}",
            "sparsity, %": "sparsity_{}",
            "non-zeros": "nnz_{}",
        },
        "texts": texts,
        "corner": "kappa",
    }


def control_table(kappas: Sequence[float]) -> dict[str, Any]:
    """Drops at equal size, as arguments of `Results.rows`."""
    columns = {"sparsity, %": "sparsity_{}", "sim": "drop_{}", "sim head": "drop_head_{}"}
    columns |= {name.replace("_", " "): f"{name}_drop_{{}}" for name in PRUNED}
    return {"parts": {f"kappa {kappa:g}": named(kappa) for kappa in kappas}, "columns": columns}


def tradeoff_figure(source: Mapping[str, Any]):
    """Drop against sparsity, with the published points (a results file's content)."""
    import matplotlib.pyplot as plt

    shown = {name: source["curves"][f"tradeoff/{name}"] for name in ("sim", "sim_head", *PRUNED, "lasso")}
    printed = [known_radius(kappa) for kappa in PUBLISHED]
    shown["published"] = [
        {
            "sparsity": [known["sparsity, %"] for known in printed],
            "drop": [baseline()["002 accuracy"] - known["accuracy, %"] for known in printed],
        }
    ]
    figure, axes = plt.subplots(figsize=(6.4, 4.6))
    tradeoff(axes, shown, limit=50)
    axes.set_title(f"20 Newsgroups, uniform scale ({described(source)})", fontsize="medium")
    return figure


def scale_table(curves: Mapping[tuple[str, str], Curve], kappas: Sequence[float]):
    """Radii in three scales, from `measures.scale_curves`."""
    import pandas as pd

    rows = {}
    first, last = int(np.argmin(kappas)), int(np.argmax(kappas))
    for (scale, feedback), curve in curves.items():
        best = int(np.argmin(curve["drop"]))
        rows[f"{scale}, {'as printed' if feedback == 'full' else 'earlier layers only'}"] = {
            f"drop at kappa {kappas[first]:g}": f"{curve['drop'][first]:.1f}",
            f"drop at kappa {kappas[last]:g}": f"{curve['drop'][last]:.1f}",
            "smallest drop": f"{curve['drop'][best]:.1f}",
            "at sparsity, %": f"{curve['sparsity'][best]:.1f}",
            "states that feed themselves, %": f"{max(curve['own']):.0f}",
            f"R² at kappa {kappas[last]:g}": f"{curve['match'][last]:.2f}",
        }
    return pd.DataFrame(rows).T


def part_table(parts: Mapping[str, Sequence[Sequence[float]]], values: Mapping[str, Any]):
    """Accuracy at the smallest share and with all data, and the recorded plateau."""
    import pandas as pd

    rows = {
        "dense network, retrained" if name == "dense" else f"kappa {name}": {
            "plateau, % of the data": summary(values[f"plateau_{part_key(name)}"]),
            "accuracy, smallest share": summary([curve[0] for curve in each]),
            "accuracy, all data": summary([curve[-1] for curve in each]),
        }
        for name, each in parts.items()
    }
    return pd.DataFrame(rows).T


def part_figure(source: Mapping[str, Any]):
    """Figure 3.7 (a results file's content)."""
    import matplotlib.pyplot as plt

    shown = {name.partition("/")[2]: rows for name, rows in source["curves"].items() if name.startswith("shares/")}
    figure, axes = plt.subplots(figsize=(6.4, 4.4))
    labels = {name: f"kappa = {name}" for name in shown if name != "dense"}
    against_share(axes, source["values"]["shares"], shown, ylabel="test accuracy (%)", labels=labels)
    axes.set_title(f"20 Newsgroups, uniform scale ({described(source)})", fontsize="medium")
    return figure


def method_table(values: Mapping[str, Any], sim: Sequence[Curve], sparse: Sequence[int], kappas: Sequence[float]):
    """Table 3.2: published methods, and here the largest and the most accurate radius and retrained pruning."""
    import pandas as pd

    rows = {}
    for method in ("sss", "spr", "mla", "ours"):
        known = published_value(f"ch3-t32-20news-{method}")
        rows[f"{method.upper() if method != 'ours' else 'thesis, kappa 0.99'} (quoted)"] = {
            "drop, points": f"{baseline()['002 accuracy'] - known['accuracy, %']:.1f}",
            "sparsity, %": known["sparsity, %"],
        }

    def entry(drop: str, sparsity: str) -> dict[str, str]:
        return {"drop, points": summary(values[drop]), "sparsity, %": summary(values[sparsity])}

    largest = named(max(kappas))
    rows[f"here, kappa {max(kappas):g}"] = entry(f"drop_{largest}", f"sparsity_{largest}")
    if sparse:
        best = kappas[min(sparse, key=lambda k: np.median([curve["drop"][k] for curve in sim]))]
        rows[f"here, kappa {best:g}"] = entry("best_sparse_drop", "best_sparse_sparsity")
        retrained = f"magnitude_retrained_drop_{named(best)}"
        rows["magnitude pruning, retrained"] = entry(retrained, "best_sparse_sparsity")
    return pd.DataFrame(rows).T
