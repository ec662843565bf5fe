"""The record of the book as HTML: scoreboard, errata, cost of the notebooks, benchmarks."""

from __future__ import annotations

from collections import Counter
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
from reproduction.book.graph import ROOT
from reproduction.book.pages.markup import named, slug, verdict_cell
from reproduction.book.results import load, summary
from reproduction.book.run import NOTEBOOKS

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


def notebook_link(name: str) -> str:
    """Link to a notebook's page where it exists, else its name."""
    if (NOTEBOOKS / f"{name}.ipynb").is_file():
        return f'<a href="_executed/{name}.html">{escape(name)}</a>'
    return f"<span>{escape(name)}</span>"


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


def scoreboard(claims: list[dict[str, Any]]) -> str:
    """The sortable, filterable table of all claims."""
    recorded = {
        name: recorded_values(name) if (NOTEBOOKS / f"{name}.ipynb").is_file() else Recorded(None, None)
        for name in {claim.get("measure", claim)["notebook"] for claim in claims}
    }
    rows, counts = [], Counter()
    # What is measured comes first; inside each half the order is that of the file, by chapter.
    for claim in sorted(claims, key=lambda claim: "measure" not in claim):
        notebook = claim.get("measure", claim)["notebook"]
        found = recorded[notebook]
        committed, present = judge(claim, found.full, found.stale), judge(claim, found.build)
        counts[committed.verdict] += 1
        papers = " ".join(PAPERS[p][0] for p in sorted({source["paper"] for source in claim["papers"]}))
        details = []
        if claim.get("setting"):
            details.append(f"<dt>setting</dt><dd>{named(claim['setting'])}</dd>")
        if claim.get("conflicts"):
            details.append(f"<dt>conflict in the papers</dt><dd>{named(claim['conflicts'])}</dd>")
        if "reproduced_if" in claim:
            condition = f"<code>{escape(claim['reproduced_if'])}</code>"
            if "direction_if" in claim:
                condition += f"; in direction if <code>{escape(claim['direction_if'])}</code>"
            details.append(f"<dt>reproduced if</dt><dd>{condition}</dd>")
        if claim.get("explanation") and committed.verdict in VERDICTS[1:3]:
            details.append(f"<dt>why</dt><dd>{named(claim['explanation'])}</dd>")
        if claim.get("not_testable"):
            details.append(f"<dt>why not testable</dt><dd>{named(claim['not_testable'])}</dd>")
        built = verdict_cell(present) if present.measured else "<span>not measured in this build</span>"
        more = f"<details><summary>details</summary><dl>{''.join(details)}</dl></details>" if details else ""
        rows.append(
            f'<tr id="{escape(claim["id"])}" data-paper="{escape(papers)}" data-verdict="{escape(committed.verdict)}"'
            f' data-kind="{escape(claim["kind"])}" data-notebook="{escape(claim["notebook"])}"><td'
            f' data-label="claim">{named(claim["statement"])} <span'
            f' class="where">{escape(format_sources(claim["papers"]))}</span>{more}</td><td'
            f' data-label="published">{named(format_published(claim["published"]))}</td><td data-label="measured, full'
            f' run">{verdict_cell(committed)}</td><td data-label="this'
            f' build">{built}</td><td'
            f' data-label="notebook">{notebook_link(notebook)}</td></tr>'
        )
    tally = "".join(f'<li><span class="verdict {slug(v)}">{v}</span> {counts[v]}</li>' for v in VERDICTS)
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
        f'<ul class="record-tally">{tally}</ul><div class="record">{controls(filters, "search", "claims")}<table'
        f' class="record-table scoreboard"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>\n'
    )


