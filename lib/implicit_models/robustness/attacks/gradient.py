"""Attacks that follow the gradient: one sign step, and projected sign steps with restarts.

Over |u - u0| <= radius, with the margin m(u) = max_{j != y} f_j(u) - f_y(u), which is positive once the sample is
misclassified:

    fgsm    the corner of the set to which sign grad CE(f(u), y) points: u + radius * sign, cut to the set
    pgd     u <- P(u + step radius * sign grad m(u)), from the sample itself, then from random points; the best point of
    all steps is kept

The gradient of an implicit model is that of its equilibrium, by implicit differentiation.

Source:
    Goodfellow, Shlens and Szegedy (2015); Madry et al. (2018); Tsai thesis (2024), section 4.4.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from implicit_models.matrices import check_network
from implicit_models.model import ImplicitModel
from implicit_models.robustness.attacks.options import PGD
from implicit_models.robustness.input_sets import Uncertainty
from implicit_models.robustness.problem import Problem, _torch

BATCH = 1000  # samples in one forward pass
TOL = 1e-10  # of equilibria on which a verdict rests
_DEFAULT = PGD()


def classifier(model: Any) -> nn.Module:
    """The torch module behind a model: itself, or that of a `Problem`.

    Raises:
        TypeError: for anything else, and naming a parameter in half precision or of another dtype than the rest.
        ValueError: naming a parameter that is not finite.
    """
    if isinstance(model, Problem):
        A, B, C, D = (_torch(M) for M in (model.A, model.B, model.C, model.D))
        vectors = {"b": torch.from_numpy(model.b.copy()), "d": torch.from_numpy(model.d.copy())}  # type: dict[str, Any]
        return ImplicitModel.from_matrices(
            A,
            B,
            C,
            D,
            model.activation,  # type: ignore[arg-type]
            **vectors,
            tol=1e-12,
        ).requires_grad_(False)
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module or a Problem, got {type(model).__name__}")
    check_network(model)
    return model


def dtype_of(network: nn.Module) -> torch.dtype:
    """Floating type of its parameters or buffers; float32 without any."""
    return next((t.dtype for t in (*network.parameters(), *network.buffers()) if t.is_floating_point()), torch.float32)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode, and every module's own mode after it."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield network
    finally:
        for module, mode in modes:
            module.training = mode


def logits(network: nn.Module, U: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N q"]:
    """Outputs in float64: those of a float64 copy of the network, its equilibria solved to TOL."""
    loose = [m for m in network.modules() if isinstance(m, ImplicitModel) and m.settings.tol > TOL]
    exact = network if dtype_of(network) == torch.float64 and not loose else copy.deepcopy(network).double()
    if exact is not network:
        for module in exact.modules():
            if isinstance(module, ImplicitModel):
                module.settings = replace(
                    module.settings, tol=min(module.settings.tol, TOL), max_iter=max(module.settings.max_iter, 2000)
                )
    with torch.no_grad(), evaluating(exact):
        parts = [
            exact(torch.from_numpy(np.ascontiguousarray(U[i : i + BATCH]))).numpy() for i in range(0, len(U), BATCH)
        ]
    return np.concatenate(parts) if parts else np.zeros((0, 0))


def margin(out: Float[Tensor, "N q"], y: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The largest other output minus the label's; positive: misclassified."""
    own = out.gather(1, y[:, None])[:, 0]
    return out.scatter(1, y[:, None], -math.inf).amax(1) - own


def fgsm(
    model: Any, U: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"], inputs: Uncertainty
) -> Float[np.ndarray, "N p"]:
    """One step along the sign of the cross-entropy's gradient, to the end of the set in every input.

    For boxes around the samples this is u + radius * sign; of a box that is clipped on one side, the step ends where
    the box does.

    Args:
        U: samples.
        y: labels.
        inputs: the boxes around them.

    Source:
        Goodfellow, Shlens and Szegedy (2015).
    """
    return towards(U, input_gradient(model, U, y), inputs)


def towards(
    U: Float[np.ndarray, "N p"], direction: Float[np.ndarray, "N p"], inputs: Uncertainty
) -> Float[np.ndarray, "N p"]:
    """The upper end of the set where the direction is positive, its lower end where it is negative, the sample where it
    is 0."""
    return np.where(direction > 0, inputs.upper, np.where(direction < 0, inputs.lower, U))


