"""Confirmation: what changed is found, what ran is seen, and only then is a full result carried over."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from reproduction.book import trace
from reproduction.book.changes import changes
from reproduction.book.confirm import differences, reference_of, same
from reproduction.book.definitions import Ref
from reproduction.book.graph import Graph

ROOT = Path(__file__).resolve().parents[2]
OLD = '''
LIMIT = 3
def f(x):
    """Docstring."""
    if x > 5:
        raise ValueError("x")
    if x > LIMIT:
        y = big(x)
    else:
        y = x
    return y
def big(x):
    return x * x
def unused():
    return LIMIT
'''


def changed(tmp_path, old, new, name="f"):
    """Lines that must run, as the source text of each."""
    graphs = []
    for folder, text in (("old", old), ("new", new)):
        (tmp_path / folder / "pkg").mkdir(parents=True)
        (tmp_path / folder / "pkg" / "__init__.py").write_text("")
        (tmp_path / folder / "pkg" / "m.py").write_text(text)
        graphs.append(Graph(tmp_path / folder, folders={"pkg": "pkg"}, shown=()))
    lines = new.splitlines()
    refs = [Ref("pkg.m", name)]
    return [lines[change.line - 1].strip() for change in changes(graphs[0], refs, graphs[1], refs)]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ('"""Docstring."""', '"""Other words, and a reason."""  # why', []),
        ('raise ValueError("x")', 'raise ValueError(f"x = {x}")', []),
        ("y = big(x)", "y = big(x) + 0", ["if x > 5:", "y = big(x) + 0"]),
        ("        y = x\n", "        y = 1 * x\n", ["if x > 5:", "y = 1 * x"]),
        ("return x * x", "return x**2", ["return x**2"]),
        ("return LIMIT", "return 2 * LIMIT", []),
        ("LIMIT = 3", "LIMIT = 4", ["if x > LIMIT:"]),
        ("    return y\n", "    y = y + 0\n    return y\n", ["if x > 5:", "y = y + 0"]),
        ("    else:\n        y = x\n", "", ["if x > 5:"]),
    ],
)
def test_changed_statements_must_run(tmp_path, old, new, lines):
    assert changed(tmp_path, OLD, OLD.replace(old, new)) == lines


def test_a_renamed_function_must_run_where_it_is_called(tmp_path):
    assert changed(tmp_path, OLD, OLD.replace("big", "square")) == ["if x > 5:", "y = square(x)", "return x * x"]


def test_names_that_swap_their_meaning_must_run(tmp_path):
    old = "A = 1\nB = 2\ndef one():\n    return A\ndef two():\n    return B\ndef f():\n    return one() - two()\n"
    assert changed(tmp_path, old, old.replace("A = 1\nB = 2", "A = 2\nB = 1")) == ["return A", "return B"]


KERNEL = """
from __future__ import annotations
from numba import njit
@njit(cache=True)
def inner(x):
    if x > 3:
        return 1.0
    return 2.0
@njit(cache=True)
def outer(x):
    return inner(x) + 1.0
def call(x):
    if x < 0:
        return 0.0
    return outer(x)
