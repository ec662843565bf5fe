"""Tables of the notebook of the rolling argmax."""

from __future__ import annotations

from reproduction.core.registry import ARCHITECTURES


def count_table():
    """The printed and counted numbers of parameters of the rolling argmax's architectures."""
    import pandas as pd

    rows = [
        {
            "model": architecture.model,
            "as described": architecture.described,
            "printed": "" if architecture.published is None else f"{architecture.published:,}",
            "counted": f"{architecture.counted:,}",
            "note": architecture.note,
        }
        for architecture in ARCHITECTURES
        if architecture.task == "rolling argmax"
    ]
    return pd.DataFrame(rows).set_index(["model", "as described"])
