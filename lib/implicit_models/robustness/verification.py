"""`verify_property`: a property of a network is safe, unsafe or unknown, and either answer comes with its proof.

    safe      branch and bound proved every part of the box; the parts and how they were found are the certificate
    unsafe    an input whose outputs lie in the unsafe set, by more than the rounding of its evaluation
    unknown   time ran out, or the model was not proved well-posed; with the best bound

Source:
    Bunel et al. (2020); the properties and answers are those of VNN-COMP.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.checking.checker import CheckResult, check
from implicit_models.robustness.input_sets import Box
from implicit_models.robustness.layered.backward import Inputs
from implicit_models.robustness.layered.crown import layer_bounds
from implicit_models.robustness.layered.input_splits import InputSearch, SplitTree, row_slack
from implicit_models.robustness.layered.network import LayeredNetwork
from implicit_models.robustness.layered.reading import layers_of
from implicit_models.robustness.problem import Problem, problem
from implicit_models.robustness.properties import Property
from implicit_models.status import Status
from implicit_models.summaries import summary

BATCH = 2048  # boxes at once
CHECKED_PARTS, CHECKED_BYTES = 256, 2**26  # that are checked at once, and of their multipliers
HALVINGS, MOST_SMALLER = 24, 512  # of parts that the checker does not prove as they are
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
        tree: the parts, for `check_verification`; None unless safe.
    """

    status: Status
    witness: Float[np.ndarray, " p"] | None
    bound: float
    nodes: int
    seconds: float
    reason: str
    tree: SplitTree | None

    def __repr__(self) -> str:
        return summary(self, "status", "witness", "bound", "nodes", "seconds", "reason")


