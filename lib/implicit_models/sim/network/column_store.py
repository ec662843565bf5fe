"""Columns of a network's states for rows that may use every block before them, prepared once where they are used: in
memory, or on a graphics card.

The rows of block l may use the first d_l columns of the store, the states of all blocks before it. The columns of a
block are centred, divided by their units and rounded to low precision (see `low_precision`) when its states are known.
With scale "std" a column has variance 1. With the other scales it is x_j ref / s_j, with one factor ref for all
columns: that of `position_problem` rounded to a power of two, so that a later block with another ref rescales the
columns before it without rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from implicit_models.sim.network.columns import (
    centre_,
    channel_major,
    divide_,
    log2_reference,
    runs,
    state_rows,
    varies,
)
from implicit_models.sim.network.low_precision import fast_dtype, rounded_columns
from implicit_models.sim.parallel.chunk_store import content_key


class Columns(NamedTuple):
    """Columns of states, exact and in low precision.

    Attributes:
        X: (d, m) float64, centred and divided by their units.
        values: (d, m) the columns at unit length in low precision.
        lost: (d,) norm of what that rounding took of a column at unit length.
        norm: (d,) lengths of the columns of X.
        key: digest of the content, where known.
    """

    X: Float[Tensor, "d m"]
    values: Tensor
    lost: Float[Tensor, " d"]
    norm: Float[Tensor, " d"]
    key: str | None = None

    @classmethod
    def of(cls, X: Float[np.ndarray, "d m"], device: str = "cpu") -> Columns:
        """Columns of X (d, m), which is centred and in units already."""
        out = cls.over(torch.from_numpy(X).to(device))
        out.round_()
        return out

    @classmethod
    def over(cls, X: Float[Tensor, "d m"]) -> Columns:
        """Columns that share X; the other fields are allocated, and filled by `round_`."""
        one = torch.empty(2, len(X), dtype=torch.float64, device=X.device)
        return cls(X, torch.empty(X.shape, dtype=fast_dtype(X.numel(), X.device.type), device=X.device), one[0], one[1])

    def round_(self) -> None:
        """Write values, lost and norm from X."""
        for part in runs(self.X):
            self.values[part], self.lost[part], self.norm[part] = rounded_columns(self.X[part], self.values.dtype)

    def part(self, which: slice) -> Columns:
        return Columns(*(x[which] for x in self[:-1]), self.key)  # type: ignore[call-arg, arg-type]

    @property
    def on_host(self) -> bool:
        return self.X.device.type == "cpu"

    def content(self) -> str:
        return self.key or content_key({"X": self.X.cpu().numpy()}, ())


class ColumnStore:
    """Columns of m samples, appended block after block.

    Args:
        width: number of columns when all blocks are appended.
        m: samples a column.
        min_active: as in `ByPosition`.
        device: torch device that holds the columns.
        keyed: whether a digest of the content is kept, which runs that can be resumed need.
    """

    def __init__(self, width: int, m: int, *, min_active: float, device: str = "cpu", keyed: bool = False):
        self._all = Columns.over(torch.empty(width, m, dtype=torch.float64, device=device))._replace(
            key=content_key({}, min_active) if keyed else None
        )
        self.mean, self.deviation, self.scale = np.empty(width), np.empty(width), np.ones(width)
        self.live, self.place = np.empty(width, bool), np.empty(width, np.int64)
        self.d, self.m, self.min_active, self.device, self.reference = 0, m, min_active, device, 1.0
        self.scaled = False

    def append(self, states: Float[Tensor, "n C *S"], scale: Float[np.ndarray, " size"] | None) -> None:
        """Append the columns of the next block.

        Args:
            states: (N, C, *S), of which the first m samples are used.
            scale: units s_j of the states in (C, P) order; None for their deviations.
        """
        channels, positions = states.shape[1], math.prod(states.shape[2:])
        order = channel_major(np.arange(channels * positions), channels, positions)
        here = slice(self.d, self.d + len(order))
        own = self._all.part(here)
        own.X.copy_(state_rows(states[: self.m].to(self.device), channels, positions))
        mean, deviation, live = centre_(own.X, self.min_active)
        if scale is not None:
            self.scaled = True
            self.scale[here] = scale[order]
        divide_(
            own.X,
            deviation if scale is None else torch.from_numpy(self.scale[here] / self.reference).to(self.device),
            live,
        )
        own.round_()
        self.place[here] = self.d + order
        self.mean[here], self.deviation[here], self.live[here] = (
            found.cpu().numpy() for found in (mean, deviation, live)
        )
        if self._all.key is not None:
            content = {"states": states[: self.m].cpu().numpy()} | ({} if scale is None else {"scale": scale})
            self._all = self._all._replace(key=content_key(content, self._all.key))
        self.d = here.stop

    def columns(self) -> tuple[Columns, Float[np.ndarray, " d"], float]:
        """The columns appended so far.

        Returns:
            The columns; what each was divided by (d,); and q, by which they are larger than with the reference that
            makes the variance of the median live column exactly 1.
        """
        live, scale, deviation = self.live[: self.d], self.scale[: self.d], self.deviation[: self.d]
        if not self.scaled:
            return self._all.part(slice(self.d)), np.where(live, deviation, 1.0), 1.0
        exact = log2_reference(scale, deviation, live)
        reference = 2.0 ** round(exact)
        if reference != self.reference:
            for x in (self._all.X, self._all.norm):
                x[: self.d] *= reference / self.reference
            self.reference = reference
        return self._all.part(slice(self.d)), scale / self.reference, reference / 2.0**exact

    @property
    def excluded(self) -> bool:
        """Whether columns appended so far vary, and min_active leaves none of them."""
        if self.live[: self.d].any():
            return False
        mean, deviation = (torch.from_numpy(x[: self.d]) for x in (self.mean, self.deviation))
        return bool(varies(mean, deviation).any())

    @property
    def used(self) -> tuple[Float[np.ndarray, " d"], Int[np.ndarray, " d"]]:
        """Means (d,) of the columns appended so far, and the columns (d,) of A that they stand for."""
        return self.mean[: self.d], self.place[: self.d]
