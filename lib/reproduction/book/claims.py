"""Claims and verdicts: every published statement beside what was measured.

A claim names the notebook and the recorded key that measure it, and two conditions on the measured values. The verdict
is computed, never typed:

    reproduced                 `reproduced_if` holds
    reproduced in direction    it fails, `direction_if` holds
    not reproduced             both fail (an `explanation` says the best known reason and its control)
    not testable here          `not_testable` says why
    not yet measured           no notebook measures it, or its notebook has not run

A claim also says what it was measured on (`data`, `images` of the fit, `epochs`), what stands in for the paper's data
or network (`stand_in`), and whether its outcome was built into the data (`by_construction`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.book.conditions import evaluate, names_of
from reproduction.book.graph import ROOT
from reproduction.book.results import EXECUTED, RESULTS, load, summary

CLAIMS = ROOT / "book" / "claims.yml"
ERRATA = ROOT / "book" / "errata.yml"
PAPERS = {
    "000": ("Ganesh 2023", "ganesh2023"),
    "001": ("Decugis et al. 2024", "decugis2024"),
    "002": ("Tsai 2024", "tsai2024"),
    "003": ("Workshop 2022", "workshop2022"),
    "004": ("SIM paper", "sim2024"),
}
VERDICTS = ("reproduced", "reproduced in direction", "not reproduced", "not testable here", "not yet measured")
KINDS = ("number", "ratio", "trend", "ordering", "parameter_count", "setting", "theorem")
REQUIRED = ("id", "papers", "kind", "statement", "published", "notebook")
CONDITIONS = ("reproduced_if", "direction_if")
SAID = ("setting", "conflicts", "explanation", "not_testable")
MEASURED_ON = ("data", "stand_in", "images", "epochs", "by_construction")
OPTIONAL = ("measure", *CONDITIONS, *SAID, *MEASURED_ON)


@dataclass(frozen=True)
class Verdict:
    """Outcome of a claim for one set of recorded values."""

    verdict: str
    measured: str = ""
    stale: bool = False


def judge(claim: Mapping[str, Any], recorded: Mapping[str, Any] | None, stale: bool = False) -> Verdict:
    """Verdict of a claim from a results file's content (None: the notebook has not run)."""
    if "not_testable" in claim:
        return Verdict("not testable here")
    measure = claim.get("measure")
    if not measure or recorded is None:
        return Verdict("not yet measured")
    names = names_of(measure, recorded["values"])
    if names is None:
        return Verdict("not yet measured")
    keys = {"": measure["key"]} if "key" in measure else measure["keys"]
    units = recorded.get("units", {})
    text = "; ".join(
        f"{name + ': ' if name else ''}{summary(recorded['values'][key])} {units.get(key, '')}".strip()
        for name, key in keys.items()
    )
    if evaluate(claim["reproduced_if"], names):
        outcome = "reproduced"
    elif "direction_if" in claim and evaluate(claim["direction_if"], names):
        outcome = "reproduced in direction"
    else:
        outcome = "not reproduced"
    return Verdict(outcome, text, stale)


