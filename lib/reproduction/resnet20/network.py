"""The trained CIFAR-10 ResNet-20 with its images, or a stand-in of the same shape; the same network with other weights,
as controls.

Inputs are flat, (N, 3072) in [0, 1], a colour plane after the other, as `data_gen.images.cifar` gives them.

Source: He et al. (2016); Idelbayev (2018) for the weights; Krizhevsky (2009) for the images.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from data_gen.core.dataset import Dataset, DatasetUnavailable
from data_gen.images.cifar import CLASSES, SHAPE, cifar10
from reproduction.models.resnet20 import ResNet20, published

BATCH = 100  # images in one pass: the activations of more leave the processor's caches
CLOSE = 1e-3  # a class is decided in float64 where its logit is this near to the next, relative to the largest

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "n_test": 150,
        "maps": 10,
        "greedy": 12,
        "dense": 12,
        "steps": 5,
        "certified": 4,
        "halvings": 10,
        "image_size": 4,
        "pictured": 40,
    },
    "full": {
        "seeds": (0, 1, 2),
        "n_test": 2000,
        "maps": 200,
        "greedy": 200,
        "dense": 120,
        "steps": 10,
        "certified": 60,
        "halvings": 20,
        "image_size": 8,
        "pictured": 200,
    },
}


def flat(network: nn.Module, shape: tuple[int, ...] = SHAPE) -> nn.Sequential:
    """The network on flat samples, in evaluation mode, its weights fixed."""
    return nn.Sequential(nn.Unflatten(1, shape), network).eval().requires_grad_(False)


def trained_network(n_test: int) -> tuple[nn.Sequential, Dataset, str]:
    """The published network on flat images, the images, and an empty text; where weights or images cannot be had, a
    stand-in and what it is.

    Args:
        n_test: test images, the first ones of a fixed random order, which mixes the classes.
    """
    try:
        network, images = published(), cifar10()
    except DatasetUnavailable as missing:
        return (
            *stand_in(n_test),
            (
                f"{missing.name} cannot be had here: a ResNet-20 with random weights, its last layer fitted to coloured"
                " patterns, stands in"
            ),
        )
    u, y = images.test[0]
    kept = np.random.default_rng(0).permutation(len(y))[:n_test]
    return flat(network), Dataset(images.u_train, images.y_train, {0: (u[kept], y[kept])}, images.meta), ""


def stand_in(n_test: int, seed: int = 0, n_train: int = 400) -> tuple[nn.Sequential, Dataset]:
    """A ResNet-20 with random weights whose last layer is fitted by ridge regression to ten coloured patterns under
    noise."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((len(CLASSES), SHAPE[0], 4, 4)).repeat(8, axis=2).repeat(8, axis=3).reshape(len(CLASSES), -1)

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % len(CLASSES)
        u = np.clip(patterns[y] + 0.1 * rng.standard_normal((count, patterns.shape[1])), 0, 1)
        return u.astype(np.float32), y.astype(np.int64)

    (u_train, y_train), test = drawn(n_train), drawn(n_test)
    network = random_network(seed)
    body = copy.deepcopy(network)
    body[1].linear = nn.Identity()
    with torch.no_grad():
        X = torch.cat([body(part) for part in torch.from_numpy(u_train).split(BATCH)]).double()
        mean, target = (
            X.mean(0),
            torch.nn.functional.one_hot(torch.from_numpy(y_train), len(CLASSES)).double() - 1 / len(CLASSES),
        )
        G = (X - mean).T @ (X - mean)
        W = (
            10
            * torch.linalg.solve(
                G + 1e-3 * torch.diag(G.diagonal()) + 1e-12 * torch.eye(len(G)), (X - mean).T @ target
            ).T
        )
        network[1].linear.weight.copy_(W)
        network[1].linear.bias.copy_(-W @ mean)
    return network, Dataset(
        u_train, y_train, {0: test}, {"name": "coloured patterns", "classes": CLASSES, "image_shape": SHAPE}
    )


def random_network(seed: int) -> nn.Sequential:
    """The architecture with its weights before training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flat(ResNet20())


def shuffled_network(network: nn.Sequential, seed: int) -> nn.Sequential:
    """The network with the weights of each convolution and of the last layer in random order: the same magnitudes,
    nothing learned."""
    generator, other = torch.Generator().manual_seed(seed), copy.deepcopy(network)
    for module in other.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            weight = module.weight
            weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=generator)].view_as(weight))
    return other


def classes_of(network: nn.Module, U: Float[np.ndarray, "N p"]) -> Int[np.ndarray, " N"]:
    """(N,) the class that a float32 network sees, in float32 where that decides, in float64 where the two largest
    logits lie close."""
    out = []
    exact = None
    with torch.no_grad():
        for at in range(0, len(U), BATCH):
            part = torch.from_numpy(np.ascontiguousarray(U[at : at + BATCH]))
            found = network(part.float())
            top = found.topk(2, dim=1).values
            close = (top[:, 0] - top[:, 1]) <= CLOSE * found.abs().amax(1)
            seen = found.argmax(1)
            if bool(close.any()):
                exact = copy.deepcopy(network).double() if exact is None else exact
                seen[close] = exact(part[close].double()).argmax(1)
            out.append(seen.numpy())
    return np.concatenate(out) if out else np.zeros(0, dtype=np.int64)
