"""Which statements of a plan ran: chosen lines of first-party files mark a byte when they run, compiled kernels too.

A plan names files and lines and gives each a place in a file of bytes that all processes of a run share. While a plan
is active, the import of a named file compiles its syntax tree with a call before each named statement; numba compiles
that call into a store. Nothing else is touched, so that a traced run costs what a plain one does.
"""

from __future__ import annotations

import ast
import importlib.machinery
import json
import mmap
import os
from pathlib import Path
from typing import Any

PLAN = "REPRODUCTION_TRACE"  # environment variable: path of the plan
MARK = "_ran_"

_hits: mmap.mmap | bytearray = bytearray()


def ran(place: int) -> None:
    """Mark a place of the plan."""
    _hits[place] = 1


def write_plan(folder: Path, lines: dict[str, list[int]], *, compiled: bool) -> Path:
    """Write a plan and its bytes.

    Args:
        folder: made if need be.
        lines: absolute path of a file -> lines at which statements start.
        compiled: whether some of the statements are numba's.

    Returns:
        The plan's path, for the environment variable `PLAN`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places, count = {}, 0
    for file, starts in sorted(lines.items()):
        places[file] = {str(line): count + k for k, line in enumerate(starts)}
        count += len(starts)
    (folder / "hits").write_bytes(bytes(max(count, 1)))
    path = folder / "plan.json"
    path.write_text(json.dumps({"places": places, "hits": str(folder / "hits"), "compiled": compiled}))
    return path


def missed(plan: Path) -> dict[str, list[int]]:
    """Lines of a plan that did not run, by file."""
    content = json.loads(plan.read_text())
    hits = Path(content["hits"]).read_bytes()
    found = {file: [int(n) for n, k in places.items() if not hits[k]] for file, places in content["places"].items()}
    return {file: lines for file, lines in found.items() if lines}


class _Marked(ast.NodeTransformer):
    """Puts a call before each statement that starts at a line of the plan."""

    def __init__(self, places: dict[str, int]):
        self.places = places

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [part for statement in block for part in self.marked(statement)])
        return node

    def marked(self, statement: ast.AST) -> list[ast.AST]:
        place = self.places.get(str(getattr(statement, "lineno", 0)))
        if place is None or not isinstance(statement, ast.stmt):
            return [statement]
        call = ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(place)], []))
        return [ast.copy_location(call, statement), statement]


def marked_tree(source: str | bytes, places: dict[str, int]) -> ast.Module:
    """Syntax tree of a source with the marks of a plan."""
    tree = _Marked(places).visit(ast.parse(source))
    head = 0
    while head < len(tree.body) and (
        (isinstance(tree.body[head], ast.Expr) and isinstance(getattr(tree.body[head], "value", None), ast.Constant))
        or (isinstance(tree.body[head], ast.ImportFrom) and tree.body[head].module == "__future__")
    ):
        head += 1
    tree.body.insert(head, ast.parse(f"from {__name__} import ran as {MARK}").body[0])
    return ast.fix_missing_locations(tree)


def install() -> None:
    """Read the plan that the environment names, share its bytes and mark its files when they are imported."""
    global _hits
    content = json.loads(Path(os.environ[PLAN]).read_text())
    with open(content["hits"], "r+b") as file:
        _hits = mmap.mmap(file.fileno(), 0)
    if content["compiled"]:
        _teach_numba()
    plain = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        places = content["places"].get(os.path.abspath(os.fspath(path)))
        if places:
            data = marked_tree(data, places)
            return compile(data, path, "exec", dont_inherit=True, optimize=_optimize)
        return plain(self, data, path, _optimize=_optimize)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]


def _teach_numba() -> None:
    """`ran` inside a kernel stores a byte at a symbol that each process binds to its own view of the shared bytes."""
    import ctypes

    import llvmlite.binding
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic, overload

    llvmlite.binding.add_symbol("reproduction_hits", ctypes.addressof(ctypes.c_char.from_buffer(_hits)))

    @intrinsic
    def store(typing_context, place):
        def code(context, builder, signature, arguments):
            name = "reproduction_hits"
            byte = ir.IntType(8)
            if name not in builder.module.globals:
                ir.GlobalVariable(builder.module, ir.ArrayType(byte, len(_hits)), name)
            start = builder.bitcast(builder.module.globals[name], byte.as_pointer())
            builder.store(byte(1), builder.gep(start, [arguments[0]]))
            return context.get_dummy_value()

        return types.none(types.int64), code

    @overload(ran)
    def compiled_ran(place):
        def body(place):
            store(place)

        return body
