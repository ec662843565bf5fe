"""Elimination of features from the rows of a sparse implicit model: what is proved, what is heuristic, and what it
costs.

The features are the columns of M = [X, U]: states and inputs, all in the ball of a row; the bias is free and stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States
from implicit_models.sim.solvers.conic import elimination_dual
from implicit_models.sim.solvers.elimination import Elimination, eliminate, retrain
from implicit_models.sim.solvers.rows import solve_rows
from reproduction.ch3_bisection.compute import BallRows, ball_rows

ORDERS = ("correlation", "magnitude", "random")


def units_of(found: States, input_factor: float) -> Float[np.ndarray, " n"]:
    """Units of Theorem 2.4 times a factor: weights between states as there, weights on inputs cheaper by the factor."""
    return input_factor * scale_of(found, "theorem").s


def feature_rows(found: States, input_factor: float) -> BallRows:
    """Rows over states and inputs in these units, the bias eliminated exactly."""
    return ball_rows(found, units_of(found, input_factor))


def certificate_counts(rows: BallRows, kappa: float, n_states: int) -> dict[str, Any]:
    """One screening pass: zeros certified per row, columns certified in all rows, and a second pass on what is left.

    "wrong" counts certified coefficients that the solution of a row uses; "second_pass" the columns that go on the
    reduced problem; "value_change" is the largest relative change of a row's optimum after the certified columns went.
    """
    clock = time.perf_counter()
    first = eliminate(rows.G, rows.C, rows.zz, kappa=kappa)
    seconds = time.perf_counter() - clock
    found = first.screening
    A = solve_rows(rows.G, rows.C, rows.zz, kappa=kappa).A
    reduced_G, reduced_C = first.reduce(rows.G, rows.C)
    second = eliminate(reduced_G, reduced_C, rows.zz, kappa=kappa)
    _, after = retrain(rows.G, rows.C, rows.zz, first, kappa=kappa)
    values = [
        0.5 * (rows.zz - 2 * np.einsum("ij,ij->i", a, rows.C) + np.einsum("ij,ij->i", a @ rows.G, a))
        for a in (A, after)
    ]
    live = found.status == "certified"
    return {
        "elimination": first,
        "per_row": found.certified[live].sum(axis=1).tolist(),
        "slack": int((found.status == "slack").sum()),
        "states_out": int(found.removable[:n_states].sum()),
        "inputs_out": int(found.removable[n_states:].sum()),
        "wrong": int((found.certified & (np.abs(A) > 1e-12)).sum()),
        "zeros": int((A[live] == 0).sum()),
        "certified": int(found.certified[live].sum()),
        "second_pass": second.n_certifiable,
        "seconds": seconds,
        "value_change": float(np.max(np.abs(values[1] - values[0]) / (0.5 * rows.zz))),
    }


def removal_order(name: str, elimination: Elimination, seed: int) -> Int[np.ndarray, " d"]:
    """All columns in the order in which they go: certified and then correlation; smallest largest weight; at random."""
    d = elimination.scores.size
    if name == "correlation":
        return elimination.removed
    if name == "magnitude":
        return np.argsort(np.abs(elimination.screening.A).max(axis=0), kind="stable")
    if name == "random":
        from data_gen.core.streams import stream

        return stream(seed, "order of elimination").permutation(d)
    raise ValueError(f"an order is one of {ORDERS}, got {name!r}")


def removal_curve(
    rows: BallRows,
    order: Int[np.ndarray, " d"],
    shares: Sequence[float],
    *,
    kappa: float,
    scores: Callable[[Any], dict[str, float]],
) -> dict[str, list[float]]:
    """Scores of the model refitted without a share of the features, the states among those kept, and the seconds of its
    rows.

    Args:
        rows: over all features.
        order: columns in the order of removal.
        shares: removed, of all columns.
        scores: of an implicit model.
    """
    d, n, out = len(rows.G), len(rows.C), {"removed": [], "states_kept": [], "seconds": [], "failed": []}
    for share in shares:
        number = int(round(share * d))
        kept = np.setdiff1d(np.arange(d), order[:number])
        clock = time.perf_counter()
        solved = solve_rows(
            np.ascontiguousarray(rows.G[np.ix_(kept, kept)]),
            np.ascontiguousarray(rows.C[:, kept]),
            rows.zz,
            kappa=kappa,
            rtol=1e-4,
        )
        out["seconds"].append(time.perf_counter() - clock)
        A = np.zeros(rows.C.shape)
        A[:, kept] = solved.A
        out["removed"].append(number)
        out["states_kept"].append(int((kept < n).sum()))
        out["failed"].append(int((~np.isin(solved.status, ("optimal", "fista"))).sum()))
        for key, value in scores(rows.model(A).model).items():
            out.setdefault(key, []).append(value)
    return out


def conic_rows(
    M: Float[np.ndarray, "m d"],
    Z: Float[np.ndarray, "m r"],
    *,
    kappa: float,
    ridges: Sequence[float],
    thresholds: Sequence[float],
) -> list[dict[str, Any]]:
    """The published dual on a few rows by a conic solver: its value beside the primal's, and what its thresholded rule
    removes.

    "wrong" counts, at each threshold, features that the rule removes and the exact solution uses; "missed" zeros that
    it keeps.
    """
    out, G = [], M.T @ M
    for ridge in ridges:
        for z in Z.T:
            c, zz = (M.T @ z)[None], np.array([float(z @ z)])
            a = solve_rows(G, c, zz, kappa=kappa, ridge=ridge, rtol=1e-12, atol=1e-14).A[0]
            clock = time.perf_counter()
            eliminate(G, c, zz, kappa=kappa, ridge=ridge)
            sphere = time.perf_counter() - clock
            clock = time.perf_counter()
            dual = elimination_dual(M, z, kappa=kappa, ridge=ridge)
            conic = time.perf_counter() - clock
            primal = 0.5 * float(((M @ a - z) ** 2).sum()) + 0.5 * ridge * float(a @ a)
            used = np.abs(a) > 1e-12
            out.append(
                {
                    "ridge": ridge,
                    "difference": abs(dual.value - primal) / (0.5 * float(zz[0])),
                    "conic_s": conic,
                    "sphere_s": sphere,
                    "wrong": [int((dual.eliminated(t) & used).sum()) for t in thresholds],
                    "missed": [int((~dual.eliminated(t) & ~used).sum()) for t in thresholds],
                    "used": int(used.sum()),
                }
            )
    return out
