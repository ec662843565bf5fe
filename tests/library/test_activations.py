"""Activation maps against NumPy formulas, finite differences and brute-force images."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.activations import COMPONENTWISE, NAMES, resolve_activation

FORMULA = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "identity": lambda z: z,
    "softmax": lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True),
    "max_pool": lambda z: np.concatenate([z.max(-1, keepdims=True), np.zeros_like(z[..., 1:])], -1),
    "product": lambda z: np.stack(
        [np.clip(z[..., ::2], -1, 1) * np.clip(z[..., 1::2], -1, 1), 0 * z[..., ::2]], -1
    ).reshape(z.shape),
}
MIXED = [("relu", 2), ("softmax", 3), ("softmax", 3), ("tanh", 1), ("max_pool", 2), ("leaky_relu(0.3)", 1)]
PAIRS = [("tanh", 4), ("product", 4), ("relu", 4)]


@pytest.mark.parametrize("name", NAMES)
def test_value_matches_the_formula(name):
    z = np.random.default_rng(0).standard_normal((7, 4))
    act = resolve_activation(name, 4)
    np.testing.assert_allclose(act(z), FORMULA[name](z), rtol=1e-14, atol=1e-15)
    assert isinstance(act(torch.from_numpy(z)), torch.Tensor)


def test_mixed_segments_act_on_their_own_states():
    z = np.random.default_rng(1).standard_normal((5, 12))
    x = resolve_activation(MIXED, 12)(z)
    parts = [
        np.maximum(z[:, :2], 0),
        FORMULA["softmax"](z[:, 2:5]),
        FORMULA["softmax"](z[:, 5:8]),
        np.tanh(z[:, 8:9]),
        FORMULA["max_pool"](z[:, 9:11]),
        np.where(z[:, 11:] > 0, z[:, 11:], 0.3 * z[:, 11:]),
    ]
    np.testing.assert_allclose(x, np.concatenate(parts, 1), rtol=1e-14)


@pytest.mark.parametrize("spec", [*NAMES, MIXED, PAIRS])
def test_vjp_matches_finite_differences(spec):
    n = 12
    rng = np.random.default_rng(2)
    z, v, h = rng.standard_normal(n), rng.standard_normal(n), 1e-6
    act = resolve_activation(spec, n)
    jacobian = np.stack([(act(z + h * e) - act(z - h * e)) / (2 * h) for e in np.eye(n)], axis=1)
    np.testing.assert_allclose(act.vjp(z[None], v[None])[0], jacobian.T @ v, atol=1e-8)
    if spec in COMPONENTWISE:
        np.testing.assert_allclose(act.derivative(z), np.diag(jacobian), atol=1e-8)
        np.testing.assert_allclose(act.derivative_at_value(act(z)), np.diag(jacobian), atol=1e-8)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "tanh", "sigmoid", "identity", "max_pool"])
def test_interval_of_a_monotone_map_is_the_image_of_its_ends(name):
    rng = np.random.default_rng(3)
    lower = rng.standard_normal((4, 5))
    upper = lower + rng.random((4, 5))
    lo, hi = resolve_activation(name, 5).interval(lower, upper)
    np.testing.assert_allclose(lo, FORMULA[name](lower))
    np.testing.assert_allclose(hi, FORMULA[name](upper))


def test_softmax_interval_is_tight_at_the_corners():
    rng = np.random.default_rng(4)
    lower = rng.standard_normal(4)
    upper = lower + rng.random(4)
    corners = np.array(list(itertools.product(*zip(lower, upper, strict=True))))
    image = FORMULA["softmax"](corners)
    lo, hi = resolve_activation("softmax", 4).interval(lower, upper)
    np.testing.assert_allclose(lo, image.min(0), rtol=1e-13)
    np.testing.assert_allclose(hi, image.max(0), rtol=1e-13)


def test_product_interval_is_the_range_of_the_corners():
    act = resolve_activation("product", 2)
    lower, upper = np.array([[-0.5, -2.0]]), np.array([[0.25, 0.75]])  # the second factor is cut to [-1, 0.75]
    low, high = act.interval(lower, upper)
    np.testing.assert_array_equal(low, [[-0.375, 0.0]])  # -0.5 * 0.75
    np.testing.assert_array_equal(high, [[0.5, 0.0]])  # -0.5 * -1
    grid = np.stack(
        np.meshgrid(*(np.linspace(a, b, 41) for a, b in zip(lower[0], upper[0])), indexing="ij"), -1
    ).reshape(-1, 2)
    image = act(grid)[:, 0]
    assert image.min() == low[0, 0] and image.max() == high[0, 0]


def test_product_constant_two_is_reached_and_never_passed():
    act = resolve_activation("product", 2)
    z, w = np.random.default_rng(0).uniform(-1.5, 1.5, (2, 100_000, 2))
    change, apart = np.abs(act(z) - act(w)), np.abs(z - w)
    assert (change.max(1) <= 2 * apart.max(1) * (1 + 1e-12)).all() and (
        change.sum(1) <= apart.sum(1) * (1 + 1e-12)
    ).all()
    near = act(np.array([[1.0, 1.0], [1 - 1e-6, 1 - 1e-6]]))[:, 0]
    assert (near[0] - near[1]) / 1e-6 == pytest.approx(2, rel=1e-5) and act.lipschitz.tolist() == [2, 2]


def test_a_product_needs_pairs():
    with pytest.raises(ValueError, match="must be even, got 3"):
        resolve_activation([("relu", 2), ("product", 3)], 5)


def test_softmax_constant_one_half_is_reached_in_the_limit_and_never_passed():
    rng = np.random.default_rng(5)
    act = resolve_activation("softmax", 3)
    largest = 0.0
    for z in rng.standard_normal((300, 3)) * 3:
        s = act(z)
        largest = max(largest, np.abs(np.diag(s) - np.outer(s, s)).sum(0).max())
    s = act(np.array([0.0, 0.0, -60.0]))
    assert largest <= act.lipschitz[0] == 0.5
    assert np.abs(np.diag(s) - np.outer(s, s)).sum(0).max() == pytest.approx(0.5)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 2**32 - 1), st.floats(0.01, 30))
def test_lipschitz_in_the_infinity_norm(name, seed, size):
    rng = np.random.default_rng(seed)
    act = resolve_activation(name, 4)
    u, v = size * rng.standard_normal((2, 4))
    change = np.abs(act(u) - act(v))
    bound = act.lipschitz * (np.abs(u - v) if act.componentwise else np.abs(u - v).max())
    assert np.all(change <= bound + 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_interval_holds_every_point(seed):
    rng = np.random.default_rng(seed)
    act = resolve_activation(MIXED, 12)
    lower = 2 * rng.standard_normal(12)
    upper = lower + rng.exponential(size=12) * (rng.random(12) < 0.7)
    lo, hi = act.interval(lower, upper)
    x = act(lower + (upper - lower) * rng.random((50, 12)))
    assert np.all(x >= lo - 1e-12) and np.all(x <= hi + 1e-12)


def test_blocks_and_kernel_codes():
    act = resolve_activation(MIXED, 12)
    assert act.unit.tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 6]
    assert not act.componentwise and not act.homogeneous
    code, param = resolve_activation(
        [("relu", 1), ("tanh", 1), ("sigmoid", 1), ("leaky_relu(0.2)", 1), ("identity", 1)], 5
    ).kernel_codes
    assert code.dtype == np.int8 and code.tolist() == [0, 1, 2, 0, 0]
    assert param.tolist() == [0, 0, 0, 0.2, 1]
    with pytest.raises(ValueError, match="softmax"):
        _ = resolve_activation("softmax", 3).kernel_codes


def test_restrict_renumbers_whole_blocks():
    act = resolve_activation(MIXED, 12)
    part = act.restrict(np.array([1, 5, 6, 7, 11]))
    z = np.random.default_rng(6).standard_normal((3, 12))
    np.testing.assert_array_equal(part(z[:, [1, 5, 6, 7, 11]]), act(z)[:, [1, 5, 6, 7, 11]])
    with pytest.raises(ValueError, match="cuts a softmax block"):
        act.restrict(np.array([2, 3]))


def test_float32_stays_float32_and_empty_batches_pass():
    for name in NAMES:
        act = resolve_activation(name, 4)
        assert act(torch.zeros(0, 4)).shape == (0, 4)
        assert act(torch.ones(2, 4)).dtype == torch.float32
        assert act.vjp(torch.ones(2, 4), torch.ones(2, 4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ("relo", ValueError, "unknown activation 'relo'"),
        ("leaky_relu(2)", ValueError, "slope.*2"),
        ("leaky_relu(a)", ValueError, "must be a number"),
        ("tanh(1)", ValueError, "takes no parameter"),
        ([("relu", 2), ("tanh", 1)], ValueError, "cover 3 states, but the state has 4"),
        ([("relu", 0), ("tanh", 4)], ValueError, "must be positive"),
        ([("relu", 4.0)], TypeError, "must be an int"),
        (["relu", "tanh"], TypeError, "name or a list"),
        (None, TypeError, "name or a list"),
        ([(4, 4)], TypeError, "is a name"),
    ],
)
def test_bad_specifications_are_named(spec, error, match):
    with pytest.raises(error, match=match):
        resolve_activation(spec, 4)


def test_a_size_that_equals_a_known_one_is_checked_all_the_same():
    """4.0 == 4 and True == 1: a cache of maps must not answer for them."""
    assert resolve_activation([("relu", 3), ("tanh", 1)], 4).n == 4
    for size in (True, 1.0):
        with pytest.raises(TypeError, match="must be an int"):
            resolve_activation([("relu", 3), ("tanh", size)], 4)


def test_bad_arrays_are_named():
    act = resolve_activation("relu", 4)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        act(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"lower > upper at index \(0, 1\)"):
        act.interval(np.array([[0.0, 1, 0, 0]]), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="derivative"):
        resolve_activation("softmax", 3).derivative(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="covers 4 states"):
        resolve_activation(act, 5)
