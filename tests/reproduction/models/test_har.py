"""Controls of the volatility task: brute force, exact recovery of known coefficients, and constants that minimise what
they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.market.volatility import ZERO_VARIANCE, window_variance
from reproduction.models.har import (
    HAR,
    Constant,
    Persistence,
    PriceRegression,
    Scaled,
    controls,
    least_mape_constant,
    past_variances,
)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    sigma = np.exp(rng.normal(-4, 0.7, (400, 1)))
    walk = 20 + np.cumsum(sigma * rng.normal(size=(400, 70)), axis=1)
    return walk[:, :60], window_variance(walk[:, 60:])


def test_past_variances_by_hand():
    history = np.array([[1.0, 1.0, 2.0, 4.0]])
    np.testing.assert_allclose(past_variances(history, (2, 4)), [[1.0, np.var([1, 1, 2, 4]), 4.0, (0 + 1 + 4) / 3]])


def test_har_recovers_its_own_coefficients(samples):
    history, _ = samples
    true = np.array([1e-5, 0.2, 0.1, 0.05, 0.3, 0.4, 0.5])
    x = np.concatenate([np.ones((len(history), 1)), past_variances(history)], axis=1)
    model = HAR(history, x @ true)
    np.testing.assert_allclose(model(history), x @ true, rtol=1e-8)
    np.testing.assert_allclose(model.coefficients, true, rtol=1e-4, atol=1e-9)


def test_log_har_recovers_a_power_law(samples):
    history, _ = samples
    x = past_variances(history)
    target = 0.3 * x[:, 0] ** 0.4 * x[:, 5] ** 0.6
    np.testing.assert_allclose(HAR(history, target, logarithmic=True)(history), target, rtol=1e-8)


def test_log_har_is_of_degree_two_where_its_exponents_sum_to_one(samples):
    history, variance = samples
    model = HAR(history, variance, logarithmic=True)
    exponent = model.coefficients[1:].sum()
    np.testing.assert_allclose(model(3 * history), 9**exponent * model(history), rtol=1e-8)
    assert abs(exponent - 1) < 0.15


def test_price_regression_is_least_squares(samples):
    history, variance = samples
    x = np.concatenate([np.ones((len(history), 1)), history], axis=1)
    expected = x @ np.linalg.lstsq(x, variance, rcond=None)[0]
    np.testing.assert_allclose(
        PriceRegression(history, variance)(history), expected, atol=1e-6 * np.abs(expected).max()
    )


def test_persistence_and_constants(samples):
    history, variance = samples
    np.testing.assert_allclose(Persistence()(history), history[:, -10:].var(axis=1), rtol=1e-9)
    np.testing.assert_array_equal(Constant(2.0)(history), np.full(400, 2.0))
    fitted = controls(history, variance)
    assert fitted["zero"](history).max() == 0 and fitted["mean"](history)[0] == pytest.approx(variance.mean())


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=25))
def test_the_constant_of_least_mape(values):
    values = np.array(values)

    def mape(c):
        return np.mean(np.abs(c - values) / values)

    assert mape(least_mape_constant(values)) <= min(map(mape, values)) * (
        1 + 1e-12
    )  # the minimum lies at one of the values


def test_zero_variances_do_not_decide_the_constant():
    assert least_mape_constant(np.array([0.0, 0.0, ZERO_VARIANCE / 2, 3.0])) == 3.0
    with pytest.raises(ValueError, match="no variance is above"):
        least_mape_constant(np.array([0.0]))


def test_the_factor_of_least_mape(samples):
    history, variance = samples
    base = Persistence()
    scaled = Scaled(base, history, variance)

    def mape(c):
        return np.mean(np.abs(c * base(history) - variance) / variance)

    assert mape(scaled.factor) <= min(mape(c) for c in scaled.factor * np.array([0.5, 0.9, 0.99, 1.01, 1.1, 2]))
    np.testing.assert_allclose(scaled(history), scaled.factor * base(history))


def test_constant_series_give_finite_forecasts():
    history, variance = np.full((20, 60), 3.0), np.full(20, 1e-4)
    assert np.isfinite(HAR(history, variance)(history)).all()
    np.testing.assert_allclose(HAR(history, variance, logarithmic=True)(history), variance, rtol=1e-9)
    assert (Persistence()(history) == 0).all()


def test_bad_sizes_are_named(samples):
    history, variance = samples
    with pytest.raises(ValueError, match="horizon 61 is outside 2..60"):
        past_variances(history, (61,))
    with pytest.raises(ValueError, match="3 samples for 7 coefficients"):
        HAR(history[:3], variance[:3])
