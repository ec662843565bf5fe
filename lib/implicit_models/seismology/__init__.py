"""Seismology: P travel times, the sphere's geometry, picks, and the location of earthquakes.

`locate`, for a table of picks, is in the module of that name, which is a command too.

A public name is resolved on first use (PEP 562).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_ORIGIN = {
    "build_p_table": "table",
    "PTable": "table",
    "Encoding": "encoding",
    "read_picks": "picks.files",
    "read_stations": "stations",
    "locate_events": "geiger",
    "Location": "location",
    "LearnedLocator": "learned",
    "destination": "geodesy",
    "distance_azimuths": "geodesy",
    "geocentric_latitude": "geodesy",
    "geographic_latitude": "geodesy",
}

__all__ = list(_ORIGIN)


class _Package(ModuleType):
    """A function may have its module's name; an import of the module would put it in the function's place."""

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
