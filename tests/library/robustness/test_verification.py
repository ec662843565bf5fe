"""Answers on properties: against enumeration of activation patterns, inputs at hand, and the checker."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from implicit_models import ImplicitModel
from implicit_models.compose import from_network
from implicit_models.robustness.layered.input_splits import SplitTree
from implicit_models.robustness.layered.unit_tree import UnitTree
from implicit_models.robustness.properties import Polyhedron, Property, keeps_label
from implicit_models.robustness.verification.proof import check_verification
from implicit_models.robustness.verification.search import verify_property


def small(seed, widths=(2, 4, 3, 2)):
    torch.manual_seed(seed)
    modules = []
    for a, b in zip(widths[:-1], widths[1:], strict=True):
        modules += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*modules[:-1]).double()


def least(network, lower, upper, row):
    """min of row'y over the box: a linear programme for each pattern of the units."""
    weights = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in network if isinstance(m, nn.Linear)]
    best = np.inf
    for pattern in itertools.product([0, 1], repeat=sum(len(b) for _, b in weights[:-1])):
        M, c, rows, right, at = np.eye(len(lower)), np.zeros(len(lower)), [], [], 0
        for W, b in weights[:-1]:
            M, c = W @ M, W @ c + b
            on = np.array(pattern[at : at + len(b)])
            at += len(b)
            sign = np.where(on, -1.0, 1.0)
            rows.append(sign[:, None] * M)
            right.append(-sign * c)
            M, c = on[:, None] * M, on * c
        W, b = weights[-1]
        box = list(zip(lower, upper, strict=True))
        found = linprog(row @ W @ M, np.concatenate(rows), np.concatenate(right), bounds=box)
        if found.success:
            best = min(best, found.fun + float(row @ (W @ c + b)))
    return best


@pytest.mark.parametrize("splits", ["inputs", "units"])
@pytest.mark.parametrize("seed", range(4))
def test_verdicts_on_both_sides_of_the_exact_minimum(seed, splits):
    network, row = small(seed), np.array([1.0, -1.0])
    lower, upper = np.array([-1.0, -0.5]), np.array([1.0, 1.5])
    minimum, model = least(network, lower, upper, row), from_network(network, 2)
    safe = Property(lower, upper, (Polyhedron(row[None], np.array([minimum - 1e-3])),))
    found = verify_property(model, safe, timeout=60, splits=splits)
    assert found.status == "safe" and found.witness is None and check_verification(model, safe, found)
    unsafe = Property(lower, upper, (Polyhedron(row[None], np.array([minimum + 1e-3])),))
    found = verify_property(model, unsafe, timeout=60, splits=splits)
    assert found.status == "unsafe" and not check_verification(model, unsafe, found)
    y = network(torch.from_numpy(found.witness)).detach().numpy()
    assert row @ y <= minimum + 1e-3 and (lower <= found.witness).all() and (found.witness <= upper).all()


def test_a_conjunction_needs_all_of_its_rows():
    """y = (u, -u) on [-1, 1]: y_0 <= -0.5 is reached and y_1 <= -0.5 too, both together never."""
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network[2].weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    model, half = from_network(network, 1), np.array([-0.5])
    rows = np.eye(2)
    both = Property([-1.0], [1.0], (Polyhedron(rows, np.array([-0.5, -0.5])),))
    either = Property([-1.0], [1.0], tuple(Polyhedron(rows[k : k + 1], half) for k in range(2)))
    for splits in ("inputs", "units"):
        found = verify_property(model, both, splits=splits)
        assert found.status == "safe" and check_verification(model, both, found)
        assert verify_property(model, either, splits=splits).status == "unsafe"


def test_a_label_that_is_kept():
    network = small(7, (3, 6, 6, 4))
    u = np.array([0.2, -0.1, 0.4])
    label = int(network(torch.from_numpy(u)).argmax())
    model = from_network(network, 3)
    assert verify_property(model, keeps_label(u - 1e-4, u + 1e-4, label, 4), timeout=60).status == "safe"
    wrong = keeps_label(u - 1e-4, u + 1e-4, (label + 1) % 4, 4)
    assert verify_property(model, wrong, timeout=60).status == "unsafe"


