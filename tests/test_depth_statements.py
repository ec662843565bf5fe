"""Sentences of the pages on depth, feedback and homogeneity that say how an experiment came out, held against the committed runs."""

from statistics import median

import pytest

from reproduction.results import RESULTS, load, numbers


def values_of(notebook):
    content = load(RESULTS / f"{notebook}.json")
    if content is None:
        pytest.skip(f"no committed run of {notebook}")
    return content["values"]


def test_the_law_is_met_without_a_fit():
    values = values_of("ch5_depth")
    for name in ("addition", "subtraction", "argmax"):
        assert max(numbers(values[f"{name}_scaling_difference"])) == 0
        for slope, predicted, bound in zip(*(numbers(values[f"{name}_{kind}"]) for kind in ("slope", "predicted", "bound")), strict=True):
            assert slope == pytest.approx(predicted, rel=0.1) and slope < bound
        assert max(numbers(values[f"{name}_growth_relative"])) < 1.02 and min(numbers(values[f"{name}_untrained_growth"])) > 1.2


def test_triangular_models_have_bounded_depth_and_smaller_balls_less():
    values = values_of("ch5_depth")
    for name, n in (("addition", 20), ("subtraction", 20), ("argmax", 36), ("average", 32)):
        assert max(numbers(values[f"{name}_strict_upper_iterations_farthest"])) <= n + 1
    # the argmax is learnt as well with kappa = 0.5, at a fraction of the iterations
    assert min(numbers(values["argmax_kappa_half_quality"])) > 0.99 and min(numbers(values["argmax_kappa_half_depth_ratio"])) > 2


def test_the_count_says_little_about_a_sample():
    values = values_of("ch5_depth")
    for name in ("addition", "subtraction", "argmax", "average"):
        assert abs(median(numbers(values[f"{name}_count_follows_difficulty"]))) < 0.5, name


def test_single_precision_fails_where_double_does_not():
    values = values_of("ch5_depth")
    single, double = (numbers(values[f"addition_table_failed_epochs_{dtype}"]) for dtype in ("float32", "float64"))
    assert median(single) > 33 and min(single) > max(double) == 0


def test_exact_and_truncated_gradients_train_alike():
    values = values_of("ch5_depth")
    assert max(numbers(values["gradient_error_implicit_trained"])) < 1e-5 < min(numbers(values["gradient_error_jfb_trained"]))
    assert median(numbers(values["backward_jfb_over_implicit"])) < 2 and median(numbers(values["backward_phantom_over_implicit"])) < 2


def test_the_adjoint_keeps_one_state_a_sample():
    values = values_of("ch5_depth")
    assert set(numbers(values["bytes_implicit"])) == {80.0} and min(numbers(values["memory_unrolled_over_implicit"])) > 10


def test_feedback_is_crucial_nowhere():
    values = values_of("ch5_feedback")
    assert values["tasks_where_every_seed_helps"] == 0
    for name in ("addition", "subtraction"):
        assert 0.8 < median(numbers(values[f"{name}_gain_over_strict_upper"])) < 1.25
        assert median(numbers(values[f"{name}_slope_full"])) == pytest.approx(2, abs=0.03)
    assert median(numbers(values["argmax_gain_over_strict_upper"])) < 0.5
    for name in ("addition", "subtraction", "average"):  # the linear map is far below every implicit model
        assert max(numbers(values[f"{name}_linear_far"])) < 1e-3 * min(numbers(values[f"{name}_full_far"]))
