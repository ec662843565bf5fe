"""Bounds layer by layer: against CROWN written out in NumPy, against samples, programmes and the checker."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models.compose import from_network
from implicit_models.robustness import Box, Dual, SparseBox, bounds, certify, check, margins, sensitivity_matrix
from implicit_models.robustness.layered.bounded import layered_bounds
from implicit_models.robustness.layered.network import of_problem
from implicit_models.robustness.layered.reading import layers_of, of_graph
from implicit_models.robustness.problem import from_matrices, problem
from implicit_models.robustness.specification import specification
from network_patterns import PATTERNS, drawn


def stack(widths, seed=0, scale=1.0, activation=nn.ReLU):
    torch.manual_seed(seed)
    modules = []
    for a, b in zip(widths[:-1], widths[1:], strict=True):
        modules += [nn.Linear(a, b), activation()]
    network = nn.Sequential(*modules[:-1]).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= scale
    return network


def layers(network):
    return [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in network if isinstance(m, nn.Linear)]


def crown(weights, u, eps, spec):
    """CROWN of one sample with the adaptive lower line, every layer from its own backward pass."""
    known = []

    def least(C, k):
        bias, A = np.zeros(len(C)), C
        for j in range(k, -1, -1):
            W, b = weights[j]
            bias, A = bias + A @ b, A @ W
            if j:
                l, h = known[j - 1]
                upper = np.where(l >= 0, 1.0, np.where(h <= 0, 0.0, h / np.where(h > l, h - l, 1)))
                at = np.where((l < 0) & (h > 0), -upper * l, 0.0)
                lower = np.where(l >= 0, 1.0, np.where(h <= 0, 0.0, (h > -l) * 1.0))
                plus, minus = np.maximum(A, 0), np.minimum(A, 0)
                bias, A = bias + minus @ at, plus * lower + minus * upper
        return bias + A @ u - np.abs(A).sum(1) * eps

    for k, (W, _) in enumerate(weights[:-1]):
        eye = np.eye(len(W))
        known.append((least(eye, k), -least(-eye, k)))
    return least(spec, len(weights) - 1)


@pytest.mark.parametrize("widths", [(6, 9, 3), (6, 20, 20, 4), (5, 12, 12, 12, 12, 3)])
def test_no_looser_than_crown_by_default(widths):
    network, rng = stack(widths, seed=len(widths)), np.random.default_rng(0)
    model, U = from_network(network, widths[0]), rng.uniform(size=(4, widths[0]))
    spec = rng.normal(size=(5, widths[-1]))
    for eps in (0.01, 0.1, 0.4):
        found = bounds(model, U, eps, spec=spec)
        for i in range(4):
            wanted = crown(layers(network), U[i], eps, spec)
            # intervals of the layers are taken into account as well, so that bounds may be tighter
            assert (found.lb[i] >= wanted - 1e-9 * (1 + np.abs(wanted))).all()
        assert check(found.cert)


def test_one_hidden_layer_is_crown_itself():
    network, rng = stack((4, 7, 2), seed=3), np.random.default_rng(1)
    U = rng.uniform(size=(6, 4))
    found = bounds(from_network(network, 4), U, 0.3)
    wanted = np.stack([crown(layers(network), u, 0.3, np.eye(2)) for u in U])
    by_range = bounds(from_network(network, 4), U, 0.3, method="interval").lb
    np.testing.assert_allclose(found.lb, np.maximum(wanted, by_range), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("scale", [4.0, 6.0, 20.0])
@pytest.mark.parametrize("method", ["norm", "box", "comparison", "metzler", "interval", "dual", "lp"])
def test_weights_of_any_size(scale, method):
    """Row sums of 25 to 170 in seven layers: an inverse of I - |A| has entries of 1e9 to 1e17."""
    network = stack([5] + 6 * [50] + [5], scale=scale)
    model, U = from_network(network, 5), np.random.default_rng(0).uniform(-0.5, 0.5, (2, 5))
    found = bounds(model, U, 0.01, method=method)
    assert set(found.status) == {"certified"} and check(found.cert)
    for shift in (0.0, 0.01, -0.01):
        y = network(torch.from_numpy(U + shift)).detach().numpy()
        assert (found.lb <= y).all() and (y <= found.ub).all()


def test_radius_zero_is_the_network_itself():
    network = stack([5] + 6 * [50] + [5], scale=6.0)
    U = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 5))
    y = network(torch.from_numpy(U)).detach().numpy()
    found = bounds(from_network(network, 5), U, 0.0)
    np.testing.assert_allclose(found.lb, y, rtol=1e-7)
    np.testing.assert_allclose(found.ub, y, rtol=1e-7)
    verdicts = certify(from_network(network, 5), U, y.argmax(axis=1), 1e-5)
    assert set(verdicts.status) == {"safe"}


def test_sensitivities_of_large_weights():
    network = stack([5] + 6 * [50] + [5], scale=6.0)
    found = sensitivity_matrix(from_network(network, 5))
    wanted = np.eye(5)
    for W, _ in layers(network)[::-1]:
        wanted = wanted @ np.abs(W) if wanted.shape[1] == len(W) else wanted
    np.testing.assert_allclose(found.S, wanted, rtol=1e-9)
    assert found.certified and (found.upper >= wanted * (1 - 1e-12)).all() and found.residual < 1e-8


class Branches(nn.Module):
    """Convolutions, a residual sum, normalisation, maximum, average and tanh."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.third = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 6, 3, stride=2, dilation=1)
        self.pool, self.head, self.other = nn.MaxPool2d(2, ceil_mode=True), nn.Linear(24, 3), nn.Linear(36, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(x) + 0.5 * x)
        z = self.pool(nn.functional.leaky_relu(self.third(y), 0.2))
        return self.head(z.flatten(1)) + self.other(torch.tanh(nn.functional.avg_pool2d(y, 3)).flatten(1))


