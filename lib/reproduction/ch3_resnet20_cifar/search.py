"""The thesis' bisection on rows of the trained ResNet-20: work of cold and warm starts, of a part of the data, and a
model at each iteration.

Work is counted on rows of single positions, drawn from all stages, in units of deviation one. The curves over
iterations need a whole model at each of
them: those rows are kernels, 672 for the network, in the uniform scale that the papers print.

Source: Tsai thesis (2024), section 3.3, Algorithms 1 and 2, Table 3.3, Figures 3.2 and 3.4.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT
from reproduction.ch3_bisection.algorithm_one import algorithm_1
from reproduction.ch3_bisection.compute import into_ball, work
from reproduction.ch3_resnet20_cifar.compute import Task, accuracy, stored
from reproduction.ch3_resnet20_cifar.kernel_rows import model_of
from reproduction.ch3_resnet20_cifar.kernels import ball_rows, problems_of

SHARE = 0.2  # of the samples, the CIFAR column's
TESTED = 500  # test images of a model at every iteration
STOPPED = 5  # sweeps of a LASSO that is stopped early


@dataclass(frozen=True)
class PositionRows:
    """Rows of one position: G (d, d), C (r, d), zz (r,) of unit deviations on `samples` images."""

    G: Float[np.ndarray, "d d"]
    C: Float[np.ndarray, "r d"]
    zz: Float[np.ndarray, " r"]
    block: int
    samples: int


def drawn_rows(given: Task, m: int, count: int, seed: int, part: int) -> list[PositionRows]:
    """`count` rows of one position each of the first and the last block of every stage, of the first `part` of m
    images.

    Positions and channels are those of the seed, whatever `part` is; a row whose target does not vary is left out.
    """
    u, rng, layers, out = given.draw(m, seed)[0][:part], np.random.default_rng(seed), given.layers, []
    stages = {}
    for block, b in enumerate(layers.blocks):
        if INPUT not in b.sources:
            stages.setdefault(b.channels, []).append(block)
    chosen = sorted({blocks[i] for blocks in stages.values() for i in (0, -1)})
    known = {INPUT: u}
    with torch.no_grad():
        for block, b in enumerate(layers.blocks):
            z = layers.affine(block, known)
            if block in chosen:
                w, channels = int(rng.integers(b.positions)), rng.permutation(b.channels)[:count]
                M = np.concatenate(
                    [
                        known[k].flatten(2)[:, :, index[w][index[w] >= 0]].flatten(1).double().numpy()
                        for k, index in sorted(b.sources.items())
                    ],
                    axis=1,
                )
                Z = z.flatten(2)[:, channels, w].double().numpy()
                M, Z = (_standard(each) for each in (M, Z))
                Z = Z[:, np.einsum("ij,ij->j", Z, Z) > 0]
                out.append(
                    PositionRows(M.T @ M, np.ascontiguousarray(Z.T @ M), np.einsum("ij,ij->j", Z, Z), block, part)
                )
            known[block] = layers.apply(block, z)
            known = {k: v for k, v in known.items() if k == INPUT or k >= block - 1}
    return out


def _standard(M: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    M = M - M.mean(axis=0)
    deviation = M.std(axis=0)
    return np.where(deviation > 1e-6, M / np.where(deviation > 1e-6, deviation, 1.0), 0.0)


def speedups(given: Task, kappa: float, *, m: int, count: int, seed: int) -> dict[str, float]:
    """Table 3.3: what the warm start and a fifth of the data save, in sweeps of coordinate descent and CPU seconds,
    over all drawn rows.

    Returns:
        ratios as `path_study.speedups` has them, "solves" and "warm_solves" a row; "support_gain" is that of an inner
        solver that solves the support's linear system between sweeps; "limit" 1 / share.
    """

    def compute() -> dict[str, float]:
        whole, part = (drawn_rows(given, m, count, seed, n) for n in (m, round(SHARE * m)))
        work(part[0], range(1), kappa=kappa, relative_eps=1e-3, warm=True)  # loads the compiled kernels
        total: dict[str, dict[str, float]] = {}
        cases = {
            "cold": (whole, False, False),
            "warm": (whole, True, False),
            "cold_part": (part, False, False),
            "warm_part": (part, True, False),
            "cold_support": (whole, False, True),
            "warm_support": (whole, True, True),
        }
        for name, (rows, warm, newton) in cases.items():
            start = time.process_time()
            each = [work(r, range(len(r.C)), kappa=kappa, relative_eps=1e-3, warm=warm, newton=newton) for r in rows]
            total[name] = {key: sum(one[key] for one in each) for key in ("solves", "epochs")} | {
                "seconds": time.process_time() - start
            }
        n = sum(len(r.C) for r in whole)
        epochs = {name: counts["epochs"] for name, counts in total.items()}
        return {
            "rows": n,
            "solves": total["cold"]["solves"] / n,
            "warm_solves": total["warm"]["solves"] / n,
            "cold_epochs": epochs["cold"] / n,
            "warm_gain": epochs["cold"] / epochs["warm"],
            "support_gain": epochs["cold_support"] / epochs["warm_support"],
            "warm_gain_seconds": total["cold"]["seconds"] / total["warm"]["seconds"],
            "data_epochs": epochs["cold"] / epochs["cold_part"],
            "data_seconds": total["cold"]["seconds"] / total["cold_part"]["seconds"],
            "data_on_samples": epochs["cold"] / epochs["cold_part"] / SHARE,
            "data_warm_on_samples": epochs["cold"] / epochs["warm_part"] / SHARE,
            "limit": 1 / SHARE,
        }

    return stored("speedups", given, {"kappa": kappa, "m": m, "count": count, "seed": seed}, compute, __name__)


def iterates(
    given: Task, kappa: float, *, m: int, seed: int, iterations: int, warm: bool, epochs: int = STOPPED
) -> dict[str, list[float]]:
    """A model at each outer iteration of Algorithm 1 for all kernels, its LASSO problems stopped after some sweeps.

    Returns:
        "accuracy" on the first `TESTED` test images of the network of the iterates, scaled into the ball; "gap": median
        over the rows of the duality gap over 1/2||z||^2; "epochs": sweeps of all rows up to there.
    """

    def compute() -> dict[str, list[float]]:
        problems, scales = problems_of(given, m, seed), layer_scales(given.layers, "uniform")
        found: list[Mapping[int, np.ndarray]] = [{} for _ in range(iterations)]
        gaps, spent = [[] for _ in range(iterations)], np.zeros(iterations)
        for block, problem in problems.items():
            G, C, q, radius = ball_rows(problem, scales, block)
            A = np.zeros((iterations, *C.shape))
            for i in np.flatnonzero(problem.zz > 0):
                eps = float(np.linalg.norm(C[i])) * 2.0 ** -(iterations - 0.5)  # the bracket is halved so many times
                steps = algorithm_1(
                    G,
                    C[i],
                    float(problem.zz[i]),
                    kappa=kappa * radius[i],
                    eps=eps,
                    warm=warm,
                    max_epochs=epochs,
                    newton=False,
                    keep=True,
                ).history
                for t, step in enumerate(steps):
                    A[t, i] = into_ball(step.a[None], kappa * radius[i])[0]
                    rest = C[i] - G @ A[t, i]
                    gaps[t].append((kappa * radius[i] * np.abs(rest).max() - A[t, i] @ rest) / (0.5 * problem.zz[i]))
                    spent[t] += step.n_epochs
            for t in range(iterations):
                found[t][block] = A[t] / q
        few = given.first(TESTED)
        return {
            "accuracy": [accuracy(model_of(given.layers, problems, rows), few) for rows in found],
            "gap": [float(np.median(g)) for g in gaps],
            "epochs": np.cumsum(spent).tolist(),
        }

    settings = {"kappa": kappa, "m": m, "seed": seed, "iterations": iterations, "warm": warm, "epochs": epochs}
    return stored("iterates", given, settings, compute, __name__)


def reached_at(curve: Mapping[str, Sequence[float]], within: float = 1.0) -> tuple[int, float]:
    """First iteration from which on the accuracy stays within some points of the last one, and the sweeps up to it."""
    accuracies = np.asarray(curve["accuracy"])
    off = np.flatnonzero(np.abs(accuracies - accuracies[-1]) > within)
    first = int(off[-1]) + 1 if len(off) else 0
    return first + 1, float(curve["epochs"][first])
