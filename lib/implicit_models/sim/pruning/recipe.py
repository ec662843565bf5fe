"""A share of a network's weights, given to the rows whose loss of it would change the outputs most.

    1  effects of rows on the outputs, and the elimination of every row on the network's own values, all sizes at once
    2  the budget shared out: of all rows of all layers the removals that change the outputs least, to first order
    3  a pass through the network, each layer eliminated anew on what the sparse network computes, within its share
    4  effects anew on the sparse network, and 2 and 3 again, `rounds` times
    5  the last pass, on all samples, with exchanges, and with refits that count what ReLU lets through

Source:
    Frantar and Alistarh (2022) for elimination layer by layer; the budget in units of the outputs, effects on the
    sparse network and targets with the shortcut taken off are this project's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.parallel.chunk_store import ChunkStore, Result, content_key
from implicit_models.sim.parallel.run import Parallel, Progress, one_blas_thread
from implicit_models.sim.pruning.effects import effects
from implicit_models.sim.pruning.layers import Layer, Plan, Weighted
from implicit_models.sim.pruning.moments import Moments, Target, moments, samples
from implicit_models.sim.pruning.passes import run_pass
from implicit_models.sim.pruning.rows import Rows, rows_of, supports
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon
from implicit_models.sim.solvers.best_subset.backward import cheapest


@dataclass(frozen=True)
class Found:
    """The layers of a sparse network.

    rows: of each layer what `_last_layer` returns, in units of the pre-activation. effect: (r,) each, of the last
    round. seconds: CPU seconds by part.
    """

    share: float
    steps: dict[str, Weighted]
    rows: list[Result]
    effect: list[Float[np.ndarray, " r"]]
    seconds: dict[str, float]


class _Work:
    """Results of the layers of one share, kept in a folder where there is one and shown as they come."""

    def __init__(self, parallel: Parallel, key: str, total: int, title: str):
        self.show = Progress(parallel.progress, total, f"{title}:")
        chunks = [(k, k + 1) for k in range(total)]
        self.store = None if parallel.resume is None else ChunkStore(parallel.resume, key, chunks)

    def __call__(self, compute: Callable[[], Result]) -> Result:
        """The next result: from the folder, or computed."""
        chunk = (self.show.done, self.show.done + 1)
        found = None if self.store is None else self.store.load(chunk)
        if found is None:
            found = compute()
            if self.store is not None:
                self.store.save(chunk, found)
        self.show(1)
        return found


@dataclass
class _Clock:
    """CPU seconds of this thread by part."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, part: str, begin: float) -> float:
        now = time.process_time()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - begin
        return now


def prune(
    plan: Plan, data: Float[Tensor, "m ..."], shares: Sequence[float], how: OptimalBrainSurgeon, parallel: Parallel
) -> list[Found]:
    """The layers of a network at each share of its weights; what does not depend on the share is computed once.

    Raises:
        ValueError: naming a share that is less than the weights that stay as they are.
    """
    stays = sum(size for _, size in plan.kept)
    left = [round(share * plan.weights) - stays for share in shares]
    for share, count in zip(shares, left, strict=True):
        if count < 0:
            raise ValueError(
                f"a share {share:g} of {plan.weights} weights is less than the {stays} that stay as they are:"
                f" {', '.join(name for name, _ in plan.kept)}"
            )
    key = "" if parallel.resume is None else _key(plan, data, how)
    with torch.no_grad(), one_blas_thread():
        few = data[np.unique(np.linspace(0, len(data) - 1, min(len(data), how.samples)).round().astype(np.int64))]
        shared = _Clock()
        first = _Work(parallel.within("network"), key, len(plan.layers) + 1, "eliminations")
        begin = time.process_time()
        effect = _effects(plan, {}, few, how, first)
        shared("effects", begin)
        curves = _curves(plan, few, how, first, shared)
        found = []
        for share, count in zip(shares, left, strict=True):
            total = (how.rounds + 1) * len(plan.layers) + how.rounds
            work = _Work(parallel.within(f"share-{share:g}"), f"{key}-{share!r}", total, f"share {share:g}")
            found.append(_at_share(plan, (data, few), share, count, (effect, curves), how, work, shared))
    return found


def _key(plan: Plan, data: Tensor, how: OptimalBrainSurgeon) -> str:
    arrays = {name: t.detach().numpy() for name, t in plan.graph.traced.state_dict().items()}
    names = tuple(layer.name for layer in plan.layers)
    return content_key(arrays | {"data": data.contiguous().numpy()}, ("pruning", names, how))


def _effects(
    plan: Plan, new: dict[str, Weighted], few: Tensor, how: OptimalBrainSurgeon, work: _Work
) -> list[Float[np.ndarray, " r"]]:
    """Of the network with some steps replaced; ones where effects do not count."""

    def compute() -> Result:
        if not how.effects:
            return {str(k): np.ones(layer.rows) for k, layer in enumerate(plan.layers)}
        found = effects(plan.with_kernels(new), plan.graph.output, plan.layers, few)
        # rows that the chain multiplies by zero change nothing
        return {str(k): np.where(layer.factor != 0, c, 0.0) for k, (layer, c) in enumerate(zip(plan.layers, found))}

    found = work(compute)
    return [found[str(k)] for k in range(len(plan.layers))]


def _problem(
    layer: Layer, x: Tensor, target: Target, how: OptimalBrainSurgeon, generator: torch.Generator
) -> tuple[Rows, Moments]:
    found = moments(layer, x, target, how.positions, generator)
    return rows_of(layer, found, how.ridge), found


