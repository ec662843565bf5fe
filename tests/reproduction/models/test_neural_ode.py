"""Neural ODE: linear fields by the matrix exponential, order of the method, homogeneity."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from torch.testing import assert_close

from reproduction.core.scores import count_parameters
from reproduction.models.neural_ode import NeuralODE


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear_field(n_steps):
    """On the positive orthant, relu(z) = z: dz/dt = M z, whose flow is the matrix exponential."""
    model = NeuralODE(3, 3, 3, activation="relu", n_steps=n_steps, bias=False, seed=0).double()
    with torch.no_grad():
        model.inner.weight.copy_(torch.eye(3))
        model.outer.weight.copy_(normal(3, 3, seed=4).abs())  # keeps z positive
        model.head.weight.copy_(torch.eye(3))
    return model


def test_linear_field_by_the_matrix_exponential():
    u = normal(20, 3).abs()
    errors = []
    for n_steps in (16, 32, 64):
        model = linear_field(n_steps)
        exact = u @ torch.from_numpy(expm(model.outer.weight.detach().numpy())).T
        errors.append(float((model(u).detach() - exact).abs().max() / exact.abs().max()))
    for coarse, fine in zip(errors, errors[1:]):  # halving the step divides the error by 2^4
        assert coarse / fine == pytest.approx(2**4, rel=0.12)
    assert errors[-1] < 1e-6


def test_field_at_rest_is_the_identity():
    model = NeuralODE(4, 4, 6, seed=1).double()
    with torch.no_grad():
        model.outer.weight.zero_()
        model.outer.bias.copy_(torch.tensor([1.0, -2.0, 0.0, 0.5]))
    u = normal(5, 4)
    assert_close(model.flow(u), u + model.outer.bias)  # a constant field is followed exactly


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1e5), st.integers(0, 100))
def test_relu_field_without_biases_is_homogeneous(t, seed):
    model = NeuralODE(5, 2, 8, activation="relu", bias=False, seed=seed).double()
    u = normal(6, 5, seed=seed)
    assert_close(model(t * u), t * model(u), rtol=1e-10, atol=1e-12)


def test_tanh_field_is_not_and_its_displacement_is_bounded():
    model, u = NeuralODE(5, 2, 8, seed=0).double(), normal(6, 5)
    assert not torch.allclose(model(10 * u), 10 * model(u), rtol=0.01)
    bound = model.outer.weight.abs().sum(1) + model.outer.bias.abs()
    assert ((model.flow(1e6 * u) - 1e6 * u).abs() <= bound + 1e-6).all()


def test_count_and_seed():
    assert count_parameters(NeuralODE(10, 10, 78)) == 10 * 78 + 78 + 78 * 10 + 10 + 110
    assert count_parameters(NeuralODE(10, 10, 78, bias=False)) == 2 * 780 + 100
    before = torch.get_rng_state()
    one, same, other = (NeuralODE(4, 2, 3, seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one) and not torch.equal(
        one["inner.weight"], other["inner.weight"]
    )


@pytest.mark.parametrize(
    ("options", "message"), [({"activation": "gelu"}, "got 'gelu'"), ({"n_steps": 0}, "at least 1, got 0")]
)
def test_bad_values_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        NeuralODE(3, 3, 3, **options)
