"""A trained network with zeros in place of most weights: what `sparsify` returns for a share of them.

It is the user's own network, module by module: weights of convolutions and linear layers are replaced, and so are their
biases, or the running means of a batch norm that stands behind a layer without one. A layer with neither gets a bias
where it lost weights, and the report names it. Whatever takes the network takes it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from implicit_models.sim.pruning.layers import Plan, Weighted
from implicit_models.sim.pruning.pruned_networks import PrunedNetwork
from implicit_models.sim.pruning.report import PruningReport
from implicit_models.tracing.modules import MODULES
from implicit_models.tracing.reparametrisation import plain_copy


class SparseNetwork(PrunedNetwork):
    """See the module: `dense()` is the module as it was given, with zeros among its weights."""

    report: PruningReport


@torch.no_grad()
def with_weights(network: nn.Module, plan: Plan, new: Mapping[str, Weighted]) -> nn.Module:
    """A copy of a network with the weights and biases of new steps.

    Raises:
        RuntimeError: where the copy does not compute what the steps do.
    """
    out = plain_copy(network)
    inside = "0." if type(out) in MODULES else ""  # of a network that is one module, the graph names the first of one
    own = lambda name: out.get_parameter(name.removeprefix(inside))
    for layer in plan.layers:
        step = new[layer.node.name]
        own(layer.weight).copy_(step.weight)
        if step.bias is None or layer.bias is None:
            continue
        if layer.gets_bias(step):
            owner = layer.weight.rpartition(".")[0].removeprefix(inside.removesuffix(".")).removeprefix(".")
            module = out.get_submodule(owner)
            module.register_parameter("bias", nn.Parameter(step.bias.clone(), own(layer.weight).requires_grad))
        elif layer.node.bias is not None:
            own(layer.bias).copy_(step.bias)
        else:
            out.get_buffer(layer.bias.removeprefix(inside)).sub_(step.bias)
    return out
