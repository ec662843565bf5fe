"""State-driven implicit modelling: states of a trained network, exact row solvers, the path, screening, the fitted
model.

A public name is resolved on first use (PEP 562).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_ORIGIN = {
    "gram": "gram",
    "solve_rows": "rows",
    "Rows": "rows",
    "path_rows": "path",
    "Path": "path",
    "certify": "certificate",
    "states": "states",
    "States": "states",
    "fit_sim": "fit",
    "SIMResult": "result",
    "scale_states": "scaling",
    "screen": "screening",
    "Screening": "screening",
    "eliminate": "elimination",
    "solve_perspective_rows": "perspective",
    "solve_on_path": "bisection",
    "sparsify": "sparsify",
    "SparseModel": "sparse_model",
    "kappa": "budget_rows",
    "lam": "budget_rows",
    "keep": "budget_rows",
}

__all__ = list(_ORIGIN)


class _Package(ModuleType):
    """`gram`, `sparsify` and `states` are functions and modules; an import of the module would put it in the function's
    place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ORIGIN and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _ORIGIN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ORIGIN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
