"""Models under attack: counts, sweeps and controls on small networks."""

import numpy as np
import pytest
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.sim.fit import fit_sim
from implicit_models.sim.problem import L1, LeastSquares
from reproduction.ch3_sim_fashion.compute import (
    TABLE_2,
    TABLE_3,
    control_sweeps,
    dense_model,
    gathered,
    mean_above,
    radius_scores,
    samples_of,
    scores,
    sim_scores,
    weight_sweep,
)
from reproduction.core.pruning import nonzeros
from reproduction.core.recipe import Recipe
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def images():
    generator = np.random.default_rng(3)
    u = generator.standard_normal((360, 12)).astype(np.float32)
    y = (u[:, :2] @ np.array([[1.0, -1.0, 0.3], [0.4, 1.0, -1.0]], dtype=np.float32)).argmax(axis=1)
    return Dataset(u[:240], y[:240], {0: (u[240:], y[240:])}, {"classes": ["a", "b", "c"], "name": "toy"})


@pytest.fixture(scope="module")
def network():
    return MLP((12, 9, 6, 3), seed=1).eval()


def test_a_linear_model_loses_what_its_margin_says(images):
    # logits (w u, 0, -inf-like): the attack moves the margin w u by eps |w| on the masked half, whichever pixels they
    # are
    model = nn.Linear(12, 2, bias=False).eval()
    with torch.no_grad():
        model.weight[0], model.weight[1] = 1.0, 0.0
    u = np.zeros((4, 12), dtype=np.float32)
    u[:, 0] = [0.02, 0.03, 0.06, -1.0]
    labels = np.array([0, 0, 0, 1])
    posts = Dataset(u, labels, {0: (u, labels)}, {"classes": ["a", "b"]})
    found = scores(model, 12, model, posts, 4)
    # six of twelve pixels move by .004: .024 > .02, < .03; by .008: .048 > .03, < .06
    assert (found["clean"], found["at_0.004"], found["at_0.008"]) == (100, 75, 50)
    assert found["sparsity"] == 0 and found["nnz"] == 12


def test_the_dense_model_is_the_fit(images, network):
    fit = fit_sim(samples_of(network, images, 60, 0), objective=L1(0.02), kappa=0.9)
    u = images.test[0][0]
    with torch.no_grad():
        assert np.abs(dense_model(fit)(torch.as_tensor(u).double()).numpy() - fit.predict(u)).max() < 1e-6


def test_samples_of_one_seed_are_nested(images, network):
    small, large = (samples_of(network, images, m, 5).U for m in (20, 60))
    assert small.shape == (20, 12) and np.array_equal(small, large[:20])


def test_tables_hold_the_printed_settings():
    assert sorted(TABLE_2) == [100, 200, 300, 400, 500, 700] and sorted(TABLE_3) == [400, 500, 600, 900, 1000, 2000]
    assert TABLE_3[500] == {"objective": L1(0.01), "match": LeastSquares(0.01, 0.01)}
    assert TABLE_2[700]["objective"].alpha == 0.01 and TABLE_3[600]["match"].lambda1 == 0.1


def test_a_larger_weight_is_sparser_and_ridge_is_not(images, network):
    found = samples_of(network, images, 100, 0)
    l1 = weight_sweep(found, network, images, 40, [0.05, 0.5, 5.0], "l1", scale="theorem")
    assert np.all(np.diff(l1["nnz"]) < 0) and sum(l1["failed"]) == 0 and max(l1["row_norm"]) <= 0.99 + 1e-9
    ridge = weight_sweep(found, network, images, 40, [0.05], "l2", scale="theorem", feedback="strict_upper")
    # every weight that strict_upper allows: 9 (12 + 1), 6 (9 + 13), 3 (15 + 13)
    assert ridge["nnz"] == [9 * 13 + 6 * 22 + 3 * 28] and ridge["own"] == [0]


def test_weights_are_those_of_the_rows(images, network):
    """The same penalty through the paper's weights and through the sweep's; knee 1 has the l1 support where nothing
    passes the knee."""
    found = samples_of(network, images, 80, 0)
    swept = weight_sweep(found, network, images, 40, [0.3], "l1", scale="theorem")
    direct = sim_scores(found, network, images, 40, objective=L1(0.03), match=LeastSquares(0.05, 0.05), scale="theorem")
    assert swept["nnz"] == [direct["nnz"]] and swept["mismatch"][0] == pytest.approx(direct["mismatch"], rel=1e-6)
    far = weight_sweep(found, network, images, 40, [0.3], "perspective", knee=50.0, scale="theorem")
    assert far["nnz"] == swept["nnz"] and far["mismatch"][0] == pytest.approx(swept["mismatch"][0], rel=1e-3)


def test_controls(images, network):
    found = samples_of(network, images, 80, 0)
    recipe = Recipe(epochs=2, lr=0.01, batch_size=40, loss="cross_entropy")
    controls = control_sweeps(
        found,
        network,
        images,
        60,
        [20, 60],
        [0.3, 0.05],
        build=lambda: MLP((12, 9, 6, 3), seed=2),
        recipe=recipe,
        seed=0,
        samples=80,
    )
    assert controls["teacher"]["nnz"] == [nonzeros(network)] and controls["teacher"]["sparsity"] == [0]
    for name in ("magnitude", "magnitude_retrained"):
        assert controls[name]["sparsity"] == pytest.approx([20, 60], abs=100 / nonzeros(network))
    assert controls["lasso"]["nnz"][0] < controls["lasso"]["nnz"][1]
    assert controls["dense"]["clean"][0] > 40


def test_a_large_ball_is_the_network(images, network):
    found = samples_of(network, images, 240, 0)
    model = radius_scores(found, network, images, 120, 0.99, scale="uniform", feedback="strict_upper")
    teacher = scores(network, nonzeros(network), network, images, 120)
    assert abs(model["clean"] - teacher["clean"]) <= 2


def test_mean_above():
    flat = {"sparsity": [10.0, 90.0], "a": [50.0, 50.0]}
    rising = {"sparsity": [80.0, 20.0], "a": [80.0, 20.0]}
    assert mean_above(rising, flat, "a") == pytest.approx(0, abs=1e-9)
    assert mean_above({"sparsity": [20.0, 80.0], "a": [53.0, 53.0]}, flat, "a") == pytest.approx(3)
    assert np.isnan(mean_above({"sparsity": [91.0, 95.0], "a": [1.0, 1.0]}, flat, "a"))
    assert gathered([{"a": 1.0}, {"a": 2.0}]) == {"a": [1.0, 2.0]} and gathered([]) == {}
