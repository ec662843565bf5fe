"""Sparsification of networks: rows against one matrix at a time, units against the network, hard cases."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.layerwise import sparsify, sparsify_path
from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT, read_layers
from implicit_models.sim.parallel.run import Parallel
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty, Tolerance
from implicit_models.sim.report import ColumnsExcluded, MoreParameters, NothingFitted
from implicit_models.sim.row_models import ByPosition, Refit, SharedKernels, WorkingSet
from implicit_models.sim.solvers.budget import solve_position
from implicit_models.sim.solvers.rows import solve_rows
from implicit_models.wellposed import certificate
from reproduction.models.resnet20 import Block


class Residual(nn.Module):
    """A small residual network on 2 x 8 x 8 images."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.blocks, self.linear = nn.Sequential(Block(3, 3, 1), Block(3, 5, 2)), nn.Linear(5, 4)

    def forward(self, x):
        return self.linear(self.blocks(self.first(x)).mean((2, 3)))


def drawn(network, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in (*network.named_parameters(), *network.named_buffers()):
            if t.is_floating_point() and name not in ("mean", "deviation"):
                t.normal_(generator=generator).mul_(0.5)
                if name.endswith("running_var"):
                    t.abs_().add_(0.3)
    return network.to(dtype).eval()


@pytest.fixture(scope="module")
def network():
    return drawn(Residual())


def images(n=60, seed=5, shape=(2, 8, 8), dtype=torch.float64):
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def states_of(network, u):
    layers = read_layers(network, tuple(u.shape[1:]))
    known, z = {INPUT: u}, {}
    with torch.no_grad():
        for i in range(len(layers.blocks)):
            z[i] = layers.affine(i, known)
            known[i] = layers.apply(i, z[i])
    return layers, known, z


def rows_of(model, block):
    return getattr(model, f"A{block}").to_dense().numpy(), getattr(model, f"b{block}").numpy()


def test_everything_kept_is_the_network(network):
    u = images(400)
    model = sparsify(
        network, u, Cardinality(1.0), ByPosition(min_active=0.0, refit=Refit(0.0)), states="teacher", head=False
    )
    with torch.no_grad():
        torch.testing.assert_close(model(u), network(u), rtol=1e-6, atol=1e-6)
    assert all(r.fit > 1 - 1e-9 and set(r.status) <= {"optimal", "empty"} for r in model.report.layers)
    assert [r.block for r in model.report.layers] == [1, 2, 3, 4]


@pytest.mark.parametrize("scale", ["std", "theorem", "uniform"])
def test_rows_are_those_of_one_problem_at_a_time(network, scale):
    """Every row of one block, from the plain matrices of its states."""
    u = images()
    model = sparsify(
        network, u, L1Ball(0.5), ByPosition(scale=scale, min_active=0.0, refit=None), states="teacher", head=False
    )
    layers, known, z = states_of(network, u)
    scales = layer_scales(layers, scale)
    block = 2
    b, (A, shift) = layers.blocks[block], rows_of(model, block)
    Z = z[block].flatten(1).numpy()
    X = torch.cat([known[s].flatten(1) for s in sorted(b.sources)], 1).numpy()
    if scale == "std":
        s_x, s_z = X.std(0), Z.std(0)
    else:
        s_x = np.concatenate([scales[s].reshape(-1) for s in sorted(b.sources)])
        s_z = scales[block].reshape(-1)
    starts = np.cumsum([0, *(np.prod(layers.shape_of(s)) for s in sorted(b.sources))])
    for i in (0, 17, 64 + 9, 191):
        w = i % b.positions
        columns = []
        for at, s in zip(starts, sorted(b.sources)):
            reads, (channels, *rest) = b.sources[s][w], layers.shape_of(s)
            columns += [at + c * int(np.prod(rest)) + p for p in reads[reads >= 0] for c in range(channels)]
        columns = [j for j in columns if X[:, j].std() > 0]
        M = (
            (X[:, columns] - X[:, columns].mean(0))
            / s_x[columns]
            * (1.0 if scale == "std" else np.median(s_x[columns]))
        )
        radius = 0.5 if scale == "std" else 0.5 * s_z[i] / np.median(s_x[columns]) / Z[:, i].std()
        target = (Z[:, i] - Z[:, i].mean()) / Z[:, i].std()
        expected = solve_rows(
            M.T @ M, (M.T @ target)[None], np.array([target @ target]), kappa=radius, rtol=1e-12, atol=1e-14
        ).A[0]
        unit = s_x[columns] / (1.0 if scale == "std" else np.median(s_x[columns]))
        np.testing.assert_allclose(A[i, columns], expected * Z[:, i].std() / unit, rtol=1e-4, atol=1e-6)
        assert np.count_nonzero(A[i]) == np.count_nonzero(A[i, columns])
        np.testing.assert_allclose(shift[i], Z[:, i].mean() - A[i] @ X.mean(0), rtol=1e-9, atol=1e-9)
        # the ball, in the network's own units
        limit = 0.5 * s_z[i]
        assert (s_x * np.abs(A[i])).sum() <= limit * (1 + 1e-8)


def test_theorem_scale_is_that_of_the_assembled_matrix(network):
    """s = (I - |A| / .99)^-1 1 of the implicit model that the network is."""
    from implicit_models.compose.interconnect import from_network

    layers = read_layers(network, (2, 8, 8))
    scales = layer_scales(layers, "theorem")
    model = from_network(network, (2, 8, 8))
    A = np.abs(model.A.to_dense().numpy())
    s = np.linalg.solve(np.eye(len(A)) - A / 0.99, np.ones(len(A)))
    np.testing.assert_allclose(np.concatenate(scales[::-1]), s, rtol=1e-9)  # later blocks first
    norms = np.concatenate([A.sum(1), np.abs(model.B.to_dense().numpy()).sum(1)])
    uniform = layer_scales(layers, "uniform")
    B = np.abs(model.B.to_dense().numpy())
    g = (A.sum(1) + B.sum(1)).max() / 0.99
    assert [u[0] for u in uniform] == pytest.approx([g, g**2, g**3, g**4, g**5]) and norms.max() <= g * 0.99 * (
        1 + 1e-12
    )


def test_student_rows_see_the_students_states(network):
    u = images(80)
    model = sparsify(network, u, Cardinality(0.3), head=False)
    layers, _, z = states_of(network, u)
    with torch.no_grad():
        own = model.states(u)
    for report in model.report.layers:
        lost = model.pre_activation(report.block, own) - z[report.block]
        spread = z[report.block] - z[report.block].mean(0)
        assert report.fit == pytest.approx(float(1 - (lost**2).sum() / (spread**2).sum()), abs=1e-9)
    teacher = sparsify(network, u, Cardinality(0.3), states="teacher", head=False)
    error = [float((m(u) - network(u)).norm().detach()) for m in (model, teacher)]
    assert error[0] < error[1]


def test_a_sweep_is_its_values(network):
    u, v = images(), images(30, seed=8)
    many = sparsify_path(network, u, [L1Ball(0.2), L1Ball(0.6)], states="teacher", held_out=v)
    for model, value in zip(many, (0.2, 0.6)):
        one = sparsify(network, u, L1Ball(value), states="teacher", held_out=v)
        with torch.no_grad():
            torch.testing.assert_close(model(v), one(v), rtol=1e-8, atol=1e-8)
        assert model.report.entries == one.report.entries and 0 < model.report.layers[0].held_out < 1
    assert many[0].report.entries < many[1].report.entries
    students = sparsify_path(network, u, [Cardinality(0.2), Cardinality(0.4)])
    assert [m.report.settings["budget"] for m in students] == [Cardinality(0.2), Cardinality(0.4)]
    for turned, model in zip(sparsify_path(network, u, [Cardinality(0.4), Cardinality(0.2)]), students[::-1]):
        assert turned.report.settings == model.report.settings and turned.report.entries == model.report.entries


def test_budgets_of_a_path_are_of_one_kind(network):
    for budgets, words in (
        ([L1Ball(1.0), L1Penalty(0.1)], r"of one kind, got L1Ball\(radius=1.0\) and L1Penalty\(lam=0.1\)"),
        ([], "at least one budget"),
        ([L1Ball(1.0), L1Ball(1)], "must differ"),
        (L1Ball(1.0), "must be a list of at least one budget"),
    ):
        with pytest.raises(ValueError, match=words):
            sparsify_path(network, images(), budgets)


def test_more_parameters_are_warned_of(network):
    u = images()
    with pytest.warns(MoreParameters, match=r"parameters, the network \d+: rows of their own untie the kernels"):
        sparsify(network, u, Cardinality(0.3), head=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sparsify(network, u, Cardinality(0.3), SharedKernels(), head=False)
    assert 0 < model.report.sparsity_of_parameters < 1


@pytest.mark.parametrize("rows", [ByPosition(), SharedKernels(), WorkingSet()])
@pytest.mark.parametrize(
    "network, shape",
    [
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4)), (2, 8, 8)),
        (nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), (5,)),
    ],
)
def test_a_network_without_earlier_states_is_said_to_be_kept(network, shape, rows):
    network, u = drawn(network), images(shape=shape)
    words = "nothing was sparsified, and the report has no layers: no block .* reads the states of an earlier one"
    for head in (True, False):
        with pytest.warns(NothingFitted, match=words):
            model = sparsify(network, u, L1Ball(0.5), rows, head=head)
    assert model.report.layers == () and model.report.sparsity_of_entries == 0
    with torch.no_grad():
        torch.testing.assert_close(model(u), network(u))


