"""Images as vectors: Fashion-MNIST, MNIST, and scikit-learn's digits as a declared stand-in."""

from __future__ import annotations

import functools
import hashlib
import warnings
from typing import Literal

import numpy as np

from data_gen.core.dataset import Dataset, DatasetUnavailable
from data_gen.core.idx import Collection, from_idx, resolve
from data_gen.core.streams import stream

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

FASHION_MNIST = Collection(
    name="fashion_mnist",
    files=dict(
        zip(
            FILES,
            (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        )
    ),
    licence="MIT (Zalando SE)",
    home="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    debian="dataset-fashion-mnist",
    torchvision="FashionMNIST",
)

MNIST = Collection(
    name="mnist",
    files=dict(
        zip(
            FILES,
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        )
    ),
    licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    # The authors' own page no longer serves the files; this is the copy that torchvision uses.
    home="https://ossci-datasets.s3.amazonaws.com/mnist",
    arrays=dict(zip(FILES, ("x_train", "y_train", "x_test", "y_test"))),
    torchvision="MNIST",
)

CLASSES = {
    "fashion_mnist": (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    "mnist": tuple("0123456789"),
    "digits": tuple("0123456789"),
}  # fmt: skip


def fashion_mnist(seed: int = 0, n_train: int | None = None, n_test: int | None = None) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 grey images of clothes, 28 x 28, ten classes.

    Args:
        seed: of the choice of samples; unused when both sizes are None.
        n_train, n_test: samples kept, drawn without replacement and evenly likely; None keeps all
            in the original order.

    Returns:
        Dataset with u (N, 784) float32 in [0, 1], y (N,) int64, and one test set, key 0. meta:
        name, sha256, licence, source, classes, image_shape, substituted, banner.

    Raises:
        DatasetUnavailable: no source has it; the message lists what was tried.
        ValueError: a size below 1 or above what there is.

    Source:
        Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747.
    """
    return _load_idx(FASHION_MNIST, seed, n_train, n_test)


def mnist(seed: int = 0, n_train: int | None = None, n_test: int | None = None) -> Dataset:
    """MNIST: 60,000 + 10,000 grey images of handwritten digits, 28 x 28.

    Arguments, result and errors are those of `fashion_mnist`.

    Source:
        LeCun, Bottou, Bengio and Haffner (1998), Proceedings of the IEEE 86.
    """
    return _load_idx(MNIST, seed, n_train, n_test)


def digits(seed: int = 0, n_train: int | None = None, n_test: int | None = None) -> Dataset:
    """Scikit-learn's bundled digits: 1,797 grey images, 8 x 8, split at random into 1,437 and 360.

    Args:
        seed: of the split and of the choice of samples.
        n_train, n_test: samples kept; None keeps all.

    Returns:
        Dataset as `fashion_mnist`'s, with u (N, 64).

    Raises:
        ValueError: a size below 1 or above what there is.

    Source:
        Alpaydin and Kaynak (1998), UCI machine learning repository, CC BY 4.0.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.data.astype(np.uint8), bunch.target.astype(np.uint8)
    order = stream(seed, "split").permutation(len(labels))
    train, test = order[:1437], order[1437:]
    meta = {
        "name": "digits",
        "sha256": {"images": hashlib.sha256(images.tobytes()).hexdigest()},
        "licence": "CC BY 4.0 (Alpaydin, Kaynak)",
        "source": "scikit-learn",
        "image_shape": (8, 8),
    }
    arrays = images[train], labels[train], images[test], labels[test]
    return _dataset(arrays, 16.0, meta, seed, n_train, n_test)


def load(
    dataset: Literal["auto", "fashion_mnist", "mnist", "digits"] = "auto",
    *,
    seed: int = 0,
    n_train: int | None = None,
    n_test: int | None = None,
) -> Dataset:
    """Load a set of images by name; "auto" is Fashion-MNIST, or, where it cannot be had, the digits.

    A stand-in is never silent: meta["substituted"] is True, meta["banner"] says so in words, and a
    warning is given. Results on it say nothing about the papers' figures.

    Args:
        dataset: name of the data set. Only "auto" allows a stand-in.
        seed, n_train, n_test: as in `fashion_mnist`. For the stand-in, sizes are capped at what
            there is, and the banner tells.

    Raises:
        DatasetUnavailable: the data set named is not to be had.
        ValueError: an unknown name, or a size outside the data set.
    """
    named = {"fashion_mnist": fashion_mnist, "mnist": mnist, "digits": digits}
    if dataset in named:
        return named[dataset](seed, n_train, n_test)
    if dataset != "auto":
        raise ValueError(f"dataset must be 'auto', 'fashion_mnist', 'mnist' or 'digits', got {dataset!r}")
    try:
        return fashion_mnist(seed, n_train, n_test)
    except DatasetUnavailable as error:
        sizes = [None if n is None else min(n, most) for n, most in ((n_train, 1437), (n_test, 360))]
        stand_in = digits(seed, *sizes)
        n_used = (len(stand_in.y_train), len(stand_in.test[0][1]))
        banner = (
            f"Fashion-MNIST could not be had: this run uses scikit-learn's 8 x 8 digits instead ({n_used[0]} training "
            f"and {n_used[1]} test images). No figure here is comparable with the papers'. {error}"
        )
        warnings.warn(banner, stacklevel=2)
        return Dataset(
            stand_in.u_train, stand_in.y_train, stand_in.test, {**stand_in.meta, "substituted": True, "banner": banner}
        )


@functools.cache
def fingerprint(dataset: str = "auto") -> str:
    """Name and checksum of the data set that `load` resolves now, for content keys.

    A run on Fashion-MNIST and one on its stand-in must not share a key.

    Args:
        dataset: as for `load`.

    Returns:
        "name:sha256", the checksum being that of the raw content.

    Raises:
        DatasetUnavailable, ValueError: as `load`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notebook that uses the stand-in says so itself
        meta = load(dataset).meta
    checksums = meta["sha256"]
    text = checksums if isinstance(checksums, str) else "".join(checksums[name] for name in sorted(checksums))
    return f"{meta['name']}:{hashlib.sha256(text.encode()).hexdigest()}"


def _load_idx(collection: Collection, seed: int, n_train: int | None, n_test: int | None) -> Dataset:
    resolved = resolve(collection)
    arrays = [from_idx(resolved.content[name]) for name in FILES]
    meta = {
        "name": collection.name,
        "sha256": dict(collection.files),
        "licence": collection.licence,
        "source": resolved.source,
        "image_shape": arrays[0].shape[1:],
    }
    return _dataset(arrays, 255.0, meta, seed, n_train, n_test)


def _dataset(arrays, white: float, meta: dict, seed: int, n_train: int | None, n_test: int | None) -> Dataset:
    splits = []
    for split, size, images, labels in (("train", n_train, *arrays[:2]), ("test", n_test, *arrays[2:])):
        if size is not None:
            if not 1 <= size <= len(labels):
                raise ValueError(f"n_{split} must be between 1 and {len(labels)} for {meta['name']}, got {size}")
            kept = stream(seed, f"subset {split}").permutation(len(labels))[:size]
            images, labels = images[kept], labels[kept]
        u = images.reshape(len(labels), -1).astype(np.float32) / np.float32(white)
        splits.append((u, labels.astype(np.int64)))
    (u_train, y_train), test = splits
    meta = {**meta, "seed": seed, "classes": CLASSES[meta["name"]], "substituted": False, "banner": ""}
    return Dataset(u_train, y_train, {0: test}, meta)
