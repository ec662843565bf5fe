"""Texts, links and verdicts as HTML, for every generated page; texts for a reader are escaped here."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from reproduction.book.claims import PAPERS, Verdict
from reproduction.book.run import NOTEBOOKS


def named(text: Any) -> str:
    """Text for a reader, escaped: the papers' codes become their names."""
    return escape(re.sub(r"(?<![\w,.])(00[0-4])\b(?![.,]\d)", lambda code: PAPERS[code[1]][0], str(text)))


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
