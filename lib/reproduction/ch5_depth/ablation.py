"""The four mathematical tasks in one form, with the variants of the implicit model that depth and feedback are judged
by.

Sizes are those of Decugis et al. (2024), Table 4. Data, recipe and seeds are the same for every variant, so that two
variants differ in one thing. Differences between variants are small: ten seeds of batches of 500 tell more about them
than a few of batches of 100, whose errors are lower for every variant alike.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.synthetic.functions import addition, subtraction
from data_gen.synthetic.rolling import rolling_argmax, rolling_average
from implicit_models.model import ImplicitModel
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import History, Recipe
from reproduction.core.scores import accuracy, evaluate
from reproduction.core.study import fitted, scaled
from reproduction.models.linear import Linear

KAPPA = 0.95
LINEAR_LR = 0.05


@dataclass(frozen=True)
class Task:
    """A task that a vector-valued implicit model learns.

    Args:
        label: for titles.
        p, q, n: sizes of the papers' implicit model.
        loss: "mse" or "cross_entropy"; the measure on test sets is the mean squared error or the accuracy.
        axis: name of the keys of the test sets, t of U(-t/2, t/2) or U(0, t), s of N(3 + s, 1).
        train: key of the training distribution.
    """

    label: str
    p: int
    q: int
    n: int
    loss: str
    axis: str
    train: float

    @property
    def measure(self) -> str:
        return "test MSE" if self.loss == "mse" else "accuracy"


TASKS: dict[str, Task] = {
    "addition": Task("addition", 50, 1, 20, "mse", "t", 2.0),
    "subtraction": Task("subtraction", 50, 1, 20, "mse", "t", 2.0),
    "argmax": Task("rolling argmax, last step", 10, 10, 36, "cross_entropy", "t", 1.0),
    "average": Task("rolling average", 10, 10, 32, "mse", "s", 0.0),
}

VARIANTS = {
    "full": "implicit, A full",
    "kappa_half": "implicit, kappa = 0.5",
    "strict_upper": "A strictly triangular",
    "strict_upper_free": "A strictly triangular, no norm constraint",
    "strict_upper_matched": "A strictly triangular, as many weights as full A",
    "linear": "linear",
}

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "n_train": 2_000,
        "n_test": 300,
        "epochs": 25,
        "batch_size": 200,
        "failing_epochs": 4,
        "timing_epochs": 3,
        "t": (2.0, 10.0, 100.0, 1e3, 1e5),
        "scales": (1.0, 10.0, 100.0, 1e3, 1e5),
        "shifts": (0.0, 10.0, 50.0, 100.0),
    },
    "full": {
        "seeds": tuple(range(10)),
        "n_train": 10_000,
        "n_test": 3_000,
        "epochs": 60,
        "batch_size": 500,
        "failing_epochs": 30,
        "timing_epochs": 6,
        "t": (2.0, 10.0, 100.0, 1e3, 1e4, 1e5),
        "scales": (1.0, 10.0, 100.0, 1e3, 1e4, 1e5),
        "shifts": (0.0, 10.0, 25.0, 50.0, 75.0, 100.0),
    },
}


class FreeTriangular(ImplicitModel):
    """Strictly triangular A without the norm constraint: well-posed whatever its entries are."""

    def project_(self) -> FreeTriangular:
        with torch.no_grad():
            self.A.triu_(1)
        return self


settings = settings_of(PROFILES)  # seeds, sizes, test keys and epochs of a profile


def task_of(name: str) -> Task:
    """A task by name.

    Raises:
        ValueError: unknown name.
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {name!r}")
    return TASKS[name]


def data(name: str, seed: int, profile: str = "full", keys: Sequence[float] | None = None) -> Dataset:
    """Data set of a task and seed; `keys` replaces the profile's test keys.

    For argmax the targets are the classes at the last step, as the papers evaluate it.
    """
    task_of(name)
    chosen = settings(profile)
    n_train, n_test = chosen["n_train"], chosen["n_test"]
    if name in ("addition", "subtraction"):
        generate = addition if name == "addition" else subtraction
        return generate(n_train, n_test, TASKS[name].p, chosen["t"] if keys is None else keys, seed=seed)
    if name == "average":
        return rolling_average(n_train, n_test, shifts=chosen["shifts"] if keys is None else keys, seed=seed)
    whole = rolling_argmax(n_train, n_test, scales=chosen["scales"] if keys is None else keys, seed=seed)
    last = {key: (u, y[:, -1]) for key, (u, y) in whole.test.items()}
    return Dataset(whole.u_train, whole.y_train[:, -1], last, whole.meta)


