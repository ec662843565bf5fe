"""Receptive fields read off a network, against the Jacobian of the network itself."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from implicit_models.sim.network.layers import INPUT, read_layers
from network_patterns import PATTERNS, drawn
from reproduction.models.resnet20 import Block, ResNet20


class Small(nn.Module):
    """Convolutions of several kinds, a strided shortcut, pooling, a hidden linear layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.block, self.pool = Block(4, 6, 2), nn.MaxPool2d(2)
        self.wide = nn.Conv2d(6, 3, 3, padding=2, dilation=2)
        self.act, self.flat, self.hidden, self.last = nn.Tanh(), nn.Flatten(), nn.Linear(27, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = self.pool(self.block(self.first(x)))
        x = self.act(self.wide(x))
        return self.last(torch.relu(self.hidden(self.flat(x))))


def jacobian_pattern(layers, block, source):
    """(P, positions of the source) whether any channel reads any channel there."""
    torch.manual_seed(0)
    known = {
        k: torch.randn(1, *layers.shape_of(k), dtype=torch.float64)
        for k in {INPUT, *layers.blocks[block].sources, *range(block)}
    }
    J = torch.autograd.functional.jacobian(lambda x: layers.affine(block, {**known, source: x}), known[source])
    b, shape = layers.blocks[block], layers.shape_of(source)
    out = layers.affine(block, known).shape[1:]
    J = J.reshape(out[0], math.prod(out[1:]), shape[0], math.prod(shape[1:]))
    return b, (J != 0).any(0).any(1).numpy(), J


@pytest.fixture(scope="module")
def layers():
    torch.manual_seed(1)
    return read_layers(Small().double().eval(), (2, 12, 12))


def test_blocks_of_a_network(layers):
    assert [b.activation for b in layers.blocks] == ["relu", "relu", "relu", "max_pool", "tanh", "relu"]
    assert [b.shape for b in layers.blocks] == [(4, 12, 12), (6, 6, 6), (6, 6, 6), (6, 3, 3), (3, 3, 3), (5,)]
    assert [sorted(b.sources) for b in layers.blocks] == [[INPUT], [0], [0, 1], [2], [3], [4]]
    assert layers.n_states == sum(b.size for b in layers.blocks) and layers.output.reads[5].tolist() == [[0]]


def test_every_source_is_the_pattern_of_the_jacobian(layers):
    for block in (0, 1, 2, 4, 5):
        for source, index in layers.blocks[block].sources.items():
            _, seen, _ = jacobian_pattern(layers, block, source)
            for w, reads in enumerate(index):
                np.testing.assert_array_equal(np.sort(reads[reads >= 0]), np.flatnonzero(seen[w]))


def test_entries_are_the_non_zeros_of_the_jacobian(layers):
    for block in (0, 1, 2, 4, 5):
        total = sum(int((jacobian_pattern(layers, block, s)[2] != 0).sum()) for s in layers.blocks[block].sources)
        assert layers.entries(block) == total


def test_affine_parts_and_maps_make_the_network(layers):
    u = torch.randn(3, 2, 12, 12, dtype=torch.float64)
    known = {INPUT: u}
    for i in range(len(layers.blocks)):
        known[i] = layers.apply(i, layers.affine(i, known))
    torch.testing.assert_close(layers.affine(None, known), layers.traced(u), rtol=0, atol=0)
    torch.testing.assert_close(F.linear(layers.features(known), *layers.traced.last.parameters()), layers.traced(u))


def test_resnet20_has_the_entries_of_its_convolutions():
    layers = read_layers(ResNet20().eval(), (3, 32, 32))
    # in-image taps of 3 x 3 windows: (3 n - 2)^2 at stride 1, (3 n - 1)^2 with n positions at stride 2
    taps = 94**2 * (3 * 16 + 6 * 256) + 47**2 * 512 + 5 * 46**2 * 1024 + 23**2 * 2048 + 5 * 22**2 * 4096
    skips = 3 * 16_384 + 2.5 * 8_192 + 2.5 * 4_096  # option A leaves half of the channels of two blocks without one
    assert sum(layers.entries(i) for i in range(19)) == taps + skips == 37_036_736
    assert [b.sources[min(b.sources)].shape[1] for b in layers.blocks[1:3]] == [9, 1]


def test_odd_sizes_and_strides():
    network = nn.Sequential(
        nn.Conv1d(1, 2, 3, stride=2),
        nn.ReLU(),
        nn.Conv1d(2, 2, 2, padding=1),
        nn.LeakyReLU(0.1),
        nn.AvgPool1d(2),
        nn.Flatten(),
        nn.Linear(8, 2),
    )
    layers = read_layers(network.double().eval(), (1, 15))
    for block in (0, 1):
        for source, index in layers.blocks[block].sources.items():
            _, seen, _ = jacobian_pattern(layers, block, source)
            for w, reads in enumerate(index):
                np.testing.assert_array_equal(np.sort(reads[reads >= 0]), np.flatnonzero(seen[w]))
    assert layers.blocks[1].activation == "leaky_relu(0.1)"


@pytest.mark.parametrize(
    "network, shape, error, words",
    [
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (3,), ValueError, r"in training mode \(Sequential and 2 more\)"),
        (nn.Sequential(nn.Linear(3, 2), nn.GELU()).eval(), (3,), TypeError, r"module '1' \(GELU\)"),
        ("network", (3,), TypeError, "torch module, got str"),
    ],
)
def test_what_is_not_read_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        read_layers(network, shape)


