"""Attack tables: rates counted by hand, programmes whose answer is known, nested JSMA, and figures of marked pixels."""

import numpy as np
import pytest
import torch

from data_gen.core.dataset import Dataset
from implicit_models.model import ImplicitModel
from implicit_models.robustness.attacks.methods import Attack, attack
from implicit_models.robustness.input_sets import Replace, SparseBox
from reproduction.ch4_attacks import compute as tables
from reproduction.ch4_attacks.discrepancy import discrepancy_facts, few_pixels_gap
from reproduction.ch4_attacks.show import RED, attacked_images, success_against_share, with_marks
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def network():
    return MLP((16, 12, 6, 3), seed=3).eval()


@pytest.fixture(scope="module")
def images(network):
    u = np.random.default_rng(0).random((120, 16)).astype(np.float32)
    with torch.no_grad():
        y = network(torch.from_numpy(u)).argmax(1).numpy()
    y[:20] = (y[:20] + 1) % 3  # twenty samples are wrong before any attack
    return Dataset(u, y, {0: (u, y)}, {"name": "squares", "classes": ("a", "b", "c")})


def test_shares_of_pixels():
    assert [tables.pixels(share, 784) for share in tables.SHARES] == [1, 8, 78, 157, 235]
    with pytest.raises(ValueError, match="share"):
        tables.pixels(101, 784)


def test_rate_leaves_out_what_was_wrong():
    found = Attack(np.zeros((4, 2)), np.array([True, False, False, False]), np.zeros(4, dtype=int))
    assert tables.rate(found, np.array([True, True, False, False])) == 50
    assert np.isnan(tables.rate(found, np.zeros(4, dtype=bool)))


def test_table_counts_right_samples_and_jsma_is_nested(network, images):
    u, y = images.test[0]
    table = tables.share_table(network, u, y, [10, 50], 0)
    right = tables.is_right(network, u, y)
    assert right.sum() == 100
    for position, k in enumerate((2, 8)):  # each k on its own gives what one run with the largest k tells
        found = attack(network, u, y, SparseBox(float("inf"), k, clip=(0, 1)), "jsma")
        assert table["sign"]["jsma"][position] == pytest.approx(found.success[right].mean() * 100)
    found = attack(network, u, y, Replace(0.0, 1.0, 8), "random", seed=0)
    assert table["replace"]["random"][1] == pytest.approx(found.success.sum())
    # wrong samples count here: the share is at least what remains of them, and more than the successes alone unless
    # some became right
    moved = np.asarray(network(torch.from_numpy(found.U_adv.astype(np.float32))).argmax(1)) != y
    assert table["wrong"]["random"][1] == pytest.approx(100 * moved.mean(), abs=1)
    assert set(table["replace"]) == set(tables.COLUMNS) and set(table["sign"]) == {*tables.COLUMNS, "jsma"}


def test_first_right_samples(network, images):
    u, y = tables.classified_right(network, images, 7)
    assert np.array_equal(u, images.test[0][0][20:27].astype(float)) and np.array_equal(y, images.test[0][1][20:27])


def test_a_surrogate_equal_to_the_network_ranks_as_it_does(network, images):
    found = tables.transfer_table(
        network, network, MLP((16, 12, 6, 3), seed=3).eval(), images, *images.test[0], [25], 0
    )
    assert (
        found["own"] == found["surrogate"] == found["untrained"]
        and found["own_gradient"] == found["surrogate_gradient"]
    )
    u, y = images.test[0]
    right = tables.is_right(network, u, y)
    expected = attack(network, u, y, Replace(0.0, 1.0, 4), "sensitivity", seed=0)
    assert found["own"][0] == pytest.approx(tables.rate(expected, right))


@pytest.mark.parametrize("kind", ["feed-forward", "feedback"])
def test_discrepancy_says_nothing_of_u(network, images, kind):
    pytest.importorskip("highspy")
    model = network if kind == "feed-forward" else ImplicitModel(16, 3, 8, kappa=0.8, seed=1)
    facts = discrepancy_facts(tables.as_problem(model), images.test[0][0][:4].astype(float), 0.05, 0)
    assert facts["gap"] < 1e-9 and facts["tied_gap"] < 1e-9 and facts["violation"] <= 1e-9
    assert facts["tied"] == 100  # the solver follows a tie of any signs


