"""Published rows beside measured ones, and what is read off a sweep of the ResNet-20 study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.book.claims import published_value


def key_of(value: float) -> str:
    """A value as part of a key: 0.05 is "0p05"."""
    return f"{value:g}".replace(".", "p")


def published_row(kappa: float) -> dict[str, Any]:
    """Table 3.1 at a radius: "accuracy, %" and "sparsity, %"; empty for a radius that is not in it."""
    try:
        return published_value(f"ch3-t31-cifar-k{key_of(kappa)}")
    except KeyError:
        return {}


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
