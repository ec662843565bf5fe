"""Formulas in the texts of claims and errata: what stands between two dollars is LaTeX, all else is text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ENVIRONMENT = re.compile(r"\\(begin|end)\{(\w+\*?)\}")


def pieces(text: str) -> list[tuple[str, bool]]:
    """A text cut at its formulas: each part, and whether it is a formula, in order, without empty texts.

    Raises:
        ValueError: naming the text, when its dollars are no pairs.
    """
    parts = text.split("$")
    if len(parts) % 2 == 0:
        raise ValueError(f"an odd number of dollars in {text!r}")
    return [(part, bool(place % 2)) for place, part in enumerate(parts) if part or place % 2]


def formula_faults(text: str) -> Iterator[str]:
    """What keeps the formulas of a text from being set: dollars, braces or environments that are no pairs."""
    try:
        found = [part for part, formula in pieces(text) if formula]
    except ValueError as error:
        yield str(error)
        return
    for formula in found:
        if not formula.strip():
            yield f"an empty formula in {text!r}"
        depth = 0
        for brace in re.findall(r"\\.|[{}]", formula):  # an escaped brace is a sign, no bracket
            depth += {"{": 1, "}": -1}.get(brace, 0)
            if depth < 0:
                break
        if depth:
            yield f"the braces of ${formula}$ are no pairs"
        opened: list[str] = []
        for side, name in ENVIRONMENT.findall(formula):
            if side == "begin":
                opened.append(name)
            elif not opened or opened.pop() != name:
                yield f"\\end{{{name}}} of ${formula}$ ends nothing"
        yield from (f"\\begin{{{name}}} of ${formula}$ has no end" for name in opened)


def texts_of(value: Any) -> Iterator[str]:
    """All texts of a field: of a text itself, of a list's items, of a mapping's values and keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from texts_of(name)
            yield from texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_of(part)
