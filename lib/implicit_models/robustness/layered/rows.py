"""Coefficients of functionals of one value, for those entries alone that can matter to a sample.

A ReLU that is off for a whole set passes nothing on. Each sample has an order of its units: those that pass everything
first, the undecided ones, then the dead ones; rows of coefficients and blocks of weights are cut to the first of them,
as many as the sample with the most in a group needs. What is left over among the dead has slope zero, so that nothing
needs a mask. Rows of an image are windows of it, as long as these are smaller (`windows`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from implicit_models.robustness.layered.lines import Lines
from implicit_models.robustness.layered.operators import Convolution, Dense, Diagonal, Operator
from implicit_models.robustness.layered.windows import Windows

WORTH = 0.7  # share of entries up to which copies of parts of the weights cost less than products with all of them


@dataclass(eq=False)
class Alive:
    """Entries of one value that matter, for each sample.

    Attributes:
        columns: (N, a) their places.
        plain: how many of the first pass everything on in all samples.
        rest: lines of the others.
    """

    columns: Int64[Tensor, "N a"]
    plain: int
    rest: Lines


@dataclass(eq=False)
class Rows:
    """Coefficients of one value: of all its entries (`at` None), of some for each sample, or of windows of an image.

    Attributes:
        entries: (N, m, a).
        at: places (N, a) of the entries, or their windows.
    """

    entries: Float[Tensor, "N m a"]
    at: Int64[Tensor, "N a"] | Windows | None = None

    def full(self, size: int) -> Tensor:
        """(N, m, size), zeros elsewhere."""
        if self.at is None:
            return self.entries
        if isinstance(self.at, Windows):
            return self.at.scattered(self.entries)
        out = self.entries.new_zeros(*self.entries.shape[:2], size)
        return out.scatter_(2, self.at.unsqueeze(1).expand_as(self.entries), self.entries)

    def add(self, other: Rows, size: int) -> Rows:
        """The sum of two rows of one value of `size` entries."""
        if self.at is other.at:
            return Rows(self.entries + other.entries, self.at)
        if isinstance(self.at, Windows) and isinstance(other.at, Windows):
            both = self.at.union(self.entries, other.at, other.entries)
            if both is not None:
                return Rows(both[1], both[0])
        return Rows(self.full(size) + other.full(size))

    def times(self, values: Float[Tensor, "*N k"], sizes: bool = False) -> Float[Tensor, "N m"]:
        """Products with values of all entries, shared by the samples or of each; `sizes`: of the absolute values."""
        entries = self.entries.abs() if sizes else self.entries
        if isinstance(self.at, Windows):
            return (entries * self.at.gather(values)).sum(2)
        if self.at is not None:
            values = values[self.at] if values.ndim == 1 else values.gather(1, self.at)
        elif values.ndim == 1:
            return entries @ values
        return torch.bmm(entries, values.unsqueeze(2))[..., 0]


def alive(line: Lines) -> Alive | None:
    """The entries that matter, None where they are too many to be worth it, or where lines read other entries."""
    if line.blocks:
        return None
    flat = (line.low_at == 0) & (line.high_at == 0) & (line.low_slope == line.high_slope)
    kind = torch.where(flat & (line.low_slope == 1), 0, torch.where(flat & (line.low_slope == 0), 2, 1))
    most = int((kind < 2).sum(1).max()) if len(kind) else 0
    if most > WORTH * kind.shape[1]:
        return None
    columns = torch.argsort(kind.to(torch.uint8), dim=1, stable=True)[:, :most]
    plain = int((kind == 0).sum(1).min())
    return Alive(columns, plain, line.gather(columns[:, plain:]))


def carried(L: Operator, rows: Rows, earlier: Alive | None) -> Rows:
    """rows L, for the entries of the earlier value that matter."""
    at = rows.at
    if isinstance(at, Windows):
        if isinstance(L, Convolution) and not at.large:
            windows, entries = at.carried(L, rows.entries)
            return Rows(entries, windows)
        if isinstance(L, Diagonal):
            return Rows(rows.entries * at.gather(L.weight), at)
    if isinstance(at, Windows) or not isinstance(L, Dense) or (at is None and earlier is None):
        N, m = rows.entries.shape[:2]
        return Rows(L.transposed(rows.full(L.outputs).flatten(0, 1)).unflatten(0, (N, m)))
    if at is None:
        assert earlier is not None
        weight = L.weight.T[earlier.columns]  # (N, a, m): columns of L
        return Rows(torch.matmul(rows.entries, weight.transpose(1, 2)), earlier.columns)
    if earlier is None:
        return Rows(torch.bmm(rows.entries, L.weight[at]))
    return Rows(torch.bmm(rows.entries, L.weight[at.unsqueeze(2), earlier.columns.unsqueeze(1)]), earlier.columns)


def looked_up(L: Dense, which: Int64[Tensor, "N m"], earlier: Alive | None) -> Rows:
    """Rows of the operator, for the entries of the earlier value that matter."""
    if earlier is None:
        return Rows(L.weight[which])
    return Rows(L.weight[which.unsqueeze(2), earlier.columns.unsqueeze(1)], earlier.columns)
