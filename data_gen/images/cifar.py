"""CIFAR-10, whole or as the 12,000 lossless images that some machines have, and the published weights of a ResNet-20 on
it.

Sources of the images, in this order: the folder named by IMPLICIT_DATA, the cache, the official home (https, into the
cache; IMPLICIT_OFFLINE=1 forbids it). The archive of Krizhevsky (50,000 + 10,000) is preferred to the subset (10,000 +
2,000, both even over the classes); `meta` says which it is, and results on the two are not the same. The archive holds
pickles: it is opened only when its SHA-256 is the known one.

Source: Krizhevsky (2009), Learning multiple layers of features from tiny images; Idelbayev (2018),
pytorch_resnet_cifar10, for the weights.
"""

from __future__ import annotations

import functools
import hashlib
import io
import lzma
import os
import pickle
import shutil
import tarfile
import tempfile
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset, DatasetUnavailable
from data_gen.core.lock import file_lock
from data_gen.core.sources import READ_ERRORS, TIMEOUT_S, cache_dir, offline
from data_gen.core.streams import stream

ARCHIVE, SUBSET, WEIGHTS = "cifar-10-python.tar.gz", "cifar10_12k.npz.xz", "resnet20_cifar10_akamaster.npz"
CHECKPOINT = "resnet20-12fca82f.th"
HOMES = {
    ARCHIVE: "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    CHECKPOINT: f"https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models/{CHECKPOINT}",
}
ARCHIVE_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
# Of the arrays x_train, y_train, x_test, y_test, whatever compressed them; and of the tensors by name.
SUBSET_SHA256 = "ad3abf309a800b06742efeef4d6e148127471f3767eb6f8e1092701957a83ccf"
WEIGHTS_SHA256 = "51d7ea0ec59a977493b23fa673c25e0c63487a296734caefc48e106acbceb26a"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
UNREADABLE = (*READ_ERRORS, pickle.UnpicklingError, tarfile.TarError, AttributeError, TypeError)


def cifar10(
    seed: int = 0, n_train: int | None = None, n_test: int | None = None, *, subset: bool | None = None
) -> Dataset:
    """CIFAR-10: colour images, 32 x 32, ten classes.

    Args:
        seed: of the choice of samples; unused when both sizes are None.
        n_train, n_test: samples kept, drawn without replacement and evenly likely; None keeps all in the original
            order.
        subset: True for the 12,000 images, False for the whole set, None for the whole one where it is to be had.

    Returns:
        Dataset with u (N, 3072) float32 in [0, 1], a colour plane after the other, y (N,) int64, and one test set, key
        0. meta: name ("cifar10" or "cifar10_12k"), sha256, licence, source, classes, image_shape.

    Raises:
        DatasetUnavailable: no source has it; the message lists what was tried.
        ValueError: a size below 1 or above what there is.

    Source: Krizhevsky (2009).
    """
    arrays, meta = _images(subset)
    splits = []
    for split, size in (("train", n_train), ("test", n_test)):
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if size is not None:
            if not 1 <= size <= len(labels):
                raise ValueError(f"n_{split} must be between 1 and {len(labels)} for {meta['name']}, got {size}")
            kept = stream(seed, f"subset {split}").permutation(len(labels))[:size]
            images, labels = images[kept], labels[kept]
        u = images.transpose(0, 3, 1, 2).reshape(len(labels), -1).astype(np.float32) / np.float32(255)
        splits.append((u, labels.astype(np.int64)))
    (u_train, y_train), test = splits
    return Dataset(u_train, y_train, {0: test}, {**meta, "seed": seed})


def resnet20_weights() -> tuple[dict[str, np.ndarray], str]:
    """The 97 float32 tensors of a trained CIFAR-10 ResNet-20 (option A shortcuts), by their names there, and the source
    that gave them.

    Raises:
        DatasetUnavailable: no source has them.

    Source: Idelbayev (2018): 91.73 % on the full test set; inputs are normalised by the mean and deviation of ImageNet.
    """
    candidates = {WEIGHTS: _weights_of_arrays, CHECKPOINT: _weights_of_checkpoint}
    return _resolve("resnet20_cifar10", candidates, CHECKPOINT, tuple(candidates))


@functools.cache
def fingerprint(subset: bool | None = None) -> str:
    """Name and checksum of the images that `cifar10` resolves now, for content keys."""
    meta = _images(subset)[1]
    return f"{meta['name']}:{meta['sha256']}"


