"""Solve x = phi(A x + b) for a batch: checks, choice of the method, one result per sample.

The automatic choice:

    sparse A                    substitution if it does not feed back (triangular.py), else damped Picard
    softmax or max-pool blocks  the same for a dense triangular A, else Picard
    GPU, half precision         damped Picard
    dense on the CPU            what `costs` says is cheapest: Picard steps of the whole batch in BLAS where the map
                                contracts fast (`whole_batch`), else Gauss-Seidel from there: compiled, the diagonal in
                                closed form, extrapolated. A sample in single precision that is still slow is solved in
                                double; one that is piecewise linear and slow there goes on to Newton from its iterate
                                where that costs less than the sweeps left, as it needs the activation pattern only

Source:
    Tsai (2024), section 2.3 (Picard), Remark 3 (substitution).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium import compiled, whole_batch
from implicit_models.equilibrium.anderson import anderson
from implicit_models.equilibrium.convergence import (
    CONVERGED,
    DIVERGED,
    MAX_ITER,
    NOT_FINITE,
    SINGULAR,
    equilibrium_residual,
    report_failure,
    row_max,
)
from implicit_models.equilibrium.costs import remaining, solve_cost, sweep_cost
from implicit_models.equilibrium.picard import StateMap, mark_not_finite, mask_not_finite, picard
from implicit_models.equilibrium.result import EquilibriumResult, Solution, result_of, rounding_floor
from implicit_models.equilibrium.settings import SolverSettings, cached_settings
from implicit_models.equilibrium.triangular import TriangularPlan, substitute, triangular_plan
from implicit_models.matrices import check_finite, diagonal

NOT_AN_IMAGE = ("anderson", "damped_picard")  # their x is a mixture, not phi of something: slopes need z, not x
SWEEPS_BEFORE_NEWTON = 60  # random A takes about 15, stiff A about 40
SWEEPS_IN_SINGLE = 16  # then rounding in the slow modes costs more sweeps than double precision takes in all
NEWTON_STEPS, USUAL_NEWTON_STEPS = 40, 3
LEAST_ITER = 8  # of max_iter, for steps of the whole batch before sweeps


def check_problem(A: Any, b: Any, x0: Any = None) -> None:
    """Raise TypeError or ValueError naming the shape, dtype or device that does not fit."""
    for name, t in (("A", A), ("b", b)) if x0 is None else (("A", A), ("b", b), ("x0", x0)):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(t).__name__}")
        if not t.dtype.is_floating_point:
            raise TypeError(f"{name} must have a floating dtype, got {t.dtype}")
        if t.ndim != 2:
            raise ValueError(f"{name} must have 2 dimensions, got shape {tuple(t.shape)}")
        if t.dtype != A.dtype or t.device != A.device:
            raise TypeError(f"{name} is {t.dtype} on {t.device}, but A is {A.dtype} on {A.device}")
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A must be square, got shape {tuple(A.shape)}")
    if A.shape[0] == 0:
        raise ValueError(f"A must have at least one state, got shape {tuple(A.shape)}")
    if b.shape[1] != A.shape[0]:
        raise ValueError(f"b must have {A.shape[0]} columns, one per state, got shape {tuple(b.shape)}")
    if x0 is not None and x0.shape != b.shape:
        raise ValueError(f"x0 must have the shape of b, {tuple(b.shape)}, got {tuple(x0.shape)}")


def damping_of(A: Tensor, act: Activation) -> Tensor | None:
    """Step sizes that a negative self-loop needs, None when plain Picard is safe or nothing would change."""
    gamma = torch.as_tensor(act.lipschitz.copy(), dtype=A.dtype, device=A.device)
    loop = gamma * (-diagonal(A.detach())).clamp_min(0)
    if not bool((loop > 0).any()):
        return None
    if A.layout is torch.strided and bool((gamma * A.detach().abs().sum(1)).max() < 1):
        return None
    return 1 / (1 + loop)


def _iterate(
    method: str,
    A: Tensor,
    b: Tensor,
    act: Activation,
    x0: Tensor | None,
    s: SolverSettings,
    max_iter: int,
    damped: bool,
) -> Solution:
    """Picard or Anderson in torch; the name of what ran comes last."""
    check_finite(A)  # tanh(inf) = 1 would pass for a solution
    damping = damping_of(A, act) if damped else None
    bad, (b, start) = mask_not_finite(b, x0)
    problem = StateMap(A, b, act, s.relative)
    start = torch.zeros_like(b) if start is None else start
    if method == "anderson":
        record = anderson(problem, start, tol=s.tol, max_iter=max_iter)
    else:
        record = picard(problem, start, tol=s.tol, max_iter=max_iter, damping=damping, warm=x0 is not None)
        method = "picard" if damping is None else "damped_picard"
    if bool(bad.any()):
        mark_not_finite(bad, record.x, record.residual, record.n_iter, record.status)
    return Solution.of((record.x, record.residual, record.n_iter, record.status), method)


def automatic_plan(A: Tensor, act: Activation, s: SolverSettings) -> TriangularPlan | None:
    """The substitution that "auto" prefers: any sparse A without feedback; dense and triangular for block maps."""
    if s.solver != "auto" or (A.layout is torch.strided and act.componentwise):
        return None
    if A.layout is torch.strided and bool(A.detach().tril(-1).any()) and bool(A.detach().triu(1).any()):
        return None
    return triangular_plan(A, act)


def improve(found: tuple[Tensor, ...], rows: Tensor, other: tuple[Tensor, ...]) -> None:
    """Write the second attempt over the given rows, counting both; a worse failure does not replace a better one."""
    x, residual, n_iter, status = found
    better = (other[3] == CONVERGED) | (other[1] < residual[rows]) | ~torch.isfinite(residual[rows])
    n_iter[rows] += other[2]
    rows = rows[better]
    x[rows], residual[rows], status[rows] = other[0][better], other[1][better], other[3][better]


def solve_state(
    A: Tensor,
    b: Tensor,
    act: Activation,
    s: SolverSettings,
    x0: Tensor | None = None,
    plan: TriangularPlan | None = None,
) -> Solution:
    """Equilibrium by the method the settings ask for; no reporting, no gradient. plan: from `automatic_plan`."""
    if s.solver != "auto":
        if s.solver in ("gauss_seidel", "newton"):
            if not compiled.supports(A, act):
                raise ValueError(
                    f"solver {s.solver!r} is compiled for dense float32 and float64 matrices on the CPU with"
                    f" componentwise activations; got {A.layout}, {A.dtype}, {A.device}, {act!r}: use 'picard',"
                    " 'anderson' or 'auto'"
                )
            if s.solver == "newton" and not act.piecewise_linear:
                raise ValueError(
                    f"solver 'newton' needs piecewise-linear activations (relu, leaky_relu, identity), got {act!r}"
                )
            return Solution.of(compiled.solve(s.solver, A, b, act, x0, s.tol, s.relative, s.max_iter), s.solver)
        return _iterate(s.solver, A, b, act, x0, s, s.max_iter, damped=False)

    if not compiled.supports(A, act):
        if plan is None:
            return _iterate("picard", A, b, act, x0, s, s.max_iter, damped=True)
        return _substituted(plan, A, b, act, s)

    N, spent, bad, given = b.shape[0], 0, None, b
    if s.max_iter >= LEAST_ITER and N and whole_batch.pays(A, N, act):
        if not math.isfinite(float(b.sum() if x0 is None else b.sum() + x0.sum())):
            bad, (b, x0) = mask_not_finite(b, x0)
        steps = whole_batch.state_steps(A, b, act, x0, s.tol, s.relative, s.max_iter)
        if steps.done or (steps.nearer and steps.taken >= s.max_iter):
            status = torch.full((N,), CONVERGED, dtype=torch.int8)
            if not steps.done:
                status[~(steps.change <= s.tol)] = MAX_ITER  # NaN too
            values = steps.x, steps.change, torch.full((N,), steps.taken, dtype=torch.int32), status
            if bad is not None:
                mark_not_finite(bad, *values)
            return Solution.of(values, "picard")
        b, spent = given, steps.taken if steps.nearer else 0
        x0 = steps.x if steps.nearer else x0
        if bad is not None:
            x0 = None if x0 is None else x0.masked_fill(bad[:, None], 0)
    return _swept(A, b, act, s, x0, spent)


def _swept(A: Tensor, b: Tensor, act: Activation, s: SolverSettings, x0: Tensor | None, spent: int) -> Solution:
    """Compiled sweeps, then for what is slow: substitution, double precision, Newton. spent: of max_iter."""
    method, most = "gauss_seidel", s.max_iter - spent
    single = b.dtype == torch.float32
    budget = min(most, SWEEPS_IN_SINGLE if single else SWEEPS_BEFORE_NEWTON)
    found = Solution.of(compiled.solve(method, A, b, act, x0, s.tol, s.relative, budget), method)
    if spent:
        found.n_iter.add_(spent)
        found.n_iter[found.status == NOT_FINITE] = 0
    slow = slow_samples(found, spent + budget) if found.failed else None
    # in single precision also those that rounding stopped: double precision has room for the tolerance
    rows = slow_samples(found, 0) if slow is not None and single else slow
    if slow is None or rows is None or not rows.numel():
        return found
    plan = triangular_plan(A, act) if slow.numel() else None  # A may be triangular in another order
    if plan is not None:
        return _substituted(plan, A, b, act, s)
    if budget == most:
        return found
    if single:
        # where some are slow, rounding may hide what is left of others from their own sums
        own = equilibrium_residual(A, b, found.x, act, tol_mode=s.tol_mode)
        hidden = torch.nonzero((found.status == CONVERGED) & (own > s.tol)).flatten()
        found.residual[hidden] = own[hidden]
        rows = torch.cat([rows, hidden])
        wide = _in_double(A, b[rows], act, s, _finite_start(found.x[rows]), most - budget)
        improve(found[:4], rows, wide[:4])
        return Solution.of(found[:4], method)
    left = most - budget
    reserved = min(NEWTON_STEPS, (left + 1) // 2) if act.piecewise_linear else 0  # each has its part of max_iter
    steps = {"newton": reserved, "gauss_seidel": left - reserved}
    if not newton_first(A, act, found.residual[rows], s.tol, budget, left):
        steps = dict(reversed(steps.items()))
    for second, limit in steps.items():
        rows = slow_samples(found, spent + budget)
        if not rows.numel():
            break
        if not limit:
            continue
        start = _finite_start(found.x[rows])
        improve(found[:4], rows, compiled.solve(second, A, b[rows], act, start, s.tol, s.relative, limit))
        if second == "newton" and 2 * rows.numel() > b.shape[0]:
            method = "newton"  # most samples were slow: the adjoint is best solved directly as well
    return Solution.of(found[:4], method)


def _finite_start(x: Tensor) -> Tensor | None:
    return x if bool(torch.isfinite(x).all()) else None


def _in_double(A: Tensor, b: Tensor, act: Activation, s: SolverSettings, x0: Tensor | None, most: int) -> Solution:
    """Samples in single precision whose sweeps are slow, solved in double precision and rounded.

    Rounding leaves some units in the last place; what is left of the tolerance is asked for. A sample is converged
    where the rounded state is, to the tolerance or to `rounding_floor`.
    """
    tight = replace(s, tol=s.tol / 4, max_iter=most)
    start = None if x0 is None else x0.double()
    wide = _swept(A.detach().double(), b.detach().double(), act, tight, start, 0)
    x = wide.x.to(b.dtype)
    residual = equilibrium_residual(A, b, x, act, tol_mode=s.tol_mode)
    good = residual <= s.tol
    if not bool(good.all()):
        good |= (wide.status == CONVERGED) & (residual <= rounding_floor(A, b, x, act, s.relative))
    status = torch.where(good, CONVERGED, torch.where(wide.status == CONVERGED, MAX_ITER, wide.status))
    return Solution.of((x, residual, wide.n_iter, status.to(torch.int8)), wide.method)


def newton_first(A: Tensor, act: Activation, residual: Tensor, tol: float, sweeps: int, left: int) -> bool:
    """Whether linear solves are the cheaper way on for samples whose residual is what so many sweeps left.

    Sweeps are extrapolated at the rate that the median residual tells, from 1; those that max_iter forbids cannot end.
    """
    if not act.piecewise_linear:
        return False
    typical = float(residual.median())
    rate = typical ** (1 / sweeps) if 0 < typical < 1 else 1.0
    more = remaining(typical, tol, rate)
    n, dtype = A.shape[0], A.dtype
    return more > left or USUAL_NEWTON_STEPS * solve_cost(n, dtype) < more * sweep_cost(n, 1, dtype, False)


def slow_samples(found: Solution, budget: int) -> Tensor:
    """Samples that more work may solve: not those with bad input, nor those that rounding stopped before the budget."""
    worth = (
        (found.status == MAX_ITER) & (found.n_iter >= budget) | (found.status == DIVERGED) | (found.status == SINGULAR)
    )
    return torch.nonzero(worth).flatten()


def _substituted(plan: TriangularPlan, A: Tensor, b: Tensor, act: Activation, s: SolverSettings) -> Solution:
    bad, (b,) = mask_not_finite(b)
    x = substitute(plan, b)
    residual = equilibrium_residual(A, b, x, act, tol_mode=s.tol_mode)
    n_iter = torch.full((b.shape[0],), plan.depth, dtype=torch.int32, device=b.device)
    status = torch.where(residual <= s.tol, CONVERGED, MAX_ITER).to(torch.int8)
    if bool(bad.any()):
        mark_not_finite(bad, x, residual, n_iter, status)
    return Solution.of((x, residual, n_iter, status), "triangular")._replace(plan=plan)


def solve_equilibrium(
    A: Float[Tensor, "n n"],
    b: Float[Tensor, "N n"],
    activation: ActivationSpec | Activation = "relu",
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    tol_mode: str = "relative",
    max_iter: int = 500,
    x0: Float[Tensor, "N n"] | None = None,
    on_failure: str = "warn",
) -> EquilibriumResult:
    """Equilibrium x = phi(A x + b) of every sample, without gradient.

    Mathematics: a sample stops when max_i |phi(A x + b) - x|_i <= tol max_i |x_i| (relative) or <= tol (absolute).

    Args:
        A: (n, n) dense, or sparse CSR.
        b: (N, n), one sample a row.
        activation: name, list of (name, size), or `Activation`.
        solver: "auto" | "picard" | "anderson" | "gauss_seidel" | "newton".
        tol, tol_mode: see above.
        max_iter: evaluations of the map per sample.
        x0: (N, n) start; zero if None.
        on_failure: "warn" | "raise" | "ignore".

    Returns:
        `EquilibriumResult`; its residual is computed afresh from the returned x, and `converged` follows it: residual
        <= tol, or <= `rounding_floor` (4 eps (|A| |x| + |b|)) where the solver stopped at tol; `reason` says which
        samples.

    Raises:
        TypeError, ValueError: for what does not fit; `NotConverged` with on_failure="raise".

    Source:
        Tsai (2024), Theorem 1, (2.8).
    """
    s = cached_settings(solver, tol, tol_mode, max_iter, "implicit", on_failure)
    check_problem(A, b, x0)
    act = resolve_activation(activation, A.shape[0])
    with torch.no_grad():
        check_finite(A)
        found = solve_state(A, b, act, s, x0, automatic_plan(A, act, s))
        result, found, _ = result_of(A, b, found, act, s)
        report_if_failed("equilibrium", A, act, found, s)
    return result


def report_if_failed(what: str, A: Tensor, act: Activation, found: Solution, s: SolverSettings) -> None:
    """`report_failure` for the samples of a solution that did not converge."""
    if found.failed:
        check_finite(A)
        scale = 1.0 if s.relative or not found.x.numel() else float(torch.nan_to_num(row_max(found.x)).max())
        report_failure(
            what,
            A,
            act,
            found.status,
            found.residual,
            tol=s.tol,
            relative=s.relative,
            max_iter=s.max_iter,
            on_failure=s.on_failure,
            scale=scale,
            settings=s,
        )
