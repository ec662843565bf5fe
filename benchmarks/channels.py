"""A share of the multiplications of a trained ResNet-20 on CIFAR-10, by whole channels, on unlabelled images:
`python -m benchmarks.channels [--quick] --json FILE`.

    ours    `prune(network, images, Channels(share))`, three draws of 2,000 training images; accuracy on 2,000 test
            images, and how much sooner the smaller module is done than the network, batch 64, one thread
    peers   at no more multiplications, on the first draw: channels of the least L1 norm of their filters (Li et al.
            2017), batch norm measured anew on the same images, with the same share of every set of channels and with
            the numbers of channels that ours has left
    steps   ours without one of its steps each, at half of the multiplications; and two of every four weights

Finished cells are kept in the temporary folder under a digest of all sources, so that a run that was cut off goes on;
each prints its line when it is done. It needs the images and weights of IMPLICIT_DATA (or their official homes).
"""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.scale import accuracy, in_a_process, network_and_images

SHARES = (0.7, 0.5)  # of the multiplications that are left
LOST = {0.7: (3.0, 1.5), 0.5: (7.0, 4.0)}  # points at most, floor and goal
FASTER = {0.7: (1.2, 1.35), 0.5: (1.5, 1.8)}
IMAGES, DRAWS, BATCH = 2000, 3, 64
STEPS: dict[str, dict[str, Any]] = {
    "without effects": {"effects": False, "rounds": 0},
    "effects of the network alone": {"rounds": 0},
    "plain least squares": {"closed": 1.0},
}
PEERS = ("same share of all", "our numbers of channels")


def ours(m: int, draw: int, share: float, step: str = "", rounds: int | None = None) -> dict[str, Any]:
    """Accuracy, seconds, speed and sizes of the smaller network."""
    import torch

    from implicit_models.sim import Channels, OptimalBrainSurgeon, prune

    torch.set_num_threads(1)
    network, u, v, y = network_and_images(m, draw)
    supports = replace(OptimalBrainSurgeon(), **STEPS.get(step, {}))
    supports = supports if rounds is None else replace(supports, rounds=rounds)
    small = prune(network, u, Channels(share), supports, held_out=v)
    module = small.dense()
    ms = milliseconds([network, module], v[:BATCH])
    return {
        "accuracy": 100 * accuracy(module, v, y),
        "network": 100 * accuracy(network, v, y),
        "share": small.report.share,
        "weights": small.report.weights[0] / small.report.weights[1],
        "seconds": sum(small.report.seconds.values()),
        "parts": dict(small.report.seconds),
        "ms": ms,
        "faster": ms[0] / ms[1],
        "rows": {layer.name: layer.rows[0] for layer in small.report.layers},
        "slope": max(layer.slope for layer in small.report.layers),
    }


def pattern(m: int, draw: int) -> dict[str, Any]:
    """Accuracy of two of every four weights."""
    import torch

    from implicit_models.sim import TwoOfFour, prune

    torch.set_num_threads(1)
    network, u, v, y = network_and_images(m, draw)
    begin = time.process_time()
    sparse = prune(network, u, TwoOfFour())
    seconds = time.process_time() - begin
    return {"accuracy": 100 * accuracy(sparse, v, y), "share": sparse.report.share, "seconds": seconds}


