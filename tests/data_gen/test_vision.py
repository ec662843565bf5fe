"""Image data sets: facts of the real ones where they are at hand, subsets and the stand-in."""

import hashlib

import numpy as np
import pytest

from data_gen.core import idx
from data_gen.core.dataset import DatasetUnavailable
from data_gen.core.idx import Collection, to_idx
from data_gen.images import vision

# MD5 of the raw IDX files as they circulate; the product pins SHA-256, computed from these bytes.
MD5 = {
    "fashion_mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
}


@pytest.fixture
def no_source(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "debian")
    return tmp_path


@pytest.fixture
def toy(no_source, monkeypatch):
    """Fashion-MNIST replaced by 30 + 20 random 4 x 4 images in the same form."""
    rng = np.random.default_rng(0)
    arrays = (
        rng.integers(0, 256, (30, 4, 4), dtype=np.uint8),
        rng.integers(0, 10, 30, dtype=np.uint8),
        rng.integers(0, 256, (20, 4, 4), dtype=np.uint8),
        rng.integers(0, 10, 20, dtype=np.uint8),
    )
    folder = no_source / "nothing" / "fashion-mnist"
    folder.mkdir(parents=True)
    checksums = {}
    for name, array in zip(vision.FILES, arrays):
        (folder / name).write_bytes(to_idx(array))
        checksums[name] = hashlib.sha256(to_idx(array)).hexdigest()
    monkeypatch.setattr(vision, "FASHION_MNIST", Collection("fashion_mnist", checksums, "MIT", "https://x.invalid"))
    return arrays


@pytest.mark.parametrize("name", ["fashion_mnist", "mnist"])
def test_facts_of_the_real_data_or_a_full_account_of_its_absence(name, monkeypatch):
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    collection = getattr(vision, name.upper())
    try:
        resolved = idx.resolve(collection)
    except DatasetUnavailable as error:
        assert error.name == name and len(error.attempts) >= 2 and collection.home in str(error)
        return
    assert tuple(hashlib.md5(resolved.content[file]).hexdigest() for file in vision.FILES) == MD5[name]
    data = getattr(vision, name)()
    assert data.u_train.shape == (60_000, 784) and data.u_train.dtype == np.float32 and data.y_train.dtype == np.int64
    u, y = data.test[0]
    assert u.shape == (10_000, 784) and y.shape == (10_000,)
    assert data.u_train.min() == 0 and data.u_train.max() == 1
    # Fashion-MNIST is balanced; MNIST's published training counts of 0 and 1 are 5,923 and 6,742.
    counts = np.bincount(data.y_train, minlength=10)
    assert set(counts) == {6000} if name == "fashion_mnist" else tuple(counts[:2]) == (5923, 6742)
    # The first training image: an ankle boot, a five.
    assert data.y_train[0] == (9 if name == "fashion_mnist" else 5)
    assert data.meta["substituted"] is False and data.meta["banner"] == ""


def test_images_are_scaled_and_kept_in_order(toy):
    data = vision.fashion_mnist()
    np.testing.assert_allclose(data.u_train, toy[0].reshape(30, 16) / 255, atol=1e-7)
    assert np.array_equal(data.test[0][1], toy[3])
    assert data.meta["image_shape"] == (4, 4) and data.meta["classes"][9] == "Ankle boot"
    assert data.meta["source"].startswith("IMPLICIT_DATA")


def test_subsets_are_seeded_pairs_without_repetition(toy):
    data = vision.fashion_mnist(seed=3, n_train=10, n_test=5)
    images = {row.tobytes(): label for row, label in zip(toy[0].reshape(30, 16), toy[1])}
    kept = [np.rint(row * 255).astype(np.uint8).tobytes() for row in data.u_train]
    assert len(set(kept)) == 10 and [images[row] for row in kept] == list(data.y_train)
    assert data.checksum() == vision.fashion_mnist(seed=3, n_train=10, n_test=5).checksum()
    assert data.checksum() != vision.fashion_mnist(seed=4, n_train=10, n_test=5).checksum()
    with pytest.raises(ValueError, match="n_train must be between 1 and 30 for fashion_mnist, got 31"):
        vision.fashion_mnist(n_train=31)
    with pytest.raises(ValueError, match="n_test .* got 0"):
        vision.fashion_mnist(n_test=0)


def test_digits_split_covers_the_bundle_once():
    from sklearn.datasets import load_digits

    data = vision.digits(seed=1)
    assert data.u_train.shape == (1437, 64) and data.test[0][0].shape == (360, 64)
    together = np.concatenate([data.u_train, data.test[0][0]])
    expected = load_digits().data / 16
    assert np.array_equal(np.sort(together, axis=0), np.sort(expected, axis=0).astype(np.float32))


def test_auto_prefers_fashion_mnist(toy):
    assert vision.load("auto").meta["name"] == "fashion_mnist"
    assert not vision.load("auto").meta["substituted"]


def test_auto_declares_its_stand_in(no_source):
    with pytest.warns(UserWarning, match="digits instead"):
        data = vision.load("auto", n_train=60_000, n_test=100)
    assert data.meta["substituted"] is True and data.meta["name"] == "digits"
    assert "1437 training and 100 test images" in data.meta["banner"] and "IMPLICIT_OFFLINE" in data.meta["banner"]


@pytest.mark.parametrize("name", ["fashion_mnist", "mnist"])
def test_a_named_set_has_no_stand_in(no_source, name):
    with pytest.raises(DatasetUnavailable, match=name):
        vision.load(name)


def test_unknown_name():
    with pytest.raises(ValueError, match="got 'cifar'"):
        vision.load("cifar")
    assert vision.load("digits", n_train=5).u_train.shape == (5, 64)


def test_fingerprint_tells_a_set_from_its_stand_in(toy):
    vision.fingerprint.cache_clear()
    real = vision.fingerprint("auto")
    assert real.startswith("fashion_mnist:") and real == vision.fingerprint("fashion_mnist")
    vision.fingerprint.cache_clear()


def test_fingerprint_of_the_stand_in_is_quiet(no_source, recwarn):
    vision.fingerprint.cache_clear()
    assert vision.fingerprint("auto").startswith("digits:") and not recwarn.list
    with pytest.raises(DatasetUnavailable):
        vision.fingerprint("mnist")
    vision.fingerprint.cache_clear()
