"""Every module and function that a network may be made of, read into a model, against the network's own outputs."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.compose import interconnect as compose
from implicit_models.compose.attention import BoundedAttention
from implicit_models.compose.network import assemble
from network_patterns import PATTERNS, MobileNetV2
from network_patterns import drawn as pattern_of


def drawn(network, seed=0):
    """Parameters and running statistics at random, evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in (*network.named_parameters(), *network.named_buffers()):
            if t.is_floating_point():
                t.normal_(generator=generator).mul_(0.5)
                if name.endswith("running_var"):
                    t.abs_().add_(0.3)
    return network.eval()


TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def converted(network, shape, seed=0):
    """The model of a network in single precision, and the largest difference of its outputs in units of what each
    precision allows."""
    network, worst = drawn(nn.Sequential(network, nn.Flatten()), seed), 0.0
    for dtype, tol in TOLERANCE.items():
        network = network.to(dtype)
        model = compose.from_network(network, shape, dtype=dtype)
        u = torch.randn(4, *shape, generator=torch.Generator().manual_seed(seed + 1), dtype=dtype)
        with torch.no_grad():
            mine, wanted = model(u.flatten(1)), network(u)
        assert mine.shape == wanted.shape and mine.dtype == dtype and bool(torch.isfinite(mine).all())
        worst = max(worst, float(((mine - wanted).abs() / (tol * (1 + wanted.abs()))).max()))
        assert model.A.layout is torch.sparse_csr and model.last_solve.solver == "triangular" and model.certificate()
    return model, worst


CONVOLUTIONS = [
    (nn.Conv2d(2, 4, 3), (2, 6, 5)),
    (nn.Conv2d(2, 4, 3, stride=2, padding=1), (2, 7, 6)),
    (nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), bias=False), (2, 7, 6)),
    (nn.Conv2d(4, 6, 3, padding="same", groups=2, dilation=2), (4, 5, 6)),
    (nn.Conv2d(4, 4, 3, padding="valid", groups=4), (4, 5, 6)),
    (nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), (3, 5, 4)),
    (nn.Conv2d(3, 2, 3, padding=2, padding_mode="replicate"), (3, 5, 4)),
    (nn.Conv2d(3, 2, 3, padding=(1, 2), padding_mode="circular"), (3, 5, 4)),
    (nn.Conv2d(3, 5, 1, stride=2), (3, 5, 5)),
    (nn.Conv1d(2, 3, 4, padding="same"), (2, 9)),
    (nn.Conv1d(4, 2, 3, stride=2, padding=3, dilation=2, groups=2), (4, 10)),
]
POOLS = [
    (nn.MaxPool2d(2), (2, 6, 4)),
    (nn.MaxPool2d(3, stride=2, padding=1), (2, 7, 6)),
    (nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (2, 8, 6)),
    (nn.MaxPool2d(2, dilation=2, stride=1), (1, 5, 5)),
    (nn.MaxPool2d(1), (1, 3, 3)),
    (nn.MaxPool1d(3, 2), (3, 8)),
    (nn.MaxPool1d(2, 3, ceil_mode=True), (2, 7)),
    (nn.AvgPool2d(2), (2, 6, 4)),
    (nn.AvgPool2d(3, stride=2, padding=1), (2, 7, 6)),
    (nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False, ceil_mode=True), (2, 8, 6)),
    (nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), (2, 8, 6)),
    (nn.AvgPool2d(2, divisor_override=3), (1, 4, 4)),
    (nn.AvgPool1d(3, 2, padding=1), (2, 8)),
    (nn.AdaptiveAvgPool2d((1, 1)), (3, 5, 4)),
    (nn.AdaptiveAvgPool2d((3, None)), (2, 7, 4)),
    (nn.AdaptiveAvgPool1d(4), (2, 7)),
    (nn.AdaptiveMaxPool2d((2, 3)), (2, 5, 7)),
    (nn.AdaptiveMaxPool1d(3), (2, 8)),
]
OTHERS = [
    (nn.BatchNorm2d(3), (3, 4, 2)),
    (nn.BatchNorm2d(3, affine=False), (3, 4, 2)),
    (nn.BatchNorm1d(5), (5,)),
    (nn.BatchNorm1d(5), (5, 3)),
    (nn.Softmax(dim=1), (4,)),
    (nn.Softmax(dim=1), (3, 2, 4)),
    (nn.Softmax(dim=-1), (3, 4)),
    (nn.Dropout2d(0.5), (2, 3, 3)),
]


