"""Write the generated parts of the book; nothing in them is typed by hand.

    python -m reproduction.book.pages            writes book/_generated
    python -m reproduction.book.pages --readme   writes the README's table of notebooks
    python -m reproduction.book.pages --check    writes nothing and lists what is wrong

It reads book/claims.yml, book/errata.yml, book/gallery.yml, results/*.json and the executed notebooks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduction.book import claims_check
from reproduction.book.claims import CLAIMS, ERRATA, load_claims, read_yaml
from reproduction.book.graph import ROOT
from reproduction.book.pages import answers, costs, gallery, readme, records
from reproduction.book.run import NOTEBOOKS, parameters_of, read_notebook

GENERATED = ROOT / "book" / "_generated"


def write(path: Path, text: str) -> None:
    """Write a file only when its text changed, so that Sphinx rereads no page in vain."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write all generated parts, or list all faults of claims, errata, quoted numbers and the README's table."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.book.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; list what is wrong")
    parser.add_argument("--readme", action="store_true", help="write the README's table of notebooks, nothing else")
    asked = parser.parse_args(arguments)
    if asked.readme:
        readme.write()
        return 0
    if asked.check:
        found = claims_check.check() + readme.faults()
        print("\n".join(found) or "pages: claims, errata, quoted numbers and the README's table are in order")
        return 1 if found else 0
    claims, entries = load_claims(CLAIMS), read_yaml(ERRATA)
    write(GENERATED / "scoreboard.html", records.scoreboard(claims))
    write(GENERATED / records.CSV, records.scoreboard_csv(claims))
    write(GENERATED / "errata.html", records.errata(entries))
    write(GENERATED / "cost.html", costs.cost())
    write(GENERATED / "tiles.html", answers.tiles(claims))
    write(GENERATED / "gallery.html", gallery.gallery(gallery.load(), claims))
    for name in sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        write(GENERATED / "foot" / f"{name}.html", answers.foot(name, parameters_of(read_notebook(name))))
        write(GENERATED / "claims" / f"{name}.html", answers.claims_table(name, claims))
    for area in sorted(
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
    ):
        write(GENERATED / f"benchmark_{area}.html", costs.benchmark(area))
    print(f"pages: {len(claims)} claims, {len(entries)} errata")
    return 0


if __name__ == "__main__":
    sys.exit(main())
