"""What ends a solve: rounding near the last place of single precision, and max_iter, against solves in double."""

import numpy as np
import pytest
import torch

from implicit_models.activations import resolve_activation
from implicit_models.equilibrium import SolverSettings, solve_equilibrium
from implicit_models.equilibrium.derivatives import solve_adjoint


def uniform_problem(n, N, dtype, kappa=0.95):
    g = torch.Generator().manual_seed(0)
    A, b = (torch.randn(rows, n, generator=g, dtype=torch.float64) for rows in (n, N))
    return (kappa * A / A.abs().sum(1, keepdim=True)).to(dtype), b.to(dtype)


def double_residual(A, b, x, phi):
    A, b, x = (t.double() for t in (A, b, x))
    return (phi(x @ A.t() + b) - x).abs().amax(1) / x.abs().amax(1).clamp_min(1e-30)


@pytest.mark.parametrize("solver", ["auto", "gauss_seidel"])
@pytest.mark.parametrize("coupling", [0.0, 1e-4])
@pytest.mark.parametrize("a", [0.9, 0.99, 0.999, 1.0])
def test_self_loops_close_to_one_in_single_precision_end_at_rounding(a, coupling, solver):
    """Rounding of a Newton step on x = tanh(rest + a x) is multiplied by 1 / (1 - a slope)."""
    g = torch.Generator().manual_seed(0)
    A = a * torch.eye(20) + coupling * (1 - a) * torch.randn(20, 20, generator=g) / 20
    b = 1e-3 * torch.randn(300, 20, generator=g)
    found = solve_equilibrium(A, b, "tanh", solver=solver)
    exact = solve_equilibrium(A.double(), b.double(), "tanh", solver="gauss_seidel", tol=1e-12)
    assert bool(found.converged.all()) and bool(exact.converged.all())
    # auto: steps of the whole batch come first
    assert int(found.n_iter.max()) <= int(exact.n_iter.max()) + (20 if solver == "auto" else 2)
    assert float(double_residual(A, b, found.x, torch.tanh).max()) <= 1e-6
    size = exact.x.abs().amax(1, keepdim=True)
    error, slope = (found.x - exact.x).abs() / size, 1 - exact.x**2
    assert float((error * (1 - a * slope)).max()) <= 2e-6  # the residual is the error times 1 - a slope


@pytest.mark.parametrize("activation, phi", [("tanh", torch.tanh), ("relu", torch.relu)])
@pytest.mark.parametrize("n", [2, 40])
def test_samples_that_rounding_stopped_in_single_precision_go_on_in_double(activation, phi, n):
    g = torch.Generator().manual_seed(0)
    A, b = -50 * torch.eye(n) + 0.02 * torch.randn(n, n, generator=g), torch.randn(500, n, generator=g)
    found = solve_equilibrium(A, b, activation, max_iter=2000, on_failure="raise")
    exact = solve_equilibrium(A.double(), b.double(), activation, tol=1e-12, max_iter=2000)
    assert bool(found.converged.all()) and bool(exact.converged.all())
    assert float((found.x - exact.x).abs().max() / exact.x.abs().max()) <= 2 * np.finfo(np.float32).eps
    assert bool((double_residual(A, b, found.x, phi) <= 52 * 2 * np.finfo(np.float32).eps).all())


@pytest.mark.parametrize("solver", ["auto", "picard", "anderson", "gauss_seidel", "newton"])
@pytest.mark.parametrize(
    "n, N, activation, tol, dtype",
    [
        (48, 200, "sigmoid", 1e-13, torch.float64),
        (78, 600, "tanh", 1e-7, torch.float32),
        (22, 200, "tanh", 1e-10, torch.float64),
        (22, 50, "relu", 1e-12, torch.float64),
    ],
)
def test_a_solve_and_its_adjoint_take_at_most_max_iter_steps(n, N, activation, tol, dtype, solver):
    if solver == "newton" and activation != "relu":
        solver = "gauss_seidel"
    A, b = uniform_problem(n, N, dtype)
    act = resolve_activation(activation, n)
    for max_iter in range(1, 13):
        settings = SolverSettings(solver=solver, tol=tol, max_iter=max_iter)
        r = solve_equilibrium(A, b, activation, solver=solver, tol=tol, max_iter=max_iter, on_failure="ignore")
        assert 1 <= int(r.n_iter.max()) <= max_iter and bool((r.residual[r.status == 0] <= max(tol, 2e-6)).all())
        for method in {r.solver, "picard"} if solver == "auto" else {r.solver}:
            adjoint = solve_adjoint(A, b, r.x, act, torch.ones_like(b), settings, method)
            assert 1 <= int(adjoint.n_iter.max()) <= max_iter


@pytest.mark.parametrize("max_iter", [70, 100, 500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_stiff_solve_and_its_adjoint_by_several_methods_keep_to_max_iter(dtype, max_iter):
    g = torch.Generator().manual_seed(1)
    A = torch.randn(46, 46, generator=g, dtype=torch.float64).abs()
    A = (0.9995 * A / A.sum(1, keepdim=True)).to(dtype)
    b = torch.randn(100, 46, generator=g, dtype=torch.float64).abs().to(dtype)
    r = solve_equilibrium(A, b, "relu", tol=1e-6, max_iter=max_iter)
    adjoint = solve_adjoint(A, b, r.x, resolve_activation("relu", 46), b, SolverSettings(max_iter=max_iter), r.solver)
    assert bool(r.converged.all()) and bool((adjoint.status == 0).all())
    assert int(r.n_iter.max()) <= max_iter and int(adjoint.n_iter.max()) <= max_iter
    exact = torch.linalg.solve(torch.eye(46, dtype=torch.float64) - A.double().t(), b.double().t()).t()
    assert float((adjoint.x - exact).abs().max() / exact.abs().max()) <= 2e-3  # tol over 1 - 0.9995
