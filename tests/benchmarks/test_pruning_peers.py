"""The peers of the pruning benchmark: counts that they are given, and cases with a closed form."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.parts import pruning_peers as peers
from implicit_models.sim.pruning.layers import plan
from implicit_models.tracing.reading import read


@pytest.fixture(scope="module")
def planned():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5)).eval()
    return network, plan(read(network, (16,)))


def left(new):
    return [int((step.weight != 0).sum()) for step in new.values()]


@pytest.mark.parametrize("allocation", [peers.uniform, peers.erdos_renyi, peers.by_magnitude])
def test_allocations_add_up(planned, allocation):
    _, p = planned
    kept = allocation(p, 0.4)
    assert abs(sum(kept) - 0.4 * p.weights) <= 1
    assert all(0 <= k <= layer.size for k, layer in zip(kept, p.layers))


def test_the_erdos_renyi_kernel_gives_densities_by_the_sum_over_the_product(planned):
    _, p = planned
    kept = peers.erdos_renyi(p, 0.3)
    wanted = [(16 + 12) / (16 * 12), (12 + 5) / (12 * 5)]
    density = [k / layer.size for k, layer in zip(kept, p.layers)]
    assert density[0] / density[1] == pytest.approx(wanted[0] / wanted[1], rel=0.05)


def test_magnitudes_keep_the_largest_weights(planned):
    network, p = planned
    new = peers.masked(p, peers.magnitude_masks(p, 0.25, False))
    own = torch.cat([m.weight.detach().abs().flatten() for m in network if isinstance(m, nn.Linear)])
    found = torch.cat([step.weight.abs().flatten() for step in new.values()])
    assert sum(left(new)) == round(0.25 * p.weights)
    assert float(found[found > 0].min()) >= float(own[found == 0].max())


def test_all_weights_are_the_network(planned):
    network, p = planned
    u = torch.randn(300, 16, generator=torch.Generator().manual_seed(1))
    kept = [layer.size for layer in p.layers]
    everything = [np.ones((layer.rows, layer.columns), bool) for layer in p.layers]
    for new in (
        peers.exact(p, u, kept, "own"),
        peers.exact(p, u, kept, "teacher"),
        peers.sparse_gpt(p, u, kept),
        peers.wanda(p, u, kept),
        peers.repaired(p, u, everything),
        peers.masked(p, everything),
    ):
        for layer in p.layers:
            assert torch.allclose(new[layer.node.name].weight, layer.node.weight, atol=1e-4)
            assert torch.allclose(new[layer.node.name].bias, layer.node.bias, atol=1e-4)


def test_on_columns_that_do_not_correlate_all_that_see_data_agree(planned):
    """w_j^2 E x_j^2 decides: SparseGPT and exact elimination keep the same weights, and change none of them."""
    _, p = planned
    u = torch.linspace(0.5, 3, 16) * torch.cat([s * torch.eye(16) * 4 for s in (1.0, -1.0)])
    first = p.layers[0]
    kept = [round(0.5 * first.size), p.layers[1].size]
    a, b = peers.exact(p, u, kept, "own"), peers.sparse_gpt(p, u, kept)
    own = first.node.weight.numpy()
    score = own**2 * np.linspace(0.5, 3, 16) ** 2
    for new in (a, b):
        found = new[first.node.name].weight.numpy()
        assert left(new)[0] == kept[0]
        assert score[found != 0].min() >= score[found == 0].max()
        assert found[found != 0] == pytest.approx(own[found != 0], rel=1e-4)
