"""Sums of a layer's columns and targets over samples and positions, from which its rows are found.

Positions of an image say much the same: of each batch of images some are drawn, without replacement and the same for
its images. Sums are in the network's precision over a batch, about means of the first images, and in double precision
over the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from implicit_models.sim.pruning.layers import Layer
from implicit_models.sim.solvers.best_subset.one_sided import Samples

FIRST = 100  # images whose means the sums are taken about
BATCH_VALUES = 2**22  # entries of the columns of a batch
CONSTANT = 1e-6  # of its level: a column whose deviation is below this does not vary
Target = Callable[[slice], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Moments:
    """Means over samples and positions, columns and targets less their means (unless the layer can have no bias).

    G (g, d, d): of columns. E (r, d): of columns and of what the network's own rows leave of the targets, which keeps
    its digits where that is little. zz (r,): of targets. mean (g, d), mean_z (r,). dead (g, d): columns that do not
    vary, 0 in G and E. Rows of group k are the k-th run.
    """

    G: Float[np.ndarray, "g d d"]
    E: Float[np.ndarray, "r d"]
    zz: Float[np.ndarray, " r"]
    mean: Float[np.ndarray, "g d"]
    mean_z: Float[np.ndarray, " r"]
    dead: Bool[np.ndarray, "g d"]


def _drawn(layer: Layer, most: int, generator: torch.Generator) -> Tensor:
    if most >= layer.positions:
        return torch.arange(layer.positions)
    return torch.randperm(layer.positions, generator=generator)[:most].sort().values


def moments(layer: Layer, x: Float[Tensor, "N ..."], target: Target, most: int, generator: torch.Generator) -> Moments:
    """Args:
    x: what the layer reads. target: slice of the samples -> their targets (N, r, P), and the rest s.
    most: positions of an image.
    """
    g, d, r = layer.groups, layer.columns, layer.rows
    places = torch.from_numpy(layer.places())
    centred = layer.bias is not None
    first = slice(0, FIRST)
    about = layer.windows_of(x[first], places[_drawn(layer, most, generator)]).mean(2, dtype=torch.float64)
    about_z = target(first)[0].double().mean((0, 2))
    if not centred:
        about, about_z = torch.zeros_like(about), torch.zeros_like(about_z)
    low, low_z = about.to(x.dtype)[:, :, None], about_z.to(x.dtype)[:, None]
    p = min(most, layer.positions)
    size = max(1, BATCH_VALUES // ((g * d + r) * p))
    own = torch.from_numpy(layer.rows_before()).to(x.dtype).reshape(g, r // g, d)
    total, square_z = np.zeros((g, d + r // g + 1, d + r // g + 1)), np.zeros(r)
    sum_z, count = np.zeros(r), 0
    for at in range(0, len(x), size):
        part = slice(at, min(at + size, len(x)))
        taken = _drawn(layer, most, generator)
        columns = layer.windows_of(x[part], places[taken]) - low
        z = target(part)[0][:, :, taken].permute(1, 0, 2).reshape(r, -1) - low_z
        sum_z += z.sum(1, dtype=torch.float64).numpy()
        square_z += (z * z).sum(1, dtype=torch.float64).numpy()
        rest = torch.baddbmm(z.reshape(g, r // g, -1), own, columns, alpha=-1)
        both = torch.cat([columns, rest, columns.new_ones(g, 1, columns.shape[2])], dim=1).numpy()
        for k in range(g):
            total[k] += both[k] @ both[k].T  # of a matrix and its transpose half the products are formed
        count += both.shape[2]
    mean = total[:, -1, :-1] / count if centred else np.zeros((g, d + r // g))
    S = total[:, :-1, :-1] / count - mean[:, :, None] * mean[:, None]
    G = np.ascontiguousarray(0.5 * (S[:, :d, :d] + S[:, :d, :d].transpose(0, 2, 1)))
    square = np.einsum("gjj->gj", total[:, :d, :d]) / count
    variance = np.einsum("gjj->gj", G)
    level = CONSTANT * np.abs(low.double().numpy()[:, :, 0])
    dead = variance <= np.maximum(level**2, 100 * torch.finfo(x.dtype).eps * square)
    dead |= variance <= 0
    E = np.where(dead[:, None], 0.0, S[:, d:, :d]).reshape(r, d)
    G = np.where(dead[:, None] | dead[:, :, None], 0.0, G)
    mean_z = sum_z / count if centred else np.zeros(r)
    zz = np.maximum(square_z / count - mean_z**2, 0.0)
    shift, shift_z = (t.double().numpy() for t in (low[:, :, 0], low_z[:, 0]))
    return Moments(G, E, zz, mean[:, :d] + shift, mean_z + shift_z, dead)


def samples(
    layer: Layer, x: Float[Tensor, "N ..."], target: Target, found: Moments, most: int, generator: torch.Generator
) -> list[Samples]:
    """Columns, targets and levels of each group at drawn positions, for refits."""
    g, r = layer.groups, layer.rows
    places = torch.from_numpy(layer.places())
    mean = torch.from_numpy(found.mean).to(x.dtype)[:, :, None]
    p = min(most, layer.positions)
    size = max(1, BATCH_VALUES // ((g * layer.columns + r) * p))
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for at in range(0, len(x), size):
        part = slice(at, min(at + size, len(x)))
        taken = _drawn(layer, most, generator)
        z, rest = (t[:, :, taken].permute(1, 0, 2).reshape(r, -1) for t in target(part))
        parts.append((layer.windows_of(x[part], places[taken]) - mean, z, rest))
    X, Z, level = (torch.cat(each, dim=-1).numpy() for each in zip(*parts, strict=True))
    mean_z = found.mean_z[:, None].astype(Z.dtype)
    runs = np.split(np.arange(r), g)
    return [Samples(X[k], Z[own] - mean_z[own], level[own] + mean_z[own]) for k, own in enumerate(runs)]
