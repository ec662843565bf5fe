"""Active-set Newton against enumeration, dense solves and Gauss-Seidel."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.equilibrium.kernels.gauss_seidel import CONVERGED, MAX_ITER, NOT_FINITE, SINGULAR, gauss_seidel
from implicit_models.equilibrium.kernels.newton import newton, newton_adjoint

DTYPES = (np.float32, np.float64)


def solve(A, b, slope=0.0, x0=None, tol=None, relative=True, max_iter=50, kernel=newton):
    n = len(A)
    tol = (1e-6 if A.dtype == np.float32 else 1e-12) if tol is None else tol
    return kernel(A, b, np.zeros(n, np.int8), np.full(n, slope, A.dtype), x0, tol, relative, max_iter)


def random_problem(n, N, dtype, kappa=0.95, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    A *= kappa / np.abs(A).sum(1, keepdims=True)
    return A.astype(dtype), rng.standard_normal((N, n)).astype(dtype)


def enumerated(A, b, slope):
    n = len(b)
    for pattern in itertools.product((slope, 1.0), repeat=n):
        D = np.diag(pattern)
        x = np.linalg.solve(np.eye(n) - D @ A, D @ b)
        if ((A @ x + b > 0) == (np.array(pattern) == 1)).all():
            return x
    raise AssertionError("no pattern is consistent")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_against_enumeration(dtype, slope):
    A, b = random_problem(7, 40, dtype, seed=1)
    A[2, 2] = -4  # outside the ball, inside the Metzler condition
    x, residual, n_iter, status = solve(A, b, slope, tol=2e-6 if dtype == np.float32 else 1e-12)
    exact = [enumerated(A.astype(float), row.astype(float), slope) for row in b]
    np.testing.assert_allclose(x, exact, atol=2e-5 if dtype == np.float32 else 1e-12)
    assert (status == CONVERGED).all() and (n_iter <= 7).all() and (n_iter >= 1).all()


def test_identity_is_one_linear_solve():
    A, b = random_problem(9, 20, np.float64, seed=2)
    x, _, n_iter, status = solve(A, b, slope=1.0)
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(9) - A, b.T).T, rtol=1e-12)
    assert (n_iter == 1).all() and (status == CONVERGED).all()


def test_pivots_that_vanish():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])  # I - A has a zero diagonal, and is not singular
    b = np.array([[-1.0, -3.0]])
    x, _, _, status = solve(A, b, slope=1.0)
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(2) - A, b.T).T)
    assert status == CONVERGED


def test_singular_system_is_reported():
    A = np.eye(3)
    x, residual, n_iter, status = solve(A, np.array([[1.0, 1, 1], [-1, -1, -1]]))
    assert status.tolist() == [SINGULAR, CONVERGED] and np.isnan(x[0]).all() and (x[1] == 0).all()
    assert newton_adjoint(A, np.ones((1, 3)), np.ones((1, 3)))[3] == SINGULAR


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), [(1, 6), (4, 50), (20, 30), (65, 5)])
def test_adjoint_against_dense_solve(dtype, n, N):
    A, g = random_problem(n, N, dtype, seed=n)
    rng = np.random.default_rng(n)
    d = (rng.random((N, n)) * (rng.random((N, n)) < 0.6)).astype(dtype)
    v, residual, _, status = newton_adjoint(A, d, g)
    exact = [
        np.linalg.solve(np.eye(n) - dt[:, None] * A.T.astype(float), dt * gt)
        for dt, gt in zip(d, g.astype(float), strict=True)
    ]
    np.testing.assert_allclose(v, exact, atol=1e-4 if dtype == np.float32 else 1e-12)
    assert (status == CONVERGED).all() and (v[d == 0] == 0).all()
    again = np.abs(d * (v @ A.astype(float) + g) - v).max(1) / np.abs(g).max(1)
    np.testing.assert_allclose(residual, again, atol=1e-5 if dtype == np.float32 else 1e-13)


def test_bad_samples_leave_the_others_bit_identical():
    A, b = random_problem(10, 30, np.float32, seed=3)
    zeroed, poisoned = b.copy(), b.copy()
    zeroed[4], poisoned[4, 1] = 0, np.inf
    x, residual, n_iter, status = solve(A, poisoned)
    others = np.arange(30) != 4
    assert (x[others] == solve(A, zeroed)[0][others]).all()
    assert status[4] == NOT_FINITE and np.isnan(x[4]).all() and np.isnan(residual[4]) and n_iter[4] == 0
    v, _, _, status = newton_adjoint(A, np.ones_like(b), poisoned)
    assert (v[others] == newton_adjoint(A, np.ones_like(b), zeroed)[0][others]).all() and status[4] == NOT_FINITE


def test_first_pattern_from_the_start():
    A, b = random_problem(30, 20, np.float64, seed=4)
    x, _, cold, _ = solve(A, b)
    again, _, warm, status = solve(A, b, x0=x)
    assert (warm == 1).all() and cold.max() > 1 and (status == CONVERGED).all()
    np.testing.assert_allclose(again, x, atol=1e-14)


def test_one_step_returns_the_updated_iterate_with_its_residual():
    A, b = random_problem(30, 20, np.float64, seed=4)
    x, residual, n_iter, status = solve(A, b, max_iter=1, relative=False)
    slow = status != CONVERGED
    assert slow.any() and (status[slow] == MAX_ITER).all() and (n_iter == 1).all() and (x[slow] != 0).any()
    np.testing.assert_allclose(residual, np.abs(np.maximum(x @ A.T + b, 0) - x).max(1), atol=1e-14)


def test_rounding_ends_the_steps():
    A, b = random_problem(20, 30, np.float32, seed=5)
    _, residual, n_iter, status = solve(A, b, tol=1e-12, max_iter=50)
    assert n_iter.max() < 10 and (residual < 1e-5).all() and ((status == CONVERGED) == (residual <= 1e-12)).all()


def test_kappa_near_one():
    A = np.abs(random_problem(40, 1, np.float64)[0])
    A *= 0.9999 / A.sum(1, keepdims=True)
    b = np.random.default_rng(1).standard_normal((10, 40)) + 0.3
    x, _, n_iter, status = solve(A, b)
    assert (status == CONVERGED).all() and n_iter.max() <= 10
    np.testing.assert_allclose(np.maximum(x @ A.T + b, 0), x, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_batch_one_state_zero_matrix(dtype):
    A, b = random_problem(6, 0, dtype)
    assert [r.shape for r in solve(A, b)] == [(0, 6), (0,), (0,), (0,)]
    assert [r.shape for r in newton_adjoint(A, b, b)] == [(0, 6), (0,), (0,), (0,)]
    b = np.array([[-1.0], [2.0]], dtype)
    np.testing.assert_allclose(solve(np.array([[-3.0]], dtype), b)[0], [[0], [0.5]])
    assert (solve(np.zeros((1, 1), dtype), b)[0] == [[0], [2]]).all()


def test_silent_cotangent():
    A, g = random_problem(5, 3, np.float64)
    g[1] = 0
    v, residual, n_iter, status = newton_adjoint(A, np.ones_like(g), g)
    assert (v[1] == 0).all() and residual[1] == 0 and n_iter.tolist() == [1, 0, 1] and (status == CONVERGED).all()


def test_other_activations_are_refused():
    A, b = random_problem(3, 2, np.float64)
    with pytest.raises(ValueError, match="got code 2 at state 1"):
        newton(A, b, np.array([0, 2, 1], np.int8), np.zeros(3), None, 1e-6, True, 9)
    with pytest.raises(ValueError, match="3 columns"):
        newton(A, b[:, :2].copy(), np.zeros(3, np.int8), np.zeros(3), None, 1e-6, True, 9)
    with pytest.raises(TypeError, match="g is float32"):
        newton_adjoint(A, b, b.astype(np.float32))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 30), st.integers(1, 20), st.floats(0.01, 0.99), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99)
)
def test_agrees_with_gauss_seidel(n, N, kappa, slope, seed):
    A, b = random_problem(n, N, np.float64, kappa, seed)
    x, _, _, status = solve(A, b, slope)
    np.testing.assert_allclose(x, solve(A, b, slope, kernel=gauss_seidel, max_iter=5000)[0], atol=1e-9)
    assert (status == CONVERGED).all()


def test_a_matrix_that_is_not_finite_is_refused():
    A, b = np.zeros((3, 3)), np.array([[1.0, -1.0, 1.0]])
    A[1, 1] = np.nan  # in a row that drops out of the linear system
    with pytest.raises(ValueError, match="A has values that are not finite: 1 of 9"):
        newton(A, b, np.zeros(3, np.int8), np.zeros(3), None, 1e-6, True, 10)
    with pytest.raises(ValueError, match="A has values that are not finite: 1 of 9"):
        newton_adjoint(A, np.array([[1.0, 0.0, 1.0]]), b)


def test_no_samples():
    none = np.zeros((0, 2))
    for found in (
        newton(np.eye(2), none, np.zeros(2, np.int8), np.zeros(2), None, 1e-6, True, 10),
        newton_adjoint(np.eye(2), none, none),
    ):
        assert [f.shape for f in found] == [(0, 2), (0,), (0,), (0,)]
