"""What an attack does: `PGD`, `JSMA`, `LPAttack` and `Sensitivity` hold options; the other attacks have none.

A name stands for an attack with its defaults, so that no option can be given to one that would ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from implicit_models.robustness.arrays import checked_count, own_array
from implicit_models.robustness.bounding.options import check_relaxation

METHODS = ("fgsm", "pgd", "jsma", "sensitivity", "gradient", "label_gradient", "lp", "random")


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ValueError(f"{name} must be {' or '.join(map(repr, words))}, got {value!r}")


@dataclass(frozen=True)
class PGD:
    """Projected sign steps with restarts (`pgd`).

    Attributes:
        steps, restarts: of each path, and paths; the first starts at the sample.
        step_size: in radii; None: from 1/4 down to 1/50.
        loss: "margin" | "cross_entropy", which is followed.

    Raises:
        ValueError: naming the option and its value.

    Source:
        Madry et al. (2018).
    """

    steps: int = 40
    restarts: int = 3
    step_size: float | None = None
    loss: str = "margin"

    def __post_init__(self) -> None:
        checked_count("steps", self.steps, 1)
        checked_count("restarts", self.restarts, 1)
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"step_size must be positive, got {self.step_size!r}")
        _one_of("loss", self.loss, ("margin", "cross_entropy"))


@dataclass(frozen=True)
class JSMA:
    """Greedy saliency (`jsma`).

    Attributes:
        saliency: "margin" | "papernot".
        pairs: two inputs a step, as in the paper; k is rounded down to even.

    Raises:
        ValueError: for another saliency.

    Source:
        Papernot et al. (2016), Algorithm 3; Tsai thesis (2024), section 4.4.
    """

    saliency: str = "margin"
    pairs: bool = False

    def __post_init__(self) -> None:
        _one_of("saliency", self.saliency, ("margin", "papernot"))


@dataclass(frozen=True)
class LPAttack:
    """Linear programmes over the relaxed model (`lp_attack`).

    Attributes:
        objective: "margin" | "discrepancy", the thesis' sum (x_i - x0_i)^2.
        relaxation: "displayed" | "theorem7" | "triangle".
        targets: number of classes to try; all if None.

    Raises:
        ValueError: naming the option and its value.

    Source:
        Tsai thesis (2024), section 4.4, Theorem 7.
    """

    objective: str = "margin"
    relaxation: str = "triangle"
    targets: int | None = None

    def __post_init__(self) -> None:
        _one_of("objective", self.objective, ("margin", "discrepancy"))
        check_relaxation(self.relaxation)
        if self.targets is not None:
            checked_count("targets", self.targets)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Inputs ranked by the row of the label in the sensitivity matrix; dense, a step along `linear_direction`.

    Attributes:
        matrix: `SensitivityMatrix` or (q, p) array if it is known, for a sparse attack; None to compute it. Kept as a
            float64 array of its own, which is read-only.

    Raises:
        ValueError: naming the shape that is not (q, p), or the first entry that is NaN.
        TypeError: for what are no real numbers.

    Source:
        Tsai thesis (2024), section 4.4.
    """

    matrix: Any = None

    def __post_init__(self) -> None:
        if self.matrix is None:
            return
        S = own_array("the matrix of Sensitivity(...)", getattr(self.matrix, "S", self.matrix), writeable=False)
        if S.ndim != 2:
            raise ValueError(f"the matrix of Sensitivity(...) must have shape (q, p), got {S.shape}")
        wrong = np.argwhere(np.isnan(S))
        if len(wrong):
            i, j = wrong[0].tolist()
            raise ValueError(f"the matrix of Sensitivity(...), of shape {S.shape}, is NaN at index ({i}, {j})")
        object.__setattr__(self, "matrix", S)

    def check_fit(self, q: int, p: int) -> None:
        """Raises: ValueError for a matrix that is not that of q classes and p inputs."""
        if self.matrix is not None and self.matrix.shape != (q, p):
            raise ValueError(
                f"the matrix of Sensitivity(...) must have shape ({q}, {p}), one row per class, got {self.matrix.shape}"
            )


AttackMethod: TypeAlias = str | PGD | JSMA | LPAttack | Sensitivity
NAMES = {PGD: "pgd", JSMA: "jsma", LPAttack: "lp", Sensitivity: "sensitivity"}


def attack_method(method: AttackMethod) -> tuple[str, Any]:
    """Name of the attack, and the object with its options; None for one that has none.

    Raises:
        ValueError: for another name.
        TypeError: for anything else.
    """
    if type(method) in NAMES:
        return NAMES[type(method)], method
    if not isinstance(method, str):
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in NAMES)
        raise TypeError(f"method must be a name or one of {kinds}, got {method!r}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    return method, {"pgd": PGD, "jsma": JSMA, "lp": LPAttack, "sensitivity": Sensitivity}.get(method, lambda: None)()
