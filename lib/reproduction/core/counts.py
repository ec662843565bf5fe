"""Studies that show how many parameters a model has need no warning of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from implicit_models.sim.report import MoreParameters


@contextmanager
def parameters_shown() -> Iterator[None]:
    """No `MoreParameters` inside: what is computed there says itself how many there are. Also a decorator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreParameters)
        yield
