"""The implicit classifier trained for robustness: penalties of the thesis, interval bounds, attacked samples, and
controls.

All objectives share architecture, initial weights, order of samples, optimiser and schedule, so that they differ in the
loss alone:

    plain            CE
    weight_decay     CE, with Adam's l2 penalty: a control for the penalties
    convex_penalty   CE + weight (||B||^2 + ||C||^2) / (2 (1 - ||A||)) + ||D||    (4.7) = (4.9)
    sensitivity      CE + weight ||S||_inf
    adversarial      (CE(u) + CE(u')) / 2, u' the end of a few projected sign steps
    interval         clean CE and the worst cross-entropy over interval margins, eps rising over the first epochs

Source: Tsai thesis (2024), sections 4.2 to 4.4 (no experiments are reported there); Gowal et al., ICCV 2019 (interval);
Madry et al. (2018).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from data_gen.core.dataset import Dataset
from implicit_models.model import ImplicitModel
from implicit_models.robustness.attacks.methods import attack
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.bounding.options import Dual
from implicit_models.robustness.certification import certify
from implicit_models.robustness.interval_training import interval_training_loss
from implicit_models.robustness.penalties import convex_penalty, lipschitz_constant, sensitivity_norm
from implicit_models.robustness.specification import margins
from reproduction.core.cache import train_or_load
from reproduction.core.recipe import History, Recipe

N_STATES, KAPPA = 64, 0.95
KEY_MODULES = ("implicit_models.model", "reproduction.ch4_robust_training.compute")
PENALTIES = {"convex_penalty": convex_penalty, "sensitivity": sensitivity_norm}
_SEARCH = PGD(steps=20, restarts=2)
OBJECTIVES = ("plain", "weight_decay", *PENALTIES, "adversarial", "interval")


# Weights of the penalties, one model each; the shorter lists of "quick" prove the machinery.
PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": (0,), "weights": (1e-3,), "decays": (1e-4,), "epochs": 5, "measured": 200, "random_models": 20},
    "full": {
        "seeds": (0, 1, 2),
        "weights": (1e-3, 1e-2, 1e-1),
        "decays": (1e-4, 1e-3, 1e-2),
        "epochs": 10,
        "measured": 500,
        "random_models": 300,
    },
}
LABELS = {
    "plain": "plain",
    "weight_decay": "l2 weight decay",
    "convex_penalty": "penalty (4.7)",
    "sensitivity": "norm of S",
    "adversarial": "attacked samples",
    "interval": "interval bounds",
}


@dataclass(frozen=True)
class Objective:
    """What is minimised, and for how long.

    name: of `OBJECTIVES`. weight: of the penalty. eps: largest radius of "adversarial" and "interval"; clean: final
        share of the samples' own loss
    in "interval"; warmup: share of the steps in which eps and that mix are reached; attack_steps: of "adversarial".
    epochs, lr, batch_size: Adam with a cosine schedule.
    Raises:
        ValueError for a setting outside its domain.
    """

    name: str
    weight: float = 0.0
    eps: float = 0.0
    clean: float = 0.0
    warmup: float = 0.25
    attack_steps: int = 3
    epochs: int = 15
    lr: float = 0.003
    batch_size: int = 200

    def __post_init__(self) -> None:
        fine = {
            "name": self.name in OBJECTIVES,
            "weight": self.weight >= 0,
            "eps": self.eps >= 0,
            "clean": 0 <= self.clean <= 1,
            "warmup": 0 <= self.warmup <= 1,
            "attack_steps": self.attack_steps >= 1,
        }
        for setting, holds in fine.items():
            if not holds:
                raise ValueError(f"objective: {setting} = {getattr(self, setting)!r} is outside its domain")

    @property
    def recipe(self) -> Recipe:
        decay = self.weight if self.name == "weight_decay" else 0.0
        return Recipe(self.epochs, self.lr, self.batch_size, loss="cross_entropy", weight_decay=decay)


def untrained(seed: int, in_features: int = 784, n_classes: int = 10) -> ImplicitModel:
    """The classifier of all objectives: 64 states, biases, a direct term."""
    return ImplicitModel(in_features, n_classes, N_STATES, kappa=KAPPA, bias=True, seed=seed, tol=1e-5)


def attacked_batch(model: nn.Module, u: Tensor, y: Tensor, eps: float, steps: int) -> Tensor:
    """Projected sign steps of size 2.5 eps / steps on the cross-entropy from a random point of the box: inputs to train
    on."""
    moved = u + eps * (2 * torch.rand(u.shape, dtype=u.dtype) - 1)
    for _ in range(steps):
        moved.requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(moved), y, reduction="sum"), moved)
        moved = torch.clamp(moved.detach() + 2.5 * eps / steps * gradient.sign(), u - eps, u + eps)
    return moved


def loss_of(objective: Objective, model: ImplicitModel, u: Tensor, y: Tensor, share: float) -> Tensor:
    """The loss of a batch after `share` of all steps."""
    warm, name = objective.warmup, objective.name
    reached = 1.0 if warm == 0 else min(1.0, share / warm)
    if name == "interval":
        return interval_training_loss(model, u, y, objective.eps * reached, clean=1 + (objective.clean - 1) * reached)
    loss = nn.functional.cross_entropy(model(u), y)
    if name in PENALTIES:
        return loss + objective.weight * PENALTIES[name](model)
    if name == "adversarial":
        moved = attacked_batch(model, u, y, objective.eps, objective.attack_steps)
        return 0.5 * (loss + nn.functional.cross_entropy(model(moved), y))
    return loss


def trained(images: Dataset, objective: Objective, *, seed: int) -> tuple[ImplicitModel, History]:
    """The classifier trained by an objective, from the content-keyed cache where the same training was done before.

    Args:
        seed: of the initial weights, the order of samples and the starts of attacks.

    Raises:
        FloatingPointError: the loss is not finite, naming objective, epoch and step.
    """
    torch.set_flush_denormal(True)  # weights that decay to denormal numbers make a step three times as slow
    try:
        return train_or_load(
            f"robust-{objective.name}",
            build=lambda: untrained(seed, images.u_train.shape[1], len(images.meta["classes"])),
            data=images,
            recipe=objective.recipe,
            seed=seed,
            key_modules=KEY_MODULES,
            parameters={"objective": asdict(objective)},
            loss=functools.partial(loss_of, objective),
        )
    finally:
        torch.set_flush_denormal(False)


def measured(
    model: ImplicitModel,
    images: Dataset,
    epsilons: Sequence[float],
    *,
    n_samples: int,
    search: PGD = _SEARCH,
    seed: int = 0,
) -> dict[str, Any]:
    """Accuracy of a model on test images: clean, under attack, and certified by three bounds; and its three constants.

    Args:
        epsilons: radii in pixel units, [0, 1]; boxes are not cut to that range.
        n_samples: the first so many test images are used for everything.
        search: the attack. seed: of its restarts.
    Returns:
        "clean"; "attacked", "certified", "interval", "box": a list each, one entry a radius, in [0, 1]; "rho",
        "convex_penalty", "sensitivity" (largest row sum of S), "row_norm" of A.
    """
    u, labels = (np.asarray(part[:n_samples]) for part in images.test[next(iter(images.test))])
    u, labels = u.astype(np.float64), labels.astype(np.int64)
    model.eval()
    with torch.no_grad():
        out: dict[str, Any] = {
            "rho": lipschitz_constant(model).item(),
            "convex_penalty": convex_penalty(model).item(),
            "sensitivity": sensitivity_norm(model).item(),
            "row_norm": model.A.abs().sum(1).max().item(),
        }
        right = model(torch.as_tensor(u, dtype=model.A.dtype)).argmax(1).numpy() == labels
    out |= {"clean": float(right.mean()), "attacked": [], "certified": [], "interval": [], "box": []}
    spec = margins(labels, model.out_features)
    for eps in epsilons:
        broken = attack(model, u, labels, eps, search, seed=seed).success
        out["attacked"].append(float((right & ~broken).mean()))
        out["certified"].append(
            certify(model, u, labels, eps, method=Dual(early_stop=True), search=None).certified_accuracy
        )
        for bound in ("interval", "box"):
            out[bound].append(float((bounds(model, u, eps, method=bound, spec=spec).lb > 0).all(axis=1).mean()))
    return out


def objectives(profile: str, weights: Sequence[float], train_eps: float) -> dict[str, list[Objective]]:
    """Objective -> its settings: one for each weight of a penalty or of the control, one for the others.

    The interval bounds start from the samples themselves and get twice the epochs, as their radius has to rise first.
    """
    chosen = PROFILES[profile]
    common = {"epochs": chosen["epochs"], "batch_size": 100 if profile == "quick" else 200}
    return {
        "plain": [Objective("plain", **common)],
        "weight_decay": [Objective("weight_decay", weight=w, **common) for w in chosen["decays"]],
        "convex_penalty": [Objective("convex_penalty", weight=w, **common) for w in weights],
        "sensitivity": [Objective("sensitivity", weight=w, **common) for w in weights],
        "adversarial": [Objective("adversarial", eps=train_eps, **common)],
        "interval": [Objective("interval", eps=train_eps, **(common | {"epochs": 2 * common["epochs"]}))],
    }
