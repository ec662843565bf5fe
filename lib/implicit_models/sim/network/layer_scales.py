"""Units of the states for a ball on the rows of a layered network.

The ball reads sum_j s_j |a_ij| <= kappa s_i: a strictly triangular A is well-posed for every kappa, and s is free, so
that kappa says nothing without it.

    std       s_j = standard deviation of state j on the data, and of the target for the row: columns and targets of
    variance 1
    theorem   s = (I - |A|/.99)^-1 1 of the network itself: in these units every row has norm .99 (1 - 1/s_i)
    uniform   s = g^l in layer l, g = max ||row||_1 / .99 over all layers: what dividing every weight by g does to the
    states

Both of the last two are read off the linear part of the network with absolute weights, normalisations folded, run
forward once.

Source:
    SIM paper, Theorem 2.4 and section 3. They spread far: to 1e19 and 1e38 over a ResNet-20.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import fx, nn

from implicit_models.sim.network.layers import INPUT, NetworkLayers, attribute
from implicit_models.sim.network.receptive_field import FACTORS, SUMS

SCALES = ("std", "theorem", "uniform")
RADIUS = 0.99


def layer_scales(layers: NetworkLayers, scale: str) -> list[np.ndarray] | None:
    """(size,) of every block in channel-major order; None for "std", which the data decide.

    Raises:
        ValueError: where the network subtracts values, or multiplies them by negative constants: absolute weights say
            nothing then.
    """
    if scale == "std":
        return None
    absolute = _absolute(layers)
    known = {INPUT: torch.zeros(1, *layers.input_shape, dtype=torch.float64)}
    sizes: list[np.ndarray] = []
    ones, zeros = (
        {k: torch.full((1, *layers.shape_of(k)), v, dtype=torch.float64) for k in range(INPUT, len(layers.blocks))}
        for v in (1.0, 0.0)
    )
    largest = 0.0
    for block, b in enumerate(layers.blocks):
        if b.derived:
            known[block] = absolute.apply(block, absolute.affine(block, known))
        else:
            constant = absolute.affine(block, zeros)  # of a forward that subtracts a mean, say
            largest = max(largest, float((absolute.affine(block, ones) - constant).max()))
            known[block] = 1 + (absolute.affine(block, known) - constant) / RADIUS
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
        if node.op not in ("call_function", "call_method") or name not in (*SUMS, *FACTORS):
            continue
        operands = [*node.args, *node.kwargs.values()]
        values = [a for a in operands if isinstance(a, fx.Node) and a.op != "get_attr"]
        constants = [
            attribute(traced, a.target) if isinstance(a, fx.Node) else a  # type: ignore[arg-type]
            for a in operands
            if a not in values
        ]
        takes_off = name in ("sub", "isub", "sub_")
        if takes_off and (len(values) > 1 or operands[0] is not values[0]) or name == "neg":
            raise ValueError(
                f"scale needs a network of sums: its forward has {name} of"
                f" {'two values' if len(values) > 1 else 'a value'}"
            )
        signed = constants if name in FACTORS else [node.kwargs.get("alpha", 1)]
        if any(float(torch.as_tensor(c).min()) < 0 for c in signed if isinstance(c, (int, float, torch.Tensor))):
            raise ValueError(f"scale needs a network of sums: its forward has {name} with a negative constant")
    for module in traced.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Linear)):
            module.weight.abs_()
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            factor = (
                module.weight if module.affine else torch.ones_like(module.running_var)  # type: ignore[arg-type]
            ) / torch.sqrt(module.running_var + module.eps)  # type: ignore[operator, arg-type]
            module.running_mean.zero_()  # type: ignore[union-attr]
            module.running_var.fill_(1 - module.eps)  # type: ignore[union-attr]
            if module.affine:
                module.weight.copy_(factor.abs())
                module.bias.zero_()
    return replace(layers.over(traced), dtype=torch.float64)
