"""Gauss-Seidel kernels against closed forms, enumeration of activation patterns, SciPy's roots and dense solves."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit

from implicit_models.equilibrium.kernels.gauss_seidel import (
    CONVERGED,
    DIVERGING,
    MAX_ITER,
    NOT_FINITE,
    gauss_seidel,
    gauss_seidel_adjoint,
    sweeps_in_reverse,
)

DTYPES = (np.float32, np.float64)
ACTIVATIONS = {"relu": (0, 0.0), "leaky": (0, 0.1), "identity": (0, 1.0), "tanh": (1, 0.0), "sigmoid": (2, 0.0)}


def phi(v, name):
    code, slope = ACTIVATIONS[name]
    return (np.maximum(v, 0) + slope * np.minimum(v, 0), np.tanh(v), expit(v))[code]


def solve(A, b, name="relu", x0=None, tol=None, relative=True, max_iter=500, reverse=None):
    code, slope = ACTIVATIONS[name]
    n = len(A)
    tol = (1e-6 if A.dtype == np.float32 else 1e-12) if tol is None else tol
    return gauss_seidel(
        A, b, np.full(n, code, np.int8), np.full(n, slope, A.dtype), x0, tol, relative, max_iter, reverse
    )


def random_problem(n, N, dtype, kappa=0.95, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    A *= kappa / np.abs(A).sum(1, keepdims=True)
    return A.astype(dtype), rng.standard_normal((N, n)).astype(dtype)


def stiff_matrix(n, kappa, dtype, seed=0):
    A = np.abs(np.random.default_rng(seed).standard_normal((n, n)))
    return (kappa * A / A.sum(1, keepdims=True)).astype(dtype)


def picard(A, b, name, steps=2000):
    A, b = A.astype(float), b.astype(float)
    x = np.zeros_like(b)
    for _ in range(steps):
        x = phi(x @ A.T + b, name)
    return x


def true_residual(A, b, x, name="relu", relative=True):
    A, b, x = A.astype(float), b.astype(float), x.astype(float)
    gap = np.abs(phi(x @ A.T + b, name) - x).max(1)
    scale = np.abs(x).max(1)
    return np.where(scale > 0, gap / np.where(scale > 0, scale, 1), gap) if relative else gap


def enumerated(A, b):
    """The ReLU equilibrium by trying all 2^n activation patterns."""
    n = len(b)
    for pattern in itertools.product((0.0, 1.0), repeat=n):
        D = np.diag(pattern)
        x = np.linalg.solve(np.eye(n) - D @ A, D @ b)
        v = A @ x + b
        if ((v >= 0) == np.array(pattern, bool)).all():
            return x
    raise AssertionError("no pattern is consistent")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("a", [-5.0, -1.0, -0.3, 0.0, 0.9])
def test_one_state_closed_form(dtype, a):
    b = np.array([[-2.0], [-0.1], [0.0], [0.7], [3.0]], dtype)
    A = np.array([[a]], dtype)
    tol = 100 * np.finfo(dtype).eps  # the residual of a state of size 1 with A_ii = -5 cannot be smaller
    expected = {
        "relu": np.where(b > 0, b / (1 - a), 0),
        "leaky": np.where(b > 0, b / (1 - a), 0.1 * b / (1 - 0.1 * a)),
        "identity": b / (1 - a),
        "tanh": np.array(
            [[brentq(lambda x, c=c: x - np.tanh(a * x + c), -1, 1, xtol=1e-15)] for c in b[:, 0].astype(float)]
        ),
        "sigmoid": np.array(
            [[brentq(lambda x, c=c: x - expit(a * x + c), 0, 1, xtol=1e-15)] for c in b[:, 0].astype(float)]
        ),
    }
    for name, exact in expected.items():
        x, residual, n_iter, status = solve(A, b, name, tol=tol)
        np.testing.assert_allclose(x, exact, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps, err_msg=name)
        assert (
            (status == CONVERGED).all()
            and (residual <= tol).all()
            and (n_iter <= (8 if name in ("tanh", "sigmoid") else 4)).all()
        )


@pytest.mark.parametrize("diagonal", [0.0, -4.0])
def test_relu_against_enumeration(diagonal):
    A, b = random_problem(7, 40, np.float64, seed=3)
    A = A - np.diag(np.diag(A)) + diagonal * np.eye(7)  # with -4 Picard diverges: |1 x A_ii| > 1
    x, _, _, status = solve(A, b)
    assert (status == CONVERGED).all()
    np.testing.assert_allclose(x, [enumerated(A, row) for row in b], atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("n", "N"), [(2, 1), (5, 33), (17, 100), (36, 70), (130, 9)])
def test_against_picard(dtype, name, n, N):
    A, b = random_problem(n, N, dtype, seed=n)
    x, residual, n_iter, status = solve(A, b, name)
    tol = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(x, picard(A, b, name), atol=40 * tol * max(1, np.abs(x).max()))
    assert (status == CONVERGED).all() and (n_iter > 0).all()
    assert (true_residual(A, b, x, name) <= 1.5 * tol).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "N"), [(1, 5), (3, 40), (20, 100), (50, 17)])
def test_adjoint_against_dense_solve(dtype, n, N):
    A, g = random_problem(n, N, dtype, seed=n)
    A[0, 0] = -3
    d = (np.random.default_rng(n).random((N, n)) * (np.random.default_rng(n + 1).random((N, n)) < 0.7)).astype(dtype)
    tol = 1e-6 if dtype == np.float32 else 1e-12
    v, residual, _, status = gauss_seidel_adjoint(A, d, g, tol, 500)
    exact = [
        np.linalg.solve(np.eye(n) - dt[:, None] * A.T.astype(float), dt * gt.astype(float))
        for dt, gt in zip(d, g, strict=True)
    ]
    np.testing.assert_allclose(v, exact, atol=60 * tol)
    assert (status == CONVERGED).all()
    again = np.abs(d * (v @ A.astype(float) + g) - v).max(1) / np.abs(g).max(1)
    np.testing.assert_allclose(residual, again, atol=2e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("lower", [False, True])
def test_triangular_is_solved_in_one_sweep(lower):
    rng = np.random.default_rng(5)
    A = np.triu(5 * rng.standard_normal((30, 30)) / 30**0.5, 1)  # the PF eigenvalue of |A| is 0, its norm above 1
    b = rng.standard_normal((50, 30))
    if lower:
        A = np.ascontiguousarray(A.T)
    assert sweeps_in_reverse(A) is (not lower)
    exact = np.zeros_like(b)
    for i in range(30) if lower else range(29, -1, -1):
        exact[:, i] = np.maximum(exact @ A[i] + b[:, i], 0)
    x, _, n_iter, status = solve(A, b)
    np.testing.assert_allclose(x, exact, rtol=1e-11, atol=1e-11)
    assert (n_iter == 1).all() and (status == CONVERGED).all()
    v, _, n_iter, status = gauss_seidel_adjoint(A, (exact > 0).astype(float), b, 1e-10, 500)
    assert (n_iter == 1).all() and (status == CONVERGED).all()


def test_diagonal_matrix_needs_no_reverse():
    assert not sweeps_in_reverse(np.diag([1.0, 2.0])) and not sweeps_in_reverse(np.zeros((1, 1)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_sample_leaves_the_others_bit_identical(dtype, name, bad):
    A, b = random_problem(10, 130, dtype, seed=8)
    zeroed, poisoned = b.copy(), b.copy()
    zeroed[[3, 77]] = 0
    poisoned[3, 4], poisoned[77, 0] = bad, -bad
    x_zero, *_ = solve(A, zeroed, name)
    x, residual, n_iter, status = solve(A, poisoned, name)
    others = np.setdiff1d(np.arange(130), [3, 77])
    assert (x[others] == x_zero[others]).all() and (status[others] == CONVERGED).all()
    assert np.isnan(x[[3, 77]]).all() and (status[[3, 77]] == NOT_FINITE).all()
    assert np.isnan(residual[[3, 77]]).all() and (n_iter[[3, 77]] == 0).all()
    warm = np.zeros_like(b)
    warm[5, 5] = bad
    assert np.flatnonzero(solve(A, b, name, x0=warm)[3]).tolist() == [5]


def test_a_bad_cotangent_leaves_the_others_bit_identical():
    A, g = random_problem(10, 100, np.float32, seed=8)
    d = (g > 0).astype(np.float32)
    zeroed, poisoned, slopes = g.copy(), g.copy(), d.copy()
    zeroed[[9, 50]] = 0
    poisoned[9, 2], slopes[50, 3] = np.nan, np.inf
    v_zero, *_ = gauss_seidel_adjoint(A, d, zeroed, 1e-6, 500)
    v, _, _, status = gauss_seidel_adjoint(A, slopes, poisoned, 1e-6, 500)
    others = np.setdiff1d(np.arange(100), [9, 50])
    assert (v[others] == v_zero[others]).all() and np.flatnonzero(status).tolist() == [9, 50]
    assert (v_zero[[9, 50]] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_batch(dtype):
    A, b = random_problem(23, 150, dtype, seed=4)
    whole = solve(A, b)
    for t in (0, 1, 64, 149):
        single = solve(A, b[t : t + 1])
        for together, alone in zip(whole, single, strict=True):
            assert (together[t] == alone[0]).all()


def test_stiff_sample_beside_easy_ones():
    n = 20
    A = stiff_matrix(n, 0.9999, np.float64)
    b = -np.ones((65, n))  # inactive: x = 0 after one sweep
    b[40] = 1  # every state active: the slow mode of A
    x, _, n_iter, status = solve(A, b, tol=1e-10)
    assert (status == CONVERGED).all() and (np.delete(n_iter, 40) == 1).all() and n_iter[40] > 5
    np.testing.assert_allclose(x[40], np.linalg.solve(np.eye(n) - A, b[40]), rtol=1e-5)
    assert (np.delete(x, 40, 0) == 0).all()


def test_extrapolation_removes_the_slow_mode():
    A = stiff_matrix(30, 0.999, np.float64)
    b = np.random.default_rng(0).standard_normal((40, 30)) + 0.5
    x, _, n_iter, status = solve(A, b, tol=1e-12)
    assert (status == CONVERGED).all() and n_iter.max() < 150  # plain sweeps shrink the error by .998 each
    np.testing.assert_allclose(
        x, [_active_solve(A, row, xt) for row, xt in zip(b, x, strict=True)], rtol=1e-7, atol=1e-9
    )


def _active_solve(A, b, x):
    D = (A @ x + b > 0).astype(float)
    return np.linalg.solve(np.eye(len(b)) - D[:, None] * A, D * b)


@pytest.mark.parametrize("relative", [False, True])
def test_one_sweep_returns_the_updated_iterate_with_its_residual(relative):
    A, b = random_problem(12, 20, np.float64, seed=1)
    start = np.ones_like(b)
    x, residual, n_iter, status = solve(A, b, x0=start, relative=relative, max_iter=1)
    assert (x != start).any(1).all() and (n_iter == 1).all() and (status == MAX_ITER).all()
    np.testing.assert_allclose(residual, true_residual(A, b, x, relative=relative), rtol=1e-10)
    by_hand = start.copy()
    for i in range(12):
        rest = b[:, i] + by_hand @ A[i] - A[i, i] * by_hand[:, i]
        by_hand[:, i] = np.maximum(rest, 0) / (1 - A[i, i])
    np.testing.assert_allclose(x, by_hand, rtol=1e-12, atol=1e-14)


def test_start_at_the_fixed_point():
    A, b = random_problem(9, 10, np.float64, seed=2)
    fixed = picard(A, b, "relu")
    x, residual, n_iter, status = solve(A, b, x0=fixed, tol=1e-10)
    assert (n_iter == 1).all() and (status == CONVERGED).all() and (residual <= 1e-14).all()
    np.testing.assert_allclose(x, fixed, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_batch_and_zero_matrix(dtype):
    A, b = random_problem(6, 0, dtype)
    assert [r.shape for r in solve(A, b)] == [(0, 6), (0,), (0,), (0,)]
    assert [r.shape for r in gauss_seidel_adjoint(A, b, b, 1e-6, 9)] == [(0, 6), (0,), (0,), (0,)]
    A, b = np.zeros((6, 6), dtype), np.random.default_rng(0).standard_normal((3, 6)).astype(dtype)
    x, residual, n_iter, _ = solve(A, b)
    assert (x == np.maximum(b, 0)).all() and (residual == 0).all() and (n_iter == 1).all()
    assert not np.signbit(x).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_functions_to_the_last_places(dtype):
    v = np.concatenate([np.linspace(-30, 30, 4001), [1e-30, -1e-30, 1e-8, -1e-3, 0, 800, -800, 1e30, -1e30]]).astype(
        dtype
    )
    A, b = np.zeros((1, 1), dtype), v[:, None].copy()
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        solve(A, b, "tanh")[0], np.tanh(v.astype(float))[:, None], rtol=4 * eps, atol=np.finfo(dtype).tiny
    )
    np.testing.assert_allclose(
        solve(A, b, "sigmoid")[0], expit(v.astype(float))[:, None], rtol=4 * eps, atol=4 * np.finfo(dtype).tiny
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_divergence_is_reported(dtype):
    n = 8
    A = np.full((n, n), 0.5, dtype)  # PF eigenvalue 4
    b = np.ones((40, n), dtype)
    b[7] = -1  # inactive: x = 0 is an equilibrium all the same
    x, residual, n_iter, status = solve(A, b)
    assert status[7] == CONVERGED and (x[7] == 0).all()
    assert (np.delete(status, 7) == DIVERGING).all() and (n_iter < 500).all()
    v, _, _, status = gauss_seidel_adjoint(A, np.ones_like(b), b, 1e-6, 500)
    assert (status == DIVERGING).all()
    slow = np.array([[0.0, 1.02], [1.02, 0.0]], dtype)
    assert solve(slow, np.ones((1, 2), dtype), max_iter=50)[3] == DIVERGING


def test_loop_gain_above_one_takes_picard_steps():
    x, _, _, status = solve(np.array([[1.5]]), np.array([[-1.0], [1.0]]))
    assert status.tolist() == [CONVERGED, DIVERGING] and x[0] == 0


def test_adjoint_of_a_loop_gain_above_one():
    """The adjoint is linear: v (1 - d a) = d g has a solution for every d a other than 1."""
    v, _, n_iter, status = gauss_seidel_adjoint(
        np.array([[1.5]]), np.array([[1.0], [0.5], [0.0]]), np.full((3, 1), 2.0), 1e-12, 50
    )
    np.testing.assert_allclose(v, [[2 / -0.5], [1 / 0.25], [0]])
    assert (status == CONVERGED).all() and (n_iter == 1).all()
    assert gauss_seidel_adjoint(np.array([[0.5]]), np.array([[2.0]]), np.ones((1, 1)), 1e-12, 50)[3] == DIVERGING


def test_large_inputs_in_single_precision():
    A, b = random_problem(20, 64, np.float32, seed=6)
    x, residual, _, status = solve(A, 1e6 * b)
    assert (status == CONVERGED).all() and (residual <= 1e-6).all()
    np.testing.assert_allclose(x, 1e6 * picard(A, b, "relu"), rtol=0, atol=40)


def test_rounding_ends_the_sweeps():
    """A tolerance below the rounding of float32 is reported as missed, after a few sweeps and not after max_iter."""
    A, b = random_problem(20, 64, np.float32, seed=6)
    x, residual, n_iter, status = solve(A, b, tol=1e-12, max_iter=5000)
    assert n_iter.max() < 200 and (residual < 1e-6).all()
    assert ((status == CONVERGED) == (residual <= 1e-12)).all() and (status == MAX_ITER).any()
    np.testing.assert_allclose(x, picard(A, b, "relu"), atol=1e-5)


def test_silent_cotangent():
    A, g = random_problem(5, 4, np.float64)
    g[2] = 0
    v, residual, _, status = gauss_seidel_adjoint(A, np.ones_like(g), g, 1e-10, 500)
    assert (v[2] == 0).all() and residual[2] == 0 and (status == CONVERGED).all() and (v[0] != 0).all()


def test_mixed_activations():
    A, b = random_problem(5, 30, np.float64, seed=9)
    code, param = np.array([0, 1, 2, 0, 0], np.int8), np.array([0, 0, 0, 0.2, 1.0])
    x, _, _, status = gauss_seidel(A, b, code, param, None, 1e-12, True, 500)
    v = x @ A.T + b
    expected = np.stack(
        [
            np.maximum(v[:, 0], 0),
            np.tanh(v[:, 1]),
            expit(v[:, 2]),
            np.where(v[:, 3] > 0, v[:, 3], 0.2 * v[:, 3]),
            v[:, 4],
        ],
        1,
    )
    np.testing.assert_allclose(x, expected, atol=1e-11)
    assert (status == CONVERGED).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 70),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.floats(0.01, 0.99),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_residual_is_that_of_the_result(n, N, name, kappa, relative, reverse, seed):
    A, b = random_problem(n, N, np.float64, kappa, seed)
    x, residual, n_iter, status = solve(A, b, name, tol=1e-9, relative=relative, reverse=reverse)
    assert (status == CONVERGED).all() and (residual <= 1e-9).all() and (n_iter >= 1).all()
    np.testing.assert_allclose(
        residual, true_residual(A, b, x, name, relative), atol=1e-13 * max(1, np.abs(x).max(initial=0))
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda A, b: (A[:2], b), ValueError, "A must be square"),
        (lambda A, b: (A, b[:, :2].copy()), ValueError, "3 columns"),
        (lambda A, b: (A, b.astype(np.float32)), TypeError, "b is float32"),
        (lambda A, b: (A.astype(np.float16), b.astype(np.float16)), TypeError, "float16"),
        (lambda A, b: (A, np.asfortranarray(b)), ValueError, "C-contiguous"),
        (lambda A, b: (np.zeros((0, 0)), np.zeros((4, 0))), ValueError, "not empty"),
    ],
)
def test_bad_arrays(change, error, message):
    A, b = change(*random_problem(3, 4, np.float64))
    with pytest.raises(error, match=message):
        solve(A, b)
    with pytest.raises(error):
        gauss_seidel_adjoint(A, b, b, 1e-6, 10)


def test_bad_start():
    A, b = random_problem(3, 4, np.float64)
    with pytest.raises(ValueError, match=r"x0 must have .* got shape \(2, 3\)"):
        solve(A, b, x0=b[:2].copy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("n", [1, 3, 8, 9])
def test_a_matrix_that_is_not_finite_is_refused(n, name, dtype):
    for value, position in ((np.nan, (0, n - 1)), (np.inf, (n - 1, 0)), (-np.inf, (n // 2, n // 2))):
        A, b = np.zeros((n, n), dtype), np.ones((2, n), dtype)
        A[position] = value
        with pytest.raises(ValueError, match=f"A has values that are not finite: 1 of {n * n}"):
            solve(A, b, name)
        with pytest.raises(ValueError, match=f"A has values that are not finite: 1 of {n * n}"):
            gauss_seidel_adjoint(A, b, b, 1e-6, 10)


def test_no_samples():
    A, b = random_problem(3, 4, np.float32)
    for found in (solve(A, b[:0]), gauss_seidel_adjoint(A, b[:0], b[:0], 1e-6, 10)):
        assert [f.shape for f in found] == [(0, 3), (0,), (0,), (0,)] and found[0].dtype == np.float32


def test_an_infinite_adjoint_is_not_converged():
    A = np.full((2, 2), 3.0, np.float32)
    np.fill_diagonal(A, 0)
    v, _, _, status = gauss_seidel_adjoint(A, np.ones((1, 2), np.float32), np.full((1, 2), 1e38, np.float32), 1e-6, 500)
    assert status[0] != CONVERGED
