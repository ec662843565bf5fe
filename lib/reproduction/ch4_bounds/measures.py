"""What the notebook of bounds records: the measurements of `compute` on trained classifiers, one value a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.problem import Problem
from reproduction.ch4_bounds import compute, duality
from reproduction.ch4_bounds.compute import METHODS, PROGRAMMES
from reproduction.classifiers import fashion
from reproduction.core.budgets import training_budget
from reproduction.core.recipe import History

KINDS = ("implicit", "explicit")
Milliseconds = dict[tuple[str, str], list[float]]  # (kind, method) -> CPU time a sample, one a seed


@dataclass(frozen=True)
class Classifiers:
    """Trained classifiers of each kind, one a seed, and the test images on which they are measured."""

    seeds: Sequence[int]
    networks: Mapping[str, Sequence[nn.Module]]
    tasks: Mapping[str, Sequence[Problem]]
    U: np.ndarray
    labels: np.ndarray
    training_cpu_seconds: float
    budgets: Mapping[str, Sequence[int]]


def trained(images: Dataset, seeds: Sequence[int], profile: str) -> Classifiers:
    """The implicit and the feed-forward classifier of each seed, with the profile's number of test images."""
    U, labels = (array[: compute.PROFILES[profile]["samples"]] for array in images.test[0])
    networks: dict[str, list[nn.Module]] = {name: [] for name in KINDS}
    histories: dict[str, list[History]] = {name: [] for name in KINDS}
    for seed in seeds:
        for name, (network, history) in fashion.trained(images, seed, profile).items():
            networks[name].append(network.eval())
            histories[name].append(history)
    spent, budgets = sum(sum(one.cpu_seconds) for each in histories.values() for one in each), {}
    for name, (_, recipe) in fashion.models(0, profile).items():
        budgets |= training_budget(name, recipe, histories[name], len(images.y_train))
    tasks = {name: [compute.as_problem(network, U.shape[1]) for network in each] for name, each in networks.items()}
    return Classifiers(seeds, networks, tasks, U, labels, spent, budgets)


def of_networks(nets: Classifiers) -> dict[str, Any]:
    """`training_cpu_seconds`, and of each kind `trained_epochs_KIND`, `trained_updates_KIND`, `accuracy_KIND`, and
    `lambda_pf_KIND` and `row_norm_KIND` of A."""
    found: dict[str, Any] = {"training_cpu_seconds": (nets.training_cpu_seconds, "s"), **nets.budgets}
    for name, tasks in nets.tasks.items():
        right = [compute.predicted(network, nets.U) == nets.labels for network in nets.networks[name]]
        found[f"accuracy_{name}"] = [100 * float(each.mean()) for each in right], "%"
        found[f"lambda_pf_{name}"] = [task.certificate.lambda_pf for task in tasks]
        found[f"row_norm_{name}"] = [float(abs(task.A).sum(axis=1).max()) for task in tasks]
    return found


