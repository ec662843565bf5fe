"""Equilibrium solvers for x = phi(A x + b) and the gradients through them.

Names are resolved on first use (PEP 562): the compiled kernels can be imported without torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_ORIGIN = {
    "equilibrium": "implicit",
    "equilibrium_result": "implicit",
    "EquilibriumResult": "result",
    "solve_equilibrium": "solve",
    "equilibrium_residual": "convergence",
    "NotConverged": "convergence",
    "SolveStatistics": "convergence",
    "SolverSettings": "settings",
}

__all__ = list(_ORIGIN)


def __getattr__(name: str) -> Any:
    if name not in _ORIGIN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ORIGIN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
