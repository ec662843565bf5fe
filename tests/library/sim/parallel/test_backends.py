"""Chunks of rows: the same bits everywhere, dead workers, killed drivers, resumed folders."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.sim.fit import solve_chunk
from implicit_models.sim.parallel import ray as cluster
from implicit_models.sim.parallel import run
from implicit_models.sim.parallel.chunk_store import ChunkStore, content_key, read_manifest
from implicit_models.sim.parallel.report import WorkerLost
from implicit_models.sim.parallel.run import Parallel, chunks_of
from implicit_models.sim.problem import Tolerance

HERE = Path(__file__).parent
CHUNKS = chunks_of(0, 40, 3)


def _arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {"G": rng.normal(size=(30, 30)), "C": rng.normal(size=(40, 30))}


def rows_of(arrays, chunk):
    start, stop = chunk
    status = np.array(["optimal", "fista"])[np.arange(start, stop) % 2]
    return {"A": np.linalg.solve(arrays["G"], arrays["C"][start:stop].T).T, "status": status}


class Dies:
    """Kills its own process the first time it meets a chunk, as the operating system does when memory runs out."""

    def __init__(self, folder, victim=CHUNKS[5], times=1, solver=None):
        self.folder, self.victim, self.times, self.solver = str(folder), victim, times, solver or rows_of

    def __call__(self, arrays, chunk):
        if chunk == self.victim:
            for k in range(self.times):
                try:
                    os.close(os.open(f"{self.folder}/died-{k}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return self.solver(arrays, chunk)


class Logs:
    """Writes down every chunk it solves; slow, so that somebody can interfere."""

    def __init__(self, path, seconds=0.0, fails_at=None):
        self.path, self.seconds, self.fails_at = str(path), seconds, fails_at

    def __call__(self, arrays, chunk):
        with open(self.path, "a") as f:
            f.write(f"{chunk[0]} {chunk[1]} {os.getpid()}\n")
        if chunk == self.fails_at:
            raise ArithmeticError(f"rows {chunk[0]} to {chunk[1]}")
        time.sleep(self.seconds)
        return rows_of(arrays, chunk)

    def chunks(self):
        return [tuple(int(v) for v in line.split()[:2]) for line in Path(self.path).read_text().splitlines()]


def blas_threads(arrays, chunk):
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return {
        "A": np.array(
            [max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)]
        )
    }


def writes(arrays, chunk):
    arrays["G"][0, 0] = 1e9
    return {"A": arrays["G"][:1, :1].copy()}


@pytest.fixture(scope="module")
def ray_session():
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 * 2**20,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
    )
    yield ray
    ray.shutdown()


def _same(results, others):
    assert len(results) == len(others)
    for a, b in zip(results, others, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
            assert a[name].dtype == b[name].dtype


def map_chunks(solver, chunks, *, arrays, key="", warm_up=None, **options):
    return run.map_chunks(solver, chunks, arrays=arrays, parallel=Parallel(**options), key=key, warm_up=warm_up)


@pytest.fixture(scope="module")
def serial():
    return map_chunks(rows_of, CHUNKS, arrays=_arrays())[0]


# ---------------------------------------------------------------- the same results


def test_serial_is_the_function_itself(serial):
    arrays = _arrays()
    expected = [rows_of(arrays, chunk) for chunk in CHUNKS]
    assert len(serial) == len(CHUNKS) and all(
        found.keys() == one.keys() for found, one in zip(serial, expected, strict=True)
    )
    for found, one in zip(serial, expected, strict=True):
        for name, value in one.items():
            assert found[name].dtype == value.dtype and np.array_equal(found[name], value), name


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("threads", {}),
        ("threads", {"workers": 1}),
        ("processes", {"start_method": "fork"}),
        ("processes", {"start_method": "spawn"}),
        ("processes", {"start_method": "forkserver"}),
    ],
)
def test_backends_agree_bit_for_bit(serial, backend, options):
    if options.get("start_method") == "fork" and sys.platform == "win32":
        pytest.skip("no fork on this system")
    results, report = map_chunks(rows_of, CHUNKS, arrays=_arrays(), backend=backend, **{"workers": 2} | options)
    _same(results, serial)
    assert report.n_solved == len(CHUNKS) and sorted(report.solved) == CHUNKS and report.n_restarts == 0
    moved = sum(a.nbytes for a in _arrays().values())
    assert report.bytes_shared == (moved if backend == "processes" else 0)
    assert report.bytes_returned == (sum(a.nbytes for r in serial for a in r.values()) if backend == "processes" else 0)
    assert report.start_s >= 0 and report.work_s > 0


@pytest.mark.extended
def test_ray_agrees_bit_for_bit(serial, ray_session):
    results, report = map_chunks(rows_of, CHUNKS, arrays=_arrays(), backend="ray", workers=2)
    _same(results, serial)
    assert report.bytes_shared == sum(a.nbytes for a in _arrays().values()) and report.workers == 2
    assert all(r["A"].flags.writeable for r in results)


@given(n=st.integers(0, 60), size=st.integers(1, 20), first=st.integers(0, 9))
@settings(deadline=None, max_examples=25)
def test_chunks_partition_the_rows(n, size, first):
    chunks = chunks_of(first, first + n, size)
    assert [i for a, b in chunks for i in range(a, b)] == list(range(first, first + n))
    assert all(0 < b - a <= size for a, b in chunks)


def test_nothing_to_do():
    assert map_chunks(rows_of, [], arrays=_arrays(), backend="processes")[0] == []


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_blas_has_one_thread_per_worker(backend):
    pytest.importorskip("threadpoolctl")
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        results, _ = map_chunks(blas_threads, CHUNKS[:4], arrays=_arrays(), backend=backend, workers=2)
        assert [int(r["A"][0]) for r in results] == [1] * 4
        assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_a_solver_that_writes_reaches_nobody_else():
    arrays = _arrays()
    kept = arrays["G"].copy()
    map_chunks(writes, CHUNKS[:2], arrays=arrays, backend="processes", workers=2)
    np.testing.assert_array_equal(arrays["G"], kept)


class Warm:
    """Leaves a file with the process that it ran in."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self):
        Path(self.folder, str(os.getpid())).touch()


