"""The normal equations of a set of states: one Gram matrix, one right-hand side per state and output.

Every row of (A, B, b) and of (C, D, d) is a problem in the columns M = [X, U, 1]; it needs G = M'M, its own M'z and z'z
only. Dividing states by positive constants s acts on these by products with 1/s, so that one pass over the samples
serves every scale, objective and kappa.

Source:
    SIM paper, section 3.1 (the problem separates over rows), (7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.network.states import States
from implicit_models.sim.solvers.gram import gram

SAMPLES_A_PASS = 4096


@dataclass(frozen=True)
class RowProblem:
    """Normal equations of all rows: states first, outputs after them.

    G (d, d), C (r, d), zz (r,) as in `gram`, with d = n_states + n_inputs + 1 and r = n_states + n_outputs.
    """

    G: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "r d"]
    zz: Float[np.ndarray, " r"]
    n_states: int
    n_inputs: int
    n_samples: int

    @property
    def n_outputs(self) -> int:
        return self.C.shape[0] - self.n_states

    def in_ball(self, ball: str) -> Bool[np.ndarray, " d"]:
        """Coordinates that the ball holds: "state", those of A, or "row", all but the bias."""
        mask = np.zeros(self.G.shape[0], dtype=bool)
        mask[: self.n_states if ball == "state" else self.n_states + self.n_inputs] = True
        return mask

    def column_scale(self, s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " d"]:
        return np.concatenate([s, np.ones(self.n_inputs + 1)])

    def row_scale(self, s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " r"]:
        return np.concatenate([s, np.ones(self.n_outputs)])

    def scaled(self, s: Float[np.ndarray, " n"]) -> RowProblem:
        """The problems of x' = x / s, z' = z / s; inputs and outputs keep their units.

        Raises:
            ValueError: naming a state whose products leave the range of float64.
        """
        column, row = self.column_scale(s), self.row_scale(s)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            G = self.G / column[:, None] / column
            C = self.C / row[:, None] / column
            zz = self.zz / row / row
        for squares, before, unit in ((G.diagonal(), self.G.diagonal(), column), (zz, self.zz, row)):
            lost = (np.isfinite(before) & ~np.isfinite(squares)) | ((squares == 0) & (before != 0))
            if lost.any():
                j = int(np.flatnonzero(lost)[0])
                raise ValueError(
                    f"the scale of state {j}, {unit[j]:.3g}, takes its sum of squares out of float64's range"
                )
        return RowProblem(G, C, zz, self.n_states, self.n_inputs, self.n_samples)


def row_problem(states: States, *, samples_a_pass: int = SAMPLES_A_PASS) -> RowProblem:
    """G, C and zz of all rows, streamed over the samples in float64.

    Args:
        states: of the network; memory maps are read `samples_a_pass` rows at a time.

    Returns:
        `RowProblem`; kept with the states, so that a sweep computes it once.

    Raises:
        ValueError: naming the state or input and the sample of a value in X or U that is not finite: a column that
            every row uses. A value in Z or Y that is not finite makes its own row's C and zz not finite.
    """
    if "rows" in states._memo:
        return states._memo["rows"]
    n, p, q = states.n_states, states.U.shape[1], states.Y.shape[1]
    d, r = n + p + 1, n + q
    G, C, zz = np.zeros((d, d)), np.zeros((r, d)), np.zeros(r)
    M, T = np.ones((min(samples_a_pass, states.n_samples), d)), np.empty((min(samples_a_pass, states.n_samples), r))
    for at in range(0, states.n_samples, samples_a_pass):
        k = min(samples_a_pass, states.n_samples - at)
        M[:k, :n], M[:k, n : n + p] = states.X[at : at + k], states.U[at : at + k]
        T[:k, :n], T[:k, n:] = states.Z[at : at + k], states.Y[at : at + k]
        finite = np.isfinite(M[:k])
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            what = f"X, state {j}" if j < n else f"U, input {j - n}"
            raise ValueError(f"{what} is {M[i, j]} in sample {at + i}: every row reads this column")
        with np.errstate(invalid="ignore", over="ignore"):
            g, c, s = gram(M[:k], T[:k])
            G += g
            C += c
            zz += s
    states._memo["rows"] = out = RowProblem(G, C, zz, n, p, states.n_samples)
    return out
