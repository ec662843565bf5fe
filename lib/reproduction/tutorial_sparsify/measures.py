"""What the tutorial records: the network, what shares of its weights gain, and accuracies beside those of others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from implicit_models.sim.layerwise import sparsify_path
from implicit_models.sim.problem import Share
from implicit_models.sim.pruning.network import SparseNetwork
from reproduction.tutorial_sparsify import compute, peers
from reproduction.tutorial_sparsify.network import Task

NAMES = ("share", "magnitude", "magnitude_norm", "layer", "layer_norm", "shared", "by_position")


@dataclass(frozen=True)
class Found:
    """Models of one network. models: name -> one a share, None where there is none. cpu_seconds: of the call for all
    shares."""

    models: Mapping[str, Sequence[nn.Module | None]]
    cpu_seconds: float


def network_values(tasks: Sequence[Task], m: int) -> dict[str, Any]:
    """`parameters`, `accuracy` (one a seed), `training_cpu_seconds` and `m`, the samples of the fit."""
    return {
        "parameters": sum(t.numel() for t in tasks[0].network.parameters()),
        "accuracy": ([compute.accuracy(task.network, task.u_test, task.y_test) for task in tasks], "%"),
        "training_cpu_seconds": (sum(task.cpu_seconds for task in tasks), "s"),
        "m": m,
    }


def found_of(task: Task, shares: Sequence[float], m: int) -> Found:
    """The sparse networks of a task at each share, and what they are compared with."""
    u, begin = task.u[:m], time.process_time()
    sparse = sparsify_path(task.network, u, [Share(share) for share in shares])
    seconds = time.process_time() - begin
    kept, weights = [model.report.left for model in sparse], sparse[0].report.weights
    others = peers.by_magnitude(task.network, kept, u) | peers.l1_rows(task.network, kept, weights, u)
    return Found({"share": sparse, **others}, seconds)


def gain_values(task: Task, models: Sequence[SparseNetwork], shares: Sequence[float]) -> dict[str, Any]:
    """What is gained.

    Returns:
        `weights`, `multiplications`, `torch_bytes`, `packed_bytes` and `ms` of the network, and each with `_SHARE`;
        `multiplications_gone_SHARE` in per cent; `times_smaller_SHARE`, the file of `torch.save` over that of `save`.
    """
    named = {"": task.network} | {f"_{share:g}": model.dense() for share, model in zip(shares, models, strict=True)}
    times = compute.cpu_ms(named, task.u_test)
    values: dict[str, Any] = {}
    for name, network in named.items():
        values[f"multiplications{name}"] = compute.multiplications(network, task.u_test)
        values[f"torch_bytes{name}"] = compute.torch_bytes(network), "bytes"
        values[f"packed_bytes{name}"] = compute.packed_bytes(network), "bytes"
        values[f"ms{name}"] = times[name], "ms"
    values["weights"] = models[0].report.weights
    for share, model in zip(shares, models, strict=True):
        name = f"_{share:g}"
        values[f"weights{name}"] = model.report.left
        left = values[f"multiplications{name}"] / values["multiplications"]
        values[f"multiplications_gone{name}"] = 100 * (1 - left), "%"
        values[f"times_smaller{name}"] = values["torch_bytes"][0] / values[f"packed_bytes{name}"][0]
    return values


def points(task: Task, found: Found) -> dict[str, list[dict[str, float] | None]]:
    """Of every model that there is accuracy, and the numbers that it stores, over the network's weights, in per
    cent."""
    first = found.models["share"][0]
    assert isinstance(first, SparseNetwork)
    weights = first.report.weights
    out: dict[str, list[dict[str, float] | None]] = {}
    for name, models in found.models.items():
        out[name] = [None if model is None else _point(task, model, weights) for model in models]
    return out


def _point(task: Task, model: nn.Module, weights: int) -> dict[str, float]:
    right = compute.accuracy(model, task.u_test, task.y_test)
    return {"accuracy": right, "stored": 100 * peers.stored(model) / weights}


def accuracy_values(
    found: Sequence[Mapping[str, Sequence[Mapping[str, float] | None]]], shares: Sequence[float]
) -> dict[str, Any]:
    """`SHARE_NAME`, the accuracy, and `stored_SHARE_NAME`, both in per cent and one a seed, of what there is."""
    values: dict[str, Any] = {}
    for name in found[0]:
        for position, share in enumerate(shares):
            own = [points[name][position] for points in found]
            if all(point is not None for point in own):
                values[f"{share:g}_{name}"] = [point["accuracy"] for point in own if point is not None], "%"
                values[f"stored_{share:g}_{name}"] = [point["stored"] for point in own if point is not None], "%"
    return values


def proved_values(models: Sequence[SparseNetwork], shares: Sequence[float]) -> dict[str, Any]:
    """`proved_SHARE`, per cent of what the zeros change the outputs by, to first order, that no supports of the same
    sizes avoid; `slope`, the largest derivative left in a row's least squares."""
    values: dict[str, Any] = {}
    for share, model in zip(shares, models, strict=True):
        lost = sum(layer.lost for layer in model.report.layers)
        least = sum(layer.lost * layer.proved for layer in model.report.layers)
        values[f"proved_{share:g}"] = (100 * least / lost if lost > 0 else 100.0), "%"
    slopes = [float(layer.slope.max(initial=0.0)) for model in models for layer in model.report.layers]
    return values | {"slope": max(slopes, default=0.0)}