def test_the_head_is_a_ridge_regression_on_the_models_features(network):
    u = images(200)
    model = sparsify(network, u, Cardinality(0.3))
    with torch.no_grad():
        X = model.layers.features(model.states(u)).numpy()
        Y = network(u).numpy()
    Xc = X - X.mean(0)
    W = np.linalg.solve(Xc.T @ Xc + 1e-3 * np.diag((Xc**2).sum(0)), Xc.T @ (Y - Y.mean(0))).T
    np.testing.assert_allclose(model.head_weight.numpy(), W, rtol=1e-7, atol=1e-9)
    with torch.no_grad():
        np.testing.assert_allclose(model(u).numpy().mean(0), Y.mean(0), rtol=1e-8, atol=1e-8)


def test_counts(network):
    model = sparsify(network, images(), Cardinality(0.25), head=False)
    layers, report = model.layers, model.report
    nnz = sum(rows_of(model, r.block)[0].astype(bool).sum() for r in report.layers)
    assert report.entries == nnz + layers.entries(0) and report.own_entries == sum(layers.entries(i) for i in range(5))
    assert report.own_parameters == sum(m.weight.numel() for m in network.modules() if isinstance(m, nn.Conv2d))
    n = layers.n_states
    assert report.full_matrix == n * (n + 128) and report.sparsity_of_entries == pytest.approx(
        1 - report.entries / report.own_entries
    )
    assert report.sparsity_of_parameters < 0 < report.sparsity_of_entries  # rows of their own untie the kernels


