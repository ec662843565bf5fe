"""The smaller network: a traced copy of the user's, its modules with fewer channels, its shortcuts rewritten.

Convolutions, linear layers and batch norms are cut in place of the copy, under the names that they have. A function
that works on any number of channels stays as it is written; one that does not (a padding of channels, a view of a fixed
size) is replaced by torch functions that do the same to what is left. Which is which is not guessed: every step of the
smaller network is run on samples and compared with the same step of the network with zeros.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, fx, nn
from torch.nn import functional as F

from implicit_models.sim.pruning.channels.spaces import Labels, column_labels, row_labels
from implicit_models.sim.pruning.layers import Layer, Plan, Weighted
from implicit_models.tracing.nodes import Node, Normalisation, Reshape, Take

CLOSE = 1e-4  # of the largest value, by which a step may differ from that of the network with zeros


class Uncuttable(RuntimeError):
    """A step that cannot work on fewer channels; its name is the argument `step`."""

    def __init__(self, step: Node, why: str):
        super().__init__(f"{step.where or step.name} cannot work on fewer channels: {why}")
        self.step = step


@torch.inference_mode(False)
@torch.no_grad()
def cut(
    plan: Plan, labels: Labels, removed: Int[np.ndarray, " k"], new: Mapping[str, Weighted], u: Tensor
) -> fx.GraphModule:
    """The smaller network.

    Args:
        removed: labels that are gone. new: steps of the layers, of the old shapes. u: samples that it is tried on.

    Raises:
        Uncuttable: naming the step that is not what it should be.
    """
    out = copy.deepcopy(plan.graph.traced)
    for layer in plan.layers:
        _cut_layer(out, layer, new[layer.node.name], labels, removed)
    for step in plan.steps:
        if isinstance(step, Normalisation):
            _cut_norm(out, step, labels.kept(step.name, removed))
    _rewrite(out, plan, labels, removed, new, u)
    for node in out.graph.nodes:
        node.type = None  # annotations of the user's forward, which another process may not know
    out.graph._tracer_cls = fx.Tracer  # what reads the module back from a file
    out.graph.lint()
    out.recompile()
    return out.eval()


def _as(like: nn.Parameter, value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(), like.requires_grad)


def _cut_layer(out: nn.Module, layer: Layer, step: Weighted, labels: Labels, removed: np.ndarray) -> None:
    rows = torch.from_numpy(~np.isin(row_labels(layer, labels.values), removed))
    module: Any = out.get_submodule(layer.weight.rpartition(".")[0])
    weight = step.weight.flatten(1)[rows]
    kernel = tuple(step.weight.shape[2:])
    if layer.groups == 1:
        weight = weight[:, torch.from_numpy(~np.isin(column_labels(layer, labels.values), removed))]
    each = layer.columns // max(1, int(np.prod(kernel)))  # columns of one position of the kernel
    reads = weight.shape[1] // max(1, int(np.prod(kernel))) if layer.groups == 1 else each
    old = module.weight
    module.weight = _as(old, weight.reshape(len(weight), reads, *kernel))
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape[:2]
    else:
        own = labels.values[layer.node.inputs[0]]
        left = int((~np.isin(own.reshape(len(own), -1)[:, 0], removed)).sum())
        module.groups = 1 if layer.groups == 1 else layer.groups * left // len(own)
        module.in_channels, module.out_channels = left, len(weight)
    if layer.node.bias is not None or layer.gets_bias(step):
        assert step.bias is not None
        module.register_parameter("bias", _as(old, step.bias[rows]))
    elif step.bias is not None and layer.bias:
        out.get_buffer(layer.bias).sub_(step.bias)


def _cut_norm(out: nn.Module, step: Normalisation, kept: Bool[np.ndarray, "C ..."]) -> None:
    left = torch.from_numpy(kept.reshape(len(kept), -1)[:, 0].copy())
    if bool(left.all()):
        return
    module: Any = out.get_submodule(step.names["mean"].rpartition(".")[0])
    for name in ("running_mean", "running_var"):
        module.register_buffer(name, getattr(module, name)[left].clone())
    for name in ("weight", "bias"):
        if getattr(module, name) is not None:
            setattr(module, name, _as(getattr(module, name), getattr(module, name)[left]))
    module.num_features = int(left.sum())


def _rewrite(
    out: fx.GraphModule, plan: Plan, labels: Labels, removed: np.ndarray, new: Mapping[str, Weighted], u: Tensor
) -> None:
    """Put functions that work on fewer channels in the place of those that do not."""
    wanted = _wanted(plan, labels, removed, new, u)
    last = {step.name.partition(".")[0]: step for step in plan.graph.nodes}
    moved = {  # their biases are in the batch norm behind them, whose value is compared
        layer.node.name
        for layer in plan.layers
        if layer.node.bias is None and layer.bias and new[layer.node.name].bias is not None
    }
    runner = fx.Interpreter(out)
    runner.args_iter = iter([u.clone()])
    for node in list(out.graph.nodes):
        if node.op == "output":
            continue
        step = last.get(node.name)
        try:
            found, why = runner.run_node(node), ""
        except (RuntimeError, ValueError) as error:
            found, why = None, str(error).partition("\n")[0]
        whole = step is None or all(labels.kept(name, removed).all() for name in (step.name, *step.inputs))
        if whole and why:
            raise RuntimeError(f"{node.name}: {why}")
        if step is not None and not whole and node.name not in moved and not _same(found, wanted[step.name]):
            made = _replaced(out, node, step, plan.graph[step.inputs[0]], labels, removed)
            if made is None:
                raise Uncuttable(step, why or "it computes something else")
            for fresh in made:
                runner.env[fresh] = runner.run_node(fresh)
            found = runner.env[made[-1]]
            if not _same(found, wanted[step.name]):
                raise Uncuttable(step, "it computes something else")
            node.replace_all_uses_with(made[-1])
            out.graph.erase_node(node)
            continue
        runner.env[node] = found


def _wanted(
    plan: Plan, labels: Labels, removed: np.ndarray, new: Mapping[str, Weighted], u: Tensor
) -> dict[str, Tensor]:
    """What is left of the value of every step of the network with zeros."""
    instead: dict[str, Node] = {**new, **labels.links_without(plan.graph, removed)}
    values, left = {plan.steps[0].name: u}, {}
    for step in plan.steps:
        if step.inputs:
            values[step.name] = instead.get(step.name, step).run(*(values[name] for name in step.inputs))
        kept = labels.kept(step.name, removed)
        left[step.name] = values[step.name][:, torch.from_numpy(kept)].reshape(len(u), *_shape(kept))
    return left


def _shape(kept: Bool[np.ndarray, " ..."]) -> tuple[int, ...]:
    """Of what is left: fewer entries along one axis."""
    if kept.all():
        return kept.shape
    for axis in range(kept.ndim):
        line = kept[tuple(slice(None) if a == axis else 0 for a in range(kept.ndim))]
        if (kept == np.expand_dims(line, tuple(a for a in range(kept.ndim) if a != axis))).all():
            return *kept.shape[:axis], int(line.sum()), *kept.shape[axis + 1 :]
    raise AssertionError("a value is cut along more than one axis")


def _same(found: Any, wanted: Tensor) -> bool:
    return (
        isinstance(found, Tensor)
        and found.shape == wanted.shape
        and torch.allclose(found, wanted, rtol=0, atol=CLOSE * max(1e-30, float(wanted.abs().max())))
    )


def _replaced(
    out: fx.GraphModule, node: fx.Node, step: Node, source: Node, labels: Labels, removed: np.ndarray
) -> list[fx.Node] | None:
    """Nodes that do to what is left what a step does, None where there are none."""
    if "." in step.name or not node.all_input_nodes:
        return None
    kept, there = labels.kept(step.name, removed), labels.kept(source.name, removed)
    made: list[fx.Node] = []

    def add(function: Callable[..., Any], *args: Any) -> None:
        before = made[-1] if made else node.all_input_nodes[0]
        made.append(out.graph.call_function(function, (before, *args)))

    with out.graph.inserting_before(node):
        if isinstance(step, Reshape):
            add(torch.reshape, (-1, *_shape(kept)))
        elif isinstance(step, Take) and step.fill == 0:
            entries = step.entries.copy()
            number = np.where(there.ravel(), np.cumsum(there.ravel()) - 1, -1)
            entries = np.where(entries >= 0, number[entries], -1)[kept].reshape(_shape(kept))
            planes = _planes(entries, _shape(there))
            flat = planes is None
            index = entries.ravel() if planes is None else planes
            size = int(there.sum()) if planes is None else _shape(there)[0]
            if flat and len(_shape(there)) > 1:
                add(torch.flatten, 1)
            if (index < 0).any():
                add(F.pad, (0, 1) if flat else (0, 0) * (len(step.shape) - 1) + (0, 1))
            buffer = f"{node.name}_channels"
            out.register_buffer(buffer, torch.from_numpy(np.where(index < 0, size, index)))
            place = out.graph.get_attr(buffer)
            add(torch.index_select, 1, place)
            if flat and len(_shape(kept)) > 1:
                add(torch.reshape, (-1, *_shape(kept)))
            made = _in_order(out, made, place)
        else:
            return None
    return made


def _in_order(out: fx.GraphModule, made: list[fx.Node], place: fx.Node) -> list[fx.Node]:
    """As they stand in the graph, which is how they are run."""
    wanted = {*made, place}
    return [node for node in out.graph.nodes if node in wanted]


def _planes(entries: Int[np.ndarray, " ..."], source: Sequence[int]) -> Int[np.ndarray, " C"] | None:
    """The channel of its source that each channel is, -1 for zeros; None where it is not one as a whole."""
    if entries.ndim != len(source) or entries.ndim < 2 or entries.shape[1:] != tuple(source[1:]):
        return None
    flat, size = entries.reshape(len(entries), -1), int(np.prod(source[1:]))
    first = np.where(flat[:, 0] >= 0, flat[:, 0] // size, -1)
    whole = np.where(first[:, None] >= 0, first[:, None] * size + np.arange(size), -1)
    return first if np.array_equal(flat, whole) else None
