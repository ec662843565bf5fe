"""The commands of the Makefile: help names them, and clean takes only what the build made."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make(*arguments):
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_help_is_the_default():
    listed = {line.split()[1] for line in make().splitlines() if line.startswith("  make ")}
    assert {"setup", "book", "test", "bench", "serve", "clean"} <= listed


def test_clean_takes_only_what_git_ignores():
    commands = [line.split()[2:] for line in make("-n", "clean").splitlines() if line.startswith("rm -rf")]
    paths = [path for command in commands for path in command]
    for path in paths:
        done = subprocess.run(["git", "check-ignore", "-q", path.replace("*", "x") + "/x"], cwd=ROOT)
        assert done.returncode == 0, path
    assert ".venv" in paths
