"""Models made of networks and of each other, against the networks and the parts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.compose import interconnect as compose
from implicit_models.layers import ImplicitModel
from implicit_models.robustness.problem import NotCertified, problem
from reproduction.models.mlp import MLP


def test_matrices_of_a_network_by_hand():
    # x_2 = relu(W1 x_1 + b1), x_1 = relu(W0 u + b0), y = W2 x_2 + b2; later layers first
    network = MLP((3, 4, 2, 5), seed=0).double()
    W, b = zip(*((layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in network.layers[::2]))
    model = compose.from_network(network)
    expected_A = np.block([[np.zeros((2, 2)), W[1]], [np.zeros((4, 2)), np.zeros((4, 4))]])
    np.testing.assert_array_equal(model.A.to_dense().numpy(), expected_A)
    np.testing.assert_array_equal(model.B.to_dense().numpy(), np.vstack([np.zeros((2, 3)), W[0]]))
    np.testing.assert_array_equal(model.C.to_dense().numpy(), np.hstack([W[2], np.zeros((5, 4))]))
    np.testing.assert_array_equal(model.b.numpy(), np.concatenate([b[1], b[0]]))
    np.testing.assert_array_equal(model.d.numpy(), b[2])
    assert model.D is None and model.A.layout is torch.sparse_csr
    assert not any(t.requires_grad for t in model.parameters())


@pytest.mark.parametrize("dtype, tol", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"skip": True}, {"activation": "tanh", "skip": True}, {"activation": "sigmoid"}]
)
def test_mlp_outputs_and_gradients(options, dtype, tol):
    network = MLP((6, 9, 7, 4), seed=1, **options).to(dtype)
    model = compose.from_network(network)
    u = torch.randn(5, 6, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert model.A.dtype == dtype
    torch.testing.assert_close(model(u), network(u), rtol=tol, atol=tol)
    weight = torch.arange(4.0, dtype=dtype)
    mine, own = (torch.autograd.grad((f(u) * weight).sum(), u)[0] for f in (model, network))
    torch.testing.assert_close(mine, own, rtol=tol, atol=tol)
    assert model.last_solve.solver == "triangular"
    assert model.certificate()


_WIDTH = st.integers(1, 6)


@st.composite
def _stacks(draw):
    width = first = draw(_WIDTH)
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["linear", "relu", "leaky", "tanh", "sigmoid", "identity", "dropout", "nested"]))
        if kind in ("linear", "nested"):
            new = draw(_WIDTH)
            linear = nn.Linear(width, new, bias=draw(st.booleans()))
            layers.append(linear if kind == "linear" else nn.Sequential(nn.Sequential(linear), nn.Tanh()))
            width = new
        else:
            layers.append(
                {
                    "relu": nn.ReLU(),
                    "leaky": nn.LeakyReLU(draw(st.sampled_from([0.0, 0.1, 1.0]))),
                    "tanh": nn.Tanh(),
                    "sigmoid": nn.Sigmoid(),
                    "identity": nn.Identity(),
                    "dropout": nn.Dropout(0.9),
                }[kind]
            )
    return first, nn.Sequential(*layers, nn.Linear(width, draw(_WIDTH)))


@settings(max_examples=30, deadline=None)
@given(_stacks())
def test_random_stacks(stack):
    width, network = stack
    network = network.double().eval()
    model = compose.from_network(network, width)
    u = torch.randn(3, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(u), network(u), rtol=1e-10, atol=1e-10)


def test_training_mode_and_parameters_of_the_network_stay():
    network = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2)).train()
    network[1].eval()  # of the rest the mode changes nothing
    before = [t.clone() for t in network.parameters()]
    compose.from_network(network)
    assert network.training and not network[1].training
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters()))
    assert all(t.dtype == torch.float32 for t in network.parameters())


def test_images_are_flattened_row_by_row():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Softplus())
    with pytest.raises(TypeError, match=r"module '3' \(Softplus\)"):
        compose.from_network(network, (1, 3, 4))
    network = nn.Sequential(
        nn.Linear(4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)
    )  # the first acts on the last axis alone
    model = compose.from_network(network.double(), (3, 4))
    u = torch.randn(5, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(model(u.flatten(1)), network(u), rtol=1e-10, atol=1e-10)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, u):
        return torch.relu(u + self.b(torch.tanh(self.a(u))))


def test_residual_sum():
    network = nn.Sequential(Residual(), Residual(), nn.Linear(4, 2)).double()
    u = torch.randn(6, 4, dtype=torch.float64)
    torch.testing.assert_close(compose.from_network(network)(u), network(u), rtol=1e-10, atol=1e-10)


def test_affine_network_has_one_state():
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    model = compose.from_network(network)
    u = torch.randn(6, 3, dtype=torch.float64)
    torch.testing.assert_close(model(u), network(u), rtol=1e-10, atol=1e-10)
    assert model.n_states == 1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

    def forward(self, u):
        return self.inner(u) * self.scale


def test_a_parameter_of_the_forward_is_a_constant():
    network = Scaled().double()
    with torch.no_grad():
        network.scale.copy_(torch.tensor([2.0, -1.0, 0.5]))
    u = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(compose.from_network(network)(u), network(u), rtol=1e-10, atol=1e-10)


class Branching(nn.Module):
    def forward(self, u):
        return u if u.sum() > 0 else -u


class TwoInputs(nn.Module):
    def forward(self, u, v):
        return u + v


@pytest.mark.parametrize(
    "network, shape, error, words",
    [
        (
            nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ELU())),
            None,
            TypeError,
            r"module '1.0' \(ELU\) has no conversion",
        ),
        (nn.Sequential(nn.Linear(3, 3), nn.GELU()), None, TypeError, r"module '1' \(GELU\)"),
        (Branching(), 3, TypeError, "Branching cannot be traced"),
        (TwoInputs(), 3, TypeError, "second argument"),
        (
            nn.Sequential(nn.Linear(3, 4), nn.Linear(3, 4)),
            None,
            ValueError,
            r"module '1' \(Linear\): it reads 3 features",
        ),
        (
            nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(1.5)),
            None,
            ValueError,
            r"module '1' \(LeakyReLU\): its slope 1.5",
        ),
        (
            nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)),
            None,
            ValueError,
            r"module '1' \(Dropout\): it is in training mode, its map is random: call eval\(\) first",
        ),
        (nn.Sequential(nn.ReLU()), None, ValueError, "input_shape"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (2, 3), ValueError, "must be a vector"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(3, 4)), None, ValueError, "start_dim"),
        ("network", None, TypeError, "str"),
        (nn.Linear(3, 4), 0, ValueError, "input_shape must be at least 1"),
    ],
)
def test_what_cannot_be_read_is_named(network, shape, error, words):
    with pytest.raises(error, match=words):
        compose.from_network(network, shape)


def test_a_module_that_does_more_than_its_type_says_is_named():
    hooked = nn.Linear(3, 3)
    hooked.register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(ValueError, match="differs from Sequential by .* first at module '2'"):
        compose.from_network(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), hooked))


def test_parameters_that_are_not_finite_are_named():
    network = nn.Sequential(nn.Linear(3, 3))
    with torch.no_grad():
        network[0].weight[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"0.weight has values that are not finite: 1 of 9"):
        compose.from_network(network)


def _pair(dtype=torch.float64, f_options=(), g_options=()):
    f = ImplicitModel(6, 4, 10, seed=1, bias=True, **dict(f_options)).to(dtype)
    g = ImplicitModel(4, 3, 7, seed=2, **dict(g_options)).to(dtype)
    with torch.no_grad():
        for m in (f, g):
            m.A.mul_(20)
            m.B.mul_(10)
            m.project_()
        f.b.normal_(generator=torch.Generator().manual_seed(3))
        f.d.fill_(0.3)
    return f, g


@pytest.mark.parametrize("g_options", [{}, {"skip": False}, {"activation": [("tanh", 4), ("softmax", 3)]}])
def test_cascade_parallel_and_sum(g_options):
    f, g = _pair(g_options=g_options.items())
    u = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    v = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    tight = {"tol": 1e-12, "max_iter": 3000}
    close = {"rtol": 1e-5, "atol": 1e-5}  # the parts are solved to 1e-6
    torch.testing.assert_close(compose.cascade(f, g, **tight)(u), g(f(u)), **close)
    torch.testing.assert_close(
        compose.parallel(f, g, **tight)(torch.cat([u, v], 1)), torch.cat([f(u), g(v)], 1), **close
    )
    torch.testing.assert_close(
        compose.parallel(f, f, shared_input=True, **tight)(u), torch.cat([f(u), f(u)], 1), **close
    )
    torch.testing.assert_close(compose.add(f, f, **tight)(u), 2 * f(u), **close)
    assert compose.cascade(f, g).A.layout is torch.strided


def test_the_whole_is_certified_when_the_parts_are():
    f, g = _pair()
    whole = compose.cascade(f, g)
    parts = [m.certificate().lambda_pf for m in (f, g)]
    exact = np.abs(np.linalg.eigvals(np.abs(whole.A.detach().numpy()))).max()
    assert exact == pytest.approx(max(parts), rel=1e-6)
    assert whole.certificate().kind == "pf" and compose.parallel(f, g).certificate().kind == "pf"
    # coupled by entries of 1e4, each part at lambda_PF = .999; three of them share the eigenvalue
    edge = ImplicitModel.from_matrices(0.999 * np.eye(4), 100 * np.ones((4, 3)), 100 * np.ones((3, 4)))
    found = compose.cascade(edge, compose.cascade(edge, edge)).certificate()
    assert found.kind == "pf" and found.lambda_pf == pytest.approx(0.999, abs=1e-6)
    # A_ii < -1 needs the signed diagonal, in the whole as in the part
    metzler = ImplicitModel.from_matrices(np.array([[-3.0, 0.5], [0.5, 0.2]]), np.ones((2, 3)), np.ones((3, 2)))
    assert metzler.certificate().kind == "metzler" and compose.cascade(edge, metzler).certificate().kind == "metzler"


def test_a_part_that_is_not_well_posed_shows_in_the_whole():
    f, _ = _pair()
    loose = ImplicitModel.from_matrices(np.array([[0.8, 0.9], [0.9, 0.8]]), np.ones((2, 4)), np.ones((1, 2)))
    whole = compose.cascade(f, loose)
    assert not whole.certificate()
    with pytest.raises(NotCertified, match="lambda_PF"):
        _ = problem(whole).certificate


def test_networks_and_sparse_parts_compose():
    f, _ = _pair(torch.float32)
    network = MLP((4, 8, 3), seed=0)
    whole = compose.cascade(f, network)
    u = torch.randn(5, 6)
    torch.testing.assert_close(whole(u), network(f(u)), rtol=1e-4, atol=1e-4)
    assert whole.A.layout is torch.sparse_csr and whole.A.dtype == torch.float32
    inside = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), f, network)
    v = torch.randn(5, 5)
    torch.testing.assert_close(compose.from_network(inside)(v), inside(v), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "compose_them, error, words",
    [
        (lambda f, g: compose.cascade(g, f), ValueError, "g reads 6 features, but f has 3 outputs"),
        (lambda f, g: compose.add(f, g), ValueError, "f has 4 outputs, g has 3"),
        (lambda f, g: compose.parallel(f, g, shared_input=True), ValueError, "f reads 6 features, g reads 4"),
        (lambda f, g: compose.cascade(f, g.float()), TypeError, "f is torch.float64, but g is torch.float32"),
    ],
)
def test_parts_that_do_not_fit(compose_them, error, words):
    with pytest.raises(error, match=words):
        compose_them(*_pair())
