"""A share of the weights of a trained ResNet-20 on CIFAR-10, on unlabelled images: `python -m benchmarks.pruning
[--quick] --json FILE`.

    ours    `sparsify(network, images, Share(share))`, three draws of 2,000 training images; accuracy on 2,000 test
            images
    peers   `pruning_peers`, on the first draw: magnitudes (of the network, of each layer, with biases repaired), Wanda,
            SparseGPT, exact elimination by layer under three allocations with the layer's own outputs and with the
            network's values as targets, and the l1 path by layer
    steps   ours without one of its steps each, at a tenth of the weights; and with the mirror image of each image

Shares count the weights of all convolutions and of the head. CPU seconds are of one thread; memory is the peak of the
process. Finished cells are kept in the temporary folder under a digest of all sources, so that a run that was cut off
goes on. It needs the images and weights of IMPLICIT_DATA (or their official homes).
"""

from __future__ import annotations

import hashlib
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.scale import accuracy, in_a_process, network_and_images

SHARES = (0.3, 0.2, 0.1, 0.05)
FLOORS = {0.3: 90.8, 0.2: 89.7, 0.1: 85.0, 0.05: 73.0}
GOALS = {0.3: 91.1, 0.2: 90.4, 0.1: 87.0, 0.05: 79.0}
SECONDS, MEMORY = (240.0, 60.0), (4.0, 2.0)  # floor and goal; GB
IMAGES, DRAWS = 2000, 3
STEPS: dict[str, dict[str, Any]] = {
    "without effects": {"effects": False, "rounds": 0},
    "effects of the network alone": {"rounds": 0},
    "without exchanges": {"exchanges": 0},
    "plain least squares": {"closed": 1.0},
    "with mirror images": {},
}


def ours(m: int, draw: int, shares: Sequence[float], step: str = "") -> dict[str, dict[str, Any]]:
    """Accuracy, CPU seconds, memory, bytes and what is proved of the sparse network at each share.

    Seconds are those of one share alone: what several have in common counts for each.
    """
    import torch

    from implicit_models.sim import Share, SharedKernels, sparsify_path
    from implicit_models.sim.solvers.best_subset.backward import backward_elimination
    from implicit_models.sim.solvers.best_subset.exchange import exchange

    torch.set_num_threads(1)
    backward_elimination(np.eye(3), np.ones((1, 3)))  # loads the compiled kernels
    exchange(np.eye(3), np.ones((1, 3)), np.array([[True, True, False]]))
    network, u, v, y = network_and_images(m, draw)
    rows = SharedKernels()
    if step:
        rows = replace(rows, supports=replace(rows.supports, **STEPS[step]))
    if step == "with mirror images":
        u = torch.cat([u, u.flip(3)])
    models = sparsify_path(network, u, [Share(share) for share in shares], rows, held_out=v)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform != "darwin" else 2**30)
    return {f"{share:g}": _measured(model, network, v, y) | {"memory": memory} for share, model in zip(shares, models)}


def _measured(model, network, v, y) -> dict[str, Any]:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        small, whole = Path(folder) / "small.npz", Path(folder) / "whole.pt"
        model.save(small)
        torch.save(network.state_dict(), whole)
        size = small.stat().st_size / whole.stat().st_size
    return {
        "accuracy": 100 * accuracy(model, v, y),
        "share": sum(int((w != 0).sum()) for w in _weights(model.dense())) / sum(w.numel() for w in _weights(network)),
        "seconds": sum(model.report.seconds.values()),
        "parts": dict(model.report.seconds),
        "bytes": size,
        "error": model.report.held_out,
        "layers": {layer.name: layer.share for layer in model.report.layers},
        "proved": sum(c.lost * c.proved for c in model.report.layers) / sum(c.lost for c in model.report.layers),
        "slope": max(float(c.slope.max()) for c in model.report.layers),
    }


def _weights(network):
    return [p for p in network.parameters() if p.ndim > 1]


def peers() -> dict[str, Callable[..., dict]]:
    """name -> (plan, images, share) -> steps."""
    from benchmarks.parts import pruning_peers as other

    masks = {
        "network": lambda p, s: other.magnitude_masks(p, s, False),
        "layer": lambda p, s: other.magnitude_masks(p, s, True),
    }
    found: dict[str, Callable[..., dict]] = {}
    for name, of in masks.items():
        found[f"magnitude, {name}"] = lambda p, u, s, of=of: other.masked(p, of(p, s))
        found[f"magnitude, {name}, biases repaired"] = lambda p, u, s, of=of: other.repaired(p, u, of(p, s))
        found[f"magnitude, {name}, batch norm anew"] = lambda p, u, s, of=of: other.measured_anew(p, u, of(p, s))
    found["Wanda"] = lambda p, u, s: other.wanda(p, u, other.uniform(p, s))
    found["SparseGPT"] = lambda p, u, s: other.sparse_gpt(p, u, other.uniform(p, s))
    found["l1 path by layer"] = lambda p, u, s: other.net_trim(p, u, s)
    allocations = {"uniform": other.uniform, "Erdos-Renyi": other.erdos_renyi, "magnitude": other.by_magnitude}
    for targets in ("own", "teacher"):
        for name, of in allocations.items():
            found[f"exact, {name}, {targets}"] = lambda p, u, s, of=of, t=targets: other.exact(p, u, of(p, s), t)
    return found


