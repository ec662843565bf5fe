"""What a training step keeps and what it costs: memory for the backward pass, CPU seconds an epoch."""

from __future__ import annotations

import copy
import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.model import ImplicitModel
from reproduction.core.recipe import History
from reproduction.models.mlp import MLP


def kept_bytes(model: nn.Module, u: Float[Tensor, "N p"]) -> int:
    """Bytes that the graph of one forward pass keeps for its backward pass, parameters and inputs not counted.

    Every tensor that autograd saves is seen by a hook; two that share memory count once.
    """
    own = {value.untyped_storage().data_ptr() for value in model.parameters()} | {u.untyped_storage().data_ptr()}
    kept: dict[int, Tensor] = {}

    def pack(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = value  # held, so that no later tensor gets the same address
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        output = model(u)
    total = sum(value.untyped_storage().nbytes() for value in kept.values())
    del output
    return total


def with_settings(model: ImplicitModel, **changes: Any) -> ImplicitModel:
    """A copy of the model that solves and differentiates otherwise.

    Args:
        model: left as it is.
        changes: of its `SolverSettings`.
    """
    changed = copy.deepcopy(model)
    changed.settings = dataclasses.replace(model.settings, **changes)
    return changed


def memory_table(model: ImplicitModel, u: Float[Tensor, "N p"], depths: Sequence[int], seed: int) -> dict[str, float]:
    """Bytes a sample that one forward pass keeps: implicit, unrolled, and explicit networks of growing depth.

    Args:
        model: trained implicit model.
        u: (N, p) inputs.
        depths: hidden layers of the explicit networks without biases, as wide as the model has states: what its
            Picard steps would be without tied weights.
        seed: of the explicit networks' weights.
    """
    table, solved = {}, {"tol": 1e-6, "max_iter": 2_000, "on_failure": "ignore"}
    for name, backward in (("implicit", "implicit"), ("unrolled", "unroll")):
        table[name] = kept_bytes(with_settings(model, backward=backward, **solved), u) / len(u)
    for depth in depths:
        network = MLP((model.in_features, *([model.n_states] * depth), model.out_features), bias=False, seed=seed)
        table[f"explicit_{depth}"] = kept_bytes(network, u) / len(u)
    return table


def seconds_an_epoch(history: History) -> float:
    """Median CPU seconds of an epoch, the first left out, which also compiles and fills caches."""
    return statistics.median(history.cpu_seconds[1:] or history.cpu_seconds)