def verify_property(
    model: Any,
    wanted: Property,
    *,
    timeout: float | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike | None = None,
    batch: int = BATCH,
    seed: int = 0,
) -> Verification:
    """Whether no input of a box has an unsafe output.

    Args:
        model: a model without feedback, such as `compose.from_network` or `from_onnx` make of a network.
        wanted: the property.
        timeout: seconds; None for no limit.
        progress: say on standard error, once in a second, how far the search is.
        checkpoint: file in which the search is kept, and from which an interrupted one of the same property goes on.
        batch: parts of the box that are bounded at once.
        seed: of the search for an unsafe input before.

    Returns:
        `Verification`. Interrupted from the keyboard, it leaves the checkpoint and raises KeyboardInterrupt.

    Raises:
        ValueError: for a property of other numbers of inputs or outputs, a checkpoint of another one, or a model with
            feedback.
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
    clock = _Clock(timeout, progress)
    search = InputSearch.of(net, wanted)
    path = None if checkpoint is None else Path(checkpoint)
    model_digest = "" if path is None else _digest(task)
    if path is not None and path.exists():
        clock.nodes = _restored(search, path, model_digest)
    witness = _attacked(net, wanted, seed) if not clock.nodes else None
    worst = -np.inf
    saved = time.monotonic()
    while witness is None and len(search.nodes) and not clock.over():
        count = min(len(search.nodes), batch)
        try:
            candidates, _ = search.step(count)
        except KeyboardInterrupt:
            if path is not None:
                _save(search, path, clock.nodes, model_digest)
            raise
        clock.nodes += count
        witness = first_unsafe(net, wanted, candidates)
        worst = float(search.bound.min(initial=np.inf))
        clock.say(len(search.nodes), worst)
        if path is not None and time.monotonic() - saved > SAVE_EVERY_S:
            _save(search, path, clock.nodes, model_digest)
            saved = time.monotonic()
    if path is not None and witness is None and len(search.nodes):
        _save(search, path, clock.nodes, model_digest)
    safe = witness is None and not len(search.nodes) and not search.points
    status = Status.UNSAFE if witness is not None else Status.SAFE if safe else Status.UNKNOWN
    edge = "an input is on the edge of the unsafe set"
    return Verification(
        status,
        witness,
        0.0 if safe else worst,
        clock.nodes,
        clock.seconds(),
        "" if status != Status.UNKNOWN else "timeout" if len(search.nodes) else edge,
        search.tree if safe else None,
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


def check_verification(model: Any, wanted: Property, found: Verification) -> CheckResult:
    """Whether a safe answer is proved: its parts cover the box, and the checker proves the bounds of each.

    The multipliers of the parts are found again, and count only if `check` verifies them by the matrices: a tree of
    ten thousand parts need not hold a gigabyte of them.

    Args:
        model: the model.
        wanted: the property.
        found: the answer.

    Returns:
        `CheckResult`, one entry a part.
    """
    if found.status != Status.SAFE or found.tree is None:
        return CheckResult(np.zeros(0, bool), "there is no proof of an answer that is not safe")
    try:
        lower, upper = found.tree.leaves(wanted.lower, wanted.upper)
    except (ValueError, IndexError) as error:
        return CheckResult(np.zeros(0, bool), f"the parts are malformed: {error}")
    task = problem(model)
    good = np.zeros(len(lower), bool)
    most = max(1, min(CHECKED_PARTS, CHECKED_BYTES // (48 * (task.n + 1) ** 2)))
    whole = np.where(wanted.upper > wanted.lower, wanted.upper - wanted.lower, 1.0)
    for begin in range(0, len(lower), most):
        part = np.arange(begin, min(len(lower), begin + most))
        lows, highs = lower[part], upper[part]
        good[part] = True
        for _ in range(HALVINGS):
            bad = ~_proved(task, wanted, lows, highs)
            part, lows, highs = part[bad], lows[bad], highs[bad]
            if not part.size or part.size > MOST_SMALLER:
                break
            # the search also knew the bounds of what a part is a half of: smaller parts do without
            axis = ((highs - lows) / whole).argmax(axis=1)
            at = (0.5 * (lows + highs))[np.arange(len(axis)), axis]
            below, above = highs.copy(), lows.copy()
            below[np.arange(len(axis)), axis] = above[np.arange(len(axis)), axis] = at
            part = np.concatenate([part, part])
            lows, highs = np.concatenate([lows, above]), np.concatenate([below, highs])
        good[part] = False
    bad = np.flatnonzero(~good)
    return CheckResult(good, f"part {bad[0]} of {len(good)} is not proved" if bad.size else "")


def _proved(task: Problem, wanted: Property, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """(N,) whether the checker proves the property on each box."""
    matrix, right = wanted.rows
    centre = 0.5 * (lower + upper)
    radius = np.nextafter(np.maximum(upper - centre, centre - lower), np.inf)
    found = bounds(task, centre, Box(radius), sides="lower", spec=matrix)
    slack, _ = row_slack(wanted, np.nextafter(found.lb - right, -np.inf))
    return check(found.cert).samples & (slack > 0)


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


def _identity(wanted: Property) -> np.ndarray:
    return np.concatenate([wanted.lower, wanted.upper, *(v.ravel() for v in wanted.rows)])


def _digest(task: Problem) -> str:
    """Of everything that the outputs depend on."""
    found = hashlib.sha256(repr((task.activation.segments, task.n, task.p, task.q)).encode())
    for M in (task.A, task.B, task.C, task.D, task.b, task.d):
        M = sp.coo_array(np.atleast_2d(M) if isinstance(M, np.ndarray) else M)
        for part in (*M.coords, M.data):
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def _save(search: InputSearch, path: Path, nodes: int, model: str) -> None:
    tree = search.tree
    beside = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(
        beside,
        property=_identity(search.wanted),
        model=model,
        points=search.points,
        looked_at=nodes,
        axis=tree.axis,
        at=tree.at,
        children=tree.children,
        nodes=search.nodes,
        lower=search.lower,
        upper=search.upper,
        bound=search.bound,
    )
    os.replace(beside, path)


def _restored(search: InputSearch, path: Path, model: str) -> int:
    try:
        with np.load(path) as kept:
            found = dict(kept)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"the checkpoint {path} cannot be read: {error}") from error
    if missing := {"property", "model", "points", "looked_at"} - found.keys():
        raise ValueError(f"the checkpoint {path} lacks {', '.join(sorted(missing))}")
    if not np.array_equal(found["property"], _identity(search.wanted)):
        raise ValueError(f"the checkpoint {path} is of another property")
    if found["model"] != model:
        raise ValueError(f"the checkpoint {path} is of another model")
    search.points = int(found["points"])
    search.tree = SplitTree(found["axis"], found["at"], found["children"])
    search.nodes, search.lower, search.upper, search.bound = (found[k] for k in ("nodes", "lower", "upper", "bound"))
    inner = torch.full((len(search.nodes), search.net.n), -torch.inf, dtype=torch.float64)
    search.inner = inner, -inner
    return int(found["looked_at"])
