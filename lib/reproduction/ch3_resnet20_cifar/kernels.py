"""One kernel for all positions of the ResNet-20: penalties, magnitude pruning and random supports on equal terms.

Kernels count as parameters count, which is what the SIM paper's sparsity means; a whole network is 672 rows, so that
the perspective penalty and the controls are affordable for all of it. All fits use unit deviations and leave the ball
out: the model is strictly triangular without it.

Source: SIM paper, section 4.1, Table 1, Figures 2, 3.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT
from implicit_models.sim.network.shared_problem import SharedProblem
from implicit_models.sim.problem import L1Ball, Tolerance
from implicit_models.sim.solvers.budget import INACCURATE, NOT_FINITE, solve_position
from implicit_models.sim.solvers.perspective import solve_perspective_rows
from implicit_models.sim.solvers.rows import solve_rows
from reproduction.ch3_resnet20_cifar.compute import BATCH, Task, accuracies, stored
from reproduction.ch3_resnet20_cifar.kernel_rows import (
    KernelModel,
    fit_kernels,
    fitted_head,
    largest,
    model_of,
    own_kernels,
    restricted,
    teacher_problems,
    walk,
)
from reproduction.core.scores import predict

CONTROLS = ("magnitude", "magnitude_bias", "magnitude_refit", "random_refit")


def _masked(
    kernels: Mapping[int, np.ndarray], share: float, rng: np.random.Generator | None = None
) -> dict[int, np.ndarray]:
    """Masks of a block's kernels: a share of the weights of its convolution, the largest or drawn at random; the
    shortcut's entries stay."""
    out = {}
    for k, kernel in kernels.items():
        order = kernel if rng is None else rng.random(kernel.shape)
        out[k] = largest(order, share) if kernel.shape[2] > 1 else kernel != 0
    return out


def control(given: Task, name: str, share: float, *, m: int, seed: int) -> dict[str, Any]:
    """A pruned network: `CONTROLS` by name, a share of each convolution's weights kept.

    "magnitude": the largest weights as they are. "magnitude_bias": with biases that restore every channel's mean, layer
    after layer. "magnitude_refit", "random_refit": the weights that are left fitted to the network's pre-activations on
    the pruned network's own states, and a new last layer.
    """
    if name not in CONTROLS:
        raise ValueError(f"control must be one of {', '.join(CONTROLS)}, got {name!r}")

    def compute() -> dict[str, Any]:
        u, _ = given.draw(m, seed)
        layers, rng = given.layers, np.random.default_rng(seed)
        own = {b: own_kernels(layers, b) for b, block in enumerate(layers.blocks) if INPUT not in block.sources}
        masks = {b: _masked(kernels, share, rng if name == "random_refit" else None) for b, (kernels, _) in own.items()}
        if name.endswith("refit"):
            ones = lambda b, p: p.rows({k: mask.astype(float) for k, mask in masks[b].items()}) != 0
            model, _ = fit_kernels(layers, u, lambda b, p: restricted(p, ones(b, p)))
            return described(model, given, u)
        model = KernelModel(layers)

        def visit(block: int, known: dict[int, Tensor], z: Tensor) -> None:
            kernels, bias = own[block]
            kept = {k: kernel * masks[block][k] for k, kernel in kernels.items()}
            model.set(block, kept, bias)
            if name == "magnitude_bias":
                made = torch.cat(
                    [
                        model.pre_activation(block, {k: v[at : at + 100] for k, v in known.items()})
                        for at in range(0, len(z), 100)
                    ]
                )
                model.set(block, kept, bias + (z - made).double().mean(dim=(0, 2, 3)).numpy())

        with torch.no_grad():
            walk(layers, u, visit, model)
        return described(model, given)

    return stored(
        name,
        given,
        {"share": share, "m": 0 if name == "magnitude" else m, "seed": 0 if name == "magnitude" else seed},
        compute,
        __name__,
    )


