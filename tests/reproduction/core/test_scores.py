"""Scores: shares by counting, what does not pair is refused, an output that is not a number is no answer."""

import numpy as np
import pytest
import torch

from reproduction.core.scores import share_right


def test_share_right_counts_labels():
    scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    assert share_right(scores, np.array([1, 0, 0, 0])) == 0.75
    assert share_right(torch.from_numpy(scores), torch.tensor([0, 1, 0, 1])) == 0.0


def test_a_score_that_is_not_a_number_is_wrong():
    scores = np.array([[np.nan, 0.0], [1.0, np.nan], [1.0, 0.0], [np.inf, 0.0]])
    assert share_right(scores, np.zeros(4, dtype=int)) == 0.5


@pytest.mark.parametrize("shape", [(4, 1), (3,), (1, 4), ()])
def test_labels_that_do_not_pair_are_named(shape):
    with pytest.raises(ValueError, match=r"must pair, got \(4, 4\) and"):
        share_right(np.eye(4), np.zeros(shape, dtype=int))
