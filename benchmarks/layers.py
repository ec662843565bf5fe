"""Bounds of layered networks beside plain ones: `python -m benchmarks.layers [--quick] --json FILE`. One thread, CPU
seconds.

Networks are trained here on Fashion-MNIST: 784-256-256-10, 784 with eight layers of 100, against steps of the
gradient's sign, and a small convolutional one. The peers are CROWN and interval propagation in plain torch, single
precision, every unit of every layer in one batch: what a user would write, without the allowance for rounding that ours
have and that `check` proves.

    interval        time over interval propagation's
    margins         ours less CROWN's, of the true class against the others, least over samples and classes
    time            over CROWN's

Branch and bound over the units then decides labels at larger radii, where CROWN leaves most of them open; answers that
are safe go through `check_verification`.

With IMPLICIT_DATA, ACAS Xu's networks and properties of VNN-COMP, decided within 120 CPU seconds each.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import harness

INTERVAL_FLOOR, INTERVAL_GOAL = 2.0, 1.2
TIME_FLOOR, TIME_GOAL = 1.5, 0.8
MARGIN_ROOM = 1e-4
ACAS_SECONDS = 120.0
SPLIT_SECONDS = 20.0  # for a label


def dense(widths: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for a, b in zip(widths[:-1], widths[1:], strict=True):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1568, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def trained(network: nn.Sequential, U: Tensor, y: Tensor, eps: float, steps: int) -> nn.Sequential:
    """Adam on batches of 100, on inputs moved by a step of the gradient's sign where eps is positive."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(steps):
        k = torch.randint(0, len(U), (100,), generator=generator)
        u = U[k]
        if eps:
            u = u.clone().requires_grad_(True)
            (g,) = torch.autograd.grad(F.cross_entropy(network(u), y[k]), u)
            u = (u.detach() + eps * g.sign()).clamp(0, 1)
        optimizer.zero_grad()
        F.cross_entropy(network(u), y[k]).backward()
        optimizer.step()
    return network.eval()


