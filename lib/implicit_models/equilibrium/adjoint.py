"""The adjoint equation v = J(z)' (A' v + g) behind implicit gradients, solved by the family that solved the state.

Source:
    implicit function theorem; Tsai (2024), section 5.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium import compiled
from implicit_models.equilibrium.anderson import anderson
from implicit_models.equilibrium.convergence import CONVERGED, MAX_ITER, SINGULAR, row_max
from implicit_models.equilibrium.picard import AdjointMap, mark_not_finite, mask_not_finite, picard
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.equilibrium.solve import (
    NEWTON_UP_TO,
    NOT_AN_IMAGE,
    SWEEPS_BEFORE_NEWTON,
    Solution,
    damping_of,
    improve,
    slow_samples,
)
from implicit_models.equilibrium.triangular import TriangularPlan, substitute_adjoint
from implicit_models.matrices import product, transposed_product

Found = tuple[Tensor, Tensor, Tensor, Tensor]


def _direct(A: Tensor, slopes: Tensor, g: Tensor, tol: float) -> Found:
    """LU of the active rows; where rounding left more than tol, one step of refinement, and a report if that fails."""
    found = compiled.solve_adjoint("newton", A, slopes, g, tol, 1)
    v, residual, n_iter, status = found
    rows = torch.nonzero((status == CONVERGED) & (residual > tol)).flatten()
    if rows.numel():
        d, rhs, old = slopes[rows], g[rows], v[rows]
        # the defect of a row with d = 0 is 0; the kernel multiplies its right-hand side by d
        defect = torch.where(d == 0, 0, (transposed_product(old, A) + rhs) - old / d)
        new = old + compiled.solve_adjoint("newton", A, d, defect, tol, 1)[0]
        size = torch.maximum(row_max(rhs), row_max(new))
        left = row_max(d * (transposed_product(new, A) + rhs) - new) / size
        better = left < residual[rows]
        v[rows[better]], residual[rows[better]] = new[better], left[better]
        n_iter[rows] += 1
        floor = 4 * torch.finfo(v.dtype).eps
        status[rows[residual[rows] > max(tol, floor)]] = MAX_ITER
    return found


def _iterated(
    A: Tensor, b: Tensor | None, x: Tensor, act: Activation, g: Tensor, s: SolverSettings, method: str
) -> Found:
    z = product(x, A, b) if method in NOT_AN_IMAGE or not act.componentwise else None
    slopes = None
    if act.componentwise:
        slopes = act.derivative_at_value(x) if z is None else act.derivative(z)
    problem, start = AdjointMap(A, g, slopes, z, act, s.tol), torch.zeros_like(g)
    if method == "anderson":
        record = anderson(problem, start, tol=s.tol, max_iter=s.max_iter)
    else:
        damping = damping_of(A, act) if method == "damped_picard" else None
        record = picard(problem, start, tol=s.tol, max_iter=s.max_iter, damping=damping)
    return record.x, record.residual, record.n_iter, record.status


def _substituted(plan: TriangularPlan, b: Tensor, x: Tensor, g: Tensor) -> Found:
    v = substitute_adjoint(plan, b, x, g)
    status = torch.where(torch.isfinite(v).all(1), CONVERGED, SINGULAR).to(torch.int8)
    return v, v.new_zeros(v.shape[0]), torch.full_like(status, plan.depth, dtype=torch.int32), status


def solve_adjoint(
    A: Tensor,
    b: Tensor | None,
    x: Tensor,
    act: Activation,
    g: Tensor,
    s: SolverSettings,
    method: str,
    plan: TriangularPlan | None = None,
) -> Solution:
    """v = J(z)' (A' v + g) at the equilibrium x, by the method of the forward solve.

    A sample is solved when its residual is at most tol max|g|, or 4 eps max|v| where rounding leaves no more. b is
    needed (z = A x + b) for softmax and max-pool blocks and for the methods in NOT_AN_IMAGE. With solver "auto",
    samples that Gauss-Seidel leaves unsolved are factorised, for every componentwise activation: the adjoint is linear.
    """
    if method in ("gauss_seidel", "newton"):
        slopes = compiled.slopes(act, x)
        if method == "newton":
            return Solution.of(_direct(A, slopes, g, s.tol), method)
        direct = s.solver == "auto" and A.shape[0] <= NEWTON_UP_TO
        budget = min(s.max_iter, SWEEPS_BEFORE_NEWTON) if direct else s.max_iter
        found = Solution.of(compiled.solve_adjoint(method, A, slopes, g, s.tol, budget), method)
        if found.failed and direct:
            rows = slow_samples(found, budget)
            if rows.numel():
                improve(found[:4], rows, _direct(A, slopes[rows], g[rows], s.tol))
                found = Solution.of(found[:4], method)
        return found
    bad, (g, x) = mask_not_finite(g, x)
    any_bad = bool(bad.any())
    if b is not None and any_bad:
        b = b.masked_fill(bad[:, None], 0)
    if method == "triangular":
        assert plan is not None and b is not None  # the plan is what chose the method
        values = _substituted(plan, b, x, g)
    else:
        values = _iterated(A, b, x, act, g, s, method)
    if any_bad:
        mark_not_finite(bad, *values)
    return Solution.of(values, method)
