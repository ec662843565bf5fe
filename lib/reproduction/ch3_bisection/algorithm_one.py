"""Algorithms 1 and 2 of the thesis as printed, with their defects: kept to be compared with the corrected search.

    1   u = ||M'z||, read as the 2-norm, as the norms of vectors are in the thesis: the bracket is up to sqrt(d) too
    wide;
    2   it stops at u - l < epsilon, an absolute width in lambda: multiplying M and z by t multiplies lambda by t^2;
    3   the output is the LAST lambda, on either side: ||a||_1 may exceed kappa;
    4   kappa >= g(0) ends at lambda < epsilon, a biased solution, instead of at the least-squares one;
    5   z = 0 gives u = l = 0: no pass through the loop, no output;
    6   Algorithm 2 starts a row from the solution of the row before, though the two targets are unrelated.

The corrected search is `bisection.solve_on_path`.

Source: Tsai thesis (2024), section 3.3, Algorithms 1 and 2.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from implicit_models.sim.solvers.bisection import SearchResult, SearchStep
from implicit_models.sim.solvers.coordinate_descent import INNER_RTOL, MAX_EPOCHS, check_row, descend
from implicit_models.sim.solvers.duality_gap import gap_from_residual


def algorithm_1(
    G: Float[np.ndarray, "d d"],
    c: Float[np.ndarray, " d"],
    zz: float,
    *,
    kappa: float,
    eps: float = 0.01,
    warm: bool = False,
    start: Float[np.ndarray, " d"] | None = None,
    inner_rtol: float = INNER_RTOL,
    max_epochs: int = MAX_EPOCHS,
    newton: bool = True,
    keep: bool = False,
) -> SearchResult:
    """Algorithm 1 as printed: bisection on lambda in [0, ||M'z||_2] until the bracket is narrower than eps.

    Args:
        G: (d, d) M'M. c: (d,) M'z. zz: ||z||^2.
        kappa: radius of the l1 ball.
        eps: epsilon, an absolute width in lambda (.01 in the thesis' experiments).
        warm: start each LASSO from the last solution (Theorem 4); from zero, or from `start`, otherwise.
        start: (d,) start of the first LASSO.
        inner_rtol: relative duality gap of every LASSO.
        max_epochs: sweeps of one LASSO.
        newton: as `lasso`: linear systems on the support between the sweeps.
        keep: keep every iterate in the history.
    Returns:
        the last lambda and its solution, feasible or not; gap is that of P(kappa) at a, which certifies nothing where
        violation > 0.

    Raises:
        ValueError if the bracket is narrower than eps before the first step (z = 0 among others): the algorithm has no
            output.

    Source:
        Tsai thesis (2024), Algorithm 1.
    """
    G, c, zz, _ = check_row(G, c, zz)
    if not (np.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be a positive number, got {eps}")
    u, low = float(np.linalg.norm(c)), 0.0
    if u - low < eps:
        raise ValueError(f"Algorithm 1 has no output: ||M'z|| = {u:.3g} is below eps = {eps:g}")
    first = np.zeros(c.size) if start is None else np.array(start, dtype=np.float64)
    a, history = first.copy(), []
    lam = u
    while u - low >= eps:
        lam = 0.5 * (u + low)
        if lam in (u, low):
            raise ValueError(f"eps = {eps:g} is below the resolution of lambda = {lam:.17g}")
        if not warm:
            a = first.copy()
        r = c - G @ a
        epochs, systems, _, _ = descend(G, c, zz, lam, 0.0, a, r, inner_rtol, 1e-14, max_epochs, newton)
        norm = float(np.abs(a).sum())
        history.append(
            SearchStep(
                lam,
                norm,
                gap_from_residual(c, zz, a, r, kappa)[0],
                int(epochs),
                int(systems),
                a.copy() if keep else None,
            )
        )
        if norm >= kappa:
            low = lam
        else:
            u = lam
    last = history[-1]
    return SearchResult(
        a,
        lam,
        last.gap,
        max(0.0, last.norm - kappa),
        len(history),
        sum(h.n_epochs for h in history),
        sum(h.n_systems for h in history),
        "as_printed",
        history,
    )


def algorithm_2(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: float,
    eps: float = 0.01,
    warm: bool = True,
    **settings: object,
) -> list[SearchResult]:
    """Algorithm 2 as printed: Algorithm 1 for every row, row i started from the solution of row i - 1.

    Args:
        G: (d, d) M'M. C: (r, d) Z'M. zz: (r,) squared norms of the targets.
        kappa, eps, settings: as `algorithm_1`.
        warm: both warm starts, between rows and, as the text has it, between the lambdas of a row; neither if False.
    Returns:
        one result a row.

    Source:
        Tsai thesis (2024), Algorithm 2.
    """
    rows, start = [], None
    for c, square in zip(np.asarray(C, dtype=np.float64), np.asarray(zz, dtype=np.float64), strict=True):
        rows.append(algorithm_1(G, c, float(square), kappa=kappa, eps=eps, warm=warm, start=start, **settings))
        start = rows[-1].a if warm else None
    return rows
