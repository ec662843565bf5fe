"""Columns that many rows may use, and what the working-set method asks of them.

In every round each row needs the columns most correlated with its residual, and the products of the few columns in its
working set. Correlations with all columns are formed in low precision, with a bound on the rounding
(`low_precision`); the columns that could hold the largest one are then read again in double precision, so that the
duality gap of a row is computed in double precision throughout.

`HostColumns` is NumPy and serves one thread of many; `DeviceColumns` is torch and serves a graphics card. On the
processor both give the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from implicit_models.sim.network.column_store import Columns
from implicit_models.sim.network.low_precision import CUT, Rounded, correlations, host_bounds, leads
from implicit_models.sim.solvers.batched_homotopy import batched_gap, batched_path, batched_refit
from implicit_models.sim.solvers.budget import refit, refit_each, solve_each


class Scores(NamedTuple):
    """Products of the residuals r = z - a'X_W of b rows.

    Attributes:
        lead: (b,) the largest |x_j'r| over all columns.
        inner: (b,) a'X_W r.
        square: (b,) r'r.
        against: (b,) z'r.
        best: (b, k) indices of the columns with the largest |x_j'r|, up to the rounding of the low precision.
    """

    lead: Float[np.ndarray, " b"]
    inner: Float[np.ndarray, " b"]
    square: Float[np.ndarray, " b"]
    against: Float[np.ndarray, " b"]
    best: Int[np.ndarray, "b k"]


class HostColumns:
    """Columns X (d, m) in memory, in float64 and rounded.

    `size` is the number of rows in a batch, chosen so that its correlations with all columns take about 128 MB.
    """

    def __init__(self, X: Float[np.ndarray, "d m"], rounded: Rounded):
        self.X, self.rounded, self.values, self.norm = X, rounded, rounded.values, rounded.norm
        self.size = max(1, 2**25 // max(1, len(X)))

    def proposed(self, z: Float[np.ndarray, "b m"], k: int) -> Int[np.ndarray, "b k"]:
        """Indices (b, k) of the columns with the largest correlation with each row of z, in ascending order."""
        return host_bounds(self.rounded, self.values, z, k)[0]

    def products(self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"]) -> tuple[np.ndarray, np.ndarray]:
        """G = X_W X_W' (b, k, k) and X_W z (b, k) for the columns W of each row; an index of -1 is a zero column."""
        G, c = np.empty((*W.shape, W.shape[1])), np.empty(W.shape)
        for i, w in enumerate(W):
            M = self.X[w]
            M[w < 0] = 0.0
            G[i], c[i] = M @ M.T, M @ z[i]
        return G, c

    def one(self, own: tuple[np.ndarray, np.ndarray], i: int) -> tuple[np.ndarray, np.ndarray]:
        """G and c of one row of `products`."""
        return own[0][i], own[1][i]

    def solved(
        self,
        own: tuple[np.ndarray, np.ndarray],
        zz: Float[np.ndarray, " b"],
        kappas: Float[np.ndarray, " b"],
        beta: float,
        ridge: float,
        rtol: float,
        slack: Float[np.ndarray, " b"],
    ) -> tuple[np.ndarray, ...]:
        """Solve each row on its own columns.

        Args:
            own: G and c of `products`.
            zz: (b,) squared norms of the targets.
            kappas: (b,) radii.
            beta: l1 penalty.
            ridge: of the refit.
            rtol, slack: a row is solved when its gap is at most rtol of the objective, or slack.

        Returns:
            Coefficients (b, k); gap, objective and excess over the ball (b,), all on these columns alone; coefficients
            (b, k) of the refit; what the refit explains of zz (b,).
        """
        G, c = own
        a, again = np.zeros(c.shape), np.zeros(c.shape)
        gap, value, violation, explained = np.full(len(c), np.nan), np.zeros(len(c)), np.zeros(len(c)), np.zeros(len(c))
        solve_each(G, c, zz, kappas, beta, rtol, slack, a, gap, value, violation)
        refit_each(G, c, a, ridge, again, explained)
        return a, gap, value, violation, again, explained

    def scores(
        self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"], a: Float[np.ndarray, "b k"], k: int
    ) -> Scores:
        r, inner, lead = np.empty_like(z), np.empty(len(z)), np.empty(len(z))
        for i, on in enumerate(a != 0):
            M = self.X[W[i, on]]
            r[i] = z[i] - a[i, on] @ M
            inner[i] = a[i, on] @ (M @ r[i])
        best, bound, outside = host_bounds(self.rounded, self.values, r, k)
        leads(self.X, r, best, bound, outside, lead)
        return Scores(lead, inner, np.einsum("bm,bm->b", r, r), np.einsum("bm,bm->b", r, z), best)


