"""The study of sensitivity matrices on a network whose matrix is known, and its facts by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from data_gen.core.dataset import Dataset
from implicit_models.robustness.problem import from_matrices
from implicit_models.robustness.sensitivity import sensitivity_matrix
from reproduction.ch4_sensitivity import compute as study
from reproduction.ch4_sensitivity.show import matrix_and_row_sums, row_images, rows_against_gain
from reproduction.models.mlp import MLP


@pytest.fixture(scope="module")
def images():
    """Two classes of 3 x 3 pixels: ink in the first row, or in the last."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    u = 0.2 * rng.random((300, 9)).astype(np.float32)
    u[y == 0, :3] += 0.7
    u[y == 1, 6:] += 0.7
    return Dataset(u_train=u[:200], y_train=y[:200], test={0: (u[200:], y[200:])}, meta={"classes": ("top", "bottom")})


def linear(weight):
    """y = W u through a hidden identity: relu of non-negative inputs."""
    model = MLP((9, 9, 2), seed=0)
    with torch.no_grad():
        first, last = (layer for layer in model.layers if isinstance(layer, nn.Linear))
        first.weight.copy_(torch.eye(9))
        first.bias.zero_()
        last.weight.copy_(torch.as_tensor(weight, dtype=torch.float32))
        last.bias.zero_()
    return model.eval()


DETECTOR = np.array([[1.0] * 3 + [0.0] * 6, [0.0] * 6 + [1.0] * 3])


def test_published_iteration_and_three_ways():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    A *= 0.8 / np.abs(A).sum(1).max()
    task = from_matrices(A, rng.standard_normal((6, 3)), rng.standard_normal((2, 6)))
    S, steps = study.published_iteration(task)
    np.testing.assert_allclose(S, sensitivity_matrix(task).S, rtol=1e-10)
    assert steps > 20
    ways = study.three_ways(MLP((5, 4, 3), seed=0))
    assert (
        ways["steps"] == 2 and max(ways["iteration_error"], ways["closed_error"], ways["excess"]) < 1e-9
    )  # X(2) = X(1): one hidden layer


def test_pixel_facts_of_a_network_that_looks_at_its_class(images):
    model = linear(DETECTOR)
    S = sensitivity_matrix(model).S
    np.testing.assert_allclose(S, DETECTOR)
    facts = study.pixel_facts(model, S, S, images, seed=0, share=1 / 3)
    assert facts["own_is_best"] == 1 and facts["own"] > 0.95 > facts["other"]
    assert facts["before"] == pytest.approx(1) and facts["between"] == pytest.approx(np.corrcoef(DETECTOR)[0, 1])
    # without its row of pixels a class is never found, without another it always is
    assert facts["kept"] == 1 and facts["top"] < 0.2 and facts["ink"] == facts["top"]
    assert facts["random"] > facts["top"]
    assert facts["first_own"] > 0.95 > facts["first_other"] and facts["first_kept"] == 1 and facts["first_top"] < 0.4


def test_deviations_of_a_linear_network_reach_the_bound(images):
    model = linear(DETECTOR)
    S = sensitivity_matrix(model).S
    u = images.test[0][0] + 0.1  # far from the kinks
    found = study.deviations(model, S, u, 0.01, 0)
    assert (
        found["largest"] == pytest.approx(1, abs=1e-4)
        and found["median"] == pytest.approx(1, abs=1e-4)
        and found["violations"] == 0
    )
    assert found["random"] < 1
    assert study.deviations(model, 0.5 * S, u, 0.01, 0)["violations"] > 0


def test_the_matrix_has_no_image_in_it(images):
    model = linear(DETECTOR)
    found = study.image_dependence(model, sensitivity_matrix(model).S, images)
    assert found["matrix"] == 0 and found["inside"] == 1


def test_class_facts_by_hand(images):
    S = np.diag([1.0, 2.0, 4.0])
    facts = study.class_facts(S, np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.6, 0.4]))
    assert facts == {"ratio": 4.0, "with_error": pytest.approx(1), "with_gain": pytest.approx(1)}
    assert np.isnan(study.rank_correlation([1, 1], [1, 2]))
    np.testing.assert_array_equal(study.class_accuracy(linear(DETECTOR), images), [1, 1])
    assert study.accuracy_on_test(linear(DETECTOR), images) == 1


def test_random_models_and_the_proof_of_theorem_5():
    facts = study.blockwise_facts(6, 1)
    assert facts["violations"] == 0 and 0 < facts["softmax"] < facts["relu"] <= facts["largest"] <= 1
    facts = study.theorem_5_facts()
    assert facts["inverse_bound"] < 0 < facts["inverse_moved"] and facts["step_left"] > facts["step_right"]


def test_a_network_of_the_study_and_missing_images(images, tmp_path, monkeypatch):
    from reproduction.core import cache as trained

    monkeypatch.setattr(trained, "cache_dir", lambda: tmp_path)
    named = Dataset(images.u_train, images.y_train, images.test, {**images.meta, "name": "rows"})
    model = study.network(named, 0, epochs=20)
    assert study.accuracy_on_test(model, named) > 0.95 and not model.training
    assert sensitivity_matrix(model).S.shape == (2, 9)
    few = study.network(named, 0, epochs=20, share=0.1)
    assert not torch.equal(few.layers[0].weight, model.layers[0].weight)

    def missing(*args, **kwargs):
        raise study.DatasetUnavailable("mnist", [], "none")

    monkeypatch.setattr(study, "load", missing)
    assert study.images_of("mnist", "quick") is None


def test_figures_have_a_panel_for_each_matrix_and_class():
    import matplotlib.pyplot as plt

    S = [[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]]
    figure = matrix_and_row_sums({"one": S, "two": S}, {"one": ["a", "b"], "two": ["c", "d"]})
    bars = [axes for axes in figure.axes if axes.patches]
    assert [[bar.get_height() for bar in axes.patches] for axes in bars] == [[6, 4], [6, 4]]
    figure = row_images(S, ["a", "b"], "rows")
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert all(axes.images[0].get_clim() == (0, 3) for axes in figure.axes)  # one colour scale
    figure = rows_against_gain({"one": {"row_sum": [1, 2], "gain": [0.1, 0.2]}})
    np.testing.assert_allclose(figure.axes[0].collections[0].get_offsets(), [[1, 10], [2, 20]])
    plt.close("all")
