"""What is asked of rows: their budget, their objective, how states are matched, and when a gap is small enough.

Every choice is an object that checks itself when it is made. Budgets are those of rows in units where columns and
targets have variance 1, m the number of samples:

    L1Ball(radius)      1/2 ||M a - z||^2  with  ||a||_1 <= radius
    L1Penalty(lam)      1/2 ||M a - z||^2 + lam m ||a||_1
    Cardinality(share)  the l1 path up to a support of ceil(share d) of the d columns

and one is of the whole network:

    Share(share)        of all weights of its convolutions and linear layers

Source:
    Tsai thesis (2024), section 3.3; SIM paper, (2), (4), (7), (11).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def number(name: str, value: Any, *, zero: bool = False, largest: float = math.inf, open_end: bool = True) -> float:
    """A number above 0 (at least 0 with `zero`) and below `largest`, or equal to it unless `open_end`.

    Raises:
        TypeError: for what is no number.
        ValueError: naming the value that is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    value = float(value)
    wanted = "not be negative" if zero else "be positive"
    if value >= 0 if zero else value > 0:
        if value < largest or value == largest and not open_end:
            return value
        wanted = f"be {'finite' if largest == math.inf else f'at most {largest:g}'}"
    elif math.isnan(value):
        wanted = "be finite" if zero else "be positive and finite"
    raise ValueError(f"{name} must {wanted}, got {value:g}")


def require(name: str, value: Any, *kinds: type) -> None:
    """Raises: TypeError naming the kinds that a choice may be of."""
    if not isinstance(value, kinds):
        *most, last = [f"{kind.__name__}(...)" for kind in kinds]
        wanted = f"{', '.join(most)} or {last}" if most else last
        raise TypeError(f"{name} must be {wanted}, got {value!r}")


@dataclass(frozen=True)
class L1Ball:
    """Rows in an l1 ball: radius, positive or inf."""

    radius: float

    def __post_init__(self) -> None:
        number("radius", self.radius, open_end=False)

    @property
    def size(self) -> float:
        """Ascends with the size of the model."""
        return float(self.radius)


@dataclass(frozen=True)
class L1Penalty:
    """Rows with an l1 penalty: lam, not negative."""

    lam: float

    def __post_init__(self) -> None:
        number("lam", self.lam, zero=True)

    @property
    def size(self) -> float:
        """Ascends with the size of the model."""
        return -float(self.lam)


@dataclass(frozen=True)
class Cardinality:
    """Rows of the least number of columns that is at least `share` of them, up to rounding: share in (0, 1]."""

    share: float

    def __post_init__(self) -> None:
        number("share", self.share, largest=1.0, open_end=False)

    @property
    def size(self) -> float:
        """Ascends with the size of the model."""
        return float(self.share)


@dataclass(frozen=True)
class Share:
    """At most a share of all weights of a network's convolutions and linear layers, wherever they matter most: share in
    [0, 1]."""

    share: float

    def __post_init__(self) -> None:
        number("share", self.share, zero=True, largest=1.0, open_end=False)

    @property
    def size(self) -> float:
        """Ascends with the size of the model."""
        return float(self.share)


Budget = L1Ball | L1Penalty | Cardinality


def check_budgets(budgets: Sequence[Budget | Share]) -> None:
    """Raises: TypeError for anything but budgets; ValueError for none, or for budgets of several kinds."""
    if not isinstance(budgets, Sequence) or not len(budgets):
        raise ValueError(f"budgets must be a list of at least one budget, got {budgets!r}")
    for budget in budgets:
        require("a budget", budget, L1Ball, L1Penalty, Cardinality, Share)
        if type(budget) is not type(budgets[0]):
            raise ValueError(f"budgets must be of one kind, got {budgets[0]!r} and {budget!r}")


@dataclass(frozen=True)
class Tolerance:
    """A row is certified when its gap is at most rtol of its objective, or atol of 1/2 ||z||^2."""

    rtol: float = 1e-6
    atol: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            number(name, getattr(self, name), zero=True)


@dataclass(frozen=True)
class L1:
    """f(a) = beta ||a||_1."""

    beta: float = 1e-2
    name = "l1"

    def __post_init__(self) -> None:
        number("beta", self.beta)

    def row_weights(self, lam: float) -> dict[str, float]:
        """Weights of a row problem with 1/2 ||M a - z||^2: those of f over 2 lam."""
        return {"beta": self.beta / (2 * lam)}

    def value(self, a: np.ndarray) -> float:
        return self.beta * float(np.abs(a).sum())

    def conjugate(self, h: np.ndarray) -> np.ndarray:
        """f*(h) of one weight for h >= 0."""
        return np.where(h <= self.beta, 0.0, np.inf)


