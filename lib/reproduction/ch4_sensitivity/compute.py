"""What the sensitivity matrix of a trained classifier says: how it is computed, how loose it is, classes, pixels.

The network is 784-300-10: 784 + 300 + 10 = 1,094 is the size that the thesis prints with Figures 4.1 and 4.2.

Source: Tsai thesis (2024), Theorems 5 and 6, section 4.3, Figures 4.1, 4.2 and 4.4.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import nn

from data_gen.core.dataset import Dataset, DatasetUnavailable
from data_gen.images.vision import load
from implicit_models.compose.interconnect import from_network
from implicit_models.robustness.problem import Problem, from_matrices, problem
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.core.cache import train_or_load
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy, predict
from reproduction.models.mlp import MLP

HIDDEN = 300
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": (0,),
        "n_train": 6000,
        "n_test": 2000,
        "epochs": 12,
        "few": 0.1,
        "random_models": 10,
        "deviations": 50,
    },
    "full": {
        "seeds": (0, 1, 2),
        "n_train": None,
        "n_test": None,
        "epochs": 8,
        "few": 0.05,
        "random_models": 100,
        "deviations": 500,
    },
}


def images_of(name: str, profile: str, seed: int = 0) -> Dataset | None:
    """A data set with the profile's sizes; None where it cannot be had."""
    chosen = PROFILES[profile]
    try:
        return (
            load(name, seed=seed)
            if name == "digits"
            else load(name, seed=seed, n_train=chosen["n_train"], n_test=chosen["n_test"])
        )
    except DatasetUnavailable:
        return None


def network(images: Dataset, seed: int, epochs: int, share: float = 1.0) -> MLP:
    """784-300-10 trained on a share of the images, for the same number of steps whatever the share; its
    `training_cpu_seconds` say what that took."""
    count = round(share * len(images.y_train))
    part = Dataset(images.u_train[:count], images.y_train[:count], images.test, images.meta)
    sizes = (images.u_train.shape[1], HIDDEN, len(images.meta["classes"]))
    model, history = train_or_load(
        f"sensitivity-{images.meta['name']}",
        build=lambda: MLP(sizes, seed=seed),
        data=part,
        seed=seed,
        key_modules=["reproduction.models.mlp"],
        recipe=Recipe(max(1, round(epochs / share)), lr=0.002, batch_size=100, loss="cross_entropy"),
        progress=False,
    )
    model.training_cpu_seconds = sum(history.cpu_seconds)
    return model.eval()


def untrained(images: Dataset, seed: int) -> MLP:
    """The same network before training."""
    return MLP((images.u_train.shape[1], HIDDEN, len(images.meta["classes"])), seed=seed).eval()


def published_iteration(task: Problem, tol: float = 1e-12) -> tuple[Float[np.ndarray, "q p"], int]:
    """S = |C| X + |D| with X(t+1) = |A| X(t) + |B|, X(0) = 0, and the steps until no entry changes by more than tol of
    the largest."""
    A, B = abs(task.A), abs(task.B)
    B = B.toarray() if not isinstance(B, np.ndarray) else B
    C, D = (abs(M.toarray() if not isinstance(M, np.ndarray) else M) for M in (task.C, task.D))
    X, steps = np.zeros_like(B), 0
    while True:
        new = A @ X + B
        steps += 1
        if np.abs(new - X).max() <= tol * new.max():
            return C @ new + D, steps
        X = new


def three_ways(model: nn.Module) -> dict[str, float]:
    """The matrix by the adjoint, by the published iteration, and by the closed form with an inverse; errors relative to
    its largest entry.

    Returns:
        "iteration_error", "closed_error", "steps", "ratio" (CPU time of the iteration over that of the adjoint),
        "excess" of the proved bound.
    """
    task = problem(model if hasattr(model, "n_states") else from_network(model))
    dense = [abs(M.toarray() if not isinstance(M, np.ndarray) else M) for M in (task.A, task.B, task.C, task.D)]
    S, _, _, excess, _ = sensitivity_matrix(task)
    repeats, ours = 5, time.process_time()
    for _ in range(repeats):
        sensitivity_matrix(task)
    ours = (time.process_time() - ours) / repeats
    start = time.process_time()
    X, steps = published_iteration(task)
    theirs = time.process_time() - start
    closed = dense[2] @ np.linalg.inv(np.eye(task.n) - dense[0]) @ dense[1] + dense[3]
    top = S.max()
    return {
        "iteration_error": float(np.abs(X - S).max() / top),
        "closed_error": float(np.abs(closed - S).max() / top),
        "steps": float(steps),
        "ratio": theirs / max(ours, 1e-9),
        "excess": excess,
    }


