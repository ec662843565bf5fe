"""Rows that all positions of a block share: sparse kernels, fitted to every sample at every position.

Tap t of a window is column t of `sources`, the same place relative to the position; outside the image it reads 0, as a padded convolution
does. The problem is the row problem of position_rows with P m samples: one Gram matrix a block, summed over batches in single
precision products of centred values and double precision sums.

Source: Tsai thesis (2024), section 3.3, for the rows; a convolution's weights are those of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int
from torch import Tensor

from implicit_models.sim.backends import RunReport
from implicit_models.sim.budget_rows import Budget, explained_by, refit_all, solve_position
from implicit_models.sim.network_layers import NetworkLayers
from implicit_models.sim.position_rows import BlockRows

BATCH_VALUES = 2**25  # entries of a batch's window matrix


@dataclass(frozen=True)
class SharedRows:
    """The way from kernels to rows: tap and channel of each column, its unit and mean, units and means of the targets."""

    source: Int[np.ndarray, " d"]
    tap: Int[np.ndarray, " d"]
    channel: Int[np.ndarray, " d"]
    unit: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    target: Float[np.ndarray, " r"]
    mean_z: Float[np.ndarray, " r"]
    sources: Mapping[int, np.ndarray]
    layers: NetworkLayers
    positions: int

    @property
    def columns(self) -> int:
        return len(self.unit)

    def matrix(self, found: BlockRows, t: int, *, refit: bool) -> tuple[sp.csr_array, np.ndarray]:
        """A (r P, columns of the sources) over channel-major states, every position with the kernel's taps inside the image, and b."""
        values, pointer, column = (found.refit if refit else found.l1)[t], found.pointer[t], found.column[t]
        r, P = len(self.target), self.positions
        row = np.repeat(np.arange(r), np.diff(pointer))
        weight = values * self.target[row] / self.unit[column]
        shift = self.mean_z - np.bincount(row, weight * self.mean[column], minlength=r)
        width, parts = 0, []
        for k in sorted(self.sources):
            shape = self.layers.shape_of(k)
            size = int(np.prod(shape[1:]))
            own = self.source[column] == k
            place = self.sources[k][:, self.tap[column[own]]]  # (P, entries)
            w, e = np.nonzero(place >= 0)
            entry = np.flatnonzero(own)[e]
            parts.append((row[entry] * P + w, width + self.channel[column[entry]] * size + place[w, e], weight[entry]))
            width += shape[0] * size
        i, j, v = (np.concatenate(each) for each in zip(*parts, strict=True))
        A = sp.csr_array((v, (i, j)), (r * P, width))
        A.eliminate_zeros()  # a refit drops columns that depend on others
        return A, np.repeat(shift, P)


def solve_shared(
    layers: NetworkLayers, block: int, sources: Mapping[int, np.ndarray], own: Mapping[int, Tensor], z: Tensor, m: int, budget: Budget, *,
    ridge: float, min_active: float, rtol: float, atol: float, cap: int | None,
) -> tuple[SharedRows, BlockRows]:  # fmt: skip
    """Kernels of a block.

    Args: own: states of the blocks read, (N, *shape); the first m samples count. z: targets. The rest as `solve_block`.
    Raises: ValueError where positions read different numbers of taps in an order of their own.
    """
    b = layers.blocks[block]
    P = b.positions
    labels = [(k, t, c) for k in sorted(sources) for t in range(sources[k].shape[1]) for c in range(layers.shape_of(k)[0])]
    source, tap, channel = (np.array(each, np.int64) for each in zip(*labels, strict=True))
    d, r = len(labels), b.channels
    size = max(1, BATCH_VALUES // ((d + r) * P))
    mean_z = z[:m].mean(dim=(0, *range(2, z.ndim))).double()
    total = torch.zeros(d + r + 1, d + r + 1, dtype=torch.float64)
    fourth = torch.zeros(d, dtype=torch.float64)
    means = {k: own[k][:m].double().mean(dim=(0, *range(2, own[k].ndim))).to(z.dtype) for k in sources}  # near those of the columns
    offset = np.concatenate([np.tile(means[k].double().numpy(), sources[k].shape[1]) for k in sorted(sources)])
    for at in range(0, m, size):
        parts = []
        for k in sorted(sources):
            x = own[k][at : min(at + size, m)].flatten(2) if own[k].ndim > 2 else own[k][at : min(at + size, m), :, None]
            index = torch.from_numpy(np.where(sources[k] >= 0, sources[k], x.shape[2]))
            wide = torch.cat([x, x.new_zeros(*x.shape[:2], 1)], dim=2)[:, :, index] - means[k][:, None, None]  # (N, C, P, taps)
            parts.append(wide.permute(3, 1, 0, 2).reshape(-1, x.shape[0] * P))
        target = z[at : min(at + size, m)].reshape(-1, r, P) - mean_z.to(z.dtype)[:, None]
        V = torch.cat([*parts, target.permute(1, 0, 2).reshape(r, -1)])
        V = torch.cat([V, V.new_ones(1, V.shape[1])])
        total += (V @ V.t()).double()
        fourth += (V[:d].double() ** 4).sum(1)
    n = m * P
    T = total.numpy()
    mean = T[-1, :-1] / n
    S = T[:-1, :-1] - n * np.outer(mean, mean)
    G, C, zz = S[:d, :d], S[d:, :d], np.diag(S)[d:].copy()
    square = np.diag(T)[:d]
    deviation = np.sqrt(np.maximum(np.diag(G), 0.0) / n)
    live = (deviation > 1e-5 * np.abs(mean[:d] + offset)) & (deviation > 0) & (square * square >= min_active * fourth.numpy())
    unit = np.where(live, deviation, 1.0)
    spread = np.sqrt(np.maximum(zz, 0.0) / n)
    alive = spread > 1e-12 * np.maximum(np.abs(mean_z.numpy()), 1e-300)
    units_z = np.where(alive, spread, 1.0)
    G = np.where(live[:, None] & live, G / unit[:, None] / unit, 0.0)
    C = np.where(live, C / unit / units_z[:, None], 0.0)
    zz = np.where(alive, n * np.ones(r), 0.0)
    G, C = np.ascontiguousarray(0.5 * (G + G.T)), np.ascontiguousarray(C)
    A, gap, violation, reason = solve_position(G, C, zz, n, budget, np.ones(r), rtol=rtol, atol=atol, cap=cap)
    B, seen, seen_refit = np.zeros_like(A), np.empty(A.shape[:2]), np.empty(A.shape[:2])
    explained_by(G, C, A, seen)
    refit_all(G, C, A, ridge, B, seen_refit)
    safe = np.where(zz > 0, zz, 1.0)[:, None]
    pointer, column, l1, refit = [], [], [], []
    for t in range(len(budget)):
        i, j = np.nonzero(A[:, t])
        pointer.append(np.concatenate([[0], np.cumsum(np.bincount(i, minlength=r))]))
        column.append(j.astype(np.int32))
        l1.append(A[i, t, j])
        refit.append(B[i, t, j])
    share = lambda s: np.where(zz[:, None] > 0, s / safe, 1.0)  # noqa: E731
    rows = BlockRows(pointer, column, l1, refit, gap / (0.5 * safe), share(seen), share(seen_refit), violation, reason, RunReport("serial", 1))
    means_z = mean_z.numpy() + mean[d:]
    return SharedRows(source, tap, channel, unit, mean[:d] + offset, units_z * alive, means_z, sources, layers, P), rows
