"""What rows of a sparse model share: nothing but their position's columns, one kernel, or everything before them.

    ByPosition      the rows of a position, all its channels, share their columns and one Gram matrix
    SharedKernels   all positions of a channel share one row, a sparse kernel
    WorkingSet      every row may use every state before it, on a working set of its own

Each checks itself when it is made, says what it cannot be asked (`check`), and makes and solves the problem of a block
(`solve`).

Source:
    Tsai thesis (2024), section 3.3; (3.4) for everything before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from implicit_models.sim.network.column_store import ColumnStore
from implicit_models.sim.network.layer_scales import SCALES, layer_scales
from implicit_models.sim.network.layers import INPUT, NetworkLayers
from implicit_models.sim.network.position_problem import PositionProblem, position_problem, working_problem
from implicit_models.sim.network.position_rows import BlockRows, solve_block
from implicit_models.sim.network.row_weights import effect_factors, row_effects
from implicit_models.sim.network.shared_problem import SharedProblem, shared_problem, solve_shared
from implicit_models.sim.network.supports import SUPPORTS, Support, sources_of
from implicit_models.sim.network.working_rows import solve_working
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Budget, Cardinality, L1Penalty, Tolerance, number, require
from implicit_models.sim.pruning.settings import OptimalBrainSurgeon

WEIGHTS = ("equal", "effect")


@dataclass(frozen=True)
class Refit:
    """Least squares on the support that the l1 solution selects, which ends its shrinkage.

    ridge: relative to each column's squared norm. one_sided: least squares that counts what ReLU lets through (see
    `solvers.refit`: more accurate where rows are very sparse).
    """

    ridge: float = 1e-3
    one_sided: bool = False

    def __post_init__(self) -> None:
        number("ridge", self.ridge, zero=True)
        if not isinstance(self.one_sided, bool):
            raise TypeError(f"one_sided must be True or False, got {self.one_sided!r}")


LEAST_SQUARES = Refit()


class Given(NamedTuple):
    """What the rows of one block are fitted to.

    sources: block -> (P, k) positions that each position may use. own: block -> its states, of which the first m
    samples count; z: targets. scales: units of all states, None for "std". factor: of the rows' penalties, None for
    equal ones. store: the columns before the block, for a working set.
    """

    layers: NetworkLayers
    block: int
    sources: Mapping[int, np.ndarray]
    own: Mapping[int, Tensor]
    z: Tensor
    m: int
    scales: list[np.ndarray] | None
    factor: np.ndarray | None
    store: ColumnStore | None


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """What all row models have, and what they answer where they have nothing of their own."""

    refit: Refit | None = LEAST_SQUARES
    min_active: float = 3.0
    cap: int | None = None
    device: ClassVar[Any] = "cpu"

    def __post_init__(self) -> None:
        if self.refit is not None and not isinstance(self.refit, Refit):
            raise TypeError(f"refit must be Refit(...) or None, got {self.refit!r}")
        number("min_active", self.min_active, zero=True)
        cap = self.cap
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, (int, np.integer)) or cap < 1):
            raise ValueError(f"cap must be None or a positive int, got {cap!r}")

    @property
    def ridge(self) -> float:
        """Of the refit, which is computed with the l1 solution, wanted or not: one folder of strips serves both."""
        return float((self.refit or LEAST_SQUARES).ridge)

    def check(self, layers: NetworkLayers, budgets: Sequence[Budget]) -> None:
        """Raises: ValueError for a budget or network that these rows are not for."""

    def sources(self, layers: NetworkLayers) -> tuple[Mapping[int, np.ndarray], ...]:
        """Of every block: block -> (P, k) positions that each position may use."""
        return tuple(sources_of(layers, block, "receptive") for block in range(len(layers.blocks)))

    def scales(self, layers: NetworkLayers) -> list[np.ndarray] | None:
        """Units of the states; None where the data decide."""
        return None

    def factors(self, layers: NetworkLayers, data: Tensor, fitted: Sequence[int]) -> list[np.ndarray] | None:
        """Of the rows' penalties; None for equal ones."""
        return None

    def store(self, layers: NetworkLayers, last: int, m: int, *, keyed: bool) -> ColumnStore | None:
        """Where the columns of all blocks before `last` are kept, if one set of them serves all rows."""
        return None


