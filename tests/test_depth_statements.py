"""Sentences of the pages on depth, feedback and homogeneity that say how an experiment came out, held against the
committed runs."""

from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from reproduction import depth_study
from reproduction.book.graph import ROOT
from reproduction.book.results import RESULTS, load, numbers


def values_of(notebook):
    content = load(RESULTS / f"{notebook}.json")
    if content is None:
        pytest.skip(f"no committed run of {notebook}")
    return content["values"]


PAGE = (ROOT / "book" / "depth.md").read_text()


def with_matrix(A):
    """A model with that A and B = I."""
    model = ImplicitModel(len(A), 1, len(A), seed=0)
    with torch.no_grad():
        model.A.copy_(torch.as_tensor(A))
        model.B.copy_(torch.eye(len(A)))
    return model


def steps_of_powers(a, t, tol=3e-6):
    """First k with a^(k-1) t < tol: one active state with feedback a and input 1."""
    k = 1
    while a ** (k - 1) * t >= tol:
        k += 1
    return k


def test_the_slope_is_that_of_the_states_active_at_the_input():
    model, sizes = with_matrix([[0.5, 0.0], [0.0, 0.9]]), (1.0, 1e3, 1e6)
    for u, a, found in (((1.0, -1.0), 0.5, (20, 30, 40)), ((-1.0, 1.0), 0.9, (122, 188, 253))):
        inputs = np.array([[t * entry for entry in u] for t in sizes])
        assert tuple(depth_study.counts(model, inputs)) == tuple(steps_of_powers(a, t) for t in sizes) == found
        assert f"{found[0]}, {found[1]} and {found[2]}" in PAGE


def test_without_feedback_the_count_is_two():
    assert depth_study.counts(with_matrix(np.zeros((2, 2))), np.array([[t, -t] for t in (1.0, 1e3, 1e6)])).tolist() == [
        2,
        2,
        2,
    ]


@given(st.integers(0, 1_000))
@settings(max_examples=20, deadline=None)
def test_counts_never_fall_as_the_input_grows(seed):
    """Whatever the weights."""
    rng = np.random.default_rng(seed)
    A, u = rng.standard_normal((4, 4)), rng.standard_normal(4)
    A *= 0.8 / np.linalg.norm(A, np.inf)
    sizes = 2.0 ** np.arange(0, 21, 2)  # beyond, rounding exceeds the tolerance
    assert (np.diff(depth_study.counts(with_matrix(A), sizes[:, None] * u)) >= 0).all()


def test_an_activation_that_expands_breaks_the_bound():
    """phi(z) = 3 relu(z) is relu(3 z): with A = I / 2 the iteration is that of ReLU with 3 A, which never ends."""
    A, u, cap = np.eye(2) / 2, np.ones((1, 2)), 200
    assert depth_study.counts(with_matrix(3 * A), 3 * u, max_iter=cap).tolist() == [cap + 1]
    assert depth_study.counts(with_matrix(A), u, max_iter=cap)[0] < 25
    law = PAGE[PAGE.index(":label: thm-depth-law") :]
    law = law[: law.index(":::")]
    assert "non-expansive" in law and "positively homogeneous" in law and "no biases" in law


def test_the_law_is_met_without_a_fit():
    values = values_of("ch5_depth")
    for name in ("addition", "subtraction", "argmax"):
        assert max(numbers(values[f"{name}_scaling_difference"])) == 0
        for slope, predicted, bound in zip(
            *(numbers(values[f"{name}_{kind}"]) for kind in ("slope", "predicted", "bound")), strict=True
        ):
            assert slope == pytest.approx(predicted, rel=0.1) and slope < bound
        assert (
            max(numbers(values[f"{name}_growth_relative"])) < 1.02
            and min(numbers(values[f"{name}_untrained_growth"])) > 1.2
        )


def test_triangular_models_have_bounded_depth_and_smaller_balls_less():
    values = values_of("ch5_depth")
    for name, n in (("addition", 20), ("subtraction", 20), ("argmax", 36), ("average", 32)):
        assert max(numbers(values[f"{name}_strict_upper_iterations_farthest"])) <= n + 1
    # the argmax is learnt as well with kappa = 0.5, at a fraction of the iterations
    assert (
        min(numbers(values["argmax_kappa_half_quality"])) > 0.99
        and min(numbers(values["argmax_kappa_half_depth_ratio"])) > 2
    )


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
    assert (
        max(numbers(values["gradient_error_implicit_trained"]))
        < 1e-5
        < min(numbers(values["gradient_error_jfb_trained"]))
    )
    assert (
        median(numbers(values["backward_jfb_over_implicit"])) < 2
        and median(numbers(values["backward_phantom_over_implicit"])) < 2
    )


def test_the_adjoint_keeps_one_state_a_sample():
    values = values_of("ch5_depth")
    assert (
        set(numbers(values["bytes_implicit"])) == {80.0} and min(numbers(values["memory_unrolled_over_implicit"])) > 10
    )


def test_feedback_is_crucial_nowhere():
    values = values_of("ch5_feedback")
    assert values["tasks_where_every_seed_helps"] == 0
    for name in ("addition", "subtraction"):
        assert 0.8 < median(numbers(values[f"{name}_gain_over_strict_upper"])) < 1.25
        assert median(numbers(values[f"{name}_slope_full"])) == pytest.approx(2, abs=0.03)
    assert median(numbers(values["argmax_gain_over_strict_upper"])) < 0.5
    for name in ("addition", "subtraction", "average"):  # the linear map is far below every implicit model
        assert max(numbers(values[f"{name}_linear_far"])) < 1e-3 * min(numbers(values[f"{name}_full_far"]))
