"""The gallery: complete against the papers' captions where these are to be had, checked, linked to what exists."""

import json
import os
import re
from pathlib import Path

import pytest

from reproduction.book.claims import load_claims
from reproduction.book.pages import gallery
from reproduction.book.run import NOTEBOOKS

SEEDS = Path(os.environ.get("IMPLICIT_DATA", "")) / ".." / "seeds"


def test_every_item_leads_to_a_notebook_that_shows_its_figure():
    for paper in gallery.load():
        for item in paper["items"]:
            cells = json.loads((NOTEBOOKS / f"{item['notebook']}.ipynb").read_text(encoding="utf-8"))["cells"]
            if figure := item.get("figure"):
                shown = [c["metadata"].get("mystnb", {}).get("figure", {}) for c in cells]
                texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
                assert any(s.get("name") == figure or s.get("caption", "").startswith(figure) for s in shown) or any(
                    f":name: {figure}\n" in text for text in texts
                ), (item, figure)


def test_claims_are_found_by_whole_numbers():
    claims = [
        {"id": "a", "kind": "number", "papers": [{"paper": "002", "where": "Table 5.1, row 3"}]},
        {"id": "b", "kind": "number", "papers": [{"paper": "002", "where": "Table 5.12"}]},
        {"id": "c", "kind": "setting", "papers": [{"paper": "002", "where": "Table 5.1"}]},
        {"id": "d", "kind": "number", "papers": [{"paper": "001", "where": "Table 5.1"}]},
    ]
    assert [c["id"] for c in gallery.claims_naming("002", "Table 5.1", claims)] == ["a"]
    assert gallery.claims_naming("000", "Figure 2", load_claims())


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the papers' texts are not at hand")
def test_no_caption_of_the_papers_is_missing():
    for paper in gallery.load():
        text = next(SEEDS.glob(f"{paper['paper']}_*.txt")).read_text(encoding="utf-8")
        printed = set(re.findall(r"(?:^|\n)[ *]*((?:Figure|Table) ?\d+(?:\.\d+)?)[:.]", text))
        assert printed <= {item["item"] for item in paper["items"]}, paper["paper"]


@pytest.mark.parametrize(
    "item, message",
    [
        ("{item: Figure 1, notebook: a, picture: b}", "unknown field 'picture'"),
        ("{item: Figure 1, what: x}", "either a notebook or the reason"),
        ("{item: Figure 1, notebook: a}, {item: Figure 1, notebook: b}", "stands twice"),
    ],
)
def test_faults_are_named(tmp_path, item, message):
    path = tmp_path / "gallery.yml"
    path.write_text(f"- {{paper: '000', items: [{item}]}}")
    with pytest.raises(ValueError, match=message):
        gallery.load(path)
