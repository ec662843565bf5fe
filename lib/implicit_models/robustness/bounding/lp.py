"""Bounds by linear programmes over states, pre-activations and inputs, as displayed after Theorem 7 and corrected.

Minimise w'x + v'u subject to z = A x + B u + b, u in Co(U), and for every unit, with sigma the box |x - x0| <= sigma,

    displayed   x >= z, x >= a z, |x - x0| <= sigma           (a = 0 for ReLU). For w <= 0 its optimum is the box
    itself: x = x0 + sigma is feasible.
    theorem7    the hull of {(z, phi(z)) : |phi(z) - x0| <= sigma}, the true bidual: x = z as well wherever x0 - sigma >
    0
    triangle    the hull of {(z, phi(z)) : zl <= z <= zh}: an upper line too, so that any multiplier gives a finite
    bound

Co(U) is the box, or |u - u0| <= radius with sum |u - u0| / radius <= k, scaled so that a zero radius is not divided by.
HiGHS keeps its basis from functional to functional and from sample to sample. What it reports is never used as a bound:
the multipliers of z = A x + B u + b are, evaluated by weak duality with room for rounding, so that a wrong optimum or
status can only loosen a bound.

Source:
    Tsai thesis (2024), section 4.2.3, (4.10) to Theorem 7 and the two programmes after it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from implicit_models.robustness.bounding.options import check_relaxation
from implicit_models.robustness.bounding.result import Bounds, finished
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.specification import Specification, rounding_of, specification
from implicit_models.status import Status


@dataclass(frozen=True, eq=False)
class Units:
    """The relaxation of every unit of one sample: zl <= z <= zh and xl <= x <= xh, infinite where absent.

    linear: slope of a unit with x = slope z, NaN for the others; those have x >= z, x >= a z and x <= top + chord (z -
        zl) where chord is not NaN.
    """

    zl: Float[np.ndarray, " n"]
    zh: Float[np.ndarray, " n"]
    xl: Float[np.ndarray, " n"]
    xh: Float[np.ndarray, " n"]
    linear: Float[np.ndarray, " n"]
    chord: Float[np.ndarray, " n"]
    top: Float[np.ndarray, " n"]
    a: Float[np.ndarray, " n"]

    def infima(self, mu: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """min of mu x - lam z over each unit's set, at its corners, and the lam it is for: not negative where z has no
        lower end."""
        lam = np.where(np.isneginf(self.zl), np.maximum(lam, 0.0), lam)
        corners = []
        for x, z in ((self.xl, self.zl), (self.xh, self.zh)):
            # the largest z under x: lam >= 0 makes it the best one
            root = np.where(x > 0, x, np.divide(x, self.a, out=np.zeros_like(x), where=self.a > 0))
            root = np.where(
                np.isnan(self.linear), root, np.divide(x, self.linear, out=np.zeros_like(x), where=self.linear > 0)
            )
            z = np.where(np.isfinite(z), z, root)
            x = np.where(np.isfinite(z) & (self.linear == 0), 0.0, x)
            corners.append(mu * x - lam * z)
        inside = (
            (np.isneginf(self.zl) | (self.zl < 0))
            & (self.zh > 0)
            & (self.xl <= 0)
            & (self.xh >= 0)
            & np.isnan(self.linear)
        )
        return np.minimum(np.minimum(*corners), np.where(inside, 0.0, np.inf)), lam


def triangle_units(zl: np.ndarray, zh: np.ndarray, a: np.ndarray) -> Units:
    """Hull of the graph of phi(z) = max(z, a z) on [zl, zh]; zl may be -inf where a = 0."""
    phi = lambda z: np.where(z > 0, z, np.where(a > 0, a * np.where(np.isfinite(z), z, 0.0), 0.0))
    xl, xh = phi(zl), phi(zh)
    linear = np.where((zl >= 0) | (a == 1), 1.0, np.where(zh <= 0, a, np.nan))
    bent = np.isnan(linear) & np.isfinite(zl)  # without a lower end the upper line is x <= xh
    chord = np.divide(xh - xl, zh - zl, out=np.full_like(xl, np.nan), where=bent)
    return Units(zl, zh, xl, xh, linear, chord, xl, a)


def box_units(x0: np.ndarray, sigma: np.ndarray, a: np.ndarray, relaxation: str) -> Units:
    """The units of "displayed" or "theorem7" for |x - x0| <= sigma."""
    xl, xh = x0 - sigma, x0 + sigma
    back = lambda x: np.where(x > 0, x, np.divide(x, a, out=np.full_like(x, -np.inf), where=a > 0))
    if relaxation == "theorem7":
        zl, zh = back(xl), np.where(xh > 0, xh, np.where(a > 0, back(xh), 0.0))
        return triangle_units(zl, np.maximum(zh, zl), a)
    xl = np.where(a > 0, xl, np.maximum(xl, 0.0))
    nothing = np.full_like(x0, np.nan)
    xh = np.maximum(xh, xl)
    return Units(np.full_like(x0, -np.inf), np.full_like(x0, np.inf), xl, xh, nothing, nothing, nothing, a)


def _highspy() -> ModuleType:
    try:
        import highspy
    except ImportError as error:
        raise ImportError("linear programmes need highspy: pip install 'implicit-models[robustness]'") from error
    _print_banner(highspy.Highs)
    return highspy


@functools.cache
def _print_banner(solver: Any) -> None:
    """Let HiGHS print its banner, which comes once a process and before any option is read, where no reader's page
    shows it."""
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        solver()
        ctypes.CDLL(None).fflush(None)  # the line may still lie in C's own buffer
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


@dataclass(frozen=True, eq=False)
class Solved:
    """One programme: multipliers, the input it found, its reported optimum and whether HiGHS calls it optimal."""

    lam: Float[np.ndarray, " n"]
    u: Float[np.ndarray, " p"]
    reported: float
    optimal: bool


class Programme:
    """The programmes of a batch in one HiGHS model, whose bounds, slopes and costs change while its basis stays.

    Columns: x (n), z (n), then u - u0 (p), or its positive and negative parts over the radius (2 p) for sets of at most
        k moving inputs.
    Rows: z - A x - B (u - u0) = b + B u0; x - z >= 0; x - a z >= 0; x - chord z <= top - chord zl; the budget.
    rooms: for those sets, how far an input may go up and down, (N, p) each, at most the radius; None for the radius
        itself.
    """

    def __init__(self, task: Problem, inputs: Uncertainty, rooms: tuple[np.ndarray, np.ndarray] | None = None):
        self.highspy, self.task, self.inputs, self.rooms = _highspy(), task, inputs, rooms
        self.slope = _slopes(task)
        self.solver: Any = None

    def _build(self) -> None:
        task, n, card = self.task, self.task.n, self.inputs.card
        eye = sp.eye_array(n, format="csr")
        B = sp.csr_array(task.B)
        parts = [B] if card is None else [sp.csr_array(B @ sp.diags_array(reach)) for reach in (self.up, -self.down)]
        self.m = m = sum(part.shape[1] for part in parts)
        empty = sp.csr_array((n, m))
        blocks = [
            [-sp.csr_array(task.A), eye, -sp.hstack(parts)],
            [eye, -eye, empty],
            [eye, -sp.diags_array(self.slope), empty],
            [eye, -eye, empty],  # the chord's coefficients, set sample by sample
        ]
        M = sp.vstack([sp.hstack(row) for row in blocks], format="csr")
        if card is not None:
            M = sp.vstack([M, sp.csr_array(np.r_[np.zeros(2 * n), np.ones(m)][None])], format="csr")
        lp = self.highspy.HighsLp()
        lp.num_col_, lp.num_row_ = 2 * n + m, M.shape[0]
        lp.col_cost_ = np.zeros(2 * n + m)
        lp.col_lower_, lp.col_upper_ = np.r_[np.zeros(2 * n + m)], np.r_[np.zeros(2 * n), np.ones(m)]
        lp.row_lower_, lp.row_upper_ = np.full(M.shape[0], -np.inf), np.full(M.shape[0], np.inf)
        if card is not None:
            lp.row_upper_ = np.r_[np.full(4 * n, np.inf), float(card)]
        lp.a_matrix_.format_ = self.highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
        solver = self.highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex"), ("presolve", "off")):
            solver.setOptionValue(option, value)
        solver.passModel(lp)
        self.solver = solver

    def set_sample(self, i: int | np.integer, units: Units) -> None:
        """Bounds and slopes of sample i; the multipliers, costs and basis of the last one stay as a start."""
        inputs, task, n = self.inputs, self.task, self.task.n
        radius = inputs.radius if inputs.shared else inputs.radius[i]
        self.up, self.down = (  # type: Any, Any
            (radius, radius) if self.rooms is None else (room[i] for room in self.rooms)
        )
        if self.solver is None or (inputs.card is not None and not (inputs.shared and self.rooms is None)):
            self._build()
        self.u0, h = inputs.centre[i], self.solver
        lower, upper = np.r_[units.xl, units.zl], np.r_[units.xh, units.zh]
        if inputs.card is None:
            lower, upper = np.r_[lower, -radius], np.r_[upper, radius]
        columns = np.arange(len(lower), dtype=np.int32)
        h.changeColsBounds(len(columns), columns, lower, upper)
        pre = task.B @ self.u0 + task.b
        linear, free = ~np.isnan(units.linear), np.isnan(units.chord)
        one, inf = units.linear == 1, np.full(n, np.inf)
        low = np.r_[pre, np.where(linear & ~one, -inf, 0.0), np.where(one, -inf, 0.0), -inf]
        high = np.r_[
            pre,
            np.where(one, 0.0, inf),
            np.where(linear & ~one, 0.0, inf),
            np.where(free, inf, units.top - np.where(free, 0.0, units.chord) * _finite(units.zl)),
        ]
        rows = np.arange(4 * n, dtype=np.int32)
        h.changeRowsBounds(len(rows), rows, low, high)
        for unit in np.flatnonzero(~free):
            h.changeCoeff(int(3 * n + unit), int(n + unit), -float(units.chord[unit]))

    def minimise(self, w: np.ndarray, v: np.ndarray) -> Solved:
        """min w'x + v'u for the present sample."""
        n, h = self.task.n, self.solver
        moved = v if self.inputs.card is None else np.r_[v * self.up, -v * self.down]
        cost = np.r_[w, np.zeros(n), moved]
        h.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
        h.run()
        solution = h.getSolution()
        optimal = h.getModelStatus() == self.highspy.HighsModelStatus.kOptimal
        lam, columns = np.array(solution.row_dual)[:n], np.array(solution.col_value)
        if len(lam) != n or not np.isfinite(lam).all():
            lam, optimal = np.zeros(n), False
        u = self.u0
        if len(columns):
            rest, p = columns[2 * n :], len(self.u0)
            u = self.u0 + (rest if self.inputs.card is None else self.up * rest[:p] - self.down * rest[p:])
        return Solved(lam, u, float(h.getInfo().objective_function_value) + float(v @ self.u0), optimal)


def _slopes(task: Problem) -> np.ndarray:
    if not task.activation.piecewise_linear:
        raise ValueError(
            f"linear programmes are for relu, leaky_relu and identity states, not for {task.activation!r}; use method"
            " 'dual'"
        )
    return task.activation.kernel_codes[1]


def _finite(z: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(z), z, 0.0)


def weak_dual(
    task: Problem,
    inputs: Uncertainty,
    i: int | np.integer,
    units: Units,
    w: np.ndarray,
    v: np.ndarray,
    const: float,
    terms: float,
    lam: np.ndarray,
) -> tuple[float, np.ndarray]:
    """A lower bound of w'x + v'u + const over sample i for this very lam (made admissible), rounding deducted; and that
    lam.

    Args:
        terms: the sizes that w, v and const are sums of, which may cancel (`Specification.terms`).

    Source:
        Tsai thesis (2024), Theorem 7, first form.
    """
    mu = w + lam @ task.A
    least, lam = units.infima(mu, lam)
    mu = w + lam @ task.A
    least, _ = units.infima(mu, lam)
    reach = v + lam @ task.B
    radius, u0 = inputs.radius if inputs.shared else inputs.radius[i], inputs.centre[i]
    one = Uncertainty(u0[None], radius, inputs.card)
    value = least.sum() + reach @ u0 - float(one.support(reach[None])[0]) + lam @ task.b + const
    x, z = np.maximum(np.abs(units.xl), np.abs(units.xh)), np.maximum(np.abs(units.zl), np.abs(units.zh))
    z = np.where(
        np.isfinite(z), z, x / np.where(task.activation.kernel_codes[1] > 0, task.activation.kernel_codes[1], 1.0)
    )
    size = (
        np.abs(lam) @ (np.abs(task.b) + abs(task.B) @ (np.abs(u0) + radius) + z)
        + (np.abs(lam) @ abs(task.A)) @ x
        + terms
    )
    return float(value - rounding_of(task) * size), lam


def batch_units(task: Problem, start: Bounds, relaxation: str, i: int | np.integer) -> Units:
    """The units of sample i from its pre-activation bounds (triangle) or from its box."""
    a = _slopes(task)
    if relaxation == "triangle":
        return triangle_units(start.zl[i], np.maximum(start.zh[i], start.zl[i]), a)
    return box_units(start.cert.x0[i], start.cert.sigma[i], a, relaxation)  # type: ignore[index]


def solve_batch(
    task: Problem,
    inputs: Uncertainty,
    functionals: Specification,
    start: Bounds,
    relaxation: str,
    signs: tuple[int, ...] = (1,),
) -> Iterator[tuple[int | np.integer, int, int, Units, np.ndarray, np.ndarray, float, Solved]]:
    """Solve every programme in turn: (sample, functional, sign, units, w, v, const, solution); samples that are not
    CERTIFIED are left out."""
    programme = Programme(task, inputs)
    shared, W, constant = functionals.shared, functionals.state, np.asarray(functionals.constant)
    for i in np.flatnonzero(start.status == Status.CERTIFIED):
        units = batch_units(task, start, relaxation, i)
        programme.set_sample(i, units)
        V = functionals.inputs_of(i, i + 1)
        V = V if shared else V[0]
        for sign in signs:
            for j in range(functionals.k):
                w, const = (W[j], constant[j]) if shared else (W[i, j], constant[i, j])
                yield (
                    i,
                    j,
                    sign,
                    units,
                    sign * w,
                    sign * V[j],
                    sign * float(const),
                    programme.minimise(sign * w, sign * V[j]),
                )


def lp_bounds(
    task: Problem,
    inputs: Uncertainty,
    spec: Any = None,
    *,
    relaxation: str = "triangle",
    start: Bounds,
    sides: str = "both",
) -> Bounds:
    """Bounds of linear functionals of the outputs by linear programmes.

    Args:
        task, inputs: the problem and the sets.
        spec: (k, q) or (N, k, q); None for the outputs.
        relaxation: "displayed" | "theorem7" | "triangle".
        start: `Bounds` with pre-activations zl, zh (triangle), or a box with cert.x0, cert.sigma (the two others);
            their intersection is returned.
        sides: "both" | "lower".

    Returns:
        `Bounds`; its certificate holds the multipliers. A sample whose programme HiGHS does not call optimal is
        FAILED.

    Raises:
        ImportError: without highspy.
        ValueError: for maps that are not piecewise linear.

    Source:
        Tsai thesis (2024), Theorem 7 and the two programmes after it; the triangle: Ehlers (2017), Salman et al.
        (2019).
    """
    check_relaxation(relaxation)
    _slopes(task)
    functionals = specification(task, inputs, spec)
    N, k, n = len(inputs.centre), functionals.k, task.n
    signs = (1, -1) if sides == "both" else (1,)
    found = {sign: np.array(start.lb if sign == 1 else -start.ub) for sign in signs}
    given = {1: start.cert.lam_low, -1: start.cert.lam_high}
    rows = {sign: np.full((N, k, n), np.nan) if given[sign] is None else np.array(given[sign]) for sign in signs}
    terms = functionals.terms(np.abs(np.stack([start.xl, start.xh, start.zl, start.zh])).max(axis=0))
    status = start.status.astype("<U10")
    for i, j, sign, units, w, v, const, solved in solve_batch(task, inputs, functionals, start, relaxation, signs):
        if not solved.optimal:
            status[i] = Status.FAILED
            continue
        value, lam = weak_dual(task, inputs, i, units, w, v, const, terms[i, j], solved.lam)
        if value > found[sign][i, j]:
            found[sign][i, j], rows[sign][i, j] = value, lam
    fields = {name: np.array(getattr(start, name)) for name in ("xl", "xh", "zl", "zh")}
    fields |= {"lb": found[1], "ub": -found[-1] if sides == "both" else np.array(start.ub)}
    evidence = {name: getattr(start.cert, name) for name in ("x0", "sigma", "il", "ih", "zl0", "zh0", "stages")}
    return finished(
        task,
        inputs,
        functionals,
        status,
        "lp",
        fields,
        relaxation=relaxation,
        lam_low=rows[1],
        lam_high=rows.get(-1),
        **evidence,
    )
