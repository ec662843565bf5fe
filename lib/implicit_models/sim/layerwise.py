"""State-driven sparsification of a trained network, layer by layer, at any size: rows by position, streamed.

For every block l and position w, the rows of all its channels share their columns M, the states that the position may
use. Each row solves

    min_a 1/2 ||M a - z||^2   within a budget (an l1 ball, a penalty, or a number of coefficients), M and z centred,

by the l1 path on one Gram matrix a position, or on a working set a row (see `row_models`). Nothing of the size of A is
ever held: one block's states, its sources' and a strip of positions. States are the teacher's, as in the papers, or the
student's own: then each block is fitted to the teacher's pre-activations on what the sparse model itself computes, and
errors do not compound unseen.

A `Share` of all weights is another problem, of the whole network at once, and gives the network itself with zeros among
its weights (see `pruning`).

Source:
    Tsai thesis (2024), chapter 3; SIM paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.blockwise import Setup, fit_blocks
from implicit_models.sim.network.layers import INPUT, blocks_of, read_steps
from implicit_models.sim.network.low_precision import in_single
from implicit_models.sim.parallel.run import THREADS, Parallel
from implicit_models.sim.problem import Budget, Share, Tolerance, check_budgets, require
from implicit_models.sim.pruning.network import SparseNetwork
from implicit_models.sim.pruning.sparse_networks import sparse_networks
from implicit_models.sim.report import warned
from implicit_models.sim.row_models import ByPosition, RowModel, SharedKernels, WorkingSet
from implicit_models.sim.sparse_model import SparseModel, check_inputs
from implicit_models.tracing.builder import WrongShape
from implicit_models.tracing.nodes import Graph

TIGHT = Tolerance(1e-9, 1e-9)


class Options(TypedDict, total=False):
    """Keywords of `sparsify` and `sparsify_path`, whatever the budget."""

    states: str
    head: bool
    held_out: Tensor | None
    tolerance: Tolerance
    parallel: Parallel


@overload
def sparsify(
    network: nn.Module, data: Tensor, budget: Budget, rows: RowModel | None = None, **options: Unpack[Options]
) -> SparseModel: ...
@overload
def sparsify(
    network: nn.Module, data: Tensor, budget: Share, rows: SharedKernels | None = None, **options: Unpack[Options]
) -> SparseNetwork: ...
def sparsify(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    budget: Budget | Share,
    rows: RowModel | None = None,
    *,
    states: str = "student",
    head: bool = True,
    held_out: Float[Tensor, "k ..."] | None = None,
    tolerance: Tolerance = TIGHT,
    parallel: Parallel = THREADS,
) -> SparseModel | SparseNetwork:
    """A sparse model of a trained network.

    Args:
        network: in evaluation mode; see `network.layers.read_layers` for what it may be made of. It is copied.
        data: (m, *input_shape) samples of the fit, of the network's dtype.
        budget: of each row, `L1Ball`, `L1Penalty` or `Cardinality`; or `Share`, of all weights of the network.
        rows: `ByPosition`, `SharedKernels` or `WorkingSet`: what rows share and which states they may use, the units of
            the ball, the weights of a penalty, the refit, and the largest support. None: `SharedKernels()` for a
            `Share`, which is for these alone, and `ByPosition()` for other budgets.
        states: "teacher", those of the network, as in the papers; "student", those that the sparse model computes.
        head: the last linear layer fitted anew, by ridge regression of the network's outputs on the sparse model's
            features. With a `Share`: pruned as the others are.
        held_out: other samples, for the share of variance explained on them.
        tolerance: of a row's certificate on the l1 path, which a `Share` does not take.
        parallel: where rows are solved; its folder `resume` holds finished strips, and a killed run goes on there.

    Returns:
        `SparseModel`, its `report` filled; for a `Share` a `SparseNetwork`, whose `dense()` is the network itself with
        zeros among its weights.

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
    if isinstance(budget, Share):
        return _shares(network, data, [budget], rows, states, head, held_out, tolerance, parallel)[0]
    setup = _setup(network, data, [budget], rows, states, head, held_out, tolerance, parallel)
    rows = setup.rows
    with torch.no_grad(), in_single(rows.device != "cpu"):
        models = fit_blocks(setup, data, held_out, [budget], parallel)
    return warned(models)[0]


