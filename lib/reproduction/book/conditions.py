"""Conditions on recorded values: what a claim's verdict, and a sentence of a page, is decided by.

A condition is an expression over named values, such as `median >= 1e3 and n >= 5`; it is no program.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Mapping
from typing import Any

from reproduction.book.results import numbers

COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS = {"abs": abs, "log10": math.log10, "sqrt": math.sqrt}


def evaluate(condition: str, names: Mapping[str, Any]) -> bool:
    """Truth of a condition such as `median >= 1e3 and n >= 5` over named values.

    Comparisons (chained ones too), and/or/not, + - * / **, numbers, texts, abs, log10 and sqrt are known; nothing else.

    Raises:
        ValueError: on any other syntax, on an unknown name, or when the result is no truth value.
    """

    def truth(node: ast.AST) -> bool:
        found = value(node)
        if not isinstance(found, bool):
            raise ValueError(f"condition {condition!r}: {ast.unparse(node)!r} is {found!r}, no truth value")
        return found

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                if name not in names:
                    raise ValueError(f"condition {condition!r}: no value named {name!r} (known: {', '.join(names)})")
                return names[name]
            case ast.BoolOp(op=op, values=parts):
                truths = [truth(part) for part in parts]
                return all(truths) if isinstance(op, ast.And) else any(truths)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not truth(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return ARITHMETIC[type(op)](value(left), value(right))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [value(left), *(value(side) for side in comparators)]
                return all(COMPARISONS[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:]))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*(value(argument) for argument in args))
        raise ValueError(f"condition {condition!r}: {ast.unparse(node)!r} is not allowed")

    try:
        result = value(ast.parse(condition, mode="eval"))
    except SyntaxError as error:
        raise ValueError(f"condition {condition!r}: {error.msg}") from None
    except ArithmeticError as error:
        raise ValueError(f"condition {condition!r}: {error}") from None
    if not isinstance(result, bool):
        raise ValueError(f"condition {condition!r} gives {result!r}, no truth value")
    return result


def is_text(entry: Any) -> bool:
    """Whether a recorded entry is a text or a truth value rather than numbers."""
    return isinstance(entry, bool) or (isinstance(entry, str) and entry not in ("inf", "-inf", "nan"))


def names_of(measure: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The names that a claim's conditions may use, from the recorded values; None when one is missing.

    `key: K` gives median, mean, min, max and n over the seeds (or `value` for a text or a truth value);
    `keys: {a: K1, b: K2}` gives each name its median, and `a_min`, `a_max` (or the text).
    """
    if "key" in measure:
        if measure["key"] not in values:
            return None
        entry = values[measure["key"]]
        if is_text(entry):
            return {"value": entry}
        sample = numbers(entry)
        return {
            "median": statistics.median(sample),
            "mean": statistics.fmean(sample),
            "min": min(sample),
            "max": max(sample),
            "n": len(sample),
        }
    found: dict[str, Any] = {}
    for name, key in measure["keys"].items():
        if key not in values:
            return None
        if is_text(values[key]):
            found[name] = values[key]
            continue
        sample = numbers(values[key])
        found |= {name: statistics.median(sample), f"{name}_min": min(sample), f"{name}_max": max(sample)}
    return found