@dataclass(frozen=True, kw_only=True)
class _Weighted(_Rows):
    """Rows of their own have units and weights."""

    scale: str = "std"
    weights: str = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}")
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights must be 'equal' or 'effect', got {self.weights!r}")

    def check(self, layers: NetworkLayers, budgets: Sequence[Budget]) -> None:
        if self.weights == "effect" and not isinstance(budgets[0], L1Penalty):
            raise ValueError(f"weights 'effect' share out a penalty, L1Penalty(...): not for {budgets[0]}")

    def scales(self, layers: NetworkLayers) -> list[np.ndarray] | None:
        return layer_scales(layers, self.scale)

    def factors(self, layers: NetworkLayers, data: Tensor, fitted: Sequence[int]) -> list[np.ndarray] | None:
        return effect_factors(row_effects(layers, data), fitted) if self.weights == "effect" else None


@dataclass(frozen=True, kw_only=True)
class ByPosition(_Weighted):
    """Rows of their own for every position, whose channels share one Gram matrix.

    Args:
        support: columns that a position may use: "receptive", what the network reads there, the rows of each group of
            channels that it keeps apart (a depthwise convolution) their own; "before", every block before and the
            input; or a function (layers, block) -> {block: (P, k) positions, -1 for none}. Blocks that read the input
            alone are kept as they are.
        scale: units of the ball: "std", "theorem" or "uniform" (see `layer_scales`).
        weights: of the rows, for a penalty: "equal", every row has the same one; "effect", rows whose errors change the
            outputs more have a smaller one (see `row_effects`: far more accurate at the same number of coefficients).
        refit: `Refit(...)`, or None for the l1 solution itself.
        min_active: columns that vary on fewer samples, in the sense of (sum x^2)^2 / sum x^4 of the centred column, are
            not used: in units of their deviation a state that is active on two samples would carry a huge weight.
        cap: largest support of a row, whatever the budget; a row that would pass it has status "saturated".

    Raises:
        TypeError, ValueError: naming the choice that is wrong.

    Source:
        Tsai thesis (2024), section 3.3.
    """

    support: Support = "receptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.support) and self.support not in SUPPORTS:
            raise ValueError(f"support must be one of {', '.join(SUPPORTS)} or a function, got {self.support!r}")

    def check(self, layers: NetworkLayers, budgets: Sequence[Budget]) -> None:
        super().check(layers, budgets)
        for b in layers.blocks if self.refit is not None and self.refit.one_sided else ():
            if not b.derived and b.activation != "relu":
                raise ValueError(f"a one-sided refit is for networks of ReLU, the block {b.node} is {b.activation}")

    def sources(self, layers: NetworkLayers) -> tuple[Mapping[int, np.ndarray], ...]:
        return tuple(sources_of(layers, block, self.support) for block in range(len(layers.blocks)))

    def solve(
        self, given: Given, budgets: Sequence[Budget], tolerance: Tolerance, parallel: Parallel
    ) -> tuple[PositionProblem, BlockRows]:
        """The problem of a block, and its rows at each budget."""
        g = given
        problem = position_problem(g.layers, g.block, g.sources, g.own, g.z, g.m, g.scales, self.min_active, g.factor)
        one_sided = self.refit is not None and self.refit.one_sided
        options: dict[str, Any] = {"ridge": self.ridge, "tolerance": tolerance, "cap": self.cap, "parallel": parallel}
        level = problem.level.reshape(problem.arrays[4].shape) if one_sided else None
        found = solve_block(*problem.arrays, budgets, **options, level=level)  # type: ignore[call-arg, arg-type]
        return problem, found


