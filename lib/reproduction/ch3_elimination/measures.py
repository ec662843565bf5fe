"""What the notebook of elimination records of images: certificates, removal, the published rule, elastic nets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.states import States, states
from implicit_models.sim.solvers.elimination import eliminate
from reproduction.ch3_bisection.compute import BallRows
from reproduction.ch3_elimination import compute, elastic
from reproduction.ch3_elimination.compute import ORDERS
from reproduction.classifiers import fashion
from reproduction.core.budgets import training_budget
from reproduction.core.scores import accuracy_of
from reproduction.core.sparse_states import refit_head

Counts = Mapping[str, Sequence[Mapping[str, Any]]]  # scale -> `compute.certificate_counts`, one a seed
Curves = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]  # (scale, order) -> one curve a seed
SCALES = ("theorem", "wide")
ELASTIC = (*map(str, range(len(elastic.WEIGHTS))), *(f"w{k}" for k in range(1, len(elastic.WIDER) + 1)))
CLAIMED = ("50", "90", "95")  # shares (%) of which the report states a drop


@dataclass(frozen=True)
class Case:
    """Networks, one a seed, and the rows of their states on the samples.

    Args:
        samples: training images that the rows are fitted to.
        rows: (scale, seed) -> rows over states and inputs.
        seconds: CPU seconds of the trainings.
        budget: their epochs and updates, as recorded.
    """

    images: Dataset
    seeds: Sequence[int]
    samples: int
    kappa: float
    networks: Sequence[nn.Module]
    found: Sequence[States]
    rows: Mapping[tuple[str, int], BallRows]
    seconds: float
    budget: Mapping[str, Sequence[int]]

    @property
    def n_states(self) -> int:
        """States of a network."""
        return self.found[0].n_states

    @property
    def n_features(self) -> int:
        """States and inputs."""
        return len(self.rows["theorem", self.seeds[0]].G)


def trained(images: Dataset, seeds: Sequence[int], profile: str, *, samples: int, factor: float, kappa: float) -> Case:
    """The case of trained networks, in the units of Theorem 2.4 and in the same times a factor."""
    runs = [fashion.trained(images, seed, profile)["explicit"] for seed in seeds]
    networks = [model.eval() for model, _ in runs]
    found = [states(network, images.u_train[:samples]) for network in networks]
    rows = {
        (scale, seed): compute.feature_rows(one, factor if scale == "wide" else 1.0)
        for seed, one in zip(seeds, found, strict=True)
        for scale in SCALES
    }
    histories = [history for _, history in runs]
    seconds, recipe = sum(sum(one.cpu_seconds) for one in histories), fashion.models(0, profile)["explicit"][1]
    budget = training_budget("network", recipe, histories, len(images.y_train))
    return Case(images, seeds, samples, kappa, networks, found, rows, seconds, budget)


def network_values(case: Case) -> dict[str, Any]:
    """`features`, `kappa`, `accuracy_network`, `training_cpu_seconds`, `trained_epochs_network` and
    `trained_updates_network`."""
    reached = [100 * accuracy_of(network, *case.images.test[0]) for network in case.networks]
    return {
        "features": case.n_features,
        "kappa": case.kappa,
        "accuracy_network": (reached, "%"),
        "training_cpu_seconds": (case.seconds, "s"),
        **case.budget,
    }


def certificates(case: Case) -> dict[str, list[dict[str, Any]]]:
    """One screening pass of each scale: scale -> `compute.certificate_counts`, one a seed."""
    return {
        scale: [compute.certificate_counts(case.rows[scale, seed], case.kappa, case.n_states) for seed in case.seeds]
        for scale in SCALES
    }


def recorded_certificates(counted: Counts, n_features: int) -> dict[str, Any]:
    """Counts as `QUANTITY_SCALE`, one a seed, `screening_seconds_SCALE`, and shares `certified_..._SCALE`."""
    values: dict[str, Any] = {}
    for scale, each in counted.items():
        for key in ("states_out", "inputs_out", "wrong", "second_pass", "slack", "value_change"):
            values[f"{key}_{scale}"] = [one[key] for one in each]
        values[f"screening_seconds_{scale}"] = [one["seconds"] for one in each], "s"
        values[f"certified_per_row_{scale}"] = [float(np.median(one["per_row"])) for one in each]
        values[f"certified_share_of_zeros_{scale}"] = [100 * one["certified"] / one["zeros"] for one in each], "%"
        columns = [100 * (one["states_out"] + one["inputs_out"]) / n_features for one in each]
        values[f"certified_columns_{scale}"] = columns, "%"
    return values


def removal_curves(case: Case, counted: Counts, shares: Sequence[float]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Models refitted after removal in each order; of the unscaled rows, all shares in the first order only."""
    (u_test, y_test), u_fit = case.images.test[0], case.images.u_train[: case.samples]
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for k, seed in enumerate(case.seeds):

        def scores(model, k=k):
            refitted = refit_head(model, u_fit, case.found[k].Y, u_test).argmax(axis=1)
            return {
                "accuracy": 100 * accuracy_of(model, u_test, y_test),
                "head": 100 * float((refitted == y_test).mean()),
            }

        for scale in SCALES:
            rows, known = case.rows[scale, seed], counted[scale][k]["elimination"].screening.A
            whole = eliminate(rows.G, rows.C, rows.zz, kappa=case.kappa, n_remove=case.n_features, A=known)
            for order in ORDERS:
                every = scale == "wide" or order == "correlation"
                swept = list(shares) if every else [share for share in shares if share >= 0.5]
                columns = compute.removal_order(order, whole, seed)
                curve: dict[str, Any] = compute.removal_curve(rows, columns, swept, kappa=case.kappa, scores=scores)
                curve["share"] = [100 * share for share in swept]
                curves.setdefault((scale, order), []).append(curve)
    return curves