def deviations(model: nn.Module, S: Float[np.ndarray, "q p"], u: np.ndarray, eps: float, seed: int) -> dict[str, float]:
    """How far outputs move within a box of radius eps, over what S allows.

    Each sample moves along the sign of the gradient of each output, up and down, and along random signs.

    Returns:
        "largest", "median" (over samples and outputs, of the farthest move found), "random" (median, random signs), and
        "violations".
    """
    u = torch.as_tensor(u, dtype=torch.float32)
    allowed = eps * S.sum(1)
    y = model(u).detach()
    moved = np.zeros(y.shape)
    for k in range(y.shape[1]):
        v = u.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(v)[:, k].sum(), v)
        for sign in (1, -1):
            moved[:, k] = np.maximum(
                moved[:, k], np.abs((model(u + sign * eps * gradient.sign()).detach() - y).numpy()[:, k])
            )
    signs = 2 * torch.randint(0, 2, u.shape, generator=torch.Generator().manual_seed(seed)) - 1
    random = np.abs((model(u + eps * signs).detach() - y).numpy())
    share = moved / allowed
    return {
        "largest": float(share.max()),
        "median": float(np.median(share)),
        "random": float(np.median(random / allowed)),
        "violations": int((np.maximum(moved, random) > allowed * (1 + 1e-5)).sum()),
    }


