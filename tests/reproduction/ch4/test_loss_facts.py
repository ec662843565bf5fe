"""Facts about penalties and worst-case losses, and the figures of robust training."""

import numpy as np
import pytest
import torch

from implicit_models.layers import ImplicitModel
from reproduction.ch4_robust_training.losses import enumeration_facts, penalty_facts, trained_facts
from reproduction.ch4_robust_training.show import accuracy_against_radius, certified_against_clean


def test_penalties_hold_and_rho_is_not_convex():
    facts = penalty_facts(25, 0)
    assert facts["violations"] == facts["order"] == facts["convexity"] == 0
    assert facts["nonconvex"] > 0  # otherwise the segments would show nothing
    assert facts["equal"] == pytest.approx(1, abs=1e-9) and facts["over_rho"] > 1 > facts["sensitivity_over_rho"]


def test_closed_forms_hold_and_the_box_form_is_loose():
    facts = enumeration_facts(25, 0)
    assert facts["squared_error"] < 1e-12 and facts["exact_error"] < 1e-12 and facts["below"] == facts["chain"] == 0
    assert 1 < facts["box_increase"] < facts["norm_increase"]


def test_losses_of_a_model_by_hand():
    """y = u: boxes of outputs are boxes of inputs, from S and from intervals alike."""
    model = ImplicitModel.from_matrices(torch.zeros(1, 1), torch.zeros(1, 2), torch.zeros(2, 1), torch.eye(2))
    u, labels, eps = np.array([[1.0, 0.0]]), np.array([0]), 0.1
    found = trained_facts(model, u, labels, eps)
    assert found["nominal"] == pytest.approx(np.log1p(np.exp(-1.0)))
    for name in ("s", "interval"):
        assert found[f"{name}_exact"] == pytest.approx(np.log1p(np.exp(-0.8)), rel=1e-6)
        assert found[f"{name}_box"] == pytest.approx(
            found["nominal"] + 0.2, rel=1e-6
        )  # both outputs up, the label's down
        assert found[f"{name}_ratio"] > 1


def test_figures_hold_a_line_an_objective():
    import matplotlib.pyplot as plt

    one = {"clean": 0.9, "attacked": [0.8], "certified": [0.5]}
    figure = accuracy_against_radius(
        [0.1], {"plain": [one, one | {"clean": 0.7}], "interval": [one]}, {"plain": "p", "interval": "i"}, "t"
    )
    lines = figure.axes[0].lines
    assert len(lines) == 4 and [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["p", "i"]
    np.testing.assert_allclose(lines[0].get_ydata(), [80, 80])
    figure = certified_against_clean({"plain": [{"clean": 90, "certified": 50, "box": 0}]}, {"plain": "p"}, "t")
    assert [line.get_ydata()[0] for line in figure.axes[0].lines] == [50, 0]
    plt.close("all")
