"""What README and the book's pages show runs, and what they point to exists."""

import re
from pathlib import Path

import pytest

from reproduction.book.pages import readme
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
    from reproduction.book.prose import cell_text
    from reproduction.book.run import read_notebook

    prose = "\n".join(PAGES.values()) + "\n".join(
        cell_text(cell) for path in NOTEBOOKS.glob("*.ipynb") for cell in read_notebook(path.stem)["cells"]
    )
    for cited in re.findall(r"\{cite[:a-z]*\}`([^`]+)`", prose):
        for key in cited.split(","):
            assert key.strip() in keys, key


def test_the_table_of_notebooks_is_the_generated_one():
    assert not readme.faults()


def test_a_changed_table_is_a_fault_and_writing_mends_it(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(README.replace("| `ch5_identity` |", "| `ch5_identities` |"))
    (fault,) = readme.faults(path)
    assert "ch5_identity" in fault and "--readme" in fault
    readme.write(path)
    assert not readme.faults(path) and path.read_text() == README


@pytest.mark.parametrize("text", ["", readme.BEGIN, readme.END + readme.BEGIN, readme.BEGIN * 2 + readme.END])
def test_a_readme_without_a_place_for_the_table_is_refused(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="end of notebooks"):
        readme.write(path)
    assert len(readme.faults(path)) == 1 and path.read_text() == text


def test_rows_follow_from_gallery_claims_and_results(monkeypatch):
    papers = [
        {"paper": "002", "items": [{"item": f"Figure 2.{i}", "notebook": "ch2_networks"} for i in (9, 10, 11)]},
        {
            "paper": "004",
            "items": [{"item": "Table 1", "notebook": "ch2_networks"}, {"item": "Table 2", "absent": "x"}],
        },
    ]
    claims = [
        {"id": kind, "kind": kind, "papers": [{"paper": "002"}], "notebook": "ch2_networks"}
        for kind in ("trend", "setting")
    ]
    run = {"seeds": [0], "values": {"training_cpu_seconds": 1234.4}, "provenance": {"cpu_seconds": 5.0}}
    monkeypatch.setattr(readme, "load", lambda path: run)
    name, title, shown, judged, cost = readme.row("ch2_networks", papers, claims)
    assert (name, title) == ("`ch2_networks`", "Networks as implicit models")
    assert (shown, judged, cost) == ("Tsai 2024 Figures 2.9 to 2.11; SIM paper Table 1", "1", "1 seed, 1,234 CPU s")
    monkeypatch.setattr(readme, "load", lambda path: None)
    assert readme.row("ch2_networks", [], claims)[2:] == (
        "no figure or table; claims of Tsai 2024",
        "1",
        "no full run yet",
    )


@pytest.mark.parametrize(
    "numbers, text",
    [
        (["1"], "1"),
        (["1", "2"], "1, 2"),
        (["1", "2", "3", "5"], "1 to 3, 5"),
        (["2.9", "2.10", "2.11", "3.12"], "2.9 to 2.11, 3.12"),
    ],
)
def test_neighbouring_numbers_are_a_range(numbers, text):
    assert readme.ranges(numbers) == text
