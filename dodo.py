"""The book's tasks: execute each notebook whose content key changed, generate pages, build.

`make` calls this; `python -m doit list` shows the tasks. The profile comes from the environment variable PROFILE. A
notebook's state is the key inside its executed copy, not doit's database, so a kill at any moment costs only the
notebooks that were running.
"""

import json
import os
import subprocess
import sys
import time

from doit.action import CmdAction
from doit.reporter import ConsoleReporter

from reproduction.book import stamps
from reproduction.book.graph import ROOT
from reproduction.book.results import EXECUTED
from reproduction.book.run import NOTEBOOKS, executed_key, up_to_date

PROFILE = os.environ.get("PROFILE", "quick")
if PROFILE not in ("quick", "full"):
    sys.exit(f"PROFILE={PROFILE}: wanted quick or full")
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
# One thread a worker: two notebooks run side by side on two cores.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
# What a run reads, as this process found it; where nothing was touched since all notebooks were up to date, none is
# asked.
EXECUTED_FILES = [f"book/_executed/{name}.{kind}" for name in NAMES for kind in ("ipynb", "json")]
INPUTS = [*stamps.CODE, "results", "book/claims.yml"]
START = stamps.stamp(INPUTS, PROFILE, *stamps.surroundings())


def notebooks_now():
    """Stamp of what the notebooks read, as it was when this process began, and of their executed copies."""
    return stamps.stamp(EXECUTED_FILES, START)


UNTOUCHED = stamps.is_fresh("notebooks", notebooks_now())


class Progress(ConsoleReporter):
    """One line per notebook: [k/N] name seconds."""

    done = 0
    started = {}

    def execute_task(self, task):
        self.started[task.name] = time.perf_counter()
        if not task.name.startswith("notebook:"):
            self.outstream.write(f".  {task.name}\n")

    def _line(self, task, text):
        if task.name.startswith("notebook:"):
            Progress.done += 1
            self.outstream.write(f"[{Progress.done}/{len(NAMES)}] {task.name.partition(':')[2]} {text}\n")
            self.outstream.flush()

    def add_success(self, task):
        if task.name.startswith("notebook:"):
            metadata = json.loads((EXECUTED / f"{task.name.partition(':')[2]}.ipynb").read_text())["metadata"]
            self._line(task, f"{metadata['implicit_models']['seconds']:.1f} s")

    def skip_uptodate(self, task):
        self._line(task, "up to date")

    def add_failure(self, task, fail):
        self._line(task, f"FAILED after {time.perf_counter() - self.started.get(task.name, time.perf_counter()):.1f} s")
        super().add_failure(task, fail)


DOIT_CONFIG = {"default_tasks": ["book"], "reporter": Progress, "verbosity": 1, "dep_file": str(ROOT / ".doit.db")}


def run(*arguments):
    """An action that runs a Python module in the environment of the workers."""
    return CmdAction([sys.executable, "-m", *arguments], shell=False, env=ENVIRONMENT, cwd=str(ROOT))


def task_notebook():
    """Execute a notebook if anything that it depends on changed."""
    for name in NAMES:
        yield {
            "name": name,
            "actions": [run("reproduction.book.run", name, "--profile", PROFILE, "--refresh")],
            "uptodate": [UNTOUCHED or (up_to_date, [name, PROFILE])],
            "doc": f"notebooks/{name}.ipynb, profile {PROFILE}",
        }


def pages_now():
    """Stamp of what the generated pages are made of."""
    made = [f"book/_executed/{name}.json" for name in NAMES]
    return stamps.stamp([*INPUTS, "book/errata.yml", "book/gallery.yml", *made], PROFILE)


def task_pages():
    """Scoreboard, errata and cost table from claims.yml, errata.yml, results/ and the executed notebooks."""
    yield {
        "name": "executed",
        "actions": [(lambda: stamps.remember("notebooks", notebooks_now()))],
        "task_dep": ["notebook"],
        "uptodate": [lambda: UNTOUCHED],
    }
    now = []
    yield {
        "name": "generated",
        "actions": [
            lambda: now.append(pages_now()),
            run("reproduction.book.pages"),
            lambda: stamps.remember("pages", now[-1]),
        ],
        "task_dep": ["pages:executed"],
        "uptodate": [lambda: stamps.is_fresh("pages", pages_now()) and (ROOT / "book/_generated/foot").is_dir()],
        "verbosity": 2,
    }


def html_now():
    """Stamp of what Sphinx reads; conf.py is made from the other settings."""
    pages = [
        f"book/{path.name}" for path in (ROOT / "book").iterdir() if path.name not in ("conf.py", "_build", "_executed")
    ]
    return stamps.stamp([*sorted(pages), "lib/reproduction", "results", *EXECUTED_FILES])


def build_html():
    """Build the book; a warning is an error. Prints the page to open."""
    page, now = ROOT / "book/_build/html/index.html", html_now()
    if not (page.is_file() and stamps.is_fresh("html", now)):
        # Jupyter Book writes Sphinx's settings from _config.yml and _toc.yml; Sphinx itself then rereads what changed.
        settings = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "config", "sphinx", "book"]
        source, built_in = str(ROOT / "book"), ROOT / "book/_build"
        sphinx = [
            sys.executable,
            "-m",
            "sphinx",
            "-b",
            "html",
            "-W",
            "--keep-going",
            "-q",
            "-d",
            str(built_in / ".doctrees"),
        ]
        path = os.pathsep.join([str(ROOT / "book/_ext"), *filter(None, [os.environ.get("PYTHONPATH")])])
        for command in (settings, [*sphinx, source, str(built_in / "html")]):
            environment = {**ENVIRONMENT, "PYTHONPATH": path}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            if done.returncode:
                # The build's own log is long; what stopped it stands in its warnings.
                print(done.stdout[-6000:], done.stderr[-6000:])
                return False
        stamps.remember("html", now)
    missing = [name for name in NAMES if executed_key(EXECUTED / f"{name}.ipynb") is None]
    if missing:
        print(f"not executed: {', '.join(missing)}")
        return False
    print(f"\nopen {page.as_uri()}")
    return True


def task_book():
    """The HTML book."""
    return {"actions": [build_html], "task_dep": ["pages"], "verbosity": 2}
