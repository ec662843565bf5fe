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
from typing import Any

import numpy as np
import torch

from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.tracing import nodes as steps

SCALES = ("std", "theorem", "uniform")
RADIUS = 0.99


def layer_scales(layers: NetworkLayers, scale: str) -> list[np.ndarray] | None:
    """(size,) of every block in channel-major order; None for "std", which the data decide.

    Raises:
        ValueError: naming a product of values, a softmax or an implicit model, whose rows absolute weights say nothing
            of.
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
    """The network with absolute weights and factors, no biases, and normalisations as positive factors, in float64."""
    wide = layers.over(copy.deepcopy(layers.traced).double())
    nodes = tuple(_absolute_step(node) for node in wide.graph.nodes)
    return replace(wide, graph=replace(wide.graph, nodes=nodes))


def _absolute_step(node: steps.Node) -> steps.Node:
    if isinstance(node, (steps.Product, steps.Softmax, steps.Equilibrium)):
        raise ValueError(f"{node.where}: scale needs componentwise maps, sums and pooling; use scale='std'")
    if isinstance(node, (steps.Linear, steps.Convolution)):
        return replace(node, weight=node.weight.abs(), bias=None, names={})
    if isinstance(node, steps.Normalisation):
        weight = torch.ones_like(node.variance) if node.weight is None else node.weight
        factor = weight / torch.sqrt(node.variance + node.eps)
        zero, one = torch.zeros_like(node.mean), torch.full_like(node.variance, 1 - node.eps)
        return replace(node, mean=zero, variance=one, weight=factor.abs(), bias=zero, names={})
    if isinstance(node, steps.Scale):
        size: Any = lambda c: None if c is None else abs(c)
        names = {} if node.shift is None else node.names
        return replace(node, factor=size(node.factor), divisor=size(node.divisor), names=names)
    if isinstance(node, steps.Sum):
        return replace(node, coefficients=tuple(abs(c) for c in node.coefficients))
    return node