@dataclass(frozen=True)
class Ridge:
    """f(a) = alpha ||a||_2^2."""

    alpha: float = 1e-3
    name = "l2"

    def __post_init__(self) -> None:
        number("alpha", self.alpha)

    def row_weights(self, lam: float) -> dict[str, float]:
        """Weight of ridge/2 ||a||^2 in a row problem with 1/2 ||M a - z||^2."""
        return {"ridge": self.alpha / lam}

    def value(self, a: np.ndarray) -> float:
        return self.alpha * float(a @ a)

    def conjugate(self, h: np.ndarray) -> np.ndarray:
        """f*(h) of one weight for h >= 0."""
        return h**2 / (4 * self.alpha)


@dataclass(frozen=True)
class Perspective:
    """f(a) = min of sum_j alpha s_j + eta t_j over s_j t_j >= a_j^2, t_j <= 1; eta = alpha if None, and without eta
    that of `Ridge`."""

    alpha: float = 1e-3
    eta: float = None  # type: ignore[assignment]
    name = "perspective"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", self.alpha if self.eta is None else self.eta)
        number("alpha", self.alpha)
        number("eta", self.eta, zero=True)

    def row_weights(self, lam: float) -> dict[str, float]:
        """Weights of a row problem with 1/2 ||M a - z||^2: those of f over 2 lam."""
        return {"alpha": self.alpha / (2 * lam), "eta": self.eta / (2 * lam)}

    def penalty(self, x: Any) -> Any:
        """phi(x) of each weight: 2 sqrt(alpha eta) |x| up to the knee sqrt(eta / alpha), alpha x^2 + eta beyond."""
        alpha, eta, size = self.alpha, self.eta, np.abs(np.asarray(x, dtype=np.float64))
        return np.where(size <= np.sqrt(eta / alpha), 2 * np.sqrt(alpha * eta) * size, alpha * size**2 + eta)

    def value(self, a: np.ndarray) -> float:
        return float(self.penalty(a).sum())

    def conjugate(self, y: Any) -> Any:
        """phi*(y) = max(0, y^2 / (4 alpha) - eta)."""
        return np.maximum(0.0, np.asarray(y, dtype=np.float64) ** 2 / (4 * self.alpha) - self.eta)

    def prox(self, v: Any, step: float) -> Any:
        """argmin_x 1/2 (x - v)^2 + step phi(x): soft(v, 2 step sqrt(alpha eta)) if that is no larger than the knee,
        else v / (1 + 2 step alpha)."""
        number("step", step)
        v = np.asarray(v, dtype=np.float64)
        soft = np.maximum(np.abs(v) - 2 * step * np.sqrt(self.alpha * self.eta), 0.0)
        return np.sign(v) * np.where(
            soft <= np.sqrt(self.eta / self.alpha), soft, np.abs(v) / (1 + 2 * step * self.alpha)
        )


@dataclass(frozen=True)
class NoPenalty:
    """f(a) = 0."""

    name = "none"

    def row_weights(self, lam: float) -> dict[str, float]:
        """None."""
        return {}

    def value(self, a: np.ndarray) -> float:
        return 0.0

    def conjugate(self, h: np.ndarray) -> np.ndarray:
        """f*(h) of one weight for h >= 0."""
        return np.where(h <= 0.0, 0.0, np.inf)


Objective = L1 | Ridge | Perspective | NoPenalty


@dataclass(frozen=True)
class LeastSquares:
    """States and outputs matched in the mean: lambda1 ||.||^2 of a state's row, lambda2 ||.||^2 of an output's."""

    lambda1: float = 0.1
    lambda2: float = 0.1

    def __post_init__(self) -> None:
        for name in ("lambda1", "lambda2"):
            number(name, getattr(self, name))


@dataclass(frozen=True)
class Exact:
    """States and outputs matched exactly, by a conic solver: the objective's f is all that is minimised.

    solver: "CLARABEL", or another that cvxpy finds installed, such as "MOSEK". zero_below: weights at most this times
    their row's largest become zeros; an interior point has none of its own.
    """

    solver: str = "CLARABEL"
    zero_below: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.solver, str):
            raise TypeError(f"solver must be the name of a solver that cvxpy finds, got {self.solver!r}")
        number("zero_below", self.zero_below, zero=True, largest=1.0)


def terms(choice: Objective | LeastSquares | Exact) -> dict[str, Any]:
    """The numbers of a choice, by name."""
    return dict(vars(choice))