def peer(m: int, draw: int, share: float, name: str) -> dict[str, Any]:
    """Accuracy and CPU seconds of one peer."""
    import torch

    from implicit_models.sim.pruning.layers import plan
    from implicit_models.tracing.reading import read

    torch.set_num_threads(1)
    network, u, v, y = network_and_images(m, draw)
    planned = plan(read(network, tuple(u.shape[1:])))
    begin = time.process_time()
    new = peers()[name](planned, u, share)
    seconds = time.process_time() - begin
    steps, output = planned.with_kernels(new), planned.graph.output

    def model(x):
        values = {steps[0].name: x}
        for step in steps[1:]:
            values[step.name] = step.run(*(values[i] for i in step.inputs))
        return values[output]

    left = sum(int((step.weight != 0).sum()) for step in new.values())
    return {"accuracy": 100 * accuracy(model, v, y), "share": left / planned.weights, "seconds": seconds}


def _digest() -> str:
    """Of the sources that a cell depends on."""
    root = Path(__file__).parent.parent
    found = hashlib.sha256()
    for folder in ("sim/pruning", "sim/solvers/best_subset", "tracing"):
        for path in sorted((root / "lib" / "implicit_models" / folder).glob("*.py")):
            found.update(path.read_bytes())
    for name in ("pruning.py", "parts/pruning_peers.py"):
        found.update((root / "benchmarks" / name).read_bytes())
    return found.hexdigest()[:16]


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    m, draws, shares = (100, 1, (0.1,)) if quick else (IMAGES, DRAWS, SHARES)
    folder = Path(tempfile.gettempdir()) / f"implicit-models-pruning-{_digest()}"
    folder.mkdir(exist_ok=True)

    def cell(function: str, *arguments: Any) -> dict[str, Any]:
        path = folder / f"{hashlib.sha256(repr((function, arguments)).encode()).hexdigest()[:16]}.json"
        if not path.exists():
            found = in_a_process("pruning", function, *arguments)
            path.write_text(json.dumps(found))
            accuracies = {"": found} if "accuracy" in found else found
            line = ", ".join(f"{share} {c['accuracy']:.2f} %".strip() for share, c in accuracies.items())
            print(function, *arguments, line, flush=True)
        return json.loads(path.read_text())

    cell("ours", m, 0, shares)
    for share in sorted(shares, key=lambda share: abs(share - 0.1)):  # what is read first, first
        for name in peers():
            cell("peer", m, 0, share, name)
    each = [cell("ours", m, draw, shares) for draw in range(draws)]
    cells = {share: [found[f"{share:g}"] for found in each] for share in shares}
    steps = {name: cell("ours", m, 0, (0.1,), name)["0.1"] for name in STEPS}
    others = {name: {share: cell("peer", m, 0, share, name) for share in shares} for name in peers()}
    table: list[list[object]] = []
    for share in shares:
        found = cells[share]
        values = [c["accuracy"] for c in found]
        strongest = max(others, key=lambda name: others[name][share]["accuracy"])
        best = others[strongest][share]["accuracy"]
        report.ratios[f"accuracy at {share:g}"] = _spread(values)
        report.ratios[f"points above the strongest peer at {share:g}"] = _spread([v - best for v in values])
        if not quick:
            report.check(f"accuracy at {share:g} >= {FLOORS[share]}", statistics.median(values) >= FLOORS[share])
            report.check(f"above every peer at {share:g}", min(values) > best)
        goal = f"{FLOORS[share]} / {GOALS[share]}"
        table.append([f"{share:g}", f"{statistics.median(values):.2f}", f"{best:.2f} ({strongest})", goal])
        report.check(f"no more than {share:g} of the weights", all(c["share"] <= share + 1e-4 for c in found))
        report.check(f"rows at their minimum at {share:g}", all(c["slope"] <= 1e-6 for c in found))
    every = [c for found in cells.values() for c in found]
    if not quick:
        report.check(f"{SECONDS[0]:g} CPU seconds", statistics.median(c["seconds"] for c in every) <= SECONDS[0])
        report.check(f"{MEMORY[0]:g} GB", max(c["memory"] for c in every) <= MEMORY[0])
    report.details |= {
        "images": m,
        "goals": {f"{share:g}": GOALS[share] for share in shares},
        "ours": {f"{share:g}": found for share, found in cells.items()},
        "peers": {name: {f"{share:g}": c for share, c in found.items()} for name, found in others.items()},
        "steps at 0.1": steps,
        "CPU seconds": _spread([c["seconds"] for c in every]),
        "memory, GB": _spread([c["memory"] for c in every]),
        "bytes over the dense file": {f"{share:g}": found[0]["bytes"] for share, found in cells.items()},
    }
    harness.print_table(["share", "ours, %", "strongest peer, %", "floor / goal"], table)
    rows = [[name, *(f"{found[share]['accuracy']:.2f}" for share in shares)] for name, found in others.items()]
    harness.print_table(["peer", *(f"{share:g}" for share in shares)], rows)
    harness.print_table(["step", "at 0.1"], [[name, f"{c['accuracy']:.2f}"] for name, c in steps.items()])
    return report


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": float(np.min(values)), "max": float(np.max(values))}


if __name__ == "__main__":
    harness.main("pruning", run)
