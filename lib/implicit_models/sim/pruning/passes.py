"""One pass through a network: its layers in order, each on what the sparse network computes before it.

The network and the sparse one go side by side, step by step; of each only the values that a later step reads are held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.pruning.layers import Layer, Plan, Weighted
from implicit_models.sim.pruning.moments import Target
from implicit_models.tracing.nodes import Node

BATCH = 50  # samples of a step
Visit = Callable[[int, Layer, Tensor, Target], Weighted]  # number, layer, its input, its targets -> its new step


def run_pass(
    plan: Plan,
    u: Float[Tensor, "m ..."],
    visit: Visit | None,
    watch: Callable[[int, Layer, Tensor, Target], None] | None = None,
    links: Mapping[str, Node] | None = None,
) -> dict[str, Weighted]:
    """The new steps of all layers, by the names of the old ones.

    visit: a layer's new step; None for a pass of the network alone, whose layers `watch` looks at. Both are given the
    layer's input and a function of a slice of the samples: the targets and the rest s of their pre-activations.
    links: steps that the sparse network has in place of others without weights, by name.
    """
    links = links or {}
    own: dict[str, Tensor] = {plan.steps[0].name: u}
    student = own if visit is None else dict(own)
    number = {layer.node.name: k for k, layer in enumerate(plan.layers)}
    within = {step.name for layer in plan.layers for step in (layer.node, *layer.chain)}
    last = _last(plan)
    new: dict[str, Weighted] = {}
    for at, step in enumerate(plan.steps[1:], 1):
        if step.name in number:
            k = number[step.name]
            layer = plan.layers[k]
            read, end = step.inputs[0], layer.end
            own[end] = _through(layer, layer.node, own)
            target = _target(layer, own, student)
            if visit is None:
                assert watch is not None
                watch(k, layer, own[read], target)
            else:
                new[step.name] = visit(k, layer, student[read], target)
                student[end] = _through(layer, new[step.name], student)
        elif step.name not in within:
            own[step.name] = _batched(step, own)
            if visit is not None:
                student[step.name] = _batched(links.get(step.name, step), student)
        for name in [name for name in own if last.get(name, -1) <= at]:
            own.pop(name)
            if visit is not None:
                student.pop(name, None)
    return new


def _last(plan: Plan) -> dict[str, int]:
    """The last step, by number, that reads each value; a chain is run with its layer."""
    moved = {step.name: layer.node.name for layer in plan.layers for step in layer.chain}
    at = {step.name: i for i, step in enumerate(plan.steps)}
    last: dict[str, int] = {}
    for step in plan.steps:
        for name in step.inputs:
            last[name] = max(last.get(name, -1), at[moved.get(step.name, step.name)])
    for layer in plan.layers:
        last.setdefault(layer.end, at[layer.node.name])
    return last


def _parts(n: int) -> list[slice]:
    return [slice(at, min(at + BATCH, n)) for at in range(0, n, BATCH)]


def _others(layer: Layer, values: dict[str, Tensor], part: slice) -> dict[str, Tensor]:
    """What a layer and its chain read, of some samples."""
    inside = {layer.node.name, *(step.name for step in layer.chain)}
    names = {name for step in (layer.node, *layer.chain) for name in step.inputs} - inside
    return {name: values[name][part] for name in names}


def _through(layer: Layer, node: Weighted, values: dict[str, Tensor]) -> Tensor:
    """The pre-activation behind a layer."""
    read = values[node.inputs[0]]

    def of(part: slice) -> Tensor:
        return layer.through(node.run(read[part]), _others(layer, values, part))

    return _joined([of(part) for part in _parts(len(read))])


def _target(layer: Layer, own: dict[str, Tensor], student: dict[str, Tensor]) -> Target:
    def of(part: slice) -> tuple[Tensor, Tensor]:
        rest = layer.by_row(layer.rest(_others(layer, student, part)))
        return layer.by_row(own[layer.end][part]) - rest, rest

    return of


def _batched(step: Node, values: dict[str, Tensor]) -> Tensor:
    read = [values[name] for name in step.inputs]
    return _joined([step.run(*(x[part] for x in read)) for part in _parts(len(read[0]))])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
