"""State-driven sparsification of a trained network, layer by layer, at any size: rows by position, streamed.

For every block l and position w, the rows of all its channels share their columns M, the states that the position may
use. Each row solves

    min_a 1/2 ||M a - z||^2   within a budget (an l1 ball, a penalty, or a number of coefficients), M and z centred,

by the l1 path on one Gram matrix a position, or, where all positions may use everything before them, on a working set a
row. Nothing of the size of A is ever held: one block's states, its sources' and a strip of positions. States are the
teacher's, as in the papers, or the student's own: then each block is fitted to the teacher's pre-activations on what
the sparse model itself computes, and errors do not compound unseen.

Source:
    Tsai thesis (2024), chapter 3; SIM paper.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.matrices import csr_tensor
from implicit_models.sim.network.column_store import ColumnStore
from implicit_models.sim.network.layer_scales import SCALES, layer_scales
from implicit_models.sim.network.layers import INPUT, NetworkLayers, read_layers
from implicit_models.sim.network.low_precision import in_single
from implicit_models.sim.network.position_problem import PositionProblem, position_problem, working_problem
from implicit_models.sim.network.position_rows import solve_block
from implicit_models.sim.network.row_weights import effect_factors, row_effects
from implicit_models.sim.network.shared_kernels import solve_shared
from implicit_models.sim.network.shared_problem import SharedProblem, shared_problem
from implicit_models.sim.network.supports import SUPPORTS, Support, last_readers, sources_of
from implicit_models.sim.network.working_rows import solve_working
from implicit_models.sim.report import LayerReport, layer_report, sparsity_report
from implicit_models.sim.solvers.budget import Budget
from implicit_models.sim.sparse_model import SparseModel, check_inputs, ridge_head, sparse_map

BATCH = 200  # samples of a forward pass of the network


@dataclass(frozen=True)
class _Setup:
    """Checked arguments that every block needs."""

    layers: NetworkLayers
    support: Support
    sources: tuple[Mapping[int, np.ndarray], ...]  # of every block: see `sources_of`
    factors: list[np.ndarray] | None  # of the rows' penalties: see `row_effects`
    scale: str
    weights: str
    budget: Budget
    refit: bool | str
    ridge: float
    min_active: float
    share_conv: bool
    rtol: float
    atol: float
    cap: int | None
    device: str
    backend: str
    workers: int | None
    resume: Path | None
    progress: bool | None

    @property
    def fitted(self) -> list[int]:
        """Blocks that may use states before them."""
        return [
            k for k, b in enumerate(self.layers.blocks) if not b.derived and any(s != INPUT for s in self.sources[k])
        ]

    @property
    def working(self) -> bool:
        """Whether rows have working sets: all of them may use the same, very many, columns."""
        return self.support == "before" and self.budget.kind != "keep" and not self.share_conv


def sparsify(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    *,
    budget: Budget,
    support: Support = "receptive",
    scale: str = "std",
    weights: str = "equal",
    states: str = "student",
    refit: bool | str = True,
    head: bool = True,
    share_conv: bool = False,
    held_out: Float[Tensor, "k ..."] | None = None,
    ridge: float = 1e-3,
    min_active: float = 3.0,
    rtol: float = 1e-9,
    atol: float = 1e-9,
    cap: int | None = None,
    device: str = "cpu",
    backend: str = "threads",
    workers: int | None = None,
    resume: str | Path | None = None,
    progress: bool | None = None,
) -> SparseModel | list[SparseModel]:
    """A sparse model of a trained network, or one for each value of the budget.

    Args:
        network: in evaluation mode; see `network.layers.read_layers` for what it may be made of. It is copied.
        data: (m, *input_shape) samples of the fit, of the network's dtype.
        budget: `kappa`, `lam` or `keep`, of one value or several.
        support: columns that a position may use: "receptive", what the network reads there; "before", every block
            before and the input; or a function (layers, block) -> {block: (P, k) positions, -1 for none}. Blocks that
            read the input alone are kept as they are.
        scale: units of the ball: "std", "theorem" or "uniform" (see `layer_scales`).
        weights: of the rows, for a penalty: "equal", every row has the same one; "effect", rows whose errors change the
            outputs more have a smaller one (see `row_effects`: far more accurate at the same number of coefficients).
        states: "teacher", one path for all values of the budget, or "student", one run for each.
        refit: True, least squares on the selected support; "one_sided", least squares that counts what ReLU lets
            through (see `one_sided`: more accurate where rows are very sparse); False, the l1 solution itself.
        ridge: of the refit, relative to each column's squared norm.
        min_active: columns that vary on fewer samples, in the sense of (sum x^2)^2 / sum x^4 of the centred column, are
            not used: in units of their deviation a state that is active on two samples would carry a huge weight.
        head: the last linear layer fitted anew, by ridge regression of the network's outputs on the sparse model's
            features.
        share_conv: one row for all positions of a channel, a sparse kernel, fitted to samples and positions alike:
            fewer parameters, where rows of their own only save multiplications. It needs scale "std" and a support that
            gives every position the same taps.
        held_out: other samples, for the share of variance explained on them.
        rtol, atol: a row is certified when its gap is at most rtol of its objective or atol of 1/2||z||^2.
        cap: largest support of a row, whatever the budget; a row that would pass it has status "saturated".
        device: for support "before" within a radius or a penalty, where every row has a working set: "cuda" or
            "cuda:k", a card that compares residuals with all columns; "cpu": the backend's workers do.
        backend, workers, progress: see `parallel.run.map_chunks`.
        resume: folder of finished strips; a killed run goes on there.

    Returns:
        `SparseModel`, its `report` filled; a list where the budget has several values.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; what `read_layers` raises, naming the module or
            function of the network that is not read.

    Source:
        Tsai thesis (2024), section 3.3, Table 3.1.
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be kappa(...), lam(...) or keep(...), got {budget!r}")
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    if weights not in ("equal", "effect"):
        raise ValueError(f"weights must be 'equal' or 'effect', got {weights!r}")
    if weights == "effect" and (budget.kind != "lam" or share_conv):
        raise ValueError(
            "weights 'effect' share out the penalty lam(...) of rows of their own: not for"
            f" {'share_conv' if share_conv else budget.kind + '(...)'}"
        )
    if states not in ("teacher", "student"):
        raise ValueError(f"states must be 'teacher' or 'student', got {states!r}")
    if not isinstance(refit, bool) and refit != "one_sided":
        raise ValueError(f"refit must be True, False or 'one_sided', got {refit!r}")
    if not callable(support) and support not in SUPPORTS:
        raise ValueError(f"support must be one of {', '.join(SUPPORTS)} or a function, got {support!r}")
    if not isinstance(data, Tensor):
        raise TypeError(f"data must be a torch tensor, got {type(data).__name__}")
    for name, value in (("ridge", ridge), ("min_active", min_active), ("rtol", rtol), ("atol", atol)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must {'not be negative' if value < 0 else 'be finite'}, got {value}")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, (int, np.integer)) or cap < 1):
        raise ValueError(f"cap must be None or a positive int, got {cap!r}")
    layers = read_layers(network, tuple(data.shape[1:]))
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
    if share_conv and scale != "std":
        raise ValueError(f"share_conv pools positions in units of their deviation: scale must be 'std', got {scale!r}")
    if refit == "one_sided":
        if share_conv or (support == "before" and budget.kind != "keep"):
            raise ValueError(
                "refit 'one_sided' is for rows of their own with a Gram matrix a position: not for share_conv, nor for"
                " support 'before' with kappa(...) or lam(...)"
            )
        for b in layers.blocks:
            if not b.derived and b.activation != "relu":
                raise ValueError(f"refit 'one_sided' is for networks of ReLU, the block {b.node} is {b.activation}")
    _check_device(device, working=support == "before" and budget.kind != "keep" and not share_conv)
    folder = None if resume is None else Path(resume)
    sources = tuple(sources_of(layers, block, support) for block in range(len(layers.blocks)))
    setup = _Setup(
        layers,
        support,
        sources,
        None,
        scale,
        weights,
        budget,
        refit,
        float(ridge),
        float(min_active),
        share_conv,
        rtol,
        atol,
        cap,
        device,
        backend,
        workers,
        folder,
        progress,
    )
    if weights == "effect":
        setup = replace(setup, factors=effect_factors(row_effects(layers, data), setup.fitted))
    with torch.no_grad(), in_single(device != "cpu"):
        if states == "teacher" or len(budget) == 1:
            models = _run(setup, data, held_out, student=states == "student", head=head)
        else:
            models = []
            for t, value in enumerate(budget.values):
                each = replace(
                    setup,
                    budget=Budget(budget.kind, (value,)),
                    resume=None if folder is None else folder / f"value-{t}",
                )
                models += _run(each, data, held_out, student=True, head=head)
    return models if len(budget) > 1 else models[0]


def _check_device(device: Any, *, working: bool) -> None:
    """Raises: TypeError for anything but a name; ValueError unless it is "cpu" or, for working sets, a CUDA card that
    is there."""
    if not isinstance(device, str):
        raise TypeError(f"device must be 'cpu', 'cuda' or 'cuda:k', got {device!r}")
    if device == "cpu":
        return
    if not re.fullmatch("cuda(:[0-9]+)?", device):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:k', got {device!r}")
    if not working:
        raise ValueError(
            f"device {device!r} is for support='before' with kappa(...) or lam(...) and rows of their own: other rows"
            " are solved on the cpu"
        )
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(device.partition(":")[2] or 0) >= cards:
        raise ValueError(f"device {device!r} is not there: torch sees {cards} CUDA cards")


def _run(setup: _Setup, data: Tensor, held_out: Tensor | None, *, student: bool, head: bool) -> list[SparseModel]:
    """All blocks in order. Only blocks that a later one still reads are held."""
    layers, K = setup.layers, len(setup.budget)
    scales = layer_scales(layers, setup.scale)
    seconds = {"network": 0.0, "rows": 0.0, "states": 0.0}
    u = data if held_out is None else torch.cat([data, held_out])
    m = len(data)
    network = layers.on(setup.device)
    teacher: dict[int, Tensor] = {INPUT: u.to(setup.device)}
    own: dict[int, Tensor] = {INPUT: u} if student else teacher
    rows: list[dict[int, tuple[sp.csr_array, np.ndarray]]] = [{} for _ in range(K)]
    reports: list[list[LayerReport]] = [[] for _ in range(K)]
    reads: dict[int, tuple[int, ...]] = {}
    store, fitted = None, setup.fitted
    if setup.working and fitted:
        store = ColumnStore(
            sum(math.prod(layers.shape_of(k)) for k in range(INPUT, fitted[-1])),
            m,
            min_active=setup.min_active,
            device=setup.device,
            keyed=setup.resume is not None,
        )
        store.append(teacher[INPUT], None if scales is None else np.ones(math.prod(layers.input_shape)))
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
            tolerances = {"ridge": setup.ridge, "rtol": setup.rtol, "atol": setup.atol, "cap": setup.cap}  # type: dict[str, Any]
            problem: PositionProblem | SharedProblem
            if setup.share_conv:
                problem = shared_problem(layers, block, sources, own, z[:m], min_active=setup.min_active)
                found = solve_shared(problem, setup.budget, **tolerances)
            else:
                factor = None if setup.factors is None else setup.factors[block]
                run = {
                    "backend": setup.backend,
                    "workers": setup.workers,
                    "progress": setup.progress,
                    "resume": None if setup.resume is None else setup.resume / f"block-{block}",
                }  # type: dict[str, Any]
                if store is not None:
                    columns, problem = working_problem(layers, block, store, z, scales, factor)
                    found = solve_working(  # type: ignore[misc, call-arg]
                        columns,
                        *problem.arrays,
                        setup.budget,  # type: ignore[arg-type]
                        **tolerances,
                        **run,
                    )
                else:
                    problem = position_problem(layers, block, sources, own, z, m, scales, setup.min_active, factor)
                    found = solve_block(  # type: ignore[misc, call-arg]
                        *problem.arrays,
                        setup.budget,  # type: ignore[arg-type]
                        **tolerances,
                        **run,
                        level=problem.level if setup.refit == "one_sided" else None,
                    )
            seconds["rows"] += time.perf_counter() - begin
            begin = time.perf_counter()
            for t in range(K):
                A, shift = problem.matrix(found, t, refit=bool(setup.refit))
                rows[t][block], reads[block] = (A, shift), tuple(sorted(sources))
                explained = (
                    None
                    if held_out is None
                    else _explained(A, shift, [own[s][m:].cpu() for s in sorted(sources)], z[m:].cpu(), b.shape)
                )
                reports[t].append(layer_report(layers, block, problem, found, t, A, explained, bool(setup.refit)))
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
    for t in range(K):
        model = SparseModel(
            layers,
            rows[t],
            None,
            sparsity_report(layers, rows[t], reports[t], _settings(setup, t, student), seconds),
            reads,
        )
        if head:
            features = _batched(model.layers.features, own)[:m] if student else _features(model, data)
            model = SparseModel(layers, rows[t], ridge_head(features, outputs[:m]), model.report, reads)
        models.append(model.eval())
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


def _settings(setup: _Setup, t: int, student: bool) -> dict[str, Any]:
    """What a report says of how a model was made."""
    return {
        "support": setup.support if isinstance(setup.support, str) else "function",
        "scale": setup.scale,
        "weights": setup.weights,
        "budget": f"{setup.budget.kind}({setup.budget.values[t]:g})",
        "states": "student" if student else "teacher",
        "refit": setup.refit,
        "share_conv": setup.share_conv,
    }


def _features(model: SparseModel, u: Tensor) -> Tensor:
    return torch.cat([model.layers.features(model.states(u[at : at + BATCH])) for at in range(0, len(u), BATCH)])
