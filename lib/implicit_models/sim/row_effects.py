"""What each row of a network matters to its outputs, and penalties by it.

With c_i = E ||dy / dz_i||^2 Var z_i, rows that leave the shares e_i of their targets' variance unexplained change the outputs, to first order and as far as
the errors of different rows do not correlate, by sum_i c_i e_i in mean square. In units of variance 1, e_i = ||M a_i - z_i||^2 / m, and the rows of

    min  1/2 sum_i (c_i / c) e_i + lam sum_i ||a_i||_1,    c the geometric mean,

are those of the penalties lam / f_i, f_i = c_i / c, here between a fiftieth and fifty times lam. Equal penalties, f_i = 1, spend as much on a row whose errors the
next layers drown as on one that decides the output.

Source: this project; the quadratic form is that of optimal brain damage (LeCun, Denker, Solla 1990), on states instead of weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.network_layers import INPUT, NetworkLayers

SAMPLES, BATCH, DRAWS = 1000, 100, 2  # samples at most, of a pass, and random combinations of the outputs a sample
FACTORS = (0.02, 50.0)  # beyond, rows are left out whole, or followed to the end of their paths


def row_effects(layers: NetworkLayers, u: Float[Tensor, "m ..."], seed: int = 0) -> list[Float[np.ndarray, " size"]]:
    """c_i of every block in channel-major order, in float64; 0 where the outputs do not depend on a state, or where it does not vary.

    E ||dy / dz||^2 is that of (d s'y / dz)^2 over random signs s, `DRAWS` a sample, over at most `SAMPLES` samples, evenly taken.
    """
    device = next((t.device for t in layers.traced.parameters()), torch.device("cpu"))
    n, generator = len(u), torch.Generator().manual_seed(seed)
    taken = torch.from_numpy(np.unique(np.linspace(0, n - 1, min(n, SAMPLES)).round().astype(np.int64)))
    sums: dict[tuple[str, int], Tensor] = {}

    def add(name: str, block: int, values: Tensor) -> None:
        sums[name, block] = sums.get((name, block), 0.0) + values.sum(0).flatten()

    for at in range(0, len(taken), BATCH) if layers.blocks else ():
        with torch.enable_grad():
            y, z = _forward(layers, u[taken[at : at + BATCH]].to(device))
            for _ in range(DRAWS):
                signs = (2 * torch.randint(0, 2, y.shape, generator=generator) - 1).to(y)
                slopes = torch.autograd.grad((signs * y).sum(), z, retain_graph=True, allow_unused=True)
                for block, slope in enumerate(slopes):
                    add("slope", block, torch.zeros_like(z[block]).double() if slope is None else slope.double() ** 2)
        for block, x in enumerate(z):
            add("mean", block, x.detach().double() / len(taken))
            add("square", block, x.detach().double() ** 2 / len(taken))
    found = []
    for block in range(len(layers.blocks)):
        variance = (sums["square", block] - sums["mean", block] ** 2).clamp_min(0.0)
        found.append((sums["slope", block] / (len(taken) * DRAWS) * variance).cpu().numpy())
    return found


def _forward(layers: NetworkLayers, u: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the arguments of all activations, of which they are functions."""
    known, z = {INPUT: u}, []
    for block in range(len(layers.blocks)):
        argument = layers.affine(block, known)  # a view of its own, since it may be a state that others read too
        z.append(argument.view_as(argument) if argument.requires_grad else argument.clone().requires_grad_())
        known[block] = layers.apply(block, z[-1])
    return layers.affine(None, known), z


def effect_factors(effects: Sequence[Float[np.ndarray, " size"]], fitted: Sequence[int]) -> list[Float[np.ndarray, " size"]]:
    """f_i, with c the mean over the rows of the fitted blocks; rows without effect have the smallest.

    Raises: ValueError naming the block where an effect is not a number, and where no row of the fitted blocks has any.
    """
    for block, c in enumerate(effects):
        if not np.isfinite(c).all():
            raise ValueError(f"block {block}: the effect of its state {int(np.flatnonzero(~np.isfinite(c))[0])} on the outputs is not finite")
    some = np.concatenate([np.zeros(0), *(effects[b][effects[b] > 0] for b in fitted)])
    if len(fitted) and not len(some):
        raise ValueError("no state has an effect on the outputs, that rows could be weighed by")
    middle = float(np.exp(np.mean(np.log(some)))) if len(some) else 1.0
    return [np.clip(c / middle, *FACTORS) for c in effects]
