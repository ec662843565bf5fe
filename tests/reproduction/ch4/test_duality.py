"""Both forms of Theorem 7's bound on models whose bound is known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from implicit_models.robustness.input_sets import Box, SparseBox
from implicit_models.robustness.problem import from_matrices
from reproduction.ch4_bounds.duality import bidual, duality_facts, first_form


@pytest.mark.parametrize("form", [first_form, bidual])
@pytest.mark.parametrize(("terms", "value"), [(lambda x: x, 2.5), (lambda x: -x, -1.5), (lambda x: (x - 2) ** 2, 0.25)])
def test_one_state_that_is_open(form, terms, value):
    # x = relu(.5 x + u) = 2 u, u in [.75, 1.25]: x in [1.5, 2.5] around 2
    task = from_matrices([[0.5]], [[1.0]], [[1.0]])
    found = form(task, Box(0.25).around(np.array([[1.0]])), np.array([2.0]), np.array([0.5]), terms)
    assert found == pytest.approx(value)


@pytest.mark.parametrize("form", [first_form, bidual])
@pytest.mark.parametrize(
    ("c", "value"),
    # x = (relu(u), relu(-u)) for |u| <= 1. The unit's hull is x >= z, x >= 0, x <= 1, so that x1 = x2 = 1 is allowed:
    # 2 for the sum, which is 1 on the graph; x1 - x2 <= 1 at u = 1, and -x1 - x2 <= 0 at u = 0
    [((1.0, 1.0), 2.0), ((1.0, -1.0), 1.0), ((-1.0, -1.0), 0.0)],
)
def test_two_states_that_may_close(form, c, value):
    task = from_matrices(np.zeros((2, 2)), [[1.0], [-1.0]], np.eye(2))
    found = form(task, Box(1.0).around(np.array([[0.0]])), np.zeros(2), np.ones(2), lambda x: np.array(c) * x)
    assert found == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("form", [first_form, bidual])
@pytest.mark.parametrize(("card", "value"), [(1, 11.0), (2, 13.0), (3, 14.0)])
def test_few_moving_inputs(form, card, value):
    # x = 8 + 3 u1 + 2 u2 + u3 > 0 with |u_i| <= 1, so that k moves add the k largest coefficients. The box of states
    # has the radius 6, holds them all, and keeps the unit open
    task = from_matrices([[0.0]], [[3.0, 2.0, 1.0]], [[1.0]], b=[8.0])
    inputs = SparseBox(1.0, card).around(np.zeros((1, 3)))
    assert form(task, inputs, np.array([8.0]), np.array([6.0]), lambda x: x) == pytest.approx(value)


def test_random_models_have_one_value():
    found = duality_facts(4, 3)
    assert max(value for key, value in found.items() if key.startswith("gap")) < 1e-8
    assert max(value for key, value in found.items() if key.startswith("above")) < 1e-8
