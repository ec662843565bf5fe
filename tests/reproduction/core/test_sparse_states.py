"""Sparse models of states: the ball, counts, limits of the sweep, lasso, read-out, and the summaries of curves."""

import numpy as np
import pytest
import torch

from data_gen.core.dataset import Dataset
from implicit_models.sim.network.scaling import scale_of
from implicit_models.sim.network.states import states
from reproduction.core.pruning import nonzeros, sparsity
from reproduction.core.recipe import Recipe
from reproduction.core.scores import accuracy_of
from reproduction.core.sparse_states import (
    largest_without_loss,
    lasso_sweep,
    own_states,
    plateau,
    radius_sweep,
    refit_head,
)
from reproduction.core.sparsity import (
    best_sparse,
    lasso_curve,
    magnitude_curves,
    mean_difference,
    objective_curve,
    part_of,
    radius_curve,
    share_curves,
)
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def teacher():
    network = MLP((6, 8, 5, 3), seed=0).eval()
    rng = np.random.default_rng(1)
    u = rng.standard_normal((300, 6)).astype(np.float32)
    y = network(torch.from_numpy(u)).argmax(dim=1).numpy()
    posts = Dataset(u[:200], y[:200], {0: (u[200:], y[200:])}, {"classes": ("a", "b", "c")})
    return network, posts, states(network, posts.u_train)


def test_a_large_ball_holds_the_network_itself(teacher):
    network, posts, found = teacher
    model = radius_sweep(found, (50.0,), feedback="strict_upper")[50.0]
    u = posts.test[0][0]
    expected = network(torch.from_numpy(u)).detach().double()
    torch.testing.assert_close(model.model(torch.from_numpy(u).double()).detach(), expected, rtol=1e-3, atol=1e-3)
    assert model.matching.min() > 1 - 1e-6 and accuracy_of(model.model, *posts.test[0]) == 1.0 and model.failed == 0


@pytest.mark.parametrize("feedback", ["full", "strict_upper"])
@pytest.mark.parametrize("scale", ["uniform", "theorem", "std"])
def test_rows_lie_in_the_ball_and_are_optimal(teacher, scale, feedback):
    import cvxpy as cp

    _, _, found = teacher
    s = scale_of(found, scale).s
    X, U, Z = found.X / s, found.U, found.Z / s
    for kappa, model in radius_sweep(found, (0.05, 0.4), scale=scale, feedback=feedback).items():
        A, B, b = (p.detach().numpy() for p in (model.model.A, model.model.B, model.model.b))
        A, B, b = A * s / s[:, None], B / s[:, None], b / s
        norms = np.abs(A).sum(axis=1) + np.abs(B).sum(axis=1)
        assert norms.max() <= kappa * (1 + 1e-9)
        if feedback == "strict_upper":
            assert not A[5:].any() and not A[:5, :5].any(), "x2 on top: its rows see x1 only"
        for row in (0, 7):  # one of the second layer, one of the first
            columns = np.hstack([X if feedback == "full" else X[:, 5:] if row < 5 else X[:, :0], U])
            a, c = cp.Variable(columns.shape[1]), cp.Variable()
            least = cp.Problem(
                cp.Minimize(0.5 * cp.sum_squares(columns @ a + c - Z[:, row])), [cp.norm1(a) <= kappa]
            ).solve(solver=cp.CLARABEL)
            reached = 0.5 * np.sum((X @ A[row] + U @ B[row] + b[row] - Z[:, row]) ** 2)
            assert reached == pytest.approx(least, rel=1e-4, abs=1e-7)


def test_counts_are_those_of_the_matrices(teacher):
    network, _, found = teacher
    model = radius_sweep(found, (0.3,), scale="std")[0.3]
    A, B, C, D, b, d = (
        p.detach().numpy()
        for p in (model.model.A, model.model.B, model.model.C, model.model.D, model.model.b, model.model.d)
    )
    assert model.states_nnz == sum(np.count_nonzero(M) for M in (A, B, b)) and model.feedback_nnz == np.count_nonzero(A)
    assert model.nnz == model.states_nnz + 3 * 5 + 3 and np.count_nonzero(D) == 0
    assert model.own_nnz == np.count_nonzero(np.diag(A)) > 0, "an active state explains itself"
    np.testing.assert_allclose(C[:, :5], network.layers[4].weight.detach().numpy(), rtol=1e-5)
    x, u, z = found.X.astype(float), found.U.astype(float), found.Z.astype(float)
    left = ((x @ A.T + u @ B.T + b - z) ** 2).sum(axis=0)
    np.testing.assert_allclose(model.matching, 1 - left / ((z - z.mean(axis=0)) ** 2).sum(axis=0), atol=1e-6)


