"""What every benchmark shares: the machine, interleaved timing, ratios, checks, a table and a JSON file.

A benchmark module defines `run(quick) -> Report` and ends with `harness.main("area", run)`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

THREADS = "OMP_NUM_THREADS"


@dataclass
class Report:
    """Outcome of one benchmark: ratios (larger is better for us), named checks, and anything else worth keeping."""

    ratios: dict[str, dict[str, float] | float] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)
    details: dict[str, object] = field(default_factory=dict)

    def check(self, name: str, passed: bool) -> None:
        self.checks[name] = bool(passed)


def machine() -> dict[str, object]:
    """CPU, cores and versions that a figure depends on."""
    import numba
    import numpy
    import torch

    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
    }


def seconds_of(
    function: Callable[[], object], least: float = 0.02, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds per call, over as many calls as `least` seconds hold."""
    start = clock()
    function()
    once = clock() - start
    calls = max(1, min(1000, math.ceil(least / max(once, 1e-9))))
    if calls == 1:
        return once
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    repeats: int,
    least: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of each function, one after the other in every repeat, so that a busy machine slows all alike.

    For work on one thread pass clock=time.process_time: CPU seconds do not count what other processes take.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds_of(function, least, clock))
    return times


def ratio(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """median, min and max of slow / fast, repeat by repeat."""
    values = [s / f for s, f in zip(slow, fast, strict=True)]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Right-aligned columns; numbers with three significant digits."""
    text = [[cell if isinstance(cell, str) else f"{cell:.3g}" for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *text]) for i in range(len(header))]
    for row in [list(header), *text]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def main(area: str, run: Callable[[bool], Report], *, threads: int | None = 1) -> None:
    """Command line of a benchmark; exits with 1 when a check fails.

    With `threads` the thread count of OpenMP and torch is fixed: OpenMP reads its variable when a library is loaded, so
    the process starts itself again if it is set differently.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{area}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats; the machinery, not the figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the result")
    arguments = parser.parse_args()
    if threads is not None:
        if os.environ.get(THREADS) != str(threads):
            os.environ[THREADS] = str(threads)
            os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{area}", *sys.argv[1:]])
        import torch

        torch.set_num_threads(threads)
    start = time.perf_counter()
    report = run(arguments.quick)
    result = {
        "area": area,
        "quick": arguments.quick,
        "machine": machine(),
        "seconds": time.perf_counter() - start,
        "ratios": report.ratios,
        "checks": report.checks,
        **report.details,
    }
    for name, passed in report.checks.items():
        print(f"{'pass' if passed else 'FAIL'}  {name}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(_rounded(result), indent=1) + "\n")
    sys.exit(0 if all(report.checks.values()) else 1)
