"""The one resolver of public data that is not committed: where it is looked for, and how it is checked.

A data set names the places where it may lie and the ways to fetch it. Places are asked in their order, and the first
whose content is the right one wins:

1. the folder named by the environment variable IMPLICIT_DATA;
2. the cache: IMPLICIT_CACHE, or ~/.cache/implicit-models;
3. what the data set adds: an installed Debian package, another library's cache;
4. the ways to fetch it, into the cache; IMPLICIT_OFFLINE=1 forbids them.

What counts as right is the reader's affair: it has the checksums. A damaged file is reported, and fetched again.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from data_gen.core.dataset import DatasetUnavailable

TIMEOUT_S = 120
# What a damaged or foreign file raises when it is read.
READ_ERRORS = (OSError, EOFError, ValueError, KeyError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


class Missing(Exception):
    """A place does not have what is looked for; its text says what is not there."""


class Damaged(Exception):
    """Files that are there and are not used: pairs of a path and the reason."""

    def __init__(self, *files: tuple[Path, str]):
        super().__init__("; ".join(f"{path.name}: {why}" for path, why in files))
        self.files = files


@dataclass(frozen=True)
class Place:
    """A file or folder that may hold a data set.

    Args:
        label: how messages call it.
        path: of the file or folder.
        read: path -> content; raises `Missing` or `Damaged`.
    """

    label: str
    path: Path
    read: Callable[[Path], Any]

    @property
    def source(self) -> str:
        return f"{self.label} ({self.path})"


@dataclass(frozen=True)
class Fetch:
    """A way to get a data set from elsewhere.

    Args:
        label: how messages call it.
        get: an empty folder -> (address, path of what was put there); raises what `READ_ERRORS` lists.
    """

    label: str
    get: Callable[[Path], tuple[str, Path]]


def cache_dir() -> Path:
    """Folder for what can be made again: IMPLICIT_CACHE, or ~/.cache/implicit-models."""
    named = os.environ.get("IMPLICIT_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "implicit-models"


def data_dir() -> Path | None:
    """The folder that IMPLICIT_DATA names, if it names one."""
    named = os.environ.get("IMPLICIT_DATA")
    return Path(named).expanduser() if named else None


def keras_dir() -> Path:
    """Where Keras keeps the data sets that it has fetched: KERAS_HOME, or ~/.keras."""
    named = os.environ.get("KERAS_HOME")
    return (Path(named).expanduser() if named else Path.home() / ".keras") / "datasets"


def offline() -> bool:
    """Whether IMPLICIT_OFFLINE forbids the network (any value but "" and "0")."""
    return os.environ.get("IMPLICIT_OFFLINE", "") not in ("", "0")


def find(
    name: str, places: Iterable[Place], fetches: Sequence[Fetch], cached: Place | None, remedy: str
) -> tuple[Any, str]:
    """Content of the first place, or of the first way to fetch it, that has it, and the source that gave it.

    Args:
        name: of the data set.
        places, fetches: in the order in which they are asked.
        cached: where what was fetched is read and kept; None where there are no `fetches`. Fetched files of a folder go
            into this one, beside what is there.
        remedy: how to provide the data, for the message.

    Raises:
        DatasetUnavailable: no source has it; lists what was tried.
    """
    attempts: list[tuple[str, str]] = []
    for place in places:
        try:
            return place.read(place.path), place.source
        except Missing as why:
            attempts.append((place.source, str(why)))
        except Damaged as found:
            for path, reason in found.files:
                warnings.warn(f"{name}: {path} is damaged or foreign ({reason}); it is not used", stacklevel=4)
            attempts.append((place.source, str(found)))
    if data_dir() is None:
        attempts.insert(0, ("IMPLICIT_DATA", "not set"))
    fetched = None
    if cached is not None and offline():
        attempts.append(("network", "forbidden by IMPLICIT_OFFLINE"))
    elif cached is not None:
        fetched = _fetched(fetches, cached, attempts)
    if fetched is None:
        raise DatasetUnavailable(name, attempts, remedy)
    return fetched


def _fetched(fetches: Sequence[Fetch], cached: Place, attempts: list[tuple[str, str]]) -> tuple[Any, str] | None:
    folder, name = cached.path.parent, cached.path.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{name}.lock"):
            try:  # another process may have fetched it while this one waited
                return cached.read(cached.path), cached.source
            except (Missing, Damaged):
                pass
            for fetch in fetches:
                with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as scratch:
                    found = _kept(fetch, cached, Path(scratch), attempts)
                if found is not None:
                    return found
    except OSError as error:
        attempts.append((cached.source, f"cannot be written: {error}"))
    return None


def _kept(fetch: Fetch, cached: Place, scratch: Path, attempts: list[tuple[str, str]]) -> tuple[Any, str] | None:
    """What was fetched, once it is read and moved to the cache."""
    try:
        address, path = fetch.get(scratch)
    except (*READ_ERRORS, subprocess.SubprocessError) as error:
        attempts.append((fetch.label, f"{type(error).__name__}: {error}"))
        return None
    source = f"{fetch.label} ({address})"
    try:
        content = cached.read(path)
    except (Missing, Damaged) as why:
        attempts.append((source, str(why)))
        return None
    if path.is_dir():
        cached.path.mkdir(parents=True, exist_ok=True)
        for file in filter(Path.is_file, list(path.iterdir())):
            os.replace(file, cached.path / file.name)
    else:
        os.replace(path, cached.path)
    return content, source


def reader(
    read: Callable[[Path], Any], *errors: type[Exception], folder: bool = False, parts: Sequence[str] = ()
) -> Callable[[Path], Any]:
    """A function of a path made into the reader of one file, or of one folder.

    Args:
        read: raises `ValueError` where the content is not the one it knows.
        errors: what else a damaged or foreign file raises, beside `READ_ERRORS`.
        folder: whether the path is one.
        parts: files that a folder must have.
    """

    def checked(path: Path) -> Any:
        if not (path.is_dir() if folder else path.is_file()):
            raise Missing(f"no such {'folder' if folder else 'file'}")
        absent = [name for name in parts if not (path / name).is_file()]
        if absent:
            raise Missing(f"no {absent[0]} in it")
        try:
            return read(path)
        except (*READ_ERRORS, *errors) as error:
            why = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise Damaged((path, why)) from None

    return checked


def download(address: str, path: Path) -> None:
    """A file by https.

    Raises:
        OSError: naming the address, where the server refuses (403, 404, ...) or sends less than it announces.
    """
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file)
            announced = getattr(answer, "headers", None) and answer.headers.get("Content-Length")
    except OSError as error:
        raise OSError(f"{address}: {error}") from error
    if announced and path.stat().st_size != int(announced):
        raise OSError(f"{address}: {path.stat().st_size} of {announced} bytes came")
