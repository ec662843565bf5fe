"""Rows of a convolutional network with one kernel for all positions: least-squares problems in a few hundred rows for a whole network.

Block l has r channels, each a row over d columns: the taps of the window at every channel of the block before, and the shortcut's channels. Columns x_j
and targets z_i are taken at every sample and position, centred, and divided by their deviations, so that

    1/2 ||M a - z||^2 = 1/2 (n - 2 c_i'a + a'G a),    G = M'M, c_i = M'z_i, n samples times positions,

is the problem of one kernel, whatever is asked of it: a penalty, a ball, or a support from elsewhere. `fit_kernels` fits the blocks in order on the
network's states or on the model's own.

Source: Tsai thesis (2024), section 3.3, with kernels for rows; Han et al. (2015) for magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from implicit_models.sim.network_layers import INPUT, NetworkLayers

BATCH = 100  # samples whose windows are held at a time
DEAD = 1e-6  # a deviation below this, relative to the level, is a column, or a target, that does not vary
ROUNDING = 100.0  # units of the last place of a sum of squares that are no variance


@dataclass(frozen=True)
class KernelProblem:
    """The rows of one block in units of deviation one.

    G (d, d), C (r, d), zz (r,): sums over `count` samples times positions; source, tap, channel (d,): what a column is; unit, mean (d,), target, mean_z
    (r,): the way back, 0 for a target that does not vary.
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

    def explained(self, A: Float[np.ndarray, "r d"]) -> float:
        """Share of the targets' variance that rows explain, over all of them."""
        rest = self.zz - 2 * np.einsum("ij,ij->i", A, self.C) + np.einsum("ij,ij->i", A @ self.G, A)
        weight = self.target**2
        whole = float(weight @ self.zz)
        return 1 - float(weight @ rest) / whole if whole > 0 else 1.0

    def kernels(self, A: Float[np.ndarray, "r d"]) -> tuple[dict[int, Float[np.ndarray, "r c t"]], Float[np.ndarray, " r"]]:
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


def _labels(layers: NetworkLayers, block: int) -> list[tuple[int, int, int]]:
    sources = layers.blocks[block].sources
    return [(k, t, c) for k in sorted(sources) for t in range(sources[k].shape[1]) for c in range(layers.shape_of(k)[0])]


def _windows(layers: NetworkLayers, block: int, known: Mapping[int, Tensor], means: Mapping[int, Tensor]) -> Tensor:
    """(d, N P) columns less the means of their channels; what lies outside the image is 0 before that."""
    parts = []
    for k, index in sorted(layers.blocks[block].sources.items()):
        x = known[k].flatten(2)
        there = torch.from_numpy(np.where(index >= 0, index, x.shape[2]))
        wide = torch.cat([x, x.new_zeros(*x.shape[:2], 1)], dim=2)[:, :, there.t().reshape(-1)]  # (N, C, taps P)
        wide = wide.reshape(len(x), x.shape[1], *there.t().shape) - means[k][:, None, None]
        parts.append(wide.permute(2, 1, 0, 3).reshape(-1, len(x) * there.shape[0]))
    return torch.cat(parts)


def kernel_problem(layers: NetworkLayers, block: int, known: Mapping[int, Tensor], z: Float[Tensor, "m ..."]) -> KernelProblem:
    """The problem of a block's kernels.

    Args: known: block -> (m, *shape), the states that the columns are read from. z: targets. Sums are in the precision of z over a batch of samples, in
        double precision over the batches.
    """
    b = layers.blocks[block]
    source, tap, channel = (np.array(each, np.int64) for each in zip(*_labels(layers, block), strict=True))
    d, r, m = len(source), b.channels, len(z)
    means = {k: known[k].double().mean(dim=(0, *range(2, known[k].ndim))).to(z.dtype) for k in b.sources}
    offset = np.concatenate([np.tile(means[k].double().numpy(), b.sources[k].shape[1]) for k in sorted(b.sources)])
    mean_z = z.double().mean(dim=(0, *range(2, z.ndim)))
    total = torch.zeros(d + r + 1, d + r + 1, dtype=torch.float64)
    for at in range(0, m, BATCH):
        part = slice(at, at + BATCH)
        target = z[part].flatten(2) - mean_z.to(z.dtype)[:, None]
        V = torch.cat([_windows(layers, block, {k: known[k][part] for k in b.sources}, means), target.permute(1, 0, 2).reshape(r, -1)])
        V = torch.cat([V, V.new_ones(1, V.shape[1])])
        total += (V @ V.t()).double()
    count, T = m * b.positions, total.numpy()
    mean = T[-1, :-1] / count
    S = T[:-1, :-1] - count * np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(S), 0.0) / count)
    level = np.abs(np.r_[offset, mean_z.numpy()])
    # A column may be constant where it is read and its channel not elsewhere: then S is the rounding of two equal terms.
    live = (deviation > np.maximum(DEAD * level, 1e-30)) & (np.diag(S) > ROUNDING * torch.finfo(z.dtype).eps * np.diag(T)[:-1])
    unit = np.where(live, deviation, 1.0)
    S = np.where(live[:, None] & live, S / unit[:, None] / unit, 0.0)
    S = 0.5 * (S + S.T)
    return KernelProblem(
        np.ascontiguousarray(S[:d, :d]), np.ascontiguousarray(S[d:, :d]), np.where(live[d:], float(count), 0.0), count, source, tap, channel,
        unit[:d], mean[:d] + offset, unit[d:] * live[d:], mean_z.numpy() + mean[d:],
    )  # fmt: skip


