"""Refits that count what ReLU lets through: against a general optimiser, their own bounds, and what they are for."""

import importlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import nn

from implicit_models.sim.layerwise import sparsify, sparsify_path
from implicit_models.sim.network.layers import INPUT
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty
from implicit_models.sim.row_models import ByPosition, Refit, SharedKernels
from implicit_models.sim.solvers.budget import refit_all
from implicit_models.sim.solvers.refit import one_sided


def problem(d=20, m=120, r=5, seed=0, noise=1.0):
    """Centred columns and targets, levels that close none, some and all samples, supports; the least squares start."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((d, m)) + rng.standard_normal((1, m))
    z = noise * rng.standard_normal((r, m)) + M[: min(d, 5)].sum(0) * 0.3
    M -= M.mean(1, keepdims=True)
    z -= z.mean(1, keepdims=True)
    level = np.resize([0.0, 0.5, -1.0, 1e3, -1e3], r)
    A = np.where(rng.random((r, d)) < 0.5, 1.0, 0.0)
    return M, M @ M.T, z, level, A


def started(G, M, z, A, ridge):
    B = np.zeros((len(A), 1, len(G)))
    refit_all(G, np.ascontiguousarray(z @ M.T), np.ascontiguousarray(A[:, None]), ridge, B, np.zeros((len(A), 1)))
    return B[:, 0]


def loss(M, G, z, level, b, bias, ridge, weight):
    p = b @ M + bias
    each = np.where(z > -level, (p - z) ** 2, weight * (p - z) ** 2 + (1 - weight) * np.maximum(p + level, 0.0) ** 2)
    return 0.5 * each.sum() + 0.5 * ridge * (np.diag(G) * b * b).sum()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_rows_are_those_of_a_general_optimiser(ridge, weight):
    M, G, z, level, A = problem()
    B, bias, own = one_sided(M, G, z, level, A, started(G, M, z, A, ridge), ridge, weight, 2000, 0.0)
    for i in range(len(z)):
        on = np.flatnonzero(A[i])

        def value(x, i=i, on=on):
            p = x[:-1] @ M[on] + x[-1]
            error = np.where(
                z[i] > -level[i], p - z[i], weight * (p - z[i]) + (1 - weight) * np.maximum(p + level[i], 0.0)
            )
            slope = np.append(M[on] @ error + ridge * np.diag(G)[on] * x[:-1], error.sum())
            return loss(M, G, z[i], level[i], np.bincount(on, x[:-1], minlength=len(M)), x[-1], ridge, weight), slope

        theirs = minimize(
            value,
            np.zeros(len(on) + 1),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-10},
        )
        assert own[i] == pytest.approx(
            theirs.fun, rel=1e-7, abs=1e-6 * z[i] @ z[i]
        )  # with all samples closed the ridge alone is left, slowly
        assert not B[i][A[i] == 0].any()
        assert own[i] == pytest.approx(loss(M, G, z[i], level[i], B[i], bias[i], ridge, weight), rel=1e-10, abs=1e-12)


def test_where_nothing_is_closed_it_is_least_squares():
    M, G, z, _, A = problem()
    start = started(G, M, z, A, 1e-3)
    B, bias, _ = one_sided(M, G, z, np.full(len(z), 1e6), A, start, 1e-3)
    np.testing.assert_allclose(B, start, atol=1e-12)
    np.testing.assert_allclose(bias, 0.0, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 999),
    d=st.integers(1, 30),
    m=st.integers(2, 60),
    level=st.floats(-3, 3),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_it_never_loses_to_least_squares(seed, d, m, level, weight):
    """Nor is it below the squared error of the activations, whatever the support: empty, dependent or more columns than
    samples."""
    M, G, z, _, A = problem(d, m, 4, seed)
    A[0] = 0.0
    M[d // 2], levels, ridge = M[0], np.full(4, level), 1e-3
    G = M @ M.T
    start = started(G, M, z, A, ridge)
    B, bias, own = one_sided(M, G, z, levels, A, start, ridge, weight)
    for i in range(4):
        assert own[i] <= loss(M, G, z[i], level, start[i], 0.0, ridge, weight) * (1 + 1e-12) + 1e-12
        activations = np.maximum(B[i] @ M + bias[i] + level, 0.0) - np.maximum(z[i] + level, 0.0)
        assert weight or 0.5 * activations @ activations <= own[i] * (1 + 1e-9) + 1e-9


def test_a_row_without_a_target_stays_zero():
    M, G, z, level, A = problem()
    z[1], A[1], level[1] = 0.0, 0.0, 0.0
    B, bias, own = one_sided(M, G, z, level, A, started(G, M, z, A, 1e-3), 1e-3)
    assert not B[1].any() and bias[1] == 0 and own[1] == 0


def network(activation=nn.ReLU):
    torch.manual_seed(0)
    found = (
        nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1),
            activation(),
            nn.Conv2d(6, 8, 3, padding=1),
            activation(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            activation(),
            nn.Flatten(),
            nn.Linear(72, 10),
            activation(),
            nn.Linear(10, 4),
        )
        .double()
        .eval()
    )
    with torch.no_grad():
        for layer in found:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                layer.weight *= 2
                layer.bias -= 0.3  # most states are closed, as in a trained network
    return found


def images(n, seed=0):
    return torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def activation_error(model, u):
    """Mean squared error of each fitted block's activations on the states that the model computes, against those of the
    network."""
    layers, known = model.layers, {INPUT: u}
    own = model.states(u)
    found = {}
    with torch.no_grad():
        for block in range(len(layers.blocks)):
            known[block] = layers.apply(block, layers.affine(block, known))
            if block in model.fitted:
                found[block] = float((own[block] - known[block]).square().mean())
    return found


@pytest.mark.parametrize("budget", [Cardinality(0.2), L1Penalty(0.1), L1Ball(0.8)], ids=str)
def test_activations_are_nearer_on_the_samples_of_the_fit(budget):
    u = images(300)
    one, two = (
        sparsify(network(), u, budget, ByPosition(refit=refit), states="teacher", head=False)
        for refit in (Refit(one_sided=True), Refit())
    )
    assert one.report.entries == two.report.entries  # the same supports
    mine, theirs = activation_error(one, u), activation_error(two, u)
    first = min(mine)
    assert mine[first] < 0.95 * theirs[first]
    assert mine[max(mine)] < theirs[max(mine)]
    for a, b in zip(
        one.report.layers, two.report.layers, strict=True
    ):  # of the pre-activations, which least squares fits best
        assert a.fit <= b.fit + 1e-6 and a.gap == b.gap


def test_the_fit_that_is_reported_is_that_of_the_pre_activations():
    u = images(200)
    model = sparsify(
        network(), u, Cardinality(0.3), ByPosition(refit=Refit(one_sided=True)), states="teacher", head=False
    )
    layers, known = model.layers, {INPUT: u}
    with torch.no_grad():
        for block in range(len(layers.blocks)):
            z = layers.affine(block, known)
            if block in model.fitted:
                lost = (model.pre_activation(block, known) - z).square().sum()
                spread = (z - z.mean(0)).square().sum()
                report = next(r for r in model.report.layers if r.block == block)
                assert report.fit == pytest.approx(1 - float(lost / spread), abs=1e-9)
            known[block] = layers.apply(block, z)


def test_values_backends_and_resumed_runs_agree(tmp_path):
    u = images(100)
    options = {"rows": ByPosition(refit=Refit(one_sided=True)), "states": "teacher", "head": False}
    sweep = sparsify_path(network(), u, [Cardinality(0.1), Cardinality(0.4)], parallel=Parallel("serial"), **options)
    alone = sparsify(network(), u, Cardinality(0.4), parallel=Parallel("serial"), **options)
    threads = [
        sparsify(network(), u, Cardinality(0.4), parallel=Parallel("threads", workers=2, resume=tmp_path), **options)
        for _ in range(2)
    ]
    for other in (sweep[1], *threads):
        torch.testing.assert_close(other(u), alone(u), rtol=1e-9, atol=1e-9)
    parallel = Parallel("threads", 2, tmp_path / "plain")
    plain = sparsify(network(), u, Cardinality(0.4), parallel=parallel, **options | {"rows": ByPosition()})
    assert not torch.allclose(plain(u), alone(u))


def test_a_folder_of_another_refit_is_refused(tmp_path):
    u = images(60)
    options = {
        "budget": Cardinality(0.4),
        "states": "teacher",
        "head": False,
        "parallel": Parallel("threads", 2, tmp_path),
    }
    sparsify(network(), u, **options)
    with pytest.raises(ValueError, match="another problem"):
        sparsify(network(), u, rows=ByPosition(refit=Refit(one_sided=True)), **options)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ByPosition(refit="both"), TypeError, r"refit must be Refit\(...\) or None, got 'both'"),
        (lambda: ByPosition(refit=True), TypeError, r"refit must be Refit\(...\) or None, got True"),
        (lambda: Refit(one_sided=1), TypeError, "one_sided must be True or False, got 1"),
        (lambda: SharedKernels(refit=Refit(one_sided=True)), ValueError, "rows of their own"),
    ],
)
def test_what_it_is_not_for(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_other_activations_are_named():
    with pytest.raises(ValueError, match="for networks of ReLU, the block .* is tanh"):
        sparsify(network(nn.Tanh), images(20), Cardinality(0.5), ByPosition(refit=Refit(one_sided=True)))


def test_the_module_is_not_hidden_by_a_name():
    assert importlib.import_module("implicit_models.sim.solvers.refit").one_sided is one_sided
