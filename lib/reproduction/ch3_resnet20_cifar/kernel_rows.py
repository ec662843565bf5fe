"""Rows of a convolutional network with one kernel for all positions: least-squares problems in a few hundred rows for a
whole network.

Block l has r channels, each a row over d columns: the taps of the window at every channel of the block before, and the
shortcut's channels. They are the rows of `shared_problem`; `fit_kernels` fits the blocks in order on the network's
states or on the model's own.

Source: Tsai thesis (2024), section 3.3, with kernels for rows; Han et al. (2015) for magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.sim.network.shared_problem import SharedProblem, shared_problem
from implicit_models.sim.solvers.budget import refit_all
from implicit_models.sim.sparse_model import ridge_head

BATCH = 100  # samples of a forward pass


@torch.no_grad()
def own_kernels(
    layers: NetworkLayers, block: int
) -> tuple[dict[int, Float[np.ndarray, "r c t"]], Float[np.ndarray, " r"]]:
    """The network's own kernels of a block, source -> (r, channels, taps) with normalisation folded in, and biases: its
    answers to single pixels."""
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
    """A network with fitted kernels: blocks -> (source -> (r, channels, taps), bias); other blocks, and the output
    without a head, are the network's.

    Windows of nine taps are 3 x 3 with a border of one, single taps are shortcuts; the stride follows from the sizes.
    """

    def __init__(self, layers: NetworkLayers, head: tuple[Tensor, Tensor] | None = None):
        super().__init__()
        self.layers, self.fitted, self.head = layers, {}, head

    def set(self, block: int, kernels: Mapping[int, np.ndarray], bias: np.ndarray) -> None:
        """Give a block its kernels."""
        cast = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(self.layers.dtype)
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
        """Non-zeros of the whole model: "numbers" that are stored, "entries" of the rows of all positions; blocks that
        were not fitted are the network's."""
        numbers = entries = 0
        for block, b in enumerate(self.layers.blocks):
            if block not in self.fitted:
                numbers, entries = numbers + self.layers.kernel_weights(block), entries + self.layers.entries(block)
                continue
            for k, kernel in self.fitted[block][0].items():
                used = (kernel != 0).flatten(2).sum(dim=(0, 1)).numpy()  # of each tap
                numbers, entries = numbers + int(used.sum()), entries + int(used @ (b.sources[k] >= 0).sum(axis=0))
        return {"numbers": numbers, "entries": entries}


Solver = Callable[[int, SharedProblem], Float[np.ndarray, "r d"]]


def walk(
    layers: NetworkLayers,
    u: Float[Tensor, "m ..."],
    visit: Callable[[int, dict[int, Tensor], Tensor], Any],
    model: KernelModel | None,
) -> dict[int, Tensor]:
    """Visit every block that reads other blocks, in order: visit(block, states that it reads, the network's z).

    Args:
        model: whose own states the blocks read, with what `visit` has given it so far; None for the network's states.

    Returns:
        states of the last blocks, for the output.
    """
    teacher: dict[int, Tensor] = {INPUT: u}
    own = teacher if model is None else {INPUT: u}
    for block, b in enumerate(layers.blocks):
        z = torch.cat(
            [layers.affine(block, {k: teacher[k][at : at + BATCH] for k in teacher}) for at in range(0, len(u), BATCH)]
        )
        if INPUT not in b.sources:
            visit(block, own, z)
        teacher[block] = layers.apply(block, z)
        if model is not None:
            parts = [
                model.pre_activation(block, {k: own[k][at : at + BATCH] for k in own}) for at in range(0, len(u), BATCH)
            ]
            own[block] = layers.apply(block, torch.cat(parts))
        later = {k for later in layers.blocks[block + 1 :] for k in later.sources} | set(layers.output.reads)
        for done in [k for k in teacher if k not in later]:
            teacher.pop(done)
            own.pop(done, None)
    return own


@torch.no_grad()
def fit_kernels(
    layers: NetworkLayers, u: Float[Tensor, "m ..."], solve: Solver, *, student: bool = True
) -> tuple[KernelModel, dict[int, float]]:
    """A model of the kernels that `solve` gives, block by block, and the share of variance that each block's rows
    explain on the samples of the fit."""
    model, fit = KernelModel(layers), {}

    def visit(block: int, known: dict[int, Tensor], z: Tensor) -> None:
        problem = shared_problem(layers, block, layers.blocks[block].sources, known, z)
        A = solve(block, problem)
        model.set(block, *problem.kernels(A))
        fit[block] = problem.explained(A)

    walk(layers, u, visit, model if student else None)
    return model, fit


@torch.no_grad()
def teacher_problems(layers: NetworkLayers, u: Float[Tensor, "m ..."]) -> dict[int, SharedProblem]:
    """The problem of every block on the network's states: made once for many fits."""
    found: dict[int, SharedProblem] = {}
    walk(
        layers,
        u,
        lambda block, known, z: found.__setitem__(
            block, shared_problem(layers, block, layers.blocks[block].sources, known, z)
        ),
        None,
    )
    return found


def model_of(
    layers: NetworkLayers, problems: Mapping[int, SharedProblem], rows: Mapping[int, Float[np.ndarray, "r d"]]
) -> KernelModel:
    """The model of rows of given problems."""
    model = KernelModel(layers)
    for block, A in rows.items():
        model.set(block, *problems[block].kernels(A))
    return model


def restricted(
    problem: SharedProblem, support: Bool[np.ndarray, "r d"], ridge: float = 1e-3
) -> Float[np.ndarray, "r d"]:
    """Least squares of every row on its support; ridge relative to each column's squared norm. Columns that depend on
    earlier ones stay zero."""
    chosen = (support & (problem.zz > 0)[:, None]).astype(float)[:, None]
    A, explained = np.zeros(chosen.shape), np.empty(chosen.shape[:2])
    refit_all(problem.G, problem.C, chosen, ridge, A, explained)
    return A[:, 0]


def largest(weights: Float[np.ndarray, " ..."], share: float) -> Bool[np.ndarray, " ..."]:
    """The share of the entries that are largest in magnitude, of equals the first."""
    keep = round(share * weights.size)
    mask = np.zeros(weights.size, bool)
    mask[np.argsort(-np.abs(weights).reshape(-1), kind="stable")[:keep]] = True
    return mask.reshape(weights.shape)


@torch.no_grad()
def fitted_head(
    model: KernelModel, u: Float[Tensor, "m ..."], outputs: Float[Tensor, "m q"], ridge: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Weight and bias of the last layer by ridge regression of the network's outputs on the model's features."""
    features = torch.cat([model.layers.features(model.states(u[at : at + BATCH])) for at in range(0, len(u), BATCH)])
    weight, bias = ridge_head(features, outputs, ridge)
    return torch.from_numpy(weight).to(u.dtype), torch.from_numpy(bias).to(u.dtype)
