"""States of a network: values by hand, the order of the layers, modules called again, nothing of the caller's
touched."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from implicit_models import ImplicitModel
from implicit_models.sim.network.states import States, states
from implicit_models.sim.network.teacher import teacher_matrices


def _inputs(m, *shape, seed=0, dtype=torch.float64):
    return torch.randn(m, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _mlp(*sizes, seed=0, activation=nn.ReLU, dtype=torch.float64):
    torch.manual_seed(seed)
    layers = []
    for k, (i, o) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers += [nn.Linear(i, o, dtype=dtype)] + ([activation()] if k < len(sizes) - 2 else [])
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """Two convolutions with batch norm, a sum, a pooled linear output."""

    def __init__(self, inplace=False):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.conv2, self.bn2 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.relu1, self.relu2, self.drop = nn.ReLU(inplace), nn.ReLU(inplace), nn.Dropout(0.5)
        self.out = nn.Linear(3, 4)

    def forward(self, u):
        h = self.relu1(self.bn1(self.conv1(u)))
        x = self.bn2(self.conv2(h))
        x += h
        return self.out(self.drop(self.relu2(x).mean((2, 3))))


def _residual(seed=0, **kw):
    torch.manual_seed(seed)
    net = Residual(**kw).double()
    for bn in (net.bn1, net.bn2):
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.5, 2)
        with torch.no_grad():
            bn.weight.normal_()
            bn.bias.normal_()
    return net


class Unrolled(nn.Module):
    """h_t = phi(W u_t + V h_{t-1}), three steps with one activation module, or with an nn.RNNCell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = nn.RNNCell(2, 3, nonlinearity="tanh") if cell else None
        self.w, self.v, self.phi, self.out = nn.Linear(2, 3), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)
        if cell:
            self.phi = None

    def forward(self, u):
        h = u.new_zeros(u.shape[0], 3)
        for t in range(3):
            h = self.cell(u[:, t], h) if self.cell else self.phi(self.w(u[:, t]) + self.v(h))
        return self.out(h)


# ---------------------------------------------------------------- values


def test_mlp_values_and_order():
    net, U = _mlp(5, 4, 3, 2), _inputs(7, 5)
    s = states(net, U)
    W = [m.weight.detach().numpy() for m in net if isinstance(m, nn.Linear)]
    b = [m.bias.detach().numpy() for m in net if isinstance(m, nn.Linear)]
    z1 = U.numpy() @ W[0].T + b[0]
    z2 = np.maximum(z1, 0) @ W[1].T + b[1]
    np.testing.assert_allclose(s.Z, np.hstack([z2, z1]), rtol=1e-13, atol=1e-13)  # the last layer on top
    np.testing.assert_allclose(s.X, np.hstack([np.maximum(z2, 0), np.maximum(z1, 0)]), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(s.Y, np.maximum(z2, 0) @ W[2].T + b[2], rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(s.U, U.numpy())
    assert s.layers == {"3": slice(0, 3), "1": slice(3, 7)} and s.activation == [("relu", 3), ("relu", 4)]

    t = teacher_matrices(s)
    A, B = np.zeros((7, 7)), np.zeros((7, 5))
    A[:3, 3:], B[3:] = W[1], W[0]
    np.testing.assert_allclose(t.A.toarray(), A, atol=1e-15)
    np.testing.assert_allclose(t.B.toarray(), B, atol=1e-15)
    np.testing.assert_allclose(t.C.toarray(), np.hstack([W[2], np.zeros((2, 4))]), atol=1e-15)
    assert t.D.nnz == 0 and t.A.nnz == 12 and t.B.nnz == 20  # structural zeros are none of rounding
    np.testing.assert_allclose(t.b, np.concatenate([b[1], b[0]]), atol=1e-15)
    np.testing.assert_allclose(t.d, b[2], atol=1e-15)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=3, max_size=5),
    seed=st.integers(0, 999),
    m=st.integers(1, 9),
    batch=st.integers(1, 4),
    activation=st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid, lambda: nn.LeakyReLU(0.2), lambda: nn.PReLU(init=0.3)]),
)
@settings(deadline=None, max_examples=25)
def test_states_solve_the_implicit_equation_of_the_teacher(sizes, seed, m, batch, activation):
    net = _mlp(*sizes, seed=seed, activation=activation).double()
    s = states(net, _inputs(m, sizes[0], seed=seed), batch_size=batch)
    t = teacher_matrices(s, batch_size=3)
    np.testing.assert_allclose(s.X @ t.A.T + s.U @ t.B.T + t.b, s.Z, atol=1e-12)
    np.testing.assert_allclose(s.X @ t.C.T + s.U @ t.D.T + t.d, s.Y, atol=1e-12)
    model = ImplicitModel.from_matrices(t.A, t.B, t.C, t.D, s.activation, b=t.b, d=t.d)
    np.testing.assert_allclose(model(torch.from_numpy(s.U)).detach().numpy(), s.Y, atol=1e-10)