@pytest.mark.parametrize("module, shape", [*CONVOLUTIONS, *POOLS, *OTHERS], ids=lambda v: str(v)[:60])
def test_a_module_alone(module, shape):
    assert converted(module, shape)[1] <= 1


@pytest.mark.parametrize("module, shape", [*CONVOLUTIONS[:4], *POOLS[:2], OTHERS[0]], ids=lambda v: str(v)[:60])
def test_a_module_between_activations(module, shape):
    model, worst = converted(nn.Sequential(nn.Tanh(), module, nn.ReLU()), shape)
    assert worst <= 1 and {s.name for s in model.activation.segments} >= {"tanh", "relu"}


MORE = [
    (nn.ReLU6(), (5,)),
    (nn.PReLU(3), (3, 2, 2)),
    (nn.PReLU(), (4,)),
    (nn.RNNCell(4, 3), (4,)),
    (nn.AdaptiveAvgPool2d((4, 5)), (2, 3, 3)),
    (nn.Conv2d(4, 8, 3, padding=1, groups=4), (4, 4, 5)),
]


@pytest.mark.parametrize("module, shape", MORE, ids=lambda v: str(v)[:60])
def test_more_modules(module, shape):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Sequential(module), nn.Flatten()).double()
    model = compose.from_network(network, shape, dtype=torch.float64)
    u = 8 * torch.randn(6, *shape, dtype=torch.float64)
    torch.testing.assert_close(model(u.flatten(1)), network(u), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_the_field(pattern):
    torch.manual_seed(0)
    network = pattern_of(pattern())
    model = compose.from_network(network, (3, 32, 32))
    u = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y, mine = network(u), model(u.flatten(1))
    assert float((mine - y).abs().max() / y.abs().max()) < 1e-5 and y.std() > 1e-3


def test_relu6_has_two_states_a_unit():
    model = compose.from_network(pattern_of(MobileNetV2()), (3, 32, 32), dtype=torch.float64)
    # two a unit at 16 x 16 (4 and 4 channels, 6 before the stride), at 8 x 8 (6, 8, 8 and 6)
    assert model.n_states == 2 * (16 * 16 * (4 + 4 + 6) + 8 * 8 * (6 + 8 + 8 + 6))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_with_small_activations(pattern):
    """As torchvision draws weights by the number of outputs: depthwise layers shrink what they pass, far below the 6 of
    ReLU6."""
    torch.manual_seed(0)
    network = pattern().eval()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
            module.weight.data *= 0.1
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    model = compose.from_network(network, (3, 32, 32))
    u = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y, mine = network(u), model(u.flatten(1))
    assert 0 < float(y.abs().max()) < 0.05
    assert float((mine - y).abs().max() / y.abs().max()) < 1e-5


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", [nn.utils.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_weights_that_are_computed_from_others(how):
    torch.manual_seed(0)
    network = nn.Sequential(how(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 2)).double().eval()
    u = torch.randn(6, 4, dtype=torch.float64)
    torch.testing.assert_close(compose.from_network(network)(u), network(u), rtol=1e-12, atol=1e-12)
    assert hasattr(network[0], "weight_g") or hasattr(network[0], "parametrizations")


def test_convolution_matrix_of_the_thesis():
    """3 x 3 image, 2 x 2 kernel: the matrix D that section 2.5 prints."""
    conv = nn.Conv2d(1, 1, 2, bias=False).double()
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    D = compose.from_network(nn.Sequential(conv, nn.Flatten()), (1, 3, 3)).D.to_dense().numpy()
    printed = [
        [1, 2, 0, 3, 4, 0, 0, 0, 0],
        [0, 1, 2, 0, 3, 4, 0, 0, 0],
        [0, 0, 0, 1, 2, 0, 3, 4, 0],
        [0, 0, 0, 0, 1, 2, 0, 3, 4],
    ]
    np.testing.assert_array_equal(D, printed)


def test_max_pooling_of_the_thesis():
    """Figure 2.3, and the padded zeros of its map."""
    image = torch.tensor([[12.0, 20, 30, 0], [8, 12, 2, 0], [34, 70, 37, 4], [112, 100, 25, 12]])
    model = compose.from_network(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), (1, 4, 4), dtype=torch.float64)
    u = image.reshape(1, 16).double()
    assert model(u).tolist() == [[20, 30, 112, 37]]
    assert model.n_states == 16 and model.equilibrium(u).x.count_nonzero() == 4


