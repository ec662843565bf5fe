"""What the tutorial records: the network, what sparse rows gain and lose, samples, and what trains on."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from implicit_models.sim.problem import Budget, Cardinality
from implicit_models.sim.sparse_model import SparseModel
from reproduction.core.scores import count_parameters
from reproduction.tutorial_sparsify import compute
from reproduction.tutorial_sparsify.compute import CONTROLS, VARIANTS
from reproduction.tutorial_sparsify.network import Task

Points = Mapping[str, Sequence[Mapping[str, float]]]  # name -> `compute.point` at every budget
Three = tuple[Any, Any, Any]  # of the network, of sparse rows, of shared kernels


def network_values(tasks: Sequence[Task], m: int) -> dict[str, Any]:
    """`parameters`, `accuracy` (one a seed), `training_cpu_seconds` and `m`, the samples of the fit."""
    return {
        "parameters": sum(t.numel() for t in tasks[0].network.parameters()),
        "accuracy": ([compute.accuracy(task.network, task.u_test, task.y_test) for task in tasks], "%"),
        "training_cpu_seconds": (sum(task.cpu_seconds for task in tasks), "s"),
        "m": m,
    }


@dataclass(frozen=True)
class Gain:
    """Counts of the network, of a model of sparse rows and of one of shared kernels.

    Args:
        entries: multiplications of a sample.
        numbers: different numbers.
        stored: bytes.
        zeros: share of the full [A B], in [0, 1].
        cpu_ms: milliseconds of a sample.
    """

    entries: Three
    numbers: Three
    stored: Three
    zeros: Three
    cpu_ms: Three


def gain_of(task: Task, sparse: SparseModel, shared: SparseModel) -> Gain:
    """What the two models gain."""
    rows, kernels = sparse.report, shared.report
    models = (task.network, sparse, shared)
    return Gain(
        (rows.own_entries, rows.entries, kernels.entries),
        (rows.own_parameters, rows.parameters, kernels.parameters),
        tuple(compute.stored_bytes(model) for model in models),
        (rows.own_sparsity_of_full_matrix, rows.sparsity_of_full_matrix, kernels.sparsity_of_full_matrix),
        tuple(compute.cpu_ms(model, task.u_test) for model in models),
    )


def gain_values(gain: Gain, sparse: SparseModel, shared: SparseModel) -> dict[str, Any]:
    """What is gained.

    Returns:
        In per cent `sparsity` (of multiplications), `numbers_sparsity`, `full_sparsity`, `own_full_sparsity` and
        `shared_numbers_sparsity`; `cpu_ms_network` and `cpu_ms_sparse`; `bytes_ratio`; `largest_gap` of the rows.
    """
    report = sparse.report
    shares = {
        "sparsity": report.sparsity_of_entries,
        "numbers_sparsity": report.sparsity_of_parameters,
        "full_sparsity": report.sparsity_of_full_matrix,
        "own_full_sparsity": report.own_sparsity_of_full_matrix,
        "shared_numbers_sparsity": shared.report.sparsity_of_parameters,
    }
    values: dict[str, Any] = {key: (100 * share, "%") for key, share in shares.items()}
    for name, milliseconds in zip(("network", "sparse"), gain.cpu_ms):
        values[f"cpu_ms_{name}"] = milliseconds, "ms"
    values["bytes_ratio"] = gain.stored[1] / gain.stored[0]
    return values | {"largest_gap": max(layer.gap for layer in report.layers)}


def lost(tasks: Sequence[Task], budget: Budget, m: int) -> dict[str, Any]:
    """`VARIANT_accuracy`, `VARIANT_sparsity` and `VARIANT_numbers` in per cent at one budget, one a seed."""
    found = [compute.variant_points(task, [budget], m) for task in tasks]
    return {
        f"{name}_{key}": ([points[name][-1][key] for points in found], "%")
        for name in VARIANTS
        for key in ("accuracy", "sparsity", "numbers")
    }


def sweeps(tasks: Sequence[Task], seeds: Sequence[int], chosen: Mapping[str, Any], m: int) -> list[Points]:
    """All variants and controls at the profile's shares of columns, one a seed."""
    out = []
    for seed, task in zip(seeds, tasks, strict=True):
        found = compute.variant_points(task, [Cardinality(share) for share in chosen["shares"]], m)
        kept = [1 - point["fitted"] for point in found["head"]]
        sparsities = [point["sparsity"] for point in found["head"]]
        out.append(found | compute.control_points(task, kept, sparsities, m, chosen["retrain"], seed))
    return out


def sweep_values(found: Sequence[Points], shares: Sequence[float]) -> dict[str, Any]:
    """`keep_SHARE_NAME`: accuracy of every variant and control, one a seed."""
    return {
        f"keep_{share:g}_{name}": [points[name][position]["accuracy"] for points in found]
        for name in (*VARIANTS, *CONTROLS)
        for position, share in enumerate(shares)
    }


def sweep_curves(found: Sequence[Points]) -> dict[str, Any]:
    """`keep/NAME`: the points of every variant and control, one list a seed."""
    return {f"keep/{name}": [points[name] for points in found] for name in (*VARIANTS, *CONTROLS)}


def sample_values(tasks: Sequence[Task], budget: Budget, counts: Sequence[int]) -> dict[str, list[float]]:
    """`samples_COUNT`: accuracy of the default variant, one a seed."""
    return {
        f"samples_{count}": [
            compute.variant_points(task, [budget], count, ["head"])["head"][-1]["accuracy"] for task in tasks
        ]
        for count in counts
    }


def saved_and_tuned(task: Task, sparse: SparseModel, epochs: int, m: int, seed: int) -> dict[str, Any]:
    """A model that was saved, loaded and fine-tuned on m samples with labels.

    Returns:
        `loaded_is_the_same`, `parameters_trained_as_it_comes`, `fine_tuned_parameters`, and the accuracies
        `before_fine_tuning` and `after_fine_tuning`.
    """
    file = io.BytesIO()
    torch.save(sparse, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    with torch.no_grad():
        same = torch.equal(again(task.u_test[:100]), sparse(task.u_test[:100]))
    untouched = sum(t.requires_grad for t in again.parameters())
    tuned = compute.fine_tune(again, task.u[:m], task.y[:m], epochs, seed)
    return {
        "loaded_is_the_same": same,
        "parameters_trained_as_it_comes": untouched,
        "fine_tuned_parameters": count_parameters(tuned),
        "before_fine_tuning": (compute.accuracy(sparse, task.u_test, task.y_test), "%"),
        "after_fine_tuning": (compute.accuracy(tuned, task.u_test, task.y_test), "%"),
    }
