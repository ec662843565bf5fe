"""Sentences of the pages on depth, feedback and homogeneity that say how an experiment came out, held against the committed runs."""

from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from reproduction import depth_study
from reproduction.content_key import ROOT
from reproduction.results import RESULTS, load, numbers


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
        assert depth_study.active_radius(model, inputs) == pytest.approx([a] * 3, abs=1e-6)
    assert "spectrum of $A$ alone" not in PAGE


def test_counts_that_end_do_not_grow():
    assert depth_study.counts(with_matrix(np.zeros((2, 2))), np.array([[t, -t] for t in (1.0, 1e3, 1e6)])).tolist() == [2, 2, 2]
    triangular = depth_study.counts(with_matrix([[0.0, 0.9], [0.0, 0.0]]), np.array([[t, t] for t in (1.0, 1e3, 1e6, 1e12)]))
    assert triangular.tolist() == [3, 3, 3, 3]  # n + 1
    assert "follows from *any*" not in PAGE


@given(st.integers(0, 1_000))
@settings(max_examples=20, deadline=None)
def test_counts_never_fall_as_the_input_grows(seed):
    """Whatever the weights; and the bound of the law, with v = 1 and lambda the largest row sum."""
    rng = np.random.default_rng(seed)
    A, u = rng.standard_normal((4, 4)), rng.standard_normal(4)
    A *= 0.8 / np.abs(A).sum(axis=1).max()
    model, sizes = with_matrix(A), 2.0 ** np.arange(0, 21, 2)  # beyond, rounding exceeds the tolerance
    found = depth_study.counts(model, sizes[:, None] * u)
    assert (np.diff(found) >= 0).all()
    first = max(u.max(), 0)
    row_sum = model.A.detach().double().abs().sum(dim=1).max().item()
    for t, count in zip(sizes, found, strict=True):
        if t * first >= 3e-6:
            assert count <= 2 + np.log(t * first / 3e-6) / -np.log(row_sum)


def test_an_activation_that_expands_breaks_the_bound():
    """phi(z) = 3 relu(z) is positively homogeneous; with A = I/2 the changes grow by 3/2 a step."""
    x, changes = np.zeros(2), []
    for _ in range(40):
        image = 3 * np.maximum(x / 2 + 1, 0)
        changes.append(np.abs(image - x).max())
        x = image
    assert np.allclose(changes, 3 * 1.5 ** np.arange(40))
    law = PAGE[PAGE.index(":label: thm-depth-law"):]
    law = law[: law.index(":::")]
    assert "non-expansive" in law and "positively homogeneous" in law and "no biases" in law


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
