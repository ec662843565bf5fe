"""Data sets of the five papers: synthetic generators and resolvers of public data, in NumPy.

Every generator takes one `seed` and returns a `Dataset`; same seed, same arrays. Importing this package imports none of
the generators; each is loaded when first named.

`core` holds the data set, its streams of random numbers and the one resolver of public files; `synthetic`, `images`,
`text` and `market` and `earthquakes` import it, and not each other. Nothing here imports the library or torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "Dataset": "data_gen.core.dataset",
    "DatasetUnavailable": "data_gen.core.dataset",
    "identity": "data_gen.synthetic.functions",
    "addition": "data_gen.synthetic.functions",
    "subtraction": "data_gen.synthetic.functions",
    "fashion_mnist": "data_gen.images.vision",
    "mnist": "data_gen.images.vision",
    "digits": "data_gen.images.vision",
    "cifar10": "data_gen.images.cifar",
    "newsgroups": "data_gen.text.topics",
    "rolling_average": "data_gen.synthetic.rolling",
    "rolling_argmax": "data_gen.synthetic.rolling",
    "spiky": "data_gen.synthetic.spiky",
    "volatility": "data_gen.market.volatility",
    "earthquake": "data_gen.earthquakes",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'data_gen' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