class DeviceColumns:
    """Columns X (d, m) on a torch device; methods as those of `HostColumns`, for all rows of a batch at once."""

    def __init__(self, columns: Columns):
        self.X, self.values, self.lost, self.norm = columns[:4]
        self.size = max(1, min(4096, 2**28 // max(1, len(self.X))))
        self.term = CUT if self.X.is_cuda else 2.0**-24

    def _on(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).to(self.X.device)

    def _screened(self, r: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Bounds of |x_j'r| / ||r|| from low precision: the columns (b, k) of the k largest, their bounds (b, k), and
        the largest bound (b,) of all other columns."""
        S, factor, size, base = correlations(self.values, r, self.term)
        d = S.shape[1]
        S = S.double().abs_().mul_(factor).add_(base[:, None]).addr_(size, self.lost).mul_(self.norm)
        bound, best = S.topk(min(d, k + 1), dim=1)
        return best[:, :k], bound[:, :k], bound[:, k] if d > k else torch.zeros_like(base)

    def proposed(self, z: np.ndarray, k: int) -> np.ndarray:
        return self._screened(self._on(z), k)[0].sort(dim=1).values.cpu().numpy()

    def _taken(self, W: torch.Tensor) -> torch.Tensor:
        return self.X[W.clamp_min(0)] * (W >= 0)[:, :, None]

    def products(self, z: np.ndarray, W: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        M = self._taken(self._on(W))
        return torch.bmm(M, M.transpose(1, 2)), torch.bmm(M, self._on(z)[:, :, None])[:, :, 0]

    def one(self, own: tuple[torch.Tensor, torch.Tensor], i: int) -> tuple[np.ndarray, np.ndarray]:
        return own[0][i].cpu().numpy(), own[1][i].cpu().numpy()

    def solved(self, own, zz, kappas, beta: float, ridge: float, rtol: float, slack) -> tuple[np.ndarray, ...]:
        """As `HostColumns.solved`, all rows in step."""
        G, c = own
        kappa = self._on(kappas)
        a = batched_path(G, c, kappa, beta)
        again, explained, full = batched_refit(G, c, a, ridge)
        gap, value, violation = batched_gap(G, c, self._on(zz), a, kappa, beta)
        found = [x.cpu().numpy() for x in (a, gap, value, violation, again, explained)]
        for i in (~full).nonzero()[:, 0].tolist():  # columns that depend on others leave the refit
            found[5][i] = refit(*self.one(own, i), found[0][i], ridge, found[4][i])
        return tuple(found)

    def scores(self, z: np.ndarray, W: np.ndarray, a: np.ndarray, k: int) -> Scores:
        target, weight, M = self._on(z), self._on(a), self._taken(self._on(W))
        r = target - torch.bmm(weight[:, None], M)[:, 0]
        inner = (weight * torch.bmm(M, r[:, :, None])[:, :, 0]).sum(1)
        del M
        best, bound, outside = self._screened(r, k)
        products, length = torch.bmm(self.X[best], r[:, :, None])[:, :, 0].abs(), r.norm(dim=1)
        lead = products.amax(1)
        whole = ((outside * length > lead) | (products > bound * length[:, None] * (1 + 1e-9)).any(1)).nonzero()[:, 0]
        if len(whole):
            lead[whole] = (r[whole] @ self.X.T).abs().amax(1)
        found = lead, inner, (r * r).sum(1), (r * target).sum(1), best.sort(dim=1).values
        return Scores(*(t.cpu().numpy() for t in found))
