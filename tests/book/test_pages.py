"""Generated pages: every claim and erratum is there, escaped, with the verdict that follows from its values."""

import csv
import io
import re

import pytest

from reproduction.book.claims import Recorded, Verdict
from reproduction.book.pages import __main__ as writer
from reproduction.book.pages import markup, records

CLAIM = {
    "id": "a<b",
    "papers": [{"paper": "001", "where": "Table 1 & 2"}],
    "kind": "number",
    "statement": "x < 5 & y",
    "published": {"x": 1e5},
    "notebook": "ch5_identity",
    "measure": {"notebook": "ch5_identity", "key": "k"},
    "reproduced_if": "median < 5",
    "direction_if": "median < 50",
    "explanation": "because <b>",
}


@pytest.fixture
def recorded(monkeypatch):
    values = {}
    monkeypatch.setattr(records, "recorded_values", lambda name: values.get(name, Recorded(None, None)))
    return values


def content(value, seeds=(0, 1)):
    return {"values": {"k": value}, "units": {"k": "s"}, "seeds": list(seeds), "profile": "full"}


def counts_of(html):
    """Group -> counts in the order of the verdicts, and their sum, as the matrix above the scoreboard shows them."""
    rows = re.findall(r'<tr data-group="([^"]+)">(.*?)</tr>', html)
    return {group: re.findall(r"<td>(\d+)</td>", row) for group, row in rows}


def test_verdict_comes_from_the_committed_run_and_the_build_stands_beside(recorded):
    recorded["ch5_identity"] = Recorded(content([10.0, 20.0]), content([1.0]), "stale")
    html = records.scoreboard([CLAIM])
    cells = re.findall(r'<td data-label="([^"]+)">(.*?)</td>', html)
    text = dict(cells)
    assert "reproduced in direction" in text["measured, full run"] and "15 [10, 20] s" in text["measured, full run"]
    assert "of an earlier version" in text["measured, full run"]
    assert "reproduced" in text["this build"] and "1 s" in text["this build"]
    assert (
        "because &lt;b&gt;" in html
        and "x &lt; 5 &amp; y" in html
        and "Table 1 &amp; 2" in html
        and 'id="a&lt;b"' in html
    )
    assert counts_of(html)["numbers"] == ["0", "1", "0", "0", "0", "1"]


def test_without_a_run_nothing_is_claimed(recorded):
    html = records.scoreboard([CLAIM])
    assert "not measured in this build" in html and counts_of(html)["numbers"] == ["0", "0", "0", "0", "1", "1"]


def test_measured_claims_come_first(recorded):
    other = {
        name: value
        for name, value in CLAIM.items()
        if name not in ("measure", "reproduced_if", "direction_if", "explanation")
    }
    html = records.scoreboard([other | {"id": "first-in-file"}, CLAIM | {"id": "measured"}])
    assert html.index('id="measured"') < html.index('id="first-in-file"')


def test_badges_stand_beside_the_claim_and_data_under_the_details(recorded):
    said = {"stand_in": "CIFAR-10 for <CIFAR-100>", "by_construction": True, "data": "CIFAR-10", "images": 500}
    html = records.scoreboard([CLAIM | said])
    assert html.count('class="badge"') == 2 and "CIFAR-10 for &lt;CIFAR-100&gt;" in html and "by construction" in html
    assert "<dt>data</dt><dd>CIFAR-10</dd>" in html and "<dt>images of the fit</dt><dd>500</dd>" in html
    assert 'class="badge"' not in records.scoreboard([CLAIM])


def test_explanations_are_shown_with_their_values(recorded):
    text = "seeds: {ch5_identity:parameters_implicit}"
    assert "seeds: 196" in records.scoreboard([CLAIM | {"explanation": text}])


ERRATUM = {
    "id": "e",
    "papers": [{"paper": "000", "where": "x"}],
    "printed": "10 times",
    "right": "81 times",
    "evidence": "ratio",
    "severity": "number",
    "checked": "numeric",
    "shown": {"notebook": "ch5_identity", "values": {"ratio": "k"}},
}


def test_ranked_errata_come_first_and_withdrawn_ones_last_with_the_reason():
    entries = [ERRATUM | {"id": "plain"}, ERRATUM | {"id": "gone", "withdrawn": "not an error"}]
    entries += [ERRATUM | {"id": "second", "rank": 2}, ERRATUM | {"id": "first", "rank": 1}]
    html = records.errata(entries)
    places = [html.index(f'id="{name}"') for name in ("first", "second", "plain", "gone")]
    assert places == sorted(places) and "not an error" in html and html.startswith("<p>3 entries")
    assert "Withdrawn" not in records.errata([ERRATUM])


