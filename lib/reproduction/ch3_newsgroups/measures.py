"""What the notebook of the text classifier records: splits, radii, controls of equal size, scales, shares of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.states import States
from reproduction.classifiers import newsgroups
from reproduction.core.sparse_states import plateau
from reproduction.core.sparsity import lasso_curve, magnitude_curves, radius_curve, share_curves

Curve = dict[str, list[Any]]  # quantity -> one value a radius
PRUNED = ("magnitude", "magnitude_layer", "magnitude_retrained")
SCALES = ("uniform", "theorem", "std")
FEEDBACKS = ("full", "strict_upper")


def named(kappa: float) -> str:
    """A radius in a key."""
    return f"k{kappa:g}".replace(".", "p")


def trained(
    corpora: Mapping[str, Dataset], seeds: Sequence[int], profile: str
) -> tuple[dict[tuple[str, str], list[nn.Module]], dict[str, Any]]:
    """Classifiers of both splits.

    Args:
        corpora: split -> its data.

    Returns:
        (split, name) -> networks, one a seed; and the values `accuracy_NAME_SPLIT` and `f1_NAME_SPLIT`, `split_gap` of
        the accuracy between the splits, `metric_gap` of F1 and accuracy, `training_cpu_seconds`.
    """
    networks: dict[tuple[str, str], list[nn.Module]] = {}
    values: dict[str, Any] = {}
    seconds = 0.0
    for split, corpus in corpora.items():
        for name in newsgroups.LABELS:
            runs = [newsgroups.trained(corpus, seed, profile)[name] for seed in seeds]
            seconds += sum(sum(history.cpu_seconds) for _, history in runs)
            networks[split, name] = [model.eval() for model, _ in runs]
            found = [newsgroups.scores(model, corpus) for model, _ in runs]
            for key in ("accuracy", "f1"):
                values[f"{key}_{name}_{split}"] = [100 * score[key] for score in found], "%"

    def gap(first: str, second: str) -> tuple[list[float], str]:
        return [b - a for a, b in zip(values[first][0], values[second][0], strict=True)], "points"

    values["training_cpu_seconds"] = seconds, "s"
    values["split_gap"] = gap(*(f"accuracy_network_{split}" for split in newsgroups.SPLITS))
    values["metric_gap"] = gap("accuracy_network_bydate", "f1_network_bydate")
    return networks, values


def radius_values(sim: Sequence[Curve], kappas: Sequence[float], accuracy: Sequence[float]) -> dict[str, Any]:
    """Table 3.1, one value a seed.

    Args:
        sim: curves of `radius_curve`.
        accuracy: of the networks.

    Returns:
        `accuracy_KAPPA`, `sparsity_KAPPA`, `drop_KAPPA`, `drop_head_KAPPA`, `nnz_KAPPA`, and what explains the drop:
        `drop_forced_KAPPA`, `match_1_KAPPA`, `match_2_KAPPA`, `bypass_KAPPA`; `failed_rows`; and over all radii
        `sparsity_falls_with_kappa`, `accuracy_rises_with_kappa` and `head_accuracy_rises_with_kappa`.
    """
    units = {"sparsity": "%", "drop": "points", "drop_head": "points"}
    values: dict[str, Any] = {}
    for k, kappa in enumerate(kappas):
        for key in ("sparsity", "drop", "drop_head", "nnz", "drop_forced", "match_1", "match_2", "bypass"):
            values[f"{key}_{named(kappa)}"] = [curve[key][k] for curve in sim], units.get(key, "")
        reached = [base - curve["drop"][k] for base, curve in zip(accuracy, sim, strict=True)]
        values[f"accuracy_{named(kappa)}"] = reached, "%"
    values["failed_rows"] = int(sum(sum(curve["failed"]) for curve in sim))
    order = np.argsort(kappas)

    def falls(key: str) -> bool:
        return all(bool(np.all(np.diff(-np.array(curve[key])[order]) >= 0)) for curve in sim)

    values["sparsity_falls_with_kappa"] = falls("sparsity")
    values["accuracy_rises_with_kappa"] = falls("drop")
    values["head_accuracy_rises_with_kappa"] = falls("drop_head")
    return values


def smaller(sim: Sequence[Curve], kappas: Sequence[float]) -> list[int]:
    """Places of the radii, in their order, whose models all have fewer parameters than the network."""
    return [int(k) for k in np.argsort(kappas) if all(curve["sparsity"][k] > 0 for curve in sim)]


def all_curves(
    sim: Sequence[Curve], found: Sequence[States], networks: Sequence[nn.Module], posts: Dataset, **training: Any
) -> dict[str, list[Curve]]:
    """Curves of drop against sparsity: the sparse models, also with a refitted read-out, pruning, and the lasso.

    Args:
        sim: curves of `radius_curve`.
        found: states of the networks.
        training: "seeds", and "recipe" of retraining.
    """
    curves = {"sim": list(sim)}
    curves["sim_head"] = [{"sparsity": curve["sparsity"], "drop": curve["drop_head"]} for curve in sim]
    for k, (seed, network) in enumerate(zip(training["seeds"], networks, strict=True)):
        pruned = magnitude_curves(network, posts, sim[k]["sparsity"], recipe=training["recipe"], seed=seed)
        for name, curve in pruned.items():
            curves.setdefault(name, []).append(curve)
        curves.setdefault("lasso", []).append(lasso_curve(found[k], network, posts, [0.3, 0.2, 0.1, 0.05, 0.02, 0.01]))
    return curves


def recorded_curves(curves: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """`tradeoff/NAME`: sparsity and drop, one curve a seed."""
    return {
        f"tradeoff/{name}": [{key: curve[key] for key in ("sparsity", "drop")} for curve in each]
        for name, each in curves.items()
    }


def pruned_drops(curves: Mapping[str, Sequence[Curve]], kappas: Sequence[float]) -> dict[str, Any]:
    """`NAME_drop_KAPPA` of networks pruned to the size of the sparse model of a radius, where that is smaller."""
    # The pruned networks stand in the order of the radii whose sparse model has fewer parameters than the network.
    sparse = smaller(curves["sim"], kappas)
    known = [k for k in range(len(kappas)) if k in sparse]
    return {
        f"{name}_drop_{named(kappas[k])}": [curve["drop"][known.index(k)] for curve in curves[name]]
        for k in sparse
        for name in PRUNED
    }


def best_values(sim: Sequence[Curve], sparse: Sequence[int], kappas: Sequence[float]) -> dict[str, Any]:
    """`best_sparse_drop` and `best_sparse_sparsity` of the most accurate radius whose model is smaller, if any."""
    if not sparse:
        return {}
    best = min(sparse, key=lambda k: np.median([curve["drop"][k] for curve in sim]))
    return {
        "best_sparse_drop": ([curve["drop"][best] for curve in sim], "points"),
        "best_sparse_sparsity": ([curve["sparsity"][best] for curve in sim], "%"),
    }


def scale_curves(network: nn.Module, posts: Dataset, kappas: Sequence[float]) -> dict[tuple[str, str], Curve]:
    """Radii in three scales, with every feedback and with that of earlier layers only: (scale, feedback) -> curve."""
    return {
        (scale, feedback): radius_curve(network, posts, kappas, scale=scale, feedback=feedback)[0]
        for scale in SCALES
        for feedback in FEEDBACKS
    }


def scale_values(curves: Mapping[tuple[str, str], Curve], kappas: Sequence[float]) -> dict[str, Any]:
    """`scale_best_drop_SCALE_FEEDBACK`, `scale_own_...` (states that feed themselves) and `scale_match_...`."""
    values: dict[str, Any] = {}
    for (scale, feedback), curve in curves.items():
        values[f"scale_best_drop_{scale}_{feedback}"] = min(curve["drop"]), "points"
        values[f"scale_own_{scale}_{feedback}"] = max(curve["own"]), "%"
        values[f"scale_match_{scale}_{feedback}"] = curve["match"][int(np.argmax(kappas))]
    return values


def part_curves(
    networks: Mapping[int, nn.Module], posts: Dataset, shares: Sequence[float], kappas: Sequence[float], profile: str
) -> dict[str, list[list[float]]]:
    """Accuracy against the share of the data: radius, or "dense" -> one list a seed.

    Args:
        networks: seed -> network; the first three are used.
        kappas: radii; the three smallest are used.
    """
    parts: dict[str, list[list[float]]] = {}
    recipe = newsgroups.training_recipe(profile)
    sizes = {"in_features": posts.u_train.shape[1], "n_classes": len(posts.meta["classes"])}
    for seed, network in list(networks.items())[:3]:
        build = newsgroups.models(seed, profile, **sizes)["network"][0]
        options = {"build": build, "recipe": recipe, "seed": seed, "scale": "uniform"}
        for name, values in share_curves(network, posts, sorted(shares), sorted(kappas)[:3], **options).items():
            parts.setdefault(name, []).append(values)
    return parts


def part_key(name: str) -> str:
    """A curve of `part_curves` in a key."""
    return "dense" if name == "dense" else f"k{name}".replace(".", "p")


def part_values(parts: Mapping[str, Sequence[Sequence[float]]], shares: Sequence[float]) -> dict[str, Any]:
    """`plateau_NAME`, `share_gain_NAME` from the smallest share to all data, `plateau_all` (the latest), `shares`."""
    shares = sorted(shares)
    plateaus = {
        name: [100 * plateau(shares, np.array(values) / 100) for values in each] for name, each in parts.items()
    }
    values: dict[str, Any] = {}
    for name, each in parts.items():
        values[f"plateau_{part_key(name)}"] = plateaus[name], "%"
        values[f"share_gain_{part_key(name)}"] = [curve[-1] - curve[0] for curve in each], "points"
    latest = [plateaus[name] for name in parts if name != "dense"]
    values["plateau_all"] = [max(one) for one in zip(*latest, strict=True)], "%"
    return values | {"shares": shares}
