"""What the tutorial measures: budgets as texts, pruning at equal multiplications, bytes, what trains, and the page's
numbers."""

import copy
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

from implicit_models.sim.layerwise import sparsify
from implicit_models.sim.problem import Cardinality, L1Ball, L1Penalty
from reproduction.tutorial_sparsify import compute as tutorial
from reproduction.tutorial_sparsify import show
from reproduction.tutorial_sparsify.network import Task, small_network


@pytest.fixture(scope="module")
def task():
    network, generator = small_network(8, 3, 1), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in network.named_buffers():
            if name.endswith("running_mean"):
                t.normal_(generator=generator).mul_(0.1)
    network.eval()
    u = torch.rand(160, 1, 8, 8, generator=generator)
    with torch.no_grad():
        network[-1].bias.sub_(network(u).mean(0))  # else all samples are of one class
        y = network(u).argmax(1)
    assert y.bincount(minlength=3).min() > 20
    return Task(network, u[:100], y[:100], u[100:], y[100:])


@pytest.mark.parametrize(
    "text, budget",
    [
        ("Cardinality(0.1)", Cardinality(0.1)),
        (" L1Ball( 2 ) ", L1Ball(2.0)),
        ("L1Penalty(5e-2)", L1Penalty(0.05)),
        ("Cardinality(.25)", Cardinality(0.25)),
    ],
)
def test_budgets_as_texts(text, budget):
    assert tutorial.budget_of(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "Cardinality",
        "L1Ball()",
        "L1Ball(0.1, 0.2)",
        "keep(0.1)",
        "L1Ball(a)",
        "L1Ball(0.1) + 1",
        "__import__('os')",
        "",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match=r"budget must read Cardinality\(0.1\)"):
        tutorial.budget_of(text)
    with pytest.raises(ValueError, match="at most 1"):
        tutorial.budget_of("Cardinality(1.5)")


def test_accuracy_of_a_network_that_made_its_labels(task):
    assert tutorial.accuracy(task.network, task.u_test, task.y_test) == 100
    assert tutorial.accuracy(task.network, task.u_test, (task.y_test + 1) % 3) == 0


def test_variants_are_ordered_and_counted(task):
    found = tutorial.variant_points(task, [Cardinality(0.2), Cardinality(0.9)], 60)
    assert set(found) == set(tutorial.VARIANTS) and all(len(points) == 2 for points in found.values())
    for points in found.values():
        assert points[0]["sparsity"] > points[1]["sparsity"] and 0 < points[0]["fitted"] < 1
    assert found["shared"][0]["numbers"] > 0 > found["head"][1]["numbers"] and found["head"][0]["full_matrix"] > 97


def test_share_of_rows_is_that_of_the_fitted_layers(task):
    model = sparsify(task.network, task.u[:60], Cardinality(0.3))
    nnz = sum(getattr(model, f"A{k}").values().count_nonzero().item() for k in model.fitted)
    own = sum(model.layers.entries(k) for k in model.fitted)
    assert tutorial.share_of_rows(model.report) == pytest.approx(nnz / own)


def test_pruning_keeps_the_share_of_each_middle_layer_and_both_ends(task):
    sparse, masks = tutorial.pruned(task.network, 0.25)
    names = [name for name, weight in task.network.named_parameters() if weight.ndim >= 2]
    assert set(masks) == set(names[1:-1])
    for name in names:
        weight, own = sparse.get_parameter(name), task.network.get_parameter(name)
        if name in masks:
            assert weight.count_nonzero().item() == pytest.approx(0.25 * weight.numel(), abs=1)
            assert weight[weight != 0].abs().min() >= own[weight == 0].abs().max()
        else:
            assert torch.equal(weight, own)


def test_controls_take_the_sparsity_and_retraining_keeps_the_zeros(task):
    found = tutorial.control_points(task, [1.0, 0.05], [0.0, 80.0], 60, 2, 0)
    assert [p["sparsity"] for p in found["magnitude"]] == [0, 80] and found["magnitude"][0]["accuracy"] == 100
    assert found["magnitude"][1]["accuracy"] < 100 and len(found["magnitude_retrained"]) == 2
    sparse, masks = tutorial.pruned(task.network, 0.05)
    again, _ = tutorial.retrain(
        sparse, masks, task.u[:60], task.y[:60], recipe=tutorial.Recipe(2, lr=0.002, loss="cross_entropy"), seed=0
    )
    for name, mask in masks.items():
        assert not again.get_parameter(name)[~mask.bool()].any() and not torch.equal(
            again.get_parameter(name), sparse.get_parameter(name)
        ), name


