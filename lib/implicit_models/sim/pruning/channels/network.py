"""A trained network with fewer channels, and its report."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.pruning.channels.cut import Uncuttable, cut
from implicit_models.sim.pruning.channels.recipe import Found, cut_channels
from implicit_models.sim.pruning.channels.report import ChannelReport, CutLayer
from implicit_models.sim.pruning.channels.settings import Channels
from implicit_models.sim.pruning.channels.spaces import Labels, labels_of
from implicit_models.sim.pruning.layers import Plan, plan
from implicit_models.sim.pruning.pruned_networks import PrunedNetwork
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon
from implicit_models.sim.pruning.sparse_networks import _difference
from implicit_models.tracing.nodes import Convolution, Graph, Linear

TRIED = 3  # samples that the smaller network is tried on


class SmallerNetwork(PrunedNetwork):
    """A network whose convolutions, linear layers and batch norms have fewer channels: a traced module of torch's own
    ones under the names that they had."""

    report: ChannelReport


def smaller_network(
    network: nn.Module,
    graph: Graph,
    data: Float[Tensor, "m ..."],
    budget: Channels,
    how: OptimalBrainSurgeon,
    held_out: Float[Tensor, "k ..."] | None,
) -> SmallerNetwork:
    """Args: as `prune`; graph: of the network.

    Raises:
        ValueError: for a network without a channel to remove, and for a budget that cannot be met.
    """
    planned = plan(graph)
    labels = cuttable(planned, data[:TRIED])
    if not labels.spaces:
        raise ValueError("the network has no channel that could be removed: no layer reads what another one writes")
    found = cut_channels(planned, labels, data, budget, how)
    module = cut(planned, labels, found.removed, found.steps, data[:TRIED])
    module.requires_grad_(any(p.requires_grad for p in network.parameters()))
    lost = None if held_out is None else _difference(network, module, held_out)
    return SmallerNetwork(module, _report(planned, found, module, budget, how, lost)).eval()


def cuttable(planned: Plan, u: Tensor) -> Labels:
    """The channels that can be removed: one of each space goes on trial, and steps that fail keep theirs."""
    held: list[str] = []
    while True:
        labels = labels_of(planned, held)
        tried = np.array([space.labels[0] for space in labels.spaces if len(space) > 1], np.int64)
        new = {}
        for k, layer in enumerate(planned.layers):
            weight = layer.kernels().copy()
            bias = None if layer.node.bias is None else layer.node.bias.detach().double().numpy()
            for space in labels.spaces:
                if k in space.columns and len(space) > 1:
                    weight[:, space.columns[k][0]] = 0.0
            new[layer.node.name] = layer.with_kernels(weight, bias)
        try:
            cut(planned, labels, tried, new, u)
        except Uncuttable as found:
            if found.step.name in held:
                raise
            held.append(found.step.name)
        else:
            return labels


def _report(
    planned: Plan, found: Found, module: nn.Module, budget: Channels, how: OptimalBrainSurgeon, held_out: float | None
) -> ChannelReport:
    none = np.zeros_like(found.counts)
    left, before = found.costs.by_layer(found.counts), found.costs.by_layer(none)
    layers = tuple(
        CutLayer(
            layer.name,
            (int(own.kept_rows.sum()), layer.rows),
            (int(own.kept_columns.sum()), layer.columns),
            (int(after), int(all_of_it)),
            float(own.effect @ own.error),
            own.slope,
        )
        for layer, own, after, all_of_it in zip(planned.layers, found.layers, left, before, strict=True)
    )
    sizes = [step.weight.numel() for step in planned.graph.nodes if isinstance(step, (Convolution, Linear))]
    mine = [p.numel() for name, p in module.named_parameters() if _is_weight(module, name)]
    return ChannelReport(
        layers,
        (found.costs.of(found.counts), found.costs.of(none)),
        (sum(mine), sum(sizes)),
        {"budget": budget, "supports": how},
        found.seconds,
        held_out,
        {
            f"{layer.name}.bias": int(own.kept_rows.sum())
            for layer, own in zip(planned.layers, found.layers, strict=True)
            if layer.gets_bias(found.steps[layer.node.name])
        },
    )


def _is_weight(module: nn.Module, name: str) -> bool:
    owner = module.get_submodule(name.rpartition(".")[0])
    return name.endswith("weight") and isinstance(owner, (nn.Conv1d, nn.Conv2d, nn.Linear))
