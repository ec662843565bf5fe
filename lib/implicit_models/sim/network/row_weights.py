"""What each row of a network matters to its outputs, and penalties by it.

With c_i = E ||dy / dz_i||^2 Var z_i, rows that leave the shares e_i of their targets' variance unexplained change the
outputs, to first order and as far as the errors of different rows do not correlate, by sum_i c_i e_i in mean square. In
units of variance 1, e_i = ||M a_i - z_i||^2 / m, and the rows of

    min  1/2 sum_i (c_i / c) e_i + lam sum_i ||a_i||_1,    c the median,

are those of the penalties lam / f_i, f_i = c_i / c, here between a fiftieth and fifty times lam. Equal penalties, f_i =
1, spend as much on a row whose errors the next layers drown as on one that decides the output.

Source:
    this project; the quadratic form is that of optimal brain damage (LeCun, Denker, Solla 1990), on states instead of
    weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.network.layers import INPUT, NetworkLayers

SAMPLES, DRAWS = 1000, 2  # samples at most, and random combinations of the outputs a sample
BATCH, HELD = 100, 2**25  # samples of a pass at most, and states of them whose graph is held
FACTORS = (0.02, 50.0)  # beyond, rows are left out whole, or followed to the end of their paths
CONSTANT = 100.0  # roundings of a state's mean, whose square is no variance


@torch.inference_mode(False)
@torch.enable_grad()
def row_effects(layers: NetworkLayers, u: Float[Tensor, "m ..."], seed: int = 0) -> list[Float[np.ndarray, " size"]]:
    """c_i of the arguments of all activations, block by block in channel-major order, float64; 0 where the outputs do
    not depend on one, or it does not vary.

    E ||dy / dz||^2 is that of (d s'y / dz)^2 over random signs s, `DRAWS` a sample, over at most `SAMPLES` samples,
    evenly taken.

    Raises:
        ValueError: naming the first block, or the outputs, with a value that is not finite.
    """
    n, generator = len(u), torch.Generator().manual_seed(seed)
    taken = torch.from_numpy(np.unique(np.linspace(0, n - 1, min(n, SAMPLES)).round().astype(np.int64)))
    size = max(1, min(BATCH, HELD // max(1, layers.n_states)))
    origin: list[Tensor] = []  # the first sample, which sums of squares are taken about
    sums: dict[tuple[str, int], Tensor] = {}

    def add(name: str, block: int, values: Tensor) -> None:
        sums[name, block] = sums.get((name, block), 0.0) + values.sum(0)

    for at in range(0, len(taken), size) if layers.blocks else ():
        y, z = _forward(layers, u[taken[at : at + size]].clone())
        origin = origin or [x[0].detach().double() for x in z]
        for block, x in enumerate(z):
            away = x.detach().double() - origin[block]
            add("mean", block, away / len(taken))
            add("square", block, away**2 / len(taken))
        for _ in range(DRAWS if y.requires_grad else 0):
            signs = (2 * torch.randint(0, 2, y.shape, generator=generator) - 1).to(y)
            slopes = torch.autograd.grad((signs * y).sum(), z, retain_graph=True, allow_unused=True)
            for block, slope in enumerate(slopes):
                if slope is not None:
                    add("slope", block, slope.double() ** 2 / (DRAWS * len(taken)))
    found = []
    for block, first in enumerate(origin):
        mean = sums["mean", block]
        variance = sums["square", block] - mean**2
        rounding = (
            CONSTANT * torch.finfo(layers.dtype).eps * (first + mean).abs()
        )  # a batch of another size rounds a constant otherwise
        slope = sums.get(("slope", block), torch.zeros_like(mean))
        found.append(torch.where(variance > rounding**2, slope * variance, 0.0).flatten().numpy())
    return found


def _forward(layers: NetworkLayers, u: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the arguments of all activations, of which they are functions."""
    known, z = {INPUT: u}, []
    for block, b in enumerate(layers.blocks):
        argument = layers.affine(block, known)  # a view of its own, since it may be a state that others read too
        z.append(argument.view_as(argument) if argument.requires_grad else argument.clone().requires_grad_())
        if not bool(torch.isfinite(argument).all()):
            raise ValueError(f"effects of rows: the argument of block {block} ({b.node}) is not finite")
        known[block] = layers.apply(block, z[-1])
    y = layers.affine(None, known)
    if not bool(torch.isfinite(y).all()):
        raise ValueError("effects of rows: the outputs are not finite")
    return y, z


def effect_factors(
    effects: Sequence[Float[np.ndarray, " size"]], fitted: Sequence[int]
) -> list[Float[np.ndarray, " size"]]:
    """f_i, with c the median of the effects, where there are any, of the fitted blocks' rows; rows without effect have
    the smallest.

    Raises:
        ValueError: where no row of the fitted blocks has any, and naming the block where one is not finite.
    """
    for block in fitted:
        if not np.isfinite(effects[block]).all():
            raise ValueError(
                f"effects of rows: that of state {int(np.flatnonzero(~np.isfinite(effects[block]))[0])} of block"
                f" {block} is not finite"
            )
    some = np.concatenate([np.zeros(0), *(effects[b][effects[b] > 0] for b in fitted)])
    if len(fitted) and not len(some):
        raise ValueError("effects of rows: no state has an effect on the outputs that rows could be weighed by")
    middle = float(np.median(some)) if len(some) else 1.0
    return [np.clip(c / middle, *FACTORS) for c in effects]
