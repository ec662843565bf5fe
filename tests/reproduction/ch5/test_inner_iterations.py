"""Loops that are cut or started elsewhere, against geometric series in closed form."""

import numpy as np
import pytest
import torch

from implicit_models.model import ImplicitModel
from reproduction.ch5_depth import inner_iterations as inner


def scalar(a=0.5):
    """x = relu(a x + u), y = x: for u > 0, x_k = u (1 - a^k) / (1 - a)."""
    model = ImplicitModel(1, 1, 1, kappa=0.95, skip=False, seed=0)
    with torch.no_grad():
        for name, value in (("A", a), ("B", 1.0), ("C", 1.0)):
            getattr(model, name).fill_(value)
    return model


def test_errors_of_a_loop_that_is_cut_are_those_of_the_geometric_series():
    u = np.array([[1.0], [3.0]])
    found = inner.cut_errors(scalar(), "addition", u, 2 * u, (0, 1, 2, 5))
    assert found[:-1] == pytest.approx([np.mean((2 * u * 0.5**k) ** 2) for k in (0, 1, 2, 5)])
    assert found[-1] == pytest.approx(0, abs=1e-20)


def test_more_iterations_are_worse_where_the_target_lies_on_the_way():
    u = np.array([[1.0], [3.0]])
    found = inner.cut_errors(scalar(), "addition", u, 1.5 * u, inner.CAPS)  # x_2 = 1.5 u
    assert found[1] == pytest.approx(0, abs=1e-20) and found[-1] == pytest.approx(np.mean((0.5 * u) ** 2))


def test_caps_must_increase():
    with pytest.raises(ValueError, match="caps must increase"):
        inner.cut_errors(scalar(), "addition", np.ones((1, 1)), np.ones((1, 1)), (4, 2))


def test_wrong_answers_are_counted_for_the_argmax():
    scores = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    assert inner.error("argmax", scores, np.array([1, 0, 0, 0])) == 0.25


def test_one_equilibrium_is_reached_from_every_start_and_two_are_not():
    u = np.array([[1.0], [2.0]])
    assert inner.start_difference(scalar(), u, seed=3) < 1e-12
    # a = 1 keeps what it started from: x = relu(x + 0) is at rest everywhere, so for u = (1, 0) starts matter
    model = ImplicitModel(1, 1, 2, kappa=0.95, skip=False, seed=0)
    with torch.no_grad():
        model.A.copy_(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
        model.B.copy_(torch.tensor([[1.0], [0.0]]))
    assert inner.start_difference(model, u, seed=3) > 0.1


def test_an_error_settles_where_it_stays_at_that_of_the_equilibrium():
    errors = [9.0, 5.0, 1.0, 3.0, 1.005, *[1.0] * (len(inner.CAPS) - 5), 1.0]
    assert inner.settles(errors) == 16  # not 4, after which it leaves again
    assert inner.settles([9.0] * len(inner.CAPS) + [1.0]) == 512
