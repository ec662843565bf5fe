"""Chunks of independent rows on one core, threads, processes or a Ray cluster, with the same results bit for bit.

    serial      in this thread
    threads     the compiled kernels release the interpreter's lock: no start-up, nothing is copied
    processes   the arrays lie in one memory-mapped file that all workers read; BLAS in every worker has one thread
    ray         the arrays go to the object store once; a local Ray is started if none runs, or a cluster is joined

Chunks are handed out as workers become free. A worker that dies costs its chunk, which is run again; results are stored
as they come. A chunk is solved by the same code on the same numbers everywhere, which is why nothing depends on the
backend.

Source:
    SIM paper, appendix (parallel implementation, Figure 5).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from implicit_models.sim.parallel.chunk_store import Chunk, ChunkStore, Result
from implicit_models.sim.parallel.report import RunReport, Solver

BACKENDS = ("serial", "threads", "processes", "ray")
START_METHODS = ("fork", "spawn", "forkserver")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread per BLAS call inside: rows run side by side already."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield


class Progress:
    """What is finished of a total, on one line of a terminal."""

    def __init__(self, shown: bool | None, total: int, what: str = "rows"):
        self.what = what
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.total, self.done, self.start = total, 0, time.perf_counter()

    def __call__(self, more: int) -> None:
        self.done += more
        if self.shown:
            seconds = time.perf_counter() - self.start
            end = "\n" if self.done >= self.total else ""
            print(f"\r{self.what} {self.done}/{self.total}  {seconds:.1f} s", end=end, file=sys.stderr, flush=True)


def chunks_of(first: int, last: int, size: int) -> list[Chunk]:
    """(start, stop) pieces of first..last-1 of at most `size` rows."""
    return [(at, min(at + size, last)) for at in range(first, last, size)]


def default_workers() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Parallel:
    """Where chunks run, and what of a run is kept and shown.

    backend: "serial" | "threads" | "processes" | "ray". workers: at a time; all cores if None. resume: folder of
    finished chunks; those found there are not run again. progress: show finished rows; None: if standard error is a
    terminal. address: of a Ray cluster; None joins the one of RAY_ADDRESS, or starts Ray on this machine. Ray is left
    running. start_method: of processes: "fork" (Linux; the default there), "spawn" or "forkserver".
    """

    backend: str = "serial"
    workers: int | None = None
    resume: str | Path | None = None
    progress: bool | None = None
    address: str | None = None
    start_method: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"unknown backend {self.backend!r}; choose one of {', '.join(BACKENDS)}")
        workers = self.workers
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise ValueError(f"workers must be a positive int, got {workers!r}")
        if self.resume is not None and not isinstance(self.resume, (str, Path)):
            raise TypeError(f"resume must be a folder, a str or a Path, or None, got {self.resume!r}")
        if self.progress is not None and not isinstance(self.progress, bool):
            raise TypeError(f"progress must be True, False or None, got {self.progress!r}")
        if self.address is not None and not isinstance(self.address, str):
            raise TypeError(f"address must be a str or None, got {self.address!r}")
        method = self.start_method
        if method is None:
            return
        if self.backend != "processes":
            raise ValueError(f"start_method {method!r} is of processes, the backend is {self.backend!r}")
        if method not in START_METHODS:
            raise ValueError(f"unknown start_method {method!r}; choose one of {', '.join(START_METHODS)}")

    def within(self, name: str) -> Parallel:
        """The same with a folder in that of finished chunks, where there is one."""
        return self if self.resume is None else replace(self, resume=Path(self.resume) / name)

    def alone(self) -> Parallel:
        """The same in this thread."""
        return replace(self, backend="serial", address=None, start_method=None)


SERIAL, THREADS = Parallel(), Parallel("threads")


def map_chunks(
    solver: Solver,
    chunks: Sequence[Chunk],
    *,
    arrays: Mapping[str, np.ndarray],
    parallel: Parallel = SERIAL,
    key: str = "",
    warm_up: Callable[[], None] | None = None,
) -> tuple[list[Result], RunReport]:
    """solver(arrays, chunk) of every chunk, in the order of the chunks.

    Args:
        solver: picklable; returns arrays by name. It must not write to the arrays it is given.
        chunks: (start, stop), disjoint.
        arrays: what all chunks read.
        parallel: where they run.
        key: of the problem, see `content_key`.
        warm_up: picklable; runs in every worker before the first chunk and counts as start-up (loads compiled kernels).

    Returns:
        results, and `RunReport`.

    Raises:
        ValueError: for a folder of another problem.
        WorkerLost: if workers keep dying; what the solver raises. An interrupt keeps the finished chunks.
    """
    backend, workers = parallel.backend, parallel.workers
    chunks = [(int(a), int(b)) for a, b in chunks]
    report = RunReport(backend, 1 if backend == "serial" else workers or default_workers(), n_chunks=len(chunks))
    store = None if parallel.resume is None else ChunkStore(parallel.resume, key, chunks)
    show = Progress(parallel.progress, sum(b - a for a, b in chunks))
    found: dict[Chunk, Result] = {}
    for chunk in chunks:
        kept = None if store is None else store.load(chunk)
        if kept is not None:
            found[chunk] = kept
            show(chunk[1] - chunk[0])
    report.n_loaded = len(found)
    todo = [chunk for chunk in chunks if chunk not in found]
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    if todo:
        run = {"serial": _serial, "threads": _threads}.get(backend)
        if backend == "processes":
            from implicit_models.sim.parallel.processes import run_processes

            results = run_processes(solver, todo, arrays, report, parallel.start_method, warm_up)
        elif backend == "ray":
            from implicit_models.sim.parallel.ray import run_ray

            results = run_ray(solver, todo, arrays, report, workers, parallel.address, warm_up)
        else:
            results = run(solver, todo, arrays, report, warm_up)  # type: ignore[misc]
        with closing(results):  # an interrupt here stops the workers before it goes on
            for chunk, result in results:
                if store is not None:
                    store.save(chunk, result)
                found[chunk] = result
                report.solved.append(chunk)
                report.n_solved += 1
                show(chunk[1] - chunk[0])
    return [found[chunk] for chunk in chunks], report


def _serial(
    solver: Solver,
    todo: list[Chunk],
    arrays: dict[str, np.ndarray],
    report: RunReport,
    warm_up: Callable[[], None] | None,
) -> Generator[tuple[Chunk, Result], None, None]:
    begin = time.perf_counter()
    with one_blas_thread():  # as everywhere else: the order of a sum depends on the number of threads
        if warm_up is not None:
            warm_up()
        report.start_s = time.perf_counter() - begin
        for chunk in todo:
            yield chunk, solver(arrays, chunk)
    report.work_s = time.perf_counter() - begin - report.start_s


def _threads(
    solver: Solver,
    todo: list[Chunk],
    arrays: dict[str, np.ndarray],
    report: RunReport,
    warm_up: Callable[[], None] | None,
) -> Generator[tuple[Chunk, Result], None, None]:
    from concurrent.futures import ThreadPoolExecutor, as_completed

    begin = time.perf_counter()
    with one_blas_thread():
        if warm_up is not None:
            warm_up()
        pool = ThreadPoolExecutor(report.workers)
        report.start_s = time.perf_counter() - begin
        try:
            futures = {pool.submit(solver, arrays, chunk): chunk for chunk in todo}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    report.work_s = time.perf_counter() - begin - report.start_s