@pytest.mark.parametrize(
    ("backend", "start"), [("serial", None), ("threads", None), ("processes", "fork"), ("processes", "spawn")]
)
def test_warm_up_runs_before_the_first_chunk(tmp_path, backend, start):
    (tmp_path / "warm").mkdir()
    solver = Logs(tmp_path / "log")
    map_chunks(
        solver,
        CHUNKS,
        arrays=_arrays(),
        backend=backend,
        workers=2,
        start_method=start,
        warm_up=Warm(tmp_path / "warm"),
    )
    warm = {int(p.name) for p in (tmp_path / "warm").iterdir()}
    assert {int(line.split()[2]) for line in (tmp_path / "log").read_text().splitlines()} <= warm


# ---------------------------------------------------------------- lost workers


@pytest.mark.extended
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_killed_worker_process_costs_its_chunk_only(serial, tmp_path, start_method):
    results, report = map_chunks(
        Dies(tmp_path), CHUNKS, arrays=_arrays(), backend="processes", workers=2, start_method=start_method
    )
    assert (tmp_path / "died-0").exists() and report.n_restarts == 1
    _same(results, serial)
    assert len(report.solved) == len(set(report.solved)) == len(CHUNKS)


@pytest.mark.extended
def test_a_killed_ray_worker_costs_its_chunk_only(serial, tmp_path, ray_session):
    results, _ = map_chunks(Dies(tmp_path), CHUNKS, arrays=_arrays(), backend="ray", workers=2)
    assert (tmp_path / "died-0").exists()
    _same(results, serial)