@torch.no_grad()
def own_kernels(layers: NetworkLayers, block: int) -> tuple[dict[int, Float[np.ndarray, "r c t"]], Float[np.ndarray, " r"]]:
    """The network's own kernels of a block, source -> (r, channels, taps) with normalisation folded in, and biases: its answers to single pixels."""
    b = layers.blocks[block]
    zeros = {k: torch.zeros(1, *layers.shape_of(k), dtype=layers.dtype) for k in b.sources}
    base = layers.affine(block, zeros).flatten(2)
    inside = np.logical_and.reduce([(index >= 0).all(axis=1) for index in b.sources.values()])
    w = int(np.flatnonzero(inside)[inside.sum() // 2])  # a position whose window lies in the image
    found = {}
    for k, index in b.sources.items():
        shape, kernel = layers.shape_of(k), []
        for place in index[w]:
            pixel = torch.zeros(shape[0], shape[0], int(np.prod(shape[1:])), dtype=layers.dtype)
            pixel[torch.arange(shape[0]), torch.arange(shape[0]), int(place)] = 1
            others = {j: zeros[j].expand(shape[0], *zeros[j].shape[1:]) for j in b.sources if j != k}
            answer = layers.affine(block, {**others, k: pixel.reshape(shape[0], *shape)}).flatten(2)[:, :, w]
            kernel.append((answer - base[:, :, w]).t().double().numpy())
        found[k] = np.stack(kernel, axis=2)
    return found, base[0, :, w].double().numpy()


class KernelModel(nn.Module):
    """A network with fitted kernels: blocks -> (source -> (r, channels, taps), bias); other blocks, and the output without a head, are the network's.

    Windows of nine taps are 3 x 3 with a border of one, single taps are shortcuts; the stride follows from the sizes.
    """

    def __init__(self, layers: NetworkLayers, head: tuple[Tensor, Tensor] | None = None):
        super().__init__()
        self.layers, self.fitted, self.head = layers, {}, head

    def set(self, block: int, kernels: Mapping[int, np.ndarray], bias: np.ndarray) -> None:
        """Give a block its kernels."""
        cast = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(self.layers.dtype)  # noqa: E731
        shaped = {}
        for k, kernel in kernels.items():
            side = math.isqrt(kernel.shape[2])
            if side * side != kernel.shape[2]:
                raise ValueError(f"block {block}: a window of {kernel.shape[2]} taps is no square")
            shaped[k] = cast(kernel).reshape(*kernel.shape[:2], side, side)
        self.fitted[block] = (shaped, cast(bias))

    def pre_activation(self, block: int, known: Mapping[int, Tensor]) -> Tensor:
        """z of a block from the states that it reads."""
        if block not in self.fitted:
            return self.layers.affine(block, known)
        kernels, bias = self.fitted[block]
        z = bias[:, None, None]
        for k, kernel in kernels.items():
            x, side = known[k], kernel.shape[2]
            z = z + conv2d(x, kernel, stride=x.shape[2] // self.layers.blocks[block].shape[1], padding=side // 2)
        return z

    def states(self, u: Float[Tensor, "N ..."]) -> dict[int, Tensor]:
        """block -> states, and INPUT -> u."""
        known = {INPUT: u}
        for block in range(len(self.layers.blocks)):
            known[block] = self.layers.apply(block, self.pre_activation(block, known))
        return known

    def forward(self, u: Float[Tensor, "N ..."]) -> Float[Tensor, "N q"]:
        return self.output(self.states(u))

    def output(self, known: Mapping[int, Tensor]) -> Tensor:
        """Outputs from the states."""
        return self.layers.affine(None, known) if self.head is None else linear(self.layers.features(known), *self.head)

    def counts(self) -> dict[str, int]:
        """Non-zeros of the whole model: "numbers" that are stored, "entries" of the rows of all positions; blocks that were not fitted are the network's."""
        numbers = entries = 0
        for block, b in enumerate(self.layers.blocks):
            if block not in self.fitted:
                numbers, entries = numbers + self.layers.kernel_weights(block), entries + self.layers.entries(block)
                continue
            for k, kernel in self.fitted[block][0].items():
                used = (kernel != 0).flatten(2).sum(dim=(0, 1)).numpy()  # of each tap
                numbers, entries = numbers + int(used.sum()), entries + int(used @ (b.sources[k] >= 0).sum(axis=0))
        return {"numbers": numbers, "entries": entries}


Solver = Callable[[int, KernelProblem], Float[np.ndarray, "r d"]]


def walk(layers: NetworkLayers, u: Float[Tensor, "m ..."], visit: Callable[[int, dict[int, Tensor], Tensor], Any], model: KernelModel | None) -> dict[int, Tensor]:
    """Visit every block that reads other blocks, in order: visit(block, states that it reads, the network's z).

    Args: model: whose own states the blocks read, with what `visit` has given it so far; None for the network's states.
    Returns: states of the last blocks, for the output.
    """
    teacher: dict[int, Tensor] = {INPUT: u}
    own = teacher if model is None else {INPUT: u}
    for block, b in enumerate(layers.blocks):
        z = torch.cat([layers.affine(block, {k: teacher[k][at : at + BATCH] for k in teacher}) for at in range(0, len(u), BATCH)])
        if INPUT not in b.sources:
            visit(block, own, z)
        teacher[block] = layers.apply(block, z)
        if model is not None:
            parts = [model.pre_activation(block, {k: own[k][at : at + BATCH] for k in own}) for at in range(0, len(u), BATCH)]
            own[block] = layers.apply(block, torch.cat(parts))
        later = {k for later in layers.blocks[block + 1 :] for k in later.sources} | set(layers.output.reads)
        for done in [k for k in teacher if k not in later]:
            teacher.pop(done)
            own.pop(done, None)
    return own


@torch.no_grad()
def fit_kernels(layers: NetworkLayers, u: Float[Tensor, "m ..."], solve: Solver, *, student: bool = True) -> tuple[KernelModel, dict[int, float]]:
    """A model of the kernels that `solve` gives, block by block, and the share of variance that each block's rows explain on the samples of the fit."""
    model, fit = KernelModel(layers), {}

    def visit(block: int, known: dict[int, Tensor], z: Tensor) -> None:
        problem = kernel_problem(layers, block, known, z)
        A = solve(block, problem)
        model.set(block, *problem.kernels(A))
        fit[block] = problem.explained(A)

    walk(layers, u, visit, model if student else None)
    return model, fit


@torch.no_grad()
def teacher_problems(layers: NetworkLayers, u: Float[Tensor, "m ..."]) -> dict[int, KernelProblem]:
    """The problem of every block on the network's states: made once for many fits."""
    found: dict[int, KernelProblem] = {}
    walk(layers, u, lambda block, known, z: found.__setitem__(block, kernel_problem(layers, block, known, z)), None)
    return found


def model_of(layers: NetworkLayers, problems: Mapping[int, KernelProblem], rows: Mapping[int, Float[np.ndarray, "r d"]]) -> KernelModel:
    """The model of rows of given problems."""
    model = KernelModel(layers)
    for block, A in rows.items():
        model.set(block, *problems[block].kernels(A))
    return model


def restricted(problem: KernelProblem, support: Bool[np.ndarray, "r d"], ridge: float = 1e-3) -> Float[np.ndarray, "r d"]:
    """Least squares of every row on its support; ridge relative to each column's squared norm."""
    A = np.zeros(problem.C.shape)
    square = np.diag(problem.G)
    for i, chosen in enumerate(support & (square > 0)):
        on = np.flatnonzero(chosen)
        if len(on) and problem.zz[i] > 0:
            A[i, on] = np.linalg.solve(problem.G[np.ix_(on, on)] + ridge * np.diag(square[on]), problem.C[i, on])
    return A


def largest(weights: Float[np.ndarray, "..."], share: float) -> Bool[np.ndarray, "..."]:
    """The share of the entries that are largest in magnitude, of equals the first."""
    keep = round(share * weights.size)
    mask = np.zeros(weights.size, bool)
    mask[np.argsort(-np.abs(weights).reshape(-1), kind="stable")[:keep]] = True
    return mask.reshape(weights.shape)


@torch.no_grad()
def fitted_head(model: KernelModel, u: Float[Tensor, "m ..."], outputs: Float[Tensor, "m q"], ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Weight and bias of the last layer by ridge regression of the network's outputs on the model's features."""
    X = torch.cat([model.layers.features(model.states(u[at : at + BATCH])) for at in range(0, len(u), BATCH)]).double()
    mean, target = X.mean(0), outputs.double().mean(0)
    G = (X - mean).t() @ (X - mean)
    square = G.diagonal()
    G = G + torch.diag(torch.where(square > 0, ridge * square, 1.0))  # a dead feature gets no weight
    W = torch.linalg.solve(G, (X - mean).t() @ (outputs.double() - target)).t()
    return W.to(u.dtype), (target - W @ mean).to(u.dtype)