def recorded_removal(curves: Curves) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values `accuracy_SCALE_ORDER_SHARE`, `head_...` and `failed_rows`; curves `removal/SCALE/ORDER`."""
    values: dict[str, Any] = {}
    for (scale, order), each in curves.items():
        for key in ("accuracy", "head"):
            for share, *found in zip(each[0]["share"], *(curve[key] for curve in each), strict=True):
                values[f"{key}_{scale}_{order}_{share:g}"] = found, "%"
    values["failed_rows"] = int(sum(sum(curve["failed"]) for each in curves.values() for curve in each))
    return values, {f"removal/{scale}/{order}": each for (scale, order), each in curves.items()}


def drops(curves: Curves) -> dict[str, Any]:
    """Drops at the shares that the report states.

    Returns:
        `drop_QUANTITY_SHARE` by correlation and `drop_random_QUANTITY_SHARE`, in points from the model with all
        features, of accuracy with the network's read-out ("accuracy") and a refitted one ("head").
    """
    values: dict[str, Any] = {}
    swept = curves["wide", "correlation"][0]["share"]
    for name in CLAIMED:
        if float(name) not in swept or 0.0 not in swept:
            continue
        at, first = swept.index(float(name)), swept.index(0.0)
        for order, start in (("correlation", "drop"), ("random", "drop_random")):
            for key in ("accuracy", "head"):
                lost = [curve[key][first] - curve[key][at] for curve in curves["wide", order]]
                values[f"{start}_{key}_{name}"] = lost, "points"
    return values


def states_kept(curves: Curves) -> dict[str, list[int]]:
    """`states_kept_SCALE_ORDER_SHARE` where at least half of the columns are gone."""
    return {
        f"states_kept_{scale}_{order}_{share:g}": [curve["states_kept"][i] for curve in each]
        for (scale, order), each in curves.items()
        for i, share in enumerate(each[0]["share"])
        if share >= 50
    }


def conic(case: Case, profile: str, thresholds: Sequence[float]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The published dual on a few rows and samples of the first network.

    Returns:
        `compute.conic_rows`, and the values `dual_difference`, `conic_over_sphere`, `conic_seconds_a_row`,
        `rule_wrong_THRESHOLD`, `rule_missed_THRESHOLD`, `rule_wrong_largest` and `dual_variables_of_samples`.
    """
    few, n_rows = (150, 2) if profile == "quick" else (300, 4)
    found = case.found[0]
    units = compute.units_of(found, 1.0)
    M = np.hstack([np.asarray(found.X, float) / units, np.asarray(found.U, float)])[:few]
    chosen = np.linspace(0, case.n_states - 1, n_rows).astype(int)
    Z = (np.asarray(found.Z, float) / units)[:few][:, chosen]
    rows = compute.conic_rows(M, Z, kappa=case.kappa, ridges=[0.0, 1.0], thresholds=thresholds)
    wrong, missed = (
        [int(sum(row[key][k] for row in rows)) for k in range(len(thresholds))] for key in ("wrong", "missed")
    )
    values: dict[str, Any] = {
        "dual_difference": max(row["difference"] for row in rows),
        "conic_over_sphere": float(np.median([row["conic_s"] / row["sphere_s"] for row in rows])),
        "conic_seconds_a_row": (float(np.median([row["conic_s"] for row in rows])), "s"),
        "rule_wrong_largest": max(wrong),
        "dual_variables_of_samples": few,
    }
    for k, threshold in enumerate(thresholds):
        values[f"rule_wrong_{threshold:g}"], values[f"rule_missed_{threshold:g}"] = wrong[k], missed[k]
    return rows, values


