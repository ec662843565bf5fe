"""What the notebook of the perspective penalty records: one row, curves of objectives, supports, shares of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.states import States, states
from implicit_models.sim.problem import Perspective
from implicit_models.sim.solvers.conic import conic_perspective, conic_row
from implicit_models.sim.solvers.perspective import solve_perspective_rows
from implicit_models.sim.solvers.rows import solve_rows
from reproduction.classifiers import newsgroups
from reproduction.core.sparse_states import largest_without_loss
from reproduction.core.sparsity import best_sparse, mean_difference, objective_curve, part_of, test_accuracy

Curve = dict[str, list[Any]]  # quantity -> one value a weight
Objectives = Mapping[str, tuple[str, float]]  # name -> objective and knee
Solution = tuple[float, np.ndarray]  # value and coefficients
SCALES = ("uniform", "theorem")


@dataclass(frozen=True)
class Case:
    """Networks, one a seed, their states on the training posts, and how accurate they are.

    Args:
        linear: test accuracy of the linear classifiers, per cent.
        seconds: CPU seconds of the trainings.
    """

    posts: Dataset
    seeds: Sequence[int]
    networks: Sequence[nn.Module]
    found: Sequence[States]
    accuracy: list[float]
    linear: list[float]
    seconds: float


def trained(posts: Dataset, seeds: Sequence[int], profile: str) -> Case:
    """The case of trained networks."""
    runs = [newsgroups.trained(posts, seed, profile) for seed in seeds]
    networks = [run["network"][0].eval() for run in runs]
    seconds = sum(sum(history.cpu_seconds) for run in runs for _, history in run.values())
    found = [states(network, posts.u_train) for network in networks]
    accuracy, linear = ([test_accuracy(run[name][0].eval(), posts) for run in runs] for name in ("network", "linear"))
    return Case(posts, seeds, networks, found, accuracy, linear, seconds)


def network_values(case: Case) -> dict[str, Any]:
    """`training_cpu_seconds`, `accuracy_network` and `accuracy_linear`."""
    return {
        "training_cpu_seconds": (case.seconds, "s"),
        "accuracy_network": (case.accuracy, "%"),
        "accuracy_linear": (case.linear, "%"),
    }


def one_row(seed: int) -> tuple[dict[str, Solution], dict[str, Any]]:
    """A random row by a conic solver and by the library.

    Returns:
        Solutions by what was solved; and the values `printed_is_ridge`, `printed_ridge_distance`, `printed_zeros`,
        `knee_one_is_l1`, and `conic_difference_1` and `conic_difference_small` of the two knees.
    """
    generator = np.random.default_rng(seed)
    M = generator.standard_normal((40, 12))
    z = M[:, :4] @ np.array([0.6, -0.5, 0.3, 0.2]) + 0.3 * generator.standard_normal(40)
    G, C, zz, kappa, alpha = M.T @ M, (z @ M)[None], np.array([z @ z]), 0.99, 2.0
    printed, printed_value, _ = conic_perspective(M, z, alpha=alpha, eta=0.0, kappa=np.inf)
    ridge, ridge_value = conic_row(M, z, kappa=np.inf, ridge=2 * alpha)
    l1, l1_value = conic_row(M, z, kappa=kappa, beta=2 * alpha)
    solutions: dict[str, Solution] = {
        "(5) as printed, no ball": (printed_value, printed),
        "ridge, no ball": (ridge_value, ridge),
        "l1": (l1_value, l1),
    }
    values: dict[str, Any] = {}
    knees = {"1": ("1", {"alpha": alpha, "eta": alpha}), "0.1": ("small", {"alpha": alpha / 0.1, "eta": alpha * 0.1})}
    for knee, (name, terms) in knees.items():
        a, value, _ = conic_perspective(M, z, kappa=kappa, **terms)
        solutions[f"with the cost of t, knee {knee}"] = value, a
        ours = solve_perspective_rows(G, C, zz, kappa=kappa, **terms).A[0]
        objective = 0.5 * np.sum((M @ ours - z) ** 2) + Perspective(**terms).value(ours)
        values[f"conic_difference_{name}"] = abs(objective - value) / value
        solutions[f"this library, knee {knee}"] = objective, ours
    solutions["this library, l1"] = l1_value, solve_rows(G, C, zz, kappa=kappa, beta=2 * alpha).A[0]
    values["printed_is_ridge"] = abs(printed_value - ridge_value) / ridge_value
    values["printed_ridge_distance"] = float(np.abs(printed - ridge).max())
    values["printed_zeros"] = int((np.abs(printed) < 1e-5).sum())
    values["knee_one_is_l1"] = abs(solutions["with the cost of t, knee 1"][0] - l1_value) / l1_value
    return solutions, values


def objectives_of(knees: Sequence[float]) -> dict[str, tuple[str, float]]:
    """The l1 norm, the perspective penalty with knee 1 and with others, and ridge."""
    named = {f"perspective_{knee:g}": ("perspective", knee) for knee in knees}
    return {"l1": ("l1", 1.0), "perspective": ("perspective", 1.0)} | named | {"l2": ("l2", 1.0)}


def objective_curves(
    case: Case, objectives: Objectives, weights: Sequence[float]
) -> dict[tuple[str, str], list[Curve]]:
    """Sweeps over the weight, ridge at its two ends: (scale, objective) -> one curve a seed."""
    curves = {}
    for scale in SCALES:
        for name, (objective, knee) in objectives.items():
            swept = list(weights) if name != "l2" else [min(weights), max(weights)]
            curves[scale, name] = [
                objective_curve(found, n, case.posts, swept, objective, knee=knee, scale=scale, kappa=0.99)
                for found, n in zip(case.found, case.networks, strict=True)
            ]
    return curves


def recorded_curves(curves: Mapping[tuple[str, str], Sequence[Curve]]) -> dict[str, Any]:
    """`tradeoff/SCALE/OBJECTIVE`: sparsity and drop, one curve a seed."""
    return {
        f"tradeoff/{scale}/{name}": [{key: curve[key] for key in ("sparsity", "drop")} for curve in each]
        for (scale, name), each in curves.items()
    }


def curve_values(curves: Mapping[tuple[str, str], Sequence[Curve]]) -> dict[str, Any]:
    """What a sweep reaches, one value a seed.

    Returns:
        `no_drop_SCALE_OBJECTIVE` and `one_point_...`, the largest sparsity with no drop and with one of a point;
        `best_drop_...`, `max_sparsity_...`, `gain_sparsity_...`, and the number `failed_...` of rows.
    """
    values: dict[str, Any] = {}
    for (scale, name), each in curves.items():
        end = f"{scale}_{name}"
        for key, allowed in (("no_drop", 0.0), ("one_point", 1.0)):
            reached = [largest_without_loss(curve["sparsity"], curve["drop"], allowed) for curve in each]
            values[f"{key}_{end}"] = reached, "%"
        values[f"best_drop_{end}"] = [min(curve["drop"]) for curve in each], "points"
        values[f"max_sparsity_{end}"] = [max(curve["sparsity"]) for curve in each], "%"
        values[f"gain_sparsity_{end}"] = [best_sparse(curve) for curve in each], "%"
        values[f"failed_{end}"] = sum(sum(curve["failed"]) for curve in each)
    return values


def support_values(curves: Mapping[tuple[str, str], Sequence[Curve]]) -> dict[str, Any]:
    """Perspective penalties beside the l1 norm: `difference_SCALE_OBJECTIVE` and `same_support_SCALE_OBJECTIVE`."""
    values: dict[str, Any] = {}
    for (scale, name), each in curves.items():
        if name.startswith("perspective"):
            pairs = list(zip(each, curves[scale, "l1"], strict=True))
            values[f"difference_{scale}_{name}"] = [mean_difference(c, r) for c, r in pairs], "points"
            values[f"same_support_{scale}_{name}"] = all(c[part] == r[part] for c, r in pairs for part in ("A", "B"))
    return values


def weight_counts(
    case: Case, curves: Mapping[tuple[str, str], Sequence[Curve]], weights: Sequence[float]
) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Weights on states and inputs at the two largest weights of the penalty, of the first seed.

    Returns:
        (scale, objective, weight) -> "drop", "sparsity" and the non-zeros of "A", "B", "C", "D"; also in the scale of
        standard deviations with feedback from earlier layers only.
    """
    middle = sorted(weights)[-2:] if len(weights) > 1 else list(weights)
    swept = {(scale, name): (curves[scale, name][0], weights) for scale in SCALES for name in ("l1", "perspective")}
    for name in ("l1", "perspective"):
        curve = objective_curve(
            case.found[0], case.networks[0], case.posts, middle, name, scale="std", feedback="strict_upper"
        )
        swept["std", name] = curve, middle
    return {
        (scale, name, weight): {key: curve[key][k] for key in ("drop", "sparsity", *"ABCD")}
        for (scale, name), (curve, used) in swept.items()
        for k, weight in enumerate(used)
        if weight in middle
    }


