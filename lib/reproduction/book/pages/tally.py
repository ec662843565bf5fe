"""How many claims came out how, by kind: one count for the scoreboard, the landing page and the README.

Settings (what the papers say they did, own counts, own remarks) have verdicts too, but no claim stands or falls with
them: they are counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from reproduction.book.claims import PAPERS, VERDICTS, judge
from reproduction.book.explanations import committed
from reproduction.book.pages.markup import slug

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


def paper_counts(
    claims: Sequence[Mapping[str, Any]], verdicts: Mapping[str, str] | None = None
) -> dict[str, dict[str, dict[str, int]]]:
    """Number of claims by paper, by group of kinds and by verdict; a claim of several papers counts in each.

    Args:
        claims: rows of claims.yml.
        verdicts: as for `verdict_counts`.

    Returns:
        Name of the paper -> what `verdict_counts` gives for its claims.
    """
    return {
        name: verdict_counts([c for c in claims if code in {source["paper"] for source in c["papers"]}], verdicts)
        for code, (name, _) in PAPERS.items()
    }


def head(first: str) -> str:
    """Head of a matrix: a column a verdict."""
    cells = "".join(f'<th scope="col"><span class="verdict {slug(name)}">{name}</span></th>' for name in VERDICTS)
    return f'<thead><tr><th scope="col">{first}</th>{cells}<th scope="col">rows</th></tr></thead>'


def counts_row(label: str, row: Mapping[str, int], attribute: str, scope: str = "row") -> str:
    """Counts by verdict, and their sum, as a row."""
    cells = "".join(f"<td>{row[verdict]}</td>" for verdict in VERDICTS)
    return f'<tr {attribute}><th scope="{scope}">{escape(label)}</th>{cells}<td>{sum(row.values())}</td></tr>'


def matrix(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Counts of `verdict_counts` as a table of HTML: a row a group, a column a verdict."""
    rows = "".join(counts_row(group, row, f'data-group="{escape(group)}"') for group, row in counts.items())
    return f'<table class="record-matrix">{head("kind")}<tbody>{rows}</tbody></table>'


def paper_matrix(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """Counts of `paper_counts` as a table of HTML that opens on demand: of each paper its sum, then its kinds."""
    bodies = "".join(
        "<tbody>"
        + counts_row(paper, groups[ALL], f'class="paper" data-tally="{escape(paper)}"', "rowgroup")
        + "".join(
            counts_row(group, row, f'data-tally="{escape(paper)}: {escape(group)}"')
            for group, row in groups.items()
            if group != ALL and any(row.values())
        )
        + "</tbody>"
        for paper, groups in counts.items()
    )
    return (
        '<details class="record-papers"><summary>Verdicts by paper and by kind</summary><p>A row of several papers'
        " counts in each of them; a paper's first line is the sum of its kinds without the settings.</p>"
        f'<table class="record-matrix">{head("paper, kind")}{bodies}</table></details>'
    )
