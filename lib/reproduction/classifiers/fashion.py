"""Two classifiers of Fashion-MNIST that later chapters compress, bound and attack.

An implicit model with 64 states, and the network 784-64-32-16-10 whose states the state-driven
models imitate. Both come from `trained`, so that every notebook that needs them runs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.images.vision import load
from reproduction.core.cache import train_or_load
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import History, Recipe
from reproduction.core.scores import accuracy
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP

N_STATES = 64
HIDDEN = (64, 32, 16)
KAPPA = 0.95
Model = tuple[Callable[[], nn.Module], Recipe]

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": (0,), "n_train": 10_000, "n_test": 2_000, "epochs": 6, "lr": 0.003, "batch_size": 100},
    "full": {"seeds": (0, 1, 2, 3, 4), "n_train": None, "n_test": None, "epochs": 15, "lr": 0.003, "batch_size": 200},
}

LABELS = {
    "implicit": f"implicit, n = {N_STATES}",
    "explicit": "network 784-64-32-16-10",
    "implicit_no_skip": "implicit without D",
    "implicit_strict_upper": "implicit, A strictly triangular",
    "linear": "linear",
    "explicit_bias_free": "network without biases",
    "explicit_skip": "network with linear skip",
}
# First-party code that decides a trained network; its settings are part of the key by themselves.
KEY_MODULES = {
    "implicit": ("implicit_models.model",),
    "explicit": ("reproduction.models.mlp",),
    "linear": ("reproduction.models.linear",),
}


settings = settings_of(PROFILES)  # seeds, sizes and optimiser settings of a profile


def data(profile: str = "full", dataset: str = "auto", seed: int = 0) -> Dataset:
    """The images: `data_gen.images.vision.load` with the profile's sizes.

    Args:
        profile: "quick" draws 10,000 + 2,000 images; "full" takes all.
        dataset: name; "auto" allows the declared stand-in.
        seed: of the choice of images; one seed for all networks, so that they share a training set.

    Raises:
        DatasetUnavailable: see `load`.
    """
    chosen = settings(profile)
    if dataset == "digits":  # there are fewer of them than any profile draws: all are taken
        return load("digits", seed=seed)
    return load(dataset, seed=seed, n_train=chosen["n_train"], n_test=chosen["n_test"])


def models(seed: int, profile: str = "full", *, in_features: int = 784, n_classes: int = 10) -> dict[str, Model]:
    """Name -> (constructor, recipe) of the two classifiers; their outputs are logits.

    Args:
        seed: of the initial weights.
        profile: decides the recipe.
        in_features: pixels of an image (64 for the digits).
        n_classes: outputs.
    """
    from implicit_models.model import ImplicitModel

    recipe = _recipe(profile)
    return {
        "implicit": (lambda: ImplicitModel(in_features, n_classes, N_STATES, kappa=KAPPA, seed=seed), recipe),
        "explicit": (lambda: MLP((in_features, *HIDDEN, n_classes), seed=seed), recipe),
    }


def control_models(
    seed: int, profile: str = "full", *, in_features: int = 784, n_classes: int = 10
) -> dict[str, Model]:
    """Name -> (constructor, recipe) of what the two classifiers are compared with.

    The linear classifier, and each of the two without one of its parts or with one more. Arguments
    are those of `models`.
    """
    from implicit_models.model import ImplicitModel

    recipe, sizes = _recipe(profile), (in_features, *HIDDEN, n_classes)

    def implicit(**options) -> Callable[[], nn.Module]:
        return lambda: ImplicitModel(in_features, n_classes, N_STATES, kappa=KAPPA, seed=seed, **options)

    return {
        "implicit_no_skip": (implicit(skip=False), recipe),
        "implicit_strict_upper": (implicit(feedback="strict_upper"), recipe),
        "linear": (lambda: Linear(in_features, n_classes, bias=True, seed=seed), recipe),
        "explicit_bias_free": (lambda: MLP(sizes, bias=False, seed=seed), recipe),
        "explicit_skip": (lambda: MLP(sizes, skip=True, seed=seed), recipe),
    }


def _recipe(profile: str) -> Recipe:
    chosen = settings(profile)
    return Recipe(epochs=chosen["epochs"], lr=chosen["lr"], batch_size=chosen["batch_size"], loss="cross_entropy")


def trained(
    images: Dataset, seed: int, profile: str = "full", *, controls: bool = False, progress: bool = True
) -> dict[str, tuple[nn.Module, History]]:
    """Both classifiers with their histories, trained on `images` or read from the cache.

    The history's evaluation holds the test accuracy after each epoch.

    Args:
        images: the data set, with meta["classes"].
        seed: of initial weights and order of samples.
        profile: decides the recipe.
        controls: the models of `control_models` too.
        progress: show a bar on a terminal while training.
    """
    sizes = {"in_features": images.u_train.shape[1], "n_classes": len(images.meta["classes"])}
    built = models(seed, profile, **sizes) | (control_models(seed, profile, **sizes) if controls else {})
    return {
        name: train_or_load(
            f"fashion-{name}-{profile}",
            build=build,
            data=images,
            recipe=recipe,
            seed=seed,
            key_modules=KEY_MODULES[name.partition("_")[0]],
            evaluate=lambda model: accuracy(model, images.test)[0],
            progress=progress,
        )
        for name, (build, recipe) in built.items()
    }
