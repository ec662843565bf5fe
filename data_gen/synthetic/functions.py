"""Extrapolation tasks on plain vectors: the identity, sums and differences.

The papers measure "shift" in three ways, so each generator defines its own key of `Dataset.test`:

- identity: the shift s widens the range, U(-(5 + s), 5 + s). The half-width is 5 + s, so the
  papers' "shift 200" is the half-width 205; s = 0 is the training distribution.
- addition, subtraction: the factor t is the whole width, U(-t/2, t/2); training on U(-1, 1) is t = 2.
- addition, subtraction with `ranges`: the key is the interval itself, such as (2.0, 5.0).

Decugis et al. (2024), section 2.1, define a shift of both mean and deviation; no task uses that one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from data_gen.core.dataset import Dataset
from data_gen.core.streams import stream

IDENTITY_SHIFTS = tuple(range(0, 201, 5))
ARITHMETIC_FACTORS = (2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
TABLE_5_2_RANGES = ((1.0, 2.0), (2.0, 5.0))

Terms = Literal["two_ranges", "eight_entries"]
Indices = Literal["once", "per_sample"]
Range = tuple[float, float]


def identity(
    n_train: int = 10_000,
    n_test: int = 3_000,
    dim: int = 10,
    half_width: float = 5.0,
    shifts: Sequence[float] = IDENTITY_SHIFTS,
    *,
    seed: int,
) -> Dataset:
    """The identity task: y = u, trained on U(-w, w)^dim and tested on U(-(w + s), w + s)^dim.

    Args:
        n_train, n_test: samples of the training set and of each test set (the report tests on
            1,000, the extrapolation paper on 3,000).
        dim: p, entries of u.
        half_width: w of the training distribution.
        shifts: s >= 0, the keys of `Dataset.test`; the half-width tested is w + s.
        seed: of all draws.

    Returns:
        Dataset with u, y (N, dim) float32.

    Raises:
        ValueError: a size below 1, or a half-width or shift that is negative or not finite.

    Source:
        Decugis et al. (2024), section 2.1 and Table 3; Tsai thesis (2024), section 5.2.
    """
    _check_sizes(n_train=n_train, n_test=n_test, dim=dim)
    if not (math.isfinite(half_width) and half_width > 0):
        raise ValueError(f"half_width must be positive and finite, got {half_width}")
    for shift in shifts:
        if not (math.isfinite(shift) and shift >= 0):
            raise ValueError(f"shifts must be non-negative and finite, got {shift}")

    def sample(n: int, split: str, shift: float = 0.0):
        width = half_width + shift
        key = () if split == "train" else (shift,)
        u = stream(seed, split, *key).uniform(-width, width, (n, dim)).astype(np.float32)
        return u, u.copy()

    u_train, y_train = sample(n_train, "train")
    return Dataset(
        u_train,
        y_train,
        {shift: sample(n_test, "test", shift) for shift in shifts},
        {"name": "identity", "seed": seed, "half_width": half_width, "weights": np.eye(dim)},
    )


def addition(
    n_train: int = 10_000,
    n_test: int = 3_000,
    dim: int = 50,
    t: Sequence[float] = ARITHMETIC_FACTORS,
    *,
    ranges: Sequence[Range] | None = None,
    terms: Terms = "two_ranges",
    indices: Indices = "once",
    seed: int,
) -> Dataset:
    """The addition task: y = sum(u[i..j]) + sum(u[k..l]), trained on U(-1, 1), tested on U(-t/2, t/2).

    Positions i < j and k < l are uniform in 1..dim and inclusive: 4 to 2 dim terms, 36 on average
    for dim = 50; an entry in both ranges counts twice.

    Args:
        n_train, n_test: samples of the training set and of each test set.
        dim: p, entries of u.
        t: the widths tested, keys of `Dataset.test`; the training set has t = 2.
        ranges: replaces t: intervals (low, high), the first trained on, the others tested and the
            keys of `Dataset.test`. Table 5.2 is dim = 100, ranges = ((1, 2), (2, 5)).
        terms: "two_ranges" as the papers' text; "eight_entries" as the report's Table 1: the sum of
            four distinct random entries, plus the sum of four others.
        indices: "once" draws the positions once for the data set. "per_sample" is the papers'
            literal wording: each sample has positions of its own that the model never sees, so no
            model's mean squared error is below the mean of Var[y | u] (in meta).
        seed: of all draws.

    Returns:
        Dataset with u (N, dim) and y (N, 1) float32. meta: "weights" (dim,) with y = u @ weights,
        and "positions" (1-based; (i, j, k, l) or two rows of four), both None for "per_sample";
        "floor" {split: mean Var[y | u]}, zero for "once".

    Raises:
        ValueError: a size, width, interval or option outside its domain.

    Source:
        Ganesh (2023), section 3.1 and Tables 1, 3; Decugis et al. (2024), section 2.1 and Table 3; Tsai thesis (2024),
        section 5.2 and Table 5.2.
    """
    return _arithmetic("addition", 1.0, n_train, n_test, dim, t, ranges, terms, indices, seed)


def subtraction(
    n_train: int = 10_000,
    n_test: int = 3_000,
    dim: int = 50,
    t: Sequence[float] = ARITHMETIC_FACTORS,
    *,
    ranges: Sequence[Range] | None = None,
    terms: Terms = "two_ranges",
    indices: Indices = "once",
    seed: int,
) -> Dataset:
    """The subtraction task: y = sum(u[i..j]) - sum(u[k..l]); an entry in both ranges cancels.

    Arguments, result, errors and source are those of `addition`. For one seed, both tasks have the
    same inputs and positions.
    """
    return _arithmetic("subtraction", -1.0, n_train, n_test, dim, t, ranges, terms, indices, seed)


def _arithmetic(name, sign, n_train, n_test, dim, t, ranges, terms, indices, seed) -> Dataset:
    _check_sizes(n_train=n_train, n_test=n_test, dim=dim)
    if terms not in ("two_ranges", "eight_entries"):
        raise ValueError(f"terms must be 'two_ranges' or 'eight_entries', got {terms!r}")
    if indices not in ("once", "per_sample"):
        raise ValueError(f"indices must be 'once' or 'per_sample', got {indices!r}")
    if dim < (8 if terms == "eight_entries" else 2):
        raise ValueError(f"dim = {dim} is too small for terms = {terms!r}")
    trained, tested = _intervals(t, ranges)

    drawn = positions = None
    if indices == "once":
        positions = _draw_positions(stream(seed, "positions"), 1, dim, terms)
        drawn = _weights(positions, dim, terms, sign)
    covariance = np.zeros((dim, dim)) if indices == "once" else _weight_covariance(dim, terms, sign)
    floor = {}

    def sample(n: int, split: str, key, low: float, high: float):
        values = () if split == "train" else (low, high)
        u = stream(seed, split, *values).uniform(low, high, (n, dim)).astype(np.float32)
        weights = drawn
        if weights is None:
            rng = stream(seed, split + " positions", *values)
            weights = _weights(_draw_positions(rng, n, dim, terms), dim, terms, sign)
        exact = u.astype(np.float64)
        y = np.sum(exact * weights, axis=1, keepdims=True).astype(np.float32)
        floor[key] = float(np.mean(np.sum((exact @ covariance) * exact, axis=1)))
        return u, y

    u_train, y_train = sample(n_train, "train", "train", *trained)
    test = {key: sample(n_test, "test", key, *interval) for key, interval in tested.items()}
    meta = {
        "name": name,
        "seed": seed,
        "terms": terms,
        "indices": indices,
        "train_range": trained,
        "positions": None if positions is None else positions[0].tolist(),
        "weights": None if drawn is None else drawn[0],
        "floor": floor,
    }
    return Dataset(u_train, y_train, test, meta)


def _intervals(t: Sequence[float], ranges: Sequence[Range] | None) -> tuple[Range, dict]:
    if ranges is None:
        for width in t:
            if not (math.isfinite(width) and width > 0):
                raise ValueError(f"t must be positive and finite, got {width}")
        return (-1.0, 1.0), {width: (-width / 2, width / 2) for width in t}
    if len(ranges) < 2:
        raise ValueError(f"ranges needs a training interval and at least one test interval, got {ranges!r}")
    intervals = [(float(low), float(high)) for low, high in ranges]
    for low, high in intervals:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"a range must be finite with low < high, got {(low, high)}")
    return intervals[0], {interval: interval for interval in intervals[1:]}


def _draw_positions(rng: np.random.Generator, n: int, dim: int, terms: Terms) -> Int[np.ndarray, "n ..."]:
    """1-based positions: (n, 4) rows i < j, k < l, or (n, 2, 4) distinct entries."""
    if terms == "eight_entries":
        return 1 + rng.permuted(np.tile(np.arange(dim), (n, 1)), axis=1)[:, :8].reshape(n, 2, 4)
    first = rng.integers(0, dim, (n, 2))
    # A second entry uniform over the dim - 1 others, then sorted: every pair i < j equally likely.
    second = (first + rng.integers(1, dim, (n, 2))) % dim
    pairs = np.sort(np.stack([first, second], axis=-1), axis=-1)
    return 1 + pairs.reshape(n, 4)


def _weights(positions: np.ndarray, dim: int, terms: Terms, sign: float) -> Float[np.ndarray, "n dim"]:
    """Coefficients w of every sample, y = w . u."""
    if terms == "eight_entries":
        weights = np.zeros((len(positions), dim))
        np.put_along_axis(weights, positions[:, 0] - 1, 1.0, axis=1)
        np.put_along_axis(weights, positions[:, 1] - 1, sign, axis=1)
        return weights
    entry = np.arange(1, dim + 1)
    i, j, k, l = (positions[:, column, None] for column in range(4))
    return ((entry >= i) & (entry <= j)) + sign * ((entry >= k) & (entry <= l))


def _weight_covariance(dim: int, terms: Terms, sign: float) -> Float[np.ndarray, "dim dim"]:
    """Cov(w) over random positions; Var[y | u] = u' Cov(w) u."""
    if terms == "eight_entries":
        # Two distinct entries s, r hold (w_s, w_r): both in a group 4*3 ways each, one in each 4*4*2.
        variance = 8 / dim - (4 * (1 + sign) / dim) ** 2
        cross = (24 + 32 * sign) / (dim * (dim - 1)) - (4 * (1 + sign) / dim) ** 2
        return np.full((dim, dim), cross) + np.eye(dim) * (variance - cross)
    entry = np.arange(1, dim + 1, dtype=np.float64)
    low, high = np.minimum.outer(entry, entry), np.maximum.outer(entry, entry)
    # P(i <= low, j >= high): pairs with i < j, of dim (dim - 1) / 2; i = j = low = high is no pair.
    pairs = low * (dim + 1 - high) - np.eye(dim)
    both = pairs / (dim * (dim - 1) / 2)
    mean = np.diag(both)
    return 2 * (both - np.outer(mean, mean))


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, got {size!r}")
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