@torch.no_grad()
def described(model: KernelModel, given: Task, u: Tensor | None = None) -> dict[str, Any]:
    """Accuracy with the network's last layer, with a new one fitted on u ("head"; the same without u), and sparsities,
    per cent."""
    layers, count = given.layers, model.counts()
    own = {
        "numbers": sum(layers.kernel_weights(b) for b in range(len(layers.blocks))),
        "entries": sum(layers.entries(b) for b in range(len(layers.blocks))),
    }
    n, p = layers.n_states, int(np.prod(layers.input_shape))
    if u is not None:
        model.head = fitted_head(model, u, predict(given.network, u, batch_size=BATCH))
    accuracy, head = accuracies(model, given)
    return {
        "accuracy": accuracy,
        "head": head,
        "kernels": 100 * (1 - count["numbers"] / own["numbers"]),
        "rows": 100 * (1 - count["entries"] / own["entries"]),
        "full": 100 * (1 - count["entries"] / (n * (n + p))),
        "numbers": count["numbers"],
        "entries": count["entries"],
    }


@functools.lru_cache(maxsize=2)
def problems_of(given: Task, m: int, seed: int) -> dict[int, SharedProblem]:
    """The problem of every block on the network's states of m images."""
    return teacher_problems(given.layers, given.draw(m, seed)[0])


def penalised_rows(
    problem: SharedProblem, weight: float, objective: str, knee: float = 1.0
) -> tuple[Float[np.ndarray, "r d"], int]:
    """Rows of 1/2||M a - z||^2 + n penalty, and how many have no certificate; n the problem's count, so that the weight
    is one of means.

    Mathematics: weight ||a||_1 ("l1"); alpha s + eta t of the perspective with 2 sqrt(alpha eta) = weight, sqrt(eta /
        alpha) = knee; weight ||a||^2 ("l2").
    """
    none, beta = np.zeros(len(problem.G), bool), weight * problem.count
    if objective == "perspective":
        found = solve_perspective_rows(
            problem.G, problem.C, problem.zz, kappa=np.inf, ball_mask=none, alpha=beta / (2 * knee), eta=beta * knee / 2
        )
    elif objective in ("l1", "l2"):
        terms = {"beta": beta} if objective == "l1" else {"ridge": 2 * beta}
        found = solve_rows(problem.G, problem.C, problem.zz, kappa=1.0, ball_mask=none, **terms)
    else:
        raise ValueError(f"objective must be l1, perspective or l2, got {objective!r}")
    return found.A, int(np.isin(found.status, ("inaccurate", "not_finite")).sum())


def penalised(
    given: Task, weight: float, objective: str, *, m: int, seed: int, knee: float = 1.0, student: bool = False
) -> dict[str, Any]:
    """`described` of the kernels under a penalty, and rows without certificate ("failed").

    Fitted as the SIM paper has it, on the network's states, the solution itself; or ("student") on the model's own
    states, refitted on the support that the penalty selects.
    """

    def compute() -> dict[str, Any]:
        u, failed = given.draw(m, seed)[0], []

        def solve(block: int, problem: SharedProblem) -> np.ndarray:
            A, bad = penalised_rows(problem, weight, objective, knee)
            failed.append(bad)
            return restricted(problem, A != 0) if student else A

        if student:
            model, fit = fit_kernels(given.layers, u, solve)
        else:
            problems = problems_of(given, m, seed)
            rows = {b: solve(b, problem) for b, problem in problems.items()}
            model, fit = model_of(given.layers, problems, rows), {b: problems[b].explained(A) for b, A in rows.items()}
        return described(model, given, u) | {"failed": sum(failed), "fit": list(fit.values())}

    settings = {"weight": weight, "objective": objective, "m": m, "seed": seed, "knee": knee, "student": student}
    return stored("penalised", given, settings, compute, __name__)


