"""One small call of every kernel of this folder, which compiles it."""

from __future__ import annotations

import numpy as np
import torch

from implicit_models.activations import resolve_activation
from implicit_models.equilibrium.kernels.fused import norms, smooth_in_place, worst_change
from implicit_models.equilibrium.kernels.gauss_seidel import gauss_seidel, gauss_seidel_adjoint
from implicit_models.equilibrium.kernels.newton import newton, newton_adjoint
from implicit_models.equilibrium.recurrence import recurrence
from implicit_models.equilibrium.settings import SolverSettings


def call_all() -> None:
    """Solve for one state, forward and back, in both precisions."""
    code, act = np.zeros(1, np.int8), resolve_activation("relu", 1)
    for dtype in (torch.float32, torch.float64):
        M, u, S = (torch.zeros(shape, dtype=dtype) for shape in ((1, 1), (1, 2), (1, 1, 1)))
        A, b = M.numpy(), np.ones_like(M.numpy())
        for solve in (gauss_seidel, newton):
            solve(A, b, code, A[0], None, 1e-3, True, 2)
        gauss_seidel_adjoint(A, b, b, 1e-3, 2)
        newton_adjoint(A, b, b)
        norms(A, A[0].copy())
        smooth_in_place(b[0].copy(), True, np.empty(64, b.dtype))
        worst_change(b, A, A[0], A.dtype.type(1), np.empty(64, b.dtype), A[0].copy())
        M.requires_grad_()
        recurrence(M, u, M, u, None, None, S, None, act, SolverSettings())[0].sum().backward()
