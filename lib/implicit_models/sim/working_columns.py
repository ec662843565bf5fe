"""Columns that many rows may use, and what the working-set method asks of them: the largest correlations, and products of few columns.

Every column is read once a round, in single precision, at unit length; what a certificate is made of is double precision. For a residual r

    | x_j'r - ||x_j|| ||r|| s_j | <= ||x_j|| ||r|| eps_m,      s_j the product of x_j / ||x_j|| and r / ||r|| in single precision,

where eps_m bounds m products and their sum in any order (Higham 2002, (3.5)). The k columns of the largest bounds ||x_j|| ||r|| (|s_j| + eps_m)
are taken; their x_j'r are computed in double precision, from the largest bound on, until none that is left could be larger. So max_j |x_j'r| is
that of double precision over all columns. A row whose maximum could lie outside the k is read in double precision whole.

`HostColumns` is NumPy, for one thread of many; `DeviceColumns` is torch, for a graphics card (or the processor, where it gives the same).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit

from implicit_models.sim.batched_rows import batched_gap, batched_path, batched_refit
from implicit_models.sim.budget_rows import refit
from implicit_models.sim.cholesky import OPTIONS
from implicit_models.sim.separate_rows import refit_each, solve_each

UNIT = 2.0**-24  # of single precision
TF32 = 2.0**-10, 2.0**-22  # a factor that is cut to 10 bits; a term of a sum on tensor cores, which cut too


class Scores(NamedTuple):
    """Of residuals r = z - a'X_W: the largest |x_j'r| over all columns, a'X_W r, r'r, z'r, and the columns of the largest |x_j'r|, up to rounding."""

    lead: Float[np.ndarray, " b"]
    inner: Float[np.ndarray, " b"]
    square: Float[np.ndarray, " b"]
    against: Float[np.ndarray, " b"]
    best: Int[np.ndarray, "b k"]


def rounding(m: int, factor: float = UNIT, term: float = UNIT) -> float:
    """eps_m: of an inner product of m terms of vectors of unit length, whose entries are rounded by `factor` and sums by `term`.

    Raises: ValueError where m is so large that nothing is known.
    """
    if m * term >= 0.5:
        raise ValueError(f"inner products of {m} terms in single precision have no known digit")
    bound = (1 + factor) ** 2 * (1 + m * term / (1 - m * term)) - 1
    return bound * (1 + 1e-6) + 2.0**-100  # lengths are rounded too, and entries below the least normal number


def unit_columns(X: Float[np.ndarray, "d m"]) -> tuple[Float[np.ndarray, "d m"], Float[np.ndarray, " d"]]:
    """Columns of unit length in single precision, and their lengths; a column of zeros stays."""
    norm, single = np.empty(len(X)), np.empty(X.shape, np.float32)
    for at in range(0, len(X), 256):  # no second copy in double precision
        part = X[at : at + 256]
        most = np.abs(part).max(axis=1, initial=0.0)
        scaled = part / np.where(most > 0, most, 1.0)[:, None]
        length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        single[at : at + 256] = scaled / np.where(length > 0, length, 1.0)[:, None]
        norm[at : at + 256] = length * most
    return single, norm


@njit(**OPTIONS)
def largest(S, norm, add, k, best, outside):
    """The k columns j of the largest (|S_ij| + add) norm_j of every row, ascending in j; outside (b,): a bound on it for all others."""
    b, d = S.shape
    value, place = np.empty(k), np.empty(k, np.int64)
    for i in range(b):
        outside[i] = 0.0
        for j in range(d):
            v = (abs(S[i, j]) + add) * norm[j]
            if j < k:
                at = j
                while at > 0 and value[(at - 1) // 2] > v:
                    up = (at - 1) // 2
                    value[at], place[at] = value[up], place[up]
                    at = up
            elif v > value[0]:
                at = 0
                outside[i] = value[0]
                while True:
                    down = 2 * at + 1
                    if down >= k:
                        break
                    if down + 1 < k and value[down + 1] < value[down]:
                        down += 1
                    if value[down] >= v:
                        break
                    value[at], place[at] = value[down], place[down]
                    at = down
            else:
                outside[i] = max(outside[i], v)
                continue
            value[at], place[at] = v, j
        best[i] = np.sort(place)


@njit(**OPTIONS)
def leads(X, norm, S, add, r, best, outside, lead):
    """max_j |x_j'r_i| of every row over all columns, from those in `best` whose bound allows for it; returns how many rows were read whole."""
    k, whole = best.shape[1], 0
    for i in range(len(r)):
        length = np.sqrt(np.dot(r[i], r[i]))
        bound = np.empty(k)
        for h in range(k):
            j = best[i, h]
            bound[h] = (abs(S[i, j]) + add) * norm[j]
        top = 0.0
        for h in np.argsort(-bound):
            if bound[h] * length <= top:
                break
            top = max(top, abs(np.dot(X[best[i, h]], r[i])))
        if outside[i] * length > top:
            whole += 1
            top = np.abs(np.dot(X, r[i])).max()
        lead[i] = top
    return whole


