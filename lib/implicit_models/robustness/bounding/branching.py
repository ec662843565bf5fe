"""Branch and bound over the kinks: a functional that the relaxation leaves undecided is bounded on both sides of one
unit's kink.

On the side z_i >= 0 or z_i <= 0 the unit is linear, and its multiplier is free to use the side (lambda_i is not s_i
mu_i); the others' pre-activations are refined again. The bound of the whole is the least of its leaves, so it is valid
whenever the budget ends. With enough leaves it is exact for piecewise-linear models: the remaining gap to an attack is
then the attack's.

Source:
    Bunel et al., branch and bound for piecewise-linear networks (JMLR 2020); multipliers of split units: Wang et al.,
    beta-CROWN (2021).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from implicit_models.kernels import kernel
from implicit_models.robustness.bounding.dual_kernels import SWEEPS, Model, Record, Sets, refine
from implicit_models.robustness.bounding.dual_samples import Functionals, bound_functionals
from implicit_models.robustness.bounding.relaxation import PIECEWISE_LINEAR


@kernel
def _widest(zl, zh, code, a, fixed, lam, w, A):
    """The unit whose triangle costs the functional w most: |mu_i| times the height of its triangle at the kink, where
    mu = w + A'lam; -1 if none is left.
    """
    mu = np.dot(lam, A)
    best, unit = 0.0, -1
    for i in range(zl.size):
        if code[i] == PIECEWISE_LINEAR and a[i] != 1 and zl[i] < 0 < zh[i] and not fixed[i]:
            height = (1 - a[i]) * zh[i] * -zl[i] / (zh[i] - zl[i])
            cost = height * (abs(w[i] + mu[i]) + 1e-12)
            if cost > best:
                best, unit = cost, i
    return unit


def branch(model: Model, sets: Sets, row: Functionals, steps: int, lower: float, budget: int) -> tuple[float, int]:
    """(lower bound of one row of one sample with at most `budget` nodes, from `lower`; nodes). Stops once it is
    positive.

    sets: of that sample alone, its zl, zh refined; left as they are.
    """
    n = sets.zl.shape[1]
    record = Record(
        np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int8), np.empty((0, n)), np.zeros(2, int)
    )
    both = sets._replace(
        **{  # type: ignore[arg-type]
            name: np.repeat(getattr(sets, name), 2, axis=0) for name in ("centre", "xl", "xh", "weight", "live")
        }
    )
    rows = Functionals(row.W, row.V, np.repeat(row.constant, 2, axis=0), np.repeat(row.extra, 2, axis=0))
    gains = np.empty(2)

    def widest(box: Sets, kept: np.ndarray, s: int) -> int:
        own = box.zl[s], box.zh[s], model.code, model.slope, box.fixed[s]
        return _widest(*own, np.where(np.isnan(kept[s, 0]), 0.0, kept[s, 0]), row.W[0, 0], model.A)

    # the root again, for its multipliers
    root = sets._replace(zl=sets.zl.copy(), zh=sets.zh.copy())
    found, kept = np.full((1, 1), -np.inf), np.empty((1, 1, n))
    bound_functionals(model, root, row, SWEEPS, steps, True, found, kept)
    if found[0, 0] > 0:
        return found[0, 0], 1
    open_nodes = [(max(found[0, 0], lower), widest(root, kept, 0), root.zl[0], root.zh[0], root.fixed[0])]
    least_closed, nodes = np.inf, 1
    while open_nodes and nodes + 2 <= budget:
        bound, unit, zl, zh, fixed = open_nodes.pop()
        if unit < 0:
            least_closed = min(least_closed, bound)
            break  # no kink is left and it is not positive
        nodes += 2
        box = both._replace(zl=np.stack([zl, zl]), zh=np.stack([zh, zh]), fixed=np.stack([fixed, fixed]))
        box.fixed[:, unit] = True
        box.zl[0, unit] = box.zh[1, unit] = 0.0
        refine(model, box, SWEEPS, False, 0, record, gains)
        found, kept = np.full((2, 1), bound), np.zeros((2, 1, n))
        bound_functionals(model, box, rows, SWEEPS, steps, True, found, kept)
        for s in range(2):
            if found[s, 0] > 0:
                least_closed = min(least_closed, found[s, 0])
            else:
                open_nodes.append((found[s, 0], widest(box, kept, s), box.zl[s], box.zh[s], box.fixed[s]))
    return max(lower, min([least_closed, *(node[0] for node in open_nodes)])), nodes


def branch_samples(
    model: Model,
    sets: Sets,
    rows: Functionals,
    steps: int,
    budget: int,
    lower: Float[np.ndarray, "N rows"],
    nodes: Int[np.ndarray, "N rows"],
) -> None:
    """Raise the lower bounds that are not positive, in place; nodes: how many each took."""
    for s in np.flatnonzero(sets.live):
        at, own = slice(s, s + 1), slice(s, s + 1) if len(rows.W) > 1 else slice(0, 1)
        radius = sets.radius[at] if len(sets.radius) > 1 else sets.radius
        parts = {name: getattr(sets, name)[at] for name in Sets._fields if name not in ("radius", "card")}
        sample = sets._replace(radius=radius, **parts)
        # the hardest first: one that stays negative leaves the sample undecided whatever the others are
        for k in np.argsort(lower[s], kind="stable"):
            if lower[s, k] > 0:
                break
            one = slice(k, k + 1)
            row = Functionals(rows.W[own, one], rows.V[own, one], rows.constant[at, one], rows.extra[at, one])
            row = Functionals(*(np.ascontiguousarray(part) for part in row))
            lower[s, k], nodes[s, k] = branch(model, sample, row, steps, lower[s, k], budget)
            if not lower[s, k] > 0:
                break
