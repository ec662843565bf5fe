"""State-driven sparsification of a trained network, layer by layer, at any size: rows by position, streamed.

For every block l and position w, the rows of all its channels share their columns M, the states that the position may
use. Each row solves

    min_a 1/2 ||M a - z||^2   within a budget (an l1 ball, a penalty, or a number of coefficients), M and z centred,

by the l1 path on one Gram matrix a position, or on a working set a row (see `row_models`). Nothing of the size of A is
ever held: one block's states, its sources' and a strip of positions. States are the teacher's, as in the papers, or the
student's own: then each block is fitted to the teacher's pre-activations on what the sparse model itself computes, and
errors do not compound unseen.

Source:
    Tsai thesis (2024), chapter 3; SIM paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.matrices import csr_tensor
from implicit_models.sim.network.layers import INPUT, NetworkLayers, read_layers
from implicit_models.sim.network.low_precision import in_single
from implicit_models.sim.network.supports import last_readers
from implicit_models.sim.parallel.run import THREADS, Parallel
from implicit_models.sim.problem import Budget, Tolerance, check_budgets, require
from implicit_models.sim.report import LayerReport, layer_report, sparsity_report, warned
from implicit_models.sim.row_models import ByPosition, Given, RowModel, SharedKernels, WorkingSet
from implicit_models.sim.sparse_model import SparseModel, check_inputs, ridge_head, sparse_map
from implicit_models.tracing.builder import WrongShape

BATCH = 200  # samples of a forward pass of the network
BY_POSITION, TIGHT = ByPosition(), Tolerance(1e-9, 1e-9)


@dataclass(frozen=True)
class _Setup:
    """Checked arguments that every block needs."""

    layers: NetworkLayers
    rows: RowModel
    sources: tuple[Mapping[int, np.ndarray], ...]  # of every block: see `sources_of`
    fitted: list[int]  # blocks that may use states before them
    factors: list[np.ndarray] | None  # of the rows' penalties: see `row_effects`
    student: bool
    head: bool
    tolerance: Tolerance


def sparsify(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    budget: Budget,
    rows: RowModel = BY_POSITION,
    *,
    states: str = "student",
    head: bool = True,
    held_out: Float[Tensor, "k ..."] | None = None,
    tolerance: Tolerance = TIGHT,
    parallel: Parallel = THREADS,
) -> SparseModel:
    """A sparse model of a trained network.

    Args:
        network: in evaluation mode; see `network.layers.read_layers` for what it may be made of. It is copied.
        data: (m, *input_shape) samples of the fit, of the network's dtype.
        budget: `L1Ball`, `L1Penalty` or `Cardinality`.
        rows: `ByPosition`, `SharedKernels` or `WorkingSet`: what rows share and which states they may use, the units of
            the ball, the weights of a penalty, the refit, and the largest support.
        states: "teacher", those of the network, as in the papers; "student", those that the sparse model computes.
        head: the last linear layer fitted anew, by ridge regression of the network's outputs on the sparse model's
            features.
        held_out: other samples, for the share of variance explained on them.
        tolerance: of a row's certificate.
        parallel: where rows are solved; its folder `resume` holds finished strips, and a killed run goes on there.

    Returns:
        `SparseModel`, its `report` filled.

    Warns:
        MoreParameters: where the model has more parameters than the network, as rows of their own have.
        MoreEntries: where its rows have more entries than the network's, naming the layers.
        ColumnsExcluded: naming the layers with rows that `min_active` leaves no column.
        NothingFitted: where no block of the network reads an earlier one.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; what `read_layers` raises, naming the module or
            function of the network that is not read.

    Source:
        Tsai thesis (2024), section 3.3, Table 3.1.
    """
    setup = _setup(network, data, [budget], rows, states, head, held_out, tolerance, parallel)
    with torch.no_grad(), in_single(rows.device != "cpu"):
        models = _run(setup, data, held_out, [budget], parallel)
    return warned(models)[0]


def sparsify_path(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    budgets: Sequence[Budget],
    rows: RowModel = BY_POSITION,
    *,
    states: str = "student",
    head: bool = True,
    held_out: Float[Tensor, "k ..."] | None = None,
    tolerance: Tolerance = TIGHT,
    parallel: Parallel = THREADS,
) -> list[SparseModel]:
    """A sparse model for each budget: one path of every row with the network's states ("teacher"), a run for each with
    the model's own ("student").

    Args:
        budgets: of one kind, no two equal, in any order. Others as in `sparsify`.

    Returns:
        One `SparseModel` for each budget, in their order.

    Warns:
        As `sparsify`.

    Raises:
        TypeError, ValueError: as `sparsify`, and for budgets of several kinds.

    Source:
        Tsai thesis (2024), section 3.3, Table 3.1; Lemma 1 for the path.
    """
    setup = _setup(network, data, budgets, rows, states, head, held_out, tolerance, parallel)
    order = sorted(range(len(budgets)), key=lambda t: budgets[t].size)
    ascending = [budgets[t] for t in order]
    with torch.no_grad(), in_single(rows.device != "cpu"):
        if setup.student and len(budgets) > 1:
            models = []
            for t, budget in enumerate(ascending):
                models += _run(setup, data, held_out, [budget], parallel.within(f"value-{t}"))
        else:
            models = _run(setup, data, held_out, ascending, parallel)
    return warned([models[order.index(t)] for t in range(len(budgets))])


def _setup(
    network: nn.Module,
    data: Any,
    budgets: Sequence[Budget],
    rows: RowModel,
    states: str,
    head: bool,
    held_out: Any,
    tolerance: Tolerance,
    parallel: Parallel,
) -> _Setup:
    """Checked arguments. Raises: as `sparsify`."""
    check_budgets(budgets)
    if len(set(budgets)) < len(budgets):
        raise ValueError(f"budgets must differ, got {budgets!r}")
    require("rows", rows, ByPosition, SharedKernels, WorkingSet)
    require("tolerance", tolerance, Tolerance)
    require("parallel", parallel, Parallel)
    if states not in ("teacher", "student"):
        raise ValueError(f"states must be 'teacher' or 'student', got {states!r}")
    if not isinstance(data, Tensor):
        raise TypeError(f"data must be a torch tensor, got {type(data).__name__}")
    try:
        layers = read_layers(network, tuple(data.shape[1:]))
    except WrongShape as error:
        raise ValueError(f"data has shape {tuple(data.shape)}, which the network does not take: {error}") from error
    if head:
        layers.head()
    for u in (data, held_out):
        if u is not None:
            check_inputs(u, layers, layers.dtype)
            if not len(u):
                raise ValueError(
                    "held_out has no samples: give some, or None" if u is held_out else "data has no samples"
                )
            if not bool(torch.isfinite(u).all()):
                raise ValueError(
                    f"sample {int((~torch.isfinite(u.flatten(1)).all(1)).nonzero()[0])} has values that are not finite"
                )
    if len(data) < 2:
        raise ValueError(f"a fit needs at least 2 samples, got {len(data)}")
    rows.check(layers, budgets)
    sources = rows.sources(layers)
    fitted = [k for k, b in enumerate(layers.blocks) if not b.derived and any(s != INPUT for s in sources[k])]
    factors = rows.factors(layers, data, fitted)
    return _Setup(layers, rows, sources, fitted, factors, states == "student", head, tolerance)


def _run(
    setup: _Setup, data: Tensor, held_out: Tensor | None, budgets: Sequence[Budget], parallel: Parallel
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
