"""The sensitivity matrix against its dense formula, the published iteration, and deviations of the model itself."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from implicit_models.activations import resolve_activation
from implicit_models.layers import ImplicitModel
from implicit_models.robustness import NotCertified, sensitivity_matrix
from implicit_models.robustness.problem import from_matrices
from implicit_models.robustness.sensitivity import METHODS


def matrices(seed, n=12, p=5, q=3, radius=0.9, density=1.0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n)) * (rng.random((n, n)) < density)
    top = np.abs(np.linalg.eigvals(np.abs(A))).max()
    A = A * (radius / top) if top > 0 else A
    return A, rng.standard_normal((n, p)), rng.standard_normal((q, n)), rng.standard_normal((q, p))


def published(A, B, C, D, gamma=1.0, steps=20_000):
    """X <- |A| X + |B| from X = |B|, as in section 4.3 of the thesis."""
    X = gamma * np.abs(B)
    for _ in range(steps):
        new = gamma * np.abs(A) @ X + gamma * np.abs(B)
        if np.abs(new - X).max() <= 1e-14 * np.abs(new).max():
            break
        X = new
    return np.abs(C) @ X + np.abs(D)


def test_scalar_model_by_hand():
    S = sensitivity_matrix(from_matrices([[-0.5]], [[3.0, 0.0]], [[-2.0]], [[0.25, -1.0]])).S
    np.testing.assert_allclose(S, [[2 * 3 / (1 - 0.5) + 0.25, 1.0]], rtol=1e-14)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "triangular"])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_method_gives_the_published_matrix(method, sparse):
    A, B, C, D = matrices(0, n=40, density=0.2)
    given_as = sp.csr_array if sparse else np.asarray
    found = sensitivity_matrix(from_matrices(given_as(A), given_as(B), C, D), method=method)
    np.testing.assert_allclose(found.S, published(A, B, C, D), rtol=1e-11)
    assert found.method in METHODS and found.certified and 0 <= found.residual < 1e-9


def test_a_large_sparse_model_takes_the_iterative_or_the_triangular_solver():
    rng = np.random.default_rng(0)
    n = 2000
    A = sp.random_array((n, n), density=5 / n, rng=rng, data_sampler=lambda size: rng.standard_normal(size)).tocsr()
    A = A * (0.9 / abs(A).sum(axis=1).max())
    B, C = sp.random_array((n, 6), density=0.1, rng=rng).tocsr(), rng.standard_normal((3, n))
    for matrix, method in ((A, "iterative"), (sp.triu(A, 1).tocsr(), "triangular")):
        S, _, used, *_ = sensitivity_matrix(from_matrices(matrix, B, C))
        assert used == method
        np.testing.assert_allclose(S, sensitivity_matrix(from_matrices(matrix, B, C), method="lu").S, rtol=1e-10)


def test_triangular_in_a_hidden_order():
    A, B, C, D = matrices(1, n=30)
    A = np.triu(A, 1)
    order = np.random.default_rng(0).permutation(30)
    mixed = A[np.ix_(order, order)]
    S = sensitivity_matrix(from_matrices(mixed, B[order], C[:, order], D), method="triangular").S
    np.testing.assert_allclose(S, published(A, B, C, D), rtol=1e-12)
    with pytest.raises(ValueError, match="feeds back"):
        sensitivity_matrix(from_matrices(*matrices(1)), method="triangular")


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 15),
    st.sampled_from([0.0, 0.5, 0.95, 0.999]),
    st.sampled_from(["relu", "tanh", "sigmoid"]),
)
def test_upper_contains_the_matrix_and_the_matrix_contains_the_model(seed, n, radius, activation):
    A, B, C, D = matrices(seed, n=n, radius=radius)
    P = from_matrices(A, B, C, D, activation)
    S, upper, _, residual, certified = sensitivity_matrix(P)
    assert certified and (upper >= S).all() and residual < 1e-8
    expected = np.abs(C) @ np.linalg.solve(
        np.eye(n) - P.activation.lipschitz[:, None] * np.abs(A), P.activation.lipschitz[:, None] * np.abs(B)
    ) + np.abs(D)
    np.testing.assert_allclose(S, expected, rtol=1e-8)
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((2, 20, 5))
    difference = np.abs(P.output(P.equilibrium(U)[0], U) - P.output(P.equilibrium(V)[0], V))
    assert (difference <= np.abs(U - V) @ S.T + 1e-8).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_permuting_and_rescaling_states_changes_nothing(seed):
    A, B, C, D = matrices(seed, radius=0.8)
    S = sensitivity_matrix(from_matrices(A, B, C, D)).S
    rng = np.random.default_rng(seed)
    order, s = rng.permutation(len(A)), rng.uniform(0.1, 10, len(A))
    np.testing.assert_allclose(
        sensitivity_matrix(from_matrices(A[np.ix_(order, order)], B[order], C[:, order], D)).S, S, rtol=1e-10
    )
    np.testing.assert_allclose(
        sensitivity_matrix(from_matrices(s[:, None] * A / s, s[:, None] * B, C / s, D)).S, S, rtol=1e-10
    )


@pytest.mark.parametrize(
    "spec",
    [[("relu", 4), ("softmax", 3), ("max_pool", 3)], [("softmax", 5), ("softmax", 5)], [("product", 6), ("tanh", 4)]],
)
def test_blockwise_maps_bound_the_model(spec):
    A, B, C, D = matrices(3, n=10)
    A = 0.2 * A
    P = from_matrices(A, B, C, D, spec)
    S = sensitivity_matrix(P).S
    unit, gamma = resolve_activation(spec, 10).unit, resolve_activation(spec, 10).lipschitz
    L = unit[-1] + 1
    N = np.array(
        [
            [max(gamma[i] * np.abs(A[i, unit == h]).sum() for i in np.flatnonzero(unit == k)) for h in range(L)]
            for k in range(L)
        ]
    )
    NB = np.array([(gamma[unit == k, None] * np.abs(B[unit == k])).max(axis=0) for k in range(L)])
    NC = np.array([np.abs(C[:, unit == k]).sum(axis=1) for k in range(L)]).T
    np.testing.assert_allclose(S, NC @ np.linalg.solve(np.eye(L) - N, NB) + np.abs(D), rtol=1e-11)
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((2, 200, 5))
    difference = np.abs(P.output(P.equilibrium(U)[0], U) - P.output(P.equilibrium(V)[0], V))
    assert (difference <= np.abs(U - V) @ S.T + 1e-9).all()


def test_a_diagonal_below_minus_one_is_signed():
    A = np.array([[-3.0, 0.5], [0.4, -2.0]])
    B, C = np.array([[1.0], [-2.0]]), np.array([[1.0, 1.0]])
    M = np.array([[-3.0, 0.5], [0.4, -2.0]])
    expected = np.abs(C) @ np.linalg.solve(np.eye(2) - M, np.abs(B))
    for given_as in (np.asarray, sp.csr_array):
        for method in ("auto", "iterative", "lu"):
            np.testing.assert_allclose(
                sensitivity_matrix(from_matrices(given_as(A), B, C), method=method).S, expected, rtol=1e-10
            )


@pytest.mark.parametrize("method", ["auto", "dense", "iterative", "lu"])
def test_a_model_that_nothing_certifies_is_refused(method):
    A, B, C, D = matrices(0, radius=1.2)
    with pytest.raises(NotCertified, match="no bound is given"):
        sensitivity_matrix(from_matrices(A, B, C, D), method=method)


def test_rows_are_those_of_the_whole():
    A, B, C, D = matrices(5, q=6)
    P = from_matrices(A, B, C, D)
    S = sensitivity_matrix(P).S
    np.testing.assert_allclose(sensitivity_matrix(P, rows=[4, 0, 4]).S, S[[4, 0, 4]], rtol=1e-13)
    assert sensitivity_matrix(P, rows=[]).S.shape == (0, 5)
    with pytest.raises(ValueError, match="output 6"):
        sensitivity_matrix(P, rows=[6])
    with pytest.raises(TypeError, match="rows"):
        sensitivity_matrix(P, rows=[0.5])


def test_an_implicit_model_without_d_and_with_biases():
    model = ImplicitModel(4, 2, 8, skip=False, bias=True, seed=0)
    with torch.no_grad():
        model.A.copy_(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))
        model.project_()
    A, B, C = (M.detach().double().numpy() for M in (model.A, model.B, model.C))
    S = sensitivity_matrix(model).S
    np.testing.assert_allclose(S, published(A, B, C, np.zeros((2, 4))), rtol=1e-10)
    with torch.no_grad():
        model.b.add_(1.0)
    np.testing.assert_array_equal(sensitivity_matrix(model).S, S)  # no input, no bias enters


class Residual(nn.Module):
    """Convolutions, a strided shortcut by padding channels, normalisation and a mean: all that a small ResNet does."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.a, self.b = nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.act, self.head = nn.ReLU(inplace=True), nn.Linear(6, 3)

    def forward(self, u):
        x = F.relu(self.norm(self.first(u)))
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 2))
        y = self.b(self.act(self.a(x)))
        y += shortcut
        return self.head(torch.tanh(y).mean((2, 3))) - 0.5 * self.head(y.mean((2, 3)) * 0.1)


