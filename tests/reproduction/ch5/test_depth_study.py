"""Depth: counts of models whose iterates are known, the law against closed forms, gradients against differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from reproduction.ch5_depth import ablation
from reproduction.ch5_depth import compute as depth_study
from reproduction.ch5_depth import gradients as gradient_study
from reproduction.core.recipe import History


def scalar(a):
    """x = relu(a x + u): from 0 the k-th change is u a^(k-1)."""
    one = torch.ones(1, 1)
    return ImplicitModel.from_matrices(a * one, one, one, None)


@given(st.floats(0.05, 0.95), st.floats(1e-3, 1e6))
@settings(max_examples=40, deadline=None)
def test_a_scalar_model_takes_the_iterations_of_its_geometric_series(a, u):
    tol = 3e-6
    model = scalar(a)
    a = float(model.A.detach())  # as single precision holds it
    exact = math.log(tol / u) / math.log(a) + 1  # u a^(k-1) < tol
    counted = depth_study.counts(model, np.array([[u]]), tol=tol)[0]
    assert counted == max(1, math.floor(exact) + 1) or abs(exact - round(exact)) < 1e-6


def test_negative_inputs_are_solved_at_once_and_a_cap_is_no_count():
    model = scalar(0.5)
    assert depth_study.counts(model, np.array([[-2.0], [0.0]])).tolist() == [1, 1]
    assert depth_study.counts(model, np.array([[1.0]]), max_iter=5).tolist() == [6]


def test_relative_counts_do_not_depend_on_the_size():
    u = np.array([[0.7]])
    found = {depth_study.counts(scalar(0.5), t * u, tol=1e-6, relative=True)[0] for t in (1, 2.0**10, 2.0**40)}
    assert len(found) == 1


def random_model(seed, n=6, p=3, q=2, feedback="full", **options):
    return ImplicitModel(p, q, n, kappa=0.9, seed=seed, feedback=feedback, **options)


@given(st.integers(0, 1000), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_scaling_the_input_is_dividing_the_tolerance(seed, power):
    """The theorem behind the law, to the last iteration."""
    u = np.random.default_rng(seed).standard_normal((5, 3))
    assert depth_study.scaling_difference(random_model(seed), u, power) == 0


def test_growth_is_the_logarithm_over_the_active_radius():
    model = scalar(0.8)
    sizes = [1.0, 1e2, 1e4, 1e6]
    law = depth_study.depth_law(model, [np.array([[t]]) for t in sizes], sizes)
    expected = 1 / -math.log(float(model.A.detach()))
    assert law["slope"] == pytest.approx(expected, rel=0.02)
    assert law["predicted"] == pytest.approx(expected) and law["bound"] == pytest.approx(expected)
    assert law["law"][-1] - law["law"][0] == pytest.approx(expected * math.log(1e6))
    assert len(set(law["relative"])) == 1


def test_radius_counts_active_states_only():
    A = torch.tensor([[0.5, 0.4], [0.0, 0.9]])
    model = ImplicitModel.from_matrices(A, torch.eye(2), torch.eye(2), None)
    radii = depth_study.active_radius(model, np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]))
    assert radii == pytest.approx([0.5, 0.9, 0.0], abs=1e-6)
    assert depth_study.slope_of_law(0.0) == 0
    with pytest.raises(ValueError, match="1.5"):
        depth_study.slope_of_law(1.5)


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_counts_stay_below_the_bound_of_the_contraction(seed):
    """Changes fall by ||A||_inf at least: K <= 1 + ln(max|x_1| / tol) / -ln ||A||_inf, rounded up."""
    model = random_model(seed)
    u = 100 * np.random.default_rng(seed).standard_normal((4, 3))
    matrices = depth_study.matrices(model)
    norm = np.linalg.norm(matrices["A"], np.inf)
    first = np.maximum(u @ matrices["B"].T, 0).max(axis=1)
    bound = np.where(first > 3e-6, 2 + np.log(np.maximum(first, 1e-300) / 3e-6) / -math.log(norm), 1)
    assert (depth_study.counts(model, u) <= bound).all()


def test_a_strictly_triangular_model_has_bounded_depth():
    model = random_model(0, feedback="strict_upper")
    u = np.random.default_rng(0).standard_normal((20, 3))
    assert depth_study.counts(model, 1e12 * u).max() <= 7  # six states: exact after six steps, seen at the seventh


def test_equilibria_solve_the_equation():
    model = random_model(3)
    u = np.random.default_rng(3).standard_normal((10, 3))
    x, m = depth_study.equilibria(model, u), depth_study.matrices(model)
    assert np.abs(np.maximum(x @ m["A"].T + u @ m["B"].T, 0) - x).max() < 1e-13


def test_models_outside_the_theorem_are_refused():
    with pytest.raises(ValueError, match="biases"):
        depth_study.counts(ImplicitModel(3, 2, 4, bias=True, seed=0), np.ones((1, 3)))
    with pytest.raises(ValueError, match="relu"):
        depth_study.counts(ImplicitModel(3, 2, 4, activation="tanh", seed=0), np.ones((1, 3)))


def test_failed_epochs_and_settling():
    history = History(residual_max=[1e-6, 1e-5, float("nan"), 2e-6])
    assert depth_study.failed_epochs(history) == 50
    assert depth_study.epochs_over(History(iterations_max=[10, 50, 51, 300]), 50) == 50
    assert depth_study.settled([9, 1, 3, 4, 2, 6, 5, 7, 10, 8]) == pytest.approx(0.25)  # the last two of ten
    assert depth_study.rank_correlation([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)
    assert math.isnan(depth_study.rank_correlation([1, 1, 1], [1, 2, 3]))


def test_growing_inputs_are_multiples_or_shifts():
    keys, inputs, sizes = depth_study.growing_inputs("addition", ablation.data("addition", 0, "quick").test, samples=7)
    assert sizes[0] == 1 and inputs[1].shape == (7, 50)
    assert np.allclose(inputs[2], sizes[2] * inputs[0])
    keys, inputs, sizes = depth_study.growing_inputs("average", ablation.data("average", 0, "quick").test, samples=7)
    assert sizes == [(3 + s) / 3 for s in keys] and inputs[-1].mean() == pytest.approx(103, abs=1)


def test_untrained_control_is_on_the_sphere():
    model = depth_study.untrained("addition", 0)
    assert model.A.abs().sum(dim=1).detach().numpy() == pytest.approx(0.95, rel=1e-5)


@pytest.fixture
def problem():
    rng = np.random.default_rng(1)
    model = random_model(1)
    with torch.no_grad():
        model.A.mul_(0.85 / model.A.abs().sum(dim=1, keepdim=True))
        model.C.mul_(6)
    return model, rng.standard_normal((30, 3)), rng.standard_normal((30, 2))


def test_formula_adjoint_and_unrolled_gradient_are_the_derivative(problem):
    entries = [(0, 0), (1, 4), (5, 2), (3, 3)]
    differences = gradient_study.finite_differences(*problem, entries)
    for exact in (
        gradient_study.dense_gradient(*problem),
        *(gradient_study.gradient(*problem, b) for b in ("implicit", "unroll")),
    ):
        assert np.array([exact[i, j] for i, j in entries]) == pytest.approx(differences, rel=1e-4, abs=1e-8)


def test_truncated_gradients_differ_and_point_the_same_way(problem):
    exact = gradient_study.dense_gradient(*problem)
    for backward in ("jfb", "phantom"):
        error, cosine = gradient_study.agreement(gradient_study.gradient(*problem, backward), exact)
        assert error > 0.05 and 0 < cosine < 1
    error, _ = gradient_study.agreement(gradient_study.dense_gradient(*problem, misread=True), exact)
    assert error > 0.05
    assert gradient_study.agreement(exact, exact) == pytest.approx((0.0, 1.0))


def test_papers_solver_needs_double_precision_where_states_are_large():
    """Rounding of states of size 100 is above 3e-6 in single precision: for some samples the cap is reached, not the
    tolerance."""
    settings_of = depth_study.arithmetic_settings("quick", 0)
    assert list(settings_of) == ["addition", "subtraction", "addition_table"]
    name, sizes, data = settings_of["addition_table"]
    assert data.u_train.shape[1] == sizes[0] == 100 and sizes[2] == 50
    model = depth_study.papers_solver(sizes, 0, 200)
    with torch.no_grad():
        model.B.fill_(1.0)
    u = torch.as_tensor(data.u_train[:20])
    assert not model.equilibrium(u).converged.all()
    assert model.double().equilibrium(u.double()).converged.all()


def test_difficulty_of_known_samples():
    model = ImplicitModel.from_matrices(
        torch.zeros(1, 1), torch.zeros(1, 2), torch.zeros(1, 1), torch.tensor([[1.0, 0.0]])
    )
    u = np.array([[2.0, -4.0], [1.0, 0.0]])
    y = np.array([[0.0], [0.5]])
    assert depth_study.difficulty(model, "addition", u, y) == pytest.approx([0.5, 0.5])
    assert depth_study.difficulty(model, "argmax", np.array([[0.1, 0.9, 1.0]]), None) == pytest.approx([0.9])
    # scaling inputs and targets leaves it as it is
    assert depth_study.difficulty(model, "addition", 1e3 * u, 1e3 * y) == pytest.approx([0.5, 0.5])


def test_counts_that_grow_with_difficulty_correlate():
    """The second state is slow: the larger its share, the more steps, and for the argmax the harder the sample."""
    model = ImplicitModel.from_matrices(torch.diag(torch.tensor([0.5, 0.9])), torch.eye(2), torch.eye(2), None)
    u = np.array([[1.0, 1e-4], [1.0, 0.9], [1.0, 1e-2], [1.0, 0.1]])
    assert depth_study.count_follows_difficulty(model, "argmax", u, None) == pytest.approx(1)
    # the same samples ranked by an error that falls as the count rises: the output is right but for the first entry
    y = depth_study.equilibria(model, u) + np.array([[4.0, 0], [1.0, 0], [3.0, 0], [2.0, 0]])
    assert depth_study.count_follows_difficulty(model, "addition", u, y) == pytest.approx(-1)
