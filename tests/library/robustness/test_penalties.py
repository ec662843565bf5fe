"""Penalties against their formulas, the sensitivity matrix, and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.layers import ImplicitModel
from implicit_models.robustness import NotCertified, sensitivity_matrix
from implicit_models.robustness.penalties import convex_penalty, lipschitz_constant, sensitivity_norm

PENALTIES = (lipschitz_constant, convex_penalty, sensitivity_norm)


def model(seed, n=6, p=4, q=3, norm=0.8, dtype=torch.float64, **options):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    A *= norm / np.abs(A).sum(1).max()
    D = options.pop("D", rng.standard_normal((q, p)))
    parts = [
        None if M is None else torch.tensor(M, dtype=dtype)
        for M in (A, rng.standard_normal((n, p)), rng.standard_normal((q, n)), D)
    ]
    return ImplicitModel.from_matrices(*parts, **options)


def row_norm(M):
    return np.abs(M.detach().numpy()).sum(1).max()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.999), st.booleans())
def test_formulas_and_their_order(seed, norm, skip):
    m = model(seed, norm=norm, **({} if skip else {"D": None}))
    a, b, c, d = row_norm(m.A), row_norm(m.B), row_norm(m.C), row_norm(m.D) if skip else 0.0
    rho, convex, s = (f(m).item() for f in PENALTIES)
    assert rho == pytest.approx(b * c / (1 - a) + d, rel=1e-10)
    assert convex == pytest.approx((b * b + c * c) / 2 / (1 - a) + d, rel=1e-10)
    assert s == pytest.approx(sensitivity_matrix(m).S.sum(1).max(), rel=1e-9)
    assert s <= rho * (1 + 1e-9) and rho <= convex * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_convexity_along_segments(seed, t):
    first, second = model(seed, norm=0.9), model(seed + 1, norm=0.5)
    mixed = model(seed)
    with torch.no_grad():
        for own, x, y in zip(mixed.parameters(), first.parameters(), second.parameters(), strict=True):
            own.copy_(t * x + (1 - t) * y)
    assert float(convex_penalty(mixed)) <= (
        t * float(convex_penalty(first)) + (1 - t) * float(convex_penalty(second))
    ) * (1 + 1e-12)


def test_rho_bounds_the_model():
    m = model(0)
    u, v = torch.randn(2, 300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ratio = (m(u) - m(v)).abs().amax(1) / (u - v).abs().amax(1)
    assert float(ratio.max()) <= float(sensitivity_norm(m)) <= float(lipschitz_constant(m))


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_gradients_are_those_of_finite_differences(penalty, activation):
    m = model(1, activation=activation)
    value = penalty(m)
    gradients = torch.autograd.grad(value, list(m.parameters()))
    for parameter, gradient in zip(m.parameters(), gradients, strict=True):
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        h = 1e-6
        with torch.no_grad():
            parameter.add_(h * direction)
            up = float(penalty(m))
            parameter.sub_(2 * h * direction)
            down = float(penalty(m))
            parameter.add_(h * direction)
        assert (up - down) / (2 * h) == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-6)


def test_activation_constant_and_strict_upper_feedback():
    relu, sigmoid = model(2), model(2, activation="sigmoid")
    a, b, c, d = (row_norm(M) for M in (relu.A, relu.B, relu.C, relu.D))
    assert float(lipschitz_constant(sigmoid)) == pytest.approx(0.25 * b * c / (1 - 0.25 * a) + d, rel=1e-12)
    upper = ImplicitModel(4, 3, 6, feedback="strict_upper", seed=0)
    convex_penalty(upper).backward()
    assert float(upper.A.grad.tril().abs().max()) == 0


def test_float32_is_kept():
    assert all(f(model(0, dtype=torch.float32)).dtype is torch.float32 for f in PENALTIES)


def test_refused_where_they_mean_nothing():
    outside = model(0, norm=1.1)
    for penalty in PENALTIES[:2]:
        with pytest.raises(NotCertified, match="1.1"):
            penalty(outside)
    # ||A|| > 1, but lambda_PF = sqrt(4 x .1) < 1: S exists
    A = torch.tensor([[0.0, 4.0], [0.1, 0.0]], dtype=torch.float64)
    m = ImplicitModel.from_matrices(A, torch.ones(2, 1, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    assert float(sensitivity_norm(m)) == pytest.approx(sensitivity_matrix(m).S.sum(), rel=1e-12)
    with pytest.raises(NotCertified):
        sensitivity_norm(ImplicitModel.from_matrices(3 * A, m.B, m.C))
    with pytest.raises(TypeError, match="componentwise"):
        convex_penalty(model(0, activation="softmax"))
    with pytest.raises(TypeError, match="Linear"):
        convex_penalty(torch.nn.Linear(2, 2))
