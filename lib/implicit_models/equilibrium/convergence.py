"""What convergence means, and how its absence is reported."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.matrices import product
from implicit_models.status import report
from implicit_models.summaries import summary

# status of a sample, shared with the compiled kernels
CONVERGED, MAX_ITER, DIVERGED, NOT_FINITE, SINGULAR = range(5)
STATUS_TEXT = {
    CONVERGED: "converged",
    MAX_ITER: "stopped at max_iter",
    DIVERGED: "diverged",
    NOT_FINITE: "input not finite",
    SINGULAR: "singular system",
}


class NotConverged(UserWarning, RuntimeError):
    """Samples whose equilibrium or adjoint was not solved to the tolerance.

    A warning by default, an exception with on_failure="raise". `samples` holds the indices (largest residual first),
    `residual` theirs.
    """

    def __init__(self, message: str, samples: tuple[int, ...] = (), residual: tuple[float, ...] = ()):
        super().__init__(message)
        self.samples = samples
        self.residual = residual


@dataclass(frozen=True)
class SolveStatistics:
    """Per-sample figures of one solve, detached from the graph and from the state.

    n_iter (N,), residual (N,), status (N,) as in `EquilibriumResult`; solver: the method that ran.
    """

    n_iter: Int[Tensor, " N"]
    residual: Float[Tensor, " N"]
    status: Int[Tensor, " N"]
    solver: str

    def __repr__(self) -> str:
        return summary(self, "n_iter", "residual", "n_failed", "solver")

    @property
    def converged(self) -> Bool[Tensor, " N"]:
        return self.status == CONVERGED

    @property
    def mean_iter(self) -> float:
        return float(self.n_iter.double().mean()) if self.n_iter.numel() else 0.0

    @property
    def max_iter(self) -> int:
        return int(self.n_iter.max()) if self.n_iter.numel() else 0

    @property
    def max_residual(self) -> float:
        return float(self.residual.max()) if self.residual.numel() else 0.0

    @property
    def n_failed(self) -> int:
        return int((self.status != CONVERGED).sum())


def scaled_residual(change: Float[Tensor, " N"], scale: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """change / scale, and 0 where both are 0."""
    return torch.where(change == 0, change, change / scale)


def row_max(x: Float[Tensor, "N n"]) -> Float[Tensor, " N"]:
    """max_i |x_i| of every row; 0 for a state of size 0."""
    return x.abs().amax(1) if x.shape[1] else x.new_zeros(x.shape[0])


def equilibrium_residual(
    A: Float[Tensor, "n n"],
    b: Float[Tensor, "N n"],
    x: Float[Tensor, "N n"],
    activation: ActivationSpec | Activation = "relu",
    *,
    tol_mode: str = "relative",
) -> Float[Tensor, " N"]:
    """Residual max_i |phi(A x + b) - x|_i of each sample, divided by max_i |x_i| in relative mode.

    Args:
        A: (n, n) dense or sparse CSR.
        b, x: (N, n).
        tol_mode: "relative" | "absolute". The relative residual of x = 0 is 0 if the equation holds, else inf.

    Returns:
        (N,).
    """
    with torch.no_grad():
        act = resolve_activation(activation, x.shape[-1])
        change = row_max(act(product(x, A, b)) - x)
        return change if tol_mode == "absolute" else scaled_residual(change, row_max(x))


def _other_solvers(A: Tensor, act: Activation, settings: SolverSettings | None) -> str:
    """Advice on solvers that run on this problem and have not run yet, to end a sentence with."""
    if settings is None or settings.solver == "newton":
        return ""
    out = "" if settings.solver == "auto" else " or use solver='auto'"
    from implicit_models.equilibrium import compiled

    if settings.backward != "unroll" and act.piecewise_linear and compiled.supports(A, act):
        out += " or solver='newton'" if out else " or use solver='newton'"
    return out


def _causes(
    A: Tensor,
    act: Activation,
    status: np.ndarray,
    residual: np.ndarray,
    tol: float,
    relative: bool,
    max_iter: int,
    scale: float,
    settings: SolverSettings | None,
) -> str:
    """Likely causes, from cheap facts about A: its infinity norm, and a certificate when the state is small."""
    out = []
    if (status == NOT_FINITE).any():
        out.append("the input of these samples holds NaN or inf")
    dtype, eps, size = str(A.dtype).removeprefix("torch."), torch.finfo(A.dtype).eps, 1.0 if relative else scale
    floor = 4 * eps * size
    # the rounding of n products and sums; in half precision n eps would excuse anything
    rounding = max(min(A.shape[0] * eps, math.sqrt(eps)) * size, floor)
    stalled = (status == MAX_ITER) & (residual <= rounding)
    if tol < floor:
        unit = "relative" if relative else f"absolute, at states of size {scale:.1e}"
        out.append(f"tol={tol:g} ({unit}) is below what {dtype} resolves ({floor:.1e})")
    elif stalled.any():
        out.append(
            f"rounding: a residual of {residual[stalled].max():.1e} is within n eps = {rounding:.1e} of {dtype} for n ="
            f" {A.shape[0]} (raise tol or use a wider dtype)"
        )
    if ((status == DIVERGED) | (status == SINGULAR) | (status == MAX_ITER) & ~stalled).any():
        values = A.detach()
        dense = values.layout is torch.strided
        norm = float(values.abs().sum(1, dtype=torch.float64).max()) if dense and values.numel() else math.nan
        others = _other_solvers(A, act, settings)
        if norm < 1:
            needed = math.ceil(math.log(tol) / math.log(norm)) if 0 < norm and tol < 1 else 1
            out.append(
                f"||A||_inf = {norm:.6g}: a contraction, but Picard may need {needed} iterations and max_iter is"
                f" {max_iter} (raise max_iter, lower kappa{others})"
            )
        elif A.shape[0] <= 500:
            from implicit_models.wellposed import certificate

            try:
                found = certificate(values, act)
            except ValueError as error:
                out.append(str(error))
            else:
                if found:
                    out.append(
                        f"A is well-posed ({found.kind}, margin {found.margin:.3g}): raise max_iter (now"
                        f" {max_iter}){others}"
                    )
                else:
                    out.append(
                        f"A has no certificate of well-posedness (lambda_PF <= {found.lambda_pf:.6g}): project it or"
                        " rescale it"
                    )
        else:
            out.append(f"max_iter = {max_iter} is small, or A is not well-posed (see certificate(A))")
    return "; ".join(out)


def _caller_level() -> int:
    """Stack level of the innermost frame outside this package and torch, counted from the function that calls this
    one."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "implicit_models",
        "torch",
    ):
        level, frame = level + 1, frame.f_back
    return level


