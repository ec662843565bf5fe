"""Robustness of implicit models: bounds, certificates and their checker, the sensitivity matrix, attacks, worst-case
losses.

A public name is resolved on first use (PEP 562); no module has the name of a function, which an import would hide.
"""

from __future__ import annotations

import importlib
from typing import Any

_ORIGIN = {
    "Problem": "problem",
    "NotCertified": "problem",
    "Uncertainty": "input_sets",
    "uncertainty": "input_sets",
    "bounds": "bound_methods",
    "Bounds": "bound_methods",
    "margins": "specification",
    "certify": "certification",
    "Certification": "certification",
    "check": "checking.checker",
    "CheckResult": "checking.checker",
    "BoundsCertificate": "checking.checker",
    "sensitivity_matrix": "sensitivity",
    "attack": "attacks.methods",
    "Attack": "attacks.methods",
    "worst_case_loss": "losses",
    "interval_training_loss": "interval_training",
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