def ball_rows(
    problem: SharedProblem, scales: Sequence[np.ndarray] | None, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A block's kernels with the ball of a scale as a plain one: G, C, column factors q (d,) and radii for kappa = 1
    (r,).

    Mathematics: sum_j s_j |w_j| <= kappa s_i in the network's units; a_j = w_j unit_j / t_i, q_j = s_j / (s_i unit_j
    ref) gives sum_j |q_j a_j| <= kappa / (t_i ref), ref the median of s_j / (s_i unit_j). Rows of the plain ball are q
    a. The deviations themselves are the scale for None: q = 1, radius 1.
    """
    if scales is None:
        return problem.G, problem.C, np.ones(len(problem.G)), np.ones(len(problem.C))
    ratio = np.array([scales[k][0] / scales[block][0] for k in problem.source]) / problem.unit
    reference = float(np.median(ratio[np.diag(problem.G) > 0]))
    q = ratio / reference
    radius = 1 / (np.where(problem.target > 0, problem.target, np.inf) * reference)
    return np.ascontiguousarray(problem.G / q[:, None] / q), np.ascontiguousarray(problem.C / q), q, radius


def ball(
    given: Task, radii: Sequence[float], *, m: int, seed: int, scale: str = "uniform"
) -> list[dict[str, dict[str, Any]]]:
    """The literal method with kernels: {"l1", "refit"} for each radius, ascending, each `described`; scale "uniform" or
    "std".

    "l1" is the solution itself with the network's last layer; "refit" is least squares on its support, with a new one
    besides. "failed": rows without certificate.
    """
    if scale not in ("uniform", "std"):
        raise ValueError(f"scale must be uniform or std, got {scale!r}")

    def compute() -> list[dict[str, dict[str, Any]]]:
        u, problems = given.draw(m, seed)[0], problems_of(given, m, seed)
        scales = layer_scales(given.layers, scale)
        rows: dict[str, list[dict[int, np.ndarray]]] = {name: [{} for _ in radii] for name in ("l1", "refit")}
        failed = [0] * len(radii)
        for block, problem in problems.items():
            G, C, q, radius = ball_rows(problem, scales, block)
            balls, tolerance = [L1Ball(r) for r in sorted(radii)], Tolerance(1e-6, 1e-6)
            A, _, _, reason = solve_position(
                G, C, problem.zz, problem.count, balls, radius, tolerance=tolerance, cap=None
            )
            for t in range(len(radii)):
                rows["l1"][t][block] = A[:, t] / q
                rows["refit"][t][block] = restricted(problem, A[:, t] != 0)
                failed[t] += int(np.isin(reason[:, t], (INACCURATE, NOT_FINITE)).sum())
        return [
            {
                name: described(model_of(given.layers, problems, rows[name][t]), given, u if name == "refit" else None)
                | {"failed": failed[t]}
                for name in rows
            }
            for t in range(len(radii))
        ]

    return stored("ball", given, {"radii": sorted(radii), "m": m, "seed": seed, "scale": scale}, compute, __name__)


def first_and_last(given: Task, m: int, seed: int) -> float:
    """Largest correlation max|M'z| of the first fitted block over that of the last in the uniform scale, log10: one
    weight for both zeroes the last.

    Mathematics: states of layer l are divided by g^l, so that M'z of a layer falls with g^-(2 l - 1).
    """
    problems, scales = problems_of(given, m, seed), layer_scales(given.layers, "uniform")
    found = []
    for b in (min(problems), max(problems)):
        p = problems[b]
        s = np.array([scales[k][0] for k in p.source])
        raw = np.abs(p.C).max(axis=0) * p.unit * p.target.max()
        found.append(np.log10((raw / s).max()) - np.log10(scales[b][0]))
    return float(found[0] - found[1])


def reached(points: Sequence[Mapping[str, float]], base: float, lost: float, key: str = "accuracy") -> float:
    """Largest kernel sparsity among the points that lose at most so many points of accuracy; -inf where none does."""
    fine = [p["kernels"] for p in points if base - p[key] <= lost]
    return max(fine, default=-np.inf)
