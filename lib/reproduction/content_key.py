"""Content keys: one hash over everything that can change a result.

A key covers a source text (a notebook's cells), its parameters, the first-party modules that the source imports
(transitively), the lock file, and the name and checksum of each data set that was resolved. Two runs with the same key
compute the same thing, so a cached result may stand for a new run; an edit of an unrelated module changes no key.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where `import NAME` finds first-party code, in the order that the editable install puts on the path.
PACKAGES = {
    "implicit_models": ROOT / "lib" / "implicit_models",
    "reproduction": ROOT / "lib" / "reproduction",
    "data_gen": ROOT / "data_gen",
    "benchmarks": ROOT / "benchmarks",
}


def module_file(name: str) -> Path | None:
    """File of a first-party module, or None when the module is not ours or does not exist."""
    head, *rest = name.split(".")
    if head not in PACKAGES:
        return None
    base = PACKAGES[head].joinpath(*rest)
    for candidate in (base / "__init__.py", base.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


def imported_modules(source: str, *, package: str = "") -> set[str]:
    """Names of the first-party modules that a source text imports, at any depth of its syntax tree.

    Args:
        source: Python source; lines that start with IPython magics must have been removed.
        package: dotted name of the package that holds the source, against which relative imports are resolved.

    Returns:
        Dotted names that exist as files. `from a.b import c` yields `a.b` and, if it is a module, `a.b.c`.

    Raises:
        SyntaxError: when the source does not parse.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, node.module] if node.module else parts)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Lazy packages name their submodules in strings (PEP 562); a bare dotted name is an import there.
            if node.value.split(".")[0] in PACKAGES and "." in node.value and module_file(node.value):
                found.add(node.value)
    return {name for name in found if module_file(name)}


@functools.lru_cache(maxsize=None)
def _direct(name: str, _stamp: int) -> frozenset[str]:
    path = module_file(name)
    assert path is not None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return frozenset(imported_modules(path.read_text(encoding="utf-8"), package=package))


def import_closure(modules: Iterable[str]) -> list[str]:
    """First-party modules reachable from the given ones, themselves and their parent packages included.

    A lazy package `__init__` counts as a file, not as an import of all that it could load: only what its source imports
    is followed.

    Raises:
        ModuleNotFoundError: when a given name is no first-party module.
    """
    todo = list(modules)
    for name in todo:
        if module_file(name) is None:
            raise ModuleNotFoundError(f"{name!r} is not a module of {', '.join(PACKAGES)}")
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = module_file(name)
        assert path is not None
        todo.extend(_direct(name, path.stat().st_mtime_ns))
        parent = name.rpartition(".")[0]
        if parent and module_file(parent):
            todo.append(parent)
    return sorted(seen)


def content_key(
    *, modules: Sequence[str], parameters: Mapping, data: Mapping, source: str = "", lock: Path | None = None
) -> str:
    """SHA-256 (hex) of source, parameters, import closure, lock file and data.

    Args:
        modules: first-party modules that the computation imports; their closure is followed.
        parameters: JSON-serialisable values that the computation reads.
        data: name -> checksum of each data set that was resolved (empty when all is synthesised).
        source: the computation's own text, e.g. a notebook's cells.
        lock: lock file; the repository's constraints.txt by default.

    Raises:
        TypeError: when parameters or data are not JSON-serialisable, naming the value.
    """
    digest = hashlib.sha256()

    def add(label: str, payload: bytes) -> None:
        # Lengths keep two neighbouring fields from being read as one.
        digest.update(f"{label}:{len(payload)}:".encode())
        digest.update(payload)

    add("source", source.encode())
    for label, mapping in (("parameters", parameters), ("data", data)):
        add(label, json.dumps(dict(mapping), sort_keys=True, allow_nan=True).encode())
    for name in import_closure(modules):
        path = module_file(name)
        assert path is not None
        add(name, path.read_bytes())
    lock = ROOT / "constraints.txt" if lock is None else lock
    add("lock", lock.read_bytes() if lock.is_file() else b"")
    return digest.hexdigest()
