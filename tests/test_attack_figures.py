"""Accuracy under attack against sparsity: what is drawn where."""

import matplotlib.pyplot as plt
import numpy as np

from reproduction.attack_figures import attacked_against_sparsity


def test_points_are_medians_in_the_order_of_sparsity():
    figure, axes = plt.subplots()
    seeds = [
        {"sparsity": [80, 20], "a": [60, 70]},
        {"sparsity": [82, 22], "a": [50, 74]},
        {"sparsity": [90, 21], "a": [40, 71]},
    ]
    attacked_against_sparsity(axes, {"l1": seeds}, "a")
    line = axes.containers[0].lines[0]
    assert np.array_equal(line.get_xdata(), [21, 82]) and np.array_equal(line.get_ydata(), [71, 50])
    bars = axes.containers[0].lines[2][0].get_segments()
    assert np.array_equal(bars[1][:, 1], [40, 60])
    plt.close(figure)


def test_dense_and_less_sparse_models_are_levels():
    figure, axes = plt.subplots()
    curves = {"teacher": [{"sparsity": [0], "a": [77]}], "l2": [{"sparsity": [-95, -90], "a": [71, 73]}]}
    attacked_against_sparsity(axes, curves, "a")
    assert [line.get_ydata()[0] for line in axes.lines] == [77, 73] and not axes.containers
    assert "-92 % sparsity" in axes.lines[1].get_label()
    plt.close(figure)
