"""A pass through a network in which the smaller one has other shortcuts than the network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.pruning.layers import Plan, Weighted
from implicit_models.sim.pruning.passes import Visit, _batched, _last, _target, _through
from implicit_models.tracing.nodes import Node


@torch.no_grad()
def through_network(
    plan: Plan, u: Float[Tensor, "m ..."], visit: Visit, links: Mapping[str, Node] | None = None
) -> dict[str, Weighted]:
    """The new steps of all layers, as `pruning.passes.run_pass`; links: steps that the smaller network has instead of
    others, by name."""
    links = links or {}
    own: dict[str, Tensor] = {plan.steps[0].name: u}
    student = dict(own)
    number = {layer.node.name: k for k, layer in enumerate(plan.layers)}
    within = {step.name for layer in plan.layers for step in (layer.node, *layer.chain)}
    last = _last(plan)
    new: dict[str, Weighted] = {}
    for at, step in enumerate(plan.steps[1:], 1):
        if step.name in number:
            k = number[step.name]
            layer = plan.layers[k]
            own[layer.end] = _through(layer, layer.node, own)
            new[step.name] = visit(k, layer, student[step.inputs[0]], _target(layer, own, student))
            student[layer.end] = _through(layer, new[step.name], student)
        elif step.name not in within:
            own[step.name] = _batched(step, own)
            student[step.name] = _batched(links.get(step.name, step), student)
        for name in [name for name in own if last.get(name, -1) <= at]:
            own.pop(name)
            student.pop(name, None)
    return new
