"""`check_verification`: whether a safe answer is proved, by the checker alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.checking import outward
from implicit_models.robustness.checking.checker import CheckResult, check
from implicit_models.robustness.checking.signs import lower_bounds_with_signs
from implicit_models.robustness.input_sets import Box
from implicit_models.robustness.layered.input_splits import SplitTree, row_slack
from implicit_models.robustness.layered.unit_tree import UnitTree
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.properties import Property
from implicit_models.robustness.verification.search import Verification
from implicit_models.status import Status

CHECKED_PARTS, CHECKED_BYTES = 256, 2**26  # that are checked at once, and of their multipliers
HALVINGS, MOST_SMALLER = 24, 512  # of parts that the checker does not prove as they are


def check_verification(model: Any, wanted: Property, found: Verification) -> CheckResult:
    """Whether a safe answer is proved: its parts cover the box, and the checker proves the bounds of each.

    The multipliers of boxes are found again, and count only if `check` verifies them by the matrices: a tree of ten
    thousand boxes need not hold a gigabyte of them. Those of parts with signs come with the answer.

    Args:
        model: the model.
        wanted: the property.
        found: the answer.

    Returns:
        `CheckResult`, one entry a part.
    """
    if found.status != Status.SAFE or found.tree is None:
        return CheckResult(np.zeros(0, bool), "there is no proof of an answer that is not safe")
    task = problem(model)
    try:
        tree = found.tree
        good, reason = _units(task, wanted, tree) if isinstance(tree, UnitTree) else _boxes(task, wanted, tree)
    except (ValueError, IndexError, KeyError) as error:
        return CheckResult(np.zeros(0, bool), f"the parts are malformed: {error}")
    bad = np.flatnonzero(~good)
    return CheckResult(good, reason or (f"part {bad[0]} of {len(good)} is not proved" if bad.size else ""))


def _boxes(task: Problem, wanted: Property, tree: SplitTree) -> tuple[np.ndarray, str]:
    lower, upper = tree.leaves(wanted.lower, wanted.upper)
    good = np.zeros(len(lower), bool)
    most = max(1, min(CHECKED_PARTS, CHECKED_BYTES // (48 * (task.n + 1) ** 2)))
    whole = np.where(wanted.upper > wanted.lower, wanted.upper - wanted.lower, 1.0)
    for begin in range(0, len(lower), most):
        part = np.arange(begin, min(len(lower), begin + most))
        lows, highs = lower[part], upper[part]
        good[part] = True
        for _ in range(HALVINGS):
            bad = ~_proved(task, wanted, lows, highs)
            part, lows, highs = part[bad], lows[bad], highs[bad]
            if not part.size or part.size > MOST_SMALLER:
                break
            # the search also knew the bounds of what a part is a half of: smaller parts do without
            axis = ((highs - lows) / whole).argmax(axis=1)
            at = (0.5 * (lows + highs))[np.arange(len(axis)), axis]
            below, above = highs.copy(), lows.copy()
            below[np.arange(len(axis)), axis] = above[np.arange(len(axis)), axis] = at
            part = np.concatenate([part, part])
            lows, highs = np.concatenate([lows, above]), np.concatenate([below, highs])
        good[part] = False
    return good, ""


def _whole(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, Box]:
    """Centres, and radii that reach both ends."""
    centre = 0.5 * (lower + upper)
    return centre, Box(np.nextafter(np.maximum(upper - centre, centre - lower), np.inf))


def _proved(task: Problem, wanted: Property, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """(N,) whether the checker proves the property on each box."""
    matrix, right = wanted.rows
    found = bounds(task, *_whole(lower, upper), sides="lower", spec=matrix)
    slack, _ = row_slack(wanted, np.nextafter(found.lb - right, -np.inf))
    return check(found.cert).samples & (slack > 0)


def _units(task: Problem, wanted: Property, tree: UnitTree) -> tuple[np.ndarray, str]:
    """The same for parts with signs: bounds of the whole box, then those of each part by its own multipliers."""
    nodes, whose, signs = tree.leaves(len(wanted.unsafe), task.n)
    good = np.zeros(len(nodes), bool)
    if tree.multipliers is None:
        return good, "the multipliers of the parts were too many to be kept"
    matrix, right = wanted.rows
    found = bounds(task, *_whole(wanted.lower[None], wanted.upper[None]), sides="lower", spec=matrix)
    whole = check(found.cert)
    if not whole:
        return good, f"the bounds of the whole box are not proved: {whole.reason}"
    weights = _of_all_rows(wanted, tree.weights[nodes], whose)
    goal = weights @ right + outward.share(len(right) + 2) * (weights @ np.abs(right))
    most = max(1, CHECKED_BYTES // (64 * (task.n + task.p)))
    for begin in range(0, len(nodes), most):
        part = slice(begin, begin + most)
        lam = np.stack([tree.multipliers[int(node)] for node in nodes[part]])
        good[part] = lower_bounds_with_signs(found.cert, signs[part], weights[part], lam) > goal[part]
    return good, ""


def _of_all_rows(wanted: Property, weights: np.ndarray, whose: np.ndarray) -> np.ndarray:
    """(L, all rows) weights of the rows of each part's own polyhedron.

    Raises:
        ValueError: for weights that are negative, all zero, or not finite.
    """
    ends = np.cumsum([0, *(len(part.b) for part in wanted.unsafe)])
    out = np.zeros((len(weights), ends[-1]))
    for k, (start, stop) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        mine = whose == k
        out[mine, start:stop] = weights[mine, : stop - start]
        out[mine, start] += weights[mine, stop - start :].sum(axis=1)  # the first row stands in place of missing ones
    if not (np.isfinite(out).all() and (out >= 0).all() and (out.sum(axis=1) > 0).all()):
        raise ValueError("weights of rows must be non-negative numbers, not all zero")
    return out