def _curves(
    plan: Plan, few: Tensor, how: OptimalBrainSurgeon, work: _Work, clock: _Clock
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Removals of every row on the network's own values."""
    out = []

    def watch(k: int, layer: Layer, x: Tensor, target: Target) -> None:
        def compute() -> Result:
            begin = time.process_time()
            rows, _ = _problem(layer, x, target, how, torch.Generator().manual_seed(k))
            begin = clock("moments", begin)
            order, rise = rows.curves()
            clock("elimination", begin)
            return {"order": order, "rise": rise}

        found = work(compute)
        out.append((found["order"], found["rise"]))

    begin, before = time.process_time(), sum(clock.seconds.values())
    run_pass(plan, few, None, watch)
    clock("network", begin + sum(clock.seconds.values()) - before)
    return out


def shared_out(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], effect: Sequence[Float[np.ndarray, " r"]], left: int
) -> list[int]:
    """How many weights each layer keeps: those whose removal changes the outputs most, `left` in all."""
    costs = [np.maximum.accumulate(rise * c[:, None], axis=1) for (_, rise), c in zip(curves, effect, strict=True)]
    sizes = [cost.size for cost in costs]
    flat = np.concatenate([cost.ravel() for cost in costs])
    gone = cheapest(flat[:, None], sum(sizes) - left)
    return [int(size - part.sum()) for size, part in zip(sizes, np.split(gone, np.cumsum(sizes)[:-1]), strict=True)]


def _at_share(
    plan: Plan,
    data: tuple[Tensor, Tensor],
    share: float,
    left: int,
    first: tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]],
    how: OptimalBrainSurgeon,
    work: _Work,
    shared: _Clock,
) -> Found:
    """The rounds of one share, and its last pass."""
    (u, few), (effect, curves) = data, first
    clock, generators = _Clock(dict(shared.seconds)), {}

    def visit(rounded: int, counts: list[int], out: list[Result]) -> Callable[..., Weighted]:
        changed: list[str] = []  # layers so far that are not the network's own

        def one(k: int, layer: Layer, x: Tensor, target: Target) -> Weighted:
            if counts[k] == layer.size and layer.bias == "":
                layer = replace(layer, bias=None)  # a layer that loses no weight needs no bias that it did not have
            generators[k] = torch.Generator().manual_seed(1000 * (rounded + 1) + k)
            final = rounded == how.rounds

            def compute() -> Result:
                return _layer(layer, (x, target), counts[k], effect[k], how, generators[k], clock, final=final)

            out.append(work(compute))
            step = _step(layer, out[-1], same=not changed)
            if step is not layer.node:
                changed.append(layer.name)
            return step

        return one

    new: dict[str, Weighted] = {}
    for rounded in range(how.rounds + 1):
        rows: list[Result] = []
        counts = shared_out(curves, effect, left)
        begin, before = time.process_time(), sum(clock.seconds.values())
        new = run_pass(plan, u if rounded == how.rounds else few, visit(rounded, counts, rows))
        begin = clock("network", begin + sum(clock.seconds.values()) - before)
        if rounded < how.rounds:
            effect = _effects(plan, new, few, how, work)
            clock("effects", begin)
    return Found(share, new, rows, effect, clock.seconds)


def _step(layer: Layer, found: Result, *, same: bool) -> Weighted:
    """A layer with the rows that were found, back in its own units.

    Rows that the chain multiplies by zero keep the network's own weights where these stay. A layer that is left with
    all its weights that are not zero is the network's own where its inputs are the `same`.
    """
    own, still = layer.kernels(), layer.factor == 0
    factor = np.where(still, 1.0, layer.factor)
    kept = found.get("kept", (found["weight"] != 0) | still[:, None])  # supports are kept of the last pass alone
    if same and bool((kept | (own == 0)).all()):
        return layer.node
    weight = np.where(still[:, None], np.where(kept, own, 0.0), found["weight"] / factor[:, None])
    if layer.bias is None:
        return layer.with_kernels(weight, None)
    before = np.zeros(layer.rows) if layer.node.bias is None else layer.node.bias.detach().double().numpy()
    return layer.with_kernels(weight, np.where(still, before, found["bias"] / factor))


def _layer(
    layer: Layer,
    given: tuple[Tensor, Target],
    left: int,
    effect: Float[np.ndarray, " r"],
    how: OptimalBrainSurgeon,
    generator: torch.Generator,
    clock: _Clock,
    *,
    final: bool,
) -> Result:
    """Weights, biases and supports of a layer's rows; their certificates in the last pass."""
    begin = time.process_time()
    rows, found = _problem(layer, *given, how, generator)
    begin = clock("moments", begin)
    if left == layer.size:
        kept = np.ones((layer.rows, layer.columns), bool)
    else:
        kept = supports(rows.curves(), effect, left)
    begin = clock("elimination", begin)
    exchanges = 0
    if how.exchanges and final:
        kept, exchanges = rows.exchanged(kept, how.exchanges)
        begin = clock("exchanges", begin)
    weight = rows.least_squares(kept)
    bias = rows.bias(weight)
    if not final:
        clock("refit", begin)
        return {"weight": weight, "bias": bias}
    proved = rows.certificate(kept, weight)
    begin = clock("certificates", begin)
    if how.closed < 1 and layer.one_sided and layer.bias is not None:
        drawn = samples(layer, *given, found, how.refit_positions, generator)
        weight, shift = rows.one_sided(kept, weight, drawn, how.closed)
        bias = rows.bias(weight) + shift
    clock("refit", begin)
    return {"weight": weight, "bias": bias, "kept": kept, "exchanges": np.array(exchanges), **proved}
