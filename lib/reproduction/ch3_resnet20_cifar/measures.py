"""What the ResNet-20 notebook records of the network, of radii, and of sparsity against accuracy.

The rest is in `measures_of_work`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_models.sim.problem import Cardinality, L1Penalty
from implicit_models.sim.row_models import ByPosition, Refit, SharedKernels
from reproduction.ch3_resnet20_cifar import compute, kernels
from reproduction.ch3_resnet20_cifar.compute import BUDGETS, Task
from reproduction.ch3_resnet20_cifar.tables import curve_of, key_of, monotone, published_row

Point = Mapping[str, Any]  # `compute.summary_of`, or `kernels.described`
Setting = tuple[str, float]  # kind and value of a budget
Fits = Mapping[Setting, Sequence[Point]]  # one point a seed
COUNTED = ("accuracy", "head", "rows", "kernels", "full")  # of a point that is recorded, per cent
FORMS = ("l1", "refit")


@dataclass(frozen=True)
class Case:
    """The task, as it is tested, and the sizes of a run.

    Args:
        m: images of the fit of rows by position; kernel_m: of kernels.
        chosen: the profile's other sizes, `compute.PROFILES`.
        base: test accuracy of the network, per cent.
    """

    given: Task
    seeds: Sequence[int]
    m: int
    kernel_m: int
    chosen: Mapping[str, Any]
    base: float


def prepared(whole: Task, seeds: Sequence[int], m: int, kernel_m: int, chosen: Mapping[str, Any]) -> Case:
    """The case with as many test images as the profile has."""
    given = whole.first(chosen["tested"])
    return Case(given, seeds, m, kernel_m, chosen, compute.accuracy(given.network, given))


def network_values(whole: Task, case: Case) -> dict[str, Any]:
    """`network_accuracy` (all `test_images`), `network_accuracy_tested` (those `tested`), `classes` and `count_...`."""
    return {
        "network_accuracy": (compute.accuracy(whole.network, whole), "%"),
        "test_images": len(whole.test),
        "classes": whole.classes,
        "network_accuracy_tested": (case.base, "%"),
        "tested": len(case.given.test),
    } | {f"count_{key}": value for key, value in compute.counts(case.given).items()}


def scales(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the scales do to the states.

    Returns:
        `compute.units`, and the values `theorem_largest`, `uniform_last`, `network_radius_std`, `network_norm_largest`
        and `penalty_decades_uniform`.
    """
    unit = compute.units(case.given, min(case.m, 200), case.seeds[0])
    return unit, {
        "theorem_largest": max(unit["theorem_max"]),
        "uniform_last": unit["uniform"][-1],
        "network_radius_std": float(np.median(unit["std_norm"])),
        "network_norm_largest": max(unit["norm"]),
        "penalty_decades_uniform": kernels.first_and_last(case.given, case.kernel_m, case.seeds[0]),
    }


def by_radius(prefix: str, radii: Sequence[float], sweeps: Sequence[Sequence[Mapping[str, Point]]]) -> dict[str, Any]:
    """`PREFIX_FORM_QUANTITY_kKAPPA` in per cent, one value a sweep."""
    return {
        f"{prefix}_{form}_{key}_k{key_of(kappa)}": ([sweep[t][form][key] for sweep in sweeps], "%")
        for t, kappa in enumerate(radii)
        for form in FORMS
        for key in COUNTED
    }


def drops(prefix: str, radii: Sequence[float], sweeps: Sequence[Any], base: float) -> dict[str, Any]:
    """`PREFIX_l1_drop_kKAPPA` in points, one value a sweep."""
    return {
        f"{prefix}_l1_drop_k{key_of(kappa)}": ([base - sweep[t]["l1"]["accuracy"] for sweep in sweeps], "points")
        for t, kappa in enumerate(radii)
    }


def literal_values(case: Case, kappas: Sequence[float]) -> dict[str, Any]:
    """The literal method on rows by position.

    Returns:
        `std_...` in units of deviations, one value a seed, with the drop and `std_held_out_kKAPPA`; `largest_gap` and
        the number `uncertified` of rows; `theorem_...` at the radii of `theorem_radii`, of the first seed.
    """
    sweeps = [compute.literal(case.given, kappas, m=case.m, seed=seed) for seed in case.seeds]
    values = by_radius("std", kappas, sweeps) | drops("std", kappas, sweeps, case.base)
    for t, kappa in enumerate(kappas):
        held = [float(np.median(sweep[t]["l1"]["held_out"])) for sweep in sweeps]
        values[f"std_held_out_k{key_of(kappa)}"] = held
    points = [point for sweep in sweeps for entry in sweep for point in entry.values()]
    values["largest_gap"] = max(point["gap"] for point in points)
    bad = ("inaccurate", "not_finite", "saturated")
    values["uncertified"] = sum(point["status"].get(name, 0) for point in points for name in bad)
    theorem = theorem_radii(case, kappas)
    if theorem:
        found = compute.literal(case.given, theorem, m=case.m, seed=case.seeds[0], scale="theorem")
        values |= {key: (value[0], unit) for key, (value, unit) in by_radius("theorem", theorem, [found]).items()}
    return values


