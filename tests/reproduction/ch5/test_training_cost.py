"""Memory of a training step: closed counts for a linear chain, constant for the adjoint, growing for unrolling."""

import pytest
import torch

from implicit_models.layers import ImplicitModel
from reproduction.ch5_depth.cost import kept_bytes, memory_table, seconds_an_epoch, with_settings
from reproduction.core.recipe import History
from reproduction.models.mlp import MLP


def test_a_network_keeps_one_activation_a_layer():
    u = torch.randn(10, 3)
    # relu keeps its output, which the next linear map keeps too: 4 bytes for each of 5 + 7 numbers a sample
    assert kept_bytes(MLP((3, 5, 7, 2), bias=False, seed=0), u) == 10 * 4 * (5 + 7)
    assert kept_bytes(MLP((3, 2), bias=False, seed=0), u) == 0


def test_the_adjoint_keeps_the_state_whatever_the_tolerance():
    model, u = ImplicitModel(3, 2, 6, kappa=0.9, seed=0), torch.randn(10, 3)
    kept = [kept_bytes(with_settings(model, backward="implicit", tol=tol), u) for tol in (1e-2, 1e-4, 1e-6)]
    assert len(set(kept)) == 1 and kept[0] >= 10 * 4 * 6
    unrolled = [kept_bytes(with_settings(model, backward="unroll", tol=tol), u) for tol in (1e-2, 1e-4, 1e-6)]
    assert kept[0] < unrolled[0] < unrolled[1] < unrolled[2]


def test_table_grows_with_the_explicit_depth():
    table = memory_table(ImplicitModel(3, 2, 6, seed=0), torch.randn(10, 3), [1, 2, 4], seed=0)
    assert table["explicit_2"] == 2 * table["explicit_1"] == 0.5 * table["explicit_4"] == 2 * 6 * 4
    assert table["unrolled"] > table["implicit"]


def test_other_settings_leave_the_map_as_it_is():
    model, u = ImplicitModel(3, 2, 6, activation="tanh", bias=True, seed=0), torch.randn(10, 3)
    with torch.no_grad():
        model.b.fill_(0.7)
    other = with_settings(model, backward="unroll", max_iter=2_000)
    assert torch.allclose(model(u), other(u), atol=1e-5)
    assert (model.settings.backward, model.settings.max_iter) == ("implicit", 500)
    assert (other.settings.backward, other.settings.max_iter) == ("unroll", 2_000)
    assert other.settings.tol == model.settings.tol


def test_first_epoch_is_left_out():
    assert seconds_an_epoch(History(cpu_seconds=[9.0, 1.0, 3.0, 2.0])) == 2.0
    assert seconds_an_epoch(History(cpu_seconds=[9.0])) == pytest.approx(9.0)
