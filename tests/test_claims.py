"""Verdicts follow from values and conditions; the committed claims and errata are well formed and complete."""

import os
import re
from pathlib import Path

import pytest
import yaml

from reproduction.book import claims as c
from reproduction.book.run import NOTEBOOKS, code_of, read_notebook
from reproduction.book.results import RESULTS, load

CLAIM = {
    "id": "x",
    "measure": {"notebook": "n", "key": "k"},
    "reproduced_if": "median >= 1e3",
    "direction_if": "median > 1",
}


@pytest.mark.parametrize(
    "values, verdict",
    [
        ([2e3, 5e3, 9e3], "reproduced"),
        ([10.0, 5e3, 20.0], "reproduced in direction"),
        ([0.5], "not reproduced"),
        (["inf", "inf", 1], "reproduced"),
    ],
)
def test_verdict_of_a_value(values, verdict):
    assert c.judge(CLAIM, {"values": {"k": values}}).verdict == verdict


def test_without_measurement_there_is_no_verdict():
    assert c.judge(CLAIM, None).verdict == "not yet measured"
    assert c.judge(CLAIM, {"values": {}}).verdict == "not yet measured"
    assert c.judge({"id": "x"}, {"values": {}}).verdict == "not yet measured"
    assert c.judge({"id": "x", "not_testable": "no data"}, None).verdict == "not testable here"


def test_nan_reproduces_nothing():
    assert c.judge(CLAIM, {"values": {"k": ["nan"]}}).verdict == "not reproduced"


def test_several_keys_have_names_and_ranges():
    claim = {"measure": {"notebook": "n", "keys": {"a": "k1", "b": "k2"}}, "reproduced_if": "a < b and a_max < b_min"}
    assert c.judge(claim, {"values": {"k1": [1, 2, 3], "k2": [4, 5]}}).verdict == "reproduced"
    assert c.judge(claim, {"values": {"k1": [1, 2, 4.5], "k2": [4, 5]}}).verdict == "not reproduced"


def test_text_values_compare():
    claim = {"measure": {"notebook": "n", "key": "best"}, "reproduced_if": "value == 'relu6'"}
    assert c.judge(claim, {"values": {"best": "relu6"}}).verdict == "reproduced"
    assert c.judge(claim, {"values": {"best": "elu"}}).verdict == "not reproduced"


@pytest.mark.parametrize(
    "condition", ["__import__('os')", "median.real > 1", "[1]", "median", "a > 1", "median >", "(lambda: 1)()"]
)
def test_conditions_are_no_programs(condition):
    with pytest.raises(ValueError):
        c.evaluate(condition, {"median": 2.0})


def test_conditions_compute():
    assert c.evaluate("1 < a <= 3 and not b > 2 or False", {"a": 3, "b": 1})
    assert c.evaluate("abs(log10(a) - 5) <= 1.0", {"a": 2e4})
    assert not c.evaluate("-a ** 2 == 9 - 0.5 * 4", {"a": 3})


@pytest.mark.parametrize(
    "broken, message",
    [
        ({"kind": "guess"}, "guess"),
        ({"extra": 1}, "extra"),
        ({"papers": [{"paper": "009", "where": "x"}]}, "009"),
        ({"measure": {"notebook": "n", "key": "k"}}, "reproduced_if"),
        ({"statement": None}, "statement"),
    ],
)
def test_malformed_claims_are_named(tmp_path, broken, message):
    claim = {
        "id": "bad-one",
        "papers": [{"paper": "001", "where": "x"}],
        "kind": "number",
        "statement": "s",
        "published": 1,
        "notebook": "n",
    }
    claim |= broken
    claim = {name: value for name, value in claim.items() if value is not None}
    path = tmp_path / "claims.yml"
    path.write_text(yaml.safe_dump([claim]))
    with pytest.raises(ValueError, match=message):
        c.load_claims(path)


def test_an_id_stands_once(tmp_path):
    path = tmp_path / "claims.yml"
    entry = {"id": "a", "papers": []}
    path.write_text(yaml.safe_dump([entry, entry]))
    with pytest.raises(ValueError, match="'a' stands twice"):
        c.read_yaml(path)


CLAIMS = c.load_claims()


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if "measure" in claim], ids=lambda claim: claim["id"])
def test_measured_claims_are_recorded_by_their_notebook_and_their_conditions_evaluate(claim):
    measure = claim["measure"]
    assert (NOTEBOOKS / f"{measure['notebook']}.ipynb").is_file(), f"no notebook {measure['notebook']}"
    content = load(RESULTS / f"{measure['notebook']}.json")
    assert content is not None, f"no committed full run of {measure['notebook']}"
    names = c.names_of(measure, content["values"])
    assert names is not None, f"{measure} is not recorded"
    for condition in ("reproduced_if", "direction_if"):
        if condition in claim:
            assert c.evaluate(claim[condition], names) in (True, False)
    outcome = c.judge(claim, content).verdict
    if outcome in ("not reproduced", "reproduced in direction"):
        assert claim.get("explanation"), f"{outcome}, but no explanation is given"


@pytest.mark.parametrize(
    "entry", [entry for entry in c.read_yaml(c.ERRATA) if "shown" in entry], ids=lambda entry: entry["id"]
)
def test_shown_errata_have_their_values(entry):
    shown = entry["shown"]
    content = load(RESULTS / f"{shown['notebook']}.json")
    assert content is not None, f"no committed full run of {shown['notebook']}"
    for key in shown.get("values", {}).values():
        assert key in content["values"], f"{key} is not recorded by {shown['notebook']}"
    if not shown.get("values"):
        assert entry["id"] in code_of(read_notebook(shown["notebook"])), "neither a value nor a cell names this entry"


def published_side():
    folder = os.environ.get("IMPLICIT_DATA")
    path = Path(folder).parent / "claims_published.yml" if folder else None
    return path if path and path.is_file() else None


@pytest.mark.skipif(published_side() is None, reason="the list of published statements is not at hand (IMPLICIT_DATA)")
def test_no_published_statement_is_missing_or_changed():
    published = yaml.safe_load(published_side().read_text())
    ours = {claim["id"]: claim for claim in CLAIMS}
    for row in published:
        assert row["id"] in ours, row["id"]
        assert {source["paper"] for source in ours[row["id"]]["papers"]} == {
            source["paper"] for source in row["papers"]
        }
        # Digits are what must not change on the way.
        digits = [re.findall(r"[\d.]+", c.format_published(side["published"])) for side in (ours[row["id"]], row)]
        assert digits[0] == digits[1], row["id"]


@pytest.mark.skipif(published_side() is None, reason="the list of known errors is not at hand (IMPLICIT_DATA)")
def test_no_known_erratum_is_missing():
    known = yaml.safe_load(published_side().with_name("errata_candidates.yml").read_text())
    assert {entry["id"] for entry in known} <= {entry["id"] for entry in c.read_yaml(c.ERRATA)}


def test_record_speaks_to_its_readers():
    for path in (c.CLAIMS, c.ERRATA):
        text = path.read_text()
        for phrase in ("supplied text", "text copy", "PDF", "knowledge page", "prototype", "candidate"):
            assert phrase not in text, f"{path.name}: {phrase}"
