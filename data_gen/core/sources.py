"""Public data sets that are not committed: where they are looked for, and how they are checked.

Sources are asked in this order, and the first whose content has the right checksum wins:

1. the folder named by the environment variable IMPLICIT_DATA;
2. the cache: IMPLICIT_CACHE, or ~/.cache/implicit-models;
3. an installed Debian package (/usr/share/datasets);
4. that package, downloaded with apt and unpacked into the cache (no root needed);
5. the official home, by https, into the cache.

IMPLICIT_OFFLINE=1 forbids the last two. Checksums are those of the raw content, so a file may be
compressed in any way; a damaged cached file is reported, and fetched again.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_gen.core.dataset import DatasetUnavailable
from data_gen.core.lock import file_lock
from implicit_models.summaries import summary

DEBIAN_FOLDER = Path("/usr/share/datasets")
TIMEOUT_S = 120
# What a damaged or foreign file raises when it is read.
READ_ERRORS = (OSError, EOFError, ValueError, KeyError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Collection:
    """A public data set as a group of files.

    Args:
        name: as users write it, such as "fashion_mnist".
        files: file name without ".gz" -> SHA-256 of its raw content.
        licence: of the data.
        home: https address of the folder that holds the ".gz" files.
        debian: name of the Debian package, if one exists.
        arrays: file name -> its array's name in NAME.npz, another form in which a folder may hold
            the data; the array's content is checked as the IDX file that it stands for.
    """

    name: str
    files: Mapping[str, str]
    licence: str
    home: str
    debian: str | None = None
    arrays: Mapping[str, str] | None = None

    @property
    def folder(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True)
class Resolved:
    """Verified raw content of a collection: file name -> bytes, and the source that gave it."""

    content: Mapping[str, bytes]
    source: str

    def __repr__(self) -> str:
        return summary(self, files=len(self.content), source=self.source)


def cache_dir() -> Path:
    """Folder for what can be made again: IMPLICIT_CACHE, or ~/.cache/implicit-models."""
    named = os.environ.get("IMPLICIT_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "implicit-models"


def offline() -> bool:
    """Whether IMPLICIT_OFFLINE forbids the network (any value but "" and "0")."""
    return os.environ.get("IMPLICIT_OFFLINE", "") not in ("", "0")


def resolve(collection: Collection) -> Resolved:
    """Return a collection's verified content from the first source that has it.

    Args:
        collection: what to look for.

    Returns:
        Raw content of every file and the name of its source.

    Raises:
        DatasetUnavailable: no source has it; lists what was tried and how to provide the data.
    """
    attempts: list[tuple[str, str]] = []
    found = _resolve_local(collection, attempts)
    if found is None:
        found = _fetch(collection, attempts)
    if found is None:
        package = f" or `sudo apt-get install {collection.debian}`" if collection.debian else ""
        raise DatasetUnavailable(
            collection.name,
            attempts,
            f"To provide it: put {', '.join(name + '.gz' for name in collection.files)} (from {collection.home}) into "
            f"{collection.folder}/ of a folder that IMPLICIT_DATA names{package}.",
        )
    return found


def _resolve_local(collection: Collection, attempts: list) -> Resolved | None:
    for label, folder, arrays in _local_folders(collection):
        source = f"{label} ({folder})"
        missing, damaged, content = _read_folder(collection, folder, arrays)
        for path, why in damaged:
            warnings.warn(f"{collection.name}: {path} is damaged or foreign ({why}); it is not used", stacklevel=4)
        if not missing and not damaged:
            return Resolved(content, source)
        reasons = [f"{path.name}: {why}" for path, why in damaged]
        attempts.append((source, "; ".join(reasons) or f"no {missing[0]}"))
    if not os.environ.get("IMPLICIT_DATA"):
        attempts.insert(0, ("IMPLICIT_DATA", "not set"))
    return None


def _local_folders(collection: Collection) -> Iterator[tuple[str, Path, bool]]:
    named = os.environ.get("IMPLICIT_DATA")
    if named:
        base = Path(named).expanduser()
        if collection.arrays and (base / f"{collection.name}.npz").exists():
            yield "IMPLICIT_DATA", base, True
        yield "IMPLICIT_DATA", base / collection.folder, False
    yield "cache", _cached(collection), False
    if collection.debian:
        yield "Debian package", DEBIAN_FOLDER / collection.folder, False


def _cached(collection: Collection) -> Path:
    return cache_dir() / "datasets" / collection.folder


def _read_folder(collection: Collection, folder: Path, arrays: bool):
    """Return (missing names, damaged (path, why), content of the rest)."""
    missing, damaged, content = [], [], {}
    for name, checksum in collection.files.items():
        path = folder / f"{collection.name}.npz" if arrays else _existing(folder, name)
        if path is None:
            missing.append(f"{name}.gz")
            continue
        try:
            raw = _array_as_idx(path, collection.arrays[name]) if arrays else _raw(path)
        except READ_ERRORS as error:
            damaged.append((path, f"{type(error).__name__}: {error}"))
            continue
        if hashlib.sha256(raw).hexdigest() != checksum:
            damaged.append((path, "its checksum is wrong"))
        content[name] = raw
    return missing, damaged, content


def _existing(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def _raw(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _array_as_idx(path: Path, key: str) -> bytes:
    with np.load(path, allow_pickle=False) as archive:
        return to_idx(archive[key])


def to_idx(array: np.ndarray) -> bytes:
    """IDX file (MNIST's format) of an unsigned-byte array: big-endian magic number, shape, data."""
    if array.dtype != np.uint8:
        raise ValueError(f"IDX content must be uint8, got {array.dtype}")
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def from_idx(raw: bytes) -> np.ndarray:
    """Array of an unsigned-byte IDX file.

    Raises:
        ValueError: wrong magic number, or a length that the header does not announce.
    """
    zero, kind, ndim = struct.unpack_from(">HBB", raw)
    if zero != 0 or kind != 8:
        raise ValueError(f"not an IDX file of unsigned bytes: it starts with {raw[:4]!r}")
    shape = struct.unpack_from(f">{ndim}I", raw, 4)
    start = 4 + 4 * ndim
    if len(raw) - start != int(np.prod(shape)):
        raise ValueError(f"IDX header announces shape {shape}, but {len(raw) - start} bytes follow")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _fetch(collection: Collection, attempts: list) -> Resolved | None:
    if offline():
        attempts.append(("network", "forbidden by IMPLICIT_OFFLINE"))
        return None
    target = _cached(collection)
    try:
        with file_lock(target.with_name(target.name + ".lock")):
            # Another process may have fetched it while this one waited.
            missing, damaged, content = _read_folder(collection, target, False)
            if not missing and not damaged:
                return Resolved(content, f"cache ({target})")
            for label, fetch in (("apt", _fetch_debian), ("official home", _fetch_home)):
                found = _fetch_into(collection, target, label, fetch, attempts)
                if found is not None:
                    return found
    except OSError as error:
        attempts.append((f"cache ({target})", f"cannot be written: {error}"))
    return None


def _fetch_into(collection: Collection, target: Path, label: str, fetch: Callable, attempts: list) -> Resolved | None:
    with tempfile.TemporaryDirectory(prefix=f"{target.name}-", dir=target.parent) as scratch:
        try:
            origin, folder = fetch(collection, Path(scratch))
        except (*READ_ERRORS, subprocess.SubprocessError) as error:
            attempts.append((label, f"{type(error).__name__}: {error}"))
            return None
        missing, damaged, content = _read_folder(collection, folder, False)
        if missing or damaged:
            reasons = [f"{path.name}: {why}" for path, why in damaged] + [f"no {name}" for name in missing]
            attempts.append((f"{label} ({origin})", "; ".join(reasons)))
            return None
        target.mkdir(parents=True, exist_ok=True)
        for name in collection.files:
            path = _existing(folder, name)
            os.replace(path, target / path.name)
    return Resolved(content, f"{label} ({origin})")


def _fetch_debian(collection: Collection, scratch: Path) -> tuple[str, Path]:
    if not collection.debian:
        raise FileNotFoundError("no Debian package holds this data set")
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"{program} is not installed")
    _run("apt-get", "download", collection.debian, cwd=scratch)
    (package,) = scratch.glob("*.deb")
    _run("dpkg", "-x", str(package), str(scratch / "unpacked"), cwd=scratch)
    return collection.debian, scratch / "unpacked" / DEBIAN_FOLDER.relative_to("/") / collection.folder


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=5 * TIMEOUT_S)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OSError(f"`{' '.join(command)}` failed: {last}")


def _fetch_home(collection: Collection, scratch: Path) -> tuple[str, Path]:
    for name in collection.files:
        address = f"{collection.home}/{name}.gz"
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            with open(scratch / f"{name}.gz", "wb") as file:
                shutil.copyfileobj(answer, file)
    return collection.home, scratch
