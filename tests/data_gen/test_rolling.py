"""Rolling average and argmax: brute force, moments, and what the papers' extrapolation rests on."""

import numpy as np
import pytest

from data_gen import rolling_argmax, rolling_average


def test_average_is_the_mean_of_what_was_seen():
    data = rolling_average(50, 20, length=7, shifts=(0.0, 40.0), seed=3)
    for u, y in ((data.u_train, data.y_train), data.test[40.0]):
        expected = [[np.mean(row[: j + 1].astype(np.float64)) for j in range(7)] for row in u]
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        assert u.dtype == y.dtype == np.float32 and u.shape == y.shape


def test_average_has_the_papers_distribution():
    data = rolling_average(seed=0)
    assert data.u_train.shape == (10_000, 10) and data.test[100.0][0].shape == (3_000, 10)
    assert data.u_train.mean() == pytest.approx(3, abs=0.02) and data.u_train.std() == pytest.approx(1, abs=0.02)
    assert data.test[100.0][0].mean() == pytest.approx(103, abs=0.03) and data.test[100.0][0].std() == pytest.approx(
        1, abs=0.03
    )


def test_argmax_is_the_index_of_the_largest_so_far():
    data = rolling_argmax(200, 30, length=6, scales=(1.0, 1e5), seed=1)
    for u, y in ((data.u_train, data.y_train), data.test[1e5]):
        expected = [[int(np.argmax(row[: j + 1])) for j in range(6)] for row in u]
        np.testing.assert_array_equal(y, expected)
        assert y.dtype == np.int64
    assert data.test[1e5][0].max() > 9e4 and data.u_train.max() < 1


def test_argmax_ties_go_to_the_first(monkeypatch):
    import data_gen.synthetic.rolling as module

    class Rounded:
        def uniform(self, low, high, shape):
            return np.random.default_rng(0).integers(0, 3, shape).astype(float)

    monkeypatch.setattr(module, "stream", lambda *key: Rounded())
    data = rolling_argmax(100, 1, length=8, scales=(1.0,), seed=0)
    np.testing.assert_array_equal(
        data.y_train, [[int(np.argmax(row[: j + 1])) for j in range(8)] for row in data.u_train]
    )


def test_labels_of_the_last_step_are_uniform():
    counts = np.bincount(rolling_argmax(20_000, 1, seed=5).y_train[:, -1], minlength=10) / 20_000
    np.testing.assert_allclose(counts, 0.1, atol=4 * np.sqrt(0.09 / 20_000))


@pytest.mark.parametrize("make", [rolling_average, rolling_argmax])
def test_same_seed_same_arrays(make):
    assert make(30, 5, seed=2).checksum() == make(30, 5, seed=2).checksum() != make(30, 5, seed=3).checksum()


def test_length_one():
    data = rolling_average(4, 2, length=1, seed=0)
    np.testing.assert_array_equal(data.u_train, data.y_train)
    assert not rolling_argmax(4, 2, length=1, seed=0).y_train.any()


def test_the_ends_of_float32_are_held():
    ends = (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
    data = rolling_argmax(4, 200, scales=[1.0, *map(float, ends)], seed=0)
    for scale in map(float, ends):
        u, y = data.test[scale]
        assert np.isfinite(u).all() and y.max() == 9 and (y[:, -1] == u.argmax(axis=1)).all()
    u, y = rolling_average(4, 200, mean=0.0, shifts=[float(ends[1])], seed=0).test[float(ends[1])]
    assert np.isfinite(u).all() and np.isfinite(y).all()


@pytest.mark.parametrize(
    ("make", "arguments", "error", "message"),
    [
        (rolling_average, {"n_train": 0}, ValueError, "n_train must be at least 1, got 0"),
        (rolling_average, {"length": 2.5}, TypeError, "length must be an integer, got 2.5"),
        (rolling_average, {"shifts": [float("nan")]}, ValueError, "shifts must be finite, got nan"),
        (rolling_average, {"shifts": [0.0, -1e39]}, ValueError, "shifts must fit into float32, .*, got -1e.39"),
        (rolling_average, {"mean": 3e38, "shifts": [1e38]}, ValueError, "shifts must fit into float32, .*, got 1e.38"),
        (rolling_average, {"mean": 1e39}, ValueError, "mean must fit into float32, 3.4e.38 at most, got 1e.39"),
        (rolling_argmax, {"scales": [1.0, -2.0]}, ValueError, "scales must be positive, got -2.0"),
        (rolling_argmax, {"scales": [1e39]}, ValueError, "scales must fit into float32, 3.4e.38 at most, got 1e.39"),
        (rolling_argmax, {"scales": [1e-46]}, ValueError, "scales below 1.18e-38 make ties in float32, got 1e-46"),
    ],
)
def test_bad_arguments_are_named(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(seed=0, **arguments)
