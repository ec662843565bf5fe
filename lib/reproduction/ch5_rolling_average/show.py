"""Tables of the notebooks of the rolling tasks."""

from __future__ import annotations

from typing import Any

from reproduction.ch5_rolling_average import task
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.study import Study


def training_texts(study: Study) -> dict[str, dict[str, Any]]:
    """Label of each model -> its number of seeds."""
    return {task.LABELS[name]: {"seeds": len(runs)} for name, runs in study.histories.items()}


def count_table():
    """The printed, counted and explained numbers of parameters of the rolling average's architectures."""
    import pandas as pd

    rows = []
    for architecture in (a for a in ARCHITECTURES if a.task == "rolling average"):
        counts = {
            "printed": architecture.published,
            "counted": architecture.counted,
            "explained": architecture.explained,
        }
        row = {"model": architecture.model, "as described": architecture.described, "note": architecture.note}
        rows.append(row | {kind: f"{count:,}" for kind, count in counts.items() if count is not None})
    return pd.DataFrame(rows).fillna("").set_index(["model", "as described"])
