"""Certified zeros of constrained rows: the sphere test around an approximate solution.

    min_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2   s.t.  ||a||_1 <= kappa

With N = [M; sqrt(ridge) I] and rho = (z - M a, -sqrt(ridge) a) the dual value D(rho) = z'rho - 1/2 ||rho||^2 - kappa
||N'rho||_inf is strongly
concave: a feasible a whose gap is g has ||rho - rho*|| <= R = sqrt(2 g). So r* = N'rho* lies within R ||N_j|| of r =
M'(z - M a) - ridge a in every coordinate j, ||N_j||^2 = G_jj + ridge, and

    |r_j| + R ||N_j|| < max_i (|r_i| - R ||N_i||)   =>   |r*_j| < ||r*||_inf = delta*   =>   a*_j = 0.

|r*_j| < delta* says that both multipliers mu_1, mu_2 of the MS report's dual (4) are positive. A slack ball has delta*
= 0 and no certificate. Columns outside the ball are minimised out first (`unpenalised`) and never certified. Rounding
is part of the test: r is known to within e_j = (k + 4) eps (|c_j| + |G_j||a| + ridge |a_j|), k the non-zeros of a, and
what the elimination adds to that (`Reduced.rounding`).

Source:
    Ganesh MS report (2023), section 5.1, (4), (5); the sphere is that of Ndiaye et al. (2017), for the constrained
    form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.solvers.duality_gap import gap_with_rounding
from implicit_models.sim.solvers.unpenalised import EPS, ROUNDING, eliminate
from implicit_models.status import Status
from implicit_models.summaries import summary

TIGHT = {"rtol": 1e-10, "atol": 1e-12}  # the sphere shrinks with the root of the gap; homotopy ends well below this


@dataclass(frozen=True)
class Screening:
    """What one pass proves, per row.

    certified: (r, d) True where a_j = 0 in EVERY optimal solution of that row.
    correlation: (r, d) |r_j|, the size of the dual's constraint; 0 outside the ball.
    A: (r, d) the feasible rows that it was tested at. gap: (r,) their duality gap, rounding included. radius: (r,) R =
        sqrt(2 gap).
    delta: (r,) ||r||_inf. delta_lower: (r,) certified lower bound of delta*.
    status: (r,) "certified", "slack" (delta* may be 0: the ball is not tight, or nothing is left to fit), or
        "not_finite".
    """

    certified: Bool[np.ndarray, "r d"]
    correlation: Float[np.ndarray, "r d"]
    A: Float[np.ndarray, "r d"]
    gap: Float[np.ndarray, " r"]
    radius: Float[np.ndarray, " r"]
    delta: Float[np.ndarray, " r"]
    delta_lower: Float[np.ndarray, " r"]
    status: np.ndarray
    ball: Bool[np.ndarray, " d"]

    def __repr__(self) -> str:
        return summary(self)

    @property
    def scores(self) -> Float[np.ndarray, " d"]:
        """max over rows of |r_j| / delta: 1 for a column that a row may use; inf outside the ball."""
        live = self.delta_lower > 0
        share = self.correlation[live] / self.delta[live, None]
        score = np.where(self.ball, share.max(0) if live.any() else 1.0, np.inf)
        return score if live.all() else np.where(self.ball, np.maximum(score, 1.0), np.inf)

    @property
    def removable(self) -> Bool[np.ndarray, " d"]:
        """Columns certified zero in every row: removing them changes no row's optimum."""
        return self.certified.all(0)  # type: ignore[return-value]


