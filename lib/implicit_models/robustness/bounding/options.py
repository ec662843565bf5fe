"""How the bounds are computed: `Dual` and `LP` hold the options of these two methods; the others have none.

A name stands for a method with its defaults, so that no option can be given to a method that would ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from implicit_models.robustness.arrays import checked_count
from implicit_models.robustness.checking.certificate_fields import METHODS, RELAXATIONS

PASSES = 3
SIDES = ("both", "lower")


@dataclass(frozen=True)
class Dual:
    """The dual bound (`dual`).

    Attributes:
        passes: refinements of the pre-activation bounds. A model without feedback is refined layer by layer, once.
        ascent_steps: Newton steps of the ascent, 0 for none, None for its default: 20, and none without feedback.
        early_stop: leave a functional once its lower bound is positive, and a sample once all are; certification needs
            no more.
        splits: nodes of branch and bound for every lower bound that is not positive, until a sample has one that stays
            so; they raise lb, not what the certificate claims.

    Raises:
        ValueError: naming the option and its value.
    """

    passes: int = PASSES
    ascent_steps: int | None = None
    early_stop: bool = False
    splits: int = 0

    def __post_init__(self) -> None:
        checked_count("passes", self.passes)
        checked_count("splits", self.splits)
        if self.ascent_steps is not None:
            checked_count("ascent_steps", self.ascent_steps)
        if not isinstance(self.early_stop, (bool, np.bool_)):
            raise ValueError(f"early_stop must be True or False, got {self.early_stop!r}")


@dataclass(frozen=True)
class LP:
    """Linear programmes (`lp`).

    Attributes:
        relaxation: "displayed" | "theorem7" | "triangle".
        passes: of the triangle: refinements of the pre-activation bounds before.

    Raises:
        ValueError: naming the option and its value.
    """

    relaxation: str = "triangle"
    passes: int = PASSES

    def __post_init__(self) -> None:
        check_relaxation(self.relaxation)
        checked_count("passes", self.passes)
        if self.relaxation != "triangle" and self.passes != PASSES:
            raise ValueError(
                f"passes={self.passes!r} belongs to the triangle, and would be ignored with relaxation"
                f" {self.relaxation!r}"
            )


BoundMethod: TypeAlias = str | Dual | LP


def bound_method(method: BoundMethod) -> BoundMethod:
    """The object of a method that has options, the name of one that has none.

    Raises:
        ValueError: for another name.
        TypeError: for anything else.
    """
    if isinstance(method, (Dual, LP)):
        return method
    if not isinstance(method, str):
        raise TypeError(f"method must be a name, Dual(...) or LP(...), got {method!r}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    if method == "dual":
        return Dual()
    return LP() if method == "lp" else method


def check_sides(sides: str, method: BoundMethod) -> None:
    """Raises: ValueError for another word, or for a method that would ignore it."""
    if sides not in SIDES:
        raise ValueError(f"sides must be 'both' or 'lower', got {sides!r}")
    if sides != "both" and not isinstance(method, (Dual, LP)):
        raise ValueError(f"sides={sides!r} belongs to method 'dual' and 'lp', and would be ignored by {method!r}")


def check_relaxation(relaxation: str) -> None:
    """Raises: ValueError for another name."""
    if relaxation not in RELAXATIONS:
        raise ValueError(f"unknown relaxation {relaxation!r}; choose one of {', '.join(RELAXATIONS)}")
