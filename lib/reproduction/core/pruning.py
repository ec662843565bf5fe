"""What a sparse model is compared with: magnitude pruning, with and without retraining, and plain lasso rows.

The state-driven models of chapter 3 remove parameters of a trained network. These controls remove as many by the
simplest means, so that a figure shows what the state-driven fit adds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from reproduction.core.recipe import History, Recipe
from reproduction.core.train import train

Masks = Mapping[str, Tensor]


def nonzeros(model: nn.Module) -> int:
    """Number of parameters that are not zero, biases included: the papers' ||N||_0."""
    return sum(int(torch.count_nonzero(parameter)) for parameter in model.parameters())


def sparsity(kept: float, network: nn.Module) -> float:
    """The papers' sparsity in per cent, 100 (1 - ||M||_0 / ||N||_0); negative where M has more parameters than N.

    Args:
        kept: ||M||_0.
        network: N, the network that the model replaces.

    Source:
        SIM paper, section 4.1.
    """
    return 100 * (1 - kept / nonzeros(network))


def magnitude_prune(
    model: nn.Module, keep: int, *, scope: Literal["global", "layer"] = "global"
) -> tuple[nn.Module, Masks]:
    """Return a copy of the model with its `keep` largest weights, the others zero, and the masks of what is kept.

    Weights are the parameters with two dimensions or more; biases stay as they are and are not counted in `keep`.

    Args:
        model: any module.
        keep: number of weights kept in all.
        scope: "global" compares all weights; "layer" keeps the same share of each layer, rounded so that the sum is
            `keep`.

    Returns:
        The pruned copy, and name -> mask (True where kept) of every weight tensor. Of equal magnitudes, those that come
        first are kept.

    Raises:
        ValueError: keep is negative or above the number of weights; an unknown scope.

    Source:
        Han, Pool, Tran and Dally (2015).
    """
    if scope not in ("global", "layer"):
        raise ValueError(f"scope must be 'global' or 'layer', got {scope!r}")
    pruned = copy.deepcopy(model)
    weights = {name: parameter for name, parameter in pruned.named_parameters() if parameter.ndim >= 2}
    total = sum(weight.numel() for weight in weights.values())
    if not 0 <= keep <= total:
        raise ValueError(f"keep must be between 0 and the {total} weights, got {keep}")
    flat = {name: weight.detach().abs().flatten() for name, weight in weights.items()}
    if scope == "global":
        chosen = _largest(torch.cat(list(flat.values())), keep)
        parts = dict(zip(flat, chosen.split([len(values) for values in flat.values()])))
    else:
        counts = _shares([len(values) for values in flat.values()], keep)
        parts = {name: _largest(values, count) for (name, values), count in zip(flat.items(), counts)}
    masks = {name: parts[name].view_as(weight) for name, weight in weights.items()}
    _apply(pruned, masks)
    return pruned, masks


def _largest(values: Tensor, count: int) -> Tensor:
    mask = torch.zeros(len(values), dtype=torch.bool)
    mask[torch.sort(values, descending=True, stable=True).indices[:count]] = True
    return mask


def _shares(sizes: list[int], keep: int) -> list[int]:
    """`keep` divided in proportion to the sizes; what rounding down leaves goes to the largest remainders."""
    exact = [keep * size / max(1, sum(sizes)) for size in sizes]
    counts = [int(value) for value in exact]
    order = sorted(range(len(sizes)), key=lambda k: (counts[k] - exact[k], k))
    for k in order[: keep - sum(counts)]:
        counts[k] += 1
    return counts


@torch.no_grad()
def _apply(model: nn.Module, masks: Masks) -> None:
    parameters = dict(model.named_parameters())
    for name, mask in masks.items():
        parameters[name].masked_fill_(~mask, 0.0)


class Masked(nn.Module):
    """A model whose masked weights return to zero after each training step.

    Args:
        model: trained in place.
        masks: name of a parameter -> True where it may differ from zero.

    Raises:
        KeyError: a mask of no parameter. ValueError: a mask of another shape.
    """

    def __init__(self, model: nn.Module, masks: Masks) -> None:
        super().__init__()
        parameters = dict(model.named_parameters())
        for name, mask in masks.items():
            if name not in parameters:
                raise KeyError(f"mask {name!r}: the model's parameters are {', '.join(parameters)}")
            if mask.shape != parameters[name].shape:
                raise ValueError(
                    f"mask {name!r} has shape {tuple(mask.shape)}, the parameter {tuple(parameters[name].shape)}"
                )
        self.model, self.masks = model, dict(masks)
        self.project_()

    def forward(self, u: Tensor) -> Tensor:
        return self.model(u)

    def project_(self) -> None:
        _apply(self.model, self.masks)


def retrain(
    pruned: nn.Module,
    masks: Masks,
    u: Shaped[np.ndarray | Tensor, "N ..."],
    y: Shaped[np.ndarray | Tensor, "N ..."],
    *,
    recipe: Recipe,
    seed: int,
) -> tuple[nn.Module, History]:
    """Train a copy of a pruned model further; weights that were removed stay zero.

    Args:
        pruned, masks: from `magnitude_prune`; `pruned` itself is not changed.
        u, y: training set.
        recipe, seed: as for `reproduction.core.train.train`.
    """
    model = copy.deepcopy(pruned)
    history = train(Masked(model, masks), u, y, recipe=recipe, seed=seed, progress=False)
    return model, history


def lasso_rows(
    G: Float[np.ndarray, "d d"],
    C: Float[np.ndarray, "r d"],
    zz: Float[np.ndarray, " r"],
    *,
    beta: float | np.ndarray,
    columns: Bool[np.ndarray, " d"] | None = None,
    **tolerances: Any,
) -> Float[np.ndarray, "r d"]:
    """Plain lasso of every row, 1/2||M a - z||^2 + beta ||a||_1, without a ball: the state-driven fit less
    well-posedness.

    Args:
        G, C, zz: from `implicit_models.sim.solvers.gram`.
        beta: scalar or one a row.
        columns: features that a may use, all by default; the layer below and the bias give a network of the same
            layers.
        tolerances: rtol, atol of `solve_rows`.

    Returns:
        Coefficients (r, d), zero outside `columns`.

    Raises:
        RuntimeError: a row has no certified solution; names the rows.
    """
    from implicit_models.sim.solvers.rows import solve_rows

    d = len(G)
    kept = np.arange(d) if columns is None else np.flatnonzero(columns)
    rows = solve_rows(
        np.ascontiguousarray(G[np.ix_(kept, kept)]),
        np.ascontiguousarray(C[:, kept]),
        zz,
        kappa=1.0,
        ball_mask=np.zeros(len(kept), bool),
        beta=beta,
        **tolerances,
    )
    failed = [k for k, status in enumerate(rows.status) if status not in ("optimal", "fista")]
    if failed:
        raise RuntimeError(f"lasso rows {failed[:10]} have no certified solution: {rows.status[failed[0]]}")
    A = np.zeros((len(C), d))
    A[:, kept] = rows.A
    return A
