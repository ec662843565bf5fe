"""Figures of bounds show every method that was given, inside their axes."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from reproduction.bounds_figures import STYLE, against_radius, rectangles


def test_rectangles_are_drawn_where_they_lie():
    found = {"reached": [[0.0, 0.0], [1.0, 2.0]], "box": [[-2.0, -3.0], [4.0, 5.0]], "dual": [[-1.0, -1.0], [2.0, 3.0]]}
    _, axes = plt.subplots()
    rectangles(axes, found, ("box", "dual"))
    assert [patch.get_bbox().bounds for patch in axes.patches] == [(-2, -3, 6, 8), (-1, -1, 3, 4)]
    assert axes.get_xlim()[0] < -2 and axes.get_ylim()[1] > 5
    plt.close("all")


def test_every_curve_has_its_label():
    _, axes = plt.subplots()
    against_radius(axes, {"dual": [[80.0, 70.0], [82.0, 71.0]], "attack": [[85.0, 75.0], [86.0, 76.0]]}, [0.01, 0.02])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        STYLE["attack"]["label"],
        STYLE["dual"]["label"],
    ]
    plt.close("all")
