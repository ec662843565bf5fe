"""Scores of a forecast: by hand, of perfect and constant forecasts, and the rule for windows without movement."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.ch5_volatility.scores import SCORE_LABELS, calibration, rolling_mean, scores

positive = st.lists(st.floats(1e-6, 1e4), min_size=2, max_size=30).map(np.array)


def test_by_hand():
    found = scores(np.array([2.0, 1.0, -1.0]), np.array([1.0, 4.0, 2.0]))
    assert tuple(found) == tuple(SCORE_LABELS)
    assert found["mape"] == pytest.approx((1 + 0.75 + 1.5) / 3) and found["median_ape"] == 1
    assert found["rmse"] == pytest.approx(np.sqrt((1 + 9 + 9) / 3)) and found["not_positive"] == pytest.approx(1 / 3)
    assert found["mean_ratio"] == pytest.approx(2 / 7)
    ratio = np.array([0.5, 4, 2 / 1e-9])
    assert found["qlike"] == pytest.approx(np.mean(ratio - np.log(ratio) - 1))
    log = np.log([1.0, 4, 2])
    assert found["log_r2"] == pytest.approx(1 - np.sum(np.log(ratio) ** 2) / np.sum((log - log.mean()) ** 2))


@settings(max_examples=25, deadline=None)
@given(variance=positive)
def test_zero_scores_one_and_truth_scores_nothing(variance):
    assert scores(np.zeros(len(variance)), variance)["mape"] == 1
    perfect = scores(variance, variance)
    assert perfect["mape"] == perfect["rmse"] == 0 and perfect["qlike"] == pytest.approx(0, abs=1e-12)
    assert np.isnan(perfect["log_r2"]) or perfect["log_r2"] == 1


@settings(max_examples=25, deadline=None)
@given(variance=positive.filter(lambda v: np.ptp(np.log(v)) > 0.1), factor=st.floats(1e-2, 1))
def test_too_little_costs_at_most_one_in_mape_and_any_amount_in_log_r2(variance, factor):
    found = scores(factor * variance, variance)
    assert found["mape"] == pytest.approx(1 - factor, abs=1e-9)
    # the logarithms are off by ln(factor) everywhere, whose square stands beside their variance
    assert found["log_r2"] == pytest.approx(1 - np.log(factor) ** 2 / np.log(variance).var(), rel=1e-6, abs=1e-9)


def test_a_hundredth_of_the_truth_has_log_r2_far_below_zero():
    variance = np.array([0.5, 1.0, 2.0, 4.0])
    found = scores(variance / 100, variance)
    assert found["mape"] == pytest.approx(0.99) and found["log_r2"] < -30


@settings(max_examples=25, deadline=None)
@given(variance=positive.filter(lambda v: np.ptp(np.log(v)) > 0.1))
def test_the_best_constant_has_log_r2_zero(variance):
    assert scores(np.full(len(variance), np.exp(np.mean(np.log(variance)))), variance)["log_r2"] == pytest.approx(
        0, abs=1e-9
    )


def test_windows_without_movement_are_left_out_of_relative_scores_only():
    with_still = scores(np.array([1.0, 1.0, 1.0]), np.array([2.0, 4.0, 0.0]))
    without = scores(np.array([1.0, 1.0]), np.array([2.0, 4.0]))
    for name in ("mape", "median_ape", "qlike", "log_r2"):
        assert with_still[name] == without[name]
    assert with_still["rmse"] == pytest.approx(np.sqrt((1 + 9 + 1) / 3)) and with_still["mean_ratio"] == pytest.approx(
        3 / 6
    )


def test_forecasts_that_are_not_finite_stay_visible():
    assert np.isnan(scores(np.array([np.nan, 1.0]), np.array([1.0, 1.0]))["mape"])
    assert np.isinf(scores(np.array([np.inf, 1.0]), np.array([1.0, 2.0]))["rmse"])


@pytest.mark.parametrize(
    "forecast, variance, message",
    [
        ([1.0], [1.0, 2.0], r"\(1,\) and variances \(2,\)"),
        ([1.0, 1.0], [1.0, -1.0], "variance 1 is -1.0"),
        ([1.0], [np.nan], "variance 0 is nan"),
        ([1.0, 1.0], [0.0, 1e-12], "none of 2 variances"),
    ],
)
def test_bad_input_is_named(forecast, variance, message):
    with pytest.raises(ValueError, match=message):
        scores(np.array(forecast), np.array(variance))


def test_calibration_in_bins():
    level = np.repeat([0.5, 5.0, 50.0], [30, 20, 19])  # twenty samples are enough
    forecast, variance = (
        np.repeat([1.0, 2.0, 3.0, 8.0, 1.0], [10, 10, 10, 20, 19]),
        np.repeat([1.0, 4.0, 1.0], [30, 20, 19]),
    )
    found = calibration(forecast, variance, level, [0.1, 1, 10, 100])
    assert found[:2] == [2.0, 2.0] and np.isnan(found[2])


def test_rolling_mean_of_daily_means():
    sessions = {"a": np.array([1.0, 3.0]), "b": np.array([4.0]), "c": np.array([0.0])} | {
        k: np.zeros(2) for k in range(20)
    }
    days, values = rolling_mean(sessions)
    assert days == list(sessions) and values[:3] == [2.0, 3.0, 2.0]
    # the last of 21 sessions still has the first, the two after it lose one each
    assert values[20:] == pytest.approx([6 / 21, 4 / 21, 0.0])
