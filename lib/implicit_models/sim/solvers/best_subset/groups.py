"""Backward elimination of groups of columns, from the rows of several problems at once.

A channel of a network is a group of columns in every layer that reads it, and goes from all rows of all of them. With W
the minimisers of 1/2 w'H w - c'w on the columns that are left, V the inverse of H on these and e_i the weight of row i,
the removal of group g raises the weighted minimum of a problem by

    1/2 sum_i e_i w_ig' (V_gg)^-1 w_ig,

and W <- W - W_g (V_gg)^-1 V_g', V <- V - V_g (V_gg)^-1 V_g' are those of the columns that remain. The group goes whose
rise, summed over the problems, is least.

Source:
    Hassibi and Stork (1992) for single columns; Kurtic et al. (2022) for blocks of them; here rows share V, so that a
    removal costs one update of it for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Grouped:
    """One of the problems. H: symmetric and positive definite; C: right-hand sides; weight: of the rows, not negative;
    groups: columns of each group, of one size."""

    H: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "r d"]
    weight: Float[np.ndarray, " r"]
    groups: Int[np.ndarray, "n t"]


def eliminate_groups(
    problems: Sequence[Grouped], extra: Float[np.ndarray, " n"] | None = None
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Groups in the order of their removal, and the rise of the weighted sum of minima at each.

    Args:
        problems: with the same number of groups.
        extra: what a group's removal costs beside them.

    Raises:
        ValueError: for problems whose numbers of groups differ, or none without `extra`.
        numpy.linalg.LinAlgError: where an H is singular.
    """
    counts = {len(p.groups) for p in problems} | ({len(extra)} if extra is not None else set())
    if len(counts) != 1:
        raise ValueError(f"problems must have one number of groups, got {sorted(counts)}")
    n = counts.pop()
    inverses = [np.linalg.inv(p.H) for p in problems]
    inverses = [0.5 * (V + V.T) for V in inverses]
    rows = [p.C @ V for p, V in zip(problems, inverses, strict=True)]
    left, order, rise = np.ones(n, bool), np.empty(n, np.int64), np.empty(n)
    for step in range(n):
        there = np.flatnonzero(left)
        cost = np.zeros(len(there)) if extra is None else extra[there].astype(float)
        for p, V, W in zip(problems, inverses, rows, strict=True):
            columns = p.groups[there]
            part = W[:, columns].transpose(1, 2, 0)  # (groups, columns, rows)
            pulled = np.linalg.solve(V[columns[:, :, None], columns[:, None, :]], part)
            cost += 0.5 * np.einsum("gtr,gtr,r->g", part, pulled, p.weight)
        best = int(np.argmin(cost))
        order[step], rise[step] = there[best], cost[best]
        left[there[best]] = False
        for i, (p, V) in enumerate(zip(problems, inverses, strict=True)):
            own = p.groups[there[best]]
            update = np.linalg.solve(V[np.ix_(own, own)], V[own])
            rows[i] = rows[i] - rows[i][:, own] @ update
            V = V - V[:, own] @ update
            V[own], V[:, own] = 0.0, 0.0
            V[own, own] = 1.0
            rows[i][:, own], inverses[i] = 0.0, V
    return order, rise
