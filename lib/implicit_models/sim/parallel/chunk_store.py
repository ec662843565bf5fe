"""Finished chunks on disk, so that a run that was cut off goes on where it stopped.

A folder holds manifest.json, with the content key of the problem and the layout of its chunks, and one .npz a finished
chunk. Every file appears under its name only when it is complete (written beside it and moved over), so that a killed
writer leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Chunk = tuple[int, int]
Result = dict[str, np.ndarray]


def content_key(arrays: Mapping[str, np.ndarray], settings: Any) -> str:
    """Digest of the values, dtypes and shapes of the arrays and of the settings (anything with a faithful repr)."""
    digest = hashlib.sha256(repr(settings).encode())
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {a.dtype.str} {a.shape}".encode())
        digest.update(a.data.cast("B") if a.size else b"")
    return digest.hexdigest()


def _write(path: Path, write: Any) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(part, "wb") as f:
        write(f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, path)


class ChunkStore:
    """Results of the chunks (start, stop) of one problem in a folder.

    Args:
        folder: made if need be.
        key: of the problem, from `content_key`.
        chunks: the layout.

    Raises:
        ValueError: if the folder holds another problem, or this one in other chunks.
    """

    def __init__(self, folder: str | Path, key: str, chunks: Sequence[Chunk]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "manifest.json"
        if not manifest.exists():
            text = json.dumps({"key": key, "chunks": [list(c) for c in chunks]})
            _write(manifest, lambda f: f.write(text.encode()))
            return
        found = read_manifest(self.folder)  # type: Any
        if found["key"] != key:
            raise ValueError(
                f"{self.folder} holds the finished rows of another problem (key {found['key'][:12]}, this one has"
                f" {key[:12]}): the data or the settings differ; resume with those of the first run, or give an empty"
                " folder"
            )
        if found["chunks"] != [list(c) for c in chunks]:
            size = found["chunks"][0][1] - found["chunks"][0][0]
            raise ValueError(
                f"{self.folder} was begun with other chunks ({len(found['chunks'])} of them, the first of {size} rows)"
            )

    def path(self, chunk: Chunk) -> Path:
        return self.folder / f"rows-{chunk[0]:09d}-{chunk[1]:09d}.npz"

    def load(self, chunk: Chunk) -> Result | None:
        """The result of a finished chunk; None if it is not there or cannot be read."""
        try:
            with np.load(self.path(chunk), allow_pickle=False) as f:
                return {name: f[name] for name in f.files}
        except (FileNotFoundError, zipfile.BadZipFile, ValueError, EOFError):
            return None

    def save(self, chunk: Chunk, result: Result) -> None:
        _write(self.path(chunk), lambda f: np.savez(f, **result))  # type: ignore[arg-type]


def read_manifest(folder: str | Path) -> dict[str, Any] | None:
    """{"key", "chunks"} of a folder; None if nothing was begun there.

    Raises:
        ValueError: if the file is no manifest.
    """
    path = Path(folder) / "manifest.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        return {"key": str(found["key"]), "chunks": [[int(a), int(b)] for a, b in found["chunks"]]}
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"{path} is no manifest of finished chunks: {e}") from None
