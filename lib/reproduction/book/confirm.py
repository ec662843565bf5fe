"""Confirm full results across a change of the code, by quick runs before and after it.

    python -m reproduction.book.confirm [NAME ...]

A committed full run whose code key is no longer that of the present code is stale. For each, the quick profile runs at
the commit of the result (in a git worktree, in the same environment) and at the present commit, both from empty caches.
When every recorded value and curve that is no time is the same bit for bit, and every statement that changed ran in the
present quick run, then the present key is appended to the result's list `confirmed`, with date and commit. Otherwise
the result stays stale, and the values that differ, or the statements that did not run, are named.

A changed definition that a quick profile does not call (another solver, another kind of call) keeps its results stale,
unless `--accept pattern=reason` says why it need not run; names and reasons are kept in the result and stand on its
page.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import math
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.book import run, trace
from reproduction.book.changes import Change, changes
from reproduction.book.claims import recorded_values
from reproduction.book.definitions import Ref
from reproduction.book.graph import ROOT, SHOWN, Graph
from reproduction.book.keys import notebook_refs
from reproduction.book.keys import present as present_graph
from reproduction.book.results import RESULTS, load, save

FOLDER = ROOT / ".confirm"
# Where the machinery of a build stood before it had a package of its own.
EARLIER = (
    *(f"reproduction.{m}" for m in ("results", "parameters", "claims", "pages", "execute", "content_key", "plotting")),
    "implicit_models.*kernel_cache",
)
TIME_UNITS = ("s", "ms", "us", "µs", "ns", "min", "h", "CPU s", "by the clock")

# Ratios of times, and memory, which have no unit that says so: patterns of keys, by notebook.
BY_THE_CLOCK = {
    "ch3_bisection": ("*_times_*", "*_seconds_*", "projection_share_*"),
    "ch3_resnet20_cifar": ("*_seconds_*",),
    "ch4_resnet20_cifar": ("*_memory_mb",),
    "ch4_sensitivity": ("*_ratio",),
    "ch5_depth": ("time_*", "time/*"),
}


@dataclass(frozen=True)
class Outcome:
    """What became of one result: confirmed when `reasons` is empty."""

    name: str
    reasons: tuple[str, ...]
    changed: int = 0


def reference_of(content: dict[str, Any]) -> str | None:
    """The commit that a full run stands for: the last one that confirmed it, or that which computed it."""
    return [content["provenance"].get("commit"), *(entry["commit"] for entry in content.get("confirmed", []))][-1]


def worktree(commit: str) -> Path:
    """The tree of a commit below the folder of confirmations, made if need be.

    Raises:
        subprocess.CalledProcessError: when git knows no such commit.
    """
    path = FOLDER / commit[:12] / "tree"
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "worktree", "add", "--quiet", "--detach", "--force", str(path), commit]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return path


def quick_run(tree: Path, name: str, folder: Path, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Values, units and curves of a notebook's quick run in a tree, from an empty cache.

    Args:
        tree: root of the sources to run.
        folder: for the executed copy and the cache.
        extra: environment variables.

    Raises:
        RuntimeError: when the run fails, with the end of its message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out, cache = folder / f"{name}.ipynb", folder / f"{name}.cache"
    shutil.rmtree(cache, ignore_errors=True)
    first = [*([extra["PYTHONPATH"]] if extra and "PYTHONPATH" in extra else []), str(tree / "lib"), str(tree)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "IMPLICIT_CACHE": str(cache),
        **(extra or {}),
        "PYTHONPATH": os.pathsep.join(first),
    }
    source = str(tree / "notebooks" / f"{name}.ipynb")
    command = [sys.executable, "-m", "papermill", source, str(out), "-p", "profile", "quick", "-k", "python3"]
    command += ["--cwd", str(tree / "notebooks"), "--no-progress-bar"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    shutil.rmtree(cache, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(f"the quick run failed: {done.stderr.strip()[-600:]}")
    return run.published(json.loads(out.read_text(encoding="utf-8")))


def differences(old: dict[str, Any], new: dict[str, Any], timed: tuple[str, ...] = ()) -> list[str]:
    """Names of recorded values and curves that are not the same bit for bit, times left out.

    Args:
        old, new: contents of the two runs.
        timed: patterns of further keys that depend on the clock or on the machine.
    """
    units = {**old.get("units", {}), **new.get("units", {})}
    found = []
    for kind in ("values", "curves"):
        for key in sorted({*old[kind], *new[kind]}):
            if units.get(key) in TIME_UNITS or any(fnmatch.fnmatchcase(key, pattern) for pattern in timed):
                continue
            if key not in old[kind] or key not in new[kind]:
                found.append(f"{key} is recorded by one of the runs only")
            elif not same(old[kind][key], new[kind][key]):
                found.append(f"{key}: {_short(old[kind][key])} before, {_short(new[kind][key])} now")
    return found


def same(a: Any, b: Any) -> bool:
    """Equality of recorded entries; NaN is itself, 1 and 1.0 are one number."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "..."


