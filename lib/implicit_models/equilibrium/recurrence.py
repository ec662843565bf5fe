"""The compiled recurrence on torch tensors, with its gradient: one call forward and one backward for a whole
sequence."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium import compiled
from implicit_models.equilibrium.convergence import NOT_FINITE
from implicit_models.equilibrium.implicit import _FirstDerivative as FirstDerivative
from implicit_models.equilibrium.kernels.gauss_seidel import sweeps_in_reverse
from implicit_models.equilibrium.kernels.sequence import Cell, sequence_backward, sequence_forward, workspace
from implicit_models.equilibrium.kernels.simd import VECTOR_BYTES
from implicit_models.equilibrium.kernels.sweeps import Found, Stop
from implicit_models.equilibrium.result import Solution
from implicit_models.equilibrium.settings import SolverSettings
from implicit_models.equilibrium.solve import report_if_failed

LARGEST = 256  # states: above, a block no longer stays in the cache, and products over the whole batch are faster
WIDEST = 4  # registers a block: they share each load of the matrix
WORK_PER_THREAD = 20_000_000  # multiply-adds of one sweep over all steps below which a thread costs more than it saves


def supports(A: Tensor, act: Activation, s: SolverSettings) -> bool:
    """Whether the compiled recurrence serves: dense on the CPU, componentwise, implicit differentiation, sweeps
    allowed."""
    return (
        A.shape[0] <= LARGEST
        and s.backward == "implicit"
        and s.solver in ("auto", "gauss_seidel")
        and compiled.supports(A, act)
    )


def _blocks(first: int, last: int) -> list[tuple[int, int, int]]:
    """Registers first .. last - 1 in blocks of WIDEST, and a narrower one for the rest: (width, first, last)."""
    cut = last - (last - first) % WIDEST
    return [(width, a, b) for width, a, b in ((WIDEST, first, cut), (last - cut, cut, last)) if b > a]


class _Sequences:
    """Sizes, arrays and settings of one call, kept for the way back."""

    def __init__(self, A: Tensor, B: Tensor, C: Tensor, N: int, T: int, act: Activation, settings: SolverSettings):
        self.N, self.T, self.n, self.h, self.k = N, T, A.shape[0], C.shape[0], B.shape[1]
        self.p, self.settings = self.k - self.h, settings
        lanes = VECTOR_BYTES // A.element_size()
        self.lanes = lanes
        self.registers = -(-N // lanes)
        self.columns = self.registers * lanes
        code, slope = compiled._codes(act, A.dtype)
        # upper triangular: states in the reverse order, in which one sweep solves it
        self.flipped = bool(sweeps_in_reverse(_array(A), False))
        self.code, self.slope = (np.ascontiguousarray(v[::-1]) if self.flipped else v for v in (code, slope))

    def flip(self, M: Tensor | None, *dims: int) -> Tensor | None:
        return M.flip(dims) if self.flipped and M is not None else M

    def steps(self, M: Tensor, rows: int, steps: int | None = None) -> Tensor:
        """(rows, T, N) view of a feature-major array."""
        return M.view(rows, self.T if steps is None else steps, self.columns)[:, :, : self.N]

    def run(self, kernel: Callable[..., None], dtype: np.dtype) -> None:
        """kernel(scratch, first, last) on columns first .. last - 1, in as many threads as are worth it."""
        work = self.n * self.n * self.columns * self.T
        threads = min(torch.get_num_threads(), -(-self.registers // WIDEST), 1 + work // WORK_PER_THREAD)

        def share(first: int, last: int) -> None:
            for width, a, b in _blocks(first, last):
                kernel(workspace(self.n, self.k, self.h, width, dtype), a * self.lanes, b * self.lanes)

        if threads == 1:
            share(0, self.registers)
            return
        cuts = [self.registers * i // threads for i in range(threads + 1)]
        for future in [compiled._pool(os.getpid()).submit(share, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]:
            future.result()

    def stop(self, relative: bool) -> Stop:
        return Stop(float(self.settings.tol), bool(relative), int(self.settings.max_iter))

    def statistics(self, dtype: np.dtype) -> Found:
        return Found(np.zeros(self.columns, dtype), np.zeros(self.columns, np.int32), np.zeros(self.columns, np.int8))

    def solution(self, x: Tensor, found: tuple[np.ndarray, ...], not_finite: Tensor | None = None) -> Solution:
        residual, n_iter, status = (torch.from_numpy(v[: self.N].copy()) for v in found)
        if not_finite is not None:
            residual[not_finite], status[not_finite] = float("nan"), NOT_FINITE
        return Solution.of((x, residual, n_iter, status), "gauss_seidel")


def _array(M: Tensor) -> np.ndarray:
    return M.detach().contiguous().numpy()


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, C, D, b, d, S, h0, call):
        f, act = call.sequences, call.act
        N, T, n, h, p, s = f.N, f.T, f.n, f.h, f.p, f.settings
        compiled.gs.check_arrays(_array(A), b=_array(S.new_empty(0, n)))
        for name, M in (("A", A), ("B", B), ("C", C), ("D", D), ("b", b), ("d", d)):
            if M is not None and not bool(torch.isfinite(M.sum())) and not bool(torch.isfinite(M).all()):
                raise ValueError(
                    f"{name} has values that are not finite: {int((~torch.isfinite(M)).sum())} of {M.numel()}"
                )
        parts = f.flip(A, 0, 1), f.flip(B, 0), f.flip(C, 1), S.new_zeros(h, f.k) if D is None else D
        b_, d_ = (S.new_zeros(size) if v is None else v for v, size in ((f.flip(b, 0), n), (d, h)))
        lost = None  # (N, T): the steps from the first one that is not finite
        if not bool(torch.isfinite(S.sum())) or (h0 is not None and not bool(torch.isfinite(h0.sum()))):
            bad = ~torch.isfinite(S).all(2)
            if h0 is not None:
                bad[:, 0] |= ~torch.isfinite(h0).all(1)
                h0 = h0.masked_fill(~torch.isfinite(h0).all(1, keepdim=True), 0)
            S, lost = S.masked_fill(bad[:, :, None], 0), bad.cumsum(1) > 0
        U = S.new_zeros(f.k, (T + 1) * f.columns)
        f.steps(U[:p], p, T + 1)[:, :T] = S.permute(2, 1, 0)
        if h0 is not None:
            U[p:, :N] = h0.t()
        X = S.new_empty(n, T * f.columns)
        cell = Cell(*(_array(M) for M in (*parts, b_, d_)), f.code, f.slope)  # type: ignore[call-arg]
        arrays, stop, found = (U.numpy(), X.numpy()), f.stop(s.relative), f.statistics(cell.A.dtype)
        f.run(
            lambda scratch, first, last: sequence_forward(cell, *arrays, scratch, first, last, stop, found),
            cell.A.dtype,
        )
        Y = f.steps(U[p:].view(h, -1)[:, f.columns :].reshape(h, -1), h).permute(2, 1, 0).contiguous()
        if lost is not None:
            Y = Y.masked_fill(lost[:, :, None], float("nan"))
        last = f.flip(X, 0)[:, (T - 1) * f.columns :][:, :N].t()
        call.solution = f.solution(last, found, None if lost is None else lost.any(1))
        report_if_failed("recurrence", A, act, call.solution, s)
        ctx.f, ctx.act, ctx.lost, ctx.failed = f, act, lost, call.solution.failed
        ctx.present = D is not None, b is not None, d is not None
        ctx.save_for_backward(A, *parts, U, X)
        return Y

    @staticmethod
    def backward(ctx, gY):
        if not torch.is_grad_enabled():
            return _Recurrence._cotangents(ctx, gY)
        with torch.no_grad():  # create_graph=True: values now, an error if anyone differentiates them
            found = _Recurrence._cotangents(ctx, gY)
        return tuple(g if g is None else FirstDerivative.apply(g, gY, *ctx.saved_tensors) for g in found)

    @staticmethod
    def _cotangents(ctx, gY):
        f, s = ctx.f, ctx.f.settings
        original, A, B, C, D, U, X = ctx.saved_tensors
        N, T, n, h, p = f.N, f.T, f.n, f.h, f.p
        U = U[:, : T * f.columns]
        if ctx.lost is not None:  # what depends on a step that is not finite has no gradient
            gY = torch.where(ctx.lost[:, :, None] & (gY != 0), gY * float("nan"), gY)
        if ctx.failed:  # a sample without cotangent adds nothing, whatever its states are: 0 times NaN must not enter
            silent = torch.zeros(T, f.columns, dtype=torch.bool)
            silent[:, :N] = (gY == 0).flatten(1).all(1)
            U, X = (M.masked_fill(silent.flatten()[None], 0) for M in (U, X))
        G = gY.new_zeros(h, T * f.columns)
        f.steps(G, h)[:] = gY.permute(2, 1, 0)
        V, carry = gY.new_empty(n, T * f.columns), gY.new_empty(h, f.columns)
        none = np.zeros(0, f.slope.dtype)
        cell = Cell(*(_array(M) for M in (A, B, C, D)), none, none, f.code, f.slope)  # type: ignore[call-arg]
        arrays = tuple(M.numpy() for M in (X, G, V, carry))
        reverse, stop, found = bool(sweeps_in_reverse(cell.A, True)), f.stop(False), f.statistics(none.dtype)
        f.run(
            lambda scratch, first, last: sequence_backward(cell, *arrays, scratch, reverse, first, last, stop, found),
            none.dtype,
        )
        solution = f.solution(V[:, : f.columns][:, :N].t(), found)
        report_if_failed("adjoint recurrence (gradient)", original, ctx.act, solution, s)
        needed = ctx.needs_input_grad
        has_D, has_b, has_d = ctx.present
        Xt, Ut = X.t(), U.t()
        gS = None
        if needed[6]:
            wide = torch.addmm(B[:, :p].t() @ V, D[:, :p].t(), G)
            gS = f.steps(wide, p).permute(2, 1, 0).contiguous()
        return (
            f.flip(V @ Xt, 0, 1) if needed[0] else None,
            f.flip(V @ Ut, 0) if needed[1] else None,
            f.flip(G @ Xt, 1) if needed[2] else None,
            G @ Ut if has_D and needed[3] else None,
            f.flip(V.sum(1), 0) if has_b and needed[4] else None,
            G.sum(1) if has_d and needed[5] else None,
            gS,
            carry[:, :N].t().contiguous() if needed[7] else None,
            None,
        )


class _Call:
    __slots__ = ("act", "sequences", "solution")
    solution: Solution

    def __init__(self, act: Activation, sequences: _Sequences):
        self.act, self.sequences = act, sequences


def recurrence(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    b: Tensor | None,
    d: Tensor | None,
    S: Tensor,
    h0: Tensor | None,
    act: Activation,
    settings: SolverSettings,
) -> tuple[Tensor, Solution]:
    """Hidden states (N, T, h) of every step, with exact gradients, and the statistics of the solves joined over the
    steps.

    Args:
        the cell's matrices, S (N, T, p) with N and T at least 1, h0 (N, h) or None; checked by the caller, see
            `supports`.
    """
    call = _Call(act, _Sequences(A, B, C, S.shape[0], S.shape[1], act, settings))
    Y = _Recurrence.apply(A, B, C, D, b, d, S, h0, call)
    return Y, call.solution
