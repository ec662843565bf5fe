"""What README and the book's pages show runs, and what they point to exists."""

import re
from pathlib import Path

import pytest

from reproduction.book.run import NOTEBOOKS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "book").glob("*.md"))]}


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if blocks(text)])
def test_examples_run_in_order_and_print_what_they_say(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    for block in blocks(PAGES[name]):
        exec(compile(block, name, "exec"), namespace)
        printed = capsys.readouterr().out.splitlines()
        # A comment `# -> text` after a print says what it must print.
        expected = [text.strip() for text in re.findall(r"#\s*->\s*(.*)$", block, flags=re.MULTILINE)]
        assert not expected or printed == expected


def test_library_example_learns(capsys):
    block = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)[1]
    assert len([line for line in block.splitlines() if line.strip()]) <= 11
    exec(compile(block, "readme", "exec"), {"__name__": "readme"})
    loss, kind, converged = re.match(r"loss (\S+) (\w+) (\w+)", capsys.readouterr().out).groups()
    assert float(loss) < 1e-2 and kind == "pf" and converged == "True"


def test_readme_lists_every_notebook_and_target():
    for path in NOTEBOOKS.glob("*.ipynb"):
        assert f"`{path.stem}`" in README, path.stem
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_links_and_images_exist():
    for name, text in PAGES.items():
        base = ROOT if name == "README.md" else ROOT / "book"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not target.startswith(("http", "_executed/", "_generated/")):
                assert (base / target).exists(), f"{name}: {target}"


def test_every_page_is_in_the_table_of_contents():
    toc = (ROOT / "book" / "_toc.yml").read_text()
    for path in (ROOT / "book").glob("*.md"):
        assert re.search(rf"(file|root): {path.stem}\b", toc), path.name


def test_bibliography_keys_are_unique_and_cited():
    text = (ROOT / "book" / "references.bib").read_text()
    keys = re.findall(r"^@\w+\{([^,]+),", text, flags=re.MULTILINE)
    assert len(keys) == len(set(keys))
    from reproduction.book.run import cell_text, read_notebook

    prose = "\n".join(PAGES.values()) + "\n".join(
        cell_text(cell) for path in NOTEBOOKS.glob("*.ipynb") for cell in read_notebook(path.stem)["cells"]
    )
    for cited in re.findall(r"\{cite[:a-z]*\}`([^`]+)`", prose):
        for key in cited.split(","):
            assert key.strip() in keys, key


def test_cost_column_is_that_of_the_committed_runs():
    from reproduction.book.results import RESULTS, load, numbers

    for path in NOTEBOOKS.glob("*.ipynb"):
        content = load(RESULTS / f"{path.stem}.json")
        if content is None:
            assert re.search(rf"^\| `{path.stem}` \|.*\| no full run yet \|$", README, flags=re.MULTILINE), path.stem
            continue
        row = re.search(rf"^\| `{path.stem}` \|.*\| (\d+) seeds, ([\d,]+) CPU s \|$", README, flags=re.MULTILINE)
        assert row, path.stem
        assert int(row[1]) == len(content["seeds"])
        # Networks may have come from the cache, their training then counts by itself.
        training = numbers(content["values"].get("training_cpu_seconds", 0.0))[0]
        assert int(row[2].replace(",", "")) == round(max(training, content["provenance"]["cpu_seconds"]))
