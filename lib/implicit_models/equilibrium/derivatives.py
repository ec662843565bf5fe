"""What gradients through an equilibrium are made of.

    adjoint    v = J(z)' (A' v + g), solved by the family that solved the state
    truncated  one or k steps of its Neumann series: JFB and the phantom gradient
    unrolled   the steps of Picard under autograd
    tangent    dx = J (A dx + dA x + db), J = phi'(z), solved directly, sample by sample. Every step is an operation of
               torch, so that tangents are themselves differentiable and second derivatives exist in forward over
               forward and reverse over forward mode

Source:
    implicit function theorem; Tsai (2024), section 5.2; JFB: Fung et al. (2022); phantom gradient: Geng et al. (2021).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium import compiled, whole_batch
from implicit_models.equilibrium.anderson import anderson
from implicit_models.equilibrium.convergence import (
    CONVERGED,
    DIVERGED,
    MAX_ITER,
    NOT_FINITE,
    SINGULAR,
    row_max,
    scaled_residual,
)
from implicit_models.equilibrium.picard import AdjointMap, mark_not_finite, mask_not_finite, picard
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.equilibrium.solve import (
    LEAST_ITER,
    NOT_AN_IMAGE,
    SWEEPS_BEFORE_NEWTON,
    SWEEPS_IN_SINGLE,
    Solution,
    damping_of,
    improve,
    newton_first,
    slow_samples,
)
from implicit_models.equilibrium.triangular import TriangularPlan, substitute_adjoint
from implicit_models.matrices import check_finite, product, transposed_product

PHANTOM_STEPS = 5
PHANTOM_DAMPING = 0.5
DIRECT_STEPS = 2  # of max_iter, kept for a factorisation and its refinement
ENTRIES = 2**24  # of the matrices I - J A that are held at a time
Found = tuple[Tensor, Tensor, Tensor, Tensor]


def _direct(A: Tensor, slopes: Tensor, g: Tensor, tol: float, most: int = DIRECT_STEPS) -> Found:
    """LU of the active rows; where rounding left more than tol, one step of refinement if `most` allows a second, and a
    report if that fails."""
    found = compiled.solve_adjoint("newton", A, slopes, g, tol, 1)
    v, residual, n_iter, status = found
    rows = torch.nonzero((status == CONVERGED) & (residual > tol)).flatten()
    if rows.numel() and most >= DIRECT_STEPS:
        d, rhs, old = slopes[rows], g[rows], v[rows]
        # the defect of a row with d = 0 is 0; the kernel multiplies its right-hand side by d
        defect = torch.where(d == 0, 0, (transposed_product(old, A) + rhs) - old / d)
        new = old + compiled.solve_adjoint("newton", A, d, defect, tol, 1)[0]
        size = torch.maximum(row_max(rhs), row_max(new))
        left = row_max(d * (transposed_product(new, A) + rhs) - new) / size
        better = left < residual[rows]
        v[rows[better]], residual[rows[better]] = new[better], left[better]
        n_iter[rows] += 1
    if rows.numel():
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


def _swept(A: Tensor, slopes: Tensor, g: Tensor, act: Activation, s: SolverSettings) -> Solution:
    """Compiled sweeps; with "auto", slow samples go on in double precision, and there to a factorisation.

    All of a sample's sweeps and solves together are at most max_iter.
    """
    method, auto, single = "gauss_seidel", s.solver == "auto", g.dtype == torch.float32
    kept = min(DIRECT_STEPS, s.max_iter - 1) if auto else 0
    budget = min(s.max_iter - kept, SWEEPS_IN_SINGLE if single else SWEEPS_BEFORE_NEWTON) if auto else s.max_iter
    found = Solution.of(compiled.solve_adjoint(method, A, slopes, g, s.tol, budget), method)
    rows = slow_samples(found, budget) if found.failed and auto else None
    if rows is None or not rows.numel():
        return found
    left = s.max_iter - kept - budget
    if single and left:
        # no more is asked than single precision holds: 4 eps of the adjoint, which sweeps from zero approach from below
        size = row_max(found.x[rows]) / row_max(g[rows])
        held = torch.finfo(g.dtype).eps * float(torch.where(torch.isfinite(size), size, 0).min())
        asked = replace(s, max_iter=left + kept, tol=max(s.tol, held))
        wide = _swept(A.double(), slopes[rows].double(), g[rows].double(), act, asked)
        improve(found[:4], rows, (wide.x.to(g.dtype), wide.residual.to(g.dtype), wide.n_iter, wide.status))
    elif left and not newton_first(A, act, found.residual[rows], s.tol, budget, left):
        improve(found[:4], rows, compiled.solve_adjoint(method, A, slopes[rows], g[rows], s.tol, left))
    found = Solution.of(found[:4], method)
    rows = slow_samples(found, budget) if found.failed else rows[:0]
    if rows.numel() and kept and not (single and left):
        improve(found[:4], rows, _direct(A, slopes[rows], g[rows], s.tol, kept))
        found = Solution.of(found[:4], method)
    return found


def _stepped(A: Tensor, x: Tensor, g: Tensor, act: Activation, s: SolverSettings) -> Solution:
    """Steps of the whole batch, as the state was found; sweeps where these do not end."""
    bad = None
    if not math.isfinite(float(g.sum() + x.sum())):
        bad, (g, x) = mask_not_finite(g, x)
    slopes = compiled.slopes(act, x)
    steps = whole_batch.adjoint_steps(A, slopes, g, act, s.tol, s.max_iter) if s.max_iter >= LEAST_ITER else None
    if steps is not None and steps.done:
        n_iter = torch.full((len(g),), steps.taken, dtype=torch.int32)
        found = Solution.of((steps.x, steps.change, n_iter, torch.zeros(len(g), dtype=torch.int8)), "picard")
    elif steps is not None and steps.taken >= s.max_iter:
        n_iter = torch.full((len(g),), steps.taken, dtype=torch.int32)
        unsolved = torch.where(torch.isfinite(steps.change), MAX_ITER, DIVERGED)
        status = torch.where(steps.change <= s.tol, CONVERGED, unsolved).to(torch.int8)
        found = Solution.of((steps.x, steps.change, n_iter, status), "picard")
    else:
        spent = 0 if steps is None else steps.taken
        found = _swept(A, slopes, g, act, replace(s, max_iter=s.max_iter - spent))
        found.n_iter.add_(spent)
    if bad is not None and bool(bad.any()):
        mark_not_finite(bad, *found[:4])
        found = Solution.of(found[:4], found.method)
    return found


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
            return Solution.of(_direct(A, slopes, g, s.tol, s.max_iter), method)
        return _swept(A, slopes, g, act, s)
    if method == "picard" and s.solver == "auto" and compiled.supports(A, act):
        return _stepped(A, x, g, act, s)
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


def _truncated(A: Tensor, b: Tensor | None, x: Tensor, act: Activation, g: Tensor, backward: str) -> Tensor:
    if act.componentwise:
        slopes = act.derivative_at_value(x) if b is None else act.derivative(product(x, A, b))
        jacobian = lambda w: slopes * w
    else:
        z = product(x, A, b)
        jacobian = lambda w: act.vjp(z, w)
    if backward == "jfb":
        return jacobian(g)
    w = PHANTOM_DAMPING * g
    for _ in range(PHANTOM_STEPS - 1):
        w = PHANTOM_DAMPING * g + (1 - PHANTOM_DAMPING) * w + PHANTOM_DAMPING * transposed_product(jacobian(w), A)
    return jacobian(w)


def _steps_of_adjoint(
    A: Tensor, b: Tensor, x: Tensor, act: Activation, s: SolverSettings, damping: Tensor | None
) -> Tensor:
    """Steps that the adjoint iteration at x takes to reach tol, for a cotangent in general position; 0 where it does
    not."""
    g = torch.rand(A.shape[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x) + 0.5
    z = product(x, A, b)
    slopes = act.derivative(z) if act.componentwise else None
    adjoint = AdjointMap(A, g.expand_as(x), slopes, z, act, s.tol)
    found = picard(adjoint, torch.zeros_like(x), tol=s.tol, max_iter=s.max_iter, damping=damping, check_every=1)
    return torch.where(found.status == CONVERGED, found.n_iter, 0)


def _unrolled(A: Tensor, b: Tensor, act: Activation, s: SolverSettings, x0: Tensor | None) -> Solution:
    """Picard under autograd, sample by sample: steps up to convergence, then those that the derivative needs."""
    check_finite(A.detach())
    damping = damping_of(A, act) if s.solver == "auto" else None
    bad = mask_not_finite(b.detach(), x0)[0]
    if bool(bad.any()):  # rows of zeros: a NaN would enter the gradient of the others
        b = b.masked_fill(bad[:, None], 0)
        x0 = None if x0 is None else x0.masked_fill(bad[:, None], 0)
    x = torch.zeros_like(b) if x0 is None else x0.detach()
    status = torch.full((b.shape[0],), MAX_ITER, dtype=torch.int8, device=b.device)
    status[bad] = NOT_FINITE
    n_iter = torch.zeros(b.shape[0], dtype=torch.int32, device=b.device)
    residual = b.new_full((b.shape[0],), float("nan")).detach()
    live = ~bad

    def advance(x: Tensor, image: Tensor) -> Tensor:
        return image if damping is None else x + damping * (image - x)

    def measure(x: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        change = row_max((image - x).detach())
        return change, row_max(x.detach()) if s.relative else torch.ones_like(change)

    for k in range(1, s.max_iter + 2):
        image = act(product(x, A, b))
        if k > 1:
            change, scale = measure(x, image)
            lost = ~torch.isfinite(change)
            ok = ~lost & (change <= s.tol * scale)
            done = live & (ok | lost) if k <= s.max_iter else live
            status = torch.where(
                done, torch.where(ok, CONVERGED, torch.where(lost, DIVERGED, MAX_ITER)).to(torch.int8), status
            )
            residual = torch.where(done, scaled_residual(change, scale), residual)
            n_iter = torch.where(done, k - 1, n_iter).to(torch.int32)
            live = live & ~done
            if not bool(live.any()):
                break
        x = torch.where(live[:, None], advance(x, image), x)
    if torch.is_grad_enabled() and (A.requires_grad or b.requires_grad) and b.shape[0]:
        solved = status == CONVERGED
        with torch.no_grad():
            more = _steps_of_adjoint(
                A.detach(), b.detach(), x.detach().masked_fill(~solved[:, None], 0), act, s, damping
            )
        more = torch.where(solved, torch.maximum(more, n_iter), 0)
        for k in range(int(more.max())):
            x = torch.where((more > k)[:, None], advance(x, act(product(x, A, b))), x)
        with torch.no_grad():
            residual = torch.where(solved, scaled_residual(*measure(x, act(product(x, A, b)))), residual)
    x = torch.where(bad[:, None], float("nan"), x)
    return Solution.of((x, residual, n_iter, status), "picard" if damping is None else "damped_picard")


def _jacobian(A: Tensor, x: Tensor, b: Tensor | None, act: Activation) -> Tensor:
    """J (N, n, n); b None where x is phi of something."""
    if act.componentwise:
        return torch.diag_embed(act.derivative_at_value(x) if b is None else act.derivative(product(x, A, b)))
    z = product(x, A, b)
    eye = torch.eye(act.n, dtype=x.dtype, device=x.device)
    return torch.stack([act.vjp(z, row.expand_as(z)) for row in eye], dim=1)


def state_tangent(
    A: Float[Tensor, "n n"],
    x: Float[Tensor, "N n"],
    b: Float[Tensor, "N n"] | None,
    act: Activation,
    change: Float[Tensor, "N n"],
) -> Float[Tensor, "N n"]:
    """dx (N, n) for change = dA x + db; NaN for a sample without a finite state."""
    N, n = x.shape
    dense = A if A.layout is torch.strided else A.to_dense()
    eye = torch.eye(n, dtype=x.dtype, device=x.device)
    parts, step = [], max(1, ENTRIES // (n * n))
    for at in range(0, N, step):
        rows = slice(at, at + step)
        J = _jacobian(A, x[rows], None if b is None else b[rows], act)
        parts.append(torch.linalg.solve(eye - J @ dense, (J @ change[rows].unsqueeze(-1))).squeeze(-1))
    dx = torch.cat(parts) if parts else torch.zeros_like(x)
    return torch.where(torch.isfinite(x).all(1, keepdim=True), dx, float("nan"))