def test_errata_show_their_values(recorded):
    entry = ERRATUM
    recorded["ch5_identity"] = Recorded(content([81.0]), None)
    html = records.errata([entry])
    assert "ratio: 81 s" in html and 'data-shown="shown"' in html
    recorded.clear()
    assert "ratio: 81" not in records.errata([entry])


def test_committed_claims_make_one_row_each():
    from reproduction.book.claims import CLAIMS, ERRATA, load_claims, read_yaml

    claims, entries = load_claims(CLAIMS), read_yaml(ERRATA)
    assert len(re.findall(r"<tr id=", records.scoreboard(claims))) == len(claims) >= 388
    kept = [entry for entry in entries if "withdrawn" not in entry]
    assert len(re.findall(r"<tr id=", records.errata(entries))) == len(kept) >= 125


def test_a_file_is_rewritten_only_when_it_changed(tmp_path):
    path = tmp_path / "a" / "x.html"
    writer.write(path, "one")
    before = path.stat().st_mtime_ns
    writer.write(path, "one")
    assert path.stat().st_mtime_ns == before
    writer.write(path, "two")
    assert path.read_text() == "two"


def test_verdict_cell_marks_staleness():
    assert "stale" in markup.verdict_cell(Verdict("reproduced", "1", True))
    assert "stale" not in markup.verdict_cell(Verdict("reproduced", "1", False))


def test_formulas_are_escaped_and_called_what_mathjax_sets():
    html = markup.named("of 002: $a < b & c \\{001\\}$, <b> in 001")
    assert html == (
        'of Tsai 2024: <span class="math notranslate nohighlight">\\(a &lt; b &amp; c \\{001\\}\\)</span>, &lt;b&gt; in'
        " Decugis et al. 2024"
    )
    assert markup.named("$x$$y$").count("<span") == 2 and markup.named("5 < 6") == "5 &lt; 6"
    with pytest.raises(ValueError, match="odd number of dollars in '5 \\$'"):
        markup.named("5 $")


def test_each_row_links_to_itself(recorded):
    for html in (records.scoreboard([CLAIM]), records.errata([ERRATUM | {"id": "a<b"}])):
        row = re.search(r'<tr id="([^"]+)".*?</tr>', html)
        assert row[1] == "a&lt;b" and f'href="#{row[1]}"' in row[0] and 'aria-label="link to this row"' in row[0]


def test_the_csv_says_what_a_row_of_the_scoreboard_says(recorded):
    recorded["ch5_identity"] = Recorded(content([10.0, 20.0]), None, "stale")
    said = {"statement": 'of 002, "$x < 5$"', "stand_in": "CIFAR-10", "by_construction": True}
    head, row, other = csv.reader(
        io.StringIO(
            records.scoreboard_csv([CLAIM | said, CLAIM | {"notebook": "x", "measure": {"notebook": "x", "key": "k"}}])
        )
    )
    row = dict(zip(head, row, strict=True))
    assert row == {
        "id": "a<b",
        "papers and places": "Decugis et al. 2024, Table 1 & 2",
        "kind": "number",
        "statement": 'of Tsai 2024, "$x < 5$"',
        "published": "x: 100000",
        "measured": "15 [10, 20] s",
        "verdict": "reproduced in direction",
        "standing": "stale",
        "stand-in": "CIFAR-10",
        "by construction": "yes",
        "notebook": "ch5_identity",
    }
    assert dict(zip(head, other, strict=True))["standing"] == "no full run"
    assert records.CSV in records.scoreboard([CLAIM])


def test_verdicts_by_paper_stand_folded_above_the_table(recorded):
    recorded["ch5_identity"] = Recorded(content([10.0, 20.0]), None)
    html = records.scoreboard([CLAIM, CLAIM | {"id": "s", "kind": "setting"}])
    rows = dict(re.findall(r'<tr [^>]*data-tally="([^"]+)">(.*?)</tr>', html))
    counts = {name: re.findall(r"<td>(\d+)</td>", row) for name, row in rows.items()}
    assert counts["Decugis et al. 2024"] == counts["Decugis et al. 2024: numbers"] == ["0", "1", "0", "0", "0", "1"]
    assert counts["Decugis et al. 2024: settings"] == ["0", "1", "0", "0", "0", "1"] and counts["Tsai 2024"][-1] == "0"
    assert "<details" in html.partition('data-tally="')[0]


def test_codes_become_names_and_numbers_stay():
    assert (
        markup.named("10,000 x 10; 002: 1,000; 000, 003: 5")
        == "10,000 x 10; Tsai 2024: 1,000; Ganesh 2023, Workshop 2022: 5"
    )
    assert markup.named("a < .003 and 0.001 (004 has 1)") == "a &lt; .003 and 0.001 (SIM paper has 1)"