class Odd(nn.Module):
    """Two convolutions with something between them."""

    def __init__(self, between, groups=1):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(4, 8, 3, padding=1, groups=groups),
            nn.Linear(8, 2),
        )
        self.between = between

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(self.between(x))).mean((2, 3)))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("residual", [False, True])
def test_entries_of_grouped_convolutions(groups, residual):
    torch.manual_seed(3)
    network = Grouped(groups) if residual else Odd(nn.Identity(), groups)
    layers = read_layers(network.double().eval(), (4, 5, 5))
    _, _, J = jacobian_pattern(layers, 1, 0)
    assert layers.entries(1) == int((J != 0).sum())


@pytest.mark.parametrize("groups", [1, 2])
def test_entries_of_an_activation_behind_flatten(groups):
    torch.manual_seed(3)
    parts = (
        nn.Conv2d(2, 4, 2),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1, groups=groups),
        nn.Flatten(),
        nn.BatchNorm1d(54),
        nn.Tanh(),
        nn.Linear(54, 5),
        nn.ReLU(),
    )
    layers = read_layers(nn.Sequential(*parts, nn.Linear(5, 2)).double().eval(), (2, 4, 4))
    for block in (1, 2):
        _, _, J = jacobian_pattern(layers, block, block - 1)
        assert layers.entries(block) == int((J != 0).sum())
    assert layers.entries(1) < 54 * 36


class Grouped(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Conv2d(4, 4, 1),
            nn.Conv2d(4, 4, 3, padding=1, groups=groups),
            nn.Linear(4, 2),
        )

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(torch.add(self.second(x), other=x)).mean((2, 3)))


