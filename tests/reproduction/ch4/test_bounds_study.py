"""The study of bounds: hand-made models whose bounds are known, order of the methods, facts that hold by theorem."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.robustness.problem import from_matrices
from reproduction.ch4_bounds import compute as study


def one_state():
    """x = relu(.5 x + u), y = (x, -x): x = 2 u for u > 0."""
    return from_matrices([[0.5]], [[1.0]], [[1.0], [-1.0]])


def test_certified_curve_by_hand():
    """The margin of class 0 is 4 u: it stays positive while u - eps > 0. The box is |x - x0| <= 2 eps."""
    U, y = np.array([[1.0], [0.2]]), np.array([0, 0])
    for method in ("norm", "box", "interval", "dual"):
        rates, seconds = study.certified_curve(one_state(), U, y, [0.1, 0.3, 1.5], study.METHODS[method])
        assert rates == [100.0, 50.0, 0.0] and seconds >= 0


def test_attained_and_relative_widths_by_hand():
    U = np.array([[1.0]])
    widths = study.attained_widths(one_state(), U, 0.25)
    np.testing.assert_allclose(widths, [[1.0, 1.0]], rtol=1e-6)  # x moves by 2 * .25 either way
    for method in ("box", "interval", "dual"):
        np.testing.assert_allclose(
            study.relative_widths(one_state(), U, 0.25, widths, study.METHODS[method]), 1.0, rtol=1e-5
        )


def test_attack_leaves_what_cannot_be_moved():
    network = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    U, y = np.array([[1.0], [0.1], [-1.0]]), np.array([0, 0, 0])
    assert study.predicted(network, U).tolist() == [0, 0, 1]
    assert study.attacked_curve(network, U, y, [0.05, 0.5]) == pytest.approx([200 / 3, 100 / 3])


def test_rectangles_hold_what_is_reached():
    task = study.as_problem(nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), 5)
    u = np.full(5, 0.4)
    which = study.moving_states(task, u, 0.2)
    found = study.two_states(task, u, 0.2, which, 50, 0)
    reached = np.asarray(found.pop("reached"))
    assert reached.shape == (50, 2) and len(set(which)) == 2
    for name, rectangle in found.items():
        low, high = np.asarray(rectangle)
        assert (reached >= low - 1e-9).all() and (reached <= high + 1e-9).all(), name
    order = [study.area(found[name]) for name in ("triangle", "dual", "interval", "box", "norm")]
    assert all(a <= b * (1 + 1e-6) for a, b in zip(order, order[1:], strict=False))


def test_facts_have_no_violation():
    facts = study.norm_facts(12, 3)
    assert facts.pop("iteration") < 1e-9 and not any(facts.values())
    assert max(study.support_facts(12, 3).values()) < 1e-12


def test_displayed_programme_is_the_box():
    facts = study.programme_facts(3, 5)
    assert facts["displayed_is_box"] < 1e-9
    assert (
        facts["outside"]
        == facts["interval_outside_box"]
        == facts["triangle_wider"]
        == facts["trivial_sum"]
        == facts["card_outside"]
        == 0
    )


def test_envelope_narrows():
    task = study.random_model(np.random.default_rng(0))
    widths = study.envelope_facts(task, np.zeros((1, task.p)), 0.3)
    assert widths["triangle"] <= 1 + 1e-9 and widths["triangle"] <= widths["theorem7"] <= widths["displayed"] + 1e-9