def report_failure(
    what: str,
    A: Tensor,
    act: Activation,
    status: Tensor,
    residual: Tensor,
    *,
    tol: float,
    relative: bool,
    max_iter: int,
    on_failure: str,
    scale: float = 1.0,
    settings: SolverSettings | None = None,
) -> None:
    """Warn or raise `NotConverged` for the samples whose status is not 0; settings: the advice names other solvers."""
    if on_failure == "ignore":
        return
    code = status.cpu().numpy()
    bad = np.flatnonzero(code)
    res = residual.detach().double().cpu().numpy()
    worst = bad[np.argsort(-np.nan_to_num(res[bad], nan=np.inf), kind="stable")]
    shown = ", ".join(f"{i} ({STATUS_TEXT[int(code[i])]}, residual {res[i]:.2e})" for i in worst[:5])
    more = f" and {bad.size - 5} more" if bad.size > 5 else ""
    why = _causes(A, act, code[bad], res[bad], tol, relative, max_iter, scale, settings)
    message = (
        f"{what}: {bad.size} of {code.size} samples not solved to tol={tol:g}: sample {shown}{more}. Likely cause:"
        f" {why}."
    )
    failure = NotConverged(message, tuple(int(i) for i in worst), tuple(float(r) for r in res[worst]))
    report(failure, on_failure, stacklevel=_caller_level())
