"""The README's table of notebooks: what each regenerates, how many claims it judges, and what its full run cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction.book.claims import CLAIMS, PAPERS, load_claims
from reproduction.book.graph import ROOT
from reproduction.book.pages import answers, gallery
from reproduction.book.pages.costs import cpu_seconds
from reproduction.book.prose import cell_text
from reproduction.book.results import RESULTS, load
from reproduction.book.run import NOTEBOOKS, read_notebook

README = ROOT / "README.md"
BEGIN, END = "<!-- notebooks: python -m reproduction.book.pages --readme -->", "<!-- end of notebooks -->"
COLUMNS = ("notebook", "page", "regenerates", "claims", "full run")


def ranges(numbers: Sequence[str]) -> str:
    """Numbers of figures or tables in the order of the paper, three or more that follow one another as a range."""
    runs: list[list[str]] = []
    for number in numbers:
        chapter, _, place = number.rpartition(".")
        before = runs[-1][-1].rpartition(".") if runs else None
        if before and before[0] == chapter and int(place) == int(before[2]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def regenerated(name: str, papers: Sequence[Mapping[str, Any]]) -> str:
    """Figures and tables of the papers that a notebook regenerates, as one text; empty when there are none.

    Args:
        name: of the notebook.
        papers: content of gallery.yml.
    """
    found = []
    for paper in papers:
        items = [item["item"].split(" ", 1) for item in paper["items"] if item.get("notebook") == name]
        parts = []
        for kind in sorted({kind for kind, _ in items}):
            numbers = [number for each, number in items if each == kind]
            parts.append(f"{kind}{'s' if len(numbers) > 1 else ''} {ranges(numbers)}")
        if parts:
            found.append(f"{PAPERS[paper['paper']][0]} {', '.join(parts)}")
    return "; ".join(found)


def row(name: str, papers: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Cells of a notebook's row, as `COLUMNS`; claims are counted without the settings."""
    title = cell_text(read_notebook(name)["cells"][0]).splitlines()[0].lstrip("# ")
    judged = [claim for claim in answers.claims_of(name, claims) if claim["kind"] != "setting"]
    shown = regenerated(name, papers) or "no figure or table"
    if judged and shown == "no figure or table":
        shown += "; claims of " + ", ".join(sorted({PAPERS[s["paper"]][0] for c in judged for s in c["papers"]}))
    content = load(RESULTS / f"{name}.json")
    cost = "no full run yet"
    if content:
        seeds = len(content["seeds"])
        cost = f"{seeds} seed{'s' if seeds > 1 else ''}, {cpu_seconds(content):,.0f} CPU s"
    return f"`{name}`", title, shown, str(len(judged)), cost


def in_order() -> list[str]:
    """The notebooks in the order of the book's table of contents; those that are not in it come last."""
    listed = re.findall(r"_executed/(\w+)", (ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    names = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    return sorted(names, key=lambda name: listed.index(name) if name in listed else len(listed))


def table() -> str:
    """The table as Markdown."""
    papers, claims = gallery.load(), load_claims(CLAIMS)
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(row(name, papers, claims) for name in in_order())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def with_table(text: str, new: str) -> str:
    """A text in which a table stands between the two comments in place of what stood there.

    Raises:
        ValueError: when the text has not one of each comment, in their order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise ValueError(f"{README.name} wants {BEGIN!r} once and {END!r} once after it")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.partition(END)[2]}"


def write(path: Path = README) -> None:
    """Write the table into the README.

    Raises:
        ValueError: as `with_table`.
    """
    path.write_text(with_table(path.read_text(encoding="utf-8"), table()), encoding="utf-8")


def faults(path: Path = README) -> list[str]:
    """What is wrong with the README's table: no place for it, or another table than the results give."""
    text = path.read_text(encoding="utf-8")
    try:
        wanted = with_table(text, table())
    except ValueError as error:
        return [str(error)]
    lines = set(text.splitlines())
    missing = next((line for line in wanted.splitlines() if line not in lines), None)
    if wanted == text:
        return []
    return [
        f"{path.name}: the table of notebooks is not what `python -m reproduction.book.pages --readme` writes"
        + (f"; wanted {missing!r}" if missing else "")
    ]
