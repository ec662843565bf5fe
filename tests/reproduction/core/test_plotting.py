"""Curves with spread: what is drawn is the median and the range, and what diverged stays visible."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction.ch3_sim_fashion.show import attacked_against_sparsity
from reproduction.core.plots import STYLES, spread_curves, style_of
from reproduction.core.sparsity_figures import against_share, tradeoff


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_line_is_the_median_and_band_the_range(axes):
    spread_curves(axes, [1, 2], {"mlp": [[1.0, 10.0], [3.0, 30.0], [2.0, 50.0]]}, xlabel="x", ylabel="y")
    assert axes.lines[0].get_ydata().tolist() == [2.0, 30.0]
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 1.0 and band[:, 1].max() == 50.0
    assert axes.get_xlabel() == "x" and axes.get_ylabel() == "y" and axes.get_yscale() == "log"


def test_diverged_runs_are_marked(axes):
    spread_curves(axes, [1, 2, 3], {"nalu": [[1.0, "inf", "nan"], [2.0, 4.0, "inf"]]}, xlabel="x", ylabel="y")
    line, crosses = axes.lines
    assert line.get_xdata().tolist() == [1, 2] and line.get_ydata().tolist() == [1.5, 4.0]
    assert crosses.get_xdata().tolist() == [2, 3] and crosses.get_marker() == "x"


def test_wrong_length_is_named(axes):
    with pytest.raises(ValueError, match="'mlp' has 2 points, x has 3"):
        spread_curves(axes, [1, 2, 3], {"mlp": [[1.0, 2.0]]}, xlabel="x", ylabel="y")


def test_no_two_models_of_a_figure_look_alike():
    from reproduction.ch5_rolling_average import task as rolling
    from reproduction.ch5_spiky import task as spiky
    from reproduction.core import figures, series_figures

    for names in (
        figures.ARITHMETIC_PAPER,
        figures.IDENTITY_CONTROLS,
        figures.IDENTITY_PAPER,
        series_figures.AVERAGE_PAPER,
        series_figures.ARGMAX_PAPER,
        series_figures.ARGMAX_RECURRENT,
        series_figures.CONTROLS,
        tuple(spiky.LABELS),
    ):
        looks = [(str(style["color"]), style["marker"]) for style in map(style_of, names)]
        assert len(set(looks)) == len(names)
    assert len({label for label, *_ in STYLES.values()}) == len(STYLES) > 10
    shown = {*series_figures.ARGMAX_PAPER, *series_figures.ARGMAX_RECURRENT, *series_figures.CONTROLS}
    assert set(rolling.argmax_models(0, "quick")) == shown


def test_tradeoff_draws_medians_in_the_order_of_sparsity(axes):
    seeds = [{"sparsity": [90, 50], "drop": [d, 1.0]} for d in (10.0, 30.0, 14.0)]
    tradeoff(axes, {"sim": seeds, "lasso": [{"sparsity": [], "drop": []}]}, limit=40)
    line = axes.containers[0].lines[0]
    assert line.get_xdata().tolist() == [50, 90] and line.get_ydata().tolist() == [1, 14]
    (bars,) = axes.containers[0].lines[2]
    low, high = np.array(bars.get_segments()[1])[:, 1]
    assert (low, high) == (10, 30) and len(axes.containers) == 1, "an empty curve is not drawn"


def test_a_seed_with_fewer_points_shortens_the_curve(axes):
    tradeoff(axes, {"magnitude": [{"sparsity": [80, 60], "drop": [5, 1]}, {"sparsity": [82], "drop": [7]}]})
    assert axes.containers[0].lines[0].get_xdata().tolist() == [81]


def test_against_share_shows_median_and_range(axes):
    against_share(axes, [0.1, 1.0], {"0.5": [[10, 20], [30, 40], [12, 30]]}, ylabel="accuracy (%)")
    assert axes.lines[0].get_xdata().tolist() == [10, 100] and axes.lines[0].get_ydata().tolist() == [12, 30]
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 10 and band[:, 1].max() == 40


def test_models_no_sparser_than_the_network_are_levels_under_attack(axes):
    curves = {"teacher": [{"sparsity": [0], "a": [77]}], "l2": [{"sparsity": [-95, -90], "a": [71, 73]}]}
    attacked_against_sparsity(axes, curves, "a")
    assert [line.get_ydata()[0] for line in axes.lines] == [77, 73] and not axes.containers
