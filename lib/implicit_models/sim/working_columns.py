"""Columns that many rows may use, and what the working-set method asks of them: the largest correlations, and products of few columns.

X (d, m) is read twice: in single precision to propose columns, in double precision for every number that a certificate is made of. `HostColumns`
is NumPy, for one thread of many; `DeviceColumns` is torch, for a graphics card (or the processor, where it gives the same).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit

from implicit_models.sim.cholesky import OPTIONS


class Scores(NamedTuple):
    """Of residuals r = z - a'X_W: the largest |x_j'r| over all columns, a'X_W r, r'r, z'r, and the columns with the largest |x_j'r|."""

    lead: Float[np.ndarray, " b"]
    inner: Float[np.ndarray, " b"]
    square: Float[np.ndarray, " b"]
    against: Float[np.ndarray, " b"]
    best: Int[np.ndarray, "b k"]


@njit(**OPTIONS)
def largest(S, k):
    """(b, k) places of the k largest |S| of every row, by a heap whose root is the least of them; ascending."""
    b, d = S.shape
    out = np.empty((b, k), np.int64)
    value, place = np.empty(k), np.empty(k, np.int64)
    for i in range(b):
        for j in range(d):
            v = abs(S[i, j])
            if j < k:
                at = j
                while at > 0 and value[(at - 1) // 2] > v:
                    up = (at - 1) // 2
                    value[at], place[at] = value[up], place[up]
                    at = up
            elif v > value[0]:
                at = 0
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
                continue
            value[at], place[at] = v, j
        out[i] = np.sort(place)
    return out


class HostColumns:
    """X in memory, float64, with a copy in float32. size: rows of a batch, so that its scores take about 256 MB."""

    def __init__(self, X: Float[np.ndarray, "d m"], single: Float[np.ndarray, "d m"]):
        self.X, self.single = X, single
        self.size = max(1, 2**25 // max(1, len(X)))

    def proposed(self, z: Float[np.ndarray, "b m"], k: int) -> Int[np.ndarray, "b k"]:
        return largest(np.dot(z.astype(np.float32), self.single.T), k)

    def products(self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"]) -> tuple[np.ndarray, np.ndarray]:
        """G (b, k, k) and X_W z (b, k); an index of -1 is no column."""
        G, c = np.empty((*W.shape, W.shape[1])), np.empty(W.shape)
        for i, w in enumerate(W):
            M = self.X[w]
            M[w < 0] = 0.0
            G[i], c[i] = M @ M.T, M @ z[i]
        return G, c

    def scores(self, z: Float[np.ndarray, "b m"], W: Int[np.ndarray, "b k"], a: Float[np.ndarray, "b k"], k: int) -> Scores:
        r = np.stack([z[i] - a[i, s] @ self.X[W[i, s]] for i, s in enumerate(a != 0)])
        S = np.dot(r, self.X.T)
        inner = np.einsum("bk,bk->b", a, np.take_along_axis(S, W, axis=1))
        best = largest(S, k)
        lead = np.abs(np.take_along_axis(S, best, axis=1)).max(axis=1)
        return Scores(lead, inner, np.einsum("bm,bm->b", r, r), np.einsum("bm,bm->b", r, z), best)


class DeviceColumns:
    """X on a torch device. The proposal may use the device's fast single precision; what is certified is float64."""

    def __init__(self, X: Float[np.ndarray, "d m"], device: str):
        self.X = torch.from_numpy(X).to(device)
        self.single = self.X.float()
        self.size = max(1, min(4096, 2**28 // max(1, len(X))))

    def _on(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).to(self.X.device)

    def proposed(self, z: np.ndarray, k: int) -> np.ndarray:
        allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            S = self._on(z).float() @ self.single.T
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        return S.abs().topk(k, dim=1).indices.sort(dim=1).values.cpu().numpy()

    def _taken(self, W: np.ndarray) -> torch.Tensor:
        w = self._on(W)
        return self.X[w.clamp_min(0)] * (w >= 0)[:, :, None]

    def products(self, z: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        M = self._taken(W)
        c = torch.bmm(M, self._on(z)[:, :, None])[:, :, 0]
        return torch.bmm(M, M.transpose(1, 2)).cpu().numpy(), c.cpu().numpy()

    def scores(self, z: np.ndarray, W: np.ndarray, a: np.ndarray, k: int) -> Scores:
        target, weight, w = self._on(z), self._on(a), self._on(W)
        r = target - torch.bmm(weight[:, None], self._taken(W))[:, 0]
        S = r @ self.X.T
        inner = (weight * S.gather(1, w.clamp_min(0))).sum(1)
        value, best = S.abs().topk(k, dim=1)
        found = value[:, 0], inner, (r * r).sum(1), (r * target).sum(1), best.sort(dim=1).values
        return Scores(*(t.cpu().numpy() for t in found))
