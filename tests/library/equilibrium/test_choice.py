"""What "auto" chooses: never dearer by operation counts than 1.5 times the best, and as exact as it says."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from implicit_models.activations import resolve_activation
from implicit_models.equilibrium import equilibrium, solve_equilibrium
from implicit_models.equilibrium.costs import remaining, step_cost, sweeps_cost
from implicit_models.equilibrium.kernels.fused import norms, smooth_in_place, worst_change
from implicit_models.equilibrium.whole_batch import state_steps
from implicit_models.projection import project_rows

KINDS = ("gaussian", "projected", "positive")


def problem(n, N, kind, kappa=0.95, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(n, n, generator=g, dtype=torch.float64)
    size = A.abs().sum(1, keepdim=True)
    A = {"gaussian": kappa * A / size, "projected": project_rows(A, kappa), "positive": kappa * A.abs() / size}[kind]
    return A.to(dtype), torch.randn(N, n, generator=g, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n, N", [(8, 256), (64, 32), (64, 256), (200, 300)])
def test_the_choice_costs_at_most_half_more_than_the_best(n, N, kind, activation):
    A, b = problem(n, N, kind)
    act, size = resolve_activation(activation, n), (n, N, torch.float64, activation == "tanh")
    counts = {
        solver: int(solve_equilibrium(A, b, activation, solver=solver).n_iter.max())
        for solver in ("picard", "gauss_seidel")
    }
    costs = {
        "picard": (counts["picard"] - 1) * step_cost(*size),
        "gauss_seidel": sweeps_cost(*size, counts["gauss_seidel"] - 1),
    }
    steps = state_steps(A, b, act, None, 1e-6, True, 500)
    chosen = solve_equilibrium(A, b, activation)
    total = int(chosen.n_iter.max())
    if chosen.solver == "picard":
        spent = (total - 1) * step_cost(*size)
    elif total == counts["gauss_seidel"]:  # no steps before
        spent = costs["gauss_seidel"]
    else:
        spent = (steps.taken - 1) * step_cost(*size) + sweeps_cost(*size, max(total - steps.taken - 1, 0))
    assert bool(chosen.converged.all()) and spent <= 1.5 * min(costs.values())


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)", "tanh", "sigmoid", "identity"])
@pytest.mark.parametrize("n, N", [(33, 400), (130, 64)])
def test_steps_of_the_whole_batch_agree_with_long_iteration(activation, n, N):
    A, b = problem(n, N, "gaussian")
    phi = resolve_activation(activation, n)
    x = torch.zeros_like(b)
    for _ in range(200):
        x = phi(x @ A.t() + b)
    A.requires_grad_(), b.requires_grad_()
    found = equilibrium(A, b, activation, tol=1e-10)
    torch.testing.assert_close(found.detach(), x, rtol=1e-9, atol=1e-10)
    g = torch.linspace(-1, 1, N * n, dtype=torch.float64).reshape(N, n)
    found.backward(g)
    d = phi.derivative_at_value(x)
    v = torch.stack([torch.linalg.solve(torch.eye(n) - d[i][:, None] * A.detach().t(), d[i] * g[i]) for i in range(N)])
    torch.testing.assert_close(b.grad, v, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(A.grad, v.t() @ x, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_sample_leaves_the_others_of_a_whole_batch_bit_identical(bad):
    A, b = problem(64, 300, "gaussian")
    zeroed, spoilt = b.clone(), b.clone()
    zeroed[7], spoilt[7, 3] = 0, bad
    one, other = (solve_equilibrium(A, c, "tanh", on_failure="ignore") for c in (zeroed, spoilt))
    rest = torch.arange(300) != 7
    assert one.solver == other.solver == "picard" and torch.equal(one.x[rest], other.x[rest])
    assert bool(torch.isnan(other.x[7]).all()) and int(other.status[7]) == 3 and int(other.n_iter[7]) == 0


@pytest.mark.parametrize("kappa", [0.99, 0.999])
@pytest.mark.parametrize("n", [16, 64, 256, 300])
def test_stiff_samples_in_single_precision_converge_at_the_default_tolerance(n, kappa):
    A, b = problem(n, 64, "positive", kappa)
    found = solve_equilibrium(A.float(), b.float())
    exact = solve_equilibrium(A, b, tol=1e-13, max_iter=5000).x
    assert bool(found.converged.all())
    assert float((found.x - exact).abs().max() / exact.abs().max()) <= 4e-6 / (1 - kappa)


@pytest.mark.parametrize("activation, a", [("tanh", 0.98), ("tanh", -0.9), ("sigmoid", 1.9), ("sigmoid", -2.0)])
def test_self_loops_of_smooth_states_by_one_step_a_sweep(activation, a):
    n = 6
    A = torch.full((n, n), 0.02, dtype=torch.float64).fill_diagonal_(a)
    b = torch.linspace(-3, 3, 40 * n, dtype=torch.float64).reshape(40, n)
    phi = np.tanh if activation == "tanh" else expit
    found = solve_equilibrium(A, b, activation, solver="gauss_seidel", tol=1e-12, max_iter=2000)
    x = found.x.numpy()
    assert bool(found.converged.all()) and np.abs(phi(x @ A.numpy().T + b.numpy()) - x).max() <= 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("N, n", [(1, 1), (3, 16), (5, 37)])
def test_passes_over_a_state_against_numpy(N, n, dtype):
    rng = np.random.default_rng(0)
    new, old, floor = (rng.standard_normal(s).astype(dtype) for s in ((N, n), (N, n), N))
    register, ratio, eps = np.empty(64, dtype), np.empty(N, dtype), np.finfo(dtype).eps
    expected = np.abs(new - old).max(1) / np.maximum(floor, 0.5 * np.abs(new).max(1))
    worst = worst_change(new, old, floor, dtype(0.5), register, ratio)
    np.testing.assert_allclose(ratio, expected, rtol=4 * eps)
    assert worst == ratio.max()
    columns = np.empty(N, dtype)
    square = rng.standard_normal((N, N)).astype(dtype)
    np.testing.assert_allclose(norms(square, columns), np.abs(square).sum(1).max(), rtol=8 * eps)
    np.testing.assert_allclose(columns, np.abs(square).sum(0), rtol=8 * eps)
    for name, exact in ((True, np.tanh), (False, expit)):
        z = new.copy()
        smooth_in_place(z.reshape(-1), name, register)
        np.testing.assert_allclose(z, exact(new.astype(np.float64)), rtol=4 * eps)


def test_remaining_steps_of_a_geometric_series():
    assert remaining(1e-2, 1e-6, 0.1) == pytest.approx(4) and remaining(1e-7, 1e-6, 0.1) == 0
    assert remaining(1.0, 1e-6, 1.0) == float("inf")
