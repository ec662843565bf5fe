"""Packed images, marks, and medians over draws."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction.ch4_attacks.show import RED
from reproduction.ch4_resnet20_cifar import packing
from reproduction.ch4_resnet20_cifar import show as figures


def test_packing_keeps_eight_bits_exactly():
    values = np.arange(256) / 255
    assert np.array_equal(packing.unpacked(packing.packed(values)), values) and len(packing.packed(values)) == 512
    assert np.array_equal(packing.unpacked(packing.packed(np.array([-0.2, 1.7]))), [0, 1])


def test_colours_and_marks():
    planes = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], dtype=float)
    shown = figures.colour_image(packing.packed(planes.ravel()), [3])
    assert (
        shown.shape == (2, 2, 3)
        and np.allclose(shown[0, 0], [1, 0, 0])
        and np.allclose(shown[1, 0], [0, 0, 1])
        and np.allclose(shown[1, 1], RED)
    )
    with pytest.raises(ValueError, match="5 pixels"):
        figures.colour_image(packing.packed(np.zeros(15)))


def test_curves_are_medians_over_draws():
    table = {
        protocol: {"sensitivity": [[1.0, 5.0], [3.0, 9.0], [2.0, 6.0]], "unknown": [[0.0, 0.0]]}
        for protocol in figures.TITLES
    }
    figure = figures.share_curves(table, [1.0, 10.0], "note")
    assert len(figure.axes) == 3
    for axes in figure.axes:
        assert np.allclose(axes.containers[0].lines[0].get_ydata(), [2.0, 6.0]) and len(axes.containers) == 1
    plt.close(figure)
    figure, axes = plt.subplots()
    figures.radius_curves(axes, {"pgd": [[10.0, 90.0]], "random": [[0.0, 5.0], [2.0, 7.0]]}, [0.01, 0.02])
    assert [container.get_label() for container in axes.containers] == ["PGD", "random signs"]
    assert np.allclose(axes.containers[1].lines[0].get_ydata(), [1.0, 6.0])
    plt.close(figure)
