"""Data sets of the five papers: synthetic generators and resolvers of public data, in NumPy.

Every generator takes one `seed` and returns a `Dataset`; same seed, same arrays. Importing this
package imports none of the generators; each is loaded when first named.
"""

import sys
from importlib import import_module
from types import ModuleType

_HOME = {
    "Dataset": "data_gen.dataset",
    "DatasetUnavailable": "data_gen.dataset",
    "identity": "data_gen.functions",
    "addition": "data_gen.functions",
    "subtraction": "data_gen.functions",
    "fashion_mnist": "data_gen.vision",
    "mnist": "data_gen.vision",
    "digits": "data_gen.vision",
    "cifar10": "data_gen.cifar",
    "newsgroups": "data_gen.text",
    "rolling_average": "data_gen.rolling",
    "rolling_argmax": "data_gen.rolling",
    "spiky": "data_gen.spiky",
    "volatility": "data_gen.volatility",
    "earthquake": "data_gen.earthquake",
}

__all__ = sorted(_HOME)


class _Package(ModuleType):
    """`newsgroups`, `spiky` and others are functions and modules; an import of the module would put it in the
    function's place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'data_gen' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
