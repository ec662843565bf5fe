"""Two of every four weights: the pattern whose zeros a processor's sparse units skip.

Groups are of four neighbouring input channels at one place of the kernel, as the units read them. Layers whose number
of input channels is no multiple of four, and those of several groups, keep all weights. One pass through the network:
each layer is fitted, within the pattern, to the network's pre-activations on what the sparse network computes, with
refits that count what ReLU lets through.

Source:
    Mishra et al. (2021) for the pattern; `solvers.best_subset.patterns` for the choice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from implicit_models.sim.parallel.run import one_blas_thread
from implicit_models.sim.pruning.effects import effects
from implicit_models.sim.pruning.layers import Layer, Weighted, plan
from implicit_models.sim.pruning.moments import Target, moments, samples
from implicit_models.sim.pruning.network import SparseNetwork, with_weights
from implicit_models.sim.pruning.passes import run_pass
from implicit_models.sim.pruning.refitted import refitted
from implicit_models.sim.pruning.report import PrunedLayer, PruningReport
from implicit_models.sim.pruning.rows import rows_of
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon
from implicit_models.sim.pruning.sparse_networks import _difference
from implicit_models.sim.solvers.best_subset.patterns import two_of_four
from implicit_models.tracing.nodes import Graph


@dataclass(frozen=True)
class TwoOfFour:
    """At most two of every four neighbouring input channels' weights, at each place of each kernel."""


def groups_of(layer: Layer) -> Int[np.ndarray, "n 4"]:
    """Columns of a layer by fours, none where it keeps all."""
    taps = int(np.prod(layer.node.weight.shape[2:], dtype=int))
    channels = layer.columns // taps
    if layer.groups > 1 or channels % 4:
        return np.empty((0, 4), np.int64)
    column = np.arange(layer.columns).reshape(channels // 4, 4, taps)
    return np.ascontiguousarray(column.transpose(0, 2, 1)).reshape(-1, 4)


def two_of_four_network(
    network: nn.Module,
    graph: Graph,
    data: Float[Tensor, "m ..."],
    how: OptimalBrainSurgeon,
    held_out: Float[Tensor, "k ..."] | None,
) -> SparseNetwork:
    """Raises: ValueError for a network without a layer of the pattern."""
    planned = plan(graph)
    if not any(len(groups_of(layer)) for layer in planned.layers):
        raise ValueError("the network has no layer whose number of input channels is a multiple of four")
    few = data[np.unique(np.linspace(0, len(data) - 1, min(len(data), how.samples)).round().astype(np.int64))]
    found: list[PrunedLayer] = []
    begin = time.process_time()
    with torch.no_grad(), one_blas_thread():
        effect = effects(planned.steps, graph.output, planned.layers, few)

        def visit(k: int, layer: Layer, x: Tensor, target: Target) -> Weighted:
            step, about = _fitted(k, layer, (x, target), effect[k], how)
            found.append(about)
            return step

        new = run_pass(planned, data, visit)
        module = with_weights(network, planned, new)
    biases = {f"{c.name}.bias": c.rows for c in planned.layers if c.gets_bias(new[c.node.name])}
    left = sum(c.left for c in found) + sum(size for _, size in planned.kept)
    settings = {"budget": TwoOfFour(), "supports": how}
    seconds = {"all": time.process_time() - begin}
    lost = None if held_out is None else _difference(network, module, held_out)
    report = PruningReport(tuple(found), planned.weights, left, dict(planned.kept), settings, seconds, lost, biases)
    return SparseNetwork(module, report).eval()


def _fitted(
    k: int, layer: Layer, given: tuple[Tensor, Target], effect: Float[np.ndarray, " r"], how: OptimalBrainSurgeon
) -> tuple[Weighted, PrunedLayer]:
    generator = torch.Generator().manual_seed(k)
    about = moments(layer, *given, how.positions, generator)
    rows = rows_of(layer, about, how.ridge)
    kept = np.ones((layer.rows, layer.columns), bool)
    if len(groups := groups_of(layer)):
        kept = two_of_four(rows.H[0], rows.C, groups)
    weight = rows.least_squares(kept)
    proved = rows.certificate(kept, weight)
    bias = rows.bias(weight)
    if how.closed < 1 and layer.one_sided and layer.bias is not None:
        weight, shift = rows.one_sided(
            kept, weight, samples(layer, *given, about, how.refit_positions, generator), how.closed
        )
        bias = rows.bias(weight) + shift
    step = refitted(layer, weight, bias, kept)
    columns = (step.weight != 0).flatten(1).sum(1).numpy()
    certified = (proved[name] for name in ("loss", "rise", "bound", "slope"))
    return step, PrunedLayer(layer.name, layer.size, int(columns.sum()), 0, columns, effect, *certified)
