"""The part of a notebook that computes what it records: a backward slice from `results.record` and its like.

Kept are the statements that a recorded value can depend on: those that bind, change or pass on a name that is needed
later, and calls for an effect on the whole process. Left out are drawing, printing, tables for the eye and texts, so
that another caption or another line style makes no committed number stale.
"""

from __future__ import annotations

import ast
import copy

from reproduction.book.definitions import Module, Ref, stored_names
from reproduction.book.graph import Graph

# Packages and builtins whose calls, as statements of their own, only show.
DISPLAYS = ("matplotlib", "seaborn", "IPython", "pandas")
PRINTS = {"print", "display"}
PASSING = {"zip", "enumerate", "reversed", "sorted", "list", "tuple", "dict", "set", "iter", "next", "map", "filter"}
RECORDER = "results"
SHOWING_METHODS = ("table", "cost", "rows")
SHOWING_FILE = "show"  # a package's file of figures and tables


def computing(graph: Graph, notebook: Module) -> list[ast.stmt]:
    """Statements of a notebook that recorded values depend on, in order.

    Args:
        notebook: all code cells as one module, without IPython magics; it records through the variable `results`.
    """
    return Slice(graph, notebook).block(notebook.statements, {RECORDER})


def free_names(node: ast.AST) -> set[str]:
    """Names that a piece of code reads from around it: no variables of comprehensions, no arguments of functions."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return _of_comprehension(node)
    inner = set().union(*(free_names(child) for child in ast.iter_child_nodes(node)))
    if isinstance(node, (ast.Lambda, ast.FunctionDef)):
        # defaults and decorators are read outside, where an argument's name may stand for something else
        around = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
        inner -= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        inner |= set().union(*(free_names(value) for value in around if value is not None))
    return inner


def _of_comprehension(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> set[str]:
    """An iterable reads the variables of the loops around it, the first one none."""
    found: set[str] = set()
    bound: set[str] = set()
    for loop in node.generators:
        found |= free_names(loop.iter) - bound
        bound |= stored_names(loop.target)
        found |= set().union(*(free_names(test) for test in loop.ifs)) - bound
    results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    return found | (set().union(*(free_names(value) for value in results)) - bound)


def root_of(node: ast.AST, *, calls: bool = False) -> str | None:
    """First name of a chain of attributes and subscripts (and of calls)."""
    while isinstance(node, (ast.Attribute, ast.Subscript)) or (calls and isinstance(node, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _wholes(value: ast.expr) -> set[str]:
    """Names of what a value may be, or be a part of: `a.b`, `a[0]`, `a.items()`, each of `(a, b)`, of `zip(a, b)` and
    of `a if test else b`."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Starred, ast.IfExp, ast.BoolOp)):
        return set().union(*(_wholes(node) for node in ast.iter_child_nodes(value) if isinstance(node, ast.expr)))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in PASSING:
        return set().union(*(_wholes(argument) for argument in _arguments(value)))
    root = root_of(value, calls=True)
    # what a method of the recorder returns is a table for the eye
    return {root} if root and not (root == RECORDER and isinstance(value, ast.Call)) else set()