def test_as_one_implicit_model_it_is_triangular(network):
    """Whatever the refit does to the norms."""
    u = images()
    model = sparsify(network, u, Cardinality(0.4), head=False)
    layers = model.layers
    offsets = np.cumsum([0, *(b.size for b in layers.blocks)])
    A = np.zeros((layers.n_states,) * 2)
    for block in model.fitted:
        M, at = rows_of(model, block)[0], 0
        for s in sorted(layers.blocks[block].sources):
            size = layers.blocks[s].size
            A[offsets[block] : offsets[block + 1], offsets[s] : offsets[s + 1]] = M[:, at : at + size]
            at += size
    assert certificate(A).kind in ("pf", "triangular") and not np.triu(A).any()


def test_before_and_functions_as_support(network):
    u = images(90)
    before = sparsify(network, u, Cardinality(0.02), ByPosition(support="before"), states="teacher", head=False)
    layers, known, z = states_of(network, u)
    with torch.no_grad():
        own = before.states(u)
        for report in before.report.layers:  # rows of the states of all blocks before
            lost = before.pre_activation(report.block, known) - z[report.block]
            spread = z[report.block] - z[report.block].mean(0)
            assert report.fit == pytest.approx(float(1 - (lost**2).sum() / (spread**2).sum()), abs=1e-9)
        assert torch.isfinite(before(u)).all() and len(own) == 6
    student = sparsify(network, u, Cardinality(0.1), ByPosition(support="before"))
    with torch.no_grad():
        assert float((student(u) - network(u)).norm()) < float((before(u) - network(u)).norm())
    assert (
        before.report.layers[0].columns == 3 * 64 + 128 and before.report.layers[-1].columns == 128 + 3 * 192 + 5 * 16
    )
    centre = sparsify(
        network,
        u,
        Cardinality(1.0),
        ByPosition(support=lambda layers, k: {s: i[:, :1] for s, i in layers.blocks[k].sources.items()}),
        states="teacher",
    )
    assert centre.report.layers[0].columns <= 3
    with pytest.raises(ValueError, match="source 9 must be an earlier block"):
        sparsify(
            network,
            u,
            Cardinality(0.5),
            ByPosition(support=lambda layers, k: {9: layers.blocks[k].sources[max(layers.blocks[k].sources)]}),
        )