def class_accuracy(model: nn.Module, images: Dataset) -> np.ndarray:
    """Test accuracy of each class."""
    u, y = images.test[next(iter(images.test))]
    right = predict(model, u).argmax(1).numpy() == y
    return np.array([right[y == k].mean() for k in range(len(images.meta["classes"]))])


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; NaN where one side is constant."""
    return float(spearmanr(a, b).statistic) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")


def class_facts(S: np.ndarray, full: np.ndarray, few: np.ndarray) -> dict[str, float]:
    """Row sums of S against the accuracy of each class, and against what each gains from more data.

    Args:
        full, few: accuracy of each class after training on all images and on a share of them.
    """
    rows = S.sum(1)
    return {
        "ratio": float(rows.max() / rows.min()),
        "with_error": rank_correlation(rows, 1 - full),
        "with_gain": rank_correlation(rows, full - few),
    }


def pixel_facts(
    model: nn.Module, S: np.ndarray, S_before: np.ndarray, images: Dataset, seed: int, share: float = 0.1
) -> dict[str, Any]:
    """Do the rows of S show their classes? Means over the classes.

    Returns:
        "own", "other": correlation of row k with the mean training image of class k, and with those of the other
        classes; "own_is_best": share of classes whose row correlates most with the own mean image; "lit": with the mean
        image of all classes; "before": with the row of the network before training; "between": of two rows of S;
        "kept", "top", "random", "bottom", "ink": accuracy of class k on its test images as they are, and with a share
        of the pixels set to zero: those of the largest and smallest entries of row k, as many at random, and those with
            most ink in class k;
        "first_own", "first_other", "first_kept", "first_top", "first_random": the same of class 0 alone, which Figure
        4.4 shows.
    """
    q, rng = S.shape[0], np.random.default_rng(seed)
    means = np.array([images.u_train[images.y_train == k].mean(axis=0) for k in range(q)])
    table = np.corrcoef(np.vstack([S, means]))[:q, q:]
    rows = np.corrcoef(S)
    u, y = images.test[next(iter(images.test))]
    count = max(1, round(share * S.shape[1]))

    def without(k: int, pixels: np.ndarray | None) -> float:
        v = np.array(u[y == k])
        if pixels is not None:
            v[:, pixels] = 0
        return float((predict(model, v).argmax(1).numpy() == k).mean())

    order = np.argsort(S, axis=1)
    chosen = {
        "kept": lambda k: None,
        "top": lambda k: order[k, -count:],
        "bottom": lambda k: order[k, :count],
        "random": lambda k: rng.choice(S.shape[1], count, replace=False),
        "ink": lambda k: np.argsort(means[k])[-count:],
    }
    left = {name: [without(k, pixels(k)) for k in range(q)] for name, pixels in chosen.items()}
    return {
        "own": float(np.diag(table).mean()),
        "other": float(table[~np.eye(q, dtype=bool)].mean()),
        "own_is_best": float((table.argmax(axis=1) == np.arange(q)).mean()),
        "lit": float(np.mean([np.corrcoef(S[k], images.u_train.mean(axis=0))[0, 1] for k in range(q)])),
        "before": float(np.mean([np.corrcoef(S[k], S_before[k])[0, 1] for k in range(q)])),
        "between": float(rows[np.triu_indices(q, 1)].mean()),
        **{name: float(np.mean(values)) for name, values in left.items()},
        "first_own": float(table[0, 0]),
        "first_other": float(table[0, 1:].mean()),
        **{f"first_{name}": left[name][0] for name in ("kept", "top", "random")},
    }


def image_dependence(model: nn.Module, S: np.ndarray, images: Dataset, k: int = 0, count: int = 50) -> dict[str, float]:
    """S and the gradient of output k on two sets of images of class k: the matrix has no image in it.

    Returns:
        "matrix": largest change of S, computed again after other images were classified; "gradient": mean correlation
        of |gradient| between two images; "inside": share of |gradient| entries that S bounds, which is all of them.
    """
    u, y = images.test[next(iter(images.test))]
    own = torch.as_tensor(u[y == k][:count]).requires_grad_()
    (gradient,) = torch.autograd.grad(model(own)[:, k].sum(), own)
    again = sensitivity_matrix(model).S
    maps = gradient.abs().double().numpy()
    pairs = np.corrcoef(maps)[np.triu_indices(len(maps), 1)]
    return {
        "matrix": float(np.abs(again - S).max()),
        "gradient": float(pairs.mean()),
        "inside": float((maps <= S[k] * (1 + 1e-5)).mean()),
    }


def blockwise_facts(count: int, seed: int) -> dict[str, float]:
    """Theorem 6 on random models with blocks: violations, and ||S||_inf over the constant of plain norms, ||B|| ||C|| /
    (1 - ||A||) + ||D||.

    Returns:
        "violations" of |y(u) - y(v)| <= S |u - v|; "mixed", "softmax", "relu": median ratio for softmax, max-pool and
        ReLU blocks, for softmax blocks alone, and for the same matrices under ReLU; "largest": of all ratios.
    """
    rng = np.random.default_rng(seed)
    norm = lambda M: float(np.abs(M).sum(axis=1).max())
    violations, ratios = 0, {"mixed": [], "softmax": [], "relu": []}
    for _ in range(count):
        sizes = [int(k) for k in rng.integers(2, 5, 3)]
        n = sum(sizes)
        A = rng.standard_normal((n, n))
        A *= rng.uniform(0.3, 0.95) / norm(A)
        B, C, D = rng.standard_normal((n, 4)), rng.standard_normal((3, n)), rng.standard_normal((3, 4))
        U, V = rng.standard_normal((2, 50, 4))
        for name, maps in (
            ("mixed", ("softmax", "max_pool", "relu")),
            ("softmax", ("softmax",) * 3),
            ("relu", ("relu",) * 3),
        ):
            task = from_matrices(A, B, C, D, list(zip(maps, sizes, strict=True)))
            S = sensitivity_matrix(task).S
            gap = np.abs(task.output(task.equilibrium(U)[0], U) - task.output(task.equilibrium(V)[0], V))
            violations += int((gap > np.abs(U - V) @ S.T + 1e-8).sum())
            ratios[name].append(norm(S) / (norm(B) * norm(C) / (1 - norm(A)) + norm(D)))
    return {
        "violations": violations,
        **{name: float(np.median(r)) for name, r in ratios.items()},
        "largest": max(map(max, ratios.values())),
    }


def theorem_5_facts() -> dict[str, float]:
    """Two scalars each: an invertible I - N whose inverse is negative, and the first step of the proof.

    x = 2 x + u has x = -u, so that a step of 1 in u moves x by 1: the bound (I - 2)^-1 is -1. And |relu(1) - relu(0)| =
    1 while relu(0 - 1) = 0.
    """
    relu = lambda z: max(z, 0.0)
    return {
        "inverse_bound": 1 / (1 - 2.0),
        "inverse_moved": abs(-1.0 - 0.0),
        "step_left": abs(relu(0.0) - relu(1.0)),
        "step_right": abs(relu(0.0 - 1.0)),
    }


def accuracy_on_test(model: nn.Module, images: Dataset) -> float:
    """On the whole test set."""
    return accuracy(model, images.test)[next(iter(images.test))]
