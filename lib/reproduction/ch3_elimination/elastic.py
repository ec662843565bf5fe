r"""The two remarks of the report on its row problem: the elastic net, and what a dual tells that the primal does not.

The row problem (2) is $\min \tfrac12 \|Xa - z\|^2 + \tfrac{\gamma}{2} \|a\|^2$ subject to $\|a\|_1 \le \kappa$. Weights
$\gamma$ are given in units of the mean diagonal entry of $X^\top X$, so that one grid fits all scales.

Source:
    Ganesh MS report (2023), section 5.1, (2) to (4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from data_gen.core.dataset import Dataset
from implicit_models.sim.solvers.fista import NO_KNEE, fista_rows
from implicit_models.sim.solvers.rows import solve_rows
from implicit_models.sim.solvers.screening import TIGHT, screen
from reproduction.ch3_bisection.compute import BallRows
from reproduction.core.scores import accuracy_of
from reproduction.core.sparse_states import refit_head

WEIGHTS = (0.0, 1e-2, 1e-1)  # of the l2 term, in units of the mean of diag(X'X); 0 is the LASSO
WIDER = (1.5, 2.5)  # radii, in units of kappa, at which the LASSO may use as many coefficients
STEPS = (30, 300, 1000)  # of projected gradients, after which an unfinished solution is judged


def elastic_fits(
    rows: BallRows, images: Dataset, *, kappa: float, samples: int, held_out: int
) -> list[dict[str, float]]:
    """Fits with every weight of `WEIGHTS` in one ball, then the LASSO in the balls of `WIDER`.

    Args:
        rows: over states and inputs, of the first `samples` training images.
        images: the data set, whose next `held_out` training images choose a weight.
        kappa: radius of the ball.

    Returns:
        One entry a fit, in per cent: "accuracy" with the network's read-out and "head" with one fitted anew, on the
        test images, the same with "_held_out"; "used", the mean number of coefficients a row uses; "certified" of
        the zeros of all rows; and "weight" and "radius".
    """
    u_fit, mean = images.u_train[:samples], float(np.diagonal(rows.G).mean())
    parts = {
        "": images.test[0],
        "_held_out": (images.u_train[samples:][:held_out], images.y_train[samples:][:held_out]),
    }
    found = []
    for weight, radius in (*((w, kappa) for w in WEIGHTS), *((0.0, kappa * factor) for factor in WIDER)):
        A = solve_rows(rows.G, rows.C, rows.zz, kappa=radius, ridge=weight * mean, **TIGHT).A
        model = rows.model(A).model
        proved = screen(rows.G, rows.C, rows.zz, kappa=radius, ridge=weight * mean, A=A).certified
        one = {"weight": weight, "radius": radius, "used": float((A != 0).sum(axis=1).mean())}
        one["certified"] = 100 * float(proved.sum() / (A == 0).sum())
        for tag, (u, labels) in parts.items():
            outputs = refit_head(model, u_fit, rows.found.Y, u)
            one[f"accuracy{tag}"] = 100 * accuracy_of(model, u, labels)
            one[f"head{tag}"] = 100 * float((outputs.argmax(axis=1) == labels).mean())
        found.append(one)
    return found


def gains(fits: Sequence[dict[str, float]]) -> dict[str, float]:
    """The elastic net against the LASSO, from `elastic_fits`.

    Returns:
        For "accuracy" and "head": "gain_KEY", the elastic net whose weight the images held out choose, less the LASSO
        of the same radius, in points; "equal_KEY", less the LASSO of those radii whose rows use the number of
        coefficients nearest to its own.
    """
    nets, lassos = fits[1 : len(WEIGHTS)], [fits[0], *fits[len(WEIGHTS) :]]
    out = {}
    for key in ("accuracy", "head"):
        best = max(nets, key=lambda one: one[f"{key}_held_out"])
        alike = min(lassos, key=lambda one: abs(one["used"] - best["used"]))
        out[f"gain_{key}"], out[f"equal_{key}"] = best[key] - fits[0][key], best[key] - alike[key]
        out[f"used_{key}"], out[f"equal_used_{key}"] = best["used"], alike["used"]
    return out


def unfinished(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: float,
    steps: Sequence[int] = STEPS,
) -> list[dict[str, float]]:
    """Rows after some accelerated projected gradients: what their own zeros tell, and what their dual points prove.

    Args:
        G, C, zz: the rows.
        kappa: radius of the ball.
        steps: ascending counts of gradients.

    Returns:
        One entry a count: "primal_wrong", zeros of the unfinished rows that the solution uses; "dual_wrong", proved
        zeros that it uses; "dual_share", proved, in per cent of the solution's zeros; "dual_only", proved, but not
        zero in the unfinished rows; "gap", the largest duality gap over half the square of the target.
    """
    used = solve_rows(G, C, zz, kappa=kappa, **TIGHT).A != 0
    A, mu, done, found = np.zeros(C.shape), np.zeros(len(C)), 0, []
    largest, ball = 1.02 * float(np.linalg.eigvalsh(G)[-1]), np.ones(len(G), bool)
    for count in steps:
        fista_rows(G, C, 0.0, NO_KNEE, np.full(len(C), kappa), ball, largest, A, mu, count - done)
        judged = screen(G, C, zz, kappa=kappa, A=A)
        proved, done = judged.certified, count
        found.append(
            {
                "primal_wrong": int(((A == 0) & used).sum()),
                "dual_wrong": int((proved & used).sum()),
                "dual_share": 100 * float((proved & ~used).sum() / max(1, (~used).sum())),
                "dual_only": int((proved & (A != 0)).sum()),
                "gap": float(np.max(judged.gap / np.maximum(0.5 * zz, 1e-300))),
            }
        )
    return found


def chosen_rows(rows: BallRows, count: int) -> tuple[Any, Any, Any]:
    """G, C and zz of that many rows, evenly over the network's states."""
    which: Int[np.ndarray, " r"] = np.unique(np.linspace(0, len(rows.C) - 1, count).astype(int))
    return rows.G, np.ascontiguousarray(rows.C[which]), rows.zz[which]