class Changed(nn.Module):
    """A residual sum in place, on states that later layers read."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        h = torch.relu(self.first(x))
        h += x
        return self.last(torch.relu(self.second(h)) + h)


class Aliased(Changed):
    def forward(self, x):
        h = torch.relu(self.first(x))
        kept = h
        h += x
        return self.last(torch.relu(self.second(h)) + kept)


@pytest.mark.parametrize("kind", ["once", "under two names"])
def test_sums_in_place_change_no_states(kind):
    torch.manual_seed(0)
    network = (Changed if kind == "once" else Aliased)().double().eval()
    layers, u = read_layers(network, (3,)), torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        first = torch.relu(network.first(u))
        known = {INPUT: u, 0: first.clone()}
        known[1] = layers.apply(1, layers.affine(1, known))
        torch.testing.assert_close(layers.affine(None, known), network(u))
        assert torch.equal(known[0], first)


class Viewed(Changed):
    def forward(self, x):
        h = torch.relu(self.first(x))
        v = h.view(-1, 3, 1)
        v += 1.0
        return self.last(torch.relu(self.second(h)))


class Second(Changed):
    def forward(self, x, mask=None):
        return self.last(torch.relu(self.first(x)))


class Pair(Changed):
    def forward(self, x):
        return self.last(x), self.first(x)


@pytest.mark.parametrize(
    "network, shape, error, words",
    [
        (
            Odd(lambda x: 1.0 / (x + 2.0)),
            (4, 5, 5),
            TypeError,
            "truediv in the forward of .*: only division by numbers",
        ),
        (Odd(lambda x: F.dropout(x)), (4, 5, 5), ValueError, "dropout with training=True is random"),
        (Odd(nn.BatchNorm2d(4, track_running_stats=False)), (4, 5, 5), ValueError, "no running statistics"),
        (Second(), (3,), TypeError, "a second argument, 'mask'"),
        (Pair(), (3,), TypeError, "must return one tensor"),
        (Viewed(), (3,), ValueError, "differs from Viewed by .* a view of what it reads again"),
    ],
)
def test_what_is_not_one_affine_map_of_a_sample_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        read_layers(network.eval(), shape)


READ = {
    "softmax": (lambda x: x.softmax(1), {}),
    "linear over the last axis": (nn.Linear(5, 3), {}),
    "mirrored padding": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), {}),
    "mean over channels": (lambda x: x.mean(1, keepdim=True) + x, {}),
    "view": (lambda x: torch.flatten(x, 2).view(-1, 4, 5, 5), {}),
    "constant": (lambda x: x.view(-1, 4, 5, 5) * torch.arange(1.0, 5).reshape(1, 4, 1, 1).double(), {}),
    "other axes": (lambda x: x.transpose(2, 3), {}),
    "channels as positions": (lambda x: x.transpose(1, 2), {"wide": True}),
    "concatenation": (lambda x: torch.cat([x[:, :2], 2 * x, x[:, 3:]], 1)[:, 1:5], {}),
    "positions side by side": (lambda x: torch.cat([x, x[:, :, :2]], 2), {}),
    "shuffled channels": (lambda x: x.view(-1, 2, 2, 5, 5).transpose(1, 2).reshape(-1, 4, 5, 5), {"wide": True}),
    "average of any size": (nn.AdaptiveAvgPool2d((3, 4)), {}),
    "average in ceil mode": (nn.AvgPool2d(2, 2, ceil_mode=True), {}),
    "channels apart": (nn.Conv2d(4, 4, 3, groups=4, dilation=2, padding=2), {}),
    "chunk": (lambda x: torch.cat([x.chunk(2, 1)[1], x.chunk(2, 1)[0]], 1), {}),
}


class Between(nn.Module):
    """Something between two maps of states, each component read by itself behind it."""

    def __init__(self, between):
        super().__init__()
        self.first, self.between = nn.Conv2d(4, 4, 1), between

    def forward(self, x):
        return torch.flatten(torch.tanh(self.between(torch.relu(self.first(x)))), 1)


@pytest.mark.parametrize("name", READ)
def test_reach_of_whatever_stands_between(name):
    """Against the Jacobian: exact, or wider where channels and positions are mixed ("wide")."""
    torch.manual_seed(0)
    between, how = READ[name]
    network = Between(between).double().eval()
    layers = read_layers(network, (4, 5, 5))
    u = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    known = {INPUT: u}
    for k in range(len(layers.blocks)):
        known[k] = layers.apply(k, layers.affine(k, known))
    torch.testing.assert_close(layers.affine(None, known), network(u), rtol=0, atol=0)
    block = len(layers.blocks) - 1
    (source,) = layers.blocks[block].sources
    b, _, J = jacobian_pattern(layers, block, source)
    J = (J != 0).numpy()  # channels, positions, channels of the source, positions there
    channel = b.channel[source]
    read = np.zeros(J.shape, bool)
    for c in range(b.channels):
        for w, reads in enumerate(b.sources[source]):
            of = np.arange(J.shape[2]) if channel is None else channel[c][channel[c] >= 0]
            read[c, w][np.ix_(of, reads[reads >= 0])] = True
    assert (read >= J).all()
    if not how.get("wide"):
        assert (read == J).all() and layers.entries(block) == J.sum()


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, u):
        return self.c(torch.sigmoid(self.a(u)) * torch.tanh(self.b(u)))


def test_a_product_is_a_derived_block():
    torch.manual_seed(0)
    layers = read_layers(Gated().double().eval(), (3,))
    assert [b.activation for b in layers.blocks] == ["sigmoid", "tanh", "product"] and layers.blocks[2].derived
    u = torch.randn(5, 3, dtype=torch.float64)
    known = {INPUT: u}
    for k in range(3):
        known[k] = layers.apply(k, layers.affine(k, known))
    torch.testing.assert_close(layers.affine(None, known), layers.traced(u), rtol=0, atol=0)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_the_field(pattern):
    network = drawn(pattern())
    layers = read_layers(network, (3, 32, 32))
    u = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    known = {INPUT: u}
    with torch.no_grad():
        for k in range(len(layers.blocks)):
            known[k] = layers.apply(k, layers.affine(k, known))
        y, mine = network(u), layers.affine(None, known)
    assert float((mine - y).abs().max() / y.abs().max()) < 1e-5
