"""Equilibrium solvers and gradients against closed forms, pattern enumeration, SciPy and finite differences."""

import gc
import itertools
import threading
import warnings
import weakref

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.activations import resolve_activation
from implicit_models.equilibrium import (
    NotConverged,
    SolverSettings,
    equilibrium,
    equilibrium_residual,
    equilibrium_result,
    solve_equilibrium,
)
from implicit_models.equilibrium.result import Solution, result_of
from implicit_models.equilibrium.triangular import substitute, triangular_plan
from implicit_models.matrices import csr_tensor
from implicit_models.model import ImplicitModel
from implicit_models.projection import project_rows
from implicit_models.wellposed import certificate

SOLVERS = ("auto", "picard", "anderson", "gauss_seidel", "newton")
COMPONENTWISE = ("relu", "leaky_relu(0.2)", "tanh", "sigmoid", "identity")
BLOCKS = ([("relu", 2), ("softmax", 3)], [("max_pool", 3), ("tanh", 2)], [("product", 2), ("sigmoid", 3)])
# newton solves piecewise-linear maps, the compiled solvers solve componentwise maps
PAIRS = [
    (a, s)
    for a, s in itertools.product((*COMPONENTWISE, *BLOCKS), SOLVERS)
    if not (s == "newton" and a in ("tanh", "sigmoid"))
    and not (s in ("newton", "gauss_seidel") and isinstance(a, list))
]
IDS = [f"{a if isinstance(a, str) else '-'.join(n for n, _ in a)}-{s}" for a, s in PAIRS]


def _problem(n, N, *, kappa=0.9, seed=0, dtype=torch.float64, stiff=False):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(n, n, generator=g, dtype=dtype)
    A = A.abs() * kappa / A.abs().sum(1, keepdim=True) if stiff else project_rows(A, kappa)
    return A, torch.randn(N, n, generator=g, dtype=dtype)


def _by_pattern(A, b):
    """The solution of x = max(0, A x + b) found by trying every activation pattern."""
    n = len(b)
    for pattern in itertools.product((0.0, 1.0), repeat=n):
        D = np.diag(pattern)
        x = np.linalg.solve(np.eye(n) - D @ A, D @ b)
        if np.allclose(np.maximum(A @ x + b, 0), x, atol=1e-12):
            return x
    raise AssertionError("no pattern solves the equation")


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_state_closed_form(solver):
    A, b = torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([[1.0], [-2.0], [0.0]], dtype=torch.float64)
    r = solve_equilibrium(A, b, solver=solver, tol=1e-12)
    np.testing.assert_allclose(r.x[:, 0], [2.0, 0.0, 0.0], atol=1e-11)
    assert r.converged.all() and r.reason == "converged"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("stiff", [False, True])
def test_relu_matches_pattern_enumeration(solver, stiff):
    A, b = _problem(6, 12, stiff=stiff)
    r = solve_equilibrium(A, b, solver=solver, tol=1e-12, max_iter=2000)
    expected = np.stack([_by_pattern(A.numpy(), row) for row in b.numpy()])
    np.testing.assert_allclose(r.x, expected, atol=1e-10)


@pytest.mark.parametrize(("activation", "solver"), PAIRS, ids=IDS)
def test_every_activation_and_solver_matches_scipy(activation, solver):
    A, b = _problem(5, 4, kappa=0.7)
    act = resolve_activation(activation, 5)
    r = solve_equilibrium(A, b, activation, solver=solver, tol=1e-12)
    for x, row in zip(r.x.numpy(), b.numpy(), strict=True):
        root = scipy.optimize.root(
            lambda x, row=row: x - act(A.numpy() @ x + row),
            np.zeros(5),
            method="df-sane",
            tol=1e-13,
            options={"fatol": 1e-13},
        )
        np.testing.assert_allclose(x, root.x, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 2**31),
    st.sampled_from(SOLVERS[:4]),
    st.sampled_from(COMPONENTWISE),
    st.sampled_from(["relative", "absolute"]),
)
def test_reported_residual_is_the_residual_and_within_tol(n, N, seed, solver, activation, mode):
    A, b = _problem(n, N, seed=seed)
    r = solve_equilibrium(A, b, activation, solver=solver, tol=1e-9, tol_mode=mode)
    x = r.x.numpy()
    change = np.abs(resolve_activation(activation, n)(x @ A.numpy().T + b.numpy()) - x).max(1)
    size = np.abs(x).max(1)
    expected = change if mode == "absolute" else np.divide(change, size, out=change.copy(), where=size > 0)
    np.testing.assert_allclose(r.residual, expected, rtol=1e-3, atol=1e-14)
    assert r.converged.all() and (expected <= 1.0001e-9).all()
    np.testing.assert_array_equal(r.residual, equilibrium_residual(A, b, r.x, activation, tol_mode=mode))


@pytest.mark.parametrize("solver", SOLVERS)
def test_relative_tolerance_makes_the_count_independent_of_scale(solver):
    # homogeneity: x(t b) = t x(b), bit for bit when t is a power of two
    A, b = _problem(12, 20)
    one, big = (solve_equilibrium(A, t * b, solver=solver) for t in (1.0, 2.0**40))
    assert torch.equal(big.x, 2.0**40 * one.x) and torch.equal(big.n_iter, one.n_iter)


