"""Units of the states: against networks that were really rescaled, and the norms that the theorem promises."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from implicit_models import ImplicitModel, rescale
from implicit_models.sim.network.scaling import scale_of, scale_states, standard_deviation
from implicit_models.sim.network.states import States, states
from implicit_models.sim.network.teacher import teacher_matrices


def _mlp(*sizes, seed=0, activation=nn.ReLU, bias=True):
    torch.manual_seed(seed)
    layers = []
    for k, (i, o) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers += [nn.Linear(i, o, bias=bias)] + ([activation()] if k < len(sizes) - 2 else [])
    return nn.Sequential(*layers).double()


def _inputs(m, p, seed=0):
    return torch.randn(m, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------- theorem


@given(sizes=st.lists(st.integers(1, 6), min_size=3, max_size=5), seed=st.integers(0, 999), kappa=st.floats(0.05, 3))
@settings(deadline=None, max_examples=25)
def test_theorem_puts_the_network_itself_in_the_ball(sizes, seed, kappa):
    s = states(_mlp(*sizes, seed=seed), _inputs(4, sizes[0]))
    t, unit = teacher_matrices(s), scale_of(s, "theorem", kappa=kappa).s
    norms = (abs(t.A) @ unit) / unit
    np.testing.assert_allclose(norms, kappa * (1 - 1 / unit), rtol=1e-9, atol=1e-12)  # Theorem 2.4, row by row
    assert norms.max() <= kappa * (1 - 1 / unit.max()) * (1 + 1e-12)


def test_theorem_agrees_with_rescale_and_with_the_rescaled_network():
    net, U = _mlp(5, 4, 3, 2), _inputs(6, 5)
    s = states(net, U)
    t = teacher_matrices(s)
    A, B, C, unit = rescale(t.A.toarray(), t.B.toarray(), t.C.toarray(), kappa=0.9)
    scaled = scale_states(s, "theorem", kappa=0.9)
    np.testing.assert_allclose(scaled.s, unit, rtol=1e-12)
    model = ImplicitModel.from_matrices(A, B, C, t.D, b=t.b / unit, d=t.d)
    x = model.equilibrium(U).x.detach().numpy()
    np.testing.assert_allclose(scaled.X, x, atol=1e-12)
    np.testing.assert_allclose(scaled.Z, x @ A.T + U.numpy() @ B.T + t.b / unit, atol=1e-12)
    np.testing.assert_allclose(model(U).detach().numpy(), s.Y, atol=1e-12)
    assert "Theorem 2.4" in scaled.description and "0.9" in scaled.description


def test_theorem_by_hand():
    # x2 = 2 x1 and x1 = u: s1 = 1, s2 = 1 + 2/kappa
    s = States.from_arrays(*(np.ones((3, 2)),) * 2, np.ones((3, 1)), np.ones((3, 1)))
    A = np.array([[0.0, -2.0], [0.0, 0.0]])
    for given_A in (A, sp.csr_array(A), torch.from_numpy(A)):
        np.testing.assert_allclose(scale_of(s, "theorem", kappa=0.5, A=given_A).s, [5.0, 1.0])


def test_theorem_of_an_implicit_model_needs_kappa_above_its_eigenvalue():
    model = ImplicitModel(3, 2, 6, kappa=0.9, seed=0).double()
    s = states(model, _inputs(5, 3))
    radius = np.abs(np.linalg.eigvals(np.abs(model.A.detach().numpy()))).max()
    unit = scale_of(s, "theorem", kappa=1.05 * radius).s
    A = np.abs(model.A.detach().numpy())
    assert (A @ unit / unit).max() < 1.05 * radius
    for kappa in (0.95 * radius, 0.3 * radius):
        with pytest.raises(ValueError, match="Perron-Frobenius"):
            scale_of(s, "theorem", kappa=kappa)


def test_theorem_at_an_eigenvalue_is_refused():
    s = States.from_arrays(*(np.ones((3, 2)),) * 2, np.ones((3, 1)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="Perron-Frobenius"):
        scale_of(s, "theorem", kappa=0.5, A=np.diag([0.5, 0.1]))
    with pytest.raises(ValueError, match="weights are unknown"):
        scale_of(s, "theorem")
    with pytest.raises(ValueError, match=r"shape \(2, 2\).*got \(1, 2\)"):
        scale_of(s, "theorem", A=np.ones((1, 2)))


def test_deep_theorem_scale_does_not_overflow():
    net = _mlp(*[20] * 40, 3)
    with torch.no_grad():
        for layer in net[::2]:
            layer.weight.mul_(10)
    s = states(net, _inputs(3, 20))
    unit = scale_of(s, "theorem").s
    assert unit.max() > 1e40 and np.isfinite(unit).all()
    t = teacher_matrices(s)
    assert ((abs(t.A) @ unit) / unit).max() <= 0.99 * (1 + 1e-12)


# ---------------------------------------------------------------- std, uniform, none, given


def test_standard_deviation_of_every_state_and_dead_states():
    net, U = _mlp(5, 4, 3, 2), _inputs(700, 5)
    with torch.no_grad():
        net[0].bias[1] = -100.0  # dead
    s = states(net, U)
    scaled = scale_states(s, "std")
    dead = s.layers["1"].start + 1
    assert scaled.s[dead] == 1.0 and (s.X[:, dead] == 0).all()
    alive = s.X.std(0) > 0
    np.testing.assert_allclose(scaled.X[:, alive].std(0), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(scaled.Z, s.Z / scaled.s)
    constant = int((~alive).sum())
    assert f"{constant} constant" in scaled.description
    np.testing.assert_allclose(
        standard_deviation(s.X + 1e6, samples_a_pass=13), s.X.std(0), rtol=1e-8
    )  # two passes, no cancellation
    np.testing.assert_allclose(standard_deviation(s.X.astype(np.float32)), s.X.std(0), rtol=1e-5)


def test_uniform_is_the_network_with_divided_weights():
    net, U = _mlp(5, 4, 3, 2, bias=False), _inputs(8, 5)
    with torch.no_grad():
        net[0].weight.mul_(20)  # the first layer decides
    s = states(net, U)
    scaled = scale_states(s, "uniform", kappa=0.8)
    g = max(float(layer.weight.detach().abs().sum(1).max()) for layer in net[::2]) / 0.8
    divided = _mlp(5, 4, 3, 2, bias=False)
    with torch.no_grad():
        for mine, theirs in zip(divided[::2], net[::2]):
            mine.weight.copy_(theirs.weight / g)
    want = states(divided, U)
    np.testing.assert_allclose(scaled.X, want.X, rtol=1e-12)
    np.testing.assert_allclose(scaled.Z, want.Z, rtol=1e-12)
    assert max(float(layer.weight.detach().abs().sum(1).max()) for layer in divided[::2]) == pytest.approx(0.8)
    assert f"{g:.4g}" in scaled.description


def test_none_and_given_units():
    s = states(_mlp(5, 4, 2), _inputs(8, 5))
    same = scale_states(s, "none")
    np.testing.assert_array_equal(same.X, s.X)
    units = np.arange(1.0, 5.0)
    for given_units in (units, torch.from_numpy(units), list(units)):
        np.testing.assert_array_equal(scale_states(s, given_units).Z, s.Z / units)


@pytest.mark.parametrize(
    ("scale", "match"),
    [
        ("max", "unknown scale 'max'; choose one of theorem, std, uniform, none"),
        (np.ones(3), r"shape \(4,\), got \(3,\)"),
        (np.array([1.0, 0.0, 1.0, 1.0]), "positive and finite, got 0.0 for state 1"),
        (np.array([1.0, 1.0, np.nan, 1.0]), "got nan for state 2"),
    ],
)
def test_bad_scales(scale, match):
    s = states(_mlp(5, 4, 2), _inputs(8, 5))
    with pytest.raises(ValueError, match=match):
        scale_of(s, scale)


@pytest.mark.parametrize("kappa", [0.0, -1.0, np.nan, np.inf])
def test_bad_kappa(kappa):
    s = states(_mlp(5, 4, 2), _inputs(8, 5))
    for name in ("theorem", "uniform"):
        with pytest.raises(ValueError, match="kappa"):
            scale_of(s, name, kappa=kappa)


def test_uniform_needs_layers_with_weights():
    with pytest.raises(ValueError, match="layered network"):
        scale_of(states(ImplicitModel(3, 2, 4, seed=0), _inputs(5, 3)), "uniform")
    net = _mlp(3, 2, 1)
    for p in net.parameters():
        nn.init.zeros_(p)
    with pytest.raises(ValueError, match="weight that is not zero"):
        scale_of(states(net, _inputs(5, 3)), "uniform")


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid])
def test_states_of_maps_that_are_not_homogeneous_are_not_rescaled(activation):
    s = states(_mlp(5, 4, 2, activation=activation), _inputs(8, 5))
    with pytest.raises(ValueError, match="not positively homogeneous.*scale='none'"):
        scale_states(s, "std")
    np.testing.assert_array_equal(scale_states(s, "none").X, s.X)
    assert np.all(scale_of(s, "std").s > 0)  # the units themselves are fine: a fit returns from them


def test_leaky_relu_and_identity_are_homogeneous():
    s = states(_mlp(5, 4, 2, activation=lambda: nn.LeakyReLU(0.2)), _inputs(8, 5))
    scaled = scale_states(s, "std")
    np.testing.assert_allclose(np.where(scaled.Z > 0, scaled.Z, 0.2 * scaled.Z), scaled.X, atol=1e-14)
