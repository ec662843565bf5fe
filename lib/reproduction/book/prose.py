"""New prose around an executed notebook's cells: a changed sentence reaches its page without a new run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INJECTED = "injected-parameters"


def with_prose(executed: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """The executed copy with the markdown cells of its source: code cells, their outputs and the cell of injected
    parameters stay as they ran.

    Args:
        executed: a notebook that ran, as JSON.
        source: the notebook that it is a run of, whose code cells are the same.

    Raises:
        ValueError: when the code cells of the two are not the same.
    """
    ran = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    cells: list[Any] = []
    for cell in source["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        if not ran or cell_text(ran[0]) != cell_text(cell):
            raise ValueError("the executed copy has other code cells than its source")
        cells.append(ran.pop(0))
        if ran and INJECTED in ran[0]["metadata"].get("tags", []):
            cells.append(ran.pop(0))
    if ran:
        raise ValueError(f"the executed copy has {len(ran)} code cells more than its source")
    return {**executed, "cells": cells}


def cell_text(cell: Mapping[str, Any]) -> str:
    """Source of a cell as one text."""
    return "".join(cell["source"])  # of a text or of its lines
