"""Measurements of the thesis' searches along the LASSO path: iterates, speed-ups, the printed algorithm's defects, the
lemmas.

Every function returns plain numbers and lists, so that a notebook records and draws them as they are. The rows are
those of a network's states with the bias eliminated: each has its whole vector (a, b) in the ball, as Algorithms 1 and
2 do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from implicit_models.sim.network.normal_equations import row_problem
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States
from implicit_models.sim.solvers.bisection import SearchResult, solve_on_path
from implicit_models.sim.solvers.coordinate_descent import lambda_max, lasso
from implicit_models.sim.solvers.rows import path_rows
from implicit_models.sim.solvers.unpenalised import Reduced, eliminate
from reproduction.ch3_bisection.algorithm_one import algorithm_1
from reproduction.core.sparse_states import SparseModel, sparse_model

NO_OUTPUT = "has no output"
FEW_SWEEPS = 50


@dataclass(frozen=True)
class BallRows:
    """State rows with every column in the ball: G (d, d), C (n, d), zz (n,), and the way back to all columns."""

    G: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "n d"]
    zz: Float[np.ndarray, " n"]
    found: States
    units: Float[np.ndarray, " n"]
    reduced: Reduced

    def model(self, A: Float[np.ndarray, "n d"]) -> SparseModel:
        """Sparse model of rows (n, d), their biases least squares, with the network's own read-out."""
        return sparse_model(self.found, self.reduced.recover(A), self.units, 0)


def ball_rows(found: States, scale: Any) -> BallRows:
    """Rows of the states in the units of a scale, the free bias eliminated exactly."""
    problem = row_problem(found)
    units = scale_of(found, scale).s
    scaled = problem.scaled(units)
    n = found.n_states
    reduced = eliminate(scaled.G, scaled.C[:n], scaled.zz[:n], ~problem.in_ball("row"))
    G, C, zz = (np.ascontiguousarray(part) for part in reduced.problem)
    return BallRows(G, C, zz, found, units, reduced)


def printed(rows: BallRows, i: int, **settings: Any) -> SearchResult | None:
    """Algorithm 1 on row i; None where it ends without an output."""
    try:
        return algorithm_1(rows.G, rows.C[i], float(rows.zz[i]), **settings)
    except ValueError as error:
        if NO_OUTPUT in str(error):
            return None
        raise


