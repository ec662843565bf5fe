"""The gallery: every figure and table of the five papers beside ours, with the verdicts of the claims that name it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from reproduction.book.claims import PAPERS, VERDICTS, judge, recorded_values
from reproduction.book.graph import ROOT
from reproduction.book.pages.markup import slug
from reproduction.book.prose import cell_text
from reproduction.book.results import EXECUTED

GALLERY = ROOT / "book" / "gallery.yml"
WIDTH = 320  # of a thumbnail, pixels


def load(path: Path = GALLERY) -> list[dict[str, Any]]:
    """The papers with their figures and tables, checked.

    Raises:
        ValueError: naming the item: an unknown field, neither a notebook nor a reason, or an item twice.
    """
    import yaml

    papers = yaml.safe_load(path.read_text(encoding="utf-8"))
    for paper in papers:
        names = [item["item"] for item in paper["items"]]
        for item in paper["items"]:
            where = f"{path.name}: {paper['paper']}, {item['item']}"
            if unknown := set(item) - {"item", "what", "notebook", "figure", "part", "absent"}:
                raise ValueError(f"{where}: unknown field {sorted(unknown)[0]!r}")
            if ("notebook" in item) == ("absent" in item):
                raise ValueError(f"{where}: wanted either a notebook or the reason why there is none")
            if names.count(item["item"]) > 1:
                raise ValueError(f"{where}: stands twice")
    return papers


def claims_naming(paper: str, item: str, claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Claims, settings apart, that say where they stand in a paper by the item's number."""
    number = re.compile(re.escape(item) + r"(?![\d]|\.\d)")
    return [
        claim
        for claim in claims
        if claim["kind"] != "setting"
        and any(source["paper"] == paper and number.search(source["where"]) for source in claim["papers"])
    ]


def thumbnail_name(item: Mapping[str, Any]) -> str:
    """File of an item's thumbnail."""
    return re.sub(r"\W+", "-", f"{item['notebook']}-{item['figure']}".lower()).strip("-") + ".png"


def gallery(papers: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]) -> str:
    """The gallery as HTML: a count, then a grid of cards for each paper."""
    items = [item for paper in papers for item in paper["items"]]
    made = sum("notebook" in item for item in items)
    partly = sum("part" in item for item in items)
    parts = [
        f"<p>{made} of the {len(items)} figures and tables of the papers are regenerated here, {partly} of them in"
        " part.</p>"
    ]
    recorded = {name: recorded_values(name) for name in {c["measure"]["notebook"] for c in claims if "measure" in c}}
    for paper in papers:
        name, reference = PAPERS[paper["paper"]]
        cards = "".join(card(paper["paper"], item, claims, recorded) for item in paper["items"])
        parts.append(f'<h2 id="{reference}">{escape(name)}</h2><div class="gallery">{cards}</div>')
    return "".join(parts) + "\n"


def card(paper: str, item: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], recorded: Mapping[str, Any]) -> str:
    """One figure or table: number, thumbnail, what it shows, verdicts of its claims."""
    counts: Counter[str] = Counter()
    for claim in claims_naming(paper, item["item"], claims):
        found = recorded.get(claim.get("measure", claim)["notebook"])
        counts[judge(claim, found.full if found else None).verdict] += 1
    verdicts = " ".join(
        f'<span class="verdict {slug(name)}">{counts[name]} {escape(name)}</span>' for name in VERDICTS if counts[name]
    )
    verdicts = verdicts or '<span class="where">no claim names it by its number</span>'
    text = f"<b>{escape(item['item'])}</b><span>{escape(item['what'])}</span>"
    if "part" in item:
        text += f'<span class="where">in part: {escape(item["part"])}</span>'
    if "absent" in item:
        return f'<div class="card-item absent">{text}<span class="where">{escape(item["absent"])}</span></div>'
    figure = item.get("figure", "")
    anchor = f"#{figure}" if figure.startswith("fig-") else ""
    picture = (
        f'<img src="_gallery/{thumbnail_name(item)}" alt="{escape(item["what"])}, as made here" loading="lazy"'
        f' width="{WIDTH}">'
        if figure
        else '<span class="no-picture" aria-hidden="true">table</span>'
    )
    return (
        f'<a class="card-item" href="_executed/{escape(item["notebook"])}.html{anchor}">{picture}{text}'
        f"<span>{verdicts}</span></a>"
    )


def picture_of(item: Mapping[str, Any], drawn: Path) -> bytes:
    """The PNG behind an item: of the executed notebook's cell whose figure has its name or caption, or drawn by the
    page from the committed run.

    Raises:
        LookupError: when the notebook has no such figure, or it has no picture.
    """
    notebook = json.loads((EXECUTED / f"{item['notebook']}.ipynb").read_text(encoding="utf-8"))
    wanted = item["figure"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            found = re.search(r"```\{drawn\} \S+:(\w+) (\w+)\n(?::.*\n)*?:name: " + re.escape(wanted), cell_text(cell))
            if found and (drawn / f"{found[2]}_{found[1]}.png").is_file():
                return (drawn / f"{found[2]}_{found[1]}.png").read_bytes()
            continue
        figure = cell["metadata"].get("mystnb", {}).get("figure", {})
        if figure.get("name") == wanted or figure.get("caption", "").startswith(wanted):
            for output in cell["outputs"]:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode("".join(output["data"]["image/png"]))
    raise LookupError(f"{item['notebook']} shows no figure {wanted!r}")


def write_thumbnails(papers: Sequence[Mapping[str, Any]], drawn: Path, folder: Path) -> None:
    """Write the thumbnails of all items that have a figure, except those that are newer than their notebook.

    Raises:
        LookupError: when a figure is not there.
    """
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for item in {thumbnail_name(i): i for p in papers for i in p["items"] if i.get("figure")}.values():
        target, sources = folder / thumbnail_name(item), [EXECUTED / f"{item['notebook']}.ipynb", GALLERY]
        sources += drawn.glob(f"{item['notebook']}_*.png")
        if target.is_file() and all(target.stat().st_mtime > s.stat().st_mtime for s in sources if s.is_file()):
            continue
        picture = Image.open(io.BytesIO(picture_of(item, drawn))).convert("RGB")
        picture.thumbnail((2 * WIDTH, 2 * WIDTH))
        picture.quantize(64).save(target, optimize=True)
