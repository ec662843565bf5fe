"""Counts and lengths that a generator is given: integers, and large enough."""

from __future__ import annotations

import numpy as np


def check_sizes(least: int, /, **sizes: int) -> None:
    """Refuse sizes that are no integers or too small.

    Args:
        least: smallest size allowed.
        sizes: name -> size; the name is the one that the caller knows it by.

    Raises:
        TypeError: a size that is no integer; True and False are none.
        ValueError: a size below `least`.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, got {size!r}")
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
