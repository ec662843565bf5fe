"""Importing the package is cheap: heavy dependencies wait until a name that needs them is used."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "numba", "scipy", "numpy", "cvxpy", "highspy", "obspy", "sklearn", "matplotlib", "ray")


def _modules_after(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(out.stdout.split())


def test_package_imports_nothing_heavy():
    assert not _modules_after("import implicit_models, implicit_models.equilibrium") & set(HEAVY)


def test_kernels_do_not_import_torch():
    loaded = _modules_after(
        "import implicit_models.equilibrium.kernels.gauss_seidel, implicit_models.equilibrium.kernels.newton"
    )
    assert "numba" in loaded and "torch" not in loaded


def test_layers_do_not_import_optional_extras():
    loaded = _modules_after("from implicit_models import ImplicitModel")
    assert "torch" in loaded and not loaded & {"cvxpy", "highspy", "obspy", "sklearn", "matplotlib", "ray"}


def test_public_names_resolve_and_are_listed():
    import implicit_models

    for name in implicit_models.__all__:
        assert name in dir(implicit_models)
        assert getattr(implicit_models, name) is not None
    assert implicit_models.layers.ImplicitModel is implicit_models.ImplicitModel


def test_equilibrium_names_resolve():
    from implicit_models import equilibrium

    for name in equilibrium.__all__:
        assert callable(getattr(equilibrium, name))


@pytest.mark.parametrize("module", ["implicit_models", "implicit_models.equilibrium"])
def test_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = __import__(module, fromlist=["x"]).no_such_name