def test_lasso_sweep_uses_the_layer_below_and_shrinks(teacher):
    _, posts, found = teacher
    sweep = lasso_sweep(found, (0.5, 0.001))
    for model in sweep.values():
        A, B = model.model.A.detach().numpy(), model.model.B.detach().numpy()
        assert not A[5:].any() and not A[:5, :5].any() and not B[:5].any()
    assert sweep[0.5].nnz < sweep[0.001].nnz and accuracy_of(sweep[0.001].model, *posts.test[0]) > 0.95


def test_refitted_head_of_the_exact_model_gives_the_outputs(teacher):
    network, posts, found = teacher
    model = radius_sweep(found, (50.0,), feedback="strict_upper")[50.0].model
    u = posts.test[0][0]
    outputs = refit_head(model, posts.u_train, found.Y, u, ridge=1e-12)
    np.testing.assert_allclose(outputs, network(torch.from_numpy(u)).detach().numpy(), atol=1e-3)
    x = own_states(model, u)
    hidden = torch.relu(network.layers[0](torch.from_numpy(u))).detach().numpy()
    np.testing.assert_allclose(x[:, 5:], hidden, atol=1e-3)


def test_summaries_by_hand():
    assert largest_without_loss([90, 50, 10], [5.0, -0.1, 0.0]) == 50 and largest_without_loss([90], [1.0]) == -np.inf
    assert largest_without_loss([90, 50], [1.0, 0.0], allowed=1.0) == 90
    assert (
        best_sparse({"sparsity": [50, 20, -5], "drop": [0.0, -0.1, -1.0]}) == 20
        and best_sparse({"sparsity": [-5], "drop": [-1.0]}) == 0
    )
    assert plateau([1.0, 0.1, 0.5], [0.80, 0.60, 0.795]) == 0.5
    assert plateau([0.1, 0.5, 1.0], [0.80, 0.70, 0.80]) == 1.0 and plateau([0.1, 1.0], [0.8, 0.8]) == 0.1
    one = {"sparsity": [0, 10], "drop": [0.0, 10.0]}
    assert mean_difference(one, {"sparsity": [10, 0], "drop": [12.0, 2.0]}) == pytest.approx(-2)
    assert np.isnan(mean_difference(one, {"sparsity": [20, 30], "drop": [0.0, 0.0]}))


def test_curves_of_a_study(teacher):
    network, posts, found = teacher
    recipe = Recipe(epochs=20, lr=0.02, batch_size=20, loss="cross_entropy")
    curve, _ = radius_curve(network, posts, (0.1, 50.0), feedback="strict_upper")
    assert curve["drop"][1] == pytest.approx(0, abs=1e-9) and curve["failed"] == [0, 0] and curve["own"] == [0, 0]
    assert (
        curve["drop_forced"][1] == pytest.approx(0, abs=1e-9) and curve["match_1"][1] > 1 - 1e-6 < curve["match_2"][1]
    )
    assert curve["sparsity"] == [pytest.approx(sparsity(nnz, network)) for nnz in curve["nnz"]]
    curves = magnitude_curves(network, posts, (-10, 60, 99.9), recipe=recipe, seed=0)
    assert all(c["sparsity"] == [pytest.approx(60, abs=100 / nonzeros(network))] for c in curves.values())
    kept, again = (curves[name]["drop"][0] for name in ("magnitude_layer", "magnitude_layer_retrained"))
    assert again < kept and kept > 5, "pruning must hurt and retraining help for the comparison to tell"
    assert len(lasso_curve(found, network, posts, (0.3, 0.01))["drop"]) == 2
    shares = share_curves(
        network,
        posts,
        (0.5, 1.0),
        (50.0,),
        build=lambda: MLP((6, 8, 5, 3), seed=1),
        recipe=recipe,
        seed=0,
        feedback="strict_upper",
    )
    assert shares["50"][1] == 100 and set(shares) == {"50", "dense"}
    half, whole = part_of(posts, 0.5, 1), part_of(posts, 1.0, 1)
    assert len(half) == 100 and set(half) <= set(whole) and not np.array_equal(half, part_of(posts, 0.5, 2))


def test_perspective_with_knee_one_is_l1_on_the_states(teacher):
    network, posts, found = teacher
    weights = (1e-3, 1e-2)
    l1 = objective_curve(found, network, posts, weights, "l1")
    same = objective_curve(found, network, posts, weights, "perspective", knee=1.0)
    other = objective_curve(found, network, posts, weights, "perspective", knee=0.05)
    assert l1["A"] == same["A"] and l1["failed"] == [0, 0] == same["failed"] and other["A"] != l1["A"]
    ridge = objective_curve(found, network, posts, weights, "l2")
    assert min(ridge["B"]) == 13 * 6, "ridge has no zeros"
