"""Windows of an image, one for each functional: the part of it that the functional can reach.

An entry of a convolution reads a window of its input, and through further convolutions a larger one. Rows that begin at
single entries are windows (C, h, w) with places of their own, and a convolution carries all of them back at once,
wherever they are. What lies outside the image belongs to the padding and is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from implicit_models.robustness.layered.operators import Convolution


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of images of `shape` (C, H, W).

    Attributes:
        corner: (N, m, 2) row and column of the first entry; negative before the image.
        size: (h, w).
        shape: (C, H, W).
    """

    corner: Int64[Tensor, "N m 2"]
    size: tuple[int, int]
    shape: tuple[int, int, int]

    @cached_property
    def _inside(self) -> tuple[Tensor, Tensor]:
        """Place of each entry in the image, and whether it lies inside; places outside are some place inside."""
        C, H, W = self.shape
        rows = self.corner[..., :1] + torch.arange(self.size[0])
        columns = self.corner[..., 1:] + torch.arange(self.size[1])
        inside = ((rows >= 0) & (rows < H)).unsqueeze(3) & ((columns >= 0) & (columns < W)).unsqueeze(2)
        flat = rows.clamp(0, H - 1).unsqueeze(3) * W + columns.clamp(0, W - 1).unsqueeze(2)
        each = torch.arange(C).reshape(1, 1, C, 1, 1) * (H * W) + flat.unsqueeze(2)
        return each.flatten(2), inside.unsqueeze(2).expand(-1, -1, C, -1, -1).flatten(2)

    @property
    def large(self) -> bool:
        """Whether they have as many entries as the image."""
        return self.size[0] * self.size[1] >= self.shape[1] * self.shape[2]

    def gather(self, values: Float[Tensor, "*N k"]) -> Float[Tensor, "N m a"]:
        """Of values of the whole image, of all samples or of each, those of the entries."""
        places, _ = self._inside
        if values.ndim == 1:
            return values[places]
        N, m, a = places.shape
        return values.gather(1, places.reshape(N, m * a)).reshape(N, m, a)

    def scattered(self, entries: Float[Tensor, "N m a"]) -> Float[Tensor, "N m k"]:
        """Rows of the whole image."""
        C, H, W = self.shape
        places, inside = self._inside
        out = entries.new_zeros(*entries.shape[:2], C * H * W)
        return out.scatter_add_(2, places, entries * inside)

    def union(
        self, own: Float[Tensor, "N m a"], other: Windows, theirs: Float[Tensor, "N m b"]
    ) -> tuple[Windows, Tensor] | None:
        """Windows that hold both, and the sum of entries; None where the two do not lie alike in all rows."""
        shift = other.corner - self.corner
        if not shift.numel() or not bool((shift == shift[:1, :1]).all()):
            return None
        dy, dx = (int(v) for v in shift[0, 0])
        (h, w), (k, l) = self.size, other.size
        top, left, bottom, right = min(0, dy), min(0, dx), max(h, dy + k), max(w, dx + l)
        a, b = (v.unflatten(2, (self.shape[0], *size)) for v, size in ((own, (h, w)), (theirs, (k, l))))
        a = F.pad(a, (-left, right - w, -top, bottom - h))
        b = F.pad(b, (dx - left, right - dx - l, dy - top, bottom - dy - k))
        corner = self.corner + torch.tensor([top, left])
        return Windows(corner, (bottom - top, right - left), self.shape), (a + b).flatten(2)

    def carried(self, L: Convolution, entries: Float[Tensor, "N m a"]) -> tuple[Windows, Tensor]:
        """The windows of the convolution's input that these read, and their entries."""
        N, m = entries.shape[:2]
        image = entries.reshape(N * m, self.shape[0], *self.size)
        back = F.conv_transpose2d(image, L.weight, None, L.stride, 0, 0, L.groups, L.dilation)
        corner = self.corner * torch.tensor(L.stride) - torch.tensor(L.padding)
        C, H, W = L.shape
        found = Windows(corner, (back.shape[2], back.shape[3]), (C, H, W))
        return found, back.reshape(N, m, -1) * found._inside[1]


def single(
    unit: Int64[Tensor, "N m"], shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Windows, Float[Tensor, "N m C"]]:
    """Unit vectors of entries of an image."""
    C, H, W = shape
    entries = torch.zeros(*unit.shape, C, dtype=dtype)
    entries.scatter_(2, (unit // (H * W)).unsqueeze(2), 1.0)
    return Windows(torch.stack([unit % (H * W) // W, unit % W], dim=2), (1, 1), (C, H, W)), entries
