"""The row problems of one block, position by position, in units in which the solver works, and the way back.

Columns x_j and targets z_i are centred, so that a bias is free, and divided by c_j and t_i. With the ball sum_j s_j
|a_ij| <= kappa s_i of the network's own units, a'_j = a_ij c_j / t_i, c_j = s_j / ref: ||a'||_1 <= kappa s_i / (t_i
ref). For "std" c_j and t_i are the deviations and the radius is kappa; for the other scales ref makes the median column
of variance 1. Constant and rarely varying columns are zeros.

Source:
    Tsai thesis (2024), sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from implicit_models.sim.network.column_store import Columns, ColumnStore
from implicit_models.sim.network.columns import centre_, channel_major, divide_, log2_reference, state_rows, varies
from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.sim.network.position_rows import BlockRows
from implicit_models.sim.network.receptive_field import union
from implicit_models.sim.network.supports import channel_groups

LARGEST_GRAM = 12_000  # columns of a position beyond which its Gram matrix is refused


@dataclass(frozen=True)
class PositionProblem:
    """The rows of one block: what `solve_block` reads, or the targets and radii that `solve_working` does, and the way
    back to the network's units."""

    arrays: Any
    unit: Float[np.ndarray, " c"]  # c_j
    target: Float[np.ndarray, "P r"]  # t_i
    spread: Float[np.ndarray, "P r"]  # deviations of z_i
    mean_x: Float[np.ndarray, " c"]
    mean_z: Float[np.ndarray, "P r"]
    place: Int[np.ndarray, " c"]  # column of A
    columns: int
    width: int
    excluded: Bool[np.ndarray, " PG"]  # positions, each with its groups, where columns vary and min_active leaves none

    @property
    def excluded_rows(self) -> int:
        """Rows whose targets vary, without a column because of min_active."""
        return int((self.excluded[:, None] & (self.spread.reshape(len(self.excluded), -1) > 0)).sum())

    @property
    def level(self) -> Float[np.ndarray, "P r"]:
        """Means of the targets in their units."""
        return self.mean_z / np.where(self.target > 0, self.target, 1.0)

    def parameters(self, found: BlockRows, t: int, A: sp.csr_array, *, refit: bool) -> int:
        """Weights that are stored: all of A's."""
        return int(A.nnz)

    def matrix(self, found: BlockRows, t: int, *, refit: bool) -> tuple[sp.csr_array, np.ndarray]:
        """A over channel-major states and rows, and b."""
        values = (found.refit if refit else found.l1)[t]
        pointer, column = found.pointer[t], found.column[t]
        R = len(pointer) - 1
        P, r = self.target.shape
        scaled = values * np.repeat(self.target.reshape(-1), np.diff(pointer)) / self.unit[column]
        shift = self.mean_z.reshape(-1) - np.bincount(
            np.repeat(np.arange(R), np.diff(pointer)), scaled * self.mean_x[column], minlength=R
        )
        if refit and found.shift is not None:
            shift = shift + self.target.reshape(-1) * found.shift[:, t]
        A = sp.csr_array((scaled, self.place[column], pointer), (R, self.width))
        order = np.argsort(channel_major(np.arange(R), r, P))
        A = sp.csr_array(A[order])
        A.sum_duplicates()
        A.eliminate_zeros()  # a refit drops columns that depend on others
        return A, shift[order]


