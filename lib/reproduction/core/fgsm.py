"""Fast gradient sign attack in the protocol of the SIM paper: half of the pixels, one draw a batch.

u~ = u + eps m * sgn(grad_u loss(f(u), y)), where the mask m has a share of ones, drawn once a batch. The paper writes
the gradient of the network's output, which has ten components, and counts y = sgn f(u): the loss and the largest output
are meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reproduction.core.scores import dtype_of

EPSILONS = (0.004, 0.008)
BATCH_SIZE = 64


def fgsm_accuracy(
    model: nn.Module,
    u: Float[np.ndarray | Tensor, "N p"],
    y: Int[np.ndarray | Tensor, " N"],
    *,
    epsilon: float,
    share: float = 0.5,
    direction: Literal["gradient", "random"] = "gradient",
    source: nn.Module | None = None,
    clip: tuple[float, float] | None = None,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
) -> float:
    """Share of samples whose largest output is still the label's after the attack.

    Args:
        model: the model under attack, u -> logits: a torch network or an implicit model; evaluation mode, restored
            after.
        u, y: samples and labels.
        epsilon: size of the step in every attacked coordinate.
        share: of the coordinates that are attacked, drawn anew for each batch; 1 attacks all.
        direction: "gradient" of the cross-entropy, or "random" signs, the control that tells an attack from noise.
        source: model whose gradient is used; None is `model` itself. The paper's formula has the baseline network's.
        clip: range to which attacked coordinates are clipped; None, as printed, for no clipping.
        seed: of masks and random signs; the same masks for every model.
        batch_size: samples that share a mask.

    Raises:
        ValueError: sizes that do not match, no sample, a negative epsilon, a share outside [0, 1], an unknown
            direction, or a gradient that is not finite (names the sample).

    Source:
        SIM paper, section 4.2; Goodfellow, Shlens and Szegedy (2015).
    """
    hits = total = 0
    options = {
        "epsilon": epsilon,
        "share": share,
        "direction": direction,
        "clip": clip,
        "seed": seed,
        "batch_size": batch_size,
    }
    for attacked, labels in attacked_batches(model if source is None else source, u, y, **options):
        with torch.no_grad(), _Evaluation(model):
            hits += int((model(attacked.to(dtype_of(model))).argmax(dim=1) == labels).sum())
        total += len(labels)
    return hits / total


def attacked_batches(
    model: nn.Module,
    u: Float[np.ndarray | Tensor, "N p"],
    y: Int[np.ndarray | Tensor, " N"],
    *,
    epsilon: float,
    share: float = 0.5,
    direction: Literal["gradient", "random"] = "gradient",
    clip: tuple[float, float] | None = None,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (attacked inputs, labels) batch by batch; arguments and errors are those of `fgsm_accuracy`."""
    dtype = dtype_of(model)
    u, y = torch.as_tensor(u).to(dtype), torch.as_tensor(y)
    if u.ndim != 2 or y.ndim != 1 or len(u) != len(y) or not len(u):
        raise ValueError(f"inputs {tuple(u.shape)} and labels {tuple(y.shape)} must be (N, p) and (N,), N >= 1")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must not be negative, got {epsilon}")
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}")
    if direction not in ("gradient", "random"):
        raise ValueError(f"direction must be 'gradient' or 'random', got {direction!r}")
    p = u.shape[1]
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, len(u), batch_size):
        inputs, labels = u[start : start + batch_size], y[start : start + batch_size]
        mask = torch.zeros(p, dtype=dtype)
        mask[torch.randperm(p, generator=generator)[: round(share * p)]] = 1
        # Drawn in both cases, so that the masks do not depend on the direction.
        signs = torch.randint(0, 2, inputs.shape, generator=generator).to(dtype) * 2 - 1
        if direction == "gradient":
            signs = loss_gradient(model, inputs, labels, first=start).sign()
        attacked = inputs + epsilon * mask * signs
        if clip is not None:
            # A coordinate that is not attacked keeps its value, even outside the range.
            attacked = torch.where(mask > 0, attacked.clamp(*clip), inputs)
        yield attacked, labels


def loss_gradient(
    model: nn.Module, u: Float[Tensor, "N p"], y: Int[Tensor, " N"], *, first: int = 0
) -> Float[Tensor, "N p"]:
    """Gradient of each sample's cross-entropy with respect to its input, in evaluation mode.

    Args:
        model: u -> logits.
        u, y: samples and labels.
        first: number of the first sample, for the message.

    Raises:
        ValueError: a gradient is not finite.
    """
    u = u.detach().requires_grad_()
    with torch.enable_grad(), _Evaluation(model):
        # The sum, not the mean: a sample's gradient must not depend on its batch.
        loss = nn.functional.cross_entropy(model(u), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, u)
    bad = torch.nonzero(~gradient.isfinite().all(dim=1)).flatten()
    if len(bad):
        raise ValueError(f"the gradient of sample {first + int(bad[0])} is not finite")
    return gradient


class _Evaluation:
    """Evaluation mode within a with-block; each module's own mode comes back after it."""

    def __init__(self, model: nn.Module) -> None:
        self.modes = [(module, module.training) for module in model.modules()]
        self.model = model

    def __enter__(self) -> None:
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        for module, mode in self.modes:
            module.training = mode
