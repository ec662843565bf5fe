"""What a solve returns: the solution as the solver left it, and the result with the residual computed afresh.

A solver judges a sample by its own evaluation of the map; another order of summation gives a residual that differs by
rounding. The result of a solve therefore follows one rule, whatever the solver: its residual is `equilibrium_residual`
of the returned x, and a sample is converged when

    residual <= tol,    or    the solver stopped at its tolerance and residual <= rounding_floor,

the second being said as "converged to rounding" in `reason`. A sample that meets neither is not converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium.convergence import (
    CONVERGED,
    MAX_ITER,
    STATUS_TEXT,
    SolveStatistics,
    equilibrium_residual,
    row_max,
    scaled_residual,
)
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.equilibrium.triangular import TriangularPlan
from implicit_models.matrices import absolute, product
from implicit_models.summaries import summary

ROUNDING_UNITS = 4


class Solution(NamedTuple):
    """x (N, n), residual (N,), n_iter (N,), status (N,) int8, the method that found them, whether a status is not 0,
    and the substitution that was found on the way."""

    x: Tensor
    residual: Tensor
    n_iter: Tensor
    status: Tensor
    method: str
    failed: bool
    plan: TriangularPlan | None = None

    @classmethod
    def of(cls, found: tuple[Tensor, Tensor, Tensor, Tensor], method: str) -> Solution:
        status = found[3]
        failed = status.numpy().any() if status.device.type == "cpu" else status.any()  # NumPy: less overhead
        return cls(*found, method, bool(failed))


@dataclass(frozen=True)
class EquilibriumResult:
    """Equilibrium of every sample and how it was reached.

    x (N, n); residual (N,), recomputed from x; n_iter (N,) evaluations of the map; converged (N,): residual <= tol, or
    <= `rounding_floor` where the solver stopped at its tolerance; reason: "converged", which samples converged to
    rounding only, or which failed and how; solver: the method that ran; status (N,): 0 converged, 1 max_iter or stopped
    above tol, 2 diverged, 3 input not finite, 4 singular system; to_rounding (N,): converged with tol < residual <=
    floor.
    """

    x: Float[Tensor, "N n"]
    residual: Float[Tensor, " N"]
    n_iter: Int[Tensor, " N"]
    converged: Bool[Tensor, " N"]
    solver: str
    status: Int[Tensor, " N"]
    to_rounding: Bool[Tensor, " N"] | None = None

    def __repr__(self) -> str:
        return summary(self, "x", "residual", "n_iter", "converged", "solver", "reason")

    @property
    def reason(self) -> str:
        code = self.status.cpu().numpy()
        groups = [(STATUS_TEXT[int(value)], code == value) for value in np.unique(code[code != CONVERGED])]
        if self.to_rounding is not None and bool(self.to_rounding.any()):
            groups.append(("converged to rounding", self.to_rounding.cpu().numpy()))
        parts = []
        for text, members in groups:
            rows = np.flatnonzero(members)
            shown = ", ".join(map(str, rows[:5])) + (f" and {rows.size - 5} more" if rows.size > 5 else "")
            parts.append(f"{text}: sample {shown}")
        return "; ".join(parts) or STATUS_TEXT[CONVERGED]

    @property
    def statistics(self) -> SolveStatistics:
        return SolveStatistics(self.n_iter, self.residual.detach(), self.status, self.solver)


def rounding_floor(
    A: Float[Tensor, "n n"], b: Float[Tensor, "N n"], x: Float[Tensor, "N n"], act: Activation, relative: bool
) -> Float[Tensor, " N"]:
    """What rounding may leave of a residual: 4 eps max_i max(1, gamma_i) (|A| |x| + |b|)_i, over max|x| if relative.

    eps is that of A's dtype, gamma_i the Lipschitz constant of the map of state i.
    """
    gain = torch.as_tensor(act.lipschitz.copy(), dtype=x.dtype, device=x.device).clamp_min(1)
    floor = ROUNDING_UNITS * torch.finfo(x.dtype).eps * row_max(gain * product(x.abs(), absolute(A), b.abs()))
    return scaled_residual(floor, row_max(x)) if relative else floor


def result_of(
    A: Tensor, b: Tensor, found: Solution, act: Activation, s: SolverSettings
) -> tuple[EquilibriumResult, Solution, bool]:
    """(result, the solution with its residual and status, whether a sample that its solver passed is above the
    floor)."""
    A, b, x = A.detach(), b.detach(), found.x.detach()
    with torch.no_grad():
        residual = equilibrium_residual(A, b, x, act, tol_mode=s.tol_mode)
        within = residual <= s.tol
        passed = (found.status == CONVERGED) & ~within
        to_rounding, above = torch.zeros_like(within), False
        status = torch.where(within, CONVERGED, found.status).to(torch.int8)
        if bool(passed.any()):
            to_rounding = passed & torch.isfinite(residual) & (residual <= rounding_floor(A, b, x, act, s.relative))
            status = torch.where(passed & ~to_rounding, MAX_ITER, status).to(torch.int8)
            above = bool((passed & ~to_rounding).any())
    found = found._replace(residual=residual, status=status, failed=bool((status != CONVERGED).any()))
    converged = status == CONVERGED
    return (
        EquilibriumResult(found.x, residual, found.n_iter, converged, found.method, status, to_rounding),
        found,
        above,
    )