def changed_since(tree: Path, name: str) -> list[Change]:
    """Statements behind a notebook's recorded values that are not those of a tree."""
    old, new = Graph(tree, shown=(*SHOWN, *EARLIER)), present_graph()

    def refs(graph: Graph, folder: Path) -> list[Ref]:
        text = (folder / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
        return notebook_refs(run.code_of(json.loads(text)), graph)[1]

    return changes(old, refs(old, tree), new, refs(new, ROOT))


@dataclass(frozen=True)
class Case:
    """A stale full result, what it is compared with, and what must run."""

    name: str
    content: dict[str, Any]
    reference: str
    present: str
    needed: tuple[Change, ...]


def case(name: str) -> Case | Outcome:
    """What has to be done for a result, or why nothing can be."""
    content = load(RESULTS / f"{name}.json")
    if content is None:
        return Outcome(name, ("there is no full run",))
    if recorded_values(name).standing != "stale":
        return Outcome(name, ())
    reference, present = reference_of(content), run.commit_of(name)
    if reference is None:
        return Outcome(name, ("the full run names no commit: its code was not committed",))
    if present is None:
        return Outcome(name, ("the present code is not committed",))
    try:
        tree = worktree(reference)
    except subprocess.CalledProcessError as error:
        return Outcome(name, (f"commit {reference[:12]} cannot be had: {error.stderr.strip()}",))
    return Case(name, content, reference, present, tuple(changed_since(tree, name)))


def file_of(change: Change) -> str:
    """Path of the file that holds a changed statement."""
    return str(present_graph().module(change.module).path)


def confirm(case: Case, lines: dict[str, list[int]], compiled: bool, accepted: dict[str, str]) -> Outcome:
    """Run a notebook's quick profile before and after, compare, and append the present key where nothing differs.

    Args:
        lines, compiled: of the changes of all cases, so that they share one cache of marked kernels.
        accepted: pattern of definitions -> why they need not run.
    """
    name, reference, needed = case.name, case.reference, case.needed
    tree, folder = worktree(reference), FOLDER / "present" / name
    plan = trace.write_plan(folder, lines, compiled=compiled)
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(f"from {trace.__name__} import install\n\ninstall()\n")
    extra = {trace.PLAN: str(plan), "PYTHONPATH": str(hook), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    if compiled:  # a kernel's machine code must hold the marks, and none of it may be left behind
        extra["NUMBA_CACHE_DIR"] = str(FOLDER / "present" / "kernels")
    try:
        before = load(FOLDER / reference[:12] / f"{name}.json")
        if before is None:
            before = quick_run(tree, name, FOLDER / reference[:12])
            save(FOLDER / reference[:12] / f"{name}.json", before)
        now = quick_run(ROOT, name, folder, extra)
        wrong = differences(before, now, BY_THE_CLOCK.get(name, ()))
        if wrong and compiled:  # marks can change the order of a kernel's sums
            wrong = differences(before, quick_run(ROOT, name, folder / "plain"), BY_THE_CLOCK.get(name, ()))
    except RuntimeError as error:
        return Outcome(name, (str(error),), len(needed))
    finally:
        shutil.rmtree(folder / "bytecode", ignore_errors=True)
    missed = {(file, line) for file, found in trace.missed(plan).items() for line in found}
    silent: dict[str, list[int]] = {}
    for change in needed:
        if (file_of(change), change.line) in missed:
            silent.setdefault(f"{change.module}.{change.name}", []).append(change.line)
    excused: dict[str, list[str]] = {}
    for where in sorted(silent):
        if reason := next((why for pattern, why in accepted.items() if fnmatch.fnmatchcase(where, pattern)), None):
            excused.setdefault(reason, []).append(where)
            del silent[where]
    reasons = [f"differs: {text}" for text in wrong]
    reasons += [
        f"changed and not run by the quick profile: {where}, line {_list(found)}" for where, found in silent.items()
    ]
    if not reasons:
        code_key = run.code_key_of(name, run.effective_parameters(name, "full"))
        entry: dict[str, Any] = {
            "code_key": code_key,
            "commit": case.present,
            "date": datetime.date.today().isoformat(),
        }
        if excused:
            entry["not_run"] = excused
        confirmed = [*case.content.get("confirmed", []), entry]
        save(RESULTS / f"{name}.json", {**case.content, "confirmed": confirmed})
    return Outcome(name, tuple(reasons), len(needed))


def _list(lines: list[int]) -> str:
    return ", ".join(str(line) for line in sorted(lines))


def main(arguments: list[str] | None = None) -> int:
    """Confirm the named results, or all that are stale; the exit status is 1 when one stays stale."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.book.confirm", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--accept", action="append", default=[], metavar="PATTERN=REASON")
    options = parser.parse_args(arguments)
    if wrong := [text for text in options.accept if not all(text.partition("="))]:
        parser.error(f"--accept wants pattern=reason, got {wrong[0]!r}")
    accepted = {text.partition("=")[0]: text.partition("=")[2] for text in options.accept}
    known = sorted(path.stem for path in run.NOTEBOOKS.glob("*.ipynb"))
    for name in options.names:
        if name not in known:
            parser.error(f"no notebook {name!r}; there are: {', '.join(known)}")
    names = options.names or [name for name in known if recorded_values(name).stale]
    if not names:
        print("confirm: no full result is stale")
        return 0
    start = time.perf_counter()
    cases = [case(name) for name in names]
    needed = [change for one in cases if isinstance(one, Case) for change in one.needed]
    lines: dict[str, set[int]] = {}
    for change in needed:
        lines.setdefault(file_of(change), set()).add(change.line)
    plan, compiled = {file: sorted(found) for file, found in lines.items()}, any(c.compiled for c in needed)
    shutil.rmtree(FOLDER / "present", ignore_errors=True)
    with ThreadPoolExecutor(options.workers) as pool:
        done = [
            one if isinstance(one, Outcome) else pool.submit(confirm, one, plan, compiled, accepted) for one in cases
        ]
        stale = 0
        for number, one in enumerate(done, start=1):
            outcome = one if isinstance(one, Outcome) else one.result()
            stale += bool(outcome.reasons)
            verdict = "stays stale" if outcome.reasons else f"confirmed ({outcome.changed} changed statements ran)"
            print(f"[{number}/{len(names)}] {outcome.name}: {verdict}", flush=True)
            for reason in outcome.reasons[:12]:
                print(f"    {reason}", flush=True)
            if len(outcome.reasons) > 12:
                print(f"    and {len(outcome.reasons) - 12} more", flush=True)
    shutil.rmtree(FOLDER / "present" / "kernels", ignore_errors=True)
    print(f"confirm: {len(names) - stale} of {len(names)} confirmed in {time.perf_counter() - start:.0f} s")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
