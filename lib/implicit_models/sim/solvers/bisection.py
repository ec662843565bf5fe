"""Searches on the LASSO path for the multiplier of P(kappa): bisection, Illinois, Newton.

    P(kappa) = min_a 1/2 ||M a - z||^2 + ridge/2 ||a||^2   s.t.  ||a||_1 <= kappa

is solved by the lambda with g(lambda) = ||a*_Q(lambda)||_1 = kappa (descent.py). The thesis' Algorithm 1
(algorithm_one.py) is corrected in five points:

    start     the bracket is [0, ||M'z||_inf], not the 2-norm;
    stop      the certified duality gap of P(kappa), relative to the objective, not the width of the bracket in lambda;
    output    the best feasible point seen: an iterate outside the ball is scaled onto its sphere, and its gap
        certified;
    kappa     at least g(0+): lambda runs to 0 and the least-squares solution is tried, so no bias remains;
    z = 0     has the solution 0.

g is linear between two changes of the support, with slope -s'H^-1 s (H = G + ridge I on the support, s the signs):
Newton puts lambda = (s'H^-1 c - kappa) / s'H^-1 s. The one-pass sweep over many kappas is path.py.

Source:
    Tsai thesis (2024), section 3.3, Algorithm 1, Lemmas 1 and 2, Theorem 4 (warm start).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from implicit_models.sim.problem import Tolerance
from implicit_models.sim.solvers.coordinate_descent import MAX_EPOCHS, check_row, descend, lambda_max
from implicit_models.sim.solvers.duality_gap import gap_from_residual, is_certified
from implicit_models.status import Status
from implicit_models.summaries import summary

METHODS = ("bisection", "illinois", "newton")
TOLERANCE = Tolerance()
NARROW = 1e-10  # relative width of a bracket that has nothing left to say
SMALL = 1e-4  # share of lambda_max below which the least-squares solution is tried


@dataclass(frozen=True)
class SearchStep:
    """One outer iteration: lambda, ||a*_Q(lambda)||_1, certified gap of the feasible point made of it, work, a if
    kept."""

    lam: float
    norm: float
    gap: float
    n_epochs: int
    n_systems: int
    a: Float[np.ndarray, " d"] | None = None

    def __repr__(self) -> str:
        return summary(self)


@dataclass(frozen=True)
class SearchResult:
    """Outcome of a search for g(lambda) = kappa.

    a: (d,) solution of P(kappa); of a search as printed, whatever it ends with.
    lam: its lambda. gap: duality gap of P(kappa) at a, valid where violation = max(0, ||a||_1 - kappa) is 0.
    n_solves: LASSO problems solved. n_epochs: coordinate-descent sweeps in all of them; n_systems: linear
        systems solved on supports in between.
    status: "optimal" or "inaccurate" (gap above the tolerance); "as_printed" where no tolerance is defined.
    history: one `SearchStep` an outer iteration.
    """

    a: Float[np.ndarray, " d"]
    lam: float
    gap: float
    violation: float
    n_solves: int
    n_epochs: int
    n_systems: int
    status: str
    history: list[SearchStep] = field(default_factory=list)

    def __repr__(self) -> str:
        return summary(self)


def solve_on_path(
    G: Float[np.ndarray, "d d"],
    c: Float[np.ndarray, " d"],
    zz: float,
    *,
    kappa: float,
    method: str = "bisection",
    warm: bool = True,
    start: Float[np.ndarray, " d"] | None = None,
    ridge: float = 0.0,
    tolerance: Tolerance = TOLERANCE,
    max_solves: int = 200,
    newton: bool = True,
    keep: bool = False,
) -> SearchResult:
    """P(kappa) of one row by a search for the lambda with g(lambda) = kappa.

    Mathematics: see the module. "bisection" halves the bracket, "illinois" takes the secant and halves the value at an
    end that is kept twice, "newton" takes the root of g's present linear piece; the last two bisect when they leave the
    bracket.

    Args:
        G: (d, d) M'M.
        c: (d,) M'z.
        zz: ||z||^2.
        kappa: radius of the l1 ball over the whole vector.
        method: "bisection", "illinois" or "newton".
        warm: start each LASSO from the last solution instead of from zero.
        start: (d,) warm start of the first LASSO (the row before, in Algorithm 2).
        ridge: weight of the squared norm.
        tolerance: stop when the gap is at most this.
        max_solves: bound on outer iterations; status says when they were not enough.
        newton: as `lasso`: linear systems on the support between the sweeps.
        keep: keep every iterate in the history.

    Returns:
        the feasible solution with its certified gap, the counts and the history.

    Raises:
        ValueError: naming the value or shape that does not fit.

    Source:
        Tsai thesis (2024), Algorithm 1, corrected.
    """
    G, c, zz, ridge = check_row(G, c, zz, ridge)
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    if not (np.isfinite(kappa) and kappa >= 0):
        raise ValueError(f"kappa must be a finite number that is not negative, got {kappa}")
    largest = lambda_max(c)
    zero = np.zeros(c.size)
    if largest == 0.0 or kappa == 0.0:  # z = 0, or orthogonal to every column; or a ball that holds only 0
        return SearchResult(zero, largest, 0.0, 0.0, 0, 0, 0, Status.OPTIMAL)
    a = zero.copy() if start is None else np.array(start, dtype=np.float64)
    if a.shape != c.shape:
        raise ValueError(f"start must have shape {c.shape}, got {a.shape}")

    low, high, g_low, g_high = 0.0, largest, np.inf, 0.0
    best, best_gap, best_lam = zero, gap_from_residual(c, zz, zero, c, kappa)[0], largest
    history: list[SearchStep] = []
    proposal = None
    kept = 0  # how often in a row the same end of the bracket moved, signed
    weight_low = weight_high = 1.0
    inner, inner_atol, tried, opened = 1e-6 * tolerance.rtol, 1e-6 * tolerance.atol, False, 0
    done = is_certified(best_gap, 0.5 * zz, zz, tolerance)
    while not done and len(history) < max_solves:
        lam = proposal if proposal is not None and low < proposal < high else 0.5 * (low + high)
        if high - low <= NARROW * high:
            # a norm within its error of kappa was taken for the wrong side: open the bracket again, solve more exactly
            opened += 1
            width = NARROW * 100.0**opened * high
            low, high, g_low, g_high, proposal = max(low - width, 0.0), min(high + width, largest), np.inf, 0.0, None
            inner, inner_atol = 0.01 * inner, 0.1 * inner_atol
            lam = 0.5 * (low + high)
        if not warm and history:
            a = zero.copy() if start is None else np.array(start, dtype=np.float64)
        r = c - G @ a - ridge * a
        epochs, systems, _, _ = descend(G, c, zz, lam, ridge, a, r, inner, inner_atol, MAX_EPOCHS, newton)
        norm = float(np.abs(a).sum())
        inside = norm <= kappa
        share = 1.0 if inside else kappa / norm
        candidate, r_candidate = (a, r) if inside else (share * a, c - share * (c - r))
        gap, primal = gap_from_residual(c, zz, candidate, r_candidate, kappa)
        if gap < best_gap:
            best, best_gap, best_lam = candidate.copy(), gap, lam
        history.append(SearchStep(lam, norm, gap, int(epochs), int(systems), a.copy() if keep else None))
        done = bool(is_certified(gap, primal, zz, tolerance))
        if inside:
            high, g_high, kept = lam, norm, max(kept, 0) + 1
            weight_high, weight_low = 1.0, 0.5 * weight_low if kept > 1 else weight_low
        else:
            low, g_low, kept = lam, norm, min(kept, 0) - 1
            weight_low, weight_high = 1.0, 0.5 * weight_high if kept < -1 else weight_high
        if inside and lam <= SMALL * largest and not done and not tried:
            tried = True
            flat = _least_squares(G, c, ridge)
            if float(np.abs(flat).sum()) <= kappa:
                gap, primal = gap_from_residual(c, zz, flat, c - G @ flat - ridge * flat, kappa)
                if gap < best_gap:
                    best, best_gap, best_lam = flat, gap, 0.0
                done = bool(is_certified(gap, primal, zz, tolerance))
        if method == "illinois" and np.isfinite(g_low):
            up, down = weight_low * (g_low - kappa), weight_high * (g_high - kappa)
            proposal = (high * up - low * down) / (up - down) if up > down else None
        elif method == "newton":
            proposal = _piece_root(G, c, a, kappa, ridge)

    best = np.array(best)
    r = c - G @ best - ridge * best
    gap, primal = gap_from_residual(c, zz, best, r, kappa)
    good = bool(is_certified(gap, primal, zz, tolerance))
    violation = max(0.0, float(np.abs(best).sum()) - kappa)
    return SearchResult(
        best,
        best_lam,
        gap,
        violation,
        len(history),
        sum(h.n_epochs for h in history),
        sum(h.n_systems for h in history),
        Status.OPTIMAL if good else Status.INACCURATE,
        history,
    )


def _least_squares(G: np.ndarray, c: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.lstsq(G + ridge * np.eye(c.size), c, rcond=1e-12)[0]


def _piece_root(G: np.ndarray, c: np.ndarray, a: np.ndarray, kappa: float, ridge: float) -> float | None:
    """Root of the linear piece of g on the support of a: (s'H^-1 c - kappa) / s'H^-1 s; None where H is singular."""
    on = np.flatnonzero(a)
    if on.size == 0:
        return None
    s = np.sign(a[on])
    H = G[np.ix_(on, on)] + ridge * np.eye(on.size)
    try:
        solved = np.linalg.solve(H, np.stack([c[on], s], 1))
    except np.linalg.LinAlgError:
        return None
    steep = float(s @ solved[:, 1])
    root = (float(s @ solved[:, 0]) - kappa) / steep if steep > 0 else np.nan
    return root if np.isfinite(root) else None