def position_problem(
    layers: NetworkLayers,
    block: int,
    sources: Mapping[int, np.ndarray],
    own: Mapping[int, Tensor],
    z: Tensor,
    m: int,
    scales: list[np.ndarray] | None,
    min_active: float,
    factor: Float[np.ndarray, " size"] | None = None,
) -> PositionProblem:
    """The row problem of every position of a block, and of every group of channels that the network keeps apart there.

    Args:
        sources: block -> (P, k) positions that each position may use.
        own: block -> its states, of which the first m samples count.
        z: targets.
        scales: units of the states (see `layer_scales`); None for "std".
        min_active: as in `ByPosition`.
        factor: channel-major; t_i is the deviation over it, which divides the row's penalty.

    Raises:
        ValueError: where a position's columns are too many for a Gram matrix.
    """
    b, groups = layers.blocks[block], channel_groups(layers, block, sources)
    G = 1 if groups is None else groups.number
    parts, start, cells, place, unit_parts = [], [np.zeros(1, np.int64)], [], [], []
    cell, row, width = 0, 0, 0
    for k in sorted(sources):
        channels, positions = layers.shape_of(k)[0], math.prod(layers.shape_of(k)[1:])
        parts.append(state_rows(own[k][:m], channels, positions))
        bounds = np.array([0, channels]) if groups is None else groups.bounds(k, channels)
        start.append((row + channels * np.arange(positions)[:, None] + bounds[1:]).reshape(-1))
        pieces = len(bounds) - 1  # a cell is a piece of the channels of a position
        first, end = np.array([[0, channels]] if groups is None else groups.ranges[k]).T
        piece = np.where(end > first, np.searchsorted(bounds, first), -1)  # of each group
        there = (sources[k][:, None] >= 0) & (piece[:, None] >= 0)
        each = np.where(there, cell + pieces * sources[k][:, None] + piece[:, None], -1)
        cells.append(each.reshape(len(each) * G, -1))
        place.append(width + channel_major(np.arange(positions * channels), channels, positions))
        if scales is not None:
            unit_parts.append(
                np.ones(positions * channels) if k == INPUT else scales[k].reshape(channels, positions).T.reshape(-1)
            )
        cell, row, width = cell + pieces * positions, row + channels * positions, width + channels * positions
    F = parts[0] if len(parts) == 1 else torch.cat(parts)
    del parts
    used = union(np.hstack(cells))
    d = int(np.r_[np.diff(np.concatenate(start)), 0][used].sum(axis=1).max(initial=0))  # -1 is the last: no column
    if d > LARGEST_GRAM:
        raise ValueError(
            f"block {block} ({b.node}): a position may use {d} columns, above {LARGEST_GRAM}: their Gram matrix would"
            f" take {8e-9 * d * d:.0f} GB; give support='receptive', a function that narrows it, or rows=WorkingSet()"
            " with a ball or a penalty"
        )
    mean_x, deviation, live = (found.numpy() for found in centre_(F, min_active))
    Z, mean_z, spread, target = _targets(z[:m], b.channels, b.positions, factor)
    if scales is None:
        unit, radius = np.where(live, deviation, 1.0), np.ones_like(target)
    else:
        s = np.concatenate(unit_parts)
        row_scale = scales[block].reshape(b.channels, b.positions).T
        reference = 2.0 ** log2_reference(s, deviation, live)
        unit = s / reference
        radius = row_scale / reference / np.where(target > 0, target, 1.0)
    divide_(F, torch.from_numpy(unit), torch.from_numpy(live))
    rows = (len(used), b.channels // G)  # position by position, and group by group
    arrays = (F.numpy(), np.concatenate(start), used, Z.reshape(*rows, -1), np.ascontiguousarray(radius).reshape(rows))
    ends = np.concatenate(start)
    any_of = lambda of: np.r_[np.logical_or.reduceat(of, ends[:-1]), False][used].any(axis=1)  # -1 is the last
    excluded = any_of(varies(torch.from_numpy(mean_x), torch.from_numpy(deviation)).numpy()) & ~any_of(live)
    return PositionProblem(arrays, unit, target, spread, mean_x, mean_z, np.concatenate(place), d, width, excluded)


def working_problem(
    layers: NetworkLayers,
    block: int,
    store: ColumnStore,
    z: Tensor,
    scales: list[np.ndarray] | None,
    factor: Float[np.ndarray, " size"] | None = None,
) -> tuple[Columns, PositionProblem]:
    """The rows of a block that may use all columns of the store, those of the input and of every block before it; the
    rest as in `position_problem`."""
    b = layers.blocks[block]
    columns, unit, q = store.columns()
    # columns and targets of q and 1/q times their units are the problem of the exact reference, whatever its penalty
    Z, mean_z, spread, target = _targets(
        z[: store.m], b.channels, b.positions, (np.ones(b.size) if factor is None else factor) / q
    )
    radius = np.ones_like(target)
    if scales is not None:
        radius = scales[block].reshape(b.channels, b.positions).T / store.reference / np.where(target > 0, target, 1.0)
    mean_x, place = store.used
    excluded = np.full(b.positions, store.excluded)
    return columns, PositionProblem(
        (Z, np.ascontiguousarray(radius)), unit, target, spread, mean_x, mean_z, place, len(unit), len(unit), excluded
    )


def _targets(
    z: Tensor, channels: int, positions: int, factor: Float[np.ndarray, " size"] | None
) -> tuple[np.ndarray, ...]:
    """Targets (P, r, m) centred and divided, their means, deviations, and what they were divided by; a constant one is
    zero, and so are its deviation and divisor."""
    Z = state_rows(z, channels, positions).reshape(positions, channels, len(z))
    mean = Z.mean(2)
    Z -= mean[:, :, None]
    spread = Z.norm(dim=2) / math.sqrt(len(z))
    spread = torch.where(spread > 1e-12 * mean.abs().clamp_min(1e-300), spread, 0.0)
    target = (
        spread if factor is None else spread / torch.from_numpy(factor.reshape(channels, positions)).to(z.device).t()
    )
    Z *= torch.where(target > 0, 1.0 / torch.where(target > 0, target, 1.0), 0.0)[:, :, None]
    return Z.cpu().numpy(), mean.cpu().numpy(), spread.cpu().numpy(), target.cpu().numpy()
