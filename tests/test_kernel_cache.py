"""A change of any kernel module drops the machine code of all."""

import subprocess
import sys

import pytest

from implicit_models.equilibrium.kernel_cache import KERNEL_MODULES, drop_stale


@pytest.fixture
def folder(tmp_path):
    for name in KERNEL_MODULES:
        (tmp_path / f"{name}.py").write_text(f"# {name}\n")
    drop_stale(tmp_path)
    for name in ("a.nbi", "a.1.nbc", "other.pyc"):
        (tmp_path / "__pycache__" / name).write_text("")
    return tmp_path


@pytest.mark.parametrize("name", KERNEL_MODULES)
def test_any_edit_drops_the_cache(folder, name):
    assert not drop_stale(folder)
    assert (folder / "__pycache__" / "a.nbi").exists()
    (folder / f"{name}.py").write_text("# edited\n")
    assert drop_stale(folder)
    assert sorted(p.name for p in (folder / "__pycache__").iterdir()) == ["kernels.sha256", "other.pyc"]
    assert not drop_stale(folder)


def test_every_module_whose_compiled_code_another_calls_is_listed():
    """Numba itself sees an edit of the file that defines a kernel: only what other files compile in must be watched."""
    import re
    from pathlib import Path

    import implicit_models.equilibrium as package

    texts = {p.stem: p.read_text() for p in Path(package.__file__).parent.glob("*.py")}
    compiled = {name for name, text in texts.items() if "njit" in text or "@intrinsic" in text}
    called = {found for name in compiled for found in re.findall(r"from [\w.]*\.(\w+) import", texts[name])}
    assert "sweeps" in called and compiled & called <= set(KERNEL_MODULES)


def test_kernel_modules_check_before_they_load():
    for name in ("gauss_seidel", "newton"):
        script = (
            f"import implicit_models.equilibrium.kernel_cache as k; seen = []; k.drop_stale = lambda: seen.append(1);"
            f"import implicit_models.equilibrium.{name}; print(len(seen) > 0)"
        )
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "True"
