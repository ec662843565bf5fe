"""Each how-to page is a script: its blocks of Python, one after the other, run in an empty folder and print what they
say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "book" / "howto").glob("*.md"))
SLOW = ()  # names of pages that take more than a few seconds


def script_of(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.extended] if page.stem in SLOW else []) for page in PAGES],
)
def test_script_runs_in_an_empty_folder(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = script_of(page)
    Path("script.py").write_text(text, encoding="utf-8")
    runpy.run_path("script.py", run_name="__main__")
    # A comment `# -> text` after a print says what it must print.
    expected = [line.strip() for line in re.findall(r"#\s*->\s*(.*)$", text, flags=re.MULTILINE)]
    printed = capsys.readouterr().out
    assert not expected or printed.splitlines() == expected
    assert expected or "assert " in text or printed  # a script that shows nothing teaches nothing


def test_scripts_are_short_and_their_pages_are_listed():
    toc = (ROOT / "book" / "_toc.yml").read_text(encoding="utf-8")
    for page in PAGES:
        lines = [line for line in script_of(page).splitlines() if line.strip()]
        assert 0 < len(lines) <= 40, (page.name, len(lines))
        assert re.search(rf"file: howto/{page.stem}\b", toc), page.name
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "_executed/" in target or (page.parent / target).exists(), f"{page.name}: {target}"
