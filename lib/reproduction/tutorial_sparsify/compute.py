"""What sparsifying a classifier gains and loses: variants of `sparsify` beside magnitude pruning at equal
multiplications, time, memory, fine-tuning.

Accuracies and sparsities are in per cent. Sparsity is of multiplications (entries of the rows, layers that were kept
included, the output left out).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from implicit_models.sim.layerwise import sparsify_path
from implicit_models.sim.problem import Budget, Cardinality, L1Ball, L1Penalty
from implicit_models.sim.report import SparsityReport
from implicit_models.sim.row_models import ByPosition, SharedKernels
from implicit_models.sim.sparse_model import SparseModel
from reproduction.core.counts import parameters_shown
from reproduction.core.pruning import magnitude_prune, retrain
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy_of
from reproduction.core.train import train
from reproduction.tutorial_sparsify.network import Task

BATCH = 200
VARIANTS: dict[str, dict[str, Any]] = {
    "l1": {"rows": ByPosition(refit=None), "states": "teacher", "head": False},
    "refit": {"states": "teacher", "head": False},
    "student": {"head": False},
    "head": {},
    "shared": {"rows": SharedKernels()},
}
CONTROLS = ("magnitude", "magnitude_retrained")


def budget_of(text: str) -> Budget:
    """The budget that a text such as "Cardinality(0.1)", "L1Ball(1.0)" or "L1Penalty(0.05)" names.

    Raises:
        ValueError for another text; what the budgets raise.
    """
    kinds = {kind.__name__: kind for kind in (L1Ball, L1Penalty, Cardinality)}
    found = re.fullmatch(rf"\s*({'|'.join(kinds)})\(\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*\)\s*", text)
    if not found:
        raise ValueError(f"budget must read Cardinality(0.1), L1Ball(1.0) or L1Penalty(0.05), got {text!r}")
    return kinds[found[1]](float(found[2]))


def accuracy(model: nn.Module, u: Tensor, y: Tensor) -> float:
    """Per cent of the samples that a model classifies right."""
    return 100 * accuracy_of(model, u, y, batch_size=BATCH)


def point(model: SparseModel, task: Task) -> dict[str, float]:
    """Accuracy, the three counts of a sparse model, and "fitted", the share of the fitted layers' entries that is gone,
    in [0, 1]."""
    report = model.report
    return {
        "accuracy": accuracy(model, task.u_test, task.y_test),
        "sparsity": 100 * report.sparsity_of_entries,
        "numbers": 100 * report.sparsity_of_parameters,
        "full_matrix": 100 * report.sparsity_of_full_matrix,
        "fitted": 1 - share_of_rows(report),
    }


@parameters_shown()
def variant_points(
    task: Task, budgets: Sequence[Budget], m: int, variants: Sequence[str] = tuple(VARIANTS)
) -> dict[str, list[dict[str, float]]]:
    """Name -> `point` at every budget, from the first m samples."""
    out = {}
    for name in variants:
        models = sparsify_path(task.network, task.u[:m], budgets, **VARIANTS[name])
        out[name] = [point(model, task) for model in models]
    return out


def share_of_rows(report: SparsityReport) -> float:
    """Share of the entries of the fitted layers that a sparse model keeps, in [0, 1]: what a pruned network of as many
    multiplications keeps of their weights."""
    own = sum(layer.own_entries for layer in report.layers)
    return sum(layer.entries for layer in report.layers) / own


def pruned(network: nn.Module, share: float) -> tuple[nn.Module, dict[str, Tensor]]:
    """The network with the largest weights of each layer kept, a share of them, and the masks; the first and the last
    layer as they are, as `sparsify` has them."""
    names = [name for name, weight in network.named_parameters() if weight.ndim >= 2]
    total = sum(network.get_parameter(name).numel() for name in names)
    sparse, masks = magnitude_prune(network, round(min(share, 1.0) * total), scope="layer")
    for name in (names[0], names[-1]):
        masks.pop(name, None)
        with torch.no_grad():
            sparse.get_parameter(name).copy_(network.get_parameter(name))
    return sparse.eval(), masks


def control_points(
    task: Task, shares: Sequence[float], sparsities: Sequence[float], m: int, epochs: int, seed: int
) -> dict[str, list[dict[str, float]]]:
    """Magnitude pruning to each share, as it is and retrained with labels on the first m samples.

    Args:
        sparsities: of the sparse models with these shares, which the points take.
    """
    out: dict[str, list[dict[str, float]]] = {"magnitude": [], "magnitude_retrained": []}
    recipe = Recipe(epochs, lr=0.002, batch_size=100, loss="cross_entropy")
    for share, sparsity in zip(shares, sparsities, strict=True):
        sparse, masks = pruned(task.network, share)
        again, _ = retrain(sparse, masks, task.u[:m], task.y[:m], recipe=recipe, seed=seed)
        for name, model in (("magnitude", sparse), ("magnitude_retrained", again.eval())):
            out[name].append({"accuracy": accuracy(model, task.u_test, task.y_test), "sparsity": sparsity})
    return out


def cpu_ms(model: nn.Module, u: Tensor, repeats: int = 5) -> float:
    """Least CPU time of a sample in a batch of 200, milliseconds."""
    part = u[:BATCH]
    with torch.no_grad():
        model(part)
        taken = []
        for _ in range(repeats):
            start = time.process_time()
            model(part)
            taken.append(time.process_time() - start)
    return 1000 * min(taken) / len(part)


def stored_bytes(model: nn.Module) -> int:
    """Bytes of what a model computes with: for a `SparseModel` its rows, values and indices, and the layers that it
    kept; else all parameters and statistics."""
    if not isinstance(model, SparseModel):
        return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    total = 0
    for _, t in model.named_buffers(recurse=False):
        parts = (t.crow_indices(), t.col_indices(), t.values()) if t.layout == torch.sparse_csr else (t,)
        total += sum(part.numel() * part.element_size() for part in parts)
    kept = [i for i, b in enumerate(model.layers.blocks) if i not in model.fitted and not b.derived]
    item = torch.empty(0, dtype=model.dtype).element_size()
    return total + item * sum(model.layers.kernel_weights(i) for i in kept)


def trainable(model: SparseModel) -> list[nn.Parameter]:
    """Make the shifts of the rows and the head parameters, in place, and return them: what gradient steps can reach.

    The entries of the rows stay as they are: torch gives a sparse matrix a dense gradient, of the size of the layer's
        full matrix.
    """
    names = [f"b{block}" for block in model.fitted] + [
        name for name in ("head_weight", "head_bias") if getattr(model, name) is not None
    ]
    for name in names:
        setattr(model, name, nn.Parameter(getattr(model, name)))
    return [getattr(model, name) for name in names]


def fine_tune(model: SparseModel, u: Tensor, y: Tensor, epochs: int, seed: int, lr: float = 1e-3) -> SparseModel:
    """Train shifts and head, in place, with labels."""
    trainable(model.requires_grad_(False))
    recipe = Recipe(epochs, lr, batch_size=100, schedule="constant", loss="cross_entropy")
    train(model, u, y, recipe=recipe, seed=seed, progress=False, label="fine-tuning")
    return model


def refusal(call: Callable[[], Any]) -> str:
    """The error that a call ends with, as Python prints it.

    Raises:
        RuntimeError where it does not end with one.
    """
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise RuntimeError("nothing was refused")
