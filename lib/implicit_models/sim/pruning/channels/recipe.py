"""The channels of a network that go, and what is left fitted to what the network computed.

    1  effects of rows on the outputs, and the moments of every layer on the network's own values
    2  of every space the order in which its channels go, each from all layers that read it at once
    3  multiplications shared out, and a pass through the network: every layer is fitted, on the columns that are left
       to it, on what the smaller network computes. The channels that one layer alone reads are chosen there anew
    4  effects on the smaller network, and 2 and 3 again, `rounds` times; of the rounds the one counts whose network
       differs least from the whole one on samples apart
    5  the last pass, on all samples, with refits that count what ReLU lets through

The effects of a round are geometric means of what they were and what they are on its network: without that, rounds
swing between two choices.

A channel that a shortcut takes to a later sum costs there at most what it varies by, in units of that sum's effect.

Source:
    this project; `recipe` of single weights for the parts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from implicit_models.sim.parallel.run import one_blas_thread
from implicit_models.sim.pruning.channels.allocation import Costs, costs_of, shared_out
from implicit_models.sim.pruning.channels.settings import Channels
from implicit_models.sim.pruning.channels.spaces import Labels, Space
from implicit_models.sim.pruning.effects import effects
from implicit_models.sim.pruning.layers import Layer, Plan, Weighted
from implicit_models.sim.pruning.moments import Moments, Target, moments, samples
from implicit_models.sim.pruning.passes import run_pass
from implicit_models.sim.pruning.refitted import refitted
from implicit_models.sim.pruning.rows import Rows, rows_of
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon
from implicit_models.sim.solvers.best_subset.groups import Grouped, eliminate_groups

APART = 200  # samples at most, beside those of the passes, on which rounds are compared


@dataclass
class Fitted:
    """A layer of the last pass. kept_rows (r,), kept_columns (d,): what is left of it. error (r,): mean square of what
    least squares on these columns leave of each row's target. slope: the largest derivative left, relative."""

    kept_rows: Bool[np.ndarray, " r"]
    kept_columns: Bool[np.ndarray, " d"]
    error: Float[np.ndarray, " r"]
    effect: Float[np.ndarray, " r"]
    slope: float


@dataclass
class Found:
    """What a budget leaves: labels that are gone, the new steps, and the layers."""

    removed: Int[np.ndarray, " k"]
    steps: dict[str, Weighted]
    layers: list[Fitted]
    costs: Costs
    counts: Int[np.ndarray, " S"]
    seconds: dict[str, float]


