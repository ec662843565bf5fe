"""A public name stays what it is after every submodule of its package has been imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

PACKAGES = [
    "implicit_models",
    "implicit_models.equilibrium",
    "implicit_models.sim",
    "implicit_models.robustness",
    "implicit_models.seismology",
    "data_gen",
]


@pytest.mark.extended
@pytest.mark.parametrize("package", PACKAGES)
def test_no_submodule_hides_a_public_name(package):
    code = f"""
import importlib, pkgutil, {package} as package
before = {{name: getattr(package, name) for name in package.__all__}}
for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(len(before), *[name for name, value in before.items() if getattr(package, name) is not value])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    count, *hidden = done.stdout.split()
    assert int(count) > 0 and not hidden


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves(package):
    found = importlib.import_module(package)
    assert all(getattr(found, name) is not None for name in found.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name
