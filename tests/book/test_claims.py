"""Verdicts follow from values and conditions; the committed claims and errata are well formed and complete."""

import os
import re
from pathlib import Path

import pytest
import yaml

from reproduction.book import claims as c
from reproduction.book import claims_check, explanations
from reproduction.book.pages import tally

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
        ({"by_construction": False}, "by_construction is true or left out, got False"),
        ({"stand_in": ""}, "stand_in wants a text"),
        ({"data": 3}, "data wants a text, got 3"),
        ({"images": 0.5}, "images wants a whole number or a text, got 0.5"),
        ({"epochs": True}, "epochs wants a whole number"),
        ({"measure": {"notebook": "n", "key": "k"}, "reproduced_if": "median >"}, "reproduced_if 'median >'"),
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


def test_committed_claims_errata_and_quotations_have_no_fault():
    faults = claims_check.check()
    assert not faults, "\n".join(faults)


MEASURED = next(claim for claim in CLAIMS if "measure" in claim and "key" in claim["measure"])


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"measure": {"notebook": "ch9_none", "key": "k"}}, "no notebook ch9_none"),
        ({"measure": MEASURED["measure"] | {"key": "nothing"}}, "does not record"),
        ({"reproduced_if": "middle > 1"}, "no value named 'middle'"),
        ({"reproduced_if": "n < 0", "direction_if": "n < 0", "explanation": ""}, "no explanation"),
    ],
)
def test_a_fault_of_a_claim_is_found(change, fault):
    assert not list(claims_check.claim_faults(MEASURED))
    (found,) = claims_check.claim_faults(MEASURED | change)
    assert fault in found


@pytest.mark.parametrize("field", explanations.SHOWN)
def test_a_quoted_value_that_is_not_recorded_is_a_fault(field):
    good = {field: "of {ch5_identity:parameters_implicit} and {ch5_identity:growth_implicit_40}"}
    assert not list(explanations.text_faults(good))
    assert explanations.explained(good, field) == "of 196 and 81 [81, 81]"
    bad = {field: "{ch5_identity:nothing} {ch9_none:k}"}
    first, second = explanations.text_faults(bad)
    assert field in first and "does not record 'nothing'" in first and "ch9_none" in second
    with pytest.raises(KeyError, match="'nothing'"):
        explanations.explained(bad, field)


@pytest.mark.parametrize(
    "text, fault",
    [
        ("$a$ and $b", "odd number of dollars"),
        ("an empty $ $", "an empty formula"),
        ("$x_{i$", "braces of $x_{i$ are no pairs"),
        ("$}{$", "braces of $}{$"),
        (r"$\begin{pmatrix} 0$", r"\begin{pmatrix} of"),
        (r"$\end{pmatrix}$", r"\end{pmatrix} of"),
        (r"$\begin{a} \begin{b} \end{a} \end{b}$", r"\end{a} of"),
    ],
)
def test_a_formula_that_cannot_be_set_is_a_fault_wherever_it_stands(text, fault):
    for entry, field in (({"statement": text}, "statement"), ({"published": {"x": ["y", text]}}, "published")):
        found = list(claims_check.dollar_faults("claims.yml", entry))
        assert found and found[0].startswith(field) and fault in found[0]
    assert list(claims_check.dollar_faults("errata.yml", {"withdrawn": text}))


@pytest.mark.parametrize(
    "text", ["plain { text", r"$\{ x \}$ and $a_{b_{c}}$", r"$\begin{pmatrix} 0 \\ 1 \end{pmatrix}$"]
)
def test_formulas_in_pairs_are_no_fault(text):
    assert not list(claims_check.dollar_faults("claims.yml", {"statement": text, "published": {"x": 1.0}}))


def test_units_are_quoted_too(monkeypatch):
    run = {"values": {"k": [1.0, 3.0, 2.0]}, "units": {"k": "km"}}
    monkeypatch.setattr(explanations, "committed", lambda name: run)
    assert explanations.explained({"explanation": "lost {ch1_x:k}."}) == "lost 2 [1, 3] km."
    assert explanations.explained({}) == ""


def test_tally_counts_by_kind_and_leaves_settings_out_of_the_sum():
    kinds = ["theorem", "number", "parameter_count", "ratio", "trend", "ordering", "setting", "setting"]
    rows = [{"id": str(i), "kind": kind} for i, kind in enumerate(kinds)]
    verdicts = dict.fromkeys(map(str, range(8)), "reproduced") | {"1": "not reproduced", "7": "not reproduced"}
    found = tally.verdict_counts(rows, verdicts)
    assert list(found) == ["theorems", "numbers", "ratios", "trends and orderings", "all but settings", "settings"]
    assert found["numbers"] == dict.fromkeys(c.VERDICTS, 0) | {"reproduced": 1, "not reproduced": 1}
    assert found["trends and orderings"]["reproduced"] == 2
    assert found["all but settings"] == dict.fromkeys(c.VERDICTS, 0) | {"reproduced": 5, "not reproduced": 1}
    assert sum(sum(row.values()) for row in (found["all but settings"], found["settings"])) == len(rows)


