"""`Bounds` of a layered model, with the certificate that `check` verifies by its matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_models.robustness.bounding.result import Bounds, finished, statuses
from implicit_models.robustness.checking.checker import Stage
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.layered.backward import Inputs, lower_bounds
from implicit_models.robustness.layered.crown import LayerBounds, box_of, layer_bounds
from implicit_models.robustness.layered.network import LayeredNetwork, Units
from implicit_models.robustness.layered.rows import Rows
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.specification import Specification

KEEP_BYTES = 256 * 2**20  # multipliers kept for the checker, at most


def layered_bounds(
    task: Problem,
    net: LayeredNetwork,
    inputs: Uncertainty,
    functionals: Specification,
    *,
    refine: bool,
    sides: str = "both",
) -> Bounds:
    """Bounds by the layers: intervals, or with `refine` lines carried back to the input (`crown`).

    Args:
        task: the matrices, for the certificate.
        net: the layers.
        inputs: the sets.
        functionals: of the outputs.
        refine: see `layer_bounds`.
        sides: as in `bounds`.
    """
    N = len(inputs.centre)
    ends = (inputs.centre, np.broadcast_to(inputs.radius, inputs.centre.shape))
    centre, radius = (torch.tensor(v, dtype=torch.float64).to(net.dtype) for v in ends)
    sets = Inputs(centre, radius, inputs.card)
    with torch.no_grad():
        plain = layer_bounds(net, sets, refine=False)
        kept = refine and _kept(net, plain, functionals, sides)
        found = layer_bounds(net, sets, keep=kept) if refine else plain
        low, low_rows = _functionals(net, plain, found, sets, functionals, 1)
        high, high_rows = _functionals(net, plain, found if sides == "both" else plain, sets, functionals, -1)
    fields = _fields(net, found, N) | {"lb": low.double().numpy(), "ub": -high.double().numpy()}
    start = _fields(net, plain, N)
    evidence: dict[str, Any] = {"il": start["xl"], "ih": start["xh"], "zl0": start["zl"], "zh0": start["zh"]}
    if refine:
        evidence["stages"] = None
        if kept:
            evidence["stages"] = tuple(_stages(net, plain, found, start))
            evidence["lam_low"] = in_order(net, low_rows)
            evidence["lam_high"] = in_order(net, high_rows) if sides == "both" else None
    method = "dual" if refine else "interval"
    return finished(task, inputs, functionals, statuses(inputs, *fields.values()), method, fields, **evidence)


def _functionals(
    net: LayeredNetwork, plain: LayerBounds, found: LayerBounds, sets: Inputs, functionals: Specification, sign: int
) -> tuple[Tensor, dict[int, Rows]]:
    """Lower bounds (N, k) of the functionals times sign: the better ones of the intervals of the last layers and of
    rows carried back; and the multipliers of these, NaN where the interval is better."""
    N, last = len(sets.centre), len(net.values)
    matrix = np.eye(functionals.problem.q) if functionals.matrix is None else functionals.matrix
    start = {last: Rows(torch.tensor(sign * matrix, dtype=net.dtype).expand(N, functionals.k, -1))}
    boxes = {k: box_of(net, *plain.image[k]) for k in net.units()}
    by_range = lower_bounds(net, plain.ranges, sets, start, boxes=boxes)
    rows: dict[int, Rows] = {}
    if found is plain:
        return by_range, rows
    best = lower_bounds(net, found.ranges, sets, start, multipliers=rows)
    for part in rows.values():
        part.entries[by_range > best] = torch.nan
    return torch.fmax(best, by_range), rows


def _fields(net: LayeredNetwork, found: LayerBounds, N: int) -> dict[str, np.ndarray]:
    out = {name: np.empty((N, net.n)) for name in ("xl", "xh", "zl", "zh")}
    for number in net.units():
        value = net.values[number - 1]
        assert isinstance(value, Units)
        for name, part in zip(out, (*found.image[number], found.low[value.of], found.high[value.of]), strict=True):
            out[name][:, value.states] = part.numpy()
    return out


def in_order(net: LayeredNetwork, found: dict[int, Rows]) -> np.ndarray | None:
    """Entries of all activations in the order of the implicit model's states, zero where there are none; float64."""
    if not found:
        return None
    N, m = next(iter(found.values())).entries.shape[:2]
    out = np.zeros((N, m, net.n))
    for number, rows in found.items():
        if not number:
            continue
        value = net.values[number - 1]
        assert isinstance(value, Units)
        out[..., value.states] = rows.full(value.size).double().numpy()
    return out


def _kept(net: LayeredNetwork, plain: LayerBounds, functionals: Specification, sides: str) -> bool:
    """Whether the multipliers of all rows are few enough to be kept."""
    N, layers = len(plain.ranges.size[0]), len(net.units())
    rows = 2 * N * net.n * 3 + (1 + (sides == "both")) * N * functionals.k
    return (rows + 2 * layers * N) * net.n * 8 <= KEEP_BYTES


def _stages(net: LayeredNetwork, plain: LayerBounds, found: LayerBounds, start: dict[str, np.ndarray]) -> list[Stage]:
    """What proves the pre-activations of each layer, in order: the rows that were carried back, and for the bounds that
    are the interval of what is known of the layers before, rows of zeros."""
    zl, zh = start["zl"].copy(), start["zh"].copy()
    N, out = len(zl), []
    for number in net.units():
        value = net.values[number - 1]
        assert isinstance(value, Units)
        samples, units, sides, lams = [], [], [], []
        for rows in found.rows:
            of = net.values[rows.number - 1]
            if not isinstance(of, Units) or of.of != value.of:  # two maps of one layer share their rows
                continue
            m = rows.unit.shape[1]
            samples.append(rows.sample.numpy().repeat(m))
            units.append(value.states[rows.unit.numpy()].reshape(-1))
            sides.append(np.full(samples[-1].size, rows.side))
            lam = in_order(net, rows.multipliers)
            lams.append(np.zeros((samples[-1].size, net.n)) if lam is None else lam.reshape(-1, net.n))
        for side, before, after in ((-1, plain.low, found.low), (1, plain.high, found.high)):
            sample, place = np.nonzero((before[value.of] != after[value.of]).numpy())
            samples.append(sample)
            units.append(value.states[place])
            sides.append(np.full(sample.size, side))
            lams.append(np.zeros((sample.size, net.n)))
        zl[:, value.states], zh[:, value.states] = found.low[value.of].numpy(), found.high[value.of].numpy()
        if sum(part.size for part in samples):
            whole = [np.concatenate(v) for v in (samples, units, sides, lams)]
            out.append(Stage(whole[0], whole[1], whole[2].astype(np.int8), whole[3], zl.copy(), zh.copy()))
    return [stage for stage in out if len(stage.zl) == N]
