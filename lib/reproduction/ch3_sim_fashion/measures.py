"""What the notebook of the attacked Fashion-MNIST models records: tables of the SIM paper, sweeps, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.states import States
from reproduction.ch3_sim_fashion import compute, matching
from reproduction.ch3_sim_fashion.compute import Scores
from reproduction.classifiers import fashion

Curve = Mapping[str, Sequence[float]]  # quantity -> one value a setting
Curves = Mapping[str, Sequence[Curve]]  # name -> one curve a seed
ATTACKS = ("at_0.004", "at_0.008")
SHOWN = ("sparsity", "nnz", "clean", *ATTACKS, "random")  # of a curve that is recorded
SCALES = ("theorem", "std", "uniform")
FEEDBACKS = ("full", "strict_upper")
# name -> objective and knee of a sweep
OBJECTIVES = {
    "l1": ("l1", 1.0),
    "perspective": ("perspective", 1.0),
    "perspective_0.1": ("perspective", 0.1),
    "l2": ("l2", 1.0),
}


@dataclass(frozen=True)
class Case:
    """Networks, one a seed, the images that they classify, and their states on the samples of the curves.

    Args:
        attacked: test images that are attacked.
        samples: how many the states are of.
    """

    images: Dataset
    networks: Sequence[nn.Module]
    seeds: Sequence[int]
    profile: str
    attacked: int
    samples: int
    found: Sequence[States]


def trained(images: Dataset, seeds: Sequence[int], profile: str, samples: int) -> Case:
    """The case of trained networks."""
    networks = [fashion.trained(images, seed, profile)["explicit"][0].eval() for seed in seeds]
    attacked = min(compute.PROFILES[profile]["attacked"], len(images.test[0][1]))
    found = [compute.samples_of(n, images, samples, seed) for n, seed in zip(networks, seeds, strict=True)]
    return Case(images, networks, seeds, profile, attacked, samples, found)


def teacher_scores(case: Case) -> list[Scores]:
    """`compute.scores` of the networks themselves."""
    return [compute.scores(n, compute.nonzeros(n), n, case.images, case.attacked) for n in case.networks]


def recorded_teacher(case: Case, teacher: Sequence[Scores]) -> dict[str, Any]:
    """`teacher_ACCURACY`, one a seed, and the `widths` of the layers."""
    values: dict[str, Any] = {
        f"teacher_{key}": ([score[key] for score in teacher], "%") for key in ("clean", *ATTACKS, "random")
    }
    images = case.images
    return values | {"widths": [images.u_train.shape[1], *fashion.HIDDEN, len(images.meta["classes"])]}


def matching_values(case: Case) -> dict[str, Any]:
    """Exact and trivial fits.

    Returns:
        `exact_QUANTITY` of `matching.exact_match` and `trivial_QUANTITY` of `matching.trivial_fit`, one a seed;
        `joint_difference` and `norm_ratio`.
    """
    size, first = compute.PROFILES[case.profile]["exact_samples"], case.seeds[0]
    fits = {
        "exact": [
            matching.exact_match(compute.samples_of(n, case.images, size, seed))
            for n, seed in zip(case.networks, case.seeds, strict=True)
        ],
        "trivial": [matching.trivial_fit(found) for found in case.found],
    }
    values: dict[str, Any] = {
        f"{name}_{key}": [one[key] for one in each] for name, each in fits.items() for key in each[0]
    }
    values["joint_difference"], values["norm_ratio"] = matching.joint_difference(first), matching.norm_ratio(first)
    return values


def scaling_values(case: Case) -> dict[str, Any]:
    """Counting, and the division of all weights.

    Returns:
        `count_...` of `matching.counts` (ranks with more samples than inputs); `scaling_...` of
        `matching.scaling_effect`, one a seed; `random_agree_...` of random networks.
    """
    first = case.seeds[0]
    counted = matching.counts(4, 5, 3, 6, first)
    counted |= {key: value for key, value in matching.counts(4, 5, 3, 12, first).items() if "rank_" in key}
    values: dict[str, Any] = {f"count_{key}": value for key, value in counted.items()}
    effect = [matching.scaling_effect(n, case.images.test[0][0]) for n in case.networks]
    for key in ("factor", "largest", "agree", "agree_bias_free", "logit_ratio"):
        values[f"scaling_{key}"] = [one[key] for one in effect]
    values["scaling_ratio_as_power"] = [one["logit_ratio"] / one["factor"] ** one["depth"] for one in effect]
    values["scaling_shrink_last"] = [one["norms"][-1] / one["norms_before"][-1] for one in effect]
    values["scaling_shrink_first"] = [one["norms"][0] / one["norms_before"][0] for one in effect]
    for key, value in matching.random_agreement(200, first).items():
        values[f"random_agree_{key}"] = value, "%"
    return values


def table_fits(case: Case) -> dict[tuple[str, int], dict[str, list[float]]]:
    """Fits of Tables 2 and 3: ("t2" or "t3", samples) -> `compute.sim_scores`, one value a seed."""
    points = {}
    for table, settings in (("t2", compute.TABLE_2), ("t3", compute.TABLE_3)):
        for m in compute.PROFILES[case.profile][f"table_{table[1]}"]:
            options = {**settings[m], "kappa": 0.99, "scale": "theorem"}
            found = [
                compute.sim_scores(
                    compute.samples_of(n, case.images, m, seed), n, case.images, case.attacked, **options
                )
                for n, seed in zip(case.networks, case.seeds, strict=True)
            ]
            points[table, m] = compute.gathered(found)
    return points


def recorded_fits(points: Mapping[tuple[str, int], Curve], teacher: Sequence[Scores]) -> dict[str, Any]:
    """`TABLE_nSAMPLES_QUANTITY` of the fits, one a seed, `..._below_teacher`, `failed_rows` and `row_norm_max`."""
    units = {"sparsity": "%", "nnz": "", "clean": "%", "at_0.004": "%", "at_0.008": "%", "mismatch": "", "row_norm": ""}
    values: dict[str, Any] = {}
    for (table, m), point in points.items():
        lost = [t["at_0.004"] - a for t, a in zip(teacher, point["at_0.004"], strict=True)]
        values[f"{table}_n{m}_below_teacher"] = lost, "points"
        values |= {f"{table}_n{m}_{key}": (point[key], unit) for key, unit in units.items()}
    values["failed_rows"] = sum(sum(point["failed"]) for point in points.values())
    values["row_norm_max"] = max(max(point["row_norm"]) for point in points.values())
    return values


def falls(values: Sequence[float]) -> bool:
    """Whether no value is above the one before."""
    return bool(np.all(np.diff(values) <= 0))


def table_orders(points: Mapping[tuple[str, int], Curve], teacher: Sequence[Scores]) -> dict[str, Any]:
    """Orders within Table 2, and the fits beside the networks.

    Returns:
        `t2_sparser_with_fewer`; for each attack `t2_ATTACK_rises_with_samples` and `t2_median_...`, and the
        `worst_gain_ATTACK` and `best_gain_ATTACK` over the network, one a seed.
    """
    by_size = [points[key] for key in sorted(key for key in points if key[0] == "t2")]
    places = range(len(teacher))
    values: dict[str, Any] = {
        "t2_sparser_with_fewer": all(falls([point["sparsity"][k] for point in by_size]) for k in places)
    }
    for key in ATTACKS:
        values[f"t2_{key}_rises_with_samples"] = all(falls([-point[key][k] for point in by_size]) for k in places)
        values[f"t2_median_{key}_rises_with_samples"] = falls([-float(np.median(point[key])) for point in by_size])
        for name, end in (("worst", min), ("best", max)):
            gain = [end(point[key][k] for point in points.values()) - teacher[k][key] for k in places]
            values[f"{name}_gain_{key}"] = gain, "points"
    return values


def attack_curves(case: Case, weights: Sequence[float]) -> dict[str, list[dict[str, list[float]]]]:
    """Figure 4: sweeps over the weight of the penalties `OBJECTIVES`, and `compute.control_sweeps`, one a seed."""
    images, profile = case.images, case.profile
    recipe = fashion.models(0, profile)["explicit"][1]
    sizes = {"in_features": images.u_train.shape[1], "n_classes": len(images.meta["classes"])}
    curves: dict[str, list[dict[str, list[float]]]] = {}
    for found, seed, network in zip(case.found, case.seeds, case.networks, strict=True):
        for name, (objective, knee) in OBJECTIVES.items():
            used = weights if objective == "l1" else weights[-3:]
            sweep = compute.weight_sweep(
                found, network, images, case.attacked, used, objective, knee=knee, scale="theorem"
            )
            curves.setdefault(name, []).append(sweep)
        controls = compute.control_sweeps(
            found,
            network,
            images,
            case.attacked,
            [30, 50, 70, 85, 95],
            [0.1, 0.03, 0.01],
            build=fashion.models(seed, profile, **sizes)["explicit"][0],
            recipe=recipe,
            seed=seed,
            samples=case.samples,
        )
        for name, curve in controls.items():
            curves.setdefault(name, []).append(curve)
    return curves


def recorded_curves(curves: Curves) -> dict[str, Any]:
    """`attack/NAME`: what is shown of each curve, one a seed."""
    return {f"attack/{name}": [{key: curve[key] for key in SHOWN} for curve in each] for name, each in curves.items()}


def best_points(curves: Curves) -> dict[str, dict[str, list[float]]]:
    """Of each curve the point that is most accurate under the larger attack: name -> quantity -> one a seed."""
    points = {}
    for name, each in curves.items():
        best = [int(np.argmax(curve["at_0.008"])) for curve in each]
        points[name] = {key: [curve[key][b] for curve, b in zip(each, best, strict=True)] for key in SHOWN}
    return points


def recorded_best(points: Mapping[str, Curve]) -> dict[str, Any]:
    """`best_NAME_QUANTITY` in per cent."""
    return {
        f"best_{name}_{key}": point[key] for name, point in points.items() for key in ("sparsity", "clean", "at_0.008")
    }


def differences(curves: Curves, teacher: Sequence[Scores], weights: Sequence[float]) -> dict[str, Any]:
    """Differences of curves, in points, one a seed.

    Returns:
        For each attack `l1_above_NAME_ATTACK`, at equal sparsity or, of the networks, from the best l1 fit;
        `l1_smallest_loss_less_teacher_ATTACK`; `clean_l1_above_magnitude`; `perspective_nnz_over_l1` and
        `l2_sparsity`.
    """

    def above(name: str, key: str) -> tuple[list[float], str]:
        pairs = zip(curves["l1"], curves[name], strict=True)
        return [compute.mean_above(a, b, key) for a, b in pairs], "points"

    def paired(others: Sequence[Any]) -> list[tuple[Curve, Any]]:
        return list(zip(curves["l1"], others, strict=True))

    values: dict[str, Any] = {}
    for key in ATTACKS:
        for name in ("perspective", "perspective_0.1", "magnitude", "magnitude_retrained", "lasso"):
            values[f"l1_above_{name}_{key}"] = above(name, key)
        values[f"l1_above_teacher_{key}"] = [max(c[key]) - t[key] for c, t in paired(teacher)], "points"
        values[f"l1_above_dense_{key}"] = [max(c[key]) - d[key][0] for c, d in paired(curves["dense"])], "points"
        losses = [
            [c["clean"][k] - c[key][k] - (t["clean"] - t[key]) for k in range(len(weights))] for c, t in paired(teacher)
        ]
        values[f"l1_smallest_loss_less_teacher_{key}"] = [min(each) for each in losses], "points"
    values["perspective_nnz_over_l1"] = [
        p / c
        for b, a in paired(curves["perspective"])
        for p, c in zip(a["nnz"], b["nnz"][-len(a["nnz"]) :], strict=True)
    ]
    values["l2_sparsity"] = [max(curve["sparsity"]) for curve in curves["l2"]], "%"
    values["clean_l1_above_magnitude"] = above("magnitude", "clean")
    return values


def scale_fits(
    case: Case, l1: Sequence[Curve], weights: Sequence[float]
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The l1 penalty in three scales, with every feedback and with that of earlier layers only.

    Args:
        l1: the sweep of `attack_curves`, which is that in the scale of Theorem 2.4 as printed.
        weights: of the penalty.

    Returns:
        Values `scale_SCALE_FEEDBACK_WEIGHT_QUANTITY` for the weak and the strong weight, and `scale_weights`; curves
        `scale/SCALE`.
    """
    values: dict[str, Any] = {}
    curves = {}
    for scale in SCALES:
        for feedback in FEEDBACKS:
            each = l1
            if (scale, feedback) != ("theorem", "full"):
                each = [
                    compute.weight_sweep(
                        found, n, case.images, case.attacked, weights[-3:], "l1", scale=scale, feedback=feedback
                    )
                    for found, n in zip(case.found, case.networks, strict=True)
                ]
            if feedback == "full":
                curves[f"scale/{scale}"] = [
                    {key: curve[key] for key in ("sparsity", "clean", "at_0.008")} for curve in each
                ]
            for place, name in ((-3, "weak"), (-1, "strong")):
                for key in ("sparsity", "clean", "at_0.008", "mismatch", "own"):
                    values[f"scale_{scale}_{feedback}_{name}_{key}"] = [curve[key][place] for curve in each]
    return values | {"scale_weights": [weights[-3], weights[-1]]}, curves


def radius_fits(case: Case) -> dict[str, dict[str, list[float]]]:
    """The ball of radius .3 without a penalty: scale -> `compute.radius_scores`, one value a seed."""
    return {
        scale: compute.gathered(
            [
                compute.radius_scores(found, n, case.images, case.attacked, 0.3, scale=scale)
                for found, n in zip(case.found, case.networks, strict=True)
            ]
        )
        for scale in compute.PROFILES[case.profile]["radius_scales"]
    }


def recorded_radius(fits: Mapping[str, Curve], teacher: Sequence[Scores]) -> dict[str, Any]:
    """`radius_drop_SCALE` from the networks' accuracy, and `radius_sparsity_SCALE`."""
    values: dict[str, Any] = {}
    for scale, each in fits.items():
        drop = [t["clean"] - clean for t, clean in zip(teacher, each["clean"], strict=True)]
        values[f"radius_drop_{scale}"] = drop, "points"
        values[f"radius_sparsity_{scale}"] = each["sparsity"], "%"
    return values
