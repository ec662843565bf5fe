"""What benchmarks share: ratios, checks, the written file."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import harness


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=1, max_size=9))
def test_ratio_is_taken_repeat_by_repeat(pairs):
    slow, fast = zip(*pairs)
    found = harness.ratio(slow, fast)
    each = sorted(s / f for s, f in pairs)
    assert found["min"] == each[0] and found["max"] == each[-1] and each[0] <= found["median"] <= each[-1]


def test_ratio_wants_pairs():
    with pytest.raises(ValueError):
        harness.ratio([1.0], [1.0, 2.0])


def test_geometric_mean():
    assert harness.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_interleaved_calls_every_function_once_to_warm_up_and_then_in_turn():
    clock = iter(range(10_000))
    order = []
    times = harness.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, least=1.0, clock=lambda: next(clock)
    )
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("passed", [True, False])
def test_file_holds_area_machine_ratios_and_checks_and_the_exit_tells(tmp_path, monkeypatch, capsys, passed):
    report = harness.Report({"x": {"median": 2.0, "min": 1.0, "max": 3.0}}, {}, {})
    report.check("fast enough", passed)
    path = tmp_path / "deep" / "r.json"
    monkeypatch.setattr(sys, "argv", ["x", "--quick", "--json", str(path)])
    with pytest.raises(SystemExit) as stop:
        harness.main("area", lambda quick: report, threads=None)
    assert stop.value.code == (0 if passed else 1)
    content = json.loads(path.read_text())
    assert content["area"] == "area" and content["quick"] is True and content["checks"] == {"fast enough": passed}
    assert content["ratios"]["x"] == {"median": 2.0, "min": 1.0, "max": 3.0} and content["machine"]["cores"] >= 1
    assert ("pass" if passed else "FAIL") in capsys.readouterr().out


def test_committed_run_has_the_shape_that_pages_read():
    from reproduction.book.graph import ROOT

    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        content = json.loads(path.read_text())
        assert content["area"] == path.stem and content["quick"] is False
        assert all(set(entry) == {"median", "min", "max"} for entry in content["ratios"].values())
        assert all(isinstance(value, bool) for value in content["checks"].values())
