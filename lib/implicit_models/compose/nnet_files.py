"""Networks in .nnet files, the text format of Stanford's Intelligent Systems Laboratory, as torch networks.

Comments in lines that begin with //, then lines of numbers with commas:

    layers, inputs, outputs, largest layer
    sizes of the input and of each layer
    one unused number
    least inputs
    largest inputs
    means of the inputs, and of the outputs
    ranges of the inputs, and of the outputs
    the rows of each layer's matrix, one a line, then its biases, one a line

A network computes W_L relu(... relu(W_1 z + b_1) ...) + b_L.

Source:
    Julian, "NNet", github.com/sisl/NNet (the format); Julian, Lopez, Brush, Owen and Kochenderfer, "Policy compression
    for aircraft collision avoidance systems", DASC (2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Inputs(nn.Module):
    """z = (min(max(u, least), largest) - mean) / range, in states of two ReLUs."""

    least: torch.Tensor
    width: torch.Tensor
    shift: torch.Tensor
    extent: torch.Tensor

    def __init__(self, least: np.ndarray, largest: np.ndarray, mean: np.ndarray, extent: np.ndarray):
        super().__init__()
        self.register_buffer("least", torch.from_numpy(least))
        self.register_buffer("width", torch.from_numpy(largest - least))
        self.register_buffer("shift", torch.from_numpy(largest - mean))
        self.register_buffer("extent", torch.from_numpy(extent))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        below = torch.relu(self.width - torch.relu(u - self.least))  # largest - min(max(u, least), largest)
        return (self.shift - below) / self.extent


class Outputs(nn.Module):
    """y = mean + range v."""

    def __init__(self, mean: float, extent: float):
        super().__init__()
        self.mean, self.extent = mean, extent

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.extent + self.mean


def network_from_nnet(path: str | Path, *, normalised: bool = False) -> nn.Sequential:
    """The network of a .nnet file.

    Args:
        path: of the file.
        normalised: whether inputs and outputs are (u - mean) / range already, as in VNN-COMP's properties; otherwise
            they are in physical units: inputs outside of [least, largest] are clipped, as the format says, and
            normalised, outputs are scaled back.

    Returns:
        network (N, p) -> (N, q) in double precision.

    Raises:
        OSError: for a file that cannot be read.
        ValueError: naming the line that holds no numbers, or another count of them than the format says, sizes that
            are not positive, ranges of zero, and least inputs above the largest.
    """
    lines = _lines(path)
    count, p, q = (int(n) for n in _row(path, lines, "the counts", None, whole=True)[:3])
    sizes = [int(n) for n in _row(path, lines, "the sizes of the layers", count + 1, whole=True)]
    if (sizes[0], sizes[-1]) != (p, q):
        raise ValueError(f"{path}: layers of sizes {sizes} do not go from {p} inputs to {q} outputs")
    next(lines, None)  # a flag that the format does not use
    least, largest = (_row(path, lines, f"the {word} inputs", p) for word in ("least", "largest"))
    means, extents = (_row(path, lines, f"the {word}", p + 1) for word in ("means", "ranges"))
    if not extents.all():
        raise ValueError(f"{path}: range {int(np.argmin(extents != 0))} is zero")
    if (least > largest).any():
        i = int(np.argmax(least > largest))
        raise ValueError(f"{path}: input {i} has the least value {least[i]:g} above its largest, {largest[i]:g}")
    steps: list[nn.Module] = [] if normalised else [Inputs(least, largest, means[:p], extents[:p])]
    for k, (columns, rows) in enumerate(zip(sizes, sizes[1:]), start=1):
        layer = nn.Linear(columns, rows, dtype=torch.float64, device="meta")
        W = np.stack([_row(path, lines, f"row {i} of layer {k}", columns) for i in range(rows)])
        b = np.concatenate([_row(path, lines, f"bias {i} of layer {k}", 1) for i in range(rows)])
        layer.weight, layer.bias = (nn.Parameter(torch.from_numpy(a), requires_grad=False) for a in (W, b))
        steps += [layer, nn.ReLU()] if k < count else [layer]
    if (rest := next(lines, None)) is not None:
        raise ValueError(f"{path}, line {rest[0]}: the file goes on behind its last layer")
    if not normalised:
        steps.append(Outputs(float(means[p]), float(extents[p])))
    return nn.Sequential(*steps).eval()


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments and empty ones."""
    for number, line in enumerate(Path(path).read_text().splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("//"):
            yield number, line


def _row(
    path: str | Path, lines: Iterator[tuple[int, str]], what: str, count: int | None, *, whole: bool = False
) -> np.ndarray:
    """The numbers of the next line; count: how many there must be, four or more if None."""
    number, line = next(lines, (0, ""))
    if not number:
        raise ValueError(f"{path} ends before {what}")
    try:
        row = np.array([float(text.replace("_", "?")) for text in line.strip().rstrip(",").split(",")])
    except ValueError:
        raise ValueError(f"{path}, line {number}: {what} must be numbers with commas, got {line.strip()!r}") from None
    if not np.isfinite(row).all() or (whole and not ((row >= 1) & (row == np.floor(row))).all()):
        raise ValueError(f"{path}, line {number}: {what} must be {'positive whole' if whole else 'finite'} numbers")
    if len(row) < 4 if count is None else len(row) != count:
        raise ValueError(f"{path}, line {number}: {what} must be {count or 'four'} numbers, got {len(row)}")
    return row