def test_an_interrupted_search_goes_on(tmp_path, monkeypatch):
    network, row = small(1, (3, 8, 8, 2)), np.array([1.0, -1.0])
    lower, upper = -np.ones(3), np.ones(3)
    model, path = from_network(network, 3), tmp_path / "search.npz"
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 3), -1).reshape(-1, 3)
    near = float((network(torch.from_numpy(grid)).detach().numpy() @ row).min())
    wanted = Property(lower, upper, (Polyhedron(row[None], np.array([near - 0.05])),))
    assert verify_property(model, wanted, timeout=0.0, checkpoint=path).reason == "timeout" and path.exists()
    step, calls = input_step(), []

    def interrupted(self, most):
        calls.append(most)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(self, most)

    monkeypatch.setattr("implicit_models.robustness.layered.input_splits.InputSearch.step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify_property(model, wanted, batch=4, checkpoint=path)
    monkeypatch.undo()
    found = verify_property(model, wanted, timeout=120, checkpoint=path)
    assert found.status == "safe" and found.nodes > 4 and check_verification(model, wanted, found)
    other = dataclasses.replace(wanted, lower=lower - 1)
    with pytest.raises(ValueError, match="of another property"):
        verify_property(model, other, checkpoint=path)


def input_step():
    from implicit_models.robustness.layered.input_splits import InputSearch

    return InputSearch.step


def test_trees_that_do_not_cover_the_box_are_refused():
    network, row = small(0), np.array([1.0, -1.0])
    lower, upper = np.array([-1.0, -0.5]), np.array([1.0, 1.5])
    model = from_network(network, 2)
    minimum = least(network, lower, upper, row)
    wanted = Property(lower, upper, (Polyhedron(row[None], np.array([minimum - 1e-2])),))
    found = verify_property(model, wanted)
    outside = SplitTree(np.array([0, -1, -1]), np.array([5.0, 0, 0]), np.array([[1, 2], [-1, -1], [-1, -1]]))
    circle = SplitTree(np.array([0, 0, -1]), np.zeros(3), np.array([[1, 2], [1, 2], [-1, -1]]))
    for tree in (outside, circle):
        assert not check_verification(model, wanted, dataclasses.replace(found, tree=tree))
    wrong = Property(lower, upper, (Polyhedron(row[None], np.array([minimum + 1e-2])),))
    assert not check_verification(model, wrong, found)


def test_what_does_not_fit_is_named():
    model = from_network(small(0), 2)
    with pytest.raises(ValueError, match="3 inputs and 2 outputs, the model has 2 and 2"):
        verify_property(model, keeps_label(np.zeros(3), np.ones(3), 0, 2))
    feedback = ImplicitModel(2, 2, 3, seed=0)
    with pytest.raises(ValueError, match="feeds back: use certify"):
        verify_property(feedback, keeps_label(np.zeros(2), np.ones(2), 0, 2))
    with pytest.raises(ValueError, match=r"input 1 must lie between finite ends, got \[0.0, -1.0\]"):
        Property([0.0, 0.0], [1.0, -1.0], (Polyhedron(np.eye(2), np.zeros(2)),))
    with pytest.raises(ValueError, match="row 1 of a polyhedron"):
        Polyhedron(np.array([[1.0], [np.nan]]), np.zeros(2))


def test_a_search_goes_on_for_its_own_model_only(tmp_path):
    path, wanted = (
        tmp_path / "search.npz",
        Property(-np.ones(2), np.ones(2), (Polyhedron(np.eye(2)[:1], np.full(1, -50.0)),)),
    )
    verify_property(from_network(small(0), 2), wanted, timeout=0.0, checkpoint=path)
    assert path.exists()
    with pytest.raises(ValueError, match="another model"):
        verify_property(from_network(small(1), 2), wanted, checkpoint=path)


def test_a_part_that_cannot_be_halved_ends_the_search():
    network = nn.Sequential(nn.Linear(1, 1)).double()
    with torch.no_grad():
        network[0].weight.fill_(1.0)
        network[0].bias.zero_()
    edge = Property(np.ones(1), np.ones(1), (Polyhedron(-np.ones((1, 1)), -np.ones(1)),))
    found = verify_property(from_network(network, 1), edge, timeout=20)
    assert found.status == "unknown" and "edge" in found.reason and found.nodes == 1


def test_strict_rows_are_not_broken_on_their_edge():
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU()).double()
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.zero_()
    below = Polyhedron(np.ones((1, 1)), np.zeros(1), strict=np.ones(1, bool))
    wanted = Property(np.zeros(1), np.ones(1), (below,))
    assert verify_property(from_network(network, 1), wanted, timeout=0.2).status != "unsafe"


def leaky(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, 5), nn.LeakyReLU(0.2), nn.Linear(5, 5), nn.LeakyReLU(0.2), nn.Linear(5, 2)
    ).double()


