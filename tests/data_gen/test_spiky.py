"""The spiky series: its formula, the facts that the papers state, windows without leakage, and the scale behind the
published errors."""

import numpy as np
import pytest

from data_gen import spiky
from data_gen.synthetic.spiky import spike


def test_formula_inside_and_outside():
    data = spiky(noise=0.0, seed=4)
    y, inside, x = data.meta["series"], data.meta["spiky"], 100 / 9999 * np.arange(10_000)
    np.testing.assert_allclose(y[~inside], np.sin(x[~inside]), atol=1e-12)
    by_hand = 5 * (np.sin(2 * x) + np.sin(23 * x) + np.sin(78 * x) + np.sin(100 * x))
    np.testing.assert_allclose(y[inside], by_hand[inside], atol=1e-10)
    assert np.abs(spike(np.linspace(0, 100, 100_000))).max() <= 20


def test_counts_of_the_papers():
    inside = spiky(seed=0).meta["spiky"]
    assert inside.size == 10_000 and inside[:7_000].sum() == 2_000 and inside[7_000:].sum() == 900


def test_windows_are_the_series_and_do_not_cross_the_split():
    data = spiky(400, 300, 2, 1, look_back=5, horizon=3, seed=1)
    y = data.meta["series"]
    assert data.u_train.shape == (400 - 7, 5) and data.test[0][0].shape == (300 - 7, 5)
    for k in (0, 17, 392):
        np.testing.assert_allclose(data.u_train[k], y[k : k + 5], rtol=1e-6)
        assert data.y_train[k, 0] == np.float32(y[k + 7])
    np.testing.assert_allclose(data.test[0][0][0], y[400:405], rtol=1e-6)
    assert data.meta["target_spiky"]["train"].shape == (393,)
    np.testing.assert_array_equal(data.meta["target_spiky"]["test"], data.meta["spiky"][407:])


def test_restarted_spikes_are_equal():
    data = spiky(noise=0.0, restart=True, seed=2)
    starts = np.flatnonzero(data.meta["spiky"].reshape(-1, 100).all(axis=1)) * 100
    shapes = data.meta["series"][starts[:, None] + np.arange(100)]
    np.testing.assert_allclose(shapes, np.tile(spike(100 / 9999 * np.arange(100)), (29, 1)), atol=1e-9)


def test_noise_is_a_deviation():
    data = spiky(7_000, 3_000, 0, 0, noise=0.5, seed=3)
    rest = data.meta["series"] - np.sin(100 / 9999 * np.arange(10_000))
    assert rest.std() == pytest.approx(0.5, rel=0.03)


def test_on_the_unit_scale_a_constant_scores_the_published_error():
    """The published .011 of the LSTM and .012 of the transformer are those of a constant on [0, 1], the .004 that of
    persistence."""
    constant, persistence = [], []
    for seed in range(5):
        data = spiky(scaling="unit", noise=0.0, seed=seed)
        u, y = data.test[0]
        assert data.u_train.min() >= 0 and data.u_train.max() <= 1
        constant.append(float(np.mean((y - data.y_train.mean()) ** 2)))
        persistence.append(float(np.mean((y - u[:, -1:]) ** 2)))
    assert 0.009 < np.median(constant) < 0.0125 and 0.0035 < np.median(persistence) < 0.005


def test_scaling_is_undone_by_its_map():
    for scaling in ("unit", "standard"):
        data = spiky(scaling=scaling, seed=6)
        raw = spiky(seed=6)
        np.testing.assert_allclose(data.meta["offset"] + data.meta["scale"] * data.y_train, raw.y_train, atol=1e-5)
    assert spiky(scaling="standard", seed=6).meta["scale"] == pytest.approx(raw.meta["series"][:7_000].std())


def test_same_seed_same_series():
    assert spiky(seed=1).checksum() == spiky(seed=1).checksum() != spiky(seed=2).checksum()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_spikes": 71}, ValueError, "71 spikes of 100 points do not fit into n_train = 7000: there are 70 slots"),
        (
            {"n_test": 10, "n_spikes_test": 0},
            ValueError,
            "n_test = 10 is shorter than a window of 10 points and its target, 1 later",
        ),
        ({"noise": -0.1}, ValueError, "noise must be a finite number of at least 0, got -0.1"),
        ({"spacing": 0.0}, ValueError, "spacing must be a finite number above 0, got 0.0"),
        ({"scaling": "log"}, ValueError, "scaling must be 'raw', 'unit' or 'standard', got 'log'"),
        ({"look_back": True}, TypeError, "look_back must be an integer, got True"),
        ({"horizon": 0}, ValueError, "horizon must be at least 1, got 0"),
        ({"n_spikes_test": -1}, ValueError, "n_spikes_test must be at least 0, got -1"),
        ({"n_spikes": 2.0}, TypeError, "n_spikes must be an integer, got 2.0"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        spiky(seed=0, **arguments)