def linear_parts(network, sizes):
    """|W| of each affine map between activations, from its values at zero and at the unit vectors."""
    found = []
    for part, size in zip(network, sizes, strict=True):
        zero = part(torch.zeros(1, *size))
        units = torch.eye(int(np.prod(size))).reshape(-1, *size)
        found.append((part(units) - zero).flatten(1).t().abs().double().detach().numpy())
    return found


def test_network_against_the_dense_formula():
    torch.manual_seed(0)
    parts = [
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3)),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 5)),
        nn.Linear(5, 4),
        nn.Linear(4, 3),
    ]
    parts[0][1].running_var.uniform_(0.5, 2)
    parts[0][1].running_mean.uniform_(-1, 1)
    nn.init.uniform_(parts[0][1].weight, -1, 1)
    network = nn.Sequential(
        parts[0], nn.ReLU(), parts[1], parts[2], nn.Sigmoid(), parts[3], nn.Dropout(0.5), nn.LeakyReLU(0.2), parts[4]
    ).eval()
    W0, convolution, pooled, W2, W3 = linear_parts(parts, [(2, 11, 11), (3, 11, 11), (4, 5, 5), (5,), (4,)])
    W1 = pooled @ convolution  # two linear layers in a row: absolute values one by one
    S = sensitivity_matrix(network, input_shape=(2, 11, 11)).S
    assert S.shape == (3, 242)
    np.testing.assert_allclose(S, W3 @ W2 @ (0.25 * W1 @ W0), rtol=1e-5)  # the parts run in float32
    # and through the matrices of the same network: states first layer last
    n = [W0.shape[0], 5, 4]
    A = np.zeros((sum(n), sum(n)))
    A[n[0] : n[0] + 5, : n[0]], A[n[0] + 5 :, n[0] : n[0] + 5] = W1, W2
    spec = [("relu", n[0]), ("sigmoid", 5), ("leaky_relu(0.2)", 4)]
    B, C = np.vstack([W0, np.zeros((9, 242))]), np.hstack([np.zeros((3, n[0] + 5)), W3])
    np.testing.assert_allclose(
        sensitivity_matrix(from_matrices(A, B, C, activation=spec), method="triangular").S, S, rtol=1e-5
    )


