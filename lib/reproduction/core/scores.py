"""What a model is measured by: its size, and its error or accuracy on every test set."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn


def count_parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@torch.no_grad()
def predict(model: nn.Module, u: Shaped[Tensor | np.ndarray, "N ..."], *, batch_size: int = 1000) -> Tensor:
    """Return the outputs for all samples, computed in evaluation mode and in batches.

    Args:
        model: any module u -> y; its mode is restored.
        u: inputs, N >= 1 samples in the first dimension.
        batch_size: samples at once.
    """
    training = model.training
    model.eval()
    try:
        return torch.cat([model(batch) for batch in torch.as_tensor(u).split(batch_size)])
    finally:
        model.train(training)


def evaluate(
    model: nn.Module,
    test: Mapping[Hashable, tuple[Shaped[np.ndarray | Tensor, "N ..."], Shaped[np.ndarray | Tensor, "N ..."]]],
    *,
    batch_size: int = 1000,
) -> dict[Hashable, float]:
    """Mean squared error on each test set, accumulated in float64.

    An output that is not finite makes its error inf or nan, which is returned as it is.

    Args:
        model: any module u -> y.
        test: shift -> (u, y), as `Dataset.test`.
        batch_size: samples at once.

    Returns:
        shift -> mean over samples and entries of (y - model(u))^2.

    Raises:
        ValueError: outputs and targets differ in shape.
    """
    errors = {}
    for shift, (u, y) in test.items():
        outputs, targets = predict(model, u, batch_size=batch_size), torch.as_tensor(y)
        if outputs.shape != targets.shape:
            raise ValueError(f"test[{shift!r}]: outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}")
        errors[shift] = (outputs.double() - targets.double()).square().mean().item()
    return errors


def accuracy(
    model: nn.Module,
    test: Mapping[Hashable, tuple[Shaped[np.ndarray | Tensor, "N ..."], Shaped[np.ndarray | Tensor, " N"]]],
    *,
    batch_size: int = 1000,
) -> dict[Hashable, float]:
    """Share of samples whose largest output is the label's, on each test set.

    Args:
        model: any module u -> scores (N, classes).
        test: shift -> (u, labels).
        batch_size: samples at once.
    """
    return {shift: share_right(predict(model, u, batch_size=batch_size), y) for shift, (u, y) in test.items()}


def accuracy_of(
    model: nn.Module,
    u: Shaped[np.ndarray | Tensor, "N ..."],
    labels: Shaped[np.ndarray | Tensor, " N"],
    *,
    batch_size: int = 1000,
) -> float:
    """Share of samples whose largest output is the label's; the inputs are cast to the model's type."""
    return share_right(predict(model, torch.as_tensor(u).to(dtype_of(model)), batch_size=batch_size), labels)


def share_right(scores: Shaped[Tensor | np.ndarray, "N C"], labels: Shaped[Tensor | np.ndarray, " N"]) -> float:
    """Share of samples whose largest score is the label's, in [0, 1]; a sample with a NaN among its scores is wrong.

    Raises:
        ValueError: unless there is one label a sample.
    """
    scores, labels = torch.as_tensor(scores), torch.as_tensor(labels)
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"scores (N, C) and labels (N,) must pair, got {tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    right = (scores.argmax(dim=-1) == labels) & ~scores.isnan().any(dim=-1)
    return right.double().mean().item()


def dtype_of(model: nn.Module) -> torch.dtype:
    """Floating type of a model's parameters or buffers, float32 where it has none."""
    tensors = [*model.parameters(), *model.buffers()]
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float32)
