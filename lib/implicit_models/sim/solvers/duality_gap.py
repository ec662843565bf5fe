"""Duality gaps of candidates for the row problems, from the data alone, and when a gap certifies a row.

For residual rho = z - M a and correlations r = M'rho - ridge a, the scaled pair (s rho, s a) is dual feasible wherever
s |r_j| <= beta on the columns outside the ball. With S the ball, its value is

    D(s) = s z'rho - s^2/2 (||rho||^2 + ridge ||a||^2) - kappa max(0, s max_S |r| - beta),

and the gap is the objective less max(0, D(s)) (s = 0 is feasible). s = min(1, beta / max_off |r|), or 1 where no column
lies outside the ball. With beta = 0 and columns outside, rho is first made orthogonal to them. Dual values without the
ball bound the problem with it too; they serve where no correlation is left, as kappa times rounding says nothing at a
large kappa.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.problem import L1, NoPenalty, Objective, Perspective, Tolerance
from implicit_models.sim.solvers.gram import Gram, as_matrix, check_rows
from implicit_models.sim.solvers.unpenalised import FreeBlock, factor

NOTHING = 1e-9  # correlations with unit columns below this share of ||z|| are no reason for a ball to be tight


def duality_gap(
    G: Float[np.ndarray, "d d"] | Gram,
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    *,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Duality gap of each row of A, an upper bound on its objective's distance from the optimum, and the objective.

    The bound holds for a feasible A; a row whose norm over the ball exceeds kappa by more than a share of 1e-9 has gap
    inf.

    Args:
        G, C, zz: from `gram`; a `Gram` in place of G is not checked again.
        A: (r, d) candidates.
        kappa: radius of the ball, a number or one a row; inf for no ball.
        ball_mask: (d,) the columns whose l1 norm the ball bounds; None for all.
        beta: l1 penalty, a number or one a row.
        ridge: gamma of the term gamma/2 ||a||^2.

    Returns:
        gap (r,); rounding may leave it below zero by about 1e-16 ||z||^2. NaN where the row's data or candidate are.
        objective (r,): 1/2||M a - z||^2 + beta||a||_1 + ridge/2 ||a||^2.

    Raises:
        TypeError: G, C, zz or A is no array of real numbers; kappa, beta or ridge is no number.
        ValueError: as `solve_rows`, and candidates of another shape than C.

    Source:
        solves the dual of Tsai thesis (2024), P(kappa); with a ridge, of Ganesh MS report (2023), equation (4).
    """
    G, C, zz, kappa, ball, beta, ridge = check_rows(G, C, zz, kappa, ball_mask, beta, ridge)
    A = as_matrix(A, "A")
    if A.shape != C.shape:
        raise ValueError(f"A must be (r, d), as C; got A {A.shape} and C {C.shape}")
    A = np.ascontiguousarray(A, np.float64)
    return gap_and_objective(G, C, zz, A, kappa, ball, beta, ridge)