def _images(subset: bool | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    candidates: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
        ARCHIVE: _images_of_archive,
        SUBSET: _images_of_subset,
    }
    names = tuple(name for name, wanted in ((ARCHIVE, subset is not True), (SUBSET, subset is not False)) if wanted)
    arrays, source = _resolve("cifar10", candidates, ARCHIVE if ARCHIVE in names else None, names)
    whole = len(arrays["y_train"]) == 50_000
    meta = {
        "name": "cifar10" if whole else "cifar10_12k", "sha256": ARCHIVE_SHA256 if whole else SUBSET_SHA256,
        "source": source, "licence": "none stated by the authors", "image_shape": SHAPE, "classes": CLASSES,
    }  # fmt: skip
    return arrays, meta


def _resolve(name: str, readers: dict[str, Callable], fetched: str | None, files: tuple[str, ...]) -> tuple[Any, str]:
    """Content of the first file that can be had and has the known checksum, and its source."""
    attempts: list[tuple[str, str]] = []
    for label, path in _local_files(files):
        source = f"{label} ({path})"
        if not path.is_file():
            attempts.append((source, "no such file"))
            continue
        try:
            return readers[path.name](path), source
        except UNREADABLE as error:
            attempts.append((source, f"{type(error).__name__}: {error}"))
            warnings.warn(f"{name}: {path} is damaged or foreign ({error}); it is not used", stacklevel=4)
    if not os.environ.get("IMPLICIT_DATA"):
        attempts.insert(0, ("IMPLICIT_DATA", "not set"))
    if fetched is not None:
        try:
            return _fetch(fetched, readers[fetched]), HOMES[fetched]
        except UNREADABLE as error:
            attempts.append((f"official home ({HOMES[fetched]})", f"{type(error).__name__}: {error}"))
    homes = ", ".join(f"{file} (from {HOMES[file]})" if file in HOMES else file for file in files)
    raise DatasetUnavailable(name, attempts, f"To provide it: put {homes} into a folder that IMPLICIT_DATA names.")


def _local_files(files: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    named = os.environ.get("IMPLICIT_DATA")
    folders = [("IMPLICIT_DATA", Path(named).expanduser())] if named else []
    for label, folder in (*folders, ("cache", _cached())):
        for file in files:
            yield label, folder / file


def _cached() -> Path:
    return cache_dir() / "datasets" / "cifar10"


def _fetch(file: str, read: Callable[[Path], Any]) -> Any:
    """Download a file, check it, keep it in the cache."""
    if offline():
        raise OSError("forbidden by IMPLICIT_OFFLINE")
    target = _cached() / file
    with file_lock(target.with_name(f"{file}.lock")):
        if target.is_file():  # another process fetched it while this one waited
            return read(target)
        with tempfile.TemporaryDirectory(prefix="cifar10-", dir=target.parent) as scratch:
            part = Path(scratch) / file
            with urllib.request.urlopen(HOMES[file], timeout=TIMEOUT_S) as answer, part.open("wb") as out:
                shutil.copyfileobj(answer, out)
            content = read(part)
            os.replace(part, target)
    return content


def _images_of_archive(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != ARCHIVE_SHA256:
        raise ValueError("its checksum is wrong")
    batches: dict[str, list] = {"train": [], "test": []}
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        for member in sorted(archive.getnames()):
            split = {"d": "train", "t": "test"}.get(Path(member).name[:1]) if "_batch" in member else None
            if split:
                found = pickle.load(archive.extractfile(member), encoding="latin1")
                batches[split].append(
                    (found["data"].reshape(-1, *SHAPE).transpose(0, 2, 3, 1), np.asarray(found["labels"], np.uint8))
                )
    out = {}
    for split, parts in batches.items():
        out[f"x_{split}"], out[f"y_{split}"] = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return out


def _images_of_subset(path: Path) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as archive:
        found = {name: archive[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    if checksum(found) != SUBSET_SHA256:
        raise ValueError("its checksum is wrong")
    return found


def _weights_of_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files if not name.endswith("num_batches_tracked")}
    return _verified(found)


def _weights_of_checkpoint(path: Path) -> dict[str, np.ndarray]:
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    found = {
        name.removeprefix("module."): t.numpy() for name, t in state.items() if not name.endswith("num_batches_tracked")
    }
    return _verified(found)


def _verified(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if checksum(found) != WEIGHTS_SHA256:
        raise ValueError("its tensors are not the published ones")
    return found


def checksum(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bytes, in order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
