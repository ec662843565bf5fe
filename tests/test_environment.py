"""pyproject.toml, constraints.txt and environment.yml say the same thing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))


def normalised(requirement):
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", requirement)[0]).lower()


def requirements():
    listed = list(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        listed += extra
    return [name for name in listed if normalised(name) != "implicit-models"]


def test_every_requirement_is_pinned_within_its_range():
    from packaging.requirements import Requirement

    pinned = {normalised(name): version for name, version in PINS.items()}
    wrong = [
        requirement
        for requirement in requirements()
        if not Requirement(requirement).specifier.contains(pinned.get(normalised(requirement), "0"))
    ]
    assert not wrong, "constraints.txt leaves these out, or pins them outside their range: compile it again"


def environment_pip_lines():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge"]
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    assert [name.split("=")[0] for name in plain] == ["python", "pip", "make"]
    python = next(name for name in plain if name.startswith("python="))
    from packaging.specifiers import SpecifierSet

    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(python.split("=")[1])
    return next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))


def test_environment_installs_this_project_with_known_extras():
    constraint, editable = environment_pip_lines()
    assert constraint == "-c constraints.txt" and (ROOT / "constraints.txt").is_file()
    target, extras = re.fullmatch(r"-e (\.)\[([a-z,]+)\]", editable).groups()
    assert target == "."
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert {"book", "test"} <= set(extras.split(","))


def test_environment_pip_lines_resolve_to_what_is_installed():
    """A dry run over the installed distributions, without any index: every name and pin must fit together."""
    _, editable = environment_pip_lines()
    extras = re.search(r"\[([a-z,]+)\]", editable)[1].split(",")
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "--python",
        sys.executable,
        "--dry-run",
        "--no-index",
        "--offline",
        "-c",
        "constraints.txt",
        "-r",
        "pyproject.toml",
    ]
    for extra in extras:
        command += ["--extra", extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Would make no changes" in done.stderr, done.stderr


def test_citation_and_project_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"] == "MIT"
    assert f"## {PROJECT['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()
