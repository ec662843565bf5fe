"""The sensitivity matrix of a large sparse model by the adjoint, against the published iteration of n x p numbers.

    python -m benchmarks.parts.robustness_sensitivity [--quick] [--json FILE]

A cyclic model of 20,000 states, ten entries a row of A and five of B, p = 784, q = 10. Both sides run in a process of
their own, so that the peak of its memory is theirs; both matrices are compared entry by entry, and ours with its own
proved bound. The published iteration stops when no entry of X changes by more than 1e-13 of the largest. A torch
network of 188,416 states (the shape of ResNet-20 on 32 x 32 images) has no matrix to compare with at this size: its
rows are checked to bound the network's deviations.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks import harness

N, P, Q, IN_A_ROW, IN_B_ROW, RADIUS = 20_000, 784, 10, 10, 5, 0.9
FLOOR_SECONDS, FLOOR_MB, GOAL_SECONDS = 5.0, 500.0, 2.0
AGREE = 1e-8


def model(n: int):
    """A problem of n states, lambda_PF = 0.9, random graph: a factorisation of it fills in."""
    import scipy.sparse as sp

    from implicit_models.robustness.problem import from_matrices

    rng = np.random.default_rng(0)

    def draw(columns: int, count: int) -> sp.csr_array:
        entries = (np.repeat(np.arange(n), count), rng.integers(0, columns, n * count))
        return sp.csr_array((rng.standard_normal(n * count), entries), (n, columns))

    A, B, C = draw(n, IN_A_ROW), draw(P, IN_B_ROW), rng.standard_normal((Q, n))
    v = np.ones(n)
    for _ in range(60):
        w = abs(A) @ v
        v = w / w.max()
    return from_matrices(A * (RADIUS / w.max()), B, C)


def published(task) -> tuple[np.ndarray, int]:
    """S = |C| X + |D| with X <- |A| X + |B|, and the number of steps."""
    A, B = abs(task.A).tocsr(), abs(task.B).toarray()
    X, steps = B, 0
    while True:
        new = A @ X
        new += B
        steps += 1
        change = np.abs(new - X).max()
        X = new
        if change <= 1e-13 * X.max():
            return np.abs(task.C) @ X + np.abs(task.D), steps


def child(side: str, n: int) -> None:
    """Entry of the subprocess: seconds, peak memory and the matrix, as JSON."""
    from implicit_models.robustness.sensitivity import sensitivity_matrix

    task = model(n)
    sensitivity_matrix(model(200))  # imports
    start = time.process_time()
    if side == "ours":
        S, _, method, residual, _ = sensitivity_matrix(task)
        found = {"method": method, "residual": residual}
    else:
        S, steps = published(task)
        found = {"steps": steps}
    found["seconds"] = time.process_time() - start
    found["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    found["S"] = np.asarray(S).tolist()
    print(json.dumps(found))


def _run(side: str, n: int) -> dict:
    code = f"from benchmarks.parts.robustness_sensitivity import child; child({side!r}, {n})"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if run.returncode:
        raise RuntimeError(f"the {side} side failed: {run.stderr[-500:]}")
    found = json.loads(run.stdout)
    found["S"] = np.array(found["S"])
    return found


def resnet():
    """A residual network with 188,416 activations on 3 x 32 x 32 inputs, random weights, evaluation mode."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, into: int, out: int, stride: int):
            super().__init__()
            self.first, self.second = (
                nn.Conv2d(into, out, 3, stride, 1, bias=False),
                nn.Conv2d(out, out, 3, 1, 1, bias=False),
            )
            self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
            self.more, self.stride = out - into, stride

        def forward(self, x):
            shortcut = F.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2)
            )
            return F.relu(self.norms[1](self.second(F.relu(self.norms[0](self.first(x))))) + shortcut)

    torch.manual_seed(0)
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks, *head).eval()


def measure(quick: bool) -> tuple[dict, dict, list[list[object]]]:
    """Ratios, checks and table rows: case, seconds, MB, agreement."""
    import torch

    from implicit_models.robustness.sensitivity import sensitivity_matrix

    n = 4000 if quick else N
    ours = [_run("ours", n) for _ in range(1 if quick else 3)]
    theirs = _run("published", n)
    S = ours[0]["S"]
    difference = float(np.abs(S - theirs["S"]).max() / theirs["S"].max())
    ratios = {
        "sensitivity_published_iteration": harness.ratio(
            [theirs["seconds"]] * len(ours), [run["seconds"] for run in ours]
        )
    }
    seconds, memory = max(run["seconds"] for run in ours), max(run["mb"] for run in ours)
    network = resnet()
    sensitivity_matrix(network, rows=[0], input_shape=(3, 32, 32))
    start = time.process_time()
    R = sensitivity_matrix(network, input_shape=(3, 32, 32)).S
    whole = time.process_time() - start
    g = torch.Generator().manual_seed(0)
    u, step = torch.rand(8, 3, 32, 32, generator=g), 0.05 * torch.randn(8, 3, 32, 32, generator=g)
    with torch.no_grad():
        moved = (network(u + step) - network(u)).abs().double().numpy()
    bounded = bool((moved <= step.abs().flatten(1).double().numpy() @ R.T * (1 + 1e-5) + 1e-5).all())
    checks = {
        f"sensitivity, n = {N:,} sparse cyclic: at most {FLOOR_SECONDS:g} s": seconds <= FLOOR_SECONDS,
        f"sensitivity, n = {N:,} sparse cyclic: at most {FLOOR_MB:g} MB": memory <= FLOOR_MB,
        "sensitivity: the published iteration gives the same to 1e-8": difference <= AGREE,
        "sensitivity: proved bound within 1e-8": all(run["residual"] <= AGREE for run in ours),
        "sensitivity: a network of 188,416 states stays inside its bound": bounded,
    }
    rows = [
        [
            f"adjoint, {ours[0]['method']}, n = {n:,} (goal {GOAL_SECONDS:g} s)",
            seconds,
            memory,
            f"bound {ours[0]['residual']:.1e}",
        ],
        [
            f"published iteration, {theirs['steps']} steps",
            theirs["seconds"],
            theirs["mb"],
            f"difference {difference:.1e}",
        ],
        [
            "torch network, 188,416 states, 10 x 3,072",
            whole,
            "",
            "deviations inside" if bounded else "deviations OUTSIDE",
        ],
    ]
    return ratios, checks, rows


HEADER = ["sensitivity matrix", "CPU s", "peak MB", "agreement"]


def run(quick: bool) -> harness.Report:
    ratios, checks, rows = measure(quick)
    harness.print_table(HEADER, rows)
    return harness.Report(ratios, checks, {"floor_seconds": FLOOR_SECONDS, "goal_seconds": GOAL_SECONDS, "rows": rows})


if __name__ == "__main__":
    harness.main("parts.robustness_sensitivity", run)