def _bound(target: ast.expr) -> set[str]:
    """Names that a target binds, not those whose items or attributes it sets."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*(_bound(part) for part in target.elts))
    if isinstance(target, ast.Starred):
        return _bound(target.value)
    return {target.id} if isinstance(target, ast.Name) else set()


def _walrus(nodes: list[ast.AST]) -> set[str]:
    """Names that assignment expressions bind, in comprehensions too."""
    return {inner.target.id for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def records(node: ast.AST) -> bool:
    """Whether a piece of code calls a method of the recorder that records, or hands the recorder itself to a call."""
    for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
        method = call.func.attr if isinstance(call.func, ast.Attribute) and root_of(call.func) == RECORDER else ""
        if method.startswith("record") or _is_handed(call):
            return True
    return False


def _is_handed(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Name) and argument.id == RECORDER for argument in _arguments(call))


class Slice:
    """One pass from the end of a notebook to its start, with the set of names that are still needed."""

    def __init__(self, graph: Graph, notebook: Module):
        self.graph, self.notebook = graph, notebook
        self.parts: dict[str, set[str]] = {}  # a name -> names whose value it may be a part of
        self.late: dict[str, set[str]] = {}  # a function of the notebook -> names that it reads when it is called
        for statement in notebook.statements:
            for node in ast.walk(statement):
                if isinstance(node, ast.FunctionDef):
                    self.late[node.name] = free_names(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                    self.late |= {t.id: free_names(node.value) for t in node.targets if isinstance(t, ast.Name)}
                if isinstance(node, ast.Assign):
                    names = set().union(*(_bound(target) for target in node.targets))
                    wholes = _wholes(node.value)
                    if len(node.targets) > 1:  # a = b = [...]: one is the other
                        wholes |= names
                elif isinstance(node, (ast.For, ast.comprehension)):
                    names, wholes = _bound(node.target), _wholes(node.iter)
                elif isinstance(node, ast.NamedExpr):
                    names, wholes = _bound(node.target), _wholes(node.value)
                else:
                    continue
                for name in names:
                    self.parts.setdefault(name, set()).update(wholes - {name})

    def reads(self, node: ast.AST) -> set[str]:
        """Names that a piece of code reads, those included that functions of the notebook read when they are called."""
        found: set[str] = set()
        todo = free_names(node)
        while todo - found:
            name = (todo - found).pop()
            found.add(name)
            todo |= self.late.get(name, set())
        return found

    def needed(self, name: str | None, live: set[str]) -> bool:
        """Whether a change of what a name stands for can reach a needed name."""
        seen: set[str] = set()
        todo = [name] if name else []
        while todo:
            if (one := todo.pop()) in live:
                return True
            seen.add(one)
            todo.extend(self.parts.get(one, set()) - seen)
        return False

    def block(self, statements: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
        """What is kept of a block, with `live`, the names needed after it, turned into those needed before it."""
        kept = [part for statement in reversed(statements) if (part := self.statement(statement, live))]
        return kept[::-1]

    def statement(self, statement: ast.stmt, live: set[str]) -> ast.stmt | None:
        """What is kept of a statement, `live` being brought from behind it to before it."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                return None  # names are resolved where they are read
            case ast.For() | ast.While() | ast.If() | ast.With():
                return self.compound(statement, live)
            case ast.Expr(value=value):
                if not self.acts(value, live):
                    return None
            case ast.FunctionDef(name=name):
                if name not in live:
                    return None
                live.discard(name)
            case _:
                changed = stored_names(statement) | _walrus([statement])
                for node in ast.walk(statement):
                    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                        changed |= {root} if (root := root_of(node)) else set()
                if not records(statement) and not any(self.needed(name, live) for name in changed):
                    return None
                if isinstance(statement, ast.Assign):
                    whole = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                    live -= {n for n in whole if not isinstance(statement.targets[0], (ast.Subscript, ast.Attribute))}
        live |= self.reads(statement)
        return statement

    def compound(self, statement: ast.For | ast.While | ast.If | ast.With, live: set[str]) -> ast.stmt | None:
        """A loop, a condition or a context with what is kept of its blocks."""
        part = copy.copy(statement)
        after = set(live)
        while True:
            before = set(live)
            part.body = self.block(statement.body, live)
            if not isinstance(statement, ast.With):
                other = set(after)
                part.orelse = self.block(statement.orelse, other)
                live |= other | after
            if live == before or isinstance(statement, (ast.If, ast.With)):
                break
        values = [getattr(statement, head) for head in ("iter", "test", "items") if hasattr(statement, head)]
        heads = [node for value in values for node in (value if isinstance(value, list) else [value])]
        bound = any(self.needed(name, after) for name in _walrus(heads))
        if not part.body and not getattr(part, "orelse", None) and not bound:
            live.intersection_update(after)
            return None
        if isinstance(statement, ast.For):
            live -= stored_names(statement.target)
        part.body = part.body or [ast.Pass()]
        for node in heads:
            live |= self.reads(node)
        return part

    def acts(self, call: ast.expr, live: set[str]) -> bool:
        """Whether an expression may change a needed name, or the process."""
        if records(call):
            return True
        given = self.notebook.imports.get(root_of(call, calls=True) or "")
        if isinstance(given, str) and given.split(".")[0].split(":")[0] in DISPLAYS:
            return False
        if not isinstance(call, ast.Call):
            return any(self.acts(node, live) for node in ast.walk(call) if isinstance(node, ast.Call))
        root = root_of(call.func)
        if root is None:  # a method of a call's value, say
            return any(self.acts(node, live) for node in ast.walk(call.func) if isinstance(node, ast.Call))
        if root == RECORDER and isinstance(call.func, ast.Attribute):
            return call.func.attr not in SHOWING_METHODS
        target = self.notebook.imports.get(root)
        passed = {name for argument in _arguments(call) for name in free_names(argument)}
        if isinstance(target, Ref):
            inner = f"{target.module}.{target.name}"
            module = inner if self.graph.file(inner) else target.module
            shown = self.graph.is_shown(module)
            if module.rpartition(".")[2] == SHOWING_FILE:
                shown = True  # it reads recorded values; handed the recorder itself, it counts above
            # First-party code has no global state: a call acts on what it is given, or for its own sake.
            return not shown and (not passed or any(self.needed(name, live) for name in passed))
        if isinstance(target, str):
            return True
        if root in self.notebook.bindings:
            if isinstance(
                call.func, ast.Name
            ):  # a function of the notebook acts on what it is given and on what it reads
                passed = passed | self.reads(call.func)
                return any(self.needed(name, live) for name in passed)
            return self.needed(root, live)
        return root not in PRINTS
