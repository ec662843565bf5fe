"""Texts and verdicts as HTML, for every generated page."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from reproduction.book.claims import PAPERS, Verdict


def named(text: Any) -> str:
    """Text for a reader, escaped: the papers' codes become their names."""
    return escape(re.sub(r"(?<![\w,.])(00[0-4])\b(?![.,]\d)", lambda code: PAPERS[code[1]][0], str(text)))


def slug(text: str) -> str:
    """A verdict as a CSS class."""
    return text.replace(" ", "-")


def verdict_cell(verdict: Verdict) -> str:
    """A verdict and its measured value as HTML."""
    stale = (
        ' <span class="stale" title="the code behind this run has changed since">of an earlier version</span>'
        if verdict.stale
        else ""
    )
    value = f'<span class="measured">{escape(verdict.measured)}</span>' if verdict.measured else ""
    return f'<span class="verdict {slug(verdict.verdict)}">{escape(verdict.verdict)}</span>{stale} {value}'
