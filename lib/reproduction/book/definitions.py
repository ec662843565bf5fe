"""Definitions: a statement at the top of a module, and its canonical text, which says what it computes.

The text is of the syntax tree without positions, comments, docstrings and annotations; first-party names stand in it by
what they are called at home.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reproduction.book.graph import Graph

# Methods that put an object into words.
WORDS = ("__repr__", "__str__")
# An annotation is no code, but these two decide what a dataclass takes as a field.
FIELD_KINDS = ("ClassVar", "InitVar", "KW_ONLY")
SKIPPED = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "lineno", "docstring", "type_ignores"}


class Ref(NamedTuple):
    """A name of a first-party module (`name` None: the module as a whole; empty: that it is imported)."""

    module: str
    name: str | None


class Node(NamedTuple):
    """A top-level statement of a module, by its place."""

    module: str
    place: int


@dataclass
class Module:
    """A parsed module: its top-level statements, what binds which name, and what runs for its effect."""

    name: str
    package: str
    path: Path
    statements: list[ast.stmt]
    bindings: dict[str, list[int]] = field(default_factory=dict)
    imports: dict[str, Ref | str] = field(default_factory=dict)
    effects: list[int] = field(default_factory=list)
    lazy: dict[str, list[Ref]] = field(default_factory=dict)
    loads: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Text:
    """Canonical text of a statement and the first-party names that it reads, in order of reading."""

    digest: str
    refs: tuple[Ref, ...]


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a text that nothing reads."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_wordy(node: object) -> bool:
    """Whether a part of a body says something and computes nothing: a docstring, or the text of an object."""
    if isinstance(node, ast.FunctionDef):
        return node.name in WORDS
    return isinstance(node, ast.stmt) and is_docstring(node)


def stored_names(node: ast.AST) -> set[str]:
    """Names that a statement binds: assigned, imported, defined or deleted, outside the functions inside it."""
    found: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(inner.name)
            continue
        if isinstance(inner, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            found.add(inner.id)
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.split(".")[0] for alias in inner.names}
        todo.extend(ast.iter_child_nodes(inner))
    return found


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in SKIPPED)


def canonical(graph: Graph, module: Module, statements: list[ast.stmt]) -> Text:
    """Canonical text of statements of a module: one hash of the tree, first-party names by what they are called at
    home."""
    digest, refs = hashlib.sha256(), []
    names = dict(module.imports)
    for statement in statements:
        for inner in ast.walk(statement):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                names |= graph.imported(inner, module.package)
    add = digest.update

    def read(ref: Ref) -> None:
        refs.append(ref)
        add(f"@{ref.name}".encode() if ref.name else b"@module")

    def name_of(node: ast.expr) -> bool:
        """Write a name or a chain of attributes that starts at an import or at a name of this module."""
        chain: list[str] = []
        while isinstance(node, ast.Attribute):
            chain.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        target = names.get(node.id)
        if target is None:
            if node.id not in module.bindings:
                return False
            target = Ref(module.name, node.id)
        rest = chain[::-1]
        if isinstance(target, Ref):
            while rest and (target.name is None or _is_module(graph, target)):
                whole = target.module if target.name is None else f"{target.module}.{target.name}"
                target = Ref(whole, rest.pop(0))
            if target.name is not None and _is_module(graph, target):
                target = Ref(f"{target.module}.{target.name}", None)
            read(target)
        else:
            add(f"#{target}".encode())
        for attribute in rest:
            add(f".{attribute}".encode())
        return True

    def write(node: object) -> None:
        if isinstance(node, (ast.Name, ast.Attribute)):
            if name_of(node):
                return
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and (ref := named_in(graph, node.value)):
                read(ref)
            else:
                add(f"={type(node.value).__name__}:{node.value!r}".encode())
            return
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if not all(isinstance(t, Ref) for t in graph.imported(node, module.package).values()):
                add(ast.dump(node).encode())
            refs.extend(Ref(name, "") for name in sorted(graph.loaded(node, module.package)))
            return
        elif isinstance(node, ast.JoinedStr):
            add(b"f(")
            text = ""
            for part in node.values:  # neighbouring texts are one, however the source splits them
                if isinstance(part, ast.Constant):
                    text += str(part.value)
                else:
                    add(f"={text!r}".encode())
                    text = ""
                    write(part)
            add(f"={text!r})".encode())
            return
        if isinstance(node, ast.AST):
            kind = type(node)
            add(f"({kind.__name__}".encode())
            if kind is ast.AnnAssign:
                kinds = ast.unparse(node.annotation)  # type: ignore[attr-defined]
                add(" ".join(k for k in FIELD_KINDS if k in kinds).encode())
            for name in _fields(kind):
                value = getattr(node, name, None)
                if isinstance(value, list):
                    if name == "body":
                        value = [s for s in value if not is_wordy(s)]
                    add(f"{name}[{len(value)}".encode())
                    for item in value:
                        write(item)
                elif value is not None:
                    add(name.encode())
                    write(value)
            add(b")")
        else:
            add(repr(node).encode())

    for statement in statements:
        write(statement)
    return Text(digest.hexdigest(), tuple(refs))


def _is_module(graph: Graph, ref: Ref) -> bool:
    """Whether a package's attribute is its module, not a name that it gives."""
    if graph.file(ref.module) is None:
        return False
    return graph.file(f"{ref.module}.{ref.name}") is not None and not graph._gives(ref.module, str(ref.name))


def named_in(graph: Graph, text: str) -> Ref | None:
    """A text that names a first-party module, 'package.module' or 'package.module:function', as that module or name."""
    module, colon, name = text.partition(":")
    if "." not in module or module.split(".")[0] not in graph.folders or not module.replace(".", "_").isidentifier():
        return None
    if graph.file(module) is None:
        return None
    return Ref(module, name) if colon and name.isidentifier() else Ref(module, None)
