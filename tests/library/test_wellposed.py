"""Projection, Perron-Frobenius eigenvalue, certificates and rescaling against closed forms and brute force."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.wellposed import certificate, perron_frobenius, project_rows, project_rows_, rescale


def _threshold_by_bisection(row, kappa):
    """The projection through the root of sum max(|a| - theta, 0) = kappa: no sorting."""
    low, high = 0.0, np.abs(row).max()
    for _ in range(200):
        theta = 0.5 * (low + high)
        low, high = (theta, high) if np.maximum(np.abs(row) - theta, 0).sum() > kappa else (low, theta)
    return np.sign(row) * np.maximum(np.abs(row) - high, 0)


@pytest.mark.parametrize(
    ("row", "kappa", "expected"),
    [
        ([3.0, 1.0], 1.0, [1.0, 0.0]),
        ([1.0, -1.0], 1.0, [0.5, -0.5]),
        ([2.0, 1.0, -0.25], 2.0, [1.5, 0.5, 0.0]),
        ([-5.0], 0.9, [-0.9]),
    ],
)
def test_projection_closed_forms(row, kappa, expected):
    np.testing.assert_allclose(project_rows(np.array([row]), kappa), [expected], atol=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_projection_matches_bisection(m, seed, kappa):
    A = np.random.default_rng(seed).standard_normal((4, m))
    P = project_rows(A, kappa)
    for row, projected in zip(A, P, strict=True):
        expected = row if np.abs(row).sum() <= kappa else _threshold_by_bisection(row, kappa)
        np.testing.assert_allclose(projected, expected, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from([torch.float32, torch.float64]))
def test_projection_is_feasible_idempotent_and_leaves_inside_rows_alone(m, seed, dtype):
    A = torch.randn(6, m, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    A[::2] *= 0.3 / A[::2].abs().sum(1, keepdim=True)
    P = project_rows(A, 0.95)
    assert (P.abs().sum(1) <= 0.95).all()
    assert torch.equal(P[::2], A[::2])
    assert torch.equal(project_rows(P, 0.95), P)
    inplace = A.clone()  # the step of an optimiser takes its own way
    assert project_rows_(inplace, 0.95) is inplace
    torch.testing.assert_close(inplace, P, rtol=0, atol=32 * torch.finfo(dtype).eps)
    assert torch.equal(inplace[::2], A[::2]) and (inplace.abs().sum(1) <= 0.95).all()
    assert torch.equal(project_rows_(inplace.clone(), 0.95), inplace)


def test_projection_gradient_matches_finite_differences():
    A = torch.tensor([[2.0, -1.8, 0.1], [0.1, 0.2, -0.3], [1.0, 1.5, -2.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda M: project_rows(M, 0.9), (A,))
    # the Jacobian of a projected row in words: I - sigma sigma' / |S| on the support
    (g,) = torch.autograd.grad(project_rows(A, 0.9)[0, 0], A)
    np.testing.assert_allclose(g[0], [0.5, 0.5, 0.0], atol=1e-12)
    assert not g[1:].any()


def test_projection_ties_zeros_and_empty():
    np.testing.assert_allclose(project_rows(np.full((1, 8), 1.0), 0.8), np.full((1, 8), 0.1))
    assert not project_rows(np.zeros((3, 3)), 0.5).any()
    assert project_rows(np.zeros((0, 3)), 0.5).shape == (0, 3)
    assert project_rows(np.zeros((2, 0)), 0.5).shape == (2, 0)
    P = project_rows(np.array([[1e12, 1.0, -1e12]]), 0.95)
    np.testing.assert_allclose(P, [[0.475, 0, -0.475]], atol=1e-3)  # 1e12 resolves 1e-4
    assert np.abs(P).sum() <= 0.95


def _both_ways(A, kappa):
    """The differentiable projection and the one in place, which take ways of their own."""
    return project_rows(A, kappa), project_rows_(A.clone(), kappa)


@pytest.mark.parametrize(
    ("row", "kappa", "expected"),
    [
        ([1e17] * 3, 0.95, [0.95 / 3] * 3),
        ([1e8, 1e8], 0.95, [0.475, 0.475]),
        ([1e5, 1e5 - 0.0078125, 0.5, 0.0], 0.95, [0.47890625, 0.47109375, 0.0, 0.0]),
        ([3e38, -3e38, 1.0], 0.95, [0.475, -0.475, 0.0]),
        ([2.0, 1.0], 1e-40, [1e-40, 0.0]),
    ],
)
def test_projection_of_rows_of_any_size(row, kappa, expected):
    for P in _both_ways(torch.tensor([row]), kappa):
        np.testing.assert_allclose(P[0], expected, rtol=1e-6 if kappa > 1e-30 else 1e-4)
        assert P.double().abs().sum() <= kappa
    for P in _both_ways(torch.tensor([row], dtype=torch.float64) * 1e200, kappa):  # sums beyond float64 too
        assert P.abs().sum() <= kappa and float(P.abs().sum()) == pytest.approx(kappa, rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_projection_is_exact_up_to_the_rounding_of_the_dtype(dtype, scale):
    A = (torch.randn(8, 300, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)
    for P in _both_ways(A, 0.95):
        assert P.dtype == dtype and (P.double().abs().sum(1) <= 0.95).all()
        for row, projected in zip(A.double().numpy(), P.double().numpy(), strict=True):
            top = np.abs(row).max()  # bisection on what is left of the largest: exact
            shifted = np.maximum(np.abs(row) - top + 1, 0)
            expected = np.sign(row) * np.abs(_threshold_by_bisection(shifted, 0.95))
            np.testing.assert_allclose(
                projected, expected, atol=(6 if dtype == torch.float32 else 1) * torch.finfo(dtype).eps
            )


def test_projection_in_place_between_forward_and_backward_is_an_error():
    A = torch.full((2, 2), 0.3, requires_grad=True)
    loss = (A * A).sum()
    project_rows_(A, 0.95)  # nothing to change: the graph stays valid
    loss.backward()
    np.testing.assert_allclose(A.grad, 2 * A.detach())
    loss = (A * A).sum()
    project_rows_(A, 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_projection_in_place_of_numpy_arrays():
    A = np.array([[2.0, 1.0], [0.1, 0.1], [3.0, 3.0]], dtype=np.float32)
    view = A[::-1]  # torch takes no negative strides
    assert project_rows_(view, 0.9) is view
    np.testing.assert_allclose(A, [[0.9, 0], [0.1, 0.1], [0.45, 0.45]], rtol=1e-6)
    A[0] = 5
    A.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        project_rows_(A, 0.9)
    assert (A[0] == 5).all()
    np.testing.assert_allclose(project_rows(A, 0.9)[0], [0.45, 0.45], rtol=1e-6)


@pytest.mark.parametrize(
    ("A", "kappa", "error", "match"),
    [
        (np.ones((2, 2), dtype=int), 0.9, TypeError, "floating"),
        (np.ones(3), 0.9, ValueError, r"\(3,\)"),
        (np.ones((2, 2)), 0.0, ValueError, "kappa"),
        (np.ones((2, 2)), float("nan"), ValueError, "kappa"),
        (np.array([[0.0, 1.0], [np.nan, 0.0]]), 0.9, ValueError, r"rows \[1\]"),
        ([[1.0]], 0.9, TypeError, "list"),
        (torch.eye(2).to_sparse(), 0.9, TypeError, "dense"),
    ],
)
def test_projection_bad_input(A, kappa, error, match):
    with pytest.raises(error, match=match):
        project_rows(A, kappa)


# ---------------------------------------------------------------- Perron-Frobenius


def test_perron_frobenius_closed_forms():
    assert perron_frobenius(np.array([[1.0, 1.0], [1.0, 0.0]])) == pytest.approx((1 + 5**0.5) / 2, rel=1e-12)
    weights = np.arange(1, 51.0)  # a cycle: the geometric mean of its weights
    cycle = np.roll(np.diag(weights), 1, axis=0)
    assert perron_frobenius(cycle) == pytest.approx(np.exp(np.log(weights).mean()), rel=1e-11)
    assert perron_frobenius(np.triu(-np.ones((5, 5)), 1)) == 0
    assert perron_frobenius(np.triu(np.ones((5, 5)), 1) + np.diag([0.1, -0.7, 0.2, 0.0, 0.3])) == 0.7
    assert perron_frobenius(np.zeros((0, 0))) == 0
    assert perron_frobenius(torch.full((3, 3), -0.3)) == pytest.approx(0.9, rel=1e-6)


def test_perron_frobenius_of_a_reducible_matrix_is_the_largest_block():
    a, b = np.array([[0.2, 0.3], [0.4, 0.1]]), np.array([[0.5, 0.4], [0.3, 0.2]])
    A = np.block([[a, 9 * np.ones((2, 2))], [np.zeros((2, 2)), b]])[[2, 0, 3, 1]][:, [2, 0, 3, 1]]
    expected = np.abs(np.linalg.eigvals(b)).max()
    assert perron_frobenius(A) == pytest.approx(expected, rel=1e-12)
    assert perron_frobenius(sp.csr_array(A)) == pytest.approx(expected, rel=1e-12)
    assert perron_frobenius(torch.from_numpy(A).to_sparse_csr()) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(0, 2**32 - 1), st.floats(0.05, 1))
def test_perron_frobenius_is_a_tight_upper_bound(n, seed, density):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n)) * (rng.random((n, n)) < density)
    found = perron_frobenius(A)
    # trace(|A|^k)^(1/k) never exceeds n^(1/k) lambda, and Gelfand's bound ||A^k||^(1/k) is never below lambda
    power = np.linalg.matrix_power(np.abs(A), 64)
    lower = np.trace(power) ** (1 / 64) / n ** (1 / 64)
    upper = np.abs(power).sum(1).max() ** (1 / 64)
    assert lower * (1 - 1e-9) <= found <= max(upper, np.abs(np.diag(A)).max()) * (1 + 1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_perron_frobenius_of_badly_scaled_matrices(sparse):
    kind = sp.csr_array if sparse else np.asarray
    assert perron_frobenius(kind(np.array([[0, 1e30], [0.25e-30, 0]]))) == pytest.approx(0.5, rel=1e-12)
    assert perron_frobenius(kind(np.array([[0, 1e300], [0.25e-300, 0]]))) == pytest.approx(0.5, rel=1e-12)
    assert perron_frobenius(kind(np.array([[1e308, 1e308], [1e308, 1e-308]]))) == pytest.approx(
        1.618033988749895e308, rel=1e-12
    )
    rng = np.random.default_rng(0)
    for n in (3, 12, 40):
        M = rng.random((n, n)) * (rng.random((n, n)) < 0.4) + np.roll(np.eye(n), 1, axis=0)
        expected = np.abs(np.linalg.eigvals(M)).max()
        e = rng.integers(-400, 400, n)  # D^-1 M D in powers of two: the same eigenvalue to the last bit
        found = perron_frobenius(kind(np.ldexp(M, e[None, :] - e[:, None])))
        assert expected * (1 - 1e-13) <= found <= expected * (1 + 1e-11)
    weights = 10.0 ** rng.uniform(-300, 300, 30)
    cycle = np.roll(np.diag(weights), 1, axis=0)
    assert perron_frobenius(kind(cycle)) == pytest.approx(np.exp(np.log(weights).mean()), rel=1e-11)


# ---------------------------------------------------------------- certificates


def _solutions_by_pattern(A, b):
    """All solutions of x = max(0, A x + b), one linear system per activation pattern."""
    n, found = len(b), []
    for pattern in itertools.product((0.0, 1.0), repeat=n):
        D = np.diag(pattern)
        x = np.linalg.solve(np.eye(n) - D @ A, D @ b)
        if np.allclose(np.maximum(A @ x + b, 0), x, atol=1e-10) and not any(
            np.allclose(x, y, atol=1e-8) for y in found
        ):
            found.append(x)
    return found


def _check(cert, M):
    assert np.all(cert.s > 0)
    assert np.all(M @ cert.s <= (1 - cert.margin) * cert.s)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(0.2, 3))
def test_a_certified_relu_state_has_exactly_one_solution(n, seed, size):
    rng = np.random.default_rng(seed)
    A = size * rng.standard_normal((n, n)) / n - size * np.diag(rng.random(n))
    cert = certificate(A, "relu")
    if cert:
        off = np.abs(A - np.diag(np.diag(A)))
        _check(cert, np.abs(A) if cert.kind == "pf" else off + np.diag(np.diag(A)))
        for b in rng.standard_normal((5, n)):
            assert len(_solutions_by_pattern(A, b)) == 1


def test_kinds():
    pf = certificate(np.array([[0.5, -0.4], [0.3, 0.2]]))
    assert pf.kind == "pf" and pf.margin == pytest.approx(1 - pf.lambda_pf, rel=2e-3)
    _check(pf, np.array([[0.5, 0.4], [0.3, 0.2]]))
    metzler = certificate(np.array([[-3.0, 0.5], [0.5, -2.0]]))
    assert metzler.kind == "metzler" and metzler.lambda_pf > 1
    _check(metzler, np.array([[-3.0, 0.5], [0.5, -2.0]]))
    triangular = certificate(np.array([[-2.0, 5.0], [0.0, 0.5]]))
    assert triangular.kind == "triangular" and triangular.lambda_pf == 2
    _check(triangular, np.array([[-2.0, 5.0], [0.0, 0.5]]))
    assert certificate(np.array([[-2.0, 0.0], [7.0, -1.0]])).kind == "triangular"
    none = certificate(np.array([[1.5]]))
    assert none.kind == "none" and not none and none.s is None
    assert len(_solutions_by_pattern(np.array([[1.5]]), np.array([-1.0]))) == 2
    assert certificate(np.zeros((3, 3))).kind == "pf"
    assert certificate(np.zeros((0, 0))).kind == "pf"
    # a positive self-loop of 1 is not well-posed, whatever the shape: x = max(0, x + b)
    assert certificate(np.array([[1.0, 3.0], [0.0, 0.2]])).kind == "none"


def test_the_lipschitz_constant_scales_the_condition():
    A = np.full((2, 2), 1.5)  # |A| has eigenvalue 3, sigmoid's slopes are at most 1/4
    assert certificate(A, "sigmoid").kind == "pf" and certificate(A, "sigmoid").lambda_pf == pytest.approx(0.75)
    assert certificate(A, "tanh").kind == "none"
    softmax = certificate(np.array([[0.9, 0.9], [0.9, 0.9]]), "softmax")  # block norm 1.8, times 1/2
    assert softmax.kind == "pf" and softmax.lambda_pf == pytest.approx(0.9)
    assert certificate(np.array([[1.1, 1.0], [1.0, 1.1]]), "softmax").kind == "none"
    # a block may not use the sign of its diagonal
    assert certificate(-3 * np.eye(2), "softmax").kind == "none"
    assert certificate(-3 * np.eye(2), "relu").kind in ("metzler", "triangular")


def test_block_norms_match_a_hand_computation():
    A = np.array([[0.1, 0.2, 0.0, 0.3], [0.0, 0.1, 0.2, 0.1], [0.4, 0.0, 0.1, 0.0], [0.2, 0.2, 0.0, 0.1]])
    activation = [("relu", 2), ("softmax", 2)]
    N = np.array([[0.1, 0.2, 0.3], [0.0, 0.1, 0.3], [0.2, 0.1, 0.05]])  # softmax rows: half the larger row sum
    assert certificate(A, activation).lambda_pf == pytest.approx(np.abs(np.linalg.eigvals(N)).max(), rel=1e-10)
    assert certificate(sp.csr_array(A), activation).lambda_pf == pytest.approx(
        np.abs(np.linalg.eigvals(N)).max(), rel=1e-10
    )


def test_deep_strictly_triangular_states_are_certified_in_any_storage():
    n = 400
    A = np.triu(np.random.default_rng(0).standard_normal((n, n)), 1)  # (I - |A|)^-1 1 overflows any useful margin
    for M in (A, sp.csr_array(A), torch.from_numpy(A).to_sparse_csr()):
        cert = certificate(M)
        assert cert.kind in ("pf", "triangular") and cert.lambda_pf == 0 and cert.margin > 0


def test_a_large_sparse_network_is_certified_and_rescaled_without_fill_in():
    rng = np.random.default_rng(0)
    width, depth = 4000, 5
    W = sp.random_array((width, width), density=20 / width, rng=rng)
    A = sp.csr_array(sp.kron(sp.csr_array(np.eye(depth, k=1)), W))
    cert = certificate(A)
    assert cert.kind == "pf" and cert.lambda_pf == 0
    assert np.all(abs(A) @ cert.s <= (1 - cert.margin) * cert.s)
    A2, _, _, s = rescale(A, np.ones((A.shape[0], 1)), np.ones((1, A.shape[0])), kappa=0.9)
    expected = forward = np.ones(width)  # the absolute network, layer by layer from the last block up
    for _ in range(depth - 1):
        forward = 1 + abs(W) @ forward / 0.9
        expected = np.concatenate([forward, expected])
    np.testing.assert_allclose(s, expected, rtol=1e-12)
    assert abs(A2).sum(1).max() <= 0.9


def test_certificate_and_eigenvalue_bad_input():
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        certificate(np.ones((2, 3)))
    with pytest.raises(ValueError, match="not finite in row 1"):
        perron_frobenius(np.array([[0.0, 1.0], [np.inf, 0.0]]))
    with pytest.raises(ValueError, match="not finite in row 1"):
        certificate(sp.csr_array(np.array([[0.0, 1.0], [np.nan, 0.0]])))
    with pytest.raises(ValueError, match="cover 3 states"):
        certificate(np.eye(2), [("relu", 3)])


# ---------------------------------------------------------------- rescaling


def test_rescale_closed_form():
    A, B, C, s = rescale(np.array([[0.0, 2.0], [0.0, 0.0]]), np.ones((2, 1)), np.ones((1, 2)))
    np.testing.assert_allclose(s, [3.0, 1.0])
    np.testing.assert_allclose(A, [[0, 2 / 3], [0, 0]])
    np.testing.assert_allclose(B, [[1 / 3], [1]])
    np.testing.assert_allclose(C, [[3, 1]])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.floats(0.6, 1.0))
def test_rescale_keeps_the_model_and_bounds_the_norm(n, seed, kappa):
    rng = np.random.default_rng(seed)
    A, B, C = rng.standard_normal((n, n)), rng.standard_normal((n, 2)), rng.standard_normal((3, n))
    A *= 0.5 / np.abs(np.linalg.eigvals(np.abs(A))).max()  # row norms may exceed 1, lambda_PF is 0.5
    A2, B2, C2, s = rescale(A, B, C, kappa=kappa)
    assert np.abs(A2).sum(1).max() <= kappa * (1 - 1 / s.max()) * (1 + 1e-12)
    u = rng.standard_normal(2)
    x, x2 = np.zeros(n), np.zeros(n)
    for _ in range(200):
        x, x2 = np.maximum(A @ x + B @ u, 0), np.maximum(A2 @ x2 + B2 @ u, 0)
    np.testing.assert_allclose(x2, x / s, atol=1e-10)
    np.testing.assert_allclose(C2 @ x2, C @ x, atol=1e-10)


def test_rescale_kinds_and_bad_input():
    A, B, C = torch.full((2, 2), 0.4), torch.ones(2, 1), torch.ones(1, 2)
    a, b, c, s = rescale(A, B, C)
    assert all(t.dtype == torch.float32 for t in (a, b, c, s))
    sparse = rescale(sp.csr_array(A.double().numpy()), B.double().numpy(), C.double().numpy())
    assert sp.issparse(sparse[0])
    np.testing.assert_allclose(sparse[0].toarray(), a.numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match=r"lambda_PF.*0\.8"):
        rescale(A, B, C, kappa=0.7)
    with pytest.raises(ValueError, match="B must have 2 rows"):
        rescale(A, torch.ones(3, 1), C)
    with pytest.raises(ValueError, match="C must have 2 columns"):
        rescale(A, B, torch.ones(1, 3))


@pytest.mark.parametrize("kappa", ["1", True, np.True_, None])
def test_a_radius_is_a_number(kappa):
    for project in (project_rows, project_rows_):
        with pytest.raises(TypeError, match="kappa must be a number, got"):
            project(np.ones((2, 2)), kappa)
