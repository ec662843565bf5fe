"""Independent random streams, one for each split of a data set."""

from __future__ import annotations

import struct

import numpy as np


def stream(seed: int, split: str, *values: float) -> np.random.Generator:
    """Return the generator that belongs to a seed, a split's name and the values that define it.

    Streams are keyed by content, not by order: a data set with one more test shift has the same
    numbers in all its other splits.

    Args:
        seed: non-negative integer, the data set's only source of randomness.
        split: name of the split ("train", "test", "indices").
        values: real parameters that tell two splits of one name apart (the shift).

    Raises:
        TypeError: the seed is not an integer.
        ValueError: the seed is negative.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seed must be non-negative, got {seed}")
    # Adding 0.0 makes the bits of -0.0 and 0.0 the same.
    key = [word for value in values for word in struct.unpack("<II", struct.pack("<d", value + 0.0))]
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(*split.encode(), *key)))
