"""`attack`: one entrance to all attacks, which counts what succeeded and verifies that it stayed inside its set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.robustness.arrays import as_array, real_array
from implicit_models.robustness.attacks import sparse as sparse_attacks
from implicit_models.robustness.attacks.gradient import classifier, fgsm, input_gradient, logits, pgd, towards
from implicit_models.robustness.input_sets import Uncertainty, uncertainty
from implicit_models.summaries import summary

METHODS = ("fgsm", "pgd", "jsma", "sensitivity", "gradient", "label_gradient", "lp", "random")


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
    model: Any,
    U: Any,
    y: Any,
    eps: float | None = None,
    method: str = "pgd",
    *,
    k: int | None = None,
    clip: tuple[float, float] | None = None,
    values: tuple[float, float] | None = None,
    steps: int = 40,
    restarts: int = 3,
    sensitivity: Any = None,
    seed: int = 0,
    **options: Any,
) -> Attack:
    """Inputs near U that the model classifies differently.

    Dense (k None): all inputs move by at most eps. Sparse: at most k inputs move, by at most eps (inf for any amount,
    then clip is needed), or are replaced by uniform draws of `values`.

    Args:
        model: torch module (also `ImplicitModel`) or `Problem`; "lp" and the signs of dense "sensitivity" need the
            matrices: `ImplicitModel` or `Problem`.
        U: (N, p) samples.
        y: (N,) labels.
        eps: largest change of an input.
        method: "fgsm" | "pgd" (dense) | "jsma" (sparse) | "lp" (both) | "sensitivity" | "gradient" | "label_gradient" |
            "random". The last four rank inputs for a sparse attack, which moves them along the sign of the
            cross-entropy's gradient unless `values` is given; dense, "sensitivity" steps along `linear_direction` and
            "random" along random signs.
        k: number of inputs of a sparse attack.
        clip: (low, high) range of inputs, None for none.
        values: (low, high) of random replacements: (0, 1), or (0, 0.1) for "small" ones.
        steps, restarts: of "pgd".
        sensitivity: (q, p) matrix if it is known.
        seed: of all random choices.
        options: of `pgd`, `jsma` (saliency, pairs) or `lp_attack` (objective, relaxation, targets).

    Returns:
        `Attack`. A sample that is not finite is returned as it is and never counts.

    Raises:
        ValueError, TypeError: naming what does not fit.
        RuntimeError: if an attack left its set.

    Source:
        Tsai thesis (2024), section 4.4.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    U, y = real_array("U", U), as_array(y)
    if U.ndim != 2 or y.shape != (len(U),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"U and y must be (N, p) samples and (N,) integer labels, got {U.shape} and {y.shape} of {y.dtype}"
        )
    network = classifier(model)
    finite = np.flatnonzero(np.isfinite(U).all(axis=1))
    before = logits(network, U[finite])
    q = before.shape[1]
    wrong = np.flatnonzero((y < 0) | (y >= max(q, 1)))
    if wrong.size and len(finite):
        raise ValueError(f"label {y[wrong[0]]} of sample {wrong[0]} is not one of the {q} classes")
    U_adv = np.array(U)
    success, changed = np.zeros(len(U), dtype=bool), np.zeros(len(U), dtype=np.int64)
    start, labels = U[finite], y[finite]
    inputs = _sets(start, eps, method, k, clip, values)
    if not len(finite) or q == 1:
        return Attack(U_adv, success, changed)
    found = _run(
        model, start, labels, inputs, method, eps, k, clip, values, steps, restarts, sensitivity, seed, options
    )
    _verify(found, start, inputs, k, values)
    after = logits(network, found)
    U_adv[finite] = found
    success[finite] = (before.argmax(axis=1) == labels) & (after.argmax(axis=1) != labels)
    changed[finite] = (found != start).sum(axis=1)
    return Attack(U_adv, success, changed)


def _sets(U: np.ndarray, eps, method, k, clip, values) -> Uncertainty | None:
    """The boxes of the inputs, with the card of a sparse attack; None where random values replace inputs."""
    if k is not None and (isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 0 <= k <= U.shape[1]):
        raise ValueError(f"k must be an int between 0 and p = {U.shape[1]}, got {k!r}")
    if method in ("jsma", "gradient", "label_gradient") and k is None:
        raise ValueError(f"method {method!r} changes k inputs: give k")
    if method in ("fgsm", "pgd") and k is not None:
        raise ValueError(f"method {method!r} changes all inputs: k={k} is for the sparse attacks")
    if values is not None:
        if k is None or method not in sparse_attacks.SCORES:
            raise ValueError(
                f"values={values} replaces the k inputs that a score ranks first ({', '.join(sparse_attacks.SCORES)})"
            )
        if eps is not None:
            raise ValueError(f"give one of eps and values, got eps={eps} and values={values}")
        return None
    if eps is None or not eps >= 0:
        raise ValueError(f"eps must be a number that is not negative, got {eps!r}")
    if np.isinf(eps):
        if k is None or clip is None:
            raise ValueError("eps=inf needs k and a clip range")
        eps = float(clip[1] - clip[0])
    if clip is None:
        return uncertainty(U, eps=eps, card=k)
    box = uncertainty(U, eps=eps, clip=clip)
    if k is None:
        return box
    # symmetric around the sample, as a card asks for; the clip range is kept by each attack
    return Uncertainty(U, np.full(U.shape[1], float(eps)), int(k))


def _run(model, U, y, inputs, method, eps, k, clip, values, steps, restarts, sensitivity, seed, options) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    if method == "fgsm":
        return fgsm(model, U, y, inputs, **options)
    if method == "pgd":
        return pgd(model, U, y, inputs, steps=steps, restarts=restarts, seed=seed, **options)
    if method == "lp":
        found = sparse_attacks.lp_attack(model, U, y, inputs, clip=clip, **options)
        return found if clip is None else np.clip(found, *clip)  # by the last digit
    if method == "jsma":
        return sparse_attacks.jsma(model, U, y, k, eps=min(eps, 1e300), clip=clip, **options)
    if options:
        raise TypeError(f"method {method!r} takes no argument {', '.join(sorted(options))}")
    if k is None:
        signs = (
            rng.choice([-1.0, 1.0], U.shape)
            if method == "random"
            else np.sign(sparse_attacks.linear_direction(model, U, y))
        )
        return towards(U, signs, inputs)
    score = sparse_attacks.scores(model, U, y, method, sensitivity=sensitivity, seed=seed)
    if values is not None:
        return sparse_attacks.perturb(U, score, k, values=values, seed=seed)
    return sparse_attacks.perturb(U, score, k, direction=input_gradient(model, U, y), eps=eps, clip=clip)


def _verify(found: np.ndarray, U: np.ndarray, inputs: Uncertainty | None, k: int | None, values: Any) -> None:
    if inputs is None:
        moved = found != U
        good = (moved.sum(axis=1) <= k) & np.all(~moved | ((found >= values[0]) & (found <= values[1])), axis=1)
    else:
        good = inputs.contains(found)
    if not good.all():
        raise RuntimeError(f"the attack left its set at sample {int(np.flatnonzero(~good)[0])}")
