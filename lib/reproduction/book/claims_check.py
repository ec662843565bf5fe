"""All faults of the claims, the errata and the numbers that pages quote, listed at once.

Claims name recorded values and conditions on them, errata the value or the cell that shows them, pages the values,
verdicts and published numbers that they quote. A build stops at the first page with a wrong name; this lists all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from reproduction.book.claims import ERRATA, judge, load_claims, read_yaml
from reproduction.book.conditions import evaluate, names_of
from reproduction.book.explanations import committed, text_faults
from reproduction.book.formulas import formula_faults, texts_of
from reproduction.book.graph import ROOT
from reproduction.book.run import NOTEBOOKS, code_of, read_notebook

SHOWN_BESIDE = ("data", "stand_in", "images", "epochs")
SET = {
    "claims.yml": ("statement", "published", "setting", "conflicts", "explanation", "not_testable", *SHOWN_BESIDE),
    "errata.yml": ("printed", "right", "evidence", "withdrawn"),
}  # fields with formulas between dollars
ROLE = re.compile(r"\{(measured|median|verdict|published)\}`([^`:]+):?([^`]*)`")


def claim_faults(claim: dict[str, Any]) -> Iterator[str]:
    """What keeps a measured claim from having a verdict, or its verdict from being explained."""
    notebook = claim["measure"]["notebook"]
    content = committed(notebook)
    if not (NOTEBOOKS / f"{notebook}.ipynb").is_file():
        yield f"there is no notebook {notebook}"
    elif content is None:
        yield f"{notebook} has no committed full run"
    elif (names := names_of(claim["measure"], content["values"])) is None:
        yield f"the committed run of {notebook} does not record {claim['measure']}"
    else:
        for condition in ("reproduced_if", "direction_if"):
            if condition in claim:
                try:
                    evaluate(claim[condition], names)
                except (ValueError, TypeError) as error:
                    yield str(error)
                    return
        verdict = judge(claim, content).verdict
        if verdict in ("not reproduced", "reproduced in direction") and not claim.get("explanation"):
            yield f"{verdict}, but no explanation is given"


def erratum_faults(entry: dict[str, Any]) -> Iterator[str]:
    """What keeps an erratum that a notebook shows from being seen there."""
    notebook, values = entry["shown"]["notebook"], entry["shown"].get("values", {})
    content = committed(notebook)
    if content is None:
        yield f"{notebook} has no committed full run"
        return
    yield from (f"{notebook} does not record {key!r}" for key in values.values() if key not in content["values"])
    if not values and entry["id"] not in code_of(read_notebook(notebook)):
        yield f"neither a value nor a cell of {notebook} names this entry"


def dollar_faults(file: str, entry: dict[str, Any]) -> Iterator[str]:
    """What keeps the formulas of a claim or an erratum from being set, with the field in which it stands."""
    for field in SET[file]:
        for text in texts_of(entry.get(field)):
            yield from (f"{field}: {fault}" for fault in formula_faults(text))


def quotation_faults(role: str, name: str, part: str, claims: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What keeps a number, a verdict or a published value from being quoted."""
    if role in ("measured", "median"):
        content = committed(name)
        if content is not None and part not in content["values"]:
            yield f"the committed run of {name} does not record {part!r}"
        elif content is None and not (NOTEBOOKS / f"{name}.ipynb").is_file():
            yield f"there is no notebook {name}"
    elif name not in claims:
        yield f"there is no claim {name!r}"
    elif role == "published":
        try:
            _roles().published_text(name, part)
        except (KeyError, ValueError) as error:
            yield str(error.args[0])


@cache
def _roles() -> Any:
    """The book's extension, which is no package."""
    spec = spec_from_file_location("measured", ROOT / "book" / "_ext" / "measured.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check() -> list[str]:
    """Every fault, each with where it stands; an empty list when there is none.

    Raises:
        ValueError: when claims.yml or errata.yml is malformed (see `load_claims`).
    """
    claims = {claim["id"]: claim for claim in load_claims()}
    faults = [
        f"claims.yml: {name}: {fault}" for name, c in claims.items() if "measure" in c for fault in claim_faults(c)
    ]
    faults += [f"claims.yml: {name}: {fault}" for name, c in claims.items() for fault in text_faults(c)]
    errata = read_yaml(ERRATA)
    for file, entries in (("claims.yml", claims.values()), ("errata.yml", errata)):
        faults += [f"{file}: {e['id']}: {fault}" for e in entries for fault in dollar_faults(file, e)]
    for entry in errata:
        if "shown" in entry and "withdrawn" not in entry:
            faults += [f"errata.yml: {entry['id']}: {fault}" for fault in erratum_faults(entry)]
    pages = sorted(path for path in (ROOT / "book").rglob("*.md") if "_build" not in path.parts)
    for page in (*pages, *sorted(NOTEBOOKS.glob("*.ipynb"))):
        for role, name, part in sorted(set(ROLE.findall(page.read_text(encoding="utf-8")))):
            faults += [f"{page.name}: {{{role}}}: {fault}" for fault in quotation_faults(role, name, part, claims)]
    return faults
