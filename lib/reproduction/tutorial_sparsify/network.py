"""A network and its data for the page that sparsifies the reader's own: a small one, trained in seconds, or one that a
parameter names.

A named function is called with the seed and returns

    network, (samples, labels), (test samples, test labels)

a torch module in evaluation mode, samples (N, ...) of its dtype, and integer labels (N,): what is needed to fit, and to
say what was lost.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from data_gen.images.vision import load
from reproduction.core.recipe import Recipe
from reproduction.core.train import train

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": (0,), "n_train": 4000, "n_test": 1000, "epochs": 2, "m": 300},
    "full": {"seeds": (0, 1, 2), "n_train": 10_000, "n_test": 3000, "epochs": 4, "m": 1000},
}


@dataclass(frozen=True)
class Task:
    """A trained classifier and its data. cpu_seconds: of the training, 0 where it is not ours. note: what the data
    are."""

    network: nn.Module
    u: Float[Tensor, "N ..."]
    y: Int[Tensor, " N"]
    u_test: Float[Tensor, "M ..."]
    y_test: Int[Tensor, " M"]
    cpu_seconds: float = 0.0
    note: str = ""
    stand_in: bool = False


class Residual(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


def small_network(side: int, classes: int, seed: int) -> nn.Sequential:
    """A convolutional network of plain torch.nn for grey images of `side` x `side`, a multiple of 4 of at least 8, with
    random weights. Few of them are in its first and last layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            Residual(16),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AvgPool2d(side // 8),
            nn.Flatten(),
            nn.Linear(32, classes),
        )


def small_task(seed: int, profile: str) -> Task:
    """`small_network` trained on Fashion-MNIST, or on the digits where it cannot be had, which the note says."""
    chosen = PROFILES[profile]
    images = load("auto", seed=seed, n_train=chosen["n_train"], n_test=chosen["n_test"])
    side = round(images.u_train.shape[1] ** 0.5)
    (u, y), (u_test, y_test) = (
        (torch.from_numpy(a).reshape(-1, 1, side, side), torch.from_numpy(b))
        for a, b in ((images.u_train, images.y_train), images.test[0])
    )
    network = small_network(side, len(images.meta["classes"]), seed)
    history = train(
        network,
        u,
        y,
        recipe=Recipe(chosen["epochs"], lr=0.005, batch_size=100, loss="cross_entropy"),
        seed=seed,
        progress=False,
    )
    note = images.meta["banner"] or f"{images.meta['name']}: {len(y)} training and {len(y_test)} test images."
    return Task(
        network.eval(), u, y, u_test, y_test, sum(history.cpu_seconds), note, images.meta["name"] != "fashion_mnist"
    )


def named_task(name: str, seed: int) -> Task:
    """The task of a function named "module:function".

    Raises:
        ValueError for a name of another form; ImportError, AttributeError where there is no such module or function;
            TypeError where it does not return what is wanted, saying what it did.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"network must be named 'module:function', got {name!r}")
    made = getattr(importlib.import_module(module), function)(seed)
    try:
        network, (u, y), (u_test, y_test) = made
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must return network, (samples, labels), (test samples, test labels); it returned"
            f" {type(made).__name__}"
        ) from None
    if not isinstance(network, nn.Module):
        raise TypeError(f"{name} must return a torch module first, got {type(network).__name__}")
    for part, samples, labels in (("training", u, y), ("test", u_test, y_test)):
        if (
            not isinstance(samples, Tensor)
            or not isinstance(labels, Tensor)
            or labels.shape != samples.shape[:1]
            or labels.is_floating_point()
        ):
            raise TypeError(f"{name}: {part} samples and labels must be tensors (N, ...) and (N,) of integers")
    return Task(network, u, y, u_test, y_test, note=f"{name}: {len(y)} training and {len(y_test)} test samples.")


def task_of(network: str, seed: int, profile: str) -> Task:
    """The small network's task for an empty name, else the named one."""
    return named_task(network, seed) if network else small_task(seed, profile)