def weights(n: int, p: int, q: int, feedback: str) -> int:
    """Weights that act: n^2 of A, or n (n - 1) / 2 where it is strictly triangular, and those of B, C, D."""
    return (n * n if feedback == "full" else n * (n - 1) // 2) + n * p + q * n + q * p


@functools.cache
def matched_states(n: int, p: int, q: int) -> int:
    """States of the strictly triangular model whose number of weights is nearest to that of the full one with n
    states."""
    wanted = weights(n, p, q, "full")
    return min(range(n, 2 * n + 1), key=lambda m: abs(weights(m, p, q, "strict_upper") - wanted))


def build(name: str, variant: str, seed: int) -> nn.Module:
    """Untrained model of a task.

    Args:
        name: of the task.
        variant: key of `VARIANTS`.
        seed: of the initial weights.

    Raises:
        ValueError: unknown task or variant.
    """
    task = task_of(name)
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}; got {variant!r}")
    sizes = (task.p, task.q)
    match variant:
        case "linear":
            return Linear(*sizes, seed=seed)
        case "strict_upper_free":
            return FreeTriangular(*sizes, task.n, feedback="strict_upper", kappa=KAPPA, seed=seed)
        case "strict_upper_matched":
            return ImplicitModel(
                *sizes, matched_states(task.n, *sizes), feedback="strict_upper", kappa=KAPPA, seed=seed
            )
        case "strict_upper":
            return ImplicitModel(*sizes, task.n, feedback="strict_upper", kappa=KAPPA, seed=seed)
        case _:
            return ImplicitModel(*sizes, task.n, kappa=0.5 if variant == "kappa_half" else KAPPA, seed=seed)


def recipe(name: str, variant: str, profile: str) -> Recipe:
    """Training of a task: the same for every variant, but for the linear map's larger first step."""
    chosen = settings(profile)
    lr = LINEAR_LR if variant == "linear" else 0.01
    return Recipe(
        epochs=chosen["epochs"], batch_size=chosen["batch_size"], lr=lr, loss=task_of(name).loss, on_nan="stop"
    )


@dataclass
class Run:
    """A trained model with its history and its measure on every test set, in the order of `keys`."""

    model: nn.Module
    history: History
    keys: list[Hashable]
    measured: list[float]
    trained: float

    def at(self, key: Hashable) -> float:
        """Measure on one test set.

        Raises:
            KeyError: when it was not tested.
        """
        if key not in self.keys:
            raise KeyError(f"{key!r} was not tested, only {self.keys}")
        return self.measured[self.keys.index(key)]


def measure(model: nn.Module, name: str, test: Mapping[Hashable, tuple]) -> list[float]:
    """Mean squared error, or accuracy for argmax, on each test set."""
    return list((evaluate if task_of(name).loss == "mse" else accuracy)(model, test).values())


def run(
    name: str,
    variant: str,
    seed: int,
    profile: str,
    *,
    epochs_scale: float = 1.0,
    keys: Sequence[float] | None = None,
    after: tuple[str, Callable[[nn.Module], Any]] | None = None,
    build_model: Callable[[], nn.Module] | None = None,
    epochs: int | None = None,
    dtype: str = "float32",
    dataset: Dataset | None = None,
    cached: bool = False,
) -> Run:
    """Train one variant on one task and measure it on every test set.

    Args:
        name, variant, seed, profile: as for `build` and `data`.
        epochs_scale: multiplies the epochs.
        keys: test keys, None for the profile's.
        after: (label, function of the model) called after each epoch; its results stand in `history.evaluation`.
        build_model: another constructor than the variant's; `variant` is then a label.
        epochs: replaces the recipe's (before the scale).
        dtype: of model and data, "float32" or "float64".
        dataset: replaces the task's own.
        cached: keep the trained model in the content-keyed cache, so that an interrupted run resumes.
    """
    dataset = _cast(data(name, seed, profile, keys) if dataset is None else dataset, dtype)
    made = recipe(name, variant, profile)
    made = scaled(made if epochs is None else dataclasses.replace(made, epochs=epochs), epochs_scale)
    construct = build_model or (lambda: build(name, variant, seed))

    def build_model() -> nn.Module:
        return construct().double() if dtype == "float64" else construct()

    label, evaluation = after or ("", None)
    model, history = fitted(
        f"{name}-{variant}-{seed}",
        build_model,
        dataset,
        made,
        seed,
        key_module="reproduction.ch5_depth.ablation" if cached else None,
        parameters={"after": label, **solver_settings(build_model())},
        evaluate=evaluation,
    )
    trained = measure(model, name, {"train": (dataset.u_train, dataset.y_train)})[0]
    return Run(model, history, list(dataset.test), measure(model, name, dataset.test), trained)


def _cast(dataset: Dataset, dtype: str) -> Dataset:
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")

    def cast(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype) if array.dtype.kind == "f" else array

    test = {key: (cast(u), cast(y)) for key, (u, y) in dataset.test.items()}
    return Dataset(cast(dataset.u_train), cast(dataset.y_train), test, dataset.meta)


def solver_settings(model: nn.Module) -> dict[str, Any]:
    """Settings of an implicit model's solver, which its printed form does not all show."""
    return {"settings": dataclasses.asdict(model.settings)} if isinstance(model, ImplicitModel) else {}