def theorem_radii(case: Case, kappas: Sequence[float]) -> list[float]:
    """The radii that are fitted in the scale of Theorem 2.4 too."""
    return [kappa for kappa in kappas if kappa in case.chosen["theorem"]]


def ball_values(case: Case) -> dict[str, Any]:
    """The literal method with kernels of all positions, first seed: `kernel_...` in deviations, and `uniform_...`."""
    values: dict[str, Any] = {}
    for scale, prefix, name in (("std", "kernel", "balls"), ("uniform", "uniform", "uniform")):
        radii = sorted(case.chosen[name])
        found = [kernels.ball(case.given, radii, m=case.kernel_m, seed=seed, scale=scale) for seed in case.seeds[:1]]
        values |= by_radius(prefix, radii, found) | drops(prefix, radii, found, case.base)
    return values


def own_fits(case: Case) -> dict[Setting, list[Point]]:
    """Fits on the sparse model's own states from m images, first seed: budget -> its point."""
    return {
        (kind, value): [compute.student(case.given, BUDGETS[kind](value), m=case.m, seed=case.seeds[0])]
        for kind, value in case.chosen["students"]
    }


def fit_values(name: str, fits: Fits) -> dict[str, Any]:
    """`NAME_KIND_VALUE_QUANTITY` in per cent, one value a seed."""
    return {
        f"{name}_{kind}_{key_of(value)}_{key}": ([one[key] for one in found], "%")
        for (kind, value), found in fits.items()
        for key in COUNTED
    }


def orders(values: Mapping[str, Any], kappas: Sequence[float], uniform: Sequence[float], base: float) -> dict[str, Any]:
    """How recorded values move with the radius.

    Returns:
        `sparsity_falls`, `literal_rises`, `refit_rises`, `uniform_rises`; `literal_best` and `literal_best_drop`.
    """

    def at(pattern: str, radii: Sequence[float]) -> list[Any]:
        return [values[pattern.format(key_of(kappa))] for kappa in radii]

    literal = at("std_l1_accuracy_k{}", kappas)
    return {
        "sparsity_falls": monotone(at("std_l1_rows_k{}", kappas), -1),
        "literal_rises": monotone(literal, 1),
        "refit_rises": monotone(at("std_refit_head_k{}", kappas), 1),
        "uniform_rises": monotone(at("uniform_l1_accuracy_k{}", uniform), 1),
        "literal_best": (np.max(literal, axis=0), "%"),
        "literal_best_drop": (base - np.max(literal, axis=0), "points"),
    }


