"""Prose of a notebook that ran: put around the run's cells, by hand-made notebooks."""

import copy

import pytest

from reproduction.book.prose import with_prose


def cell(kind, text, *tags, **more):
    return {"cell_type": kind, "source": [text], "metadata": {"tags": list(tags)}, **more}


SOURCE = {"cells": [cell("markdown", "old"), cell("code", "a = 1", "parameters"), cell("code", "a")], "metadata": {}}
RAN = {
    "cells": [
        cell("markdown", "old"),
        cell("code", "a = 1", "parameters", outputs=["guard"]),
        cell("code", "a = 2", "injected-parameters"),
        cell("code", "a", outputs=["2"]),
    ],
    "metadata": {"kept": True},
}


def test_new_prose_stands_around_the_outputs_of_the_run():
    source = copy.deepcopy(SOURCE)
    source["cells"][0]["source"] = ["new"]
    source["cells"].append(cell("markdown", "more"))
    found = with_prose(RAN, source)
    assert ["".join(c["source"]) for c in found["cells"]] == ["new", "a = 1", "a = 2", "a", "more"]
    assert [c.get("outputs") for c in found["cells"]] == [None, ["guard"], None, ["2"], None]
    assert found["metadata"] == {"kept": True} and RAN["cells"][0]["source"] == ["old"]


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda cells: cells[2].update(source=["b"]), "other code cells"),
        (lambda cells: cells.append(cell("code", "c")), "other code cells"),
        (lambda cells: cells.pop(), "1 code cells more"),
    ],
)
def test_another_code_is_refused(edit, message):
    source = copy.deepcopy(SOURCE)
    edit(source["cells"])
    with pytest.raises(ValueError, match=message):
        with_prose(RAN, source)