def test_linear_network_and_its_matrices_agree():
    from implicit_models.compose.interconnect import from_network

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    S = sensitivity_matrix(network).S
    W = [layer.weight.detach().abs().numpy() for layer in network if isinstance(layer, nn.Linear)]
    np.testing.assert_allclose(S, W[2] @ W[1] @ W[0], rtol=1e-13)
    found = sensitivity_matrix(network)
    assert found.method == "network" and not found.certified and found._fields[:2] == ("S", "upper")
    np.testing.assert_allclose(found.upper, S * (1 + 1e-9), rtol=1e-15)
    np.testing.assert_allclose(sensitivity_matrix(from_network(network, 9)).S, S, rtol=1e-12)
    np.testing.assert_allclose(sensitivity_matrix(network, rows=[3, 1]).S, S[[3, 1]], rtol=1e-15)


def test_residual_network_bounds_its_own_deviations():
    torch.manual_seed(0)
    network = Residual().eval().double()
    S = sensitivity_matrix(network, input_shape=(2, 6, 6)).S
    u, v = torch.randn(2, 50, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = (network(u) - network(v)).abs().detach().numpy()
    assert (moved <= (u - v).abs().flatten(1).numpy() @ S.T).all()
    # one input coordinate through positive weights only: the bound is the derivative
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_()
        u.abs_()
    linear = nn.Sequential(network.first, nn.ReLU(), nn.Flatten(), nn.Linear(108, 2)).double().eval()
    with torch.no_grad():
        linear[3].weight.abs_()
    gradient = torch.autograd.functional.jacobian(lambda w: linear(w)[0], u[:1] + 1).reshape(2, -1)
    np.testing.assert_allclose(sensitivity_matrix(linear, input_shape=(2, 6, 6)).S, gradient, rtol=1e-12)


def test_networks_without_a_rule_are_refused():
    with pytest.raises(ValueError, match="max_pool2d"):
        sensitivity_matrix(nn.Sequential(nn.Conv2d(1, 1, 3), nn.MaxPool2d(2), nn.Flatten()), input_shape=(1, 6, 6))
    with pytest.raises(ValueError, match="eval"):
        sensitivity_matrix(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="eval"):
        sensitivity_matrix(nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1)), input_shape=(1, 6, 6))
    with pytest.raises(ValueError, match="input_shape"):
        sensitivity_matrix(nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten()))
    with pytest.raises(ValueError, match="one method"):
        sensitivity_matrix(nn.Linear(2, 2), method="lu")

    class Product(nn.Module):
        def forward(self, u):
            return u * u

    with pytest.raises(ValueError, match="product of two"):
        sensitivity_matrix(Product(), input_shape=(3,))