@pytest.mark.extended
@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_compiled_rows_survive_a_killed_worker_bit_for_bit(tmp_path, request, backend):
    if backend == "ray":
        request.getfixturevalue("ray_session")
    rng = np.random.default_rng(3)
    M, Z = rng.normal(size=(25, 30)), rng.normal(size=(25, 40))
    arrays = {
        "G": M.T @ M,
        "C": Z.T @ M,
        "zz": (Z**2).sum(0),
        "mask": np.arange(30) < 20,
        "first": np.zeros(40, dtype=np.int64),
    }
    solver = functools.partial(
        solve_chunk,
        n_states=30,
        kappa=0.4,
        state={"beta": 0.1},
        output={"beta": 0.2},
        perspective=False,
        tolerance=Tolerance(1e-6, 1e-9),
    )
    wanted, _ = map_chunks(solver, CHUNKS, arrays=arrays)
    results, _ = map_chunks(Dies(tmp_path, solver=solver), CHUNKS, arrays=arrays, backend=backend, workers=2)
    assert (tmp_path / "died-0").exists()
    _same(results, wanted)
    assert all(status == "optimal" for r in results for status in r["status"])
    assert np.abs(np.concatenate([r["A"] for r in results])[:30, :20]).sum(1).max() == pytest.approx(0.4)


@pytest.mark.extended
def test_ray_resumes_and_shares_a_folder_with_other_backends(serial, tmp_path, ray_session):
    with pytest.raises(ArithmeticError):
        map_chunks(
            Logs(tmp_path / "first", fails_at=CHUNKS[4]), CHUNKS, arrays=_arrays(), resume=tmp_path / "rows", key="k"
        )
    second = Logs(tmp_path / "second")
    results, report = map_chunks(
        second, CHUNKS, arrays=_arrays(), backend="ray", workers=2, resume=tmp_path / "rows", key="k"
    )
    _same(results, serial)
    assert report.n_loaded == 4 and sorted(second.chunks()) == CHUNKS[4:]


