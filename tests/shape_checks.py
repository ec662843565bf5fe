"""Types and shapes of arrays that signatures state hold in every call that succeeds, as long as the tests run.

A call that raises an error of its own has refused its arguments, and passes. Functions that numba compiles stay as
they are, since it reads their source and knows no wrappers.
"""

import ast
import re
from typing import Any

import beartype
import jaxtyping
from jaxtyping import _import_hook
from torch.fx import Proxy

_ARRAYS = re.compile(r"\b(Float|Float32|Float64|Int|Integer|UInt8|Bool|Num|Shaped|Complex)\[")

_beartype = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int is a float

installed = False


def checked(function):
    """A signature as jaxtyping hands it over: the parameters alone before a call (left alone), all of it after."""
    hints = {name: hint for name, hint in function.__annotations__.items() if _ARRAYS.search(str(hint))}
    if not hints or function.__annotations__.get("return") is Any:
        return function
    function.__annotations__ = hints
    check = _beartype(function)

    def unless_traced(*args, **kwargs):
        if not any(isinstance(value, Proxy) for value in (*args, *kwargs.values())):
            check(*args, **kwargs)

    return unless_traced


class _Transformer(_import_hook.JaxtypingTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        waits = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(node))  # runs after the call
        compiled = any(re.match("kernel|inner|njit", ast.unparse(each)) for each in node.decorator_list)
        signature = ast.unparse(node.args) + ast.unparse(node.returns or ast.Constant(None))
        if _ARRAYS.search(signature) and not compiled and not waits:
            return super().visit_FunctionDef(node)
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        return node


def install() -> None:
    """Checks the packages that are imported from now on."""
    global installed
    installed = True
    _import_hook.JaxtypingTransformer = _Transformer
    jaxtyping.install_import_hook(["implicit_models", "reproduction", "data_gen"], "shape_checks.checked")
