"""Row problems as conic programs, through CVXPY: rows that match the states exactly, and slow references, written as
the papers state them.

    min over a   f(a)   subject to   M a = z,   sum over ball_mask of |a_j| <= kappa

The equations are first brought to an orthonormal basis of the row space of M, which drops redundant samples and tells
inconsistent ones; then every row is one conic problem (Clarabel, or another solver that is installed). The gap of a row
is computed here from the solver's multipliers through the explicit dual function. Install the extra `sim` for CVXPY;
Clarabel comes with it.

Source:
    SIM paper, (2), (4) (with t priced, as it must be), (5), (10); Ganesh MS report (2023), (4), (5); Tsai thesis
    (2024), P(kappa).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.problem import L1, Exact, Objective, Perspective, Ridge, Tolerance
from implicit_models.sim.solvers.duality_gap import exact_dual_value, is_certified
from implicit_models.status import Status

LEAST_L1, BY_CLARABEL = L1(), Exact()
TOLERANCES = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("conic programs and exact matching need cvxpy: pip install 'implicit-models[sim]'") from error
    return cvxpy


def _solve(problem: Any, settings: dict[str, Any]) -> float:
    problem.solve(**(TOLERANCES | settings))
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise ValueError(f"the conic solver ended with status {problem.status!r}")
    return float(problem.value)


def _ball(cp: Any, a: Any, kappa: float, ball_mask: np.ndarray | None) -> list[Any]:
    on = np.arange(a.shape[0]) if ball_mask is None else np.flatnonzero(ball_mask)
    return [cp.norm1(a[on]) <= kappa] if on.size and np.isfinite(kappa) else []


def conic_row(
    M: Float[np.ndarray, "m d"],
    z: Float[np.ndarray, " m"],
    *,
    kappa: float,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float = 0.0,
    ridge: float = 0.0,
    **settings: Any,
) -> tuple[Float[np.ndarray, " d"], float]:
    """min 1/2 ||M a - z||^2 + beta ||a||_1 + ridge/2 ||a||^2 over the ball. Returns a (d,) and the optimal value."""
    cp = _cvxpy()
    a = cp.Variable(M.shape[1])
    objective = 0.5 * cp.sum_squares(M @ a - z) + beta * cp.norm1(a) + 0.5 * ridge * cp.sum_squares(a)
    value = _solve(cp.Problem(cp.Minimize(objective), _ball(cp, a, kappa, ball_mask)), settings)
    return a.value, value


def conic_perspective(
    M: Float[np.ndarray, "m d"],
    z: Float[np.ndarray, " m"],
    *,
    alpha: float,
    eta: float,
    kappa: float,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    **settings: Any,
) -> tuple[Float[np.ndarray, " d"], float, Float[np.ndarray, " d"]]:
    """min 1/2 ||M a - z||^2 + alpha sum s + eta sum t, a_j^2 <= s_j t_j, 0 <= t <= 1, over the ball.

    SIM paper (4) has alpha = eta. Its (5) and (10) print eta = 0. Returns a (d,), the optimal value, t (d,).
    """
    cp = _cvxpy()
    d = M.shape[1]
    a, s, t = cp.Variable(d), cp.Variable(d), cp.Variable(d)
    cone = [cp.SOC(s + t, cp.vstack([2 * a, s - t]), axis=0)]  # a_j^2 <= s_j t_j
    objective = 0.5 * cp.sum_squares(M @ a - z) + alpha * cp.sum(s) + eta * cp.sum(t)
    value = _solve(cp.Problem(cp.Minimize(objective), [*cone, t <= 1, *_ball(cp, a, kappa, ball_mask)]), settings)
    return a.value, value, t.value


@dataclass(frozen=True)
class ConicDual:
    """Dual of the MS report: nu (m,), mu_1 and mu_2 (d,), delta, and the value of the primal, -(dual minimum)."""

    nu: Float[np.ndarray, " m"]
    mu_1: Float[np.ndarray, " d"]
    mu_2: Float[np.ndarray, " d"]
    delta: float
    value: float

    def eliminated(self, threshold: float = 1e-6) -> Bool[np.ndarray, " d"]:
        """The published rule: both multipliers are "non-zero", read as above threshold * delta.

        An interior-point solver leaves every multiplier positive; which ones count as zero is the threshold's choice.
        """
        return np.minimum(self.mu_1, self.mu_2) > threshold * max(self.delta, 0.0)


def elimination_dual(
    M: Float[np.ndarray, "m d"], z: Float[np.ndarray, " m"], *, kappa: float, ridge: float = 0.0, **settings: Any
) -> ConicDual:
    """The dual (4) of the MS report, or its Remark 1 for ridge = 0; default solver tolerances unless `settings` says
    otherwise.

    Mathematics: min 1/2 ||nu||^2 + ||mu_1 - mu_2 + M'nu||^2 / (2 ridge) + z'nu + kappa delta  s.t.  mu_1 + mu_2 = delta
        e, mu >= 0.

    Source:
        Ganesh MS report (2023), (4), Remark 1.
    """
    cp = _cvxpy()
    d = M.shape[1]
    nu, delta = cp.Variable(M.shape[0]), cp.Variable()
    mu_1, mu_2 = cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True)
    objective = 0.5 * cp.sum_squares(nu) + z @ nu + kappa * delta
    constraints = [mu_1 + mu_2 == delta]
    if ridge == 0:
        constraints.append(M.T @ nu + mu_1 - mu_2 == 0)
    else:
        q = cp.Variable(d)
        constraints.append(q == mu_1 - mu_2 + M.T @ nu)
        objective += cp.sum_squares(q) / (2 * ridge)
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(**({"solver": "CLARABEL"} | settings))
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise ValueError(f"the conic solver ended with status {problem.status!r}")
    return ConicDual(nu.value, mu_1.value, mu_2.value, float(delta.value), -float(problem.value))


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


def _exact_problem(cp: Any, V, mask, kappa: float, objective: Objective) -> tuple[Any, Any, Any, Any, Any]:
    k, d = V.shape
    a, t = cp.Variable(d), cp.Parameter(k)
    equations = V @ a == t
    constraints, ball = [equations], None
    if mask.any() and np.isfinite(kappa):
        ball = cp.norm1(a[np.flatnonzero(mask)]) <= kappa
        constraints.append(ball)
    if isinstance(objective, L1):
        f = objective.beta * cp.norm1(a)
    elif isinstance(objective, Ridge):
        f = objective.alpha * cp.sum_squares(a)
    elif isinstance(objective, Perspective):
        s, share = cp.Variable(d), cp.Variable(d)  # s share >= a^2: a rotated cone for every weight
        constraints += [cp.SOC(s + share, cp.vstack([2 * a, s - share]), axis=0), share <= 1, share >= 0]
        f = objective.alpha * cp.sum(s) + objective.eta * cp.sum(share)
    else:
        f = cp.Constant(0.0)
    return cp.Problem(cp.Minimize(f), constraints), a, t, equations, ball


def exact_rows(
    V: Float[np.ndarray, "k d"],
    T: Float[np.ndarray, "r k"],
    consistent: Bool[np.ndarray, " r"] | None = None,
    *,
    objective: Objective = LEAST_L1,
    kappa: float = np.inf,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    exact: Exact = BY_CLARABEL,
    rtol: float = 1e-6,
) -> ExactRows:
    """Rows of least f with V a = t exactly, inside the ball.

    Args:
        V, T, consistent: see `orthonormal_equations`; a row that is not consistent is infeasible. V may be any matrix.
        objective: f.
        kappa, ball_mask: the ball; None: every coordinate, inf: no ball.
        exact: the solver, and which weights count as zeros.
        rtol: a row is "optimal" if gap <= rtol (1 + |f|) and the equations hold to it, else "inaccurate".

    Returns:
        `ExactRows`; its gap belongs to the point before `zero_below`, its residual to the point returned.

    Raises:
        ImportError: without cvxpy.
        ValueError: for a solver that is not installed.

    Source:
        SIM paper, (2), (4).
    """
    cp, solver, zero_below = _cvxpy(), exact.solver, exact.zero_below
    if solver not in cp.installed_solvers():
        raise ValueError(f"solver {solver!r} is not installed; cvxpy finds {', '.join(cp.installed_solvers())}")
    r, d = T.shape[0], V.shape[1]
    mask = np.ones(d, dtype=bool) if ball_mask is None else np.asarray(ball_mask, dtype=bool)
    A, multiplier, gap, residual = (np.full(shape, np.nan) for shape in ((r, d), r, r, r))
    steps, status = np.zeros(r, dtype=np.int64), np.full(r, Status.INFEASIBLE, dtype="<U12")
    problem, a, t, equations, ball = _exact_problem(cp, V, mask, kappa, objective)
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
        value = objective.value(found)
        gap[i] = value - exact_dual_value(T[i], y, mu, V, mask, kappa, objective)
        multiplier[i] = mu
        steps[i] = int(problem.solver_stats.num_iters or 0)
        if zero_below > 0:
            found[np.abs(found) <= zero_below * np.abs(found).max(initial=0.0)] = 0.0
        size = float(np.abs(T[i]).max(initial=0.0))
        residual[i] = float(np.abs(V @ found - T[i]).max(initial=0.0)) / (size or 1.0)
        held = residual[i] <= max(rtol, 10 * zero_below)
        solved = is_certified(gap[i], 1 + abs(value), 0.0, Tolerance(rtol, 0.0))  # of f + 1: f may vanish
        status[i] = Status.OPTIMAL if solved and held else Status.INACCURATE
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