@dataclass
class _Run:
    """A network on its way to a budget. gone: a space -> the numbers of its channels that go."""

    plan: Plan
    labels: Labels
    how: OptimalBrainSurgeon
    effect: list[Float[np.ndarray, " r"]] = field(default_factory=list)
    problems: list[Rows] = field(default_factory=list)
    varying: list[Float[np.ndarray, " r"]] = field(default_factory=list)
    gone: list[Int[np.ndarray, " k"]] = field(default_factory=list)
    layers: list[Fitted] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def spaces(self) -> tuple[Space, ...]:
        return self.labels.spaces

    def late(self, space: Space) -> bool:
        """Whether its channels are chosen where they are read."""
        return len(space.columns) == 1 and not space.fed and max(space.rows) < min(space.columns)

    def removed(self, *, before: int | None = None) -> Int[np.ndarray, " k"]:
        """Labels that are gone; before: as long as this layer has not chosen."""
        parts = [
            space.labels[gone]
            for space, gone in zip(self.spaces, self.gone, strict=True)
            if before is None or not self.late(space) or min(space.columns) < before
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def timed(self, part: str, begin: float) -> float:
        now = time.process_time()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - begin
        return now


def cut_channels(plan: Plan, labels: Labels, data: Tensor, budget: Channels, how: OptimalBrainSurgeon) -> Found:
    """The channels that go, and the new steps, of the shapes of the old ones.

    Raises:
        ValueError: where the budget cannot be met.
    """
    run, costs = _Run(plan, labels, how), costs_of(plan, labels.spaces)
    most = budget.share * costs.of(np.zeros(len(labels.spaces), np.int64))
    number = np.unique(np.linspace(0, len(data) - 1, min(len(data), how.samples)).round().astype(np.int64))
    few, apart = data[number], data[np.setdiff1d(np.arange(len(data)), number)[:APART]]
    apart = apart if len(apart) else few
    with torch.no_grad(), one_blas_thread():
        begin = time.process_time()
        run.effect = _effects(run, {}, few)
        effect = list(run.effect)  # as last known, of rows that are gone too
        begin = run.timed("effects", begin)
        _look(run, few)
        begin = run.timed("moments", begin)
        best, chosen = np.inf, (run.gone, run.effect, np.zeros(len(run.spaces), np.int64))
        for rounded in range(how.rounds + 1):
            orders = [_order(run, space) for space in run.spaces]
            counts = shared_out([rise for _, rise in orders], costs, most, budget.multiple)
            run.gone = [order[:count] for (order, _), count in zip(orders, counts, strict=True)]
            begin = run.timed("elimination", begin)
            if rounded == 0:
                chosen = run.gone, run.effect, counts
                if how.rounds == 0:
                    break
            new = _pass(run, few, rounded, final=False)
            begin = run.timed("passes", begin)
            lost = _lost(run, new, apart)
            if lost < best:
                best, chosen = lost, (run.gone, run.effect, counts)
            found = _effects(run, new, few)
            for k, (known, now) in enumerate(zip(effect, found, strict=True)):
                alive = _rows_left(run, k)
                effect[k] = np.where(alive, np.sqrt(known * now), known)
                run.effect = [*run.effect[:k], np.where(alive, effect[k], 0.0), *run.effect[k + 1 :]]
            begin = run.timed("effects", begin)
        run.gone, run.effect, counts = chosen
        new = _pass(run, data, how.rounds + 1, final=True)
        run.timed("passes", begin)
    return Found(run.removed(), new, run.layers, costs, counts, run.seconds)


def _effects(run: _Run, new: dict[str, Weighted], few: Tensor) -> list[Float[np.ndarray, " r"]]:
    """Of the network with some steps replaced; ones where effects do not count."""
    if not run.how.effects:
        return [np.where(layer.factor != 0, 1.0, 0.0) for layer in run.plan.layers]
    links = run.labels.links_without(run.plan.graph, run.removed()) if new else {}
    steps = tuple((new | links).get(step.name, step) for step in run.plan.steps)
    found = effects(steps, run.plan.graph.output, run.plan.layers, few)
    return [np.where(layer.factor != 0, c, 0.0) for layer, c in zip(run.plan.layers, found, strict=True)]


def _look(run: _Run, few: Tensor) -> None:
    """Moments of all layers on the network's own values, and what the rest of their pre-activations varies by."""

    def watch(k: int, layer: Layer, x: Tensor, target: Target) -> None:
        run.problems.append(_problem(run, k, layer, x, target, 0)[0])
        rest = target(slice(None))[1].double()
        run.varying.append(rest.var((0, 2), unbiased=False).numpy())

    run_pass(run.plan, few, None, watch)


def _problem(run: _Run, k: int, layer: Layer, x: Tensor, target: Target, rounded: int) -> tuple[Rows, Moments]:
    found = moments(layer, x, target, run.how.positions, torch.Generator().manual_seed(1000 * rounded + k))
    return rows_of(layer, found, run.how.ridge), found


def _order(run: _Run, space: Space) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Channels of a space as they go, and what the outputs lose at each."""
    problems = [_grouped(run.problems[k], run.effect[k], columns) for k, columns in space.columns.items()]
    fed = np.zeros(len(space))
    for k, rows in space.fed.items():
        fed += (run.effect[k] * run.varying[k])[rows].sum(axis=1)
    return eliminate_groups(problems, fed)


def _grouped(rows: Rows, effect: Float[np.ndarray, " r"], columns: Int[np.ndarray, "n t"]) -> Grouped:
    return Grouped(rows.H[0], rows.C, 2 * effect, columns)


def _rows_left(run: _Run, k: int, *, before: int | None = None) -> Bool[np.ndarray, " r"]:
    kept = np.ones(run.plan.layers[k].rows, bool)
    for space, gone in zip(run.spaces, run.gone, strict=True):
        if k in space.rows and (before is None or not run.late(space) or min(space.columns) < before):
            kept[space.rows[k][gone]] = False
    return kept


def _columns_left(run: _Run, k: int) -> Bool[np.ndarray, " d"]:
    kept = np.ones(run.plan.layers[k].columns, bool)
    for space, gone in zip(run.spaces, run.gone, strict=True):
        if k in space.columns:
            kept[space.columns[k][gone]] = False
    return kept


def _lost(run: _Run, new: dict[str, Weighted], u: Tensor) -> float:
    """Mean square by which the outputs differ from the network's."""
    links = run.labels.links_without(run.plan.graph, run.removed())
    whole: dict[str, Tensor] = {run.plan.steps[0].name: u}
    small = dict(whole)
    for step in run.plan.steps[1:]:
        instead = (new | links).get(step.name, step)
        whole[step.name] = step.run(*(whole[name] for name in step.inputs))
        small[step.name] = instead.run(*(small[name] for name in step.inputs))
    output = run.plan.graph.output
    return float(((whole[output] - small[output]).double() ** 2).mean())


def _pass(run: _Run, u: Tensor, rounded: int, *, final: bool) -> dict[str, Weighted]:
    """All layers, each on what the smaller network computes."""
    run.layers = []

    def visit(k: int, layer: Layer, x: Tensor, target: Target) -> Weighted:
        rows, found = _problem(run, k, layer, x, target, rounded + 1)
        alive = _rows_left(run, k, before=k + 1)
        for s, space in enumerate(run.spaces):
            if run.late(space) and k in space.columns:
                order, _ = eliminate_groups([_grouped(rows, run.effect[k] * alive, space.columns[k])])
                run.gone[s] = order[: len(run.gone[s])]
        columns = _columns_left(run, k)
        changed = any(step is not run.plan.layers[i].node for i, step in done.items())
        step: Weighted = layer.node
        if changed or not (alive.all() and columns.all()):
            weight, bias = _fit(run, k, (x, target), (rows, found), (alive, columns), final)
            step = refitted(layer, weight, bias, _kept(layer, alive, columns))
        elif final:
            run.layers.append(Fitted(alive, columns, np.zeros(layer.rows), run.effect[k], 0.0))
        done[k] = step
        return step

    done: dict[int, Weighted] = {}
    early = run.removed(before=-1)
    links = run.labels.links_without(run.plan.graph, early)
    new = run_pass(run.plan, u, visit, links=links)
    for k, layer in enumerate(run.plan.layers):  # rows that were chosen to go after they were fitted
        alive = _rows_left(run, k)
        if final:
            own = run.layers[k]
            run.layers[k] = replace(own, kept_rows=alive, error=np.where(alive, own.error, 0.0))
        step = new[layer.node.name]
        if not alive.all():
            weight = step.weight.clone()
            weight[torch.from_numpy(~alive)] = 0.0
            new[layer.node.name] = replace(step, weight=weight)  # their biases are read by nothing
    return new


def _kept(layer: Layer, alive: Bool[np.ndarray, " r"], columns: Bool[np.ndarray, " d"]) -> Bool[np.ndarray, "r d"]:
    """Weights that are left; a layer of several groups keeps all columns of a row."""
    return alive[:, None] & (columns if layer.groups == 1 else np.ones(layer.columns, bool))


def _fit(
    run: _Run,
    k: int,
    given: tuple[Tensor, Target],
    problem: tuple[Rows, Moments],
    left: tuple[Bool[np.ndarray, " r"], Bool[np.ndarray, " d"]],
    final: bool,
) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, " r"]]:
    """Weights and biases of the rows that are left, zeros for the others; in the last pass what is proved, too."""
    layer, (rows, found), (alive, columns) = run.plan.layers[k], problem, left
    kept = _kept(layer, alive, columns)
    weight = np.zeros(rows.C.shape)
    S = np.flatnonzero(columns) if layer.groups == 1 else np.arange(layer.columns)
    for H, span in zip(rows.H, rows.runs, strict=True):
        own = np.flatnonzero(alive[span]) + span.start
        weight[np.ix_(own, S)] = np.linalg.solve(H[np.ix_(S, S)], rows.C[own][:, S].T).T
    weight, shift = np.where(rows.dead & kept, rows.own, weight), np.zeros(layer.rows)
    if final:
        proved = rows.certificate(kept, weight)
        error = np.where(alive, proved["loss"] * found.zz, 0.0)
        slope = float(np.where(alive, proved["slope"], 0.0).max(initial=0.0))
        run.layers.append(Fitted(alive, columns, error, run.effect[k], slope))
        if run.how.closed < 1 and layer.one_sided and layer.bias is not None:
            drawn = samples(layer, *given, found, run.how.refit_positions, torch.Generator().manual_seed(k))
            weight, shift = rows.one_sided(kept, weight, drawn, run.how.closed)
    return weight, np.where(alive, rows.bias(weight) + shift, 0.0)


def masked_steps(plan: Plan, labels: Labels, found: Found) -> Sequence:
    """The network's steps with zeros for what is gone, of the old shapes."""
    links = labels.links_without(plan.graph, found.removed)
    return tuple((found.steps | links).get(step.name, step) for step in plan.steps)
