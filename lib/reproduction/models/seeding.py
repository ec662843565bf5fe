"""Random initialisation that leaves the global random state as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Run a with-block with torch's CPU generator seeded, then restore its former state.

    PyTorch's own layers draw from the global generator only; this makes them local.

    Args:
        seed: of the block; None draws from the global state, as PyTorch does.
    """
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
