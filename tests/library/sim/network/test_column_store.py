"""Columns kept from block to block: against the columns of one block prepared by themselves."""

import importlib
import math

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.layerwise import sparsify, sparsify_path
from implicit_models.sim.network import columns as state_columns
from implicit_models.sim.network.column_store import Columns, ColumnStore
from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT, read_layers
from implicit_models.sim.network.position_problem import position_problem, working_problem
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import L1Ball, L1Penalty
from implicit_models.sim.row_models import ByPosition, WorkingSet

M = 50


def network():
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 9),
        nn.ReLU(),
        nn.Linear(9, 3),
    )
    return nn.Sequential(*layers).eval()


def states():
    """Layers, and states of the network on more samples than count; one state is constant, one rarely active."""
    layers, known = read_layers(network().double(), (2, 6, 6)), {}
    known[INPUT] = torch.randn(M + 9, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z = {}
    for block in range(len(layers.blocks)):
        z[block] = layers.affine(block, known)
        known[block] = layers.apply(block, z[block])
    known[0][:, 1, 2, 3] = 4.0
    known[0][:, 2, 0, 0] = 0.0
    known[0][3:5, 2, 0, 0] = 1.0
    return layers, known, z


@pytest.mark.parametrize("scale", ["std", "theorem", "uniform"])
@pytest.mark.parametrize("together", [1, 2**19])
def test_columns_of_every_block_are_those_prepared_for_it_alone(scale, together, monkeypatch):
    monkeypatch.setitem(state_columns.TOGETHER, "cpu", together)
    layers, known, z = states()
    scales = layer_scales(layers, scale)
    store = ColumnStore(sum(math.prod(layers.shape_of(k)) for k in range(INPUT, 3)), M, min_active=3.0)
    store.append(known[INPUT], None if scales is None else np.ones(72))
    for block in range(1, 4):
        store.append(known[block - 1], None if scales is None else scales[block - 1])
        if not layers.blocks[block].derived:
            columns, problem = working_problem(layers, block, store, z[block], scales)
            every = {
                k: np.tile(np.arange(math.prod(layers.shape_of(k)[1:])), (layers.blocks[block].positions, 1))
                for k in range(INPUT, block)
            }
            alone = position_problem(layers, block, every, known, z[block], M, scales, 3.0)
            F, _, _, Z, radius = alone.arrays
            factor = problem.unit / alone.unit  # one reference for all columns of a block
            np.testing.assert_allclose(factor, factor[0], rtol=1e-12)
            np.testing.assert_allclose(columns.X.numpy() * factor[0], F, atol=1e-11)
            np.testing.assert_allclose(problem.arrays[0], Z * factor[0], atol=1e-11)
            np.testing.assert_allclose(problem.arrays[1], radius * factor[0] ** 2, rtol=1e-12)
            assert factor[0] == pytest.approx(1, abs=1e-12) if scale == "std" else 2**-0.5 <= factor[0] <= 2**0.5
            assert 0.5 <= float(np.median(columns.X.numpy().std(1)[store.live[: store.d]])) <= 2
            np.testing.assert_allclose(problem.target * factor[0], alone.target, rtol=1e-12)
            for name in ("spread", "mean_x", "mean_z", "place", "columns", "width"):
                np.testing.assert_allclose(getattr(problem, name), getattr(alone, name), rtol=1e-12, atol=1e-12)
            fresh = Columns.of(columns.X.numpy())  # what rounding took does not change with the reference
            np.testing.assert_allclose(columns.norm, fresh.norm, rtol=1e-12)
            np.testing.assert_allclose(columns.lost, fresh.lost, atol=1e-9)
    assert store.live.sum() < store.d == len(store.live)


def test_the_key_is_that_of_the_content():
    _, known, _ = states()

    def key(m=M, change=0.0, min_active=3.0, keyed=True, scale=None):
        store = ColumnStore(72 + 144, m, min_active=min_active, keyed=keyed)
        store.append(known[INPUT] + change, scale and np.full(72, scale))
        store.append(known[0], scale and np.ones(144))
        return store.columns()[0].content()

    assert key() == key()
    assert (
        len(
            {
                key(),
                key(m=M - 1),
                key(change=1e-9),
                key(min_active=2.0),
                key(keyed=False),
                key(scale=1.0),
                key(scale=2.0),
            }
        )
        == 7
    )


def test_a_run_goes_on_with_its_columns_and_not_with_others(tmp_path):
    u = torch.randn(60, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    options = {
        "budget": L1Ball(0.5),
        "rows": WorkingSet(),
        "states": "teacher",
        "head": False,
        "parallel": Parallel("threads", resume=tmp_path),
    }
    first, again = (sparsify(network(), u, **options) for _ in range(2))
    torch.testing.assert_close(first(u), again(u), rtol=0, atol=0)
    with pytest.raises(ValueError, match="another problem"):
        sparsify(network(), u + 1e-3, **options)


@pytest.mark.parametrize("scale", ["std", "theorem", "uniform"])
@pytest.mark.parametrize("budgets", [[L1Ball(0.5)], [L1Penalty(0.05)], [L1Penalty(0.2), L1Penalty(0.02)]], ids=str)
@pytest.mark.parametrize("factor", [1.0, 0.37967530803130356, 0.3796753080313036])
def test_a_budget_means_what_it_means_for_a_function_of_the_same_columns(scale, budgets, factor):
    """Whatever power of two the columns are kept in."""
    u = factor * torch.randn(60, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def before(layers, block):
        width = {k: math.prod(layers.shape_of(k)[1:]) for k in range(INPUT, block)}
        own = layers.blocks[block].sources
        return (
            own
            if set(own) == {INPUT}
            else {k: np.tile(np.arange(p), (layers.blocks[block].positions, 1)) for k, p in width.items()}
        )

    models = [
        sparsify_path(network().double(), u, budgets, rows, states="teacher", head=False)
        for rows in (WorkingSet(scale=scale, refit=None), ByPosition(support=before, scale=scale, refit=None))
    ]
    for mine, theirs in zip(*models, strict=True):
        for a, b in zip(mine.report.layers, theirs.report.layers, strict=True):
            assert a.fit == pytest.approx(b.fit, abs=1e-7) and abs(a.entries - b.entries) <= 0.005 * b.entries + 1


def test_a_network_of_one_block_keeps_no_columns(monkeypatch):
    monkeypatch.setattr(importlib.import_module("implicit_models.sim.row_models"), "ColumnStore", None)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    model = sparsify(net, torch.randn(20, 4), L1Ball(1.0), WorkingSet(), head=False)
    assert not model.fitted


@pytest.mark.parametrize("states", ["teacher", "student"])
def test_samples_that_are_held_out_change_nothing(states):
    u = torch.randn(80, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    options = {"budget": L1Ball(0.5), "rows": WorkingSet(), "states": states, "head": False}
    with_others, alone = sparsify(network(), u[:60], held_out=u[60:], **options), sparsify(network(), u[:60], **options)
    torch.testing.assert_close(with_others(u), alone(u), rtol=0, atol=0)
