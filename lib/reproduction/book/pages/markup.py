"""Texts, links and verdicts as HTML, for every generated page; texts for a reader are escaped here."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from reproduction.book.claims import PAPERS, Verdict
from reproduction.book.formulas import pieces
from reproduction.book.run import NOTEBOOKS

MATH = "math notranslate nohighlight"  # what Sphinx calls a formula in a line; MathJax sets what is called so


def pieces_named(text: Any) -> list[tuple[str, bool]]:
    """Text for a reader cut at its formulas; outside of these the papers' codes become their names.

    Raises:
        ValueError: when the dollars around formulas are no pairs.
    """

    def name(part: str) -> str:
        return re.sub(r"(?<![\w,.])(00[0-4])\b(?![.,]\d)", lambda code: PAPERS[code[1]][0], part)

    return [(part if formula else name(part), formula) for part, formula in pieces(str(text))]


def named(text: Any) -> str:
    """Text for a reader as HTML: escaped, the papers' codes as names, formulas as MathJax sets them.

    Raises:
        ValueError: as `pieces_named`.
    """
    return "".join(
        f'<span class="{MATH}">\\({escape(part)}\\)</span>' if formula else escape(part)
        for part, formula in pieces_named(text)
    )


def plainly(text: Any) -> str:
    """Text for a table without markup: the papers' codes as names, formulas as LaTeX between dollars."""
    return "".join(f"${part}$" if formula else part for part, formula in pieces_named(text))


def row_link(identifier: str) -> str:
    """Link of a row to itself, shown where the row is pointed at or the link has the focus."""
    return (
        f'<a class="row-link" href="#{escape(identifier)}" title="link to this row" aria-label="link to this row">#</a>'
    )


def slug(text: str) -> str:
    """A verdict as a CSS class."""
    return text.replace(" ", "-")


def notebook_link(name: str) -> str:
    """Link to a notebook's page where it exists, else its name."""
    if (NOTEBOOKS / f"{name}.ipynb").is_file():
        return f'<a href="_executed/{name}.html">{escape(name)}</a>'
    return f"<span>{escape(name)}</span>"


def verdict_cell(verdict: Verdict) -> str:
    """A verdict and its measured value as HTML."""
    stale = (
        ' <span class="stale" title="the code behind this run has changed since">of an earlier version</span>'
        if verdict.stale
        else ""
    )
    value = f'<span class="measured">{escape(verdict.measured)}</span>' if verdict.measured else ""
    return f'<span class="verdict {slug(verdict.verdict)}">{escape(verdict.verdict)}</span>{stale} {value}'


def badges(claim: dict[str, Any]) -> str:
    """What a reader must know of a row before its verdict: a stand-in, an outcome that was built into the data."""
    shown = []
    if "stand_in" in claim:
        shown.append(f'<span class="badge" title="stands in for the paper\'s own">{named(claim["stand_in"])}</span>')
    if claim.get("by_construction"):
        shown.append('<span class="badge" title="the outcome was built into the data">by construction</span>')
    return "".join(f" {badge}" for badge in shown)