def test_absolute_tolerance_makes_the_count_grow_with_the_logarithm_of_the_scale():
    A, b = torch.tensor([[0.5]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    n = [
        int(solve_equilibrium(A, t * b, solver="picard", tol=1e-6, tol_mode="absolute").n_iter)
        for t in (1.0, 2.0**12, 2.0**24)
    ]
    # the residual after k steps is t 2^-k, looked at every 4 steps
    assert n == [20, 32, 44]


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(("activation", "solver"), PAIRS, ids=IDS)
def test_implicit_gradient_passes_gradcheck(activation, solver):
    A, b = _problem(5, 2, kappa=0.5, seed=3)
    f = lambda A, b: equilibrium(A, b, activation, solver=solver, tol=1e-13, max_iter=3000)
    assert torch.autograd.gradcheck(f, (A.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize("activation", [*COMPONENTWISE, *BLOCKS], ids=str)
def test_unroll_equals_implicit_and_autograd_through_many_steps(activation):
    A, b = _problem(5, 3, kappa=0.6, seed=4, stiff=True)
    A.requires_grad_()
    b.requires_grad_()
    weight = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.zeros_like(b)
    for _ in range(80):
        x = resolve_activation(activation, 5)(x @ A.t() + b)
    expected = torch.autograd.grad((x * weight).sum(), (A, b))
    for backward in ("implicit", "unroll"):
        found = torch.autograd.grad(
            (equilibrium(A, b, activation, backward=backward, tol=1e-13) * weight).sum(), (A, b)
        )
        for f, e in zip(found, expected, strict=True):
            torch.testing.assert_close(f, e, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("activation", [*COMPONENTWISE, *BLOCKS], ids=str)
def test_jfb_and_phantom_match_their_definitions(activation):
    A, b = _problem(5, 3, kappa=0.8, seed=5)
    A.requires_grad_()
    b.requires_grad_()
    act = resolve_activation(activation, 5)
    weight = torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    star = solve_equilibrium(A.detach(), b.detach(), activation, tol=1e-14).x
    # Jacobian-free: one step of the map from the fixed point; phantom: 5 damped steps with factor 1/2
    one = act(star @ A.t() + b)
    damped = star
    for _ in range(5):
        damped = 0.5 * damped + 0.5 * act(damped @ A.t() + b)
    for backward, x in (("jfb", one), ("phantom", damped)):
        expected = torch.autograd.grad((x * weight).sum(), (A, b))
        found = torch.autograd.grad(
            (equilibrium(A, b, activation, backward=backward, tol=1e-14) * weight).sum(), (A, b)
        )
        for f, e in zip(found, expected, strict=True):
            torch.testing.assert_close(f, e, rtol=1e-9, atol=1e-11)


def test_scalar_gradients_in_closed_form():
    # x = a x + b, a = 1/2, b = 3: x = 6, dx/da = b / (1 - a)^2 = 12, dx/db = 2; JFB drops 1 / (1 - a)
    A = torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[3.0]], dtype=torch.float64, requires_grad=True)
    for backward, dA, db in (("implicit", 12.0, 2.0), ("unroll", 12.0, 2.0), ("jfb", 6.0, 1.0)):
        found = torch.autograd.grad(equilibrium(A, b, backward=backward, tol=1e-13).sum(), (A, b))
        assert [float(f) for f in found] == pytest.approx([dA, db], rel=1e-9)


def test_two_backwards_and_two_uses():
    A, b = _problem(6, 4)
    A.requires_grad_()
    x = equilibrium(A, b, tol=1e-12)
    loss = (x**2).sum()
    (first,) = torch.autograd.grad(loss, A, retain_graph=True)
    (again,) = torch.autograd.grad(loss, A)
    assert torch.equal(first, again)
    (twice,) = torch.autograd.grad(
        (equilibrium(A, b, tol=1e-12) ** 2).sum() + (equilibrium(A, b, tol=1e-12) ** 2).sum(), A
    )
    torch.testing.assert_close(twice, 2 * first)


def test_second_derivatives_work_unrolled_and_are_refused_otherwise():
    A, b = _problem(3, 2, kappa=0.5)
    A.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda A: equilibrium(A, b, "tanh", backward="unroll", tol=1e-13), (A,))
    (g,) = torch.autograd.grad(equilibrium(A, b, "tanh").sum(), A, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once.*unroll"):
        (g.sum() + (A**2).sum()).backward()


def test_gradient_only_where_it_is_asked_for():
    A, b = _problem(4, 3)
    b.requires_grad_()
    equilibrium(A, b).sum().backward()
    assert b.grad is not None and A.grad is None
    with torch.no_grad():
        assert not equilibrium(A, b).requires_grad
    assert not equilibrium(A, b.detach()).requires_grad


def test_adjoint_tolerance_is_relative_to_the_cotangent():
    A, b = _problem(20, 5, stiff=True, kappa=0.95)
    for solver in ("picard", "gauss_seidel", "newton"):
        b.requires_grad_()
        x = equilibrium(A, b, solver=solver, tol=1e-9, max_iter=3000)
        (one,) = torch.autograd.grad(x.sum(), b, retain_graph=True)
        (small,) = torch.autograd.grad(2.0**-60 * x.sum(), b)
        assert torch.equal(small, 2.0**-60 * one)  # a tiny cotangent is solved as accurately, never rounded to 0


# ---------------------------------------------------------------- hard cases


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_kappa_close_to_one(activation):
    A, b = _problem(20, 5, kappa=0.9999, stiff=True)
    r = solve_equilibrium(A, b, activation, tol=1e-9, max_iter=5000)
    assert r.converged.all() and (r.residual <= 1.01e-9).all()
    if activation == "relu":  # Picard needs 2e5 steps here and says so
        with pytest.warns(NotConverged, match="Picard may need 2072[0-9]{2} iterations"):
            solve_equilibrium(A, b, activation, tol=1e-9, solver="picard")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("upper", [True, False])
def test_triangular_with_large_entries(kind, upper):
    n = 30
    A = 3 * torch.randn(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = (A.triu(1) if upper else A.tril(-1)) - torch.diag(torch.linspace(0, 4, n, dtype=torch.float64))
    b = torch.randn(6, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.zeros_like(b)  # substitution by hand, x_i = max(0, rest / (1 - A_ii))
    for i in reversed(range(n)) if upper else range(n):
        rest = b[:, i] + expected @ A[i] - expected[:, i] * A[i, i]
        expected[:, i] = rest.clamp_min(0) / (1 - A[i, i])
    r = solve_equilibrium(A.to_sparse_csr() if kind == "sparse" else A, b, tol=1e-10)
    torch.testing.assert_close(r.x, expected, rtol=1e-9, atol=1e-9)
    assert r.converged.all()


@pytest.mark.parametrize("activation", COMPONENTWISE)
def test_self_loops_below_minus_one(activation):
    # Metzler certificate: Picard diverges, the closed-form diagonal does not
    A, b = _problem(5, 3, kappa=0.6)
    A = A - 5 * torch.eye(5, dtype=torch.float64)
    act = resolve_activation(activation, 5)
    expected = torch.zeros_like(b)
    for _ in range(2000):  # under-relaxation, an independent method
        expected = expected + 0.1 * (act(expected @ A.t() + b) - expected)
    for M in (A, A.to_sparse_csr()):
        r = solve_equilibrium(M, b, activation, tol=1e-11, max_iter=2000)
        torch.testing.assert_close(r.x, expected, rtol=1e-8, atol=1e-9)
    A, b = A[:3, :3].clone().requires_grad_(), b[:2, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda A, b: equilibrium(A, b, activation, tol=1e-13, max_iter=3000), (A, b))
    (dense,) = torch.autograd.grad(equilibrium(A, b, activation, tol=1e-13).sum(), b)
    x = equilibrium(A.detach().to_sparse_csr(), b, activation, tol=1e-12, max_iter=3000)
    torch.testing.assert_close(torch.autograd.grad(x.sum(), b)[0], dense, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_zero_matrix_and_trivial_sizes(solver):
    b = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    r = solve_equilibrium(torch.zeros(3, 3), b, solver=solver)
    assert torch.equal(r.x, b.clamp_min(0)) and r.converged.all() and (r.residual == 0).all()
    A = torch.full((3, 3), 0.1, requires_grad=True)
    x = equilibrium(A, torch.zeros(0, 3), solver=solver)
    x.sum().backward()
    assert x.shape == (0, 3) and not A.grad.any()
    empty = solve_equilibrium(A.detach(), torch.zeros(0, 3), solver=solver)
    assert empty.converged.shape == (0,) and empty.reason == "converged"
    zero = solve_equilibrium(A.detach(), torch.zeros(2, 3), solver=solver)  # 0 / 0 counts as a residual of 0
    assert (zero.residual == 0).all() and zero.converged.all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [4, 20, 36, 200])
@pytest.mark.parametrize("solver", SOLVERS)
def test_batch_of_one_and_of_64_agree(n, solver, dtype):
    A, b = _problem(n, 64, dtype=dtype)
    whole = solve_equilibrium(A, b, solver=solver)
    for i in (0, 31, 63):
        alone = solve_equilibrium(A, b[i : i + 1], solver=solver)
        assert (alone.x - whole.x[i]).abs().max() <= 4e-5 * whole.x[i].abs().max()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("n", [4, 20, 200])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_bad_sample_leaves_the_others_bit_identical(solver, n, bad):
    A, b = _problem(n, 70, dtype=torch.float32)
    b[7, n // 2] = bad
    zeroed = b.clone()
    zeroed[7] = 0
    with pytest.warns(NotConverged, match=r"sample 7 \(input not finite") as caught:
        r = solve_equilibrium(A, b, solver=solver)
    z = solve_equilibrium(A, zeroed, solver=solver)
    others = torch.arange(70) != 7
    assert torch.equal(r.x[others], z.x[others]) and torch.equal(r.n_iter[others], z.n_iter[others])
    assert not r.converged[7] and r.converged[others].all() and r.x[7].isnan().all()
    assert caught[0].message.samples == (7,)
    # gradient of a loss that leaves the bad sample out: as if it were not there
    weight = torch.ones(70, n)
    weight[7] = 0
    grads = []
    for rhs in (b, zeroed):
        M, v = A.clone().requires_grad_(), rhs.clone().requires_grad_()
        x = equilibrium(M, v, solver=solver, on_failure="ignore")
        grads.append(torch.autograd.grad(x, (M, v), weight))
    assert torch.equal(grads[0][1][others], grads[1][1][others])
    torch.testing.assert_close(grads[0][0], grads[1][0], rtol=1e-5, atol=1e-5)
    assert grads[0][0].isfinite().all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_start_at_the_fixed_point_and_warm_start(solver):
    A, b = _problem(12, 6)
    cold = solve_equilibrium(A, b, solver=solver, tol=1e-10)
    again = solve_equilibrium(A, b, solver=solver, tol=1e-9, x0=cold.x)
    assert (again.n_iter <= 1).all() and again.converged.all()
    torch.testing.assert_close(again.x, cold.x, rtol=1e-8, atol=1e-8)
    far = solve_equilibrium(A, b, solver=solver, tol=1e-10, x0=100 + torch.zeros_like(b))
    torch.testing.assert_close(far.x, cold.x, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", ["picard", "anderson", "gauss_seidel"])
def test_max_iter_one_returns_the_iterate_with_its_true_residual(solver):
    A, b = _problem(10, 5, kappa=0.95, stiff=True)
    with pytest.warns(NotConverged, match="max_iter"):
        r = solve_equilibrium(A, b, solver=solver, max_iter=1)
    assert (r.n_iter == 1).all() and not r.converged.any() and "max_iter" in r.reason
    assert not torch.equal(r.x, torch.zeros_like(b))
    np.testing.assert_array_equal(r.residual, equilibrium_residual(A, b, r.x))
    if solver != "gauss_seidel":
        torch.testing.assert_close(r.x, b.clamp_min(0))


def _float64_residual(A, b, x, activation, relative):
    """The residual in double precision and 4 eps max (|A| |x| + |b|), eps that of A."""
    eps, (A, b, x) = torch.finfo(A.dtype).eps, (t.double() for t in (A, b, x))
    scale = x.abs().amax(1) if relative else 1.0
    residual = (resolve_activation(activation, A.shape[0])(x @ A.t() + b) - x).abs().amax(1)
    return residual / scale, 4 * eps * (x.abs() @ A.abs().t() + b.abs()).amax(1) / scale


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_inputs_of_a_million(solver, activation):
    A, b = _problem(20, 16, dtype=torch.float32)
    r = solve_equilibrium(A, 1e6 * b, activation, solver=solver)
    exact = solve_equilibrium(A.double(), 1e6 * b.double(), activation, tol=1e-13, max_iter=3000)
    assert r.converged.all()
    assert ((r.x - exact.x).abs().amax(1) <= 3e-5 * exact.x.abs().amax(1)).all()
    residual, floor = _float64_residual(A, 1e6 * b, r.x, activation, True)
    assert (residual <= 1e-6 + floor).all()


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_absolute_tolerance_below_rounding_is_said(solver, activation):
    # an absolute 1e-6 on states of 1e6 is beyond float32: converged to rounding, or not at all, and said in both cases
    A, b = _problem(20, 64, dtype=torch.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        r = solve_equilibrium(A, 1e6 * b, activation, solver=solver, tol_mode="absolute", max_iter=60)
    torch.testing.assert_close(
        r.residual, equilibrium_residual(A, 1e6 * b, r.x, activation, tol_mode="absolute"), rtol=0, atol=0
    )
    assert (r.residual > 1e-6).any()
    assert torch.equal(r.converged, (r.residual <= 1e-6) | r.to_rounding)
    assert r.to_rounding.any() == ("converged to rounding" in r.reason)
    assert bool(caught) == (not r.converged.all())
    assert all("below what float32 resolves" in str(w.message) for w in caught)
    residual, floor = _float64_residual(A, 1e6 * b, r.x, activation, False)
    assert (residual[r.converged] <= 2 * floor[r.converged]).all()


@pytest.mark.parametrize("solver", ["auto", "gauss_seidel"])
def test_layer_and_function_tell_the_same_residual(solver):
    A, b = _problem(20, 400, dtype=torch.float32)
    A.fill_diagonal_(-15.0)
    r = solve_equilibrium(A, b, solver=solver)
    model = ImplicitModel.from_matrices(A, torch.eye(20), torch.eye(20), solver=solver)
    for other in (equilibrium_result(A, b, solver=solver), model.equilibrium(b)):
        for name in ("x", "residual", "converged", "to_rounding", "status"):
            assert torch.equal(getattr(r, name), getattr(other, name)), name
        assert r.reason == other.reason
    assert torch.equal(model.last_solve.residual, r.residual)
    assert r.to_rounding.any() and "converged to rounding" in r.reason
    assert torch.equal(r.converged, (r.residual <= 1e-6) | r.to_rounding)


def test_a_claim_above_the_rounding_floor_is_withdrawn():
    A, b = torch.tensor([[0.5]]), torch.ones(2, 1)
    act, s = resolve_activation("relu", 1), SolverSettings()
    x = torch.tensor([[2.0], [2.1]])  # x = 2 is exact; 2.1 is not, whatever the solver says
    found = Solution.of(
        (x, torch.zeros(2), torch.ones(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int8)), "picard"
    )
    result, _, above = result_of(A, b, found, act, s)
    assert above and result.converged.tolist() == [True, False]
    assert result.residual.tolist() == pytest.approx([0, 0.05 / 2.1], rel=1e-5)
    assert result.reason == "stopped at max_iter: sample 1"


@pytest.mark.parametrize("solver", ["picard", "anderson"])
@pytest.mark.parametrize("tol_mode", ["relative", "absolute"])
def test_an_infinite_state_is_no_equilibrium(solver, tol_mode):
    # x -> 1 - 10 x runs away; inf <= tol inf must not pass
    A = torch.tensor([[-10.0]])
    r = solve_equilibrium(A, torch.ones(1, 1), "identity", solver="picard", tol_mode=tol_mode, on_failure="ignore")
    assert not r.converged.any() and r.reason == "diverged: sample 0"
    with pytest.raises(NotConverged):
        equilibrium(A, torch.ones(1, 1), "identity", solver="picard", backward="unroll", on_failure="raise")
    r = solve_equilibrium(
        torch.tensor([[-3.0, 0.1], [0.1, -2.0]]).to_sparse_csr(),
        torch.ones(1, 2),
        "identity",
        solver=solver,
        on_failure="ignore",
    )
    assert r.converged.all() if solver == "anderson" else not r.converged.any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "activation", ["relu", "tanh", "sigmoid", [("relu", 2), ("tanh", 2)], BLOCKS[0][:1] + [("softmax", 2)]], ids=str
)
@pytest.mark.parametrize("backward", ["implicit", "unroll"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_matrix_that_is_not_finite_is_refused_everywhere(value, activation, backward, sparse):
    A = torch.zeros(4, 4)
    A[0, 1] = value
    A = A.to_sparse_csr() if sparse else A
    message = f"A has values that are not finite: 1 of {1 if sparse else 16}"
    with pytest.raises(ValueError, match=message):
        equilibrium(A, torch.ones(1, 4), activation, backward=backward)
    model = ImplicitModel.from_matrices(A, torch.eye(4), torch.eye(4), activation=activation, backward=backward)
    with pytest.raises(ValueError, match=message):
        model(torch.ones(2, 4))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_state_of_size_zero_is_refused(solver):
    with pytest.raises(ValueError, match="A must have at least one state"):
        solve_equilibrium(torch.zeros(0, 0), torch.zeros(2, 0), solver=solver)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_stiff_sample_beside_an_easy_one(solver):
    A, b = _problem(10, 2, stiff=True, kappa=0.99)
    b[0], b[1] = b[0].abs() + 1, -1.0
    r = solve_equilibrium(A, b, solver=solver, tol=1e-8, max_iter=5000)
    assert r.converged.all() and not r.x[1].any()
    assert r.n_iter[1] <= 4
    if solver == "picard":
        assert r.n_iter[0] > 1000
    np.testing.assert_allclose(r.x[0], np.linalg.solve(np.eye(10) - A.numpy(), b[0].numpy()), rtol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [2, 20, 200])
def test_a_diverging_matrix_is_reported(solver, n):
    A = torch.full((n, n), 3.0 / n) + torch.eye(n)
    b = torch.ones(3, n)
    with pytest.warns(NotConverged, match="no certificate of well-posedness"):
        r = solve_equilibrium(A, b, solver=solver, max_iter=100)
    assert not r.converged.any() and r.reason != "converged"
    with pytest.raises(NotConverged) as error:
        solve_equilibrium(A, b, solver=solver, max_iter=100, on_failure="raise")
    assert set(error.value.samples) == {0, 1, 2} and len(error.value.residual) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_equilibrium(A, b, solver=solver, max_iter=100, on_failure="ignore")


@pytest.mark.parametrize("solver", ["picard", "anderson", "gauss_seidel"])
def test_a_backward_that_fails_is_reported_and_is_not_zero(solver):
    # the forward starts at its fixed point; the adjoint of a stiff A cannot be solved in two steps
    A, b = _problem(10, 3, kappa=0.95, stiff=True)
    b = b.abs()
    star = solve_equilibrium(A, b, tol=1e-12).x
    A.requires_grad_()
    x = equilibrium(A, b, solver=solver, tol=1e-9, max_iter=2, x0=star)
    with pytest.warns(NotConverged, match="adjoint"):
        (g,) = torch.autograd.grad(x.sum(), A, retain_graph=True)
    assert (g != 0).all()
    strict = equilibrium(A, b, solver=solver, tol=1e-9, max_iter=2, x0=star, on_failure="raise")
    with pytest.raises(NotConverged, match="adjoint"):
        strict.sum().backward()


def test_a_cotangent_that_is_not_finite_stays_visible():
    A, b = _problem(6, 3)
    for solver in SOLVERS:
        v = b.clone().requires_grad_()
        g = torch.ones(3, 6, dtype=torch.float64)
        g[1, 2] = float("nan")
        (db,) = torch.autograd.grad(equilibrium(A, v, solver=solver, on_failure="ignore"), v, g)
        assert db[1].isnan().any() and db[[0, 2]].isfinite().all()


def test_two_threads_with_different_settings():
    A, b = _problem(20, 300, kappa=0.95, stiff=True)
    results = {}

    def work(tol):
        results[tol] = [solve_equilibrium(A, b, tol=tol).x for _ in range(5)]

    threads = [threading.Thread(target=work, args=(tol,)) for tol in (1e-3, 1e-12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for tol, xs in results.items():
        assert all(torch.equal(x, solve_equilibrium(A, b, tol=tol).x) for x in xs)


def test_splitting_the_batch_over_threads_changes_no_bit():
    A, b = _problem(60, 1500, dtype=torch.float32)
    A.requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            x = equilibrium(A, b, solver="gauss_seidel")
            found.append((x.detach(), torch.autograd.grad(x.sum(), A)[0]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-4)


def test_the_graph_is_freed():
    A, b = _problem(5, 3)
    A.requires_grad_()
    x = equilibrium(A, b)
    ref = weakref.ref(x)
    x.sum().backward()
    del x
    gc.collect()
    assert ref() is None


# ---------------------------------------------------------------- block maps, sparse matrices


@pytest.mark.parametrize("activation", BLOCKS, ids=str)
def test_block_maps_by_substitution_equal_picard(activation):
    A = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = resolve_activation(activation, 5).unit
    A = torch.where(torch.from_numpy(unit[:, None] < unit[None, :]), 3 * A, 0)  # strictly block upper
    b = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    r = solve_equilibrium(A, b, activation, tol=1e-12)
    assert r.solver == "triangular" and (r.residual <= 1e-14).all()
    torch.testing.assert_close(
        r.x, solve_equilibrium(A, b, activation, solver="picard", tol=1e-13).x, rtol=1e-10, atol=1e-12
    )
    assert torch.autograd.gradcheck(lambda b: equilibrium(A, b, activation), (b.requires_grad_(),))


def test_permuted_feed_forward_network_is_solved_in_depth_levels():
    rng = np.random.default_rng(0)
    W0, W1, W2 = rng.standard_normal((4, 3)), rng.standard_normal((5, 4)), rng.standard_normal((2, 5))
    A = np.zeros((11, 11))
    A[4:9, :4], A[9:, 4:9] = W1, W2
    order = rng.permutation(11)
    u = rng.standard_normal((6, 3))
    b = np.zeros((6, 11))
    b[:, :4] = u @ W0.T
    h1 = np.maximum(u @ W0.T, 0)
    h2 = np.maximum(h1 @ W1.T, 0)
    expected = np.concatenate([h1, h2, np.maximum(h2 @ W2.T, 0)], 1)[:, order]
    sparse = torch.from_numpy(A[order][:, order]).to_sparse_csr()
    plan = triangular_plan(sparse, resolve_activation("relu", 11))
    assert plan.depth == 3
    np.testing.assert_allclose(substitute(plan, torch.from_numpy(b[:, order])), expected, atol=1e-12)
    r = solve_equilibrium(sparse, torch.from_numpy(b[:, order].copy()))
    assert r.solver == "triangular" and (r.n_iter == 3).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", [("relu", 6), ("softmax", 6)]], ids=str)
@pytest.mark.parametrize("solver", ["auto", "picard", "anderson"])
def test_sparse_cycles_equal_dense(activation, solver):
    A, b = _problem(12, 5)
    A = A * (torch.rand(12, 12, generator=torch.Generator().manual_seed(2)) < 0.4)
    sparse = A.to_sparse_csr()
    dense = solve_equilibrium(A, b, activation, tol=1e-12, solver="picard")
    torch.testing.assert_close(
        solve_equilibrium(sparse, b, activation, tol=1e-12, solver=solver).x, dense.x, rtol=1e-9, atol=1e-10
    )
    v = b.clone().requires_grad_()
    g = torch.randn(5, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = [
        torch.autograd.grad(equilibrium(M, v, activation, tol=1e-12, solver="picard"), v, g)[0] for M in (A, sparse)
    ]
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("activation", COMPONENTWISE)
def test_one_self_loop_of_any_strength(activation, kind):
    # n = 1 by bracketing in SciPy: strong negative loops make plain Newton steps circle
    b = torch.linspace(-30, 30, 61, dtype=torch.float64)[:, None]
    for a in (-50.0, -5.0, -0.9, 0.5, 0.95):
        A = torch.tensor([[a]], dtype=torch.float64)
        act = resolve_activation(activation, 1)
        h = lambda x, r, a=a, act=act: x - float(act(np.array([a * x + r]))[0])
        expected = [scipy.optimize.brentq(h, -1e4, 1e4, args=(float(r),), xtol=1e-15, rtol=1e-15) for r in b[:, 0]]
        r = solve_equilibrium(A.to_sparse_csr() if kind == "sparse" else A, b, activation, tol=1e-10, max_iter=1000)
        np.testing.assert_allclose(r.x[:, 0], expected, rtol=1e-8, atol=1e-10)


def test_plan_is_refused_for_feedback_and_unit_self_loops():
    act = resolve_activation("relu", 2)
    assert triangular_plan(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), act) is None
    assert triangular_plan(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), act) is None
    assert triangular_plan(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), resolve_activation("softmax", 2)) is None
    assert triangular_plan(torch.tensor([[0.5, 1.0], [0.0, -3.0]]), act).depth == 2


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("A", "b", "options", "error", "match"),
    [
        (torch.zeros(2, 3), torch.zeros(1, 2), {}, ValueError, r"square.*\(2, 3\)"),
        (torch.zeros(2, 2), torch.zeros(1, 3), {}, ValueError, r"2 columns.*\(1, 3\)"),
        (torch.zeros(2, 2), torch.zeros(2), {}, ValueError, r"b must have 2 dimensions.*\(2,\)"),
        (torch.zeros(2, 2), torch.zeros(1, 2, dtype=torch.int64), {}, TypeError, "floating.*int64"),
        (torch.zeros(2, 2, dtype=torch.int32), torch.zeros(1, 2), {}, TypeError, "A must have a floating"),
        (torch.zeros(2, 2), torch.zeros(1, 2, dtype=torch.float64), {}, TypeError, "float64.*float32"),
        (np.zeros((2, 2)), torch.zeros(1, 2), {}, TypeError, "ndarray"),
        (torch.full((2, 2), float("nan")), torch.zeros(1, 2), {}, ValueError, "A has values that are not finite"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"x0": torch.zeros(2, 2)}, ValueError, r"x0.*\(1, 2\)"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"solver": "broyden"}, ValueError, "unknown solver 'broyden'"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"activation": "gelu"}, ValueError, "unknown activation 'gelu'"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"tol": 0.0}, ValueError, "tol"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"tol": "1e-6"}, TypeError, "tol"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"tol_mode": "rel"}, ValueError, "unknown tol_mode 'rel'"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"max_iter": 0}, ValueError, "max_iter"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"max_iter": 3.0}, TypeError, "max_iter"),
        (torch.zeros(2, 2), torch.zeros(1, 2), {"on_failure": "pass"}, ValueError, "on_failure"),
        (
            torch.zeros(2, 2),
            torch.zeros(1, 2),
            {"activation": "tanh", "solver": "newton"},
            ValueError,
            "piecewise-linear",
        ),
        (
            torch.zeros(2, 2),
            torch.zeros(1, 2),
            {"activation": "softmax", "solver": "gauss_seidel"},
            ValueError,
            "componentwise",
        ),
        (
            csr_tensor(sp.csr_array(np.eye(2)), torch.float32, torch.device("cpu")),
            torch.zeros(1, 2),
            {"solver": "newton"},
            ValueError,
            "compiled for dense",
        ),
    ],
)
def test_bad_input_is_named(A, b, options, error, match):
    with pytest.raises(error, match=match):
        solve_equilibrium(A, b, options.pop("activation", "relu"), **options)


def test_a_matrix_that_is_not_finite_is_an_error_not_a_failure_to_converge():
    A, b = _problem(4, 3)
    A[1, 2] = float("nan")
    for solver in ("auto", "picard", "gauss_seidel"):
        with pytest.raises(ValueError, match="A has values that are not finite: 1 of 16"):
            equilibrium(A, b, solver=solver)


def test_direct_adjoint_is_refined_where_single_precision_leaves_more_than_tol():
    A, b = _problem(60, 20, kappa=0.9995, stiff=True, dtype=torch.float32)
    b = b.abs().requires_grad_()
    g = torch.randn(20, 60, generator=torch.Generator().manual_seed(1))
    x = equilibrium(A, b, solver="newton", tol=1e-6, on_failure="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (v,) = torch.autograd.grad(x, b, g)
    assert (x > 0).all()
    exact = torch.linalg.solve(torch.eye(60, dtype=torch.float64) - A.double().t(), g.double().t()).t()
    left = (v.double() @ A.double() + g - v).abs().amax(1) / torch.maximum(g.abs().amax(1), v.abs().amax(1))
    assert (left <= 2e-6).all()
    assert ((v - exact).abs().amax(1) <= 1e-3 * exact.abs().amax(1)).all()


def test_bad_backward_is_named():
    A, b = _problem(2, 1)
    with pytest.raises(ValueError, match="unknown backward 'ift'"):
        equilibrium(A, b, backward="ift")
    with pytest.raises(ValueError, match="unroll.*newton"):
        equilibrium(A, b, backward="unroll", solver="newton")
    with pytest.raises(ValueError, match="unknown backward"):
        SolverSettings(backward="none")


def test_result_of_the_differentiable_solve():
    A, b = _problem(5, 4)
    A.requires_grad_()
    r = equilibrium_result(A, b)
    assert r.x.requires_grad and r.converged.all() and r.statistics.n_failed == 0
    assert r.statistics.max_iter == int(r.n_iter.max()) and r.statistics.mean_iter == pytest.approx(
        float(r.n_iter.double().mean())
    )
    assert not r.residual.requires_grad


def _gradients(A, b, activation, weight, **settings):
    A, b = A.clone().requires_grad_(), b.clone().requires_grad_()
    return torch.autograd.grad((equilibrium(A, b, activation, **settings) * weight).sum(), (A, b))


@pytest.mark.parametrize("activation", ["relu", "tanh", "identity"])
def test_unrolled_gradients_where_the_value_converges_first(activation):
    g = torch.Generator().manual_seed(3)
    b, weight = torch.randn(3, 5, generator=g, dtype=torch.float64), torch.randn(3, 5, generator=g, dtype=torch.float64)
    chain = torch.diag(torch.ones(4, dtype=torch.float64), 1)
    only_first = torch.zeros_like(b)
    only_first[:, 0] = 1  # exact after one step, and yet A[4, 0] acts along the whole chain
    looped = torch.randn(5, 5, generator=g, dtype=torch.float64) * 0.1
    looped.fill_diagonal_(-3.0)
    cases = [(torch.zeros(5, 5, dtype=torch.float64), b), (chain, b), (torch.triu(looped, 1) * 10, b), (looped, b)]
    if activation != "relu":  # whose kink the zeros of this one meet
        cases.append((chain, only_first))
    for A, rhs in cases:
        expected = _gradients(A, rhs, activation, weight, tol=1e-12)
        for f, e in zip(_gradients(A, rhs, activation, weight, tol=1e-12, backward="unroll"), expected, strict=True):
            torch.testing.assert_close(f, e, rtol=1e-8, atol=1e-9)


def test_unrolled_gradient_at_zero_in_closed_form():
    # x = relu(A x + 1) at A = 0: dx_i/dA_ij = x_j = 1
    dA, db = _gradients(torch.zeros(3, 3), torch.ones(2, 3), "relu", 1.0, backward="unroll")
    assert torch.equal(dA, torch.full((3, 3), 2.0)) and torch.equal(db, torch.ones(2, 3))


@pytest.mark.parametrize("backward", ["implicit", "jfb", "phantom", "unroll"])
@pytest.mark.parametrize("activation", ["relu", "tanh", BLOCKS[0]], ids=str)
def test_a_bad_sample_leaves_the_gradients_of_the_others_alone(activation, backward):
    A, b = _problem(5, 3)
    broken, keep = b.clone(), [0, 2]
    broken[1, 2] = float("nan")
    weight = torch.zeros_like(b)
    weight[keep] = 1

    def grads(rhs, w):
        M, z = A.clone().requires_grad_(), rhs.clone().requires_grad_()
        x = equilibrium(M, z, activation, backward=backward, on_failure="ignore", tol=1e-12)
        return torch.autograd.grad(x, (M, z), w)

    (dA, db), (expected_A, expected_b) = grads(broken, weight), grads(b[keep], weight[keep])
    torch.testing.assert_close(dA, expected_A)
    torch.testing.assert_close(db[keep], expected_b)
    assert not db[1].any()


def test_a_dense_triangular_matrix_in_another_order_is_solved_by_substitution():
    n, g = 120, torch.Generator().manual_seed(0)
    A = torch.triu(3 * torch.randn(n, n, generator=g, dtype=torch.float64), 1)
    order, b = torch.randperm(n, generator=g), torch.randn(4, n, generator=g, dtype=torch.float64)
    P = A[order][:, order].contiguous().requires_grad_()
    expected = b.clone()  # by back substitution
    for i in range(n - 1, -1, -1):
        expected[:, i] = (b[:, i] + expected[:, i + 1 :] @ A[i, i + 1 :]).clamp_min(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = equilibrium(P, b[:, order])
        (dP,) = torch.autograd.grad((x / expected[:, order].amax(1, keepdim=True)).sum(), P)
    assert ((x - expected[:, order]).abs().amax(1) <= 1e-9 * expected.amax(1)).all()
    assert torch.isfinite(dP).all() and dP.any()
    assert certificate(P).kind in ("pf", "triangular") and certificate(P.detach().to_sparse_csr()).kind in (
        "pf",
        "triangular",
    )


@pytest.mark.parametrize("name, value", [("tol", [1e-6]), ("max_iter", [5]), ("solver", ["picard"])])
def test_a_setting_of_the_wrong_type_is_named(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        solve_equilibrium(torch.zeros(1, 1), torch.ones(1, 1), **{name: value})


def test_advice_names_solvers_that_can_run():
    A = torch.tensor([[0.0, 0.999], [0.999, 0.0]], dtype=torch.float64)
    with pytest.raises(NotConverged) as failure:
        solve_equilibrium(
            A, torch.ones(1, 2, dtype=torch.float64), "tanh", solver="picard", max_iter=3, on_failure="raise"
        )
    assert "newton" not in str(failure.value)