def test_rows_of_a_dead_channel_a_constant_target_and_an_empty_support(network):
    dead = drawn(Residual())
    with torch.no_grad():
        dead.first[1].bias[1], dead.first[1].weight[1] = -5.0, 0.0  # a channel that is always zero
        dead.blocks[0].conv2.weight[2] = 0.0
    u = images()
    model = sparsify(dead, u, Cardinality(0.3))
    A, _ = rows_of(model, 1)
    assert not A[:, 64:128].any() and np.isfinite(model(u).detach().numpy()).all()
    nothing = sparsify(
        dead,
        u,
        Cardinality(0.5),
        ByPosition(support=lambda layers, k: {s: np.full_like(i, -1) for s, i in layers.blocks[k].sources.items()}),
        head=False,
    )
    assert nothing.report.entries == nothing.layers.entries(0) and nothing.report.layers[0].status["empty"] == 192
    with torch.no_grad():
        z = nothing.pre_activation(1, nothing.states(u))
    assert float((z - z[:1]).abs().max()) == 0.0  # a bias alone


def test_a_dead_last_layer_has_a_head_all_the_same():
    dead = drawn(Residual())
    with torch.no_grad():
        dead.blocks[1].bn2.bias.fill_(-1e3)
    model = sparsify(dead, images(), Cardinality(0.3))
    with torch.no_grad():
        torch.testing.assert_close(model(images(9)), dead(images(9)))
    assert not model.head_weight.any()


def test_rarely_active_states_get_no_huge_weights():
    rare = drawn(nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 12), nn.ReLU(), nn.Linear(12, 3)), 3)
    with torch.no_grad():
        rare[0].bias.fill_(-2.0)
    u, v = images(80, 1, (6,)), images(400, 2, (6,))
    active = (torch.relu(rare[0](u)) > 0).sum(0)
    assert ((active > 0) & (active < 3)).sum() > 5
    all_of_them, model = (sparsify(rare, u, Cardinality(0.5), ByPosition(min_active=k), held_out=v) for k in (0.0, 3.0))
    largest = [float(m.A1.to_dense().abs().max()) for m in (all_of_them, model)]
    assert largest[0] > 10 > 2 > largest[1]  # the network's own reach 1.9
    assert all_of_them.report.layers[0].held_out < 0 < 0.4 < model.report.layers[0].held_out
    used = model.A1.to_dense().abs().sum(0) > 0
    assert not used[active < 2].any()


@pytest.mark.parametrize("budget", [L1Ball(0.5), L1Penalty(0.1), L1Penalty(0.0)])
@pytest.mark.parametrize("kind", [ByPosition, SharedKernels, WorkingSet])
def test_rows_that_min_active_leaves_no_column_are_warned_of(kind, budget):
    """Inputs and states vary on two samples of forty, the targets with them."""
    rare = drawn(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)), 3)
    u = torch.zeros(40, 6, dtype=torch.float64)
    u[:2] = images(2, 1, (6,))
    words = r"in the layers _3 \(5 of 5 rows\): .* fewer samples than min_active=3 .* more samples, or min_active=0"
    with pytest.warns(ColumnsExcluded, match=words):
        model = sparsify(rare, u, budget, kind(), states="teacher", head=False)
    (report,) = model.report.layers
    assert report.status == {"empty": 5} and report.excluded == 5 and report.entries == 0
    assert report.gap == 0 and report.fit == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnsExcluded)
        (report,) = sparsify(rare, u, budget, kind(min_active=0.0), states="teacher", head=False).report.layers
        assert report.entries > 0 and report.excluded == 0
        with torch.no_grad():
            rare[0].weight.zero_()  # no column varies, and neither does a target
        (report,) = sparsify(rare, u[:, :6], budget, kind(), states="teacher", head=False).report.layers
        assert report.status == {"empty": 5} and report.excluded == 0 and report.entries == 0