def recorded_counts(counts: Mapping[tuple[str, str, float], Mapping[str, Any]]) -> dict[str, Any]:
    """`state_weights_SCALE_OBJECTIVE_wWEIGHT`: the non-zeros of A and C."""
    return {
        f"state_weights_{scale}_{name}_w{weight:g}".replace(".", "p"): count["A"] + count["C"]
        for (scale, name, weight), count in counts.items()
    }


def part_curves(
    case: Case, objectives: Objectives, weights: Sequence[float], shares: Sequence[float]
) -> dict[tuple[str, str, float], list[list[float]]]:
    """Fits to a part of the posts: ("sparsity" or "drop", objective, weight) -> a list over the shares a seed.

    Args:
        objectives: what is fitted.
        weights: the two smallest are used.
    """
    fixed = sorted(weights)[:2]
    parts: dict[tuple[str, str, float], list[list[float]]] = {}
    for name, (objective, knee) in objectives.items():
        for seed, network, whole in zip(case.seeds, case.networks, case.found, strict=True):
            each = [
                objective_curve(
                    whole.take(part_of(case.posts, share, seed)),
                    network,
                    case.posts,
                    fixed,
                    objective,
                    knee=knee,
                    scale="theorem",
                )
                for share in sorted(shares)
            ]
            for k, weight in enumerate(fixed):
                for key in ("sparsity", "drop"):
                    parts.setdefault((key, name, weight), []).append([curve[key][k] for curve in each])
    return parts