class HostColumns:
    """X in memory, float64, with its columns at unit length in float32 and their lengths. size: rows of a batch, so that its scores take about 128 MB."""

    def __init__(self, X: Float[np.ndarray, "d m"], single: Float[np.ndarray, "d m"], norm: Float[np.ndarray, " d"]):
        self.X, self.single, self.norm = X, single, norm
        self.size = max(1, 2**25 // max(1, len(X)))
        self.eps = rounding(X.shape[1])

    def _correlations(self, r: Float[np.ndarray, "b m"], add: float, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        length = np.abs(r).max(axis=1, keepdims=True, initial=0.0)
        unit = r / np.where(length > 0, length, 1.0)
        square = np.sqrt(np.einsum("bm,bm->b", unit, unit))[:, None]
        S = np.dot((unit / np.where(square > 0, square, 1.0)).astype(np.float32), self.single.T)
        best, outside = np.empty((len(r), k), np.int64), np.empty(len(r))
        largest(S, self.norm, add, k, best, outside)
        return S, best, outside

    def proposed(self, z: Float[np.ndarray, "b m"], k: int) -> Int[np.ndarray, "b k"]:
        """The k columns of the largest correlation with each row, ascending."""
        return self._correlations(z, 0.0, k)[1]

    def products(self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"]) -> tuple[np.ndarray, np.ndarray]:
        """G (b, k, k) and X_W z (b, k); an index of -1 is no column."""
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
        self, own: tuple[np.ndarray, np.ndarray], zz: Float[np.ndarray, " b"], kappas: Float[np.ndarray, " b"], beta: float, ridge: float, rtol: float,
        slack: Float[np.ndarray, " b"],
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """Of `products`: coefficients (b, k), gap and objective on these columns, excess over the ball, and the refit with what it explains."""
        G, c = own
        a, again = np.zeros(c.shape), np.zeros(c.shape)
        gap, value, violation, explained = np.full(len(c), np.nan), np.zeros(len(c)), np.zeros(len(c)), np.zeros(len(c))
        solve_each(G, c, zz, kappas, beta, rtol, slack, a, gap, value, violation)
        refit_each(G, c, a, ridge, again, explained)
        return a, gap, value, violation, again, explained

    def scores(self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"], a: Float[np.ndarray, "b k"], k: int) -> Scores:
        r, inner, lead = np.empty_like(z), np.empty(len(z)), np.empty(len(z))
        for i, on in enumerate(a != 0):
            M = self.X[W[i, on]]
            r[i] = z[i] - a[i, on] @ M
            inner[i] = a[i, on] @ (M @ r[i])
        S, best, outside = self._correlations(r, self.eps, k)
        leads(self.X, self.norm, S, self.eps, r, best, outside, lead)
        return Scores(lead, inner, np.einsum("bm,bm->b", r, r), np.einsum("bm,bm->b", r, z), best)


class DeviceColumns:
    """X on a torch device. The screen may use the device's fast single precision; what is certified is float64."""

    def __init__(self, X: Float[np.ndarray, "d m"], single: Float[np.ndarray, "d m"], norm: Float[np.ndarray, " d"], device: str):
        self.X, self.single, self.norm = (torch.from_numpy(x).to(device) for x in (X, single, norm))
        d, m = X.shape
        self.size = max(1, min(4096, 2**28 // max(1, d)))
        self.fast = self.X.is_cuda
        self.eps = rounding(m, *TF32) if self.fast else rounding(m)

    def _on(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).to(self.X.device)

    def _correlations(self, r: torch.Tensor, add: float, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Places of the k largest bounds, and the largest bound of all other columns, over ||r||."""
        length = r.norm(dim=1, keepdim=True)
        unit = (r / torch.where(length > 0, length, 1.0)).float()
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            S = unit @ self.single.T
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        d = S.shape[1]
        bound, best = ((S.double().abs_() + add) * self.norm).topk(min(d, k + 1), dim=1)
        outside = bound[:, k] if d > k else torch.zeros_like(length[:, 0])
        return best[:, :k], outside

    def proposed(self, z: np.ndarray, k: int) -> np.ndarray:
        return self._correlations(self._on(z), 0.0, k)[0].sort(dim=1).values.cpu().numpy()

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
        best, outside = self._correlations(r, self.eps, k)
        lead = torch.bmm(self.X[best], r[:, :, None])[:, :, 0].abs().amax(1)
        whole = (outside * r.norm(dim=1) > lead).nonzero()[:, 0]
        if len(whole):
            lead[whole] = (r[whole] @ self.X.T).abs().amax(1)
        found = lead, inner, (r * r).sum(1), (r * target).sum(1), best.sort(dim=1).values
        return Scores(*(t.cpu().numpy() for t in found))
