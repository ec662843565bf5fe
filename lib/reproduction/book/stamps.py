"""Whether a step of the build has anything to do: sizes and times of the files that it reads, as they were when it
ended.

A stamp is a cheap shortcut before content keys and Sphinx: equal stamps mean that nothing was touched. Unequal ones
mean nothing yet; then the step finds out by itself what changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from reproduction.book.graph import ROOT
from reproduction.book.results import EXECUTED

FILE = EXECUTED / ".stamps.json"
IGNORED = {"__pycache__", "_build", "_executed", "_generated", ".ipynb_checkpoints"}
CODE = ("lib", "data_gen", "benchmarks", "notebooks", "constraints.txt", "dodo.py")


def files(paths: Iterable[str | Path]) -> list[Path]:
    """Files below paths (relative to the project), without what a build makes."""
    found: list[Path] = []
    for path in paths:
        top = ROOT / path
        if top.is_file():
            found.append(top)
        for folder, names, inside in os.walk(top):
            names[:] = sorted(set(names) - IGNORED)
            found.extend(Path(folder) / name for name in sorted(inside) if not name.startswith("."))
    return found


def stamp(paths: Iterable[str | Path], *words: str) -> str:
    """Hash of names, sizes and times of files, and of further words."""
    digest = hashlib.sha256("\n".join(words).encode())
    for path in files(paths):
        status = path.stat()
        digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def surroundings() -> list[str]:
    """What decides which data sets a run would find: folders that are named, and what lies in them."""
    from data_gen.core.sources import cache_dir

    found = []
    for folder in (os.environ.get("IMPLICIT_DATA", ""), str(cache_dir() / "datasets"), "/usr/share/datasets"):
        names = sorted(os.listdir(folder)) if folder and os.path.isdir(folder) else []
        found.append(f"{folder}: {' '.join(names)}")
    return found


def is_fresh(step: str, now: str) -> bool:
    """Whether a step ended at this stamp."""
    try:
        return json.loads(FILE.read_text(encoding="utf-8")).get(step) == now
    except (OSError, json.JSONDecodeError):
        return False


def remember(step: str, now: str) -> None:
    """Note that a step ended well, having started at this stamp."""
    try:
        known = json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        known = {}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    part = FILE.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({**known, step: now}, indent=1) + "\n", encoding="utf-8")
    os.replace(part, FILE)
