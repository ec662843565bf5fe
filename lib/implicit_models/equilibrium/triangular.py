"""Substitution for a state without feedback: sparse, level by level, in whatever order its states are stored.

A feed-forward network written as an implicit model has a (permuted) triangular A: the states fall into levels that read
earlier levels only, so that one product per level solves the equation exactly. A state may feed back on itself if
gamma_i A_ii < 1; softmax and max-pool blocks may not.

Source:
    Tsai (2024), Remark 3, Theorems 2 and 3, section 2.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from implicit_models.activations import Activation
from implicit_models.matrices import check_finite, csr_tensor, scipy_csr


@dataclass(frozen=True)
class Level:
    """States solved together: rows of A that read earlier levels, their map and their self-loops."""

    states: Tensor
    act: Activation
    read: Tensor  # (k, n) CSR
    diagonal: Tensor | None  # (k,) A_ii, None when all are 0

    @cached_property
    def feed(self) -> Tensor:
        """(n, k) CSR, the transpose of `read`; only the adjoint needs it."""
        return csr_tensor(sp.csr_array(scipy_csr(self.read).T), self.read.dtype, self.read.device)


@dataclass(frozen=True)
class TriangularPlan:
    """Levels of a state without feedback, ready for batches."""

    levels: tuple[Level, ...]

    @property
    def depth(self) -> int:
        return len(self.levels)


def _levels(unit: np.ndarray, off: sp.csr_array) -> np.ndarray | None:
    """Level of every state: longest chain of blocks before it; None if blocks feed back."""
    n, L = unit.size, int(unit[-1]) + 1 if unit.size else 0
    coo = off.tocoo()
    graph = sp.csr_array((np.ones(coo.nnz), (unit[coo.col], unit[coo.row])), (L, L))  # edge: source block -> reader
    graph.sum_duplicates()
    if graph.diagonal().any() or connected_components(graph, connection="strong")[0] < L:
        return None
    indegree = np.bincount(graph.indices, minlength=L)
    level, frontier, depth = np.zeros(L, dtype=np.int64), np.flatnonzero(indegree == 0), 0
    while frontier.size:
        level[frontier] = depth
        targets = graph[frontier].indices
        np.subtract.at(indegree, targets, 1)
        candidates = np.unique(targets)
        frontier, depth = candidates[indegree[candidates] == 0], depth + 1
    return level[unit] if n else level


def triangular_plan(A: Tensor, act: Activation) -> TriangularPlan | None:
    """The substitution plan of A, or None when A feeds back between blocks, or a state on itself by gamma_i A_ii >=
    1."""
    check_finite(A.detach())
    if A.layout is torch.strided and act.componentwise:  # two states that read each other: most dense matrices
        reads = (A.detach() != 0).fill_diagonal_(False)
        if bool((reads & reads.t()).any()):
            return None
    M = scipy_csr(A)
    diagonal = M.diagonal()
    componentwise = np.zeros(act.n, dtype=bool)
    for s in act.segments:
        componentwise[s.start : s.stop] = s.componentwise
    if np.any(diagonal * act.lipschitz >= 1) or np.any(diagonal[~componentwise] != 0):
        return None
    off = sp.csr_array(M - sp.diags_array(diagonal, dtype=M.dtype)) if diagonal.any() else M
    off.eliminate_zeros()
    level = _levels(act.unit, off)
    if level is None:
        return None
    out = []
    order = np.argsort(level, kind="stable")
    for states in np.split(order, np.cumsum(np.bincount(level))[:-1]) if act.n else []:
        d = diagonal[states]
        out.append(
            Level(
                torch.from_numpy(states).to(A.device),
                act.restrict(states),
                csr_tensor(off[states], A.dtype, A.device),
                torch.from_numpy(d).to(A) if d.any() else None,
            )
        )
    return TriangularPlan(tuple(out))


def _self_loop(act: Activation, rest: Float[Tensor, "N k"], a: Float[Tensor, " k"]) -> Float[Tensor, "N k"]:
    """The root of x = phi(rest + a x), unique for gamma a < 1: closed form if piecewise linear, else safe Newton.

    h(x) = x - phi(rest + a x) increases, so a bracket closes on the root; a Newton step is taken where it stays inside
    and the last one halved |h| (steps may otherwise go round in circles), a bisection elsewhere.
    """
    if act.piecewise_linear:
        # the sign of the root is the sign of rest: the slope on that side is the one that counts
        slope = act.derivative(torch.where(rest > 0, 1.0, -1.0).to(rest.dtype))
        return slope * rest / (1 - slope * a)
    x = act(rest)
    # |x - root| <= |h(x)| / (1 - max(0, gamma a)), and h(x) = phi(rest) - phi(rest + a phi(rest))
    gamma = torch.as_tensor(act.lipschitz.copy(), dtype=x.dtype, device=x.device)
    reach = (x - act(rest + a * x)).abs() / (1 - (gamma * a).clamp_min(0))
    low, high, before = x - reach, x + reach, torch.full_like(x, float("inf"))
    for _ in range(200):
        value = act(rest + a * x)
        h = x - value
        high, low = torch.where(h > 0, x, high), torch.where(h > 0, low, x)
        step = x - h / (1 - a * act.derivative_at_value(value))
        newton = (step >= low) & (step <= high) & (h.abs() <= 0.5 * before)
        step, before = torch.where(newton, step, 0.5 * (low + high)), h.abs()
        if bool(((step - x).abs() <= 2 * torch.finfo(x.dtype).eps * x.abs()).all()):
            return step
        x = step
    return x


def substitute(plan: TriangularPlan, b: Float[Tensor, "N n"]) -> Float[Tensor, "N n"]:
    """x = phi(A x + b), exactly, level by level."""
    x = b.new_zeros(b.shape[1], b.shape[0])  # states first: a sparse matrix multiplies from the left
    for level in plan.levels:
        rest = b[:, level.states] + (level.read @ x).t()
        value = level.act(rest) if level.diagonal is None else _self_loop(level.act, rest, level.diagonal)
        x[level.states] = value.t()
    return x.t().contiguous()


def substitute_adjoint(
    plan: TriangularPlan, b: Float[Tensor, "N n"], x: Float[Tensor, "N n"], g: Float[Tensor, "N n"]
) -> Float[Tensor, "N n"]:
    """v = J(z)' (A' v + g) at the equilibrium x, levels in reverse."""
    w, xt = g.t().clone(), x.t().contiguous()
    v = torch.zeros_like(w)
    for level in reversed(plan.levels):
        received = w[level.states].t()
        if level.act.componentwise:
            d = level.act.derivative_at_value(x[:, level.states])
            value = d * received if level.diagonal is None else d * received / (1 - d * level.diagonal)
        else:
            value = level.act.vjp(b[:, level.states] + (level.read @ xt).t(), received)
        v[level.states] = value.t()
        w += level.feed @ value.t().contiguous()
    return v.t().contiguous()
