"""The whole book as one PDF: Sphinx puts all pages into one, and a browser prints it.

    python -m reproduction.tools.print_book [--out book/_build/book.pdf]

The pages must have been made before (`make book`). Figures, tables and verdicts are those of the book; what needs a
script (sorting, the page that a reader moves) shows what it shows without one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from reproduction.book.graph import ROOT

BUILD = ROOT / "book" / "_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str:
    """Path of a Chromium.

    Raises:
        FileNotFoundError: when none is on the path, saying how to get one.
    """
    given = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [given] if given else BROWSERS)), None)
    if found is None:
        what = f"CHROMIUM={given} is no program" if given else "no Chromium on the path"
        raise FileNotFoundError(f"{what} (Debian: apt install chromium; or set CHROMIUM)")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the book."""
    title = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m reproduction.tools.print_book", description=title)
    parser.add_argument("--out", type=Path, default=BUILD / "book.pdf")
    options = parser.parse_args(arguments)
    if not (ROOT / "book" / "conf.py").is_file():
        parser.error("the book has not been made yet: make book")
    try:
        chromium = browser()
    except FileNotFoundError as error:
        parser.error(str(error))
    page = BUILD / "single"
    path = os.pathsep.join([str(ROOT / "book" / "_ext"), *filter(None, [os.environ.get("PYTHONPATH")])])
    sphinx = [sys.executable, "-m", "sphinx", "-b", "singlehtml", "-q", "-d", str(BUILD / ".doctrees-single")]
    subprocess.run([*sphinx, str(ROOT / "book"), str(page)], env={**os.environ, "PYTHONPATH": path}, check=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-pdf-header-footer",
            "--virtual-time-budget=120000",  # until the mathematics is set
            f"--print-to-pdf={options.out.resolve()}",
            (page / "index.html").resolve().as_uri(),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not options.out.is_file():
        print(done.stderr[-3000:], file=sys.stderr)
        return 1
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
