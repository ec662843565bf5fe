"""Sparsity against accuracy: a network's sparse implicit models beside what is left of it under the usual pruning.

Every function returns plain lists and numbers, one entry a setting, so that a notebook records and draws them as they
are. Accuracies, drops and sparsities are in per cent and points; a drop is the network's test accuracy less the
model's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.fit import fit_sim
from implicit_models.sim.network.states import States, states
from implicit_models.sim.problem import L1, Perspective, Ridge
from reproduction.core.counts import parameters_shown
from reproduction.core.pruning import magnitude_prune, nonzeros, retrain, sparsity
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy_of, share_right
from reproduction.core.sparse_states import SparseModel, lasso_sweep, radius_sweep, refit_head
from reproduction.core.train import train

Curve = dict[str, list[float]]


def test_accuracy(model: nn.Module, posts: Dataset) -> float:
    """Test accuracy in per cent."""
    return 100 * accuracy_of(model, *posts.test[0])


test_accuracy.__test__ = False  # not a test, whatever its name


def part_of(posts: Dataset, share: float, seed: int) -> np.ndarray:
    """Indices of a share of the training set, drawn evenly; the larger share of one seed contains the smaller."""
    from data_gen.core.streams import stream

    order = stream(seed, "share of the training set").permutation(len(posts.y_train))
    return order[: max(1, round(share * len(order)))]


def radius_curve(network: nn.Module, posts: Dataset, kappas: Sequence[float], **options: Any) -> tuple[Curve, States]:
    """Sparse models of a sweep of radii: sparsity, drops, counts, and what explains the drops.

    "drop_head" is the drop after refitting the read-out to the model's own equilibria; "drop_forced" that of the rows
    fed with the network's states instead of the model's own, as they were fitted; "match_1", ... the median R^2 of each
    layer's rows; "bypass" the share of the non-zeros of the last layer's rows that stand on inputs instead of the layer
    below.

    Args:
        network, posts: the teacher and its data; all training samples are used.
        kappas: radii.
        options: of `radius_sweep`.

    Returns:
        A curve, one entry a radius, and the states.
    """
    found = states(network.eval(), posts.u_train)
    u, labels = posts.test[0]
    layers = [f"match_{depth}" for depth in range(1, len(found.blocks) + 1)]
    names = "sparsity", "drop", "drop_head", "drop_forced", "nnz", "own", "match", "bypass", "failed", *layers
    base, curve = test_accuracy(network, posts), empty_curve(*names)
    sweep, of_test = radius_sweep(found, kappas, **options), states(network, u)
    for kappa in kappas:
        found_model = sweep[kappa]
        outputs = refit_head(found_model.model, posts.u_train, found.Y, u)
        append(curve, network, found_model, base - test_accuracy(found_model.model, posts))
        curve["drop_head"].append(base - 100 * share_right(outputs, labels))
        curve["own"].append(100 * found_model.own_nnz / found.n_states)
        curve["match"].append(float(np.median(found_model.matching)))
        curve["failed"].append(found_model.failed)
        A, B, C, b, d = (getattr(found_model.model, name).detach().numpy() for name in ("A", "B", "C", "b", "d"))
        forced = np.maximum(of_test.X @ A.T + u @ B.T + b, 0) @ C.T + d
        curve["drop_forced"].append(base - 100 * share_right(forced, labels))
        for name, block in zip(reversed(layers), found.blocks, strict=True):
            curve[name].append(float(np.median(found_model.matching[block.states])))
        last = found.blocks[0].states
        inputs, below = np.count_nonzero(B[last]), np.count_nonzero(A[last])
        curve["bypass"].append(100 * inputs / max(1, inputs + below))
    return curve, found


def empty_curve(*names: str) -> Curve:
    return {name: [] for name in names}


def append(curve: Curve, network: nn.Module, model: SparseModel, drop: float) -> None:
    curve["sparsity"].append(sparsity(model.nnz, network))
    curve["drop"].append(drop)
    if "nnz" in curve:
        curve["nnz"].append(model.nnz)


def magnitude_curves(
    network: nn.Module, posts: Dataset, sparsities: Sequence[float], *, recipe: Recipe, seed: int
) -> dict[str, Curve]:
    """Magnitude pruning to given sparsities: global, per layer, and both followed by retraining of what is left.

    A sparsity below zero, or one that the biases alone exceed, has no pruned network and is left out.
    """
    base = test_accuracy(network, posts)
    biases = sum(parameter.numel() for parameter in network.parameters() if parameter.ndim < 2)
    curves = {
        name: empty_curve("sparsity", "drop")
        for name in ("magnitude", "magnitude_layer", "magnitude_retrained", "magnitude_layer_retrained")
    }
    for target in sparsities:
        keep = round((1 - target / 100) * nonzeros(network)) - biases
        if target < 0 or keep < 1:
            continue
        for scope, name in (("global", "magnitude"), ("layer", "magnitude_layer")):
            pruned, masks = magnitude_prune(network, keep, scope=scope)
            again, _ = retrain(pruned, masks, posts.u_train, posts.y_train, recipe=recipe, seed=seed)
            for key, model in ((name, pruned), (f"{name}_retrained", again)):
                curves[key]["sparsity"].append(sparsity(nonzeros(model), network))
                curves[key]["drop"].append(base - test_accuracy(model, posts))
    return curves


def lasso_curve(found: States, network: nn.Module, posts: Dataset, shares: Sequence[float]) -> Curve:
    """Lasso of every state on the layer below, without a ball; `shares` as in `lasso_sweep`."""
    base, curve = test_accuracy(network, posts), empty_curve("sparsity", "drop")
    for model in lasso_sweep(found, shares).values():
        append(curve, network, model, base - test_accuracy(model.model, posts))
    return curve


def share_curves(
    network: nn.Module,
    posts: Dataset,
    shares: Sequence[float],
    kappas: Sequence[float],
    *,
    build,
    recipe: Recipe,
    seed: int,
    **options: Any,
) -> dict[str, list[float]]:
    """Test accuracy against the share of the training data, of sparse models and of a dense network trained on that
    share.

    Args:
        build: makes the untrained dense network, the control.
        recipe, seed: of its training on all samples; on a share it takes as many steps. The seed draws the shares too.
        options: of `radius_sweep`.

    Returns:
        "kappa" (as text) -> accuracies, one a share, and "dense" -> those of the retrained network.
    """
    curves: dict[str, list[float]] = {f"{kappa:g}": [] for kappa in kappas} | {"dense": []}
    whole = states(network.eval(), posts.u_train)
    for share in shares:
        part = part_of(posts, share, seed)
        sweep = radius_sweep(whole.take(part), kappas, **options)
        for kappa in kappas:
            curves[f"{kappa:g}"].append(test_accuracy(sweep[kappa].model, posts))
        dense = build()
        steps = dataclasses.replace(recipe, epochs=round(recipe.epochs * len(posts.y_train) / len(part)))
        train(dense, posts.u_train[part], posts.y_train[part], recipe=steps, seed=seed, progress=False)
        curves["dense"].append(test_accuracy(dense.eval(), posts))
    return curves


@parameters_shown()
def objective_curve(
    found: States,
    network: nn.Module,
    posts: Dataset,
    weights: Sequence[float],
    objective: str,
    *,
    knee: float = 1.0,
    **options: Any,
) -> Curve:
    """SIM fits over weights of one objective: sparsity, drop, non-zeros of A, B, C, D, failed rows, seconds.

    The weight w of an objective is that of its l1 part: f = 2 w ||a||_1 ("l1"); alpha s + eta t with 2 sqrt(alpha eta)
        = 2 w and
    sqrt(eta / alpha) = knee ("perspective"); w ||a||^2 ("l2", which (5) and (10) of the SIM paper amount to).

    Args:
        found: states of the network, all its data or a part.
        network, posts: for the accuracy.
        weights: w, any order.
        objective: "l1", "perspective" or "l2".
        knee: of the perspective penalty.
        options: of `fit_sim`.
    """
    base = test_accuracy(network, posts)
    u, labels = posts.test[0]
    curve = empty_curve("sparsity", "drop", "A", "B", "C", "D", "failed", "seconds")
    for weight in weights:
        penalty = {"l1": L1(2 * weight), "l2": Ridge(weight), "perspective": Perspective(weight / knee, weight * knee)}[
            objective
        ]
        fit = fit_sim(found, objective=penalty, **options)
        curve["sparsity"].append(sparsity(fit.nnz, network))
        curve["drop"].append(base - 100 * share_right(fit.predict(u), labels))
        for name in "ABCD":
            curve[name].append(int(getattr(fit, name).nnz))
        curve["failed"].append(len(fit.failed_rows))
        curve["seconds"].append(fit.timing["rows"])
    return curve


def mean_difference(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], points: int = 41
) -> float:
    """Mean drop of `one` less that of `other` at equal sparsity, over the range of sparsities that both curves reach.

    Both are interpolated linearly; NaN where the ranges do not meet.
    """
    ranges = [(min(curve["sparsity"]), max(curve["sparsity"])) for curve in (one, other)]
    low, high = max(r[0] for r in ranges), min(r[1] for r in ranges)
    if not low < high:
        return float("nan")
    at = np.linspace(low, high, points)
    values = []
    for curve in (one, other):
        order = np.argsort(curve["sparsity"])
        values.append(np.interp(at, np.asarray(curve["sparsity"])[order], np.asarray(curve["drop"])[order]))
    return float(np.mean(values[0] - values[1]))


def best_sparse(curve: Mapping[str, Sequence[float]]) -> float:
    """Largest sparsity above zero at which the model is more accurate than the network (drop below zero); 0 if there is
    none."""
    fine = [s for s, d in zip(curve["sparsity"], curve["drop"], strict=True) if d < 0 < s]
    return max(fine, default=0.0)
