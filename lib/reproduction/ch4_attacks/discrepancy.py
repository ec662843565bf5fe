"""The thesis' programme for the largest squared discrepancy of states: its optimum, and what it leaves open.

Source: Tsai thesis (2024), section 4.2.3 and section 4.4, Figures 4.6 and 4.7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.lp import Programme, batch_units
from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import Problem


def discrepancy_facts(task: Problem, u: np.ndarray, eps: float, seed: int, draws: int = 20) -> dict[str, float]:
    """The programme for sum_i (x_i - x0_i)^2 against the sum of the separate maxima, and what it leaves open.

    Mathematics: over |x - x0| <= sigma the concave envelope of each term is its chord, largest at x0 + sigma, which
        satisfies x >= A x + B u + b for every
    u of the box. So the optimum is sum_i sigma_i^2 and each u attains it.

    Returns:
        "gap" (programme less trivial sum, relative, largest over samples), "violation" (largest of A x + B u + b - x
        over x = x0 + sigma and random corners u, relative to x), and the same programme with ties broken by a small
        cost on u with random signs: "tied" (inputs that follow the tie, per cent), "tied_gap" (change of the sum of
        squares, relative).
    """
    inputs, rng = Box(eps).around(u), np.random.default_rng(seed)
    start = bounds(task, u, eps, method="box")
    programme, gap, violation, tied_gap, tied = Programme(task, inputs), 0.0, -np.inf, 0.0, []
    for i in range(len(u)):
        units = batch_units(task, start, "displayed", i)
        programme.set_sample(i, units)
        x0, low, high = start.cert.x0[i], units.xl, units.xh
        slope = ((high - x0) ** 2 - (low - x0) ** 2) / np.where(high > low, high - low, 1.0)
        signs, constant = rng.choice([-1.0, 1.0], task.p), float(np.sum((low - x0) ** 2 - slope * low))
        value = constant - programme.minimise(-slope, np.zeros(task.p)).reported
        tie = 1e-3 * np.abs(slope).max() * signs
        other = programme.minimise(-slope, tie)
        trivial = float(np.sum(np.maximum((high - x0) ** 2, (low - x0) ** 2)))
        gap = max(gap, abs(value - trivial) / trivial)
        corners = u[i] + eps * rng.choice([-1.0, 1.0], (draws, task.p))
        excess = corners @ _dense(task.B).T + _dense(task.A) @ high + task.b - high
        violation = max(violation, float(excess.max() / np.abs(high).max()))
        tied_gap = max(tied_gap, abs(constant - (other.reported - float(tie @ other.u)) - trivial) / trivial)
        tied.append(np.mean(np.abs(other.u - (u[i] - eps * signs)) < 1e-9))
    return {"gap": gap, "violation": violation, "tied": 100 * float(np.mean(tied)), "tied_gap": tied_gap}


def few_pixels_gap(task: Problem, u: np.ndarray, k: int) -> float:
    """The same programme over inputs of which k may move by 1: largest relative difference of its optimum and the sum
    of the separate maxima."""
    inputs, worst = SparseBox(1.0, k).around(u), 0.0
    start, programme = bounds(task, u, SparseBox(1.0, k), method="box"), Programme(task, inputs)
    for i in range(len(u)):
        units = batch_units(task, start, "displayed", i)
        programme.set_sample(i, units)
        low, high = ((ends - start.cert.x0[i]) ** 2 for ends in (units.xl, units.xh))
        slope = (high - low) / np.where(units.xh > units.xl, units.xh - units.xl, 1.0)
        value = float(np.sum(low - slope * units.xl)) - programme.minimise(-slope, np.zeros(task.p)).reported
        trivial = float(np.maximum(low, high).sum())
        worst = max(worst, abs(value - trivial) / trivial)
    return worst


def _dense(M: Any) -> np.ndarray:
    return M if isinstance(M, np.ndarray) else M.toarray()
