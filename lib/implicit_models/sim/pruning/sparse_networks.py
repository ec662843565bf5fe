"""Sparse networks of a trained one at given shares of its weights, with their reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Share
from implicit_models.sim.pruning.layers import Plan, plan
from implicit_models.sim.pruning.network import SparseNetwork, with_weights
from implicit_models.sim.pruning.recipe import Found, prune
from implicit_models.sim.pruning.report import PrunedLayer, PruningReport
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon
from implicit_models.tracing.nodes import Graph

BATCH = 100  # samples of a forward pass
CLOSE = 1e-3  # of the largest output, by which the module may differ from the steps that were fitted


def sparse_networks(
    network: nn.Module,
    graph: Graph,
    data: Float[Tensor, "m ..."],
    budgets: Sequence[Share],
    how: OptimalBrainSurgeon,
    *,
    head: bool,
    held_out: Float[Tensor, "k ..."] | None,
    parallel: Parallel,
) -> list[SparseNetwork]:
    """Args: as `sparsify`; graph: of the network.

    Raises:
        ValueError: for a network without a weight to remove, and what `prune` raises.
    """
    planned = plan(graph, head=head)
    if not planned.layers:
        raise ValueError("the network has no convolution or linear layer whose weights could be removed")
    found = prune(planned, data, [budget.share for budget in budgets], how, parallel)
    out = []
    for each, budget in zip(found, budgets, strict=True):
        module = with_weights(network, planned, each.steps)
        _compare(planned, each, module, data[:BATCH])
        lost = None if held_out is None else _difference(network, module, held_out)
        out.append(SparseNetwork(module, _report(planned, each, budget, how, lost)).eval())
    return out


@torch.no_grad()
def _compare(planned: Plan, found: Found, module: nn.Module, u: Tensor) -> None:
    """Raises: RuntimeError where the module does not compute what the fitted steps do."""
    values = {planned.steps[0].name: u}
    for step in planned.with_kernels(found.steps)[1:]:
        values[step.name] = step.run(*(values[name] for name in step.inputs))
    y, wanted = module(u.clone()), values[planned.graph.output]  # a first step in place would write into the samples
    if not torch.allclose(y, wanted, rtol=0, atol=CLOSE * max(1e-30, float(wanted.abs().max()))):
        raise RuntimeError(
            f"the sparse network differs from its fitted steps by {float((y - wanted).abs().max()):.3g}: its forward"
            " uses weights in a way that the steps do not show"
        )


@torch.no_grad()
def _difference(network: nn.Module, module: nn.Module, u: Tensor) -> float:
    """Mean square difference of the outputs over the variance of the network's."""
    parts = [u[at : at + BATCH] for at in range(0, len(u), BATCH)]
    y, z = (torch.cat([f(part.clone()).flatten(1) for part in parts]).double() for f in (network, module))
    spread = float(((y - y.mean(0)) ** 2).sum())
    return float(((y - z) ** 2).sum()) / spread if spread > 0 else float("nan")


def _report(
    planned: Plan, found: Found, budget: Share, how: OptimalBrainSurgeon, held_out: float | None
) -> PruningReport:
    layers = tuple(
        PrunedLayer(
            layer.name,
            layer.size,
            int(columns.sum()),
            int(rows["exchanges"]),
            columns,
            effect,
            *(rows[name] for name in ("loss", "rise", "bound", "slope")),
        )
        for layer, columns, rows, effect in zip(planned.layers, _columns(planned, found), found.rows, found.effect)
    )
    own = dict(planned.graph.traced.named_parameters())
    left = sum(layer.left for layer in layers) + sum(int((own[name] != 0).sum()) for name, _ in planned.kept)
    return PruningReport(
        layers,
        planned.weights,
        left,
        dict(planned.kept),
        {"budget": budget, "supports": how},
        found.seconds,
        held_out,
        {f"{layer.name}.bias": layer.rows for layer in planned.layers if layer.gets_bias(found.steps[layer.node.name])},
    )


def _columns(planned: Plan, found: Found) -> list[np.ndarray]:
    """Of each layer, how many weights of each row are not zero in the network that comes out, (r,)."""
    weights = [found.steps[layer.node.name].weight for layer in planned.layers]
    return [(weight != 0).flatten(1).sum(1).numpy() for weight in weights]
