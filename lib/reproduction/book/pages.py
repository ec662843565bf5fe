"""Generated parts of the book: scoreboard, errata, cost table. Nothing in them is typed by hand.

    python -m reproduction.book.pages

reads book/claims.yml, book/errata.yml, results/*.json and the executed notebooks, and writes book/_generated/*.html.
"""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

from reproduction.book import claims_check
from reproduction.book.claims import CLAIMS, ERRATA, load_claims, read_yaml, recorded_values
from reproduction.book.graph import ROOT
from reproduction.book.records import errata, notebook_link, scoreboard
from reproduction.book.results import load
from reproduction.book.run import NOTEBOOKS

GENERATED = ROOT / "book" / "_generated"


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


def api() -> str:
    """Signature and docstring of every public name of the library and of its packages."""
    import implicit_models
    from implicit_models import robustness, seismology, sim
    from implicit_models.compose import interconnect as compose

    index, parts = [], []
    packages = (
        (implicit_models, "Models and equilibria"),
        (compose, "Composition and networks"),
        (sim, "State-driven modelling"),
        (robustness, "Robustness"),
        (seismology, "Seismology"),
    )
    for package, title in packages:
        names = sorted((n for n in package.__all__ if not n.startswith("_")), key=str.lower)
        index.append(f"<p>{title}: " + " · ".join(f'<a href="#{name}">{name}</a>' for name in names) + "</p>")
        for name in names:
            item = getattr(package, name)
            methods = []
            if inspect.isclass(item):
                for key, value in vars(item).items():
                    member = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                    if not key.startswith("_") and inspect.isfunction(member) and member.__doc__:
                        methods.append(entry(f"{name}.{key}", member, "h3"))
            parts.append(entry(name, item, "h2") + "".join(methods))
    return "".join(index + parts)


def entry(name: str, item: Any, level: str) -> str:
    """One documented object as HTML."""
    try:
        signature = re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>", "...", str(inspect.signature(item)))
        # Annotations are read from texts; a reader of the page needs neither their quotes nor self.
        signature = re.sub(r"\(self(, )?", "(", signature.replace("'", "").replace('"', ""))
    except (TypeError, ValueError):
        signature = ""
    module = getattr(item, "__module__", "")
    return (
        f'<{level} id="{name}">{escape(name)}</{level}><p'
        f' class="signature"><code>{escape(name.rpartition(".")[2] + signature)}</code></p><p'
        f' class="where">{escape(module)}</p><pre class="docstring">{escape(inspect.getdoc(item) or "")}</pre>'
    )


def machine(description: Any) -> str:
    """A benchmark's machine as one line."""
    if isinstance(description, dict):
        return "; ".join(f"{name}: {value}" for name, value in description.items())
    return str(description)


def standing(name: str) -> str:
    """One sentence on a notebook's full run for the foot of its page: when, at which commit, and whether it still
    holds."""
    found = recorded_values(name)
    text = found.sentence
    if found.full and (commit := found.full["provenance"].get("commit")):
        subject = subprocess.run(
            ["git", "log", "-1", "--format=%s", commit], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        text += f" Its commit is {commit[:7]}" + (f" ({subject})." if subject else ".")
    return text


def write(path: Path, text: str) -> None:
    """Write a file only when its text changed, so that Sphinx rereads no page in vain."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write all generated parts, or list all faults of claims, errata and quoted numbers."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.book.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; list what is wrong")
    if parser.parse_args(arguments).check:
        found = claims_check.check()
        print("\n".join(found) or "pages: claims, errata and quoted numbers are in order")
        return 1 if found else 0
    claims, entries = load_claims(CLAIMS), read_yaml(ERRATA)
    write(GENERATED / "scoreboard.html", scoreboard(claims))
    write(GENERATED / "errata.html", errata(entries))
    write(GENERATED / "cost.html", cost())
    write(GENERATED / "api.html", api())
    for name in sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        write(GENERATED / "standing" / f"{name}.txt", standing(name) + "\n")
    for area in sorted(
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
    ):
        write(GENERATED / f"benchmark_{area}.html", benchmark(area))
    print(f"pages: {len(claims)} claims, {len(entries)} errata")
    return 0


if __name__ == "__main__":
    sys.exit(main())
