"""What the notebook of attacks records: the measurements of `compute` on trained networks, one value a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.attacks.options import LPAttack, Sensitivity
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from implicit_models.robustness.problem import Problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.ch4_attacks import compute
from reproduction.ch4_attacks import discrepancy as facts_of
from reproduction.ch4_attacks.compute import CLIP, PROTOCOLS
from reproduction.ch4_sensitivity import compute as sensitivity
from reproduction.classifiers import fashion
from reproduction.core.recipe import Recipe

Rates = dict[str, list[float]]  # key -> per cent, one a seed
MOVED = ("random", "sensitivity", "lp_discrepancy", "lp_discrepancy_theorem7", "lp_margin")
RANKED = ("sensitivity", "gradient")  # the columns of Table 4.1
Tables = dict[str, list[dict[str, Any]]]  # data set -> what `compute.share_table` gives, one a seed
Samples = tuple[np.ndarray, np.ndarray]  # inputs and labels


@dataclass(frozen=True)
class Attacked:
    """Networks 784-300-10 of each data set, one a seed, their sensitivity matrices, and the samples under attack."""

    seeds: Sequence[int]
    profile: str
    images: Mapping[str, Dataset]
    models: Mapping[str, Sequence[nn.Module]]
    samples: Mapping[str, Samples]
    S: Mapping[str, Sequence[np.ndarray]]

    @property
    def first(self) -> str:
        """The data set of which one alone is measured or shown."""
        return next(iter(self.images))


def trained(images: Mapping[str, Dataset], seeds: Sequence[int], profile: str) -> Attacked:
    """The networks of each data set and seed, with the profile's number of test images."""
    epochs, count = sensitivity.PROFILES[profile]["epochs"], compute.PROFILES[profile]["samples"]
    models = {name: [sensitivity.network(data, seed, epochs) for seed in seeds] for name, data in images.items()}
    samples = {name: _head(data.test[next(iter(data.test))], count) for name, data in images.items()}
    S = {name: [sensitivity_matrix(model).S for model in each] for name, each in models.items()}
    return Attacked(seeds, profile, images, models, samples, S)


def _head(samples: Sequence[np.ndarray], count: int) -> Samples:
    return samples[0][:count], samples[1][:count]


def of_networks(nets: Attacked) -> dict[str, Any]:
    """`accuracy_DATASET` on all test images, `trained_epochs_DATASET` and `trained_updates_DATASET`, and
    `training_cpu_seconds`."""
    found: dict[str, Any] = {}
    recipe = Recipe(sensitivity.PROFILES[nets.profile]["epochs"], batch_size=100)  # the counts of `sensitivity.network`
    for name, data in nets.images.items():
        each = [100 * sensitivity.accuracy_on_test(model, data) for model in nets.models[name]]
        found[f"accuracy_{name}"] = each, "%"
        found |= _budget(name, recipe, len(data.y_train))
    spent = sum(model.training_cpu_seconds for each in nets.models.values() for model in each)
    return found | {"training_cpu_seconds": (spent, "s")}


def share_tables(nets: Attacked, shares: Sequence[float]) -> Tables:
    """Table 4.1 of each data set and seed."""
    return {
        name: [
            compute.share_table(model, *nets.samples[name], shares, seed, sensitivity=matrix)
            for model, seed, matrix in zip(nets.models[name], nets.seeds, nets.S[name], strict=True)
        ]
        for name in nets.images
    }


def table_41(tables: Tables, shares: Sequence[float]) -> Rates:
    """`DATASET_PROTOCOL_COLUMN_SHARE` of every table."""
    return {
        f"{name}_{protocol}_{column}_{share:g}": [one[protocol][column][position] for one in found]
        for name, found in tables.items()
        for protocol in PROTOCOLS
        for column in found[0][protocol]
        for position, share in enumerate(shares)
    }


def table_curves(tables: Tables) -> dict[str, Any]:
    """`table/DATASET`: protocol -> column -> one list of rates a seed."""
    return {
        f"table/{name}": {
            protocol: {column: [one[protocol][column] for one in found] for column in found[0][protocol]}
            for protocol in PROTOCOLS
        }
        for name, found in tables.items()
    }


def falls(tables: Tables) -> dict[str, Any]:
    """Whether success rises with the share in every column, `DATASET_monotone`, and `DATASET_largest_fall`; the small
    draws, which may do nothing, left out."""
    values: dict[str, Any] = {}
    for name, found in tables.items():
        steps = [np.diff(row) for one in found for key in ("replace", "sign") for row in one[key].values()]
        values[f"{name}_monotone"] = all(np.all(step >= 0) for step in steps)
        values[f"{name}_largest_fall"] = max(max(0.0, float(-step.min())) for step in steps)
    return values


