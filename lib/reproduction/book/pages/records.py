"""The record as tables of HTML: the scoreboard, one row a published statement, and the errata.

Texts for a reader are escaped here. Nothing in a table is typed by hand.
"""

from __future__ import annotations

import csv
import io
from html import escape
from typing import Any

from reproduction.book.claims import (
    PAPERS,
    VERDICTS,
    Recorded,
    format_published,
    format_sources,
    judge,
    recorded_values,
)
from reproduction.book.explanations import explained
from reproduction.book.pages.markup import badges, named, notebook_link, plainly, row_link, verdict_cell
from reproduction.book.pages.tally import matrix, paper_counts, paper_matrix, verdict_counts
from reproduction.book.results import summary
from reproduction.book.run import NOTEBOOKS

CSV = "scoreboard.csv"
CSV_COLUMNS = (
    "id",
    "papers and places",
    "kind",
    "statement",
    "published",
    "measured",
    "verdict",
    "standing",
    "stand-in",
    "by construction",
    "notebook",
)
ERRATUM_COLUMNS = ("where", "printed", "right", "evidence", "kind")
SEVERITIES = (
    "theorem",
    "contradiction",
    "number",
    "experiment",
    "method",
    "overclaim",
    "data",
    "sharpness",
    "misprint",
)


def options(name: str, label: str, values: list[str]) -> str:
    """A drop-down filter over one data attribute of the rows."""
    items = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{escape(label)} <select data-filter="{name}"><option value="">all</option>{items}</select></label>'


def controls(filters: str, label: str, what: str) -> str:
    """Search box, filters and the count of rows shown."""
    return (
        f'<form class="record-controls" role="search" onsubmit="return false"><label>{escape(label)} '
        f'<input type="search" data-filter="text" placeholder="words in a row"></label>{filters}'
        f'<output aria-live="polite" data-count="{escape(what)}"></output></form>'
    )


def details_of(claim: dict[str, Any], verdict: str) -> list[tuple[str, str]]:
    """Names and HTML of what stands under a row's details, in order."""
    shown = [("setting", named(claim.get("setting", ""))), ("data", named(explained(claim, "data")))]
    shown += [("images of the fit", named(explained(claim, "images"))), ("epochs", named(explained(claim, "epochs")))]
    shown.append(("conflict in the papers", named(explained(claim, "conflicts"))))
    if "reproduced_if" in claim:
        condition = f"<code>{escape(claim['reproduced_if'])}</code>"
        if "direction_if" in claim:
            condition += f"; in direction if <code>{escape(claim['direction_if'])}</code>"
        shown.append(("reproduced if", condition))
    shown.append(("why" if verdict in VERDICTS[1:3] else "note", named(explained(claim))))
    shown.append(("why not testable", named(explained(claim, "not_testable"))))
    return [(name, text) for name, text in shown if text]


def recorded_of(claims: list[dict[str, Any]]) -> dict[str, Recorded]:
    """What the notebooks of claims recorded; of a notebook that there is not, nothing."""
    return {
        name: recorded_values(name) if (NOTEBOOKS / f"{name}.ipynb").is_file() else Recorded(None, None)
        for name in {claim.get("measure", claim)["notebook"] for claim in claims}
    }


def scoreboard_csv(claims: list[dict[str, Any]]) -> str:
    """The rows of the scoreboard as comma-separated values with a head, in the order of the file.

    The columns are `CSV_COLUMNS`; formulas are LaTeX between dollars, papers have their names.
    """
    recorded = recorded_of(claims)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(CSV_COLUMNS)
    for claim in claims:
        notebook = claim.get("measure", claim)["notebook"]
        found = recorded[notebook]
        verdict = judge(claim, found.full, found.stale)
        table.writerow(
            [
                claim["id"],
                format_sources(claim["papers"]),
                claim["kind"],
                plainly(claim["statement"]),
                plainly(format_published(claim["published"])),
                verdict.measured,
                verdict.verdict,
                found.standing if found.full else "no full run",
                plainly(claim.get("stand_in", "")),
                "yes" if claim.get("by_construction") else "",
                notebook,
            ]
        )
    return out.getvalue()


