"""Data sets of the five papers: synthetic generators and resolvers of public data, in NumPy.

Every generator takes one `seed` and returns a `Dataset`; same seed, same arrays. Importing this
package imports none of the generators; each is loaded when first named.
"""

from importlib import import_module

_HOME = {
    "Dataset": "data_gen.dataset",
    "DatasetUnavailable": "data_gen.dataset",
    "identity": "data_gen.functions",
    "addition": "data_gen.functions",
    "subtraction": "data_gen.functions",
    "fashion_mnist": "data_gen.vision",
    "mnist": "data_gen.vision",
    "digits": "data_gen.vision",
}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'data_gen' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
