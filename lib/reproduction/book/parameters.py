"""Parameters of a notebook: named, typed, checked, printed.

papermill only warns about a name that the notebook does not know, and passes a list given with `-p` as text. Both would
let a rerun silently compute something else than was asked, so the cell after the parameters calls `check_parameters`.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import MutableMapping, Sequence
from typing import Any

PROFILES = ("quick", "full")


def assigned_names(source: str) -> dict[str, Any]:
    """Literal assignments of a parameters cell, in order.

    Args:
        source: cell text made of `name = literal` lines and comments.

    Returns:
        name -> value.

    Raises:
        ValueError: when a line is anything else, since a derived value would keep its old value after an injection.
    """
    values: dict[str, Any] = {}
    for node in ast.parse(source).body:
        simple = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        if not simple:
            raise ValueError(f"parameters cell: line {node.lineno} is no `name = literal`: {ast.unparse(node)!r}")
        try:
            values[node.targets[0].id] = ast.literal_eval(node.value)
        except ValueError:
            raise ValueError(f"parameters cell: {ast.unparse(node)!r} is derived, not a literal") from None
    return values


def coerce(name: str, value: Any, default: Any) -> Any:
    """The given value in the type of its default.

    Text becomes a list, number or truth value where the default is one (`-p seeds "[7]"` arrives as text); an integer
    may stand for a float. A default of None takes any literal.

    Raises:
        TypeError: when the value is of another type, naming parameter, value and the type that is wanted.
    """
    if isinstance(value, str) and not isinstance(default, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            if default is not None:
                raise TypeError(f"parameter {name}: {value!r} is no {type(default).__name__}") from None
    if default is None or type(value) is type(default):
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list) and isinstance(value, tuple):
        return list(value)
    raise TypeError(f"parameter {name}: {value!r} is {type(value).__name__}, wanted {type(default).__name__}")


def check_names(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that no parameter has.

    Raises:
        ValueError: naming the unknown parameter, the nearest known one and all known ones.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown parameter {name!r}{hint} (known: {', '.join(known)})")


def check_parameters(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """Check and normalise a running notebook's parameters in place, print and return them.

    Call it in the first cell after the parameters cell, `check_parameters(globals())`: the cells that ran before it are
    the parameters cell and, under papermill, the injected one.

    Raises:
        ValueError: on an unknown name or profile.
        TypeError: on a value of the wrong type.
    """
    cells = [text for text in namespace["In"] if text.strip()][:-1]
    defaults = assigned_names(cells[0])
    for text in cells[1:]:
        try:
            given = assigned_names(text)
        except (ValueError, SyntaxError):
            if text.startswith("# Parameters"):
                raise
            continue  # another cell, run by hand before this one
        check_names(list(given), list(defaults))
    values = {name: coerce(name, namespace[name], default) for name, default in defaults.items()}
    if values.get("profile", "quick") not in PROFILES:
        raise ValueError(f"parameter profile: {values['profile']!r} is none of {', '.join(PROFILES)}")
    namespace.update(values)
    if "OMP_NUM_THREADS" not in os.environ:
        # Models of a few hundred parameters only lose time on several threads.
        import torch

        torch.set_num_threads(1)
    print("parameters:", ", ".join(f"{name} = {value!r}" for name, value in values.items()))
    return values
