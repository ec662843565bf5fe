"""Many small row problems at once, each on a Gram matrix of its own, in step with each other: the l1 path for a
graphics card.

All rows take one piece of their paths a step. With A the active columns and s their signs, T is the principal pivot
transform of G on A,

    T_AA = G_AA^-1,   T_NA = G_NA G_AA^-1,   T_AN = -G_AA^-1 G_AN,   T_NN = G_NN - G_NA G_AA^-1 G_AN,

so that one product T s holds both rates of a piece: d a_A = G_AA^-1 s, and d r_N = -G_NA G_AA^-1 s, a unit of the
penalty. A column that joins, and one that leaves, is the same pivot, which is its own inverse. The end is solved again
by a Cholesky factor, so that pivots leave no rounding behind. Ties and dependent
columns are not resolved here: such rows are not certified, and the caller solves them one by one.

Source:
    Tsatsomeros (2000) for the transform; Osborne, Presnell, Turlach (2000) for the path.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

TINY = 1e-300
AGAIN = 1e-9  # share of the penalty within which a column that just left may not rejoin
PIVOT = 1e-10  # share of its squared norm that a column must keep beside the active ones
COMPACT = 8  # steps after which rows that have ended are left behind


def batched_path(
    G: Float[Tensor, "b k k"], c: Float[Tensor, "b k"], kappa: Float[Tensor, " b"], beta: float
) -> Float[Tensor, "b k"]:
    """Solutions of min 1/2 a'G a - c'a + beta ||a||_1 in the ball ||a||_1 <= kappa (inf for none), as far as the path
    goes without ties.

    Args:
        G: symmetric positive semidefinite, with zero rows for no column, on any device.
    """
    b, k = c.shape
    signs, steps = c.new_zeros(b, k), 4 * k + 8
    live, T, r, a, s, kap = (
        torch.arange(b, device=c.device),
        G.clone(),
        c.clone(),
        torch.zeros_like(c),
        torch.zeros_like(c),
        kappa,
    )
    square = G.diagonal(dim1=1, dim2=2)
    barred, left = square <= 0, torch.full((b,), -1, device=c.device)
    lam = torch.where(barred, 0.0, c.abs()).amax(1)
    balled = torch.zeros(b, dtype=torch.bool, device=c.device)  # whether the ball ended the path
    for step in range(steps):
        if not len(live):
            break
        q = torch.bmm(T, s[:, :, None])[:, :, 0]
        on = s != 0
        v = lam[:, None]
        up = torch.where(1 - q > TINY, (v - r) / (1 - q).clamp_min(TINY), torch.inf)
        down = torch.where(1 + q > TINY, (v + r) / (1 + q).clamp_min(TINY), torch.inf)
        join = torch.minimum(up, down).clamp_min(0.0)
        just = torch.zeros_like(on).scatter_(1, left.clamp_min(0)[:, None], (left >= 0)[:, None])
        join = torch.where(on | barred | (just & (join <= AGAIN * v)), torch.inf, join)
        leave = torch.where(on & (a * q < 0), -a / torch.where(q == 0, 1.0, q), torch.inf)
        rate, norm = (s * q).sum(1), a.abs().sum(1)
        to_ball = torch.where(rate > TINY, (kap - norm) / rate.clamp_min(TINY), torch.inf).clamp_min(0.0)
        ends = torch.minimum(lam - beta, to_ball)
        first, at = torch.cat([join, leave], dim=1).min(1)
        done = (ends <= first) | ~(lam > beta)
        t = torch.where(done, ends, first).clamp_min(0.0)[:, None]
        a = a + torch.where(on, t * q, 0.0)
        r = torch.where(on, s * (v - t), r - t * q)
        lam = lam - t[:, 0]
        new = done & torch.isfinite(lam)
        signs[live[new]], balled[live[new]] = s[new], (to_ball <= lam + t[:, 0] - beta)[new]
        at, leaves = at % k, at >= k
        row = torch.arange(len(live), device=c.device)
        pivot = T[row, at, at]
        weak = ~leaves & (pivot <= PIVOT * square[live, at])
        barred[row[weak & ~done], at[weak & ~done]] = True
        turn = ~done & ~weak
        p = torch.where(turn, pivot, 1.0)
        column, line = T[row, :, at], T[row, at, :] / p[:, None]
        T = T - torch.where(turn, 1.0, 0.0)[:, None, None] * (column[:, :, None] * line[:, None, :])
        T[row[turn], :, at[turn]] = (column / p[:, None])[turn]
        T[row[turn], at[turn], :] = -line[turn]
        T[row[turn], at[turn], at[turn]] = 1 / p[turn]
        gone, come = turn & leaves, turn & ~leaves
        s[row[come], at[come]] = torch.where(r[row[come], at[come]] >= 0, 1.0, -1.0).to(s.dtype)
        s[row[gone], at[gone]], a[row[gone], at[gone]] = 0.0, 0.0
        left = torch.where(gone, at, -1)
        lam = torch.where(done, -torch.inf, lam)  # an ended row stays where it is: its step is 0 from now on
        if step % COMPACT == COMPACT - 1 or not bool((~done).any()):
            on = torch.isfinite(lam)
            live, T, r, a, s, kap, lam, barred, left = (x[on] for x in (live, T, r, a, s, kap, lam, barred, left))
    return _at_signs(G, c, signs, kappa, beta, balled)


def _at_signs(G: Tensor, c: Tensor, s: Tensor, kappa: Tensor, beta: float, balled: Tensor) -> Tensor:
    """Solutions of given signs: G_AA a = c_A - lam s, with lam = beta, or such that ||a||_1 = kappa."""
    L, info = torch.linalg.cholesky_ex(_on_support(G, s != 0, 0.0))
    both = torch.cholesky_solve(torch.stack([torch.where(s != 0, c, 0.0), s], dim=2), L)
    u, w = both[:, :, 0], both[:, :, 1]
    lam = torch.where(balled, ((s * u).sum(1) - kappa) / (s * w).sum(1).clamp_min(TINY), beta)
    a = u - lam[:, None] * w
    return torch.where((info == 0)[:, None] & (a * s > 0), a, 0.0)


def _on_support(G: Tensor, on: Tensor, ridge: float) -> Tensor:
    """G + ridge diag G on the support, the identity elsewhere."""
    square = G.diagonal(dim1=1, dim2=2)
    return torch.where(on[:, :, None] & on[:, None, :], G, 0.0) + torch.diag_embed(torch.where(on, ridge * square, 1.0))


def batched_refit(
    G: Float[Tensor, "b k k"], c: Float[Tensor, "b k"], a: Float[Tensor, "b k"], ridge: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Least squares on the supports of a, what it explains of z'z (see `budget.refit`), and which rows have a
    support of full rank."""
    on = a != 0
    L, info = torch.linalg.cholesky_ex(_on_support(G, on, ridge))
    again = torch.cholesky_solve(torch.where(on, c, 0.0)[:, :, None], L)[:, :, 0]
    square = G.diagonal(dim1=1, dim2=2)
    explained = (torch.where(on, c, 0.0) * again + ridge * square * again * again).sum(1)
    least = torch.where(on, L.diagonal(dim1=1, dim2=2) ** 2 / ((1 + ridge) * square).clamp_min(TINY), 1.0).amin(1)
    return again, explained, (info == 0) & (least > 10 * PIVOT)


def batched_gap(
    G: Float[Tensor, "b k k"],
    c: Float[Tensor, "b k"],
    zz: Float[Tensor, " b"],
    a: Float[Tensor, "b k"],
    kappa: Float[Tensor, " b"],
    beta: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Duality gap and objective on the rows' own columns, and the excess over the ball (see
    `row_kernels.recomputed_gap`); the dual is at least 0."""
    Ga = torch.bmm(G, a[:, :, None])[:, :, 0]
    fit, norm, lead = (a * c).sum(1), a.abs().sum(1), (c - Ga).abs().amax(1)
    rho = (zz - 2 * fit + (a * Ga).sum(1)).clamp_min(0.0)
    balls = torch.isfinite(kappa)
    s = torch.where(balls, 1.0, (beta / lead.clamp_min(TINY)).clamp_max(1.0))
    value = 0.5 * rho + beta * norm
    excess = torch.where(balls, torch.where(balls, kappa, 0.0) * (lead - beta).clamp_min(0.0), 0.0)
    gap = value - (s * (zz - fit) - 0.5 * s * s * rho - excess).clamp_min(0.0)
    return gap, value, (norm - kappa).clamp_min(0.0)
