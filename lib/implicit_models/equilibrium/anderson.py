"""Anderson acceleration, type II, batched: every sample has its own history and its own least-squares problem.

Source:
    Anderson (1965); Walker and Ni (2011), type II in difference form.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.equilibrium.convergence import row_max
from implicit_models.equilibrium.picard import FixedPointMap, Record


def _mix(dG: Float[Tensor, "N m n"], dF: Float[Tensor, "N m n"], g: Tensor, f: Tensor) -> Tensor:
    """f - dF' gamma with gamma = argmin |g - dG' gamma|, regularised; non-finite rows become f, the Picard step.

    An empty history slot is a zero row of dG: the regularisation gives it weight 0.
    """
    gram = dG @ dG.mT
    size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    ridge = 10 * torch.finfo(g.dtype).eps * size + torch.finfo(g.dtype).tiny
    gram.diagonal(dim1=-2, dim2=-1).add_(ridge[:, None])
    factor, info = torch.linalg.cholesky_ex(gram)
    gamma = torch.cholesky_solve(dG @ g.unsqueeze(-1), factor)
    mixed = f - (dF.mT @ gamma).squeeze(-1)
    usable = (info == 0) & torch.isfinite(mixed).all(1)
    return torch.where(usable[:, None], mixed, f)


def anderson(problem: FixedPointMap, x0: Float[Tensor, "N n"], *, tol: float, max_iter: int, memory: int = 5) -> Record:
    """Fixed point of `problem` by Anderson mixing of the last `memory` differences.

    Mathematics: with g = F(x) - x, x+ = F(x) - dF' gamma, gamma = argmin |g - dG' gamma|^2 + ridge |gamma|^2.
    Safeguards, per sample: a singular or non-finite mixing step is a Picard step; when the residual grows beyond 4
    times the smallest one seen, or has not fallen for m steps (rounding in the history), the history is dropped and the
    next step is a Picard step.

    Args, Returns: as `picard`; memory is the largest number of differences, m.
    """
    N, n = x0.shape
    record = Record(x0)
    if N == 0:
        return record
    x, f = x0.clone(), torch.empty_like(x0)
    m = max(1, min(memory, n))
    dG, dF = x0.new_zeros(N, m, n), x0.new_zeros(N, m, n)
    problem.step(x, f)
    g = f - x
    best, stalled = row_max(g), torch.zeros(N, dtype=torch.int32, device=x0.device)
    x = f.clone()  # the first step has no history
    for k in range(1, max_iter + 1):
        f_new = torch.empty_like(x)
        problem.step(x, f_new)
        g_new = f_new - x
        change = row_max(g_new)
        record.update(x, change, problem.scale(x), k, tol, last=k == max_iter)
        if not bool(record.live.any()):
            break
        slot = k % m
        dG[:, slot], dF[:, slot] = g_new - g, f_new - f
        stalled = torch.where(change < best, 0, stalled + 1)
        worse = ~(change <= 4 * best) | (stalled >= m)
        if bool(worse.any()):
            dG[worse], dF[worse], stalled[worse] = 0, 0, 0
        best = torch.minimum(best, change)
        f, g = f_new, g_new
        keep = record.compact()
        if keep is not None:
            problem = problem.select(keep)
            f, g, best, stalled, dG, dF = f[keep], g[keep], best[keep], stalled[keep], dG[keep], dF[keep]
        x = _mix(dG, dF, g, f)
    return record