def test_positions_are_told_apart_where_min_active_leaves_columns(network):
    """Images that vary on two samples in the left half: rows there alone lose their columns."""
    u = images(60)
    u[2:, :, :, :4] = 0.0
    with torch.no_grad():
        pointwise = drawn(
            nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))
        )
    with pytest.warns(ColumnsExcluded, match=r"_3 \(64 of 128 rows\)"):
        (report,) = sparsify(pointwise, u, L1Ball(0.5), states="teacher").report.layers
    assert report.excluded == report.status["empty"] == 64


@pytest.mark.parametrize("value", [0.2, 1.0])
def test_a_cap_holds_for_shares_too(network, value):
    model = sparsify(network, images(), Cardinality(value), ByPosition(cap=4), states="teacher")
    for report in model.report.layers:
        assert report.support <= 4 and report.status.get("saturated", 0) > 0.5 * report.rows


def test_a_share_is_rounded_up_but_for_rounding():
    """.07 of 100 columns are 7, although .07 times 100 is 7.000000000000001."""
    rng = np.random.default_rng(0)
    M, z = rng.normal(size=(300, 100)), rng.normal(size=(1, 300))
    A, *_ = solve_position(
        M.T @ M,
        z @ M,
        (z**2).sum(1),
        300,
        [Cardinality(0.07), Cardinality(0.071)],
        np.ones(1),
        tolerance=Tolerance(1e-9, 1e-9),
        cap=None,
    )
    assert np.count_nonzero(A, axis=2).tolist() == [[7, 8]]


