"""Rolling functions over short sequences: the average, and the index of the maximum, of what has been seen so far.

The key of `Dataset.test` is what the papers vary: for the average the shift s of the mean, N(3 + s, 1), so that 0 is
the training distribution; for the maximum the upper end t of U(0, t), so that 1 is. Targets exist for every step; the
papers evaluate the maximum at the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from data_gen.core.dataset import Dataset
from data_gen.core.sizes import check_sizes
from data_gen.core.streams import stream

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
AVERAGE_SHIFTS = (0.0, 10.0, 25.0, 50.0, 75.0, 100.0)
ARGMAX_SCALES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)


def rolling_average(
    n_train: int = 10_000,
    n_test: int = 3_000,
    length: int = 10,
    mean: float = 3.0,
    shifts: Sequence[float] = AVERAGE_SHIFTS,
    *,
    seed: int,
) -> Dataset:
    """The rolling average: y_j = (u_1 + ... + u_j) / j, trained on N(mean, 1), tested on N(mean + s, 1).

    Args:
        n_train, n_test: sequences of the training set and of each test set.
        length: T, steps of a sequence.
        mean: of the training distribution.
        shifts: s, any number with mean + s within float32; the keys of `Dataset.test`.
        seed: of all draws.

    Returns:
        Dataset with u and y (N, T) float32.

    Raises:
        ValueError, TypeError: a size that is no positive integer, or a mean or shift beyond float32 or not finite.

    Source:
        Decugis et al. (2024), section 2.1 and Table 3; Tsai thesis (2024), section 5.2.
    """
    check_sizes(1, n_train=n_train, n_test=n_test, length=length)
    _check_float32("mean", [mean])
    _check_float32("shifts", shifts, mean)

    def sample(n: int, split: str, *shift: float):
        u = stream(seed, split, *shift).normal(mean + sum(shift), 1.0, (n, length)).astype(np.float32)
        y = np.cumsum(u, axis=1, dtype=np.float64) / np.arange(1, length + 1)
        return u, y.astype(np.float32)

    meta = {"name": "rolling_average", "seed": seed, "mean": mean, "length": length}
    return Dataset(*sample(n_train, "train"), {shift: sample(n_test, "test", shift) for shift in shifts}, meta)


def rolling_argmax(
    n_train: int = 10_000, n_test: int = 3_000, length: int = 10, scales: Sequence[float] = ARGMAX_SCALES, *, seed: int
) -> Dataset:
    """The rolling argmax: y_j is the index, from 0, of the largest of u_1, ..., u_j; trained on U(0, 1), tested on U(0,
    t).

    A tie, which float32 makes possible, goes to the first. Scaling a sequence leaves its targets unchanged: the task is
    homogeneous.

    Args:
        n_train, n_test, length, seed: as `rolling_average`.
        scales: t > 0 within float32's normal numbers, the keys of `Dataset.test`.

    Returns:
        Dataset with u (N, T) float32 and y (N, T) int64 class labels below T.

    Raises:
        ValueError, TypeError: a size that is no positive integer, or a scale not positive and finite in float32.

    Source:
        Decugis et al. (2024), section 2.1 and Table 3; Tsai thesis (2024), section 5.2.
    """
    check_sizes(1, n_train=n_train, n_test=n_test, length=length)
    _check_float32("scales", scales)
    for scale in scales:
        if scale <= 0:
            raise ValueError(f"scales must be positive, got {scale}")
        if scale < SMALLEST:
            raise ValueError(f"scales below {SMALLEST:.3g} make ties in float32, got {scale}")

    def sample(n: int, split: str, *scale: float):
        u = stream(seed, split, *scale).uniform(0.0, math.prod(scale), (n, length)).astype(np.float32)
        leads = u == np.maximum.accumulate(u, axis=1)
        leads[:, 1:] &= u[:, 1:] > np.maximum.accumulate(u, axis=1)[:, :-1]
        return u, np.maximum.accumulate(np.where(leads, np.arange(length), 0), axis=1)

    meta = {"name": "rolling_argmax", "seed": seed, "length": length}
    return Dataset(*sample(n_train, "train"), {scale: sample(n_test, "test", scale) for scale in scales}, meta)


def _check_float32(name: str, values: Sequence[float], offset: float = 0.0) -> None:
    """Refuse values that are not finite, or out of float32's range once the offset is added."""
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
        if abs(value + offset) > LARGEST:
            raise ValueError(f"{name} must fit into float32, {LARGEST:.3g} at most, got {value}")
