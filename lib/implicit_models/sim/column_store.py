"""Columns of a network's states for rows that may use every block before them, prepared once where they are used: in memory, or on a graphics card.

The columns of block l are those of the block before it, and that block's own states: the first d_l of the store. Each is centred, brought to
its unit, and rounded (see `low_precision`) when its block is known. Of variance 1 for scale "std"; x_j ref / s_j for the others, with one ref for all columns, that of
`position_problem` rounded to a power of two, so that the next block's rescales the columns before it without rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from implicit_models.sim.chunk_store import content_key
from implicit_models.sim.low_precision import fast_dtype, rounded_columns
from implicit_models.sim.sparse_model import channel_major

TOGETHER = {"cpu": 2**19, "cuda": 2**27}  # entries that are prepared at a time


class Columns(NamedTuple):
    """X (d, m) centred and in units; at unit length in low precision, with the norms of what rounding took and the lengths. key: of the content, where known."""

    X: Float[Tensor, "d m"]
    values: Tensor
    lost: Float[Tensor, " d"]
    norm: Float[Tensor, " d"]
    key: str | None = None

    @classmethod
    def of(cls, X: Float[np.ndarray, "d m"], device: str = "cpu") -> Columns:
        """Columns that are centred and in units already."""
        x = torch.from_numpy(X).to(device)
        out = cls._empty(*X.shape, device)._replace(X=x)
        for part in _slices(0, *X.shape, device):
            out.values[part], out.lost[part], out.norm[part] = rounded_columns(x[part], out.values.dtype)
        return out

    @classmethod
    def _empty(cls, d: int, m: int, device: str) -> Columns:
        one = torch.empty(2, d, dtype=torch.float64, device=device)
        return cls(torch.empty(0), torch.empty(d, m, dtype=fast_dtype(d * m, device), device=device), one[0], one[1])

    def first(self, d: int) -> Columns:
        return Columns(*(x[:d] for x in self[:-1]), self.key)

    @property
    def on_host(self) -> bool:
        return self.X.device.type == "cpu"

    def content(self) -> str:
        return self.key or content_key({"X": self.X.cpu().numpy()}, ())


class ColumnStore:
    """Columns of m samples, block after block, as they become known.

    Args:
        width: columns in the end. min_active: as in `sparsify`. device: where they lie. keyed: whether their content has a key, for runs that go on.
    """

    def __init__(self, width: int, m: int, *, min_active: float, device: str = "cpu", keyed: bool = False):
        empty = Columns._empty(width, m, device)
        self._all = empty._replace(X=torch.empty(width, m, dtype=torch.float64, device=device), key=content_key({}, min_active) if keyed else None)
        self.mean, self.deviation, self.scale = np.empty(width), np.empty(width), np.ones(width)
        self.live, self.place = np.empty(width, bool), np.empty(width, np.int64)
        self.d, self.m, self.min_active, self.device, self.reference = 0, m, min_active, device, 1.0
        self.scaled = False

    def append(self, states: Float[Tensor, "n C *S"], scale: Float[np.ndarray, " size"] | None) -> None:
        """States of the next block, of which the first m samples count, and their units s, channel-major; None for their deviations."""
        channels, positions = states.shape[1], math.prod(states.shape[2:])
        cells = np.arange(channels * positions)
        order = channel_major(cells, channels, positions)
        wide = states[: self.m].reshape(self.m, -1).to(self.device).t().contiguous()
        self.place[self.d + cells] = self.d + order
        if scale is not None:
            self.scaled = True
            self.scale[self.d + cells] = scale[order]
        taken = torch.from_numpy(order).to(self.device)
        for part in _slices(self.d, len(cells), self.m, self.device):
            x = self._all.X[part]
            x.copy_(wide[taken[part.start - self.d : part.stop - self.d]])
            mean = x.mean(1)
            x -= mean[:, None]
            squares = x.square()
            square, fourth = squares.sum(1), squares.square_().sum(1)
            deviation = (square / self.m).sqrt()
            live = (deviation > 1e-7 * mean.abs().clamp_min(1e-300)) & (square * square >= self.min_active * fourth)
            unit = deviation if scale is None else torch.from_numpy(self.scale[part] / self.reference).to(self.device)
            x *= torch.where(live, 1.0 / torch.where(live, unit, 1.0), 0.0)[:, None]
            self._all.values[part], self._all.lost[part], self._all.norm[part] = rounded_columns(x, self._all.values.dtype)
            for name, found in (("mean", mean), ("deviation", deviation), ("live", live)):
                getattr(self, name)[part] = found.cpu().numpy()
        if self._all.key is not None:
            content = {"states": states[: self.m].cpu().numpy()} | ({} if scale is None else {"scale": scale})
            self._all = self._all._replace(key=content_key(content, self._all.key))
        self.d += len(cells)

    def columns(self) -> tuple[Columns, Float[np.ndarray, " d"], float]:
        """All columns so far, what each was divided by, and q: they are q times those of the reference that makes the median live column of variance 1."""
        live, scale, deviation = self.live[: self.d], self.scale[: self.d], self.deviation[: self.d]
        if not self.scaled:
            return self._all.first(self.d), np.where(live, deviation, 1.0), 1.0
        exact = float(np.median(np.log2(scale[live]) - np.log2(deviation[live]))) if live.any() else 0.0
        reference = 2.0 ** round(exact)
        if reference != self.reference:
            for x in (self._all.X, self._all.norm):
                x[: self.d] *= reference / self.reference
            self.reference = reference
        return self._all.first(self.d), scale / self.reference, reference / 2.0**exact

    @property
    def used(self) -> tuple[Float[np.ndarray, " d"], Int[np.ndarray, " d"]]:
        """Means of the columns so far, and the columns of A that they are."""
        return self.mean[: self.d], self.place[: self.d]


def _slices(first: int, n: int, m: int, device: str) -> list[slice]:
    size = max(1, TOGETHER[device.partition(":")[0]] // max(1, m))
    return [slice(at, min(at + size, first + n)) for at in range(first, first + n, size)]
