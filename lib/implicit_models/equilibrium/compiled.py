"""The compiled kernels on torch tensors: views in, views out, the batch split over threads when it is worth it.

A kernel works sample by sample without the interpreter lock, so that threads share nothing but A.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.equilibrium.kernels import gauss_seidel as gs
from implicit_models.equilibrium.kernels import newton as nt

ROWS_PER_THREAD = 192  # a block holds up to 64 samples and refills its lanes
WORK_PER_THREAD = 2_000_000  # multiply-adds per sweep below which a thread costs more than it saves


def supports(A: Tensor, act: Activation) -> bool:
    """Dense CPU float32 or float64 with componentwise activations."""
    return (
        act.componentwise
        and A.layout is torch.strided
        and A.device.type == "cpu"
        and A.dtype in (torch.float32, torch.float64)
    )


_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


@functools.lru_cache(maxsize=256)
def _codes(act: Activation, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    code, param = act.kernel_codes
    return code, param.astype(_NUMPY[dtype])


@functools.lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # keyed by process: threads do not survive a fork
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="equilibrium")


def _numpy(t: Tensor) -> np.ndarray:
    return t.detach().contiguous().numpy()


def _split(kernel: Callable[..., tuple], rows: tuple[Any, ...], work: int) -> Any:
    """Run kernel(*rows) on slices of the batch and join the results; rows are arrays, or None from the second on."""
    N = rows[0].shape[0]
    if N == 0:  # nothing to compile blocks for
        empty = np.empty(0, rows[0].dtype)
        return tuple(map(torch.from_numpy, (rows[0].copy(), empty, np.empty(0, np.int32), np.empty(0, np.int8))))
    threads = 1
    if N >= 2 * ROWS_PER_THREAD and work >= WORK_PER_THREAD:
        threads = min(torch.get_num_threads(), N // ROWS_PER_THREAD, 1 + work // WORK_PER_THREAD)
    if threads == 1:
        return tuple(map(torch.from_numpy, kernel(*rows)))
    size = -(-N // (threads * ROWS_PER_THREAD)) * ROWS_PER_THREAD
    cuts = range(0, N, size)
    futures = [_pool(os.getpid()).submit(kernel, *(None if r is None else r[c : c + size] for r in rows)) for c in cuts]
    parts = [f.result() for f in futures]
    return tuple(torch.from_numpy(np.concatenate(p)) for p in zip(*parts, strict=True))


def solve(
    method: str, A: Tensor, b: Tensor, act: Activation, x0: Tensor | None, tol: float, relative: bool, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, residual, n_iter, status) of x = phi(A x + b) by "gauss_seidel" or "newton"."""
    code, param = _codes(act, b.dtype)
    M = _numpy(A)
    if method == "newton":
        kernel = lambda b, x0: nt.newton(M, b, code, param, x0, tol, relative, max_iter)
    else:
        kernel = lambda b, x0: gs.gauss_seidel(M, b, code, param, x0, tol, relative, max_iter)
    return _split(kernel, (_numpy(b), None if x0 is None else _numpy(x0)), b.numel() * b.shape[1])


def slopes(act: Activation, x: Tensor) -> Tensor:
    """phi'(z) in terms of x = phi(z), on a NumPy view where the map is ReLU: a small state is all overhead."""
    if len(act.segments) == 1 and act.segments[0].name == "relu":
        return torch.from_numpy((x.numpy() > 0).astype(_NUMPY[x.dtype]))
    return act.derivative_at_value(x)


def solve_adjoint(
    method: str, A: Tensor, d: Tensor, g: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(v, residual, n_iter, status) of v = d (A' v + g) by "gauss_seidel" sweeps or "newton" (direct LU)."""
    M = _numpy(A)
    if method == "newton":
        kernel = lambda d, g: nt.newton_adjoint(M, d, g)
    else:
        kernel = lambda d, g: gs.gauss_seidel_adjoint(M, d, g, tol, max_iter)
    return _split(kernel, (_numpy(d), _numpy(g)), g.numel() * g.shape[1])