def matching(case: Case, kappa: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """`compute.matching` at a radius, and its values `match_NAME_KEY_median` and `match_NAME_KEY_last`."""
    shared = case.chosen["kernel_matching"]
    found = compute.matching(case.given, m=case.m, seed=case.seeds[0], kappa=kappa, share=0.2, shared=shared)
    values: dict[str, Any] = {}
    for name, each in found.items():
        for key in ("forced", "own"):
            values[f"match_{name}_{key}_median"] = float(np.median(each[key]))
            values[f"match_{name}_{key}_last"] = each[key][-1]
    return found, values


@dataclass(frozen=True)
class Frontier:
    """Fits of sparsity against accuracy.

    Args:
        own, large, one_sided, effect: rows by position on the model's own states, from m and from more images, with
            one-sided refits, with penalties by effect.
        paths: kernels on the l1 path, a list over the shares a seed.
        controls: name -> pruned networks, a list over the shares a seed.
    """

    own: Fits
    large: Fits
    one_sided: Fits
    effect: Fits
    paths: Sequence[Sequence[Point]]
    controls: Mapping[str, Sequence[Sequence[Point]]]


def frontier(case: Case, own: Fits, shares: Sequence[float]) -> Frontier:
    """The repaired fits and the controls, on the shares of weights kept."""
    given, chosen, first = case.given, case.chosen, case.seeds[0]
    size, one_sided = chosen["large_m"], ByPosition(refit=Refit(one_sided=True))
    large = {
        (kind, value): [compute.student(given, BUDGETS[kind](value), m=size, seed=first)]
        for kind, value in chosen["large"]
    }
    closed = {
        (kind, value): [compute.student(given, BUDGETS[kind](value), one_sided, m=size, seed=first)]
        for kind, value in chosen["one_sided"]
    }
    effect = {
        ("lam", value): [
            compute.student(given, L1Penalty(value), ByPosition(weights="effect"), m=size, seed=seed)
            for seed in case.seeds
        ]
        for value in chosen["effect"]
    }
    paths = [
        [compute.student(given, Cardinality(share), SharedKernels(), m=case.kernel_m, seed=seed) for share in shares]
        for seed in case.seeds[:1]
    ]
    controls = {
        name: [
            [kernels.control(given, name, share, m=case.kernel_m, seed=seed) for share in shares]
            for seed in (case.seeds if name == "magnitude_refit" else case.seeds[:1])
        ]
        for name in kernels.CONTROLS
    }
    return Frontier(own, large, closed, effect, paths, controls)


def frontier_values(found: Frontier, shares: Sequence[float]) -> dict[str, Any]:
    """`large_...`, `one_sided_...` and `effect_...` of the fits, `path_kernels_accuracy_SHARE`, and of the controls
    `NAME_accuracy_SHARE` and `NAME_kernels_SHARE`."""
    values = fit_values("large", found.large) | fit_values("one_sided", found.one_sided)
    values |= fit_values("effect", found.effect)
    for t, share in enumerate(shares):
        values[f"path_kernels_accuracy_{key_of(share)}"] = [path[t]["accuracy"] for path in found.paths], "%"
        for name, each in found.controls.items():
            for key in ("accuracy", "kernels"):
                values[f"{name}_{key}_{key_of(share)}"] = [seed[t][key] for seed in each], "%"
    return values


def labelled(case: Case, found: Frontier, shares: Sequence[float]) -> dict[str, Sequence[Point]]:
    """Every setting of the frontier in words -> its points, one a seed."""
    size = case.chosen["large_m"]
    groups = [("", case.m, found.own), ("", size, found.large)]
    groups += [("one-sided, ", size, found.one_sided), ("by effect, ", size, found.effect)]
    points: dict[str, Sequence[Point]] = {
        f"rows, own states, {words}{kind} {value:g}, {n} images": seen
        for words, n, fits in groups
        for (kind, value), seen in fits.items()
    }
    for t, share in enumerate(shares):
        points[f"kernels on the path, {share:g} kept, {case.kernel_m} images"] = [path[t] for path in found.paths]
        for name, each in found.controls.items():
            points[f"{name.replace('_', ', ')}, {share:g} kept"] = [seed[t] for seed in each]
    return points


def best_values(points: Mapping[str, Sequence[Point]], base: float) -> dict[str, Any]:
    """What the settings of `labelled` reach.

    Returns:
        `best_at_ninety`, the accuracy with at least 87 % of the rows' entries gone; `best_effect_at_ninety` and
        `best_alike_at_ninety`, with penalties by effect and without; `loss_at_ninety`; `half_a_point_rows`, the largest
        sparsity that loses at most half a point.
    """
    reached = {
        name: (
            np.median([one["rows"] for one in seen]),
            max(np.median([one[key] for one in seen]) for key in ("accuracy", "head")),
        )
        for name, seen in points.items()
    }
    sparse = {name: accuracy for name, (rows, accuracy) in reached.items() if rows >= 87}
    nothing = float("nan")
    best = max(sparse.values(), default=nothing)
    effect, alike = ([a for name, a in sparse.items() if ("by effect" in name) == by] for by in (True, False))
    fine = [rows for rows, accuracy in reached.values() if accuracy >= base - 0.5]
    return {
        "best_at_ninety": (best, "%"),
        "best_effect_at_ninety": (max(effect, default=nothing), "%"),
        "best_alike_at_ninety": (max(alike, default=nothing), "%"),
        "loss_at_ninety": (base - best, "points"),
        "half_a_point_rows": (max(fine, default=float("-inf")), "%"),
    }


def radius_curves(values: Mapping[str, Any], prefix: str, radii: Sequence[float], form: str, key: str) -> list[Any]:
    """Recorded values over the radii as curves, one a seed."""
    columns = {
        name: [values[f"{prefix}_{form}_{count}_k{key_of(kappa)}"] for kappa in radii]
        for name, count in (("rows", "rows"), ("kernels", "kernels"), ("accuracy", key))
    }
    n_seeds = len(columns["accuracy"][0])
    return [{name: [each[s] for each in column] for name, column in columns.items()} for s in range(n_seeds)]


def frontier_curves(case: Case, values: Mapping[str, Any], found: Frontier, kappas: Sequence[float]) -> dict[str, Any]:
    """Table 3.1 as curves.

    Args:
        values: recorded ones.

    Returns:
        `frontier`: name -> curves, one a seed; `printed`: the published points.
    """
    theorem = theorem_radii(case, kappas)
    curves: dict[str, Any] = {
        "std": radius_curves(values, "std", kappas, "l1", "accuracy"),
        "std_refit": radius_curves(values, "std", kappas, "refit", "head"),
        "uniform": radius_curves(values, "uniform", sorted(case.chosen["uniform"]), "l1", "accuracy"),
        "kernels": [curve_of(path, "accuracy") for path in found.paths],
    }
    for name, each in found.controls.items():
        curves[name] = [curve_of(seed, "accuracy") for seed in each]
    if theorem:
        counts = ("rows", "accuracy")
        curves["theorem"] = [
            {count: [values[f"theorem_l1_{count}_k{key_of(kappa)}"] for kappa in theorem] for count in counts}
        ]
    groups = {"student": found.own, "student_large": found.large, "one_sided": found.one_sided, "effect": found.effect}
    for name, fits in groups.items():
        if fits:
            curves[name] = [curve_of(seed) for seed in zip(*fits.values(), strict=True)]
    printed = [published_row(kappa) for kappa in kappas if published_row(kappa)]
    known = {
        key: [row[f"{text}, %"] for row in printed] for key, text in (("rows", "sparsity"), ("accuracy", "accuracy"))
    }
    return {"frontier": curves, "printed": known}