@pytest.mark.parametrize("inplace", [False, True])
def test_residual_network_with_batch_norm_equals_its_folded_form(inplace):
    net, U = _residual(inplace=inplace), _inputs(6, 2, 4, 4)
    s = states(net, U)
    folded = copy.deepcopy(net).eval()
    folded.conv1, folded.bn1 = fuse_conv_bn_eval(folded.conv1, folded.bn1), nn.Identity()
    folded.conv2, folded.bn2 = fuse_conv_bn_eval(folded.conv2, folded.bn2), nn.Identity()
    f = states(folded, U)
    for name in ("X", "Z", "Y"):
        np.testing.assert_allclose(getattr(s, name), getattr(f, name), atol=1e-12)
    np.testing.assert_array_equal(s.X, np.maximum(s.Z, 0))  # Z was read before the map worked in place
    np.testing.assert_array_equal(s.U, U.numpy().reshape(6, -1))
    assert [b.shape for b in s.blocks] == [(3, 4, 4), (3, 4, 4)] and s.n_states == 96
    t = teacher_matrices(s)
    np.testing.assert_allclose(s.X @ t.A.T + s.U @ t.B.T + t.b, s.Z, atol=1e-12)
    assert t.A[:48, 48:].nnz == t.A.nnz and np.all(
        t.A.toarray()[:48, 48:].diagonal() != 0
    )  # the sum is a column of its own


def test_linear_batch_norm_lies_inside_z():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()
    net[1].running_mean.normal_()
    fused = nn.Sequential(
        fuse_linear_bn_eval(copy.deepcopy(net[0]).eval(), copy.deepcopy(net[1]).eval()), net[2], net[3]
    )
    U = _inputs(9, 3)
    np.testing.assert_allclose(states(net, U).Z, states(fused, U).Z, atol=1e-12)


@pytest.mark.parametrize("cell", [False, True])
def test_unrolled_recurrence_has_a_block_per_call(cell):
    torch.manual_seed(1)
    net, U = Unrolled(cell).double(), _inputs(5, 3, 2)
    s = states(net, U)
    name = "cell" if cell else "phi"
    assert [b.name for b in s.blocks] == [f"{name}[2]", f"{name}[1]", f"{name}[0]"] and s.activation == [
        ("tanh", 3)
    ] * 3
    if cell:
        W, V = net.cell.weight_ih, net.cell.weight_hh
        bias = net.cell.bias_ih + net.cell.bias_hh
    else:
        W, V, bias = net.w.weight, net.v.weight, net.w.bias + net.v.bias
    h, z = torch.zeros(5, 3, dtype=torch.float64), []
    for k in range(3):
        z.append(U[:, k] @ W.T + h @ V.T + bias)
        h = torch.tanh(z[-1])
    np.testing.assert_allclose(s.Z, torch.cat(z[::-1], 1).detach().numpy(), atol=1e-13)
    t = teacher_matrices(s)  # the shared weights appear once per step
    np.testing.assert_allclose(t.A.toarray()[:3, 3:6], V.detach().numpy(), atol=1e-14)
    np.testing.assert_allclose(t.A.toarray()[3:6, 6:], V.detach().numpy(), atol=1e-14)


def test_a_network_that_goes_on_with_the_argument_of_an_in_place_activation():
    class Mutating(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.relu, self.c = nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)

        def forward(self, u):
            h = self.a(u)
            self.relu(h)
            return self.c(h)

    torch.manual_seed(0)
    net = Mutating().double()
    s = states(net, _inputs(8, 3))
    t = teacher_matrices(s)
    np.testing.assert_allclose(s.X @ t.C.T + t.d, s.Y, atol=1e-13)
    np.testing.assert_array_equal(s.X, np.maximum(s.Z, 0))
    assert (s.Z < 0).any()


