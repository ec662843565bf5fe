"""The container of every data set."""

import dataclasses
import pickle

import numpy as np
import pytest

import data_gen
from data_gen.core.dataset import Dataset, DatasetUnavailable


def arrays(n, p=3, q=1):
    return np.arange(n * p, dtype=np.float32).reshape(n, p), np.zeros((n, q), np.float32)


def test_it_is_frozen_and_checks_what_it_holds():
    data = Dataset(*arrays(4), {0: arrays(2)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.u_train = None
    with pytest.raises(ValueError, match=r"train: 4 inputs \(4, 3\) but 5 targets \(5, 1\)"):
        Dataset(arrays(4)[0], arrays(5)[1], {})
    with pytest.raises(ValueError, match=r"test\[7\]: 2 inputs"):
        Dataset(*arrays(4), {7: (arrays(2)[0], arrays(3)[1])})
    with pytest.raises(
        ValueError, match=r"test\[7\]: a sample has shapes \(2,\) -> \(1,\), in training \(3,\) -> \(1,\)"
    ):
        Dataset(*arrays(4), {7: arrays(2, p=2)})


def test_checksum_sees_values_dtypes_shapes_and_shifts():
    u, y = arrays(4)
    reference = Dataset(u, y, {0: (u, y)})
    assert reference.checksum() == Dataset(u.copy(), y.copy(), {0: (u, y)}, {"name": "other"}).checksum()
    changed = u.copy()
    changed[3, 2] += 1e-3
    others = [
        Dataset(changed, y, {0: (u, y)}),
        Dataset(u, y, {1: (u, y)}),
        Dataset(u, y, {}),
        Dataset(u.view(np.int32), y, {0: (u.view(np.int32), y)}),
        Dataset(u.reshape(4, 3, 1), y, {0: (u.reshape(4, 3, 1), y)}),
    ]
    assert len({reference.checksum(), *(data.checksum() for data in others)}) == 6
    # A transposed view and its contiguous copy hold the same numbers.
    wide = np.asfortranarray(u)
    assert Dataset(wide, y, {0: (u, y)}).checksum() == reference.checksum()


def test_it_travels_between_processes():
    data = Dataset(*arrays(4), {0: arrays(2)}, {"name": "toy"})
    copy = pickle.loads(pickle.dumps(data))
    assert copy.checksum() == data.checksum() and copy.meta == data.meta


def test_the_package_names_its_generators_lazily():
    assert {"identity", "addition", "subtraction", "fashion_mnist", "mnist", "Dataset"} <= set(dir(data_gen))
    assert data_gen.DatasetUnavailable is DatasetUnavailable
    with pytest.raises(AttributeError, match="imagenet"):
        _ = data_gen.imagenet
