"""What it costs to fit rows: the backends beside each other, bytes moved and stored, and the price of implicit
differentiation.

Source: SIM paper, appendix (parallel implementation, Figure 5).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil, log2
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import nn

from data_gen.core.dataset import Dataset
from data_gen.core.streams import stream
from implicit_models.sim.fit import fit_sim, solve_chunk, warm_up
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import States, states
from implicit_models.sim.parallel.report import RunReport
from implicit_models.sim.parallel.run import Parallel, chunks_of, map_chunks
from implicit_models.sim.problem import L1, LeastSquares, Tolerance
from implicit_models.sim.solvers.gram import gram
from reproduction.core.recipe import Recipe
from reproduction.core.train import train

PROFILES = {
    "quick": {"seeds": (0,), "samples": 500, "rows": (16, 32, 80), "repeats": 1},
    "full": {"seeds": (0, 1, 2), "samples": 500, "rows": (32, 112, 280), "repeats": 1},
}
KAPPA, BETA = 0.99, 0.5  # beta = lambda = .01 of the paper, in units of the rows


@dataclasses.dataclass(frozen=True)
class RowSet:
    """Rows of the l1 problem, states in the ball: {"G", "C", "zz", "mask", "first"} as `solve_chunk` reads them, and
    the samples behind them."""

    arrays: dict[str, np.ndarray]
    M: np.ndarray

    def first(self, count: int) -> RowSet:
        return RowSet(self.arrays | {name: self.arrays[name][:count] for name in ("C", "zz", "first")}, self.M)


def row_set(found: States, count: int, seed: int) -> RowSet:
    """`count` rows in units of the states' standard deviation: the network's own first, then random combinations of
    those.

    A network of this width has a hundred rows; combinations of its pre-activations have the same columns and the same
    kind of solution.
    """
    s = scale_of(found, "std").s
    M = np.hstack([found.X / s, found.U, np.ones((found.n_samples, 1))]).astype(np.float64)
    Z = np.asarray(found.Z, dtype=np.float64) / s
    more = max(0, count - Z.shape[1])
    mixing = stream(seed, "combinations of rows").standard_normal((Z.shape[1], more)) / np.sqrt(Z.shape[1])
    G, C, zz = gram(M, np.hstack([Z, Z @ mixing])[:, :count])
    mask = np.zeros(M.shape[1], dtype=bool)
    mask[: found.n_states] = True
    return RowSet({"G": G, "C": C, "zz": zz, "mask": mask, "first": np.zeros(count, dtype=np.int64)}, M)


def run_rows(
    rows: RowSet, backend: str, *, workers: int, chunk: int = 16, beta: float = BETA
) -> tuple[np.ndarray, RunReport]:
    """Weights (r, d) of the rows by one backend, and how the run went; Ray's own messages are kept back."""
    weights = {"beta": beta}
    solver = functools.partial(
        solve_chunk,
        n_states=len(rows.arrays["zz"]),
        kappa=KAPPA,
        state=weights,
        output=weights,
        perspective=False,
        tolerance=Tolerance(),
    )
    with contextlib.redirect_stderr(io.StringIO()):
        results, report = map_chunks(
            solver,
            chunks_of(0, len(rows.arrays["zz"]), chunk),
            arrays=rows.arrays,
            parallel=Parallel(backend, workers, progress=False),
            warm_up=functools.partial(warm_up, False),
        )
    return np.concatenate([result["A"] for result in results]), report


