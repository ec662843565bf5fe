"""Studies: every model, seed and shift once; ratios and slopes by closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.synthetic.functions import identity
from reproduction.core.recipe import Recipe
from reproduction.core.study import loglog_slope, over_seeds, ratio, run_study, scaled
from reproduction.models.linear import Linear
from reproduction.models.mlp import MLP


@settings(max_examples=50, deadline=None)
@given(st.floats(-4, 4), st.floats(-10, 10))
def test_slope_of_a_power_law(exponent, offset):
    x = [1.0, 10.0, 1e3, 1e5]
    slope, r2 = loglog_slope(x, [math.exp(offset) * value**exponent for value in x])
    assert slope == pytest.approx(exponent, abs=1e-9)
    assert r2 == pytest.approx(1.0, abs=1e-6) or abs(exponent) < 1e-3


def test_slope_agrees_with_numpy_on_scattered_points():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(1, 9, 20), rng.uniform(1, 9, 20)
    slope, r2 = loglog_slope(x, y)
    fit = np.polyfit(np.log(x), np.log(y), 1)
    assert slope == pytest.approx(fit[0])
    assert r2 == pytest.approx(np.corrcoef(np.log(x), np.log(y))[0, 1] ** 2)
    assert all(math.isnan(value) for value in loglog_slope([1, 2], [1.0, math.inf]))


def test_ratio_names_nothing_finite_by_mistake():
    assert ratio([1.0, 4.0], [2.0, 2.0]) == [0.5, 2.0]
    assert ratio([1.0], [0.0]) == [math.inf]
    assert math.isnan(ratio([0.0], [0.0])[0])
    with pytest.raises(ValueError):
        ratio([1.0], [1.0, 2.0])


def test_scaled_recipe_has_an_epoch_at_least():
    assert scaled(Recipe(epochs=10), 0.25).epochs == 2
    assert scaled(Recipe(epochs=10), 0.001).epochs == 1
    with pytest.raises(ValueError, match="-1"):
        scaled(Recipe(epochs=10), -1)


def small_study(**options):
    return run_study(
        "small",
        lambda seed: identity(200, 5000, 3, shifts=[0, 20], seed=seed),
        lambda seed: {
            "linear": (lambda: Linear(3, 3, seed=seed), Recipe(epochs=40, batch_size=20, lr=0.006)),
            "mlp": (lambda: MLP((3, 4, 3), seed=seed), Recipe(epochs=3)),
        },
        [0, 5],
        **options,
    )


def test_study_holds_every_model_seed_and_shift():
    study = small_study()
    assert study.shifts == [0, 20] and study.seeds == [0, 5]
    assert {name: np.shape(errors) for name, errors in study.errors.items()} == {"linear": (2, 2), "mlp": (2, 2)}
    assert study.parameters == {"linear": 9, "mlp": 31}
    # A linear map learns the identity; its error scales with the square of the half-width, here (25/5)^2.
    assert max(study.train_errors["linear"]) < 1.0
    assert np.array(study.at("linear", 20)) / np.array(study.at("linear", 0)) == pytest.approx(25, rel=0.1)
    assert min(study.at("mlp", 20)) > 2 * max(study.at("linear", 20))
    with pytest.raises(KeyError, match="7"):
        study.at("linear", 7)


def test_cached_study_is_the_same_study(tmp_path, monkeypatch):
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    plain = small_study()
    first = small_study(key_module="reproduction.models.linear")
    again = small_study(key_module="reproduction.models.linear")
    assert plain.errors == first.errors == again.errors
    assert again.histories["mlp"][0].cpu_seconds == first.histories["mlp"][0].cpu_seconds  # read, not trained again


def test_epoch_evaluations_are_kept():
    study = small_study(evaluate_epochs=True)
    assert np.shape(study.histories["linear"][0].evaluation) == (40, 2)
    assert study.histories["linear"][0].evaluation[-1] == pytest.approx(study.errors["linear"][0])


def test_facts_over_seeds_are_lists_under_their_prefix():
    found = over_seeds("power", lambda seed: {"square": seed**2, "cube": seed**3}, [2, 3])
    assert found == {"power_square": [4, 9], "power_cube": [8, 27]} and list(found) == ["power_square", "power_cube"]
