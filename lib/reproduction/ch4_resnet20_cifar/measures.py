"""What the notebook of the residual network records: its sensitivity matrix, attacks on it, and certificates.

A value that depends on a draw, or on a network with random weights, has one number a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.sparse import perturb
from implicit_models.robustness.input_sets import Box, Replace, SparseBox
from reproduction.ch4_attacks.compute import CLIP, COLUMNS, PROTOCOLS, pixels
from reproduction.ch4_resnet20_cifar import attacks, bounds, sensitivity
from reproduction.ch4_resnet20_cifar.packing import packed
from reproduction.ch4_sensitivity.compute import deviations, pixel_facts
from reproduction.resnet20 import network as networks

Rates = dict[str, list[float]]  # key -> per cent, one a seed
Printed = Mapping[str, Mapping[str, float]]  # share -> column and data set -> rate, as the thesis prints them
RANKED = ("sensitivity", "gradient")  # the columns of Table 4.1
ROWS = {"0.1": "p0p1", "1": "p1", "10": "p10", "20": "p20", "30": "p30"}  # share -> row of the printed table
IGNORANT = ("any_row", "untrained", "disc")  # rankings that the printed column of the gradient is compared with


@dataclass(frozen=True)
class Setting:
    """The network, its images, and what a profile asks; `banner` is empty, or says what stands in."""

    network: nn.Sequential
    images: Dataset
    banner: str
    asked: Mapping[str, Any]
    seeds: Sequence[int]

    @property
    def p(self) -> int:
        """Number of inputs."""
        return self.images.u_train.shape[1]

    def head(self, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The first test images in float64, and their labels."""
        u, labels = self.images.test[0]
        return np.asarray(u[:count], dtype=np.float64), labels[:count]


@dataclass(frozen=True)
class Controls:
    """Matrices of networks that learned nothing, one a seed, and mean gradients of the network itself."""

    untrained: Sequence[np.ndarray]
    shuffled: Sequence[np.ndarray]
    gradients: np.ndarray


def setting(profile: str, seeds: Sequence[int], n_test: int) -> Setting:
    """The trained network with its test images, as many as the profile says where `n_test` is 0."""
    asked = networks.PROFILES[profile]
    return Setting(*networks.trained_network(n_test or asked["n_test"]), asked, seeds)


def of_data(net: Setting) -> dict[str, Any]:
    """`images`, their number, and `accuracy` on them."""
    u, labels = net.images.test[0]
    right = networks.classes_of(net.network, u) == labels
    return {"images": len(labels), "accuracy": (100 * float(right.mean()), "%")}


def of_matrix(net: Setting, S: np.ndarray, eps: float) -> dict[str, Any]:
    """The matrix and its checks: `matrix_cpu_seconds`, `matrix_memory_mb`, `column_error`, `exact_FACT` of
    `sensitivity.exact_model_error`, `size_FACT` of `attacks.programme_size`, the number of `parameters`, `moved_FACT`
    of `deviations` in boxes of radius eps, and the largest `row_sum`."""
    cost = sensitivity.cost_of(lambda: sensitivity.matrix_of(net.network, net.p))
    exact = sensitivity.exact_model_error(net.network, net.asked["image_size"])
    size = attacks.programme_size(net.network)
    u, _ = net.images.test[0]
    moved = deviations(net.network, S, u[: net.asked["dense"]], eps, net.seeds[0])
    return {
        "matrix_cpu_seconds": (cost["cpu_seconds"], "s"),
        "matrix_memory_mb": (cost["memory_mb"], "MB"),
        "column_error": sensitivity.column_error(net.network, S, 16, net.seeds[0]),
        **{f"exact_{key}": value for key, value in exact.items()},
        **{f"size_{key}": value for key, value in size.items()},
        "parameters": sum(t.numel() for t in net.network.parameters()),
        **{f"moved_{key}": moved[key] for key in ("largest", "random", "violations")},
        "row_sum": float(S.sum(axis=1).max()),
    }


def controls(net: Setting) -> Controls:
    """The controls of every seed."""
    return Controls(
        [sensitivity.matrix_of(networks.random_network(seed), net.p) for seed in net.seeds],
        [sensitivity.matrix_of(networks.shuffled_network(net.network, seed), net.p) for seed in net.seeds],
        sensitivity.gradient_maps(net.network, net.images, net.asked["maps"]),
    )


def maps(net: Setting, S: np.ndarray, others: Controls) -> dict[str, str]:
    """Rows of S, the first row of random weights, and the mean gradient of the first class, each in units of its
    largest entry and packed."""
    names = [str(name) for name in net.images.meta["classes"]]
    shown = {
        **dict(zip(names, S, strict=True)),
        f"{names[0]}, random\nweights": others.untrained[0][0],
        f"{names[0]}, mean\n|gradient|": np.nan_to_num(others.gradients[0]),
    }
    return {name: packed(row / max(row.max(), 1e-300)) for name, row in shown.items()}


