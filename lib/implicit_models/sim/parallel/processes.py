"""Chunks in worker processes that read one copy of the arrays; a dead worker costs its chunk only."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import numpy as np

from implicit_models.sim.parallel.chunk_store import Chunk, Result
from implicit_models.sim.parallel.report import RunReport, Solver, WorkerLost

MOST_RESTARTS_WITHOUT_RESULT = 3
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_worker: dict[str, Any] = {}


def _begin(solver: Solver, warm_up: Callable[[], None] | None, folder: str, names: list[str], parent: int) -> None:
    """In the worker: the arrays as private maps of the shared pages, one BLAS thread, interrupts left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    try:
        from threadpoolctl import threadpool_limits

        _worker["limits"] = threadpool_limits(1)
    except ImportError:
        pass  # the variables below are set before a spawned worker loads its BLAS
    # copy-on-write: writable to the compiled kernels' type system, though nobody writes
    _worker["arrays"] = {name: np.asarray(np.load(f"{folder}/{name}.npy", mmap_mode="c")) for name in names}
    _worker["solver"] = solver
    if warm_up is not None:
        warm_up()


def _die_with(parent: int) -> None:
    """A worker whose parent was killed has nobody to work for, and would wait for ever (Linux)."""
    if sys.platform == "linux" and os.getppid() == parent:  # a fork server is nobody to die with
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _ready() -> int:
    return os.getpid()


def _solve(chunk: Chunk) -> Result:
    return _worker["solver"](_worker["arrays"], chunk)


def _shared_folder(n_bytes: int) -> str:
    """A temporary folder in memory where there is room for it, on disk otherwise: small containers have little
    /dev/shm."""
    room = Path("/dev/shm")
    in_memory = room.is_dir() and os.access(room, os.W_OK) and shutil.disk_usage(room).free > 1.2 * n_bytes + 2**20
    return tempfile.mkdtemp(prefix="rows-", dir=room if in_memory else None)


def run_processes(
    solver: Solver,
    todo: list[Chunk],
    arrays: dict[str, np.ndarray],
    report: RunReport,
    start_method: str | None,
    warm_up: Callable[[], None] | None = None,
) -> Generator[tuple[Chunk, Result], None, None]:
    """Results as they come.

    Raises:
        ValueError: for an unknown start method.
        WorkerLost: if pools die three times in a row without a result.
    """
    known = get_all_start_methods()
    if start_method is None:
        start_method = "fork" if sys.platform == "linux" else "spawn"
    if start_method not in known:
        raise ValueError(f"unknown start_method {start_method!r}; choose one of {', '.join(known)}")
    begin = time.perf_counter()
    report.bytes_shared = sum(a.nbytes for a in arrays.values())
    folder = _shared_folder(report.bytes_shared)
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    left, barren, pool = list(todo), 0, None
    try:
        for name, a in arrays.items():
            np.save(f"{folder}/{name}.npy", a)
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        if warm_up is not None and start_method == "fork":
            warm_up()  # once here: the children have it from birth
        while left:
            setting = (solver, warm_up, folder, list(arrays), os.getpid())
            pool = ProcessPoolExecutor(min(report.workers, len(left)), get_context(start_method), _begin, setting)
            solved_before, futures = len(left), {}  # type: int, dict[Any, Chunk]
            try:
                if not report.start_s:
                    wait([pool.submit(_ready) for _ in range(report.workers)])
                    report.start_s = time.perf_counter() - begin
                futures |= {pool.submit(_solve, chunk): chunk for chunk in left}
                while futures:
                    for future in wait(futures, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        chunk = futures.pop(future)
                        left.remove(chunk)
                        report.bytes_returned += sum(a.nbytes for a in result.values())
                        yield chunk, result
            except BrokenProcessPool:
                report.n_restarts += 1
                for future, chunk in futures.items():  # finished by others before the pool broke
                    if future.done() and not future.cancelled() and future.exception() is None:
                        left.remove(chunk)
                        yield chunk, future.result()
                barren = 0 if len(left) < solved_before else barren + 1
                if barren >= MOST_RESTARTS_WITHOUT_RESULT:
                    raise WorkerLost(
                        f"worker processes died {barren} times in a row without a result (killed for memory, or by a"
                        f" crash); {len(left)} of {len(todo)} chunks are left, the first of rows {left[0][0]} to"
                        f" {left[0][1] - 1}"
                    ) from None
            pool.shutdown(wait=True, cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(folder, ignore_errors=True)
    report.work_s = time.perf_counter() - begin - report.start_s