STOOD_IN = {
    "ch3_newsgroups": "TF-IDF network for DistilBERT",
    "ch3_perspective": "TF-IDF network for DistilBERT",
    "ch3_resnet20_cifar": "CIFAR-10 for CIFAR-100",
    "ch5_volatility": "synthetic market for minute bars of AMC",
}


def test_rows_of_a_stand_in_say_so():
    rows = [claim for claim in CLAIMS if claim.get("measure", {}).get("notebook") in STOOD_IN]
    assert len(rows) > 50
    assert not [row["id"] for row in rows if row.get("stand_in") != STOOD_IN[row["measure"]["notebook"]]]


DIRECTIONS = [claim for claim in CLAIMS if claim["kind"] in ("ordering", "trend") and "direction_if" in claim]


@pytest.mark.parametrize("claim", DIRECTIONS, ids=lambda claim: claim["id"])
def test_a_direction_of_orders_and_trends_wants_one_sign_in_every_seed(claim):
    measure = claim["measure"]
    values = explanations.committed(measure["notebook"])["values"]
    keys = measure.get("keys", {"median": measure.get("key")})
    several = {name for name, key in keys.items() if isinstance(values[key], list) and len(set(values[key])) > 1}
    assert not several & set(re.findall(r"[A-Za-z_]\w*", claim["direction_if"])), "_min or _max is wanted"


def test_a_claim_of_two_papers_counts_in_each():
    rows = [
        {"id": "both", "kind": "number", "papers": [{"paper": "000"}, {"paper": "002"}, {"paper": "002"}]},
        {"id": "one", "kind": "setting", "papers": [{"paper": "002"}]},
    ]
    found = tally.paper_counts(rows, {"both": "reproduced", "one": "not testable here"})
    assert list(found) == [name for name, _ in c.PAPERS.values()]
    assert [counts["numbers"]["reproduced"] for counts in found.values()] == [1, 0, 1, 0, 0]
    assert found["Tsai 2024"]["all but settings"] == dict.fromkeys(c.VERDICTS, 0) | {"reproduced": 1}
    assert found["Tsai 2024"]["settings"]["not testable here"] == 1


def test_every_kind_belongs_to_one_group():
    assert sorted(tally.GROUP_OF) == sorted(c.KINDS)
    assert sum(map(len, tally.GROUPS.values())) == len(c.KINDS)


def test_errata_of_most_value_are_ranked_and_withdrawn_ones_say_why():
    entries = c.read_yaml(c.ERRATA)
    assert {entry["rank"] for entry in entries if "rank" in entry} == {1, 2, 3, 4, 5}
    withdrawn = [entry for entry in entries if "withdrawn" in entry]
    assert all("rank" not in entry and len(entry["withdrawn"]) > 20 for entry in withdrawn)


def test_tally_of_the_committed_runs_counts_every_row():
    found = tally.verdict_counts(CLAIMS)
    assert sum(found["all but settings"].values()) + sum(found["settings"].values()) == len(CLAIMS)


def test_a_fault_of_an_erratum_is_found():
    entry = {"id": "no-such-entry", "shown": {"notebook": "ch5_identity"}}
    assert list(claims_check.erratum_faults(entry)) == ["neither a value nor a cell of ch5_identity names this entry"]
    entry["shown"]["values"] = {"x": "nothing"}
    assert list(claims_check.erratum_faults(entry)) == ["ch5_identity does not record 'nothing'"]


@pytest.mark.parametrize("quotation", ["measured ch5_identity nothing", "verdict ch5-none ", "published ch5-none "])
def test_a_fault_of_a_quotation_is_found(quotation):
    assert len(list(claims_check.quotation_faults(*quotation.split(" "), {}))) == 1


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
        digits = [
            re.findall(r"\d+(?:\.\d+)?|\.\d+", c.format_published(side["published"])) for side in (ours[row["id"]], row)
        ]
        assert digits[0] == digits[1], row["id"]


@pytest.mark.skipif(published_side() is None, reason="the list of known errors is not at hand (IMPLICIT_DATA)")
def test_no_known_erratum_is_missing():
    known = yaml.safe_load(published_side().with_name("errata_candidates.yml").read_text())
    assert {entry["id"] for entry in known} <= {entry["id"] for entry in c.read_yaml(c.ERRATA)}
