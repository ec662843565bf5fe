"""Curves with spread: what is drawn is the median and the range, and what diverged stays visible."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction.figures import arithmetic_figure, curves_figure, identity_figure
from reproduction.plotting import STYLES, spread_curves, style_of


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
    from reproduction.figures import ARITHMETIC_PAPER, IDENTITY_CONTROLS, IDENTITY_PAPER

    for names in (ARITHMETIC_PAPER, IDENTITY_CONTROLS, IDENTITY_PAPER):
        looks = [(str(style["color"]), style["marker"]) for style in map(style_of, names)]
        assert len(set(looks)) == len(names)
    assert len({label for label, *_ in STYLES.values()}) == len(STYLES) > 10


def test_figures_draw_what_they_are_given():
    curves = {name: [[0.1, 1.0], [0.2, 2.0]] for name in STYLES}
    figure = identity_figure({"profile": "quick", "seeds": [0, 1], "values": {"shifts": [0, 10]}, "curves": curves})
    assert [len(axes.lines) for axes in figure.axes] == [5, 7]  # the models and the line of the training range
    assert np.allclose(figure.axes[0].lines[0].get_xdata(), [5, 15])
    plt.close(figure)
    curves = {f"{op}/{name}": rows for op in ("addition", "subtraction") for name, rows in curves.items()}
    curves |= {f"addition/{name}/loss": [[3.0, 2.0, 1.0], [3.0]] for name in ("implicit", "nalu")}
    content = {"profile": "full", "seeds": [0, 1], "values": {"t": [2, 10]}, "curves": curves}
    for group, count in (("paper", 5), ("controls", 6)):
        figure = arithmetic_figure(content, group)
        assert [len(axes.lines) for axes in figure.axes] == [count, count]
        plt.close(figure)
    figure = curves_figure(content, ["addition/{}/loss"], ["addition"], ylabel="loss")
    assert figure.axes[0].lines[0].get_ydata().tolist() == [3.0, 2.0, 1.0]
    plt.close(figure)
