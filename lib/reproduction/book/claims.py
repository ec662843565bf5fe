"""Claims and verdicts: every published statement beside what was measured.

A claim names the notebook and the recorded key that measure it, and two conditions on the measured values. The verdict
is computed, never typed:

    reproduced                 `reproduced_if` holds
    reproduced in direction    it fails, `direction_if` holds
    not reproduced             both fail (an `explanation` says the best known reason and its control)
    not testable here          `not_testable` says why
    not yet measured           no notebook measures it, or its notebook has not run
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.book.graph import ROOT
from reproduction.book.results import EXECUTED, RESULTS, load, numbers, summary

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
OPTIONAL = ("setting", "conflicts", "measure", "reproduced_if", "direction_if", "explanation", "not_testable")
COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS = {"abs": abs, "log10": math.log10, "sqrt": math.sqrt}


def evaluate(condition: str, names: Mapping[str, Any]) -> bool:
    """Truth of a condition such as `median >= 1e3 and n >= 5` over named values.

    Comparisons (chained ones too), and/or/not, + - * / **, numbers, texts, abs, log10 and sqrt are known; nothing else.

    Raises:
        ValueError: on any other syntax, on an unknown name, or when the result is no truth value.
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                if name not in names:
                    raise ValueError(f"condition {condition!r}: no value named {name!r} (known: {', '.join(names)})")
                return names[name]
            case ast.BoolOp(op=op, values=parts):
                truths = [value(part) for part in parts]
                return all(truths) if isinstance(op, ast.And) else any(truths)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not value(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return ARITHMETIC[type(op)](value(left), value(right))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [value(left), *(value(side) for side in comparators)]
                return all(COMPARISONS[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:]))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*(value(argument) for argument in args))
        raise ValueError(f"condition {condition!r}: {ast.unparse(node)!r} is not allowed")

    try:
        result = value(ast.parse(condition, mode="eval"))
    except SyntaxError as error:
        raise ValueError(f"condition {condition!r}: {error.msg}") from None
    if not isinstance(result, bool):
        raise ValueError(f"condition {condition!r} gives {result!r}, no truth value")
    return result


def is_text(entry: Any) -> bool:
    """Whether a recorded entry is a text or a truth value rather than numbers."""
    return isinstance(entry, bool) or (isinstance(entry, str) and entry not in ("inf", "-inf", "nan"))


def names_of(measure: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The names that a claim's conditions may use, from the recorded values; None when one is missing.

    `key: K` gives median, mean, min, max and n over the seeds (or `value` for a text or a truth value);
    `keys: {a: K1, b: K2}` gives each name its median, and `a_min`, `a_max` (or the text).
    """
    if "key" in measure:
        if measure["key"] not in values:
            return None
        entry = values[measure["key"]]
        if is_text(entry):
            return {"value": entry}
        sample = numbers(entry)
        return {
            "median": statistics.median(sample),
            "mean": statistics.fmean(sample),
            "min": min(sample),
            "max": max(sample),
            "n": len(sample),
        }
    found: dict[str, Any] = {}
    for name, key in measure["keys"].items():
        if key not in values:
            return None
        if is_text(values[key]):
            found[name] = values[key]
            continue
        sample = numbers(values[key])
        found |= {name: statistics.median(sample), f"{name}_min": min(sample), f"{name}_max": max(sample)}
    return found


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
        ValueError: naming the claim, on a missing or unknown field, an unknown kind, a measure without condition, or a
            condition that does not parse.
    """
    claims = read_yaml(path)
    for claim in claims:
        where = f"{path.name}: {claim['id']}"
        for name in REQUIRED:
            if name not in claim:
                raise ValueError(f"{where}: {name} is missing")
        for name in claim:
            if name not in REQUIRED + OPTIONAL:
                raise ValueError(f"{where}: unknown field {name!r}")
        if claim["kind"] not in KINDS:
            raise ValueError(f"{where}: unknown kind {claim['kind']!r}")
        if "measure" in claim:
            if "reproduced_if" not in claim:
                raise ValueError(f"{where}: measured, but no reproduced_if")
            if ("key" in claim["measure"]) == ("keys" in claim["measure"]):
                raise ValueError(f"{where}: measure wants either key or keys")
            for name in ("reproduced_if", "direction_if"):
                if name in claim:
                    ast.parse(claim[name], mode="eval")
    return claims


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
