"""`attack`: one entrance to all attacks, which counts what succeeded and verifies that it stayed inside its set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.robustness.arrays import as_array, checked_count, real_array
from implicit_models.robustness.attacks import sparse as sparse_attacks
from implicit_models.robustness.attacks.gradient import classifier, fgsm, input_gradient, logits, pgd, towards
from implicit_models.robustness.attacks.options import AttackMethod, Sensitivity, attack_method
from implicit_models.robustness.input_sets import (
    Box,
    InputSet,
    Replace,
    SparseBox,
    Uncertainty,
    check_inside,
    check_k,
    check_radius,
    input_set,
)
from implicit_models.summaries import summary


@dataclass(frozen=True, eq=False)
class Attack:
    """Attacked inputs of a batch.

    U_adv (N, p) float64, inside the sets. success (N,): classified right before and wrong after, both in float64; a
    sample that was wrong before never counts. changed (N,): inputs that moved.
    """

    U_adv: Float[np.ndarray, "N p"]
    success: Bool[np.ndarray, " N"]
    changed: Int[np.ndarray, " N"]

    def __repr__(self) -> str:
        return summary(self)


def attack(
    model: Any, U: Any, y: Any, inputs: InputSet | Replace, method: AttackMethod = "pgd", *, seed: int = 0
) -> Attack:
    """Inputs near U that the model classifies differently.

    Args:
        model: torch module (also `ImplicitModel`) or `Problem`; "lp" and the signs of dense "sensitivity" need the
            matrices: `ImplicitModel` or `Problem`.
        U: (N, p) samples.
        y: (N,) labels.
        inputs: how far inputs may go. Dense: `Box(radius, clip)`, or its radius as a number; all inputs move. Sparse:
            `SparseBox(radius, k, clip)`, of which at most k move (an infinite radius for any amount within clip); or
            `Replace(low, high, k)`, which draws random values for k of them.
        method: "fgsm" | "pgd" (dense) | "jsma" (sparse) | "lp" (both) | "sensitivity" | "gradient" | "label_gradient" |
            "random", with their defaults; or `PGD(...)`, `JSMA(...)`, `LPAttack(...)`, `Sensitivity(matrix)`. The last
            four names rank inputs for a sparse attack, which moves them along the sign of the cross-entropy's gradient
            unless it replaces them; dense, "sensitivity" steps along `linear_direction` and "random" along random
            signs.
        seed: of all random choices.

    Returns:
        `Attack`. A sample that is not finite is returned as it is and never counts.

    Raises:
        ValueError, TypeError: naming what does not fit.
        RuntimeError: if an attack left its set.

    Source:
        Tsai thesis (2024), section 4.4.
    """
    name, how = attack_method(method)
    checked_count("seed", seed)
    given = input_set(inputs, Box, SparseBox, Replace)
    U, y = real_array("U", U), as_array(y)
    if U.ndim != 2 or y.shape != (len(U),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"U and y must be (N, p) samples and (N,) integer labels, got {U.shape} and {y.shape} of {y.dtype}"
        )
    _check_fit(given, name, how, U.shape)
    network = classifier(model)
    finite = np.flatnonzero(np.isfinite(U).all(axis=1))
    before = logits(network, U[finite])
    q = before.shape[1]
    if isinstance(how, Sensitivity) and len(finite):
        how.check_fit(q, U.shape[1])
    wrong = np.flatnonzero((y < 0) | (y >= max(q, 1)))
    if wrong.size and len(finite):
        raise ValueError(f"label {y[wrong[0]]} of sample {wrong[0]} is not one of the {q} classes")
    U_adv = np.array(U)
    success, changed = np.zeros(len(U), dtype=bool), np.zeros(len(U), dtype=np.int64)
    start, labels, given = U[finite], y[finite], given.take(finite)
    sets = _sets(start, given)
    if not len(finite) or q == 1:
        return Attack(U_adv, success, changed)
    if isinstance(given, Box):
        found = _dense(model, start, labels, sets, name, how, seed)  # type: ignore[arg-type]
    else:
        found = _sparse(model, start, labels, given, sets, name, how, seed)
    _verify(found, start, given, sets)
    after = logits(network, found)
    U_adv[finite] = found
    success[finite] = (before.argmax(axis=1) == labels) & (after.argmax(axis=1) != labels)
    changed[finite] = (found != start).sum(axis=1)
    return Attack(U_adv, success, changed)


def _check_fit(given: Box | SparseBox | Replace, name: str, how: Any, shape: tuple[int, int]) -> None:
    """Raises: ValueError for an attack that is not for this kind of set, or a set that is not for these samples."""
    if isinstance(given, Box):
        if name in ("jsma", "gradient", "label_gradient"):
            raise ValueError(f"method {name!r} changes k inputs: give a SparseBox(radius, k), got {given}")
        if isinstance(how, Sensitivity) and how.matrix is not None:
            raise ValueError(
                f"the matrix of Sensitivity(...) ranks the inputs of a SparseBox, and would be ignored with {given}"
            )
    else:
        if name in ("fgsm", "pgd"):
            raise ValueError(f"method {name!r} changes all inputs: give a Box, {given} is for the sparse attacks")
        if isinstance(given, Replace) and name not in sparse_attacks.SCORES:
            ranked = ", ".join(sparse_attacks.SCORES)
            raise ValueError(f"{given} is for the k inputs that a score ranks first ({ranked}), not for {name!r}")
        check_k(given.k, shape[1])
    if not isinstance(given, Replace):
        check_radius(given.radius, *shape)


def _sets(U: np.ndarray, given: Box | SparseBox | Replace) -> Uncertainty | None:
    """The sets around the samples; None where random values replace inputs.

    A `SparseBox` with a range stays symmetric around the sample: the range is kept by each attack.
    """
    if isinstance(given, Replace):
        return None
    if isinstance(given, SparseBox) and given.clip is not None:
        check_inside(U, given.clip)
        width = float(given.clip[1] - given.clip[0])
        given = SparseBox(np.where(np.isinf(given.radius), width, given.radius), given.k)
    return given.around(U)


def _dense(model: Any, U: np.ndarray, y: np.ndarray, sets: Uncertainty, name: str, how: Any, seed: int) -> np.ndarray:
    if name == "fgsm":
        return fgsm(model, U, y, sets)
    if name == "pgd":
        return pgd(model, U, y, sets, how, seed=seed)
    if name == "lp":
        found = sparse_attacks.lp_attack(model, U, y, sets, how)
        return found if sets.ends is None else np.clip(found, *sets.ends)  # by the last digit
    if name == "random":
        return towards(U, np.random.default_rng([seed, 2]).choice([-1.0, 1.0], U.shape), sets)
    return towards(U, np.sign(sparse_attacks.linear_direction(model, U, y)), sets)


def _sparse(
    model: Any,
    U: np.ndarray,
    y: np.ndarray,
    given: SparseBox | Replace,
    sets: Uncertainty | None,
    name: str,
    how: Any,
    seed: int,
) -> np.ndarray:
    if isinstance(given, SparseBox) and sets is not None:
        if name == "lp":
            found = sparse_attacks.lp_attack(model, U, y, sets, how, clip=given.clip)
            return found if given.clip is None else np.clip(found, *given.clip)  # by the last digit
        if name == "jsma":
            return sparse_attacks.jsma(model, U, y, given, how)
    matrix = how.matrix if isinstance(how, Sensitivity) else None
    score = sparse_attacks.scores(model, U, y, name, sensitivity=matrix, seed=seed)
    direction = None if isinstance(given, Replace) else input_gradient(model, U, y)
    return sparse_attacks.perturb(U, score, given, direction=direction, seed=seed)


def _verify(found: np.ndarray, U: np.ndarray, given: Box | SparseBox | Replace, sets: Uncertainty | None) -> None:
    if isinstance(given, Replace):
        moved = found != U
        inside = np.all(~moved | ((found >= given.low) & (found <= given.high)), axis=1)
        good = (moved.sum(axis=1) <= given.k) & inside
    else:
        good = sets.contains(found)  # type: ignore[union-attr]
    if not good.all():
        raise RuntimeError(f"the attack left its set at sample {int(np.flatnonzero(~good)[0])}")