def distances(rates: Rates, printed: Mapping[str, Mapping[str, float]], shares: Sequence[float]) -> dict[str, float]:
    """`distance_PROTOCOL_COLUMN`: the largest distance of MNIST's medians from the printed column, over the shares.

    Args:
        rates: of `table_41`.
        printed: share -> column and data set -> rate, as the thesis prints them.
        shares: per cent of the inputs.
    """
    return {
        f"distance_{protocol}_{column}": max(
            abs(np.median(rates[f"mnist_{protocol}_{column}_{share:g}"]) - printed[f"{share:g}"][f"{key} mnist"])
            for share in shares
        )
        for protocol in PROTOCOLS
        for column, key in zip(RANKED, ("S", "gradient"), strict=True)
    }


def first_row(nets: Attacked, tables: Tables, shares: Sequence[float]) -> dict[str, Any]:
    """What the first share means: `DATASET_first_row_pixels`, `DATASET_one_pixel`, `DATASET_clean_error` of the samples
    under attack, and `DATASET_wrong_counted`, the rate if samples that are wrong before count."""
    values: dict[str, Any] = {}
    for name, data in nets.images.items():
        p = data.u_train.shape[1]
        wrong = [100 * (1 - compute.is_right(model, *nets.samples[name]).mean()) for model in nets.models[name]]
        values[f"{name}_first_row_pixels"] = shares[0] / 100 * p
        values[f"{name}_one_pixel"] = 100 / p, "%"
        values[f"{name}_clean_error"] = wrong, "%"
        values[f"{name}_wrong_counted"] = [one["wrong"]["sensitivity"][0] for one in tables[name]], "%"
    return values


def lead_of_S(rates: Rates, names: Sequence[str], shares: Sequence[float]) -> dict[str, list[float]]:
    """`DATASET_PROTOCOL_S_less_gradient_SHARE` in points, seed by seed."""
    values: dict[str, list[float]] = {}
    for name in names:
        for protocol in PROTOCOLS:
            for share in shares:
                pair = (rates[f"{name}_{protocol}_{column}_{share:g}"] for column in RANKED)
                values[f"{name}_{protocol}_S_less_gradient_{share:g}"] = [a - b for a, b in zip(*pair, strict=True)]
    return values


def transfer(nets: Attacked, shares: Sequence[float]) -> Rates:
    """`DATASET_transfer_SOURCE_SHARE`: success where the ranking comes from elsewhere, the sources of
    `compute.transfer_table`; the surrogate is the network of the next seed."""
    epochs = sensitivity.PROFILES[nets.profile]["epochs"]
    values: Rates = {}
    for name, data in nets.images.items():
        found = [
            compute.transfer_table(
                model,
                sensitivity.network(data, seed + 1, epochs),
                sensitivity.untrained(data, seed),
                data,
                *nets.samples[name],
                shares,
                seed,
            )
            for model, seed in zip(nets.models[name], nets.seeds, strict=True)
        ]
        for source in found[0]:
            for position, share in enumerate(shares):
                values[f"{name}_transfer_{source}_{share:g}"] = [one[source][position] for one in found]
    return values


def costs(nets: Attacked) -> dict[str, list[float]]:
    """`seconds_RANKING` of `compute.costs` on the first data set, one a seed."""
    spent = [compute.costs(model, *nets.samples[nets.first]) for model in nets.models[nets.first]]
    return {f"seconds_{key}": [one[key] for one in spent] for key in spent[0]}


def figure_4_5(nets: Attacked, eps: float) -> list[dict[str, Any]]:
    """The first samples on which a dense attack of twice the radius and a sparse one by S succeed."""
    name, count = nets.first, compute.PROFILES[nets.profile]["examples"]
    tenth = compute.pixels(10, nets.images[name].u_train.shape[1])
    pictured = {
        f"dense, FGSM, eps {2 * eps:g}": (Box(2 * eps, CLIP), "fgsm"),
        "sparse, S, replace": (Replace(0, 1, tenth), Sensitivity(nets.S[name][0])),
    }
    return compute.examples(nets.models[name][0], *_head(nets.samples[name], count), pictured, 4, list(pictured))


@dataclass(frozen=True)
class Programmes:
    """Networks under attack by linear programmes, one a seed, and the first samples that each has right."""

    seeds: Sequence[int]
    tasks: Mapping[str, Sequence[Problem]]
    right: Mapping[str, Sequence[Samples]]
    budgets: Mapping[str, int]

    def rates(self, kind: str, sizes: Sequence[float], measure: Callable[..., dict[str, list[float]]]) -> Rates:
        """`LABEL_KIND_METHOD_SIZE`: success of each attack of `measure` at each size."""
        values: Rates = {}
        for label, tasks in self.tasks.items():
            found = [
                measure(task, *pair, sizes, seed)
                for task, pair, seed in zip(tasks, self.right[label], self.seeds, strict=True)
            ]
            for method in found[0]:
                for position, size in enumerate(sizes):
                    values[f"{label}_{kind}_{method}_{size:g}"] = [one[method][position] for one in found]
        return values