def elastic_net(case: Case, held_out: int = 2000) -> dict[str, Any]:
    """The elastic net beside the LASSO, rows in the units of Theorem 2.4 times the factor, one value a seed.

    Returns:
        `elastic_QUANTITY_FIT` of `elastic.elastic_fits`, FIT "0" for the LASSO, "1" on for the weights and "w1" on for
        the LASSO in wider balls, with `elastic_weight_FIT` and `elastic_radius_FIT`; `elastic_gain_KEY`,
        `elastic_equal_KEY`, `elastic_used_KEY` and `elastic_equal_used_KEY` of `elastic.gains`.
    """
    each = [
        elastic.elastic_fits(
            case.rows["wide", seed], case.images, kappa=case.kappa, samples=case.samples, held_out=held_out
        )
        for seed in case.seeds
    ]
    values: dict[str, Any] = {}
    for k, name in enumerate(ELASTIC):
        values[f"elastic_weight_{name}"], values[f"elastic_radius_{name}"] = each[0][k]["weight"], each[0][k]["radius"]
        values[f"elastic_used_{name}"] = [fits[k]["used"] for fits in each]
        for key in ("accuracy", "head", "certified"):
            values[f"elastic_{key}_{name}"] = [fits[k][key] for fits in each], "%"
    found = [elastic.gains(fits) for fits in each]
    for key in found[0]:
        unit = "" if "used" in key else "points"
        values[f"elastic_{key}"] = ([one[key] for one in found], unit) if unit else [one[key] for one in found]
    return values


def unfinished(case: Case, count: int = 16) -> dict[str, Any]:
    """`unfinished_QUANTITY_STEPS` of `elastic.unfinished` on that many rows of each network, one value a seed."""
    each = [
        elastic.unfinished(*elastic.chosen_rows(case.rows["wide", seed], count), kappa=case.kappa)
        for seed in case.seeds
    ]
    values: dict[str, Any] = {}
    for k, steps in enumerate(elastic.STEPS):
        for key in each[0][k]:
            found = [one[k][key] for one in each]
            values[f"unfinished_{key}_{steps}"] = (found, "%") if key == "dual_share" else found
    return values


def exactly_k(case: Case, counted: Counts) -> bool:
    """Whether an elimination removes as many features as it is asked for."""
    rows, known = case.rows["theorem", case.seeds[0]], counted["theorem"][0]["elimination"].screening.A
    d = case.n_features
    return all(
        eliminate(rows.G, rows.C, rows.zz, kappa=case.kappa, n_remove=k, A=known).removed.size == k
        for k in (1, 17, d // 2, d - 2)
    )


def times(curves: Curves, counted: Counts) -> dict[str, list[float]]:
    """`refit_time_SCALE_SHARE` and `screening_time_SCALE` in units of the fit with all features, one a seed."""
    values = {}
    for scale, counts in counted.items():
        each = curves[scale, "correlation"]
        whole = [curve["seconds"][0] for curve in each]
        for i, share in enumerate(each[0]["share"]):
            ratio = [curve["seconds"][i] / w for curve, w in zip(each, whole, strict=True)]
            values[f"refit_time_{scale}_{share:g}"] = ratio
        values[f"screening_time_{scale}"] = [one["seconds"] / w for one, w in zip(counts, whole, strict=True)]
    return values