def part_values(parts: Mapping[tuple[str, str, float], Sequence[Sequence[float]]]) -> dict[str, Any]:
    """Sparsity over the shares of the data.

    Returns:
        `sparsity_all_data_OBJECTIVE_wWEIGHT`, `sparsity_falls_with_samples_...` and `sparsity_above_l1_...` (its mean
        less that of l1); and `least_sparsity` of all.
    """
    sparsities = {(name, weight): np.array(found) for (key, name, weight), found in parts.items() if key == "sparsity"}
    values: dict[str, Any] = {}
    for (name, weight), found in sparsities.items():
        tag = f"{name}_w{weight:g}".replace(".", "p")
        values[f"sparsity_all_data_{tag}"] = found[:, -1], "%"
        values[f"sparsity_falls_with_samples_{tag}"] = bool((np.diff(found, axis=1) < 0).all())
        above = found.mean(axis=1) - sparsities["l1", weight].mean(axis=1)
        values[f"sparsity_above_l1_{tag}"] = above, "points"
    values["least_sparsity"] = min(float(np.min(found)) for found in sparsities.values()), "%"
    return values


def small_share(shares: Sequence[float]) -> float:
    """The largest share of at most 15 %, else the smallest."""
    low = [share for share in sorted(shares) if share <= 0.15]
    return low[-1] if low else min(shares)


def small_values(case: Case, weights: Sequence[float], share: float) -> dict[str, Any]:
    """`small_share_no_drop` and `small_share_one_point`: the largest sparsity with a share of the data."""
    curves = [
        objective_curve(
            whole.take(part_of(case.posts, share, seed)), network, case.posts, weights, "perspective", scale="uniform"
        )
        for seed, network, whole in zip(case.seeds, case.networks, case.found, strict=True)
    ]
    return {
        f"small_share_{tag}": ([largest_without_loss(c["sparsity"], c["drop"], allowed) for c in curves], "%")
        for tag, allowed in (("no_drop", 0.0), ("one_point", 1.0))
    }
