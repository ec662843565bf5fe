"""Content keys: one hash over everything that can change a result, and over nothing else.

Two runs with the same key compute the same thing, so a cached result may stand for a new run. A key covers parameters,
the definitions that the computation depends on (`reproduction.book.graph`: the syntax trees of the functions that are
reached, without comments, docstrings, annotations and the names of modules), the data sets that were resolved and,
where asked for, the lock file.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.book.definitions import Ref, canonical
from reproduction.book.graph import ROOT, Graph
from reproduction.book.slices import computing

LOCK = ROOT / "constraints.txt"


@functools.cache
def present() -> Graph:
    """The graph of the sources as this process found them, without what only shows."""
    return Graph()


@functools.cache
def present_with_shown() -> Graph:
    """The graph of the sources as this process found them, whole."""
    return Graph(shown=())


def content_key(
    *,
    modules: Sequence[str],
    parameters: Mapping,
    data: Mapping,
    source: str = "",
    lock: Path | None = LOCK,
    graph: Graph | None = None,
) -> str:
    """SHA-256 (hex) of source, parameters, definitions, lock file and data.

    Args:
        modules: what the computation calls: first-party modules ("data_gen.synthetic.rolling") or names in them
            ("data_gen.synthetic.rolling:rolling_average"), with all that they depend on.
        parameters: JSON-serialisable values that the computation reads.
        data: name -> checksum of each data set that was resolved (empty when all is synthesised).
        source: further text that the computation depends on, taken as it stands.
        lock: lock file, or None to leave the installed versions out (the "code key" of a committed result).
        graph: of the present sources by default.

    Raises:
        TypeError: when parameters or data are not JSON-serialisable, naming the type.
        ModuleNotFoundError: when a given name is no first-party module.
    """
    graph = graph or present()
    refs = []
    for name in modules:
        module, _, inner = name.partition(":")
        graph.module(module)
        refs.append(Ref(module, inner or None))
    return _hashed(source, parameters, data, sorted(graph.digests(refs).values()), lock)


def code_key(code: str, parameters: Mapping, *, graph: Graph | None = None) -> str:
    """SHA-256 (hex) of what a notebook's recorded values depend on: its computing statements, their closure,
    parameters.

    Args:
        code: all code cells as one text, without IPython magics.
    """
    if graph is None:
        return _present_code_key(code, json.dumps(dict(parameters), sort_keys=True))
    statements, refs = notebook_refs(code, graph)
    return _hashed(statements, parameters, {}, sorted(graph.digests(refs).values()), None)


@functools.cache
def _present_code_key(code: str, parameters: str) -> str:
    return code_key(code, json.loads(parameters), graph=present())


def page_key(code: str, sources: str, parameters: Mapping, data: Mapping, *, graph: Graph | None = None) -> str:
    """SHA-256 (hex) of all that an executed notebook shows: every cell, and the closure with what only shows."""
    graph = graph or present_with_shown()
    notebook = graph.parsed("notebook", "", Path("notebook"), code)
    refs = [r for s in notebook.statements for r in canonical(graph, notebook, [s]).refs if r.module != "notebook"]
    return _hashed(sources, parameters, data, sorted(graph.digests(refs).values()), LOCK)


def notebook_refs(code: str, graph: Graph) -> tuple[str, list[Ref]]:
    """Digest of a notebook's computing statements, and the first-party names that they read."""
    notebook = graph.parsed("notebook", "", Path("notebook"), code)
    text = canonical(graph, notebook, computing(graph, notebook))
    return text.digest, [ref for ref in text.refs if ref.module != "notebook"]


def _hashed(source: str, parameters: Mapping, data: Mapping, definitions: Sequence[str], lock: Path | None) -> str:
    digest = hashlib.sha256()
    fields = {
        "source": source,
        "parameters": json.dumps(dict(parameters), sort_keys=True),
        "data": json.dumps(dict(data), sort_keys=True),
        "definitions": " ".join(definitions),
        "lock": lock.read_text(encoding="utf-8") if lock is not None and lock.is_file() else "",
    }
    for label, payload in fields.items():
        # Lengths keep two neighbouring fields from being read as one.
        digest.update(f"{label}:{len(payload)}:{payload}".encode())
    return digest.hexdigest()
