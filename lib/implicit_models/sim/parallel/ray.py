"""Chunks as Ray tasks: the arrays in the object store once, results as they come, a lost worker's chunk retried."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from implicit_models.sim.parallel.chunk_store import Chunk, Result
from implicit_models.sim.parallel.report import RunReport, Solver, WorkerLost

RETRIES = 3
WINDOW = 4  # tasks in flight per worker: enough to keep each busy, few enough to hand them out as they become free


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ImportError("backend='ray' needs Ray: pip install 'implicit-models[ray]'") from None
    return ray


def writable_alias(a: np.ndarray) -> np.ndarray:
    """The same memory without NumPy's read-only mark.

    Arrays of the object store are read-only, another type to the compiled kernels, which would be compiled once more in
    every worker; the solvers do not write to their inputs.
    """
    if a.flags.writeable or not a.size:
        return a
    memory = (ctypes.c_char * a.nbytes).from_address(a.ctypes.data)  # type: Any
    alias = np.frombuffer(memory, a.dtype).reshape(a.shape)
    memory.owner = a  # the alias holds `memory`, which holds the array
    return alias


def _remote_solve(solver: Solver, chunk: Chunk, names: list[str], *values: np.ndarray) -> Result:
    return solver({name: writable_alias(a) for name, a in zip(names, values, strict=True)}, chunk)


def _ready(warm_up: Callable[[], None] | None) -> int:
    if warm_up is not None:
        warm_up()
    return os.getpid()


def start(workers: int | None = None, address: str | None = None) -> Any:
    """Ray, joined or started: an initialised one is used, else the cluster of `address` or RAY_ADDRESS, else this
    machine.

    Args:
        workers: cores of a local Ray; all if None.

    Raises:
        ImportError: naming the extra.
        ConnectionError: of Ray if no cluster answers at the address.
    """
    ray = _ray()
    if not ray.is_initialized():
        quiet = {"include_dashboard": False, "log_to_driver": False}
        if address is not None or os.environ.get("RAY_ADDRESS"):
            ray.init(address=address, log_to_driver=False)
        else:
            ray.init(num_cpus=workers, **quiet)
    return ray


def run_ray(
    solver: Solver,
    todo: list[Chunk],
    arrays: dict[str, np.ndarray],
    report: RunReport,
    workers: int | None,
    address: str | None,
    warm_up: Callable[[], None] | None = None,
) -> Generator[tuple[Chunk, Result], None, None]:
    """Results as they come; at most `WINDOW` chunks per worker are in flight.

    Raises:
        WorkerLost: naming the chunk whose workers died more often than it is retried.
    """
    begin = time.perf_counter()
    ray = start(workers, address)
    report.workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    run = ray.remote(max_retries=RETRIES)(_remote_solve)
    references = [ray.put(solver), *(ray.put(a) for a in arrays.values())]
    report.bytes_shared = sum(a.nbytes for a in arrays.values())
    ray.get([ray.remote(_ready).remote(warm_up) for _ in range(report.workers)])
    report.start_s = time.perf_counter() - begin
    waiting, running = list(reversed(todo)), {}  # type: list[Chunk], dict[Any, Chunk]
    try:
        while waiting or running:
            while waiting and len(running) < WINDOW * report.workers:
                chunk = waiting.pop()
                running[run.remote(references[0], chunk, list(arrays), *references[1:])] = chunk
            done, _ = ray.wait(list(running), num_returns=1)
            chunk = running.pop(done[0])
            try:
                result = ray.get(done[0])
            except (
                ray.exceptions.WorkerCrashedError,
                ray.exceptions.OutOfMemoryError,
                ray.exceptions.NodeDiedError,
            ) as e:
                raise WorkerLost(
                    f"Ray lost the worker of rows {chunk[0]} to {chunk[1] - 1} more than {RETRIES} times: {e}"
                ) from e
            report.bytes_returned += sum(a.nbytes for a in result.values())
            yield chunk, {name: np.array(a) for name, a in result.items()}
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
    report.work_s = time.perf_counter() - begin - report.start_s
