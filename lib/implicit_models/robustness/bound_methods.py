"""`bounds`: one entrance to all bounds of an implicit model, with what a checker needs to prove them again.

    norm, box, comparison, metzler    around the state of the centre (box.py)
    interval                          the interval fixed point (interval.py)
    dual                              implicit CROWN, refined and raised by ascent (dual.py), within the interval
    lp                                linear programmes, the displayed and corrected ones (lp.py)

Interval and dual of a model without feedback go layer by layer (`layered`).

Every method takes a batch; a sample that fails leaves the others as they are without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from implicit_models.robustness.bounding.box import state_box
from implicit_models.robustness.bounding.interval import state_interval
from implicit_models.robustness.bounding.options import LP, BoundMethod, Dual, bound_method, check_sides
from implicit_models.robustness.bounding.result import Bounds, finished, statuses
from implicit_models.robustness.input_sets import InputSet, Uncertainty, input_set
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.specification import Specification, specification


def bounds(
    model: Any, U: Any, inputs: InputSet, *, method: BoundMethod = "dual", sides: str = "both", spec: Any = None
) -> Bounds:
    """Bounds of states, pre-activations and linear functionals of the outputs over sets of inputs.

    Args:
        model: `ImplicitModel` (a feed-forward network through `compose.from_network`) or `Problem`.
        U: (N, p) centres, torch or NumPy.
        inputs: the set around each of them: `Box(radius, clip)`, `SparseBox(radius, k)`, or the radius of a box as a
            number.
        method: "norm" | "box" | "comparison" | "metzler" | "interval" | "dual" | "lp", with their defaults; or
            `Dual(...)`, `LP(...)`.
        sides: "both" | "lower" (of "dual" and "lp": ub is that of the interval; certification needs no other).
        spec: (k, q) or (N, k, q) weights of the outputs (see `margins`); None for the outputs themselves.

    Returns:
        `Bounds`, float64.

    Raises:
        NotCertified: if the model is not proved well-posed.
        ValueError, TypeError: naming what does not fit, also for a side that the method would ignore.

    Source:
        Tsai thesis (2024), section 4.2.
    """
    chosen = bound_method(method)
    check_sides(sides, chosen)
    task = problem(model)
    around = input_set(inputs).around(U)
    functionals = specification(task, around, spec)
    _ = task.certificate  # raises where the model has none
    if isinstance(chosen, LP) and chosen.relaxation != "triangle":
        box = _box(task, around, functionals, _tightest_box(task))
        return _linear_programme(task, around, functionals, chosen.relaxation, box, sides)
    if isinstance(chosen, str) and chosen != "interval":
        return _box(task, around, functionals, chosen)
    passes = 0 if isinstance(chosen, str) else chosen.passes
    start, refined = _start(task, around, functionals, passes > 0, sides)
    if isinstance(chosen, str) or (refined and isinstance(chosen, Dual) and not (chosen.ascent_steps or chosen.splits)):
        return start
    from implicit_models.robustness.bounding.dual import dual_bounds

    left = 0 if refined else passes  # each layer has had its own
    if isinstance(chosen, Dual):
        return dual_bounds(task, around, functionals, start, replace(chosen, passes=left), sides=sides)
    if not refined:
        start = dual_bounds(task, around, functionals, start, Dual(left, ascent_steps=0), sides=sides)
    return _linear_programme(task, around, functionals, chosen.relaxation, start, sides)


def _start(
    task: Problem, inputs: Uncertainty, functionals: Specification, refine: bool, sides: str
) -> tuple[Bounds, bool]:
    """Bounds by the layers, or the interval of a model with feedback; and whether pre-activations are refined."""
    from implicit_models.robustness.layered.reading import layers_of

    layers = layers_of(task)
    if layers is None:
        return _interval(task, inputs, functionals), False
    from implicit_models.robustness.layered.bounded import layered_bounds

    return layered_bounds(task, layers, inputs, functionals, refine=refine, sides=sides), refine


def _tightest_box(task: Problem) -> str:
    return "box" if task.certificate.kind == "pf" else "metzler"


def _box(task: Problem, inputs: Uncertainty, functionals: Specification, method: str) -> Bounds:
    box = state_box(task, inputs, method)
    lb, ub = functionals.over_states(box.x0, box.sigma)
    fields = {
        "xl": box.x0 - box.sigma,
        "xh": box.x0 + box.sigma,
        "zl": box.z0 - box.spread,
        "zh": box.z0 + box.spread,
        "lb": lb,
        "ub": ub,
    }
    return finished(
        task, inputs, functionals, statuses(inputs, *fields.values()), method, fields, x0=box.x0, sigma=box.sigma
    )


def _interval(task: Problem, inputs: Uncertainty, functionals: Specification) -> Bounds:
    found = state_interval(task, inputs)
    verified = np.isfinite(found.l) & np.isfinite(found.h)
    l, h = (np.where(verified, v, np.nan) for v in (found.l, found.h))
    lb, ub = functionals.over_states(0.5 * (l + h), 0.5 * (h - l))
    fields = {"xl": found.l, "xh": found.h, "zl": found.zl, "zh": found.zh, "lb": lb, "ub": ub}
    evidence = {"il": found.l, "ih": found.h, "zl0": found.zl, "zh0": found.zh}
    return finished(task, inputs, functionals, statuses(inputs, *fields.values()), "interval", fields, **evidence)


def _linear_programme(
    task: Problem, inputs: Uncertainty, functionals: Specification, relaxation: str, start: Bounds, sides: str
) -> Bounds:
    from implicit_models.robustness.bounding.lp import lp_bounds

    return lp_bounds(task, inputs, functionals.matrix, relaxation=relaxation, start=start, sides=sides)