def test_bytes_are_those_of_the_arrays(task):
    dense = sum(t.numel() * t.element_size() for t in (*task.network.parameters(), *task.network.buffers()))
    assert tutorial.stored_bytes(task.network) == dense
    model = sparsify(task.network, task.u[:60], Cardinality(0.3))
    expected = 4 * 12 * 9 + 4 * (model.head_weight.numel() + model.head_bias.numel())
    for k in model.fitted:
        A = getattr(model, f"A{k}")
        expected += (
            A._nnz() * (4 + A.col_indices().element_size())
            + (A.shape[0] + 1) * A.crow_indices().element_size()
            + 4 * A.shape[0]
        )
    assert tutorial.stored_bytes(model) == expected


def test_saved_whole_and_trained_on(task):
    model = sparsify(task.network, task.u[:60], Cardinality(0.3))
    assert not any(t.requires_grad for t in model.parameters())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    with torch.no_grad():
        assert torch.equal(again(task.u_test), model(task.u_test))
        before = nn.functional.cross_entropy(again(task.u), task.y)
    entries = {k: getattr(again, f"A{k}").values().clone() for k in again.fitted}
    shifts = again.b1.clone()
    tutorial.fine_tune(again, task.u, task.y, 5, 0)
    assert {name for name, t in again.named_parameters() if t.requires_grad} == {
        "head_weight",
        "head_bias",
        *(f"b{k}" for k in again.fitted),
    }
    assert all(torch.equal(getattr(again, f"A{k}").values(), entries[k]) for k in again.fitted) and not torch.equal(
        again.b1, shifts
    )
    with torch.no_grad():
        assert nn.functional.cross_entropy(again(task.u), task.y) < before


def test_what_the_page_says_of_copies(task):
    model, other = (sparsify(task.network, task.u[:60], Cardinality(share)) for share in (0.3, 0.3))
    other.b1.add_(1.0)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.b1, model.b1)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        assert torch.equal(twin(task.u_test), model(task.u_test))
        assert twin.double()(task.u_test.double()).dtype == torch.float64 and tutorial.stored_bytes(
            twin
        ) > tutorial.stored_bytes(model)


def test_a_sparse_matrix_gets_a_dense_gradient(task):
    """What the page says of the entries: where torch changes this, they can be trained and the page is to say so."""
    model = sparsify(task.network, task.u[:60], Cardinality(0.3))
    model.A1 = nn.Parameter(model.A1)
    model(task.u[:5]).sum().backward()
    assert model.A1.grad.layout == torch.strided and model.A1.grad.shape == model.A1.shape


def test_refusals_are_texts_of_errors():
    assert tutorial.refusal(lambda: 1 / 0) == "ZeroDivisionError: division by zero"
    with pytest.raises(RuntimeError, match="nothing was refused"):
        tutorial.refusal(lambda: None)


def test_table_of_layers(task):
    report = sparsify(task.network, task.u[:60], Cardinality(0.3), held_out=task.u[60:]).report
    rows = show.layer_rows(report)
    assert len(rows) == len(report.layers) == 3
    for row in rows.values():
        assert (
            row["status"].startswith("optimal: ")
            and row["R2, held out"] < row["R2, fit"]
            and row["entries"] < row["the network's"]
        )


def test_times_and_curve(task):
    assert tutorial.cpu_ms(task.network, task.u_test) >= 0
    figure, axes = plt.subplots()
    points = [
        [{"sparsity": 80.0, "accuracy": 60.0}, {"sparsity": 20.0, "accuracy": 90.0}],
        [{"sparsity": 82.0, "accuracy": 70.0}, {"sparsity": 22.0, "accuracy": 92.0}],
    ]
    show.tradeoff(axes, {"head": points}, 93.0)
    assert np.allclose(axes.containers[0].lines[0].get_xdata(), [21, 81]) and np.allclose(
        axes.containers[0].lines[0].get_ydata(), [91, 65]
    )
    plt.close(figure)