def branches():
    torch.manual_seed(5)
    network = Branches().double().eval()
    with torch.no_grad():
        network.norm.running_mean.normal_()
        network.norm.running_var.uniform_(0.5, 2)
    return network


@pytest.mark.parametrize("method", ["interval", "dual"])
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.1])
def test_layers_of_a_network_and_of_its_matrices_say_the_same(method, eps):
    network, rng = branches(), np.random.default_rng(0)
    model = from_network(network, (2, 9, 9))
    task = problem(model)
    assert any(
        type(L).__name__ == "Convolution" for v in layers_of(task).values if hasattr(v, "parts") for _, L in v.parts
    )
    U = rng.uniform(size=(2, 162))
    found = bounds(task, U, eps, method=method)
    without = bounds(dataclasses.replace(task, graph=None), U, eps, method=method)
    assert set(found.status) == {"certified"}
    # sums are taken step by step, where the matrices multiply them out, so that ranges may differ
    for a, b in ((found.lb, without.lb), (found.ub, without.ub)):
        assert np.abs(a - b).max() <= (1e-9 if eps == 0 else 0.5 * np.abs(without.ub - without.lb).max())
    for _ in range(200):
        u = U + eps * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=U.shape)
        y = network(torch.from_numpy(u).reshape(2, 2, 9, 9)).detach().numpy()
        assert (found.lb <= y + 1e-12).all() and (y <= found.ub + 1e-12).all()


def test_the_checker_proves_the_bounds_of_a_network_with_branches():
    model, U = from_network(branches(), (2, 9, 9)), np.random.default_rng(1).uniform(size=(1, 162))
    for method in ("interval", "dual"):
        found = bounds(model, U, 0.02, method=method)
        assert found.cert.stages is not None and check(found.cert)
        for claim in ("lb", "xl", "zl"):
            wrong = dataclasses.replace(found.cert, **{claim: getattr(found.cert, claim) + 1e-2})
            assert not check(wrong)


