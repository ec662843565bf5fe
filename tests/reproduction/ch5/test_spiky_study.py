"""Facts of the spiky series: controls by normal equations, floors by simulated forecasters, the recurrence of a
spike."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.synthetic.spiky import FREQUENCIES, spike, spiky
from reproduction.ch5_spiky import task
from reproduction.ch5_spiky.compute import (
    SPACING,
    closest_epoch,
    control_forecasts,
    floor,
    in_raw_units,
    resemblance,
    split_error,
    stretch,
    unit_factors,
)
from reproduction.core.registry import ARCHITECTURES
from reproduction.core.scores import count_parameters


def small(**options):
    return spiky(1_200, 800, 4, 2, **{"seed": 3, **options})


def test_controls_by_their_definitions():
    data = small(scaling="standard")
    found = control_forecasts(data)
    u, y = data.u_train.astype(float), data.y_train.astype(float)
    assert np.allclose(found["constant"][0], y.mean()) and np.allclose(found["constant"][1], y.mean())
    assert np.array_equal(found["persistence"][1][:, 0], data.test[0][0][:, -1].astype(float))
    residual = y - found["autoregression"][0]  # normal equations
    assert np.abs(u.T @ residual).max() < 1e-7 and abs(residual.sum()) < 1e-7


def test_autoregression_of_a_constant_series_is_that_constant():
    data = spiky(300, 200, 0, 0, noise=0.0, spacing=1e-9, seed=0)  # sin(x) of x next to nothing
    for trained, tested in control_forecasts(data).values():
        assert np.abs(trained).max() < 1e-5 and np.abs(tested).max() < 1e-5


def test_errors_split_by_the_place_of_the_target():
    target, forecast, inside = (
        np.array([[0.0], [1.0], [2.0], [3.0]]),
        np.array([[1.0], [1.0], [4.0], [3.0]]),
        np.array([0, 0, 1, 1], bool),
    )
    assert split_error(forecast, target, inside) == {"all": 1.25, "inside": 2.0, "outside": 0.5}
    with pytest.raises(ValueError, match=r"forecast \(3, 1\)"):
        split_error(forecast[:3], target, inside)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 5), st.floats(-3, 3), st.integers(0, 1000))
def test_resemblance_of_a_scaled_copy(factor, offset, seed):
    target = np.random.default_rng(seed).normal(size=(50, 1))
    inside = np.arange(50) % 2 == 0
    found = resemblance(factor * target + offset, target, inside)
    assert found["magnitude"] == pytest.approx(factor, rel=1e-9) and found["correlation"] == pytest.approx(1)
    assert resemblance(np.full_like(target, offset), target, inside) == {
        "magnitude": pytest.approx(0, abs=1e-12),
        "correlation": 0.0,
    }


@pytest.mark.parametrize("scaling", ["raw", "unit", "standard"])
def test_errors_change_units_as_the_generator_scales(scaling):
    factors = unit_factors(small(scaling=scaling))
    assert factors[scaling] == pytest.approx(1)
    errors = {
        name: float(np.mean((small(scaling=name).test[0][1] - small(scaling=name).test[0][0][:, -1:]) ** 2))
        for name in factors
    }
    for name in factors:
        assert errors[scaling] * factors[name] == pytest.approx(errors[name], rel=1e-4)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_floor_is_the_error_of_a_forecaster_who_expects_no_change(restart, noise):
    """Simulated: it is told the law, the phase and the regime of the present point, and goes on in it."""
    data = spiky(7_000, 3_000, 20, 9, noise=noise, restart=restart, scaling="standard", seed=5)
    series, inside = data.meta["series"], data.meta["spiky"]
    squared = []
    for k in range(7_010, 10_000):  # targets of the test part
        age = (k - 7_000) % 100
        at = SPACING * (age if restart else k)
        goes_on = inside[k - 1] and not (restart and age == 0)
        forecast = spike(at) if goes_on else np.sin(SPACING * k)
        squared.append((series[k] - forecast) ** 2)
    expected = np.mean(squared) / data.meta["scale"] ** 2
    found = floor(data, noise=noise, restart=restart)
    assert found["all"] == pytest.approx(expected, rel=0.1 if noise else 1e-6)  # the noise as drawn, not as expected
    assert found["all"] == pytest.approx(found["noise"] + found["entries"] + found["exits"])
    assert (found["exits"] == 0) == restart and (found["noise"] > 0) == (noise > 0)


def test_a_spike_satisfies_a_linear_recurrence_of_order_eight():
    x = SPACING * np.arange(200) + 1.7
    # sin(f x) is annihilated by the polynomial whose roots are exp(i f SPACING) and its conjugate
    roots = np.exp(1j * SPACING * np.array(FREQUENCIES))
    y, weights = spike(x), -np.poly([*roots, *roots.conj()])[1:].real
    assert len(weights) == 8
    forecast = np.array([weights @ y[k - 8 : k][::-1] for k in range(8, 200)])
    np.testing.assert_allclose(forecast, y[8:], atol=1e-9)


def test_the_spike_peaks_below_twenty():
    assert spike(np.linspace(0, 2 * np.pi, 1_000_001)).max() == pytest.approx(18.605, abs=1e-3)


def test_closest_epoch():
    epoch, factor = closest_epoch([8.0, 2.0, 1.0], [4.0, 1.0, 0.5], {"train": 1.0, "test": 1.0})
    assert (epoch, factor) == (2.0, pytest.approx(2.0))


def test_stretch_shows_changes_and_fits():
    data = spiky(1_200, 3_000, 4, 9, seed=3)
    where, inside = stretch(data, 400), data.meta["target_spiky"]["test"]
    assert where.stop - where.start == 400 and 0 < inside[where].mean() < 1
    whole = stretch(small(), 10_000)
    assert (whole.start, whole.stop) == (0, 790)


def test_raw_units_undo_the_scaling():
    data, raw = small(scaling="unit"), small()
    np.testing.assert_allclose(in_raw_units(data.test[0][1], data.meta), raw.test[0][1], atol=1e-4)


def test_task_models_are_counted_and_take_their_data():
    kinds = {"implicit_rnn": "implicitRNN", "lstm": "LSTM", "transformer_decoder": "masked decoder"}
    counts = {
        name: next(a.published for a in ARCHITECTURES if (a.task, a.model) == ("spiky", kind))
        for name, kind in kinds.items()
    }
    assert {name: count_parameters(build()) for name, (build, _) in task.models(0).items()} == counts
    assert set(task.LABELS) == set(task.NETWORKS) | set(task.CONTROLS) and set(counts) == set(task.NETWORKS)
    for window, models in ((task.WINDOW, task.models(1)), (task.LONG_WINDOW, task.long_models(1))):
        data = task.data(1, "quick", "no noise, restart", window=window)
        assert data.u_train.shape[1] == window
        for build, recipe in models.values():
            assert build()(torch.as_tensor(data.u_train[:5])).shape == (5, 1) and recipe.epochs > 0


def test_the_transformer_is_trained_in_its_variants_only():
    assert "transformer_decoder" not in task.models(
        0, "full", "sd .25"
    ) and "transformer_decoder" not in task.recurrent_models(0)
    for profile in ("quick", "full"):
        assert task.DEFAULT_VARIANT in task.settings(profile)["transformer_variants"]
        assert (
            set(task.settings(profile)["transformer_variants"])
            <= set(task.settings(profile)["variants"])
            <= set(task.VARIANTS)
        )


def test_a_short_constant_schedule_begins_the_long_one():
    short, long = task.early_models(0, "full", 3)["lstm"][1], task.early_models(0, "full")["lstm"][1]
    assert (short.epochs, short.schedule, short.lr) == (3, "constant", long.lr) and long.schedule == "constant"


@pytest.mark.parametrize("call", [lambda: task.settings("fast"), lambda: task.data(0, "quick", "sd 5")])
def test_bad_values_are_named(call):
    with pytest.raises(ValueError, match="'fast'|'sd 5'"):
        call()
