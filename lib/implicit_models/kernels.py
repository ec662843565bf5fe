"""Compiled kernels: the decorator, the folders that keep their machine code, and the command that compiles them all.

    python -m implicit_models.kernels [equilibrium] [sim] [robustness] [seismology]

Numba keeps machine code on disk, but looks only at the file that defines a function, not at the files whose functions
it calls. So the folder of an area's machine code is named by a digest of everything that it is made from: the sources
of all kernels of the area, the options, the versions and the processor. An edit of any of them leads to another folder,
and processes that run different sources never share one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

AREAS = ("equilibrium", "sim", "robustness", "seismology")  # none calls a kernel of another
OPTIONS = {"nogil": True, "error_model": "numpy"}  # a division by zero gives inf or NaN, as in NumPy
READY = "ready"  # in a folder: stamps of the sources for which every kernel is there
KEPT = 2  # folders of other sources that stay beside a new one
_PACKAGE = Path(__file__).parent


def kernel(function: Any = None, *, borrows: Any = False, **options: Any) -> Any:
    """Compile a function with numba on its first call, without the interpreter lock, and keep the machine code.

    Args:
        borrows: it allocates nothing, and so need not count references to its arrays. Atomic counts take much of the
            time of a small kernel that is handed many arrays.
        options: further options of `numba.njit`.

    Returns:
        the compiled function, or without `function` a decorator.
    """
    if function is None:
        return functools.partial(kernel, borrows=borrows, **options)
    if borrows:
        options["_nrt"] = False
    from numba import config, njit

    _listen()
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder(function.__module__.split(".")[1]))
    try:
        compiled = njit(cache=True, **{**OPTIONS, **options})(function)
    finally:
        config.CACHE_DIR = before
    if hasattr(compiled, "get_call_template"):  # not with NUMBA_DISABLE_JIT
        compiled.get_call_template = functools.partial(_without_literals, compiled.get_call_template)
    return compiled


def _without_literals(template: Callable, args: tuple, kws: dict) -> tuple:
    """Called by another kernel with 0 or False a kernel would be compiled once more, for that value."""
    from numba.core.types import unliteral

    return template(tuple(map(unliteral, args)), {name: unliteral(value) for name, value in kws.items()})


@functools.cache
def _listen() -> None:
    """Say on standard error, once, that kernels are being compiled: it takes seconds, and nothing else tells."""
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, found: event.Event) -> None:
            module = found.data["dispatcher"].py_func.__module__
            if module.startswith("implicit_models."):
                event.unregister("numba:compile", self)
                every = "python -m implicit_models.kernels compiles all"
                print(f"{module}: kernels are being compiled, once for this machine ({every})", file=sys.stderr)

        def on_end(self, found: event.Event) -> None:
            pass

    event.register("numba:compile", Compiling())


def sources(area: str) -> list[Path]:
    """Files of an area, in its folder and those below, that hold kernels."""
    return [path for path in sorted((_PACKAGE / area).rglob("*.py")) if re.search(rb"@kernel|numba", path.read_bytes())]


@functools.cache
def digest(area: str) -> str:
    """Of what the machine code of an area is made from."""
    found = hashlib.sha256(repr((sys.version, version("numba"), version("llvmlite"), _processor(), OPTIONS)).encode())
    for path in sources(area):
        found.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:24]


def _processor() -> tuple[str, ...]:
    """Name and features of the processor, and what numba is told of it."""
    told = tuple(os.environ.get(f"NUMBA_{name}", "") for name in ("CPU_NAME", "CPU_FEATURES", "OPT"))
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.machine(), platform.processor(), *told
    return platform.machine(), *(line for line in lines if line.startswith(("model name", "flags", "Features"))), *told


def _homes(area: str) -> Iterator[Path]:
    """Where machine code may lie, the best place first."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named) / "implicit_models"
    yield _PACKAGE / area / "__pycache__"
    named = os.environ.get("IMPLICIT_CACHE")
    yield Path(named or "~/.cache/implicit-models").expanduser() / "kernels"


@functools.cache
def folder(area: str) -> Path:
    """The folder of an area's machine code, made if it is not there: beside the sources, in the user's cache, or, where
    neither can be written, in a temporary folder."""
    name = f"{area}-{digest(area)}"
    homes = _homes(area)
    while True:
        try:
            home = next(homes)
            found = home / name
            known = found.is_dir()
            found.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=found):
                pass
        except StopIteration:
            break
        except (OSError, RuntimeError):  # not writable; a user without home
            continue
        if not known:
            _drop_others(home, area, found)
        return found
    found = _temporary() / name
    found.mkdir(exist_ok=True)
    warnings.warn(
        f"compiled kernels are kept in {found}, since neither the package's folder nor ~/.cache can be written;"
        " NUMBA_CACHE_DIR names a lasting place",
        stacklevel=2,
    )
    return found


@functools.cache
def _temporary() -> Path:
    """A folder for temporary files that nobody else can write: machine code is run."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    found = Path(tempfile.gettempdir()) / f"implicit-models-kernels-{user}"
    try:
        found.mkdir(mode=0o700, exist_ok=True)
        about = found.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == user and not about.st_mode & 0o022:
            return found
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="implicit-models-kernels-"))


def _drop_others(home: Path, area: str, own: Path) -> None:
    """Remove the folders of other sources but the latest ones; what runs now has its machine code in memory."""
    others = [p for p in home.glob(f"{area}-*") if p != own and p.is_dir()]
    ages = sorted(others, key=lambda p: p.stat().st_mtime if p.exists() else 0.0, reverse=True)
    for path in ages[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _stamps(area: str) -> str:
    """Numba takes a function for changed when its file has another time or size."""
    return "\n".join(f"{p.relative_to(_PACKAGE)} {p.stat().st_mtime_ns} {p.stat().st_size}" for p in sources(area))


def ready(area: str) -> bool:
    """Whether every kernel of an area is compiled, without importing numba."""
    try:
        return (folder(area) / READY).read_text() == _stamps(area)
    except OSError:
        return False


def compile_area(area: str) -> None:
    """Compile every kernel of an area, or load it, by one small call of each."""
    importlib.import_module(f"implicit_models.{area}.kernel_calls").call_all()
    part = folder(area) / f"{READY}.{os.getpid()}"
    part.write_text(_stamps(area))
    os.replace(part, folder(area) / READY)


def main(areas: list[str]) -> int:
    """Compile what is not there; say how long each area took."""
    unknown = [area for area in areas if area not in AREAS]
    if unknown:
        print(f"no area {', '.join(unknown)}; there are {', '.join(AREAS)}", file=sys.stderr)
        return 2
    todo = [area for area in areas or AREAS if not ready(area)]
    for area in todo:
        if len(todo) > 1:
            # Numba compiles what kernels share, such as sums, once a process, with the options of the kernel that needs
            # it first: in a process of its own an area has the same machine code whatever other areas there are.
            subprocess.run([sys.executable, "-m", "implicit_models.kernels", area], check=True)
            continue
        start = time.perf_counter()
        compile_area(area)
        print(f"{area} kernels compiled ({time.perf_counter() - start:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