def of_maps(net: Setting, S: np.ndarray, others: Controls) -> dict[str, Any]:
    """`map_FACT` of `sensitivity.map_facts`, `pixels_FACT` of `pixel_facts`, and the points lost without a tenth of the
    inputs by S and at random, of all classes and of the first."""
    facts = [
        sensitivity.map_facts(S, {"untrained": other, "shuffled": mixed}, net.images, others.gradients)
        for other, mixed in zip(others.untrained, others.shuffled, strict=True)
    ]
    drawn = [
        pixel_facts(net.network, S, other, net.images, seed)
        for other, seed in zip(others.untrained, net.seeds, strict=True)
    ]
    values: dict[str, Any] = {f"map_{key}": [one[key] for one in facts] for key in facts[0]}
    values |= {f"pixels_{key}": [one[key] for one in drawn] for key in drawn[0]}
    for start in ("", "first_"):
        for name in ("top", "random"):
            lost = [100 * (one[f"{start}kept"] - one[f"{start}{name}"]) for one in drawn]
            values[f"pixels_{start}{name}_loss"] = lost, "points"
    return values


def share_tables(net: Setting, S: np.ndarray, others: Controls, shares: Sequence[float]) -> list[dict[str, Any]]:
    """Table 4.1 of every seed, by `attacks.share_table`; rankings that know no draw are made once."""
    U, labels = net.head()
    shape = net.images.meta["image_shape"]
    direction = attacks.cross_entropy_gradient(net.network, U, labels)
    ranks = attacks.rankings(net.network, U, labels, S, others.untrained[0], shape)
    tables: list[dict[str, Any]] = []
    for other, seed in zip(others.untrained, net.seeds, strict=True):
        ranks |= {"untrained": other[labels]}
        same = tables[0]["sign"] if tables else None
        tables.append(attacks.share_table(net.network, U, labels, shares, seed, ranks, direction, shape, same=same))
    return tables


def greedy(net: Setting, shares: Sequence[float]) -> list[float]:
    """Success of JSMA, one rate a share."""
    U, labels = net.head(net.asked["greedy"])
    return attacks.greedy_rates(net.network, U, labels, [pixels(share, net.p) for share in shares])


