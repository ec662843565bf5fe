"""A convolution over two axes whose kernels are mostly zeros, one line of 16 samples at a time.

Values are (C, H + 2 m, (W + 2 m) 16): channels, lines, columns and, innermost, 16 samples, with a margin of m zeros on
every side. A row of kernels is a list of weights and of places: where in the input the weight of the first output lies.
All entries of a line of the output take the same weights from places that lie one behind the other, so that compiled
code reads and writes whole vectors; four weights go in one sweep.

Source:
    Elsen et al. (2020), Fast sparse convnets, for samples or positions innermost; the order of loops is this project's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from implicit_models.kernels import kernel

LANES = 16  # samples side by side
SWEEP = 4  # weights at once


class KernelRows(NamedTuple):
    """Rows of kernels: those of row i are entries begin[i] to begin[i + 1], whose number is a multiple of 4.

    line: entries of a padded line of the input. stride: of lines and columns.
    """

    begin: Int[np.ndarray, " r1"]
    place: Int[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    bias: Float[np.ndarray, " r"]
    line: int
    stride: tuple[int, int]


@kernel(fastmath=True)
def convolve_lines(x, rows, add, added, relu, out, size, margin):
    """Fill the inside of out (r, H', L') from x, flat; added: of the shape of out, counts where add is True; relu:
    whether what is below zero becomes zero. size: lines and columns of the output."""
    lines, inner = size[0], size[1] * 16
    down, right = rows.stride[0] * rows.line, rows.stride[1] * 16
    for row in range(out.shape[0]):
        for y in range(lines):
            goal = out[row, y + margin, margin * 16 : margin * 16 + inner]
            goal[:] = rows.bias[row]
            for k in range(rows.begin[row], rows.begin[row + 1], 4):
                w0, w1, w2, w3 = rows.weight[k], rows.weight[k + 1], rows.weight[k + 2], rows.weight[k + 3]
                p0, p1 = y * down + rows.place[k], y * down + rows.place[k + 1]
                p2, p3 = y * down + rows.place[k + 2], y * down + rows.place[k + 3]
                if right == 16:
                    a, b = x[p0 : p0 + inner], x[p1 : p1 + inner]
                    c, d = x[p2 : p2 + inner], x[p3 : p3 + inner]
                    for t in range(inner):
                        goal[t] += w0 * a[t] + w1 * b[t] + w2 * c[t] + w3 * d[t]
                else:
                    for column in range(size[1]):
                        at = column * right
                        a, b = x[p0 + at : p0 + at + 16], x[p1 + at : p1 + at + 16]
                        c, d = x[p2 + at : p2 + at + 16], x[p3 + at : p3 + at + 16]
                        part = goal[column * 16 : column * 16 + 16]
                        for t in range(16):
                            part[t] += w0 * a[t] + w1 * b[t] + w2 * c[t] + w3 * d[t]
            if add:
                other = added[row, y + margin, margin * 16 : margin * 16 + inner]
                for t in range(inner):
                    goal[t] += other[t]
            if relu:
                for t in range(inner):
                    goal[t] = max(goal[t], np.float32(0.0))


def kernel_rows(
    weight: Float[np.ndarray, "r C kh kw"],
    bias: Float[np.ndarray, " r"],
    shape: tuple[int, int],
    margin: int,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> KernelRows:
    """Rows of a convolution of inputs with so many lines and columns.

    Raises:
        ValueError: for a padding that is larger than the margin.
    """
    if max(padding) > margin:
        raise ValueError(f"padding {padding} is larger than the margin of {margin}")
    line, lines = (shape[1] + 2 * margin) * LANES, shape[0] + 2 * margin
    begin, place, values = [0], [], []  # type: list[int], list[int], list[float]
    for each in weight:
        c, dy, dx = np.nonzero(each)
        up, left = margin - padding[0], margin - padding[1]
        found = (c * lines + dy * dilation[0] + up) * line + (dx * dilation[1] + left) * LANES
        more = -len(c) % SWEEP
        place += [*found.tolist(), *[0] * more]
        values += [*each[c, dy, dx].tolist(), *[0.0] * more]
        begin.append(len(values))
    to = lambda of, kind: np.array(of, dtype=kind)
    return KernelRows(
        to(begin, np.int64), to(place, np.int64), to(values, np.float32), to(bias, np.float32), line, stride
    )
