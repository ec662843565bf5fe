"""Extrapolation tasks on vectors, against brute-force sums and Monte Carlo."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.core.streams import stream
from data_gen.synthetic.functions import TABLE_5_2_RANGES, addition, identity, subtraction


def test_identity_is_the_identity_on_the_stated_ranges():
    data = identity(400, 300, shifts=(0, 5, 200), seed=3)
    assert data.u_train.shape == (400, 10) and data.u_train.dtype == np.float32
    for _, u, y in data.splits():
        assert np.array_equal(u, y)
    widths = {shift: float(np.abs(u).max()) for shift, (u, _) in data.test.items()}
    # 3,000 uniform draws come within one percent of their bound.
    assert 4.95 < widths[0] <= 5 and 9.9 < widths[5] <= 10 and 203 < widths[200] <= 205
    u = data.test[200][0].astype(float)
    assert np.mean(u**2) == pytest.approx(205**2 / 3, rel=0.05)


def brute_force(u, positions, sign):
    i, j, k, l = positions
    one = sum(u[:, entry - 1].astype(float) for entry in range(i, j + 1))
    return one + sign * sum(u[:, entry - 1].astype(float) for entry in range(k, l + 1))


@pytest.mark.parametrize(("task", "sign"), [(addition, 1), (subtraction, -1)])
def test_targets_are_the_two_inclusive_sums(task, sign):
    data = task(50, 40, t=(2, 1e5), seed=11)
    i, j, k, l = data.meta["positions"]
    assert 1 <= i < j <= 50 and 1 <= k < l <= 50
    for _, u, y in data.splits():
        expected = brute_force(u, (i, j, k, l), sign)
        np.testing.assert_allclose(y[:, 0], expected, rtol=1e-6, atol=1e-6 * np.abs(u).max())
    assert 0.95e5 / 2 < np.abs(data.test[1e5][0]).max() <= 1e5 / 2


def test_subtraction_shares_inputs_and_positions_with_addition():
    plus, minus = addition(20, 10, seed=5), subtraction(20, 10, seed=5)
    assert np.array_equal(plus.u_train, minus.u_train)
    assert plus.meta["positions"] == minus.meta["positions"]


def test_table_5_2_setting():
    data = addition(200, 100, dim=100, ranges=TABLE_5_2_RANGES, seed=0)
    assert data.u_train.shape == (200, 100)
    assert 1 <= data.u_train.min() < 1.01 and 1.99 < data.u_train.max() <= 2
    ((interval, (u, y)),) = data.test.items()
    assert interval == (2.0, 5.0) and 2 <= u.min() < 2.01 and 4.99 < u.max() <= 5
    np.testing.assert_allclose(y[:, 0], brute_force(u, data.meta["positions"], 1), rtol=1e-6)


def test_eight_entries_are_distinct_and_signed():
    data = subtraction(30, 10, terms="eight_entries", t=(2,), seed=2)
    plus, minus = data.meta["positions"]
    assert len({*plus, *minus}) == 8
    u = data.u_train.astype(float)
    expected = u[:, np.array(plus) - 1].sum(1) - u[:, np.array(minus) - 1].sum(1)
    np.testing.assert_allclose(data.y_train[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("terms", ["two_ranges", "eight_entries"])
@pytest.mark.parametrize("sign", [1, -1])
def test_floor_of_hidden_positions_by_enumeration(terms, sign):
    """Var[y | u] from every equally likely choice of positions, dim small enough to list them."""
    task = addition if sign == 1 else subtraction
    dim = 5 if terms == "two_ranges" else 9
    data = task(7, 3, dim=dim, t=(2,), terms=terms, indices="per_sample", seed=1)
    if terms == "two_ranges":
        ranges = [np.arange(i, j + 1) for i, j in itertools.combinations(range(dim), 2)]
        choices = itertools.product(ranges, ranges)
    else:
        choices = (
            (np.array(plus), np.array(minus))
            for plus in itertools.combinations(range(dim), 4)
            for minus in itertools.combinations(sorted(set(range(dim)) - set(plus)), 4)
        )
    u = data.u_train.astype(float)
    targets = np.array([u[:, plus].sum(1) + sign * u[:, minus].sum(1) for plus, minus in choices])
    assert data.meta["floor"]["train"] == pytest.approx(targets.var(0).mean(), rel=1e-10)
    assert data.meta["positions"] is None and data.meta["weights"] is None


def test_best_linear_fit_of_hidden_positions_stays_at_the_floor():
    data = addition(20_000, 10, t=(2,), indices="per_sample", seed=4)
    u, y = data.u_train.astype(float), data.y_train.astype(float)
    coefficients, *_ = np.linalg.lstsq(u, y, rcond=None)
    assert np.mean((u @ coefficients - y) ** 2) == pytest.approx(data.meta["floor"]["train"], rel=0.05)
    assert data.meta["floor"]["train"] > 1  # far above what known positions allow
    assert addition(10, 5, t=(2,), seed=4).meta["floor"] == {"train": 0.0, 2: 0.0}


def test_mean_number_of_terms_is_36():
    lengths = []
    for seed in range(800):
        i, j, k, l = addition(1, 1, t=(2,), seed=seed).meta["positions"]
        lengths.append(j - i + 1 + l - k + 1)
    assert np.mean(lengths) == pytest.approx(36, abs=4 * np.std(lengths) / np.sqrt(800))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**40), st.lists(st.sampled_from([2.0, 7.0, 10.0, 1e4]), min_size=1, unique=True))
def test_adding_a_width_changes_no_other_set(seed, widths):
    alone = addition(6, 4, dim=8, t=widths[:1], seed=seed)
    more = addition(6, 4, dim=8, t=widths[::-1], seed=seed)
    assert np.array_equal(alone.u_train, more.u_train)
    assert np.array_equal(alone.test[widths[0]][1], more.test[widths[0]][1])
    again = addition(6, 4, dim=8, t=widths[::-1], seed=seed)
    assert more.checksum() == again.checksum()
    assert more.checksum() != addition(6, 4, dim=8, t=widths[::-1], seed=seed + 1).checksum()


def test_training_and_test_sets_of_one_distribution_differ():
    data = identity(5, 5, shifts=(0,), seed=0)
    assert not np.array_equal(data.u_train, data.test[0][0])


def test_global_random_state_is_untouched():
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    addition(5, 5, seed=1)
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: identity(0, seed=0), "n_train must be at least 1, got 0"),
        (lambda: identity(half_width=-1.0, seed=0), "half_width .* got -1.0"),
        (lambda: identity(shifts=(0, -5), seed=0), "shifts .* got -5"),
        (lambda: identity(shifts=(float("nan"),), seed=0), "shifts .* got nan"),
        (lambda: identity(seed=-1), "seed must be non-negative, got -1"),
        (lambda: addition(t=(0.0,), seed=0), "t must be positive and finite, got 0.0"),
        (lambda: addition(ranges=((1, 2),), seed=0), "at least one test interval"),
        (lambda: addition(ranges=((1, 2), (5, 2)), seed=0), r"low < high, got \(5.0, 2.0\)"),
        (lambda: addition(terms="nine", seed=0), "got 'nine'"),
        (lambda: addition(indices="twice", seed=0), "got 'twice'"),
        (lambda: addition(dim=1, seed=0), "dim = 1 is too small"),
        (lambda: subtraction(dim=7, terms="eight_entries", seed=0), "dim = 7 is too small"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("seed", [1.0, True, "3", None])
def test_seed_must_be_an_integer(seed):
    with pytest.raises(TypeError, match="seed must be an integer"):
        stream(seed, "train")


def test_sizes_must_be_integers():
    with pytest.raises(TypeError, match="n_train must be an integer, got 10.5"):
        identity(10.5, seed=0)
