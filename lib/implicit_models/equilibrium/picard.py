"""Picard iteration x <- phi(A x + b) in place, for any activation, dtype, device and for sparse A.

The iteration works on a map object with `step(x, out)`, `scale(x)`, `select(rows)`, so that the equilibrium and its
adjoint v = J(z)' (A' v + g) share one loop. Convergence is judged every `check_every` steps from a true residual: the
evaluation that measures it is the next step of the samples that go on.

Source:
    Tsai (2024), Theorem 1, (2.8); adjoint: implicit function theorem.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium.convergence import CONVERGED, DIVERGED, MAX_ITER, NOT_FINITE, row_max, scaled_residual

CHECK_EVERY = 4


class FixedPointMap(Protocol):
    """A map whose fixed point is sought, sample by sample."""

    def step(self, x: Tensor, out: Tensor) -> None: ...

    def scale(self, x: Tensor) -> Tensor: ...

    def select(self, rows: Tensor) -> Self: ...


def _affine(b: Tensor, x: Tensor, A: Tensor, out: Tensor, transpose: bool) -> None:
    """out = b + x A', or b + x A for the adjoint."""
    if A.layout is torch.strided:
        torch.addmm(b, x, A if transpose else A.t(), out=out)
    else:  # a sparse matrix multiplies from the left
        torch.add(b, ((A.t() if transpose else A) @ x.t()).t(), out=out)


class StateMap:
    """x -> phi(A x + b)."""

    def __init__(self, A: Tensor, b: Float[Tensor, "N n"], act: Activation, relative: bool):
        self.A, self.b, self.act, self.relative = A, b, act, relative
        self.in_place = {"relu": torch.relu_, "tanh": torch.tanh_, "sigmoid": torch.sigmoid_}.get(
            act.segments[0].name if len(act.segments) == 1 else ""
        )

    def step(self, x: Tensor, out: Tensor) -> None:
        _affine(self.b, x, self.A, out, transpose=False)
        if self.in_place is not None:
            self.in_place(out)
        else:
            out.copy_(self.act(out))

    def scale(self, x: Tensor) -> Tensor:
        return row_max(x) if self.relative else x.new_ones(x.shape[0])

    def select(self, rows: Tensor) -> StateMap:
        return StateMap(self.A, self.b[rows], self.act, self.relative)


class AdjointMap:
    """v -> J(z)' (A' v + g); residuals are divided by max|g| of the sample, or by (4 eps / tol) max|v| where that is
    more.

    The second scale is what rounding leaves: no tolerance asks for less than 4 eps of the adjoint itself.
    """

    def __init__(
        self, A: Tensor, g: Float[Tensor, "N n"], slopes: Tensor | None, z: Tensor | None, act: Activation, tol: float
    ):
        self.A, self.g, self.slopes, self.z, self.act, self.tol = A, g, slopes, z, act, tol

    def step(self, x: Tensor, out: Tensor) -> None:
        _affine(self.g, x, self.A, out, transpose=True)
        if self.slopes is not None:
            out.mul_(self.slopes)
        else:
            assert self.z is not None  # blocks have no slopes: the caller gives z
            out.copy_(self.act.vjp(self.z, out))

    def scale(self, x: Tensor) -> Tensor:
        return torch.maximum(row_max(self.g), row_max(x) * (4 * torch.finfo(x.dtype).eps / self.tol))

    def select(self, rows: Tensor) -> AdjointMap:
        pick = lambda t: None if t is None else t[rows]
        return AdjointMap(self.A, self.g[rows], pick(self.slopes), pick(self.z), self.act, self.tol)


