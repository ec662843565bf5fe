"""Attacks on few inputs: ranked inputs, greedy saliency, and linear programmes rounded to k inputs.

    ranked    a score says which k inputs change: the row of the label in the sensitivity matrix S, |gradient|, or
              random numbers, the control. How they change is the protocol: random values of a range (`Replace`), or a
              step along the sign of the loss's gradient (`SparseBox`)
    jsma      one input (or pair) after the other, chosen by the gradient at the present point
    lp        u at the optimum of min (C_y - C_j) x + (D_y - D_j) u over the triangle relaxation, for every other class
    j; for k inputs over their hull,
              then the k largest moves alone

Source:
    Tsai thesis (2024), section 4.4; Papernot et al. (2016) for JSMA. The thesis' objective of the programme, sum (x_i -
    x0_i)^2, is "discrepancy".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from implicit_models.robustness.attacks.gradient import classifier, dtype_of, evaluating, input_gradient, logits, margin
from implicit_models.robustness.attacks.options import JSMA, LPAttack
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.options import Dual
from implicit_models.robustness.input_sets import Box, Replace, SparseBox, Uncertainty
from implicit_models.robustness.problem import Problem, problem
from implicit_models.status import Status

SCORES = ("sensitivity", "gradient", "label_gradient", "random")
PAIR_CANDIDATES = 48
_GREEDY, _PROGRAMME = JSMA(), LPAttack()


def scores(
    model: Any,
    U: Float[np.ndarray, "N p"],
    y: Int[np.ndarray, " N"],
    by: str,
    *,
    sensitivity: Any = None,
    seed: int = 0,
) -> Float[np.ndarray, "N p"]:
    """How much each input counts: "sensitivity" S[y], "gradient" |grad CE|, "label_gradient" |grad f_y|, or "random".

    Args:
        sensitivity: `SensitivityMatrix` or (q, p) array, computed if None.

    Source:
        Tsai thesis (2024), section 4.4 (sensitivity and |grad f_y|).
    """
    if by not in SCORES:
        raise ValueError(f"unknown score {by!r}; choose one of {', '.join(SCORES)}")
    if by == "random":
        return np.random.default_rng(seed).random(U.shape)
    if by == "sensitivity":
        from implicit_models.robustness.sensitivity import SensitivityMatrix, sensitivity_matrix

        found = sensitivity_matrix(model) if sensitivity is None else sensitivity
        S = np.asarray(found.S if isinstance(found, SensitivityMatrix) else found)
        if S.ndim != 2 or S.shape[1] != U.shape[1]:
            raise ValueError(f"sensitivity must have shape (q, {U.shape[1]}), got {S.shape}")
        return S[y]
    return np.abs(input_gradient(model, U, y, "cross_entropy" if by == "gradient" else "label"))


def perturb(
    U: Float[np.ndarray, "N p"],
    score: Float[np.ndarray, "N p"],
    inputs: SparseBox | Replace,
    *,
    direction: Float[np.ndarray, "N p"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "N p"]:
    """The k inputs of largest score replaced by random values, or moved by the radius along `direction`.

    Args:
        inputs: what happens to how many.
        direction: (N, p) whose signs a `SparseBox` is followed along.
        seed: of the values of a `Replace`.

    Raises:
        ValueError: for a direction that is missing, or would be ignored.

    Source:
        Tsai thesis (2024), section 4.4.
    """
    drawn = isinstance(inputs, Replace)
    if drawn == (direction is not None):
        raise ValueError("a SparseBox needs a direction, and a Replace draws its values without one")
    top = np.argsort(-score, axis=1, kind="stable")[:, : inputs.k]
    out, rows = np.array(U), np.arange(len(U))[:, None]
    if isinstance(inputs, Replace):
        out[rows, top] = np.random.default_rng([seed, 1]).uniform(inputs.low, inputs.high, top.shape)
        return out
    signs, radius = np.sign(direction[rows, top]), np.broadcast_to(inputs.radius, U.shape)  # type: ignore[index]
    moved = out[rows, top] + np.where(signs == 0, 0.0, radius[rows, top]) * signs  # the radius may be infinite
    out[rows, top] = moved if inputs.clip is None else np.clip(moved, *inputs.clip)
    return out


def linear_direction(model: Any, U: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N p"]:
    """The sign-aware sensitivity: (C_j - C_y)(I - A)^-1 B + D_j - D_y for the runner-up j, the response with every unit
    active.

    It depends on the sample by its label and runner-up only; S is the same with absolute values.

    Source:
        Tsai thesis (2024), section 4.3, with signs.
    """
    task = problem(model)
    A, C, D = (M.toarray() if hasattr(M, "toarray") else M for M in (task.A, task.C, task.D))
    response = np.linalg.solve(np.eye(task.n) - A.T, C.T).T @ task.B + D
    out = logits(classifier(model), U)
    out[np.arange(len(U)), y] = -np.inf
    return response[out.argmax(axis=1)] - response[y]


def jsma(
    model: Any, U: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"], inputs: SparseBox, how: JSMA = _GREEDY
) -> Float[np.ndarray, "N p"]:
    """Greedy saliency attack: up to k inputs, each moved once by the radius (to the end of the clip range if that is
    nearer).

    Mathematics: with a = grad f_t for the runner-up t and o the other outputs' gradient ("papernot": -a o where a > 0 >
    o for an increase, the signs turned for a decrease; pairs: sums over two inputs), or the gain of the margin f_t -
    f_y to first order ("margin").

    Source:
        Papernot et al. (2016), Algorithm 3; Tsai thesis (2024), section 4.4.
    """
    k, clip, saliency, pairs = inputs.k, inputs.clip, how.saliency, how.pairs
    radius = np.broadcast_to(inputs.radius, U.shape)
    network = classifier(model)
    out = np.array(U)
    used = np.zeros(U.shape, dtype=bool)
    alive = np.arange(len(U))
    with evaluating(network), torch.enable_grad():
        for _ in range(k // 2 if pairs else k):
            if not alive.size:
                break
            u = torch.from_numpy(out[alive]).to(dtype_of(network)).requires_grad_()
            labels = torch.from_numpy(np.ascontiguousarray(y[alive], dtype=np.int64))
            f = network(u)
            m = margin(f, labels)
            open_ = (m <= 0).numpy()
            if saliency == "margin":
                (g,) = torch.autograd.grad(m.sum(), u)
                a = o = g.double().numpy()
            else:
                target = f.detach().scatter(1, labels[:, None], -torch.inf).argmax(1)
                own = f.gather(1, target[:, None]).sum()
                (one,) = torch.autograd.grad(own, u, retain_graph=True)
                (all_,) = torch.autograd.grad(f.sum(), u)
                a, o = one.double().numpy(), (all_ - one).double().numpy()
            now = out[alive]
            reach = radius[alive]
            up, down = (reach if clip is None else np.minimum(reach, room) for room in _rooms(now, clip))
            rows = np.flatnonzero(open_)
            chosen, signs = _choose(a, o, up, down, used[alive], saliency, pairs)
            for column in range(chosen.shape[1]):
                j, s = chosen[rows, column], signs[rows, column]
                moved = s != 0
                at, j, s = alive[rows[moved]], j[moved], s[moved]
                out[at, j] = np.where(s > 0, out[at, j] + up[rows[moved], j], out[at, j] - down[rows[moved], j])
                used[at, j] = True
            alive = alive[rows]
    return out


def _rooms(now: np.ndarray, clip: tuple[float, float] | None) -> tuple[np.ndarray, np.ndarray]:
    return (now, now) if clip is None else (np.maximum(clip[1] - now, 0), np.maximum(now - clip[0], 0))


def _choose(a, o, up, down, used, saliency, pairs) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 1 or 2) and the signs of their moves, 0 where no move helps."""
    if saliency == "margin":
        gain = np.where(used, 0.0, np.maximum(a * up, -a * down))
        top = np.argsort(-gain, axis=1, kind="stable")[:, : 2 if pairs else 1]
        best = np.take_along_axis(gain, top, 1)
        return top, np.where(best > 0, np.sign(np.take_along_axis(a, top, 1)), 0)
    if not pairs:
        rise = np.where((a > 0) & (o < 0) & ~used, -a * o * up, 0.0)
        fall = np.where((a < 0) & (o > 0) & ~used, -a * o * down, 0.0)
        top = np.maximum(rise, fall).argmax(axis=1)[:, None]
        r, f = (np.take_along_axis(v, top, 1) for v in (rise, fall))
        return top, np.where(np.maximum(r, f) > 0, np.where(r >= f, 1, -1), 0)
    N = len(a)
    size = np.where(used, -1.0, np.abs(a) + np.abs(o))
    c = np.argsort(-size, axis=1, kind="stable")[:, :PAIR_CANDIDATES]
    a, o, free = (np.take_along_axis(v, c, 1) for v in (a, o, ~used))
    best, pick, sign = np.zeros(N), np.zeros((N, 2), dtype=np.int64), np.zeros((N, 2), dtype=np.int64)
    i, j = np.triu_indices(c.shape[1], 1)
    for s, room in ((1, up), (-1, down)):
        can = free & (np.take_along_axis(room, c, 1) > 0)
        A, O = s * (a[:, i] + a[:, j]), s * (o[:, i] + o[:, j])
        value = np.where((A > 0) & (O < 0) & can[:, i] & can[:, j], -A * O, 0.0)
        at = value.argmax(axis=1)
        top = value[np.arange(N), at]
        better = top > best
        best = np.where(better, top, best)
        pick[better] = np.stack([c[np.arange(N), i[at]], c[np.arange(N), j[at]]], axis=1)[better]
        sign[better] = s
    return pick, sign


