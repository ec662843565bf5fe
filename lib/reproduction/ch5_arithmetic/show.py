"""Tables of the notebook of addition and subtraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproduction.book.results import summary
from reproduction.core.registry import ARCHITECTURES


def table_52(values: Mapping[str, Any], published: Mapping[str, Mapping[str, float]]):
    """Recorded errors of Table 5.2 beside the published ones (operation -> row -> error)."""
    import pandas as pd

    rows = {}
    for operation, printed in published.items():
        found = {
            key: summary(values[f"{operation}_table_{key}"])
            for key in ("mlp_relu", "best_mlp", "best_activation", "implicit", "linear", "linear_exact")
        }
        rows[operation] = {
            "ReLU MLP": found["mlp_relu"],
            "published ": f"{printed['ReLU MLP']:.3g}",
            "best MLP": f"{found['best_mlp']} ({found['best_activation']})",
            "published  ": f"{printed['best MLP']:.3g}",
            "implicit": found["implicit"],
            "published   ": f"{printed['implicit']:.3g}",
            "linear": found["linear"],
            "linear, exact": found["linear_exact"],
        }
    return pd.DataFrame(rows).rename_axis("test MSE on U(2, 5)")


def count_table():
    """The printed, counted and explained numbers of parameters of the architectures of both tasks."""
    import pandas as pd

    def text(count: int | None) -> str:
        return "" if count is None else f"{count:,}"

    rows = [
        {
            "task": architecture.task,
            "model": architecture.model,
            "as described": architecture.described,
            "printed": text(architecture.published),
            "counted": text(architecture.counted),
            "explained": text(architecture.explained),
            "note": architecture.note,
        }
        for architecture in ARCHITECTURES
        if architecture.task in ("identity", "arithmetic")
    ]
    return pd.DataFrame(rows).set_index(["task", "model"])