def compare_backends(
    rows: RowSet, counts: Sequence[int], backends: Sequence[str], *, workers: int, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of start-up and of the rows (smallest of the repeats), bytes, and whether the weights equal the first
    backend's.

    Start-up is that of the first run in this process, kernels loaded: later runs find Ray running.

    Returns:
        backend -> {"start" (one), "rows", "rate" (rows a second), "shared", "returned", "equal"}, lists over the
        counts.
    """
    run_rows(rows.first(2), "serial", workers=1)
    out: dict[str, dict[str, list[float]]] = {
        b: {"start": [], "rows": [], "rate": [], "shared": [], "returned": [], "equal": []} for b in backends
    }
    for backend in backends:
        out[backend]["start"].append(run_rows(rows.first(2), backend, workers=workers)[1].start_s)
    for count in counts:
        part, reference = rows.first(count), None
        reports: dict[str, list[RunReport]] = {backend: [] for backend in backends}
        for _ in range(repeats):
            # in turn, so that a change of the machine's load meets all
            for backend in backends:
                weights, report = run_rows(part, backend, workers=workers)
                reference = weights if reference is None else reference
                reports[backend].append(report)
                if len(reports[backend]) == 1:
                    out[backend]["equal"].append(float(np.array_equal(weights, reference)))
        for backend in backends:
            seconds = min(report.work_s for report in reports[backend])
            found = {
                "rows": seconds,
                "rate": count / seconds,
                "shared": reports[backend][0].bytes_shared,
                "returned": reports[backend][0].bytes_returned,
            }
            for name, value in found.items():
                out[backend][name].append(float(value))
    return out


def chunk_costs(rows: RowSet, sizes: Sequence[int], beta: float) -> list[float]:
    """Serial seconds of the same rows in chunks of several sizes: what is paid once a chunk shows as a fall."""
    return [run_rows(rows, "serial", workers=1, chunk=size, beta=beta)[1].work_s for size in sizes]


def available_cores(workers: int, *, megabytes: int = 24) -> float:
    """How many cores' worth of work as many threads as `workers` get done now: the ceiling of any speed-up on this
    machine.

    Mathematics: workers t_1 / t_w, with the times of one digest alone and of one in each thread at once; hashing
    releases the interpreter's lock. Both are medians of nine.
    """
    content = bytes(megabytes << 20)

    def digest(_: int = 0) -> None:
        hashlib.sha256(content).digest()

    def seconds(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    with ThreadPoolExecutor(workers) as pool:

        def digests(count: int) -> float:
            return seconds(lambda: list(pool.map(digest, range(count))))

        digests(workers)  # starts the threads
        times = [(digests(1), digests(workers)) for _ in range(9)]
    alone, together = np.median(times, axis=0)
    return float(workers * alone / together)


def stop_ray() -> None:
    """Stop the Ray that a comparison started, if any."""
    import sys

    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        with contextlib.redirect_stderr(io.StringIO()):
            sys.modules["ray"].shutdown()


def pickled(rows: RowSet, chunk: int = 16) -> dict[str, float]:
    """Bytes and seconds of sending the samples to every chunk by pickle, against the shared arrays once.

    Returns:
        "samples": one copy of M; "every_chunk": one for each chunk; "shared": G, C and the rest, once; "seconds": of
        pickling and reading one copy.
    """
    begin = time.perf_counter()
    content = pickle.dumps(rows.M, protocol=pickle.HIGHEST_PROTOCOL)
    pickle.loads(content)
    seconds = time.perf_counter() - begin
    n_chunks = ceil(len(rows.arrays["zz"]) / chunk)
    shared = sum(a.nbytes for a in rows.arrays.values())
    return {
        "samples": float(len(content)),
        "every_chunk": float(n_chunks * len(content)),
        "shared": float(shared),
        "seconds": seconds,
    }


def index_bits(matrix: sp.csr_array) -> dict[str, float]:
    """Bits of the indices of a CSR matrix: as printed, with the pointers that are needed, as SciPy holds them, and with
    values.

    Mathematics, for m non-zeros of (n_r, n_c): printed n_r ceil(log2 m) + m ceil(log2 n_c); needed
    (n_r + 1) ceil(log2(m + 1)) + m ceil(log2 n_c).

    Source:
        SIM paper, appendix.
    """
    (n_r, n_c), m = matrix.shape, matrix.nnz
    columns = m * ceil(log2(n_c)) if n_c > 1 else 0
    held = 8 * (matrix.indptr.nbytes + matrix.indices.nbytes)
    return {
        "printed": float(n_r * ceil(log2(m)) + columns if m else 0),
        "needed": float((n_r + 1) * ceil(log2(m + 1)) + columns),
        "held": float(held),
        "with_values": float(held + 8 * matrix.data.nbytes),
        "dense": float(64 * n_r * n_c),
    }


def pointer_check(n_c: int = 8) -> dict[str, float]:
    """The printed count of pointer bits for one row with one non-zero, 0, against the values that its pointers take,
    2."""
    matrix = sp.csr_array(([1.0], [3], [0, 1]), shape=(1, n_c))
    return {
        "printed_pointer_bits": float(1 * ceil(log2(matrix.nnz))),
        "pointer_values": float(len(set(matrix.indptr.tolist()))),
    }


def epoch_against_fit(
    network: nn.Module, implicit, recipe: Recipe, images: Dataset, samples: int, *, seed: int
) -> dict[str, float]:
    """CPU seconds of state-driven fits of a trained network and of one epoch of implicit differentiation, and what each
    reaches.

    A first epoch on a few images and a first fit are run and thrown away: they import and compile. Of two
    runs the shorter counts, but for the long fit.

    Args:
        network: trained; its training is not part of the fits.
        implicit: makes the untrained implicit model.
        recipe: its training, cut to one epoch.
        images: data of both.
        samples: of the small fit; the large one takes all, as the epoch does.

    Returns:
        "epoch", "fit_small", "fit_all" in CPU seconds of this process, and their accuracies "accuracy_...", per cent.
    """
    from reproduction.core.scores import accuracy_of, share_right

    u, labels = images.test[0]
    once = dataclasses.replace(recipe, epochs=1)

    def seconds(work) -> tuple[float, Any]:
        begin = time.process_time()
        result = work()
        return time.process_time() - begin, result

    def epoch(count: int) -> nn.Module:
        model = implicit()
        train(model, images.u_train[:count], images.y_train[:count], recipe=once, seed=seed, progress=False)
        return model.eval()

    def fit(count: int) -> Any:
        found = states(network, images.u_train[:count])
        return fit_sim(found, objective=L1(0.01), match=LeastSquares(0.01, 0.01))

    epoch(2 * recipe.batch_size)
    fit(100)
    out = {}
    whole = len(images.y_train)
    for name, work, count in (("epoch", epoch, whole), ("fit_small", fit, samples), ("fit_all", fit, whole)):
        runs = [seconds(functools.partial(work, count)) for _ in range(1 if name == "fit_all" else 2)]
        out[name] = min(time_used for time_used, _ in runs)
        model = runs[0][1]
        reached = accuracy_of(model, u, labels) if name == "epoch" else share_right(model.predict(u), labels)
        out[f"accuracy_{name}"] = 100 * reached
    return out
