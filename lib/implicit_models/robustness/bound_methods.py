"""`bounds`: one entrance to all bounds of an implicit model, with what a checker needs to prove them again.

    norm, box, comparison, metzler    around the state of the centre (box.py)
    interval                          the interval fixed point (interval.py)
    dual                              implicit CROWN, refined and raised by ascent (dual.py), within the interval
    lp                                linear programmes, the displayed and corrected ones (lp.py)

Every method takes a batch; a sample that fails leaves the others as they are without it.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from implicit_models.robustness.bounding.box import state_box
from implicit_models.robustness.bounding.interval import state_interval
from implicit_models.robustness.bounding.result import Bounds, finished, statuses
from implicit_models.robustness.checking.certificate_fields import BOX_METHODS, METHODS, RELAXATIONS
from implicit_models.robustness.input_sets import Uncertainty, uncertainty
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.specification import Specification, specification

# options of some methods only, with these; their defaults are those of `bounds`
OPTIONS = {
    "relaxation": ("lp",),
    "passes": ("dual", "lp"),
    "ascent_steps": ("dual",),
    "sides": ("dual", "lp"),
    "early_stop": ("dual",),
    "splits": ("dual",),
}


def bounds(
    model: Any,
    U: Any,
    *,
    eps: float | None = None,
    sigma: Any = None,
    card: int | None = None,
    clip: tuple[float, float] | None = None,
    method: str = "dual",
    relaxation: str = "triangle",
    passes: int = 3,
    ascent_steps: int | None = None,
    sides: str = "both",
    early_stop: bool = False,
    splits: int = 0,
    spec: Any = None,
) -> Bounds:
    """Bounds of states, pre-activations and linear functionals of the outputs over sets of inputs.

    Args:
        model: `ImplicitModel` (a feed-forward network through `compose.from_network`) or `Problem`.
        U: (N, p) centres, torch or NumPy.
        eps: radius of every input; or sigma: (p,) or (N, p) radii.
        card: at most so many inputs move.
        clip: (low, high) range the set is cut to, None for none.
        method: "norm" | "box" | "comparison" | "metzler" | "interval" | "dual" | "lp".
        relaxation: of "lp": "displayed" | "theorem7" | "triangle".
        passes: of "dual" and the triangle LP: refinements of the pre-activation bounds.
        ascent_steps: of "dual": Newton steps of the ascent, None for its default, 0 for none.
        sides: "both" | "lower" (of "dual" and "lp": ub is that of the interval; certification needs no other).
        early_stop: of "dual": leave a functional once its lower bound is positive, and a sample once all are, as
            certification may.
        splits: of "dual": nodes of branch and bound for a lower bound that is not positive; it raises lb, not what
            cert claims.
        spec: (k, q) or (N, k, q) weights of the outputs (see `margins`); None for the outputs themselves.

    Returns:
        `Bounds`, float64.

    Raises:
        NotCertified: if the model is not proved well-posed.
        ValueError, TypeError: naming what does not fit, also for an option that the method would ignore.

    Source:
        Tsai thesis (2024), section 4.2.
    """
    checked_options(
        method,
        relaxation=relaxation,
        passes=passes,
        ascent_steps=ascent_steps,
        sides=sides,
        early_stop=early_stop,
        splits=splits,
    )
    task = problem(model)
    inputs = uncertainty(U, eps=eps, sigma=sigma, card=card, clip=clip)
    functionals = specification(task, inputs, spec)
    _ = task.certificate  # raises where the model has none
    if method in BOX_METHODS:
        return _box(task, inputs, functionals, method)
    if method == "lp" and relaxation != "triangle":
        box = _box(task, inputs, functionals, _tightest_box(task))
        return _linear_programme(task, inputs, functionals, relaxation, box, sides)
    start = _interval(task, inputs, functionals)
    if method == "interval":
        return start
    from implicit_models.robustness.bounding.dual import dual_bounds

    if method == "dual":
        return dual_bounds(
            task,
            inputs,
            functionals,
            start,
            passes=int(passes),
            ascent_steps=ascent_steps,
            sides=sides,
            early_stop=bool(early_stop),
            splits=int(splits),
        )
    refined = dual_bounds(task, inputs, functionals, start, passes=int(passes), ascent_steps=0, sides=sides)
    return _linear_programme(task, inputs, functionals, relaxation, refined, sides)


DEFAULTS = {name: inspect.signature(bounds).parameters[name].default for name in OPTIONS}


def checked_options(method: str, **options: Any) -> None:
    """Whether the options of `bounds` have values that mean something, and mean something to the method.

    Args:
        options: any of `OPTIONS`.

    Raises:
        ValueError: naming the option, its value and the method.
        TypeError: for a name that is no option.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(f"unknown option {name!r} of the bounds; choose among {', '.join(OPTIONS)}")
        if name == "relaxation":
            if value not in RELAXATIONS:
                raise ValueError(f"unknown relaxation {value!r}; choose one of {', '.join(RELAXATIONS)}")
        elif name == "sides":
            if value not in ("both", "lower"):
                raise ValueError(f"sides must be 'both' or 'lower', got {value!r}")
        elif name == "early_stop":
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"early_stop must be True or False, got {value!r}")
        elif not (name == "ascent_steps" and value is None):
            checked_count(name, value)
        if value != DEFAULTS[name] and method not in OPTIONS[name]:
            belongs = " and ".join(repr(m) for m in OPTIONS[name])
            raise ValueError(f"{name}={value!r} belongs to method {belongs}, and would be ignored by {method!r}")
    options = DEFAULTS | options
    if method == "lp" and (relaxation := options["relaxation"]) != "triangle":
        if (passes := options["passes"]) != DEFAULTS["passes"]:
            raise ValueError(
                f"passes={passes!r} belongs to the triangle, and would be ignored by method 'lp' with "
                f"relaxation {relaxation!r}"
            )


def checked_count(name: str, value: Any, least: int = 0) -> None:
    """Raises: ValueError naming an argument that is not an int of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        what = "a non-negative int" if least == 0 else f"an int of at least {least}"
        raise ValueError(f"{name} must be {what}, got {value!r}")


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
