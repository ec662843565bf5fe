"""What a sparse model of a network gains and loses: rows, explained variance, certificates, and non-zeros in three
counts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from implicit_models.sim.network.layers import NetworkLayers
from implicit_models.summaries import summary

if TYPE_CHECKING:
    from implicit_models.sim.network.position_problem import PositionProblem
    from implicit_models.sim.network.position_rows import BlockRows
    from implicit_models.sim.network.shared_problem import SharedProblem
    from implicit_models.sim.sparse_model import SparseModel


class MoreParameters(UserWarning):
    """A sparse model has more parameters than the network that it reproduces."""


class MoreEntries(UserWarning):
    """The rows of a sparse model have more entries than the network's own: it multiplies more, not less."""


class ColumnsExcluded(UserWarning):
    """Rows whose targets vary have a bias alone: `min_active` excludes every column that they may use."""


class NothingFitted(UserWarning):
    """No block of a network reads an earlier one: the sparse model has the network's own weights."""


@dataclass(frozen=True)
class LayerReport:
    """What was fitted in a block. rows, columns: of A, the columns a position may use; support: median over rows;
    entries: of A; parameters: of them that are stored, a kernel's once.

    own_entries: of the network's rows. fit, held_out: share of the targets' variance explained, on the samples of the
        fit and on others (None without any). gap: largest relative duality gap; violation: largest excess of the ball,
        relative, before the refit; status: rows by outcome. excluded: rows whose targets vary and that have a bias
        alone, as `min_active` excludes every column that they may use.
    """

    block: int
    name: str
    rows: int
    columns: int
    support: float
    entries: int
    parameters: int
    own_entries: int
    fit: float
    held_out: float | None
    gap: float
    violation: float
    status: Mapping[str, int]
    excluded: int = 0

    def __repr__(self) -> str:
        return summary(
            self,
            "name",
            "rows",
            "columns",
            "support",
            "entries",
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

    entries: non-zeros of all rows, those of blocks that were kept included; own_entries: of the network. parameters:
        different weights that have to be stored (rows of their own for every position, or kernels); own_parameters:
        weights of the network's convolutions and linear layers before the output. full_matrix: entries of [A B] of the
        implicit model, n (n + p). settings: the rows, the budget, and whose states. seconds: of the fit, by part.
    """

    layers: tuple[LayerReport, ...]
    entries: int
    own_entries: int
    parameters: int
    own_parameters: int
    full_matrix: int
    settings: Mapping[str, Any]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return summary(
            self,
            "layers",
            "entries",
            "own_entries",
            "parameters",
            "own_parameters",
            "full_matrix",
            "sparsity_of_entries",
            "sparsity_of_parameters",
            "sparsity_of_full_matrix",
            "settings",
            "seconds",
        )

    @property
    def sparsity_of_entries(self) -> float:
        """1 - entries / own_entries: the multiplications that are saved."""
        return 1 - self.entries / self.own_entries

    @property
    def sparsity_of_parameters(self) -> float:
        """1 - parameters / own_parameters: what is saved of them; negative where rows of their own need more."""
        return 1 - self.parameters / self.own_parameters

    @property
    def sparsity_of_full_matrix(self) -> float:
        """1 - entries / full_matrix: the papers' count for a full [A B]."""
        return 1 - self.entries / self.full_matrix

    @property
    def own_sparsity_of_full_matrix(self) -> float:
        return 1 - self.own_entries / self.full_matrix


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
        problem.parameters(found, t, A, refit=refit),
        layers.entries(block),
        float(np.average(fit, weights=weight)) if weight.sum() > 0 else 1.0,
        explained,
        float(np.nanmax(gap, initial=0.0)),
        float(found.violation[:, t].max(initial=0.0)),
        found.status(t),
        problem.excluded_rows,
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
    entries = sum(r.entries for r in reports)
    p = math.prod(layers.input_shape)
    parameters = sum(r.parameters for r in reports) + sum(layers.kernel_weights(i) for i in kept)
    return SparsityReport(
        tuple(reports),
        entries + kept_entries,
        sum(layers.entries(i) for i, b in enumerate(layers.blocks) if not b.derived),
        parameters,
        layers.weights(),
        layers.n_states * (layers.n_states + p),
        settings,
        dict(seconds),
    )


def warned(models: list[SparseModel]) -> list[SparseModel]:
    """The models of one network, after what is to be said of them: once each, of the first that it holds for."""
    if not models[0].fitted:
        warnings.warn(
            NothingFitted(
                "nothing was sparsified, and the report has no layers: no block of the network reads the states of an"
                " earlier one, and blocks that read the input alone are kept as they are"
            ),
            stacklevel=3,
        )
    for model in models:
        lost = [r for r in model.report.layers if r.excluded]
        if lost:
            named = ", ".join(f"{r.name} ({r.excluded} of {r.rows} rows)" for r in lost)
            warnings.warn(
                ColumnsExcluded(
                    f"rows have a bias alone in the layers {named}: their columns vary on fewer samples than"
                    f" min_active={model.report.settings['rows'].min_active:g} asks for, which excludes all of them;"
                    " give more samples, or min_active=0"
                ),
                stacklevel=3,
            )
            break
    for model in models:
        report = model.report
        if report.parameters > report.own_parameters:
            warnings.warn(
                MoreParameters(
                    f"the sparse model has {report.parameters} parameters, the network {report.own_parameters}: rows of"
                    " their own untie the kernels and save multiplications only; SharedKernels() saves parameters"
                ),
                stacklevel=3,
            )
            break
    for model in models:
        report = model.report
        if report.entries > report.own_entries:
            denser = [r for r in report.layers if r.entries > r.own_entries]
            named = ", ".join(f"{r.name} ({r.entries} for {r.own_entries})" for r in denser)
            warnings.warn(
                MoreEntries(
                    f"the sparse model's rows have {report.entries} entries, the network's {report.own_entries}, so"
                    f" that it multiplies more than the network, in the layers {named}: give a smaller budget"
                ),
                stacklevel=3,
            )
            break
    return models
