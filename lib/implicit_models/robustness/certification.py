"""`certify`: every sample is safe, unsafe or unknown, and either answer comes with its proof.

    safe      the lower bounds of all margins y_label - y_j over the set are positive, their rounding deducted
    unsafe    an input of the set has another class: its equilibrium is solved again in float64 and the margin stays
              negative by more than the proved error of the state
    unknown   neither

Source:
    Tsai thesis (2024), chapter 4; the three answers are those of complete and incomplete verifiers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped

from implicit_models.robustness.arrays import EPS, as_array, checked_count, real_array
from implicit_models.robustness.attacks.gradient import pgd
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.options import BoundMethod, Dual, bound_method
from implicit_models.robustness.bounding.result import Bounds
from implicit_models.robustness.input_sets import InputSet, Uncertainty, input_set
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.specification import margins, specification
from implicit_models.status import Status
from implicit_models.summaries import summary

_SEARCH = PGD()


@dataclass(frozen=True, eq=False)
class Certification:
    """Verdicts of a batch.

    status (N,): SAFE | UNSAFE | UNKNOWN of `Status`. margin (N,): lower bound of the smallest margin over the set, NaN
    where there is none, infinite for a single class. witness (N, p): the input of another class, NaN rows unless
    unsafe. bounds: of the margins, None for a single class.
    """

    status: Shaped[np.ndarray, " N"]
    margin: Float[np.ndarray, " N"]
    witness: Float[np.ndarray, "N p"]
    bounds: Bounds | None

    def __repr__(self) -> str:
        return summary(self, "status", "margin", "witness", "certified_accuracy")

    @property
    def certified_accuracy(self) -> float:
        """Share of samples that are safe; a sample that is misclassified itself is unsafe. NaN without samples."""
        return float((self.status == Status.SAFE).mean()) if len(self.status) else float("nan")


def certify(
    model: Any,
    U: Any,
    y: Any,
    inputs: InputSet,
    *,
    method: BoundMethod = "dual",
    search: PGD | None = _SEARCH,
    seed: int = 0,
) -> Certification:
    """Verdict on every sample: does each input of its set keep the label?

    Args:
        model: `ImplicitModel` (a network through `compose.from_network`) or `Problem`.
        U: (N, p) samples.
        y: (N,) labels.
        inputs: the sets, see `bounds`.
        method: of the bounds, see `bounds`; only lower bounds of the margins are computed. `Dual(early_stop=True)`
            leaves a margin as soon as it is positive. The nodes of `Dual(splits=...)` are spent on the samples that are
            unknown after the search, and so is the ascent for a model without feedback; they raise `margin`, while what
            `check` can prove is bounds.cert.
        search: for a witness where the bounds do not decide, from the second path on towards the classes of the
            smallest bounds; None for none, and none for a `SparseBox`. The inputs that the dual multipliers point to
            are always tried.
        seed: of the restarts.

    Returns:
        `Certification`. A sample that is not finite, or whose bound fails, is unknown unless a witness shows it unsafe;
        others are unaffected.

    Raises:
        NotCertified: with the reason if the model is not proved well-posed.
        ValueError: for labels that are no classes, and as `bounds`. All arguments are looked at before any verdict.

    Source:
        Tsai thesis (2024), section 4.2; Wong and Kolter (2018) for the margins.
    """
    task = problem(model)
    given = input_set(inputs)
    around = given.around(U)
    _ = task.certificate  # raises where there is none
    U = real_array("U", U)
    spec = margins(y, task.q)
    N, p = U.shape
    if len(spec) != N:
        raise ValueError(f"y must have one label for each of {N} samples, got {len(spec)}")
    specification(task, around)  # raises where U has another number of columns
    chosen = bound_method(method)
    if not (search is None or isinstance(search, PGD)):
        raise TypeError(f"search must be PGD(...) or None, got {search!r}")
    checked_count("seed", seed)
    status, witness, finite = np.full(N, Status.UNKNOWN), np.full((N, p), np.nan), np.isfinite(U).all(axis=1)
    if task.q == 1:
        return Certification(np.where(finite, Status.SAFE, status), np.where(finite, np.inf, np.nan), witness, None)
    first = replace(chosen, splits=0) if isinstance(chosen, Dual) else chosen
    found = bounds(task, U, given, method=first, sides="both" if isinstance(first, str) else "lower", spec=spec)
    least = found.lb.min(axis=1)
    with np.errstate(invalid="ignore"):
        status[(found.status == Status.CERTIFIED) & (least > 0)] = Status.SAFE
    labels = as_array(y)

    def show(candidates: np.ndarray, rows: np.ndarray) -> None:
        part = around.take(rows)
        candidates = np.clip(candidates, part.lower, part.upper)  # rounded steps may end an ulp outside
        broken = _broken(task, candidates, spec[rows]) & part.contains(candidates)
        status[rows[broken]], witness[rows[broken]] = Status.UNSAFE, candidates[broken]

    def undecided() -> np.ndarray:
        return np.flatnonzero((status == Status.UNKNOWN) & finite)

    if (rows := undecided()).size:
        show(U[rows], rows)
    with np.errstate(invalid="ignore"):
        order = np.argsort(np.where(np.isfinite(found.lb), found.lb, np.inf), axis=1, kind="stable")
    for rank in range(task.q - 1):
        rows = undecided()
        rows = rows[found.lb[rows, order[rows, rank]] <= 0]
        if rows.size and found.cert.lam_low is not None:
            show(*_dual_points(task, around, found, spec, rows, order[rows, rank]))
    if (rows := undecided()).size and search is not None and around.card is None:
        searched = model if isinstance(model, torch.nn.Module) else task
        targets = order[rows] + (
            order[rows] >= labels[rows, None]
        )  # functional j of `margins` is class j, or j + 1 from the label on
        show(pgd(searched, U[rows], labels[rows], around.take(rows), search, targets=targets, seed=seed), rows)
    margin = np.where(found.status == Status.CERTIFIED, least, np.nan)
    if isinstance(chosen, Dual) and (more := _more(task, chosen)) and (rows := undecided()).size:
        raised = bounds(task, U[rows], given.take(rows), method=more, sides="lower", spec=spec[rows])
        better = np.where(raised.status == Status.CERTIFIED, raised.lb.min(axis=1), np.nan)
        margin[rows] = np.fmax(margin[rows], better)
        status[rows[better > 0]] = Status.SAFE
    return Certification(status, margin, witness, found)


def _more(task: Problem, chosen: Dual) -> Dual | None:
    """What is spent on samples that are undecided after the search: branch and bound where it is asked for, and the
    ascent that bounds by layers leave out by default."""
    from implicit_models.robustness.bounding.dual import ASCENT_STEPS, fits_dense
    from implicit_models.robustness.layered.reading import layers_of

    if chosen.splits:
        return replace(chosen, early_stop=True)
    left_out = chosen.ascent_steps is None and task.activation.piecewise_linear and layers_of(task) is not None
    return replace(chosen, early_stop=True, ascent_steps=ASCENT_STEPS) if left_out and fits_dense(task) else None


def _broken(task: Problem, U: Float[np.ndarray, "N p"], spec: Float[np.ndarray, "N k q"]) -> np.ndarray:
    """(N,) whether a margin of the exact equilibrium is negative: by more than the state's error and rounding could
    explain."""
    x, error = task.equilibrium(U)
    C, D = abs(task.C), abs(task.D)
    middle = np.einsum("nkq,nq->nk", spec, task.output(x, U))
    size = np.abs(x) @ C.T + np.abs(U) @ D.T + np.abs(task.d)
    loose = error @ C.T + 4 * (task.n + task.p + task.q + 10) * EPS * size
    with np.errstate(invalid="ignore"):
        return (middle + np.einsum("nkq,nq->nk", np.abs(spec), loose) < 0).any(axis=1)


def _dual_points(
    task: Problem, inputs: Uncertainty, found: Bounds, spec: np.ndarray, rows: np.ndarray, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The input at which the dual bound of one functional of each row is attained, for the rows that have its
    multiplier."""
    lam = found.cert.lam_low[rows, which]  # type: ignore[index]
    rows, which, lam = (v[np.isfinite(lam).all(axis=1)] for v in (rows, which, lam))
    part = inputs.take(rows)
    reach = lam @ task.B + spec[rows, which] @ task.D
    step = -part.radius * np.sign(reach)
    if part.card is not None:
        gain = np.abs(reach) * part.radius
        keep = np.argsort(-gain, axis=1, kind="stable")[:, : part.card]
        mask = np.zeros_like(step, dtype=bool)
        np.put_along_axis(mask, keep, True, axis=1)
        step = np.where(mask, step, 0.0)
    return part.centre + step, rows
