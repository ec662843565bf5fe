"""The graph of a network: its steps by hand, its values against the network's own, and what it refuses in words."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from implicit_models.compose import from_network
from implicit_models.tracing import nodes as steps
from implicit_models.tracing.builder import WrongShape
from implicit_models.tracing.reading import read
from network_patterns import PATTERNS, MobileNetV2, drawn


def difference(network, shape, seed=0):
    """Largest difference of the graph's and the network's outputs in float64, relative to the largest output."""
    network = network.double()
    u = torch.randn(4, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    with torch.no_grad():
        graph = read(network, shape)
        y, mine = network(u.clone()), graph.values(u)[graph.output]
    return float((mine - y).abs().max() / y.abs().max().clamp_min(1e-300))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_the_field(pattern):
    torch.manual_seed(0)
    assert difference(drawn(pattern()), (3, 32, 32)) < 1e-13


def test_steps_of_a_small_network_by_hand():
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3)
    )
    graph = read(network.eval(), (2, 4, 4))
    assert [(type(n).__name__, n.shape) for n in graph.nodes] == [
        ("Input", (2, 4, 4)),
        ("Convolution", (4, 2, 2)),
        ("Activation", (4, 2, 2)),
        ("Average", (4, 1, 1)),
        ("Reshape", (4,)),
        ("Linear", (3,)),
    ]
    _, conv, relu, pool, _, last = graph.nodes
    assert (conv.stride, conv.padding, conv.groups, conv.path) == ((2, 2), (1, 1), 2, "0") and relu.map == "relu"
    assert torch.equal(conv.weight, network[0].weight) and torch.equal(last.bias, network[4].bias)
    assert conv.weight is not network[0].weight and graph.output == last.name and last.inputs == (graph.nodes[4].name,)
    assert pool.windows((4, 2, 2)).tolist() == [[0, 1, 2, 3]] and last.where == "module '4' (Linear)"


@pytest.mark.parametrize("whole", [False, True])
def test_relu6_has_its_values_and_is_exact_for_small_ones(whole):
    graph = read(nn.Sequential(nn.ReLU6()).eval(), (6,), whole_relu6=whole)
    z = torch.tensor([[-1.0, 0.0, 1.2345e-7, 2.5, 6.0, 9.0]])
    assert torch.equal(graph.values(z)[graph.output], torch.tensor([[0.0, 0.0, 1.2345e-7, 2.5, 6.0, 6.0]]))
    assert [n.map for n in graph.nodes if isinstance(n, steps.Activation)] == (["relu6"] if whole else ["relu"] * 2)


def test_normalisation_is_the_affine_map_that_it_says():
    torch.manual_seed(0)
    norm = drawn(nn.Sequential(nn.BatchNorm2d(3)))
    (_, node) = read(norm.double(), (3, 2, 2)).nodes
    factor, shift = node.affine()
    x = np.random.default_rng(0).normal(size=(3, 2, 2))
    by_hand = norm(torch.from_numpy(x)[None])[0].detach().numpy()
    np.testing.assert_allclose(x * factor[:, None, None] + shift[:, None, None], by_hand, atol=1e-14)


class Over(nn.Module):
    """A function of the input between two linear maps."""

    def __init__(self, f, channels=4):
        super().__init__()
        self.first, self.f, self.weight = nn.Conv2d(4, channels, 1), f, nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return self.f(self.first(x))


def halves(x):
    first, second = torch.chunk(x, 2, dim=1)
    return first - second


FUNCTIONS = {
    "cat": lambda x: torch.cat([x, 2 * x], dim=1),
    "cat of positions": lambda x: torch.cat((x, x[:, :, :1]), dim=-2),
    "chunk": halves,
    "split": lambda x: x.split([1, 3], dim=1)[1] * 2,
    "expand": lambda x: x[:, :1].expand(-1, 3, -1, -1) + 1,
    "relu6": F.relu6,
    "leaky": lambda x: F.leaky_relu(x, 0.2),
    "padded": lambda x: F.pad(x, (1, 0, 2, 0), value=3.0),
    "sum": lambda x: x.sum((2, 3)),
    "average": lambda x: F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=False),
    "maximum": lambda x: F.max_pool2d(x, 2, 2, 1, 2, ceil_mode=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "convolution": lambda x: F.conv2d(x, torch.ones(4, 1, 2, 2).double(), groups=4, dilation=2, padding="same"),
    "quotient": lambda x: (x / 3 - 1) / torch.tensor(2.0),
    "constant of more channels": lambda x: x[:, :1] * torch.arange(3.0).reshape(3, 1, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    torch.manual_seed(0)
    assert difference(Over(FUNCTIONS[name]).eval(), (4, 6, 5)) < 1e-13


class Changed(nn.Module):
    """Changes in place whose argument is read again."""

    def __init__(self, form):
        super().__init__()
        self.a, self.relu, self.c, self.form = nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2), form

    def forward(self, u):
        h = self.a(u)
        if self.form == "module":
            self.relu(h)
        elif self.form == "method":
            h.relu_()
        elif self.form == "sum":
            kept = h
            h += u
            return self.c(h) + self.c(kept)
        elif self.form == "kept copy":
            kept = h.clone()
            h += u
            return self.c(h) + self.c(kept)
        else:
            F.relu(h, inplace=True)
        return self.c(h) + self.c(h)


@pytest.mark.parametrize("form", ["module", "method", "sum", "kept copy", "function"])
def test_what_is_changed_in_place_is_changed_for_all_readers(form):
    torch.manual_seed(0)
    assert difference(Changed(form).eval(), (3,)) < 1e-14


def test_a_view_that_changes_is_refused():
    class View(Changed):
        def forward(self, u):
            h = self.a(u)
            v = h.view(-1, 3, 1)
            v += 1
            return self.c(h)

    with pytest.raises(ValueError, match="differs from View by .* changes in place a view of what it reads again"):
        read(View("").eval(), (3,))


REPARAMETRISED = {
    "parametrized weight norm": lambda m: nn.utils.parametrizations.weight_norm(m),
    "parametrized spectral norm": lambda m: nn.utils.parametrizations.spectral_norm(m),
    "orthogonal": lambda m: nn.utils.parametrizations.orthogonal(m),
    "weight norm": lambda m: nn.utils.weight_norm(m),
    "spectral norm": lambda m: nn.utils.spectral_norm(m),
    "pruned": lambda m: prune.l1_unstructured(m, "weight", amount=0.5),
    "pruned twice": lambda m: prune.random_unstructured(prune.l1_unstructured(m, "weight", 0.3), "weight", 0.3),
    "pruned bias": lambda m: prune.random_unstructured(m, "bias", amount=1),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", REPARAMETRISED)
def test_weights_that_are_computed_from_others(how):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    REPARAMETRISED[how](network[0])
    for _ in range(3):
        network(torch.randn(5, 4, dtype=torch.float64))
    network.eval()
    state, kind = copy.deepcopy(network.state_dict()), type(network[0])
    assert difference(network, (4,)) < 1e-14
    graph = read(network, (4,))
    assert type(graph.nodes[1]) is steps.Linear and graph.nodes[1].names["weight"] == "0.weight"
    assert type(network[0]) is kind and all(torch.equal(state[k], v) for k, v in network.state_dict().items())


def test_a_graph_of_another_copy_has_its_weights():
    graph = read(drawn(MobileNetV2()), (3, 32, 32))
    wide = graph.over(copy.deepcopy(graph.traced).double())
    u = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    y = wide.values(u)[graph.output]
    assert y.dtype == torch.float64
    with torch.no_grad():
        torch.testing.assert_close(y, graph.traced.double()(u), rtol=1e-12, atol=1e-12)


def test_what_a_value_needs_stops_at_what_is_known():
    graph = read(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU()).eval(), (2,))
    names = [n.name for n in graph.nodes]
    assert [n.name for n in graph.needed([names[3]])] == names[:4]
    assert [n.name for n in graph.needed([names[3]], {names[2]})] == names[2:4]


class Cells(nn.Module):
    """Three steps of a cell, with a state that begins at zeros."""

    def __init__(self, given):
        super().__init__()
        self.cell, self.out, self.given = nn.RNNCell(2, 3), nn.Linear(3, 1), given

    def forward(self, u):
        h = u.new_zeros(u.shape[0], 3) if self.given else None
        for t in range(3):
            h = self.cell(u[:, t], h)
        return self.out(h)


@pytest.mark.parametrize("given", [True, False])
def test_a_cell_is_two_linear_maps_and_one_of_states_a_call(given):
    torch.manual_seed(0)
    network = Cells(given)
    assert difference(network, (3, 2)) < 1e-14
    graph = read(network, (3, 2))
    assert [n.path for n in graph.nodes if isinstance(n, steps.Activation)] == ["cell"] * 3


class Loop(nn.Module):
    def forward(self, u):
        while u.abs().sum() > 1:
            u = u / 2
        return u


class Zeros(nn.Module):
    def forward(self, u):
        return u + torch.zeros(len(u), 3)


@pytest.mark.parametrize(
    "network, shape, error, words",
    [
        (nn.Sequential(nn.Linear(3, 3), nn.GELU()).eval(), (3,), TypeError, r"module '1' \(GELU\) has no conversion"),
        (Loop().eval(), (3,), TypeError, r"Loop cannot be traced .* line \d+ of .*test_reading.py, `while u.abs"),
        (Zeros().eval(), (3,), TypeError, r"`return u \+ torch.zeros\(len\(u\), 3\)`.*x.new_zeros\(x.shape\[0\], k\)"),
        (nn.Sequential(nn.BatchNorm1d(3)), (3,), ValueError, r"module '0' \(BatchNorm1d\): it is in training mode"),
        (nn.Sequential(nn.Dropout()), (3,), ValueError, r"module '0' \(Dropout\): it is in training mode"),
        (nn.Sequential(nn.Conv2d(3, 2, 3)), (2, 5, 5), WrongShape, r"it reads samples of shape \(3, H, W\)"),
        (nn.Sequential(nn.PReLU(2)), (3, 4), WrongShape, "it has 2 slopes, but its input has shape"),
        (nn.Sequential(nn.PReLU(1, init=-0.5)), (3,), ValueError, "its slope -0.5 is not in"),
        (nn.Sequential(nn.Hardtanh()), (3,), TypeError, r"module '0' \(Hardtanh\) has no conversion"),
        (
            Over(lambda x: torch.cat([x, x[:, :, 1:]], 1)).eval(),
            (4, 5, 5),
            ValueError,
            r"cat in the forward of .*: it concatenates shapes \('N', 4, 5, 5\) and \('N', 4, 4, 5\) along dimension 1",
        ),
    ],
)
def test_what_is_not_read_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        read(network, shape)


def test_prelu_has_a_slope_a_channel():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 1), nn.PReLU(3))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([0.0, 0.25, 1.0]))
    assert difference(network, (2, 3, 3)) < 1e-14
    assert read(network, (2, 3, 3)).nodes[-1].slopes() == [0.0, 0.25, 1.0]


def test_windows_of_a_pool_are_those_of_torch():
    """Against torch's own pooling of the numbers of the positions, maximum by maximum."""
    pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)
    node = read(nn.Sequential(pool).eval(), (1, 6, 7)).nodes[-1]
    numbers = torch.arange(42.0).reshape(1, 1, 6, 7)
    found = node.windows((1, 6, 7))
    np.testing.assert_array_equal(found.max(axis=1).reshape(node.shape[1:]), pool(numbers)[0, 0])
    least = np.where(found >= 0, found, 99).min(axis=1).reshape(node.shape[1:])
    np.testing.assert_array_equal(least, -pool(-numbers)[0, 0])
    assert math.prod(node.shape) == len(found)


class Centred(nn.Module):
    def forward(self, x):
        return x - torch.mean(x, 1, True)


class LeakyOfItsInput(nn.Module):
    def forward(self, x):
        return F.leaky_relu(x, 0.1, True) + x


@pytest.mark.parametrize("kind", [Centred, LeakyOfItsInput])
def test_a_last_argument_that_is_true_is_in_place_only_where_it_says_so(kind):
    assert difference(kind(), (4,)) < 1e-14
    from_network(kind(), (4,))
