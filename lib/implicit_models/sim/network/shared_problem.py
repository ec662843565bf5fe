"""The row problem of a block whose positions share their kernels, in units of deviation one, its rows, and the way
back.

Tap t of a window is column t of `sources`, the same place relative to the position; outside the image it reads 0, as a
padded convolution does. Columns x_j and targets z_i are taken at every sample and position, centred, and divided by
their deviations, so that

    1/2 ||M a - z||^2 = 1/2 (n - 2 c_i'a + a'G a),    G = M'M, c_i = M'z_i, n samples times positions,

is the problem of one kernel, whatever is asked of it: a penalty, a ball, or a support from elsewhere.

Source:
    Tsai thesis (2024), section 3.3, for the rows; a convolution's weights are those of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from implicit_models.sim.network.layers import NetworkLayers
from implicit_models.sim.network.position_rows import BlockRows
from implicit_models.sim.network.supports import ChannelGroups, channel_groups
from implicit_models.sim.parallel.chunk_store import content_key
from implicit_models.sim.parallel.run import SERIAL, Parallel, map_chunks
from implicit_models.sim.problem import Budget, Tolerance
from implicit_models.sim.solvers.budget import explained_by, refit_all, solve_position

BATCH_VALUES = 2**25  # entries of a batch's window matrix
DEAD = 1e-6  # a deviation below this, relative to the level, is a column that does not vary
ROUNDING = 100.0  # units of the last place of a sum of squares that are no variance


@dataclass(frozen=True)
class SharedProblem:
    """The rows of one block in units of deviation one.

    G (d, d), C (r, d), zz (r,): sums over `count` samples times positions; source, tap, channel (d,): what a column is;
    unit, mean (d,), target, mean_z (r,): the way back, 0 for a target that does not vary. sources: block -> (P, taps)
    positions, -1 outside the image.
    """

    G: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "r d"]
    zz: Float[np.ndarray, " r"]
    count: int
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
    excluded: bool  # columns vary, and min_active leaves none
    allowed: Bool[np.ndarray, "G d"] | None = None  # columns of each group of rows that the network keeps apart

    @property
    def excluded_rows(self) -> int:
        """Rows whose targets vary, without a column because of min_active."""
        return int((self.target > 0).sum()) if self.excluded else 0

    @property
    def columns(self) -> int:
        return len(self.unit) if self.allowed is None else int(self.allowed.sum(axis=1).max())

    @property
    def spread(self) -> Float[np.ndarray, " r"]:
        """Deviations of the targets."""
        return self.target

    def explained(self, A: Float[np.ndarray, "r d"]) -> float:
        """Share of the targets' variance that rows explain, over all of them."""
        rest = self.zz - 2 * np.einsum("ij,ij->i", A, self.C) + np.einsum("ij,ij->i", A @ self.G, A)
        weight = self.target**2
        whole = float(weight @ self.zz)
        return 1 - float(weight @ rest) / whole if whole > 0 else 1.0

    def kernels(
        self, A: Float[np.ndarray, "r d"]
    ) -> tuple[dict[int, Float[np.ndarray, "r c t"]], Float[np.ndarray, " r"]]:
        """Rows in the network's units, source -> (r, channels, taps), and biases."""
        weight = A * self.target[:, None] / self.unit
        out = {}
        for k in np.unique(self.source):
            own = self.source == k
            kernel = np.zeros((len(A), self.channel[own].max() + 1, self.tap[own].max() + 1))
            kernel[:, self.channel[own], self.tap[own]] = weight[:, own]
            out[int(k)] = kernel
        return out, self.mean_z - weight @ self.mean

    def rows(self, kernels: Mapping[int, Float[np.ndarray, "r c t"]]) -> Float[np.ndarray, "r d"]:
        """The inverse of `kernels`: rows in the units of the problem; 0 for a target that does not vary."""
        A = np.zeros(self.C.shape)
        for k, kernel in kernels.items():
            own = self.source == k
            A[:, own] = kernel[:, self.channel[own], self.tap[own]]
        return A * self.unit / np.where(self.target > 0, self.target, np.inf)[:, None]

    def parameters(self, found: BlockRows, t: int, A: sp.csr_array, *, refit: bool) -> int:
        """Weights that are stored: those of the kernels."""
        return int(np.count_nonzero((found.refit if refit else found.l1)[t]))

    def matrix(self, found: BlockRows, t: int, *, refit: bool) -> tuple[sp.csr_array, np.ndarray]:
        """A (r P, columns of the sources) over channel-major states, every position with the kernel's taps inside the
        image, and b."""
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


