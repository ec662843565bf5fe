"""The graph of definitions: which first-party code a computation depends on, function by function.

A node is a statement at the top of a module: a function, a class, an assignment, or a statement that runs for its
effect. An arrow goes from a statement to those whose names it reads, through whatever import brings them. The digest of
a node is of its syntax tree without positions, comments, docstrings and annotations; names of first-party modules do
not enter, so that a definition may move to another module, or a module take another name, without a change of any
digest.

What only shows (`SHOWN`) is a leaf: figures, tables for the eye and the machinery of the build change no recorded
value.
"""

from __future__ import annotations

import ast
import fnmatch
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from reproduction.book.definitions import Module, Node, Ref, Text, canonical, is_docstring, stored_names

ROOT = Path(__file__).resolve().parents[3]
# Where `import NAME` finds first-party code below a root.
FOLDERS = {
    "implicit_models": "lib/implicit_models",
    "reproduction": "lib/reproduction",
    "data_gen": "data_gen",
    "benchmarks": "benchmarks",
}
# Leaves: the machinery of a build, and what draws, prints or keeps compiled code. None of it changes a recorded value.
SHOWN = (
    "reproduction.book",
    "reproduction.book.*",
    "reproduction.core.plots",
    "implicit_models.kernels",
    "implicit_models.summaries",
)
ROUNDS = 8
# Statements that only bind names; any other at the top of a module runs for its effect.
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


def _changed_parts(statement: ast.stmt) -> set[str]:
    """Names whose items or attributes a statement assigns."""
    found: set[str] = set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        inner = target
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
        if inner is not target and isinstance(inner, ast.Name):
            found.add(inner.id)
    return found


