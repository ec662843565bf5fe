"""`verify_property`: a property of a network is safe, unsafe or unknown, and either answer comes with its proof.

    safe      branch and bound proved every part of the box; the parts and how they were found are the certificate
    unsafe    an input whose outputs lie in the unsafe set, by more than the rounding of its evaluation
    unknown   time ran out, or the model was not proved well-posed; with the best bound

Source:
    Bunel et al. (2020); the properties and answers are those of VNN-COMP.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from implicit_models.robustness.layered.backward import Inputs
from implicit_models.robustness.layered.crown import layer_bounds
from implicit_models.robustness.layered.input_splits import InputSearch, SplitTree
from implicit_models.robustness.layered.network import LayeredNetwork
from implicit_models.robustness.layered.reading import layers_of
from implicit_models.robustness.layered.unit_splits import UnitSearch, can_split
from implicit_models.robustness.layered.unit_tree import UnitTree
from implicit_models.robustness.problem import problem
from implicit_models.robustness.properties import Property
from implicit_models.robustness.verification import checkpoint as files
from implicit_models.status import Status
from implicit_models.summaries import summary

BATCH = 2048  # boxes at once
UNIT_BATCH = 512  # parts with signs at once
FEW_INPUTS = 12  # up to which boxes are halved
SAVE_EVERY_S = 30.0
ATTACK_STEPS, ATTACK_STARTS = 40, 64


@dataclass(frozen=True, eq=False)
class Verification:
    """The answer on a property.

    Attributes:
        status: SAFE | UNSAFE | UNKNOWN of `Status`.
        witness: (p,) an input with an unsafe output, None unless unsafe.
        bound: how far the part of the box that is furthest from proved is from it, at least; 0 if safe.
        nodes: parts that were looked at.
        seconds: of the search.
        reason: why the answer is unknown, else "".
        tree: the parts, and the multipliers of those with signs, for `check_verification`; None unless safe.
    """

    status: Status
    witness: Float[np.ndarray, " p"] | None
    bound: float
    nodes: int
    seconds: float
    reason: str
    tree: SplitTree | UnitTree | None

    def __repr__(self) -> str:
        return summary(self, "status", "witness", "bound", "nodes", "seconds", "reason")


def verify_property(
    model: Any,
    wanted: Property,
    *,
    timeout: float | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike | None = None,
    splits: str = "auto",
    batch: int | None = None,
    seed: int = 0,
) -> Verification:
    """Whether no input of a box has an unsafe output.

    Args:
        model: a model without feedback, such as `compose.from_network` or `from_onnx` make of a network.
        wanted: the property.
        timeout: seconds; None for no limit.
        progress: say on standard error, once in a second, how far the search is.
        checkpoint: file in which the search is kept, and from which an interrupted one of the same property goes on.
        splits: "inputs" halves boxes, "units" takes ReLUs on either side of their kink; "auto" is the former for up to
            12 inputs, and for networks without such units.
        batch: parts that are bounded at once.
        seed: of the search for an unsafe input before.

    Returns:
        `Verification`. Interrupted from the keyboard, it leaves the checkpoint and raises KeyboardInterrupt.

    Raises:
        ValueError: for a property of other numbers of inputs or outputs, a checkpoint of another one, a model with
            feedback, or other splits.
    """
    task = problem(model)
    net = layers_of(task)
    if net is None:
        raise ValueError("verify_property goes layer by layer, and this model feeds back: use certify")
    if (len(wanted.lower), wanted.unsafe[0].A.shape[1]) != (task.p, task.q):
        raise ValueError(
            f"the property is of {len(wanted.lower)} inputs and {wanted.unsafe[0].A.shape[1]} outputs, the model has"
            f" {task.p} and {task.q}"
        )
    if splits not in ("auto", "inputs", "units"):
        raise ValueError(f"splits must be 'auto', 'inputs' or 'units', got {splits!r}")
    if splits == "units" and not can_split(net):
        raise ValueError("no unit of this network has a kink: only its inputs can be split")
    units = splits == "units" or (splits == "auto" and task.p > FEW_INPUTS and can_split(net))
    clock = _Clock(timeout, progress)
    search: InputSearch | UnitSearch = UnitSearch(net, task, wanted) if units else InputSearch.of(net, wanted)
    batch = batch or (UNIT_BATCH if units else BATCH)
    path = None if checkpoint is None else Path(checkpoint)
    model_digest = "" if path is None else files.digest(task)
    if path is not None and path.exists():
        clock.nodes = files.restored(search, path, model_digest)
    witness = _attacked(net, wanted, seed) if not clock.nodes else None
    worst = -np.inf
    saved = time.monotonic()
    while witness is None and search.left and not clock.over():
        count = min(search.left, batch)
        try:
            candidates = search.step(count)
        except KeyboardInterrupt:
            if path is not None:
                files.save(search, path, clock.nodes, model_digest)
            raise
        clock.nodes += count
        witness = first_unsafe(net, wanted, candidates)
        worst = search.worst
        clock.say(search.left, worst)
        if path is not None and time.monotonic() - saved > SAVE_EVERY_S:
            files.save(search, path, clock.nodes, model_digest)
            saved = time.monotonic()
    if path is not None and witness is None and search.left:
        files.save(search, path, clock.nodes, model_digest)
    safe = witness is None and not search.left and not search.points
    status = Status.UNSAFE if witness is not None else Status.SAFE if safe else Status.UNKNOWN
    edge = "a part that cannot be split is on the edge of the unsafe set"
    return Verification(
        status,
        witness,
        0.0 if safe else worst,
        clock.nodes,
        clock.seconds(),
        "" if status != Status.UNKNOWN else "timeout" if search.left else edge,
        search.proof if safe else None,
    )


def first_unsafe(
    net: LayeredNetwork, wanted: Property, candidates: Float[np.ndarray, "C p"]
) -> Float[np.ndarray, " p"] | None:
    """The first input whose outputs are unsafe whatever its evaluation's rounding was."""
    if not len(candidates):
        return None
    U = np.clip(candidates, wanted.lower, wanted.upper)
    matrix, right = wanted.rows
    with torch.no_grad():
        y = net.run(torch.from_numpy(U).to(net.dtype)).double().numpy()
        near = np.flatnonzero(_inside(wanted, y @ matrix.T - right))
        for i in near[:16]:
            point = torch.from_numpy(U[i : i + 1]).to(net.dtype)
            if not np.array_equal(point.double().numpy(), U[i : i + 1]):
                continue
            last = layer_bounds(net, Inputs(point, torch.zeros_like(point)), refine=False)
            low, high = (v[len(net.values)].numpy() for v in (last.low, last.high))
            middle, radius = 0.5 * (low + high), 0.5 * (high - low)
            reach = np.abs(middle) @ np.abs(matrix).T + np.abs(right)
            top = middle @ matrix.T + radius @ np.abs(matrix).T + 1e-15 * (len(right) + 8) * reach - right
            if _inside(wanted, top)[0]:
                return U[i]
    return None


