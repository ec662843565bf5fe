"""Studies of the rolling argmax: accuracy at the last step, for every model, seed and scale."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from data_gen.dataset import Dataset
from reproduction.evaluation import count_parameters, predict
from reproduction.recipe import History, Recipe
from reproduction.study import scaled
from reproduction.trained import train_or_load
from reproduction.training import train

Models = Mapping[str, tuple[Callable[[], nn.Module], Recipe]]


@dataclass
class AccuracyStudy:
    """What a study measured; the outer key is the model's name, lists run over the seeds that trained it.

    Args:
        accuracies: share of sequences whose last label is right, (seeds, scales).
        train_accuracies: the same on the training set after training.
        histories: of the trainings.
        parameters: number of trainable parameters.
        models: the trained models.
        seeds: of each model.
        scales: keys of the test sets, in order.
    """

    accuracies: dict[str, list[list[float]]] = field(default_factory=dict)
    train_accuracies: dict[str, list[float]] = field(default_factory=dict)
    histories: dict[str, list[History]] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    models: dict[str, list[nn.Module]] = field(default_factory=dict)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    scales: list[float] = field(default_factory=list)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all trainings, those read from the cache included."""
        return sum(sum(history.cpu_seconds) for runs in self.histories.values() for history in runs)

    def at(self, name: str, scale: float) -> list[float]:
        """Accuracies of a model at one scale, one a seed.

        Raises:
            KeyError: when the scale was not tested, naming those that were.
        """
        if scale not in self.scales:
            raise KeyError(f"scale {scale!r} was not tested, only {self.scales}")
        return [row[self.scales.index(scale)] for row in self.accuracies[name]]


def last_step_accuracy(scores: Float[Tensor, "N C"] | Float[Tensor, "N C T"], labels: Int[np.ndarray, "N"] | Int[np.ndarray, "N T"]) -> float:
    """Share of sequences whose largest score at the last step is the last label's.

    Args:
        scores: (N, C) of the last step, or (N, C, T) of every step.
        labels: (N,) or (N, T).
    """
    labels = torch.as_tensor(labels)
    last, truth = scores[..., -1] if scores.ndim == 3 else scores, labels[:, -1] if labels.ndim == 2 else labels
    return (last.argmax(dim=1) == truth).double().mean().item()


def last_step_accuracies(model: nn.Module, test: Mapping[Hashable, tuple[Shaped[np.ndarray, "N ..."], np.ndarray]]) -> dict[Hashable, float]:
    """`last_step_accuracy` of a model on each test set."""
    return {scale: last_step_accuracy(predict(model, u), labels) for scale, (u, labels) in test.items()}


def run_accuracy_study(
    name: str,
    data_of: Callable[[str, int], Dataset],
    models_of: Callable[[int], Models],
    seeds: Sequence[int],
    *,
    epochs_scale: float = 1.0,
    key_module: str | None = None,
    evaluate_epochs: Sequence[str] = (),
) -> AccuracyStudy:
    """Train and score every model for every seed.

    Args:
        name: of the study, for progress bars and cache files.
        data_of: (model's name, seed) -> data set with class labels.
        models_of: seed -> name -> (constructor, recipe).
        seeds: one run each.
        epochs_scale: multiplies every recipe's epochs.
        key_module: module that defines the models; with it, trained models are kept in the content-keyed cache.
        evaluate_epochs: models that are scored on the test sets after each epoch too (`History.evaluation`).
    """
    study = AccuracyStudy()
    for seed in seeds:
        for model_name, (build, recipe) in models_of(seed).items():
            data, recipe = data_of(model_name, seed), scaled(recipe, epochs_scale)
            study.scales = list(data.test)
            label, after = f"{name}-{model_name}-{seed}", None
            if model_name in evaluate_epochs:
                after = lambda model, test=data.test: list(last_step_accuracies(model, test).values())  # noqa: E731
            if key_module is None:
                model = build()
                history = train(model, data.u_train, data.y_train, recipe=recipe, seed=seed, evaluate=after, label=label)
            else:
                model, history = train_or_load(
                    label, build=build, data=data, recipe=recipe, seed=seed, key_modules=[key_module], evaluate=after,
                    parameters={"evaluate_epochs": after is not None},
                )
            model.eval()
            study.accuracies.setdefault(model_name, []).append(list(last_step_accuracies(model, data.test).values()))
            study.train_accuracies.setdefault(model_name, []).append(last_step_accuracy(predict(model, data.u_train), data.y_train))
            study.histories.setdefault(model_name, []).append(history)
            study.models.setdefault(model_name, []).append(model)
            study.seeds.setdefault(model_name, []).append(seed)
            study.parameters[model_name] = count_parameters(model)
    return study
