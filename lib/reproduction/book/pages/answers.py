"""What a notebook's page says of itself: the claims that it judges, below its title, and how it was made, at its
foot."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from reproduction.book.claims import VERDICTS, Verdict, format_published, format_sources, judge, recorded_values
from reproduction.book.explanations import explained
from reproduction.book.graph import ROOT
from reproduction.book.pages.markup import badges, named, slug, verdict_cell
from reproduction.book.pages.tally import ALL, verdict_counts

OPEN = 8  # rows that are shown without being asked for


def claims_of(notebook: str, claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The claims that a notebook judges, in the order of the file; settings of the papers come last."""
    own = [claim for claim in claims if claim.get("measure", claim)["notebook"] == notebook]
    return sorted(own, key=lambda claim: claim["kind"] == "setting")


def claims_table(notebook: str, claims: Sequence[Mapping[str, Any]], up: str = "../") -> str:
    """The claims of a notebook's page as HTML: what the papers say, what came out, the verdict, and why.

    Args:
        notebook: that judges them.
        claims: of the whole book.
        up: path from the page to the book's root.
    """
    found = recorded_values(notebook)
    judged = [(claim, judge(claim, found.full, found.stale)) for claim in claims_of(notebook, claims)]
    if not judged:
        return '<p class="page-tally">This page judges no claim of the papers.</p>\n'
    counts = Counter(verdict.verdict for claim, verdict in judged if claim["kind"] != "setting")
    tally = " ".join(
        f'<span class="verdict {slug(name)}">{counts[name]} {escape(name)}</span>' for name in VERDICTS if counts[name]
    )
    settings = sum(claim["kind"] == "setting" for claim, _ in judged)
    apart = f" and {settings} setting{'s' if settings > 1 else ''} of the papers" if settings else ""
    rows = "".join(claim_row(claim, verdict, up) for claim, verdict in judged)
    head = "".join(f'<th scope="col">{name}</th>' for name in ("claim", "papers say", "came out", "verdict"))
    shown = " open" if len(judged) <= OPEN else ""
    return (
        f'<p class="page-tally">{tally}</p><details class="page-claims"{shown}><summary>The claims of this page, one'
        f" by one: {len(judged) - settings}{apart}</summary>"
        f'<table class="record-table claims"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>\n'
    )


def claim_row(claim: Mapping[str, Any], verdict: Verdict, up: str) -> str:
    """One claim as a row."""
    bare = Verdict(verdict.verdict, "", verdict.stale)
    reason = explained(claim, "not_testable") or explained(claim)
    why = f'<span class="why">{named(reason)}</span>' if reason else ""
    link = f'<a href="{up}scoreboard.html#{escape(claim["id"])}">row of the scoreboard</a>'
    return (
        f'<tr><td data-label="claim">{named(claim["statement"])}{badges(claim)} <span class="where">'
        f"{escape(format_sources(claim['papers']))}; {link}</span>{why}</td>"
        f'<td data-label="papers say">{named(format_published(claim["published"]))}</td>'
        f'<td data-label="came out">{escape(verdict.measured) or "not measured"}</td>'
        f'<td data-label="verdict">{verdict_cell(bare)}</td></tr>'
    )


def foot(name: str, parameters: Mapping[str, Any]) -> str:
    """How a notebook's page was made and how to make it again, as HTML.

    Args:
        name: of the notebook.
        parameters: its parameters and their default values.
    """
    found = recorded_values(name)
    items = [("committed run", escape(standing(name)))]
    if found.full:
        made = found.full["provenance"]
        seeds = len(found.full["seeds"])
        items.append(
            (
                "its cost",
                f"{made['cpu_seconds']:.0f} CPU seconds, {seeds} seed{'s' if seeds > 1 else ''}, on"
                f" {escape(made['hardware']['cpu'])}",
            )
        )
        items.append(("its versions", escape(", ".join(f"{key} {value}" for key, value in made["versions"].items()))))
    if found.build:
        items.append(
            ("this build", f"{found.build['profile']} profile, {found.build['provenance']['seconds']:.0f} seconds")
        )
    line = f"papermill notebooks/{name}.ipynb {name}.ipynb -p profile full"
    items.append(("to make it again", f"<code>{escape(line)}</code> in the repository's environment"))
    given = ", ".join(f"<code>{escape(key)}</code>" for key in parameters if key != "profile")
    items.append(("parameters", f"{given}; the first code cell says what each one means" if given else "none"))
    items.append(
        (
            "the notebook",
            f'<a href="{name}.ipynb" download>as it was executed</a>. To open it in Jupyter, install the extra'
            f" <code>jupyter</code> and call <code>jupyter lab notebooks/{name}.ipynb</code>",
        )
    )
    body = "".join(f"<dt>{label}</dt><dd>{text}</dd>" for label, text in items)
    return f'<section class="page-foot"><h2>How this page was made</h2><dl>{body}</dl></section>\n'


def standing(name: str) -> str:
    """Sentences on a notebook's full run: when, at which commit, and whether it still holds."""
    found = recorded_values(name)
    text = found.sentence
    if found.full and (commit := found.full["provenance"].get("commit")):
        subject = subprocess.run(
            ["git", "log", "-1", "--format=%s", commit], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        text += f" Its commit is {commit[:7]}" + (f" ({subject})." if subject else ".")
    return text


def tiles(claims: Sequence[Mapping[str, Any]]) -> str:
    """Totals of the scoreboard as tiles for the landing page: claims of the papers by verdict, settings apart."""
    counts = verdict_counts(claims)[ALL]
    cells = "".join(
        f'<a class="tile {slug(name)}" href="scoreboard.html"><b>{counts[name]}</b><span>{escape(name)}</span></a>'
        for name in VERDICTS
        if counts[name]
    )
    return f'<div class="totals">{cells}</div>\n'
