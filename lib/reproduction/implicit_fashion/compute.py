"""What the notebook of the trained classifiers records: accuracies, losses, costs, and equilibria of test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.equilibrium.result import EquilibriumResult
from reproduction.classifiers import fashion
from reproduction.core.recipe import History
from reproduction.core.scores import count_parameters, predict

Trained = Mapping[str, list[tuple[nn.Module, History]]]  # classifier -> model and history, one a seed


def trained(images: Dataset, seeds: Sequence[int], profile: str) -> Trained:
    """All classifiers, in evaluation mode, trained or read from the cache."""
    runs: dict[str, list[tuple[nn.Module, History]]] = {}
    for seed in seeds:
        for name, (model, history) in fashion.trained(images, seed, profile, controls=True).items():
            runs.setdefault(name, []).append((model.eval(), history))
    return runs


def scores(runs: Trained, images: Dataset) -> dict[str, Any]:
    """`accuracy_NAME`, `train_loss_NAME` and `cpu_seconds_NAME`, one a seed, `parameters_NAME`, and CPU seconds of
    all trainings."""
    u_test, labels = images.test[0]
    found: dict[str, Any] = {}
    seconds = [sum(history.cpu_seconds) for made in runs.values() for _, history in made]
    for name, made in runs.items():
        answers = [predict(model, u_test).argmax(1).numpy() for model, _ in made]
        found[f"accuracy_{name}"] = [float((answer == labels).mean()) for answer in answers]
        found[f"train_loss_{name}"] = [history.loss[-1] for _, history in made]
        found[f"parameters_{name}"] = count_parameters(made[0][0])
        found[f"cpu_seconds_{name}"] = [sum(history.cpu_seconds) for _, history in made], "s"
    return found | {"training_cpu_seconds": (sum(seconds), "s")}


def curves(runs: Trained) -> dict[str, Any]:
    """`NAME/accuracy` on the test set and `NAME/loss` after each epoch, (seeds, epochs)."""
    found = {}
    for name, made in runs.items():
        found[f"{name}/accuracy"] = [history.evaluation for _, history in made]
        found[f"{name}/loss"] = [history.loss for _, history in made]
    return found


def equilibria(runs: Trained, images: Dataset) -> EquilibriumResult:
    """Equilibria of the test images, first seed."""
    return runs["implicit"][0][0].equilibrium(torch.from_numpy(images.test[0][0]))


def solver_facts(runs: Trained, solved: EquilibriumResult) -> dict[str, Any]:
    """Largest row norm of each implicit classifier, and how the equilibria were solved."""
    return {
        "row_norm": [float(model.A.detach().abs().sum(1).max()) for model, _ in runs["implicit"]],
        "residual_max": float(solved.residual.max()),
        "all_converged": bool(solved.converged.all()),
        "iterations_test_mean": float(solved.n_iter.double().mean()),
    }
