"""What was spent, as tables of HTML: the notebooks' runs and the committed benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from reproduction.book.claims import recorded_values
from reproduction.book.graph import ROOT
from reproduction.book.pages.markup import notebook_link
from reproduction.book.results import load, numbers
from reproduction.book.run import NOTEBOOKS


def cpu_seconds(content: Mapping[str, Any]) -> float:
    """CPU seconds of a full run, with the training of networks that came from the cache, which counts by itself."""
    training = numbers(content["values"].get("training_cpu_seconds", 0.0))[0]
    return max(training, content["provenance"]["cpu_seconds"])


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


def machine(description: Any) -> str:
    """A benchmark's machine as one line."""
    if isinstance(description, dict):
        return "; ".join(f"{name}: {value}" for name, value in description.items())
    return str(description)
