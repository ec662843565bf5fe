"""Effects of rows on the outputs: against Jacobians, scikit-learn's penalties row by row, and what they are for:
smaller errors of the outputs."""

import importlib

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from torch import nn

from implicit_models.sim.layerwise import sparsify, sparsify_path
from implicit_models.sim.network import row_weights as module
from implicit_models.sim.network.layers import INPUT, read_layers
from implicit_models.sim.network.row_weights import effect_factors, row_effects
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty
from implicit_models.sim.row_models import ByPosition, Refit, SharedKernels, WorkingSet


def network(outputs=1, seed=0):
    torch.manual_seed(seed)
    layers = (
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 9),
        nn.ReLU(),
        nn.Linear(9, outputs),
    )
    return nn.Sequential(*layers).eval().double()


def images(m=60, seed=1):
    return torch.randn(m, 2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_jacobians(net, u, split):
    """E ||dy/dz||^2 Var z of the argument of module `split`."""
    z = net[:split](u)
    slopes = torch.stack([torch.autograd.functional.jacobian(net[split:], x[None])[0].pow(2).sum((0, 1)) for x in z])
    return (slopes.mean(0) * z.var(0, correction=0)).flatten().detach().numpy()


@pytest.mark.parametrize("batch", [7, 100])
def test_effects_of_one_output_are_those_of_its_jacobian(batch, monkeypatch):
    monkeypatch.setattr(module, "BATCH", batch)
    net, u = network(), images()
    found = row_effects(read_layers(net, (2, 6, 6)), u)
    for block, split in ((0, 1), (1, 3), (3, 7)):
        np.testing.assert_allclose(found[block], by_jacobians(net, u, split), rtol=1e-10, atol=1e-14)


class Summed(nn.Module):
    """tanh reads the very states of ReLU, which the output reads too; and two maps read the input itself."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, u):
        a = torch.relu(u)
        return self.out(3 * torch.tanh(a) + 5 * a + 7 * torch.sigmoid(u))


def test_a_state_that_others_read_too_counts_once():
    net, u = (
        Summed().eval().double(),
        torch.randn(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    )
    w, a = net.out.weight.detach().numpy()[0], u.clamp_min(0).numpy()
    slopes = {
        "relu": (3 * (1 - np.tanh(a) ** 2) + 5) * (u.numpy() > 0),
        "tanh": 3 * (1 - np.tanh(a) ** 2),
        "sigmoid": 7 * torch.sigmoid(u).mul(1 - torch.sigmoid(u)).numpy(),
    }
    layers = read_layers(net, (4,))
    for block, found in zip(layers.blocks, row_effects(layers, u), strict=True):
        variance = (a if block.activation == "tanh" else u.numpy()).var(0)
        np.testing.assert_allclose(found, ((w * slopes[block.activation]) ** 2).mean(0) * variance, rtol=1e-10)
    assert not u.requires_grad


def test_effects_of_several_outputs_are_estimated_by_random_signs(monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 400)
    net, u = network(5), images(20)
    found = row_effects(read_layers(net, (2, 6, 6)), u)
    for block, split in ((0, 1), (1, 3), (3, 7)):
        exact = by_jacobians(net, u, split)
        np.testing.assert_allclose(found[block], exact, rtol=0.25, atol=0.02 * exact.max())
        assert found[block].sum() == pytest.approx(exact.sum(), rel=0.03)


@pytest.mark.parametrize("bias", [0.1, 0.3, 0.7, 1.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_that_do_not_vary_have_no_effect_and_move_no_other(bias, dtype):
    """Half of the channels are pruned away, which leaves their bias: rounding is no variance, at no number of samples,
    and the other factors stay."""
    net = network(3).to(dtype)
    with torch.no_grad():
        net[0].weight[:2] = 0.0
        net[0].bias[:2] = bias
        net[2].weight[2] = 0.0
    factors = []
    for m in (60, 100, 101, 128, 250, 300):
        effects = row_effects(read_layers(net, (2, 6, 6)), images(m).to(dtype))
        assert not effects[0][:72].any() and effects[0][72:].all() and not effects[1][72:108].any()
        factors.append(np.median(effect_factors(effects, [1, 3])[1][:72]))
    assert max(factors) < 2 * min(factors)


def test_what_is_not_finite_is_named():
    net, u = network(2), images()
    with torch.no_grad():
        net[6].weight[3] = np.finfo(float).max  # finite itself, and no sum with it is
    with pytest.raises(ValueError, match="the argument of block 3 .* is not finite"):
        sparsify(net, u, L1Penalty(0.1), ByPosition(weights="effect"))
    net = network(2)
    with torch.no_grad():
        net[8].weight[0] = net[8].bias[0] = np.finfo(float).max
    with pytest.raises(ValueError, match="the outputs are not finite"):
        row_effects(read_layers(net, (2, 6, 6)), u)


class Dangling(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, u):
        torch.relu(self.second(torch.relu(self.first(u))))
        return self.out(u)


def test_outputs_that_read_no_state():
    u = torch.randn(30, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match="no state has an effect"):
        sparsify(Dangling().eval().double(), u, L1Penalty(0.1), ByPosition(weights="effect"), head=False)


def test_gradients_are_taken_whatever_mode_the_caller_is_in():
    net, u = network(2), images().requires_grad_()
    plain = row_effects(read_layers(net, (2, 6, 6)), u.detach())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for a, b in zip(row_effects(read_layers(net, (2, 6, 6)), u), plain, strict=True):
                np.testing.assert_array_equal(a, b)
            sparsify(net, images(), L1Penalty(0.1), ByPosition(weights="effect"))
    row_effects(read_layers(net, (2, 6, 6)), u)
    assert u.grad is None


def test_values_share_one_estimate(monkeypatch):
    calls, original = [], module.row_effects
    monkeypatch.setattr(
        importlib.import_module("implicit_models.sim.row_models"),
        "row_effects",
        lambda *given: calls.append(1) or original(*given),
    )
    models = sparsify_path(
        network(2), images(), [L1Penalty(0.3), L1Penalty(0.1), L1Penalty(0.03)], ByPosition(weights="effect")
    )
    assert len(calls) == 1 and models[0].report.entries < models[2].report.entries


@pytest.mark.parametrize("states", ["teacher", "student"])
@pytest.mark.parametrize("refit", [Refit(), None, Refit(one_sided=True)], ids=["least_squares", "l1", "one_sided"])
@pytest.mark.parametrize("scale", ["std", "theorem"])
def test_reports_are_those_of_the_rows(states, refit, scale, tmp_path):
    """The share of variance explained is recomputed from states, weighed by the targets' variances, not by their units;
    resumed runs are the same."""
    net, u = network(3), images(200)
    net[3] = nn.ReLU().eval()
    with torch.no_grad():
        net[8].weight[:, :4] *= 1e-2
    options = {
        "budget": L1Penalty(0.1),
        "rows": ByPosition(weights="effect", scale=scale, refit=refit),
        "states": states,
        "head": False,
        "parallel": Parallel("threads", resume=tmp_path),
    }
    model = sparsify(net, u, **options)
    layers, teacher, own = model.layers, {INPUT: u}, {INPUT: u}
    reports = {layer.block: layer for layer in model.report.layers}
    for block in range(len(layers.blocks)):
        z = layers.affine(block, teacher)
        mine = model.pre_activation(block, own) if block in model.fitted else layers.affine(block, own)
        if block in reports:
            lost, whole = ((x - x.mean(0)).pow(2).sum() for x in (z - mine, z))
            if refit == Refit(one_sided=True):
                lost = (z - mine).pow(2).sum()  # its bias is not that of least squares
            assert reports[block].fit == pytest.approx(float(1 - lost / whole), abs=2e-3 if refit is not None else 1e-9)
            assert reports[block].gap <= 1e-9 and set(reports[block].status) <= {"optimal", "empty"}
        teacher[block] = layers.apply(block, z)
        own[block] = layers.apply(block, mine) if states == "student" else teacher[block]
    again = sparsify(net, u, **options)
    torch.testing.assert_close(again(u), model(u), rtol=0, atol=0)


def test_one_sided_refits_know_the_targets_level():
    """Factors that are all one change nothing: the level of a target is in its own unit."""
    net, u = network(3), images(200)
    net[3] = nn.ReLU().eval()
    one_sided = Refit(one_sided=True)
    plain = sparsify(net, u, L1Penalty(0.1), ByPosition(refit=one_sided), head=False)
    # a common factor on all rows is a smaller penalty
    patch = importlib.import_module("implicit_models.sim.row_models")
    original = patch.effect_factors
    try:
        patch.effect_factors = lambda effects, fitted: [np.full(len(c), 4.0) for c in effects]
        same = sparsify(net, u, L1Penalty(0.4), ByPosition(weights="effect", refit=one_sided), head=False)
    finally:
        patch.effect_factors = original
    torch.testing.assert_close(same(u), plain(u), rtol=0, atol=1e-8)


def test_samples_are_taken_evenly_and_parameters_stay(monkeypatch):
    monkeypatch.setattr(module, "SAMPLES", 20)
    net, u = network(), images(58)
    layers = read_layers(net, (2, 6, 6))
    found = row_effects(layers, u)[1]
    np.testing.assert_allclose(found, by_jacobians(net, u[::3], 3), rtol=1e-10, atol=1e-14)  # 0, 3, ..., 57
    assert all(p.grad is None and not p.requires_grad for p in layers.traced.parameters()) and all(
        p.requires_grad for p in net.parameters()
    )


def test_factors():
    f = effect_factors([np.array([7.0, 0.0]), np.array([1.0, 4.0, 0.0]), np.array([2.0, 1e9, 1e-9])], [1, 2])
    np.testing.assert_allclose(f[0], [7 / 2, 0.02])  # 2 is the median of 1, 4, 2, 1e9, 1e-9
    np.testing.assert_allclose(f[1], [1 / 2, 4 / 2, 0.02])
    np.testing.assert_allclose(f[2], [1.0, 50.0, 0.02])
    with pytest.raises(ValueError, match="that of state 2 of block 1 is not finite"):
        effect_factors([np.ones(3), np.array([1.0, 2.0, np.inf])], [1])
    with pytest.raises(ValueError, match="no state has an effect"):
        effect_factors([np.ones(2), np.zeros(4)], [1])
    assert effect_factors([], []) == []  # a network without states


@pytest.mark.parametrize("support", ["receptive", "before"])
def test_every_row_has_its_own_penalty(support):
    """Against scikit-learn, with lam / f_i for row i."""
    net, u, value = network(3), images(), 0.05
    options = {"weights": "effect", "min_active": 0.0, "refit": None}
    rows = ByPosition(**options) if support == "receptive" else WorkingSet(**options)
    model = sparsify(net, u, L1Penalty(value), rows, states="teacher", head=False)
    layers = model.layers
    factors = effect_factors(row_effects(layers, u), [1, 3])
    known = {INPUT: u, 0: layers.apply(0, layers.affine(0, {INPUT: u}))}
    z = layers.affine(1, known).flatten(1).detach().numpy()
    reads = {"receptive": (0,), "before": (INPUT, 0)}[support]
    X = torch.cat([known[k].flatten(1) for k in reads], 1).detach().numpy()
    A = model.A1.to_dense().numpy()
    rng = np.random.default_rng(0)
    for i in rng.choice(len(z), 12, replace=False):
        columns = np.flatnonzero(X.std(0) > 0)
        if support == "receptive":
            c, p = np.divmod(np.arange(X.shape[1]), 36)
            h, w = np.divmod(i % 36, 6)
            columns = np.flatnonzero((abs(p // 6 - h) <= 1) & (abs(p % 6 - w) <= 1) & (X.std(0) > 0))
        unit, t = X[:, columns].std(0), z[:, i].std()
        theirs = (
            Lasso(alpha=value / factors[1][i], tol=1e-12, max_iter=100_000).fit(X[:, columns] / unit, z[:, i] / t).coef_
        )
        np.testing.assert_allclose(A[i, columns] * unit / t, theirs, atol=1e-6)
    assert {layer.status.get("optimal", 0) + layer.status.get("empty", 0) for layer in model.report.layers} == {
        b.size for k, b in enumerate(layers.blocks) if k in model.fitted
    }
    assert model.report.settings["rows"].weights == "effect"


def test_the_outputs_are_nearer_with_fewer_coefficients():
    """The next layer hardly reads half of the channels: equal penalties spend as much on their rows as on the
    others."""
    net = network(4, seed=3)
    net[3] = nn.ReLU().eval()
    with torch.no_grad():
        net[6].weight.view(9, 4, 3, 3)[:, :2] *= 1e-3
    u, v = images(400), images(300, seed=5)
    found = []
    for weights, value in (("equal", 0.06), ("effect", 0.5)):
        model = sparsify(net, u, L1Penalty(value), ByPosition(weights=weights), head=False)
        found.append((model.report.entries, float((model(v) - net(v)).detach().pow(2).mean())))
    (equal, far), (effect, near) = found
    assert effect < 0.8 * equal and near < 0.6 * far


@pytest.mark.parametrize(
    ("budget", "weights", "message"),
    [
        (L1Penalty(0.1), "some", "weights must be 'equal' or 'effect', got 'some'"),
        (L1Ball(1.0), "effect", r"share out a penalty, L1Penalty\(...\): not for L1Ball\(radius=1.0\)"),
        (Cardinality(0.2), "effect", r"not for Cardinality\(share=0.2\)"),
    ],
    ids=str,
)
def test_weights_that_are_not_there(budget, weights, message):
    with pytest.raises(ValueError, match=message):
        sparsify(network(), images(), budget, ByPosition(weights=weights))
    with pytest.raises(TypeError, match="weights"):  # one kernel has no row of its own to weigh
        SharedKernels(weights=weights)


def test_a_network_whose_last_layer_is_dead():
    net = network(2)
    with torch.no_grad():
        net[6].weight.zero_()
        net[6].bias.fill_(-1.0)
    with pytest.raises(ValueError, match="no state has an effect"):
        sparsify(net, images(), L1Penalty(0.1), ByPosition(weights="effect"))


def test_states_that_go_nowhere_are_fitted_least():
    net = network(2)
    with torch.no_grad():
        net[8].weight[:, :4].zero_()
    u = images()
    effects = row_effects(read_layers(net, (2, 6, 6)), u)
    assert (effects[3][:4] == 0).all() and effects[3][4:].any()
    model = sparsify(net, u, L1Penalty(0.01), ByPosition(weights="effect"))
    count = np.diff(model.A3.crow_indices().numpy())
    assert count[:4].max() < count[4:].min() and torch.isfinite(model(u)).all()
