"""A classifier of 20 Newsgroups that chapter 3 makes sparse: p-64-32-20 on TF-IDF features or on sentence embeddings.

The papers' teacher is DistilBERT, fine-tuned; this one is small enough that every row problem of the state-driven model
is solved to optimality in seconds. What it shares with theirs is the data and the question, not the accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.text.topics import load
from reproduction.core.cache import train_or_load
from reproduction.core.profiles import settings_of
from reproduction.core.recipe import History, Recipe
from reproduction.core.scores import accuracy, predict
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP

HIDDEN = (64, 32)
SPLITS = ("bydate", "random")
Model = tuple[Callable[[], nn.Module], Recipe]

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0, 1),
        "n_features": 200,
        "n_train": 2_000,
        "n_test": 1_000,
        "epochs": 8,
        "lr": 0.003,
        "batch_size": 100,
    },
    "full": {
        "seeds": (0, 1, 2, 3, 4),
        "n_features": 800,
        "n_train": None,
        "n_test": None,
        "epochs": 8,
        "lr": 0.003,
        "batch_size": 100,
    },
}
LABELS = {"network": "network p-64-32-20", "linear": "linear"}
KEY_MODULES = {"network": ("reproduction.models.mlp",), "linear": ("reproduction.models.linear",)}


settings = settings_of(PROFILES)  # seeds, sizes and optimiser settings of a profile


def data(
    profile: str = "full", split: str = "bydate", corpus: str = "auto", seed: int = 0, features: str = "tfidf"
) -> Dataset:
    """The posts as TF-IDF features of the terms with the largest chi-squared statistic, or as embeddings, headers kept.

    Args:
        profile: "quick" draws 2,000 + 1,000 posts and 200 terms; "full" takes all posts and 800 terms.
        split: "bydate" or "random".
        corpus: "auto", "newsgroups", or "topics" for the stand-in; see `data_gen.text.topics.load`.
        seed: of the random split and of the choice of posts; one seed for all networks, so that they share a training
            set.
        features: "tfidf", "hashed", or "embeddings" of a sentence encoder (sentence-transformers); the stand-in has its
            own.

    Raises:
        DatasetUnavailable, ModuleNotFoundError: see `load`.
    """
    chosen = settings(profile)
    sizes = {name: chosen[name] for name in ("n_features", "n_train", "n_test")}
    return load(corpus, seed=seed, split=split, features=features, **sizes)


def models(seed: int, profile: str = "full", *, in_features: int = 1000, n_classes: int = 20) -> dict[str, Model]:
    """Name -> (constructor, recipe) of the network and of the linear classifier it must beat; outputs are logits.

    Args:
        seed: of the initial weights.
        profile: decides the recipe.
        in_features, n_classes: sizes of input and output.
    """
    recipe = training_recipe(profile)
    return {
        "network": (lambda: MLP((in_features, *HIDDEN, n_classes), seed=seed), recipe),
        "linear": (lambda: Linear(in_features, n_classes, bias=True, seed=seed), recipe),
    }


def training_recipe(profile: str) -> Recipe:
    """Recipe of a profile."""
    chosen = settings(profile)
    return Recipe(epochs=chosen["epochs"], lr=chosen["lr"], batch_size=chosen["batch_size"], loss="cross_entropy")


def trained(
    posts: Dataset, seed: int, profile: str = "full", *, progress: bool = True
) -> dict[str, tuple[nn.Module, History]]:
    """Both classifiers with their histories, trained on `posts` or read from the cache.

    Args:
        posts: the data set, with meta["classes"].
        seed: of initial weights and order of samples.
        profile: decides the recipe.
        progress: show a bar on a terminal while training.
    """
    built = models(seed, profile, in_features=posts.u_train.shape[1], n_classes=len(posts.meta["classes"]))
    return {
        name: train_or_load(
            f"newsgroups-{name}-{profile}",
            build=build,
            data=posts,
            recipe=recipe,
            seed=seed,
            key_modules=KEY_MODULES[name],
            evaluate=lambda model: accuracy(model, posts.test)[0],
            progress=progress,
        )
        for name, (build, recipe) in built.items()
    }


def scores(model: Callable, posts: Dataset) -> dict[str, float]:
    """Test accuracy and macro F1 of a model whose outputs are logits: {"accuracy": ..., "f1": ...}."""
    u, labels = posts.test[0]
    chosen = predict(model, u).argmax(dim=1).numpy()
    return {"accuracy": float((chosen == labels).mean()), "f1": macro_f1(labels, chosen, len(posts.meta["classes"]))}


def macro_f1(labels: Int[np.ndarray, " N"], chosen: Int[np.ndarray, " N"], n_classes: int) -> float:
    """Mean over the classes of F1 = 2 TP / (2 TP + FP + FN); 0 for a class that neither occurs nor is chosen.

    Args:
        labels, chosen: (N,) true and predicted classes, below n_classes.
        n_classes: number of classes, those that do not occur included.

    Raises:
        ValueError: the two differ in shape, or a class is out of range.
    """
    labels, chosen = np.asarray(labels), np.asarray(chosen)
    if labels.shape != chosen.shape or labels.ndim != 1:
        raise ValueError(f"labels {labels.shape} and predictions {chosen.shape} must be vectors of one length")
    if len(labels) and not (0 <= min(labels.min(), chosen.min()) and max(labels.max(), chosen.max()) < n_classes):
        raise ValueError(f"a class is not within 0..{n_classes - 1}")
    hits = np.bincount(labels[labels == chosen], minlength=n_classes)
    total = np.bincount(labels, minlength=n_classes) + np.bincount(chosen, minlength=n_classes)
    return float(np.mean(np.divide(2 * hits, total, out=np.zeros(n_classes), where=total > 0)))
