"""Headers, signatures and quotations of news posts, and how they are cut off.

The rules are those that published figures on 20 Newsgroups "without metadata" use (scikit-learn's).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PARTS = ("headers", "footers", "quotes")
QUOTED = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


def trim(text: str, remove: Sequence[str]) -> str:
    """Return a post without the named parts, cut in the order headers, footers, quotes.

    Args:
        text: a post.
        remove: any of "headers" (all before the first empty line), "footers" (from the last line that is empty or
            made of hyphens on, unless that is the first), "quotes" (lines that quote or introduce a quotation).

    Raises:
        ValueError: an unknown part.
    """
    for part in remove:
        if part not in PARTS:
            raise ValueError(f"remove takes {', '.join(PARTS)}; got {part!r}")
    if "headers" in remove:
        text = text.partition("\n\n")[2]
    if "footers" in remove:
        lines = text.strip().split("\n")
        last = next((k for k in range(len(lines) - 1, -1, -1) if not lines[k].strip().strip("-")), 0)
        text = "\n".join(lines[:last]) if last > 0 else text
    if "quotes" in remove:
        text = "\n".join(line for line in text.split("\n") if not QUOTED.search(line))
    return text
