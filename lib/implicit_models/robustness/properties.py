"""What a network is to be verified for: that no input of a box has an output in an unsafe set.

The unsafe set is a union of polyhedra {y : A y <= b}. Robustness of a label is the union over the other classes j of
{y_label - y_j <= 0}; the properties of VNN-COMP are of this form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.robustness.arrays import own_array
from implicit_models.robustness.specification import margins
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False, repr=False)
class Polyhedron:
    """The outputs y with A y <= b, or A y < b in strict rows. Bounds prove that none of the closure is reached.

    Attributes:
        A: (k, q) rows.
        b: (k,) right-hand sides.
        strict: (k,) which rows are strict; none if left out.

    Raises:
        ValueError: naming the shape, or the row with a value that is not finite.
    """

    A: Float[np.ndarray, "k q"]
    b: Float[np.ndarray, " k"]
    strict: Bool[np.ndarray, " k"] = None  # type: ignore[assignment]  # becomes an array

    def __post_init__(self) -> None:
        A, b = own_array("A", self.A, writeable=False), own_array("b", self.b, writeable=False)
        if A.ndim != 2 or not len(A) or b.shape != (len(A),):
            raise ValueError(f"A must have shape (k, q) and b (k,) with k >= 1, got {A.shape} and {b.shape}")
        wrong = np.flatnonzero(~np.isfinite(np.column_stack([A, b])).all(axis=1))
        if wrong.size:
            raise ValueError(f"row {wrong[0]} of a polyhedron has a value that is not finite")
        strict = np.zeros(len(b), bool) if self.strict is None else np.array(self.strict, dtype=bool)
        if strict.shape != b.shape:
            raise ValueError(f"strict must have shape {b.shape}, got {strict.shape}")
        for name, value in (("A", A), ("b", b), ("strict", strict)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return summary(self)

    def reached(self, excess: Float[np.ndarray, "N k"]) -> Bool[np.ndarray, " N"]:
        """Whether outputs with A y - b = excess lie inside."""
        return np.all(np.where(self.strict, excess < 0, excess <= 0), axis=1)

    def holds(self, y: Any) -> bool:
        """Whether an output (q,) lies inside, in double precision."""
        return bool(self.reached((self.A @ own_array("y", y) - self.b)[None])[0])


@dataclass(frozen=True, eq=False, repr=False)
class Property:
    """A box of inputs and the outputs that none of them may have.

    Attributes:
        lower, upper: (p,) ends of the box.
        unsafe: polyhedra of outputs.

    Raises:
        ValueError: naming the input whose ends are not finite or the wrong way round, or polyhedra of different sizes.
    """

    lower: Float[np.ndarray, " p"]
    upper: Float[np.ndarray, " p"]
    unsafe: tuple[Polyhedron, ...]

    def __post_init__(self) -> None:
        lower, upper = (own_array(name, getattr(self, name), writeable=False) for name in ("lower", "upper"))
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise ValueError(f"lower and upper must have one shape (p,), got {lower.shape} and {upper.shape}")
        wrong = np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)))
        if wrong.size:
            i = int(wrong[0])
            raise ValueError(f"input {i} must lie between finite ends, got [{lower[i]}, {upper[i]}]")
        unsafe = tuple(self.unsafe)
        sizes = {part.A.shape[1] for part in unsafe}
        if len(sizes) != 1:
            raise ValueError(f"unsafe must hold polyhedra of one number of outputs, got {sorted(sizes) or 'none'}")
        for name, value in (("lower", lower), ("upper", upper), ("unsafe", unsafe)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return summary(self)

    @property
    def rows(self) -> tuple[Float[np.ndarray, "k q"], Float[np.ndarray, " k"]]:
        """All rows of all polyhedra, one after the other."""
        return np.concatenate([part.A for part in self.unsafe]), np.concatenate([part.b for part in self.unsafe])


def keeps_label(lower: Any, upper: Any, label: int, q: int) -> Property:
    """That every input of a box has a label: y_label > y_j for all other classes j of q."""
    rows = margins(np.array([label]), q)[0]
    return Property(lower, upper, tuple(Polyhedron(row[None], np.zeros(1)) for row in rows))
