"""What a sparse model of a network gains and loses: rows, explained variance, certificates, and non-zeros in three
counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from torch import nn

from implicit_models.sim.network.layers import WEIGHTED, NetworkLayers
from implicit_models.summaries import summary

if TYPE_CHECKING:
    from implicit_models.sim.network.position_problem import PositionProblem
    from implicit_models.sim.network.position_rows import BlockRows
    from implicit_models.sim.network.shared_problem import SharedProblem


@dataclass(frozen=True)
class LayerReport:
    """What was fitted in a block. rows, columns: of A, the columns a position may use; support: median over rows; nnz:
    of A; numbers: of them that are stored, a kernel's once.

    own_entries: of the network's rows. fit, held_out: share of the targets' variance explained, on the samples of the
        fit and on others (None
    without any). gap: largest relative duality gap; violation: largest excess of the ball, relative, before the refit;
    status: rows by outcome.
    """

    block: int
    name: str
    rows: int
    columns: int
    support: float
    nnz: int
    numbers: int
    own_entries: int
    fit: float
    held_out: float | None
    gap: float
    violation: float
    status: Mapping[str, int]

    def __repr__(self) -> str:
        return summary(
            self,
            "name",
            "rows",
            "columns",
            "support",
            "nnz",
            "own_entries",
            "fit",
            "held_out",
            "gap",
            "violation",
            "status",
        )


@dataclass(frozen=True)
class SparsityReport:
    """The whole model, in three counts that must not be confused.

    row_entries: non-zeros of all rows, those of blocks that were kept included; own_row_entries: of the network.
        numbers: different weights that
    have to be stored (rows of their own for every position, or kernels); own_numbers: weights of the network's
    convolutions and linear layers before the output. full_matrix: entries of [A B] of the implicit model, n (n + p).
    seconds: of the fit, by part.
    """

    layers: tuple[LayerReport, ...]
    row_entries: int
    own_row_entries: int
    numbers: int
    own_numbers: int
    full_matrix: int
    settings: Mapping[str, Any]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return summary(
            self,
            "layers",
            "row_entries",
            "own_row_entries",
            "numbers",
            "own_numbers",
            "full_matrix",
            "sparsity",
            "sparsity_of_numbers",
            "sparsity_of_full_matrix",
            "settings",
            "seconds",
        )

    @property
    def sparsity(self) -> float:
        """1 - row_entries / own_row_entries: the multiplications that are saved."""
        return 1 - self.row_entries / self.own_row_entries

    @property
    def sparsity_of_numbers(self) -> float:
        """1 - numbers / own_numbers: the parameters that are saved; negative where rows of their own need more."""
        return 1 - self.numbers / self.own_numbers

    @property
    def sparsity_of_full_matrix(self) -> float:
        """1 - row_entries / full_matrix: the papers' count for a full [A B]."""
        return 1 - self.row_entries / self.full_matrix

    @property
    def own_sparsity_of_full_matrix(self) -> float:
        return 1 - self.own_row_entries / self.full_matrix


def layer_report(
    layers: NetworkLayers,
    block: int,
    problem: PositionProblem | SharedProblem,
    found: BlockRows,
    t: int,
    A: sp.csr_array,
    explained: float | None,
    refit: bool,
) -> LayerReport:
    """Report of one block at budget t; explained: share of the variance on held-out samples."""
    b = layers.blocks[block]
    fit = (found.fit_refit if refit else found.fit)[:, t]
    weight = problem.spread.reshape(-1) ** 2
    gap = found.gap[:, t]
    return LayerReport(
        block,
        b.node,
        b.size,
        problem.columns,
        float(np.median(np.diff(found.pointer[t]))),
        int(A.nnz),
        int(np.count_nonzero((found.refit if refit else found.l1)[t])),
        layers.entries(block),
        float(np.average(fit, weights=weight)) if weight.sum() > 0 else 1.0,
        explained,
        float(np.nanmax(gap, initial=0.0)),
        float(found.violation[:, t].max(initial=0.0)),
        found.status(t),
    )


def sparsity_report(
    layers: NetworkLayers,
    rows: Mapping[int, Any],
    reports: Sequence[LayerReport],
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> SparsityReport:
    """Report of a model whose fitted blocks are `rows`; settings: how it was made."""
    kept = [i for i, b in enumerate(layers.blocks) if i not in rows and not b.derived]
    kept_entries = sum(layers.entries(i) for i in kept)
    nnz = sum(r.nnz for r in reports)
    p = math.prod(layers.input_shape)
    weights = [w.numel() for m in layers.traced.modules() if isinstance(m, WEIGHTED) for w in (m.weight,)]
    output = next(n for n in layers.traced.graph.nodes if n.op == "output").args[0]
    if output.op == "call_module" and isinstance(layers.traced.get_submodule(output.target), nn.Linear):
        weights.remove(layers.traced.get_submodule(output.target).weight.numel())  # type: ignore[operator]
    numbers = nnz if not settings["share_conv"] else sum(r.numbers for r in reports)
    numbers += sum(layers.kernel_weights(i) for i in kept)
    return SparsityReport(
        tuple(reports),
        nnz + kept_entries,
        sum(layers.entries(i) for i, b in enumerate(layers.blocks) if not b.derived),
        numbers,
        sum(weights),
        layers.n_states * (layers.n_states + p),
        settings,
        dict(seconds),
    )
