r"""Both forms of Theorem 7's bound, each solved by itself: the minimum over multipliers, and the bidual.

The first form minimises $\sigma_U(B^\top \lambda) + \lambda^\top b + \sum_i g_i(\lambda_i, (A^\top \lambda)_i)$ with

    g_i(alpha, beta) = max over |zeta_+ - x0_i| <= sigma_i of f_i(zeta_+) - alpha zeta + beta zeta_+,

for a convex f_i a maximum over the ends of the interval of states, and infinite for alpha > 0 where zeta has no lower
end. It is a linear programme in lambda, written down here from these definitions alone. The bidual is a programme over
states and inputs, `implicit_models.robustness.bounding.lp` with the relaxation "theorem7". Strong duality says that
the two have one value.

Source:
    Tsai thesis (2024), section 4.2.3, (4.10), (4.11) and Theorem 7.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.optimize import linprog

from data_gen.core.streams import stream
from implicit_models.robustness.bounding.box import state_box
from implicit_models.robustness.bounding.lp import Programme, box_units
from implicit_models.robustness.input_sets import Box, SparseBox, Uncertainty
from implicit_models.robustness.problem import Problem
from reproduction.ch4_bounds.compute import random_model

Terms = Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]  # states -> f_i of each


def first_form(
    task: Problem, inputs: Uncertainty, x0: Float[np.ndarray, " n"], sigma: Float[np.ndarray, " n"], terms: Terms
) -> float:
    r"""$\min_\lambda \sigma_U(B^\top \lambda) + \lambda^\top b + \sum_i g_i(\lambda_i, (A^\top \lambda)_i)$.

    Args:
        task: ReLU states.
        inputs: one sample's set, a box or its part with at most k moving inputs.
        x0, sigma: (n,) centre and radius of the box of states.
        terms: the convex functions f_i of the states.

    Raises:
        ArithmeticError: where the solver calls its end anything but optimal.
    """
    n, p = task.n, task.p
    A, B = (M.toarray() if sp.issparse(M) else np.asarray(M) for M in (task.A, task.B))
    radius = np.broadcast_to(np.asarray(inputs.radius if inputs.shared else inputs.radius[0]), (p,))
    low, high = np.maximum(x0 - sigma, 0.0), np.maximum(x0 + sigma, 0.0)
    fixed = x0 - sigma > 0  # zeta = x there; elsewhere zeta has no lower end, and x = 0 is reached with zeta = 0
    one = np.eye(n)
    # columns: lambda (n), t (n) above g, v (p) above |B'lambda| or its excess over tau, tau
    ends = []
    for x in (np.where(fixed, low, 0.0), high):
        ends.append((np.hstack([x[:, None] * A.T - x[:, None] * one, -one, np.zeros((n, p + 1))]), -terms(x)))
    tau = np.full((p, 1), 0.0 if inputs.card is None else -1.0)
    for sign in (1.0, -1.0):
        move = sign * radius[:, None] * B.T
        ends.append((np.hstack([move, np.zeros((p, n)), -np.eye(p), tau]), np.zeros(p)))
    slope = (task.b + B @ inputs.centre[0], np.ones(n), np.ones(p), [float(inputs.card or 0)])
    limits = [(None, None if fixed[i] else 0.0) for i in range(n)] + [(None, None)] * n + [(0.0, None)] * (p + 1)
    found = linprog(
        np.concatenate(slope),
        A_ub=sp.csr_array(np.vstack([rows for rows, _ in ends])),
        b_ub=np.concatenate([right for _, right in ends]),
        bounds=limits,
        method="highs",
    )
    if found.status != 0:
        raise ArithmeticError(f"the first form of Theorem 7 was not solved: {found.message}")
    return float(found.fun)


def bidual(
    task: Problem, inputs: Uncertainty, x0: Float[np.ndarray, " n"], sigma: Float[np.ndarray, " n"], terms: Terms
) -> float:
    """The maximum over states and inputs: f_i by its chord over the unit's interval of states, the least concave
    function above a convex f_i.

    Arguments and errors are those of `first_form`.
    """
    units = box_units(x0, sigma, np.zeros(task.n), "theorem7")
    low, high = terms(units.xl), terms(units.xh)
    slope = np.divide(high - low, units.xh - units.xl, out=np.zeros(task.n), where=units.xh > units.xl)
    programme = Programme(task, inputs)
    programme.set_sample(0, units)
    solved = programme.minimise(-slope, np.zeros(task.p))
    if not solved.optimal:
        raise ArithmeticError("the bidual of Theorem 7 was not solved")
    return float(np.sum(low - slope * units.xl)) - solved.reported


def duality_facts(count: int, seed: int, draws: int = 200) -> dict[str, float]:
    """Both forms on random ReLU models, for f = c xi with signed c and for the thesis' (xi - x0)^2.

    Returns:
        "gap_SET_OBJECTIVE": largest difference of the two values, over one or the value; SET is "box" or "card",
        OBJECTIVE "linear" or "squared". "above_SET_OBJECTIVE": largest amount by which an input found by random
        search exceeds the bidual, in the same units, negative where the bound holds.
    """
    rng = stream(seed, "duality")
    cases = [f"{name}_{kind}" for name in ("box", "card") for kind in ("linear", "squared")]
    found = {f"gap_{case}": 0.0 for case in cases} | {f"above_{case}": -np.inf for case in cases}
    for k in range(count):
        task = random_model(rng, triangular=k % 2 == 0)
        u, eps, c = rng.normal(size=(1, task.p)), float(rng.uniform(0.05, 0.5)), rng.normal(size=task.n)
        card = int(rng.integers(1, task.p))
        moves = eps * rng.choice([-1.0, 1.0], (draws, task.p))
        few = moves * (rng.permuted(np.tile(np.arange(task.p), (draws, 1)), axis=1) < card)
        for name, inputs, tried in (("box", Box(eps), moves), ("card", SparseBox(eps, card), few)):
            one = inputs.around(u)
            box = state_box(task, one)
            x0, sigma = box.x0[0], box.sigma[0]
            objectives: dict[str, Terms] = {"linear": lambda x, c=c: c * x, "squared": lambda x, x0=x0: (x - x0) ** 2}
            states = task.equilibrium(u + tried)[0]
            for kind, terms in objectives.items():
                top = bidual(task, one, x0, sigma, terms)
                unit = max(1.0, abs(top))
                gap, above = f"gap_{name}_{kind}", f"above_{name}_{kind}"
                found[gap] = max(found[gap], abs(first_form(task, one, x0, sigma, terms) - top) / unit)
                found[above] = max(found[above], float(max(terms(x).sum() for x in states) - top) / unit)
    return found


def trained_gap(task: Problem, u: Float[np.ndarray, "N p"], y: np.ndarray, eps: float) -> float:
    """Largest difference of the two forms, over one or the value, on samples of a trained network.

    The objective is linear, f_i = (C_j - C_y)_i xi with j the class after the label: the part of a margin that
    states decide.
    """
    C = task.C.toarray() if sp.issparse(task.C) else np.asarray(task.C)
    worst = 0.0
    for sample, label in zip(np.asarray(u, dtype=np.float64), y, strict=True):
        one = Box(eps).around(sample[None])
        box = state_box(task, one)
        c = C[(label + 1) % task.q] - C[label]
        values = [how(task, one, box.x0[0], box.sigma[0], lambda x, c=c: c * x) for how in (first_form, bidual)]
        worst = max(worst, abs(values[0] - values[1]) / max(1.0, abs(values[1])))
    return worst
