"""Blocks of a network fitted in order, one model a budget: what `layerwise` runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from implicit_models.matrices import csr_tensor
from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.sim.network.supports import last_readers
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Budget, Tolerance
from implicit_models.sim.report import LayerReport, layer_report, sparsity_report
from implicit_models.sim.row_models import Given, RowModel
from implicit_models.sim.sparse_model import SparseModel, ridge_head, sparse_map

BATCH = 200  # samples of a forward pass of the network


@dataclass(frozen=True)
class Setup:
    """Checked arguments that every block needs."""

    layers: NetworkLayers
    rows: RowModel
    sources: tuple[Mapping[int, np.ndarray], ...]  # of every block: see `sources_of`
    fitted: list[int]  # blocks that may use states before them
    factors: list[np.ndarray] | None  # of the rows' penalties: see `row_effects`
    student: bool
    head: bool
    tolerance: Tolerance


def fit_blocks(
    setup: Setup, data: Tensor, held_out: Tensor | None, budgets: Sequence[Budget], parallel: Parallel
) -> list[SparseModel]:
    """All blocks in order, one model a budget. Only blocks that a later one still reads are held."""
    layers, model, K, student = setup.layers, setup.rows, len(budgets), setup.student
    scales, refit = model.scales(layers), model.refit is not None
    seconds = {"network": 0.0, "rows": 0.0, "states": 0.0}
    u = data if held_out is None else torch.cat([data, held_out])
    m = len(data)
    network = layers.on(model.device)
    teacher: dict[int, Tensor] = {INPUT: u.to(model.device)}
    own: dict[int, Tensor] = {INPUT: u} if student else teacher
    rows: list[dict[int, tuple[sp.csr_array, np.ndarray]]] = [{} for _ in range(K)]
    reports: list[list[LayerReport]] = [[] for _ in range(K)]
    reads: dict[int, tuple[int, ...]] = {}
    fitted = setup.fitted
    store = model.store(layers, fitted[-1], m, keyed=parallel.resume is not None) if fitted else None
    if store is not None:
        store.append(teacher[INPUT], None if scales is None else np.ones(int(np.prod(layers.input_shape))))
    # columns in the store are not read again, except to compute states on them
    last = last_readers(
        layers,
        setup.sources if store is None or student or held_out is not None else [b.sources for b in layers.blocks],
    )
    for block, b in enumerate(layers.blocks):
        begin = time.perf_counter()
        z = _batched(lambda part, block=block: network.affine(block, part), teacher)  # type: ignore[misc]
        seconds["network"] += _since(begin, z)
        sources = setup.sources[block]
        if block not in fitted:
            teacher[block] = network.apply(block, z)
            if student:
                own[block] = layers.apply(
                    block,
                    _batched(lambda part, block=block: layers.affine(block, part), own),  # type: ignore[misc]
                )
        else:
            begin = time.perf_counter()
            factor = None if setup.factors is None else setup.factors[block]
            given = Given(layers, block, sources, own, z, m, scales, factor, store)
            problem, found = model.solve(given, budgets, setup.tolerance, parallel.within(f"block-{block}"))
            seconds["rows"] += time.perf_counter() - begin
            begin = time.perf_counter()
            for t in range(K):
                A, shift = problem.matrix(found, t, refit=refit)
                rows[t][block], reads[block] = (A, shift), tuple(sorted(sources))
                explained = (
                    None
                    if held_out is None
                    else _explained(A, shift, [own[s][m:].cpu() for s in sorted(sources)], z[m:].cpu(), b.shape)
                )
                reports[t].append(layer_report(layers, block, problem, found, t, A, explained, refit))
            teacher[block] = network.apply(block, z)
            if student:
                own[block] = layers.apply(block, _rows_of(*rows[0][block], [own[s] for s in sorted(sources)], b.shape))
            seconds["states"] += time.perf_counter() - begin
        if store is not None and block < fitted[-1]:
            begin = time.perf_counter()
            store.append(own[block], None if scales is None else scales[block])
            seconds["states"] += time.perf_counter() - begin
        for done in [k for k in teacher if last.get(k, -1) <= block]:
            teacher.pop(done)
            own.pop(done, None)
    outputs = _batched(lambda part: network.affine(None, part), teacher).cpu()
    models = []
    for t, budget in enumerate(budgets):
        settings = {"rows": model, "budget": budget, "states": "student" if student else "teacher"}
        report = sparsity_report(layers, rows[t], reports[t], settings, seconds)
        sparse = SparseModel(layers, rows[t], None, report, reads)
        if setup.head:
            features = _batched(sparse.layers.features, own)[:m] if student else _features(sparse, data)
            sparse = SparseModel(layers, rows[t], ridge_head(features, outputs[:m]), report, reads)
        models.append(sparse.eval())
    return models


def _since(begin: float, value: Tensor) -> float:
    """Seconds until a value is there: a card computes while the host goes on."""
    if value.is_cuda:
        torch.cuda.synchronize(value.device)
    return time.perf_counter() - begin


def _batched(function: Callable[[dict[int, Tensor]], Tensor], known: Mapping[int, Tensor]) -> Tensor:
    """A function of the states, over batches of samples."""
    n = len(next(iter(known.values())))
    parts = [function({k: v[at : at + BATCH] for k, v in known.items()}) for at in range(0, n, BATCH)]
    return torch.cat(parts)


def _rows_of(A: sp.csr_array, shift: np.ndarray, known: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    """z of a fitted block, over batches."""
    dtype = known[0].dtype
    M, b = csr_tensor(A, dtype, torch.device("cpu")), torch.from_numpy(shift).to(dtype)
    return _batched(lambda part: sparse_map(M, b, list(part.values()), shape), dict(enumerate(known)))


def _explained(A: sp.csr_array, shift: np.ndarray, known: list[Tensor], z: Tensor, shape: tuple[int, ...]) -> float:
    """Share of the variance of z that the rows explain, over all of them."""
    lost = (_rows_of(A, shift, known, shape) - z).double()
    spread = (z - z.mean(0)).double()
    whole = float((spread * spread).sum())
    return 1 - float((lost * lost).sum()) / whole if whole > 0 else float("nan")


def _features(model: SparseModel, u: Tensor) -> Tensor:
    return torch.cat([model.layers.features(model.states(u[at : at + BATCH])) for at in range(0, len(u), BATCH)])