def errata(entries: list[dict[str, Any]]) -> str:
    """The errata as a filterable table: printed, right, evidence."""
    rows, shown = [], 0
    recorded = {
        name: recorded_values(name) for name in {entry["shown"]["notebook"] for entry in entries if "shown" in entry}
    }
    # What a notebook shows comes first; inside each half the order is that of the file, by chapter.
    for entry in sorted(entries, key=lambda entry: "shown" not in entry):
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
        shown += status == "shown"
        papers = " ".join(PAPERS[p][0] for p in sorted({source["paper"] for source in entry["papers"]}))
        rows.append(
            f'<tr id="{escape(entry["id"])}" data-paper="{escape(papers)}" data-severity="{escape(entry["severity"])}"'
            f' data-shown="{status}"><td data-label="where">{escape(format_sources(entry["papers"]))}</td><td'
            f' data-label="printed">{named(entry["printed"])}</td><td'
            f' data-label="right">{named(entry["right"])}</td><td data-label="evidence">{evidence}</td><td'
            f' data-label="kind">{escape(entry["severity"])}</td></tr>'
        )
    filters = (
        options("paper", "paper", [PAPERS[p][0] for p in PAPERS])
        + options("severity", "kind", [s for s in SEVERITIES if any(e["severity"] == s for e in entries)])
        + options("shown", "evidence", ["shown", "reading", "not yet"])
    )
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>'
        for name in ("where", "printed", "right", "evidence", "kind")
    )
    return (
        f"<p>{len(entries)} entries; the evidence of {shown} is computed in a notebook of this book.</p>"
        f'<div class="record">{controls(filters, "search", "errata")}<table class="record-table'
        f' errata"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def cost() -> str:
    """What each notebook costs: seconds of this build, CPU seconds of the committed full run, seeds, machine."""
    rows = []
    for name in sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        found = recorded_values(name)
        full, build = found.full, found.build
        present = f"{build['provenance']['seconds']:.0f} s ({build['profile']})" if build else "not run"
        seeds = machine = "none"
        committed = "none"
        if full:
            made = full["provenance"]
            committed = (
                f"{made['cpu_seconds']:.0f} CPU s, {made['date']}"
                + {
                    "present": "",
                    "confirmed": " (the code changed since, its quick run is identical)",
                    "stale": " (of an earlier version)",
                }[found.standing]
            )
            seeds = str(len(full["seeds"]))
            versions = made["versions"]
            machine = (
                f"{made['hardware']['cpu']}; torch {versions['torch']}, numpy {versions['numpy']}, python"
                f" {versions['python']}"
            )
        cells = (notebook_link(name), escape(present), escape(committed), escape(seeds), escape(machine))
        labels = ("notebook", "this build", "full run", "seeds", "full run made with")
        rows.append("<tr>" + "".join(f'<td data-label="{a}">{b}</td>' for a, b in zip(labels, cells)) + "</tr>")
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("notebook", "this build", "full run", "seeds", "full run made with")
    )
    return f'<table class="record-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>\n'


def benchmark(area: str) -> str:
    """Ratios and checks of a committed benchmark run."""
    content = load(ROOT / "benchmarks" / "results" / f"{area}.json")
    if content is None:
        return "<p>No committed run of this benchmark.</p>\n"
    columns = ("median", "min", "max")
    rows = "".join(
        f'<tr><td data-label="case">{escape(name.replace("_", " "))}</td>'
        + "".join(f'<td data-label="{column}">{ratio[column]:.3g}</td>' for column in columns)
        + "</tr>"
        for name, ratio in content["ratios"].items()
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("case", *(f"ratio, {column}" for column in columns)))
    failed = [name.replace("_", " ") for name, good in content["checks"].items() if not good]
    checks = f"{len(content['checks']) - len(failed)} of {len(content['checks'])} checks hold"
    checks += f"; these fail: {'; '.join(failed)}." if failed else "."
    if solved := content.get("certified"):
        checks += (
            " Rows that reached the certificate: "
            + "; ".join(f"{name} {share}" for name, share in solved.items())
            + "."
        )
    return (
        f'<table class="record-table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"<p>{escape(checks)} {escape(machine(content['machine']))}</p>\n"
    )


def machine(description: Any) -> str:
    """A benchmark's machine as one line."""
    if isinstance(description, dict):
        return "; ".join(f"{name}: {value}" for name, value in description.items())
    return str(description)