class Record:
    """Results of the samples, written when each of them stops; the iteration itself holds the others."""

    def __init__(self, x: Tensor):
        N = x.shape[0]
        self.x = torch.empty_like(x)
        self.residual = x.new_full((N,), float("inf"))
        self.n_iter = torch.zeros(N, dtype=torch.int32, device=x.device)
        self.status = torch.full((N,), MAX_ITER, dtype=torch.int8, device=x.device)
        self.rows = torch.arange(N, device=x.device)  # which sample each row of the iteration is
        self.live = torch.ones(N, dtype=torch.bool, device=x.device)

    def update(self, x: Tensor, change: Tensor, scale: Tensor, k: int, tol: float, last: bool) -> None:
        """Store the samples that converged, diverged, or ran out of iterations."""
        lost = ~torch.isfinite(change)
        ok = ~lost & (change <= tol * scale)  # inf <= inf is no convergence
        done = self.live & (ok | lost) if not last else self.live
        rows = self.rows[done]
        self.x[rows] = x[done]
        self.residual[rows] = scaled_residual(change, scale)[done]
        self.n_iter[rows] = k
        code = torch.where(ok, CONVERGED, torch.where(lost, DIVERGED, MAX_ITER)).to(torch.int8)
        self.status[rows] = code[done]
        self.live = self.live & ~done

    def compact(self) -> Tensor | None:
        """Row numbers to keep once less than half of the rows are live."""
        if 2 * int(self.live.sum()) >= self.live.numel():
            return None
        keep = torch.nonzero(self.live).flatten()
        self.rows, self.live = self.rows[keep], self.live[keep]
        return keep


def mask_not_finite(*arrays: Tensor | None) -> tuple[Tensor, list[Any]]:
    """(bad (N,), arrays with the bad rows zeroed): the other rows compute exactly as if those samples were zero."""
    given = [a for a in arrays if a is not None]
    bad = torch.zeros(given[0].shape[0], dtype=torch.bool, device=given[0].device)
    for a in given:
        bad |= ~torch.isfinite(a).all(1)
    if not bool(bad.any()):
        return bad, list(arrays)
    return bad, [None if a is None else a.masked_fill(bad[:, None], 0) for a in arrays]


def mark_not_finite(bad: Tensor, x: Tensor, residual: Tensor, n_iter: Tensor, status: Tensor) -> None:
    """A sample whose input was not finite has no equilibrium: NaN state and residual, no iterations."""
    x[bad], residual[bad], n_iter[bad], status[bad] = float("nan"), float("nan"), 0, NOT_FINITE


def picard(
    problem: FixedPointMap,
    x0: Float[Tensor, "N n"],
    *,
    tol: float,
    max_iter: int,
    damping: Float[Tensor, " n"] | None = None,
    check_every: int = CHECK_EVERY,
    warm: bool = False,
) -> Record:
    """Iterate x <- x + damping (F(x) - x) until every sample's residual is at most tol times its scale.

    Args:
        problem: the map F.
        x0: start (not modified).
        damping: (n,) in (0, 1], None for plain Picard. With 1 / (1 + gamma_i max(0, -A_ii)) the iteration converges for
            every A with a Metzler certificate: the damped slope of a state on itself is non-negative.
        warm: check after the first step already.

    Returns:
        `Record` with x, residual, n_iter, status; x is the last iterate and residual its own.
    """
    record = Record(x0)
    x, out, k = x0.clone(), torch.empty_like(x0), 0
    if x0.shape[0] == 0:
        return record

    def advance(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        if damping is None:
            return out, x
        return x.add_(damping * (out - x)), out

    problem.step(x, out)
    x, out = advance(x, out)
    k = 1
    until = 1 if warm else min(check_every, max_iter)
    while True:
        while k < until:
            problem.step(x, out)
            x, out = advance(x, out)
            k += 1
        problem.step(x, out)
        record.update(x, row_max(out - x), problem.scale(x), k, tol, last=k >= max_iter)
        if not bool(record.live.any()):
            return record
        keep = record.compact()
        if keep is not None:
            problem, x, out = problem.select(keep), x[keep], out[keep]
        x, out = advance(x, out)
        k += 1
        until = min(k - 1 + check_every, max_iter)
