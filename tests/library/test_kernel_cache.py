"""Machine code is kept true to all sources of an area, wherever it can be kept, and asking for it is cheap."""

import ast
import importlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from implicit_models import kernels

ADDING = """
from implicit_models.kernels import kernel
from implicit_models.toy.steps import STEP, step


@kernel
def twice(x):
    return step(step(x))
"""
STEPS = """
from implicit_models.kernels import kernel

STEP = 1


@kernel
def step(x):
    return x + STEP
"""
CALLS = """
from implicit_models.toy.adding import twice


def call_all():
    assert twice(1) > 1
"""


@pytest.fixture
def package(tmp_path):
    """A package of one area whose one kernel calls another's in a second file."""
    area = tmp_path / "lib" / "implicit_models" / "toy"
    area.mkdir(parents=True)
    shutil.copy(kernels.__file__, area.parent)
    for name, text in (("adding", ADDING), ("steps", STEPS), ("kernel_calls", CALLS), ("__init__", "")):
        (area / f"{name}.py").write_text(text)
    (area.parent / "__init__.py").write_text("")
    source = (area.parent / "kernels.py").read_text()
    (area.parent / "kernels.py").write_text(re.sub(r"\nAREAS = \(.*\)", '\nAREAS = ("toy",)', source))
    return area


def start(package, code, **environment):
    root = {"PYTHONPATH": str(package.parents[1]), "HOME": str(package.parents[2]), "TMPDIR": str(package.parents[2])}
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "IMPLICIT_CACHE")}
    command = [sys.executable, *(["-c", code] if code else ["-m", "implicit_models.kernels"])]
    return subprocess.Popen(
        command, env={**kept, **root, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(package, code, **environment):
    child = start(package, code, **environment)
    out, error = child.communicate()
    assert child.returncode == 0, error
    return out, error


TWICE = "from implicit_models.toy.adding import twice; print(twice(1))"


def test_an_edit_of_a_called_kernel_reaches_its_callers_in_other_files(package):
    out, said = run(package, TWICE)
    assert out.strip() == "3" and said.count("kernels are being compiled") == 1
    out, said = run(package, TWICE)
    assert out.strip() == "3" and not said
    steps = package / "steps.py"
    about = steps.stat()
    steps.write_text(STEPS.replace("STEP = 1", "STEP = 5"))
    os.utime(steps, ns=(about.st_atime_ns, about.st_mtime_ns))  # numba itself would see no change in either file
    out, said = run(package, TWICE)
    assert out.strip() == "11" and "kernels are being compiled" in said


@pytest.mark.extended
def test_several_processes_compile_at_once(package):
    children = [start(package, TWICE) for _ in range(3)]
    ends = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], ends
    assert [out.strip() for out, _ in ends] == ["3", "3", "3"]
    assert not run(package, TWICE)[1]


@pytest.mark.extended
def test_where_nothing_can_be_written_a_temporary_folder_serves_with_one_warning(package):
    (package / "__pycache__").write_text("a file: no folder can be made, not by root either")
    out, said = run(package, TWICE, HOME="/dev/null")
    assert out.strip() == "3" and said.count("UserWarning") == 1
    kept = re.search(r"compiled kernels are kept in (\S+),", said)[1]
    assert Path(kept).is_relative_to(package.parents[2]) and not Path(kept).parent.stat().st_mode & 0o077
    out, said = run(package, TWICE, HOME="/dev/null")
    assert out.strip() == "3" and "being compiled" not in said


@pytest.mark.extended
def test_a_temporary_folder_that_others_can_write_is_not_used(package):
    (package / "__pycache__").write_text("")
    folder = package.parents[2] / f"implicit-models-kernels-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert run(package, TWICE, HOME="/dev/null")[0].strip() == "3" and not list(folder.iterdir())


@pytest.mark.extended
def test_the_command_compiles_once_and_again_after_an_edit(package):
    assert "toy kernels compiled" in run(package, None)[0]
    assert run(package, None) == ("", "")
    (package / "steps.py").write_text(STEPS + "\n# longer\n")
    assert "toy kernels compiled" in run(package, None)[0]
    (package / "steps.py").touch()  # numba takes its kernels for changed
    os.utime(package / "steps.py", ns=(time.time_ns(), time.time_ns() + 10**9))
    assert "toy kernels compiled" in run(package, None)[0]
    # folders of other sources go, but for the latest
    for k in range(2):
        (package / "steps.py").write_text(STEPS + f"\n# {k}\n")
        run(package, None)
    assert len(list((package / "__pycache__").glob("toy-*"))) == kernels.KEPT + 1


def test_asking_is_cheap_and_imports_neither_numba_nor_torch():
    code = "from implicit_models import kernels; import sys; [kernels.ready(a) for a in kernels.AREAS];"
    code += "print({'numba', 'torch', 'numpy'} & set(sys.modules))"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.strip() == "set()"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_an_unknown_area_is_named():
    done = subprocess.run([sys.executable, "-m", "implicit_models.kernels", "simm"], capture_output=True, text=True)
    assert done.returncode == 2 and "simm" in done.stderr


def functions_of(path):
    """(kernels of a module by name, names imported: where from)."""
    tree = ast.parse(path.read_text())
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.startswith("implicit_models.")):
            module = node.module.rsplit(".", 1)[-1] if node.level == 0 else node.module
            names |= {a.asname or a.name: (node, module) for a in node.names}
    return [n for n in found if any("kernel" in ast.unparse(d) for d in n.decorator_list)], names


@pytest.mark.parametrize("area", kernels.AREAS)
def test_what_a_kernel_reads_of_other_files_is_in_the_digest(area):
    """Constants are compiled in as functions are: a kernel may use only names of kernel modules of its own area."""
    watched, seen = {path.stem for path in kernels.sources(area)}, 0
    for path in kernels.sources(area):
        found, names = functions_of(path)
        for function in found:
            for name in {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} & set(names):
                node, module = names[name]
                own = node.level == 1 or node.module.startswith(f"implicit_models.{area}.")
                assert name == "kernel" or (own and module in watched), f"{path.name}: {function.name} reads {name}"
                seen += name != "kernel"
    assert seen > 3


@pytest.mark.extended
@pytest.mark.parametrize("area", kernels.AREAS)
def test_every_kernel_has_machine_code_after_the_command(area):
    """`call_all` reaches each kernel, by itself or in another's code."""
    kernels.compile_area(area)
    missing = []
    for path in kernels.sources(area):
        inside = path.relative_to(Path(kernels.__file__).parent).with_suffix("").parts
        module = importlib.import_module(".".join(["implicit_models", *inside]))
        for function in functions_of(path)[0]:
            if not getattr(module, function.name).signatures and not list(
                kernels.folder(area).rglob(f"{path.stem}.{function.name}-*.nbi")
            ):
                missing.append(f"{path.stem}.{function.name}")
    assert not missing
