"""State-driven models of a classifier under attack: accuracy before and after FGSM against what is left of the
parameters.

Accuracies and sparsities are in per cent. Every model is attacked on the same images with the same masks, through its
own gradient, so that differences between models are paired.

Source: SIM paper, section 4.2, Tables 2 and 3, Figure 4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.model import ImplicitModel
from implicit_models.sim.fit import fit_sim
from implicit_models.sim.network.states import States, states
from implicit_models.sim.problem import L1, LeastSquares, Perspective, Ridge
from implicit_models.sim.result import SIMResult
from reproduction.core.counts import parameters_shown
from reproduction.core.fgsm import EPSILONS, fgsm_accuracy
from reproduction.core.pruning import magnitude_prune, nonzeros, retrain, sparsity
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy_of
from reproduction.core.sparse_states import lasso_sweep, radius_sweep
from reproduction.core.sparsity import part_of
from reproduction.core.train import train

Scores = dict[str, float]
# Samples -> what the tables say of the fit; kappa is .99 throughout.
TABLE_2: dict[int, dict[str, Any]] = {
    m: {"objective": Perspective(alpha=0.01), "match": LeastSquares(0.1, 0.1)} for m in (700, 500, 400, 300, 200, 100)
}
TABLE_3: dict[int, dict[str, Any]] = {
    m: {"objective": L1(beta), "match": LeastSquares(lam, lam)}
    for m, lam, beta in (
        (600, 0.1, 0.001),
        (1000, 0.01, 0.001),
        (500, 0.01, 0.01),
        (2000, 0.01, 0.01),
        (900, 0.01, 0.001),
        (400, 0.01, 0.001),
    )
}
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "attacked": 500,
        "table_2": (300, 100),
        "table_3": (500, 400),
        "exact_samples": 12,
        "weights": (0.5, 1.5, 5.0),
        "radius_scales": ("theorem",),
    },
    "full": {
        "seeds": (0, 1, 2),
        "attacked": 3000,
        "table_2": tuple(TABLE_2),
        "table_3": tuple(TABLE_3),
        "exact_samples": 40,
        "weights": (0.05, 0.2, 0.5, 1.0, 2.0, 5.0),
        "radius_scales": ("theorem", "uniform"),
    },
}


def dense_model(fit: SIMResult) -> ImplicitModel:
    """The fitted model with dense matrices; an equilibrium that is not found is an error."""
    matrices = (M.toarray() for M in (fit.A, fit.B, fit.C, fit.D))
    return ImplicitModel.from_matrices(
        *matrices, fit.states.activation, b=fit.b, d=fit.d, on_failure="raise", max_iter=5000, tol=1e-9
    )


def scores(model: nn.Module, kept: int, network: nn.Module, images: Dataset, attacked: int, *, seed: int = 0) -> Scores:
    """Non-zeros, the papers' sparsity, clean accuracy, and accuracy under the attack and under random signs of its
    size.

    Args:
        model: u -> logits.
        kept: its non-zero parameters.
        network: the dense network that sparsity refers to.
        images: the first `attacked` test images are used for everything.
        seed: of the masks.

    Returns:
        "nnz", "sparsity", "clean", "at_0.004", "at_0.008", and "random": under random signs of the larger size.
    """
    u, labels = (part[:attacked] for part in images.test[0])
    found = {"nnz": float(kept), "sparsity": sparsity(kept, network), "clean": 100 * accuracy_of(model, u, labels)}
    for epsilon in EPSILONS:
        found[f"at_{epsilon:g}"] = 100 * fgsm_accuracy(model, u, labels, epsilon=epsilon, seed=seed)
    found["random"] = 100 * fgsm_accuracy(model, u, labels, epsilon=max(EPSILONS), direction="random", seed=seed)
    return found


@parameters_shown()
def sim_scores(found: States, network: nn.Module, images: Dataset, attacked: int, **options: Any) -> Scores:
    """`scores` of a fit with the options of `fit_sim`, with the median mismatch of its rows and what went wrong.

    Returns:
        `scores` and "mismatch", "row_norm" (largest, in the units of the fit), "failed" rows, "own" (share of the
        states that feed themselves, per cent).
    """
    fit = fit_sim(found, **options)
    out = scores(dense_model(fit), fit.nnz, network, images, attacked)
    own = 100 * float(np.count_nonzero(fit.A.diagonal())) / found.n_states
    more = {
        "mismatch": float(np.median(fit.matching)),
        "row_norm": float(fit.row_norms.max()),
        "failed": float(len(fit.failed_rows)),
    }
    return out | more | {"own": own}


def samples_of(network: nn.Module, images: Dataset, m: int, seed: int) -> States:
    """States of the network on m training images, drawn evenly; the larger m of one seed contains the smaller."""
    part = part_of(images, m / len(images.y_train), seed)
    return states(network.eval(), images.u_train[part])


def weight_sweep(
    found: States,
    network: nn.Module,
    images: Dataset,
    attacked: int,
    weights: Sequence[float],
    objective: str,
    *,
    knee: float = 1.0,
    **options: Any,
) -> dict[str, list[float]]:
    """`sim_scores` over weights w of the l1 part in row units: w ||a||_1, its perspective form, or w/2 ||a||^2 ("l2").

    Mathematics: lambda1 = lambda2 = 1/2, so that the paper's weights are the rows' own; beta = w ("l1"), alpha = w / (2
    knee) and eta = w knee / 2 ("perspective": 2 sqrt(alpha eta) = w with sqrt(eta / alpha) = knee), alpha = w / 2
    ("l2").
    """
    penalty = {
        "l1": L1,
        "perspective": lambda w: Perspective(w / (2 * knee), w * knee / 2),
        "l2": lambda w: Ridge(w / 2),
    }[objective]
    own = {"match": LeastSquares(0.5, 0.5), **options}
    return gathered([sim_scores(found, network, images, attacked, objective=penalty(w), **own) for w in weights])


def gathered(points: Sequence[Scores]) -> dict[str, list[float]]:
    """One list a quantity, in the order of the points."""
    return {name: [point[name] for point in points] for name in points[0]} if points else {}


def control_sweeps(
    found: States,
    network: nn.Module,
    images: Dataset,
    attacked: int,
    sparsities: Sequence[float],
    shares: Sequence[float],
    *,
    build,
    recipe: Recipe,
    seed: int,
    samples: int,
) -> dict[str, dict[str, list[float]]]:
    """What the fits are compared with, on the same images.

    Args:
        found: states of the samples that the fits use.
        sparsities: to which the network is pruned by magnitude, per cent.
        shares: penalties of the lasso of each state on the layer below, as `lasso_sweep`.
        build: an untrained network, for "dense".
        recipe, seed: of training; retraining uses the fits' samples only.
        samples: how many they are.

    Returns:
        "teacher"; "magnitude" and "magnitude_retrained"; "lasso"; "dense", trained on the samples alone for as many
        steps as the teacher.
    """
    part = part_of(images, samples / len(images.y_train), seed)
    u, y = images.u_train[part], images.y_train[part]
    steps = dataclasses.replace(recipe, epochs=max(1, round(recipe.epochs * len(images.y_train) / len(part))))

    def score(model: nn.Module, kept: int | None = None) -> Scores:
        return scores(model, nonzeros(model) if kept is None else kept, network, images, attacked)

    biases = sum(parameter.numel() for parameter in network.parameters() if parameter.ndim < 2)
    pruned, again = [], []
    for target in sparsities:
        sparse, masks = magnitude_prune(network, round((1 - target / 100) * nonzeros(network)) - biases)
        pruned.append(score(sparse))
        short = dataclasses.replace(recipe, epochs=max(1, steps.epochs // 10))
        again.append(score(retrain(sparse, masks, u, y, recipe=short, seed=seed)[0]))
    dense = build()
    train(dense, u, y, recipe=steps, seed=seed, progress=False)
    lasso = [score(found_model.model, found_model.nnz) for found_model in lasso_sweep(found, shares).values()]
    points = {
        "teacher": [score(network)],
        "magnitude": pruned,
        "magnitude_retrained": again,
        "lasso": lasso,
        "dense": [score(dense.eval())],
    }
    return {name: gathered(each) for name, each in points.items()}


def radius_scores(
    found: States, network: nn.Module, images: Dataset, attacked: int, kappa: float, **options: Any
) -> Scores:
    """`scores` of the rows in a ball without penalty, `radius_sweep` at one radius: the MS report's fit."""
    model = radius_sweep(found, [kappa], **options)[kappa]
    return scores(model.model, model.nnz, network, images, attacked)


def mean_above(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], key: str, points: int = 41
) -> float:
    """Mean of one[key] less other[key] at equal sparsity, over the sparsities that both sweeps reach; NaN where they do
    not meet."""
    low = max(min(curve["sparsity"]) for curve in (one, other))
    high = min(max(curve["sparsity"]) for curve in (one, other))
    if not low < high:
        return float("nan")
    at, values = np.linspace(low, high, points), []
    for curve in (one, other):
        order = np.argsort(curve["sparsity"])
        values.append(np.interp(at, np.asarray(curve["sparsity"])[order], np.asarray(curve[key])[order]))
    return float(np.mean(values[0] - values[1]))