@pytest.mark.parametrize("activation", ["relu", [("tanh", 4), ("leaky_relu(0.3)", 3)]])
def test_implicit_model_gives_its_equilibrium(activation):
    model = ImplicitModel(3, 2, 7, activation=activation, bias=True, tol=1e-12, seed=3).double()
    with torch.no_grad():
        model.b.normal_(generator=torch.Generator().manual_seed(0))
    U = _inputs(6, 3)
    s = states(model, U, batch_size=4)
    A, B, b = (M.detach().numpy() for M in (model.A, model.B, model.b))
    X = np.zeros((6, 7))
    for _ in range(500):  # Picard, by hand
        z = X @ A.T + U.numpy() @ B.T + b
        X = (
            np.maximum(z, 0)
            if activation == "relu"
            else np.hstack([np.tanh(z[:, :4]), np.where(z[:, 4:] > 0, z[:, 4:], 0.3 * z[:, 4:])])
        )
    np.testing.assert_allclose(s.X, X, atol=1e-10)
    np.testing.assert_allclose(s.Z, z, atol=1e-10)
    np.testing.assert_allclose(s.Y, model(U).detach().numpy(), atol=1e-12)
    assert s.activation == ([("relu", 7)] if activation == "relu" else [("tanh", 4), ("leaky_relu(0.3)", 3)])
    t = teacher_matrices(s)
    np.testing.assert_array_equal(t.A.toarray(), A)
    np.testing.assert_array_equal(t.b, b)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("own_folder", [True, False])
def test_memory_maps_hold_the_same_values(tmp_path, own_folder):
    net, U = _mlp(5, 4, 3, 2, dtype=torch.float32), _inputs(50, 5, dtype=torch.float32)
    small = states(net, U, batch_size=8)
    mapped = states(net, U, batch_size=8, memory_budget=100, folder=tmp_path / "a" if own_folder else None)
    for name in ("X", "Z", "Y"):
        assert isinstance(getattr(mapped, name), np.memmap) and not isinstance(getattr(small, name), np.memmap)
        np.testing.assert_array_equal(getattr(mapped, name), getattr(small, name))
    assert mapped.X.dtype == np.float32 and small.folder is None
    folder = mapped.folder
    assert {f.name for f in folder.iterdir()} == {"X.npy", "Z.npy", "Y.npy"}
    if own_folder:
        assert folder == tmp_path / "a"
    else:
        taken = mapped.take(slice(0, 5))
        del mapped
        assert not folder.exists() and taken.n_samples == 5  # a temporary folder goes with its states; copies stay


def test_inputs_from_numpy_a_memory_map_or_another_precision(tmp_path):
    net, U = _mlp(5, 4, 2, dtype=torch.float32), _inputs(9, 5, dtype=torch.float32)
    np.save(tmp_path / "U.npy", U.numpy())
    want = states(net, U)
    for given_U in (U.numpy(), np.load(tmp_path / "U.npy", mmap_mode="r"), U.double(), U.clone().requires_grad_()):
        np.testing.assert_array_equal(states(net, given_U).Z, want.Z)


def test_double_precision_pass_leaves_the_network_in_single():
    net, U = _mlp(5, 4, 2, dtype=torch.float32), _inputs(9, 5)
    s = states(net, U, dtype=torch.float64)
    assert s.Z.dtype == np.float64 and net[0].weight.dtype == torch.float32
    np.testing.assert_allclose(
        s.Z, U.numpy() @ net[0].weight.detach().double().numpy().T + net[0].bias.detach().double().numpy(), atol=1e-15
    )


# ---------------------------------------------------------------- the caller's module


def _trace(net):
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()]
    return [m.training for m in net.modules()], hooks, {k: v.clone() for k, v in net.state_dict().items()}


def _same(a, b):
    return a[:2] == b[:2] and all(torch.equal(a[2][k], b[2][k]) for k in a[2])


def test_modes_hooks_and_statistics_are_restored():
    net = _residual()
    net.train()
    net.bn2.eval()  # a mixture
    calls = []
    net.relu1.register_forward_hook(lambda *a: calls.append(1))
    before = _trace(net)
    U = _inputs(6, 2, 4, 4)
    s = states(net, U)
    assert _same(before, _trace(net)) and calls
    np.testing.assert_array_equal(s.Y, states(net, U).Y)  # no dropout
    assert not np.isnan(s.Y).any()


def test_an_in_place_first_activation_does_not_write_to_the_inputs():
    torch.manual_seed(0)
    net, U = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)).double(), _inputs(4, 3)
    kept = U.clone()
    for V in (U, U.numpy()):
        assert (states(net, V).Z < 0).any()
        assert torch.equal(U, kept)


