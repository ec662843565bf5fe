"""Gradients through an equilibrium.

With x = phi(A x + b) and J = diag(phi'(z)), a cotangent g of x gives

    implicit   v = J' (A' v + g)                                  exact (implicit function theorem)
    jfb        v = J' g                                           one differentiated step (biased)
    phantom    v = J' w, w = tau sum_{i<k} ((1 - tau) I + tau A' J')^i g      k damped steps of the Neumann series
    unroll     autograd through every Picard step. The derivative of an iterate lags behind its value (A = 0 is exact
    after
               one step, whose derivative in A is 0), so that steps go on after convergence: as many as it took, or as
               the adjoint iteration needs to reach tol, whichever is more

and then dL/dA = v x', dL/db = v (summed over the samples for A).

Source: Tsai (2024), section 5.2; JFB: Fung et al. (2022); phantom gradient: Geng et al. (2021), unrolled form.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium.adjoint import solve_adjoint
from implicit_models.equilibrium.convergence import CONVERGED, DIVERGED, MAX_ITER, NOT_FINITE, row_max, scaled_residual
from implicit_models.equilibrium.picard import AdjointMap, mask_not_finite, picard
from implicit_models.equilibrium.settings import SolverSettings, cached_settings
from implicit_models.equilibrium.solve import (
    NOT_AN_IMAGE,
    EquilibriumResult,
    Solution,
    automatic_plan,
    check_problem,
    damping_of,
    report_if_failed,
    result_of,
    solve_state,
)
from implicit_models.equilibrium.triangular import TriangularPlan
from implicit_models.matrices import check_finite, product, transposed_product

PHANTOM_STEPS = 5
PHANTOM_DAMPING = 0.5


class _Call:
    """What one call carries beside its tensors, and the solution it leaves: one argument costs less than five."""

    __slots__ = ("act", "plan", "settings", "solution", "x0")
    solution: Solution

    def __init__(self, x0: Tensor | None, act: Activation, settings: SolverSettings, plan: TriangularPlan | None):
        self.x0, self.act, self.settings, self.plan = x0, act, settings, plan


class _Equilibrium(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, b, call):
        act, settings, plan = call.act, call.settings, call.plan
        solution = solve_state(A, b, act, settings, call.x0, plan)
        report_if_failed("equilibrium", A, act, solution, settings)
        call.solution = solution
        ctx.failed = solution.failed
        ctx.act, ctx.settings, ctx.plan, ctx.method = act, settings, plan or solution.plan, solution.method
        image = act.componentwise and solution.method not in NOT_AN_IMAGE and solution.method != "triangular"
        ctx.save_for_backward(A, solution.x, None if image else b)
        return solution.x

    @staticmethod
    def backward(ctx, g):
        A, x, b = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: values now, an error if anyone differentiates them
            with torch.no_grad():
                grad_A, v = _Equilibrium._cotangents(ctx, A, x, b, g)
            if grad_A is not None:
                grad_A = _FirstDerivative.apply(grad_A, A, x, g)
            v = _FirstDerivative.apply(v, A, x, g)
        else:
            grad_A, v = _Equilibrium._cotangents(ctx, A, x, b, g)
        return grad_A, v if ctx.needs_input_grad[1] else None, None

    @staticmethod
    def _cotangents(ctx, A, x, b, g):
        act, s = ctx.act, ctx.settings
        if s.backward == "implicit":
            solution = solve_adjoint(A, b, x, act, g, s, ctx.method, ctx.plan)
            v = solution.x
            if solution.failed:
                solution = _settle(solution, g)
                report_if_failed("adjoint equilibrium (gradient)", A, act, solution, s)
        else:
            v = _truncated(A, b, x, act, g, s.backward)
            if ctx.failed:
                v = v.masked_fill((g == 0).all(1, keepdim=True), 0)
        grad_A = None
        if ctx.needs_input_grad[0]:
            if ctx.failed:  # a sample without cotangent adds nothing, whatever its state is: 0 times NaN must not enter
                x = x.masked_fill((g == 0).all(1, keepdim=True), 0)
            grad_A = v.t() @ x
        return grad_A, v


class _FirstDerivative(torch.autograd.Function):
    """Identity on a gradient, joined to what the gradient depends on, so that a second derivative cannot be missed."""

    @staticmethod
    def forward(ctx, gradient, *dependencies):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError("the implicit gradient is differentiable once; use backward='unroll' for second derivatives")


def _settle(solution: Solution, g: Tensor) -> Solution:
    """Samples with a zero cotangent have a zero adjoint, whatever their state is."""
    silent = (g == 0).all(1)
    solution.x[silent], solution.residual[silent], solution.status[silent] = 0, 0, CONVERGED
    return Solution.of(solution[:4], solution.method)


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


def differentiable_solve(
    A: Tensor,
    b: Tensor,
    act: Activation,
    s: SolverSettings,
    x0: Tensor | None = None,
    plan: TriangularPlan | None = None,
) -> Solution:
    """Checked input in, solution with x attached to the graph out: the hot path of the layers."""
    if s.backward == "unroll":
        solution = _unrolled(A, b, act, s, x0)
        report_if_failed("equilibrium", A, act, solution, s)
        return solution
    call = _Call(None if x0 is None else x0.detach(), act, s, plan)
    x = _Equilibrium.apply(A, b, call)
    return call.solution._replace(x=x)


def differentiable_result(
    A: Tensor, b: Tensor, act: Activation, s: SolverSettings, found: Solution
) -> EquilibriumResult:
    """Result of a `differentiable_solve`, under the rule of `solve_equilibrium`; what that solve reported is not said
    again."""
    result, found, above = result_of(A, b, found, act, s)
    if above:
        report_if_failed("equilibrium", A, act, found, s)
    return result


def equilibrium(
    A: Float[Tensor, "n n"],
    b: Float[Tensor, "N n"],
    activation: ActivationSpec | Activation = "relu",
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    tol_mode: str = "relative",
    max_iter: int = 500,
    backward: str = "implicit",
    x0: Float[Tensor, "N n"] | None = None,
    on_failure: str = "warn",
) -> Float[Tensor, "N n"]:
    """Equilibrium x = phi(A x + b), differentiable in A and b.

    Args:
        A: (n, n); a sparse CSR matrix gets no gradient. b: (N, n).
        activation, solver, tol, tol_mode, max_iter, x0, on_failure: as in `solve_equilibrium`.
        backward: "implicit" | "jfb" | "phantom" | "unroll"; the adjoint equation is solved to tol relative to the
            larger of max|g| and max|v| of each sample. Second derivatives exist for "unroll" only; the others raise.
    Returns: x (N, n).
    Raises: as `solve_equilibrium`; a backward pass that does not converge warns or raises `NotConverged` as well.
    Source: Tsai (2024), section 5.2.
    """
    s = cached_settings(solver, tol, tol_mode, max_iter, backward, on_failure)
    check_problem(A, b, x0)
    act = resolve_activation(activation, A.shape[0])
    return differentiable_solve(A, b, act, s, x0, automatic_plan(A, act, s)).x


def equilibrium_result(
    A: Float[Tensor, "n n"],
    b: Float[Tensor, "N n"],
    activation: ActivationSpec | Activation = "relu",
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    tol_mode: str = "relative",
    max_iter: int = 500,
    backward: str = "implicit",
    x0: Float[Tensor, "N n"] | None = None,
    on_failure: str = "warn",
) -> EquilibriumResult:
    """`equilibrium`, with residual, iterations and convergence of every sample; x carries the gradient."""
    s = cached_settings(solver, tol, tol_mode, max_iter, backward, on_failure)
    check_problem(A, b, x0)
    act = resolve_activation(activation, A.shape[0])
    found = differentiable_solve(A, b, act, s, x0, automatic_plan(A, act, s))
    return differentiable_result(A, b, act, s, found)