@overload
def sparsify_path(
    network: nn.Module,
    data: Tensor,
    budgets: Sequence[Budget],
    rows: RowModel | None = None,
    **options: Unpack[Options],
) -> list[SparseModel]: ...
@overload
def sparsify_path(
    network: nn.Module,
    data: Tensor,
    budgets: Sequence[Share],
    rows: SharedKernels | None = None,
    **options: Unpack[Options],
) -> list[SparseNetwork]: ...
def sparsify_path(
    network: nn.Module,
    data: Float[Tensor, "m ..."],
    budgets: Sequence[Budget] | Sequence[Share],
    rows: RowModel | None = None,
    *,
    states: str = "student",
    head: bool = True,
    held_out: Float[Tensor, "k ..."] | None = None,
    tolerance: Tolerance = TIGHT,
    parallel: Parallel = THREADS,
) -> list[SparseModel] | list[SparseNetwork]:
    """A sparse model for each budget: one path of every row with the network's states ("teacher"), a run for each with
    the model's own ("student"). Shares have the first elimination, on the network's states, in common.

    Args:
        budgets: of one kind, no two equal, in any order. Others as in `sparsify`.

    Returns:
        One `SparseModel`, or `SparseNetwork` for a `Share`, for each budget, in their order.

    Warns:
        As `sparsify`.

    Raises:
        TypeError, ValueError: as `sparsify`, and for budgets of several kinds.

    Source:
        Tsai thesis (2024), section 3.3, Table 3.1; Lemma 1 for the path.
    """
    shares = [budget for budget in budgets if isinstance(budget, Share)] if isinstance(budgets, Sequence) else []
    if shares and len(shares) == len(budgets):
        return _shares(network, data, shares, rows, states, head, held_out, tolerance, parallel)
    setup = _setup(network, data, budgets, rows, states, head, held_out, tolerance, parallel)  # type: ignore[arg-type]
    rows = setup.rows
    order = sorted(range(len(budgets)), key=lambda t: budgets[t].size)
    ascending: list[Budget] = [budgets[t] for t in order]  # type: ignore[misc]
    with torch.no_grad(), in_single(rows.device != "cpu"):
        if setup.student and len(budgets) > 1:
            models = []
            for t, budget in enumerate(ascending):
                models += fit_blocks(setup, data, held_out, [budget], parallel.within(f"value-{t}"))
        else:
            models = fit_blocks(setup, data, held_out, ascending, parallel)
    return warned([models[order.index(t)] for t in range(len(budgets))])


def _setup(
    network: nn.Module,
    data: Any,
    budgets: Sequence[Budget],
    rows: RowModel | None,
    states: str,
    head: bool,
    held_out: Any,
    tolerance: Tolerance,
    parallel: Parallel,
) -> Setup:
    """Checked arguments. Raises: as `sparsify`."""
    check_budgets(budgets)
    rows = ByPosition() if rows is None else rows
    require("rows", rows, ByPosition, SharedKernels, WorkingSet)
    require("tolerance", tolerance, Tolerance)
    layers = blocks_of(_checked(network, data, budgets, states, held_out, parallel))
    if head:
        layers.head()
    rows.check(layers, budgets)
    sources = rows.sources(layers)
    fitted = [k for k, b in enumerate(layers.blocks) if not b.derived and any(s != INPUT for s in sources[k])]
    factors = rows.factors(layers, data, fitted)
    return Setup(layers, rows, sources, fitted, factors, states == "student", head, tolerance)


@torch.inference_mode(False)  # the effects of rows are gradients
def _shares(
    network: nn.Module,
    data: Any,
    budgets: Sequence[Share],
    rows: RowModel | None,
    states: str,
    head: bool,
    held_out: Any,
    tolerance: Tolerance,
    parallel: Parallel,
) -> list[SparseNetwork]:
    """Raises: as `sparsify`."""
    rows = SharedKernels() if rows is None else rows
    if not isinstance(rows, SharedKernels):
        raise ValueError(f"{budgets[0]} is of the network's own kernels: for SharedKernels(...), not for {rows!r}")
    if states != "student":
        raise ValueError(f"{budgets[0]} is for states='student', what the sparse network computes, got {states!r}")
    require("tolerance", tolerance, Tolerance)
    usual = SharedKernels()
    given = {name: (getattr(rows, name), getattr(usual, name)) for name in ("refit", "min_active", "cap")}
    for name, (value, default) in (given | {"tolerance": (tolerance, TIGHT)}).items():
        if value != default:
            raise ValueError(
                f"{name}={value!r} is of rows along the l1 path: {budgets[0]} is met by elimination, and takes none but"
                f" {default!r}; see SharedKernels(supports=OptimalBrainSurgeon(...))"
            )
    graph = _checked(network, data, budgets, states, held_out, parallel)
    return sparse_networks(
        network, graph, data, budgets, rows.supports, head=head, held_out=held_out, parallel=parallel
    )


def _checked(
    network: nn.Module, data: Any, budgets: Sequence[Budget | Share], states: str, held_out: Any, parallel: Parallel
) -> Graph:
    """The steps of the network, after all other arguments. Raises: as `sparsify`."""
    if len(set(budgets)) < len(budgets):
        raise ValueError(f"budgets must differ, got {budgets!r}")
    require("parallel", parallel, Parallel)
    if states not in ("teacher", "student"):
        raise ValueError(f"states must be 'teacher' or 'student', got {states!r}")
    if not isinstance(data, Tensor):
        raise TypeError(f"data must be a torch tensor, got {type(data).__name__}")
    try:
        graph = read_steps(network, tuple(data.shape[1:]))
    except WrongShape as error:
        raise ValueError(f"data has shape {tuple(data.shape)}, which the network does not take: {error}") from error
    for u in (data, held_out):
        if u is not None:
            check_inputs(u, graph.input.shape, graph.dtype)
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
    return graph
