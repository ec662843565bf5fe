"""The two commands and their relatives."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make(*arguments):
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_help_is_the_default_and_lists_every_target():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1].split()
    assert set(re.findall(r"^  make (\w+)", make(), flags=re.MULTILINE)) == set(phony)
    assert {"book", "test", "bench", "serve", "search", "clean", "help"} <= set(phony)


def test_clean_takes_only_what_the_build_made():
    ignored = (ROOT / ".gitignore").read_text()
    commands = [line for line in make("-n", "clean").splitlines() if line.startswith("rm")]
    for path in re.findall(r"(?:^|\s)([.\w/*]+)", " ".join(commands).replace("rm -rf", "")):
        assert path.rstrip("*").rstrip("/") in ignored, path


def test_continuous_integration_runs_the_two_commands():
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make book$.*^make test$", script, flags=re.MULTILINE | re.DOTALL)
    assert "IMPLICIT_DATA" in script