def outer_iterates(
    rows: BallRows, *, kappa: float, eps: float, warm: bool, max_epochs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Iterates (T, n, d) of Algorithm 1 for all rows, and the sweeps (T,) that all rows together took up to each.

    With few sweeps allowed they are plain ones; else linear systems on the support stand between them, counted as
    sweeps.

    Args:
        kappa, eps, warm: of `algorithm_1`.
        max_epochs: sweeps that a LASSO may take; a row that has ended keeps its last iterate, and takes no more.
    """
    results = [
        printed(
            rows, i, kappa=kappa, eps=eps, warm=warm, max_epochs=max_epochs, newton=max_epochs > FEW_SWEEPS, keep=True
        )
        for i in range(len(rows.C))
    ]
    length = max(len(r.history) for r in results if r is not None)
    A, epochs = np.zeros((length, *rows.C.shape)), np.zeros(length)
    for i, result in enumerate(results):
        for t in range(length if result is not None else 0):
            step = result.history[min(t, len(result.history) - 1)]
            A[t, i] = step.a
            epochs[t] += step.n_epochs + step.n_systems if t < len(result.history) else 0
    return A, np.cumsum(epochs)


def outer_curve(
    rows: BallRows, *, kappa: float, eps: float, warm: bool, max_epochs: int, accuracy: Callable[[Any], float]
) -> dict[str, list[float]]:
    """Accuracy, optimality and work at each outer iteration of Algorithm 1.

    "gap" is the median over the rows of the certified gap of the iterate, scaled into the ball, over ||z||^2/2; the
    model is built of the same feasible rows. "active": share of rows on the sphere of the ball.

    Args:
        accuracy: of an implicit model.
        others: as `outer_iterates`.
    """
    A, epochs = outer_iterates(rows, kappa=kappa, eps=eps, warm=warm, max_epochs=max_epochs)
    curve: dict[str, list[float]] = {"epochs": epochs.tolist(), "accuracy": [], "gap": [], "active": []}
    for step in A:
        inside = into_ball(step, kappa)
        curve["active"].append(float((np.abs(inside).sum(axis=1) > 0.99 * kappa).mean()))
        curve["gap"].append(float(np.median(relative_gaps(rows, inside, kappa))))
        curve["accuracy"].append(accuracy(rows.model(inside).model))
    return curve


def into_ball(A: Float[np.ndarray, "n d"], kappa: float) -> Float[np.ndarray, "n d"]:
    """Rows outside the ball scaled onto its sphere."""
    norm = np.abs(A).sum(axis=1)
    return A * np.minimum(1.0, kappa / np.maximum(norm, 1e-300))[:, None]


def relative_gaps(rows: BallRows, A: Float[np.ndarray, "n d"], kappa: float) -> Float[np.ndarray, " n"]:
    """Duality gap of each feasible row over ||z||^2 / 2."""
    r = rows.C - A @ rows.G
    gap = kappa * np.abs(r).max(axis=1) - np.einsum("ij,ij->i", A, r)
    return gap / np.maximum(0.5 * rows.zz, 1e-300)


def work(
    rows: BallRows, chosen: Sequence[int], *, kappa: float, relative_eps: float, warm: bool, newton: bool = False
) -> dict[str, float]:
    """Solves, sweeps of coordinate descent and seconds of Algorithm 1 over some rows; eps is a share of each row's
    ||M'z||_2.

    Every LASSO is solved to a relative gap of 1e-4, warm or cold, so that the two do the same. newton: the inner solver
    solves linear systems on the support between its sweeps; they count as sweeps.
    """
    total = {"solves": 0.0, "epochs": 0.0}
    clock = time.perf_counter()
    for i in chosen:
        eps = relative_eps * float(np.linalg.norm(rows.C[i]))
        result = algorithm_1(
            rows.G,
            rows.C[i],
            float(rows.zz[i]),
            kappa=kappa,
            eps=eps,
            warm=warm,
            newton=newton,
            inner_rtol=1e-4,
            max_epochs=3000,
        )
        total["solves"] += result.n_solves
        total["epochs"] += result.n_epochs + result.n_systems
    return total | {"seconds": time.perf_counter() - clock}


def speedups(
    whole: BallRows, part: BallRows, chosen: Sequence[int], *, kappa: float, relative_eps: float = 1e-3
) -> dict[str, float]:
    """Table 3.3: gain of the warm start, and of a part of the data, in sweeps and seconds.

    A sweep costs d^2 on the Gram matrix, whatever the number m of samples; on M itself it costs m d. "data_epochs"
    counts sweeps, "data_on_samples" the same with sweeps as dear as m (what a solver without Gram matrix gains),
    "data_warm_on_samples" with the warm start in it as well.
    """
    share = part.found.n_samples / whole.found.n_samples
    cold, warm, cold_part, warm_part = (
        work(r, chosen, kappa=kappa, relative_eps=relative_eps, warm=w) for r in (whole, part) for w in (False, True)
    )
    cold_support, warm_support = (
        work(whole, chosen, kappa=kappa, relative_eps=relative_eps, warm=w, newton=True) for w in (False, True)
    )
    return {
        "support_gain": cold_support["epochs"] / warm_support["epochs"],
        "solves": cold["solves"] / len(chosen),
        "warm_solves": warm["solves"] / len(chosen),
        "cold_epochs": cold["epochs"] / len(chosen),
        "warm_epochs": warm["epochs"] / len(chosen),
        "warm_gain": cold["epochs"] / warm["epochs"],
        "warm_gain_seconds": cold["seconds"] / warm["seconds"],
        "data_epochs": cold["epochs"] / cold_part["epochs"],
        "data_seconds": cold["seconds"] / cold_part["seconds"],
        "data_on_samples": cold["epochs"] / cold_part["epochs"] / share,
        "data_warm_on_samples": cold["epochs"] / warm_part["epochs"] / share,
        "limit": 1 / share,
        "cold_seconds": cold["seconds"],
        "warm_seconds": warm["seconds"],
    }


def one_pass(rows: BallRows, chosen: Sequence[int], kappas: Sequence[float]) -> dict[str, float]:
    """Control: all radii from one pass along the path, beside warm bisection and Newton's search, to the same
    certificate.

    The median over the rows of |objective difference| / objective says that they solve the same problem.
    """
    chosen = list(chosen)
    C, zz = np.ascontiguousarray(rows.C[chosen]), rows.zz[chosen]
    path_rows(rows.G, C[:1], zz[:1], kappas=np.asarray(kappas))
    clock = time.perf_counter()
    path = path_rows(rows.G, C, zz, kappas=np.asarray(kappas))
    seconds = {"one_pass": time.perf_counter() - clock}
    counts, worst, solved = {}, 0.0, {}
    for method, warm in (("bisection", True), ("illinois", True), ("newton", True)):
        clock = time.perf_counter()
        results = [
            [
                solve_on_path(rows.G, c, float(z), kappa=kappa, method=method, warm=warm)
                for c, z in zip(C, zz, strict=True)
            ]
            for kappa in kappas
        ]
        seconds[method] = time.perf_counter() - clock
        counts[method] = float(np.mean([r.n_solves for each in results for r in each]))
        solved[method] = float(np.mean([r.status == "optimal" for each in results for r in each]))
        for kappa, each in zip(kappas, results, strict=True):
            at = path.at(kappa).A
            for i, result in enumerate(each):
                value, other = (0.5 * (zz[i] - 2 * C[i] @ a + a @ rows.G @ a) for a in (at[i], result.a))
                worst = max(worst, abs(value - other) / max(0.5 * zz[i], 1e-300) if result.status == "optimal" else 0.0)
    events = float(np.mean([path.at(max(kappas)).n_steps]))
    out = {f"{name}_times": value / seconds["one_pass"] for name, value in seconds.items() if name != "one_pass"}
    out |= {f"{name}_solves": value for name, value in counts.items()} | {
        f"{name}_certified": 100 * v for name, v in solved.items()
    }
    return out | {"one_pass_seconds": seconds["one_pass"], "one_pass_events": events, "difference": worst}


def defects(rows: BallRows, kappa: float, eps: float = 0.01) -> dict[str, float]:
    """What Algorithm 1 with the thesis' eps returns: gap, violation, sides, starts, rows without an output (all rows).

    "gap" is that of the output scaled into the ball, over the objective there: the median and largest over the rows.
    """
    results = [printed(rows, i, kappa=kappa, eps=eps, warm=True) for i in range(len(rows.C))]
    done = [i for i, r in enumerate(results) if r is not None]
    A = into_ball(np.array([results[i].a for i in done]), kappa)
    value = np.array([0.5 * (rows.zz[i] - 2 * rows.C[i] @ a + a @ rows.G @ a) for i, a in zip(done, A, strict=True)])
    r = rows.C[done] - A @ rows.G
    gap = (kappa * np.abs(r).max(axis=1) - np.einsum("ij,ij->i", A, r)) / np.maximum(value, 1e-300)
    violation = np.array([results[i].violation for i in done])
    start = np.array([np.linalg.norm(rows.C[i]) / np.abs(rows.C[i]).max() for i in done])
    return {
        "gap": float(np.median(gap)),
        "gap_largest": float(gap.max()),
        "violation": float(violation.max()),
        "infeasible": 100 * float((violation > 1e-9 * kappa).mean()),
        "no_output": len(rows.C) - len(done),
        "start_ratio": float(np.median(start)),
        "solves": float(np.mean([results[i].n_solves for i in done])),
    }


def unit_dependence(
    G: np.ndarray, c: np.ndarray, zz: float, *, kappa: float, factors: Sequence[float], eps: float = 0.01
) -> list[dict[str, float]]:
    """The same row in other units: M and z multiplied by sqrt(f), so that lambda is multiplied by f and the solution
    stays."""
    out = []
    for factor in factors:
        result = algorithm_1(G * factor, c * factor, zz * factor, kappa=kappa, eps=eps, warm=True)
        u = factor * float(np.linalg.norm(c))
        a = into_ball(result.a[None], kappa)[0]
        r = c - G @ a
        out.append(
            {
                "solves": result.n_solves,
                "predicted": float(np.ceil(np.log2(u / eps))),
                "published": float(np.ceil(np.log2(1 / eps))),
                "gap": float(kappa * np.abs(r).max() - a @ r) / (0.5 * zz),
                "violation": result.violation,
            }
        )
    return out


def inner_work(
    G: np.ndarray, c: np.ndarray, zz: float, *, kappa: float, epsilons: Sequence[float]
) -> dict[str, list[float]]:
    """Sweeps against the relative eps when every LASSO is solved to eps as well: log^2(1/eps), cold and warm.

    "cold" and "warm" count all sweeps of a run of coordinate descent.
    """
    u, counts = float(np.linalg.norm(c)), {"cold": [], "warm": []}
    for eps in epsilons:
        for name, warm in (("cold", False), ("warm", True)):
            result = algorithm_1(
                G, c, zz, kappa=kappa, eps=eps * u, warm=warm, newton=False, inner_rtol=eps, max_epochs=20_000
            )
            counts[name].append(float(result.n_epochs))
    return counts


def path_function(rows: BallRows, i: int, n_points: int = 41) -> dict[str, Any]:
    """g on a grid of lambda that passes lambda_max: its values, largest increase, value at and beyond lambda_max."""
    largest = lambda_max(rows.C[i])
    grid = np.linspace(0.02, 1.25, n_points) * largest
    norms = [float(np.abs(lasso(rows.G, rows.C[i], float(rows.zz[i]), lam).a).sum()) for lam in grid]
    return {
        "share": (grid / largest).tolist(),
        "norm": norms,
        "largest_rise": float(np.diff(norms).max()),
        "beyond": float(max(n for s, n in zip(grid / largest, norms, strict=True) if s >= 1)),
    }


def ball_moved(rows: BallRows, kappa: float) -> dict[str, float]:
    """Median of the optimal objective over ||z||^2/2 with the ball on (a, b) and, as (3.4) has it, on a alone."""
    problem = row_problem(rows.found).scaled(rows.units)
    n, out = problem.n_states, {}
    for ball in ("row", "state"):
        reduced = eliminate(problem.G, problem.C[:n], problem.zz[:n], ~problem.in_ball(ball))
        G, C, zz = reduced.problem
        A = path_rows(G, C, zz, kappas=np.array([kappa])).rows[0].A
        value = 0.5 * (zz - 2 * np.einsum("ij,ij->i", A, C) + np.einsum("ij,ij->i", A @ G, A))
        out[ball] = float(np.median(value / (0.5 * rows.zz)))
    return out


def starts(rows: BallRows, chosen: Sequence[int], *, kappa: float, eps: float) -> dict[str, int]:
    """Sweeps of Algorithm 1 over rows: cold; each row's LASSOs from the row before; each LASSO from the one before;
    both."""
    counts = {}
    for name, across, warm in (
        ("cold", False, False),
        ("rows", True, False),
        ("lambdas", False, True),
        ("both", True, True),
    ):
        start, counts[name] = None, 0
        for i in chosen:
            result = printed(
                rows, i, kappa=kappa, eps=eps, warm=warm, start=start, newton=False, inner_rtol=1e-4, max_epochs=3000
            )
            counts[name] += result.n_epochs if result is not None else 0
            start = result.a if across and result is not None else None
    return counts