class BasicBlock(nn.Module):
    """The block of torchvision's small residual networks; a projection where sizes change."""

    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class SubsampledShortcut(nn.Module):
    """Option A of He et al.: every second pixel, channels padded with zeros."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, 2, 1)

    def forward(self, x):
        return F.relu(self.conv(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2), "constant", 0))


def test_residual_networks():
    pooled = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.MaxPool2d(3, 2, 1),
        BasicBlock(4, 4),
        BasicBlock(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
    )
    model, worst = converted(pooled, (3, 8, 9))
    # windows of 9 on 4 x 5 places of 4 channels, two layers of 4 and two of 6 channels
    assert worst <= 1 and model.n_states == 4 * 20 * 9 + 2 * 4 * 20 + 2 * 6 * 2 * 3
    model, worst = converted(SubsampledShortcut(), (2, 6, 5))
    assert worst <= 1 and model.n_states == 6 * 3 * 3


@pytest.mark.parametrize(
    "options",
    [{}, {"nonlinearity": "relu", "bias": False}, {"num_layers": 2}, {"bidirectional": True, "num_layers": 2}],
    ids=str,
)
def test_a_recurrent_network_unrolled(options):
    class Every(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(3, 4, batch_first=True, **options)

        def forward(self, u):
            return self.rnn(u)[0]

    class Last(Every):
        def forward(self, u):
            _, h = self.rnn(u)
            return h[-1]

    for kind in (Every, Last):
        model, worst = converted(kind(), (5, 3))
        assert worst <= 1
    assert model.n_states == 5 * 4 * options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)


@pytest.mark.parametrize("heads, bias", [(1, True), (2, False)])
def test_bounded_attention(heads, bias):
    model, worst = converted(BoundedAttention(4, heads, bias=bias), (3, 4))
    assert worst <= 1
    # 3 tanh maps of T F, products of T^2 d a head for the scores, softmax T^2, products T^2 d: two states each
    T, n_features = 3, 4
    assert model.n_states == 3 * T * n_features + 2 * T * T * n_features * 2 + heads * T * T


def test_usual_attention_is_not_lipschitz_and_says_so():
    class Scores(nn.Module):
        def forward(self, u):
            return torch.matmul(u, u.transpose(1, 2)).flatten(1)

    with pytest.raises(
        ValueError, match="matmul.*first factor has no bound .18 of 18 entries., so that the product is not Lipschitz"
    ):
        compose.from_network(Scores(), (3, 2))


class Rearranged(nn.Module):
    """What a forward does to shapes, in one place."""

    def __init__(self):
        super().__init__()
        self.scale, self.mix = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.ones(4, 2))
        self.linear = nn.Linear(2, 2)

    def forward(self, x):  # (N, 3, 4)
        n = x.size(0)
        a = (x * self.scale - 0.5) / 2 + torch.tanh(x).mean(1, keepdim=True)
        b = torch.cat([a[:, :2], -a[:, 2:3], a[:, -1:, :]], dim=1)  # (N, 4, 4)
        c = torch.matmul(b.permute(0, 2, 1), self.mix)  # (N, 4, 2)
        d = (
            torch.stack([self.linear(c), c.transpose(1, 2).reshape(n, 4, 2)], dim=1)
            .view(n, -1, 2)
            .unsqueeze(1)
            .squeeze(1)
        )
        return (1 - d).sigmoid() * torch.tanh(d) + 2 * d[..., :1]


def test_rearrangements():
    assert converted(Rearranged(), (3, 4))[1] <= 1


class ByName(nn.Module):
    """Arguments under torch's names, and sizes computed from others."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv1d(2, 3, 2), nn.Linear(6, 2)

    def forward(self, x):  # (N, 2, 3)
        x = F.relu(input=self.conv(input=x))  # (N, 3, 2)
        n, c, length = x.shape
        y = torch.sub(input=x, other=torch.tanh(input=x), alpha=0.5).view(n, c * length)
        z = torch.flatten(input=x, start_dim=1).view(x.size(0), x.size(1) * (x.shape[2] + 1) - x.size(1))
        return self.linear(input=torch.add(y, other=z))


