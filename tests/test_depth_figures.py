"""Figures on depth and feedback: every curve that was recorded is drawn, with the published values where there are
any."""

import matplotlib
import pytest

matplotlib.use("Agg")

from reproduction import depth_figures, feedback_figures
from reproduction.tasks.ablation import TASKS


@pytest.fixture
def content():
    curves, values = {}, {}
    for name, task in TASKS.items():
        keys = [task.train, 10.0, 100.0]
        curves[f"{name}/sizes"], curves[f"{name}/keys"] = [1.0, 10.0, 100.0], keys
        for kind in depth_figures.LAW_CURVES:
            curves[f"{name}/{kind}"] = [[10.0, 12.0, 14.0], [11.0, 13.0, 15.0]]
        for variant in ("full", "strict_upper", "strict_upper_free", "strict_upper_matched", "linear"):
            curves[f"{name}/{variant}"] = [[0.5, 0.6, 0.7], [0.4, 0.5, 0.6]]
    for variant in ("full", "kappa_half", "strict_upper"):
        for kind in ("measure", "iterations"):
            curves[f"training/argmax/{variant}/{kind}"] = [[1.0, 2.0, 3.0, 4.0]]
    curves["memory/depths"] = [1, 2, 4]
    values |= {f"bytes_explicit_{depth}": 80.0 * depth for depth in (1, 2, 4)} | {
        "bytes_implicit": [80.0],
        "bytes_unrolled": [700.0, 900.0],
        "seconds_mlp": [0.1],
    }
    for solver in ("picard", "auto"):
        curves[f"time/{solver}/iterations"], curves[f"time/{solver}/seconds"] = [[20.0, 10.0]], [[2.0, 1.0]]
    return {"profile": "quick", "seeds": [0, 1], "curves": curves, "values": values}


@pytest.fixture(autouse=True)
def closed():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_law_has_a_panel_a_task_and_the_medians(content):
    figure = depth_figures.law_figure(content)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in panels] == [task.label for task in TASKS.values()]
    for axes in panels:
        assert len(axes.lines) == len(depth_figures.LAW_CURVES)
        assert list(axes.lines[0].get_ydata()) == [10.5, 12.5, 14.5]


def test_training_and_cost(content):
    accuracy, iterations = depth_figures.training_figure(content).axes
    assert len(accuracy.lines) == len(iterations.lines) == 3 and list(iterations.lines[0].get_xdata()) == [1, 2, 3, 4]
    memory, time = depth_figures.cost_figure(content).axes
    assert list(memory.lines[0].get_ydata()) == [80, 160, 320]
    assert [line.get_ydata()[0] for line in memory.lines[1:]] == [800, 80]
    assert list(time.lines[0].get_xdata()) == [10, 20] and list(time.lines[0].get_ydata()) == [1, 2]


def test_ablation_shows_the_published_values(content):
    panels = [axes for axes in feedback_figures.ablation_figure(content).axes if axes.lines]
    heights = [
        [float(line.get_ydata()[0]) for line in axes.lines if line.get_label().startswith("Table 5.4")]
        for axes in panels
    ]
    assert heights == [[3.06, 4.07], [0.953, 1.8], pytest.approx([0.937, 0.918]), [1e-4, 1e-3]]
    assert all(len(axes.lines) == 7 for axes in panels)


def test_diagram_marks_six_stars():
    matrix, nodes = feedback_figures.feedback_diagram().axes
    assert sum(text.get_text() == "★" for text in matrix.texts) == 6
    arrows = list(nodes.patches)
    assert len(arrows) == 9 and sum(patch.get_linestyle() == "--" for patch in arrows) == 6
