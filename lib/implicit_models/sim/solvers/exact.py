"""Rows that match the states exactly, by a conic solver: the reference for the relaxed rows.

    min over a   f(a)   subject to   M a = z,   sum over ball_mask of |a_j| <= kappa

The equations are first brought to an orthonormal basis of the row space of M, which drops redundant samples and tells
inconsistent ones; then every row is one conic problem (cvxpy: Clarabel, or another solver that is installed). The gap
of a row is computed here from the solver's multipliers y, mu through the explicit dual function

    d(y, mu) = y't - kappa mu - sum_j f*(max(|g_j| - mu 1_mask, 0)),   g = V'y,

with f* the conjugate of the penalty of one weight.

Source:
    SIM paper, (2) and (4) (with t priced, as it must be).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.status import Status

OBJECTIVES = ("l1", "l2", "perspective", "none")


class ExactRows(NamedTuple):
    """A (r, d), multiplier of the ball (r,), gap (r,), n_steps (r,), status (r,): optimal, infeasible, inaccurate,
    not_finite.

    residual: (r,) max |M a - z| / max |z|. A row without solution is NaN.
    """

    A: Float[np.ndarray, "r d"]
    multiplier: Float[np.ndarray, " r"]
    gap: Float[np.ndarray, " r"]
    n_steps: np.ndarray
    status: np.ndarray
    residual: Float[np.ndarray, " r"]


class Equations(NamedTuple):
    """V a = t in an orthonormal V (k, d) equivalent to M a = z, and whether each z (t: (r, k)) is in the range of M."""

    V: Float[np.ndarray, "k d"]
    T: Float[np.ndarray, "r k"]
    consistent: Bool[np.ndarray, " r"]


def orthonormal_equations(
    M: Float[np.ndarray, "m d"], Z: Float[np.ndarray, "m r"], *, rank_tol: float = 1e-10, match_tol: float = 1e-7
) -> Equations:
    """Equations equivalent to M a = z for every column z of Z.

    Args:
        rank_tol: singular values below it times the largest count as zero.
        match_tol: of ||z - M a|| / ||z||.

    Raises:
        ValueError: if the samples disagree or M is not finite.
    """
    if M.ndim != 2 or Z.ndim != 2 or M.shape[0] != Z.shape[0]:
        raise ValueError(f"M and Z must have a row per sample each, got shapes {M.shape} and {Z.shape}")
    if not np.isfinite(M).all():
        raise ValueError(
            f"M has a value that is not finite at {tuple(int(i) for i in np.argwhere(~np.isfinite(M))[0])}"
        )
    left, sigma, V = np.linalg.svd(M, full_matrices=False)
    k = int((sigma > rank_tol * sigma[0]).sum()) if sigma.size else 0
    left, sigma, V = left[:, :k], sigma[:k], V[:k]
    with np.errstate(invalid="ignore"):
        inside = left.T @ Z
        missing = np.linalg.norm(Z - left @ inside, axis=0)
        consistent = missing <= match_tol * np.linalg.norm(Z, axis=0)
    return Equations(V, (inside / sigma[:, None]).T.copy(), consistent)


def _conjugate(h: np.ndarray, objective: str, alpha: float, beta: float, eta: float) -> np.ndarray:
    """f*(h) of one weight for h >= 0; inf where it is unbounded."""
    if objective == "l2":
        return h**2 / (4 * alpha)
    if objective == "perspective":
        return np.where(h <= 2 * np.sqrt(alpha * eta), 0.0, h**2 / (4 * alpha) - eta)
    return np.where(h <= (beta if objective == "l1" else 0.0), 0.0, np.inf)


def _penalty(a: np.ndarray, objective: str, alpha: float, beta: float, eta: float) -> float:
    if objective == "l1":
        return beta * float(np.abs(a).sum())
    if objective == "l2":
        return alpha * float(a @ a)
    if objective == "perspective":
        knee = np.sqrt(eta / alpha)
        return float(np.where(np.abs(a) <= knee, 2 * np.sqrt(alpha * eta) * np.abs(a), alpha * a**2 + eta).sum())
    return 0.0


def _dual_value(t, y, mu, V, mask, kappa, objective, alpha, beta, eta) -> float:
    """Largest dual value on the ray through (y, mu) that the solver's point, feasible only up to its tolerance,
    allows."""
    g = np.abs(V.T @ y)
    if objective in ("l1", "none"):
        limit = beta if objective == "l1" else 0.0
        mu = max(mu, 0.0) if mask.any() and np.isfinite(kappa) else 0.0
        worst = float(np.max(g / np.where(mask, limit + mu, limit), initial=0.0)) if limit > 0 else 0.0
        shrink = 1 / max(worst, 1.0)  # d(y) needs |g| <= limit + mu; shrinking y alone keeps it feasible
        return shrink * float(y @ t) - (kappa * mu if mu else 0.0) if limit > 0 else 0.0
    mu = max(mu, 0.0) if mask.any() and np.isfinite(kappa) else 0.0
    h = np.maximum(g - mu * mask, 0.0)
    return float(y @ t) - (kappa * mu if mu else 0.0) - float(_conjugate(h, objective, alpha, beta, eta).sum())


def _problem(cp: Any, V, mask, kappa, objective, alpha, beta, eta) -> tuple[Any, Any, Any, Any, Any]:
    k, d = V.shape
    a, t = cp.Variable(d), cp.Parameter(k)
    equations = V @ a == t
    constraints, ball = [equations], None
    if mask.any() and np.isfinite(kappa):
        ball = cp.norm1(a[np.flatnonzero(mask)]) <= kappa
        constraints.append(ball)
    if objective == "l1":
        f = beta * cp.norm1(a)
    elif objective == "l2":
        f = alpha * cp.sum_squares(a)
    elif objective == "perspective":
        s, share = cp.Variable(d), cp.Variable(d)  # s share >= a^2: a rotated cone for every weight
        constraints += [cp.SOC(s + share, cp.vstack([2 * a, s - share]), axis=0), share <= 1, share >= 0]
        f = alpha * cp.sum(s) + eta * cp.sum(share)
    else:
        f = cp.Constant(0.0)
    return cp.Problem(cp.Minimize(f), constraints), a, t, equations, ball


def exact_rows(
    V: Float[np.ndarray, "k d"],
    T: Float[np.ndarray, "r k"],
    consistent: Bool[np.ndarray, " r"] | None = None,
    *,
    objective: str = "l1",
    kappa: float = np.inf,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    alpha: float = 1e-3,
    beta: float = 1e-2,
    eta: float | None = None,
    solver: str = "CLARABEL",
    rtol: float = 1e-6,
    zero_below: float = 0.0,
) -> ExactRows:
    """Rows of least f with V a = t exactly, inside the ball.

    Mathematics: f = beta ||a||_1 | alpha ||a||_2^2 | the perspective penalty of alpha, eta | 0.

    Args:
        V, T, consistent: see `orthonormal_equations`; a row that is not consistent is infeasible. V may be any matrix.
        objective: "l1" | "l2" | "perspective" | "none".
        kappa, ball_mask: the ball; None: every coordinate, inf: no ball.
        solver: "CLARABEL", or another that cvxpy finds installed, such as "MOSEK".
        rtol: a row is "optimal" if gap <= rtol (1 + |f|) and the equations hold to it, else "inaccurate".
        zero_below: weights at most this times the row's largest become zeros; an interior point has none of its own.

    Returns:
        `ExactRows`; its gap belongs to the point before `zero_below`, its residual to the point returned.

    Raises:
        ImportError: without cvxpy.
        ValueError: for an unknown objective or solver.

    Source:
        SIM paper, (2), (4).
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise ImportError("exact matching needs cvxpy: pip install 'implicit-models[sim]'") from None
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; choose one of {', '.join(OBJECTIVES)}")
    if solver not in cp.installed_solvers():
        raise ValueError(f"solver {solver!r} is not installed; cvxpy finds {', '.join(cp.installed_solvers())}")
    eta = alpha if eta is None else eta
    r, d = T.shape[0], V.shape[1]
    mask = np.ones(d, dtype=bool) if ball_mask is None else np.asarray(ball_mask, dtype=bool)
    A, multiplier, gap, residual = (np.full(shape, np.nan) for shape in ((r, d), r, r, r))
    steps, status = np.zeros(r, dtype=np.int64), np.full(r, Status.INFEASIBLE, dtype="<U12")
    weights = (objective, alpha, beta, eta)
    problem, a, t, equations, ball = _problem(cp, V, mask, kappa, *weights)
    for i in range(r):
        if not np.isfinite(T[i]).all():
            status[i] = Status.NOT_FINITE
            continue
        if consistent is not None and not consistent[i]:
            continue
        t.value = T[i]
        try:
            problem.solve(solver=solver)
        except cp.SolverError:
            status[i] = Status.INACCURATE
            continue
        if a.value is None or problem.status in ("infeasible", "infeasible_inaccurate"):
            continue
        found = np.array(a.value)
        mu = 0.0 if ball is None else float(ball.dual_value)
        y = -np.asarray(equations.dual_value)  # cvxpy: L = f + dual'(V a - t)
        value = _penalty(found, *weights)
        gap[i] = value - _dual_value(T[i], y, mu, V, mask, kappa, *weights)
        multiplier[i] = mu
        steps[i] = int(problem.solver_stats.num_iters or 0)
        if zero_below > 0:
            found[np.abs(found) <= zero_below * np.abs(found).max(initial=0.0)] = 0.0
        size = float(np.abs(T[i]).max(initial=0.0))
        residual[i] = float(np.abs(V @ found - T[i]).max(initial=0.0)) / (size or 1.0)
        held = residual[i] <= max(rtol, 10 * zero_below)
        status[i] = Status.OPTIMAL if gap[i] <= rtol * (1 + abs(value)) and held else Status.INACCURATE
        A[i] = found
    return ExactRows(A, multiplier, gap, steps, status, residual)


def exact_chunk(
    arrays: Mapping[str, np.ndarray], chunk: tuple[int, int], *, n_states: int, settings: dict[str, Any]
) -> dict[str, np.ndarray]:
    """`exact_rows` of the rows start..stop-1, for `map_chunks`; output rows (from n_states on) have no ball."""
    start, stop = chunk
    first = int(arrays["first"][start])
    options = dict(settings)
    if start >= n_states:
        options["kappa"] = np.inf
    V, T, consistent = (arrays[f"{name}_{first}"] for name in ("V", "T", "consistent"))
    found = exact_rows(V, T[start:stop], consistent[start:stop], ball_mask=arrays["mask"][first:], **options)._asdict()
    found["A"] = np.hstack([np.where(np.isnan(found["A"][:, :1]), np.nan, np.zeros((stop - start, first))), found["A"]])
    return found
