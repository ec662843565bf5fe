"""Implicit deep learning: equilibrium models x = phi(A x + B u), y = C x + D u.

Importing this package imports none of its heavy dependencies; a public name is resolved on first
use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ORIGIN = {
    "ImplicitModel": "layers",
    "ImplicitRNN": "layers",
    "SolveStatistics": "equilibrium.convergence",
    "EquilibriumResult": "equilibrium.solve",
    "solve_equilibrium": "equilibrium.solve",
    "equilibrium_residual": "equilibrium.convergence",
    "NotConverged": "equilibrium.convergence",
    "Activation": "activations",
    "resolve_activation": "activations",
    "Certificate": "wellposed",
    "certificate": "wellposed",
    "perron_frobenius": "perron",
    "project_rows": "projection",
    "project_rows_": "projection",
    "rescale": "wellposed",
}
_SUBMODULES = (
    "activations",
    "compose",
    "equilibrium",
    "layers",
    "projection",
    "robustness",
    "seismology",
    "sim",
    "wellposed",
)

__all__ = ["__version__", *_ORIGIN]


def __getattr__(name: str) -> Any:
    if name in _ORIGIN:
        value = getattr(importlib.import_module(f"{__name__}.{_ORIGIN[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