class Graph:
    """Definitions of the first-party packages below a root.

    Args:
        root: folder that holds lib/, data_gen/ and benchmarks/.
        folders: package name -> folder below the root.
        shown: patterns of module names that are leaves; empty follows everything.

    Raises:
        SyntaxError: when a module that is reached does not parse.
    """

    def __init__(self, root: Path = ROOT, *, folders: dict[str, str] | None = None, shown: Iterable[str] = SHOWN):
        self.root, self.folders, self.shown = root, folders or FOLDERS, tuple(shown)
        self._modules: dict[str, Module] = {}
        self._texts: dict[Node, Text] = {}
        self._files: dict[str, Path | None] = {}
        self._digests: dict[tuple[Node, int], str] = {}
        self._resolved: dict[Ref, list[Node | Ref]] = {}
        self._leaves: dict[str, bool] = {}

    # Modules and names

    def file(self, name: str) -> Path | None:
        """File of a first-party module, or None when the name is no such module."""
        if name not in self._files:
            head, *rest = name.split(".")
            found = None
            if head in self.folders and all(part.isidentifier() for part in rest):
                base = self.root.joinpath(self.folders[head], *rest)
                found = next((p for p in (base / "__init__.py", base.with_suffix(".py")) if p.is_file()), None)
            self._files[name] = found
        return self._files[name]

    def is_shown(self, module: str) -> bool:
        """Whether a module only shows."""
        if module not in self._leaves:
            self._leaves[module] = any(fnmatch.fnmatchcase(module, pattern) for pattern in self.shown)
        return self._leaves[module]

    def module(self, name: str) -> Module:
        """A parsed module.

        Raises:
            ModuleNotFoundError: when there is none of that name.
        """
        if name not in self._modules:
            path = self.file(name)
            if path is None:
                raise ModuleNotFoundError(f"{name!r} is not a module of {', '.join(self.folders)}")
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            self._modules[name] = self.parsed(name, package, path, path.read_text(encoding="utf-8"))
        return self._modules[name]

    def parsed(self, name: str, package: str, path: Path, source: str) -> Module:
        """A module made from source text."""
        found = Module(name, package, path, [])
        for statement in ast.parse(source).body:
            if is_docstring(statement) or _type_checking(statement) or _names_all(statement):
                continue
            place = len(found.statements)
            found.statements.append(statement)
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                found.imports |= self.imported(statement, package)
                found.loads |= self.loaded(statement, package)
                continue
            parts = _changed_parts(statement)  # KNOWN["a"] = ... is a piece of what KNOWN is
            for bound in stored_names(statement) | parts:
                found.bindings.setdefault(bound, []).append(place)
            if not isinstance(statement, DEFINES) or parts:
                found.effects.append(place)
                for inner in ast.walk(statement):
                    if isinstance(inner, (ast.Import, ast.ImportFrom)):
                        found.imports |= self.imported(inner, package)
                        found.loads |= self.loaded(inner, package)
        if path.name == "__init__.py" and "__getattr__" in found.bindings:
            found.lazy = self._lazy_names(name, path, found.statements)
            found.effects = []  # all that a lazy package does is to name modules, and those count themselves
        return found

    def imported(self, statement: ast.Import | ast.ImportFrom, package: str) -> dict[str, Ref | str]:
        """What an import binds: first-party names as `Ref`, others as the text of what they stand for."""
        if isinstance(statement, ast.Import):
            bound: dict[str, Ref | str] = {}
            for alias in statement.names:
                target = alias.name if alias.asname else alias.name.split(".")[0]
                bound[alias.asname or target] = Ref(target, None) if self.file(alias.name) else target
            return bound
        parts = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
        base = ".".join([*parts, statement.module] if statement.module else parts)
        if base.split(".")[0] not in self.folders:
            return {alias.asname or alias.name: f"{base}:{alias.name}" for alias in statement.names}
        bound = {}
        for alias in statement.names:
            if alias.name == "*":
                raise SyntaxError(f"from {base} import *: a star hides what is read")
            bound[alias.asname or alias.name] = Ref(base, alias.name)
        return bound

    def _gives(self, package: str, name: str) -> bool:
        found = self.module(package)
        return name in found.lazy or name in found.bindings or name in found.imports

    def _lazy_names(self, package: str, path: Path, statements: list[ast.stmt]) -> dict[str, list[Ref]]:
        """Names that a lazy package (PEP 562) gives, and where from: its texts name modules; a stub beside it counts
        too."""
        stub = path.with_suffix(".pyi")
        texts = {
            n.value for s in statements for n in ast.walk(s) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
        names = sorted({name for text in texts for name in (text, f"{package}.{text.lstrip('.')}") if self.file(name)})
        given: dict[str, list[Ref]] = {}
        for name in names:
            tree = ast.parse(self.file(name).read_text(encoding="utf-8"))  # type: ignore[union-attr]
            for bound in {b for s in tree.body if not _type_checking(s) for b in stored_names(s)}:
                if bound in texts:
                    given.setdefault(bound, []).append(Ref(name, bound))
        if stub.is_file():
            for statement in ast.parse(stub.read_text(encoding="utf-8")).body:
                if isinstance(statement, ast.ImportFrom):
                    given |= {n: [r] for n, r in self.imported(statement, package).items() if isinstance(r, Ref)}
        return given

    def loaded(self, statement: ast.Import | ast.ImportFrom, package: str) -> set[str]:
        """First-party modules that an import runs."""
        if isinstance(statement, ast.Import):
            names = {alias.name for alias in statement.names}
        else:
            refs = [ref for ref in self.imported(statement, package).values() if isinstance(ref, Ref)]
            names = {ref.module for ref in refs} | {f"{ref.module}.{ref.name}" for ref in refs}
        return {name for name in names if self.file(name)}

    def resolve(self, ref: Ref) -> list[Node | Ref]:
        """The statements behind a name: its definitions, a whole module as `Ref(module, None)`, or nothing.

        A name that a package binds, or gives lazily, goes before its module of that name.
        """
        if ref not in self._resolved:
            self._resolved[ref] = self._resolve(ref)
        return self._resolved[ref]

    def _resolve(self, ref: Ref) -> list[Node | Ref]:
        if not ref.name or self.is_shown(ref.module) or self.file(ref.module) is None:
            return [ref] if self.file(ref.module) else []
        found = self.module(ref.module)
        if ref.name in found.bindings:
            return [Node(ref.module, place) for place in found.bindings[ref.name]]
        if isinstance(target := found.imports.get(ref.name), Ref):
            return self.resolve(target)
        if ref.name in found.lazy:
            return [end for lazy in found.lazy[ref.name] for end in self.resolve(lazy)]
        inner = f"{ref.module}.{ref.name}"
        return [Ref(inner, None)] if self.file(inner) else []

    # Texts of statements

    def text(self, node: Node) -> Text:
        """Canonical text of a statement."""
        if node not in self._texts:
            found = self.module(node.module)
            self._texts[node] = canonical(self, found, [found.statements[node.place]])
        return self._texts[node]

    def reached(self, refs: Iterable[Ref]) -> dict[Node, Text]:
        """All statements that names depend on, with the statements that importing their modules runs."""
        found: dict[Node, Text] = {}
        modules: set[str] = set()
        todo: list[Node | Ref] = [end for ref in refs for end in self._ends(ref)]
        while todo:
            item = todo.pop()
            if self.is_shown(item.module):
                continue
            if item.module not in modules:
                modules.add(item.module)
                module = self.module(item.module)
                todo.extend(Node(item.module, place) for place in module.effects)
                todo.extend(Ref(name, "") for name in module.loads)  # importing a module runs what it imports
                if self.file(parent := item.module.rpartition(".")[0]):
                    todo.append(Ref(parent, ""))
            if isinstance(item, Ref):
                if item.name is None:
                    module = self.module(item.module)
                    todo.extend(Node(item.module, k) for k in range(len(module.statements)))
                    todo.extend(end for given in module.lazy.values() for ref in given for end in self.resolve(ref))
                continue
            if item not in found:
                found[item] = self.text(item)
                todo.extend(end for ref in found[item].refs for end in self._ends(ref))
        return {node: found[node] for node in sorted(found)}

    def _ends(self, ref: Ref) -> list[Node | Ref]:
        return [*self.resolve(ref), *([Ref(ref.module, "")] if self.file(ref.module) else [])]

    def digests(self, refs: Iterable[Ref]) -> dict[Node, str]:
        """Digest of each statement that names depend on, of its text and of what its own names stand for.

        A digest holds those of the statements that are read, `ROUNDS` arrows deep, so that two definitions of one text
        and different meanings differ; a ring of definitions that read each other is no obstacle.
        """
        return {node: self._digest(node, ROUNDS) for node in self.reached(refs)}

    def _digest(self, node: Node, rounds: int) -> str:
        if rounds == 0:
            return self.text(node).digest
        if (node, rounds) not in self._digests:
            parts = [self.text(node).digest]
            for ref in self.text(node).refs:
                for end in self.resolve(ref):
                    if self.is_shown(end.module):
                        parts.append("shown")
                    elif isinstance(end, Node):
                        parts.append(self._digest(end, rounds - 1))
                    elif end.name is None:
                        count = len(self.module(end.module).statements)
                        parts.extend(sorted(self._digest(Node(end.module, k), rounds - 1) for k in range(count)))
            self._digests[node, rounds] = _hash(parts)
        return self._digests[node, rounds]

    def closure(self, refs: Iterable[Ref]) -> list[str]:
        """Modules that hold the statements that names depend on."""
        return sorted({node.module for node in self.reached(refs)})


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _type_checking(statement: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` binds names for annotations alone; `from __future__` changes annotations alone."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def _names_all(statement: ast.stmt) -> bool:
    """`__all__` says what a reader may use; it computes nothing."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def iterate_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions inside a syntax tree with their qualified names, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
            yield from iterate_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from iterate_functions(node, f"{prefix}{node.name}.")
        else:
            yield from iterate_functions(node, prefix)
