"""Time and memory against size: `python -m benchmarks.growth [--quick] --json FILE`. One thread, CPU seconds.

Each function runs at sizes that double. A slope is that of the least-squares line through the logarithms of the three
largest; it is held against the exponent of the operation count. Memory is the peak of the process above what it held
before the call, the inputs apart, so that a function of a sparse matrix that makes a dense one of it shows.

    slope       of the time, at most the exponent and .3
    memory      of the peak, at most its exponent and .3, once the peak is above 32 MiB
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks import harness

ROOM = 0.3
LEAST_MIB = 32.0
CAP_SECONDS = 8.0  # no larger size after a call that took as long


@dataclass(frozen=True)
class Growth:
    """A function of one size.

    Attributes:
        name: function and size.
        exponent, memory: of the operation count and of the peak of memory.
        sizes: that double.
        make: from a size what is called.
    """

    name: str
    exponent: float
    memory: float
    sizes: tuple[int, ...]
    make: Callable[[int], Callable[[], object]]


def doubling(first: int, count: int) -> tuple[int, ...]:
    return tuple(first * 2**k for k in range(count))


def contraction(n: int, kappa: float = 0.9) -> torch.Tensor:
    A = torch.from_numpy(np.random.default_rng(n).normal(size=(n, n)))
    return A * (kappa / A.abs().sum(1, keepdim=True))


def scattered(n: int, each: int = 8) -> sp.csr_array:
    rng = np.random.default_rng(n)
    entries = rng.normal(size=n * each) * 0.9 / each / 3
    places = rng.integers(0, n, n * each)
    return sp.csr_array((entries, (np.repeat(np.arange(n), each), places)), shape=(n, n))


def sparse_tensor(M: sp.csr_array) -> torch.Tensor:
    parts = (torch.from_numpy(v) for v in (M.indptr, M.indices, M.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR tensors a beta
        return torch.sparse_csr_tensor(*parts, size=M.shape, check_invariants=True)


def equilibria() -> Iterator[Growth]:
    from implicit_models import ImplicitModel, ImplicitRNN, solve_equilibrium
    from implicit_models.projection import project_rows
    from implicit_models.wellposed import certificate

    def solve(n: int, N: int, sparse: bool = False) -> Callable[[], object]:
        A: Any = sparse_tensor(sp.csr_array(scattered(n))) if sparse else contraction(n)
        b = torch.from_numpy(np.random.default_rng(1).normal(size=(N, n)))
        return lambda: solve_equilibrium(A, b, "relu", on_failure="ignore")

    def training(n: int) -> Callable[[], object]:
        model = ImplicitModel(8, 4, n, dtype=torch.float64, seed=0)
        u = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        return lambda: model(u).square().sum().backward()

    def sequence(T: int) -> Callable[[], object]:
        model = ImplicitRNN(2, 1, 16, seed=0)
        u = torch.randn(32, T, 2, generator=torch.Generator().manual_seed(0))
        return lambda: model(u)

    yield Growth("solve_equilibrium, n (64 samples)", 2, 2, doubling(128, 4), lambda n: solve(n, 64))
    yield Growth("solve_equilibrium, samples (n = 64)", 1, 1, doubling(1024, 5), lambda N: solve(64, N))
    yield Growth("solve_equilibrium, n, sparse A", 1, 1, doubling(4096, 4), lambda n: solve(n, 16, sparse=True))
    yield Growth("forward and backward, n (64 samples)", 2, 2, doubling(128, 4), training)
    yield Growth("ImplicitRNN, length", 1, 1, doubling(64, 4), sequence)
    yield Growth("project_rows, n", 2, 2, doubling(256, 4), lambda n: lambda: project_rows(3 * contraction(n), 0.9))
    yield Growth("certificate, n", 2, 2, doubling(256, 4), lambda n: lambda: certificate(contraction(n)))
    yield Growth("certificate, n, sparse A", 1, 1, doubling(512, 5), lambda n: lambda: certificate(scattered(n)))


def networks() -> Iterator[Growth]:
    from torch import nn

    from implicit_models.compose import from_network
    from implicit_models.robustness import bounds, sensitivity_matrix
    from implicit_models.robustness.problem import problem

    def dense(n: int) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 4)).double()

    def feedback(n: int) -> Any:
        from implicit_models import ImplicitModel

        return problem(ImplicitModel(16, 4, n, dtype=torch.float64, seed=0))

    def bounded(task: Any, N: int, method: str) -> Callable[[], object]:
        u = np.random.default_rng(0).normal(size=(N, 16))
        return lambda: bounds(task, u, 0.01, method=method, sides="both")

    def sensitivity(n: int) -> Callable[[], object]:
        task = feedback(n)
        return lambda: sensitivity_matrix(task)

    yield Growth("from_network, width", 2, 2, doubling(256, 4), lambda n: lambda: from_network(dense(n), 16))
    for method in ("interval", "dual"):
        task = problem(from_network(dense(64), 16))
        yield Growth(
            f"bounds, {method}, samples, layered", 1, 1, doubling(64, 5), lambda N, t=task, m=method: bounded(t, N, m)
        )
    task = feedback(64)
    yield Growth("bounds, interval, samples, feedback", 1, 1, doubling(64, 5), lambda N: bounded(task, N, "interval"))
    yield Growth(
        "bounds, dual, n, feedback (4 samples)", 3, 2, doubling(64, 4), lambda n: bounded(feedback(n), 4, "dual")
    )
    yield Growth("sensitivity_matrix, n, feedback", 3, 2, doubling(128, 4), sensitivity)


def rows() -> Iterator[Growth]:
    from torch import nn

    from implicit_models.sim import Gram, States, fit_sim, path_rows, solve_rows, states

    def problem_of(d: int) -> tuple[Any, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(d)
        M = rng.normal(size=(200, d))
        Z = M[:, :8] @ rng.normal(size=(8, 4)) + 0.1 * rng.normal(size=(200, 4))
        return Gram(M.T @ M), Z.T @ M, (Z * Z).sum(0)

    def solved(d: int) -> Callable[[], object]:
        G, C, zz = problem_of(d)
        return lambda: solve_rows(G, C, zz, kappa=0.5)

    def path(d: int) -> Callable[[], object]:
        G, C, zz = problem_of(d)
        return lambda: path_rows(G, C, zz, kappas=np.linspace(0.1, 0.5, 5))

    def found(m: int) -> States:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)).double()
        return states(network, torch.randn(m, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))

    def fitted(m: int) -> Callable[[], object]:
        known = found(m)
        return lambda: fit_sim(known, on_failure="ignore")

    yield Growth("solve_rows, columns (a Gram)", 2, 2, doubling(250, 4), solved)
    yield Growth("path_rows, columns", 2, 2, doubling(250, 4), path)
    yield Growth("fit_sim, images", 1, 1, doubling(2000, 4), fitted)


def data() -> Iterator[Growth]:
    from data_gen.earthquakes import make_samples, mesh
    from data_gen.synthetic.rolling import rolling_average
    from implicit_models.seismology.event_data import Arrivals
    from implicit_models.seismology.geiger.events import locate_events

    def located(n: int) -> Callable[[], object]:
        rng = np.random.default_rng(0)
        lat, lon = mesh(seed=0)
        k = rng.integers(0, lat.size, n)
        found = make_samples(lat[k], lon[k], rng.integers(0, 600, n).astype(float), 5, max_dist_deg=20.0, seed=0)
        arrivals = Arrivals(found.station_lat, found.station_lon, found.arrival_s, 0.5)
        return lambda: locate_events(arrivals)

    yield Growth("locate_events, events", 1, 1, doubling(100, 4), located)
    yield Growth("rolling_average, sequences", 1, 1, doubling(2000, 4), lambda n: lambda: rolling_average(n, seed=0))


def peak_mib(function: Callable[[], object]) -> float:
    """Peak of the process during a call above its size before it; NaN where the system does not tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts anew
        before = _status("VmRSS")
        function()
        return (_status("VmHWM") - before) / 1024
    except OSError:
        function()
        return float("nan")


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(field)))


