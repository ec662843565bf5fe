"""CIFAR-10 and the weights of its ResNet-20: what is read is what the checksums say, and what is not there is told."""

import io
import lzma
import pickle
import tarfile

import numpy as np
import pytest

from data_gen.core.dataset import DatasetUnavailable
from data_gen.images import cifar


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty IMPLICIT_DATA, an empty cache, no network."""
    monkeypatch.setenv("IMPLICIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IMPLICIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def made(n_train=20, n_test=10):
    rng = np.random.default_rng(0)
    out = {}
    for split, n in (("train", n_train), ("test", n_test)):
        out[f"x_{split}"] = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        out[f"y_{split}"] = (np.arange(n) % 10).astype(np.uint8)
    return out


def write_subset(folder, arrays, monkeypatch):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    (folder / cifar.SUBSET).write_bytes(lzma.compress(buffer.getvalue()))
    monkeypatch.setattr(cifar, "SUBSET_SHA256", cifar.checksum(arrays))


def write_archive(folder, arrays, monkeypatch):
    """Five training batches and a test batch, as the official archive holds them."""
    path = folder / cifar.ARCHIVE
    with tarfile.open(path, "w:gz") as archive:
        parts = [(f"data_batch_{k + 1}", arrays["x_train"][k::5], arrays["y_train"][k::5]) for k in range(5)]
        for name, x, y in (*parts, ("test_batch", arrays["x_test"], arrays["y_test"])):
            raw = pickle.dumps({"data": x.transpose(0, 3, 1, 2).reshape(len(x), -1), "labels": y.tolist()}, protocol=2)
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    import hashlib

    monkeypatch.setattr(cifar, "ARCHIVE_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())


def test_images_are_planes_of_colour_between_0_and_1(folder, monkeypatch):
    arrays = made()
    write_subset(folder, arrays, monkeypatch)
    data = cifar.cifar10()
    assert data.meta["name"] == "cifar10_12k" and data.u_train.shape == (20, 3072) and data.u_train.dtype == np.float32
    pixel = data.u_train.reshape(-1, *cifar.SHAPE)[3, 2, 5, 7]
    assert pixel == np.float32(arrays["x_train"][3, 5, 7, 2]) / np.float32(255)
    assert data.y_train.tolist() == arrays["y_train"].tolist() and set(data.test) == {0}


def test_archive_is_preferred_and_read_in_order(folder, monkeypatch):
    arrays = made(20, 10)
    write_archive(folder, arrays, monkeypatch)
    write_subset(folder, made(5, 5), monkeypatch)
    found = cifar._images_of_archive(folder / cifar.ARCHIVE)
    np.testing.assert_array_equal(found["x_train"], np.concatenate([arrays["x_train"][k::5] for k in range(5)]))
    np.testing.assert_array_equal(found["y_test"], arrays["y_test"])
    assert len(cifar.cifar10().y_train) == 20 and len(cifar.cifar10(subset=True).y_train) == 5


@pytest.mark.parametrize("place", ["data/{0}", "keras/datasets/{0}", "keras/datasets/{0}-target/{0}"])
def test_the_unpacked_archive_of_torchvision_and_keras_is_found(folder, monkeypatch, place):
    import hashlib

    arrays = made(20, 10)
    write_archive(folder, arrays, monkeypatch)
    with tarfile.open(folder / cifar.ARCHIVE) as archive:
        archive.extractall(folder.parent / "unpacked", filter="data")
    (folder / cifar.ARCHIVE).unlink()
    target = folder.parent / place.format(cifar.UNPACKED)
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "unpacked" / cifar.UNPACKED).rename(target)
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in target.iterdir()}
    monkeypatch.setattr(cifar, "BATCHES", sums)
    data = cifar.cifar10()
    assert len(data.y_train) == 20 and str(target) in data.meta["source"]
    np.testing.assert_array_equal(data.test[0][1], arrays["y_test"])
    (target / "data_batch_3").write_bytes(b"not these")
    with pytest.warns(UserWarning, match="the checksum of data_batch_3 is wrong"), pytest.raises(DatasetUnavailable):
        cifar.cifar10()
    (target / "data_batch_3").unlink()
    with pytest.raises(DatasetUnavailable, match="no data_batch_3 in it"):
        cifar.cifar10()


def test_choice_of_samples(folder, monkeypatch):
    write_subset(folder, made(), monkeypatch)
    one, same, other = (cifar.cifar10(seed, 7, 4) for seed in (0, 0, 1))
    assert one.checksum() == same.checksum() != other.checksum() and len(one.y_train) == 7 and len(one.test[0][1]) == 4
    with pytest.raises(ValueError, match="n_train must be between 1 and 20 for cifar10_12k, got 21"):
        cifar.cifar10(0, 21)


def test_damaged_and_missing_files_are_told(folder, monkeypatch):
    write_subset(folder, made(), monkeypatch)
    monkeypatch.setattr(cifar, "SUBSET_SHA256", "0" * 64)
    with (
        pytest.warns(UserWarning, match="damaged or foreign .its checksum is wrong."),
        pytest.raises(DatasetUnavailable) as error,
    ):
        cifar.cifar10()
    text = str(error.value)
    assert (
        "no such file" in text
        and "its checksum is wrong" in text
        and "IMPLICIT_OFFLINE" in text
        and cifar.ARCHIVE in text
    )
    with pytest.raises(DatasetUnavailable, match=cifar.WEIGHTS):
        cifar.resnet20_weights()


def test_weights_of_a_checkpoint_are_those_of_the_arrays(folder, monkeypatch):
    import torch

    tensors = {"conv1.weight": torch.randn(2, 3), "bn1.running_var": torch.rand(4)}
    state = {f"module.{name}": t for name, t in tensors.items()} | {"module.bn1.num_batches_tracked": torch.tensor(3)}
    torch.save({"state_dict": state}, folder / cifar.CHECKPOINT)
    monkeypatch.setattr(cifar, "WEIGHTS_SHA256", cifar.checksum({name: t.numpy() for name, t in tensors.items()}))
    found, source = cifar.resnet20_weights()
    assert (
        set(found) == set(tensors)
        and np.array_equal(found["conv1.weight"], tensors["conv1.weight"].numpy())
        and cifar.CHECKPOINT in source
    )


def test_the_archive_is_fetched_checked_and_kept(folder, monkeypatch):
    write_archive(folder, made(), monkeypatch)
    served = (folder / cifar.ARCHIVE).rename(folder.parent / "served.tar.gz")
    monkeypatch.setitem(cifar.HOMES, cifar.ARCHIVE, served.as_uri())
    with pytest.raises(DatasetUnavailable, match=r"network: forbidden by IMPLICIT_OFFLINE"):
        cifar.cifar10()
    monkeypatch.setenv("IMPLICIT_OFFLINE", "0")
    assert cifar.cifar10().meta["source"] == f"official home ({served.as_uri()})"
    cached = folder.parent / "cache" / "datasets" / "cifar10"
    assert cifar.cifar10().meta["source"] == f"cache ({cached / cifar.ARCHIVE})"
    assert {path.name for path in cached.iterdir()} == {cifar.ARCHIVE, f"{cifar.ARCHIVE}.lock"}
    (cached / cifar.ARCHIVE).unlink()
    served.write_bytes(b"a page that says sorry")
    with pytest.raises(DatasetUnavailable) as error:
        cifar.cifar10(subset=False)
    assert (f"official home ({served.as_uri()})", f"{cifar.ARCHIVE}: its checksum is wrong") in error.value.attempts
    assert not (cached / cifar.ARCHIVE).exists()
    with pytest.raises(DatasetUnavailable) as error:  # the subset has no home: only folders are asked
        cifar.cifar10(subset=True)
    assert [why for _, why in error.value.attempts] == ["no such file", "no such file"]
