"""Sets of inputs: their ends, their support, and what is refused."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness.bound_methods import bounds
from implicit_models.robustness.checking.checker import check
from implicit_models.robustness.input_sets import Box, Replace, SparseBox, input_set
from implicit_models.robustness.problem import from_matrices


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([None, 0, 1, 2, 3]))
def test_support_is_the_largest_value_over_the_corners(seed, card):
    rng = np.random.default_rng(seed)
    U, sigma = rng.normal(size=(4, 3)), rng.uniform(0, 1, (4, 3))
    sets = (Box(sigma) if card is None else SparseBox(sigma, card)).around(U)
    V = rng.normal(size=(2, 3))
    for i in range(4):
        corners = [
            np.array(s) * sets.radius[i]
            for s in itertools.product((-1, 0, 1), repeat=3)
            if card is None or np.count_nonzero(s) <= card
        ]
        np.testing.assert_allclose(sets.support(V)[i], [max(v @ c for c in corners) for v in V], atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_a_clipped_box_ends_exactly_at_the_range(seed):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.normal(size=2))
    U = rng.uniform(low, high, (50, 3))
    sets = Box(0.3, clip=(low, high)).around(U)
    assert sets.lower.min() >= low and sets.upper.max() <= high
    np.testing.assert_array_equal(sets.lower, np.maximum(U - 0.3, low))
    np.testing.assert_array_equal(sets.take([3, 1]).upper, sets.upper[[3, 1]])
    assert (
        sets.contains(sets.lower).all()
        and sets.contains(sets.upper).all()
        and not sets.contains(sets.upper + 1e-9).any()
    )
    assert (sets.centre - sets.radius <= sets.lower + 1e-15).all() and (
        sets.centre + sets.radius >= sets.upper - 1e-15
    ).all()


@pytest.mark.parametrize("card", [None, 1])
def test_what_lies_in_a_set_is_not_decided_by_the_rest_of_the_batch(card):
    radius = np.array([0.5, 0.0])
    sets = (Box(radius) if card is None else SparseBox(radius, card)).around(np.array([[1.0, 0.0], [1e12, 0.0]]))
    assert sets.contains(sets.lower).all() and sets.contains(sets.upper).all()
    assert sets.contains(sets.upper + [[4e-16, 0], [1e-4, 0]]).all()
    assert sets.contains(sets.upper + [1e-5, 0]).tolist() == [False, True]
    assert sets.contains(sets.centre + [0, 1e-5]).tolist() == [False, True]


def test_a_radius_may_carry_a_gradient():
    U, sigma = np.zeros((2, 3)), torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(Box(sigma).around(torch.from_numpy(U).requires_grad_()).radius, np.full(3, 0.5))


@pytest.mark.parametrize("method", ["box", "interval", "dual"])
def test_radii_of_every_sample_give_the_same_bits_in_any_batch(method):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 6))
    model = from_matrices(
        0.7 * A / np.abs(A).sum(1, keepdims=True),
        rng.normal(size=(6, 9)),
        rng.normal(size=(3, 6)),
        rng.normal(size=(3, 9)),
    )
    U, sigma = rng.normal(size=(40, 9)), rng.uniform(0, 0.1, (40, 9))
    whole = bounds(model, U, Box(sigma), method=method)
    for i in (0, 7, 39):
        one = bounds(model, U[i : i + 1], Box(sigma[i : i + 1]), method=method)
        np.testing.assert_array_equal(one.lb[0], whole.lb[i])
        np.testing.assert_array_equal(one.ub[0], whole.ub[i])


def test_what_is_no_set_is_refused():
    U = np.zeros((2, 3))
    for kind in (U + 1j, torch.zeros(2, 3, dtype=torch.complex64)):
        with pytest.raises(TypeError, match="U must be real numbers"):
            Box(0.1).around(kind)
    with pytest.raises(TypeError, match="radius must be real numbers"):
        Box(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"got -0.1 at index \(1, 2\)"):
        Box(np.array([[0, 0, 0], [0, 0, -0.1]]))
    with pytest.raises(ValueError, match="not negative, got nan"):
        SparseBox(np.nan, 1, clip=(0, 1))
    with pytest.raises(ValueError, match="got inf; a SparseBox with a clip range may have"):
        Box(np.inf, clip=(0, 1))
    with pytest.raises(ValueError, match=r"\(p,\) or \(N, p\), got shape \(1, 2, 3\)"):
        Box(np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match=r"have shape \(3,\) or \(2, 3\), got \(3, 2\)"):
        Box(np.zeros((3, 2))).around(U)
    with pytest.raises(ValueError, match=r"U must have shape \(N, p\), got \(3,\)"):
        Box(0.1).around(U[0])
    for clip in ((1, 0), (0, np.nan), (0, 1, 2), 1.0):
        with pytest.raises(ValueError, match="clip must be .low, high. with low < high"):
            Box(0.1, clip)
    with pytest.raises(ValueError, match=r"sample 0 is outside the clip range \(1, 2\): U\[0, 0\] = 0"):
        Box(0.1, clip=(1, 2)).around(U)
    with pytest.raises(ValueError, match="k must be an int between 0 and p = 3, got 4"):
        SparseBox(0.1, 4).around(U)
    for k in (-1, 1.5, True, None):
        with pytest.raises(ValueError, match=f"k must be a non-negative int, got {k}"):
            SparseBox(0.1, k)
    with pytest.raises(ValueError, match=r"clip=\(0, 1\) and k=2 do not go together"):
        SparseBox(0.1, 2, clip=(0, 1)).around(U)
    for low, high in ((1, 0), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ValueError, match="low <= high"):
            Replace(low, high, 2)


@pytest.mark.parametrize(
    "radius", [True, "0.1", [True] * 5, np.array(True), torch.tensor([True]), ["0.1"], None, [None, 1.0], object()]
)
def test_a_radius_that_is_no_number_is_named(radius):
    for make in (Box, lambda r: SparseBox(r, 1)):
        with pytest.raises(TypeError, match="radius must be (numbers|a number), got"):
            make(radius)


def test_fractions_are_numbers():
    assert Box(Fraction(1, 4)).radius == 0.25 and Box([Fraction(1, 2), 1]).radius.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("clip", [(0, "1"), (None, 1), (False, True), "01", (0, 1j), (np.zeros(2), np.ones(2))])
def test_an_end_of_a_range_that_is_no_number_is_named(clip):
    for make in (lambda: Box(0.1, clip), lambda: SparseBox(0.1, 1, clip)):
        with pytest.raises(TypeError, match="an end of clip must be a number, got"):
            make()


@pytest.mark.parametrize("name, low, high", [("low", "a", 1), ("low", None, 1), ("high", 0, True), ("high", 0, 1j)])
def test_an_end_of_the_values_that_is_no_number_is_named(name, low, high):
    with pytest.raises(TypeError, match=f"{name} must be a number, got"):
        Replace(low, high, 1)


def test_a_range_of_values_whose_width_overflows_is_refused():
    with pytest.raises(ValueError, match=r"width of \[low, high\] must be finite .* got \(-1e\+308, 1e\+308\)"):
        Replace(-1e308, 1e308, 1)
    assert Replace(-8e307, 8e307, 1).k == 1


def test_sets_hold_copies_that_nobody_changes():
    radius, clip, low = np.full(3, 0.1), np.array([0.0, 1.0]), np.array(0.0)
    box, few, drawn = Box(radius, clip), SparseBox(torch.from_numpy(radius), 1), Replace(low, 1, 1)
    radius[:], clip[:], low[...] = -0.5, 7.0, 5.0
    for held in (box.radius, few.radius, box.take([0]).radius):
        np.testing.assert_array_equal(held, np.full(3, 0.1))
        with pytest.raises(ValueError, match="read-only"):
            held[0] = 1.0
    assert box.clip == (0, 1) and drawn.low == 0
    assert Box(0.1, [0, 1]).clip == (0, 1)


@pytest.mark.parametrize("given", [0.1, Box([0.1, 0.2, 0.3]), Box(np.full((2, 3), 0.1)), SparseBox(0.1, 1)])
def test_what_is_proved_stays_so_when_the_samples_change(given):
    rng = np.random.default_rng(0)
    model = from_matrices(rng.uniform(-0.2, 0.2, (4, 4)), rng.normal(size=(4, 3)), rng.normal(size=(2, 4)))
    U, spec = rng.normal(size=(2, 3)), np.eye(2)
    for samples in (U, torch.from_numpy(U)):
        found = bounds(model, samples, given, spec=spec)
        centre = U.copy()
        assert check(found.cert)
        U += 5
        spec[:] *= 2
        assert check(found.cert)
        np.testing.assert_array_equal(found.cert.centre, centre)


def test_samples_in_bfloat16_are_the_numbers_that_they_are():
    U = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    np.testing.assert_array_equal(Box(0.1).around(U).centre, U.double().numpy())
    assert Box(torch.tensor(0.1).bfloat16()).radius == 0.10009765625  # 205 / 2048


def test_a_number_is_the_radius_of_a_box():
    for value in (0.1, 1, np.float32(0.5), np.int64(2), np.array(0.25)):
        found = input_set(value)
        assert isinstance(found, Box) and found.radius == value and found.clip is None
    box = SparseBox(0.1, 2)
    assert input_set(box) is box
    for value in (None, True, "0.1", [0.1], np.zeros(3), torch.zeros(3), 1j):
        with pytest.raises(
            TypeError, match="inputs must be a Box or a SparseBox, or the radius of a Box as a number, got"
        ):
            input_set(value)
    with pytest.raises(TypeError, match="inputs must be a Box, or the radius of a Box as a number, got SparseBox"):
        input_set(box, Box)


def test_a_set_says_what_it_is_on_one_line():
    assert repr(Box(0.1)) == "Box(radius=0.1)" and repr(Box(2, (0, 1))) == "Box(radius=2, clip=(0, 1))"
    assert repr(SparseBox(np.inf, 3, (0, 1))) == "SparseBox(radius=inf, k=3, clip=(0, 1))"
    assert repr(Box(np.linspace(0, 1, 700))) == "Box(radius=float64 (700,), 0 to 1)"


def test_sets_of_some_samples():
    own, shared = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0])
    np.testing.assert_array_equal(Box(own).take([2, 0]).radius, own[[2, 0]])
    few = SparseBox(own, 1, clip=(0, 9)).take(np.array([False, True, False]))
    assert few.k == 1 and few.clip == (0, 9) and np.array_equal(few.radius, own[[1]])
    np.testing.assert_array_equal(Box(shared).take([0]).radius, shared)
