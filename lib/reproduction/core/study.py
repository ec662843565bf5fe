"""A study: every model of a task, trained for every seed and evaluated on every shift."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from data_gen.core.dataset import Dataset
from reproduction.core.cache import train_or_load
from reproduction.core.recipe import History, Recipe
from reproduction.core.scores import count_parameters, evaluate
from reproduction.core.train import train

Models = Mapping[str, tuple[Callable[[], nn.Module], Recipe]]


@dataclass
class Study:
    """What a study measured; the outer key is the model's name, lists run over the seeds.

    Args:
        seeds: seeds of data, initial weights and shuffling.
        errors: mean squared test error, (seeds, shifts).
        train_errors: mean squared error on the training set after training.
        histories: of the trainings.
        parameters: number of trainable parameters.
        models: the trained models.
        shifts: keys of the test sets, in order.
    """

    seeds: Sequence[int]
    errors: dict[str, list[list[float]]] = field(default_factory=dict)
    train_errors: dict[str, list[float]] = field(default_factory=dict)
    histories: dict[str, list[History]] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    models: dict[str, list[nn.Module]] = field(default_factory=dict)
    shifts: list[Any] = field(default_factory=list)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all trainings, those read from the cache included."""
        return sum(sum(history.cpu_seconds) for runs in self.histories.values() for history in runs)

    def at(self, name: str, shift: Any) -> list[float]:
        """Test errors of a model at one shift, one a seed.

        Raises:
            KeyError: when the shift was not tested, naming those that were.
        """
        if shift not in self.shifts:
            raise KeyError(f"shift {shift!r} was not tested, only {self.shifts}")
        return [row[self.shifts.index(shift)] for row in self.errors[name]]


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> list[float]:
    """Seed by seed, numerator / denominator; infinite where only the denominator is 0, NaN where both are 0 or
    infinite."""
    pairs = zip(numerator, denominator, strict=True)
    return [a / b if b else (math.inf if a > 0 else math.nan) for a, b in pairs]


def loglog_slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of log y against log x by least squares, and the fit's R^2; NaN where a value is not positive and
    finite."""
    if not all(0 < value < math.inf for value in (*x, *y)):
        return math.nan, math.nan
    a, b = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    variance = sum((value - mean_a) ** 2 for value in a)
    slope = sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b)) / variance
    total = sum((q - mean_b) ** 2 for q in b)
    residual = sum((q - mean_b - slope * (p - mean_a)) ** 2 for p, q in zip(a, b))
    return slope, 1 - residual / total if total else math.nan


def scaled(recipe: Recipe, epochs_scale: float) -> Recipe:
    """The recipe with its epochs multiplied, at least one.

    Raises:
        ValueError: when the factor is not positive.
    """
    if not epochs_scale > 0:
        raise ValueError(f"epochs_scale: {epochs_scale} is not positive")
    return dataclasses.replace(recipe, epochs=max(1, round(recipe.epochs * epochs_scale)))


def fitted(
    label: str,
    build: Callable[[], nn.Module],
    data: Dataset,
    recipe: Recipe,
    seed: int,
    *,
    key_module: str | None,
    parameters: Mapping[str, Any],
    evaluate: Callable[[nn.Module], Any] | None = None,
) -> tuple[nn.Module, History]:
    """A trained model in evaluation mode, and its history.

    Args:
        label: of the progress bar and of the cache file.
        key_module, parameters: with a module the training is kept in the content-keyed cache, see `train_or_load`.
        build, data, recipe, seed, evaluate: see `train`.
    """
    if key_module is None:
        model = build()
        history = train(model, data.u_train, data.y_train, recipe=recipe, seed=seed, evaluate=evaluate, label=label)
    else:
        model, history = train_or_load(
            label,
            build=build,
            data=data,
            recipe=recipe,
            seed=seed,
            key_modules=[key_module],
            evaluate=evaluate,
            parameters=parameters,
        )
    return model.eval(), history


def run_study(
    name: str,
    data_of: Callable[[int], Dataset],
    models_of: Callable[[int], Models],
    seeds: Sequence[int],
    *,
    epochs_scale: float = 1.0,
    key_module: str | None = None,
    evaluate_epochs: bool = False,
) -> Study:
    """Train and evaluate every model for every seed.

    Args:
        name: of the study, for progress bars and cache files.
        data_of: seed -> data set.
        models_of: seed -> name -> (constructor, recipe).
        seeds: one run each.
        epochs_scale: multiplies every recipe's epochs.
        key_module: module that defines the models. With it, trained models are kept in the content-keyed cache, so
            that an interrupted study resumes; without it everything is trained anew.
        evaluate_epochs: evaluate the test sets after each epoch too (`History.evaluation`).

    Returns:
        Study.

    Raises:
        FloatingPointError: a training diverged whose recipe does not allow it.
    """
    study = Study(list(seeds))
    for seed in seeds:
        data = data_of(seed)
        study.shifts = list(data.test)
        after = (lambda model, test=data.test: list(evaluate(model, test).values())) if evaluate_epochs else None
        for model_name, (build, recipe) in models_of(seed).items():
            label, recipe = f"{name}-{model_name}-{seed}", scaled(recipe, epochs_scale)
            model, history = fitted(
                label,
                build,
                data,
                recipe,
                seed,
                key_module=key_module,
                parameters={"evaluate_epochs": evaluate_epochs},
                evaluate=after,
            )
            errors = list(evaluate(model, data.test).values())
            trained = evaluate(model, {"train": (data.u_train, data.y_train)})["train"]
            study.errors.setdefault(model_name, []).append(errors)
            study.train_errors.setdefault(model_name, []).append(trained)
            study.histories.setdefault(model_name, []).append(history)
            study.models.setdefault(model_name, []).append(model)
            study.parameters[model_name] = count_parameters(model)
    return study


def over_seeds(prefix: str, facts: Callable[[int], Mapping[str, Any]], seeds: Sequence[int]) -> dict[str, list[Any]]:
    """`PREFIX_FACT` of each fact that a function of the seed returns, one value a seed."""
    found = [facts(seed) for seed in seeds]
    return {f"{prefix}_{key}": [one[key] for one in found] for key in found[0]}
