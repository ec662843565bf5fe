"""Row problems as conic programs, through CVXPY: slow references, written as the papers state them.

Install the extra `sim` for CVXPY; Clarabel comes with it.

Source:
    SIM paper, (4), (5), (10); Ganesh MS report (2023), (4), (5); Tsai thesis (2024), P(kappa).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

TOLERANCES = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError(
            "conic references need CVXPY: install the extra, pip install 'implicit-models[sim]'"
        ) from error
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