def test_an_exception_in_the_network_restores_it_too():
    class Failing(Residual):
        def forward(self, u):
            super().forward(u)
            raise RuntimeError("midway")

    net = Failing().double().train()
    before = _trace(net)
    with pytest.raises(TypeError, match="cannot be traced.*midway"):
        states(net, _inputs(6, 2, 4, 4))
    assert _same(before, _trace(net))
    bad = _inputs(6, 2, 4, 4)
    bad[4, 1, 0, 0] = np.nan
    net = _residual().train()
    before = _trace(net)
    with pytest.raises(ValueError, match="sample 4"):
        states(net, bad, batch_size=2)
    assert _same(before, _trace(net))


# ---------------------------------------------------------------- what cannot be imitated


class Functional(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.a, self.relu, self.b, self.c = (
            nn.Linear(3, 4, bias=False),
            nn.ReLU(),
            nn.Linear(4, 4, bias=False),
            nn.Linear(4, 2),
        )
        self.hidden = hidden

    def forward(self, u):
        return self.c(self.hidden(self.b(self.relu(self.a(u)))))


def test_a_functional_activation_is_a_block():
    torch.manual_seed(0)
    net, U = Functional(torch.relu).double(), _inputs(20, 3)
    s = states(net, U)
    first = np.maximum(U.numpy() @ net.a.weight.detach().numpy().T, 0)
    np.testing.assert_allclose(s.X[:, 4:], first, atol=1e-14)
    np.testing.assert_allclose(s.X[:, :4], np.maximum(first @ net.b.weight.detach().numpy().T, 0), atol=1e-14)
    assert [b.name for b in s.blocks] == ["relu_1", "relu"]


def test_relu6_is_two_blocks_and_prelu_one_for_each_slope():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Linear(4, 2), nn.PReLU(2), nn.Linear(2, 1)).double()
    net[3].weight.data = torch.tensor([0.1, 0.7], dtype=torch.float64)
    s = states(net, 20 * _inputs(50, 3))
    assert [(b.name, b.activation) for b in s.blocks] == [
        ("3.0", "leaky_relu(0.1)"),
        ("3.1", "leaky_relu(0.7)"),
        ("1[1]", "relu"),
        ("1[0]", "relu"),
    ]
    t = teacher_matrices(s)
    np.testing.assert_allclose(s.X @ t.A.T + s.U @ t.B.T + t.b, s.Z, atol=1e-12)
    model = ImplicitModel.from_matrices(t.A, t.B, t.C, t.D, s.activation, b=t.b, d=t.d)
    np.testing.assert_allclose(model(torch.from_numpy(s.U)).detach().numpy(), s.Y, atol=1e-12)


def test_an_offset_that_the_bias_balances_is_no_nonlinearity():
    """Pre-activations of size 1 are sums of terms of size 1e4, and their rounding is that of the terms."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    u = _inputs(40, 6) + 1e4
    with torch.no_grad():
        net[0].bias -= net[0].weight.sum(1) * 1e4
    assert states(net, u).n_states == 8
    with torch.no_grad():  # the same without a bias: the offsets of two inputs cancel
        net[0].weight[:, 1] = -net[0].weight[:, 0]
        net[0].weight[:, 2:] *= 1e-4
        net[0].bias.zero_()
    assert states(net, u).n_states == 8


class Rare(nn.Module):
    """A nonlinearity that few samples meet."""

    def __init__(self):
        super().__init__()
        self.a, self.relu, self.c = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)

    def forward(self, u):
        return self.c(self.relu(self.a(u))) + 100 * (u[:, :2] - 3).clamp(min=0)


class Changing(nn.Module):
    """Calls that depend on the data."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, u):
        return self.relu(self.relu(u)) if u[0, 0] == 9 else self.relu(u)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.a = nn.ReLU(), nn.Linear(3, 2).double()

    def forward(self, u):
        return self.a(u)


@pytest.mark.parametrize(
    ("network", "shape", "error", "words"),
    [
        (Rare().double(), (3,), TypeError, "clamp in the forward of Rare has no conversion"),
        (Functional(nn.GELU()).double(), (3,), TypeError, r"'hidden' \(GELU\) has no conversion; known are .*Tanh"),
        (Functional(lambda x: x * x).double(), (3,), TypeError, r"mul in the forward of .*: a product of shape \(4,\)"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 3)).double(),
            (1, 4, 4),
            TypeError,
            r"module '2' \(MaxPool2d\): a max-pool of shape \(2, 1, 1\) is no map of single states",
        ),
        (Changing().double(), (3,), TypeError, "Changing cannot be traced .*control flow at line .*== 9 else"),
        (nn.Linear(3, 2).double(), (3,), ValueError, "Linear has no activation: it has no states"),
        (Unused(), (3,), ValueError, "Unused has no activation"),
    ],
)
def test_what_is_no_network_of_states_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        states(network, _inputs(9, *shape))