def convolutional(seed):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3, stride=2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, 5, 5)), *layers, nn.Linear(8, 2)).double()


class Residual(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, u):
        x = torch.relu(self.first(u))
        return self.last(torch.relu(self.second(x) + x))


@pytest.mark.parametrize("make", [leaky, convolutional, lambda seed: Residual(seed).double()])
@pytest.mark.parametrize("seed", range(3))
def test_units_and_samples_agree(make, seed):
    """No safe answer above the least value of ten thousand inputs, and a proof well below it."""
    network, row = make(seed), np.array([1.0, -1.0])
    p = 25 if make is convolutional else 3
    model, generator = from_network(network, p), np.random.default_rng(seed)
    centre = generator.normal(size=p)
    lower, upper = centre - 0.6, centre + 0.6
    u = generator.uniform(lower, upper, size=(10_000, p))
    near = float((network(torch.from_numpy(u)).detach().numpy() @ row).min())
    wanted = Property(lower, upper, (Polyhedron(row[None], np.array([near + 1e-6])),))
    assert verify_property(model, wanted, timeout=20, splits="units").status != "safe"
    wanted = Property(lower, upper, (Polyhedron(row[None], np.array([near - 0.5])),))
    found = verify_property(model, wanted, timeout=60, splits="units")
    if found.status == "unsafe":  # steps of the gradient go below samples
        assert row @ network(torch.from_numpy(found.witness[None])).detach().numpy()[0] <= near - 0.5
    else:
        assert found.status == "safe" and check_verification(model, wanted, found)


def deep_answer():
    network, row = small(5, (4, 8, 8, 2)), np.array([1.0, -1.0])
    lower, upper = -np.ones(4), np.ones(4)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 13)] * 4), -1).reshape(-1, 4)
    near = float((network(torch.from_numpy(grid)).detach().numpy() @ row).min())
    wanted = Property(lower, upper, (Polyhedron(row[None], np.array([near - 0.02])),))
    return from_network(network, 4), wanted


def test_proofs_of_parts_with_signs_cannot_be_forged():
    model, wanted = deep_answer()
    found = verify_property(model, wanted, timeout=60, splits="units")
    tree = found.tree
    assert found.status == "safe" and isinstance(tree, UnitTree) and len(tree.unit) > 3
    assert check_verification(model, wanted, found)

    def forged(**changes):
        return dataclasses.replace(found, tree=dataclasses.replace(tree, **changes))

    leaf = int(np.flatnonzero(tree.unit < 0)[0])
    unproved = forged(multipliers={**tree.multipliers, leaf: np.zeros_like(tree.multipliers[leaf])})
    one_side = tree.children.copy()
    one_side[0] = one_side[0, 0]
    twice = tree.unit.copy()
    twice[tree.children[0]] = twice[0]
    missing = {k: v for k, v in tree.multipliers.items() if k != leaf}
    for wrong in (
        unproved,
        forged(unit=np.full_like(tree.unit, -1)),
        forged(children=one_side),
        forged(unit=twice),
        forged(multipliers=missing),
        forged(multipliers=None),
        forged(weights=-tree.weights),
        forged(weights=0 * tree.weights),
    ):
        assert not check_verification(model, wanted, wrong)
    harder = dataclasses.replace(wanted, unsafe=(Polyhedron(wanted.unsafe[0].A, wanted.unsafe[0].b + 0.05),))
    assert not check_verification(model, harder, found)


def test_an_interrupted_search_over_units_goes_on(tmp_path):
    model, wanted = deep_answer()
    path, nodes = tmp_path / "search.npz", 0
    for _ in range(100):
        found = verify_property(model, wanted, timeout=0.3, splits="units", batch=2, checkpoint=path)
        assert found.nodes >= nodes
        nodes = found.nodes
        if found.status == "safe":
            break
    assert found.status == "safe" and check_verification(model, wanted, found)
    with pytest.raises(ValueError, match="another kind of splits, UnitSearch"):
        verify_property(model, wanted, splits="inputs", checkpoint=path)


def test_splits_that_there_are_not():
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    model, wanted = from_network(network, 2), keeps_label(np.zeros(2), np.ones(2), 0, 2)
    with pytest.raises(ValueError, match="no unit of this network has a kink"):
        verify_property(model, wanted, splits="units")
    with pytest.raises(ValueError, match="'auto', 'inputs' or 'units', got 'relu'"):
        verify_property(model, wanted, splits="relu")
