"""Feedback: its weights by brute force over loops, counts by hand, gains by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from reproduction.ch5_depth.compute import largest_row_norm
from reproduction.ch5_feedback import compute as feedback_study


def test_stars_of_the_papers_display():
    """Diagonal and lower triangle, as the display says."""
    assert feedback_study.feedback_entries(3) == [(i, j) for i in range(3) for j in range(3) if j <= i]
    assert len(feedback_study.feedback_entries(6)) == 21


@given(st.integers(0, 511))
@settings(max_examples=60, deadline=None)
def test_loops_against_nilpotency(code):
    """A pattern has no loop exactly when every matrix with it is nilpotent."""
    pattern = np.array([(code >> k) & 1 for k in range(9)]).reshape(3, 3)
    nilpotent = not np.linalg.matrix_power(pattern, 3).any()
    assert feedback_study.loops(pattern) == (not nilpotent)


def test_a_triangle_has_none_in_any_order():
    upper = np.triu(np.ones((4, 4)), 1)
    for order in itertools.permutations(range(4)):
        assert not feedback_study.loops(upper[np.ix_(order, order)])
    assert not feedback_study.loops(upper.T)


def test_gain_is_a_ratio_of_errors_or_a_difference_of_accuracies():
    assert feedback_study.advantage([2.0, 1.0], [3.0, 0.5], "test MSE") == [1.5, 0.5]
    assert feedback_study.advantage([0.937], [0.918], "accuracy") == pytest.approx([1.9])
    with pytest.raises(ValueError, match="loss"):
        feedback_study.advantage([1.0], [1.0], "loss")
    with pytest.raises(ValueError):
        feedback_study.advantage([1.0], [1.0, 2.0], "accuracy")
    assert feedback_study.verdicts({"addition": [1.5, 0.5], "argmax": [0.1, -0.1]}) == {"addition": 1, "argmax": 1}


def test_growth_of_a_square():
    keys = [1.0, 10.0, 100.0, 1000.0]
    assert feedback_study.growth(keys, [[5.0, 1.0, 100.0, 1e4], [0.0, 3.0, 300.0, 3e4]], 10.0) == pytest.approx([2, 2])


def test_row_norm():
    A, one = np.array([[0.5, -0.25], [0.0, 0.625]]), np.ones((2, 1))
    assert largest_row_norm(ImplicitModel.from_matrices(A, one, one.T)) == 0.75