def _windows(
    sources: Mapping[int, np.ndarray], known: Mapping[int, Tensor], part: slice, means: Mapping[int, Tensor]
) -> Tensor:
    """(d, samples P) columns less the means of their channels; what lies outside the image is 0 before that."""
    parts = []
    for k in sorted(sources):
        x = known[k][part].flatten(2) if known[k].ndim > 2 else known[k][part, :, None]
        there = torch.from_numpy(np.where(sources[k] >= 0, sources[k], x.shape[2])).t()
        wide = torch.cat([x, x.new_zeros(*x.shape[:2], 1)], dim=2)[:, :, there.reshape(-1)]  # (N, C, taps P)
        wide = wide.reshape(*x.shape[:2], *there.shape) - means[k][:, None, None]
        parts.append(wide.permute(2, 1, 0, 3).reshape(-1, len(x) * there.shape[1]))
    return torch.cat(parts)


def shared_problem(
    layers: NetworkLayers,
    block: int,
    sources: Mapping[int, np.ndarray],
    known: Mapping[int, Tensor],
    z: Float[Tensor, "m ..."],
    *,
    min_active: float = 0.0,
) -> SharedProblem:
    """The problem of a block's kernels.

    Args:
        sources: block -> (P, taps) positions that each position reads.
        known: block -> (N, *shape), the states that the columns are read from, of which the first m samples count.
        z: targets.
        min_active: as in `ByPosition`.
    Sums are in the precision of z over a batch of samples, in double precision over the batches.
    """
    P, r, m = layers.blocks[block].positions, layers.blocks[block].channels, len(z)
    labels = [
        (k, t, c) for k in sorted(sources) for t in range(sources[k].shape[1]) for c in range(layers.shape_of(k)[0])
    ]
    source, tap, channel = (np.array(each, np.int64) for each in zip(*labels, strict=True))
    d = len(labels)
    size = max(1, BATCH_VALUES // ((d + r) * P))
    mean_z = z.double().mean(dim=(0, *range(2, z.ndim)))
    means = {
        k: known[k][:m].double().mean(dim=(0, *range(2, known[k].ndim))).to(z.dtype) for k in sources
    }  # near those of the columns
    offset = np.concatenate([np.tile(means[k].double().numpy(), sources[k].shape[1]) for k in sorted(sources)])
    total = torch.zeros(d + r + 1, d + r + 1, dtype=torch.float64)
    fourth = torch.zeros(d, dtype=torch.float64)
    for at in range(0, m, size):
        part = slice(at, min(at + size, m))
        target = z[part].reshape(-1, r, P) - mean_z.to(z.dtype)[:, None]
        V = torch.cat([_windows(sources, known, part, means), target.permute(1, 0, 2).reshape(r, -1)])
        V = torch.cat([V, V.new_ones(1, V.shape[1])])
        total += (V @ V.t()).double()
        if min_active > 0:
            fourth += (V[:d].double() ** 4).sum(1)
    count, T, eps = m * P, total.numpy(), torch.finfo(z.dtype).eps
    mean = T[-1, :-1] / count
    S = T[:-1, :-1] - count * np.outer(mean, mean)
    square = np.diag(T)[:-1]
    deviation = np.sqrt(np.maximum(np.diag(S), 0.0) / count)
    # A target is a sum of large terms that may vary little: in double precision less than `DEAD` of its level is still
    # a target.
    least = np.r_[DEAD * np.abs(offset), min(DEAD, ROUNDING * eps) * np.abs(mean_z.numpy())]
    # A column may be constant where it is read and its channel not elsewhere: then S is the rounding of two equal
    # terms.
    live = (deviation > np.maximum(least, 1e-30)) & (np.diag(S) > ROUNDING * eps * square)
    vary = bool(live[:d].any())
    live[:d] &= square[:d] ** 2 >= min_active * fourth.numpy()
    unit = np.where(live, deviation, 1.0)
    S = np.where(live[:, None] & live, S / unit[:, None] / unit, 0.0)
    S = 0.5 * (S + S.T)
    return SharedProblem(
        np.ascontiguousarray(S[:d, :d]),
        np.ascontiguousarray(S[d:, :d]),
        np.where(live[d:], float(count), 0.0),
        count,
        source,
        tap,
        channel,
        unit[:d],
        mean[:d] + offset,
        unit[d:] * live[d:],
        mean_z.numpy() + mean[d:],
        sources,
        layers,
        P,
        vary and not live[:d].any(),
        _allowed(channel_groups(layers, block, sources), source, channel),
    )


def _allowed(groups: ChannelGroups | None, source: np.ndarray, channel: np.ndarray) -> np.ndarray | None:
    """Which columns the rows of each group may use."""
    if groups is None:
        return None
    ranges = np.stack([groups.ranges[int(k)] for k in source], axis=1)  # (G, d, 2)
    return (ranges[..., 0] <= channel) & (channel < ranges[..., 1])


def solve_kernels(
    arrays: Mapping[str, np.ndarray],
    chunk: tuple[int, int],
    *,
    count: int,
    budgets: Sequence[Budget],
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
) -> dict[str, np.ndarray]:
    """The rows of a problem {"G", "C", "zz"} of `count` samples times positions, all in one chunk, for `map_chunks`:
    l1 and refit (r, K, d), and (r, K) arrays as in `BlockRows`. With "allowed" (groups, d) the rows are equal runs,
    each with its own columns."""
    G, C, zz = arrays["G"], arrays["C"], arrays["zz"]
    allowed = arrays.get("allowed")
    if allowed is not None:
        parts = []
        for rows, own in zip(np.split(np.arange(len(zz)), len(allowed)), allowed, strict=True):
            sub = {"G": G[np.ix_(own, own)], "C": np.ascontiguousarray(C[np.ix_(rows, own)]), "zz": zz[rows]}
            part = solve_kernels(sub, chunk, count=count, budgets=budgets, ridge=ridge, tolerance=tolerance, cap=cap)
            for name in ("l1", "refit"):
                wide = np.zeros((*part[name].shape[:2], len(own)))
                wide[:, :, own] = part[name]
                part[name] = wide
            parts.append(part)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    A, gap, violation, reason = solve_position(G, C, zz, count, budgets, np.ones(len(zz)), tolerance=tolerance, cap=cap)
    B, seen, seen_refit = np.zeros_like(A), np.empty(A.shape[:2]), np.empty(A.shape[:2])
    explained_by(G, C, A, seen)
    refit_all(G, C, A, ridge, B, seen_refit)
    found = {"l1": A, "refit": B, "gap": gap, "fit": seen, "fit_refit": seen_refit}
    return found | {"violation": violation, "reason": reason}


def solve_shared(
    problem: SharedProblem,
    budgets: Sequence[Budget],
    *,
    ridge: float,
    tolerance: Tolerance,
    cap: int | None,
    parallel: Parallel = SERIAL,
) -> BlockRows:
    """Kernels of a block. Args: as `solve_block`; the few rows of a block are one chunk, so that of `parallel` its
    folder and its progress count."""
    zz = problem.zz
    r = len(zz)
    arrays = {"G": problem.G, "C": problem.C, "zz": zz}
    if problem.allowed is not None:
        arrays["allowed"] = problem.allowed
    settings = {"count": problem.count, "budgets": tuple(budgets), "ridge": ridge, "tolerance": tolerance, "cap": cap}
    key = "" if parallel.resume is None else content_key(arrays, ("shared", sorted(settings.items())))
    (found,), run = map_chunks(
        partial(solve_kernels, **settings),  # type: ignore[arg-type]
        [(0, r)],
        arrays=arrays,
        parallel=parallel.alone(),
        key=key,
    )
    A, B = found["l1"], found["refit"]
    safe = np.where(zz > 0, zz, 1.0)[:, None]
    pointer, column, l1, refit = [], [], [], []
    for t in range(len(budgets)):
        i, j = np.nonzero(A[:, t])
        pointer.append(np.concatenate([[0], np.cumsum(np.bincount(i, minlength=r))]))
        column.append(j.astype(np.int32))
        l1.append(A[i, t, j])
        refit.append(B[i, t, j])
    share = lambda s: np.where(zz[:, None] > 0, s / safe, 1.0)
    return BlockRows(
        pointer,
        column,
        l1,
        refit,
        found["gap"] / (0.5 * safe),
        share(found["fit"]),
        share(found["fit_refit"]),
        found["violation"],
        found["reason"],
        run,
    )