def gap_and_objective(
    G, C, zz, A, kappa, ball, beta, ridge, block: FreeBlock | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`duality_gap` on checked arguments; block is the factor of the columns outside the ball, if
    known."""
    d = len(G)
    GA = A @ G
    r = C - GA - ridge * A
    fit, square, size = (np.einsum("ij,ij->i", A, X) for X in (C, GA, A))
    rho, cross = np.maximum(zz - 2.0 * fit + square, 0.0), zz - fit
    norm = np.abs(A[:, ball]).sum(axis=1)
    primal = 0.5 * rho + beta * np.abs(A).sum(axis=1) + 0.5 * ridge * size
    none = ~np.isfinite(kappa)  # rows without a ball
    dual = _scaled(r, rho, cross, size, kappa, ball, beta, ridge, none)
    everything = np.ones(d, bool)
    for rows, off in (((beta == 0.0) & none, everything), ((beta == 0.0) & ~none, ~ball)):
        if rows.any() and off.any():
            known = block if block is not None and len(block.scale) == off.sum() else None
            dual[rows] = np.fmax(dual[rows], _projected(G, r, rho, cross, size, A, zz, kappa, off, ridge, rows, known))
    # A ball that the row does not reach, at a kappa so large that the rounding of its correlations spoils the bound.
    length = np.sqrt(np.maximum(np.diag(G), 0.0) + ridge)
    with np.errstate(invalid="ignore"):
        slack = ~none & (norm < kappa) & (primal - dual > 1e-10 * zz)
        if slack.any():
            over = np.abs(r[slack]) - beta[slack, None] <= NOTHING * np.sqrt(zz[slack])[:, None] * length
            slack[slack] = over.all(axis=1)
    if slack.any():
        whole = np.full(len(C), np.inf)
        bound = _scaled(r, rho, cross, size, whole, ball, beta, ridge, slack)
        rows = slack & (beta == 0.0)
        if rows.any():
            bound[rows] = np.fmax(
                bound[rows], _projected(G, r, rho, cross, size, A, zz, whole, everything, ridge, rows, None)
            )
        dual[slack] = np.fmax(dual, bound)[slack]
    gap = primal - dual
    gap[norm > kappa * (1.0 + 1e-9)] = np.inf
    return gap, primal


def _scaled(r, rho, cross, size, kappa, ball, beta, ridge, none) -> np.ndarray:
    """Dual value of the residual, scaled to be feasible; `none` are the rows whose ball does not count."""
    inside = np.where(none, 0.0, np.abs(r[:, ball]).max(axis=1, initial=0.0))
    outside = np.where(none, np.abs(r).max(axis=1, initial=0.0), np.abs(r[:, ~ball]).max(axis=1, initial=0.0))
    s = np.where(outside > 0.0, np.minimum(1.0, beta / np.where(outside > 0.0, outside, 1.0)), 1.0)
    excess = np.maximum(s * inside - beta, 0.0)
    with np.errstate(invalid="ignore"):
        cost = np.where(excess > 0.0, kappa, 0.0) * excess
        dual = s * cross - 0.5 * s * s * (rho + ridge * size) - cost
        return np.fmax(dual, 0.0) + 0.0 * cross  # a NaN row stays NaN


def _projected(G, r, rho, cross, size, A, zz, kappa, off, ridge, rows, block) -> np.ndarray:
    """Dual value after the residual is made orthogonal to the unpenalised columns outside the ball.

    The dual pair is (rho, sqrt(ridge) a) stacked, a residual v of the ridge-augmented data; its part in the span of the
    augmented free columns F is F K^-1 t, K = F'F = G_off,off + ridge I, t = r_off. No direction of F above rounding is
    left out, dependent as it may look, and what correlation is left in the end is charged with the value that its
    removal would cost (`FreeBlock.charge`): v is infeasible by it.
    """
    block = factor(G[np.ix_(off, off)], ridge) if block is None else block
    every = block.every
    left = first = r[rows][:, off]
    y = np.zeros_like(left)
    for _ in range(2):  # the second removes the rounding of the first
        y = y + (left @ every) @ every.T  # the least-squares coefficients on the free columns
        r_new = r[rows] - y @ G[off]
        r_new[:, off] -= ridge * y
        left = r_new[:, off]
    # ||v - F y||^2 = ||v||^2 - y'F'v - y'F'(v - F y), and z'(rho - M y) with z'M y = c_off'y.
    square = rho[rows] + ridge * size[rows] - np.einsum("ij,ij->i", y, first + left)
    c_off = first + (A[rows] @ G[:, off]) + ridge * A[rows][:, off]
    length = np.sqrt(np.maximum(np.diag(G), 0.0) + ridge)
    reach = np.sqrt(np.maximum(zz[rows], 0.0)) + np.abs(A[rows]) @ length + np.abs(y) @ length[off]
    value = (
        cross[rows] - np.einsum("ij,ij->i", y, c_off) - 0.5 * square - block.charge(left, first, c_off - left, reach)
    )
    if off.all():
        return value
    return value - kappa[rows] * np.abs(r_new[:, ~off]).max(axis=1, initial=0.0)


def perspective_gap(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    A: Float[np.ndarray, "r d"],
    penalty: Perspective,
    *,
    kappa: float | Float[np.ndarray, " r"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Duality gap and objective of rows with the perspective penalty.

    Mathematics: P(a) - D(z - M a, mu) with the best mu (see `perspective`),
        D(rho, mu) = z'rho - 1/2 ||rho||^2 - sum_{not S} phi*(r_j) - sum_S phi*((|r_j| - mu)_+) - kappa mu.
    The gap bounds P(a) - P* for a feasible a only.

    Args:
        G, C, zz, A: as in `duality_gap`.
        kappa, ball_mask: the ball S; inf, or all False, for none.

    Returns:
        gap (r,), objective (r,).
    """
    G, C, A = (np.asarray(v, dtype=np.float64) for v in (G, C, A))
    zz, kappa = np.asarray(zz, dtype=np.float64), np.broadcast_to(np.asarray(kappa, dtype=np.float64), C.shape[:1])
    ball = np.ones(C.shape[1], bool) if ball_mask is None else np.asarray(ball_mask, bool)
    gap, value = np.empty(len(C)), np.empty(len(C))
    # one by one: a product of many rows rounds differently, and a row must not depend on its batch
    for i in range(len(C)):
        Ga = G @ A[i]
        fit, square, r = C[i] @ A[i], A[i] @ Ga, np.abs(C[i] - Ga)
        cost = penalty.value(A[i])
        value[i] = 0.5 * max(zz[i] - 2 * fit + square, 0.0) + cost
        if not np.all(np.isfinite(r)):
            gap[i], value[i] = np.nan, np.nan
            continue
        mu = _best_mu(r[ball], kappa[i], penalty) if np.isfinite(kappa[i]) and ball.any() else 0.0
        r[ball] = np.maximum(r[ball] - mu, 0.0)
        gap[i] = square - fit + cost + penalty.conjugate(r).sum() + (kappa[i] * mu if mu > 0 else 0.0)
    return gap, value


def _best_mu(excess: np.ndarray, kappa: float, penalty: Perspective) -> float:
    """argmin over mu >= 0 of kappa mu + sum phi*((excess - mu)_+): convex, slope by bisection."""
    low, high = 0.0, float(excess.max(initial=0.0))
    threshold = 2 * np.sqrt(penalty.alpha * penalty.eta)
    for _ in range(100):
        mu = 0.5 * (low + high)
        rest = excess - mu
        if kappa < rest[rest > threshold].sum() / (2 * penalty.alpha):
            low = mu
        else:
            high = mu
    return high if high > 0.5 * np.finfo(float).tiny else 0.0


def exact_dual_value(t, y, mu, V, mask, kappa: float, penalty: Objective) -> float:
    """Largest dual value of min f(a), V a = t, a in the ball, on the ray through (y, mu) that a conic solver's point,
    feasible only up to its tolerance, allows:

        d(y, mu) = y't - kappa mu - sum_j f*(max(|g_j| - mu 1_mask, 0)),   g = V'y.
    """
    g = np.abs(V.T @ y)
    mu = max(mu, 0.0) if mask.any() and np.isfinite(kappa) else 0.0
    if isinstance(penalty, NoPenalty):
        return 0.0
    if isinstance(penalty, L1):
        worst = float(np.max(g / np.where(mask, penalty.beta + mu, penalty.beta), initial=0.0))
        shrink = 1 / max(worst, 1.0)  # d(y) needs |g| <= beta + mu; shrinking y alone keeps it feasible
        return shrink * float(y @ t) - (kappa * mu if mu else 0.0)
    h = np.maximum(g - mu * mask, 0.0)
    return float(y @ t) - (kappa * mu if mu else 0.0) - float(penalty.conjugate(h).sum())


def gap_from_correlations(
    norm: Float[np.ndarray, " r"], seen: Any, *, kappa: Float[np.ndarray, " r"] | None = None, beta: float = 0.0
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """Duality gap and objective of rows whose residual rho was compared with all columns, in the ball of radius kappa
    or with the penalty beta.

    Args:
        norm: ||a||_1.
        seen: lead = max_j |m_j'rho|, inner = a'M'rho, against = z'rho, square = ||rho||^2 of each row.
    """
    if kappa is not None:
        return np.maximum(kappa * seen.lead - seen.inner, 0.0), 0.5 * seen.square
    s = np.minimum(1.0, beta / np.maximum(seen.lead, 1e-300))
    value = 0.5 * seen.square + beta * norm
    return value - np.maximum(s * seen.against - 0.5 * s * s * seen.square, 0.0), value


def gap_from_residual(
    c: Float[np.ndarray, " d"], zz: float, a: Float[np.ndarray, " d"], r: Float[np.ndarray, " d"], kappa: float
) -> tuple[float, float]:
    """Duality gap and objective of one row in the ball, from r = c - G a - ridge a: the dual value is taken at (rho,
    sqrt(ridge) a).

    D = z'rho - 1/2 (||rho||^2 + ridge ||a||^2) - kappa ||r||_inf, and ||rho||^2 + ridge ||a||^2 = zz - c'a - a'r.
    """
    ca, ar = float(c @ a), float(a @ r)
    return kappa * float(np.abs(r).max()) - ar, 0.5 * max(zz - ca - ar, 0.0)


def gap_with_rounding(
    A: Float[np.ndarray, "r d"], r: Float[np.ndarray, "r d"], error: Float[np.ndarray, "r d"], kappa: Any, eps: float
) -> Float[np.ndarray, " r"]:
    """Duality gap of rows in the ball, at least 0, from r = C - A G - ridge A, each entry of which is known up to its
    error: no rounding makes it too small."""
    size = np.abs(r)
    gap = (
        kappa * (size + error).max(1)
        - np.einsum("ij,ij->i", A, r)
        + (np.abs(A) * (error + eps * A.shape[1] * size)).sum(1)
    )
    return np.maximum(gap, 0.0)


def is_certified(gap: Any, objective: Any, zz: Any, tolerance: Tolerance) -> Any:
    """Whether a gap certifies a row: at most rtol of its objective, or atol of 1/2 ||z||^2 (which alone has a meaning
    where the optimum is zero). A gap that is not finite certifies nothing."""
    with np.errstate(invalid="ignore"):
        small = (gap <= tolerance.rtol * objective) | (gap <= tolerance.atol * 0.5 * zz)
        return np.isfinite(gap) & small