def lp_attack(
    model: Any,
    U: Float[np.ndarray, "N p"],
    y: Int[np.ndarray, " N"],
    inputs: Uncertainty,
    how: LPAttack = _PROGRAMME,
    *,
    clip: tuple[float, float] | None = None,
) -> Float[np.ndarray, "N p"]:
    """The input at the optimum of a linear programme over the relaxed model.

    Mathematics: for each class j from the runner-up on, min (y_label - y_j) over the relaxation, until one of the
        inputs found is misclassified.
    "discrepancy" maximises sum_i (x_i - x0_i)^2, each term by its concave envelope, the chord: the thesis' objective,
    which for the programmes without an upper line is optimal at every u and so carries no information. For sets of at
    most k moving inputs, the k largest moves are kept, each in full.

    Args:
        inputs: boxes, or sets of at most k moving inputs.
        how: objective, relaxation and number of classes.
        clip: range of the inputs, for sets of at most k (boxes are cut to it as they are made).

    Raises:
        ImportError: without highspy.

    Source:
        Tsai thesis (2024), section 4.4, Theorem 7.
    """
    from implicit_models.robustness.bounding.lp import Programme, batch_units

    relaxation = how.relaxation
    task = problem(model)
    start = _start(task, inputs, relaxation)
    rooms = tuple(np.broadcast_to(inputs.radius, U.shape) for _ in range(2))  # type: Any
    if clip is not None and inputs.card is not None:
        rooms = np.minimum(rooms[0], np.maximum(clip[1] - U, 0)), np.minimum(rooms[1], np.maximum(U - clip[0], 0))
    programme = Programme(task, inputs, None if clip is None or inputs.card is None else rooms)
    network, out = classifier(task), np.array(U)
    C, D = (M.toarray() if hasattr(M, "toarray") else M for M in (task.C, task.D))
    clean = logits(network, U)
    x0 = task.equilibrium(U)[0]
    for i in np.flatnonzero(start.status == Status.CERTIFIED):
        units = batch_units(task, start, relaxation, i)
        programme.set_sample(i, units)
        if how.objective == "discrepancy":
            low, high = (np.where(np.isfinite(v), v, x0[i]) for v in (units.xl, units.xh))
            w = -((high - x0[i]) ** 2 - (low - x0[i]) ** 2) / np.where(high > low, high - low, 1.0)
            out[i] = _rounded(programme.minimise(w, np.zeros(task.p)).u, inputs, rooms, i)
            continue
        lowest = np.inf
        order = [j for j in np.argsort(-clean[i], kind="stable") if j != y[i]]
        for j in order[: how.targets]:
            u = _rounded(programme.minimise(C[y[i]] - C[j], D[y[i]] - D[j]).u, inputs, rooms, i)
            f = logits(network, u[None])[0]
            value = f[y[i]] - np.delete(f, y[i]).max()
            if value < lowest:
                lowest, out[i] = value, u
            if value < 0:
                break
    return out


