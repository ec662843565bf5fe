"""How a model is trained, and what happened while it was."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

LOSSES = ("mse", "cross_entropy")


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: Adam with a learning-rate schedule, over shuffled batches.

    Args:
        epochs: passes over the training set.
        lr: learning rate of the first step.
        batch_size: samples a step; None takes all at once. The last batch may be smaller.
        schedule: "cosine", lr/2 (1 + cos(pi step/steps)), which ends at 0; or "constant".
        loss: "mse" or "cross_entropy".
        clip: largest l2 norm of the gradient, None for no limit.
        weight_decay: Adam's l2 penalty.
        on_nan: "raise" a FloatingPointError when the loss is not finite, or "stop" there and say so
            in `History.reason`.

    Raises:
        ValueError: a setting outside its domain.
    """

    epochs: int
    lr: float = 0.01
    batch_size: int | None = 100
    schedule: Literal["cosine", "constant"] = "cosine"
    loss: Literal["mse", "cross_entropy"] = "mse"
    clip: float | None = None
    weight_decay: float = 0.0
    on_nan: Literal["raise", "stop"] = "raise"

    def __post_init__(self) -> None:
        allowed = {
            "epochs": self.epochs >= 1,
            "lr": self.lr > 0,
            "batch_size": self.batch_size is None or self.batch_size >= 1,
            "schedule": self.schedule in ("cosine", "constant"),
            "loss": self.loss in LOSSES,
            "clip": self.clip is None or self.clip > 0,
            "weight_decay": self.weight_decay >= 0,
            "on_nan": self.on_nan in ("raise", "stop"),
        }
        for name, fine in allowed.items():
            if not fine:
                raise ValueError(f"recipe: {name} = {getattr(self, name)!r} is outside its domain")

    def learning_rate(self, step: int, n_steps: int) -> float:
        """Learning rate of step 0 <= step < n_steps."""
        if self.schedule == "constant":
            return self.lr
        return 0.5 * self.lr * (1 + math.cos(math.pi * step / n_steps))


@dataclass
class History:
    """What happened, one entry an epoch in every list.

    Args:
        loss: mean training loss over the epoch's samples, before each step.
        learning_rate: of the epoch's last step.
        seconds, cpu_seconds: of the epoch, this process only.
        iterations_mean, iterations_max, residual_max: of the equilibria solved in the epoch's
            forward passes, over samples; empty for explicit models.
        evaluation: what `evaluate` returned after the epoch; empty without one.
        reason: "completed", "running" (a checkpoint's), or why training stopped.
    """

    loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    iterations_mean: list[float] = field(default_factory=list)
    iterations_max: list[int] = field(default_factory=list)
    residual_max: list[float] = field(default_factory=list)
    evaluation: list[Any] = field(default_factory=list)
    reason: str = "running"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, for JSON."""
        return asdict(self)