def programmes(names: Sequence[str], seeds: Sequence[int], profile: str) -> Programmes:
    """784-64-32-16-10 of each data set under its name, and "implicit", that of Fashion-MNIST with feedback."""
    count = compute.PROFILES[profile]["programmes"]
    tasks: dict[str, list[Problem]] = {}
    right: dict[str, list[Samples]] = {}
    budgets: dict[str, int] = {}
    for name in names:
        data = fashion.data(profile, name)
        nets = {name: [compute.deep_network(data, seed, profile) for seed in seeds]}
        if name == "fashion_mnist":
            nets["implicit"] = [
                fashion.trained(data, seed, profile, progress=False)["implicit"][0].eval() for seed in seeds
            ]
        for label, each in nets.items():
            tasks[label] = [compute.as_problem(model) for model in each]
            right[label] = [compute.classified_right(model, data, count) for model in each]
            budgets |= _budget(f"deep_{label}", fashion.models(0, profile)["explicit"][1], len(data.y_train))
    return Programmes(seeds, tasks, right, budgets)


def _budget(name: str, recipe: Recipe, n_samples: int) -> dict[str, int]:
    """`trained_epochs_NAME` and `trained_updates_NAME` of a training that ran to its end."""
    steps = math.ceil(n_samples / (recipe.batch_size or n_samples))
    return {f"trained_epochs_{name}": recipe.epochs, f"trained_updates_{name}": steps * recipe.epochs}


def few_pixels(nets: Programmes, counts: Sequence[int]) -> dict[str, Any]:
    """Attacks on few pixels, one value a seed.

    Returns:
        `LABEL_sparse_METHOD_COUNT`, success; for the attacks of `MOVED` also `LABEL_sparse_changed_METHOD_COUNT`, the
        pixels that changed, and `LABEL_sparse_moved_METHOD_COUNT`, how far the states went, of
        `compute.sparse_attacks`.
    """
    values: dict[str, Any] = {}
    for label, tasks in nets.tasks.items():
        found = [
            compute.sparse_attacks(task, *pair, counts, seed)
            for task, pair, seed in zip(tasks, nets.right[label], nets.seeds, strict=True)
        ]
        for position, count in enumerate(counts):
            for method in compute.SPARSE:
                each = [one["rate"][method][position] for one in found]
                values[f"{label}_sparse_{method}_{count:g}"] = each, "%"
            for method in MOVED:
                for key in ("changed", "moved"):
                    each = [one[key][method][position] for one in found]
                    values[f"{label}_sparse_{key}_{method}_{count:g}"] = each
    return values


def discrepancy(nets: Programmes, eps: float, count: int) -> dict[str, list[float]]:
    """`LABEL_discrepancy_FACT` of `facts_of.discrepancy_facts` and, with that many pixels, `LABEL_discrepancy_few_gap`
    of `facts_of.few_pixels_gap` on the first five samples."""
    values: dict[str, list[float]] = {}
    for label, tasks in nets.tasks.items():
        facts = [
            facts_of.discrepancy_facts(task, u[:5], eps, seed)
            for task, (u, _), seed in zip(tasks, nets.right[label], nets.seeds, strict=True)
        ]
        values |= {f"{label}_discrepancy_{key}": [one[key] for one in facts] for key in facts[0]}
        values[f"{label}_discrepancy_few_gap"] = [
            facts_of.few_pixels_gap(task, u[:5], count) for task, (u, _) in zip(tasks, nets.right[label], strict=True)
        ]
    return values


def pictures(nets: Programmes, eps: float, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Samples of Figures 4.6 and 4.7, on which the programmes for the margin succeed.

    Returns:
        The values `FIGURE_samples` and `FIGURE_discrepancy_wrong`, how many the other objective fools; the curves
        `examples/FIGURE`.
    """
    box, wider, few = Box(eps, CLIP), Box(2 * eps, CLIP), SparseBox(np.inf, count, CLIP)
    wide = {"squared discrepancy": (box, LPAttack("discrepancy", "displayed")), "margin": (box, "lp")}
    both = {f"dense, eps {2 * eps:g}": (wider, "lp"), f"sparse, {count} pixels": (few, "lp")}
    asked = {"figure_4_6": ("fashion_mnist", wide, 5, ["margin"]), "figure_4_7": ("mnist", both, 3, list(both))}
    values: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for name, (label, options, wanted, needed) in asked.items():
        shown: list[dict[str, Any]] = []
        if label in nets.tasks:
            head = _head(nets.right[label][0], 40)
            shown = compute.examples(nets.tasks[label][0], *head, options, wanted, needed)
        curves[f"examples/{name}"] = shown
        values[f"{name}_samples"] = len(shown)
        values[f"{name}_discrepancy_wrong"] = sum(
            panel["predicted"] != one["label"]
            for one in shown
            for panel in one["panels"]
            if panel["name"] == "squared discrepancy"
        )
    return values, curves