def two_states(nets: Classifiers, eps: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rectangles around two states of the first image.

    Returns:
        The values `area_KIND_METHOD`, over the triangle's, and the number of seeds whose interval leaves the box,
        `interval_outside_box_in_figure`; the curves `states/KIND` of the first seed.
    """
    drawn: dict[str, Any] = {}
    areas: dict[str, list[float]] = {}
    for name, tasks in nets.tasks.items():
        for seed, task in zip(nets.seeds, tasks, strict=True):
            which = compute.moving_states(task, nets.U[0], eps)
            found = compute.two_states(task, nets.U[0], eps, which, 400, seed)
            drawn.setdefault(f"states/{name}", found)
            least = max(compute.area(found["triangle"]), 1e-300)
            for method in (*METHODS, *PROGRAMMES):
                areas.setdefault(f"area_{name}_{method}", []).append(compute.area(found[method]) / least)
    outside = any(
        interval > box * (1 + 1e-9)
        for name in nets.tasks
        for interval, box in zip(areas[f"area_{name}_interval"], areas[f"area_{name}_box"], strict=True)
    )
    return areas | {"interval_outside_box_in_figure": int(outside)}, drawn


def certified(
    nets: Classifiers, epsilons: Sequence[float]
) -> tuple[dict[str, Any], dict[str, list[list[float]]], Milliseconds]:
    """Certified accuracy of every fast method at every radius, and what the attack leaves.

    Returns:
        The values `certified_KIND_METHOD_RADIUS`, the method "attack" among them, and the number of methods that
        certify more than the attack leaves, `certified_above_attack`; the curves `certified/KIND/METHOD`; and the
        milliseconds a sample.
    """
    curves: dict[tuple[str, str], list[list[float]]] = {}
    spent: Milliseconds = {}
    for name, tasks in nets.tasks.items():
        for method, how in METHODS.items():
            found = [compute.certified_curve(task, nets.U, nets.labels, epsilons, how) for task in tasks]
            curves[name, method] = [rates for rates, _ in found]
            spent[name, method] = [1000 * one for _, one in found]
        curves[name, "attack"] = [
            compute.attacked_curve(network, nets.U, nets.labels, epsilons, seed=seed)
            for network, seed in zip(nets.networks[name], nets.seeds, strict=True)
        ]
    values: dict[str, Any] = {}
    for (name, method), each in curves.items():
        for k, eps in enumerate(epsilons):
            values[certified_key(name, method, eps)] = [rates[k] for rates in each], "%"
    values["certified_above_attack"] = sum(
        int(np.any(np.array(each) > np.array(curves[name, "attack"]) + 1e-9)) for (name, _), each in curves.items()
    )
    return values, {f"certified/{name}/{method}": each for (name, method), each in curves.items()}, spent


def certified_key(name: str, method: str, eps: float) -> str:
    """The key of a certified accuracy; its radius has p for the point."""
    return f"certified_{name}_{method}_{eps:g}".replace(".", "p")


def programmes(nets: Classifiers, count: int, epsilons: Sequence[float], spent: Milliseconds) -> dict[str, Any]:
    """Linear programmes beside the fast methods on the first images.

    Args:
        nets: the classifiers.
        count: of the images.
        epsilons: widths are measured at the smallest radius, certificates at the second.
        spent: milliseconds a sample of the fast methods on all images.

    Returns:
        `programme_eps`, the radius of the certificates, `width_KIND_METHOD`, the median width over the attained one,
        `few_KIND_METHOD`, certified accuracy, and `milliseconds_KIND_METHOD`.
    """
    U, labels = nets.U[:count], nets.labels[:count]
    eps, least = epsilons[min(1, len(epsilons) - 1)], min(epsilons)
    values: dict[str, Any] = {"programme_eps": eps}
    for name, tasks in nets.tasks.items():
        attained = [compute.attained_widths(task, U, least) for task in tasks]
        for method, how in (METHODS | PROGRAMMES).items():
            found = [compute.certified_curve(task, U, labels, [eps], how) for task in tasks]
            values[f"width_{name}_{method}"] = [
                float(np.median(compute.relative_widths(task, U, least, one, how)))
                for task, one in zip(tasks, attained, strict=True)
            ]
            values[f"few_{name}_{method}"] = [rates[0] for rates, _ in found], "%"
            taken = spent[name, method] if method in METHODS else [1000 * one for _, one in found]
            values[f"milliseconds_{name}_{method}"] = taken, "ms"
    return values


def section_4_2(count: int, seed: int) -> dict[str, float]:
    """`fact_NAME` of `compute.norm_facts` and `support_NAME` of `compute.support_facts` on random models."""
    facts, supports = compute.norm_facts(count, seed), compute.support_facts(count, seed)
    return {f"fact_{key}": value for key, value in facts.items()} | {
        f"support_{key}": value for key, value in supports.items()
    }


def displayed_programme(nets: Classifiers, count: int, eps: float) -> dict[str, Any]:
    """The programme as displayed: `programme_NAME` of `compute.programme_facts` on random models, and
    `envelope_KIND_PROGRAMME` of `compute.envelope_facts` on the first two images."""
    facts = compute.programme_facts(count, nets.seeds[0])
    values: dict[str, Any] = {f"programme_{key}": value for key, value in facts.items()}
    for name, tasks in nets.tasks.items():
        each = [compute.envelope_facts(task, nets.U[:2], eps) for task in tasks]
        values |= {f"envelope_{name}_{key}": [one[key] for one in each] for key in each[0]}
    return values


def theorem_7(nets: Classifiers, count: int, eps: float) -> dict[str, Any]:
    """Both forms of Theorem 7's bound: `bidual_NAME` of `duality.duality_facts` on random models, and
    `bidual_gap_KIND` on the first two images, one a seed."""
    values: dict[str, Any] = {
        f"bidual_{key}": value for key, value in duality.duality_facts(count, nets.seeds[0]).items()
    }
    for name, tasks in nets.tasks.items():
        values[f"bidual_gap_{name}"] = [duality.trained_gap(task, nets.U[:2], nets.labels[:2], eps) for task in tasks]
    return values
