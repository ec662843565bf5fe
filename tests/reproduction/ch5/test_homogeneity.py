"""What the page on homogeneity says of the papers' tasks: their degree, and the linear maps that solve them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.synthetic.functions import addition, identity, subtraction
from data_gen.synthetic.rolling import rolling_argmax, rolling_average
from data_gen.synthetic.spiky import spiky
from implicit_models.layers import ImplicitModel, ImplicitRNN
from reproduction.ch5_depth import compute as depth_study
from reproduction.models.mlp import MLP
from reproduction.models.transformer import DepthwiseEncoder


def fitted(data):
    """Least-squares D and its largest error on the training set."""
    u, y = data.u_train.astype(float), data.y_train.astype(float)
    solution = np.linalg.lstsq(u, y, rcond=None)[0].T
    return solution, np.abs(u @ solution.T - y).max()


def test_a_linear_map_solves_the_tasks_of_degree_one():
    solution, error = fitted(identity(500, 1, shifts=[0], seed=1))
    assert error < 1e-5 and np.allclose(solution, np.eye(10), atol=1e-6)
    for generate, entries in ((addition, {0, 1, 2}), (subtraction, {-1, 0, 1})):
        solution, error = fitted(generate(500, 1, t=[2.0], seed=1))
        assert (
            error < 1e-4
            and set(np.round(solution[0]).astype(int)) <= entries
            and np.abs(solution - np.round(solution)).max() < 1e-5
        )
    solution, error = fitted(rolling_average(500, 1, shifts=[0.0], seed=1))
    assert error < 1e-5 and np.allclose(solution, np.tril(np.ones((10, 10))) / np.arange(1, 11)[:, None], atol=1e-5)


def test_identity_scores_solve_the_argmax():
    data = rolling_argmax(500, 1, scales=[1.0], seed=1)
    assert (data.u_train.argmax(axis=1) == data.y_train[:, -1]).all()


@given(st.integers(0, 500), st.floats(1e-2, 1e3))
@settings(max_examples=20, deadline=None)
def test_models_without_biases_have_degree_one(seed, t):
    generator = torch.Generator().manual_seed(seed)
    u, sequences = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (4, 5, 1)))
    for model, inputs in (
        (ImplicitModel(3, 2, 5, seed=seed, tol=1e-13), u),
        (MLP((3, 5, 5, 2), bias=False, seed=seed), u),
        (ImplicitRNN(1, 3, 5, seed=seed, tol=1e-13), sequences),
    ):
        model = model.double()
        outputs = [model(scale * inputs) for scale in (1.0, t)]
        near, far = (o[0] if isinstance(o, tuple) else o for o in outputs)
        assert torch.allclose(far, t * near, rtol=1e-6, atol=1e-9 * t)


@pytest.mark.parametrize(
    "model",
    [
        ImplicitModel(10, 10, 5, bias=True, seed=0),
        ImplicitModel(10, 10, 5, activation="tanh", skip=False, seed=0),
        MLP((10, 5, 10), seed=0),
        DepthwiseEncoder(10, seed=0).eval(),
    ],
)
def test_biases_saturation_and_normalisation_break_it(model):
    if isinstance(model, ImplicitModel) and model.b is not None:
        with torch.no_grad():
            model.b.fill_(0.3)
    u = torch.randn(20, 10, generator=torch.Generator().manual_seed(0))
    near, far = model(u), model(1000 * u)
    assert (far - 1000 * near).norm() > 0.01 * (1000 * near).norm()


def test_an_absolute_tolerance_lets_small_inputs_pass_after_one_step():
    """By the papers' rule; the state after that step is far from the equilibrium, relative to its size."""
    model = ImplicitModel(3, 2, 5, seed=0)
    u = np.random.default_rng(0).standard_normal((20, 3))
    assert depth_study.counts(model, 1e-7 * u).tolist() == [1] * 20
    exact, first = depth_study.equilibria(model, u), np.maximum(u @ depth_study.matrices(model)["B"].T, 0)
    assert np.linalg.norm(exact - first) > 0.05 * np.linalg.norm(exact)


def regimes(windows):
    """Windows with their targets that lie in a spike, outside, and across an entry or exit."""
    return windows.all(axis=1), ~windows.any(axis=1), windows.any(axis=1) & ~windows.all(axis=1)


def test_one_linear_map_continues_the_interior_of_spikes_and_no_other_part():
    data = spiky(noise=0.5, seed=0)
    masks = [np.lib.stride_tricks.sliding_window_view(part, 11) for part in np.split(data.meta["spiky"], [7_000])]
    inside, calm, across = regimes(masks[1])
    u, y = data.u_train.astype(float), data.y_train[:, 0].astype(float)
    far, target = (array.astype(float) for array in data.test[0])

    def errors(where):
        weights = np.linalg.lstsq(u[where], y[where], rcond=None)[0]
        return weights, (far @ weights - target[:, 0]) ** 2

    trained_inside, trained_calm, _ = regimes(masks[0])
    weights, squared = errors(trained_inside)
    assert squared[inside].max() < 1e-8 < 1 < squared[across].mean()
    # the noise of variance 1/4 is multiplied by the squared length of the weights
    assert squared[calm].mean() == pytest.approx(0.25 * (1 + weights @ weights), rel=0.1) and weights @ weights > 100
    for scale in (1e-3, 1e3):
        assert np.allclose(scale * far[inside] @ weights, scale * target[inside, 0], rtol=1e-3, atol=1e-3 * scale)
    _, squared = errors(trained_calm)
    sine = np.sin(100 / 9999 * np.arange(7_010, 10_000))[calm]
    assert 0.25 < squared[calm].mean() < 0.3 < np.mean(sine**2)  # the sine is foreseen, the noise is not
    _, squared = errors(slice(None))
    assert squared[inside].mean() > 1 and squared[calm].mean() > 2 * 0.25


def test_the_model_is_of_degree_one_in_prices():
    rng = np.random.default_rng(0)
    prices, model = (
        20 + rng.standard_normal((6, 10)).cumsum(axis=1),
        ImplicitModel(10, 1, 5, seed=0, tol=1e-13).double(),
    )
    near, far = (model(torch.as_tensor(scale * prices)).detach().numpy() for scale in (1, 7))
    assert np.allclose(far, 7 * near)


def test_the_deviation_of_differences_vanishes_on_lines():
    steps = np.diff(3.0 + 2.0 * np.arange(8))
    assert steps.std() == 0 < np.sqrt(np.mean(steps**2))