def scoreboard(claims: list[dict[str, Any]]) -> str:
    """The sortable, filterable table of all claims."""
    recorded = recorded_of(claims)
    rows, verdicts = [], {}
    # What is measured comes first; inside each half the order is that of the file, by chapter.
    for claim in sorted(claims, key=lambda claim: "measure" not in claim):
        notebook = claim.get("measure", claim)["notebook"]
        found = recorded[notebook]
        committed, present = judge(claim, found.full, found.stale), judge(claim, found.build)
        verdicts[claim["id"]] = committed.verdict
        papers = " ".join(PAPERS[p][0] for p in sorted({source["paper"] for source in claim["papers"]}))
        details = [f"<dt>{name}</dt><dd>{text}</dd>" for name, text in details_of(claim, committed.verdict)]
        built = verdict_cell(present) if present.measured else "<span>not measured in this build</span>"
        more = f"<details><summary>details</summary><dl>{''.join(details)}</dl></details>" if details else ""
        rows.append(
            f'<tr id="{escape(claim["id"])}" data-paper="{escape(papers)}" data-verdict="{escape(committed.verdict)}"'
            f' data-kind="{escape(claim["kind"])}" data-notebook="{escape(claim["notebook"])}"><td'
            f' data-label="claim">{named(claim["statement"])}{badges(claim)} <span'
            f' class="where">{escape(format_sources(claim["papers"]))} {row_link(claim["id"])}</span>{more}</td><td'
            f' data-label="published">{named(format_published(claim["published"]))}</td><td data-label="measured, full'
            f' run">{verdict_cell(committed)}</td><td data-label="this'
            f' build">{built}</td><td'
            f' data-label="notebook">{notebook_link(notebook)}</td></tr>'
        )
    filters = (
        options("paper", "paper", [PAPERS[p][0] for p in PAPERS])
        + options("verdict", "verdict", list(VERDICTS))
        + options("kind", "kind", sorted({c["kind"] for c in claims}))
        + options("notebook", "notebook", sorted({c["notebook"] for c in claims}))
    )
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>'
        for name in ("claim", "published", "measured, full run", "this build", "notebook")
    )
    return (
        f"{matrix(verdict_counts(claims, verdicts))}{paper_matrix(paper_counts(claims, verdicts))}"
        f'<p><a href="{CSV}" download>Download all rows as CSV</a>; its formulas are LaTeX between dollars.</p>'
        f'<div class="record">{controls(filters, "search", "claims")}<table'
        f' class="record-table scoreboard"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n'
    )


def errata(entries: list[dict[str, Any]]) -> str:
    """The errata: those of most value first, then all others as a filterable table, then those that were withdrawn."""
    kept = [entry for entry in entries if "withdrawn" not in entry]
    recorded = {
        name: recorded_values(name) for name in {entry["shown"]["notebook"] for entry in kept if "shown" in entry}
    }
    first = sorted((entry for entry in kept if "rank" in entry), key=lambda entry: entry["rank"])
    # What a notebook shows comes first; inside each half the order is that of the file, by chapter.
    others = sorted((entry for entry in kept if "rank" not in entry), key=lambda entry: "shown" not in entry)
    filters = (
        options("paper", "paper", [PAPERS[p][0] for p in PAPERS])
        + options("severity", "kind", [s for s in SEVERITIES if any(e["severity"] == s for e in others)])
        + options("shown", "evidence", ["shown", "reading", "not yet"])
    )
    shown = sum("shown" in entry for entry in kept)
    html = f"<p>{len(kept)} entries; the evidence of {shown} is computed in a notebook of this book.</p>"
    if first:
        rows = "".join(erratum_row(entry, recorded) for entry in first)
        columns = "".join(f'<th scope="col">{name}</th>' for name in ERRATUM_COLUMNS)
        html += (
            '<h2>What matters most</h2><table class="record-table errata"><thead><tr>'
            f"{columns}</tr></thead><tbody>{rows}</tbody></table><h2>All others</h2>"
        )
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>' for name in ERRATUM_COLUMNS
    )
    html += (
        f'<div class="record">{controls(filters, "search", "errata")}<table class="record-table'
        f' errata"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(erratum_row(entry, recorded) for entry in others)}</tbody></table></div>"
    )
    withdrawn = "".join(
        f'<li id="{escape(entry["id"])}">{escape(format_sources(entry["papers"]))}: {named(entry["withdrawn"])}</li>'
        for entry in entries
        if "withdrawn" in entry
    )
    return html + (f"<h2>Withdrawn</h2><ul>{withdrawn}</ul>" if withdrawn else "") + "\n"


def erratum_row(entry: dict[str, Any], recorded: dict[str, Recorded]) -> str:
    """An erratum as a row of a table."""
    evidence = f"<span>{named(entry['evidence'])}</span>"
    status = "not yet"
    if "shown" in entry:
        notebook, values = entry["shown"]["notebook"], []
        full, build = recorded[notebook].full, recorded[notebook].build
        for name, key in entry["shown"].get("values", {}).items():
            source = next((r for r in (full, build) if r and key in r["values"]), None)
            if source:
                values.append(
                    f"{name}: {summary(source['values'][key])} {source.get('units', {}).get(key, '')}".strip()
                )
        status = "shown"
        text = f'<span class="measured">{escape("; ".join(values))}</span> ' if values else ""
        evidence += f"<br>{text}shown in {notebook_link(notebook)}"
    elif entry.get("checked") == "reading":
        status = "reading"
        evidence += '<br><em class="where">the papers themselves show it</em>'
    else:
        evidence = f'<em class="where">how to check (no notebook computes it yet):</em> {evidence}'
    papers = " ".join(PAPERS[p][0] for p in sorted({source["paper"] for source in entry["papers"]}))
    where = f"{escape(format_sources(entry['papers']))} {row_link(entry['id'])}"
    return (
        f'<tr id="{escape(entry["id"])}" data-paper="{escape(papers)}" data-severity="{escape(entry["severity"])}"'
        f' data-shown="{status}"><td data-label="where">{where}</td><td'
        f' data-label="printed">{named(entry["printed"])}</td><td'
        f' data-label="right">{named(entry["right"])}</td><td data-label="evidence">{evidence}</td><td'
        f' data-label="kind">{escape(entry["severity"])}</td></tr>'
    )
