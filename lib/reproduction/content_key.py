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
import re
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


def lazy_targets(package: str) -> set[str]:
    """Modules that a lazy package (PEP 562: its `__init__` defines `__getattr__`) loads on attribute access."""
    path = module_file(package)
    if path is None or path.name != "__init__.py":
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body):
        return set()
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = words | {f"{package}.{word.lstrip('.')}" for word in words}
    return {name for name in names if re.fullmatch(r"\w+(\.\w+)*", name) and module_file(name)}


def imported_modules(source: str, *, package: str = "") -> set[str]:
    """Names of the first-party modules that a source text imports, at any depth of its syntax tree.

    An attribute taken from a lazy package could come from any module that the package names, so all of these count;
    importing the submodule itself keeps the key narrow.

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
            for alias in node.names:
                found |= {alias.name} | lazy_targets(alias.name)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, node.module] if node.module else parts)
            found.add(base)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found |= {name} if module_file(name) else lazy_targets(base)
    return {name for name in found if module_file(name)}


@functools.cache
def _direct(name: str, _stamp: int) -> frozenset[str]:
    path = module_file(name)
    assert path is not None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return frozenset(imported_modules(path.read_text(encoding="utf-8"), package=package))


def import_closure(modules: Iterable[str]) -> list[str]:
    """First-party modules reachable from the given ones, themselves and their parent packages included.

    A lazy package `__init__` does not count: all it does is to name modules, and those that are loaded count
    themselves.

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
    return sorted(name for name in seen if not lazy_targets(name))


def code_text(source: str) -> str:
    """A module's source without what cannot change a result: docstrings, comment lines, blank lines, trailing spaces.

    Lines of multi-line strings that are no docstrings are kept as they stand.

    Raises:
        SyntaxError: when the source does not parse.
    """
    docstrings: set[int] = set()
    verbatim: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno > node.lineno:
            verbatim.update(range(node.lineno, node.end_lineno + 1))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and body:
            first = body[0]
            # A docstring that is the whole body, or shares its line with code, stays.
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                if len(body) > 1 and body[1].lineno > first.end_lineno and first.lineno > getattr(node, "lineno", 0):
                    docstrings.update(range(first.lineno, first.end_lineno + 1))
    kept = []
    for number, line in enumerate(source.splitlines(), start=1):
        if number in docstrings:
            continue
        if number in verbatim:
            kept.append(line)
        elif (text := line.rstrip()) and not text.lstrip().startswith("#"):
            kept.append(text)
    return "\n".join(kept)


def content_key(
    *,
    modules: Sequence[str],
    parameters: Mapping,
    data: Mapping,
    source: str = "",
    lock: Path | None = ROOT / "constraints.txt",
) -> str:
    """SHA-256 (hex) of source, parameters, import closure, lock file and data.

    Args:
        modules: first-party modules that the computation imports; the code of their closure counts (`code_text`).
        parameters: JSON-serialisable values that the computation reads.
        data: name -> checksum of each data set that was resolved (empty when all is synthesised).
        source: the computation's own text, e.g. a notebook's cells.
        lock: lock file, or None to leave the installed versions out (the "code key" of a committed result).

    Raises:
        TypeError: when parameters or data are not JSON-serialisable, naming the type.
    """
    digest = hashlib.sha256()

    def add(label: str, payload: str) -> None:
        # Lengths keep two neighbouring fields from being read as one.
        digest.update(f"{label}:{len(payload)}:{payload}".encode())

    add("source", source)
    for label, mapping in (("parameters", parameters), ("data", data)):
        add(label, json.dumps(dict(mapping), sort_keys=True))
    for name in import_closure(modules):
        path = module_file(name)
        assert path is not None
        add(name, code_text(path.read_text(encoding="utf-8")))
    if lock is not None:
        add("lock", lock.read_text(encoding="utf-8") if lock.is_file() else "")
    return digest.hexdigest()
