"""Whether a compiled convolution that skips zeros beats the dense one: `python -m benchmarks.sparse_convolution
[--quick] --json FILE`.

The 3 x 3 layers of ResNet-20 at batch 64 on one thread, nine of ten weights zero, at random places:

    dense     torch's convolution (oneDNN), which the zeros do not speed up
    rows      compressed rows of kernels, compiled by numba: 16 samples innermost, padded, a line of an image at a time,
              four weights in one sweep; its values stay in that layout from layer to layer
    moved     the same with the values brought into that layout and back
    csr       torch's product of a CSR matrix with the unfolded columns

CPU seconds of one call, the median of many. What is decided: rows at least 1.5 times as fast as dense on every layer
(the goal is 3), values in its layout.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numba import njit

from benchmarks import harness

LAYERS = {"16 channels, 32 x 32": (16, 32), "32 channels, 16 x 16": (32, 16), "64 channels, 8 x 8": (64, 8)}
BATCH, SPARSITY, LANES = 64, 0.9, 16
FLOOR, GOAL = 1.5, 3.0


@njit(fastmath=True, nogil=True, cache=True)
def rows_of_kernels(X, begin, offset, weight, bias, out, lines, width):
    """out = relu-free convolution, stride 1. X (B, C (S + 2) L) and out (B, r, S + 2, L), L the values of a padded line;
    begin, offset, weight: rows of kernels, offsets into a sample of the first line, their number a multiple of 4."""
    blocks, r = out.shape[0], out.shape[1]
    inner, line = width * LANES, out.shape[3]
    for b in range(blocks):
        x = X[b]
        for y in range(lines):
            at = y * line
            for row in range(r):
                y_out = out[b, row, y + 1, LANES : LANES + inner]
                y_out[:] = bias[row]
                for k in range(begin[row], begin[row + 1], 4):
                    w0, w1, w2, w3 = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
                    a = x[at + offset[k] : at + offset[k] + inner]
                    c = x[at + offset[k + 1] : at + offset[k + 1] + inner]
                    d = x[at + offset[k + 2] : at + offset[k + 2] + inner]
                    e = x[at + offset[k + 3] : at + offset[k + 3] + inner]
                    for t in range(inner):
                        y_out[t] += w0 * a[t] + w1 * c[t] + w2 * d[t] + w3 * e[t]


def compressed(weight: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """begin, offset and weight of the rows, filled up with zeros to multiples of four."""
    line = (size + 2) * LANES
    begin, offset, values = [0], [], []
    for kernel in weight:
        c, dy, dx = np.nonzero(kernel)
        own = list(kernel[c, dy, dx])
        places = list((c * (size + 2) + dy) * line + dx * LANES)
        more = -len(own) % 4
        offset += places + [0] * more
        values += own + [0.0] * more
        begin.append(len(values))
    return np.array(begin), np.array(offset, np.int64), np.array(values, np.float32)


def laid_out(x: np.ndarray) -> np.ndarray:
    """(N, C, S, S) -> (N / 16, C, S + 2, (S + 2) 16), zeros at the margin."""
    n, c, s, _ = x.shape
    out = np.zeros((n // LANES, c, s + 2, s + 2, LANES), np.float32)
    out[:, :, 1:-1, 1:-1] = x.reshape(n // LANES, LANES, c, s, s).transpose(0, 2, 3, 4, 1)
    return out.reshape(n // LANES, c, s + 2, (s + 2) * LANES)


def back(y: np.ndarray) -> np.ndarray:
    """What `laid_out` made of, again (N, C, S, S)."""
    b, c, s, _ = y.shape
    own = y.reshape(b, c, s, s, LANES)[:, :, 1:-1, 1:-1].transpose(0, 4, 1, 2, 3)
    return np.ascontiguousarray(own).reshape(b * LANES, c, s - 2, s - 2)


def _seconds(f: Callable[[], object], repeats: int) -> float:
    f()
    f()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        f()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def measured(channels: int, size: int, repeats: int) -> dict[str, float]:
    """Milliseconds of each way, and the largest difference of their values."""
    import torch
    from torch.nn import functional as F

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    order = rng.permutation(weight.size)[: round(SPARSITY * weight.size)]
    weight.reshape(-1)[order] = 0.0
    x = rng.standard_normal((BATCH, channels, size, size)).astype(np.float32)
    bias = rng.standard_normal(channels).astype(np.float32)
    xt, wt, bt = torch.from_numpy(x), torch.from_numpy(weight), torch.from_numpy(bias)
    begin, offset, values = compressed(weight, size)
    X = laid_out(x)
    flat, out = X.reshape(len(X), -1), np.zeros_like(X)
    rows = lambda: rows_of_kernels(flat, begin, offset, values, bias, out, size, size)

    def moved() -> np.ndarray:
        rows_of_kernels(laid_out(x).reshape(len(X), -1), begin, offset, values, bias, out, size, size)
        return back(out)

    sparse = wt.reshape(channels, -1).to_sparse_csr()
    csr = lambda: sparse @ F.unfold(xt, 3, padding=1).permute(1, 0, 2).reshape(channels * 9, -1)
    with torch.no_grad():
        dense = lambda: F.conv2d(xt, wt, bt, padding=1)
        wanted = dense().numpy()
        difference = float(np.abs(moved() - wanted).max() / np.abs(wanted).max())
        ways = {"dense": dense, "rows": rows, "moved": moved, "csr": csr}
        found = {name: 1e3 * _seconds(f, repeats) for name, f in ways.items()}
    return found | {"difference": difference}


def run(quick: bool) -> harness.Report:
    import torch

    torch.set_num_threads(1)
    report = harness.Report()
    found = {name: measured(c, s, 5 if quick else 40) for name, (c, s) in LAYERS.items()}
    table = []
    for name, ms in found.items():
        ratio = ms["dense"] / ms["rows"]
        report.ratios[f"dense over rows, {name}"] = ratio
        report.check(f"the same values, {name}", ms["difference"] < 1e-5)
        if not quick:
            report.check(f"{FLOOR} times faster, {name}", ratio >= FLOOR)
        table.append([name, *(f"{ms[way]:.2f}" for way in ("dense", "rows", "moved", "csr")), f"{ratio:.2f}"])
    report.details |= {"milliseconds": found, "goal": GOAL, "batch": BATCH, "sparsity": SPARSITY}
    harness.print_table(["layer", "dense, ms", "rows", "moved", "csr", "dense / rows"], table)
    return report


if __name__ == "__main__":
    harness.main("sparse_convolution", run)
