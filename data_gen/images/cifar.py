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
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_gen.core.dataset import Dataset
from data_gen.core.sources import Fetch, Place, cache_dir, data_dir, download, find, keras_dir, reader
from data_gen.core.streams import stream

ARCHIVE, SUBSET, WEIGHTS = "cifar-10-python.tar.gz", "cifar10_12k.npz.xz", "resnet20_cifar10_akamaster.npz"
CHECKPOINT = "resnet20-12fca82f.th"
HOMES = {
    ARCHIVE: "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    CHECKPOINT: f"https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models/{CHECKPOINT}",
}
UNPACKED = "cifar-10-batches-py"
# MD5 of the archive's parts, as its authors' page and torchvision have them.
BATCHES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
ARCHIVE_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
# Of the arrays x_train, y_train, x_test, y_test, whatever compressed them; and of the tensors by name.
SUBSET_SHA256 = "ad3abf309a800b06742efeef4d6e148127471f3767eb6f8e1092701957a83ccf"
WEIGHTS_SHA256 = "51d7ea0ec59a977493b23fa673c25e0c63487a296734caefc48e106acbceb26a"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
UNREADABLE = (pickle.UnpicklingError, tarfile.TarError, AttributeError, TypeError)  # beside what any file raises


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

    Source:
        Krizhevsky (2009).
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

    Source:
        Idelbayev (2018): 91.73 % on the full test set; inputs are normalised by the mean and deviation of ImageNet.
    """
    return _find("resnet20_cifar10", {WEIGHTS: _weights_of_arrays, CHECKPOINT: _weights_of_checkpoint}, CHECKPOINT)


@functools.cache
def fingerprint(subset: bool | None = None) -> str:
    """Name and checksum of the images that `cifar10` resolves now, for content keys."""
    meta = _images(subset)[1]
    return f"{meta['name']}:{meta['sha256']}"


def _images(subset: bool | None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    readers = {} if subset is True else {ARCHIVE: _images_of_archive, UNPACKED: _images_of_folder}
    if subset is not False:
        readers[SUBSET] = _images_of_subset
    arrays, source = _find("cifar10", readers, None if subset is True else ARCHIVE)
    whole = len(arrays["y_train"]) == 50_000
    meta = {
        "name": "cifar10" if whole else "cifar10_12k", "sha256": ARCHIVE_SHA256 if whole else SUBSET_SHA256,
        "source": source, "licence": "none stated by the authors", "image_shape": SHAPE, "classes": CLASSES,
    }  # fmt: skip
    return arrays, meta


def _find(name: str, readers: dict[str, Callable[[Path], Any]], fetched: str | None) -> tuple[Any, str]:
    """Content of the first file that can be had and is the known one, and its source.

    Args:
        readers: file name -> its reader, in the order in which a folder is searched.
        fetched: the file that the official home serves, None for none.
    """
    read = {
        file: reader(one, *UNREADABLE, folder=file == UNPACKED, parts=tuple(BATCHES) if file == UNPACKED else ())
        for file, one in readers.items()
    }
    cached, base = cache_dir() / "datasets" / "cifar10", data_dir()
    folders = [("cache", cached)] if base is None else [("IMPLICIT_DATA", base), ("cache", cached)]
    places = [Place(label, folder / file, read[file]) for label, folder in folders for file in read]
    if UNPACKED in readers:  # both names under which Keras has kept it
        for inner in (UNPACKED, f"{UNPACKED}-target/{UNPACKED}"):
            if (keras_dir() / inner).is_dir():
                places.append(Place("Keras", keras_dir() / inner, read[UNPACKED]))

    def get(scratch: Path) -> tuple[str, Path]:
        download(HOMES[fetched], scratch / fetched)
        return HOMES[fetched], scratch / fetched

    kept = None if fetched is None else Place("cache", cached / fetched, read[fetched])
    homes = ", ".join(f"{file} (from {HOMES[file]})" if file in HOMES else file for file in readers)
    return find(
        name,
        places,
        [Fetch("official home", get)],
        kept,
        f"To provide it: put {homes} into a folder that IMPLICIT_DATA names.",
    )


def _images_of_archive(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != ARCHIVE_SHA256:
        raise ValueError("its checksum is wrong")
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        members = [name for name in sorted(archive.getnames()) if "_batch" in name]
        return _images_of_batches({Path(name).name: archive.extractfile(name).read() for name in members})


def _images_of_folder(path: Path) -> dict[str, np.ndarray]:
    """The unpacked archive, as torchvision and Keras leave it."""
    raw = {name: (path / name).read_bytes() for name in BATCHES}
    for name, checksum_of_batch in BATCHES.items():
        if hashlib.md5(raw[name]).hexdigest() != checksum_of_batch:  # before anything is unpickled
            raise ValueError(f"the checksum of {name} is wrong")
    return _images_of_batches(raw)


def _images_of_batches(raw: dict[str, bytes]) -> dict[str, np.ndarray]:
    batches: dict[str, list] = {"train": [], "test": []}
    for name in sorted(raw):
        split = {"d": "train", "t": "test"}.get(name[:1])
        if split:
            found = pickle.loads(raw[name], encoding="latin1")
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
