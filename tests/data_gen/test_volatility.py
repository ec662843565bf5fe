"""The volatility task: windows by brute force, no leakage, scales, and its two forms under shifts and dilations of the
price."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.market.minutes import minute_market
from data_gen.market.volatility import ZERO_VARIANCE, to_variance, volatility, window_variance
from test_minute_bars import without


@pytest.fixture(scope="module")
def bars():
    return minute_market(4, "2020-12-21", "2021-01-08")


def test_samples_are_those_of_brute_force(bars):
    data = volatility(bars, scaling="raw", seed=0)
    for name, chosen in (
        ("train", bars.date < np.datetime64("2021-01-01")),
        (2021, bars.date >= np.datetime64("2021-01-01")),
    ):
        expected_u, expected_y = [], []
        for day in np.unique(bars.day[chosen]):
            vwap = bars.vwap[bars.day == day]
            for start in range(0, len(vwap) - 69, 10):
                expected_u.append(vwap[start : start + 60])
                expected_y.append(np.var(vwap[start + 60 : start + 70]))
        np.testing.assert_array_equal(data.meta["history"][name], expected_u)
        np.testing.assert_allclose(data.meta["variance"][name], expected_y, rtol=1e-9, atol=1e-22)
    assert data.u_train.shape == (7 * 33 + 15, 60)  # seven full sessions and Christmas Eve's half


def test_no_minute_is_on_both_sides_of_the_split(bars):
    data = volatility(bars, seed=0)
    assert data.meta["date"]["train"].max() == np.datetime64("2020-12-31")
    assert data.meta["date"][2021].min() == np.datetime64("2021-01-04")


def test_full_years_have_the_known_numbers_of_samples():
    data = volatility(seed=0)
    assert len(data.u_train) == 48_969 and len(data.test[2021][0]) == 8_298
    ratio = data.meta["variance"][2021].mean() / data.meta["variance"]["train"].mean()
    assert 10 < ratio < 300


def test_windows_do_not_cross_a_gap(bars):
    whole, gap = volatility(bars, scaling="raw", seed=0), volatility(without(bars, 100), scaling="raw", seed=0)
    assert len(whole.u_train) - len(gap.u_train) == 7  # starts at 40, 50, ..., 100 of the first session


def test_differences_and_deviations(bars):
    raw, form = volatility(bars, scaling="raw", seed=0), volatility(bars, inputs="difference", target="sd", seed=0)
    assert form.u_train.shape == (len(raw.u_train), 59)
    np.testing.assert_allclose(
        form.u_train * form.meta["input_scale"], np.diff(raw.meta["history"]["train"], axis=1), atol=1e-6
    )
    np.testing.assert_allclose(
        to_variance(form.y_train, form.meta), raw.meta["variance"]["train"], rtol=1e-5, atol=1e-14
    )
    assert np.sqrt(np.mean(form.u_train**2)) == pytest.approx(1, rel=1e-5) and form.y_train.std() == pytest.approx(
        1, rel=1e-5
    )


def test_price_form_is_scaled_by_the_training_part_alone(bars):
    data = volatility(bars, seed=0)
    assert data.u_train.mean() == pytest.approx(1, rel=1e-5) and data.y_train.std() == pytest.approx(1, rel=1e-5)
    u, y = data.test[2021]
    np.testing.assert_allclose(u * data.meta["input_scale"], data.meta["history"][2021], rtol=1e-6)
    np.testing.assert_allclose(to_variance(y, data.meta), data.meta["variance"][2021], rtol=1e-5, atol=1e-14)


def test_negative_outputs_stay_negative_variances():
    meta = {"target": "sd", "target_scale": 2.0}
    np.testing.assert_array_equal(to_variance(np.array([[-1.0], [3.0]]), meta), [-4.0, 36.0])
    np.testing.assert_array_equal(to_variance(np.array([[-1.0]]), meta | {"target": "variance"}), [-2.0])


@settings(max_examples=20, deadline=None)
@given(shift=st.floats(-1e3, 1e6), factor=st.floats(1e-3, 1e3))
def test_variance_knows_no_level_and_is_of_degree_two(shift, factor):
    prices = np.random.default_rng(0).normal(0, 0.01, (5, 10))
    base = window_variance(prices)
    np.testing.assert_allclose(window_variance(factor * prices), factor**2 * base, rtol=1e-12)
    # adding a level rounds the prices themselves: to half a unit in the last place of it
    np.testing.assert_allclose(window_variance(prices + shift), base, rtol=1e-7 * (1 + abs(shift) / 1e3))


def test_calm_windows_keep_their_digits():
    """One price of ten a unit of 1/100 cent higher: .09e-8, of which E w^2 - (E w)^2 would keep nothing at $3,000."""
    prices = np.full((1, 10), 3000.0)
    prices[0, 4] += 1e-4
    assert window_variance(prices)[0] == pytest.approx(9e-10, rel=1e-6) and window_variance(prices)[0] < ZERO_VARIANCE
    assert np.mean(prices**2) - np.mean(prices) ** 2 != pytest.approx(9e-10, rel=0.2)


def test_constant_series(bars):
    flat = dataclasses.replace(bars, vwap=np.full(len(bars), 3.0))
    data = volatility(flat, scaling="raw", seed=0)
    assert (data.y_train == 0).all() and (data.meta["variance"][2021] == 0).all()
    with pytest.raises(ValueError, match="training targets do not move"):
        volatility(flat, seed=0)
    with pytest.raises(ValueError, match="training inputs do not move"):
        volatility(flat, inputs="difference", seed=0)


def test_draw_of_samples_is_seeded_and_in_order(bars):
    a, b, c = (volatility(bars, n_train=50, seed=seed) for seed in (0, 0, 1))
    assert a.checksum() == b.checksum() != c.checksum() and len(a.u_train) == 50 and a.meta["available"] == 246
    assert (np.diff(a.meta["date"]["train"]) >= np.timedelta64(0)).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"look_back": 390}, "window of 400 minutes is longer than the longest session, 390"),
        ({"inputs": "returns"}, "inputs must be"),
        ({"target": "log"}, "target must be"),
        ({"scaling": "unit"}, "scaling must be"),
        ({"horizon": 1}, "horizon must be at least 2, got 1"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"n_train": 0}, "n_train must be at least 1, got 0"),
        ({"n_train": 10_000}, "there are 246 training samples"),
        ({"split": "2022-01-01"}, "0 from then on"),
        ({"split": "2020-01-01"}, "0 samples before"),
    ],
)
def test_bad_options_are_named(bars, options, message):
    with pytest.raises(ValueError, match=message):
        volatility(bars, seed=0, **options)


@pytest.mark.parametrize(
    "name, value", [("look_back", 60.0), ("horizon", "10"), ("stride", 2.5), ("stride", True), ("n_train", 50.0)]
)
def test_options_that_are_no_integers_are_named(bars, name, value):
    with pytest.raises(TypeError, match=f"{name} must be an integer, got {value!r}"):
        volatility(bars, seed=0, **{name: value})


def test_the_package_names_the_function():
    import data_gen

    assert data_gen.volatility is volatility and "volatility" in data_gen.__all__