def screen(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: float | Float[np.ndarray, " r"],
    ridge: float = 0.0,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    A: Float[np.ndarray, "r d"] | None = None,
) -> Screening:
    """Columns that are zero in every optimal solution, row by row, with a proof.

    Mathematics: see the module.

    Args:
        G: (d, d) M'M.
        C: (r, d) Z'M.
        zz: (r,) squared norms of the targets.
        kappa: radius of the ball, positive; scalar or (r,).
        ridge: weight of the squared norm.
        ball_mask: (d,) coordinates in the ball, None for all.
        A: (r, d) feasible rows to test at; solved for when None. The nearer to the optimum, the more is certified; any
            feasible point is safe.

    Returns:
        the certified zeros, radii and scores.

    Raises:
        ValueError: naming the row and its norm where A is outside the ball, or the shape that does not fit.

    Source:
        Ganesh MS report (2023), section 5.1.
    """
    from implicit_models.sim.solvers.gram import check_problem
    from implicit_models.sim.solvers.rows import solve_radii

    G, C, zz, kappas, ball, *rest = check_problem(G, C, zz, kappa, ball_mask, 0.0, ridge, **TIGHT)
    beta, ridge, tolerance, whole = rest
    if not np.all(np.isfinite(kappas) & (kappas > 0)):
        row = int(np.argmin(np.isfinite(kappas) & (kappas > 0)))
        raise ValueError(f"kappa must be positive and finite, got {kappas[row]} in row {row}")
    if not ball.any():
        raise ValueError("ball_mask holds no coordinate: without a ball nothing is certified")
    part = None if ball.all() else eliminate(G, C, zz, ~ball, ridge)
    inner = (G, C, zz) if part is None else part.problem
    if A is None:
        if part is not None:
            whole = np.where(np.isfinite(zz), inner[2], 0.0)
        all_in = np.ones(int(ball.sum()), bool)
        inside = solve_radii(*inner, kappas[:, None], all_in, beta, ridge, tolerance, whole)[0].A
    else:
        A = np.asarray(A, dtype=np.float64)
        if A.shape != C.shape:
            raise ValueError(f"A must have shape {C.shape}, got {A.shape}")
        inside = A[:, ball]
    inside = _feasible(inside, kappas)
    finite = np.isfinite(zz) & np.isfinite(C).all(1)
    inside = np.where(finite[:, None], inside, 0.0)
    blur, extra = 0.0, 0.0  # type: float | np.ndarray, float | np.ndarray
    if part is not None:
        blur = np.where(
            finite[:, None], part.rounding(G, np.where(finite[:, None], C, 0.0), np.where(finite, zz, 0.0), inside), 0.0
        )
        extra = ROUNDING * np.diagonal(G)[ball]  # what may be left of a column that elimination set to zero
    certified, size, gap, radius, delta, lower = _sphere_test(
        inner[0], inner[1], inside, kappas, ridge, finite, blur, extra
    )
    status = np.where(~finite, Status.NOT_FINITE, np.where(lower > 0, Status.CERTIFIED, Status.SLACK))
    full, correlation = np.zeros(C.shape, bool), np.zeros(C.shape)
    full[:, ball], correlation[:, ball] = certified, size
    rows = inside if part is None else part.recover(inside)
    rows[~finite] = np.nan
    return Screening(full, correlation, rows, gap, radius, delta, np.maximum(lower, 0.0), status, ball)


def _feasible(A: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """A with norms that exceed kappa by rounding brought inside."""
    norm = np.abs(A).sum(1)
    if np.any(norm > kappa * (1 + 1e-6)):
        row = int(np.flatnonzero(norm > kappa * (1 + 1e-6))[0])
        raise ValueError(
            f"row {row} of A has l1 norm {norm[row]:.9g}, outside its ball of radius {kappa[row]:.9g}: it certifies"
            " nothing"
        )
    share = np.where(norm > kappa, kappa / np.where(norm > 0, norm, 1.0) * (1 - 8 * EPS), 1.0)
    return A * share[:, None]


def _sphere_test(
    G: np.ndarray, C: np.ndarray, A: np.ndarray, kappa: np.ndarray, ridge: float, finite: np.ndarray, blur, extra
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """certified (r, s), |r| (r, s), gap, radius, delta and the lower bound of delta* (r,) over the ball's columns.

    blur: (r, s) error of C and G in r, extra: (s,) error of diag G; 0 where they are the data themselves.
    """
    C = np.where(finite[:, None], C, 0.0)
    used = np.flatnonzero((A != 0).any(0))  # few columns: the product over these alone
    r = C - A[:, used] @ G[used] - ridge * A
    size = np.abs(r)
    length = np.sqrt(np.maximum(np.diagonal(G), 0.0) + extra + ridge)
    # |G_ij| <= sqrt(G_ii G_jj): a bound of |G||a| without the product
    reach = (np.abs(A) @ length)[:, None] * length + np.abs(C) + ridge * np.abs(A)
    error = ((A != 0).sum(1) + 4)[:, None] * EPS * reach + blur
    gap = gap_with_rounding(A, r, error, kappa, EPS)
    radius = np.sqrt(2 * gap)
    spread = radius[:, None] * length + error
    lower = np.where(finite, (size - spread).max(1), 0.0)
    certified = (lower > 0)[:, None] & (size + spread < lower[:, None])
    return certified, size, gap, radius, size.max(1), lower
