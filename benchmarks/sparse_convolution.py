"""Whether convolutions that skip their zeros beat dense ones: `python -m benchmarks.sparse_convolution [--quick] --json
FILE`.

The 3 x 3 layers of ResNet-20, and the network as a whole, at batch 64 on one thread, zeros at random places:

    dense     torch's convolution (oneDNN), which zeros do not speed up
    lines     `pruning.sparse_convolution`, 16 samples side by side, values in that layout before and after
    moved     the same with values brought into that layout and back
    csr       torch's product of a CSR matrix with the unfolded columns
    network   ResNet-20 as it is, and `compiled`, at several shares of zeros

CPU milliseconds of one call, the median of many. What is decided: lines at least 1.5 times as fast as dense on every
layer with nine of ten weights zero (the goal is 3), and so is the network. Weights and images are random: what zeros
save does not depend on what the network knows.
"""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks import harness

LAYERS = {"16 channels, 32 x 32": (16, 32), "32 channels, 16 x 16": (32, 16), "64 channels, 8 x 8": (64, 8)}
BATCH, SPARSITY, SPARSITIES = 64, 0.9, (0.5, 0.7, 0.8, 0.9, 0.95)
FLOOR, GOAL = 1.5, 3.0


def _milliseconds(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Of each way, in turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 2):
        for name, f in ways.items():
            begin = time.process_time()
            f()
            if turn >= 2:
                found[name].append(1e3 * (time.process_time() - begin))
    return {name: statistics.median(times) for name, times in found.items()}


def layer(channels: int, size: int, repeats: int) -> dict[str, float]:
    """Milliseconds of each way, and the largest difference of their values."""
    import torch
    from torch.nn import functional as F

    from implicit_models.sim.pruning.sparse_convolution import LANES, convolve_lines, kernel_rows

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    weight.reshape(-1)[rng.permutation(weight.size)[: round(SPARSITY * weight.size)]] = 0.0
    bias = rng.standard_normal(channels).astype(np.float32)
    x = torch.from_numpy(rng.standard_normal((BATCH, channels, size, size)).astype(np.float32))
    w, b = torch.from_numpy(weight), torch.from_numpy(bias)
    rows = kernel_rows(weight, bias, (size, size), 1, padding=(1, 1))

    def laid_out() -> list[torch.Tensor]:
        out = []
        for part in x.split(LANES):
            own = torch.zeros(channels, size + 2, size + 2, LANES)
            own[:, 1:-1, 1:-1] = part.permute(1, 2, 3, 0)
            out.append(own)
        return out

    inputs, outputs = laid_out(), [torch.zeros(channels, size + 2, (size + 2) * LANES) for _ in range(BATCH // LANES)]

    def lines(given: list[torch.Tensor] = inputs) -> None:
        for own, out in zip(given, outputs, strict=True):
            y = out.numpy()
            convolve_lines(own.view(-1).numpy(), rows, False, y, False, y, (size, size), 1)

    def moved() -> torch.Tensor:
        lines(laid_out())
        inside = [y.view(channels, size + 2, size + 2, LANES)[:, 1:-1, 1:-1] for y in outputs]
        return torch.cat([own.permute(3, 0, 1, 2) for own in inside])

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR tensors are in beta
        sparse = w.reshape(channels, -1).to_sparse_csr()
        dense = lambda: F.conv2d(x, w, b, padding=1)
        csr = lambda: sparse @ F.unfold(x, 3, padding=1).permute(1, 0, 2).reshape(channels * 9, -1)
        difference = float((moved() - dense()).abs().max() / dense().abs().max())
        return _milliseconds({"dense": dense, "lines": lines, "moved": moved, "csr": csr}, repeats) | {
            "difference": difference
        }


def network(repeats: int, shares: tuple[float, ...]) -> dict[str, dict[str, float]]:
    """Milliseconds of the network and of what skips its zeros, at each share of them."""
    import torch

    from implicit_models.sim.pruning.skipping import compiled
    from reproduction.models.resnet20 import ResNet20

    generator = torch.Generator().manual_seed(0)
    u, found = torch.rand(BATCH, 3, 32, 32, generator=generator), {}
    for share in shares:
        torch.manual_seed(0)
        own = ResNet20().eval().requires_grad_(False)
        for module in own.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.weight *= torch.rand(module.weight.shape, generator=generator) >= share
        model = compiled(own, (3, 32, 32))
        with torch.no_grad():
            wanted = own(u)
            difference = float((model(u) - wanted).abs().max() / wanted.abs().max())
            ways = {"dense": functools.partial(own, u), "compiled": functools.partial(model, u)}
            found[f"{share:g}"] = _milliseconds(ways, repeats)
        found[f"{share:g}"]["difference"] = difference
    return found


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    layers = {name: layer(c, s, 3 if quick else 40) for name, (c, s) in LAYERS.items()}
    whole = network(2 if quick else 20, (SPARSITY,) if quick else SPARSITIES)
    for name, ms in layers.items():
        report.ratios[f"dense over lines, {name}"] = ms["dense"] / ms["lines"]
        report.check(f"the same values, {name}", ms["difference"] < 1e-5)
        if not quick:
            report.check(f"{FLOOR} times faster, {name}", ms["dense"] / ms["lines"] >= FLOOR)
    for share, ms in whole.items():
        report.ratios[f"network over compiled, {share} zeros"] = ms["dense"] / ms["compiled"]
        report.check(f"the same outputs, {share} zeros", ms["difference"] < 1e-4)
    if not quick:
        ms = whole[f"{SPARSITY:g}"]
        report.check(f"{FLOOR} times faster, the network", ms["dense"] / ms["compiled"] >= FLOOR)
    report.details |= {"layers": layers, "network": whole, "goal": GOAL, "batch": BATCH, "sparsity": SPARSITY}
    ways = ("dense", "lines", "moved", "csr")
    table = [
        [name, *(f"{ms[way]:.2f}" for way in ways), f"{ms['dense'] / ms['lines']:.2f}"] for name, ms in layers.items()
    ]
    harness.print_table(["layer", "dense, ms", *ways[1:], "dense / lines"], table)
    rows = [
        [share, f"{ms['dense']:.1f}", f"{ms['compiled']:.1f}", f"{ms['dense'] / ms['compiled']:.2f}"]
        for share, ms in whole.items()
    ]
    harness.print_table(["zeros", "network, ms", "compiled", "ratio"], rows)
    return report


if __name__ == "__main__":
    harness.main("sparse_convolution", run)
