"""A layer with rows that were found in units of its pre-activation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from implicit_models.sim.pruning.layers import Layer, Weighted


def refitted(
    layer: Layer, weight: Float[np.ndarray, "r d"], bias: Float[np.ndarray, " r"], kept: Bool[np.ndarray, "r d"]
) -> Weighted:
    """The step of a layer in its own units. Rows that the chain multiplies by zero have the network's own weights where
    these are kept, and its bias; a layer that can take no bias gets none."""
    still = layer.factor == 0
    factor = np.where(still, 1.0, layer.factor)
    weight = np.where(still[:, None], layer.kernels() * kept, weight / factor[:, None])
    if layer.bias is None:
        return layer.with_kernels(weight, None)
    before = np.zeros(layer.rows) if layer.node.bias is None else layer.node.bias.detach().double().numpy()
    return layer.with_kernels(weight, np.where(still, before, bias / factor))