def test_margin_programme_is_no_worse_than_the_step(network, images):
    """On samples that are right: PGD and the margin's programme beat random signs; a larger radius does not fail
    more."""
    pytest.importorskip("highspy")
    task = tables.as_problem(network)
    u, y = tables.classified_right(network, images, 20)
    dense = tables.dense_rates(task, u, y, [0.02, 0.1], 0)
    assert set(dense) == set(tables.DENSE)
    for name in ("pgd", "fgsm", "lp_margin"):
        assert dense[name][1] >= dense[name][0] and dense[name][1] >= dense["random"][1]
    assert dense["lp_margin"][1] >= 0.8 * dense["pgd"][1] > 0
    found = tables.sparse_attacks(task, u, y, [3], 0)
    sparse = found["rate"]
    assert set(sparse) == set(tables.SPARSE) and sparse["jsma"][0] >= sparse["random"][0]
    assert max(value for each in found["changed"].values() for value in each) <= 3
    # a pixel that goes to 0 or 1 moves the states, and where none goes none moves
    assert all((found["changed"][name][0] > 0) == (found["moved"][name][0] > 0) for name in sparse)


def test_squared_discrepancy_over_few_pixels_is_the_trivial_sum(network, images):
    pytest.importorskip("highspy")
    task = tables.as_problem(network)
    assert few_pixels_gap(task, images.test[0][0][:3].astype(np.float64), 4) < 1e-9


def test_examples_are_successes_with_their_marks(network, images):
    u, y = images.test[0]
    options = {"dense": (0.3, "fgsm"), "sparse": (SparseBox(np.inf, 4, clip=(0.0, 1.0)), "gradient")}
    shown = tables.examples(network, u, y, options, 3, ["dense"])
    assert 0 < len(shown) <= 3
    for one in shown:
        clean, dense, sparse = one["panels"]
        assert (
            clean["predicted"] == one["label"] != dense["predicted"]
            and not dense["marked"]
            and 0 < len(sparse["marked"]) <= 4
        )
        changed = np.flatnonzero(np.abs(np.asarray(sparse["image"]) - np.asarray(clean["image"])) > 1e-3)
        assert set(changed) <= set(sparse["marked"])
    problems = tables.examples(tables.as_problem(network), u, y, {"dense": options["dense"]}, 3, ["dense"])
    assert [one["label"] for one in problems] == [one["label"] for one in shown]


def test_costs_are_times(network, images):
    assert all(value >= 0 for value in tables.costs(network, *images.test[0]).values())


def test_marked_pixels_are_red():
    shown = with_marks([0.0, 0.5, 1.0, 2.0], [1])
    assert (
        shown.shape == (2, 2, 3)
        and np.allclose(shown[0, 1], RED)
        and np.allclose(shown[1], 1)
        and np.allclose(shown[0, 0], 0)
    )
    with pytest.raises(ValueError, match="square"):
        with_marks([0.0] * 5, [])
    planes = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    colours = with_marks(planes, [3])
    assert (
        np.array_equal(colours.reshape(4, 3)[:3], np.eye(3)) and np.allclose(colours[1, 1], RED) and planes[0, 3] == 0
    )


def test_figures(network, images):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    options = {"dense": (0.3, "fgsm"), "sparse": (SparseBox(np.inf, 4, clip=(0.0, 1.0)), "gradient")}
    shown = tables.examples(network, *images.test[0], options, 2, ["dense"])
    figure = attacked_images(shown, images.meta["classes"], "squares")
    assert len(figure.axes) == 2 * 4  # clean, dense, sparse, sparse marked
    labels = [axes.get_xlabel() for axes in figure.axes[:2]]
    assert labels == [images.meta["classes"][one["label"]] for one in shown]
    plt.close(figure)
    with pytest.raises(ValueError, match="no sample"):
        attacked_images([], images.meta["classes"], "")
    table = {protocol: {"sensitivity": [[1.0, 5.0], [3.0, 9.0]]} for protocol in tables.PROTOCOLS}
    figure = success_against_share({"squares": table}, [1.0, 10.0], "note")
    lines = figure.axes[0].lines
    assert any(np.allclose(line.get_ydata(), [2.0, 7.0]) for line in lines)  # medians over seeds
    plt.close(figure)