@dataclass(frozen=True, kw_only=True)
class SharedKernels(_Rows):
    """One row for all positions of a channel, a sparse kernel, fitted to samples and positions alike: fewer parameters,
    where rows of their own only save multiplications. Positions are pooled in units of their deviation.

    Budgets of a row (`L1Ball`, `L1Penalty`, `Cardinality`) are met along the l1 path, with a kernel over all that a
    block reads. One budget for the whole network (`Share`) is met by elimination, with the network's own kernels.

    Args:
        supports: how the weights that stay are found for a `Share`, with which refit, min_active and cap are refused.
        refit: `Refit(...)`, or None for the l1 solution itself.
        min_active: columns that vary on fewer samples, in the sense of (sum x^2)^2 / sum x^4 of the centred column, are
            not used: in units of their deviation a state that is active on two samples would carry a huge weight.
        cap: largest support of a row, whatever the budget; a row that would pass it has status "saturated".

    Raises:
        TypeError, ValueError: naming the choice that is wrong; a one-sided refit, which needs rows of their own.

    Source:
        Tsai thesis (2024), section 3.3, for the rows; a convolution's weights are those of its kernel.
    """

    supports: OptimalBrainSurgeon = OptimalBrainSurgeon()

    def __post_init__(self) -> None:
        super().__post_init__()
        require("supports", self.supports, OptimalBrainSurgeon)
        if self.refit is not None and self.refit.one_sided:
            raise ValueError("a one-sided refit is for rows of their own with a Gram matrix a position: ByPosition")

    def solve(
        self, given: Given, budgets: Sequence[Budget], tolerance: Tolerance, parallel: Parallel
    ) -> tuple[SharedProblem, BlockRows]:
        """The problem of a block, and its rows at each budget."""
        g = given
        problem = shared_problem(g.layers, g.block, g.sources, g.own, g.z[: g.m], min_active=self.min_active)
        options: dict[str, Any] = {"ridge": self.ridge, "tolerance": tolerance, "cap": self.cap, "parallel": parallel}
        return problem, solve_shared(problem, budgets, **options)


@dataclass(frozen=True, kw_only=True)
class WorkingSet(_Weighted):
    """Rows that may use every state before them, each on a working set, certified on all columns; within a ball or a
    penalty.

    Args:
        device: "cpu", the workers compare residuals with all columns, or "cuda", "cuda:k", a card does.
        scale: units of the ball: "std", "theorem" or "uniform" (see `layer_scales`).
        weights: of the rows, for a penalty: "equal", every row has the same one; "effect", rows whose errors change the
            outputs more have a smaller one (see `row_effects`: far more accurate at the same number of coefficients).
        refit: `Refit(...)`, or None for the l1 solution itself.
        min_active: columns that vary on fewer samples, in the sense of (sum x^2)^2 / sum x^4 of the centred column, are
            not used: in units of their deviation a state that is active on two samples would carry a huge weight.
        cap: largest support of a row, whatever the budget; a row that would pass it has status "saturated".

    Raises:
        TypeError, ValueError: naming the choice that is wrong; a one-sided refit, which needs one Gram matrix.

    Source:
        Tsai thesis (2024), (3.4).
    """

    device: str = "cpu"  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.refit is not None and self.refit.one_sided:
            raise ValueError("a one-sided refit is for rows of their own with a Gram matrix a position: ByPosition")
        if not isinstance(self.device, str):
            raise TypeError(f"device must be 'cpu', 'cuda' or 'cuda:k', got {self.device!r}")
        if self.device != "cpu" and not re.fullmatch("cuda(:[0-9]+)?", self.device):
            raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:k', got {self.device!r}")

    def check(self, layers: NetworkLayers, budgets: Sequence[Budget]) -> None:
        super().check(layers, budgets)
        if isinstance(budgets[0], Cardinality):
            raise ValueError(
                f"a working set is for L1Ball(...) or L1Penalty(...), not for {budgets[0]}:"
                " ByPosition(support='before') follows the path on all columns"
            )
        if self.device == "cpu":
            return
        cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(self.device.partition(":")[2] or 0) >= cards:
            raise ValueError(f"device {self.device!r} is not there: torch sees {cards} CUDA cards")

    def sources(self, layers: NetworkLayers) -> tuple[Mapping[int, np.ndarray], ...]:
        return tuple(sources_of(layers, block, "before") for block in range(len(layers.blocks)))

    def store(self, layers: NetworkLayers, last: int, m: int, *, keyed: bool) -> ColumnStore | None:
        columns = sum(math.prod(layers.shape_of(k)) for k in range(INPUT, last))
        return ColumnStore(columns, m, min_active=self.min_active, device=self.device, keyed=keyed)

    def solve(
        self, given: Given, budgets: Sequence[Budget], tolerance: Tolerance, parallel: Parallel
    ) -> tuple[PositionProblem, BlockRows]:
        """The problem of a block, and its rows at each budget."""
        g = given
        assert g.store is not None
        columns, problem = working_problem(g.layers, g.block, g.store, g.z, g.scales, g.factor)
        options: dict[str, Any] = {"ridge": self.ridge, "tolerance": tolerance, "cap": self.cap, "parallel": parallel}
        return problem, solve_working(columns, *problem.arrays, budgets, **options)  # type: ignore[call-arg, arg-type]


RowModel = ByPosition | SharedKernels | WorkingSet
