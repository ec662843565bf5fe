"""Tables of the ResNet-20 study: published figures beside measured ones, and what is read off a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value
from reproduction.book.results import Results, numbers, summary

QUOTED = ("sss-p1", "sss-p2", "spr-1", "spr-2", "mla-1", "mla-2")


def key_of(value: float) -> str:
    """A value as part of a key: 0.05 is "0p05"."""
    return f"{value:g}".replace(".", "p")


def published_row(kappa: float) -> dict[str, Any]:
    """Table 3.1 at a radius: "accuracy, %" and "sparsity, %"; empty for a radius that is not in it."""
    try:
        return published_value(f"ch3-t31-cifar-k{key_of(kappa)}")
    except KeyError:
        return {}


def table_31(results: Results, kappas: Sequence[float], scales: Mapping[str, Sequence[float]]):
    """Table 3.1: accuracy and sparsity of the thesis, and of the fits that were recorded."""
    import pandas as pd

    values, rows = results.values, {}
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


def curve_of(points: Sequence[Mapping[str, float]], accuracy: str = "head") -> dict[str, list[float]]:
    """Points of one seed as a curve: sparsities in the three counts and the accuracy."""
    return {key: [p[key] for p in points] for key in ("rows", "kernels", "full")} | {
        "accuracy": [p[accuracy] for p in points]
    }


def drop_at(points: Sequence[Mapping[str, float]], base: float, sparsity: float, key: str = "accuracy") -> float:
    """Loss of accuracy at a sparsity of kernels, between the neighbouring points of a sweep; NaN more than half a point
    beyond its ends."""
    order = np.argsort([p["kernels"] for p in points])
    x, y = (np.array([points[i][name] for i in order]) for name in ("kernels", key))
    return float("nan") if not x[0] - 0.5 <= sparsity <= x[-1] + 0.5 else base - float(np.interp(sparsity, x, y))


def table_1(results: Results, drops: Mapping[str, Sequence[Mapping[str, Any]]]):
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
            **{
                label: summary([-v for v in numbers(results.values[f"{key}_{number}"])]) for label, key in drops.items()
            },
        }
    return pd.DataFrame(rows).T


def table_32(network: float):
    """Table 3.2: the quoted rows against 92.1 plus the drops of Table 1, and the largest difference."""
    import pandas as pd

    base, rows, worst = published_value("ch3-baseline-cifar-accuracy")["002"], {}, 0.0
    for name, other in (("SSS", "sss-p1"), ("SPR", "spr-1"), ("MLA", "mla-1")):
        here, there = published_value(f"ch3-t32-cifar-{name.lower()}"), published_value(f"sim-t1-{other}")
        shifted = base + there["accuracy drop, points"]
        worst = max(worst, abs(shifted - here["accuracy, %"]), abs(there["sparsity, %"] - here["sparsity, %"]))
        rows[name] = {
            "Table 3.2, accuracy": here["accuracy, %"],
            "92.1 plus the drop of Table 1": round(shifted, 2),
            "Table 3.2, sparsity": here["sparsity, %"],
            "Table 1, sparsity": there["sparsity, %"],
        }
    return pd.DataFrame(rows).T, worst


def monotone(values: Sequence[Sequence[float]], sign: int) -> bool:
    """Whether medians over the seeds (settings, seeds) move strictly one way: sign 1 rising, -1 falling."""
    return bool(np.all(sign * np.diff([float(np.median(v)) for v in values]) > 0))
