"""The study of the trained ResNet-20: counts by hand, scales, penalties and balls against plain solvers, matching by
brute force, the cache, the stand-in."""

import dataclasses

import numpy as np
import pytest
import torch

from implicit_models.sim.layerwise import sparsify
from implicit_models.sim.network.layer_scales import layer_scales
from implicit_models.sim.network.layers import INPUT
from implicit_models.sim.problem import Cardinality
from implicit_models.sim.row_models import SharedKernels
from reproduction.ch3_resnet20_cifar import compute as resnet_study
from reproduction.ch3_resnet20_cifar import kernel_rows
from reproduction.ch3_resnet20_cifar import kernels as kernel_study
from reproduction.ch3_resnet20_cifar import search as resnet_search
from reproduction.ch3_resnet20_cifar import tables as resnet_tables
from reproduction.ch3_resnet20_cifar.figures import against_images, by_iteration, by_layer, frontier


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The stand-in: no weights, no images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IMPLICIT_DATA", str(tmp_path_factory.mktemp("empty")))
        patch.setenv("IMPLICIT_OFFLINE", "1")
        patch.setenv("IMPLICIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = resnet_study.task()
        assert "random weights" in made.banner
        yield made.first(40)


def test_stand_in_tells_its_patterns_apart(given):
    assert resnet_study.accuracy(given.network, given) == 100
    assert given.key == "coloured patterns" and len(given.test) == len(given.labels) == 40


def test_draws_are_nested_and_disjoint_from_the_held_out(given):
    small, held_out = given.draw(20, 3)
    large, same = given.draw(50, 3)
    assert torch.equal(large[:20], small) and torch.equal(held_out, same) and len(held_out) == resnet_study.HELD_OUT
    everything = {
        tuple(image.flatten()[:8].tolist()) for image in given.draw(len(given.images) - resnet_study.HELD_OUT, 3)[0]
    }
    assert not everything & {tuple(image.flatten()[:8].tolist()) for image in held_out}
    assert not torch.equal(given.draw(20, 4)[0], small)
    with pytest.raises(ValueError, match="m must be between 1 and 900, got 901"):
        given.draw(901, 0)


def test_counts_of_a_resnet_20(given):
    """Weights, states and entries by hand: convolutions of 3 x 3 without the taps outside the image, one entry a
    shortcut."""

    def entries(size, inside, out, stride=1):
        full, seen = size // stride, 0
        for i in range(full):
            for j in range(full):
                rows = sum(0 <= stride * i + t < size for t in (-1, 0, 1))
                seen += rows * sum(0 <= stride * j + t < size for t in (-1, 0, 1))
        return seen * inside * out

    conv = (
        entries(32, 3, 16)
        + 6 * entries(32, 16, 16)
        + entries(32, 16, 32, 2)
        + 5 * entries(16, 32, 32)
        + entries(16, 32, 64, 2)
        + 5 * entries(8, 64, 64)
    )
    shortcuts = 3 * 16 * 1024 + (16 + 2 * 32) * 256 + (32 + 2 * 64) * 64
    found = resnet_study.counts(given)
    weights = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    assert found["kernel_weights"] == weights and found["weights"] == weights + 640
    assert found["row_entries"] == conv + shortcuts
    assert found["states"] == 7 * 16 * 1024 + 6 * 32 * 256 + 6 * 64 * 64 == 188_416
    # The SIM paper's 41 % and the thesis' 90.1 %, as the errata have them.
    assert found["left_at_41"] == pytest.approx(158_318, abs=1)
    assert round(found["left_at_41_a_row"], 2) == 0.84 and round(found["left_at_90_a_row"], 2) == 0.14
    assert found["full_at_90_over_weights"] == pytest.approx(13_300, rel=0.005)


def test_units_hold_the_network(given):
    unit = resnet_study.units(given, 30, 0)
    assert len(unit["norm"]) == len(unit["std_norm"]) == 18 and len(unit["theorem"]) == len(unit["uniform"]) == 19
    # The uniform factor is a power of one number, which is that of the largest row over .99.
    g = unit["uniform"][0]
    assert unit["uniform"] == pytest.approx([g ** (k + 1) for k in range(19)])
    kernels, _ = kernel_rows.own_kernels(given.layers, 3)
    inside = sum(np.abs(kernel).sum(axis=(1, 2)) for kernel in kernels.values())
    assert min(inside) * 4 / 9 <= unit["norm"][2] <= max(inside)
    assert max(unit["norm"]) <= 0.99 * g


def test_matching_is_r2_of_two_runs(given):
    """By hand: the forward of a model on the network's states, and on its own."""
    u, v = given.images[:20], given.test[:10]
    model = sparsify(given.network, u, Cardinality(0.1), SharedKernels(), head=False)
    found = resnet_study.layer_matching(model, v)
    layers, known = model.layers, {INPUT: v}
    own = model.states(v)
    for block in range(19):
        z = layers.affine(block, known)
        if block in model.fitted:
            spread = float(((z - z.mean(0)) ** 2).sum())
            assert found["forced"][block - 1] == pytest.approx(
                1 - float(((model.pre_activation(block, known) - z) ** 2).sum()) / spread, abs=1e-4
            )
            assert found["own"][block - 1] == pytest.approx(
                1 - float(((model.pre_activation(block, own) - z) ** 2).sum()) / spread, abs=1e-4
            )
        known[block] = layers.apply(block, z)
    assert found["forced"][0] == pytest.approx(found["own"][0])
    assert (
        abs(found["own"][-1] - found["forced"][-1]) > 0.01
    )  # which is better is chance: a fit to twenty images of a random network


@pytest.fixture(scope="module")
def problem(given):
    return kernel_study.problems_of(given, 12, 0)[7]


def test_penalised_rows_are_the_lasso_and_ridge(problem):
    """scikit-learn on the Cholesky factor of the Gram matrix."""
    from sklearn.linear_model import Lasso

    live = np.flatnonzero(np.diag(problem.G) > 0)
    G = problem.G[np.ix_(live, live)]
    L = np.linalg.cholesky(G + 1e-9 * problem.count * np.eye(len(G))).T
    target = np.linalg.solve(L.T, problem.C[3, live])
    A, failed = kernel_study.penalised_rows(problem, 0.05, "l1")
    fit = Lasso(alpha=0.05 * problem.count / len(L), fit_intercept=False, max_iter=100_000, tol=1e-10).fit(L, target)
    assert failed == 0 and A[3, live] == pytest.approx(fit.coef_, abs=1e-4)
    A, _ = kernel_study.penalised_rows(problem, 0.05, "l2")
    assert A[3, live] == pytest.approx(
        np.linalg.solve(G + 2 * 0.05 * problem.count * np.eye(len(G)), problem.C[3, live]), abs=1e-5
    )
    with pytest.raises(ValueError, match="objective must be"):
        kernel_study.penalised_rows(problem, 0.05, "elastic")


def test_perspective_is_l1_below_its_knee_and_dearer_beyond(problem):
    l1, _ = kernel_study.penalised_rows(problem, 0.05, "l1")
    assert np.abs(l1).max() < 1
    assert kernel_study.penalised_rows(problem, 0.05, "perspective", 1.0)[0] == pytest.approx(l1, abs=1e-5)
    small, failed = kernel_study.penalised_rows(problem, 0.05, "perspective", 0.01)
    assert failed == 0 and np.abs(small).max() < np.abs(l1).max() and np.count_nonzero(small) > np.count_nonzero(l1)


def test_uniform_ball_holds_rows_of_the_network_s_own_units(given, problem):
    """The plain ball's norm is the weighted norm of the kernel in the network's units over its own scale."""
    scales = layer_scales(given.layers, "uniform")
    G, C, q, radius = kernel_study.ball_rows(problem, scales, 7)
    rng = np.random.default_rng(1)
    A = rng.normal(size=problem.C.shape)
    kernels, _ = problem.kernels(A)
    s = {k: scales[k][0] for k in kernels}
    norm = sum(s[k] * np.abs(kernel).sum(axis=(1, 2)) for k, kernel in kernels.items()) / scales[7][0]
    assert np.abs(A * q).sum(axis=1) / radius == pytest.approx(norm, rel=1e-9)
    # Objective in both units: c'a and a'G a.
    assert np.einsum("ij,ij->i", C, A * q) == pytest.approx(np.einsum("ij,ij->i", problem.C, A))
    assert np.einsum("ij,ij->i", (A * q) @ G, A * q) == pytest.approx(np.einsum("ij,ij->i", A @ problem.G, A))
    own, _ = kernel_rows.own_kernels(given.layers, 7)
    assert sum(s[k] * np.abs(kernel).sum(axis=(1, 2)) for k, kernel in own.items()).max() / scales[7][0] <= 0.99 + 1e-6


def test_balls_grow(given):
    found = kernel_study.ball(given, (0.05, 0.5), m=12, seed=0, scale="std")
    assert found[0]["l1"]["kernels"] > found[1]["l1"]["kernels"] and found[0]["l1"]["failed"] == 0
    assert found[0]["l1"]["numbers"] == found[0]["refit"]["numbers"]
    with pytest.raises(ValueError, match="scale must be"):
        kernel_study.ball(given, (0.5,), m=12, seed=0, scale="theorem")


def test_controls(given):
    found = {name: kernel_study.control(given, name, 0.4, m=12, seed=0) for name in kernel_study.CONTROLS}
    convolutions = resnet_study.counts(given)["kernel_weights"] - 432
    shortcuts = 3 * 16 + 16 + 2 * 32 + 32 + 2 * 64
    kept = sum(
        round(0.4 * 9 * a * b) for a, b in [(16, 16)] * 6 + [(16, 32)] + [(32, 32)] * 5 + [(32, 64)] + [(64, 64)] * 5
    )
    for name in ("magnitude", "magnitude_bias"):
        assert found[name]["numbers"] == kept + shortcuts + 432, name
    assert found["magnitude"]["kernels"] == pytest.approx(100 * (1 - (kept + shortcuts + 432) / (convolutions + 432)))
    for name in ("magnitude_refit", "random_refit"):  # states that do not vary on 12 images have no weight
        assert 0.95 * kept < found[name]["numbers"] <= kept + shortcuts + 432, name
    whole = kernel_study.control(given, "magnitude", 1.0, m=12, seed=0)
    assert whole["accuracy"] == 100
    with pytest.raises(ValueError, match="control must be"):
        kernel_study.control(given, "obd", 0.5, m=12, seed=0)


def test_one_penalty_cannot_serve_all_layers(given):
    assert kernel_study.first_and_last(given, 12, 0) > 10


def test_stored_measurements_are_read_again_and_keyed(given):
    calls = []
    compute = lambda: calls.append(1) or {"a": len(calls), "b": float("inf")}
    first = resnet_study.stored("t", given, {"x": 1}, compute)
    assert resnet_study.stored("t", given, {"x": 1}, compute) == first == {"a": 1, "b": "inf"}
    assert resnet_study.stored("t", given, {"x": 2}, compute)["a"] == 2
    assert resnet_study.stored("t", given.first(10), {"x": 1}, compute)["a"] == 3
    assert resnet_study.stored("t", dataclasses.replace(given, key="other"), {"x": 1}, compute)["a"] == 4
    assert sum(name.startswith("resnet20-t-") for name in resnet_study.SPENT) == 4


def test_drawn_rows_are_rows_of_the_network(given):
    rows = resnet_search.drawn_rows(given, 40, 2, 5, 40)
    assert [r.block for r in rows] == [1, 6, 7, 12, 13, 18]
    part = resnet_search.drawn_rows(given, 40, 2, 5, 10)
    assert [r.samples for r in part] == [10] * 6 and [len(r.G) for r in part] == [len(r.G) for r in rows]
    for r in rows:
        assert r.zz == pytest.approx([40.0] * len(r.zz)) and set(np.round(np.diag(r.G), 6)) <= {0.0, 40.0}
        # Columns on which a row of the network depends explain it: a straight line through the rows of one position.
        fit = np.linalg.lstsq(r.G, r.C[0], rcond=1e-12)[0]
        assert r.C[0] @ fit == pytest.approx(r.zz[0], rel=1e-3)


def test_speedups_count_the_same_problem(given):
    found = resnet_search.speedups(given, 0.5, m=60, count=1, seed=0)
    assert found["solves"] == found["warm_solves"] and found["rows"] <= 6
    assert found["data_on_samples"] == pytest.approx(5 * found["data_epochs"]) and found["limit"] == 5


def test_iterates_approach_the_ball_s_solution(given):
    curve = resnet_search.iterates(given, 0.01, m=12, seed=0, iterations=9, warm=True, epochs=30)
    assert len(curve["accuracy"]) == len(curve["gap"]) == 9 and np.all(np.diff(curve["epochs"]) > 0)
    assert curve["gap"][-1] < 0.2 * curve["gap"][0] and min(curve["gap"]) > -1e-9


def test_first_iteration_that_stays():
    curve = {"accuracy": [10, 50, 90, 70, 89.5, 90], "epochs": [1, 2, 3, 4, 5, 6]}
    assert resnet_search.reached_at(curve) == (5, 5.0)
    assert resnet_search.reached_at({"accuracy": [3.0], "epochs": [7]}) == (1, 7.0)


def test_plateau_and_readings():
    assert resnet_study.plateau([1, 2, 3, 4], [50, 89.5, 80, 90]) == 4
    assert resnet_study.plateau([1, 2, 3, 4], [89.2, 89.5, 90.9, 90]) == 1
    points = [
        {"kernels": 80.0, "accuracy": 60.0},
        {"kernels": 20.0, "accuracy": 90.0},
        {"kernels": 50.0, "accuracy": 88.0},
    ]
    assert resnet_tables.drop_at(points, 91.0, 65.0) == pytest.approx(17.0)
    assert np.isnan(resnet_tables.drop_at(points, 91.0, 19.4)) and resnet_tables.drop_at(
        points, 91.0, 19.6
    ) == pytest.approx(1.0)
    assert kernel_study.reached(points, 90.0, 2.0) == 50 and kernel_study.reached(points, 95.0, 2.0) == -np.inf
    assert resnet_tables.monotone([[1, 2], [3, 4]], 1) and not resnet_tables.monotone(
        [[1, 2], [3, 4], [2, 9], [1, 1]], 1
    )
    assert resnet_tables.key_of(0.005) == "0p005" and resnet_tables.published_row(2.0) == {}
    assert resnet_tables.published_row(0.99) == {"accuracy, %": 91.0, "sparsity, %": 90.1}


def test_table_32_is_table_1_shifted():
    table, worst = resnet_tables.table_32(91.0)
    assert worst < 1e-9 and list(table.index) == ["SSS", "SPR", "MLA"]


def test_figures_draw_what_they_are_given():
    import matplotlib.pyplot as plt

    figure = frontier(
        {"std": [{"rows": [98, 92], "accuracy": [10, 12]}, {"rows": [98, 93], "accuracy": [11, 20]}]},
        [("rows", "x", ("std", "theorem"))],
        network=91,
        title="t",
    )
    line = figure.axes[0].lines[0]
    assert line.get_xdata() == pytest.approx([92.5, 98]) and line.get_ydata() == pytest.approx([16, 10.5])
    with pytest.raises(ValueError, match="no style for the curve 'other'"):
        frontier({"other": [{"rows": [98], "accuracy": [10]}]}, [("rows", "x", ("other",))], network=91, title="t")
    figure = by_layer({"l1": {"forced": [0.5, 0.4], "own": [0.5, -3.0]}}, "t")
    assert figure.axes[0].lines[1].get_ydata() == pytest.approx([0.5, -1.0])
    figure = against_images({"a": [10, 100]}, {"a": [50, 60]}, {"a": "name"}, network=91, title="t")
    assert figure.axes[0].lines[0].get_label() == "name" and figure.axes[0].lines[0].get_marker() == "o"
    figure = by_iteration(
        {f"{start}/0.5": {"accuracy": [1, 2], "gap": [3, 4]} for start in ("cold", "warm")},
        [0.5],
        network=91,
        title="t",
    )
    assert [axes.lines[0].get_ydata()[0] for axes in figure.axes] == [1, 3]
    plt.close("all")