def read_yaml(path: Path) -> list[dict[str, Any]]:
    """A YAML list of mappings with unique ids.

    Raises:
        ValueError: naming the entry, when it is no mapping, has no id, an id twice, or an unknown paper.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # thousands of lines: the compiled one where there is one
    entries = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not entry.get("id"):
            raise ValueError(f"{path.name}: entry {number} has no id: {entry!r}")
        if entry["id"] in seen:
            raise ValueError(f"{path.name}: id {entry['id']!r} stands twice")
        seen.add(entry["id"])
        for source in entry["papers"]:
            if source["paper"] not in PAPERS:
                raise ValueError(f"{path.name}: {entry['id']}: unknown paper {source['paper']!r}")
    return entries


def load_claims(path: Path = CLAIMS) -> list[dict[str, Any]]:
    """All claims, checked.

    Raises:
        ValueError: naming the claim and the value, on a missing or unknown field, an unknown kind, a field of the wrong
            type, a measure without condition, or a condition that does not parse.
    """
    claims = read_yaml(path)
    for claim in claims:
        for fault in malformed(claim):
            raise ValueError(f"{path.name}: {claim['id']}: {fault}")
    return claims


def malformed(claim: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the form of a claim, whatever was recorded."""
    yield from (f"{name} is missing" for name in REQUIRED if name not in claim)
    yield from (f"unknown field {name!r}" for name in claim if name not in REQUIRED + OPTIONAL)
    if claim.get("kind") not in KINDS:
        yield f"unknown kind {claim.get('kind')!r} (known: {', '.join(KINDS)})"
    for name in (*SAID, *CONDITIONS, "data", "stand_in"):
        if name in claim and not (isinstance(claim[name], str) and claim[name].strip()):
            yield f"{name} wants a text, got {claim[name]!r}"
    for name in ("images", "epochs"):
        if name in claim and (isinstance(claim[name], bool) or not isinstance(claim[name], (int, str))):
            yield f"{name} wants a whole number or a text, got {claim[name]!r}"
    if claim.get("by_construction", True) is not True:
        yield f"by_construction is true or left out, got {claim['by_construction']!r}"
    if "measure" not in claim:
        return
    if "reproduced_if" not in claim:
        yield "measured, but no reproduced_if"
    if ("key" in claim["measure"]) == ("keys" in claim["measure"]):
        yield "measure wants either key or keys"
    for name in CONDITIONS:
        try:
            ast.parse(claim.get(name, "True"), mode="eval")
        except SyntaxError as error:
            yield f"{name} {claim[name]!r}: {error.msg}"


@dataclass(frozen=True)
class Recorded:
    """What a notebook's runs recorded.

    Args:
        full: content of the committed full run, None without one.
        build: content of the present build's run, None without one.
        standing: of the full run: "present" (of the present code), "confirmed" (the code changed since, and a quick run
            of it is bit for bit the one of then) or "stale".
    """

    full: dict[str, Any] | None
    build: dict[str, Any] | None
    standing: str = "present"

    @property
    def stale(self) -> bool:
        """Whether the code behind the full run has changed since, unconfirmed."""
        return self.standing == "stale"

    @property
    def sentence(self) -> str:
        """What a page says of the full run."""
        if self.full is None:
            return "No full run yet."
        date = self.full["provenance"]["date"]
        excused = (self.full.get("confirmed") or [{}])[-1].get("not_run", {})
        apart = "".join(
            f" It does not run {len(names)} changed definition{'s' if len(names) > 1 else ''} ({reason})."
            for reason, names in excused.items()
        )
        return {
            "present": f"Full run of {date}, on the present code.",
            "confirmed": f"Full run of {date}; the code changed since, its quick run is identical.{apart}",
            "stale": f"Full run of {date}, of an earlier version of the code.",
        }[self.standing]


def recorded_values(notebook: str) -> Recorded:
    """A notebook's committed full run, its present build, and how the full run stands to the present code."""
    from reproduction.book.run import code_key_of, effective_parameters

    full, build = load(RESULTS / f"{notebook}.json"), load(EXECUTED / f"{notebook}.json")
    if full is None:
        return Recorded(full, build)
    current = code_key_of(notebook, effective_parameters(notebook, "full"))
    if full["provenance"]["code_key"] == current:
        return Recorded(full, build, "present")
    confirmed = any(entry["code_key"] == current for entry in full.get("confirmed", []))
    return Recorded(full, build, "confirmed" if confirmed else "stale")


def format_published(published: Any) -> str:
    """The published value as text: a mapping as 'name: value' pairs."""
    if isinstance(published, Mapping):
        return "; ".join(f"{name}: {format_published(value)}" for name, value in published.items())
    if isinstance(published, (list, tuple)):
        return ", ".join(format_published(value) for value in published)
    if isinstance(published, float):
        return f"{published:g}"
    return str(published)


def format_sources(sources: list[Mapping[str, str]]) -> str:
    """Where a statement stands, as text."""
    return "; ".join(f"{PAPERS[source['paper']][0]}, {source['where']}" for source in sources)


def published_value(identifier: str) -> Any:
    """The published side of a claim, for a table that sets it beside a measurement.

    Raises:
        KeyError: when no claim has that id.
    """
    for claim in read_yaml(CLAIMS):
        if claim["id"] == identifier:
            return claim["published"]
    raise KeyError(f"{CLAIMS.name} has no claim {identifier!r}")