def test_arguments_by_name_and_sizes_that_are_computed():
    assert converted(ByName(), (2, 3))[1] <= 1


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 5), nn.Linear(3, 5), nn.Linear(5, 5)

    def forward(self, u):
        gate = torch.sigmoid(self.a(u))
        return gate * (3 * torch.tanh(self.b(u)) - 1) + (1 - gate) * torch.relu(self.c(gate))


def test_products_keep_to_their_bounds():
    """A gated unit: bounds are read through sums and ReLUs of bounded states."""
    assert converted(Gate(), (3,))[1] <= 1
    assembly, value, *_ = assemble(Gate().double(), (3,))
    found = assembly.reach(value)
    u = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 50
    assert np.isfinite(found).all()
    x = assembly.run(u.numpy())
    assert (np.abs(value.at(x, u.numpy())) <= found * (1 + 1e-12)).all()
    assert (np.abs(x) <= assembly.sizes() * (1 + 1e-12)).all()


_CHANNELS = st.integers(1, 3)


@st.composite
def _networks(draw):
    channels, height, width = draw(_CHANNELS), draw(st.integers(4, 7)), draw(st.integers(4, 7))
    shape, layers = (channels, height, width), []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "bn", "relu", "tanh", "max", "average", "block"]))
        if kind == "conv":
            new = draw(_CHANNELS)
            layers.append(
                nn.Conv2d(
                    channels,
                    new,
                    3,
                    stride=draw(st.integers(1, 2)),
                    padding=1,
                    dilation=draw(st.integers(1, 2)) if min(height, width) > 4 else 1,
                )
            )
            channels = new
        elif kind in ("max", "average"):
            layers.append(
                (nn.MaxPool2d if kind == "max" else nn.AvgPool2d)(
                    2, stride=1, padding=draw(st.integers(0, 1)), ceil_mode=draw(st.booleans())
                )
            )
        elif kind == "block":
            layers.append(BasicBlock(channels, channels))
        else:
            layers.append({"bn": nn.BatchNorm2d(channels), "relu": nn.ReLU(), "tanh": nn.Tanh()}[kind])
        height, width = nn.Sequential(*layers).eval()(torch.zeros(1, *shape)).shape[2:]
        if min(height, width) < 4:
            break
    return nn.Sequential(*layers), shape


@settings(max_examples=25, deadline=None)
@given(_networks(), st.integers(0, 1000))
def test_random_convolutional_stacks(made, seed):
    network, shape = made
    assert converted(network, shape, seed)[1] <= 1


@pytest.mark.parametrize(
    "network, shape, error, words",
    [
        (
            nn.Conv2d(3, 2, 3),
            (2, 5, 5),
            ValueError,
            r"module '0' \(Conv2d\): it reads samples of shape \(3, H, W\), but its input has shape \(2, 5, 5\)",
        ),
        (nn.Conv2d(1, 2, 7), (1, 5, 5), ValueError, "window of .7, 7. entries is larger than the padded input"),
        (nn.BatchNorm2d(2, track_running_stats=False).eval(), (2, 3, 3), ValueError, "no running statistics"),
        (nn.BatchNorm2d(3).eval(), (2, 3, 3), ValueError, "it reads 3 channels first"),
        (nn.MaxPool2d(2, return_indices=True), (1, 4, 4), TypeError, "return_indices"),
        (nn.LSTM(3, 2, batch_first=True), (4, 3), TypeError, r"module '0' \(LSTM\) has no conversion"),
        (nn.RNN(3, 2), (4, 3), ValueError, "batch_first"),
        (nn.LayerNorm(3), (3,), TypeError, r"module '0' \(LayerNorm\) has no conversion"),
        (nn.Softmax(dim=0), (3,), ValueError, "along dimension 0, the batch"),
    ],
)
def test_what_does_not_fit_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        compose.from_network(nn.Sequential(network, nn.Flatten()), shape)


