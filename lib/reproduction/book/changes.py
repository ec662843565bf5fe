"""What changed between two versions of the code behind a notebook, statement by statement.

A statement is new when no statement of the same definition in the old version has its syntax tree (without comments,
docstrings, annotations and the names of modules). A statement also counts where it reads a constant whose value
changed, or a name that now stands for another definition. What only refuses bad input (a block that ends in `raise`) is
left out: it cannot move a number of a run that ended.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reproduction.book.definitions import Module, Node, Ref, canonical, is_docstring, is_wordy
from reproduction.book.graph import Graph

BLOCKS = ("body", "orelse", "finalbody", "handlers")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Change:
    """A statement that must run before a quick run says anything about the change.

    Args:
        module: that holds it.
        line: where it starts.
        name: of the definition around it, for a reader.
        compiled: whether it stands in a kernel.
    """

    module: str
    line: int
    name: str
    compiled: bool


@dataclass(frozen=True)
class Part:
    """One statement inside a definition: the digest of its head, what the head reads, the functions around it."""

    digest: str
    refs: tuple[Ref, ...]
    statement: ast.stmt
    around: tuple[ast.stmt, ...]
    refuses: bool


def parts(graph: Graph, module: Module, statements: Sequence[ast.stmt]) -> Iterator[Part]:
    """All statements inside others, outer ones first; compound ones count by their heads."""

    def walk(block: Sequence[ast.stmt], around: tuple[ast.stmt, ...], refuses: bool) -> Iterator[Part]:
        refuses = refuses or bool(block and isinstance(block[-1], ast.Raise))
        for statement in block:
            if is_wordy(statement):
                continue
            head = copy.copy(statement)
            for name in BLOCKS:
                if getattr(statement, name, None):
                    setattr(head, name, [])
            text = canonical(graph, module, [head])
            yield Part(text.digest, text.refs, statement, around, refuses)
            inside = (*around, statement) if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else around
            for name in BLOCKS:
                for inner in getattr(statement, name, None) or []:
                    if isinstance(inner, ast.ExceptHandler):
                        yield from walk(inner.body, inside, refuses)
                if name != "handlers" and getattr(statement, name, None):
                    yield from walk(getattr(statement, name), inside, refuses)

    yield from walk(statements, (), False)


def name_of(statement: ast.stmt) -> str:
    """What a top-level statement defines, for a reader."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return statement.name
    return ast.unparse(statement).split("\n")[0].split(" = ")[0][:60]


def is_compiled(around: Sequence[ast.stmt]) -> bool:
    """Whether one of the functions around a statement is numba's."""
    texts = [ast.unparse(d) for s in around if isinstance(s, FUNCTIONS) for d in s.decorator_list]
    return any(word in text for text in texts for word in ("njit", "overload", "kernel", "compiled"))


def first_line(function: ast.stmt) -> int | None:
    """Line of the first statement that a call of a function runs."""
    body = [s for s in getattr(function, "body", []) if not is_docstring(s)]
    return body[0].lineno if body else None


def changed_lines(graph: Graph, module: Module, new: Sequence[ast.stmt], old: Counter[str]) -> set[tuple[int, bool]]:
    """(line, compiled) of the statements that are not among `old` (digests), and of the functions around them."""
    found: set[tuple[int, bool]] = set()
    left = Counter(old)
    for part in parts(graph, module, new):
        if left[part.digest]:
            left[part.digest] -= 1
            continue
        if part.refuses or isinstance(part.statement, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Pass)):
            continue
        around = (*part.around, part.statement) if isinstance(part.statement, FUNCTIONS) else part.around
        functions = [s for s in around if isinstance(s, FUNCTIONS)]
        if not isinstance(part.statement, FUNCTIONS):
            found.add((part.statement.lineno, is_compiled(part.around)))
        if functions and (line := first_line(functions[-1])):
            found.add((line, is_compiled(functions)))
    return found


def changes(old: Graph, old_refs: Sequence[Ref], new: Graph, new_refs: Sequence[Ref]) -> list[Change]:
    """Statements of the new version that must run, for a run to say that the old one would have done the same.

    Args:
        old, new: graphs of the two versions.
        old_refs, new_refs: first-party names that the notebook's computing statements read in each.
    """
    before, after = old.reached(old_refs), new.reached(new_refs)
    known = {text.digest for text in before.values()}
    arrows = {(text.digest, ref.name, _targets(old, ref)) for text in before.values() for ref in text.refs}
    by_name: dict[str, list[Node]] = {}
    for node in before:
        by_name.setdefault(name_of(old.module(node.module).statements[node.place]), []).append(node)
    found: set[Change] = set()
    constants: set[Node] = set()

    def add(node: Node, lines: set[tuple[int, bool]]) -> None:
        statement = new.module(node.module).statements[node.place]
        found.update(Change(node.module, line, name_of(statement), compiled) for line, compiled in lines)

    for node, text in after.items():
        module = new.module(node.module)
        statement = module.statements[node.place]
        if text.digest in known:
            moved = {ref for ref in text.refs if (text.digest, ref.name, _targets(new, ref)) not in arrows}
            moved = {ref for ref in moved if all(part in known for part in _targets(new, ref))}
            if moved:  # it reads the same words, which now mean another definition of the old version
                add(node, {_place(p) for p in parts(new, module, [statement]) if moved & set(p.refs)})
            continue
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            constants.add(node)
            continue
        olds = by_name.get(name_of(statement), [])
        digests: Counter[str] = Counter()
        for other in olds:
            whole = [old.module(other.module).statements[other.place]]
            digests |= Counter(part.digest for part in parts(old, old.module(other.module), whole))
        add(node, changed_lines(new, module, [statement], digests))
        if (
            olds
            and len(list(parts(new, module, [statement]))) < sum(digests.values())
            and (line := first_line(statement))
        ):
            add(node, {(line, is_compiled([statement]))})  # something was taken out: it must have run without it
    while constants:  # what reads a changed constant must run, through constants made of it
        changed, constants = constants, set()
        for node, text in after.items():
            read = {ref for ref in text.refs if any(end in changed for end in new.resolve(ref))}
            if not read:
                continue
            module = new.module(node.module)
            statement = module.statements[node.place]
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                add(node, {_place(p) for p in parts(new, module, [statement]) if read & set(p.refs) and not p.refuses})
            elif node not in changed:
                constants.add(node)
    return sorted(found, key=lambda c: (c.module, c.line))


def _place(part: Part) -> tuple[int, bool]:
    line = part.statement.lineno
    if isinstance(part.statement, FUNCTIONS):
        line = first_line(part.statement) or line
    return line, is_compiled((*part.around, part.statement))


def _targets(graph: Graph, ref: Ref) -> tuple[str, ...]:
    ends = [end for end in graph.resolve(ref) if not graph.is_shown(end.module)]
    return tuple(sorted(graph.text(end).digest for end in ends if isinstance(end, Node)))