def _inside(wanted: Property, excess: Float[np.ndarray, "N k"]) -> np.ndarray:
    """(N,) whether outputs with these excesses of all rows lie in one of the polyhedra."""
    out, start = np.zeros(len(excess), bool), 0
    for part in wanted.unsafe:
        out |= part.reached(excess[:, start : start + len(part.b)])
        start += len(part.b)
    return out


def _attacked(net: LayeredNetwork, wanted: Property, seed: int) -> Float[np.ndarray, " p"] | None:
    """Projected steps of the gradient's sign from random inputs, towards each polyhedron."""
    matrix, right = (torch.from_numpy(v).to(net.dtype) for v in wanted.rows)
    lower, upper = (torch.from_numpy(v.copy()).to(net.dtype) for v in (wanted.lower, wanted.upper))
    generator = torch.Generator().manual_seed(seed)
    start = 0
    for part in wanted.unsafe:
        rows = slice(start, start := start + len(part.b))
        u = lower + (upper - lower) * torch.rand(ATTACK_STARTS, net.p, generator=generator, dtype=net.dtype)
        for k in range(ATTACK_STEPS):
            u.requires_grad_(True)
            worst = (net.run(u) @ matrix[rows].T - right[rows]).amax(dim=1)
            (gradient,) = torch.autograd.grad(worst.sum(), u)
            step = 0.25 * (1 - k / ATTACK_STEPS) * (upper - lower)
            u = torch.clamp(u.detach() - step * gradient.sign(), lower, upper)
        found = first_unsafe(net, wanted, u.double().numpy())
        if found is not None:
            return found
    return None


class _Clock:
    """Time and progress of a search."""

    def __init__(self, timeout: float | None, progress: bool) -> None:
        self.start, self.timeout, self.progress, self.nodes = time.monotonic(), timeout, progress, 0
        self.said = self.start

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def over(self) -> bool:
        return self.timeout is not None and self.seconds() >= self.timeout

    def say(self, left: int, worst: float) -> None:
        if self.progress and time.monotonic() - self.said > 1:
            self.said = time.monotonic()
            print(f"{self.nodes} parts, {left} open, {worst:.4g} from proved, {self.seconds():.0f} s", file=sys.stderr)
