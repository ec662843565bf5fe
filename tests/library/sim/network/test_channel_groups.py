"""Rows of channels that the network keeps apart, against a fit of each group alone and the network itself."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim import ByPosition, Cardinality, L1Ball, Refit, SharedKernels, sparsify
from implicit_models.sim.network.layers import read_layers
from implicit_models.sim.network.supports import channel_groups
from implicit_models.sim.report import MoreEntries, MoreParameters
from network_patterns import PATTERNS, MobileNetV2, drawn


def grouped(groups, out=4):
    """A grouped convolution behind states, and a linear head."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, out, 3, padding=1, groups=groups), nn.Tanh()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(out * 16, 2)).double().eval()


def images(n=80):
    return torch.randn(n, 2, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def groups_before(network, block, shape=(2, 4, 4)):
    layers = read_layers(network, shape)
    return channel_groups(layers, block, layers.blocks[block].sources)


@pytest.mark.parametrize("groups, out", [(2, 4), (4, 4), (4, 8), (2, 6)])
def test_groups_are_those_of_the_convolution(groups, out):
    found = groups_before(grouped(groups, out), 1)
    assert found.number == groups
    width = 4 // groups
    assert found.ranges[0].tolist() == [[width * g, width * g + width] for g in range(groups)]


def test_what_mixes_channels_has_no_groups():
    assert groups_before(grouped(1), 1) is None
    layers = read_layers(grouped(2), (2, 4, 4))
    assert channel_groups(layers, 1, {0: layers.blocks[1].sources[0].copy()}) is None  # a support of one's own


class Sides(nn.Module):
    """Two halves of the channels, each of a block of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.last = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1), nn.Linear(96, 2)

    def forward(self, x):
        x = torch.cat([torch.relu(self.a(x)), torch.tanh(self.b(x))], 1)
        return self.last(torch.flatten(torch.tanh(2 * x - 0.1), 1))


def test_values_side_by_side_are_groups_too():
    found = groups_before(Sides().eval(), 2)
    assert found.number == 6
    assert found.ranges[0].tolist() == [[0, 1], [1, 2], [2, 3], [0, 0], [0, 0], [0, 0]]
    assert found.ranges[1].tolist() == [[0, 0], [0, 0], [0, 0], [0, 1], [1, 2], [2, 3]]


class Half(nn.Module):
    """A convolution of half of the channels, and the other half beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(2, 4, 1), nn.Conv2d(2, 3, 3, padding=1), nn.Linear(80, 2)

    def forward(self, x):
        kept, changed = torch.relu(self.first(x)).chunk(2, 1)
        return self.last(torch.flatten(torch.cat([kept, torch.relu(self.second(changed))], 1), 1))


def test_a_convolution_of_half_of_the_channels_uses_that_half():
    torch.manual_seed(0)
    network, u = Half().double().eval(), images()
    found = groups_before(network, 1)
    assert found.number == 1 and found.ranges[0].tolist() == [[2, 4]]
    rows = ByPosition(refit=Refit(0.0), min_active=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        model = sparsify(network, u, Cardinality(1.0), rows, states="teacher", head=False)
    (report,) = model.report.layers
    assert report.entries == report.own_entries == 3 * 2 * (3 * 4 - 2) ** 2 and report.columns == 18
    with torch.no_grad():
        torch.testing.assert_close(model(u), network(u), rtol=1e-9, atol=1e-9)


class Steps(nn.Module):
    """A recurrent network whose last state is read."""

    def __init__(self):
        super().__init__()
        self.rnn, self.last = nn.RNN(3, 4, batch_first=True, num_layers=2), nn.Linear(4, 2)

    def forward(self, u):
        return self.last(self.rnn(u)[0][:, -1])


def test_steps_of_a_recurrent_network_read_their_own_inputs():
    torch.manual_seed(0)
    layers = read_layers(Steps().double().eval(), (5, 3))
    # every step but the first reads its inputs and the state before
    assert [layers.entries(k) for k in range(10)] == [12, *[28] * 4, 16, *[32] * 4]
    u = torch.randn(60, 5, 3, dtype=torch.float64)
    rows = ByPosition(refit=Refit(0.0), min_active=0.0)
    model = sparsify(Steps().double().eval(), u, Cardinality(1.0), rows, states="teacher", head=False)
    assert model.report.entries == model.report.own_entries == 5 * 12 + 13 * 16


@pytest.mark.parametrize("groups, out", [(2, 4), (4, 8)])
@pytest.mark.parametrize("rows", [ByPosition, SharedKernels])
def test_everything_kept_gives_the_network_and_no_entry_beyond_its_own(groups, out, rows):
    network, u = grouped(groups, out), images()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        warnings.simplefilter("error", MoreEntries)
        model = sparsify(
            network, u, Cardinality(1.0), rows(refit=Refit(0.0), min_active=0.0), states="teacher", head=False
        )
    (report,) = model.report.layers
    assert report.entries == report.own_entries and report.columns == 9 * 4 // groups
    with torch.no_grad():
        torch.testing.assert_close(model(u), network(u), rtol=1e-9, atol=1e-9)
    # entry by entry, the rows are those of the convolution
    A = model.A1.to_dense().numpy().reshape(out, 16, 4, 16)
    unit = torch.eye(64, dtype=torch.float64).reshape(64, 4, 4, 4)
    with torch.no_grad():
        own = (network[2](unit) - network[2].bias[:, None, None]).reshape(4, 16, out, 16).permute(2, 3, 0, 1).numpy()
    np.testing.assert_allclose(A, own, atol=1e-9)


@pytest.mark.parametrize("rows", [ByPosition(), SharedKernels(), ByPosition(refit=Refit(one_sided=True))])
@pytest.mark.parametrize("budget", [Cardinality(0.5), L1Ball(0.7)])
def test_sparse_rows_keep_to_their_groups(rows, budget):
    network, u = grouped(4), images()
    network[3] = nn.ReLU().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        model = sparsify(network, u, budget, rows)
    A = model.A1.to_dense().numpy().reshape(4, 16, 4, 16)
    for c in range(4):
        assert not np.delete(A[c], c, axis=1).any() and A[c, :, c].any()
    assert model.report.layers[0].entries < model.report.layers[0].own_entries


def test_grouped_rows_are_those_of_each_group_alone():
    """The l1 rows of a depthwise convolution against those of its channels as networks of one channel."""
    network, u = grouped(4), images()
    rows = ByPosition(refit=None, min_active=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        whole = sparsify(network, u, L1Ball(0.6), rows, states="teacher", head=False)
        for c in range(4):
            alone = nn.Sequential(
                nn.Conv2d(2, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 3, padding=1), nn.Tanh(), nn.Flatten()
            ).double()
            with torch.no_grad():
                for k in (0, 2):
                    alone[k].weight.copy_(network[k].weight[c : c + 1])
                    alone[k].bias.copy_(network[k].bias[c : c + 1])
            one = sparsify(alone.eval(), u, L1Ball(0.6), rows, states="teacher", head=False)
            mine = whole.A1.to_dense().numpy().reshape(4, 16, 4, 16)[c, :, c]
            np.testing.assert_allclose(mine, one.A1.to_dense().numpy(), atol=1e-8)


def test_a_model_with_more_entries_than_the_network_is_warned_of():
    network = grouped(4)
    with pytest.warns(
        MoreEntries, match=r"entries, the network's \d+, so that it multiplies more .* layers _3 \(\d+ for 400"
    ):
        sparsify(network, images(), Cardinality(0.9), ByPosition(support="before"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_with_everything_kept_are_the_network(pattern):
    network = drawn(pattern()).double()
    u = torch.randn(150, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        warnings.simplefilter("error", MoreEntries)
        rows = ByPosition(refit=Refit(0.0), min_active=0.0)
        model = sparsify(network, u, Cardinality(1.0), rows, states="teacher", head=False)
    with torch.no_grad():
        y = network(u)
        assert float((model(u) - y).abs().max() / y.abs().max()) < 1e-5
    assert model.report.entries <= model.report.own_entries


def test_depthwise_layers_have_positive_savings():
    network = drawn(MobileNetV2())
    u = torch.randn(60, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        warnings.simplefilter("error", MoreEntries)
        model = sparsify(network, u, Cardinality(0.5))
    assert all(r.entries <= r.own_entries for r in model.report.layers) and model.report.sparsity_of_entries > 0.2
