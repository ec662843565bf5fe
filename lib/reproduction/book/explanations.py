"""What a claim says beside its verdict, with recorded values put in where it quotes them.

A text quotes a value of a committed run as `{notebook:key}`; it is shown with its range over the seeds and its unit, so
that no sentence can drift from what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from reproduction.book.results import RESULTS, load, summary

QUOTED = re.compile(r"\{([a-z]\w*):([^{}\s]+)\}")
SHOWN = ("explanation", "not_testable", "conflicts", "data", "images", "epochs")
NONE = "no committed run yet"


@cache
def committed(notebook: str) -> dict[str, Any] | None:
    """A notebook's committed full run, None without one."""
    return load(RESULTS / f"{notebook}.json")


def value_of(notebook: str, key: str) -> str:
    """A recorded value of a committed run as text: median, range over the seeds, unit.

    Raises:
        KeyError: when there is a run and it holds no such key, naming both.
    """
    content = committed(notebook)
    if content is None:
        return NONE
    if key not in content["values"]:
        raise KeyError(f"the committed run of {notebook} does not record {key!r}")
    return f"{summary(content['values'][key])} {content.get('units', {}).get(key, '')}".strip()


def expanded(text: str) -> str:
    """A text with every quoted value put in.

    Raises:
        KeyError: as `value_of`.
    """
    return QUOTED.sub(lambda found: value_of(found[1], found[2]), text)


def explained(claim: Mapping[str, Any], field: str = "explanation") -> str:
    """What a claim says in one of its fields, with recorded values put in; empty when it says nothing.

    Args:
        claim: a row of claims.yml.
        field: "explanation", "not_testable", "conflicts", "data", "images" or "epochs".

    Raises:
        KeyError: when a quoted value is not recorded, naming notebook and key.
    """
    return expanded(str(claim.get(field, "")))


def text_faults(claim: Mapping[str, Any]) -> Iterator[str]:
    """The quoted values of a claim that no committed run records."""
    for field in SHOWN:
        for notebook, key in QUOTED.findall(str(claim.get(field, ""))):
            try:
                if value_of(notebook, key) == NONE:
                    yield f"{field} quotes {notebook}, which has no committed run"
            except KeyError as error:
                yield f"{field}: {error.args[0]}"
