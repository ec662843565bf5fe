"""Solutions of the row problems at many radii of the ball in one pass: a sweep over kappa.

The l1 norm of a row grows monotonically along its path, so that the path to the largest kappa passes every smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.solvers.rows import Rows, check_problem, solve_radii
from implicit_models.summaries import summary


@dataclass(frozen=True)
class Path:
    """Row problems solved at K radii.

    Attributes:
        kappas: (K,) ascending.
        rows: K `Rows`, one a radius.
    """

    kappas: Float[np.ndarray, " K"]
    rows: tuple[Rows, ...]

    def __repr__(self) -> str:
        return summary(self, "kappas", "rows", status=np.concatenate([rows.status for rows in self.rows]))

    def at(self, kappa: float) -> Rows:
        """The rows at one of the radii of the sweep.

        Raises:
            KeyError: naming the radii there are.
        """
        found = np.flatnonzero(self.kappas == kappa)
        if len(found) == 0:
            raise KeyError(f"no solution at kappa = {kappa}; the sweep has {self.kappas.tolist()}")
        return self.rows[found[0]]


def path_rows(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    kappas: Float[np.ndarray, " K"] | Sequence[float],
    ball_mask: Bool[np.ndarray, " d"] | None = None,
    beta: float | Float[np.ndarray, " r"] = 0.0,
    ridge: float = 0.0,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> Path:
    """`solve_rows` at every radius, for little more than the time of the largest.

    Args:
        kappas: (K,) radii, any order, no two equal.
        Others as in `solve_rows`.

    Returns:
        Path, its radii ascending; each solution carries its own certificate.

    Raises:
        ValueError: as `solve_rows`, and for radii that are empty, negative, NaN or repeated.

    Source:
        Tsai thesis (2024), Lemma 1 of section 3.3 (g is monotone and piecewise linear).
    """
    radii = np.sort(np.asarray(kappas, dtype=np.float64).ravel())
    if len(radii) == 0 or not (radii >= 0.0).all() or (np.diff(radii) == 0.0).any():
        raise ValueError(f"kappas must be distinct and at least 0; got {np.asarray(kappas).tolist()}")
    G, C, zz, _, *rest = check_problem(G, C, zz, 0.0, ball_mask, beta, ridge, rtol, atol)
    return Path(radii, tuple(solve_radii(G, C, zz, np.tile(radii, (len(C), 1)), *rest)))
