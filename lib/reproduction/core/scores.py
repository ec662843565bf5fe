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
    shares = {}
    for shift, (u, labels) in test.items():
        chosen = predict(model, u, batch_size=batch_size).argmax(dim=-1)
        shares[shift] = (chosen == torch.as_tensor(labels)).double().mean().item()
    return shares
