"""What the page on depth says of counts of iterations, on models small enough to count by hand."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from reproduction.book.graph import ROOT
from reproduction.ch5_depth import compute as depth_study

PAGE = (ROOT / "book" / "law_of_depth.md").read_text()


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
