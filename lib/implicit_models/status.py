"""How a computation went, in one vocabulary: rows, bounds, verdicts, screenings and solves; and what failure does.

Members are strings: arrays hold their text, and comparisons with a word work as they are.
"""

from __future__ import annotations

import warnings
from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

import numpy as np


class Status(StrEnum):
    """The outcome of a row, a bound, a verdict, a screening or a solve.

    Counted as certified (`certified`) is what a proof came with: OPTIMAL, FISTA, EMPTY, CERTIFIED, SAFE and UNSAFE.

    Rows of state-driven models:
        OPTIMAL: the duality gap is within the tolerance that was asked for.
        FISTA: the same, found by the fallback after the exact solver.
        EMPTY: the target does not vary, or no column that varies is left to explain it; of what was asked, the row of
            zeros is exact. Where `min_active` left none, `sparsify` warns (`ColumnsExcluded`).
        INACCURATE: there is a solution without a certificate at the tolerance; its gap says how far it is.
        SATURATED: the row reached the cap of its support and kept the solution of that size.
        INFEASIBLE: an exact row has no solution within its constraints.
        AS_PRINTED: the bisection as the thesis prints it, for which no tolerance is defined.
    Bounds and screenings:
        CERTIFIED: the bound is proved, or the screening's ball is.
        FAILED: the bound of a sample could not be verified, and is NaN.
        SLACK: the ball may not be tight, so that nothing is screened.
    Verdicts on samples:
        SAFE: every input of the set keeps the label.
        UNSAFE: a witness in the set has another class.
        UNKNOWN: neither is proved.
    Solves, whose codes 0 to 4 are `SOLVES`:
        CONVERGED: the residual is within the tolerance, or within rounding where the solver stopped at it.
        MAX_ITER: the iterations ran out before.
        DIVERGED: the iterates grew without bound.
        SINGULAR: a linear system of the solver has no solution.
    All:
        NOT_FINITE: a NaN or an infinity in the row, the sample or the input; what is computed of it is NaN.
    """

    OPTIMAL = "optimal"
    FISTA = "fista"
    EMPTY = "empty"
    INACCURATE = "inaccurate"
    SATURATED = "saturated"
    INFEASIBLE = "infeasible"
    AS_PRINTED = "as_printed"
    CERTIFIED = "certified"
    FAILED = "failed"
    SLACK = "slack"
    SAFE = "safe"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"
    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    DIVERGED = "diverged"
    SINGULAR = "singular"
    NOT_FINITE = "not_finite"

    def __repr__(self) -> str:
        return repr(self.value)  # as the words of arrays show

    @property
    def certified(self) -> bool:
        """Whether a proof came with it."""
        return self in _CERTIFIED


_CERTIFIED = (Status.OPTIMAL, Status.FISTA, Status.EMPTY, Status.CERTIFIED, Status.SAFE, Status.UNSAFE)
# the words of the codes in `EquilibriumResult.status`
SOLVES = (Status.CONVERGED, Status.MAX_ITER, Status.DIVERGED, Status.NOT_FINITE, Status.SINGULAR)


def is_certified(status: Any) -> np.ndarray:
    """Whether each word of an array is one that a proof came with, of the same shape."""
    return np.isin(status, _CERTIFIED)


OnFailure: TypeAlias = Literal["warn", "raise", "ignore"]
ON_FAILURE: tuple[str, ...] = get_args(OnFailure)


def check_on_failure(on_failure: Any) -> None:
    """Raises: ValueError for anything but "warn", "raise" and "ignore"."""
    if not isinstance(on_failure, str) or on_failure not in ON_FAILURE:
        raise ValueError(f"unknown on_failure {on_failure!r}; choose one of {', '.join(ON_FAILURE)}")


def report(failure: Any, on_failure: str, stacklevel: int = 1) -> None:
    """Warn of a failure, raise it, or be silent.

    Args:
        failure: an exception that is a warning too.
        on_failure: "warn" | "raise" | "ignore".
        stacklevel: as in `warnings.warn`, 1 being the caller of this function.
    """
    if on_failure == "raise":
        raise failure
    if on_failure == "warn":
        warnings.warn(failure, stacklevel=stacklevel + 1)
