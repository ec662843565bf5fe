"""How many claims came out how, by kind: one count for the scoreboard, the landing page and the README.

Settings (what the papers say they did, own counts, own remarks) have verdicts too, but no claim stands or falls with
them: they are counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from reproduction.book.claims import VERDICTS, judge
from reproduction.book.explanations import committed

GROUPS = {
    "theorems": ("theorem",),
    "numbers": ("number", "parameter_count"),
    "ratios": ("ratio",),
    "trends and orderings": ("trend", "ordering"),
    "settings": ("setting",),
}
ALL = "all but settings"
GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}


def verdict_counts(
    claims: Sequence[Mapping[str, Any]], verdicts: Mapping[str, str] | None = None
) -> dict[str, dict[str, int]]:
    """Number of claims by group of kinds and by verdict.

    Args:
        claims: rows of claims.yml.
        verdicts: id -> verdict; by default those that the committed full runs give.

    Returns:
        Group -> verdict -> count, in the order in which they are shown: the four groups of claims, `ALL` (their sum),
        and "settings", which are in no sum. Every verdict is there, with 0 where there is none.
    """
    if verdicts is None:
        verdicts = {c["id"]: judge(c, committed(c.get("measure", c)["notebook"])).verdict for c in claims}
    counts = {group: dict.fromkeys(VERDICTS, 0) for group in GROUPS}
    for claim in claims:
        counts[GROUP_OF[claim["kind"]]][verdicts[claim["id"]]] += 1
    settings = counts.pop("settings")
    total = {verdict: sum(row[verdict] for row in counts.values()) for verdict in VERDICTS}
    return counts | {ALL: total, "settings": settings}


def matrix(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Counts of `verdict_counts` as a table of HTML: a row a group, a column a verdict."""
    head = "".join(
        f'<th scope="col"><span class="verdict {name.replace(" ", "-")}">{name}</span></th>' for name in VERDICTS
    )
    rows = "".join(
        f'<tr data-group="{escape(group)}"><th scope="row">{escape(group)}</th>'
        + "".join(f"<td>{row[verdict]}</td>" for verdict in VERDICTS)
        + f"<td>{sum(row.values())}</td></tr>"
        for group, row in counts.items()
    )
    return (
        f'<table class="record-matrix"><thead><tr><th scope="col">kind</th>{head}<th scope="col">rows</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
