"""What the notebook of the sensitivity matrix records: the measurements of `compute`, one value a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.ch4_sensitivity import compute
from reproduction.classifiers import fashion

# Of `compute.blockwise_facts`; the facts of Theorem 5 are recorded under their own names.
BLOCKWISE = ("violations", "mixed", "softmax", "relu", "largest")


@dataclass(frozen=True)
class Networks:
    """Networks 784-300-10 of each data set, one a seed: trained on all images, and on a share of them; the matrices of
    the first, and of the same networks before training."""

    seeds: Sequence[int]
    images: Mapping[str, Dataset]
    models: Mapping[str, Sequence[nn.Module]]
    few: Mapping[str, Sequence[nn.Module]]
    S: Mapping[str, Sequence[np.ndarray]]
    S_before: Mapping[str, Sequence[np.ndarray]]

    @property
    def first(self) -> str:
        """The data set whose rows are shown as images."""
        return next(iter(self.images))


def trained(images: Mapping[str, Dataset], seeds: Sequence[int], profile: str) -> Networks:
    """The networks of each data set and seed."""
    epochs, share = compute.PROFILES[profile]["epochs"], compute.PROFILES[profile]["few"]
    models = {name: [compute.network(data, seed, epochs) for seed in seeds] for name, data in images.items()}
    return Networks(
        seeds,
        images,
        models,
        {name: [compute.network(data, seed, epochs, share) for seed in seeds] for name, data in images.items()},
        {name: [sensitivity_matrix(model).S for model in each] for name, each in models.items()},
        {
            name: [sensitivity_matrix(compute.untrained(data, seed)).S for seed in seeds]
            for name, data in images.items()
        },
    )


def of_networks(nets: Networks) -> dict[str, Any]:
    """`accuracy_DATASET`, the size of S `size_DATASET`, its columns `columns_DATASET`, inputs, states and outputs
    together `counted_DATASET`; `states` and `training_cpu_seconds`."""
    values: dict[str, Any] = {}
    for name, data in nets.images.items():
        each, S = nets.models[name], nets.S[name][0]
        values[f"accuracy_{name}"] = [100 * compute.accuracy_on_test(model, data) for model in each], "%"
        values[f"size_{name}"] = " x ".join(map(str, S.shape))
        values[f"columns_{name}"] = S.shape[1]
        values[f"counted_{name}"] = data.u_train.shape[1] + compute.HIDDEN + len(data.meta["classes"])
    spent = sum(
        model.training_cpu_seconds for each in (nets.models, nets.few) for kind in each.values() for model in kind
    )
    return values | {"states": compute.HIDDEN, "training_cpu_seconds": (spent, "s")}


def matrices(nets: Networks) -> dict[str, np.ndarray]:
    """`S/DATASET` of the first seed, to five decimals."""
    return {f"S/{name}": np.round(each[0], 5) for name, each in nets.S.items()}


def three_ways(nets: Networks) -> dict[str, list[float]]:
    """`NAME_FACT` of `compute.three_ways` for each data set, and for "implicit", the classifier with feedback of
    Fashion-MNIST, or of the first data set without it."""
    pictures = nets.images.get("fashion_mnist", nets.images[nets.first])
    ways = {name: [compute.three_ways(model) for model in each] for name, each in nets.models.items()}
    ways["implicit"] = [
        compute.three_ways(fashion.trained(pictures, seed, "quick")["implicit"][0]) for seed in nets.seeds
    ]
    return {f"{name}_{key}": [one[key] for one in each] for name, each in ways.items() for key in each[0]}


def moved(nets: Networks, eps: float, count: int) -> dict[str, Any]:
    """`DATASET_moved_FACT` of `compute.deviations` on the first images, and the sum of all `violations`.

    Args:
        nets: the networks.
        eps: radius of the boxes.
        count: of the images.
    """
    values: dict[str, Any] = {}
    for name, data in nets.images.items():
        u = data.test[0][0][:count]
        each = [
            compute.deviations(model, matrix, u, eps, seed)
            for model, matrix, seed in zip(nets.models[name], nets.S[name], nets.seeds, strict=True)
        ]
        values |= {f"{name}_moved_{key}": [one[key] for one in each] for key in each[0]}
    return values | {"violations": sum(sum(values[f"{name}_moved_violations"]) for name in nets.images)}


def blocks(count: int, seed: int) -> dict[str, float]:
    """`blocks_FACT` of `compute.blockwise_facts`, and the facts of `compute.theorem_5_facts`."""
    facts = compute.blockwise_facts(count, seed) | compute.theorem_5_facts()
    return {f"blocks_{key}" if key in BLOCKWISE else key: value for key, value in facts.items()}


def classes(nets: Networks) -> tuple[dict[str, Any], dict[str, Any]]:
    """Row sums of S by class.

    Returns:
        The values `DATASET_class_FACT` of `compute.class_facts`, the ratio before training
        `DATASET_class_ratio_before`, the mean rank correlation of two seeds `DATASET_class_order_between_seeds`, and
        `DATASET_pooled_gain`, the rank correlation with the gain over the classes of all seeds; the curves
        `gain/DATASET`.
    """
    values: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for name, data in nets.images.items():
        own, small = (
            [compute.class_accuracy(model, data) for model in which[name]] for which in (nets.models, nets.few)
        )
        S = nets.S[name]
        facts = [compute.class_facts(matrix, a, b) for matrix, a, b in zip(S, own, small, strict=True)]
        values |= {f"{name}_class_{key}": [fact[key] for fact in facts] for key in facts[0]}
        pairs = [compute.rank_correlation(a.sum(1), b.sum(1)) for i, a in enumerate(S) for b in S[i + 1 :]]
        gain = np.concatenate([a - b for a, b in zip(own, small, strict=True)])
        sums = np.concatenate([matrix.sum(1) / matrix.sum(1).mean() for matrix in S])
        values |= {
            f"{name}_class_ratio_before": [
                float(matrix.sum(1).max() / matrix.sum(1).min()) for matrix in nets.S_before[name]
            ],
            f"{name}_class_order_between_seeds": float(np.mean(pairs)) if pairs else float("nan"),
            f"{name}_pooled_gain": compute.rank_correlation(sums, gain),
        }
        curves[f"gain/{name}"] = {"row_sum": sums, "gain": gain}
    return values, curves


def pixels(nets: Networks) -> dict[str, Any]:
    """`DATASET_pixels_FACT` of `compute.pixel_facts` and `DATASET_image_FACT` of `compute.image_dependence`; of each
    data set the correlation with the own class less the others', and the points lost without a tenth of the pixels."""
    values: dict[str, Any] = {}
    for name, data in nets.images.items():
        facts = [
            compute.pixel_facts(*each, data, seed)
            for *each, seed in zip(nets.models[name], nets.S[name], nets.S_before[name], nets.seeds, strict=True)
        ]
        still = [
            compute.image_dependence(model, matrix, data)
            for model, matrix in zip(nets.models[name], nets.S[name], strict=True)
        ]
        values |= {f"{name}_pixels_{key}": [fact[key] for fact in facts] for key in facts[0]}
        values |= {f"{name}_image_{key}": [one[key] for one in still] for key in still[0]}
        for start in ("", "first_"):
            gap = [fact[f"{start}own"] - fact[f"{start}other"] for fact in facts]
            values[f"{name}_pixels_{start}own_less_other"] = gap
        for which in ("top", "random"):
            lost = [100 * (fact["kept"] - fact[which]) for fact in facts]
            values[f"{name}_pixels_{which}_loss"] = lost, "points"
    return values