def peer(m: int, draw: int, share: float, name: str, rows: dict[str, int]) -> dict[str, Any]:
    """Accuracy of channels chosen by the L1 norms of their filters, batch norm measured anew."""
    import torch

    from implicit_models.sim.pruning.channels.allocation import costs_of
    from implicit_models.sim.pruning.channels.cut import cut
    from implicit_models.sim.pruning.channels.network import TRIED, cuttable
    from implicit_models.sim.pruning.layers import plan
    from implicit_models.tracing.reading import read

    torch.set_num_threads(1)
    network, u, v, y = network_and_images(m, draw)
    planned = plan(read(network, tuple(u.shape[1:])))
    labels = cuttable(planned, u[:TRIED])
    costs, spaces = costs_of(planned, labels.spaces), labels.spaces
    own = [np.abs(layer.kernels()).sum(1) for layer in planned.layers]
    norms = [sum(own[k][r].sum(1) for k, r in space.rows.items()) for space in spaces]
    if name == PEERS[1]:
        counts = [len(s) - (rows[planned.layers[k].name] // s.rows[k].shape[1]) for s in spaces for k in [min(s.rows)]]
    else:
        whole, left = costs.of(np.zeros(len(spaces), np.int64)), 1.0
        while costs.of(np.array([len(s) - round(left * len(s)) for s in spaces])) > share * whole:
            left -= 1e-3
        counts = [len(s) - round(left * len(s)) for s in spaces]
    gone = [np.argsort(norm)[:count] for norm, count in zip(norms, counts, strict=True)]
    removed = np.concatenate([s.labels[g] for s, g in zip(spaces, gone, strict=True)])
    new = {}
    for k, layer in enumerate(planned.layers):
        weight = layer.kernels().copy()
        for space, out in zip(spaces, gone, strict=True):
            if k in space.columns:
                weight[:, space.columns[k][out].ravel()] = 0.0
        bias = None if layer.node.bias is None else layer.node.bias.double().numpy()
        new[layer.node.name] = layer.with_kernels(weight, bias)
    module = cut(planned, labels, removed, new, u[:TRIED])
    begin = time.process_time()
    measure_anew(module, u)
    left_over = costs.of(np.array(counts)) / costs.of(np.zeros(len(spaces), np.int64))
    return {"accuracy": 100 * accuracy(module, v, y), "share": left_over, "seconds": time.process_time() - begin}


def measure_anew(module: Any, u: Any) -> None:
    """Means and variances of batch norm as they are on images, in place."""
    import torch
    from torch import nn

    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # plain averages over the batches
        norm.train()
    with torch.no_grad():
        for at in range(0, len(u), 100):
            module(u[at : at + 100])
    module.eval()


def milliseconds(modules: list[Any], x: Any, repeats: int = 15) -> list[float]:
    """CPU milliseconds of a forward pass of each, in turns, the median."""
    import torch

    modules = [copy.deepcopy(m).eval() for m in modules]
    found: list[list[float]] = [[] for _ in modules]
    with torch.no_grad():
        for turn in range(repeats + 2):
            for times, module in zip(found, modules, strict=True):
                begin = time.process_time()
                module(x)
                if turn >= 2:
                    times.append(1e3 * (time.process_time() - begin))
    return [statistics.median(times) for times in found]


def _digest() -> str:
    """Of the sources that a cell depends on."""
    root = Path(__file__).parent.parent
    found = hashlib.sha256()
    for folder in ("sim/pruning", "sim/pruning/channels", "sim/solvers/best_subset", "tracing"):
        for path in sorted((root / "lib" / "implicit_models" / folder).glob("*.py")):
            found.update(path.read_bytes())
    found.update((root / "benchmarks" / "channels.py").read_bytes())
    return found.hexdigest()[:16]


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    m, draws, shares = (100, 1, (0.5,)) if quick else (IMAGES, DRAWS, SHARES)
    rounds = 0 if quick else None
    folder = Path(tempfile.gettempdir()) / f"implicit-models-channels-{_digest()}"
    folder.mkdir(exist_ok=True)

    def cell(function: str, *arguments: Any) -> dict[str, Any]:
        path = folder / f"{hashlib.sha256(repr((function, arguments)).encode()).hexdigest()[:16]}.json"
        if not path.exists():
            path.write_text(json.dumps(in_a_process("channels", function, *arguments)))
        found = json.loads(path.read_text())
        named = [a for a in arguments if isinstance(a, (str, float)) and a != ""]
        print(f"{function} {named}: {found['accuracy']:.2f} % at {found['share']:.3f}", flush=True)
        return found

    cells = {share: [cell("ours", m, draw, share, "", rounds) for draw in range(draws)] for share in shares}
    others = {
        name: {share: cell("peer", m, 0, share, name, cells[share][0]["rows"]) for share in shares} for name in PEERS
    }
    steps = {name: cell("ours", m, 0, 0.5, name, None) for name in STEPS if not quick}
    two = cell("pattern", m, 0)
    table: list[list[object]] = []
    for share in shares:
        found = cells[share]
        lost = [c["network"] - c["accuracy"] for c in found]
        faster = [c["faster"] for c in found]
        best = max(others[name][share]["accuracy"] for name in PEERS)
        report.ratios[f"points lost at {share:g}"] = _spread(lost)
        report.ratios[f"times faster at {share:g}"] = _spread(faster)
        report.ratios[f"points above the strongest peer at {share:g}"] = _spread([c["accuracy"] - best for c in found])
        if not quick:
            report.check(
                f"at most {LOST[share][0]} points lost at {share:g}", statistics.median(lost) <= LOST[share][0]
            )
            report.check(f"{FASTER[share][0]} times faster at {share:g}", statistics.median(faster) >= FASTER[share][0])
            report.check(f"above every peer at {share:g}", min(c["accuracy"] for c in found) > best)
        report.check(f"no more than {share:g} of the multiplications", all(c["share"] <= share for c in found))
        report.check(f"rows at their minimum at {share:g}", all(c["slope"] <= 1e-6 for c in found))
        accuracies = statistics.median(c["accuracy"] for c in found)
        goal = f"{LOST[share]} points, {FASTER[share]} times"
        table.append([f"{share:g}", f"{accuracies:.2f}", f"{statistics.median(faster):.2f}", f"{best:.2f}", goal])
    report.details |= {
        "images": m,
        "ours": {f"{share:g}": found for share, found in cells.items()},
        "peers": {name: {f"{share:g}": c for share, c in found.items()} for name, found in others.items()},
        "steps at 0.5": steps,
        "two of four": two,
    }
    harness.print_table(["share", "ours, %", "times faster", "strongest peer, %", "floor, goal"], table)
    rows = [[name, *(f"{found[share]['accuracy']:.2f}" for share in shares)] for name, found in others.items()]
    harness.print_table(["peer", *(f"{share:g}" for share in shares)], rows)
    harness.print_table(["step", "at 0.5"], [[name, f"{c['accuracy']:.2f}"] for name, c in steps.items()])
    return report


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": float(np.min(values)), "max": float(np.max(values))}


if __name__ == "__main__":
    harness.main("channels", run)
