"""A public name stays what it is after every submodule of its package has been imported."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [
    "implicit_models",
    "implicit_models.compose",
    "implicit_models.equilibrium",
    "implicit_models.sim",
    "implicit_models.robustness",
    "implicit_models.seismology",
    "data_gen",
]


def submodules(package):
    """Modules that a package's stub names as such."""
    folder = ROOT / ("lib" if package.startswith("implicit_models") else "") / package.replace(".", "/")
    return re.findall(r"^from \. import (\w+)", (folder / "__init__.pyi").read_text(), flags=re.MULTILINE)


@pytest.mark.extended
@pytest.mark.parametrize("package", PACKAGES)
def test_no_submodule_hides_a_public_name(package):
    code = f"""
SUBMODULES = {submodules(package)}
import importlib, pkgutil, {package} as package
for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    if not found.name.endswith(("kernel_calls", "__main__")):
        importlib.import_module(found.name)
from types import ModuleType
modules = [name for name in package.__all__ if isinstance(getattr(package, name), ModuleType)]
print(len(package.__all__), *[name for name in modules if name not in SUBMODULES])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    count, *hidden = done.stdout.split()
    assert int(count) > 0 and not hidden


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves(package):
    found = importlib.import_module(package)
    assert all(getattr(found, name) is not None for name in found.__all__)
    modules = [name for name in found.__all__ if isinstance(getattr(found, name), ModuleType)]
    assert sorted(modules) == sorted(submodules(package))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name