def test_layers_of_a_single_state_in_double_precision():
    """Its columns and targets are copies: what centres them leaves the states alone."""
    network = drawn(
        nn.Sequential(
            nn.Linear(3, 1), nn.Tanh(), nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2)
        )
    )
    u = images(40, shape=(3,))
    model = sparsify(network, u, Cardinality(1.0), ByPosition(refit=Refit(0.0)), states="teacher")
    for block in (1, 2):
        np.testing.assert_allclose(rows_of(model, block)[0], network[2 * block].weight.detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(
            rows_of(model, block)[1], network[2 * block].bias.detach().numpy(), rtol=1e-9, atol=1e-12
        )
    with torch.no_grad():
        assert float((model(u) - network(u)).abs().max()) < 2e-2 * float(network(u).std())  # the ridge of the head


class Normalised(nn.Module):
    """An input that is normalised in the forward, as images are."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.register_buffer("mean", torch.tensor([3.0, 1.0, 2.0, 5.0]))

    def forward(self, x):
        return self.last(torch.relu(self.first((x - self.mean) / 0.5)))


def test_scales_are_of_the_linear_part_alone():
    network = drawn(Normalised())
    W = network.first.weight.detach().abs().numpy() / 0.5
    layers = read_layers(network, (4,))
    np.testing.assert_array_equal(layer_scales(layers, "theorem")[0], np.ones(6))
    np.testing.assert_allclose(layer_scales(layers, "uniform")[0], W.sum(1).max() / 0.99)


class Negative(Normalised):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.last(torch.relu(self.change(torch.relu(self.first(x)))))


@pytest.mark.parametrize(
    "change, size",
    [
        (lambda h: -h, 1.0),
        (lambda h: 1.0 - h, 1.0),
        (lambda h: h * -2.0, 2.0),
        (lambda h: h / -4.0, 0.25),
        (lambda h: torch.sub(h, 2 * h), 3.0),  # a bound: what the network subtracts is added
    ],
)
def test_scales_are_of_absolute_weights(change, size):
    """Each unit of the second layer reads one of the first, whose unit is 1."""
    layers = read_layers(drawn(Negative(change)), (4,))
    np.testing.assert_allclose(layer_scales(layers, "theorem")[1], 1 + size / 0.99, rtol=1e-12)


def test_scales_of_what_absolute_weights_say_nothing_of():
    network = drawn(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1), nn.Linear(3, 2)))
    with pytest.raises(ValueError, match=r"module '1' \(Softmax\): scale needs componentwise maps"):
        layer_scales(read_layers(network, (4,)), "theorem")


def test_shared_kernels_do_not_feel_an_offset_of_their_columns():
    """States of 1000 plus or minus .1, in single precision, against the same problem in double precision."""
    network = drawn(
        nn.Sequential(
            nn.Conv2d(2, 2, 1), nn.LeakyReLU(0.5), nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2)
        )
    )
    with torch.no_grad():
        network[0].weight.mul_(0.1)
        network[0].bias.fill_(1000.0)
    u = images(80)
    double = sparsify(
        network, u, Cardinality(1.0), SharedKernels(min_active=0.0, refit=Refit(0.0)), states="teacher", head=False
    )
    single = sparsify(
        network.float(),
        u.float(),
        Cardinality(1.0),
        SharedKernels(min_active=0.0, refit=Refit(0.0)),
        states="teacher",
        head=False,
    )
    kernel = rows_of(double, 1)[0]
    np.testing.assert_allclose(rows_of(single, 1)[0], kernel, atol=2e-2 * np.abs(kernel).max())


def test_shared_kernels_of_a_tiny_network():
    """Pre-activations of size 1e-14 are no dead rows."""
    network, u = drawn(Residual()), images(50)
    whole = sparsify(network, u, Cardinality(0.4), SharedKernels(), states="teacher", head=False)
    with torch.no_grad():
        network.blocks[0].bn1.weight.mul_(1e-14)
        network.blocks[0].bn1.bias.mul_(1e-14)
    tiny = sparsify(network, u, Cardinality(0.4), SharedKernels(), states="teacher", head=False)
    np.testing.assert_allclose(rows_of(tiny, 1)[0], 1e-14 * rows_of(whole, 1)[0], rtol=1e-6, atol=1e-22)


def test_columns_that_a_refit_drops_are_not_counted():
    """Two equal columns at each position, of which least squares takes one."""
    network = drawn(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    with torch.no_grad():
        network[0].weight[1], network[0].bias[1] = network[0].weight[0], network[0].bias[0]
    model = sparsify(network, images(60, shape=(3,)), L1Ball(50.0), states="teacher")
    report = model.report.layers[0]
    assert report.entries == report.parameters == np.count_nonzero(rows_of(model, 1)[0])


def test_a_saturated_row_is_told(network):
    model = sparsify(network, images(), L1Ball(50.0), ByPosition(cap=5), states="teacher")
    assert all(r.status.get("saturated", 0) > 0 and r.support <= 5 for r in model.report.layers)


def test_a_killed_run_goes_on(network, tmp_path, monkeypatch):
    from implicit_models.sim.network import position_rows

    u, calls = images(), []
    whole = sparsify(network, u, Cardinality(0.3))

    def killed(*args, **kwargs):
        calls.append(args[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve(*args, **kwargs)

    solve = position_rows.solve_strip
    monkeypatch.setattr(position_rows, "solve_strip", killed)
    with pytest.raises(KeyboardInterrupt):
        sparsify(network, u, Cardinality(0.3), parallel=Parallel("serial", resume=tmp_path))
    calls.clear()
    monkeypatch.setattr(position_rows, "solve_strip", lambda *a, **k: calls.append(1) or solve(*a, **k))
    model = sparsify(network, u, Cardinality(0.3), parallel=Parallel("serial", resume=tmp_path))
    assert len(calls) == 2  # of four blocks in one strip each, two were finished
    with torch.no_grad():
        torch.testing.assert_close(model(u), whole(u), rtol=1e-9, atol=1e-9)


def test_a_killed_run_of_shared_kernels_goes_on(network, tmp_path, monkeypatch):
    from implicit_models.sim.network import shared_problem

    u, calls = images(), []
    whole = sparsify(network, u, Cardinality(0.3), SharedKernels())

    def killed(*args, **kwargs):
        calls.append(args[1])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve(*args, **kwargs)

    solve = shared_problem.solve_kernels
    monkeypatch.setattr(shared_problem, "solve_kernels", killed)
    parallel = Parallel("processes", start_method="spawn", resume=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        sparsify(network, u, Cardinality(0.3), SharedKernels(), parallel=parallel)
    assert sorted(f.parent.name for f in tmp_path.glob("*/*.npz")) == ["block-1", "block-2"]
    calls.clear()
    monkeypatch.setattr(shared_problem, "solve_kernels", lambda *a, **k: calls.append(a[1]) or solve(*a, **k))
    model = sparsify(network, u, Cardinality(0.3), SharedKernels(), parallel=parallel)
    assert calls == [(0, 5), (0, 5)]  # of four blocks two were finished
    for report, other in zip(model.report.layers, whole.report.layers):
        assert report == other
        for a, b in zip(rows_of(model, report.block), rows_of(whole, report.block)):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="finished rows of another problem"):
        sparsify(network, u, Cardinality(0.4), SharedKernels(), parallel=parallel)


def test_float32_and_non_contiguous_inputs():
    network = drawn(Residual(), dtype=torch.float32)
    u = images(60, dtype=torch.float32)
    turned = u.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    assert not turned.is_contiguous()
    one, two = (sparsify(network, x, Cardinality(0.3)) for x in (u, turned))
    with torch.no_grad():
        torch.testing.assert_close(one(u), two(turned))
        assert one(u).dtype == torch.float32


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"data": (images() * 100).to(torch.int64)}, TypeError, "inputs are torch.int64, the network is torch.float64"),
        ({"data": images().numpy()}, TypeError, "data must be a torch tensor, got ndarray"),
        ({"data": images(1)}, ValueError, "at least 2 samples, got 1"),
        (
            {
                "data": images().index_put(
                    (torch.tensor([3]), torch.tensor([1])), torch.tensor(float("nan"), dtype=torch.float64)
                )
            },
            ValueError,
            "sample 3",
        ),
        ({"held_out": images(5, shape=(2, 9, 8))}, ValueError, r"samples must have shape \(2, 8, 8\), got \(2, 9, 8\)"),
        (
            {"budget": 0.3},
            TypeError,
            r"a budget must be L1Ball\(...\), L1Penalty\(...\), Cardinality\(...\) or Share\(...\), got 0.3",
        ),
        ({"rows": "shared"}, TypeError, r"rows must be ByPosition\(...\), SharedKernels\(...\) or WorkingSet"),
        ({"tolerance": 1e-6}, TypeError, r"tolerance must be Tolerance\(...\), got 1e-06"),
        ({"parallel": 2}, TypeError, r"parallel must be Parallel\(...\), got 2"),
        ({"states": "both"}, ValueError, "'teacher' or 'student', got 'both'"),
        ({"network": Residual()}, ValueError, "in training mode"),
        (
            {"data": images()[:, 0]},
            ValueError,
            r"^data has shape \(60, 8, 8\), which the network does not take: module .* \(2, H, W\), .* \(8, 8\)",
        ),
        (
            {"data": images(shape=(3, 8, 8))},
            ValueError,
            r"^data has shape \(60, 3, 8, 8\), .* module 'first.0' \(Conv2d\): .* \(2, H, W\), .* \(3, 8, 8\)",
        ),
        ({"network": nn.Linear(2, 2)}, ValueError, r"in training mode \(Linear\): call eval"),
        ({"network": nn.Sequential(nn.Linear(2, 2), nn.ReLU())}, ValueError, r"\(Sequential and 2 more\): call eval"),
    ],
)
def test_bad_arguments_are_named(network, change, error, words):
    arguments = {"network": network, "data": images(), "budget": Cardinality(0.3), **change}
    with pytest.raises(error, match=words):
        sparsify(arguments.pop("network"), arguments.pop("data"), **arguments)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: ByPosition(scale="unit"), "scale must be one of std, theorem, uniform, got 'unit'"),
        (lambda: ByPosition(support="all"), "support must be one of receptive, before"),
        (lambda: WorkingSet(min_active=-1), "min_active must not be negative, got -1"),
        (lambda: Refit(ridge=-1.0), "ridge must not be negative, got -1"),
        (lambda: Tolerance(rtol=float("nan")), "rtol must be finite, got nan"),
        (lambda: SharedKernels(cap=0), "cap must be None or a positive int, got 0"),
        (lambda: ByPosition(cap=2.5), "cap must be None or a positive int, got 2.5"),
        (lambda: Parallel("mpi"), "unknown backend 'mpi'"),
    ],
)
def test_choices_check_themselves(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "device, error, words",
    [
        (0, TypeError, "device must be 'cpu', 'cuda' or 'cuda:k', got 0"),
        (None, TypeError, "got None"),
        (torch.device("cpu"), TypeError, "got device"),
        ("gpu", ValueError, "device must be 'cpu', 'cuda' or 'cuda:k', got 'gpu'"),
        ("meta", ValueError, "got 'meta'"),
        ("cuda:", ValueError, "got 'cuda:'"),
        ("cuda:-1", ValueError, "got 'cuda:-1'"),
        ("cuda", ValueError, "device 'cuda' is not there: torch sees 0 CUDA cards"),
        ("cuda:0", ValueError, "device 'cuda:0' is not there"),
    ],
)
def test_devices_are_checked_by_name(network, monkeypatch, device, error, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(error, match=words):
        sparsify(network, images(), L1Ball(0.5), WorkingSet(device=device))


def test_a_card_is_one_of_those_that_are_there(network, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="device 'cuda:2' is not there: torch sees 2 CUDA cards"):
        sparsify(network, images(), L1Ball(0.5), WorkingSet(device="cuda:2"))
    WorkingSet(device="cuda:1").check(read_layers(network, (2, 8, 8)), [L1Ball(0.5)])


def test_a_head_needs_a_linear_layer_at_the_end():
    network = drawn(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()))
    with pytest.raises(TypeError, match="head=False"):
        sparsify(network, images(30, shape=(6,)), L1Penalty(0.01))
    assert sparsify(network, images(30, shape=(6,)), L1Penalty(0.01), head=False)(images(3, shape=(6,))).shape == (3, 4)


def test_shared_kernels_are_one_problem_of_all_positions(network):
    """A block's kernel from the plain window matrix, and the rows it makes from a convolution."""
    u = images(50)
    model = sparsify(network, u, L1Ball(0.6), SharedKernels(min_active=0.0, refit=None), states="teacher", head=False)
    layers, known, z = states_of(network, u)
    unfolded = nn.functional.unfold(known[0], 3, padding=1)  # (N, C 9, P), channel-major
    M = unfolded.reshape(50, 3, 9, 64).permute(2, 1, 0, 3).reshape(27, -1).T.numpy()  # taps, then channels
    Z = z[1].flatten(2).permute(1, 0, 2).reshape(3, -1).T.numpy()
    M, Z = M - M.mean(0), Z - Z.mean(0)
    unit, target = M.std(0), Z.std(0)
    M, Z = M / unit, Z / target
    expected = solve_rows(M.T @ M, Z.T @ M, (Z**2).sum(0), kappa=0.6, rtol=1e-12, atol=1e-14).A * target[:, None] / unit
    A, shift = rows_of(model, 1)
    kernel = torch.from_numpy(expected.reshape(3, 9, 3).transpose(0, 2, 1).reshape(3, 3, 3, 3))
    with torch.no_grad():
        convolved = nn.functional.conv2d(known[0], kernel, padding=1).flatten(1).numpy()
    np.testing.assert_allclose(known[0].flatten(1).numpy() @ A.T, convolved, atol=1e-6)
    assert np.ptp(shift.reshape(3, 64), axis=1).max() == 0
    report = model.report
    assert report.parameters == sum(r.parameters for r in report.layers) + 54 and report.layers[
        0
    ].parameters == np.count_nonzero(expected)
    assert report.sparsity_of_parameters > 0


def test_shared_kernels_of_the_whole_network(network):
    u = images(150)
    model = sparsify(network, u, Cardinality(1.0), SharedKernels(min_active=0.0, refit=Refit(0.0)), head=False)
    with torch.no_grad():
        torch.testing.assert_close(model(images(9)), network(images(9)), rtol=1e-5, atol=1e-5)
    assert all(r.fit > 1 - 1e-6 for r in model.report.layers)
    with pytest.raises(TypeError, match="scale"):  # positions are pooled in units of their deviation
        SharedKernels(scale="theorem")