class Plain:
    """Interval propagation and CROWN of a chain of linear maps and ReLUs, single precision."""

    def __init__(self, network: nn.Sequential) -> None:
        self.maps: list[Any] = [m for m in network if isinstance(m, (nn.Linear, nn.Conv2d))]
        self.shapes: list[tuple[int, ...]] = []
        u = torch.zeros(1, 784)
        for m in network:
            if isinstance(m, (nn.Linear, nn.Conv2d)):
                self.shapes.append(tuple(u.shape[1:]))
            u = m(u)

    def _forward(self, k: int, x: Tensor, absolute: bool = False) -> Tensor:
        m = self.maps[k]
        weight, bias = (m.weight.abs(), None) if absolute else (m.weight, m.bias)
        x = x.reshape(-1, *self.shapes[k])
        return F.linear(x, weight, bias) if isinstance(m, nn.Linear) else F.conv2d(x, weight, bias, m.stride, m.padding)

    def _back(self, k: int, A: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (rows, inputs) and what the constant adds, of coefficients (rows, *outputs)."""
        m = self.maps[k]
        if isinstance(m, nn.Linear):
            return A @ m.weight, A @ m.bias
        back = F.conv_transpose2d(A, m.weight, None, m.stride, m.padding)
        return back.reshape(len(A), -1), (A.sum((2, 3)) * m.bias).sum(1)

    def interval(self, U: Tensor, eps: float) -> list[tuple[Tensor, Tensor]]:
        middle, radius, found = U, torch.full_like(U, eps), []
        for k in range(len(self.maps)):
            middle, radius = self._forward(k, middle), self._forward(k, radius, absolute=True)
            low, high = middle - radius, middle + radius
            found.append((low, high))
            low, high = low.clamp_min(0), high.clamp_min(0)
            middle, radius = 0.5 * (low + high), 0.5 * (high - low)
        return found

    def crown(self, U: Tensor, eps: float, spec: Tensor) -> Tensor:
        """Lower bounds (N, rows) of the rows of spec."""
        known: list[tuple[Tensor, Tensor]] = []
        N = len(U)

        def least(k: int, C: Tensor) -> Tensor:
            m, A, total = C.shape[1], C.flatten(0, 1), 0.0
            for j in range(k, -1, -1):
                if isinstance(self.maps[j], nn.Conv2d):
                    A = A.reshape(len(A), *self._out(j))
                A, constant = self._back(j, A.reshape(len(A), -1) if isinstance(self.maps[j], nn.Linear) else A)
                total = total + constant
                if j:
                    l, h = (v.flatten(1).repeat_interleave(m, 0) for v in known[j - 1])
                    top = h.clamp_min(0) / (h.clamp_min(0) - l.clamp_max(0)).clamp_min(1e-12)
                    low = torch.where(h > -l, 1.0, 0.0)
                    low = torch.where(l >= 0, 1.0, torch.where(h <= 0, 0.0, low))
                    plus, minus = A.clamp_min(0), A.clamp_max(0)
                    total = total - (minus * top * l.clamp_max(0)).sum(1)
                    A = plus * low + minus * top
            u = U.repeat_interleave(m, 0)
            return (total + (A * u).sum(1) - eps * A.abs().sum(1)).reshape(N, m)

        for k in range(len(self.maps) - 1):
            n = int(np.prod(self._out(k)))
            rows = torch.eye(n).expand(N, n, n)
            known.append((least(k, rows), -least(k, -rows)))
        return least(len(self.maps) - 1, spec)

    def _out(self, k: int) -> tuple[int, ...]:
        return tuple(self._forward(k, torch.zeros(1, int(np.prod(self.shapes[k])))).shape[1:])


def by_splits(
    report: harness.Report, name: str, task: Any, u: np.ndarray, labels: np.ndarray, eps: float
) -> list[object]:
    """Labels that CROWN and branch and bound decide at one radius."""
    from implicit_models.robustness import bounds, check_verification, keeps_label, margins, verify_property

    crown = bounds(task, u, eps, sides="lower", spec=margins(labels, 10))
    answers, seconds, parts, proofs = [], [], [], []
    for point, label in zip(u, labels, strict=True):
        wanted = keeps_label(point - eps, point + eps, int(label), 10)
        start = time.process_time()
        found = verify_property(task, wanted, timeout=SPLIT_SECONDS)
        seconds.append(time.process_time() - start)
        answers.append(str(found.status))
        parts.append(found.nodes)
        if found.status == "safe":
            proofs.append(bool(check_verification(task, wanted, found)))
    report.check(f"{name}, {eps:g}: safe labels are proved by the checker", all(proofs))
    report.check(
        f"{name}, {eps:g}: no label that CROWN proves is left open",
        all(answer == "safe" for answer, low in zip(answers, crown.lb, strict=True) if (low > 0).all()),
    )
    counts = [answers.count(word) for word in ("safe", "unsafe", "unknown")]
    proved = int((crown.lb > 0).all(axis=1).sum())
    return [f"{name}, {eps:g}", proved, *counts, float(np.median(seconds)), max(seconds), max(parts)]


def side_by_side(report: harness.Report, quick: bool) -> tuple[list[list[object]], list[list[object]]]:
    from implicit_models.compose import from_network
    from implicit_models.robustness import bounds, check, margins
    from implicit_models.robustness.problem import problem
    from reproduction.classifiers import fashion

    data = fashion.data("quick" if quick else "full")
    U, y = (torch.as_tensor(np.asarray(v)) for v in (data.u_train, data.y_train))
    V, z = data.test[0]
    steps, repeats = (100, 2) if quick else (2000, 5)
    cases = {
        "784-256-256-10": (dense((784, 256, 256, 10)), 0.0, (0.004, 0.01), 20, 0.01),
        "784-8x100-10": (dense((784, *8 * (100,), 10)), 0.01, (0.005, 0.01), 20, 0.015),
        "convolutional": (convolutional(), 0.02, (0.004, 0.01), 2, 0.02),
    }
    rows: list[list[object]] = []
    decided: list[list[object]] = []
    for name, (network, moved, radii, count, wide) in cases.items():
        trained(network, U.float(), y.long(), moved, steps)
        plain, task = Plain(network), problem(from_network(network, 784, dtype=torch.float64))
        u, labels = np.asarray(V[:count], np.float64), np.asarray(z[:count])
        spec = margins(labels, 10)
        single, rows32 = torch.from_numpy(u).float(), torch.from_numpy(spec).float()
        for eps in radii:
            functions = {
                "ours": lambda eps=eps, task=task, u=u, spec=spec: bounds(task, u, eps, sides="lower", spec=spec),
                "crown": lambda eps=eps, plain=plain, v=single, spec=rows32: plain.crown(v, eps, spec),
                "interval": lambda eps=eps, task=task, u=u: bounds(task, u, eps, method="interval"),
                "propagation": lambda eps=eps, plain=plain, v=single: plain.interval(v, eps),
            }
            with torch.no_grad():
                times = harness.interleaved(functions, repeats, clock=time.process_time)
                ours, theirs = functions["ours"](), functions["crown"]().double().numpy()
            label = f"{name}, {eps:g}"
            report.ratios[f"crown_{label}"] = harness.ratio(times["crown"], times["ours"])
            report.ratios[f"interval_{label}"] = harness.ratio(times["propagation"], times["interval"])
            less = float((ours.lb - theirs).min())
            spent = float(np.median(times["ours"])) / float(np.median(times["crown"]))
            near = float(np.median(times["interval"])) / float(np.median(times["propagation"]))
            report.check(f"{label}: margins no less than CROWN's by {MARGIN_ROOM:g}", less >= -MARGIN_ROOM)
            report.check(f"{label}: at most {TIME_FLOOR:g} of CROWN's time", quick or spent <= TIME_FLOOR)
            report.check(
                f"{label}: at most {INTERVAL_FLOOR:g} of the propagation's time", quick or near <= INTERVAL_FLOOR
            )
            proved = bounds(task, u[:1], eps, sides="lower", spec=spec[:1])
            report.check(f"{label}: proved by the checker", proved.cert.stages is None or bool(check(proved.cert)))
            certified = [float((v > 0).all(axis=1).mean()) for v in (ours.lb, theirs)]
            ms = [1e3 * float(np.median(times[k])) / count for k in ("ours", "crown", "interval", "propagation")]
            rows.append([label, *certified, float(ours.lb.min(axis=1).mean()), less, *ms, spent, near])
        with torch.no_grad():
            said = network(torch.from_numpy(np.asarray(V[:100])).float()).argmax(1).numpy()
        some = np.flatnonzero(said == np.asarray(z[:100]))[: 2 if quick else 10]
        decided.append(by_splits(report, name, task, np.asarray(V[some], np.float64), np.asarray(z[some]), wide))
    return rows, decided


def acas(report: harness.Report, quick: bool) -> list[list[object]]:
    """Properties 1 to 4 on the networks at hand; nothing without them."""
    from implicit_models.compose import from_onnx
    from implicit_models.robustness import read_vnnlib, verify_property

    folder = Path(os.environ.get("IMPLICIT_DATA", "")) / "vnncomp"
    files = sorted(folder.glob("ACASXU*.onnx")) if os.environ.get("IMPLICIT_DATA") else []
    rows: list[list[object]] = []
    for number in () if not files else (3, 4) if quick else (1, 2, 3, 4):
        (wanted,) = read_vnnlib(folder / f"acas_prop_{number}.vnnlib")
        answers, seconds = [], []
        for file in files[: 2 if quick else None]:
            start = time.process_time()
            answers.append(str(verify_property(from_onnx(file), wanted, timeout=ACAS_SECONDS).status))
            seconds.append(time.process_time() - start)
        counts = [answers.count(word) for word in ("safe", "unsafe", "unknown")]
        rows.append([f"property {number}", *counts, float(np.median(seconds)), max(seconds)])
        share = 1 - counts[2] / len(answers)
        report.check(f"ACAS Xu, property {number}: decided", share >= (0.9 if number > 2 else 0.75))
    return rows


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    header = [
        "network, radius",
        "certified",
        "CROWN",
        "least margin",
        "less CROWN's",
        "ms",
        "CROWN",
        "interval",
        "plain",
    ]
    found, decided = side_by_side(report, quick)
    harness.print_table([*header, "time", "interval"], found)
    print()
    harness.print_table(
        ["splits of units", "CROWN", "safe", "unsafe", "unknown", "median CPU s", "largest", "parts"], decided
    )
    report.details |= {"side_by_side": found, "splits": decided}
    if answers := acas(report, quick):
        print()
        harness.print_table(["ACAS Xu", "safe", "unsafe", "unknown", "median CPU s", "largest"], answers)
        report.details["acas"] = answers
    return report


if __name__ == "__main__":
    harness.main("layers", run)
