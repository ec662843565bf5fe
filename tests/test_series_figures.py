"""Figures of sequence models: what is drawn is what was recorded, and no two models look alike."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction import series_figures as figures
from reproduction.plotting import STYLES, style_of
from reproduction.tasks import rolling, spiky


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def content(curves, **values):
    return {"profile": "full", "seeds": [0, 1], "values": values, "curves": curves}


@pytest.mark.parametrize(
    "names",
    [figures.AVERAGE_PAPER, figures.CONTROLS, figures.ARGMAX_PAPER, figures.ARGMAX_RECURRENT, tuple(spiky.LABELS)],
)
def test_no_two_models_of_a_panel_look_alike(names):
    looks = [(str(style["color"]), style["marker"]) for style in map(style_of, names)]
    assert len(set(looks)) == len(names)


def test_every_model_has_a_look_of_its_own_name():
    names = {*rolling.LABELS, *spiky.LABELS}
    assert names <= set(STYLES)
    assert len({STYLES[name][0] for name in names}) == len(names)


def test_every_model_is_drawn_somewhere():
    assert set(rolling.average_models(0, "quick")) == {*figures.AVERAGE_PAPER, *figures.CONTROLS}
    assert set(rolling.argmax_models(0, "quick")) == {
        *figures.ARGMAX_PAPER,
        *figures.ARGMAX_RECURRENT,
        *figures.CONTROLS,
    }


def test_rolling_figures_draw_the_medians():
    curves = {name: [[0.2, 0.4], [0.4, 0.8], [0.3, 0.5]] for name in rolling.LABELS}
    average = figures.rolling_average_figure(content(curves, shifts=[0, 100]))
    assert [len(axes.lines) for axes in average.axes] == [len(figures.AVERAGE_PAPER), len(figures.CONTROLS)]
    argmax = figures.rolling_argmax_figure(content(curves, scales=[1, 1e5]))
    for axes, names in zip(
        argmax.axes, (figures.ARGMAX_PAPER, figures.ARGMAX_RECURRENT, figures.HOMOGENEOUS_OR_NEARLY), strict=True
    ):
        chance = names is not figures.HOMOGENEOUS_OR_NEARLY
        assert len(axes.lines) == len(names) + chance
        assert axes.lines[0].get_ydata().tolist() == [0.3, 0.5] and (axes.lines[-1].get_ydata()[0] == 0.1) == chance
        assert (axes.get_ylim() == (0, 1.02)) == chance and axes.get_ylim()[0] < 0.2


def test_figure_of_a_run_without_some_models():
    figure = figures.rolling_average_figure(content({"implicit": [[1.0, 2.0]]}, shifts=[0, 100]))
    assert [len(axes.lines) for axes in figure.axes] == [1, 1]


def test_accuracy_over_epochs():
    curves = {
        "epochs/lstm/1": [[0.1, 0.5, 0.9]],
        "epochs/lstm/10": [[0.1, 0.1, 0.1]],
        "epochs/implicit/1": [[0.2, 0.3]],
    }
    figure = figures.accuracy_curves_figure(content(curves), (1.0, 10.0), ("implicit", "lstm"))
    assert [len(axes.lines) for axes in figure.axes] == [3, 2]
    assert figure.axes[0].lines[1].get_xdata().tolist() == [1, 2, 3]


def test_mean_predictions_beside_the_right_ones():
    figure = figures.mean_prediction_figure(
        content({"mean_prediction/lstm": [[3.0, 9.0]]}, shifts=[0, 100]), ("lstm", "implicit")
    )
    right, lstm = figure.axes[0].lines
    assert list(right.get_ydata()) == [3, 103] and list(lstm.get_ydata()) == [3, 9]


def test_early_errors_with_controls_and_published_values():
    values = {f"unit_{name}": [0.01, 0.02] for name in ("constant", "persistence", "autoregression")} | {
        "unit_floor": 0.001
    }
    figure = figures.early_error_figure(
        content({"early/lstm": [[0.1, 0.02], [0.3, 0.04]]}, **values), ("lstm",), {"lstm": 0.011}
    )
    lines = figure.axes[0].lines
    assert np.allclose(lines[0].get_ydata(), [0.2, 0.03]) and lines[1].get_ydata()[0] == pytest.approx(0.015)
    assert lines[-1].get_ydata()[0] == 0.011 and lines[-1].get_marker() == "<"


def test_forecasts_of_models_with_and_without_a_brief_training():
    curves = {
        "forecast/series": [0, 1, 2],
        "forecast/trained/lstm": [0, 1, 1],
        "forecast/brief/lstm": [1, 1, 1],
        "forecast/trained/autoregression": [0, 0, 1],
    }
    figure = figures.forecast_figure(content(curves), ("lstm", "autoregression"))
    assert [sum(len(line.get_ydata()) > 0 for line in axes.lines) for axes in figure.axes] == [3, 2]
    assert figure.axes[0].lines[1].get_ydata().tolist() == [0, 1, 1]


def test_split_errors_are_medians_and_ranges():
    values = {
        "inside_lstm": [1.0, 3.0, 2.0],
        "outside_lstm": [0.1],
        "inside_constant": [4.0],
        "outside_constant": [0.2, 0.4],
    }
    figure = figures.split_error_figure(content({}, **values), ("lstm", "constant"))
    assert sorted(bar.get_height() for bar in figure.axes[0].patches) == pytest.approx([0.1, 0.3, 2.0, 4.0])
