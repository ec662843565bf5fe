"""Units of the states for a ball on the rows of a layered network.

The ball reads sum_j s_j |a_ij| <= kappa s_i: a strictly triangular A is well-posed for every kappa, and s is free, so that kappa says nothing
without it.

    std       s_j = standard deviation of state j on the data, and of the target for the row: columns and targets of variance 1
    theorem   s = (I - |A|/.99)^-1 1 of the network itself: in these units every row has norm .99 (1 - 1/s_i)
    uniform   s = g^l in layer l, g = max ||row||_1 / .99 over all layers: what dividing every weight by g does to the states

Both of the last two are read off the network with absolute weights, normalisations folded, run forward once.

Source: SIM paper, Theorem 2.4 and section 3. They spread far: to 1e19 and 1e38 over a ResNet-20.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import fx, nn

from implicit_models.sim.network_layers import INPUT, NetworkLayers

SCALES = ("std", "theorem", "uniform")
RADIUS = 0.99


def layer_scales(layers: NetworkLayers, scale: str) -> list[np.ndarray] | None:
    """(size,) of every block in channel-major order; None for "std", which the data decide.

    Raises: ValueError where the network subtracts or multiplies values, so that absolute weights say nothing.
    """
    if scale == "std":
        return None
    absolute = _absolute(layers)
    known = {INPUT: torch.zeros(1, *layers.input_shape, dtype=torch.float64)}
    sizes: list[np.ndarray] = []
    ones = {INPUT: torch.ones(1, *layers.input_shape, dtype=torch.float64)}
    largest = 0.0
    for block, b in enumerate(layers.blocks):
        ones[block] = torch.ones(1, *b.shape, dtype=torch.float64)
        if b.derived:
            known[block] = absolute.apply(block, absolute.affine(block, known))
        else:
            largest = max(largest, float(absolute.affine(block, ones).max()))
            known[block] = 1 + absolute.affine(block, known) / RADIUS
        sizes.append(known[block].flatten().numpy())
    if scale == "theorem":
        return sizes
    g = largest / RADIUS
    depth: dict[int, int] = {INPUT: 0}
    for block, b in enumerate(layers.blocks):
        depth[block] = max(depth[k] for k in b.sources) + (0 if b.derived else 1)
    return [np.full(b.size, g ** depth[i]) for i, b in enumerate(layers.blocks)]


def _absolute(layers: NetworkLayers) -> NetworkLayers:
    """The network with absolute weights, no biases, and normalisations as positive factors, in float64."""
    traced = copy.deepcopy(layers.traced).double()
    for node in traced.graph.nodes:
        name = getattr(node.target, "__name__", node.target)
        if node.op == "call_function" and name in ("sub", "isub", "neg", "mul", "imul", "truediv", "div"):
            nodes = [a for a in node.args if isinstance(a, fx.Node)]
            if len([a for a in nodes if a.op != "get_attr"]) > 1:
                raise ValueError(f"scale needs a network of sums: its forward has {name} of two values")
    for module in traced.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Linear)):
            module.weight.abs_()
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            factor = (module.weight if module.affine else torch.ones_like(module.running_var)) / torch.sqrt(module.running_var + module.eps)
            module.running_mean.zero_()
            module.running_var.fill_(1 - module.eps)
            if module.affine:
                module.weight.copy_(factor.abs())
                module.bias.zero_()
    return replace(layers, traced=traced, dtype=torch.float64, _needed={})