@pytest.mark.parametrize(
    ("argument", "variable", "options"),
    [
        (None, None, {"num_cpus": 3, "include_dashboard": False, "log_to_driver": False}),
        (None, "10.0.0.1:6379", {"address": None, "log_to_driver": False}),  # Ray reads RAY_ADDRESS itself
        ("auto", None, {"address": "auto", "log_to_driver": False}),
    ],
)
def test_ray_starts_here_or_joins_a_cluster(monkeypatch, argument, variable, options):
    calls = []
    fake = types.SimpleNamespace(is_initialized=lambda: bool(calls), init=lambda **kw: calls.append(kw))
    monkeypatch.setattr(cluster, "_ray", lambda: fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    cluster.start(3, argument)
    cluster.start(3, argument)  # a running Ray is used as it is
    assert calls == [options]


def test_read_only_arrays_of_the_object_store_are_aliased_not_copied():
    a = np.arange(12.0).reshape(3, 4)
    a.setflags(write=False)
    alias = cluster.writable_alias(a)
    assert alias.flags.writeable and alias.flags.c_contiguous and alias.ctypes.data == a.ctypes.data
    np.testing.assert_array_equal(alias, a)
    empty = np.empty((0, 3))
    assert cluster.writable_alias(empty) is empty


@pytest.mark.extended
def test_workers_that_keep_dying_end_the_run(tmp_path):
    with pytest.raises(WorkerLost, match="died 3 times in a row.*rows 15 to 17"):
        map_chunks(Dies(tmp_path, times=9), CHUNKS[5:6], arrays=_arrays(), backend="processes", workers=1)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.extended
def test_ray_workers_that_keep_dying_end_the_run(tmp_path, ray_session, monkeypatch):
    monkeypatch.setattr(cluster, "RETRIES", 1)
    with pytest.raises(WorkerLost, match="rows 15 to 17"):
        map_chunks(Dies(tmp_path, times=9), CHUNKS[5:6], arrays=_arrays(), backend="ray", workers=2)


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_an_error_in_the_solver_is_the_callers(tmp_path, backend):
    log = Logs(tmp_path / "log", fails_at=CHUNKS[2])
    with pytest.raises(ArithmeticError, match="rows 6 to 9"):
        map_chunks(log, CHUNKS, arrays=_arrays(), backend=backend, workers=2)
    assert log.chunks().count(CHUNKS[2]) == 1  # an error is no lost worker


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_finished_chunks_are_not_solved_again(serial, tmp_path, backend):
    first, second = Logs(tmp_path / "first", fails_at=CHUNKS[6]), Logs(tmp_path / "second")
    folder = tmp_path / "rows"
    with pytest.raises(ArithmeticError):
        map_chunks(first, CHUNKS, arrays=_arrays(), backend=backend, workers=2, resume=folder, key="k")
    kept = {p.name for p in folder.glob("rows-*.npz")}
    assert len(kept) >= 5 if backend == "serial" else len(kept) >= 1
    results, report = map_chunks(second, CHUNKS, arrays=_arrays(), backend=backend, workers=2, resume=folder, key="k")
    _same(results, serial)
    assert report.n_loaded == len(kept) and report.n_solved == len(CHUNKS) - len(kept)
    assert sorted(second.chunks()) == sorted(set(CHUNKS) - {_chunk(name) for name in kept})
    again, report = map_chunks(Logs(tmp_path / "third"), CHUNKS, arrays=_arrays(), resume=folder, key="k")
    _same(again, serial)
    assert report.n_solved == 0 and not (tmp_path / "third").exists()


def _chunk(name):
    return tuple(int(v) for v in Path(name).stem.split("-")[1:])


# A shell's background jobs ignore SIGINT, and their children inherit that: the handler is set anew.
DRIVER = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from test_backends import CHUNKS, Logs, _arrays, map_chunks
map_chunks(
    Logs(sys.argv[2], 0.15), CHUNKS, arrays=_arrays(), backend=sys.argv[4], workers=2, resume=sys.argv[3], key="k"
)
"""


@pytest.mark.extended
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_killed_driver_resumes_without_repeating_rows(serial, tmp_path, backend, stop):
    folder = tmp_path / "rows"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(HERE), str(tmp_path / "first"), str(folder), backend],
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 60
    while len(list(folder.glob("rows-*.npz"))) < 4 and time.monotonic() < limit:
        time.sleep(0.01)
    driver.send_signal(stop)
    driver.wait(timeout=60)
    kept = {_chunk(p.name) for p in folder.glob("rows-*.npz")}
    assert 4 <= len(kept) < len(CHUNKS)  # it was stopped on the way
    second = Logs(tmp_path / "second")
    results, report = map_chunks(second, CHUNKS, arrays=_arrays(), backend=backend, workers=2, resume=folder, key="k")
    _same(results, serial)
    assert sorted(second.chunks()) == sorted(set(CHUNKS) - kept)
    assert report.n_loaded == len(kept)
    if backend == "processes":
        pids = {int(line.split()[2]) for line in (tmp_path / "first").read_text().splitlines()}
        limit = time.monotonic() + 20
        while any(_alive(pid) for pid in pids) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not any(_alive(pid) for pid in pids)  # the workers of a killed driver end too


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_keeps_what_is_finished(tmp_path, interruptible):
    folder = tmp_path / "rows"

    def interrupt():
        limit = time.monotonic() + 60
        while len(list(folder.glob("rows-*.npz"))) < 2 and time.monotonic() < limit:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        map_chunks(
            Logs(tmp_path / "log", 0.12),
            CHUNKS,
            arrays=_arrays(),
            backend="processes",
            workers=1,
            resume=folder,
            key="k",
        )
    watcher.join()
    kept = list(folder.glob("rows-*.npz"))
    assert 1 <= len(kept) < len(CHUNKS)
    assert not list(folder.glob(".*.part"))


def test_another_problem_is_refused(tmp_path):
    map_chunks(rows_of, CHUNKS[:3], arrays=_arrays(), resume=tmp_path, key="a" * 64)
    with pytest.raises(ValueError, match=r"another problem \(key aaaaaaaaaaaa, this one has bbbbbbbbbbbb\)"):
        map_chunks(rows_of, CHUNKS[:3], arrays=_arrays(), resume=tmp_path, key="b" * 64)
    with pytest.raises(ValueError, match="begun with other chunks"):
        map_chunks(rows_of, chunks_of(0, 9, 2), arrays=_arrays(), resume=tmp_path, key="a" * 64)
    (tmp_path / "manifest.json").write_text("[1")
    with pytest.raises(ValueError, match="no manifest"):
        map_chunks(rows_of, CHUNKS[:3], arrays=_arrays(), resume=tmp_path, key="a" * 64)


def test_a_damaged_chunk_is_solved_again(serial, tmp_path):
    map_chunks(rows_of, CHUNKS, arrays=_arrays(), resume=tmp_path, key="k")
    store = ChunkStore(tmp_path, "k", CHUNKS)
    whole = store.path(CHUNKS[1]).read_bytes()
    store.path(CHUNKS[1]).write_bytes(whole[: len(whole) // 2])
    store.path(CHUNKS[2]).write_bytes(b"")
    store.path(CHUNKS[3]).unlink()
    results, report = map_chunks(rows_of, CHUNKS, arrays=_arrays(), resume=tmp_path, key="k")
    _same(results, serial)
    assert report.solved == CHUNKS[1:4]


def test_content_key_sees_values_shapes_names_and_settings():
    arrays = _arrays()
    keys = {
        content_key(arrays, ("kappa", 0.9)),
        content_key(arrays, ("kappa", 0.8)),
        content_key(_arrays(1), ("kappa", 0.9)),
        content_key({"G": arrays["G"], "D": arrays["C"]}, ("kappa", 0.9)),
        content_key({**arrays, "C": arrays["C"].reshape(30, 40)}, ("kappa", 0.9)),
        content_key({**arrays, "C": arrays["C"].astype(np.float32)}, ("kappa", 0.9)),
    }
    assert len(keys) == 6
    assert content_key(arrays, ("kappa", 0.9)) == content_key(dict(reversed(arrays.items())), ("kappa", 0.9))
    assert content_key({"G": np.asfortranarray(arrays["G"])}, 1) == content_key({"G": arrays["G"]}, 1)
    assert read_manifest(HERE / "nothing") is None


# ---------------------------------------------------------------- arguments, progress


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"backend": "mpi"}, "unknown backend 'mpi'"),
        ({"workers": 0}, "workers must be a positive int, got 0"),
        ({"workers": True}, "workers must be"),
        ({"backend": "processes", "start_method": "clone"}, "unknown start_method 'clone'"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        map_chunks(rows_of, CHUNKS, arrays=_arrays(), **options)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"resume": 5}, TypeError, "resume must be a folder, a str or a Path, or None, got 5"),
        ({"progress": "x"}, TypeError, "progress must be True, False or None, got 'x'"),
        ({"backend": "ray", "address": 1}, TypeError, "address must be a str or None, got 1"),
        ({"start_method": "fork"}, ValueError, "start_method 'fork' is of processes, the backend is 'serial'"),
        ({"backend": "processes", "start_method": "clone"}, ValueError, "unknown start_method 'clone'"),
    ],
)
def test_where_chunks_run_is_checked_when_it_is_made(options, error, match):
    with pytest.raises(error, match=match):
        Parallel(**options)


def test_progress_counts_rows_on_request_only(capsys):
    map_chunks(rows_of, CHUNKS, arrays=_arrays())
    assert capsys.readouterr().err == ""
    map_chunks(rows_of, CHUNKS, arrays=_arrays(), progress=True)
    shown = capsys.readouterr().err
    assert "rows 3/40" in shown and shown.rstrip().split("\r")[-1].startswith("rows 40/40") and shown.endswith("\n")


def test_a_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"implicit-models\[ray\]"):
        map_chunks(rows_of, CHUNKS, arrays=_arrays(), backend="ray")


def test_importing_the_backends_imports_no_ray():
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "import implicit_models.sim.fit, implicit_models.sim.parallel.run, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(out.stdout.split()) & {"ray", "cvxpy", "sklearn", "threadpoolctl"}


def test_manifest_is_plain_json(tmp_path):
    map_chunks(rows_of, CHUNKS[:2], arrays=_arrays(), resume=tmp_path, key="k")
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"key": "k", "chunks": [[0, 3], [3, 6]]}
