"""Orchestration: only what changed runs again, a kill loses only what was running, a failure is loud."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Two notebooks: one imports a module of ours, the other waits for a file's permission to end.
CELLS = {
    "alpha": ["from data_gen.constant import VALUE\nprint(VALUE)"],
    "beta": ["import pathlib, time\nwhile pathlib.Path('hold').exists():\n    time.sleep(0.05)"],
}


def write_notebook(folder, name, cells):
    guard = "from reproduction.book.parameters import check_parameters\ncheck_parameters(globals())"
    sources = ['profile = "quick"\nseed = 0', guard, *cells, "seed"]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"c{k}",
                "metadata": {"tags": ["parameters"]} if k == 0 else {},
                "source": [text],
                "outputs": [],
                "execution_count": None,
            }
            for k, text in enumerate(sources)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / f"{name}.ipynb").write_text(json.dumps(notebook))


@pytest.fixture
def project(tmp_path):
    """A copy of the orchestration with two small notebooks and without kernels to compile."""
    for name in ("dodo.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lib" / "reproduction", tmp_path / "lib" / "reproduction", ignore=ignore)
    kernels = tmp_path / "lib" / "implicit_models" / "equilibrium"
    kernels.mkdir(parents=True)
    for path in (kernels.parent / "__init__.py", kernels / "__init__.py"):
        path.write_text("")
    shutil.copy(ROOT / "lib" / "implicit_models" / "summaries.py", kernels.parent)
    (tmp_path / "data_gen").mkdir()
    (tmp_path / "data_gen" / "__init__.py").write_text("")
    shutil.copytree(ROOT / "data_gen" / "core", tmp_path / "data_gen" / "core", ignore=ignore)
    (tmp_path / "data_gen" / "constant.py").write_text("VALUE = 1\n")
    (tmp_path / "notebooks").mkdir()
    for name, cells in CELLS.items():
        write_notebook(tmp_path / "notebooks", name, cells)
    return tmp_path


def start(project, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{project / 'lib'}:{project}", "PROFILE": "quick"}
    return subprocess.Popen(
        [sys.executable, "-m", "doit", "-n", "2", *arguments],
        cwd=project,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def lines(project):
    process = start(project, "notebook")
    out, _ = process.communicate(timeout=120)
    return process.returncode, out, dict(re.findall(r"^\[\d/2\] (\w+) (.*)$", out, flags=re.MULTILINE))


def wait_for(path):
    deadline = time.time() + 60
    while not path.exists():
        assert time.time() < deadline, f"{path.name} did not come"
        time.sleep(0.05)


def test_kill_in_the_middle_loses_only_the_unfinished_notebook(project):
    (project / "notebooks" / "hold").write_text("")
    process = start(project, "notebook")
    executed = project / "book" / "_executed"
    wait_for(executed / "alpha.ipynb")
    wait_for(executed / "beta.running.ipynb")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (executed / "beta.ipynb").exists()
    (project / "notebooks" / "hold").unlink()
    status, out, seen = lines(project)
    assert status == 0, out
    assert seen["alpha"] == "up to date" and re.fullmatch(r"[\d.]+ s", seen["beta"])
    assert lines(project)[2] == {"alpha": "up to date", "beta": "up to date"}


def test_edit_reruns_dependants_only_and_failure_is_named(project):
    assert lines(project)[0] == 0
    (project / "data_gen" / "constant.py").write_text("VALUE = 2\n")
    (project / "data_gen" / "unrelated.py").write_text("VALUE = 3\n")
    status, out, seen = lines(project)
    assert status == 0 and re.fullmatch(r"[\d.]+ s", seen["alpha"]) and seen["beta"] == "up to date"
    write_notebook(project / "notebooks", "beta", ["raise RuntimeError('on purpose')"])
    status, out, seen = lines(project)
    assert status != 0
    assert "FAILED" in seen["beta"] and "notebooks/beta.ipynb, code cell" in out and "on purpose" in out


def test_unknown_profile_is_refused(project):
    environment = {**os.environ, "PYTHONPATH": f"{project / 'lib'}:{project}", "PROFILE": "fast"}
    done = subprocess.run(
        [sys.executable, "-m", "doit", "list"], cwd=project, env=environment, text=True, capture_output=True
    )
    assert done.returncode != 0 and "PROFILE=fast" in done.stderr + done.stdout
