"""Solver settings: checked once, immutable, carried by the model that owns them."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from implicit_models.status import check_on_failure

SOLVERS = ("auto", "picard", "anderson", "gauss_seidel", "newton")
TOL_MODES = ("relative", "absolute")
BACKWARDS = ("implicit", "jfb", "phantom", "unroll")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")


@dataclass(frozen=True)
class SolverSettings:
    """How an equilibrium is solved and differentiated.

    solver: "auto" | "picard" | "anderson" | "gauss_seidel" | "newton".
    tol: bound on the residual max|phi(Ax+b) - x| of a sample, divided by max|x| in relative mode. A tolerance below
        about 4 units in the last place of the dtype (relative 5e-7 in float32) is tried as asked and, where rounding
        stops the iteration first, reported as not converged: it is never loosened.
    tol_mode: "relative" | "absolute".
    max_iter: largest number of evaluations of the map (sweeps, Newton steps) per sample.
    backward: "implicit" (adjoint equation), "jfb" (Jacobian-free: one differentiated step), "phantom" (damped truncated
        Neumann series), "unroll" (autograd through every Picard step).
    on_failure: "warn" | "raise" | "ignore" when a sample does not converge, forward or backward.

    Raises:
        ValueError or TypeError: naming the setting.
    """

    solver: str = "auto"
    tol: float = 1e-6
    tol_mode: str = "relative"
    max_iter: int = 500
    backward: str = "implicit"
    on_failure: str = "warn"

    def __post_init__(self) -> None:
        _one_of("solver", self.solver, SOLVERS)
        _one_of("tol_mode", self.tol_mode, TOL_MODES)
        _one_of("backward", self.backward, BACKWARDS)
        check_on_failure(self.on_failure)
        if isinstance(self.tol, bool) or not isinstance(self.tol, numbers.Real):
            raise TypeError(f"tol must be a number, got {self.tol!r}")
        if not (math.isfinite(self.tol) and self.tol > 0):
            raise ValueError(f"tol must be positive and finite, got {self.tol}")
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, numbers.Integral):
            raise TypeError(f"max_iter must be an int, got {self.max_iter!r}")
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter}")
        if self.backward == "unroll" and self.solver not in ("auto", "picard"):
            raise ValueError(
                f"backward 'unroll' differentiates Picard steps: solver must be auto or picard, got {self.solver!r}"
            )

    @property
    def relative(self) -> bool:
        return self.tol_mode == "relative"


class SolverOptions(TypedDict, total=False):
    """The fields of `SolverSettings` as keywords of a model, each with its default there."""

    solver: str
    tol: float
    tol_mode: str
    max_iter: int
    backward: str
    on_failure: str


def solver_settings(caller: str, options: Mapping[str, Any]) -> SolverSettings:
    """Checked settings from the keywords that a model was given.

    Raises:
        TypeError: for a keyword that is no setting, naming the caller; ValueError or TypeError: as `SolverSettings`.
    """
    unknown = sorted(options.keys() - SolverOptions.__annotations__.keys())
    if unknown:
        raise TypeError(
            f"{caller} got an unexpected argument {', '.join(unknown)}; the settings are"
            f" {', '.join(SolverOptions.__annotations__)}"
        )
    return SolverSettings(**options)


_STRICTEST: dict[str, Callable[[Any, Any], Any]] = {  # of two values that differ
    "solver": lambda one, other: "auto",
    "tol": min,
    "tol_mode": lambda one, other: "absolute",
    "max_iter": max,
    "backward": lambda one, other: "implicit",
    "on_failure": lambda one, other: "raise" if "raise" in (one, other) else "warn",
}


def joined_settings(
    parts: Sequence[SolverSettings], given: Mapping[str, Any], *, compiled: bool = True
) -> dict[str, Any]:
    """Keywords for a model that is made of others, whose settings it takes.

    What is given wins. Where all parts agree, their setting is taken. Where they differ, the stricter one is: the
    smaller tol, the larger max_iter, "raise" before "warn" before "ignore"; and "auto", "absolute" and "implicit" of
    solvers, modes and backward passes, of which none is stricter than the others. Unrolling goes with Picard's
    iteration alone: what is given of the two changes what is taken of the other.

    Args:
        parts: the settings of the parts that have some.
        given: the keywords that were given for the whole.
        compiled: whether the compiled solvers serve the whole; "auto" is taken in place of them if not.
    """
    taken: dict[str, Any] = {}
    for name, strictest in _STRICTEST.items():
        for value in (getattr(part, name) for part in parts):
            same = taken.setdefault(name, value) == value
            taken[name] = value if same else strictest(taken[name], value)
    if not compiled and taken.get("solver") in ("gauss_seidel", "newton"):
        taken["solver"] = "auto"
    if given.get("solver", "auto") not in ("auto", "picard") and taken.get("backward") == "unroll":
        taken["backward"] = "implicit"
    if given.get("backward") == "unroll" and taken.get("solver") not in (None, "auto", "picard"):
        taken["solver"] = "auto"
    return {**taken, **given}


_cached = functools.lru_cache(maxsize=256)(SolverSettings)


def cached_settings(
    solver: str, tol: float, tol_mode: str, max_iter: int, backward: str, on_failure: str
) -> SolverSettings:
    """The same settings without checking them again: a call on a small state costs less than the checks."""
    try:
        return _cached(solver, tol, tol_mode, max_iter, backward, on_failure)
    except TypeError:  # not hashable, or refused: the checks name the argument
        return SolverSettings(solver, tol, tol_mode, max_iter, backward, on_failure)