class Over(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, u):
        return self.f(u)


@pytest.mark.parametrize(
    "unflatten, shape",
    [
        (nn.Unflatten(1, (2, 3, 4)), (24,)),
        (nn.Unflatten(1, (2, -1)), (24,)),
        (nn.Unflatten(-1, torch.Size([3, 2])), (4, 6)),
        (nn.Unflatten(1, (2, 2)), (4, 6)),
    ],
)
def test_unflattened_values_keep_their_order(unflatten, shape):
    """Behind states, and before a module that sees the new axes."""
    rest = [nn.Conv2d(2, 3, 2), nn.Tanh()] if unflatten.unflattened_size == (2, 3, 4) else []
    _, worst = converted(nn.Sequential(nn.Linear(shape[-1], shape[-1]), nn.ReLU(), unflatten, *rest), shape)
    assert worst < 1


@pytest.mark.parametrize(
    "unflatten, error, words",
    [
        (nn.Unflatten(1, (5, 2)), ValueError, r"module '0.0' \(Unflatten\): cannot reshape"),
        (nn.Unflatten(0, (2, 3)), ValueError, r"\(Unflatten\): it works along dimension 0, the batch"),
    ],
)
def test_unflattening_that_does_not_fit_is_named(unflatten, error, words):
    with pytest.raises(error, match=words):
        compose.from_network(nn.Sequential(nn.Sequential(unflatten), nn.Flatten()), (6,))


@pytest.mark.parametrize(
    "f, error, words",
    [
        (lambda u: u[0], ValueError, "getitem.*indexes the batch"),
        (lambda u: u.reshape(6), ValueError, r"the first size must be x.size\(0\) or -1"),
        (lambda u: u.reshape(-1, 5), ValueError, r"do not reshape to \(5,\)"),
        (lambda u: u.mean(), ValueError, "averages the batch too"),
        (lambda u: u.squeeze(), ValueError, "squeeze needs its dimension"),
        (lambda u: u.permute(1, 0, 2), ValueError, "the batch must stay first"),
        (lambda u: u * u, ValueError, "first factor has no bound"),
        (lambda u: torch.tanh(u) * u, ValueError, "second factor has no bound"),
        (lambda u: 1 / torch.sigmoid(u), TypeError, "only division by numbers and constants"),
        (lambda u: F.dropout(u, 0.5), ValueError, "training=self.training"),
        (lambda u: F.pad(u, (1, 1), mode="reflect"), TypeError, "padding mode 'reflect'"),
        (lambda u: torch.cat([u, u], dim=0), ValueError, "along dimension 0"),
        (lambda u: torch.exp(u), TypeError, "exp in the forward of"),
        (lambda u: u.reshape(u.size(0) * 2, 3), TypeError, "mul.*computes with the size of the batch"),
    ],
)
def test_functions_that_do_not_fit_are_named(f, error, words):
    with pytest.raises(error, match=words):
        compose.from_network(nn.Sequential(Over(f), nn.Flatten()), (2, 3))


def test_heads_must_divide():
    with pytest.raises(ValueError, match="heads must divide features = 4, got 3"):
        BoundedAttention(4, 3)


def test_scores_are_scaled_by_the_width():
    attention = drawn(BoundedAttention(4, 2)).double()
    u = torch.randn(2, 3, 4, dtype=torch.float64)
    q, k, v = (torch.tanh(layer(u)) for layer in (attention.query, attention.key, attention.value))
    by_hand = [
        torch.softmax(q[..., h] @ k[..., h].mT / math.sqrt(2), -1) @ v[..., h] for h in (slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close(attention(u), attention.out(torch.cat(by_hand, -1)))
