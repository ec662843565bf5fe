"""Gradients through an equilibrium.

With x = phi(A x + b) and J = diag(phi'(z)), a cotangent g of x gives

    implicit   v = J' (A' v + g)                                  exact (implicit function theorem)
    jfb        v = J' g                                           one differentiated step (biased)
    phantom    v = J' w, w = tau sum_{i<k} ((1 - tau) I + tau A' J')^i g      k damped steps of the Neumann series
    unroll     autograd through every Picard step. The derivative of an iterate lags behind its value (A = 0 is exact
               after one step, whose derivative in A is 0), so that steps go on after convergence: as many as it took,
               or as the adjoint iteration needs to reach tol, whichever is more

and then dL/dA = v x', dL/db = v (summed over the samples for A). In forward mode the tangent is exact whatever
`backward` says. Transforms of torch.func see one function with its own rule for vmap: samples that are
mapped over join the batch, and each A of several is solved by itself.

Source:
    Tsai (2024), section 5.2; JFB: Fung et al. (2022); phantom gradient: Geng et al. (2021), unrolled form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium.convergence import CONVERGED
from implicit_models.equilibrium.derivatives import _truncated, _unrolled, solve_adjoint, state_tangent
from implicit_models.equilibrium.settings import SolverSettings, cached_settings
from implicit_models.equilibrium.solve import (
    NOT_AN_IMAGE,
    EquilibriumResult,
    Solution,
    automatic_plan,
    check_problem,
    report_if_failed,
    result_of,
    solve_state,
)
from implicit_models.equilibrium.triangular import TriangularPlan, triangular_plan
from implicit_models.matrices import product
from implicit_models.projection import transformed

ONCE = (
    "the implicit gradient is differentiable once; use backward='unroll' for second derivatives, or differentiate in"
    " forward mode first: torch.func.jacrev(torch.func.jacfwd(f))"
)


def _batched(t: Tensor | None) -> bool:
    """Whether a transform of torch.func maps over a dimension of the tensor."""
    inside = torch._C._functorch
    while t is not None and inside.is_functorch_wrapped_tensor(t):
        if inside.is_batchedtensor(t):
            return True
        t = inside.get_unwrapped(t)
    return False


def _folded(t: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """(V, N, n) as (V N, n): samples that `vmap` maps over are samples like others. dim: of V, None to repeat."""
    if t is None:
        return None
    t = t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
    return t.reshape(size * t.shape[1], t.shape[2])


def _picked(t: Any, dim: int | None, v: int) -> Any:
    return t if dim is None else t.select(dim, v)


class _Call:
    """What one call carries beside its tensors, and the solution it leaves: one argument costs less than five.

    blame: see `differentiable_solve`. constant: a sparse A within torch.func, where the argument A is then None.
    """

    __slots__ = ("act", "blame", "constant", "plan", "settings", "solution")
    solution: Solution

    def __init__(
        self,
        act: Activation,
        settings: SolverSettings,
        plan: TriangularPlan | None,
        blame: Callable[[], None] | None = None,
        constant: Tensor | None = None,
    ):
        self.act, self.settings, self.plan, self.blame, self.constant = act, settings, plan, blame, constant

    def join(self, parts: list[_Call]) -> None:
        """Leave the solutions of several A as one."""
        found = [part.solution for part in parts]
        methods = {f.method for f in found}
        method = found[0].method if len(methods) == 1 else "gauss_seidel"
        if len(methods) > 1 and methods & set(NOT_AN_IMAGE):
            method = "damped_picard"  # slopes from the pre-activation are right for all
        elif len(methods) > 1 and not methods <= {"gauss_seidel", "newton", "triangular"}:
            method = "picard"
        joined = [torch.cat([f[k] for f in found]) for k in range(4)]  # type: ignore[misc]
        self.solution = Solution(*joined, method, any(f.failed for f in found))  # type: ignore[call-arg, arg-type]


class _Equilibrium(torch.autograd.Function):
    @staticmethod
    def forward(A, b, x0, call):
        act, settings, A = call.act, call.settings, call.constant if A is None else A
        if call.plan is None:
            call.plan = automatic_plan(A, act, settings)
        call.solution = solve_state(A, b, act, settings, x0, call.plan)
        if call.solution.failed and call.blame is not None:
            call.blame()
        report_if_failed("equilibrium", A, act, call.solution, settings)
        return call.solution.x

    @staticmethod
    def setup_context(ctx, inputs, x):
        A, b, _, call = inputs
        act, solution = call.act, call.solution
        # not the call itself: it holds x, which holds this context
        plan = call.plan or solution.plan
        ctx.adjoint = _Adjoint(act, call.settings, solution.method, plan, solution.failed, call.constant)
        image = act.componentwise and solution.method not in NOT_AN_IMAGE and solution.method != "triangular"
        saved = A, x, None if image else b
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx, g):
        A, x, b = ctx.saved_tensors
        if torch._C._functorch.is_legacy_batchedtensor(g):
            raise RuntimeError(
                "the implicit gradient takes one cotangent a call: is_grads_batched and vectorize=True are served by"
                " torch.func.jacrev, or torch.func.vmap over torch.func.vjp"
            )
        # with create_graph=True, as within torch.func: values now, an error if anyone differentiates them
        solve = _AdjointSolve.apply if torch.is_grad_enabled() or transformed() else _AdjointSolve.forward
        v = solve(A, x, b, g, ctx.adjoint)
        grad_A = None
        if ctx.needs_input_grad[0]:
            if (
                ctx.adjoint.failed
            ):  # a sample without cotangent adds nothing, whatever its state is: 0 NaN must not enter
                x = x.masked_fill((g == 0).all(1, keepdim=True), 0)
            grad_A = v.t() @ x
        return grad_A, v if ctx.needs_input_grad[1] else None, None, None

    @staticmethod
    def jvp(ctx, dA, db, *_):
        A, x, b = ctx.saved_tensors
        if A is None:
            with torch._C._DisableFuncTorch():  # whose operations a sparse tensor does not enter
                A = ctx.adjoint.constant.to_dense()
        stack = torch._C._functorch.get_interpreter_stack() or []
        if sum(level.key() == torch._C._functorch.TransformType.Jvp for level in stack) > 1:
            raise RuntimeError(  # torch would drop the outer tangent in silence
                "an equilibrium has no forward over forward mode: use torch.func.jacrev(torch.func.jacfwd(f)) for"
                " second derivatives"
            )
        change = torch.zeros_like(x) if db is None else db
        return state_tangent(A, x, b, ctx.adjoint.act, change if dA is None else product(x, dA, change))

    @staticmethod
    def vmap(info, in_dims, A, b, x0, call):
        size, (of_A, of_b, of_x0, _) = info.batch_size, in_dims
        if of_A is None:
            x = _Equilibrium.apply(A, _folded(b, of_b, size), _folded(x0, of_x0, size), call)
            return x.reshape(size, x.shape[0] // size, x.shape[1]), 0
        calls = [_Call(call.act, call.settings, call.plan) for _ in range(size)]
        parts = [
            _Equilibrium.apply(_picked(A, of_A, v), _picked(b, of_b, v), _picked(x0, of_x0, v), part)
            for v, part in enumerate(calls)
        ]
        call.join(calls)
        return torch.stack(parts), 0


# torch.func's own part of `apply` left out: it reads the signature at every call, a third of the time of a small solve
_apply = super(torch.autograd.Function, _Equilibrium).apply


class _Adjoint(NamedTuple):
    """How the adjoint of a solution is found."""

    act: Activation
    settings: SolverSettings
    method: str
    plan: TriangularPlan | None
    failed: bool
    constant: Tensor | None = None


class _AdjointSolve(torch.autograd.Function):
    """v = J' (A' v + g), or what `backward` puts in its place."""

    @staticmethod
    def forward(A, x, b, g, how):
        act, s, A = how.act, how.settings, how.constant if A is None else A
        if s.backward != "implicit":
            v = _truncated(A, b, x, act, g, s.backward)
            return v.masked_fill((g == 0).all(1, keepdim=True), 0) if how.failed else v
        plan = triangular_plan(A, act) if how.method == "triangular" and how.plan is None else how.plan
        solution = solve_adjoint(A, b, x, act, g, s, how.method, plan)
        if solution.failed:
            solution = _settle(solution, g)
            report_if_failed("adjoint equilibrium (gradient)", A, act, solution, s)
        return solution.x

    @staticmethod
    def setup_context(ctx, inputs, v):
        pass

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(ONCE)

    @staticmethod
    def jvp(ctx, *_):
        raise RuntimeError(ONCE)

    @staticmethod
    def vmap(info, in_dims, A, x, b, g, how):
        size, (of_A, *dims, _) = info.batch_size, in_dims
        if of_A is None:
            v = _AdjointSolve.apply(A, *(_folded(t, dim, size) for t, dim in zip((x, b, g), dims, strict=True)), how)
            return v.reshape(size, v.shape[0] // size, v.shape[1]), 0
        parts = [
            _AdjointSolve.apply(
                _picked(A, of_A, v), *(_picked(t, dim, v) for t, dim in zip((x, b, g), dims, strict=True)), how
            )
            for v in range(size)
        ]
        return torch.stack(parts), 0


class _FirstDerivative(torch.autograd.Function):
    """Identity on a gradient, joined to what the gradient depends on, so that a second derivative cannot be missed."""

    @staticmethod
    def forward(ctx, gradient, *dependencies):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, _):
        raise RuntimeError(ONCE)


def _settle(solution: Solution, g: Tensor) -> Solution:
    """Samples with a zero cotangent have a zero adjoint, whatever their state is."""
    silent = (g == 0).all(1)
    solution.x[silent], solution.residual[silent], solution.status[silent] = 0, 0, CONVERGED
    return Solution.of(solution[:4], solution.method)


def differentiable_solve(
    A: Tensor,
    b: Tensor,
    act: Activation,
    s: SolverSettings,
    x0: Tensor | None = None,
    plan: TriangularPlan | None = None,
    blame: Callable[[], None] | None = None,
) -> Solution:
    """Checked input in, solution with x attached to the graph out: the hot path of the layers.

    blame: called before a failure is reported, to raise an error that says more.
    """
    if s.backward == "unroll":
        if _batched(A) or _batched(b):
            raise RuntimeError(
                "backward='unroll' takes as many steps as the values need, which torch.func.vmap cannot know: use"
                " backward='implicit' under vmap, jacrev and jacfwd"
            )
        solution = _unrolled(A, b, act, s, x0)
        if solution.failed and blame is not None:
            blame()
        report_if_failed("equilibrium", A, act, solution, s)
        return solution
    start = None if x0 is None else x0.detach()
    if not transformed():
        call = _Call(act, s, plan, blame)
        x = _apply(A, b, start, call)
    else:  # torch.func does not carry sparse tensors: a constant goes beside it
        sparse = A.layout is not torch.strided
        call = _Call(act, s, plan, constant=A if sparse else None)
        x = _Equilibrium.apply(None if sparse else A, b, start, call)
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
        A: (n, n); a sparse CSR matrix gets no gradient.
        b: (N, n).
        activation, solver, tol, tol_mode, max_iter, x0, on_failure: as in `solve_equilibrium`.
        backward: "implicit" | "jfb" | "phantom" | "unroll"; the adjoint equation is solved to tol relative to the
            larger of max|g| and max|v| of each sample. Second derivatives exist for "unroll" only; the others raise.

    Returns:
        x (N, n).
    Raises:
        as `solve_equilibrium`; a backward pass that does not converge warns or raises `NotConverged` as well.

    Source:
        Tsai (2024), section 5.2.
    """
    s = cached_settings(solver, tol, tol_mode, max_iter, backward, on_failure)
    check_problem(A, b, x0)
    act = resolve_activation(activation, A.shape[0])
    return differentiable_solve(A, b, act, s, x0).x


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
    found = differentiable_solve(A, b, act, s, x0)
    return differentiable_result(A, b, act, s, found)
