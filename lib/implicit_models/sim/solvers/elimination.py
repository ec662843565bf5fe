"""Feature elimination across rows: which columns of M may go, exactly how many, and what is proved about each.

A zero in one row frees that column for that row only. A column goes for real when every row is certified zero there;
then each row keeps its optimum, whatever else of that kind goes with it. Beyond this set nothing is safe: the order is
a heuristic and is labelled as such. Columns are ordered by

    correlation   max over rows of |r_j| / delta, the certified ones first; columns that rows use tie at 1 and follow by
    max |a_j|
    entry         the smallest kappa of a given ladder at which any row uses the column, then as above.

Repeating the certified removal on what is left removes nothing more: the solution has not changed. The MS report's loop
"until X only has two columns left" therefore leaves the safe set in its second round, at the latest.

Source:
    Ganesh MS report (2023), section 5.2, with the control over the number of features that it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from implicit_models.sim.solvers.screening import Screening, screen
from implicit_models.summaries import summary

ORDERS = ("correlation", "entry")


@dataclass(frozen=True)
class Elimination:
    """Columns removed and kept.

    kept: (d - n_removed,) column indices, ascending.
    removed: (n_removed,) column indices in the order of removal; the first `certified` are proved zero in every row's
        optimum, the rest went by the score alone.
    certified: length of the proved prefix. n_certifiable: columns that the proof covers, removed or not.
    scores: (d,) what the order goes by. screening: the pass it rests on.
    """

    kept: Int[np.ndarray, " kept"]
    removed: Int[np.ndarray, " removed"]
    certified: int
    n_certifiable: int
    scores: Float[np.ndarray, " d"]
    screening: Screening

    def __repr__(self) -> str:
        return summary(self)

    def reduce(
        self, G: Float[np.ndarray, "d d"], C: Float[np.ndarray, "r d"]
    ) -> tuple[Float[np.ndarray, "k k"], Float[np.ndarray, "r k"]]:
        """G and C of the kept columns: all that retraining needs."""
        return np.ascontiguousarray(np.asarray(G)[np.ix_(self.kept, self.kept)]), np.ascontiguousarray(
            np.asarray(C)[:, self.kept]
        )

    def expand(self, A: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "r d"]:
        """Rows over the kept columns, with zeros where columns went."""
        full = np.zeros((A.shape[0], self.kept.size + self.removed.size))
        full[:, self.kept] = A
        return full


def entry_kappa(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappas: Float[np.ndarray, " k"],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    ridge: float = 0.0,
) -> Float[np.ndarray, " d"]:
    """Smallest kappa of the ladder at which any row uses a column; inf for one that no row uses, 0 outside the ball.

    Args:
        G, C, zz: (d, d), (r, d) and (r,).
        kappas: (k,) ascending.
        ball_mask, ridge: as `solve_rows`.

    Returns:
        (d,).
    """
    from implicit_models.sim.solvers.rows import path_rows

    kappas = np.asarray(kappas, dtype=np.float64)
    if kappas.ndim != 1 or kappas.size == 0 or np.any(np.diff(kappas) <= 0) or not kappas[0] > 0:
        raise ValueError(f"kappas must be positive and ascending, got {kappas}")
    path = path_rows(G, C, zz, kappas=kappas, ball_mask=ball_mask, ridge=ridge)
    entry = np.full(np.shape(C)[1], np.inf)
    for kappa in kappas[::-1]:
        entry[(path.at(float(kappa)).A != 0).any(0)] = kappa
    if ball_mask is not None:
        entry[~np.asarray(ball_mask, bool)] = 0.0
    return entry


def eliminate(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappa: float | Float[np.ndarray, " r"],
    n_remove: int | None = None,
    order: str = "correlation",
    kappas: Float[np.ndarray, " k"] | None = None,
    candidates: Bool[np.ndarray, " d"] | None = None,
    ridge: float = 0.0,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    A: Float[np.ndarray, "r d"] | None = None,
) -> Elimination:
    """Remove every certified column, or exactly `n_remove` columns with the certified ones first.

    Args:
        G: (d, d) M'M.
        C: (r, d) Z'M.
        zz: (r,) squared norms of the targets.
        kappa, ridge, ball_mask, A: as `screen`.
        n_remove: how many columns go; None for all that are certified, and no other.
        order: "correlation" or "entry" (needs `kappas`, the ladder of radii).
        candidates: (d,) columns that may go; those of the ball when None. Columns outside the ball never go.

    Returns:
        kept and removed columns, the removed ones in order, with the length of the proved prefix.

    Raises:
        ValueError: if fewer columns than n_remove may go, or naming the value that does not fit.

    Source:
        Ganesh MS report (2023), section 5.2.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {ORDERS}, got {order!r}")
    found = screen(G, C, zz, kappa=kappa, ridge=ridge, ball_mask=ball_mask, A=A)
    d = found.ball.size
    allowed = found.ball.copy() if candidates is None else np.asarray(candidates, dtype=bool) & found.ball
    if allowed.shape != (d,):
        raise ValueError(f"candidates must have shape ({d},), got {np.shape(candidates)}")  # type: ignore[arg-type]
    proved = found.removable & allowed
    if order == "entry":
        if kappas is None:
            raise ValueError("order='entry' needs kappas, the ladder of radii")
        entry = entry_kappa(G, C, zz, kappas=kappas, ball_mask=ball_mask, ridge=ridge)
        scores = np.where(np.isfinite(entry), 1 / np.where(entry > 0, entry, 1.0), 0.0)
    else:
        scores = found.scores
    most = int(allowed.sum())
    number = int(proved.sum()) if n_remove is None else n_remove
    if not isinstance(number, (int, np.integer)) or not 0 <= number <= most:
        raise ValueError(f"n_remove must be an integer from 0 to {most}, the columns that may go, got {n_remove!r}")
    used = np.abs(found.A).max(0)
    tie = np.where(scores >= 1 - 1e-9, 1.0, scores) if order == "correlation" else scores
    ranked = np.lexsort((np.arange(d), found.scores, used, tie, ~proved, ~allowed))
    removed = ranked[:number]
    kept = np.setdiff1d(np.arange(d), removed)
    return Elimination(kept, removed, min(number, int(proved.sum())), int(proved.sum()), scores, found)


def retrain(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    elimination: Elimination,
    *,
    kappa: float | Float[np.ndarray, " r"],
    ridge: float = 0.0,
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    **settings: Any,
) -> tuple[Any, Float[np.ndarray, "r d"]]:
    """Rows of the reduced problem, and the same rows over all columns.

    Args:
        as `eliminate`
        settings: as `solve_rows`.

    Returns:
        `Rows` over the kept columns, and A (r, d) with zeros where columns went. Removing certified columns leaves
        every row's optimal value as it was.
    """
    from implicit_models.sim.solvers.rows import solve_rows

    reduced_G, reduced_C = elimination.reduce(G, C)
    ball = None if ball_mask is None else np.asarray(ball_mask, bool)[elimination.kept]
    rows = solve_rows(reduced_G, reduced_C, zz, kappa=kappa, ridge=ridge, ball_mask=ball, **settings)
    return rows, elimination.expand(rows.A)
