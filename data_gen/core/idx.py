"""Collections of files in MNIST's format (IDX), as they circulate: gzipped or not, in one npz, in a Debian package.

Sources: the folder named by IMPLICIT_DATA, the cache, an installed Debian package (/usr/share/datasets), that package
downloaded with apt and unpacked into the cache (no root needed), the official home by https. Checksums are those of the
raw content, so that a file may be compressed in any way.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_gen.core.sources import (
    READ_ERRORS,
    TIMEOUT_S,
    Damaged,
    Fetch,
    Missing,
    Place,
    cache_dir,
    data_dir,
    download,
    find,
    keras_dir,
)
from implicit_models.summaries import summary

DEBIAN_FOLDER = Path("/usr/share/datasets")


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
        torchvision: name of its class in torchvision, which keeps the files in CLASS/raw.
    """

    name: str
    files: Mapping[str, str]
    licence: str
    home: str
    debian: str | None = None
    arrays: Mapping[str, str] | None = None
    torchvision: str | None = None

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


def resolve(collection: Collection) -> Resolved:
    """Return a collection's verified content from the first source that has it.

    Args:
        collection: what to look for.

    Returns:
        Raw content of every file and the name of its source.

    Raises:
        DatasetUnavailable: no source has it; lists what was tried and how to provide the data.
    """
    package = f" or `sudo apt-get install {collection.debian}`" if collection.debian else ""
    raw = f" or {collection.torchvision}/raw/, as torchvision keeps them," if collection.torchvision else ""
    remedy = (
        f"To provide it: put {', '.join(name + '.gz' for name in collection.files)} (from {collection.home}) into "
        f"{collection.folder}/{raw} of a folder that IMPLICIT_DATA names{package}."
    )
    folder = cache_dir() / "datasets" / collection.folder
    cached = Place("cache", folder, lambda path: _read(collection, path, None))
    fetches = [
        Fetch("apt", lambda scratch: _debian(collection, scratch)),
        Fetch("official home", lambda scratch: _home(collection, scratch)),
    ]
    return Resolved(*find(collection.name, _places(collection, cached), fetches, cached, remedy))


def _places(collection: Collection, cached: Place) -> Iterator[Place]:
    base = data_dir()
    if base is not None:
        archive = base / f"{collection.name}.npz"
        if collection.arrays and archive.exists():
            yield Place("IMPLICIT_DATA", base, lambda folder: _read(collection, folder, archive))
        yield Place("IMPLICIT_DATA", base / collection.folder, lambda folder: _read(collection, folder, None))
        if collection.torchvision:
            raw = base / collection.torchvision / "raw"
            yield Place("torchvision's layout", raw, lambda folder: _read(collection, folder, None))
    yield cached
    keras = keras_dir()
    if collection.arrays and (keras / f"{collection.name}.npz").exists():
        yield Place("Keras", keras, lambda folder: _read(collection, folder, keras / f"{collection.name}.npz"))
    if (keras / collection.folder).is_dir():
        yield Place("Keras", keras / collection.folder, lambda folder: _read(collection, folder, None))
    if collection.debian:
        installed = DEBIAN_FOLDER / collection.folder
        yield Place("Debian package", installed, lambda folder: _read(collection, folder, None))


def _read(collection: Collection, folder: Path, archive: Path | None) -> dict[str, bytes]:
    """Raw content of every file of a folder, or of the arrays in an npz that stand for them.

    Raises:
        Damaged: naming the files that are not what they should be; Missing: naming the first that is not there.
    """
    missing, damaged, content = [], [], {}
    for name, checksum in collection.files.items():
        path = archive or _existing(folder, name)
        if path is None:
            missing.append(f"{name}.gz")
            continue
        try:
            raw = _raw(path) if archive is None else _array_as_idx(path, collection.arrays[name])
        except READ_ERRORS as error:
            damaged.append((path, f"{type(error).__name__}: {error}"))
            continue
        if hashlib.sha256(raw).hexdigest() != checksum:
            damaged.append((path, "its checksum is wrong"))
        content[name] = raw
    if damaged:
        raise Damaged(*damaged)
    if missing:
        raise Missing(f"no {missing[0]}")
    return content


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


def _debian(collection: Collection, scratch: Path) -> tuple[str, Path]:
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


def _home(collection: Collection, scratch: Path) -> tuple[str, Path]:
    for name in collection.files:
        download(f"{collection.home}/{name}.gz", scratch / f"{name}.gz")
    return collection.home, scratch
