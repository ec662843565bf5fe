"""The facts of the chapter on networks: each can fail, and the figures draw what is given."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

from reproduction.ch2_networks import compute as facts
from reproduction.ch2_networks.measures import content_of
from reproduction.ch2_networks.show import models_figure, networks_figure, structure_figure


def test_constructions_agree_to_rounding():
    for function in (facts.cascade_facts, facts.bias_facts, facts.residual_facts):
        found = function(5, 1)
        assert all(value < 1e-10 for key, value in found.items() if key != "columns"), found
    assert facts.bias_facts(3, 0)["columns"] == 1 and max(facts.architecture_errors(5, 2).values()) < 1e-10


def test_dense_networks_and_what_scaling_needs():
    found = facts.dense_facts(6, 3)
    assert found["matrices"] == found["pf"] == found["lower_entries"] == 0 and 0 < found["scaled_norm"] < 0.9
    assert max(found[key] for key in ("output", "states", "scaled_output")) < 1e-10
    assert facts.scaling_of_tanh(10, 0) == 1.0


def test_a_wrong_matrix_would_show(monkeypatch):
    """The comparison with (2.10) sees one entry."""
    convert = facts.from_network

    def spoiled(*args, **kwargs):
        model = convert(*args, **kwargs)
        model.B.values()[0] += 0.5
        return model

    monkeypatch.setattr(facts, "from_network", spoiled)
    assert facts.dense_facts(3, 3)["matrices"] == pytest.approx(0.5) and facts.dense_facts(3, 3)["output"] > 1e-6


def test_product_constant_is_nearly_reached_and_never_passed():
    found = facts.product_facts(4, 0)
    assert 0.9 < found["ratio"] <= 1 and found["error"] < 1e-12


def test_printed_convolution_and_pooling():
    np.testing.assert_array_equal(facts.convolution_matrix(), facts.printed_convolution())
    found = facts.pooling_facts(2, 0)
    assert (
        found["maxima_error"] == found["selector_error"] == found["violations"] == found["blocks_left"] == 0
        and found["lipschitz"] == 1
    )
    assert facts.PRINTED_MAXIMA == tuple(
        tuple(np.array(facts.PRINTED_IMAGE).reshape(2, 2, 2, 2).max(axis=(1, 3))[i]) for i in range(2)
    )


def test_counts_of_parameters():
    """784-64-32-16-10: 112 states."""
    found = facts.parameter_counts((784, 64, 32, 16, 10))
    assert found == {
        "implicit": 112 * 112 + 112 * 784 + 10 * 112 + 10 * 784,
        "network": 784 * 64 + 64 * 32 + 32 * 16 + 160,
        "states": 112,
    }


def test_structure_of_a_residual_network():
    A, sizes, found = facts.network_structure(8, 0)
    assert sizes == [256] * 6 + [512] * 6 + [1024] * 7 and A.shape == (11_776, 11_776)
    taps = 22**2 * 16 * 16 * 6 + 11**2 * 512 + 5 * 10**2 * 1024 + 5**2 * 2048 + 5 * 4**2 * 4096
    assert (
        found["entries"] - found["skip_entries"] == taps and found["skip_entries"] == 3 * 1024 + 2.5 * 512 + 2.5 * 256
    )
    assert found["other_entries"] == found["not_above"] == 0 and found["largest_skips_a_row"] == found["toeplitz"] == 1
    tiles = facts.structure_of(A, 64)
    assert tiles.sum() * (11_776 / 64) ** 2 == pytest.approx(A.nnz) and not np.tril(tiles, -1).any()


def test_figures():
    tiles = np.triu(np.ones((5, 5)), 1) * 0.25
    drawn = content_of(tiles, [3, 2])
    figure = structure_figure(drawn, "A")
    shown = figure.axes[0].images[0].get_array().filled(np.nan)
    np.testing.assert_array_equal(np.nan_to_num(shown), tiles)
    assert len(models_figure().axes) == 3 and len(networks_figure().axes) == 2
    plt.close("all")
