"""Figures of sparsity: what is drawn are medians and ranges, labels carry units, styles tell curves apart without
colour."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction.sparsity_figures import STYLES, against_share, style, tradeoff


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_tradeoff_draws_medians_in_the_order_of_sparsity(axes):
    seeds = [{"sparsity": [90, 50], "drop": [d, 1.0]} for d in (10.0, 30.0, 14.0)]
    tradeoff(axes, {"sim": seeds, "lasso": [{"sparsity": [], "drop": []}]}, limit=40)
    line = axes.containers[0].lines[0]
    assert line.get_xdata().tolist() == [50, 90] and line.get_ydata().tolist() == [1, 14]
    (bars,) = axes.containers[0].lines[2]
    low, high = np.array(bars.get_segments()[1])[:, 1]
    assert (low, high) == (10, 30) and len(axes.containers) == 1, "an empty curve is not drawn"
    assert "%" in axes.get_xlabel() and "points" in axes.get_ylabel() and axes.get_ylim()[1] == 40


def test_a_seed_with_fewer_points_shortens_the_curve(axes):
    tradeoff(axes, {"magnitude": [{"sparsity": [80, 60], "drop": [5, 1]}, {"sparsity": [82], "drop": [7]}]})
    assert axes.containers[0].lines[0].get_xdata().tolist() == [81]


def test_against_share_shows_median_and_range(axes):
    against_share(
        axes,
        [0.1, 1.0],
        {"0.5": [[10, 20], [30, 40], [12, 30]], "dense": [[1, 2]]},
        ylabel="accuracy (%)",
        labels={"0.5": "kappa = 0.5"},
    )
    first, dense = axes.lines
    assert (
        first.get_xdata().tolist() == [10, 100]
        and first.get_ydata().tolist() == [12, 30]
        and first.get_label() == "kappa = 0.5"
    )
    assert dense.get_label() == STYLES["dense"][0]
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 10 and band[:, 1].max() == 40


def test_styles_differ_without_colour():
    marks = [
        (style(name)["marker"], style(name)["linestyle"])
        for name in ("sim", "sim_head", "magnitude", "magnitude_layer", "magnitude_retrained", "lasso", "published")
    ]
    assert len(set(marks)) == len(marks)
    assert style("0.05", 2)["label"] == "0.05"