def test_outputs_that_are_no_tensor_of_samples():
    class Pair(nn.Sequential):
        def forward(self, u):
            return super().forward(u), u

    with pytest.raises(TypeError, match="Pair must return one tensor that depends on the input, it returns 2 values"):
        states(Pair(nn.Linear(3, 2), nn.ReLU()).double(), _inputs(4, 3))

    class Total(nn.Sequential):
        def forward(self, u):
            return super().forward(u).sum(0)

    with pytest.raises(ValueError, match="sum in the forward of Total: it works along dimension 0, the batch"):
        states(Total(nn.Linear(3, 2), nn.ReLU()).double(), _inputs(4, 3))


@pytest.mark.parametrize(
    ("U", "error", "match"),
    [
        ([[1.0]], TypeError, "got list"),
        (np.zeros((4, 3), dtype=np.int64), TypeError, "int64"),
        (np.zeros(3), ValueError, r"\(3,\)"),
        (np.zeros((0, 3)), ValueError, r"\(0, 3\)"),
        (np.array([[0.0] * 3, [np.inf] * 3]), ValueError, "sample 1"),
    ],
)
def test_bad_inputs(U, error, match):
    with pytest.raises(error, match=match):
        states(_mlp(3, 4, 2), U)


def test_bad_networks_and_settings():
    from implicit_models import ImplicitRNN

    with pytest.raises(TypeError, match="torch module"):
        states(lambda u: u, _inputs(4, 3))
    with pytest.raises(TypeError, match="ImplicitRNN"):
        states(ImplicitRNN(3, 2, 4), _inputs(4, 3))
    with pytest.raises(ValueError, match="batch_size"):
        states(_mlp(3, 4, 2), _inputs(4, 3), batch_size=0)
    model = ImplicitModel(2, 1, 2, max_iter=1, on_failure="ignore", solver="picard", seed=0).double()
    U = torch.zeros(3, 2, dtype=torch.float64)
    U[2] = 5.0
    with torch.no_grad():
        model.B.abs_()
        model.A.abs_()
    with pytest.raises(ValueError, match="sample 2 has no equilibrium"):
        states(model, U)
    spatial = nn.Sequential(nn.Linear(3, 2), nn.Softmax(dim=-1)).double()
    with pytest.raises(TypeError, match="one softmax of a sample"):
        states(spatial, _inputs(4, 2, 3))


def test_inputs_of_another_width_name_both_shapes():
    with pytest.raises(
        ValueError, match=r"takes no inputs of shape \(6, 4\): module '0' \(Linear\): it reads 3 features.* \(4,\)"
    ):
        states(_mlp(3, 5, 2), _inputs(6, 4))


def test_softmax_output_is_a_block():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(dim=1)).double()
    s = states(net, _inputs(9, 3))
    assert s.activation == [("softmax", 2), ("relu", 4)]
    np.testing.assert_allclose(s.Y, s.X[:, :2], atol=1e-15)


def test_states_of_ones_own():
    rng = np.random.default_rng(0)
    X, U, Y = rng.normal(size=(5, 4)), rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
    s = States.from_arrays(X, torch.from_numpy(X), U, Y, [("relu", 3), ("tanh", 1)])
    assert s.layers == {"block 0": slice(0, 3), "block 1": slice(3, 4)}
    half = s.take(np.array([4, 0]))
    np.testing.assert_array_equal(half.X, X[[4, 0]])
    with pytest.raises(ValueError, match="weights are unknown"):
        teacher_matrices(s)
    with pytest.raises(ValueError, match=r"Z has 4 samples, X has 5: shapes \(4, 4\) and \(5, 4\)"):
        States.from_arrays(X, X[:4], U, Y)
    with pytest.raises(ValueError, match=r"U has 3 samples"):
        States.from_arrays(X, X, U[:3], Y)
    with pytest.raises(ValueError, match=r"Z must have the shape of X, \(5, 4\), got \(5, 3\)"):
        States.from_arrays(X, X[:, :3], U, Y)
    with pytest.raises(TypeError, match="Y must be a floating"):
        States.from_arrays(X, X, U, Y.astype(int))
    with pytest.raises(ValueError, match="cover the 4 states"):
        States.from_arrays(X, X, U, Y, [("relu", 3)])