def _start(task: Problem, inputs: Uncertainty, relaxation: str):
    """Bounds that a relaxation starts from."""
    sets = Box(inputs.radius) if inputs.card is None else SparseBox(inputs.radius, inputs.card)
    if relaxation == "triangle":
        return bounds(task, inputs.centre, sets, method=Dual(passes=1, ascent_steps=0), sides="lower")
    return bounds(task, inputs.centre, sets, method="box" if task.certificate.kind == "pf" else "metzler")


def _rounded(
    u: np.ndarray, inputs: Uncertainty, rooms: tuple[np.ndarray, np.ndarray], i: int | np.integer
) -> np.ndarray:
    """u cut to the set of sample i; of a set with a card only the largest moves, relative to their room, are kept."""
    u0, up, down = inputs.centre[i], rooms[0][i], rooms[1][i]
    if inputs.card is None:
        return np.clip(u, inputs.lower[i], inputs.upper[i])
    room = np.where(u > u0, up, down)
    moves = np.divide(np.abs(u - u0), room, out=np.zeros_like(u), where=room > 0)
    keep = np.argsort(-moves, kind="stable")[: inputs.card]
    keep = keep[moves[keep] > 0]
    out = np.array(u0)
    out[keep] += room[keep] * np.sign(
        u[keep] - u0[keep]
    )  # in full: what the budget gave to others is spent on those kept
    return out