def test_steps_that_were_changed_after_the_reading_are_not_used():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).double()
    model = from_network(network, (1, 5, 5))
    assert of_graph(model.steps, problem(model)) is not None
    with torch.no_grad():
        model.B.values()[0] *= 1.5
    assert of_graph(model.steps, problem(model)) is None
    found, U = bounds(model, np.zeros((1, 25)), 0.1), torch.zeros(1, 25, dtype=torch.float64)
    y = model(U).detach().numpy()
    assert (found.lb <= y).all() and (y <= found.ub).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    maps=st.lists(st.sampled_from(["relu", "tanh", "sigmoid", "leaky_relu(0.3)", "identity"]), min_size=1, max_size=4),
    eps=st.sampled_from([0.0, 1e-6, 0.05, 0.5, 3.0]),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
    card=st.booleans(),
)
def test_every_map_contains_its_samples_and_is_proved(seed, maps, eps, size, card):
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 6, len(maps))
    n, p, q = int(widths.sum()), 3, 2
    level = np.repeat(np.arange(len(maps)), widths)
    A = np.where(level[:, None] > level[None], rng.normal(size=(n, n)), 0.0) * rng.choice([0.0, 1.0], (n, n))
    order = rng.permutation(n)  # states in any order
    which = [maps[k] for k in level[order]]
    model = from_matrices(
        A[np.ix_(order, order)] * size,
        rng.normal(size=(n, p)),
        rng.normal(size=(q, n)),
        rng.normal(size=(q, p)),
        [(name, 1) for name in which],
        b=rng.normal(size=n),
    )
    U = rng.normal(size=(3, p))
    inputs = SparseBox(eps, 2) if card else Box(eps)
    interval, dual = (bounds(model, U, inputs, method=m) for m in ("interval", "dual"))
    assert set(dual.status) == {"certified"} and check(dual.cert) and check(interval.cert)
    room = 1e-9 * (1 + np.abs(interval.ub) + np.abs(interval.lb))
    assert (interval.lb <= dual.lb + room).all() and (dual.ub <= interval.ub + room).all()
    for _ in range(20):
        step = eps * rng.uniform(-1, 1, U.shape)
        if card:
            step[:, rng.integers(p)] = 0.0
        x, error = model.equilibrium(U + step)
        y = model.output(x, U + step)
        slack = error.max() * np.abs(model.C).sum() + 1e-11 * (1 + np.abs(y).max())
        assert (dual.lb - slack <= y).all() and (y <= dual.ub + slack).all()


def test_single_precision_contains_double():
    network, rng = stack((20, 30, 30, 3), seed=2), np.random.default_rng(0)
    task, U = problem(from_network(network, 20)), rng.uniform(size=(5, 20))
    inputs = Box(0.05).around(U)
    wide, exact = (
        layered_bounds(task, of_problem(task, dtype), inputs, specification(task, inputs), refine=True)
        for dtype in (torch.float32, torch.float64)
    )
    assert (wide.lb <= exact.lb).all() and (exact.ub <= wide.ub).all() and check(wide.cert)
    assert np.abs(wide.lb - exact.lb).max() < 1e-2 * np.abs(exact.ub - exact.lb).max()


def test_samples_do_not_disturb_one_another():
    network, rng = stack((6, 15, 15, 4), seed=4), np.random.default_rng(0)
    model, U = from_network(network, 6), rng.uniform(size=(7, 6))
    clean = bounds(model, U, 0.2)
    U[3, 1] = np.nan
    found = bounds(model, U, 0.2)
    others = [0, 1, 2, 4, 5, 6]
    assert found.status[3] == "not_finite" and np.isnan(found.lb[3]).all()
    np.testing.assert_allclose(found.lb[others], clean.lb[others], rtol=1e-12)
    alone = bounds(model, U[5:6], 0.2)
    np.testing.assert_allclose(alone.lb[0], clean.lb[5], rtol=1e-12)


def test_margins_of_each_sample_and_one_side():
    network, rng = stack((6, 15, 15, 4), seed=6), np.random.default_rng(0)
    model, U, y = from_network(network, 6), rng.uniform(size=(5, 6)), np.array([0, 1, 2, 3, 0])
    both = bounds(model, U, 0.05, spec=margins(y, 4))
    low = bounds(model, U, 0.05, spec=margins(y, 4), sides="lower")
    np.testing.assert_array_equal(both.lb, low.lb)
    assert (low.ub >= both.ub - 1e-12).all() and check(low.cert) and check(both.cert)
    raised = bounds(model, U, 0.05, spec=margins(y, 4), sides="lower", method=Dual(ascent_steps=20))
    assert (raised.lb >= low.lb - 1e-9).all() and check(raised.cert)


class TwoMaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(10, 2)

    def forward(self, x):
        z = self.second(torch.relu(self.first(x)))
        return self.last(torch.cat([torch.relu(z), torch.tanh(z)], 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
        lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh(), nn.Linear(3, 2)),
        lambda: nn.Sequential(nn.Softmax(1)),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softmax(1)),
        lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.LeakyReLU(0.3), nn.Linear(4, 2)),
        TwoMaps,
    ],
    ids=["map of the input", "map of a map", "softmax", "softmax of layers", "zeros", "two maps of a layer"],
)
@pytest.mark.parametrize("radius", [0.0, 0.2])
@pytest.mark.parametrize("method", ["interval", "dual"])
def test_bounds_hold_and_are_proved_whatever_maps_read(make, radius, method):
    torch.manual_seed(0)
    network = make().double().eval()
    U = np.zeros((2, 3))
    U[1] = 0.3
    found = bounds(from_network(network, 3), U, radius, method=method)
    assert check(found.cert)
    moved = torch.from_numpy(U[:, None] + radius * np.random.default_rng(0).uniform(-1, 1, (2, 100, 3)))
    with torch.no_grad():
        y = network(moved.flatten(0, 1)).unflatten(0, (2, 100)).numpy()
    assert (found.lb[:, None] <= y + 1e-14).all() and (y - 1e-14 <= found.ub[:, None]).all()


def test_certify_spends_the_ascent_where_lines_leave_a_sample_open():
    network, rng = stack((5, 16, 16, 3), seed=8), np.random.default_rng(0)
    model, U = from_network(network, 5), rng.uniform(size=(40, 5))
    y = network(torch.from_numpy(U)).argmax(1).numpy()
    gained = 0
    for eps in (0.05, 0.1, 0.2):
        plain = bounds(model, U, eps, sides="lower", spec=margins(y, 3)).lb.min(axis=1)
        raised = bounds(model, U, eps, sides="lower", spec=margins(y, 3), method=Dual(ascent_steps=20)).lb.min(axis=1)
        found = certify(model, U, y, eps)
        assert (found.status[(raised > 0)] == "safe").all()
        gained += int(((plain <= 0) & (found.status == "safe")).sum())
    assert gained


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x)))


def test_products_are_bounded_by_their_matrices():
    torch.manual_seed(0)
    network, rng = Gated().double(), np.random.default_rng(0)
    U = rng.normal(size=(3, 3))
    for method in ("interval", "dual"):
        found = bounds(from_network(network, 3), U, 0.2, method=method)
        assert set(found.status) == {"certified"} and check(found.cert)
        for _ in range(100):
            y = network(torch.from_numpy(U + 0.2 * rng.uniform(-1, 1, U.shape))).detach().numpy()
            assert (found.lb <= y + 1e-12).all() and (y <= found.ub + 1e-12).all()


def test_weights_of_the_size_of_roundoff_that_were_changed_are_noticed():
    network = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False)).double()
    with torch.no_grad():
        network[0].weight *= 1e-16
    model = from_network(network, 3)
    assert of_graph(model.steps, problem(model)) is not None
    with torch.no_grad():
        model.B.values()[:] *= 2
    assert of_graph(model.steps, problem(model)) is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_the_field_keep_their_layers(pattern):
    network, rng = drawn(pattern()).double(), np.random.default_rng(0)
    task, U = problem(from_network(network, (3, 32, 32))), rng.uniform(size=(1, 3072))
    assert of_graph(task.graph, task) is not None
    found = bounds(task, U, 1e-4, method="interval")
    assert set(found.status) == {"certified"}
    for _ in range(3):
        u = torch.from_numpy(U + 1e-4 * rng.choice([-1.0, 1.0], U.shape)).reshape(1, 3, 32, 32)
        y = network(u).detach().numpy()
        assert (found.lb <= y).all() and (y <= found.ub).all()