def input_gradient(
    model: Any, U: Float[np.ndarray, "N p"], y: Int[np.ndarray, " N"], of: str = "cross_entropy"
) -> Float[np.ndarray, "N p"]:
    """Gradient with respect to each sample of "cross_entropy", of the "margin", or of the "label"'s own output.

    Raises:
        ValueError: for another name, and naming the sample whose gradient is not finite.
    """
    if of not in ("cross_entropy", "margin", "label"):
        raise ValueError(f"unknown objective {of!r}; choose one of cross_entropy, margin, label")
    network = classifier(model)
    parts = []
    with evaluating(network), torch.enable_grad():
        for i in range(0, len(U), BATCH):
            u = torch.from_numpy(U[i : i + BATCH]).to(dtype_of(network)).requires_grad_()
            labels = torch.from_numpy(np.ascontiguousarray(y[i : i + BATCH], dtype=np.int64))
            out = network(u)
            if of == "cross_entropy":
                objective = nn.functional.cross_entropy(
                    out, labels, reduction="sum"
                )  # a sum: no sample's gradient depends on its batch
            else:
                objective = (margin(out, labels) if of == "margin" else out.gather(1, labels[:, None])).sum()
            (g,) = torch.autograd.grad(objective, u)
            bad = torch.nonzero(~g.isfinite().all(dim=1)).flatten()
            if len(bad):
                raise ValueError(f"the gradient of sample {i + int(bad[0])} is not finite")
            parts.append(g.double().numpy())
    return np.concatenate(parts) if parts else np.zeros_like(U)


def pgd(
    model: Any,
    U: Float[np.ndarray, "N p"],
    y: Int[np.ndarray, " N"],
    inputs: Uncertainty,
    how: PGD = _DEFAULT,
    *,
    targets: Int[np.ndarray, "N t"] | None = None,
    starts: Float[np.ndarray, "N p"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "N p"]:
    """The point of largest margin on `how.restarts` paths of `how.steps` projected sign steps.

    Args:
        inputs: boxes around the samples.
        how: steps, restarts, step size and loss.
        targets: classes that the second path and the next ones aim at, in turn; None: any other class.
        starts: points of the second path.
        seed: of the random starts.

    Raises:
        ValueError: for sets of at most k moving inputs.

    Source:
        Madry et al. (2018).
    """
    if inputs.card is not None:
        raise ValueError(f"projected gradient steps move all inputs; for k={inputs.card} use the sparse attacks")
    network = classifier(model)
    rng = np.random.default_rng(seed)
    sizes = np.full(how.steps, how.step_size) if how.step_size is not None else np.linspace(0.25, 0.02, how.steps)
    best, reached = np.array(U), np.full(len(U), -np.inf)
    with evaluating(network), torch.enable_grad():
        for path in range(how.restarts):
            start = (
                U
                if path == 0
                else np.clip(inputs.centre + inputs.radius * rng.uniform(-1, 1, U.shape), inputs.lower, inputs.upper)
            )
            if path == 1 and starts is not None:
                start = starts
            aim = None if targets is None or path == 0 else targets[:, (path - 1) % targets.shape[1]]
            for i in range(0, len(U), BATCH):
                at = slice(i, i + BATCH)
                u, value = _climb(
                    network,
                    start[at],
                    y[at],
                    None if aim is None else aim[at],
                    inputs.take(at),
                    sizes,
                    how.loss,
                    done=reached[at] > 0,
                )
                better = value > reached[at]
                best[at][better], reached[at][better] = u[better], value[better]
    return best


def _climb(network, start, y, aim, box, sizes, loss, done) -> tuple[np.ndarray, np.ndarray]:
    """One path of samples that are not done; the best of its points, and their margins (-inf for those done)."""
    best, reached = np.array(start), np.full(len(start), -np.inf)
    rows = np.flatnonzero(~done)
    if not rows.size:
        return best, reached
    low, high = (torch.from_numpy(v[rows]).to(dtype_of(network)) for v in (box.lower, box.upper))
    radius = 0.5 * (high - low)
    u, labels = (
        torch.from_numpy(start[rows]).to(low.dtype),
        torch.from_numpy(np.ascontiguousarray(y[rows], dtype=np.int64)),
    )
    kept, values = u.clone(), torch.full((len(rows),), -math.inf, dtype=u.dtype)
    for size in [*sizes, None]:
        u = u.detach().requires_grad_(size is not None)
        out = network(u)
        now = margin(out, labels)
        better = now.detach() > values
        kept[better], values[better] = u.detach()[better], now.detach()[better]
        if size is None or bool((values > 0).all()):
            break
        if aim is not None:
            own, other = (out.gather(1, k[:, None]) for k in (labels, torch.from_numpy(aim[rows])))
            objective = (other - own).sum()
        else:
            objective = now.sum() if loss == "margin" else nn.functional.cross_entropy(out, labels, reduction="sum")
        (g,) = torch.autograd.grad(objective, u)
        u = torch.minimum(torch.maximum(u.detach() + float(size) * radius * g.sign(), low), high)
    best[rows], reached[rows] = (
        np.clip(kept.double().numpy(), box.lower[rows], box.upper[rows]),
        values.double().numpy(),
    )
    return best, reached
