"""Figures of accuracy under attack against sparsity, medians and ranges over seeds, and tables of the notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import summary
from reproduction.ch3_sim_fashion.compute import TABLE_2, TABLE_3, Scores
from reproduction.ch3_sim_fashion.measures import FEEDBACKS, SCALES
from reproduction.core.figures import described
from reproduction.core.plots import legend_below

# name -> (label, colour of the colour-blind palette, marker, line): fits solid, controls dashed, published dotted.
STYLES: dict[str, tuple[str, int, str, str]] = {
    "l1": ("l1", 0, "o", "-"),
    "perspective": ("perspective, knee 1", 3, "v", "-"),
    "perspective_0.1": ("perspective, knee 0.1", 2, "D", "-"),
    "l2": ("ridge: (5) as printed", 1, "x", "-"),
    "lasso": ("lasso on the layer below", 4, "P", "--"),
    "magnitude": ("magnitude pruning", 5, "<", "--"),
    "magnitude_retrained": ("magnitude, retrained on the samples", 9, ">", "--"),
    "dense": ("dense, trained on the samples", 7, "s", "--"),
    "teacher": ("the network itself", 8, "*", "--"),
    "published_l1": ("SIM paper, l1", 0, "2", ":"),
    "published_perspective": ("SIM paper, perspective", 3, "1", ":"),
    "theorem": ("scale of Theorem 2.4", 0, "o", "-"),
    "std": ("standard deviations", 2, "D", "-"),
    "uniform": ("uniform, as printed", 3, "v", "-"),
}


def attacked_against_sparsity(
    axes, curves: Mapping[str, Sequence[Mapping[str, Sequence[float]]]], key: str, *, lowest: float = -10.0
) -> None:
    """Accuracy against sparsity: a point is a setting, at its medians over the seeds, its bar the range.

    Args:
        axes: matplotlib axes.
        curves: name -> one curve a seed, {"sparsity": [...], key: [...]}, per cent.
        key: what is drawn.
        lowest: sparsity of the left edge, per cent; a curve that lies wholly to the left is drawn at the edge as a
            horizontal line.
    """
    import seaborn

    palette = seaborn.color_palette("colorblind")
    for name, seeds in curves.items():
        label, colour, marker, line = STYLES[name]
        keywords = {"label": label, "color": palette[colour], "linewidth": 1.4}
        x = np.median([curve["sparsity"] for curve in seeds], axis=0)
        y = np.array([curve[key] for curve in seeds], dtype=float)
        middle, order = np.median(y, axis=0), np.argsort(x)
        if name in ("teacher", "dense"):
            axes.axhline(middle[0], linestyle=line, **keywords)
        elif len(x) and x.max() < lowest:
            axes.axhline(
                float(np.max(middle)),
                linestyle=line,
                **(keywords | {"label": f"{label} (best; {np.median(x):.0f} % sparsity)"}),
            )
        else:
            bars = np.abs(np.vstack([y.min(axis=0), y.max(axis=0)]) - middle)
            axes.errorbar(
                x[order], middle[order], yerr=bars[:, order], capsize=2, marker=marker, linestyle=line, **keywords
            )
    axes.set(xlabel="sparsity, 1 - |M|₀/|N|₀ (%)", ylabel="accuracy (%)", xlim=(lowest, 100))
    legend_below(axes)


def attack_figure(source: Mapping[str, Any], names: Sequence[str]):
    """Figure 4 with the published points (a results file's content)."""
    import matplotlib.pyplot as plt

    drawn = {name: source["curves"][f"attack/{name}"] for name in names}
    for table, settings, name in (("t3", TABLE_3, "published_l1"), ("t2", TABLE_2, "published_perspective")):
        known = [published_value(f"sim-{table}-n{m}") for m in settings]
        drawn[name] = [
            {"sparsity": [p["sparsity, %"] for p in known], "at_0.008": [p["acc at 0.008, %"] for p in known]}
        ]
    figure, axes = plt.subplots(figsize=(6.4, 5.2))
    attacked_against_sparsity(axes, drawn, "at_0.008")
    axes.set_ylim(45, None)
    axes.set_title(f"Fashion-MNIST, attack 0.008, scale of Theorem 2.4 ({described(source)})", fontsize="medium")
    return figure


def scale_figure(source: Mapping[str, Any]):
    """The l1 fits in three scales (a results file's content)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.4))
    curves = {scale: source["curves"][f"scale/{scale}"] for scale in SCALES}
    attacked_against_sparsity(axes, curves, "at_0.008", lowest=-100)
    axes.set_title(f"Fashion-MNIST, l1, attack 0.008, three scales ({described(source)})", fontsize="medium")
    return figure


def teacher_table() -> dict[str, Any]:
    """Accuracy of the networks, as arguments of `Results.rows`."""
    known, column = published_value("sim-fashion-baseline-accuracy"), "accuracy, %"
    return {
        "parts": {
            "clean": "clean",
            "attacked, 0.004": "at_0.004",
            "attacked, 0.008": "at_0.008",
            "random signs, 0.008": "random",
        },
        "columns": {column: "teacher_{}"},
        "texts": {
            "published, clean (SIM paper)": {column: known["004"]},
            "published, clean (MS report)": {column: known["000"]},
        },
    }


MATCHING = {
    "exact: largest error of a state, relative": "exact_state",
    "exact: largest error of an output, relative": "exact_output",
    "exact: equal predictions on the samples, %": "exact_agree",
    "exact: largest row norm": "exact_row_norm",
    "rank of U": "trivial_rank",
    "samples": "trivial_samples",
    "A = 0: largest mismatch, relative": "trivial_residual",
    "joint problem against its rows, relative": "joint_difference",
    "largest infinity norm over p-norm": "norm_ratio",
}
SCALING = {
    "equations as printed, n 4, p 5, q 3, m 6": "count_printed",
    "equations": "count_equations",
    "rank": "count_rank",
    "rank of U'U, p 5, m 12": "count_rank_UtU",
    "rank of UU'": "count_rank_UUt",
    "divisor": "scaling_factor",
    "largest row norm after it": "scaling_largest",
    "equal predictions after it, %": "scaling_agree",
    "equal predictions without biases, %": "scaling_agree_bias_free",
    "logits' ratio over divisor to the depth": "scaling_ratio_as_power",
    "states, first layer, after/before": "scaling_shrink_first",
    "states, last layer": "scaling_shrink_last",
    "random networks: equal predictions without biases, %": "random_agree_bias_free",
    "random networks: with biases, %": "random_agree_biased",
}
ORDERS = {
    "sparser with fewer samples, every seed": "t2_sparser_with_fewer",
    "accuracy at 0.004 rises with samples": "t2_at_0.004_rises_with_samples",
    "accuracy at 0.008 rises with samples": "t2_at_0.008_rises_with_samples",
    "the same of the medians over the seeds": "t2_median_at_0.008_rises_with_samples",
    "attacked at 0.008, worst row less the network": "worst_gain_at_0.008",
    "attacked at 0.008, best row less the network": "best_gain_at_0.008",
    "rows without a certificate": "failed_rows",
}
DIFFERENCES = {
    "l1 less perspective, knee 1": "l1_above_perspective_{}",
    "knee 0.1": "l1_above_perspective_0.1_{}",
    "l1 less magnitude": "l1_above_magnitude_{}",
    "less magnitude retrained": "l1_above_magnitude_retrained_{}",
    "best l1 less network": "l1_above_teacher_{}",
    "best l1 less dense on the samples": "l1_above_dense_{}",
    "smallest loss to the attack, less the network's": "l1_smallest_loss_less_teacher_{}",
}


def fit_table(points: Mapping[tuple[str, int], Any]) -> dict[str, Any]:
    """Tables 2 and 3 beside the published ones, as arguments of `Results.rows`."""
    parts, texts = {}, {}
    for table, m in points:
        label, known = f"{'perspective' if table == 't2' else 'l1'}, {m} samples", published_value(f"sim-{table}-n{m}")
        parts[label] = f"{table}_n{m}"
        texts[label] = {
            "published sparsity, %": known["sparsity, %"],
            "published at 0.004, %": known["acc at 0.004, %"],
            "published at 0.008, %": known["acc at 0.008, %"],
        }
    columns = {"non-zeros": "nnz", "sparsity, %": "sparsity", "clean, %": "clean"}
    columns |= {"at 0.004, %": "at_0.004", "at 0.008, %": "at_0.008"}
    return {"parts": parts, "columns": {label: f"{{}}_{key}" for label, key in columns.items()}, "texts": texts}


def best_table(points: Mapping[str, Mapping[str, Sequence[float]]]):
    """The point of each curve that is most accurate under the larger attack, from `measures.best_points`."""
    import pandas as pd

    columns = {"sparsity, %": "sparsity", "clean, %": "clean", "at 0.004, %": "at_0.004"}
    columns |= {"at 0.008, %": "at_0.008", "random signs, %": "random"}
    rows = {
        STYLES[name][0]: {label: summary(point[key]) for label, key in columns.items()}
        for name, point in points.items()
    }
    return pd.DataFrame(rows).T


def scale_table() -> dict[str, Any]:
    """Fits in three scales, as arguments of `Results.rows`."""
    kinds = dict(zip(FEEDBACKS, ("as printed", "earlier layers only"), strict=True))
    columns = {
        "sparsity, weak, %": "weak_sparsity",
        "clean, weak, %": "weak_clean",
        "at 0.008, weak, %": "weak_at_0.008",
        "mismatch, weak": "weak_mismatch",
        "states that feed themselves, %": "weak_own",
        "sparsity, strong, %": "strong_sparsity",
        "clean, strong, %": "strong_clean",
    }
    return {
        "parts": {f"{scale}, {kind}": f"{scale}_{feedback}" for scale in SCALES for feedback, kind in kinds.items()},
        "columns": {label: f"scale_{{}}_{key}" for label, key in columns.items()},
    }


def radius_table(fits: Mapping[str, Mapping[str, Sequence[float]]], teacher: Sequence[Scores]):
    """The ball without a penalty, from `measures.radius_fits`, beside the report."""
    import pandas as pd

    known, rows = published_value("ms-sim-fashion-accuracy"), {}
    for scale, each in fits.items():
        drop = [t["clean"] - clean for t, clean in zip(teacher, each["clean"], strict=True)]
        rows[f"{scale} scale"] = {
            "accuracy, %": summary(each["clean"]),
            "drop, points": summary(drop),
            "sparsity, %": summary(each["sparsity"]),
        }
    rows["MS report"] = {
        "accuracy, %": known["SIM"],
        "drop, points": known["baseline"] - known["SIM"],
        "sparsity, %": "",
    }
    return pd.DataFrame(rows).T