def slope(sizes: list[int], values: list[float]) -> float:
    """Of the line through the logarithms of the last three; NaN, which passes no check, with fewer than two sizes."""
    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[-3:]), np.log(np.maximum(values[-3:], 1e-9)), 1)[0])


def measured(case: Growth, repeats: int, count: int) -> tuple[list[int], list[float], list[float]]:
    sizes, seconds, peaks = [], [], []
    for size in case.sizes[:count]:
        function = case.make(size)
        peaks.append(peak_mib(function))  # compiles, too
        seconds.append(min(harness.seconds_of(function, clock=time.process_time) for _ in range(repeats)))
        sizes.append(size)
        if seconds[-1] > CAP_SECONDS:
            break
    return sizes, seconds, peaks


def run(quick: bool) -> harness.Report:
    report = harness.Report()
    table: list[list[object]] = []
    for cases in (equilibria, networks, rows, data):
        for case in cases():
            sizes, seconds, peaks = measured(case, 1 if quick else 3, 3 if quick else len(case.sizes))
            time_slope, memory_slope = slope(sizes, seconds), slope(sizes, peaks)
            table.append([case.name, f"{sizes[0]} to {sizes[-1]}", seconds[-1], time_slope, case.exponent, peaks[-1]])
            report.check(f"{case.name}: time grows no faster than its operations", time_slope <= case.exponent + ROOM)
            if peaks[-1] > LEAST_MIB:
                report.check(f"{case.name}: memory", memory_slope <= case.memory + ROOM)
            print(*(f"{v:.3g}" if isinstance(v, float) else v for v in table[-1]), sep="  ", flush=True)
    harness.print_table(["function, size", "sizes", "CPU s", "slope", "theory", "peak MiB"], table)
    report.details["growth"] = table
    return report


if __name__ == "__main__":
    harness.main("growth", run)