"""


def test_marks_see_statements_inside_compiled_functions(tmp_path):
    """Twice: the second process loads machine code that the first one left in numba's cache."""
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "sitecustomize.py").write_text(f"from {trace.__name__} import install\ninstall()\n")
    lines = {
        text: number for number, text in enumerate(KERNEL.splitlines(), start=1) if text.startswith("        return")
    }
    starts = sorted(lines.values()) + [KERNEL.splitlines().index("    return 2.0") + 1]
    for _ in range(2):
        plan = trace.write_plan(tmp_path / "plan", {str(tmp_path / "kernels.py"): starts}, compiled=True)
        environment = {
            **os.environ,
            trace.PLAN: str(plan),
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'lib'}",
            "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),
            "NUMBA_CACHE_DIR": str(tmp_path / "machine"),
        }
        command = [sys.executable, "-c", "import kernels; print(kernels.call(5))"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "2.0\n"
        missed = trace.missed(plan)[str(tmp_path / "kernels.py")]
        assert [KERNEL.splitlines()[line - 1].strip() for line in sorted(missed)] == ["return 2.0", "return 0.0"]


def test_times_are_left_out_and_all_else_is_compared_bit_for_bit():
    old = {"values": {"a": [1.0, 2.0], "t": 3.0, "n": "nan"}, "units": {"t": "s"}, "curves": {"c": {"x": [0.1]}}}
    new = json.loads(json.dumps(old))
    new["values"]["t"] = 4.0
    assert differences(old, new) == []
    new["values"]["a"][1] = 2.0000000000000004
    new["curves"]["d"] = 1
    assert differences(old, new) == [
        "a: [1.0, 2.0] before, [1.0, 2.0000000000000004] now",
        "d is recorded by one of the runs only",
    ]
    assert same([float("nan")], [float("nan")]) and not same(1, True)


def test_the_last_confirmation_is_the_reference():
    content = {"provenance": {"commit": "a"}}
    assert reference_of(content) == "a"
    assert reference_of({**content, "confirmed": [{"commit": "b"}, {"commit": "c"}]}) == "c"


CELLS = [
    'profile = "quick"\nseed = 0',
    "from data_gen.constant import value\nfrom reproduction.book.parameters import check_parameters\n"
    "from reproduction.book.results import Results\ncheck_parameters(globals())\n"
    'results = Results("alpha", profile=profile, seeds=[seed])',
    'results.record("value", value(3 if profile == "quick" else 30))',
    "results.publish()",
]
MODULE = """
def value(x):
    if x > 10:
        return x * x
    return x + 1
"""


@pytest.fixture
def project(tmp_path):
    """A committed project of one notebook with a full result."""
    shutil.copytree(
        ROOT / "lib" / "reproduction", tmp_path / "lib" / "reproduction", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in ("data_gen", "notebooks", "lib/implicit_models"):
        (tmp_path / folder).mkdir()
    for package in ("data_gen", "lib/implicit_models"):
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "data_gen" / "constant.py").write_text(MODULE)
    (tmp_path / ".gitignore").write_text("__pycache__/\nbook/_executed/\n.confirm/\n")
    cells = [
        {
            "cell_type": "code",
            "id": f"c{k}",
            "metadata": {"tags": ["parameters"]} if k == 0 else {},
            "source": [text],
            "outputs": [],
            "execution_count": None,
        }
        for k, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebooks" / "alpha.ipynb").write_text(json.dumps(content))
    commit(tmp_path, "first", init=True)
    python(tmp_path, "reproduction.book.run", "alpha", "--profile", "full")
    commit(tmp_path, "full run")
    return tmp_path


def commit(folder, message, *, init=False):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in ([["init", "-q"]] if init else []) + [["add", "-A"], [*who, "commit", "-qm", message]]:
        subprocess.run(["git", *command], cwd=folder, check=True)


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'lib'}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.extended
def test_full_results_are_carried_over_where_quick_runs_prove_it(project):
    module, result = project / "data_gen" / "constant.py", project / "results" / "alpha.json"
    assert json.loads(result.read_text())["values"]["value"] == 900
    assert "no full result is stale" in python(project, "reproduction.book.confirm")[1]

    # another way to the same value, which the quick run takes
    module.write_text(MODULE.replace("return x + 1", "return 1 + x"))
    assert "is not committed" in python(project, "reproduction.book.confirm")[1]
    commit(project, "another order")
    status, text = python(project, "reproduction.book.confirm")
    assert status == 0 and "alpha: confirmed (2 changed statements ran)" in text, text
    entry = json.loads(result.read_text())["confirmed"][-1]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True).stdout.strip()
    assert entry["commit"] == head
    commit(project, "confirmed")
    assert "no full result is stale" in python(project, "reproduction.book.confirm")[1]

    # a branch that only the full profile takes
    module.write_text(MODULE.replace("return x + 1", "return 1 + x").replace("x * x", "x**2"))
    commit(project, "the full branch")
    status, text = python(project, "reproduction.book.confirm")
    assert status == 1 and "changed and not run by the quick profile: data_gen.constant.value, line 4" in text, text

    # another value
    module.write_text(MODULE.replace("return x + 1", "return x + 2"))
    commit(project, "another value")
    status, text = python(project, "reproduction.book.confirm")
    assert status == 1 and "differs: value: 4 before, 5 now" in text, text
    assert textwrap.dedent(text).count("stays stale") == 1