def table_41(tables: Sequence[Mapping[str, Any]], by_greed: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """`PROTOCOL_COLUMN_SHARE`, and `sign_jsma_SHARE`, a single number."""
    values: dict[str, Any] = {
        f"{protocol}_{column}_{share:g}": [one[protocol][column][position] for one in tables]
        for protocol in PROTOCOLS
        for column in tables[0][protocol]
        for position, share in enumerate(shares)
    }
    return values | {f"sign_jsma_{share:g}": value for share, value in zip(shares, by_greed, strict=True)}


def table_curve(tables: Sequence[Mapping[str, Any]], by_greed: Sequence[float]) -> dict[str, Any]:
    """Protocol -> column -> one list of rates a seed, and "jsma" with one list."""
    curve: dict[str, Any] = {
        protocol: {column: [one[protocol][column] for one in tables] for column in tables[0][protocol]}
        for protocol in PROTOCOLS
    }
    return curve | {"jsma": [by_greed]}


def leads(rates: Rates, shares: Sequence[float]) -> dict[str, Any]:
    """`PROTOCOL_S_less_OTHER_SHARE` in points, seed by seed, and in how many rows S leads by the median,
    `PROTOCOL_rows_S_leads_OTHER`; the disc for "replace" alone."""
    values: dict[str, Any] = {}

    def less(protocol: str, other: str, share: float) -> list[float]:
        pair = (rates[f"{protocol}_{column}_{share:g}"] for column in ("sensitivity", other))
        return [a - b for a, b in zip(*pair, strict=True)]

    for protocol in PROTOCOLS:
        for other in ("gradient", "random"):
            each = {share: less(protocol, other, share) for share in shares}
            values |= {f"{protocol}_S_less_{other}_{share:g}": (gap, "points") for share, gap in each.items()}
            values[f"{protocol}_rows_S_leads_{other}"] = sum(float(np.median(gap)) > 0 for gap in each.values())
    return values | {f"replace_S_less_disc_{share:g}": (less("replace", "disc", share), "points") for share in shares}


def printed_rows(shares: Sequence[float], published: Callable[[str], Mapping[str, float]]) -> Printed:
    """The rows of Table 4.1 that the thesis prints for these shares.

    Args:
        shares: per cent of the inputs.
        published: claim id -> published value, as `reproduction.book.claims.published_value`.
    """
    given = {f"{share:g}" for share in shares}
    return {share: published(f"ch4-t41-{row}") for share, row in ROWS.items() if share in given}


def distances(rates: Rates, printed: Printed) -> dict[str, float]:
    """The largest distance of medians from a printed column over its rows: `distance_PROTOCOL_COLUMN` from its own,
    `distance_gradient_from_RANKING` of rankings for "replace" from that of the gradient."""

    def largest(start: str, column: str) -> float:
        return max(
            abs(float(np.median(rates[f"{start}_{share}"])) - row[f"{column} cifar10"])
            for share, row in printed.items()
        )

    own = {
        f"distance_{protocol}_{column}": largest(f"{protocol}_{column}", key)
        for protocol in PROTOCOLS
        for column, key in zip(RANKED, ("S", "gradient"), strict=True)
    }
    return own | {f"distance_gradient_from_{name}": largest(f"replace_{name}", "gradient") for name in IGNORANT}


def of_tables(net: Setting, tables: Sequence[Mapping[str, Any]], last: float) -> dict[str, Any]:
    """Pixels reached at the last share, `pixels_reached_COLUMN_SHARE`; `clean_error`, `wrong_counted`, the first rate
    by S if samples that were wrong count; whether success rises with the share, `monotone`, and the `largest_fall`."""
    u, labels = net.images.test[0]
    falls = [
        max(0.0, float(-np.diff(one[protocol][column]).min()))
        for one in tables
        for protocol in ("replace", "sign")
        for column in COLUMNS
    ]
    return {
        **{
            f"pixels_reached_{column}_{last:g}": [one["regions"][column][-1] for one in tables]
            for column in tables[0]["regions"]
        },
        "clean_error": (100 * float(np.mean(networks.classes_of(net.network, u) != labels)), "%"),
        "wrong_counted": ([one["wrong"]["sensitivity"][0] for one in tables], "%"),
        "monotone": max(falls) == 0,
        "largest_fall": (max(falls), "points"),
    }


def dense(net: Setting, eps: Sequence[float]) -> dict[str, list[list[float]]]:
    """Success of dense attacks: name -> one list of rates a seed, one rate a radius."""
    U, labels = net.head(net.asked["dense"])
    return attacks.dense_rates(net.network, U, labels, eps, net.asked["steps"], net.seeds)


def dense_values(rates: Mapping[str, Sequence[Sequence[float]]], eps: Sequence[float]) -> Rates:
    """`dense_NAME_RADIUS` of `dense`."""
    return {
        f"dense_{name}_{radius:g}": [one[position] for one in each]
        for name, each in rates.items()
        for position, radius in enumerate(eps)
    }


def pictures(net: Setting, S: np.ndarray, eps: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Images of Figures 4.5 and 4.6, on which all attacks of the figure succeed.

    Returns:
        The values `jsma_success` with at most 20 inputs, and `FIGURE_samples`; the curves `FIGURE`.
    """
    U, labels = net.head(net.asked["pictured"])
    fgsm = attack(net.network, U, labels, Box(eps, CLIP), "fgsm").U_adv
    by_rows = perturb(U, S[labels], Replace(*CLIP, pixels(10, net.p)), seed=net.seeds[0])
    few = attack(net.network, U, labels, SparseBox(np.inf, 20, CLIP), "jsma").U_adv
    asked = {
        "figure_4_5": (
            {f"dense, FGSM, eps {eps:g}": fgsm, "sparse, S, replace": by_rows, "sparse, at most 20 inputs": few},
            4,
        ),
        "figure_4_6": (
            {
                "states, squared discrepancy": attacks.discrepancy_ascent(
                    net.network, U, eps, net.asked["steps"], net.seeds[0]
                ),
                "margin, linearised": attacks.linearised_programme(net.network, U, labels, eps),
            },
            5,
        ),
    }
    right = networks.classes_of(net.network, U) == labels
    fooled = networks.classes_of(net.network, few) != labels
    values: dict[str, Any] = {"jsma_success": (100 * float(fooled[right].mean()), "%")}
    curves: dict[str, Any] = {}
    for key, (made, count) in asked.items():
        sparse = [name for name in made if name.startswith("sparse")]
        curves[key] = attacks.examples(net.network, U, labels, made, count, sparse)
        values[f"{key}_samples"] = len(curves[key])
    return values, curves


def certificates(net: Setting, S: np.ndarray, eps: float) -> dict[str, float]:
    """Certified radii `radius_interval_FACT` and `radius_sensitivity_FACT`, median and largest over images that are
    right; the largest half-width of a state's interval at radius eps, `interval_width`; `rounding` of an input."""
    U, labels = net.head(net.asked["certified"])
    right = networks.classes_of(net.network, U) == labels
    radii = {
        "interval": bounds.interval_radius(net.network, U[right], labels[right], net.asked["halvings"]),
        "sensitivity": bounds.sensitivity_radius(net.network, U[right], labels[right], S),
    }
    values: dict[str, float] = {}
    for name, each in radii.items():
        values[f"radius_{name}_median"] = float(np.median(each))
        values[f"radius_{name}_largest"] = float(each.max())
    values["interval_width"] = float(bounds.interval_margins(net.network, U[:1], labels[:1], eps)[1][0])
    return values | {"rounding": float(np.finfo(np.float64).eps)}
